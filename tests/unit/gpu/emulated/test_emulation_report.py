"""Reports of the emulated GPU that a program cut off or wrote over."""

from __future__ import annotations

from pathlib import Path

import pytest
from refusing import refused

from patchkit.gpu.emulated.emulator import parse_report
from patchkit.gpu.emulated.findings import SourceLines, stopped_lines
from patchkit.gpu.emulated.report_pipe import merge_reports

WHOLE = '{"arch": "gfx1151", "schedule": "in-order", "kernels": [], "on_cpu": [], "fault": null}'


def test_a_whole_report_is_read() -> None:
    assert parse_report(WHOLE, Path("report")).arch == "gfx1151"


@pytest.mark.parametrize(
    "text",
    ["", WHOLE[:30], "[" * 100_000, "[]", WHOLE.replace("[]", "7"), WHOLE.replace("arch", "\\u001b[31m")],
    ids=["empty", "cut-off", "deep", "list", "number", "key"],
)
def test_a_damaged_one_is_told_in_a_plain_sentence(text: str) -> None:
    with refused("EMULATION_UNREPORTED") as caught:
        parse_report(text, Path("report"))
    assert "not a valid report" in (caught.value.why or "")


STOPPED = WHOLE.replace(
    '"fault": null',
    '"fault": "kernel k: it does not end", "stopped": {"kernel": "_Z1kv", "waves": ['
    '{"wave": 0, "does": "runs", "at": {"object": "7-0", "function": "_Z1kv", "offset": 8, "text": ""}}, '
    '{"wave": 1, "does": "has ended", "at": null}]}',
)


def test_where_a_kernel_was_stopped_is_of_the_process_with_the_fault() -> None:
    reports = [parse_report(text, Path("report")) for text in (WHOLE, STOPPED, WHOLE)]
    all_of_them = merge_reports(reports)
    assert all_of_them is not None
    assert (all_of_them.fault, all_of_them.stopped) == (reports[1].fault, reports[1].stopped)


def test_code_without_line_tables_has_no_lines(tmp_path: Path) -> None:
    stopped = parse_report(STOPPED, Path("report")).stopped
    assert stopped_lines(stopped, SourceLines(tmp_path)) == []
    assert stopped_lines(None, SourceLines(tmp_path)) == []
