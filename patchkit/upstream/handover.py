"""Commits in one file that git fetches from: a bundle.

The header is written here and not by ``git bundle create``, which takes a branch from where it is: a bundle
is made before its branch moves. And git's own have deltas against files of the base, which a clone without
them (``--filter=blob:none``) would have to fetch first; these stand alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from patchkit.base.errors import GitError, Location, UsageError
from patchkit.base.files import disk_errors, file_sha256
from patchkit.upstream.git import damaged, object_id
from patchkit.upstream.repository import Repository, TreeEntry, git_path


def usable_place(directory: Path, kept: Sequence[Path] = ()) -> Path:
    """The absolute path of ``directory``, links followed; nothing is written.

    Raises:
        PLACE_UNUSABLE: it is the root of a file system, or it is in one of the ``kept`` folders.
    """
    try:
        found = directory.resolve()
    except (OSError, RuntimeError) as error:  # the latter: links in a circle, before Python 3.13
        raise _unusable(directory, f"its path cannot be followed: {error}") from error
    if not found.name:
        raise _unusable(directory, "it is the root of the file system")
    if os.path.ismount(found):
        # A new content takes the folder's place by renaming, which no mount point allows.
        raise _unusable(directory, "another file system is mounted there")
    for folder in kept:
        if found.is_relative_to(folder.resolve()):
            raise _unusable(directory, f"patchkit itself keeps its files in {folder}")
    return found


def _unusable(directory: Path, why: str) -> UsageError:
    shown = os.fsencode(directory).decode("utf-8", "backslashreplace")
    return UsageError(
        f"nothing can be put at {shown}",
        code="PLACE_UNUSABLE",
        where=Location(path=shown),
        why=why,
        hint="name a new folder, for example below your home folder",
    )


_SUBMODULE, _LINK = "160000", "120000"


def verify_objects(repository: Repository, ids: Iterable[str]) -> None:
    """Read and hash objects, in one process.

    Raises:
        ObjectDamaged: one is not what its id says, or is not here.
    """
    wanted = tuple(dict.fromkeys(ids))
    for sha, found in zip(wanted, repository.git.objects(sha.encode() for sha in wanted), strict=True):
        if found is None:
            raise damaged(repository.path, f"the object {sha} is missing")
        if object_id(found.kind, found.data) != sha:
            raise damaged(repository.path, f"the object {sha} has other content than its name says")


def verify_range(repository: Repository, base: str, tip: str) -> None:
    """Verify everything that ``base..tip`` adds, and the files it replaces.

    Raises:
        ObjectDamaged: an object is not what its id says.
    """
    listed = repository.git.run("rev-list", "--objects", "--no-object-names", f"{base}..{tip}")
    before = [change.ids[0] for change in repository.git.changes(base, tip)]
    heads = [sha for sha in repository.resolve(base, tip) if sha is not None]
    verify_objects(repository, [*heads, *listed.decode().split(), *(sha for sha in before if sha.strip("0"))])


def find_other(
    repository: Repository, commit: str, directory: Path, *, since: str | None = None
) -> str | None:
    """The first file in a folder that is not what the commit has there, of all or of those changed ``since``.

    Raises:
        CacheError: the disk refused.
    """
    entries = repository.list_files(commit)
    if since is not None:
        before = set(repository.list_files(since))
        entries = tuple(entry for entry in entries if entry not in before)
    with disk_errors(directory, "verifying the checkout"):
        return next((entry.path for entry in entries if not _is_as_committed(directory, entry)), None)


def _is_as_committed(directory: Path, entry: TreeEntry) -> bool:
    if entry.mode == _SUBMODULE:
        return True
    place = os.path.join(os.fsencode(directory), git_path(entry.path))  # noqa: PTH118  # paths of bytes
    if entry.mode == _LINK:
        return os.path.islink(place) and object_id("blob", os.readlink(place)) == entry.sha  # noqa: PTH114, PTH115
    if not os.path.isfile(place) or os.path.islink(place):  # noqa: PTH113, PTH114
        return False
    with open(place, "rb") as stream:  # noqa: PTH123
        return object_id("blob", stream.read()) == entry.sha


_SUMS = "SHA256SUMS"
_HEADER = "# Written by patchkit export, which replaces these files as long as nobody changed them.\n"
_LINE = re.compile(r"(?P<sha256>[0-9a-f]{64})  (?P<name>[0-9]{4,}-[^/\0]*\.patch)")
_NAME = re.compile(r"[0-9]{4,}-[^/\0]*\.patch")
_ELSEWHERE = "name a folder on another disk"

# Everything a user's or a later git's defaults could change is named.
_OPTIONS = (
    "--quiet",
    "--binary",
    "--diff-algorithm=myers",
    "--dst-prefix=b/",
    "--full-index",
    "--inter-hunk-context=0",
    "--no-add-header",
    "--no-attach",
    "--no-base",
    "--no-cc",
    "--no-color",
    "--no-cover-letter",
    "--no-ext-diff",
    "--no-indent-heuristic",
    "--no-notes",
    "--no-numbered",
    "--no-renames",
    "--no-signature",
    "--no-textconv",
    "--no-thread",
    "--no-to",
    "--start-number=1",
    "--src-prefix=a/",
    "--stat=72",
    "--subject-prefix=PATCH",
    "--suffix=.patch",
    "--unified=3",
    "--zero-commit",
)


def format_patches(
    repository: Repository, base: str, tip: str, directory: Path, *, kept: Sequence[Path] = ()
) -> tuple[Path, ...]:
    """Write one patch file per commit of ``base..tip`` into ``directory``; their paths in order.

    The files are made beside the folder, which takes their place in one step. ``kept`` are folders
    that nothing may be exported into; the cache is one of them anyway.

    Raises:
        PLACE_UNUSABLE: there can be no export there; nothing was touched.
        EXPORT_FOREIGN: the folder has other content; nothing was touched.
        EXPORT_NOTHING: no commits to write.
        CacheError: the disk refused.
        GitError: git refused.
    """
    directory = usable_place(directory, (repository.path.parent, *kept))
    verify_range(repository, base, tip)
    with disk_errors(directory, "exporting", _ELSEWHERE):
        directory.parent.mkdir(parents=True, exist_ok=True)  # a folder with foreign content has a parent
        with _one_at_a_time(directory.parent):
            _refuse_foreign(directory)
            _clear_remains(directory)
        with _partial_of(directory) as partial:
            git = replace(repository.git, writes_to=partial)
            git.run("format-patch", *_OPTIONS, "-o", os.fspath(partial), f"{base}..{tip}")
            names = sorted(path.name for path in partial.iterdir() if path.name != _SUMS)
            if not names:
                raise GitError(
                    f"there are no commits between {base[:12]} and {tip[:12]}",
                    code="EXPORT_NOTHING",
                    where=Location(path=str(directory)),
                    hint="patchkit apply makes the candidate branch first",
                )
            sums = "".join(f"{file_sha256(partial / name)}  {name}\n" for name in names)
            (partial / _SUMS).write_text(_HEADER + sums, encoding="utf-8")
            partial.chmod(0o777 & ~_umask())
            with _one_at_a_time(directory.parent):
                _replace(partial, directory)
    return tuple(directory / name for name in names)


def format_mailbox(repository: Repository, base: str, tip: str) -> bytes:
    """The same patches in one file for ``git am``; commits that change no file are left out.

    Raises:
        ObjectDamaged: the cache does not hold the commits as they were.
        CacheError: the disk refused.
        GitError: git refused.
    """
    verify_range(repository, base, tip)
    return repository.git.run("format-patch", *_OPTIONS, "--stdout", f"{base}..{tip}")


@contextlib.contextmanager
def _one_at_a_time(parent: Path) -> Iterator[None]:
    """Keep other exports from taking a folder of ``parent`` away while this one reads or replaces it."""
    descriptor = os.open(parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks: two exports at once may then fail
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _partial_of(directory: Path) -> Iterator[Path]:
    """A folder beside ``directory`` that no other run uses; locked, so that none takes it for remains."""
    partial = Path(tempfile.mkdtemp(prefix=f".{directory.name}.patchkit-partial-", dir=directory.parent))
    descriptor = os.open(partial, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):  # not every network file system can; then remains stay longer
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        (partial / _SUMS).write_text(_HEADER, encoding="utf-8")
        yield partial
    finally:
        _discard(partial)
        os.close(descriptor)


def _refuse_foreign(directory: Path) -> None:
    found = _foreign_file(directory)
    if found is not None:
        name, why = found
        raise GitError(
            f"{directory} has content that is no export of patchkit's",
            code="EXPORT_FOREIGN",
            where=Location(path=str(directory / name)),
            why=why,
            hint="name a new or empty folder",
        )


def _foreign_file(directory: Path) -> tuple[str, str] | None:
    """A file that forbids to replace the folder, and why; None for one that is absent, empty or ours."""
    try:
        present = sorted(path.name for path in directory.iterdir())
    except FileNotFoundError:
        return None
    sums = _read_sums(directory)
    if sums is None:
        return (present[0], f"{present[0]} is not patchkit's") if present else None
    for name in present:
        path = directory / name
        if name != _SUMS and (name not in sums or path.is_symlink() or not path.is_file()):
            return name, f"{name} is not patchkit's"
        if name != _SUMS and file_sha256(path) != sums[name]:
            return name, f"{name} was changed after the export"
    return None


def _read_sums(directory: Path) -> dict[str, str] | None:
    """Digest by name; None when patchkit did not write such a file here."""
    path = directory / _SUMS
    if path.is_symlink() or not path.is_file():
        return None
    text = path.read_text(encoding="utf-8", errors="surrogateescape")
    if not text.startswith(_HEADER):
        return None
    found = [_LINE.fullmatch(line) for line in text.removeprefix(_HEADER).splitlines()]
    return {line["name"]: line["sha256"] for line in found if line} if all(found) else None


def _clear_remains(directory: Path) -> None:
    """Remove what killed runs left of exports into this folder, and nothing that may be something else."""
    prefixes = tuple(f".{directory.name}.patchkit-{kind}-" for kind in ("partial", "old"))
    for path in sorted(directory.parent.iterdir()):
        if not path.name.startswith(prefixes) or path.is_symlink() or not path.is_dir():
            continue
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _foreign_file(path) is None or _read_sums(path) == {}:
                _discard(path)
        except OSError:
            continue  # another run is at work there
        finally:
            os.close(descriptor)


def _discard(folder: Path) -> None:
    """Remove the files that an export has, and the folder if that was all."""
    sums = _read_sums(folder)
    if sums is None:
        return
    for path in list(folder.iterdir()):
        if path.name in sums or (not sums and _NAME.fullmatch(path.name)):
            path.unlink()
    if [path.name for path in folder.iterdir()] == [_SUMS]:
        (folder / _SUMS).unlink()
        folder.rmdir()


def _replace(partial: Path, directory: Path) -> None:
    """Put ``partial`` in the place of ``directory``, which is absent or an export of ours.

    Two folders cannot change places in one portable step: for an instant there is none, never a mix.
    """
    _refuse_foreign(directory)
    old = partial.with_name(partial.name.replace(".patchkit-partial-", ".patchkit-old-"))
    if _read_sums(directory) is None:  # absent or empty: rename replaces an empty folder, too
        partial.rename(directory)
        return
    directory.rename(old)
    partial.rename(directory)
    _discard(old)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


_SHA1 = 20  # bytes: git ends a pack with the hash of all before


def pack_commits(repository: Repository, tip: str, known: tuple[str, ...] = ()) -> bytes:
    """A pack with ``tip`` and all it needs, but for what the ``known`` commits need.

    Raises:
        ObjectDamaged: the repository lacks an object.
        GitError, CacheError: git or the disk refused.
    """
    wanted = "".join(f"{line}\n" for line in (tip, *(f"^{commit}" for commit in known)))
    # No search for deltas: it costs more time than the space is worth. Those that there are stay.
    return repository.git.run(
        "pack-objects", "--quiet", "--revs", "--stdout", "--delta-base-offset", "--window=0",
        stdin=wanted.encode(),
    )  # fmt: skip


def bundle_commits(repository: Repository, *, base: str, ref: str, tip: str) -> bytes:
    """The bundle of ``base..tip``, offered as ``ref``.

    Raises:
        ObjectDamaged: an object is not what its id says.
        GitError, CacheError: git or the disk refused.
    """
    verify_range(repository, base, tip)
    return _header(base, ref, tip) + pack_commits(repository, tip, (base,))


def is_bundle_of(data: bytes, *, base: str, ref: str, tip: str) -> bool:
    """Whether the bytes are a whole bundle that says the same."""
    header = _header(base, ref, tip)
    pack = data.removeprefix(header)
    if len(pack) == len(data) or len(pack) <= _SHA1:
        return False
    return hashlib.sha1(pack[:-_SHA1], usedforsecurity=False).digest() == pack[-_SHA1:]


def _header(base: str, ref: str, tip: str) -> bytes:
    return f"# v2 git bundle\n-{base} \n{tip} {ref}\n\n".encode()
