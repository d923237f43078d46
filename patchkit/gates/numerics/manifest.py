"""The manifest of a bundle: a JSON file that says what the bundle measures."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from patchkit.base.errors import Location, UsageError
from patchkit.base.files import disk_errors
from patchkit.gates.base import Record
from patchkit.gates.numerics.sets import Program, Table

MANIFEST = "numerics.json"
JobKind = Literal["check", "ops", "perf"]


class NotABundle(UsageError):
    """A folder has no manifest of a bundle, or one that this patchkit does not read."""

    code = "NOT_A_BUNDLE"


class Job(Record):
    """One run of one program; ``cases`` counts those of a case file, ``limit_s`` is in seconds."""

    name: str
    kind: JobKind
    program: str
    limit_s: int
    argv: tuple[str, ...]
    cases: int = 0


class Manifest(Record):
    """The bundle. ``touched`` are units whose objects must be equal on both sides; empty: not compared."""

    format: Literal[1] = 1
    candidate_tree: str
    baseline_tree: str
    archs: tuple[str, ...]
    build: int
    tables: tuple[Table, ...]
    extra: tuple[Table, ...]
    programs: tuple[Program, ...]
    jobs: tuple[Job, ...]
    touched: tuple[str, ...]


def load_manifest(folder: Path) -> Manifest:
    """The manifest of a bundle.

    Raises:
        NotABundle: there is none, or it is not one.
        CacheError: the disk refused.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise _not_a_bundle(path, "there is no such file")
    with disk_errors(path, "reading a bundle"):
        content = path.read_bytes()
    try:
        return Manifest.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise _not_a_bundle(path, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def _not_a_bundle(path: Path, why: str) -> NotABundle:
    return NotABundle(
        f"{path.parent} holds no bundle that can be read",
        where=Location(path=str(path)),
        why=why,
        hint="patchkit numerics build DIR --arch gfx1151 makes one",
    )
