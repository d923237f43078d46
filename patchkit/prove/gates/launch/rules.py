"""The rules of gate ``launch``, as functions of recorded launches."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from patchkit.base.errors import GateError, Location, PatchkitError
from patchkit.base.text import counted
from patchkit.base.upstreams import llama_cpp
from patchkit.carry.placing.wmma import KV_PADDING
from patchkit.carry.series.promises import CasePromise
from patchkit.gpu.emulated.cases import Case, OpRow
from patchkit.gpu.emulated.log import Launch
from patchkit.gpu.emulated.names import KernelName
from patchkit.gpu.emulated.session import RecordedRun
from patchkit.prove.gates.launch.geometry import LAUNCH_RULES, Guarded, LaunchRule, code_of
from patchkit.prove.gates.launch.runs import CasePair, Comparison, last_step
from patchkit.prove.subject import PatchPart

_ATTENTION_UNIT = llama_cpp().gpu_file("fattn.cu")  # it selects the attention kernel
_WMMA_UNIT = llama_cpp().gpu_file("fattn-wmma-f16.cu")
_MATRIX_FILES = ("mmq", "mmvq")  # name prefixes of upstream's files about them, builds 6900 to 11549
# Quantized matmul kernels, compiled for one block size as attention is, and those that prepare data for them.
# The last one is from patchkit's own patch.
MATRIX_KERNELS = ("mul_mat_q", "mul_mat_vec_q", "mul_mat_prompts")
# Conversions of activations for quantized matmuls; of weights, activations and results for a BLAS library.
_AROUND_MATRICES = ("quantize_", "dequantize_block", "convert_unary")
_AROUND_ATTENTION = "flash_attn"  # attention and its helpers, whose number depends on the kernel
_IN_EVIDENCE = "the paths of the logs are in the evidence"
_SHOWN = 3

# A kernel by name, with blocks per grid, threads per block and dynamic LDS in bytes.
_Shape = tuple[str, tuple[int, int, int], tuple[int, int, int], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """One case that breaks the rule ``message`` by launching ``kernel``; ``how`` describes it."""

    message: str
    case: Case
    kernel: KernelName
    how: str

    def __str__(self) -> str:
        return f"{self.case}: {self.kernel} {self.how}".rstrip()


def finding(
    message: str, examples: Sequence[str], *, code: str, where: str | None = None, hint: str
) -> GateError:
    """One error for all cases that break one rule: their number, and the first few different texts."""
    shown = list(dict.fromkeys(examples))[:_SHOWN]
    if len(examples) > len(shown):
        shown.append(f"and {len(examples) - len(shown)} more")
    return GateError(
        f"{message} ({counted(len(examples), 'case')})",
        code=code,
        where=Location(path=where) if where is not None else None,
        why="; ".join(shown),
        hint=hint,
    )


def grouping_applies(case: Case) -> bool:
    """Whether upstream can share K and V between query heads (gqa_opt_applies, fattn.cu of build 6900)."""
    return case.gqa % 2 == 0 and case.mask and case.max_bias == 0.0 and case.kv % KV_PADDING == 0


def applies_to(promise: CasePromise, case: Case) -> bool:
    """Whether a promise of a patch covers a case."""
    most = promise.max_tokens if promise.max_tokens is not None else case.tokens
    return (
        promise.min_tokens <= case.tokens <= most
        and case.kv % promise.kv_multiple_of == 0
        and (not promise.head_sizes or case.head_size in promise.head_sizes)
        and (not promise.kv_types or _types_agree(promise, case))
        and (not promise.grouped or grouping_applies(case))
    )


def _types_agree(promise: CasePromise, case: Case) -> bool:
    """Whether K has a named type, and V is quantized only if K is."""
    return case.type_k in promise.kv_types and (case.type_k.startswith("q") or not case.is_quantized)


def check_support(arch: str, before: Sequence[OpRow], after: Sequence[OpRow]) -> list[PatchkitError]:
    """Check that all supported operations stay supported, and that there are any."""
    supported = {row.params for row in before if row.is_supported}
    lost = sorted(supported - {row.params for row in after if row.is_supported})
    hint = "patchkit explain shows the kernel of each attention shape, before and after"
    if not supported:
        message = f"{arch}: the baseline supports no attention case"
        return [finding(message, [], code="LAUNCH_NOTHING", hint=hint)]
    if not lost:
        return []
    message = f"{arch}: attention is no longer supported"
    return [finding(message, lost, code="LAUNCH_SUPPORT_LOST", where=_ATTENTION_UNIT, hint=hint)]


def check_guarded(pairs: Sequence[CasePair], guarded: Guarded) -> list[PatchkitError]:
    """Check every rule for the attention launches of a guarded GPU."""
    arch = guarded.device.arch
    problems: list[PatchkitError] = []

    def check(message: str, broken: Iterable[str], *, code: str, where: str = _ATTENTION_UNIT) -> None:
        if examples := list(broken):
            hint = f"patchkit explain --arch {arch} shows the kernel of each attention shape"
            problems.append(finding(f"{arch}: {message}", examples, code=code, where=where, hint=hint))

    # check_support covers upstream's own cases.
    check(
        "attention is no longer supported for patchkit's own cases",
        (
            str(pair.case)
            for pair in pairs
            if pair.case.is_own and pair.before.is_supported and not pair.after.is_supported
        ),
        code="LAUNCH_SUPPORT_LOST",
    )
    check(
        "a supported case launches no attention kernel",
        (str(pair.case) for pair in pairs if pair.after.is_supported and not pair.after.attention),
        code="LAUNCH_NOTHING",
    )
    for promise in guarded.promises:
        check(promise.broken, _against(promise, pairs), code=promise.code)
    check(
        "a case launches a different attention kernel than before",
        _changed(pairs, guarded),
        code="LAUNCH_FAMILY_CHANGED",
    )
    check(
        "a case still launches the attention kernel that a patch replaces",
        _kept(pairs, guarded),
        code="LAUNCH_FAMILY_KEPT",
    )
    check(
        "a launched kernel is not in its code object",
        _missing(pairs, guarded),
        code="LAUNCH_KERNEL_MISSING",
        where=_WMMA_UNIT,
    )
    check("a launched kernel is a trap", _trapping(pairs, guarded), code="LAUNCH_KERNEL_TRAPS")
    for rule in LAUNCH_RULES:
        check(rule.message, _misshapen(pairs, guarded, rule), code=rule.code, where=_WMMA_UNIT)
    return problems


def _against(promise: CasePromise, pairs: Sequence[CasePair]) -> Iterator[str]:
    for pair in pairs:
        if not applies_to(promise, pair.case):
            continue
        for launch in pair.after.attention:
            family = launch.kernel.family
            if family == promise.never or (promise.only is not None and family != promise.only):
                yield f"{pair.case}: {launch.kernel.name}"


def _changed(pairs: Sequence[CasePair], guarded: Guarded) -> Iterator[str]:
    leaving = [promise for promise in guarded.promises if promise.never is not None]
    for pair in pairs:
        before, after = (
            [each.kernel.family for each in side.attention] for side in (pair.before, pair.after)
        )
        if before == after or not (pair.before.is_supported and pair.after.is_supported):
            continue
        if any(move.allows(pair.case.head_size, before, after) for move in guarded.moves):
            continue
        if not any(applies_to(promise, pair.case) for promise in leaving):
            yield f"{pair.case}: {' '.join(before) or 'nothing'} -> {' '.join(after) or 'nothing'}"


def _kept(pairs: Sequence[CasePair], guarded: Guarded) -> Iterator[str]:
    for pair in pairs:
        size = pair.case.head_size
        left = {move.origin for move in guarded.moves if move.covers(size) and not move.may_stay}
        for launch in pair.after.attention:
            if launch.kernel.family in left:
                yield f"{pair.case}: {launch.kernel.name}"


def _missing(pairs: Sequence[CasePair], guarded: Guarded) -> Iterator[str]:
    for pair, launch in _launches(pairs):
        for unit in launch.kernel.units:
            if unit in guarded.code and launch.kernel.name.mangled not in guarded.code[unit]:
                yield f"{pair.case}: {launch.kernel.name} of {unit}"


def _trapping(pairs: Sequence[CasePair], guarded: Guarded) -> Iterator[str]:
    baseline = guarded.before
    for pair, launch in _launches(pairs):
        if _is_trap(launch, guarded) and not any(
            _is_trap(old, baseline) for old in pair.before.section.launches
        ):
            yield f"{pair.case}: {launch.kernel.name}"


def _misshapen(pairs: Sequence[CasePair], guarded: Guarded, rule: LaunchRule) -> Iterator[str]:
    """Launches that break a rule, except where the baseline does so in the same way with the same kernel."""
    baseline = guarded.before
    for pair, launch in _launches(pairs):
        how = rule.broken(pair.case, launch, guarded)
        if how is not None and not any(
            old.kernel.name == launch.kernel.name and rule.broken(pair.case, old, baseline) == how
            for old in pair.before.section.launches
        ):
            yield f"{pair.case}: {launch.kernel.name} {how}"


def upstream_own(pairs: Sequence[CasePair], guarded: Guarded) -> list[Broken]:
    """Rules that the baseline already breaks; they are shown and do not fail the gate."""
    found: list[Broken] = []
    baseline = guarded.before
    for pair in pairs:
        for launch in pair.before.section.launches:
            broken = [(rule.message, rule.broken(pair.case, launch, baseline)) for rule in LAUNCH_RULES]
            if _is_trap(launch, baseline):
                broken.append(("a launch of a kernel that is a trap", ""))
            found += [
                Broken(message=message, case=pair.case, kernel=launch.kernel.name, how=how)
                for message, how in broken
                if how is not None
            ]
    return found


def _is_trap(launch: Launch, guarded: Guarded) -> bool:
    code = code_of(launch, guarded.code)
    return code is not None and code.is_trap


def _launches(pairs: Sequence[CasePair]) -> Iterator[tuple[CasePair, Launch]]:
    return ((pair, launch) for pair in pairs for launch in pair.after.section.launches)


def check_graphs(
    compared: Comparison,
    *,
    matrices_may_change: bool,
    leaving: Collection[str] = (),
    own: Collection[str] = (),
) -> list[PatchkitError]:
    """Check that a model's graph launches the same, except for attention, and for matmuls if they may change.

    Kernels in ``leaving`` may be launched less often; those in ``own`` are new.
    """
    changed = []
    for run, before, after in compared.benches:
        was, new = (_others(side, matrices_may_change=matrices_may_change) for side in (before, after))
        new = [shape for shape in new if _name(shape) not in own]
        old = _without_moved(was, new, leaving)
        if not old or old != new:
            changed.append(f"{run}: {_first_difference(old, new)}")
    if not changed:
        return []
    message = f"{compared.device.arch}: a model's graph changed outside of attention"
    return [finding(message, changed, code="LAUNCH_GRAPH_CHANGED", hint=_IN_EVIDENCE)]


def _without_moved(old: Sequence[_Shape], new: Sequence[_Shape], leaving: Collection[str]) -> list[_Shape]:
    """``old`` without those launches that are missing at their place in ``new`` and may be missing."""
    kept: list[_Shape] = []
    at = 0
    for shape in old:
        stays = at < len(new) and shape == new[at]
        if stays or _name(shape) not in leaving:
            kept.append(shape)
        at += stays
    return kept


def _name(shape: _Shape) -> str:
    return shape[0].partition("<")[0]


def _others(recorded: RecordedRun, *, matrices_may_change: bool) -> list[_Shape]:
    return [
        _shape(launch)
        for launch in last_step(recorded)
        if not launch.kernel.name.base.startswith(_AROUND_ATTENTION)
        and not (matrices_may_change and _is_matrix(launch))
    ]


def _shape(launch: Launch) -> _Shape:
    return str(launch.kernel.name), launch.grid, launch.block, launch.lds


def _first_difference(old: Sequence[_Shape], new: Sequence[_Shape]) -> str:
    for index, sides in enumerate(zip(old, new, strict=False)):
        if sides[0] != sides[1]:
            was, now = (f"{name} {grid} of {block} with {lds} bytes" for name, grid, block, lds in sides)
            return f"launch {index} was {was}, now {now}"
    return f"{len(old)} launches became {len(new)}"


def check_unguarded(compared: Comparison) -> list[PatchkitError]:
    """Compare the logs; only if they differ, find the cases that do."""
    changed = []
    if not compared.cases_identical:
        changed += [
            f"{pair.case}: {_names(pair.before.attention)} -> {_names(pair.after.attention)}"
            for pair in compared.pairs()
            if pair.before.section.steps != pair.after.section.steps
            or pair.before.is_supported != pair.after.is_supported
        ]
    changed += [str(run) for run, before, after in compared.benches if before.digest != after.digest]
    if not changed:
        return []
    message = f"{compared.device.arch}: no patch targets this GPU, but its launches changed"
    hint = "the guard of a patch includes it: patchkit show PATCH"
    return [finding(message, changed, code="LAUNCH_UNGUARDED_CHANGED", where=_ATTENTION_UNIT, hint=hint)]


def _names(launches: Sequence[Launch]) -> str:
    return " ".join(f"{launch.kernel.name}{launch.grid}" for launch in launches) or "nothing"


def about_matrices(patches: Iterable[PatchPart]) -> tuple[str, ...]:
    """The ids of patches that change files of quantized matmul kernels."""
    return tuple(
        patch.id
        for patch in patches
        if any(
            path.rpartition("/")[2].startswith(_MATRIX_FILES) for path in (*patch.touched, *patch.new_files)
        )
    )


def _is_matrix(launch: Launch) -> bool:
    """Whether it belongs to a quantized matmul."""
    return launch.kernel.name.base.startswith((*MATRIX_KERNELS, *_AROUND_MATRICES))


def check_matrices(compared: Comparison, guarded: Guarded) -> list[PatchkitError]:
    """Check that launched matmul kernels have code, are not traps, and use the block size of that code.

    Code is known for the units that a patch touches. Faults that the baseline has as well are upstream's own.
    """
    examples: dict[str, list[str]] = {}
    for run, before, after in compared.quantized:
        own = {(code, how) for _, code, how in _unfit(before, guarded.before)}
        for launch, code, how in _unfit(after, guarded):
            if (code, how) not in own:
                examples.setdefault(code, []).append(f"{run}: {launch.kernel.name} {how}".rstrip())
    arch = guarded.device.arch
    return [
        finding(f"{arch}: a quantized matmul launches {_UNFIT[code]}", found, code=code, hint=_IN_EVIDENCE)
        for code, found in examples.items()
    ]


_UNFIT = {
    "LAUNCH_KERNEL_MISSING": "a kernel that is not in its code object",
    "LAUNCH_KERNEL_TRAPS": "a kernel that is a trap",
    "LAUNCH_BLOCK_MISMATCH": "blocks of another size than the kernel is compiled for",
}


def _unfit(recorded: RecordedRun, guarded: Guarded) -> Iterator[tuple[Launch, str, str]]:
    """Launches that do not match their code: the error code, and how."""
    for launch in filter(_is_matrix, last_step(recorded)):
        code = code_of(launch, guarded.code)
        if code is None:
            known = [unit for unit in launch.kernel.units if unit in guarded.code]
            if known:
                yield launch, "LAUNCH_KERNEL_MISSING", f"of {known[0]}"
        elif code.is_trap:
            yield launch, "LAUNCH_KERNEL_TRAPS", ""
        elif launch.kernel.name.base in MATRIX_KERNELS and code.threads != launch.threads:
            how = f"with {launch.threads} threads per block, compiled for {code.threads}"
            yield launch, "LAUNCH_BLOCK_MISMATCH", how


def unshown_matrices(compared: Comparison, about: Sequence[str]) -> list[str]:
    """A note if patches change quantized matmuls but no recorded launch differs."""
    sides = (
        [[_shape(launch) for launch in filter(_is_matrix, last_step(side))] for side in (before, after)]
        for _, before, after in compared.quantized
    )
    if not about or any(old != new for old, new in sides):
        return []
    types = " ".join(dict.fromkeys(kind for run, _, _ in compared.quantized for kind in run.model.weights))
    return [
        (
            f"{' '.join(about)} on {compared.device.arch}: no effect is visible in launches of patchkit's "
            f"small models ({types})"
        )
    ]
