"""Reports of the emulated GPU that a program cut off or wrote over."""

from __future__ import annotations

from pathlib import Path

import pytest
from refusing import refused

from patchkit.gpu.emulated.emulator import parse_report

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
    why = "what lies there is no report of the emulated GPU: it was cut off, or the program wrote over it"
    assert caught.value.why == why
