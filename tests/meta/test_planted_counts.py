"""The planted faults that docs/records/sanitize.md counts are those of the tests; enough of each new kind."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests" / "integration" / "emulator"
LEAST = 8  # of each kind that came in after the first ones


def _cases(module: str, *tables: str) -> int:
    """How many cases the named tables of a module of tests have."""
    tree = ast.parse((TESTS / f"{module}.py").read_text("utf-8"))
    values = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return sum(len(_entries(values[name])) for name in tables)


def _entries(value: ast.expr) -> Iterable[object]:
    if isinstance(value, ast.Dict):
        return value.keys
    assert isinstance(value, ast.Tuple)
    return [one for one in value.elts if not isinstance(one, ast.Starred)]


def _hazards(kind: str) -> int:
    text = (TESTS / "hazardous_code.hip").read_text("utf-8")
    return len(set(re.findall(rf"\bhazard_{kind}_\w+", text)))


@pytest.fixture(scope="module")
def told() -> dict[str, int]:
    """By the first word of a row of the record's table."""
    page = (ROOT / "docs" / "records" / "sanitize.md").read_text("utf-8")
    return {
        name: int(count) for name, count in re.findall(r"^\| `([\w, ]+)` \| (\d+) \|", page, re.MULTILINE)
    }


NEW = {
    "races, memory of the device": lambda: _cases("test_wave_races", "_IN_MEMORY"),
    "races, LDS by atomics": lambda: _cases("test_wave_races", "_IN_LDS"),
    "hidden": lambda: _cases("test_hidden_writes", "_ONLY_HIDDEN", "_ON_ZEROS"),
    "barriers": lambda: _cases("test_barriers", "_FAULTS"),
    "calls, errors": lambda: _cases("test_calls", "_ERRORS"),
    "calls, launches": lambda: _cases("test_calls", "_LAUNCHES"),
    "calls, frees": lambda: _cases("test_calls", "_FREES"),
    "leaks": lambda: _cases("test_calls", "_LEAKS"),
    "static, barrier": lambda: _hazards("barrier"),
    "static, dual": lambda: _hazards("dual"),
    "public reports": lambda: _cases("test_reported_faults", "_REPORTED"),
}
OLDER = {
    "memory, waits, races": lambda: _cases("test_checks", "_FAULTS"),
    "uninitialised": lambda: _cases("test_checks", "_UNINITIALISED"),
    "numbers": lambda: _cases("test_checks", "_NUMBERS"),
    "asynchrony": lambda: _cases("test_asynchrony", "_RACES", "_ASYNCHRONY", "_CHANGES", "_READS"),
}


@pytest.mark.parametrize("row", NEW | OLDER)
def test_a_row_of_the_record_counts_what_the_tests_have(told, row):
    assert told[row] == (NEW | OLDER)[row]()


def test_there_are_enough_of_each_new_kind(told):
    of_lds_by_atomics = {"races, LDS by atomics"}  # a part of races, which another row has enough of
    assert all(told[row] >= LEAST for row in NEW.keys() - of_lds_by_atomics)
    assert set(told) >= NEW.keys() | OLDER.keys()
