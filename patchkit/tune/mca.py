"""How long one wave takes for one turn of a loop, by LLVM's own scheduling model (llvm-mca).

The figure is of a wave that is alone: it waits for each result as long as the model says. The model of
gfx11 in LLVM 22 knows latencies and one instruction per cycle; it does not know caches, other waves, or
that matrix instructions keep their unit busy. :mod:`patchkit.tune.estimate` adds what it lacks.
"""

from __future__ import annotations

import re
from pathlib import Path

from patchkit.build.toolchain import Toolchain, llvm_tool
from patchkit.proc import run_tool, tool_failure
from patchkit.report import Reporter

_CYCLES = re.compile(rb"^Total Cycles:\s+(\d+)", re.MULTILINE)
_TIMEOUT_S = 60.0  # two hundred times what the largest loop took (0.3 s)


def find_mca(toolchain: Toolchain, reporter: Reporter) -> Path | None:
    """The llvm-mca of the compiler's LLVM; None when it has none: estimates then use counts alone."""
    return llvm_tool(toolchain, "llvm-mca", reporter)


def turn_latency(mca: Path, lines: list[str], arch: str, reporter: Reporter) -> int | None:
    """Cycles of one wave for the lines once; None when the tool cannot read them.

    Raises:
        ToolTimeout, ToolCrashed: llvm-mca did not end by itself.
    """
    done = run_tool(
        [str(mca), "-mtriple=amdgcn-amd-amdhsa", f"-mcpu={arch}", "-iterations=1", "-instruction-info=0"],
        stdin="\n".join([*lines, ""]).encode(),
        timeout_s=_TIMEOUT_S,
        check=False,
        reporter=reporter,
    )
    if done.returncode < 0:
        raise tool_failure(done)
    found = _CYCLES.search(done.stdout)
    return int(found[1]) if done.returncode == 0 and found is not None else None
