"""The journal: ended at any point, what was finished is there once, and the run goes on to the same end."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from refusing import refused as refused_with
from simulated_machine import PLANTED, RIGHT, SimulatedMachine
from small_disk import on_small_disk

from patchkit.base.errors import UsageError
from patchkit.gpu.hardware.bench.journal import JOURNAL, Journal, load_journal, open_journal
from patchkit.prove.bench.visits import ENTRIES, JournalEntry
from patchkit.prove.pick.decide import Picked, PickPlan, Visit, pick
from patchkit.prove.pick.factorial import Arm
from patchkit.prove.pick.meter import PICKED, RESULT, KeptMeter, Sampled

_SETUP = {"models": ["small"], "least": 0.02}
_PLAN = PickPlan(members=(PLANTED[0], PLANTED[3]), models=("small",), seconds=3600.0, seed="kept")


@dataclass(slots=True)
class _Played:
    """A machine whose answer to a visit depends on the visit alone, as far as a run can see."""

    samples: int = 0
    asked: list[Visit] = field(default_factory=list)
    ends_at: int | None = None

    def prepare(self, arms: Sequence[Arm]) -> None:
        """Nothing has to be built."""

    def sample(self, visit: Visit) -> Sampled:
        if self.samples == self.ends_at:
            raise KeyboardInterrupt
        self.samples += 1
        self.asked.append(visit)
        seed = seed_of(visit)
        times = SimulatedMachine(seed=seed, noise=0.003, stalls=0.0, throttling=0.0, drift=0.0)
        found = times.measure(visit)
        return Sampled(
            samples_ns={test: (round(time),) for test, time in found.times.items()},
            seconds=found.seconds,
            conditions={"load": "0.1"},
        )

    def check(self, arm: Arm, *, is_search: bool = False) -> str | None:
        del is_search
        return "MUL_MAT of one case" if "0004-wrong" in arm else None

    def tree_of(self, arm: Arm) -> str:
        return "+".join(arm) or "upstream"

    def hash_of(self, model: str) -> str:
        return f"hash of {model}"


def seed_of(visit: Visit) -> int:
    return int.from_bytes(repr(visit).encode()[-64:], "little") % (2**61 - 1)


def _open(
    folder: Path, setup: Mapping[str, object] = _SETUP, *, fresh: bool = False
) -> AbstractContextManager[Journal[JournalEntry]]:
    return open_journal(folder, setup, ENTRIES, derived=(PICKED, RESULT), fresh=fresh)


def _lines(folder: Path) -> bytes:
    """The journal without its first line, which has a name of its own."""
    return (folder / JOURNAL).read_bytes().partition(b"\n")[2]


def _run(folder: Path, machine: _Played | None = None) -> Picked:
    with _open(folder) as journal:
        meter = KeptMeter(journal=journal, source=machine or _Played(), clock=lambda: 0.0)
        return pick(_PLAN, meter)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Picked, bytes]:
    folder = tmp_path_factory.mktemp("whole")
    picked = _run(folder)
    assert picked.picked == RIGHT[:1]
    return picked, (folder / JOURNAL).read_bytes()


@pytest.mark.parametrize("places", [4, pytest.param(30, marks=pytest.mark.thorough)])
def test_a_journal_cut_anywhere_goes_on_to_the_same_journal(
    whole: tuple[Picked, bytes], tmp_path: Path, places: int
) -> None:
    picked, data = whole
    for number in range(places):
        cut = len(data) * number // places + number
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / JOURNAL).write_bytes(data[:cut])
        machine = _Played()
        assert _run(folder, machine) == picked
        assert _lines(folder) == data.partition(b"\n")[2]
        finished = data[:cut].count(b'"kind":"visit"') - (not data[:cut].endswith(b"\n"))
        visits = data.count(b'"kind":"visit"')
        assert visits - finished - 1 <= machine.samples <= visits - max(0, finished)


def test_repetitions_that_something_slowed_down_change_nothing(
    whole: tuple[Picked, bytes], tmp_path: Path
) -> None:
    class Disturbed(_Played):
        def sample(self, visit: Visit) -> Sampled:
            found = super().sample(visit)
            slowed = 1.1 + seed_of(visit) % 40 / 100
            samples = {
                test: (round(time * slowed), time, round(time * 1.05))
                for test, (time,) in found.samples_ns.items()
            }
            return replace(found, samples_ns=samples)

    assert _run(tmp_path, Disturbed()) == whole[0]


def _killed_at(folder: Path, at: int) -> None:
    class Deadly(_Played):
        def sample(self, visit: Visit) -> Sampled:
            if self.samples == at:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().sample(visit)

    _run(folder, Deadly())


def test_killed_30_times_in_one_run_nothing_is_lost_and_nothing_counts_twice(
    whole: tuple[Picked, bytes], tmp_path: Path
) -> None:
    picked, data = whole
    visits = data.count(b'"kind":"visit"')
    context = multiprocessing.get_context("fork")
    for _ in range(30):
        process = context.Process(target=_killed_at, args=(tmp_path, max(1, visits // 31)))
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL
    _, entries = load_journal(tmp_path / JOURNAL, ENTRIES)
    assert len({entry.number for entry in entries}) == len(entries)
    assert _run(tmp_path) == picked
    assert _lines(tmp_path) == data.partition(b"\n")[2]


def test_ctrl_c_keeps_what_was_measured(whole: tuple[Picked, bytes], tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        _run(tmp_path, _Played(ends_at=7))
    rest = _Played()
    assert _run(tmp_path, rest) == whole[0]
    assert rest.samples == whole[1].count(b'"kind":"visit"') - 7


def test_with_more_time_a_run_goes_on_where_the_time_was_over(
    whole: tuple[Picked, bytes], tmp_path: Path
) -> None:
    short = replace(_PLAN, seconds=150.0)
    with _open(tmp_path) as journal:
        first = pick(short, KeptMeter(journal=journal, source=_Played(), clock=lambda: 0.0))
    assert first.picked == ()
    rest = _Played()
    assert _run(tmp_path, rest) == whole[0]
    assert 0 < rest.samples < whole[1].count(b'"kind":"visit"')


def test_two_at_once_are_refused(tmp_path: Path) -> None:
    with (
        _open(tmp_path),
        pytest.raises(UsageError) as refused,
        _open(tmp_path),
    ):
        pass
    assert refused.value.code == "BENCH_FOLDER_UNUSABLE"


def test_another_measurement_is_refused_and_kept_and_fresh_throws_it_away(tmp_path: Path) -> None:
    _run(tmp_path)
    data = (tmp_path / JOURNAL).read_bytes()
    with pytest.raises(UsageError) as refused, _open(tmp_path, {**_SETUP, "least": 0.01}):
        pass
    assert refused.value.code == "BENCH_FOLDER_UNUSABLE"
    assert refused.value.why == "line 1: least was 0.02, is 0.01"
    assert (tmp_path / JOURNAL).read_bytes() == data
    made = [tmp_path / name for name in ("picked.toml", "result.json", "machine.json")]
    for path in made:
        path.write_text("of the measurement before")
    with _open(tmp_path):
        assert all(path.is_file() for path in made)
    with _open(tmp_path, {**_SETUP, "least": 0.01}, fresh=True) as journal:
        assert journal.kept == 0
        assert not any(path.exists() for path in made)


def _swap(lines: list[bytes]) -> None:
    lines[3], lines[4] = lines[4], lines[3]


def _edit(lines: list[bytes]) -> None:
    lines[5] = lines[5].replace(b'"seconds":4.0', b'"seconds":3.0')


def _again(lines: list[bytes]) -> None:
    """A line once more, under the next number and with a digest that fits."""
    body = lines[-1].partition(b"\t")[0].decode()
    number = int(body.partition('"number":')[2].partition(",")[0])
    body = body.replace(f'"number":{number}', f'"number":{number + 1}', 1)
    lines.append(_sealed(body))


def _sealed(body: str) -> bytes:
    """A line with a digest that fits: by somebody who knows how."""
    return f"{body}\t{hashlib.sha256(body.encode()).hexdigest()[:16]}\n".encode()


def _fewer_tests(lines: list[bytes]) -> None:
    entry = json.loads(lines[5].partition(b"\t")[0])
    entry["samples_ns"] = {"pp512": entry["samples_ns"]["pp512"]}
    lines[5] = _sealed(json.dumps(entry))


def _no_tests(lines: list[bytes]) -> None:
    entry = json.loads(lines[5].partition(b"\t")[0])
    lines[5] = _sealed(json.dumps({**entry, "samples_ns": {}}))


def _deep(lines: list[bytes]) -> None:
    lines[0] = _sealed(f'{{"kind":"begun","setup":{"[" * 5000}')


def _twice(lines: list[bytes]) -> None:
    lines.insert(4, lines[4])


def _gone(lines: list[bytes]) -> None:
    del lines[4]


def _cut_short(lines: list[bytes]) -> None:
    lines[2] = lines[2][:9] + b"\n"


def _headless(lines: list[bytes]) -> None:
    del lines[0]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_swap, "line 4: number 2 of the measurement is expected, but this is number 3"),
        (_edit, "line 6: the line was changed: its digest is '"),
        (_twice, "line 6: number 4 of the measurement is expected, but this is number 3"),
        (_again, "it repeats the measurement of line {last}: stage check, round 7, small with 0001-prompts"),
        (_gone, "line 5: number 3 of the measurement is expected, but this is number 4"),
        (_headless, "line 1: kind: Input should be 'begun'"),
        (_fewer_tests, "line 6: its tests are pp512, but earlier ones are pp512, tg128"),
        (_no_tests, "line 6: visit.samples_ns: Dictionary should have at least 1 item"),
        (_deep, "line 1: Invalid JSON: recursion limit exceeded"),
        (_cut_short, "line 3: the line was changed: it has no digest"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_a_journal_that_somebody_changed_is_refused_with_the_line(
    change: Callable[[list[bytes]], None], why: str, whole: tuple[Picked, bytes], tmp_path: Path
) -> None:
    lines = whole[1].splitlines(keepends=True)
    count = len(lines)
    change(lines)
    (tmp_path / JOURNAL).write_bytes(b"".join(lines))
    with pytest.raises(UsageError) as refused:
        _run(tmp_path)
    assert refused.value.code == "BENCH_FOLDER_UNUSABLE"
    assert why.format(last=count) in (refused.value.why or "")
    assert refused.value.where[0].line


def test_of_another_setup_only_what_differs_is_told(tmp_path: Path) -> None:
    setup = {"models": {"a": "1", "b": "2"}, "patches": ["one", "two"], "threads": None, "tests": ["x", "y"]}
    other = {"models": {"a": "1", "b": "3"}, "patches": ["two", "more"], "threads": 4, "tests": ["y", "x"]}
    with _open(tmp_path, setup):
        pass
    with pytest.raises(UsageError) as refused, _open(tmp_path, other):
        pass
    assert refused.value.why == (
        "line 1: models b was 2, is 3; patches: without one, with more; "
        "tests was ['x', 'y'], is ['y', 'x']; threads was none, is 4"
    )


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("name", ["picked.toml", "result.json", "machine.json"])
def test_a_file_of_another_program_is_neither_written_over_nor_removed(
    tmp_path: Path, name: str, fresh: bool
) -> None:
    (tmp_path / name).write_text("mine")
    with refused_with("BENCH_FOLDER_UNUSABLE") as refused, _open(tmp_path, fresh=fresh):
        pass
    assert refused.value.where[0].path == str(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("fresh", [False, True])
def test_a_journal_of_another_program_is_left_alone(tmp_path: Path, fresh: bool) -> None:
    (tmp_path / JOURNAL).write_text('{"day": 1}\n')
    with refused_with("BENCH_FOLDER_UNUSABLE"), _open(tmp_path, fresh=fresh):
        pass
    assert (tmp_path / JOURNAL).read_text() == '{"day": 1}\n'
    assert [path.name for path in tmp_path.iterdir()] == [JOURNAL]
    (tmp_path / JOURNAL).write_text('{"kind":"be')  # what a kill leaves is ours
    with _open(tmp_path, fresh=True):
        pass


def test_other_patches_under_the_same_names_are_refused(tmp_path: Path) -> None:
    class Other(_Played):
        def tree_of(self, _arm: Arm) -> str:
            return "another"

    with pytest.raises(KeyboardInterrupt):
        _run(tmp_path, _Played(ends_at=3))
    with pytest.raises(UsageError, match="journal") as refused:
        _run(tmp_path, Other())
    assert refused.value.why == (
        "line 2: the tree of 0001-prompts, 0004-wrong was 0001-prompts+0004-wrong, is now another"
    )


_ON_SMALL_DISK = """
import sys
from pathlib import Path
from patchkit.base.errors import CacheError
from patchkit.gpu.hardware.bench.journal import open_journal
from patchkit.prove.bench.visits import ENTRIES, Checked
folder = Path(sys.argv[1])
arm = lambda number: (*("a" * 250,) * 20, str(number))
entry = lambda number: Checked(number=number, arm=arm(number), tree="t", fault=None, seconds=0.0)
with open_journal(folder, {}, ENTRIES) as journal:
    try:
        for number in range(100):
            journal.add(entry(number))
    except CacheError as error:
        print(error.code, len(journal.entries), (folder / "journal.jsonl").read_bytes()[-1:] == b"\\n")
with open_journal(folder, {}, ENTRIES) as journal:
    print(journal.kept)
"""


@pytest.mark.extra_tools
def test_a_full_disk_keeps_every_whole_line(tmp_path: Path) -> None:
    argv = on_small_disk(tmp_path / "disk", 64)
    done = subprocess.run(
        [*argv, sys.executable, "-c", _ON_SMALL_DISK, str(tmp_path / "disk")],
        capture_output=True,
        text=True,
        check=True,
    )
    first, second = done.stdout.splitlines()
    code, count, whole_line = first.split()
    assert (code, whole_line) == ("DISK_FULL", "True")
    assert 0 < int(count) == int(second) < 100
