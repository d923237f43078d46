"""Pictures of tables: equal bytes for equal tables, every label and depth, a clear word if it cannot draw."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from refusing import refused

from patchkit.gpu.hardware.bench.plots import draw_plot
from patchkit.gpu.hardware.bench.rows import parse_rows
from patchkit.gpu.hardware.bench.tables import Series, Table, compare_series

_RECORDED = Path(__file__).parent / "recorded"
_NAMES = ("hip", "rocwmma", "tuned")


def _table(labels: tuple[str, ...] = _NAMES) -> Table:
    series = []
    for label, name in zip(labels, _NAMES, strict=False):
        text = (_RECORDED / "published" / f"gpt-oss-20b.{name}.jsonl").read_text("utf-8")
        series.append(Series(label=label, source=name, rows=parse_rows(text, name)))
    return compare_series(series)


def _texts(svg: bytes) -> list[str]:
    return [element.text or "" for element in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_a_picture_has_a_panel_per_kind_of_test_and_every_label_and_depth() -> None:
    texts = _texts(draw_plot(_table(), "svg"))
    assert [text for text in texts if text.startswith("gpt-oss")] == [
        "gpt-oss 20B F16: pp512",
        "gpt-oss 20B F16: tg128",
    ]
    for word in (*_NAMES, "0", "1k", "4k", "16k", "64k", "tokens per second"):
        assert texts.count(word) >= 2


def test_other_batch_sizes_have_panels_of_their_own() -> None:
    text = (_RECORDED / "published" / "gpt-oss-20b.hip.jsonl").read_text("utf-8")
    row = json.loads(text.splitlines()[0])
    rows = parse_rows(text, "a") + parse_rows(
        text.replace(f'"n_batch": {row["n_batch"]}', '"n_batch": 64'), "a"
    )
    texts = _texts(draw_plot(compare_series([Series(label="a", source="a", rows=rows)]), "svg"))
    of = f"batch {row['n_batch']}/{row['n_ubatch']}"
    for panel in (f"pp512 {of}", f"tg128 {of}", f"pp512 batch 64/{row['n_ubatch']}"):
        assert f"gpt-oss 20B F16: {panel}" in texts


def test_equal_tables_give_equal_bytes_in_every_process() -> None:
    here = draw_plot(_table(), "svg")
    assert b"<dc:date>" not in here
    program = f"""
import sys
sys.path[:0] = [{str(Path(__file__).parent)!r}, {str(Path(__file__).parents[3] / "support")!r}]
import test_bench_plots
from patchkit.gpu.hardware.bench.plots import draw_plot
sys.stdout.buffer.write(draw_plot(test_bench_plots._table(), "svg"))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout == here


def test_a_png_is_one_without_a_date() -> None:
    data = draw_plot(_table(), "png")
    assert data.startswith(b"\x89PNG")
    assert b"tIME" not in data
    assert b"Software" not in data


def test_intervals_are_drawn_where_there_are_some() -> None:
    text = (_RECORDED / "b6900-cpu.jsonl").read_text("utf-8")
    rows = parse_rows(text, "a")
    with_intervals = draw_plot(compare_series([Series(label="A", source="a", rows=rows)]), "svg")
    once = "".join(
        json.dumps(json.loads(line) | {"samples_ns": [10**6]}) + "\n" for line in text.splitlines()
    )
    without = draw_plot(compare_series([Series(label="A", source="a", rows=parse_rows(once, "a"))]), "svg")
    assert b"LineCollection" in with_intervals
    assert b"LineCollection" not in without


def test_a_label_is_shown_as_it_is() -> None:
    texts = _texts(draw_plot(_table(("_hidden", r"$\frac{1}$", "<b>&")), "svg"))
    assert "\u200b_hidden" in texts
    assert r"$\frac{1}$" in texts
    assert "<b>&" in texts


def test_without_matplotlib_the_message_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with refused("LIBRARY_MISSING") as caught:
        draw_plot(_table(), "svg")
    assert "pip install 'patchkit[plots]'" in str(caught.value.hint)
