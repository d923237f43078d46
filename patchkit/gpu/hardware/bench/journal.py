"""What was measured, line by line: an append-only file from which a measurement that was ended goes on.

Each line is one finished call or check, written and synced before the next one begins. Asked the same again,
the journal answers, and only what it lacks is measured: nothing else needs to be kept, and nothing can be
counted twice.

The first line says what is measured. A last line without its end is what a kill or a full disk leaves; it
counts for nothing and is cut off. Any other line that does not read, or is not the next of a measurement, is
an error: somebody changed the file.
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
_DOING = "keeping what was measured"
ELSEWHERE = "name another folder with --out"
_BEGINS = b'{"kind":"begun",'  # as pydantic writes the first line
_OURS = b'{"kind":'
_ROOM = 1_000_000  # bytes: a run of hours has a thousand lines of some hundred
_MOST_TOLD = 1000  # characters of what differs

Question = tuple[object, ...]


class Begun(BaseModel):
    """The first line: ``setup`` is all that makes two measurements one, ``name`` tells this one apart."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    kind: Literal["begun"] = "begun"
    setup: dict[str, object]
    name: str = ""


class Line(BaseModel, ABC):
    """Any other line. ``number`` counts from 0."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    kind: str
    number: Annotated[int, Field(ge=0)]

    @property
    @abstractmethod
    def question(self) -> Question:
        """What the line answers; no two lines of a journal answer the same."""

    @property
    @abstractmethod
    def told(self) -> str:
        """The question in words."""

    @property
    def tests(self) -> frozenset[str]:
        """The tests of its times; equal in all lines that have some, else nothing could be compared."""
        return frozenset()

    @property
    def line(self) -> int:
        """Its line in the file: the first one says what is measured."""
        return self.number + 2


L = TypeVar("L", bound=Line)
T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class Journal(Generic[L]):
    """An opened journal, this process's alone. ``entries`` were there, or were added."""

    path: Path
    name: str
    entries: list[L]
    _file: FileIO
    _answers: dict[Question, L]
    _asked: set[Question] = field(default_factory=set)

    @property
    def folder(self) -> Path:
        """Where it lies; files made of it lie beside it."""
        return self.path.parent

    @property
    def kept(self) -> int:
        """How many entries are there that were not asked for yet."""
        return len(self._answers) - len(self._asked)

    def has(self, question: Question) -> bool:
        """Whether a question has its answer."""
        return question in self._answers

    def take(self, question: Question) -> L | None:
        """The kept answer, if there is one."""
        found = self._answers.get(question)
        if found is not None:
            self._asked.add(question)
        return found

    def add(self, entry: L) -> None:
        """Write a line, whole and on the disk when this returns; or not at all. Raises CacheError."""
        _append(self._file, entry, self.path)
        self.entries.append(entry)
        self._answers[entry.question] = entry
        self._asked.add(entry.question)

    def finish(self) -> None:
        """The measurement is complete: the next one in this folder begins anew. Raises CacheError."""
        with disk_errors(self.path, _DOING, ELSEWHERE):
            self.path.rename(self.path.with_name(_FINISHED))


def journal_error(path: Path, line: int, why: str) -> UsageError:
    """The error for a journal whose line is not of this measurement, or was changed."""
    return UsageError(
        "the journal is not one of this measurement",
        code="BENCH_FOLDER_OTHER",
        where=Location(path=str(path), line=line),
        why=f"line {line}: {why}",
        hint="name another folder with --out, or throw that measurement away with --fresh",
    )


def check_place(folder: Path, *, fresh: bool = False) -> None:
    """Raise at once what measuring into a folder would raise after minutes of building; nothing is made.

    Raises:
        BENCH_FOLDER_OTHER: what lies there is not of a measurement.
        CacheError: the disk would refuse.
    """
    check_folder(folder, _ROOM, _DOING, ELSEWHERE)
    if folder.is_dir():
        check_output(folder / JOURNAL, _DOING, ELSEWHERE, appends=not fresh)
        _refuse_foreign(folder, fresh=fresh)


def _refuse_foreign(folder: Path, *, fresh: bool) -> None:
    """Nothing of another program is written over or, with ``fresh``, removed."""
    path = folder / JOURNAL
    with disk_errors(path, _DOING, ELSEWHERE):
        names = sorted(each.name for each in folder.iterdir()) if folder.is_dir() else []
        begins = b""
        if path.exists():
            with open_regular(path) as file:
                begins = file.read(len(_BEGINS))
    if JOURNAL in names or _FINISHED in names:
        # A first line of ours that somebody changed is told as that, unless it would be thrown away.
        is_ours = _BEGINS.startswith(begins) or (begins.startswith(_OURS) and not fresh)
        foreign = [] if is_ours else [JOURNAL]
    else:
        foreign = [name for name in names if name != _LOCK]
    if foreign:
        raise UsageError(
            "the folder holds no measurement of patchkit, and is not empty",
            code="BENCH_FOLDER_OTHER",
            where=Location(path=str(folder / foreign[0])),
            why=f"a measurement is kept in {JOURNAL}",
            hint="name an empty or a new folder with --out",
        )


@contextmanager
def open_journal(
    folder: Path,
    setup: Mapping[str, object],
    lines: TypeAdapter[L],
    *,
    made: Sequence[str] = (),
    fresh: bool = False,
) -> Iterator[Journal[L]]:
    """Begin a measurement in a folder, or go on with the one of equal setup that lies there.

    ``fresh`` throws away what was measured there, and the files that were ``made`` of it: a driver may be
    another one now, and an old answer beside new rounds would be taken for theirs.

    Raises:
        BENCH_FOLDER_BUSY: another process measures into it.
        BENCH_FOLDER_OTHER: what lies there is of another measurement or program, or was changed.
        CacheError: the disk refused.
    """
    path = folder / JOURNAL
    _refuse_foreign(folder, fresh=fresh)
    with _alone_in(folder):
        with disk_errors(path, _DOING, ELSEWHERE):
            if fresh:
                # The journal last: a kill before it leaves what is not begun anew.
                for name in (MACHINE_FILE, *made, JOURNAL):
                    (folder / name).unlink(missing_ok=True)
            file = path.open("a+b", buffering=0)
        with file:
            with disk_errors(path, _DOING, ELSEWHERE):
                file.seek(0)
                whole, _, rest = file.read().rpartition(b"\n")
                if rest:
                    file.truncate(len(whole) + bool(whole))
            content = whole.split(b"\n") if whole else []
            begun = Begun(setup=json.loads(json.dumps(setup)), name=secrets.token_hex(4))
            if content:
                begun = _check_setup(_begun(content[0], path), begun, path)
            else:
                _append(file, begun, path)
            entries = _entries(content[1:], path, lines)
            answers = _answers(entries, path)
            yield Journal(path=path, name=begun.name, entries=entries, _file=file, _answers=answers)


def load_journal(path: Path, lines: TypeAdapter[L]) -> tuple[Begun, tuple[L, ...]]:
    """Everything in a journal that nobody writes now; a last line without its end is left out.

    Raises BENCH_FOLDER_OTHER, CacheError.
    """
    with disk_errors(path, "reading a journal", "name another folder"), open_regular(path) as file:
        content = file.read().split(b"\n")[:-1]
    return _begun(content[0] if content else b"", path), tuple(_entries(content[1:], path, lines))


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """A folder, which is made, for this process alone."""
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(folder / _LOCK, timeout_s=0, doing=_DOING, elsewhere=ELSEWHERE))
        except LockBusy as error:
            raise UsageError(
                "another patchkit measures into this folder",
                code="BENCH_FOLDER_BUSY",
                where=Location(path=str(folder)),
                why="two measurements at once would also disturb each other",
                hint="wait for it, or end it",
            ) from error
        yield


def _append(file: FileIO, entry: Begun | Line, path: Path) -> None:
    before = file.seek(0, os.SEEK_END)
    try:
        with disk_errors(path, _DOING, ELSEWHERE):
            _write(file, _text(entry))
    except BaseException:
        file.truncate(before)  # cutting needs no room; what a kill leaves is cut off when it is read
        raise


def _write(file: FileIO, text: bytes) -> None:
    if file.write(text) != len(text):  # the last bytes of a disk are taken without an error
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    os.fsync(file.fileno())


def _text(entry: Begun | Line) -> bytes:
    """The line, with a digest over itself at its end."""
    body = entry.model_dump_json()
    return f"{body}\t{_digest(body)}\n".encode()


def _digest(body: str) -> str:
    return sha256(body)[:16]


def _answers(entries: Sequence[L], path: Path) -> dict[Question, L]:
    found: dict[Question, L] = {}
    for entry in entries:
        earlier = found.setdefault(entry.question, entry)
        if earlier is not entry:
            told = f"it asks the same as line {earlier.line}: {entry.told}"
            raise journal_error(path, entry.line, told)
    return found


def _entries(content: Sequence[bytes], path: Path, lines: TypeAdapter[L]) -> list[L]:
    entries: list[L] = []
    tests: frozenset[str] = frozenset()
    for number, line in enumerate(content):
        entry = _parse(line, path, number + 2, lines.validate_json)
        if entry.number != number:
            told = f"number {number} of the measurement is to follow, this is number {entry.number}"
            raise journal_error(path, number + 2, told)
        tests = tests or entry.tests
        if entry.tests and entry.tests != tests:
            here, before = (", ".join(sorted(each)) for each in (entry.tests, tests))
            raise journal_error(path, number + 2, f"its tests are {here}, those before {before}")
        entries.append(entry)
    return entries


def _begun(line: bytes, path: Path) -> Begun:
    return _parse(line, path, 1, Begun.model_validate_json)


def _parse(line: bytes, path: Path, number: int, validate: Callable[[str], T]) -> T:
    body, tab, digest = line.decode("utf-8", "replace").rpartition("\t")
    if digest != _digest(body):
        told = (
            f"it ends with {digest[:16]!r}, and its text gives {_digest(body)!r}"
            if tab
            else "it has no digest"
        )
        raise journal_error(path, number, f"it is not as it was written: {told}")
    try:
        return validate(body)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        raise journal_error(path, number, f"{name}: {first['msg']}" if name else first["msg"]) from error


def _check_setup(found: Begun, wanted: Begun, path: Path) -> Begun:
    if differing := list(_differences(found.setup, wanted.setup)):
        raise journal_error(path, 1, "; ".join(differing)[:_MOST_TOLD])
    return found


def _differences(was: Mapping[str, object], now: Mapping[str, object], within: str = "") -> Iterator[str]:
    """What differs, by its name; of lists and tables only that part."""
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
