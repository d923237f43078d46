"""One attention case in full: which kernel runs, and which way the selection went.

Vocabulary: a *selection* is what became of one case on one side: the decisions and the launches.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from patchkit.build.compile import hip_definitions
from patchkit.build.compiler import Compiler, nice
from patchkit.build.kv_types import kv_definitions
from patchkit.build.sources import SourceTree
from patchkit.build.toolchain import hip_flags
from patchkit.build.units import INCLUDE_FOLDERS
from patchkit.errors import ToolchainError
from patchkit.proc import run_tool
from patchkit.recorder.backend import RecordedBackend
from patchkit.recorder.branches import Decision, decisions
from patchkit.recorder.cases import Case
from patchkit.recorder.library import HOST_FLAGS, SELECTION_UNIT
from patchkit.recorder.log import Launch
from patchkit.recorder.session import Session
from patchkit.recorder.trace import places_of
from patchkit.source import SourceText

SELECTION_FUNCTION = "ggml_cuda_get_best_fattn_kernel"
_TIMEOUT_S = 300.0
_MARKER = re.compile(rb'^# (\d+) "([^"]*)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """``decisions`` end with the return statement; ``launches`` are all kernels of the case, in order."""

    is_supported: bool
    decisions: tuple[Decision, ...]
    launches: tuple[Launch, ...]


def select(case: Case, session: Session, backend: RecordedBackend, compiler: Compiler) -> Selection:
    """Run one case with its executed basic blocks.

    Raises:
        SELECTION_UNREADABLE, SYMBOLIZER_MISSING, BLOCKS_UNKNOWN: the executed code cannot be told.
        RecordedRunFailed: upstream's code aborted.
    """
    case = replace(case, id="explained")
    (record,) = session.run_cases([case], traced=True).records([case])
    tree = backend.tree
    source = SourceText(SELECTION_UNIT, tree.read(SELECTION_UNIT))
    places = places_of(record.section.blocks, backend.library.path, compiler)
    return Selection(
        is_supported=record.is_supported,
        decisions=decisions(
            places, source, SELECTION_FUNCTION, active_lines(tree, SELECTION_UNIT, backend.arch, compiler)
        ),
        launches=record.section.launches,
    )


def active_lines(tree: SourceTree, unit: str, arch: str, compiler: Compiler) -> frozenset[int]:
    """The lines of a unit of which the preprocessor keeps something, in the host pass of the recorder."""
    done = run_tool(
        [
            *nice(),
            str(compiler.toolchain.clang),
            *hip_flags(compiler.toolchain, arch, which="host"),
            *hip_definitions(rocwmma=True),
            *kv_definitions(tree.root),
            *(f"-I{folder}" for folder in INCLUDE_FOLDERS),
            *HOST_FLAGS,
            "-E",
            unit,
        ],
        cwd=tree.root,
        timeout_s=_TIMEOUT_S,
        reporter=compiler.reporter,
    )
    lines: set[int] = set()
    path, number = b"", 0
    for text in done.stdout.split(b"\n"):
        if (marker := _MARKER.match(text)) is not None:
            number, path = int(marker[1]), marker[2]
            continue
        if path == unit.encode() and text.strip():
            lines.add(number)
        number += 1
    if not lines:
        raise ToolchainError(f"the preprocessor names no line of {unit}", hint="patchkit doctor")
    return frozenset(lines)
