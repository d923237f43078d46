"""The folder of a sweep: its order, what counts as kept, and whose it is."""

from __future__ import annotations

import collections
import json
from pathlib import Path

import pytest
from refusing import refused

from patchkit.base.process import Completed
from patchkit.gpu.hardware.bench.folder import Run, open_sweep, plan_runs

_RUN = Run(repetition=0, depth=64, label="HIP")
_SETUP = {"model": "m", "batch": [1, 2]}
_ROWS = (Path(__file__).parent / "recorded" / "b6900-cpu.jsonl").read_bytes()


def _done(stdout: bytes = _ROWS) -> Completed:
    return Completed(argv=("llama-bench",), returncode=0, stdout=stdout, stderr=b"talk", seconds=1.234)


def test_labels_take_turns_and_each_begins_equally_often() -> None:
    runs = plan_runs(["HIP", "rocWMMA", "candidate"], [0, 1024], 3)
    assert len(runs) == 18
    assert len(set(runs)) == 18
    assert [run.depth for run in runs[:6]] == [0, 0, 0, 1024, 1024, 1024]
    firsts = collections.Counter(runs[index].label for index in range(0, 18, 3))
    assert firsts == {"HIP": 2, "rocWMMA": 2, "candidate": 2}


def test_a_run_is_kept_with_how_it_was_made(tmp_path: Path) -> None:
    with open_sweep(tmp_path / "new", _SETUP, fresh=False) as folder:
        assert not folder.is_kept(_RUN)
        before = folder.tag(_RUN)
        folder.failed(_RUN).write_bytes(b"garbage")
        assert not folder.is_kept(_RUN)
        assert folder.tag(_RUN) != before, "on another machine a call of equal tag would not run again"
        folder.keep(_RUN, _done(), {"load": "1"})
        assert folder.is_kept(_RUN)
        assert not folder.failed(_RUN).exists()
        note = folder.note(_RUN)
        assert (note.seconds, note.conditions) == (1.23, {"load": "1"})
        assert len(folder.rows(_RUN)) == 4
        assert folder.gather("HIP", [_RUN]).read_bytes() == _ROWS
        assert folder.gather("candidate", [_RUN]).read_bytes() == b""


def test_the_next_one_goes_on_and_fresh_begins_anew(tmp_path: Path) -> None:
    with open_sweep(tmp_path, _SETUP, fresh=False) as folder:
        folder.keep(_RUN, _done(), {})
        name = folder.name
    with open_sweep(tmp_path, _SETUP, fresh=False) as folder:
        assert folder.is_kept(_RUN)
        assert folder.name == name
    with open_sweep(tmp_path, {"model": "other"}, fresh=True) as folder:
        assert not folder.is_kept(_RUN)
        assert folder.name != name


def test_what_a_crash_left_half_written_is_not_kept(tmp_path: Path) -> None:
    with open_sweep(tmp_path, _SETUP, fresh=False) as folder:
        (tmp_path / "runs" / f".{_RUN.name}.jsonl.partial").write_bytes(_ROWS[:50])
        (tmp_path / "runs" / f"{_RUN.name}.json").write_bytes(b"{")
        assert not folder.is_kept(_RUN)
        assert folder.note(_RUN).seconds is None
        folder.keep(_RUN, _done(), {})
        assert len(folder.rows(_RUN)) == 4


def test_a_kept_run_that_somebody_damaged_is_named_with_the_way_out(tmp_path: Path) -> None:
    with open_sweep(tmp_path, _SETUP, fresh=False) as folder:
        folder.keep(_RUN, _done(b"{}\n" + _ROWS), {})
        (tmp_path / "runs" / f"{_RUN.name}.jsonl").write_bytes(_ROWS + b"no json\n")
        with refused("BENCH_GARBAGE") as caught:
            folder.rows(_RUN)
    assert str(caught.value.hint).endswith(f"rm {tmp_path}/runs/{_RUN.name}.jsonl")


def test_a_folder_of_another_setup_is_refused_with_what_differs(tmp_path: Path) -> None:
    with open_sweep(tmp_path, _SETUP, fresh=False):
        pass
    with (
        refused("BENCH_FOLDER_OTHER") as caught,
        open_sweep(tmp_path, _SETUP | {"model": "n"}, fresh=False),
    ):
        pass
    assert caught.value.why == "model was 'm', is 'n'"
    assert "--fresh" in str(caught.value.hint)
    assert json.loads((tmp_path / "session.json").read_text("utf-8")) == _SETUP


@pytest.mark.parametrize("note", ["", "[]", "{"])
def test_a_note_that_cannot_be_read_is_no_licence_to_go_on(tmp_path: Path, note: str) -> None:
    (tmp_path / "session.json").write_text(note, "utf-8")
    with refused("BENCH_FOLDER_OTHER"), open_sweep(tmp_path, _SETUP, fresh=False):
        pass


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine", "utf-8")
    with refused("BENCH_FOLDER_OTHER"), open_sweep(tmp_path, _SETUP, fresh=True):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_two_at_once_are_refused(tmp_path: Path) -> None:
    with (
        open_sweep(tmp_path, _SETUP, fresh=False),
        refused("BENCH_FOLDER_BUSY"),
        open_sweep(tmp_path, _SETUP, fresh=True),
    ):
        pass
    with open_sweep(tmp_path, _SETUP, fresh=False):
        pass


def test_a_file_where_the_folder_should_be_is_a_refusal_of_the_disk(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    disk = refused("DISK_NOT_DIRECTORY", match="preparing a measurement")
    with disk, open_sweep(tmp_path / "file", _SETUP, fresh=False):
        pass
