"""Cases run by the emulator's program for pieces of code (native/emulator/alone.cpp)."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

BUFFER = 2048 + 76  # bytes, as for the vectors of 32 lanes
Case = Mapping[str, Any]


def run_cases(
    cases: Sequence[Case], processor: str, *, program: Path, disassembler: Path
) -> list[dict[str, Any]]:
    """What each leaves, in the form of ``after``, or its ``fault``."""
    done = subprocess.run(
        [str(program), str(disassembler), processor],
        input="".join(f"{line}\n" for case in cases for line in _piece(case)),
        capture_output=True,
        text=True,
        check=True,
        env={"LD_LIBRARY_PATH": str(disassembler.parent)},
    )
    return list(_answers(done.stdout.splitlines()))


def _piece(case: Case) -> Iterator[str]:
    before = case["before"]
    yield f"run {case['name']}"
    yield f"code {case['code']}"
    yield f"mode {case['mode']}"
    yield f"buffer {BUFFER}"
    for name in ("exec", "vcc", "m0", "scc"):
        yield f"{name} {before[name]}"
    yield "v 255 " + " ".join(f"{lane:x}" for lane in range(case["lanes"]))
    for number, lanes in before["v"].items():
        yield f"v {number} {lanes if isinstance(lanes, str) else ' '.join(lanes)}"
    for number, bits in before["s"].items():
        yield f"s {number} {bits}"
    yield "go"


def _answers(lines: Sequence[str]) -> Iterator[dict[str, Any]]:
    left: dict[str, Any] = {}
    for line in lines:
        word, _, rest = line.partition(" ")
        if line == "end":
            yield left
            left = {}
        elif not left:
            left = (
                {"name": rest, "fault": ""}
                if word == "fault"
                else {"name": rest, "after": {"v": {}, "s": {}}}
            )
        elif "fault" in left:
            left["fault"] += line
        elif word in {"v", "s"}:
            number, *values = rest.split()
            left["after"][word][number] = values if word == "v" else values[0]
        elif word != "wave":
            left["after"][word] = int(rest) if word == "scc" else rest
