"""JSON schemas of the files that people write, for editors.

The schemas are generated from the models and committed next to the files; a test compares them.
``python -m patchkit.cli.schema FOLDER`` rewrites them below a series folder.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import TypeAdapter

from patchkit.base.arch import Family
from patchkit.base.toml import TomlTable
from patchkit.base.upstreams import Upstream
from patchkit.carry.series.lock import Lock
from patchkit.carry.series.patch import Patch
from patchkit.carry.series.profile import ArchProfile
from patchkit.carry.series.trust import ClaimFile
from patchkit.prove.verify.policy import SeriesWithPolicy

# By path below the series folder: the title of a schema, and the models that a file may have.
_SCHEMAS: Mapping[str, tuple[str, tuple[type[TomlTable], ...]]] = {
    "arch_profiles/schema.json": ("patchkit GPU profile or family", (ArchProfile, Family)),
    "patches/evidence.schema.json": ("patchkit evidence of a patch", (ClaimFile,)),
    "patches/lock.schema.json": ("patchkit lock", (Lock,)),
    "patches/patch.schema.json": ("patchkit patch", (Patch,)),
    "patches/series.schema.json": ("patchkit series", (SeriesWithPolicy,)),
    "upstreams/schema.json": ("patchkit description of an upstream project", (Upstream,)),
}


def make_schemas() -> dict[str, str]:
    """Return the text of every schema by its path below the series folder; the same on every run."""
    return {path: _schema_text(title, kinds) for path, (title, kinds) in _SCHEMAS.items()}


def _schema_text(title: str, kinds: Sequence[type[TomlTable]]) -> str:
    _, schema = TypeAdapter.json_schemas([(kind.__name__, "validation", TypeAdapter(kind)) for kind in kinds])
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = title
    schema["anyOf"] = [{"$ref": f"#/$defs/{kind.__name__}"} for kind in kinds]
    return json.dumps(schema, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def write_schemas(folder: Path) -> tuple[Path, ...]:
    """Write every schema below a series folder, and return the paths."""
    written = []
    for name, text in make_schemas().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
        written.append(path)
    return tuple(written)


if __name__ == "__main__":
    for each in write_schemas(Path(sys.argv[1] if len(sys.argv) > 1 else ".")):
        sys.stderr.write(f"wrote {each}\n")
