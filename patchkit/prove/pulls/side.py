"""The series of one commit, written to a folder and loaded; errors name files as they are in the commit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from patchkit.base.arch import list_profiles
from patchkit.base.errors import ConfigError, ErrorGroup, Location, PatchkitError, map_texts
from patchkit.base.files import disk_errors
from patchkit.base.series_folder import SeriesDir
from patchkit.carry.series.lock import Lock, load_lock
from patchkit.carry.series.profile import ArchProfile, load_profile
from patchkit.carry.upstream.repository import Repository, TreeEntry
from patchkit.prove.verify.policy import SeriesWithPolicy, load_proven_series

_MODES = frozenset({"100644", "100755"})
# Chosen; the whole series has about 60 files and 0.3 MB.
_MOST_FILES = 2000
_MOST_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesSide:
    """The series of ``commit``, in the folder ``files`` and as data."""

    commit: str
    files: SeriesDir
    lock: Lock
    series: SeriesWithPolicy
    profiles: Mapping[str, ArchProfile]


def read_side(repository: Repository, commit: str, folder: Path) -> SeriesSide:
    """Write the series of a commit into ``folder`` and load all of it.

    Raises:
        GATE_ENTRY_REFUSED: a link, a submodule, an invalid name, or too much data.
        ConfigError: a file is invalid; an ErrorGroup for several.
        CacheError, GitError: the disk or git failed.
    """
    files = SeriesDir(root=folder, origin="named")
    entries = [entry for part in files.folders for entry in repository.list_files(commit, f"{part.name}/")]
    _refuse(entries, repository, commit)
    blobs = repository.read_blobs(commit, [entry.path for entry in entries])
    with disk_errors(folder, "writing the series of a pull request"):
        for part in files.folders:
            part.mkdir(parents=True, exist_ok=True)
        for path, data in blobs.items():
            place = folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
    with pointing_into(folder):
        return _load(commit, files)


def _load(commit: str, files: SeriesDir) -> SeriesSide:
    """Load everything and collect all errors."""
    errors: list[PatchkitError] = []
    profiles: dict[str, ArchProfile] = {}
    for arch in list_profiles(files.profiles):
        try:
            profiles[arch] = load_profile(files.profiles, arch)
        except PatchkitError as error:
            errors.append(error)
    loaded: list[object] = []
    for load, path in ((load_lock, files.lock), (load_proven_series, files.patches)):
        try:
            loaded.append(load(path))
        except PatchkitError as error:
            errors.append(error)
    match loaded:
        case [Lock() as lock, SeriesWithPolicy() as series] if not errors:
            return SeriesSide(commit=commit, files=files, lock=lock, series=series, profiles=profiles)
    raise errors[0] if len(errors) == 1 else ErrorGroup("the series cannot be read", errors)


def _refuse(entries: list[TreeEntry], repository: Repository, commit: str) -> None:
    hint = "a series consists of plain files in patches/, templates/, arch_profiles/ and evidence/"
    for entry in entries:
        parts = PurePosixPath(entry.path).parts
        if entry.mode not in _MODES:
            what = {"120000": "a symbolic link", "160000": "a submodule"}.get(
                entry.mode, f"mode {entry.mode}"
            )
            raise ConfigError(
                f"{entry.path} is {what}",
                code="GATE_ENTRY_REFUSED",
                where=Location(path=entry.path),
                why="only regular files are read",
                hint=hint,
            )
        if ".." in parts or ".git" in parts or not entry.path.isprintable() or "\\" in entry.path:
            raise ConfigError(
                f"{entry.path!r} is not a valid name for a file of a series",
                code="GATE_ENTRY_REFUSED",
                where=Location(path="patches"),
                hint=hint,
            )
    if len(entries) > _MOST_FILES:
        raise ConfigError(
            f"the series has {len(entries)} files, more than {_MOST_FILES}",
            code="GATE_ENTRY_REFUSED",
            hint=hint,
        )
    names = "".join(f"{entry.sha}\n" for entry in entries).encode()
    sizes = repository.git.run("cat-file", "--batch-check=%(objectsize)", stdin=names).split()
    total = sum(int(size) for size in sizes if size.isdigit())
    if total > _MOST_BYTES:
        raise ConfigError(
            f"the series of {commit[:12]} has {total} bytes, more than {_MOST_BYTES}",
            code="GATE_ENTRY_REFUSED",
            hint=hint,
        )


@contextmanager
def pointing_into(folder: Path) -> Iterator[None]:
    """Errors raised inside name files as in the commit, without ``folder``."""
    try:
        yield
    except PatchkitError as error:
        point_into(error, folder)
        raise


def point_into(error: PatchkitError, folder: Path) -> None:
    """Change the error so that places and texts in ``folder`` are relative to it."""
    map_texts(error, lambda text: text.replace(f"{folder}/", "").replace(str(folder), "the series"))
