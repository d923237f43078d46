"""The launches of quantized matrices, in the runs of small models with such weights.

Vocabulary: a *matrix kernel* is one of upstream's kernels for quantized weights, ``mul_mat_q`` (MMQ, many
columns) or ``mul_mat_vec_q`` (MMVQ, few), or what they launch around themselves. A patch *is about* matrices
when it changes a file of theirs; only then may these launches differ from the baseline's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from patchkit.errors import GateError, PatchkitError
from patchkit.gates.launch_errors import BlockMismatch, KernelMissing, KernelTraps, finding
from patchkit.gates.launch_geometry import Guarded, code_of
from patchkit.gates.launch_runs import Comparison, last_step
from patchkit.gates.subject import PatchPart
from patchkit.recorder.log import Launch
from patchkit.recorder.runs import RecordedRun
from patchkit.recorder.session import BenchRun

_FILES = ("mmq", "mmvq")  # how upstream's files about them begin, builds 6900 to 11549
_BOUNDED = ("mul_mat_q", "mul_mat_vec_q")  # compiled for one block size, as attention is
_AROUND = ("quantize_",)


def about_matrices(patches: Iterable[PatchPart]) -> tuple[str, ...]:
    """The ids of the patches that change a file of the matrix kernels."""
    return tuple(
        patch.id
        for patch in patches
        if any(path.rpartition("/")[2].startswith(_FILES) for path in (*patch.touched, *patch.new_files))
    )


def is_matrix(launch: Launch) -> bool:
    """Whether it belongs to the product with a quantized matrix."""
    return launch.kernel.name.base.startswith((*_BOUNDED, *_AROUND))


def check_matrices(compared: Comparison, guarded: Guarded) -> list[PatchkitError]:
    """Matrix kernels that are launched have code, which is no trap, and the block they are compiled for.

    Code is known of the units that a patch touches. What the baseline does alike is upstream's own.
    """
    broken: dict[type[GateError], list[str]] = {}
    for run, before, after in _runs(compared):
        own = {(kind, how) for _, kind, how in _broken(before, guarded.before)}
        for launch, kind, how in _broken(after, guarded):
            if (kind, how) not in own:
                broken.setdefault(kind, []).append(f"{run}: {launch.kernel.name} {how}".rstrip())
    arch = guarded.device.arch
    hint = "the logs are named in the evidence"
    return [
        finding(kind, f"{arch}: a quantized matrix {_SAYS[kind]}", examples, hint=hint)
        for kind, examples in broken.items()
    ]


def matrix_lines(compared: Comparison) -> Iterator[str]:
    """One line per run of a quantized model: which kernels with how many threads, before and after."""
    runs = _runs(compared)
    if runs:
        yield "quantized matrices, kernel x launches of threads per block:"
    for run, before, after in runs:
        old, new = _told(before), _told(after)
        yield f"  {run.test:6}{old}{f' -> {new}' if new != old else ', as before'}"


def unshown_matrices(compared: Comparison, about: Sequence[str]) -> list[str]:
    """What was not shown: patches about matrices of which no recorded launch tells anything."""
    differ = any(_shapes(before) != _shapes(after) for _, before, after in _runs(compared))
    if differ or not about:
        return []
    types = " ".join(dict.fromkeys(kind for run, _, _ in _runs(compared) for kind in run.model.weights))
    return [f"{' '.join(about)} on {compared.device.arch}: no launch of our models ({types}) shows an effect"]


_SAYS: dict[type[GateError], str] = {
    KernelMissing: "launches a kernel that is not in its code object",
    KernelTraps: "launches a kernel that is a trap",
    BlockMismatch: "launches blocks of another size than the kernel is compiled for",
}


def _runs(compared: Comparison) -> list[tuple[BenchRun, RecordedRun, RecordedRun]]:
    return [each for each in compared.benches if each[0].model.weights]


def _broken(recorded: RecordedRun, guarded: Guarded) -> Iterator[tuple[Launch, type[GateError], str]]:
    for launch in filter(is_matrix, last_step(recorded)):
        code = code_of(launch, guarded.code)
        if code is None:
            known = [unit for unit in launch.kernel.units if unit in guarded.code]
            if known:
                yield launch, KernelMissing, f"of {known[0]}"
        elif code.is_trap:
            yield launch, KernelTraps, ""
        elif launch.kernel.name.base in _BOUNDED and code.threads != launch.threads:
            how = f"with {launch.threads} threads per block, compiled for {code.threads}"
            yield launch, BlockMismatch, how


def _shapes(recorded: RecordedRun) -> list[tuple[object, ...]]:
    return [
        (launch.kernel.name, launch.grid, launch.block, launch.lds)
        for launch in filter(is_matrix, last_step(recorded))
    ]


def _told(recorded: RecordedRun) -> str:
    counted = Counter(
        (launch.kernel.name.base, launch.threads)
        for launch in last_step(recorded)
        if launch.kernel.name.base in _BOUNDED
    )
    return (
        ", ".join(f"{base} x{count} of {threads}" for (base, threads), count in sorted(counted.items()))
        or "nothing"
    )
