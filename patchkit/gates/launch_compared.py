"""The rules about one GPU as a whole: its models' graphs, and its logs where nothing may change.

Vocabulary: *besides attention* are the other kernels of a graph; what attention launches around itself
(conversions, the combination of results) depends on the kernel and counts as attention.
"""

from __future__ import annotations

from collections.abc import Sequence

from patchkit.errors import PatchkitError
from patchkit.gates.launch_errors import GraphChanged, UnguardedChanged, finding
from patchkit.gates.launch_matrices import is_matrix
from patchkit.gates.launch_rules import attention
from patchkit.gates.launch_runs import Comparison, last_step
from patchkit.recorder.library import SELECTION_UNIT
from patchkit.recorder.log import Launch

# A kernel by name, with blocks per grid, threads per block and dynamic LDS in bytes.
_Shape = tuple[str, tuple[int, int, int], tuple[int, int, int], int]

# Attention and what it launches around itself; their number depends on the kernel.
_AROUND = ("flash_attn",)


def check_graphs(compared: Comparison, *, matrices_may_change: bool) -> list[PatchkitError]:
    """A model's graph launches the same besides attention, and besides matrices if these may change."""
    changed = []
    for run, before, after in compared.benches:
        old, new = (_others(last_step(side), matrices_may_change) for side in (before, after))
        if not old or old != new:
            changed.append(f"{run}: {_first_difference(old, new)}")
    if not changed:
        return []
    message = f"{compared.device.arch}: a model's graph changed outside of attention"
    return [finding(GraphChanged, message, changed, hint="the logs are named in the evidence")]


def check_unguarded(compared: Comparison) -> list[PatchkitError]:
    """Equal logs need no reading; where they differ, say which case and how."""
    arch = compared.device.arch
    changed = []
    if not compared.cases_identical:
        changed += [
            f"{pair.case}: {_names(attention(pair.before))} -> {_names(attention(pair.after))}"
            for pair in compared.pairs()
            if pair.before.section.steps != pair.after.section.steps
            or pair.before.is_supported != pair.after.is_supported
        ]
    changed += [str(run) for run, before, after in compared.benches if before.digest != after.digest]
    if not changed:
        return []
    message = f"{arch}: no patch is for this GPU, and it launches something else than before"
    hint = "the patch's guard lets it in: patchkit show PATCH"
    return [finding(UnguardedChanged, message, changed, where=SELECTION_UNIT, hint=hint)]


def _others(launches: Sequence[Launch], matrices_may_change: bool) -> list[_Shape]:  # noqa: FBT001
    return [
        (str(launch.kernel.name), launch.grid, launch.block, launch.lds)
        for launch in launches
        if not launch.kernel.name.base.startswith(_AROUND) and not (matrices_may_change and is_matrix(launch))
    ]


def _first_difference(old: Sequence[_Shape], new: Sequence[_Shape]) -> str:
    for index, (left, right) in enumerate(zip(old, new, strict=False)):
        if left != right:
            return f"launch {index} was {_shape(left)}, is {_shape(right)}"
    return f"{len(old)} launches became {len(new)}"


def _shape(launch: _Shape) -> str:
    name, grid, block, lds = launch
    return f"{name} {grid} of {block} with {lds} bytes"


def _names(launches: Sequence[Launch]) -> str:
    return " ".join(f"{launch.kernel.name}{launch.grid}" for launch in launches) or "nothing"
