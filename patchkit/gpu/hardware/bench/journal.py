"""Append-only journal of a measurement, so that an interrupted one can be resumed.

Each line is a finished call or check, written and synced before the next one starts. When the measurement
runs again, the journal answers what it contains and only the rest is measured. So there is no other state,
and nothing can be counted twice.

The first line identifies the measurement. An incomplete last line is left by a kill or a full disk; it is
ignored and removed. Any other invalid line, or one out of order, is an error: the file was changed.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import Annotated, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from patchkit.base.digests import sha256
from patchkit.base.errors import Location, UsageError
from patchkit.base.files import check_folder, check_output, disk_errors, open_regular
from patchkit.base.locks import LockBusy, locked
from patchkit.gpu.hardware.machine_facts import MACHINE_FILE

JOURNAL = "journal.jsonl"
_FINISHED = "finished.jsonl"
_LOCK = "lock"
_DOING = "saving measurements"
ELSEWHERE = "use another folder with --out"
_BEGINS = b'{"kind":"begun",'  # start of the first line as pydantic writes it
_OURS = b'{"kind":'
_ROOM = 1_000_000  # bytes to have free: a run of hours has a thousand lines of some hundred bytes
_MOST_TOLD = 1000  # characters of differences in an error

Question = tuple[object, ...]


class JournalHeader(BaseModel):
    """The first line: ``setup`` must be equal to resume a measurement; ``name`` is a unique id."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    kind: Literal["begun"] = "begun"
    setup: dict[str, object]
    name: str = ""


class Line(BaseModel, ABC):
    """A line after the first. ``number`` counts from 0."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    kind: str
    number: Annotated[int, Field(ge=0)]

    @property
    @abstractmethod
    def question(self) -> Question:
        """What the line answers; unique within a journal."""

    @property
    @abstractmethod
    def text(self) -> str:
        """The question in words."""

    @property
    def tests(self) -> frozenset[str]:
        """The tests of its times; they must be equal in all lines with times, to be comparable."""
        return frozenset()

    @property
    def line(self) -> int:
        """Its line number in the file, after the header."""
        return self.number + 2


L = TypeVar("L", bound=Line)
T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class Journal(Generic[L]):
    """An opened journal, locked by this process. ``entries`` has existing and added lines."""

    path: Path
    name: str
    entries: list[L]
    _file: FileIO
    _answers: dict[Question, L]
    _asked: set[Question] = field(default_factory=set)

    @property
    def folder(self) -> Path:
        """The journal's folder, also for files derived from it."""
        return self.path.parent

    @property
    def kept(self) -> int:
        """Number of entries that were not requested yet."""
        return len(self._answers) - len(self._asked)

    def has(self, question: Question) -> bool:
        """Whether a question is answered."""
        return question in self._answers

    def take(self, question: Question) -> L | None:
        """The kept answer, if there is one; marks it as requested."""
        found = self._answers.get(question)
        if found is not None:
            self._asked.add(question)
        return found

    def add(self, entry: L) -> None:
        """Write and sync a line, completely or not at all. Raises CacheError."""
        _append(self._file, entry, self.path)
        self.entries.append(entry)
        self._answers[entry.question] = entry
        self._asked.add(entry.question)

    def finish(self) -> None:
        """Mark the measurement as complete; the next one in this folder starts anew. Raises CacheError."""
        with disk_errors(self.path, _DOING, ELSEWHERE):
            self.path.rename(self.path.with_name(_FINISHED))


def journal_error(path: Path, line: int, why: str) -> UsageError:
    """The error for a journal that was changed or belongs to another measurement."""
    return UsageError(
        "the journal belongs to another measurement, or was changed",
        code="BENCH_FOLDER_UNUSABLE",
        where=Location(path=str(path), line=line),
        why=f"line {line}: {why}",
        hint="use another folder with --out, or discard that measurement with --fresh",
    )


def check_place(folder: Path, *, fresh: bool = False) -> None:
    """Check a folder for a measurement before anything is built. Creates nothing.

    Raises:
        BENCH_FOLDER_UNUSABLE: the folder contains something other than a measurement.
        CacheError: the folder is not writable or has no free space.
    """
    check_folder(folder, _ROOM, _DOING, ELSEWHERE)
    if folder.is_dir():
        check_output(folder / JOURNAL, _DOING, ELSEWHERE, appends=not fresh)
        _refuse_foreign(folder, fresh=fresh)


def _refuse_foreign(folder: Path, *, fresh: bool) -> None:
    """Refuse to overwrite or, with ``fresh``, delete files of other programs."""
    path = folder / JOURNAL
    with disk_errors(path, _DOING, ELSEWHERE):
        names = sorted(each.name for each in folder.iterdir()) if folder.is_dir() else []
        begins = b""
        if path.exists():
            with open_regular(path) as file:
                begins = file.read(len(_BEGINS))
    if JOURNAL in names or _FINISHED in names:
        # A changed first line of ours is reported as such later, unless it would be deleted.
        is_ours = _BEGINS.startswith(begins) or (begins.startswith(_OURS) and not fresh)
        foreign = [] if is_ours else [JOURNAL]
    else:
        foreign = [name for name in names if name != _LOCK]
    if foreign:
        raise UsageError(
            "the folder is not empty, and contains no measurement of patchkit",
            code="BENCH_FOLDER_UNUSABLE",
            where=Location(path=str(folder / foreign[0])),
            why=f"a measurement has a file {JOURNAL}",
            hint="use an empty or a new folder with --out",
        )


@contextmanager
def open_journal(
    folder: Path,
    setup: Mapping[str, object],
    lines: TypeAdapter[L],
    *,
    derived: Sequence[str] = (),
    fresh: bool = False,
) -> Iterator[Journal[L]]:
    """Start a measurement in a folder, or resume the one of equal setup that is there.

    ``fresh`` deletes the previous measurement and the ``derived`` files. It is a clean restart, because old
    results must not be mixed with new ones, for example after a driver update.

    Raises:
        BENCH_FOLDER_UNUSABLE: another process is measuring into it.
        BENCH_FOLDER_UNUSABLE: it contains another measurement, another program's files, or a changed journal.
        CacheError: a file cannot be written.
    """
    path = folder / JOURNAL
    _refuse_foreign(folder, fresh=fresh)
    with _alone_in(folder):
        with disk_errors(path, _DOING, ELSEWHERE):
            if fresh:
                # The journal last: if interrupted before, the measurement does not start anew.
                for name in (MACHINE_FILE, *derived, JOURNAL):
                    (folder / name).unlink(missing_ok=True)
            file = path.open("a+b", buffering=0)
        with file:
            with disk_errors(path, _DOING, ELSEWHERE):
                file.seek(0)
                whole, _, rest = file.read().rpartition(b"\n")
                if rest:
                    file.truncate(len(whole) + bool(whole))
            content = whole.split(b"\n") if whole else []
            header = JournalHeader(setup=json.loads(json.dumps(setup)), name=secrets.token_hex(4))
            if content:
                header = _check_setup(_parse_header(content[0], path), header, path)
            else:
                _append(file, header, path)
            entries = _entries(content[1:], path, lines)
            answers = _answers(entries, path)
            yield Journal(path=path, name=header.name, entries=entries, _file=file, _answers=answers)


def load_journal(path: Path, lines: TypeAdapter[L]) -> tuple[JournalHeader, tuple[L, ...]]:
    """Read a journal that no process is writing; an incomplete last line is ignored.

    Raises BENCH_FOLDER_UNUSABLE, CacheError.
    """
    with disk_errors(path, "reading a journal", "use another folder"), open_regular(path) as file:
        content = file.read().split(b"\n")[:-1]
    return _parse_header(content[0] if content else b"", path), tuple(_entries(content[1:], path, lines))


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Create a folder if necessary, and lock it for this process."""
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(folder / _LOCK, timeout_s=0, doing=_DOING, elsewhere=ELSEWHERE))
        except LockBusy as error:
            raise UsageError(
                "another patchkit is measuring into this folder",
                code="BENCH_FOLDER_UNUSABLE",
                where=Location(path=str(folder)),
                why="two measurements at the same time would also disturb each other",
                hint="wait until it ends, or stop it",
            ) from error
        yield


def _append(file: FileIO, entry: JournalHeader | Line, path: Path) -> None:
    before = file.seek(0, os.SEEK_END)
    try:
        with disk_errors(path, _DOING, ELSEWHERE):
            _write(file, _text(entry))
    except BaseException:
        file.truncate(before)  # needs no space; after a kill, reading removes the incomplete line
        raise


def _write(file: FileIO, text: bytes) -> None:
    if file.write(text) != len(text):  # a write that fills the disk is truncated without an error
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    os.fsync(file.fileno())


def _text(entry: JournalHeader | Line) -> bytes:
    """The line, followed by a digest of it."""
    body = entry.model_dump_json()
    return f"{body}\t{_digest(body)}\n".encode()


def _digest(body: str) -> str:
    return sha256(body)[:16]


def _answers(entries: Sequence[L], path: Path) -> dict[Question, L]:
    found: dict[Question, L] = {}
    for entry in entries:
        earlier = found.setdefault(entry.question, entry)
        if earlier is not entry:
            why = f"it repeats the measurement of line {earlier.line}: {entry.text}"
            raise journal_error(path, entry.line, why)
    return found


def _entries(content: Sequence[bytes], path: Path, lines: TypeAdapter[L]) -> list[L]:
    entries: list[L] = []
    tests: frozenset[str] = frozenset()
    for number, line in enumerate(content):
        entry = _parse(line, path, number + 2, lines.validate_json)
        if entry.number != number:
            why = f"number {number} of the measurement is expected, but this is number {entry.number}"
            raise journal_error(path, number + 2, why)
        tests = tests or entry.tests
        if entry.tests and entry.tests != tests:
            here, before = (", ".join(sorted(each)) for each in (entry.tests, tests))
            raise journal_error(path, number + 2, f"its tests are {here}, but earlier ones are {before}")
        entries.append(entry)
    return entries


def _parse_header(line: bytes, path: Path) -> JournalHeader:
    return _parse(line, path, 1, JournalHeader.model_validate_json)


def _parse(line: bytes, path: Path, number: int, validate: Callable[[str], T]) -> T:
    body, tab, digest = line.decode("utf-8", "replace").rpartition("\t")
    if digest != _digest(body):
        why = f"its digest is {digest[:16]!r}, expected {_digest(body)!r}" if tab else "it has no digest"
        raise journal_error(path, number, f"the line was changed: {why}")
    try:
        return validate(body)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        raise journal_error(path, number, f"{name}: {first['msg']}" if name else first["msg"]) from error


def _check_setup(found: JournalHeader, wanted: JournalHeader, path: Path) -> JournalHeader:
    if differing := list(_differences(found.setup, wanted.setup)):
        raise journal_error(path, 1, "; ".join(differing)[:_MOST_TOLD])
    return found


def _differences(was: Mapping[str, object], now: Mapping[str, object], within: str = "") -> Iterator[str]:
    """Differing settings by name; for lists and tables only the parts that differ."""
    for key in sorted(was.keys() | now.keys()):
        name, old, new = f"{within}{key}", was.get(key), now.get(key)
        if old == new:
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _differences(old, new, f"{name} ")
        elif isinstance(old, list) and isinstance(new, list) and set(map(str, old)) != set(map(str, new)):
            gone = [f"without {one}" for one in old if one not in new]
            yield f"{name}: {', '.join([*gone, *(f'with {one}' for one in new if one not in old)])}"
        elif old is None or new is None:
            yield f"{name} was {'none' if old is None else old}, is {'none' if new is None else new}"
        else:
            yield f"{name} was {old}, is {new}"
