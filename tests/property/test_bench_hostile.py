"""Files of llama-bench that somebody damaged or made up: an error with the line, or a table; nothing else.

Whatever a search finds to break it is kept in ``tests/unit/device/recorded/hostile``, named after what must
come of it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchkit.base.errors import PatchkitError
from patchkit.gpu.hardware.bench.compare import load_rows
from patchkit.gpu.hardware.bench.tables import (
    CONDITIONS,
    Series,
    Table,
    compare_series,
    csv_table,
    json_table,
    markdown_table,
)

_RECORDED = Path(__file__).parents[1] / "unit" / "gpu" / "hardware" / "recorded"
_TEXT = (_RECORDED / "b6900-cpu.jsonl").read_text("utf-8")
_ROWS = [json.loads(line) for line in _TEXT.splitlines()]
_EXAMPLES = 40  # each makes tables with intervals; longer searches are in docs/records/bench.md
_HOSTILE = sorted((_RECORDED / "hostile").iterdir())
# What may come of a file that is none, or of two that have nothing in common.
_CODES = {"BENCH_FILE_BAD", "BENCH_FILES_INCOMPARABLE"}
_ABOUT_THE_FILE = ("contains no results", "not UTF-8", "is larger", "is too large")  # these have no line
_PIECES = [b"\0", b"\n", b"\r\n", b"\xff", b"[" * 3000, b"9" * 5000, b"NaN", b"}", b'"', b"-1e999"]


def _compared(path: Path, across: Sequence[str] = ()) -> str | None:
    """The code of the error, or None after every way of writing the table has been taken."""
    try:
        series = [
            Series(label=label, source=label, rows=load_rows(file))
            for label, file in (("A", _RECORDED / "b6900-cpu.jsonl"), ("B", path))
        ]
        for compared in (series[1:], series):
            _write(compare_series(compared, across=across))
    except PatchkitError as found:
        error = found
    else:
        return None
    assert error.code in _CODES
    assert error.where
    assert error.hint
    if error.code == "BENCH_FILE_BAD" and not any(text in str(error) for text in _ABOUT_THE_FILE):
        (where,) = error.where
        assert where.path == str(path)
        assert where.line is not None
        assert 1 <= where.line <= path.read_bytes().count(b"\n") + 1
        assert len(str(error.why)) < 1300
    return error.code


def _write(table: Table) -> None:
    markdown_table(table).encode("utf-8")
    csv_table(table).encode("utf-8")
    json.dumps(json_table(table), allow_nan=False)
    for line in table.lines:
        for cell in line.cells:
            assert cell is None or (math.isfinite(cell.speed) and cell.speed > 0)


@pytest.mark.parametrize("path", _HOSTILE, ids=lambda path: path.stem)
def test_what_was_kept_gives_what_its_name_says(path: Path) -> None:
    wanted = path.name.partition("--")[0]
    found = _compared(path)
    assert found == wanted.upper() if wanted != "ok" else found in {None, "BENCH_FILES_INCOMPARABLE"}


_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=-(2**70), max_value=2**70)
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["", "\0", "\x1b[2J", "|", "$", "\u2028", "f16", "auto", 2**63, 10**400, 1, 0, -1]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.dictionaries(st.sampled_from(sorted(_ROWS[0])), _VALUES, max_size=3)),
        min_size=1,
        max_size=4,
    ),
    st.lists(st.sampled_from(CONDITIONS), max_size=3),
)
@settings(max_examples=_EXAMPLES)
def test_rows_with_any_values(
    tmp_path_factory, rows: list[tuple[int, dict[str, object]]], across: list[str]
) -> None:
    path = tmp_path_factory.mktemp("hostile") / "b.jsonl"
    path.write_text("".join(json.dumps(_ROWS[number] | fields) + "\n" for number, fields in rows), "utf-8")
    _compared(path, across)


@given(
    st.lists(
        st.tuples(
            st.integers(0, len(_TEXT)),
            st.integers(0, 40),
            st.binary(max_size=12) | st.sampled_from(_PIECES),
        ),
        min_size=1,
        max_size=4,
    )
)
@settings(max_examples=_EXAMPLES)
def test_bytes_changed_anywhere(tmp_path_factory, changes: list[tuple[int, int, bytes]]) -> None:
    content = _TEXT.encode()
    for at, dropped, inserted in changes:
        content = content[:at] + inserted + content[at + dropped :]
    path = tmp_path_factory.mktemp("hostile") / "b.jsonl"
    path.write_bytes(content)
    _compared(path)


@given(st.integers(0, len(_TEXT)))
def test_a_file_cut_anywhere_but_between_rows_is_an_error(tmp_path_factory, end: int) -> None:
    path = tmp_path_factory.mktemp("hostile") / "b.jsonl"
    path.write_text(_TEXT[:end], "utf-8")
    whole = end == 0 or _TEXT[end - 1 : end] in {"\n", "}"}
    found = _compared(path)
    assert found == (("BENCH_FILE_BAD" if end == 0 else None) if whole else "BENCH_FILE_BAD")


@given(st.binary(max_size=2000))
def test_any_bytes_at_all(tmp_path_factory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("hostile") / "b.jsonl"
    path.write_bytes(content)
    assert _compared(path) is not None
