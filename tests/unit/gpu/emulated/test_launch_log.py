"""The log of the stub runtime: launches, sections, and lines that are none."""

from __future__ import annotations

import json

import pytest

from patchkit.gpu.emulated.log import RecordingUnreadable, parse_recording


def _lines(*events: dict[str, object]) -> list[str]:
    return [json.dumps(event) for event in events]


_KERNEL = {"kernel": 0, "name": "_Z3fooILi7EEvv", "units": ["a.cu", "a.cu"]}
_LAUNCH = {"launch": 0, "grid": [2, 3, 4], "block": [32, 4, 1], "lds": 96}


def test_a_launch_has_its_kernel_geometry_and_the_answer_it_rests_on():
    answer = {"occupancy": 0, "threads": 128, "lds": 96, "vgprs": 100, "assumed": True, "blocks": 5}
    recording = parse_recording(_lines(_KERNEL, answer, _LAUNCH, _LAUNCH), "log")
    first, second = recording.launches
    assert (str(first.kernel.name), first.kernel.units) == ("foo<7>", ("a.cu",))
    assert (first.grid, first.block, first.lds, first.threads) == ((2, 3, 4), (32, 4, 1), 96, 128)
    assert (first.resident, first.assumed) == (5, True)
    assert (second.resident, second.assumed) == (None, False)  # an answer is for the next launch only


def test_steps_end_where_the_host_waited_and_empty_ones_do_not_count():
    recording = parse_recording(
        _lines({"sync": True}, _KERNEL, _LAUNCH, _LAUNCH, {"sync": True}, _LAUNCH), "l"
    )
    (section,) = recording.sections
    assert [len(step) for step in section.steps] == [2, 1]


def test_marks_open_sections():
    recording = parse_recording(
        _lines(
            _KERNEL,
            {"mark": "case a"},
            _LAUNCH,
            {"mark": "done"},
            {"mark": "case b"},
            {"blas": "hipblasSgemm", "m": 1, "n": 2, "k": 3, "batch": 1},
            {"mark": "unsupported"},
        ),
        "log",
    )
    first, launched, done, calls, _ = recording.sections
    assert (first.mark, launched.mark, len(launched.launches), done.mark) == ("", "case a", 1, "done")
    assert calls.products == ("hipblasSgemm 1x2x3",)


def test_an_empty_log_has_one_empty_section():
    (section,) = parse_recording([], "log").sections
    assert (section.mark, section.launches) == ("", ())


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "Expecting"),
        ('{"launch": 9, "grid": [1,1,1], "block": [1,1,1], "lds": 0}', "not declared"),
        ('{"launch": 0, "grid": [1,1], "block": [1,1,1], "lds": 0}', "unknown event"),
        ('{"unregistered": true}', "unregistered kernel"),
        ('{"surprise": 1}', "unknown event"),
    ],
)
def test_what_the_recorder_does_not_write_is_an_error_with_its_line(line, why):
    with pytest.raises(RecordingUnreadable) as caught:
        parse_recording([json.dumps(_KERNEL), line], "some/log.jsonl")
    assert str(caught.value.where[0]) == "some/log.jsonl:2"
    assert why in (caught.value.why or "")
    assert caught.value.hint
