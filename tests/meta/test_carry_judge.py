"""The judge of benchmarks/carry_queues.py: what is lost, what stands elsewhere, what upstream made itself."""

from __future__ import annotations

import importlib
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UPSTREAM = b"""\
int one(int x) {
    x += 1;
    return x;
}

int two(int x) {
    x += 1;
    return x;
}
"""
CHANGED = UPSTREAM.replace(b"    x += 1;\n", b"    x += 1;\n    x *= 3;\n", 1)
LATER = UPSTREAM.replace(b"int two", b"int zero(int x) {\n    return 0 * x;\n}\n\nint two").replace(
    b"int one(int x) {\n", b"int one(int x) {\n    check(x);\n"
)


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("carry_git"), importlib.import_module("carry_judge")


@pytest.fixture
def commit(bench, tmp_path):
    """Makes a commit with one file of the given bytes."""
    subprocess.run(["git", "init", "--quiet", "--bare", str(tmp_path / "r.git")], check=True)
    store = bench[0].Store(tmp_path / "r.git")
    empty = store.git("hash-object", "-t", "tree", "-w", "--stdin").decode().strip()
    root = store.text("commit-tree", empty, "-m", "root")

    def make(data: bytes) -> str:
        return bench[0].write_files(store, root, ["a.c"], {"a.c": data})

    make.store = store
    return make


def verdict(bench, commit, target: bytes, result: bytes, truth: bytes | None = None):
    judge = bench[1]
    placing = judge.Placing(
        base=commit(UPSTREAM),
        after=commit(CHANGED),
        target=commit(target),
        result=commit(result),
        truth=commit(truth) if truth is not None else None,
    )
    found = judge.judge(commit.store, placing)
    return found.verdict, found.why


def test_a_change_in_the_function_it_is_for_is_in_its_place(bench, commit):
    result = LATER.replace(b"    x += 1;\n", b"    x += 1;\n    x *= 3;\n", 1)
    assert verdict(bench, commit, LATER, result) == ("by function", "")


def test_a_change_in_a_twin_is_disputed_with_both_places(bench, commit):
    head, _, tail = LATER.rpartition(b"    x += 1;\n")
    result = head + b"    x += 1;\n    x *= 3;\n" + tail
    assert verdict(bench, commit, LATER, result) == (
        "disputed",
        "a.c:2 -> a.c:12: in 'one', now in 'two'",
    )


def test_a_line_of_upstream_that_is_gone_is_wrong(bench, commit):
    result = LATER.replace(b"    check(x);\n", b"").replace(
        b"    x += 1;\n", b"    x += 1;\n    x *= 3;\n", 1
    )
    found, why = verdict(bench, commit, LATER, result)
    assert found == "wrong"
    assert "check(x);" in why


def test_a_line_that_both_sides_changed_keeps_the_words_of_both(bench, commit):
    target = LATER.replace(b"    x += 1;\n", b"    x += 1; // one\n", 1)
    result = target.replace(b"x += 1; // one", b"x += 1; x *= 3; // one")
    assert verdict(bench, commit, target, result) == ("by function", "")


def test_what_upstream_made_of_the_change_itself_is_right(bench, commit):
    result = LATER.replace(b"    x += 1;\n", b"    x += 1;\n    x *= 3;\n", 1)
    assert verdict(bench, commit, LATER, result, truth=result) == ("right", "")
    other = LATER.replace(b"    x += 1;\n", b"    x *= 3;\n    x += 1;\n", 1)
    assert verdict(bench, commit, LATER, other, truth=result)[0] == "disputed"


def test_a_change_that_is_put_in_where_upstream_has_it_is_wrong(bench, commit):
    twice = CHANGED.replace(b"    x *= 3;\n", b"    x *= 3;\n    x *= 3;\n")
    assert verdict(bench, commit, CHANGED, twice, truth=CHANGED)[0] == "wrong"
    assert verdict(bench, commit, CHANGED, CHANGED, truth=CHANGED)[0] == "right"
