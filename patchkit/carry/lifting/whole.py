"""What a change does to whole files in a plain patch: blobs, removals, renames and modes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from patchkit.base.digests import sha256
from patchkit.base.errors import AnchorError, Location, UsageError, raise_all
from patchkit.carry.lifting.change import FileChange
from patchkit.carry.placing.place import PlacedPatch
from patchkit.carry.placing.tree import EXECUTABLE, REGULAR

_MOST_TEXT = 256 * 1024
"""Bytes up to which a new file becomes a template: rendering is bounded, and longer ones are not edited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """A file with these bytes; ``replaces`` is the sha256 of the upstream file that it replaces."""

    path: str
    data: bytes
    replaces: str | None = None
    executable: bool = False

    @property
    def sha256(self) -> str:
        """Digest of the bytes."""
        return sha256(self.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeFiles:
    """Changes to whole files.

    ``removes``: paths, and the sha256 of the removed file. ``renames``: old and new paths.
    ``modes``: paths, and whether they become executable. ``programs``: new text files that are executable.
    """

    blobs: tuple[Blob, ...] = ()
    removes: tuple[tuple[str, str], ...] = ()
    renames: tuple[tuple[str, str], ...] = ()
    modes: tuple[tuple[str, bool], ...] = ()
    programs: frozenset[str] = frozenset()

    @property
    def replaced(self) -> list[str]:
        """Files of upstream that are replaced."""
        return [blob.path for blob in self.blobs if blob.replaces is not None]

    @property
    def added(self) -> list[str]:
        """New files that are not templates."""
        return [blob.path for blob in self.blobs if blob.replaces is None]

    @property
    def removed(self) -> list[str]:
        """The removed files."""
        return [path for path, _ in self.removes]

    @property
    def renamed(self) -> dict[str, str]:
        """The old path of each new one."""
        return {new: old for old, new in self.renames}

    @property
    def executable(self) -> dict[str, bool]:
        """The files whose mode changes, and whether each becomes executable."""
        return dict(self.modes)

    def describe(self) -> Iterator[str]:
        """One line per change to a file."""
        for blob in self.blobs:
            yield (f"new file {blob.path}" if blob.replaces is None else f"replaces {blob.path}")
        yield from (f"removes {path}" for path, _ in self.removes)
        yield from (f"renames {old} to {new}" for old, new in self.renames)
        for path, executable in (*self.modes, *((path, True) for path in sorted(self.programs))):
            yield f"{path} is {'executable' if executable else 'not executable'}"


NO_FILES = WholeFiles()


def is_text(data: bytes) -> bool:
    """Whether the bytes are UTF-8 text, which edits can change."""
    if b"\0" in data:
        return False
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _is_template(data: bytes) -> bool:
    """Whether a template can give exactly these bytes: a short text with LF line endings and no BOM."""
    return (
        is_text(data)
        and b"\r" not in data
        and not data.startswith(b"\xef\xbb\xbf")
        and len(data) <= _MOST_TEXT
    )


def whole_files(files: Sequence[FileChange]) -> WholeFiles:
    """The changes to whole files, except those of :func:`new_texts` and :func:`edited_texts`."""
    blobs: list[Blob] = []
    removes: list[tuple[str, str]] = []
    renames: list[tuple[str, str]] = []
    modes: list[tuple[str, bool]] = []
    programs: set[str] = set()
    for each in _apart(files):
        executable = each.modes[1] == EXECUTABLE
        if each.before is None and each.after is not None:
            if _is_template(each.after):
                programs.update([each.path] if executable else [])
            else:
                blobs.append(Blob(path=each.path, data=each.after, executable=executable))
            continue
        if each.before is not None and each.after is None:
            removes.append((each.path, sha256(each.before)))
            continue
        if each.source is not None:
            renames.append((each.source, each.path))
        if each.modes[0] != each.modes[1]:
            modes.append((each.source or each.path, executable))
        if each.before is not None and each.after != each.before and _edited(each) is None:
            blobs.append(Blob(path=each.path, data=each.after or b"", replaces=sha256(each.before)))
    return WholeFiles(
        blobs=tuple(blobs),
        removes=tuple(removes),
        renames=tuple(renames),
        modes=tuple(modes),
        programs=frozenset(programs),
    )


def new_texts(files: Sequence[FileChange]) -> dict[str, bytes]:
    """The new files that become templates, by path."""
    return {
        each.path: each.after
        for each in _apart(files)
        if each.before is None and each.after is not None and _is_template(each.after)
    }


class EditedText(NamedTuple):
    """A text file of upstream that edits change; ``path`` is its path in upstream."""

    path: str
    before: bytes
    after: bytes


def edited_texts(files: Sequence[FileChange]) -> tuple[EditedText, ...]:
    """The text files of a change that become edits."""
    found = (_edited(each) for each in _apart(files))
    return tuple(each for each in found if each is not None)


def _edited(change: FileChange) -> EditedText | None:
    before, after = change.before, change.after
    if before is None or after is None or before == after or not is_text(before) or not is_text(after):
        return None
    return EditedText(change.source or change.path, before, after)


def _apart(files: Sequence[FileChange]) -> Iterator[FileChange]:
    """Split a binary file that is both renamed and changed into a removed and an added one."""
    for each in files:
        if each.source is None or each.before == each.after or _edited(each) is not None:
            yield each
        else:
            yield FileChange(path=each.source, before=each.before, after=None)
            yield FileChange(path=each.path, before=None, after=each.after, modes=(REGULAR, each.modes[1]))


def expected_files(files: Sequence[FileChange]) -> dict[str, bytes | None]:
    """The content of each path after a change; None if the path no longer exists."""
    gone = {each.source: None for each in files if each.source is not None}
    return {**gone, **{each.path: each.after for each in files}}


def require_files(placed: PlacedPatch, files: Sequence[FileChange]) -> None:
    """Check that a plain patch removes exactly the files of the change and sets exactly its modes.

    Raises EDITS_DIFFER.
    """
    expected = expected_files(files)
    wrong = {path for path, data in expected.items() if data is None} ^ set(placed.gone)
    for each in files:
        if each.after is not None:
            kept = each.modes[0] if each.before is not None else REGULAR
            if placed.modes.get(each.path, kept) != each.modes[1]:
                wrong.add(each.path)
    if wrong:
        raise AnchorError(
            f"the generated edits give other files or modes than the change: {', '.join(sorted(wrong))}",
            code="EDITS_DIFFER",
            where=[Location(path=path) for path in sorted(wrong)],
            hint="write the patch by hand (docs/guide/patch.md), or import it in smaller parts",
        )


def refuse_guarded(files: Sequence[FileChange], name: str) -> None:
    """Raise IMPORT_UNSUPPORTED for changes to whole files, which a preprocessor guard cannot separate."""
    errors = [
        UsageError(
            f"not possible in a guarded patch: {line}",
            code="IMPORT_UNSUPPORTED",
            where=Location(path=name),
            why="no preprocessor guard covers whole files, so this would change the build for every GPU",
            hint="use --guard none if it is meant for all GPUs, or remove it from the diff",
        )
        for line in whole_files(files).describe()
    ]
    raise_all(errors, f"{name} cannot be guarded")


_OTHER = re.compile(r"[^A-Za-z0-9_.+-]")


def sibling_name(path: str) -> str:
    """A valid name for a file next to patch.toml, from the last component of a path."""
    name = _OTHER.sub("_", path.rpartition("/")[2])[-120:]
    return f"_{name}" if name.startswith(".") or not name else name


def named_blobs(
    blobs: Sequence[Blob], templates: Mapping[str, str], existing: Mapping[str, bytes]
) -> dict[str, Blob]:
    """Each blob by its file name in the patch's folder, which already contains the files ``beside``."""
    there = {name.casefold(): data for name, data in existing.items()}
    used = {"patch.toml", "readme.md", *(name.casefold() for name in templates)}
    found: dict[str, Blob] = {}
    for blob in blobs:
        name = sibling_name(blob.path)
        while name.casefold() in used or there.get(name.casefold(), blob.data) != blob.data:
            name = f"_{name}"
        used.add(name.casefold())
        found[name] = blob
    return found
