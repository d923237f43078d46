"""Progress read from a file: lines are counted once, and earlier content is ignored."""

from __future__ import annotations

import time
from contextlib import nullcontext

from patchkit.base.reporter import NullReporter
from patchkit.base.watching import count_lines, follow_file


class _Told(NullReporter):
    def __init__(self):
        self.calls = []

    def progress(self, text, unit):
        return nullcontext(lambda done, total=None: self.calls.append((text, unit, done, total)))


def test_whole_lines_are_counted_as_they_come(tmp_path):
    path = tmp_path / "rows"
    look = count_lines(4)
    counts = []
    for more in ("a\nb", "\n", "", "c\nd\ne\n"):
        with path.open("a") as file:
            file.write(more)
        with path.open("rb") as file:
            counts.append(look(file))
    assert counts == [(1, 4), (2, 4), (2, 4), (4, 4)]


def test_a_replaced_file_is_counted_from_its_start(tmp_path):
    path = tmp_path / "rows"
    look = count_lines(9)
    for text, done in (("1\n2\n3\n", 3), ("1\n", 1)):
        path.write_text(text)
        with path.open("rb") as file:
            assert look(file) == (done, 9)


def test_a_missing_file_is_waited_for(tmp_path):
    path, reporter = tmp_path / "rows", _Told()
    with follow_file(path, count_lines(2), reporter, "cases", "rows"):
        path.write_text("1\n")
        while not reporter.calls:
            time.sleep(0.01)
        path.write_text("1\n2\n")
    assert reporter.calls == [("cases", "rows", 1, 2), ("cases", "rows", 2, 2)]
