"""The tables of docs/records are what the files give that they rest on."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RECORDS = runpy.run_path(str(ROOT / "benchmarks" / "records.py"))
PAGES = sorted((ROOT / "docs" / "records").glob("*.md"))
_MARK = re.compile(r"^<!-- (table|end)\b ?([\w-]*) ?-->$", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_tables_of_a_page_are_up_to_date(page: Path) -> None:
    rendered = RECORDS["rendered"](page)
    assert page.read_text("utf-8") == rendered, "write it with: python benchmarks/records.py --write"


def test_every_table_is_on_a_page_and_every_mark_has_its_end() -> None:
    found = []
    for page in PAGES:
        marks = _MARK.findall(page.read_text("utf-8"))
        assert [kind for kind, _ in marks] == ["table", "end"] * (len(marks) // 2), page.name
        found += [name for kind, name in marks if kind == "table"]
    assert sorted(found) == sorted(RECORDS["TABLES"])


def test_a_number_that_was_changed_by_hand_is_seen(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "records" / "wmma-tiles.md").read_text("utf-8")
    changed = tmp_path / "wmma-tiles.md"
    changed.write_text(text.replace("256/270/5/5", "256/207/5/5"), "utf-8")
    assert changed.read_text("utf-8") != text
    assert RECORDS["rendered"](changed) == text


def test_the_index_lists_every_page() -> None:
    text = (ROOT / "docs" / "records" / "index.md").read_text("utf-8")
    rows = re.findall(r"^\| \[[^\]]+\]\(([\w-]+)\.md\) \|", text, re.MULTILINE)
    assert sorted(rows) == [page.stem for page in PAGES if page.stem != "index"]
