"""Reading llama-bench: recorded output of build 6900 on a CPU, and the fields of the newest build we know."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from refusing import refused

from patchkit.gpu.hardware.bench.options import BenchPlan, bench_arguments, parse_help
from patchkit.gpu.hardware.bench.rows import parse_rows

_RECORDED = Path(__file__).parent / "recorded"
_TEXT = (_RECORDED / "b6900-cpu.jsonl").read_text("utf-8")
_HELP = (_RECORDED / "b6900-help.txt").read_text("utf-8")


def _changed(**fields: object) -> str:
    row = json.loads(_TEXT.splitlines()[0]) | fields
    return json.dumps({name: value for name, value in row.items() if value is not None}) + "\n"


def test_a_recorded_run_reads_as_its_tests() -> None:
    rows = parse_rows(_TEXT, "out")
    assert [row.test.name for row in rows] == ["pp64@d0", "tg8@d0", "pp64@d256", "tg8@d256"]
    first = rows[0]
    assert first.samples_ns == (992803, 834726, 799654)
    assert (first.backends, first.device) == (("CPU",), "none")
    assert first.test.tokens == 64
    assert "ub64" in first.test.setting
    assert "load none" in first.test.setting


# As json_printer of llama-bench.cpp writes it, build 11549.
_OBJECTS = (
    ",\n".join(f"    {json.dumps(name)}: {json.dumps(value)}" for name, value in json.loads(line).items())
    for line in _TEXT.splitlines()
)
_ARRAY = "[\n" + ",\n".join(f"  {{\n{fields}\n  }}" for fields in _OBJECTS) + "\n]\n"


@pytest.mark.parametrize("text", [_ARRAY, json.dumps(json.loads(_ARRAY)), "\n".join(_TEXT.splitlines())])
def test_the_array_of_o_json_reads_as_the_lines_of_o_jsonl(text: str) -> None:
    assert parse_rows(text, "out") == parse_rows(_TEXT, "out")
    assert parse_rows(f"{text}\n{text}", "out") == parse_rows(_TEXT, "out") * 2


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        (_ARRAY[:-3], 169, "the array of -o json has no closing bracket"),
        (_ARRAY[:-30], 128, "the last row is incomplete: "),
        ("[", 1, "the array of -o json has no closing bracket"),
        (_TEXT[:-30], 4, "the last row is incomplete: "),
    ],
)
def test_output_that_is_incomplete_names_the_row_where_it_ends(text: str, line: int, why: str) -> None:
    with refused("BENCH_FILE_BAD", match="incomplete") as caught:
        parse_rows(text, "out", hint="look")
    assert str(caught.value.where[0]) == f"out:{line}"
    assert str(caught.value.why).startswith(why)
    assert caught.value.hint == "look"


def test_a_wrong_value_in_an_array_is_named_with_the_line_of_its_row() -> None:
    with refused("BENCH_FILE_BAD") as caught:
        parse_rows(_ARRAY.replace('"n_depth": 256', '"n_depth": -1', 1), "out")
    assert str(caught.value.where[0]) == "out:86"
    assert caught.value.why == "'n_depth' is -1, not a count"


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("| model | size |\n| --- | ---: |\n", "Markdown (-o md)"),
        ("| model | size |", "Markdown (-o md)"),
        ("build_commit,build_number,cpu_info\n", "CSV (-o csv)"),
        ("CREATE TABLE IF NOT EXISTS llama_bench (\n", "SQL (-o sql)"),
    ],
)
def test_another_format_of_llama_bench_is_named(text: str, form: str) -> None:
    with refused("BENCH_FILE_BAD") as caught:
        parse_rows(text, "out")
    assert caught.value.why == f"it is {form}, without the time of each repetition"


def test_builds_that_renamed_fields_give_equal_tests() -> None:
    # Build 11549: no use_mmap, a load_mode instead, flash_attn a number, four fields more.
    new = {"use_mmap": None, "load_mode": "none", "flash_attn": 1, "lazy_mode": "off", "repack": True}
    (old_row,) = parse_rows(_changed(), "old")
    (new_row,) = parse_rows(_changed(**new, fit_target=0, fit_min_ctx=0), "new")
    assert old_row.test == new_row.test


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"flash_attn": False}, "pp64@d0 fa-off"),
        ({"flash_attn": -1}, "pp64@d0 fa-auto"),
        ({"type_k": "q8_0", "type_v": "q8_0"}, "pp64@d0 q8_0"),
        ({"type_k": "q8_0"}, "pp64@d0 q8_0/f16"),
        ({"n_gen": 8}, "pp64+tg8@d0"),
    ],
)
def test_the_name_says_what_is_unusual(fields: dict[str, object], name: str) -> None:
    (row,) = parse_rows(_changed(**fields), "out")
    assert row.test.name == name


@pytest.mark.parametrize(
    "fields",
    [{"n_batch": 512}, {"n_threads": 1}, {"use_mmap": True}, {"model_size": 1}, {"type_v": "q8_0"}],
    ids=lambda fields: next(iter(fields)),
)
def test_what_was_run_otherwise_is_another_test(fields: dict[str, object]) -> None:
    assert parse_rows(_changed(**fields), "out")[0].test != parse_rows(_changed(), "out")[0].test


# What else is no result is kept in recorded/hostile, which tests/property reads.
@pytest.mark.parametrize(
    "fields",
    [
        {"samples_ns": []},
        {"n_prompt": True},
        {"flash_attn": "perhaps"},
        {"n_gpu_layers": -(10**30)},
        {"n_gpu_layers": "all"},
        {"model_type": 7},
        {"model_type": "two\nlines"},
        {"gpu_info": ["a", ["list"]]},
        {"gpu_info": "x" * 1001},
        {"split_mode": {"a": 1}},
        {"poll": 1.5},
        {"build_commit": {}},
    ],
)
def test_a_value_that_cannot_be_is_named_with_its_line(fields: dict[str, object]) -> None:
    with refused("BENCH_FILE_BAD", match="cannot parse") as caught:
        parse_rows(_TEXT + _changed(**fields), "out", hint="look")
    assert str(caught.value.where[0]) == "out:5"
    assert caught.value.hint == "look"
    assert len(str(caught.value.why)) < 300


@pytest.mark.parametrize("field", ["samples_ns", "n_depth", "flash_attn", "use_mmap", "backends"])
def test_a_row_without_a_field_is_of_a_build_we_do_not_know(field: str) -> None:
    with refused("BENCH_FILE_BAD", match=field):
        parse_rows(_changed(**{field: None}), "out")


def test_the_help_of_a_build_decides_how_options_are_spelled() -> None:
    old = parse_help(_HELP)
    assert (old.flash, old.no_mmap) == (("1", "0"), ("-mmp", "0"))
    newer = _HELP.replace("--flash-attn <0|1>   ", "--flash-attn <on|off|auto>")
    assert parse_help(newer).flash == ("on", "off")
    both = newer + "  -lm, --load-mode <auto|none|mmap>  (default: auto)\n"
    assert parse_help(both).no_mmap == ("-lm", "none")
    assert parse_help(both.replace("  -mmp, --mmap", "  -x, --x")).no_mmap == ("-lm", "none")


@pytest.mark.parametrize("text", ["", "usage: llama-cli\n", _HELP.replace("-mmp,", "-x,")])
def test_another_program_is_not_taken_for_llama_bench(text: str) -> None:
    with refused("BENCH_FAILED"):
        parse_help(text)


def test_the_command_line_names_device_and_tests() -> None:
    options = parse_help(_HELP)
    on_cpu = bench_arguments(options, BenchPlan(generated=(), depths=(0, 256), threads=1), "m.gguf")
    text = " ".join(on_cpu)
    assert "-p 512 -n 0 -d 0,256" in text
    assert "-fa 1 -mmp 0 -dev none -ngl 0 -t 1" in text
    on_gpu = " ".join(bench_arguments(options, BenchPlan(device="ROCm0"), "m.gguf"))
    assert "-dev ROCm0 -ngl 99" in on_gpu


def test_a_row_of_a_thousand_other_fields_is_named_in_short() -> None:
    text = json.dumps({f"field {number}\n": number for number in range(1000)} | {"samples_ns": [1]}) + "\n"
    with refused("BENCH_FILE_BAD") as caught:
        parse_rows(text, "out")
    assert len(str(caught.value.why)) < 1200
    assert "\n" not in str(caught.value.why)


def test_a_line_separator_inside_a_text_is_no_end_of_a_line() -> None:
    text = _changed(model_filename="a\u2028b\x0cc").replace("\\u2028", "\u2028")
    assert len(parse_rows(text, "out")) == 1


def test_conditions_name_what_is_unusual() -> None:
    usual, other = parse_rows(_changed() + _changed(split_mode="row", no_host=True, repack=True), "out")
    assert usual.conditions["other"] == "as usual"
    assert other.conditions["other"] == "split_mode row, no_host True"
    assert usual.conditions["batch"] == "256/64"
    assert usual.conditions["device"] == "AMD EPYC"


def test_speeds_are_those_that_llama_bench_writes() -> None:
    (row,) = parse_rows(_changed(), "out")
    written = json.loads(_TEXT.splitlines()[0])
    assert row.tokens_per_second == pytest.approx(written["samples_ts"], rel=1e-5)
    assert sum(row.tokens_per_second) / 3 == pytest.approx(written["avg_ts"], rel=1e-6)
