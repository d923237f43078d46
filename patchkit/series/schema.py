"""JSON schemas of the files people write, for their editors.

The schemas are made from the models, committed beside the files, and compared by a test.
``python -m patchkit.series.schema FOLDER`` writes them anew below a series folder.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from pydantic import TypeAdapter

from patchkit.series.catalogue import Series
from patchkit.series.lock import Lock
from patchkit.series.patch import Patch
from patchkit.series.profile import ArchProfile, Family
from patchkit.series.toml import TomlTable


def schema_text(title: str, *kinds: type[TomlTable]) -> str:
    """The JSON schema of a file that is one of ``kinds``; the same text on every run."""
    _, schema = TypeAdapter.json_schemas([(kind.__name__, "validation", TypeAdapter(kind)) for kind in kinds])
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = title
    schema["anyOf"] = [{"$ref": f"#/$defs/{kind.__name__}"} for kind in kinds]
    return json.dumps(schema, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def profile_schema() -> str:
    """The schema of GPU profiles and of family files."""
    return schema_text("patchkit GPU profile or family", ArchProfile, Family)


def patch_schema() -> str:
    """The schema of patch.toml."""
    return schema_text("patchkit patch", Patch)


def series_schema() -> str:
    """The schema of series.toml."""
    return schema_text("patchkit series", Series)


def lock_schema() -> str:
    """The schema of upstream.lock."""
    return schema_text("patchkit lock", Lock)


# Path below the series folder, and what makes its text.
SCHEMAS: Mapping[str, Callable[[], str]] = {
    "arch_profiles/schema.json": profile_schema,
    "patches/lock.schema.json": lock_schema,
    "patches/patch.schema.json": patch_schema,
    "patches/series.schema.json": series_schema,
}


def write_schemas(folder: Path) -> tuple[Path, ...]:
    """Write every schema below a series folder; the paths written."""
    written = []
    for name, make in SCHEMAS.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(make(), encoding="utf-8", newline="\n")
        written.append(path)
    return tuple(written)


if __name__ == "__main__":
    for each in write_schemas(Path(sys.argv[1] if len(sys.argv) > 1 else ".")):
        sys.stderr.write(f"wrote {each}\n")
