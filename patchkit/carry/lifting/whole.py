"""What a change does to whole files, as a plain patch says it: blobs, removals, renames and modes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from patchkit.base.digests import sha256
from patchkit.base.errors import AnchorError, ErrorGroup, Location, UsageError
from patchkit.carry.lifting.change import FileChange
from patchkit.carry.placing.place import PlacedPatch
from patchkit.carry.placing.tree import EXECUTABLE, REGULAR

_MOST_TEXT = 256 * 1024
"""Bytes of a new file that is a template: rendering is bounded, and nobody edits a longer one here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """A file with these bytes; ``replaces`` is the sha256 of upstream's in whose place it is put."""

    path: str
    data: bytes
    replaces: str | None = None
    executable: bool = False

    @property
    def sha256(self) -> str:
        """Of the bytes."""
        return sha256(self.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeFiles:
    """``removes`` are paths with the sha256 of what goes, ``renames`` old and new paths.

    ``modes`` say whether a file is executable from now on, ``programs`` are new texts that are.
    """

    blobs: tuple[Blob, ...] = ()
    removes: tuple[tuple[str, str], ...] = ()
    renames: tuple[tuple[str, str], ...] = ()
    modes: tuple[tuple[str, bool], ...] = ()
    programs: frozenset[str] = frozenset()

    @property
    def replaced(self) -> list[str]:
        """Upstream's files that get other bytes."""
        return [blob.path for blob in self.blobs if blob.replaces is not None]

    @property
    def added(self) -> list[str]:
        """New files that are no templates."""
        return [blob.path for blob in self.blobs if blob.replaces is None]

    @property
    def removed(self) -> list[str]:
        """The files that go."""
        return [path for path, _ in self.removes]

    @property
    def renamed(self) -> dict[str, str]:
        """The old path of each new one."""
        return {new: old for old, new in self.renames}

    @property
    def executable(self) -> dict[str, bool]:
        """The files whose mode changes, and whether each is executable then."""
        return dict(self.modes)

    def describe(self) -> Iterator[str]:
        """What becomes of files, a line each."""
        for blob in self.blobs:
            yield (
                f"new file {blob.path}"
                if blob.replaces is None
                else f"puts a file in the place of {blob.path}"
            )
        yield from (f"removes {path}" for path, _ in self.removes)
        yield from (f"renames {old} to {new}" for old, new in self.renames)
        for path, executable in (*self.modes, *((path, True) for path in sorted(self.programs))):
            yield f"{path} is {'executable' if executable else 'not executable'}"


NO_FILES = WholeFiles()


def is_text(data: bytes) -> bool:
    """Whether the bytes are a text that edits can be about."""
    if b"\0" in data:
        return False
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _is_template(data: bytes) -> bool:
    """Whether a template can give exactly these bytes: it has other line ends as its own, and no mark."""
    return (
        is_text(data)
        and b"\r" not in data
        and not data.startswith(b"\xef\xbb\xbf")
        and len(data) <= _MOST_TEXT
    )


def whole_files(files: Sequence[FileChange]) -> WholeFiles:
    """The part of a change that is about whole files, without :func:`new_texts` and :func:`edited_texts`."""
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
    """A text of upstream's that edits change; ``path`` is where upstream has it."""

    path: str
    before: bytes
    after: bytes


def edited_texts(files: Sequence[FileChange]) -> tuple[EditedText, ...]:
    """The texts of a change that edits are about."""
    found = (_edited(each) for each in _apart(files))
    return tuple(each for each in found if each is not None)


def _edited(change: FileChange) -> EditedText | None:
    before, after = change.before, change.after
    if before is None or after is None or before == after or not is_text(before) or not is_text(after):
        return None
    return EditedText(change.source or change.path, before, after)


def _apart(files: Sequence[FileChange]) -> Iterator[FileChange]:
    """A file that is renamed and changed, but no text, is one that goes and one that comes."""
    for each in files:
        if each.source is None or each.before == each.after or _edited(each) is not None:
            yield each
        else:
            yield FileChange(path=each.source, before=each.before, after=None)
            yield FileChange(path=each.path, before=None, after=each.after, modes=(REGULAR, each.modes[1]))


def expected_files(files: Sequence[FileChange]) -> dict[str, bytes | None]:
    """What a change makes of each path; None: nothing is there any more."""
    gone = {each.source: None for each in files if each.source is not None}
    return {**gone, **{each.path: each.after for each in files}}


def require_files(placed: PlacedPatch, files: Sequence[FileChange]) -> None:
    """Whether a plain patch takes out exactly the files of the change, and gives exactly its modes.

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
            f"the edits that were made give other files or modes than the change: {', '.join(sorted(wrong))}",
            code="EDITS_DIFFER",
            where=[Location(path=path) for path in sorted(wrong)],
            hint="write the patch by hand (docs/guide/patch.md), or import it in smaller parts",
        )


def refuse_guarded(files: Sequence[FileChange], name: str) -> None:
    """Raise IMPORT_UNSUPPORTED for what no preprocessor's guard can hold apart."""
    errors = [
        UsageError(
            f"a guarded patch cannot do this: {line}",
            code="IMPORT_UNSUPPORTED",
            where=Location(path=name),
            why="it would change every build: no condition of the preprocessor is about whole files",
            hint="for everybody: --guard none; or leave it out of the diff",
        )
        for line in whole_files(files).describe()
    ]
    if errors:
        raise errors[0] if len(errors) == 1 else ErrorGroup(f"{name} cannot be guarded", errors)


_OTHER = re.compile(r"[^A-Za-z0-9_.+-]")


def beside_name(path: str) -> str:
    """A name for a file beside patch.toml: the last one of a path, without what no template may be called."""
    name = _OTHER.sub("_", path.rpartition("/")[2])[-120:]
    return f"_{name}" if name.startswith(".") or not name else name


def named_blobs(
    blobs: Sequence[Blob], templates: Mapping[str, str], beside: Mapping[str, bytes]
) -> dict[str, Blob]:
    """Each blob by the name of its file in the patch's folder, which has ``beside`` in it already."""
    there = {name.casefold(): data for name, data in beside.items()}
    used = {"patch.toml", "readme.md", *(name.casefold() for name in templates)}
    found: dict[str, Blob] = {}
    for blob in blobs:
        name = beside_name(blob.path)
        while name.casefold() in used or there.get(name.casefold(), blob.data) != blob.data:
            name = f"_{name}"
        used.add(name.casefold())
        found[name] = blob
    return found
