"""Find the place of each hunk of a diff: exactly one, or an error that lists the candidates.

``git apply`` takes the place nearest to a hunk's line number. If that number is out of date, the hunk can go
into another function with the same lines. Here a hunk goes to the only place that has its lines, and never
into another definition than its ``@@`` line names. If several places have its lines, the line number decides
only if the file is the one that the diff was made from (by its ``index`` line), or if the ``@@`` line names
only that place. Without an ``index`` line the number decides as well, and this is reported. The numbers are
then rewritten, so that git places the hunk nowhere else.
"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from patchkit.base.errors import AnchorError, Location, PatchkitError, members_of, raise_all
from patchkit.base.text import visible
from patchkit.carry.importing.outline import Changed, Outline
from patchkit.carry.lifting.change import MovedHunk
from patchkit.carry.series.git_object import object_id

_NUMBER = rb"([0-9]{1,9})"
_HUNK = re.compile(rb"@@ -%b(?:,%b)? \+%b(?:,%b)? @@(.*)" % ((_NUMBER,) * 4))
_INDEX = re.compile(rb"index ([0-9a-f]{7,40})\.\.[0-9a-f]+")
_STAMP = re.compile(
    r"(?<!\s)\s+[0-9]{4}-[0-9]{2}-[0-9]{2}[ T].*$"
)  # the time that diff -u writes after a name
_NONE = "/dev/null"
_ESCAPES = {"a": 7, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13}
_SHOWN = 8  # places that a message names
_MOST_JUDGED = 50  # places with the same lines; with more, the heading is not used to choose one
_GIT = b"diff --git "
_MOVES = (b"rename from ", b"rename to ", b"copy from ", b"copy to ")


@dataclass(frozen=True, slots=True)
class Hunk:
    """One hunk: rows ``[row, stop)`` of the diff. By its header, ``start`` lines of the file come before it.

    ``lines`` include their markers (space, ``-`` or ``+``) and their line breaks as in the file.
    """

    row: int
    stop: int
    start: int
    heading: bytes
    lines: tuple[bytes, ...]
    numbers: bytes = b""  # its @@ line in the diff, without the heading

    @property
    def old(self) -> list[bytes]:
        """Its lines before the change."""
        return [line[1:] for line in self.lines if line[:1] != b"+"]

    @property
    def new(self) -> list[bytes]:
        """Its lines after the change."""
        return [line[1:] for line in self.lines if line[:1] != b"-"]

    def head(self, old: int, new: int) -> bytes:
        """Its ``@@`` line if ``old`` and ``new`` lines come before it in the old and the new file."""
        numbers = []
        for mark, start, rows in ((b"-", old, self.old), (b"+", new, self.new)):
            numbers.append(b"%s%d,%d" % (mark, start + bool(rows), len(rows)))
        return b"@@ %s @@%s" % (b" ".join(numbers), self.heading)

    def changed(self, start: int) -> Changed:
        """What it changes in a file in which ``start`` lines come before it."""
        marks = [at for at, line in enumerate(self.lines) if line[:1] != b" "]
        before = sum(line[:1] != b"+" for line in self.lines[: marks[0]]) if marks else 0
        inside = self.lines[marks[0] : marks[-1] + 1] if marks else ()
        first = start + before
        stop = first + sum(line[:1] != b"+" for line in inside)
        return Changed(first, max(stop, first), tuple(self.lines[at][1:] for at in marks))


@dataclass(frozen=True, slots=True)
class FilePart:
    """The part of a diff for one file: its rows ``[row, stop)``.

    ``old`` and ``new``: the names in the diff, or /dev/null; None without ``---`` and ``+++`` lines.
    ``index``: the abbreviated blob id of the old file, '' if the diff has none. ``is_copy``: the old file is
    kept. ``heads``: the names in git's own header lines, for files without ``---`` and ``+++`` lines.
    """

    row: int
    stop: int
    old: str | None = None
    new: str | None = None
    index: str = ""
    is_copy: bool = False
    is_binary: bool = False
    heads: tuple[str, ...] = ()
    hunks: tuple[Hunk, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RenumberedDiff:
    """A diff with corrected line numbers. ``files``: the changed files' new content, None if removed.

    ``is_exact``: every ``index`` line of the diff names the file that it was placed on.
    """

    data: bytes
    moved: tuple[MovedHunk, ...]
    files: Mapping[str, bytes | None]
    is_exact: bool


def parse_diff(data: bytes) -> tuple[FilePart, ...]:
    """The files of a diff with their hunks. Skips what it cannot parse; git reports the error later."""
    return tuple(_parts(_rows(data)))


def _rows(data: bytes) -> list[bytes]:
    return re.findall(rb"[^\n]*\n|[^\n]+", data)


def _parts(rows: Sequence[bytes]) -> Iterator[FilePart]:
    part: FilePart | None = None
    at = 0
    while at < len(rows):
        row = rows[at]
        names = row.startswith(b"--- ") and at + 1 < len(rows) and rows[at + 1].startswith(b"+++ ")
        if row.startswith(_GIT) or (names and (part is None or part.old is not None)):
            if part is not None:
                yield replace(part, stop=at)
            part = FilePart(at, len(rows), heads=_git_names(row))
        if part is None:
            at += 1
            continue
        index = _INDEX.match(row)
        hunk = _hunk(rows, at) if part.old is not None else None
        if names:
            part = replace(part, old=_name(row[4:]), new=_name(rows[at + 1][4:]))
        elif index is not None and part.old is None and index[1].strip(b"0"):
            part = replace(part, index=index[1].decode())
        elif hunk is not None:
            part = replace(part, hunks=(*part.hunks, hunk))
        elif part.old is None:
            part = _with_header(part, row)
        at = hunk.stop if hunk is not None else at + 2 if names else at + 1
    if part is not None:
        yield part


def _with_header(part: FilePart, row: bytes) -> FilePart:
    """Add the information of one of git's other header lines."""
    if row.startswith(_MOVES):
        name = f"a/{_name(row.split(b' ', 2)[2])}"
        return replace(part, is_copy=row.startswith(b"copy"), heads=(*part.heads, name))
    return replace(part, is_binary=True) if row.startswith(b"GIT binary patch") else part


def _hunk(rows: Sequence[bytes], row: int) -> Hunk | None:
    """The hunk whose ``@@`` line is in a row; None if there is none, or it is incomplete."""
    found = _HUNK.match(rows[row].rstrip(b"\n"))
    if found is None:
        return None
    left = [int(count) if count is not None else 1 for count in (found[2], found[4])]
    lines: list[bytes] = []
    at = row + 1
    while at < len(rows) and (any(left) or rows[at].startswith(b"\\")):
        line, mark = rows[at], rows[at][:1]
        if mark == b"\\":  # no newline at the end of the file
            if lines:
                lines[-1] = lines[-1].removesuffix(b"\n")
        elif mark in (b" ", b"-", b"+", b"\n"):
            lines.append(b" \n" if mark == b"\n" else line)
            left = [left[0] - (mark != b"+"), left[1] - (mark != b"-")]
        else:
            return None
        at += 1
    start = int(found[1]) - (found[2] is None or int(found[2]) > 0)
    numbers = found[0][: found.start(5)]
    return Hunk(row, at, start, found[5], tuple(lines), numbers) if left == [0, 0] else None


def _git_names(row: bytes) -> tuple[str, ...]:
    """The names in a ``diff --git`` line if both have the same path; renames have other header lines."""
    names = row.removeprefix(_GIT).rstrip(b"\r\n")
    half = len(names) // 2
    left, right = names[:half], names[half + 1 :]
    same = row.startswith(_GIT) and left.partition(b"/")[2] == right.partition(b"/")[2] != b""
    return tuple(each.decode("utf-8", "surrogateescape") for each in (left, right)) if same else ()


def _name(rest: bytes) -> str:
    """The file name after ``---`` or ``+++``; git quotes special characters as in C."""
    text = rest.rstrip(b"\r\n").decode("utf-8", "surrogateescape")
    if not text.startswith('"'):
        return _STAMP.sub("", text.partition("\t")[0])
    inner = text[1 : text.rfind('"')]

    def char(found: re.Match[str]) -> str:
        word = found[1]
        code = int(word, 8) if word.isdigit() else _ESCAPES.get(word, ord(word))
        return chr(code)

    return (
        re.sub(r"\\([0-7]{3}|.)", char, inner).encode("latin-1", "replace").decode("utf-8", "surrogateescape")
    )


def stripped(name: str | None, strip: int) -> str | None:
    """A name without its first ``strip`` folders; None if it has fewer."""
    parts = name.split("/", strip) if name not in (None, _NONE) else []
    return parts[strip] if len(parts) > strip else None


def named_paths(parts: Sequence[FilePart], strip: int) -> tuple[str, ...]:
    """The paths in a diff, without duplicates."""
    names = (stripped(name, strip) for part in parts for name in (part.old, part.new))
    return tuple(dict.fromkeys(name for name in names if name is not None))


def renumber_diff(data: bytes, strip: int, files: Mapping[str, bytes], where: Location) -> RenumberedDiff:
    """Place the hunks of a diff in ``files`` (by path) and correct its line numbers; ``where``: its origin.

    A file with a hunk that fits nowhere keeps its numbers, and is not in the ``files`` of the result.

    Raises:
        IMPORT_AMBIGUOUS: a hunk fits in several places, and nothing decides between them.
        IMPORT_OTHER_FUNCTION: it fits only in another definition than the one that its ``@@`` line names.
        ErrorGroup: several of these.
    """
    rows = _rows(data)
    results: dict[str, bytes | None] = {}
    moved: list[MovedHunk] = []
    errors: list[PatchkitError] = []
    is_exact = True
    now: ChainMap[str, bytes | None] = ChainMap(results, dict(files))
    for part in parse_diff(data):
        old, new = stripped(part.old, strip), stripped(part.new, strip)
        path = next((each for each in (old, new) if each is not None and now.get(each) is not None), None)
        before = now.get(path) if path is not None else b""
        if not part.hunks or before is None or (path is None) != (part.old == _NONE):
            continue
        placing = _Placing(part, path or new or "", before, where)
        is_exact &= path is None or placing.is_same
        try:
            places = placing.places()
        except PatchkitError as error:
            errors += members_of(error)
            continue
        if places is None:
            continue
        shift = 0
        for hunk, at in zip(part.hunks, places, strict=True):
            rows[hunk.row] = hunk.head(at, at + shift) + b"\n"
            shift += len(hunk.new) - len(hunk.old)
        moved += placing.moved
        if path is not None and path != new and not part.is_copy:
            results[path] = None
        if new is not None:
            results[new] = placing.after(places)
    raise_all(errors, "several hunks cannot be placed with certainty")
    return RenumberedDiff(data=b"".join(rows), moved=tuple(moved), files=results, is_exact=is_exact)


class _Placing:
    """The hunks of one file and its content before the change; ``moved`` are those to report."""

    def __init__(self, part: FilePart, path: str, before: bytes, where: Location) -> None:
        self.part, self.path, self.before, self.where = part, path, before, where
        self.outline = Outline(path, before)
        self.moved: list[MovedHunk] = []
        # The exact file that the diff was made from, so its headings cannot be out of date.
        self.is_same = bool(part.index) and object_id("blob", before).startswith(part.index)

    def places(self) -> list[int] | None:
        """The number of lines before each hunk; None if one fits nowhere."""
        found: list[int] = []
        errors: list[PatchkitError] = []
        least = 0
        for number, hunk in enumerate(self.part.hunks, 1):
            try:
                at = self._place(hunk, number, least)
            except AnchorError as error:
                errors.append(error)
                continue
            if at is None:
                return None
            found.append(at)
            least = at + len(hunk.old)
        if any(each.offset for each in self.moved):
            # The file is not the one that the diff was made from, so line numbers prove nothing.
            doubtful = {each.number for each in self.moved if each.others}
            errors += [
                self._ambiguous(hunk, number, self._fits(hunk), "")
                for number, hunk in enumerate(self.part.hunks, 1)
                if number in doubtful
            ]
        raise_all(errors)
        return found

    def after(self, places: Sequence[int]) -> bytes:
        """The file with its hunks at these places."""
        rows = _rows(self.before)
        for hunk, at in reversed(list(zip(self.part.hunks, places, strict=True))):
            rows[at : at + len(hunk.old)] = hunk.new
        return b"".join(rows)

    def _place(self, hunk: Hunk, number: int, least: int) -> int | None:
        found = self._fits(hunk)
        fits = [at for at in found if at >= least]
        if found and not fits and number > 1 and hunk.start < self.part.hunks[number - 2].start:
            raise AnchorError(
                f"{self._name(hunk, number)} has a lower line number than the hunk before it",
                code="IMPORT_NOT_APPLYING",
                where=self.where,
                why="the hunks of a file must be in the order of its lines",
                hint="make the diff again, with git diff or git format-patch",
            )
        if not fits:
            return None
        if b"".join(hunk.old) != self.before and all(line[:1] != b" " for line in hunk.lines):
            raise self._bare(hunk, number)
        is_own = hunk.start in fits
        at = hunk.start if is_own else fits[0]
        is_doubtful = len(fits) > 1 and not self.is_same and not self._is_meant(hunk, at, fits)
        if len(fits) > 1 and (not is_own or (is_doubtful and self.part.index)):
            raise self._ambiguous(hunk, number, fits, "")
        changed = hunk.changed(at)
        fit, other = self.outline.judge(hunk.heading, at, changed)
        heading = visible(hunk.heading.decode("utf-8", "replace").strip())
        if self.is_same and is_own and fit != "elsewhere":
            fit = "agrees"
        if fit == "between" and len(fits) > 1:
            raise self._ambiguous(hunk, number, fits, heading)
        if fit == "elsewhere" or (fit == "absent" and (len(fits) > 1 or not is_own)):
            raise self._elsewhere(hunk, number, fits, heading, other)
        if not is_own or is_doubtful or fit != "agrees":
            self.moved.append(
                MovedHunk(
                    path=self.path,
                    number=number,
                    line=changed.first + 1,
                    offset=at - hunk.start,
                    inside=self.outline.name_at(changed),
                    heading=heading if fit != "agrees" else "",
                    others=len(fits) - 1 if is_doubtful else 0,
                )
            )
        return at

    def _is_meant(self, hunk: Hunk, at: int, fits: Sequence[int]) -> bool:
        """Whether the heading names the definition at this place, and not those at the other places."""
        if not hunk.heading.strip() or len(fits) > _MOST_JUDGED:
            return False
        agreeing = [
            each for each in fits if self.outline.judge(hunk.heading, each, hunk.changed(each))[0] == "agrees"
        ]
        return agreeing == [at]

    def _fits(self, hunk: Hunk) -> list[int]:
        """The places that have a hunk's old lines, as the number of lines before them."""
        wanted = b"".join(hunk.old)
        if not wanted:
            return [min(hunk.start, len(self.outline.rows))]
        found: list[int] = []
        at = self.before.find(wanted)
        while at >= 0:
            end = at + len(wanted)
            begins = at == 0 or self.before[at - 1 : at] == b"\n"
            if begins and (wanted.endswith(b"\n") or end == len(self.before)):
                found.append(self.before.count(b"\n", 0, at))
            at = self.before.find(wanted, at + 1)
        return found

    def _shown(self, hunk: Hunk, fits: Sequence[int]) -> Iterator[Location]:
        for at in fits[:_SHOWN]:
            changed = hunk.changed(at)
            inside = self.outline.name_at(changed)
            numbers = f"@@ -{at + 1},{len(hunk.old)} +{at + 1},{len(hunk.new)} @@"
            yield Location(
                path=self.path, line=changed.first + 1, label=f"{f'in {inside}: ' if inside else ''}{numbers}"
            )
        if len(fits) > _SHOWN:
            yield Location(path=self.path, label=f"and {len(fits) - _SHOWN} more places")

    def _name(self, hunk: Hunk, number: int) -> str:
        return f"hunk {number} of {self.path} ({hunk.numbers.decode()})"

    def _bare(self, hunk: Hunk, number: int) -> AnchorError:
        return AnchorError(
            f"{self._name(hunk, number)} has no lines of context",
            code="IMPORT_AMBIGUOUS",
            where=self.where,
            why="only its line number gives the place, and there is no way to check that number",
            hint="make the diff with context: git diff -U3",
        )

    def _ambiguous(self, hunk: Hunk, number: int, fits: Sequence[int], heading: str) -> AnchorError:
        if heading:
            detail = f", and the file does not have '{heading}', which its @@ line names"
        elif hunk.start not in fits:
            detail = ", none of them at its line number"
        else:
            detail = ", and the diff was made from another version of the file"
        return AnchorError(
            f"{self._name(hunk, number)} fits in {len(fits)} places{detail}",
            code="IMPORT_AMBIGUOUS",
            where=[self.where, *self._shown(hunk, fits)],
            why="git apply would take the nearest one, even in another function",
            hint="write the line numbers of the right place into the hunk, make the diff again on this "
            "upstream, or name the upstream that it was made for with --upstream",
        )

    def _elsewhere(
        self, hunk: Hunk, number: int, fits: Sequence[int], heading: str, other: int | None
    ) -> AnchorError:
        changed = hunk.changed(hunk.start if hunk.start in fits else fits[0])
        there = f"line {changed.first + 1} is in '{self.outline.name_at(changed)}'"
        if other is None:
            why = f"{self.path} has no '{heading}'"
        else:
            why = "several functions have these lines, or upstream moved them into another one"
        named = [] if other is None else [Location(path=self.path, line=other + 1, label=f"is '{heading}'")]
        return AnchorError(
            f"{self._name(hunk, number)} is for '{heading}', but {there}",
            code="IMPORT_OTHER_FUNCTION",
            where=[self.where, *self._shown(hunk, fits), *named],
            why=why,
            hint="if the line is right, correct or remove the name after the second @@; otherwise make the "
            "diff again on this upstream, or name the upstream that it was made for with --upstream",
        )


def keep_below(data: bytes, folder: str, strip: int) -> tuple[bytes, tuple[str, ...]]:
    """The diff of the files below a folder, and the paths of the others, which are skipped."""
    rows = _rows(data)
    parts = parse_diff(data)
    kept = rows[: parts[0].row] if parts else rows
    others: list[str] = []
    for part in parts:
        names = [name for name in (*part.heads, part.old, part.new) if name not in (None, _NONE)]
        paths = [stripped(name, strip) or "" for name in names]
        if paths and all(path.startswith(f"{folder}/") for path in paths):
            kept += rows[part.row : part.stop]
        else:
            others += paths[-1:] or [rows[part.row].strip().decode("utf-8", "replace")]
    return b"".join(kept), tuple(dict.fromkeys(others))
