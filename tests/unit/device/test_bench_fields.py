"""A row of llama-bench that somebody made up: every value is checked before it is used or shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from refusing import refused

from patchkit.device.bench.rows import parse_rows

_FIRST = (Path(__file__).parent / "recorded" / "b6900-cpu.jsonl").read_text("utf-8").splitlines()[0]


def _with(**fields: object) -> str:
    return json.dumps(json.loads(_FIRST) | fields) + "\n"


@pytest.mark.parametrize(
    "fields",
    [
        {"samples_ns": [2**63]},
        {"model_size": 10**400},
        {"n_gpu_layers": -(10**30)},
        {"n_gpu_layers": "all"},
        {"model_type": "red \x1b[31m"},
        {"model_type": "half a pair \ud800"},
        {"model_type": "two\nlines"},
        {"gpu_info": ["a", ["list"]]},
        {"gpu_info": "x" * 1001},
        {"split_mode": {"a": 1}},
        {"poll": 1.5},
        {"build_commit": None},
    ],
)
def test_a_value_that_cannot_be_is_refused(fields: dict[str, object]) -> None:
    with refused("BENCH_GARBAGE", match=r"cannot be read") as caught:
        parse_rows(_with(**fields), "out", hint="look")
    assert str(caught.value.where[0]) == "out:1"
    assert caught.value.hint == "look"
    assert len(str(caught.value.why)) < 300


def test_a_row_of_a_thousand_other_fields_is_named_in_short() -> None:
    text = json.dumps({f"field {number}\n": number for number in range(1000)} | {"samples_ns": [1]}) + "\n"
    with refused("BENCH_FIELD_MISSING") as caught:
        parse_rows(text, "out")
    assert len(str(caught.value.why)) < 1200
    assert "\n" not in str(caught.value.why)


def test_a_line_separator_inside_a_text_is_no_end_of_a_line() -> None:
    text = _with(model_filename="a\u2028b\x0cc").replace("\\u2028", "\u2028")
    assert len(parse_rows(text, "out")) == 1


def test_conditions_name_what_is_unusual() -> None:
    usual, other = parse_rows(_with() + _with(split_mode="row", no_host=True, repack=True), "out")
    assert usual.conditions["other"] == "as usual"
    assert other.conditions["other"] == "split_mode row, no_host True"
    assert usual.conditions["batch"] == "256/64"
    assert usual.conditions["device"] == "AMD EPYC"


def test_speeds_are_those_that_llama_bench_writes() -> None:
    (row,) = parse_rows(_with(), "out")
    written = json.loads(_FIRST)
    assert row.tokens_per_second == pytest.approx(written["samples_ts"], rel=1e-5)
    assert sum(row.tokens_per_second) / 3 == pytest.approx(written["avg_ts"], rel=1e-6)
