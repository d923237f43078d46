"""The judge of benchmarks/pick_planted.py: which run was exactly right, and what its table says of it."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LEFT = dict.fromkeys(("slow-text", "nothing", "wrong", "one-model"), "leave out")
KEPT = {"prompts": "keep", "with-prompts": "keep"}


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("pick_planted")


def _visit(number, nanoseconds, *, tree="t"):
    entry = {"kind": "visit", "number": number, "model": "m", "tree": tree, "seconds": 30.0}
    return {**entry, "samples_ns": {"pp64": [nanoseconds]}}


def _make_run(bench, folder, words, *, status=0, begun=1):
    run = bench.Run(number=3, folder=folder)
    run.out.mkdir(parents=True)
    begins = [json.dumps({"at": "now", "gpu": "2"}) + "\n" for _ in range(begun)]
    (folder / "begun.jsonl").write_text("".join(begins), "utf-8")
    lines = [f"{json.dumps(_visit(number, 10**6))}\tdigest\n" for number in range(4)]
    (run.out / "journal.jsonl").write_text("".join([*lines, '{"kind": "vis']), "utf-8")
    if words:
        (folder / "ended.json").write_text(json.dumps({"status": status, "minutes": 7.25}), "utf-8")
        patches = [
            {"id": name, "verdict": word, "pairs": 12, "why": "RMS_NORM(ne=1)" if name == "wrong" else ""}
            for name, word in words.items()
        ]
        picked = [name for name, word in words.items() if word == "keep"]
        (run.out / "result.json").write_text(json.dumps({"picked": picked, "patches": patches}), "utf-8")
    return run


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({}, "yes"),
        ({"nothing": "unclear"}, "yes"),
        ({"with-prompts": "unclear"}, "open: with-prompts"),
        ({"with-prompts": "leave out", "prompts": "unclear"}, "no: left out with-prompts"),
        ({"slow-text": "keep"}, "no: kept slow-text"),
        ({"nothing": "keep", "prompts": "leave out"}, "no: kept nothing"),
    ],
)
def test_a_run_is_right_open_or_wrong(bench, words, told):
    words = {**KEPT, **LEFT, **words}
    assert bench.judged([name for name, word in words.items() if word == "keep"], words) == told


def test_the_row_of_a_run_has_every_word_and_whether_it_was_cut(bench, tmp_path):
    row = dict(zip(bench.COLUMNS, bench.row_of(_make_run(bench, tmp_path, {**KEPT, **LEFT})), strict=True))
    assert row["exactly right"] == "yes"
    assert (row["on"], row["cut"], row["minutes (measured)"]) == ("GPU 2", "no", "7.2 (2.0)")
    assert (row["prompts"], row["nothing"]) == ("keep, 12", "leave out, 12")
    assert row["wrong"] == "leave out: wrong, RMS_NORM"
    assert row["noise of a call"] == "pp64 0.0%"


def test_a_run_that_was_cut_or_failed_is_told_from_one_that_ended(bench, tmp_path):
    words = {**KEPT, **LEFT}
    runs = [
        _make_run(bench, tmp_path / "cut", {}, begun=2),
        _make_run(bench, tmp_path / "failed", words, status=7),
        _make_run(bench, tmp_path / "again", words, begun=2),
    ]
    (tmp_path / "failed/log").write_text("* build 1\nerror[GPU_LOST]: it is gone\n  hint: look\n", "utf-8")
    rows = [dict(zip(bench.COLUMNS, bench.row_of(run), strict=True)) for run in runs]
    told = [row["exactly right"] for row in rows]
    assert told == ["cut", "failed: error[GPU_LOST]: it is gone", "yes"]
    assert [row["cut"] for row in rows] == ["yes, begun 2 x", "no", "1 x, gone on"]
    assert rows[2]["minutes (measured)"] == "(2.0)"  # how long it took in all is not known
    first = next(bench.table([tuple(row.values()) for row in rows]))
    assert first == "Of 3 runs 1 came to their end, 1 of them exactly right; 0 kept what does not pay."


def test_what_issue_46_asks_is_nine_of_ten_and_no_loser(bench, tmp_path):
    right, open_, kept = (("n", "on", told) for told in ("yes", "open: prompts", "no: kept nothing"))
    assert bench.is_as_asked([right] * 9 + [open_], 10)
    assert not bench.is_as_asked([right] * 9, 10)
    assert not bench.is_as_asked([right] * 8 + [open_] * 2, 10)
    assert not bench.is_as_asked([right] * 9 + [kept], 10)


def test_the_noise_of_a_call_is_its_distance_from_the_median_of_its_build(bench):
    fast = [_visit(number, time) for number, time in enumerate([990, 1000, 1010])]
    slow = [_visit(number, time, tree="slow") for number, time in enumerate([1980, 2000, 2020])]
    once = [_visit(9, 5000, tree="seen once")]
    (found,) = bench.noise_of_calls([*fast, *slow, *once])["pp64"]
    assert found == pytest.approx(0.0148, rel=0.02)
