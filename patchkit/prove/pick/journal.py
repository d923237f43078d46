"""What was measured, line by line: an append-only file from which a run that was ended goes on.

Each line is one finished visit or check, written and synced before the next one begins. Asked the same again,
the journal answers, and only what it lacks is measured: the decision is made anew from the first line each
time, so nothing else needs to be kept and nothing can be counted twice. With more time a run asks for more.

The first line says what is measured. A last line without its end is what a kill or a full disk leaves; it
counts for nothing and is cut off. Any other line that does not read, or is not the next of a run, is an
error: somebody changed the file.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import Annotated, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from patchkit.base.errors import Location, UsageError
from patchkit.base.files import check_folder, check_output, disk_errors, open_regular
from patchkit.gpu.hardware.bench.folder import alone_in
from patchkit.gpu.hardware.machine_facts import MACHINE_FILE
from patchkit.prove.pick.crossing import Arm
from patchkit.prove.pick.decide import Measured, Stage, Visit

_DOING = "keeping what was measured"
_ELSEWHERE = "name another folder with --out"
JOURNAL = "journal.jsonl"
PICKED = "picked.toml"
RESULT = "result.json"
_LOCK = "lock"
_BEGINS = b'{"kind":"begun",'  # as pydantic writes the first line
_OURS = b'{"kind":'
_ROOM = 1_000_000  # bytes: a run of hours has a thousand lines of some hundred
_MOST_TOLD = 1000  # characters of what differs
_Name = Annotated[str, Field(max_length=300)]
_Seconds = Annotated[float, Field(ge=0, le=10**7, allow_inf_nan=False)]
_Time = Annotated[int, Field(ge=1, le=10**15)]


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Begun(_Line):
    """The first line: ``setup`` is all that makes two measurements one."""

    kind: Literal["begun"] = "begun"
    setup: dict[str, object]


class Visited(_Line):
    """One visit: the hashes of tree and model, ``samples_ns`` by test, and how the machine was then."""

    kind: Literal["visit"] = "visit"
    number: Annotated[int, Field(ge=0)]
    stage: Stage
    round: Annotated[int, Field(ge=0)]
    again: bool
    arm: Annotated[tuple[_Name, ...], Field(strict=False)]
    tree: _Name
    model: _Name
    model_hash: _Name
    samples_ns: Annotated[
        dict[_Name, Annotated[tuple[_Time, ...], Field(strict=False, min_length=1)]], Field(min_length=1)
    ]
    seconds: _Seconds
    conditions: dict[_Name, _Name]


class Checked(_Line):
    """One look at what an arm computes; ``fault`` is None where it is right."""

    kind: Literal["check"] = "check"
    number: Annotated[int, Field(ge=0)]
    arm: Annotated[tuple[_Name, ...], Field(strict=False)]
    tree: _Name
    fault: str | None
    seconds: _Seconds


Entry = Annotated[Begun | Visited | Checked, Field(discriminator="kind")]
_ENTRY: TypeAdapter[Begun | Visited | Checked] = TypeAdapter(Entry)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """What a machine gives for a visit: all samples in nanoseconds by test, and how it was."""

    samples_ns: Mapping[str, tuple[int, ...]]
    seconds: float
    conditions: Mapping[str, str] = field(default_factory=dict)


_Question = tuple[object, ...]


@dataclass(slots=True, kw_only=True)
class Journal:
    """An opened journal, this process's alone. ``entries`` were there, or were added."""

    path: Path
    entries: list[Visited | Checked]
    _file: FileIO
    _answers: dict[_Question, Visited | Checked]
    _asked: set[_Question] = field(default_factory=set)

    @property
    def kept(self) -> int:
        """How many entries are there that were not asked for yet."""
        return len(self._answers) - len(self._asked)

    def take_visit(self, visit: Visit) -> Visited | None:
        """The kept answer, if there is one."""
        entry = self._take(("visit", visit.stage, visit.round, visit.model, visit.arm, visit.is_again))
        return entry if isinstance(entry, Visited) else None

    def take_check(self, arm: Arm) -> Checked | None:
        """The same of a look at what an arm computes."""
        entry = self._take(("check", arm))
        return entry if isinstance(entry, Checked) else None

    def add(self, entry: Visited | Checked) -> None:
        """Write a line, whole and on the disk when this returns; or not at all. Raises CacheError."""
        _append(self._file, entry, self.path)
        self.entries.append(entry)
        self._answers[_question(entry)] = entry
        self._asked.add(_question(entry))

    def _take(self, question: _Question) -> Visited | Checked | None:
        found = self._answers.get(question)
        if found is not None:
            self._asked.add(question)
        return found


def _question(entry: Visited | Checked) -> _Question:
    if isinstance(entry, Checked):
        return ("check", entry.arm)
    return ("visit", entry.stage, entry.round, entry.model, entry.arm, entry.again)


def _answers(entries: list[Visited | Checked], path: Path) -> dict[_Question, Visited | Checked]:
    found: dict[_Question, Visited | Checked] = {}
    for entry in entries:
        earlier = found.setdefault(_question(entry), entry)
        if earlier is not entry:
            told = f"it asks the same as line {_line_of(earlier)}: {_told(entry)}"
            raise _other(path, _line_of(entry), told)
    return found


def _told(entry: Visited | Checked) -> str:
    arm = ", ".join(entry.arm) or "upstream"
    if isinstance(entry, Checked):
        return f"whether this is right: {arm}"
    again = " once more" if entry.again else ""
    return f"stage {entry.stage}, round {entry.round}, {entry.model} with {arm}{again}"


def _line_of(entry: Visited | Checked) -> int:
    """The first line of a journal says what is measured, and entries are numbered from 0."""
    return entry.number + 2


def _other(path: Path, line: int, why: str) -> UsageError:
    return UsageError(
        "the journal is not one of this measurement",
        code="PICK_JOURNAL_OTHER",
        where=Location(path=str(path), line=line),
        why=f"line {line}: {why}",
        hint="name another folder with --out, or throw that measurement away with --fresh",
    )


def check_folder_of_pick(folder: Path, *, fresh: bool = False) -> None:
    """Raise at once what writing there would raise after minutes of building; nothing is made.

    Raises:
        PICK_FOLDER_OTHER: a file there is another program's.
        CacheError: the disk would refuse.
    """
    check_folder(folder, _ROOM, _DOING, _ELSEWHERE)
    if folder.is_dir():
        check_output(folder / JOURNAL, _DOING, _ELSEWHERE, appends=not fresh)
        _refuse_foreign(folder, fresh=fresh)


def _refuse_foreign(folder: Path, *, fresh: bool) -> None:
    """A file of another program that has a name of ours is neither written over nor, with fresh, removed."""
    path = folder / JOURNAL
    with disk_errors(path, _DOING, _ELSEWHERE):
        begins = b""
        if path.exists():
            with open_regular(path) as file:
                begins = file.read(len(_BEGINS))
        names = [name for name in (PICKED, RESULT, MACHINE_FILE) if os.path.lexists(folder / name)]
    if begins and not _BEGINS.startswith(begins):
        # A first line of ours that somebody changed is told as that, unless it would be thrown away.
        other = "" if begins.startswith(_OURS) and not fresh else JOURNAL
    else:
        other = names[0] if names and not path.exists() else ""
    if other:
        raise UsageError(
            f"the folder has a file {other} that is not of pick",
            code="PICK_FOLDER_OTHER",
            where=Location(path=str(folder / other)),
            why=f"pick keeps what it measures in files of fixed names: {JOURNAL}, {RESULT}, {PICKED}",
            hint=f"{_ELSEWHERE}, or move that file away",
        )


def _append(file: FileIO, entry: Begun | Visited | Checked, path: Path) -> None:
    before = file.seek(0, os.SEEK_END)
    try:
        with disk_errors(path, _DOING, _ELSEWHERE):
            _write(file, _text(entry))
    except BaseException:
        file.truncate(before)  # cutting needs no room; what a kill leaves is cut off when it is read
        raise


def _write(file: FileIO, text: bytes) -> None:
    if file.write(text) != len(text):  # the last bytes of a disk are taken without an error
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    os.fsync(file.fileno())


def _text(entry: Begun | Visited | Checked) -> bytes:
    """The line, with a digest over itself at its end."""
    body = entry.model_dump_json()
    return f"{body}\t{_digest(body)}\n".encode()


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()[:16]


@contextmanager
def open_journal(folder: Path, setup: Mapping[str, object], *, fresh: bool = False) -> Iterator[Journal]:
    """Begin a measurement in a folder, or go on with the one of equal setup that lies there.

    ``fresh`` throws away what was measured there, and all that was made of it or said about it: a driver may
    be another one now, and an old answer beside new rounds would be taken for theirs.

    Raises:
        PICK_FOLDER_BUSY: another process measures into it.
        PICK_FOLDER_OTHER: what lies there is not of pick.
        PICK_JOURNAL_OTHER: what lies there is of another measurement, or was changed.
        CacheError: the disk refused.
    """
    path = folder / JOURNAL
    _refuse_foreign(folder, fresh=fresh)
    with alone_in(folder, _LOCK, code="PICK_FOLDER_BUSY", doing=_DOING, elsewhere=_ELSEWHERE):
        with disk_errors(path, _DOING, _ELSEWHERE):
            if fresh:  # the journal last: a kill before it leaves what is not begun anew
                for name in (PICKED, RESULT, MACHINE_FILE, JOURNAL):
                    (folder / name).unlink(missing_ok=True)
            file = path.open("a+b", buffering=0)
        with file:
            with disk_errors(path, _DOING, _ELSEWHERE):
                file.seek(0)
                whole, _, rest = file.read().rpartition(b"\n")
                if rest:
                    file.truncate(len(whole) + bool(whole))
            lines = whole.split(b"\n") if whole else []
            wanted = Begun(setup=json.loads(json.dumps(setup)))
            if lines:
                _check_setup(_parse(lines[0], path, 1), wanted, path)
            else:
                _append(file, wanted, path)
            entries = _entries(lines[1:], path)
            yield Journal(path=path, entries=entries, _file=file, _answers=_answers(entries, path))


def load_journal(path: Path) -> tuple[Begun, tuple[Visited | Checked, ...]]:
    """Everything in a journal that nobody writes now; a last line without its end is left out.

    Raises PICK_JOURNAL_OTHER, CacheError.
    """
    with disk_errors(path, "reading a journal", "name another folder"):
        lines = path.read_bytes().split(b"\n")[:-1]
    begun = _parse(lines[0], path, 1) if lines else None
    if not isinstance(begun, Begun):
        raise _other(path, 1, "it does not say what was measured")
    return begun, tuple(_entries(lines[1:], path))


def _entries(lines: list[bytes], path: Path) -> list[Visited | Checked]:
    entries: list[Visited | Checked] = []
    tests: set[str] = set()
    for number, line in enumerate(lines):
        entry = _parse(line, path, number + 2)
        if isinstance(entry, Begun) or entry.number != number:
            found = "the beginning of one" if isinstance(entry, Begun) else f"number {entry.number}"
            raise _other(
                path, number + 2, f"number {number} of the measurement is to follow, this is {found}"
            )
        if isinstance(entry, Visited):
            here = set(entry.samples_ns)
            tests = tests or here
            if here != tests:  # nothing can be compared with it
                told = f"its tests are {', '.join(sorted(here))}, those before {', '.join(sorted(tests))}"
                raise _other(path, number + 2, told)
        entries.append(entry)
    return entries


def _parse(line: bytes, path: Path, number: int) -> Begun | Visited | Checked:
    body, tab, digest = line.decode("utf-8", "replace").rpartition("\t")
    if digest != _digest(body):
        told = (
            f"it ends with {digest[:16]!r}, and its text gives {_digest(body)!r}"
            if tab
            else "it has no digest"
        )
        raise _other(path, number, f"it is not as it was written: {told}")
    try:
        return _ENTRY.validate_json(body)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        raise _other(path, number, f"{name}: {first['msg']}" if name else first["msg"]) from error


def _check_setup(found: Begun | Visited | Checked, wanted: Begun, path: Path) -> None:
    if not isinstance(found, Begun):
        raise _other(path, 1, "it does not say what was measured")
    if differing := list(_differences(found.setup, wanted.setup)):
        raise _other(path, 1, "; ".join(differing)[:_MOST_TOLD])


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


class Source(Protocol):
    """A machine that measures: the one of the user, or a played one."""

    def prepare(self, arms: Sequence[Arm]) -> None:
        """Have these arms ready."""
        ...

    def sample(self, visit: Visit) -> Sampled:
        """Run a visit. What it raises ends the run, and nothing of the visit counts."""
        ...

    def check(self, arm: Arm, *, is_search: bool = False) -> str | None:
        """What an arm computes wrong, in words; None when it computes right.

        ``is_search`` as for :meth:`patchkit.prove.pick.decide.Meter.fault_of`.
        """
        ...

    def tree_of(self, arm: Arm) -> str:
        """The hash of the tree of an arm."""
        ...

    def hash_of(self, model: str) -> str:
        """The hash of a model's file."""
        ...


@dataclass(slots=True, kw_only=True)
class KeptMeter:
    """Answers from the journal as long as it has something, and then from the machine, which is kept at once.

    ``clock`` gives seconds; how long something took is all that is asked of it.
    """

    journal: Journal
    source: Source
    clock: Callable[[], float] = time.monotonic

    def prepare(self, arms: Sequence[Arm]) -> None:
        """Have arms ready, if they are to be measured now: what is kept needs no build."""
        if not self.journal.kept:
            self.source.prepare(arms)

    def measure(self, visit: Visit) -> Measured:
        """The fastest repetition of each test of a visit.

        What disturbs a program makes it slower, never faster, and the first repetitions record graphs: on
        four H100, of three repetitions of ``tg64`` the first was off by 13 to 28 % from call to call, their
        median by 3 to 11 %, the fastest by 1 to 5 % (six runs, 2026-11-27, docs/records/pick.md).
        """
        entry = self.journal.take_visit(visit)
        if entry is not None:
            self._check_tree(entry)
        if entry is None:
            sampled = self.source.sample(visit)
            entry = Visited(
                number=len(self.journal.entries),
                stage=visit.stage,
                round=visit.round,
                again=visit.is_again,
                arm=visit.arm,
                tree=self.source.tree_of(visit.arm),
                model=visit.model,
                model_hash=self.source.hash_of(visit.model),
                samples_ns=dict(sampled.samples_ns),
                seconds=round(sampled.seconds, 3),
                conditions=dict(sampled.conditions),
            )
            self.journal.add(entry)
        times = {test: min(samples) for test, samples in entry.samples_ns.items()}
        return Measured(times=times, seconds=entry.seconds)

    def fault_of(self, arm: Arm, *, is_search: bool = False) -> str | None:
        """What an arm computes wrong."""
        entry = self.journal.take_check(arm)
        if entry is not None:
            self._check_tree(entry)
        if entry is None:
            began = self.clock()
            fault = self.source.check(arm, is_search=is_search)
            entry = Checked(
                number=len(self.journal.entries),
                arm=arm,
                tree=self.source.tree_of(arm),
                fault=fault,
                seconds=round(self.clock() - began, 3),
            )
            self.journal.add(entry)
        return entry.fault

    def _check_tree(self, entry: Visited | Checked) -> None:
        tree = self.source.tree_of(entry.arm)
        if entry.tree != tree:
            told = f"the tree of {', '.join(entry.arm) or 'upstream'} was {entry.tree}, is {tree}"
            raise _other(self.journal.path, _line_of(entry), told)
