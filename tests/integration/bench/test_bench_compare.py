"""``patchkit bench compare`` on the command line: formats, labels, pictures, and every refusal."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import cast

import pytest

from patchkit.cli.app import main
from patchkit.cli.verbs.bench import ACROSS, _painted
from patchkit.gpu.hardware.bench.tables import CONDITIONS

_RECORDED = Path(__file__).parents[2] / "unit" / "gpu" / "hardware" / "recorded"
_PUBLISHED = _RECORDED / "published"
_HIP, _TUNED = (str(_PUBLISHED / f"llama-3.2-1b.{name}.jsonl") for name in ("hip", "tuned"))
_LABELS = ("--label", "HIP", "--label", "lhl-tune-tile")


def _failed(capsys, *argv: str) -> dict[str, object]:
    code = main(["bench", "compare", "--json", *argv])
    document = json.loads(capsys.readouterr().out)
    assert document["error"]["exit_code"] == code != 0
    error: dict[str, object] = document["error"] | {"exit": code}
    return error


def test_markdown_is_the_published_table(capsys) -> None:
    assert main(["bench", "compare", _HIP, _TUNED, *_LABELS, "--format", "markdown"]) == 0
    wanted = (_PUBLISHED / "llama-3.2-1b.hip-tuned.md").read_text("utf-8")
    assert capsys.readouterr().out.startswith(wanted)


def test_the_terminal_shows_the_same_figures_unfolded(capsys) -> None:
    assert main(["bench", "compare", _HIP, _TUNED, *_LABELS]) == 0
    out = capsys.readouterr().out
    row = next(line for line in out.splitlines() if "tg128 @ d65536" in line)
    assert row.split()[-3:] == ["64.62", "64.55", "-0.10%"]
    assert "\x1b" not in out
    assert "no interval" in out


@pytest.mark.parametrize("width", ["10", "60"])
def test_no_terminal_is_too_narrow_for_a_number(capsys, monkeypatch, width: str) -> None:
    monkeypatch.setenv("COLUMNS", width)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["bench", "compare", _HIP, _TUNED, *_LABELS, "--color", "never"]) == 0
    out = capsys.readouterr().out
    for number in ("64.62", "64.55", "-0.10%", "4703.28"):
        assert number in out


def test_only_a_change_beyond_its_interval_is_coloured() -> None:
    row = (
        "pp512",
        "5.00%",
        "1.00% to 9.00%",
        "-5.00%",
        "-9.00% to -1.00%",
        "2.00%",
        "-1.00% to 5.00%",
        "9.00%",
    )
    titles = ("test", *["Δ%", "99 % interval"] * 3, "Δ%")
    styles = [str(_painted(titles, row, column).style) for column in (0, 1, 3, 5, 7)]
    assert styles == ["", "green", "red", "", ""]
    few = [title.removeprefix("99 % ") for title in titles]
    assert {str(_painted(few, row, column).style) for column in range(8)} == {""}
    once = ("pp512", "5.00%", "no interval")
    assert {str(_painted(titles, once, column).style) for column in range(3)} == {""}


@pytest.mark.parametrize("name", ["compare", "run"])
def test_help_has_an_example(capsys, name: str) -> None:
    assert main(["bench", name, "--help"]) == 0
    text = capsys.readouterr().out
    assert f"patchkit bench {name}" in text.partition("Examples:\n")[2]
    assert "--json" in text


def test_csv_leaves_its_notes_to_stderr(capsys) -> None:
    assert main(["bench", "compare", _HIP, _TUNED, "--format", "csv"]) == 0
    captured = capsys.readouterr()
    rows = list(csv.DictReader(io.StringIO(captured.out)))
    assert [row["test"] for row in rows][:2] == ["pp512", "pp512 @ d1024"]
    assert "no interval" in captured.err


def test_another_label_can_be_the_baseline(capsys) -> None:
    assert main(["bench", "compare", "--json", _HIP, _TUNED, *_LABELS, "--baseline", "lhl-tune-tile"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["base"] == "lhl-tune-tile"
    assert document["lines"][0]["changes"]["HIP"]["change"] == pytest.approx(4703.28 / 4970.14 - 1, abs=1e-5)


def test_the_choices_of_across_are_the_conditions() -> None:
    assert ACROSS == CONDITIONS


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (("no-such.jsonl",), "BENCH_FILE_BAD"),
        ((".",), "BENCH_FILE_BAD"),
        (("/dev/zero",), "BENCH_FILE_BAD"),
        ((_HIP, _HIP), "BENCH_FILES_INCOMPARABLE"),
        ((_HIP, _TUNED, "--label", "one"), "BENCH_FILES_INCOMPARABLE"),
        ((_HIP, "--label", "a\nb"), "BENCH_FILES_INCOMPARABLE"),
        ((_HIP, _TUNED, "--baseline", "WMMA"), "BENCH_FILES_INCOMPARABLE"),
        ((_HIP, str(_RECORDED / "b6900-cpu.jsonl")), "BENCH_FILES_INCOMPARABLE"),
        ((_HIP, _TUNED, "--across", "model"), "USAGE_VALUE"),
        ((), "USAGE_MISSING"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_cannot_be_is_refused_with_the_next_step(capsys, argv: tuple[str, ...], code: str) -> None:
    error = _failed(capsys, *argv)
    assert (error["code"], error["exit"]) == (code, 2)
    assert error["hint"]


def test_two_builds_in_one_file_are_refused(capsys, tmp_path: Path) -> None:
    path = tmp_path / "mixed.jsonl"
    text = Path(_HIP).read_text("utf-8")
    path.write_text(text + text.replace('"build_number": 0', '"build_number": 6900'), "utf-8")
    assert _failed(capsys, str(path))["code"] == "BENCH_FILES_INCOMPARABLE"


def test_the_array_of_o_json_is_read(capsys, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in Path(_TUNED).read_text("utf-8").splitlines()]
    path = tmp_path / "lhl-tune-tile.json"
    path.write_text(json.dumps(rows, indent=2), "utf-8")
    assert main(["bench", "compare", _HIP, str(path), "--label", "HIP", "--label", "lhl-tune-tile"]) == 0
    from_array = capsys.readouterr().out
    assert main(["bench", "compare", _HIP, _TUNED, *_LABELS]) == 0
    assert from_array == capsys.readouterr().out


def test_a_damaged_file_is_named_with_its_line(capsys) -> None:
    error = _failed(capsys, _HIP, str(_RECORDED / "hostile" / "bench_file_bad--log-between-rows.jsonl"))
    assert (error["code"], error["exit"]) == ("BENCH_FILE_BAD", 2)
    assert [place["line"] for place in cast("list[dict[str, object]]", error["where"])] == [2]


@pytest.mark.parametrize(
    "content",
    [b" " * (16 * 2**20 + 1), b'{"rows": "many"}\n'],
    ids=["bytes", "rows"],
)
def test_more_than_anybody_measures_is_refused(capsys, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "large.jsonl"
    row = Path(_HIP).read_bytes().splitlines()[0] + b"\n"
    path.write_bytes(content if content.startswith(b" ") else row * 2001)
    error = _failed(capsys, str(path))
    assert error["code"] == "BENCH_FILE_BAD"
