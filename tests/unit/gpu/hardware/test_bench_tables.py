"""The tables of ``bench compare``: published ones come out digit for digit, what differs is never joined."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from refusing import refused

from patchkit.gpu.hardware.bench.rows import parse_rows
from patchkit.gpu.hardware.bench.tables import (
    Series,
    compare_series,
    csv_table,
    json_table,
    markdown_table,
    sections,
    table_notes,
)

_RECORDED = Path(__file__).parent / "recorded"
_PUBLISHED = _RECORDED / "published"
_ROWS = [json.loads(line) for line in (_RECORDED / "b6900-cpu.jsonl").read_text("utf-8").splitlines()]

# How a build of 11549 writes the same: seen in its source.
_NEWEST = {
    "use_mmap": None,
    "load_mode": "none",
    "lazy_mode": "auto",
    "flash_attn": 1,
    "repack": True,
    "fit_target": 0,
    "fit_min_ctx": 0,
    "build_number": 11549,
}


def _published(name: str, label: str) -> Series:
    path = _PUBLISHED / f"{name}.jsonl"
    return Series(label=label, source=str(path), rows=parse_rows(path.read_text("utf-8"), str(path)))


@pytest.fixture
def series() -> Callable[..., Series]:
    """A series of the recorded rows with fields changed; speeds by this factor."""

    def make(label: str, *, factor: float = 1.0, runs: int = 1, **fields: object) -> Series:
        text = ""
        for _ in range(runs):
            for row in _ROWS:
                changed = row | {"samples_ns": [round(ns / factor) for ns in row["samples_ns"]]} | fields
                text += (
                    json.dumps({name: value for name, value in changed.items() if value is not None}) + "\n"
                )
        return Series(label=label, source=f"{label}.jsonl", rows=parse_rows(text, label))

    return make


@pytest.mark.parametrize("model", ["llama-3.2-1b", "gpt-oss-20b"])
@pytest.mark.parametrize(
    ("before", "after", "labels"),
    [
        ("hip", "rocwmma", ("HIP", "WMMA")),
        ("hip", "tuned", ("HIP", "lhl-tune-tile")),
        ("rocwmma", "tuned", ("default-rocwmma", "lhl-tune-tile")),
    ],
)
def test_published_tables_come_out_digit_for_digit(
    model: str, before: str, after: str, labels: tuple[str, str]
) -> None:
    table = compare_series(
        [_published(f"{model}.{before}", labels[0]), _published(f"{model}.{after}", labels[1])]
    )
    wanted = (_PUBLISHED / f"{model}.{before}-{after}.md").read_text("utf-8")
    tables, _, notes = markdown_table(table).partition("\n\n- ")
    assert tables + "\n" == wanted
    assert "no interval: every test was run once (-r 1)" in notes


def test_all_published_series_of_a_model_stand_in_one_table() -> None:
    names = ("hip", "rocwmma", "tuned")
    table = compare_series([_published(f"gpt-oss-20b.{name}", name) for name in names])
    prefill, decode = sections(table)
    assert prefill.titles[4:] == ("hip", "rocwmma", "tuned", "rocwmma Δ%", "tuned Δ%")
    assert decode.rows[-1][3:] == ("tg128 @ d65536", "34.76", "14.63", "34.77", "-57.92%", "0.03%")
    against_rocwmma = compare_series(table.series, base=1)
    assert sections(against_rocwmma)[1].rows[-1][-1] == "137.71%"


def test_the_oldest_and_the_newest_build_that_we_know_share_a_table(series) -> None:
    table = compare_series([series("old"), series("new", factor=1.1, **_NEWEST)])
    assert len(table.lines) == 4
    assert all(line.change(0, 1) == pytest.approx(0.1, abs=1e-4) for line in table.lines)
    assert "new: build 11549 (unknown)" in table_notes(table)


@pytest.mark.parametrize(
    ("fields", "name", "told"),
    [
        ({"n_batch": 512}, "batch", "batch: 256/64 and 512/64"),
        ({"n_threads": 1}, "threads", "threads: 2 and 1"),
        ({"n_gpu_layers": 99}, "layers", "layers: 0 and 99"),
        ({"use_mmap": True}, "load", "load: none and mmap"),
        ({"flash_attn": False}, "flash", "flash: on and off"),
        ({"type_k": "q8_0", "type_v": "q8_0"}, "cache", "cache: f16 and q8_0"),
        ({"backends": "ROCm"}, "backend", "backend: CPU and ROCm"),
        ({"gpu_info": "another GPU"}, "device", "device: AMD EPYC and another GPU"),
        ({"n_cpu_moe": 3}, "other", "other: as usual and n_cpu_moe 3"),
    ],
)
def test_what_was_measured_otherwise_is_compared_only_when_that_is_asked_for(
    series, fields: dict[str, object], name: str, told: str
) -> None:
    both = [series("A"), series("B", **fields)]
    with refused("BENCH_FILES_INCOMPARABLE") as caught:
        compare_series(both)
    assert caught.value.why == told
    assert caught.value.hint == f"--across {name}"
    table = compare_series(both, across=(name,))
    assert all(line.change(0, 1) == 0 for line in table.lines)
    values = told.partition(": ")[2].split(" and ")
    assert f"compared although {name} differs: A {values[0]}, B {values[1]}" in table_notes(table)


def test_two_files_of_other_tests_name_what_each_measured(series) -> None:
    with refused("BENCH_FILES_INCOMPARABLE") as caught:
        compare_series([series("A"), series("B", n_depth=7)])
    assert caught.value.why == ("A measured pp64@d0, tg8@d0, pp64@d256, tg8@d256; B measured pp64@d7, tg8@d7")
    assert caught.value.hint == "measure the same model and tests with both builds"


@pytest.mark.parametrize("fields", [{"model_size": 5}, {"model_n_params": 5}, {"model_type": "llama 8B"}])
def test_other_models_are_never_joined(series, fields: dict[str, object]) -> None:
    with refused("BENCH_FILES_INCOMPARABLE", match="no test in common") as caught:
        compare_series([series("A"), series("B", **fields)], across=("threads",))
    assert str(caught.value.why).startswith("model: ")
    assert "--across" not in str(caught.value.hint)


def test_tests_that_one_file_lacks_are_shown_and_named(series) -> None:
    whole, part = series("A"), series("B")
    changed = series("C", n_threads=1).rows[3]
    part = Series(label="B", source="b", rows=(*part.rows[:2], changed))
    table = compare_series([whole, part])
    assert sections(table)[0].titles[3:7] == ("threads", "test", "A", "B")
    lacking = {row[3:5] for section in sections(table) for row in section.rows if row[6] == "-"}
    assert lacking == {("2", "pp64 @ d256"), ("2", "tg8 @ d256")}
    notes = table_notes(table)
    assert "not in B: pp64 @ d256 of llama ?B F16 (guessed)" in notes
    assert "not in B (it has threads 1 instead of 2): tg8 @ d256 of llama ?B F16 (guessed)" in notes
    assert "not in A (it has threads 2 instead of 1): tg8 @ d256 of llama ?B F16 (guessed)" in notes


def test_rows_that_differ_in_batch_sizes_alone_show_them(series) -> None:
    def label(name: str) -> Series:
        small, large = series(name, n_batch=512, n_ubatch=512), series(name, n_batch=4096, n_ubatch=2048)
        return Series(label=name, source=name, rows=(*small.rows, *large.rows))

    table = compare_series([label("A"), label("B")])
    prefill, decode = sections(table)
    assert {section.titles[:5] for section in (prefill, decode)} == {
        ("model", "size", "params", "batch", "test")
    }
    assert [row[3:5] for row in prefill.rows] == [
        ("4096/2048", "pp64"),
        ("512/512", "pp64"),
        ("4096/2048", "pp64 @ d256"),
        ("512/512", "pp64 @ d256"),
    ]
    assert len(set(decode.rows)) == len(decode.rows) == 4
    assert markdown_table(table).count("| 4096/2048 |") == 4
    assert [row["batch"] for row in csv.DictReader(io.StringIO(csv_table(table)))][:2] == [
        "4096/2048",
        "512/512",
    ]
    assert compare_series([label("A")], across=("threads",)).varying == ("batch",)


@pytest.mark.parametrize(
    ("one", "other", "warns"),
    [
        ({"build_commit": "abc"}, {"build_commit": "abc"}, True),
        ({"build_commit": "abc"}, {"build_commit": "abd"}, False),
        ({}, {}, False),  # "unknown", as of a build outside git
    ],
)
def test_two_labels_of_one_build_are_warned_of(
    series, one: dict[str, object], other: dict[str, object], warns: bool
) -> None:
    both = [series("old", build_number=6900, **one), series("new", build_number=6900, **other)]
    told = [note for note in table_notes(compare_series(both)) if note.startswith("warning: ")]
    wanted = "if they are the same program, any difference is noise"
    assert told == [f"warning: new and old report the same build 6900 (abc); {wanted}"] * warns
    assert not any("same build" in note for note in table_notes(compare_series(both, distinct=True)))


def test_a_model_of_the_same_name_and_another_size_is_pointed_out(series) -> None:
    mixed = Series(label="B", source="b", rows=series("B").rows[:1] + series("B", model_size=5).rows[1:2])
    notes = table_notes(compare_series([series("A"), mixed]))
    assert any("its llama ?B F16 (guessed) has 5 bytes" in note for note in notes)


@pytest.mark.parametrize(
    ("fields", "across", "told"),
    [
        ({"build_number": 9538}, (), "build"),
        ({"build_commit": "abc"}, (), "build"),
        ({"devices": "ROCm1"}, (), "devices (-dev)"),
        ({"n_threads": 1, "gpu_info": "x"}, ("threads", "device"), "threads, device"),
    ],
)
def test_two_results_for_one_cell_are_refused(
    series, fields: dict[str, object], across: tuple[str, ...], told: str
) -> None:
    mixed = Series(label="B", source="b.jsonl", rows=series("B").rows + series("B", **fields).rows)
    with refused("BENCH_FILES_INCOMPARABLE", match="'B' has conflicting results") as caught:
        compare_series([series("A"), mixed], across=across)
    assert caught.value.why == f"they differ in {told}"


def test_repetitions_give_intervals(series) -> None:
    table = compare_series([series("A"), series("B", factor=1.5)])
    assert sections(table)[0].titles[-2:] == ("Δ%", "interval")
    for line in table.lines:
        change, interval = line.change(0, 1), line.change_interval(0, 1)
        assert change is not None
        assert interval is not None
        assert interval.low < change < interval.high
    assert any("over 3 repetitions of one run, without" in note for note in table_notes(table))


def test_several_runs_count_as_runs(series) -> None:
    table = compare_series([series("A", runs=4), series("B", runs=5)])
    assert len(table.lines[0].cells[0].units) == 4
    assert table.lines[0].cells[0].speed == pytest.approx(
        compare_series([series("A")]).lines[0].cells[0].speed
    )
    assert "interval: over 4 to 5 runs" in table_notes(table)


def test_an_interval_of_few_values_claims_no_confidence(series) -> None:
    notes = table_notes(compare_series([series("A"), series("B", runs=8)]))
    told = "even for equal builds, all 3 values of one are beyond all 8 values of the other one time in 82"
    assert f"too few values for a 99 % interval: {told}" in notes
    many = compare_series([series("A", runs=5), series("B", runs=6), series("C", samples_ns=[1])])
    assert "B 99 % interval" in sections(many)[0].titles
    assert not [note for note in table_notes(many) if note.startswith("too few")]
    once = compare_series([series(name, samples_ns=[10**6 + number for number in range(5)]) for name in "AB"])
    assert sections(once)[0].titles[-1] == "99 % within one run"


def test_the_interval_of_a_change_holds_it_even_beside_a_stall(series) -> None:
    steady = [1_000_000 + 100 * number for number in range(10)]
    table = compare_series([series("A", samples_ns=steady), series("B", samples_ns=[*steady[:9], 9_000_000])])
    change, interval = table.lines[0].change(0, 1), table.lines[0].change_interval(0, 1)
    assert change == interval.low == pytest.approx(-0.08, abs=0.01)
    assert interval.high == pytest.approx(0, abs=0.01)


def test_many_repetitions_are_taken_together(series) -> None:
    table = compare_series([series("A"), series("B", samples_ns=[10**6, 2 * 10**6] * 500)])
    cell = table.lines[0].cells[1]
    assert set(cell.units) == {cell.speed}
    assert len(cell.units) == 100
    assert "over 3 to 1000 repetitions of one run, without" in "".join(table_notes(table))


def test_a_side_that_was_run_once_has_no_interval(series) -> None:
    once = series("B", samples_ns=[1_000_000])
    row = sections(compare_series([series("A"), once, series("C")]))[0].rows[0]
    assert row[-3:-2] == ("no interval",)
    assert re.fullmatch(r"-?[\d.]+% to -?[\d.]+%", row[-1])


def test_one_file_alone_is_shown_without_changes(series) -> None:
    table = compare_series([series("A")])
    assert sections(table)[0].titles == ("model", "size", "params", "test", "A")


def test_prompt_and_generation_in_one_test_have_a_section(series) -> None:
    table = compare_series([series("A", n_gen=8), series("B", n_gen=8)], across=())
    titles = [section.title for section in sections(table)]
    assert titles == ["Decode (tg)", "Prefill and decode (pp+tg)"]


def test_unusual_tests_say_so(series) -> None:
    table = compare_series([series("A", type_k="q8_0", type_v="q8_0", flash_attn=0)])
    assert sections(table)[0].rows[0][3] == "pp64 q8_0 fa-off"


def test_markdown_keeps_its_columns_whatever_a_model_is_called(series) -> None:
    text = markdown_table(compare_series([series("A|B", model_type="a|b <c> \\d")]))
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {6}
    assert len({len(row) for row in rows[:4]}) == 1


def test_several_models_have_headings(series) -> None:
    one, other = series("A"), series("A", model_type="other")
    both = Series(label="A", source="a", rows=one.rows + other.rows)
    text = markdown_table(compare_series([both]))
    assert re.findall(r"^### (.*)$", text, re.MULTILINE) == ["llama ?B F16 (guessed)", "other"]


def test_csv_has_unrounded_figures(series) -> None:
    table = compare_series([series("A"), series("B", samples_ns=[1_000_000])])
    rows = list(csv.DictReader(io.StringIO(csv_table(table))))
    assert len(rows) == 4
    line = table.lines[0]
    assert float(rows[0]["A t/s"]) == line.cells[0].speed
    assert float(rows[0]["B change_percent"]) == 100 * line.change(0, 1)
    assert (rows[0]["A repetitions"], rows[0]["B repetitions"]) == ("3", "1")
    assert (rows[0]["B low"], rows[0]["test"]) == ("", "pp64")


def test_no_cell_is_a_formula(series) -> None:
    table = compare_series(
        [series("=A", model_type="+cmd|' /C calc'!A0"), series("B", model_type="+cmd|' /C calc'!A0")]
    )
    titles, first, *_ = csv.reader(io.StringIO(csv_table(table)))
    assert "'=A t/s" in titles
    assert first[0].startswith("'+cmd")
    assert float(first[titles.index("B change_percent")]) == 0


def test_the_document_has_every_figure_and_note(series) -> None:
    table = compare_series([series("A"), series("B", factor=2)])
    document = json.loads(json.dumps(json_table(table)))
    assert document["labels"] == ["A", "B"]
    assert document["lines"][0]["changes"]["B"]["change"] == pytest.approx(1, abs=1e-4)
    assert len(document["lines"][0]["cells"]["A"]["runs"][0]) == 3
    assert document["notes"] == list(table_notes(table))
