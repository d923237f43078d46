"""The rules of the launch gate, as functions of what was recorded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from patchkit.base.errors import GateError, PatchkitError
from patchkit.gates.launch.errors import (
    DecodeOnVec,
    DecodeOnWmma,
    FamilyChanged,
    FamilyKept,
    KernelMissing,
    KernelTraps,
    NothingLaunched,
    PrefillNotWmma,
    SupportLost,
    finding,
)
from patchkit.gates.launch.geometry import GEOMETRY_RULES, TABLE_PATCH, GeometryRule, Guarded, code_of
from patchkit.gpu.cases import Case, OpRow
from patchkit.gpu.log import Launch
from patchkit.gpu.names import KernelName
from patchkit.gpu.session import CaseRecord
from patchkit.kernels.wmma import KV_PADDING

# The patch of the seed series whose promise about decode is a rule here.
DECODE_PATCH = "fattn-decode-tile"

_SELECTION = "ggml/src/ggml-cuda/fattn.cu"
_WMMA_UNIT = "ggml/src/ggml-cuda/fattn-wmma-f16.cu"


@dataclass(frozen=True, slots=True, kw_only=True)
class CasePair:
    """One case on one GPU, before and after."""

    case: Case
    before: CaseRecord
    after: CaseRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """One case that breaks the rule ``message``: by launching ``kernel``, and how."""

    message: str
    case: Case
    kernel: KernelName
    how: str

    def __str__(self) -> str:
        return f"{self.case}: {self.kernel} {self.how}".rstrip()


def attention(record: CaseRecord) -> tuple[Launch, ...]:
    """The attention kernels of a case, without conversions and the combination of results."""
    return tuple(launch for launch in record.section.launches if launch.kernel.family != "other")


def grouping_applies(case: Case) -> bool:
    """Whether upstream can share K and V between query heads (gqa_opt_applies, fattn.cu of build 6900)."""
    return case.gqa % 2 == 0 and case.mask and case.max_bias == 0.0 and case.kv % KV_PADDING == 0


def check_support(arch: str, before: Sequence[OpRow], after: Sequence[OpRow]) -> list[PatchkitError]:
    """The set of supported operations is the same or larger, and not empty."""
    had = {row.params for row in before if row.is_supported}
    has = {row.params for row in after if row.is_supported}
    hint = "patchkit explain shows which branch of the selection a shape takes"
    if not had:
        return [finding(NothingLaunched, f"{arch}: the baseline supports no attention case", [], hint=hint)]
    lost = sorted(had - has)
    if not lost:
        return []
    message = f"{arch}: attention is no longer supported"
    return [finding(SupportLost, message, lost, where=_SELECTION, hint=hint)]


def check_guarded(pairs: Sequence[CasePair], guarded: Guarded) -> list[PatchkitError]:
    """Every rule about the launches of a guarded GPU."""
    arch = guarded.device.arch
    hint = f"patchkit explain --arch {arch} shows why a shape takes its kernel"
    problems: list[PatchkitError] = []

    def check(kind: type[GateError], message: str, where: str, broken: Iterator[str]) -> None:
        examples = list(broken)
        if examples:
            problems.append(finding(kind, f"{arch}: {message}", examples, where=where, hint=hint))

    check(SupportLost, "attention of our own cases is no longer supported", _SELECTION, _lost(pairs))
    check(NothingLaunched, "a supported case launches no attention kernel", _SELECTION, _silent(pairs))
    if DECODE_PATCH in guarded.patches:
        check(DecodeOnWmma, "decode launches the WMMA kernel", _SELECTION, _decode_on(pairs, "wmma"))
        grouped = [pair for pair in pairs if grouping_applies(pair.case) and not pair.case.is_quantized]
        check(
            DecodeOnVec,
            "decode with f16 KV and grouped queries launches the vector kernel",
            _SELECTION,
            _decode_on([pair for pair in grouped if pair.case.type_k == "f16"], "vec"),
        )
    if TABLE_PATCH in guarded.patches:
        check(
            PrefillNotWmma,
            "prefill of a shape in the table does not launch the WMMA kernel",
            _SELECTION,
            _prefill_elsewhere(pairs, guarded),
        )
    check(
        FamilyChanged,
        "a case launches another attention kernel than before",
        _SELECTION,
        _changed(pairs, guarded),
    )
    check(
        FamilyKept,
        "a case still launches the attention kernel that a patch leaves",
        _SELECTION,
        _kept(pairs, guarded),
    )
    check(KernelMissing, "a launched kernel is not in its code object", _WMMA_UNIT, _missing(pairs, guarded))
    check(KernelTraps, "a launched kernel is a trap", _SELECTION, _trapping(pairs, guarded))
    for kind, message, rule in GEOMETRY_RULES:
        check(kind, message, _WMMA_UNIT, _geometry(pairs, guarded, rule))
    return problems


def _silent(pairs: Sequence[CasePair]) -> Iterator[str]:
    for pair in pairs:
        if pair.after.is_supported and not attention(pair.after):
            yield str(pair.case)


def _lost(pairs: Sequence[CasePair]) -> Iterator[str]:
    """Upstream's own cases are those that ``support`` lists; see :func:`check_support`."""
    for pair in pairs:
        if pair.case.is_own and pair.before.is_supported and not pair.after.is_supported:
            yield str(pair.case)


def _decode_on(pairs: Sequence[CasePair], family: str) -> Iterator[str]:
    for pair in pairs:
        for launch in attention(pair.after):
            if pair.case.is_decode and launch.kernel.family == family:
                yield f"{pair.case}: {launch.kernel.name}"


def _prefill_elsewhere(pairs: Sequence[CasePair], guarded: Guarded) -> Iterator[str]:
    """Batches of 1 and 2 tokens are left to the vector kernel where it applies."""
    sizes = {size for size, _, _ in guarded.rows}
    for pair in pairs:
        case = pair.case
        if case.tokens <= 2 or case.kv % KV_PADDING or case.head_size not in sizes:  # noqa: PLR2004
            continue
        for launch in attention(pair.after):
            if launch.kernel.family != "wmma":
                yield f"{case}: {launch.kernel.name}"


def _changed(pairs: Sequence[CasePair], guarded: Guarded) -> Iterator[str]:
    for pair in pairs:
        if pair.case.is_decode and DECODE_PATCH in guarded.patches:
            continue
        before = [launch.kernel.family for launch in attention(pair.before)]
        after = [launch.kernel.family for launch in attention(pair.after)]
        if any(move.allows(pair.case.head_size, before, after) for move in guarded.moves):
            continue
        if pair.before.is_supported and pair.after.is_supported and before != after:
            yield f"{pair.case}: {' '.join(before) or 'nothing'} -> {' '.join(after) or 'nothing'}"


def _kept(pairs: Sequence[CasePair], guarded: Guarded) -> Iterator[str]:
    for pair in pairs:
        size = pair.case.head_size
        left = {move.origin for move in guarded.moves if move.covers(size) and not move.may_stay}
        for launch in attention(pair.after):
            if launch.kernel.family in left:
                yield f"{pair.case}: {launch.kernel.name}"


def _missing(pairs: Sequence[CasePair], guarded: Guarded) -> Iterator[str]:
    for pair, launch in _launches(pairs):
        for unit in launch.kernel.units:
            if unit in guarded.code and launch.kernel.name.mangled not in guarded.code[unit]:
                yield f"{pair.case}: {launch.kernel.name} of {unit}"


def _trapping(pairs: Sequence[CasePair], guarded: Guarded) -> Iterator[str]:
    for pair, launch in _launches(pairs):
        if _is_trap(launch, guarded) and not _trapped_before(pair, guarded):
            yield f"{pair.case}: {launch.kernel.name}"


def _geometry(pairs: Sequence[CasePair], guarded: Guarded, rule: GeometryRule) -> Iterator[str]:
    for pair, launch in _launches(pairs):
        broken = rule(pair.case, launch, guarded)
        if broken is not None and not _broken_before(pair, launch, guarded, rule, broken):
            yield f"{pair.case}: {launch.kernel.name} {broken}"


def upstream_own(pairs: Sequence[CasePair], guarded: Guarded) -> list[Broken]:
    """What already breaks a rule in the baseline: shown, and no reason to fail."""
    found: list[Broken] = []
    baseline = guarded.before
    for pair in pairs:
        for launch in pair.before.section.launches:
            told = [(message, rule(pair.case, launch, baseline)) for _, message, rule in GEOMETRY_RULES]
            if _is_trap(launch, baseline):
                told.append(("a launch of a kernel that is a trap", ""))
            found += [
                Broken(message=message, case=pair.case, kernel=launch.kernel.name, how=how)
                for message, how in told
                if how is not None
            ]
    return found


def _is_trap(launch: Launch, guarded: Guarded) -> bool:
    code = code_of(launch, guarded.code)
    return code is not None and code.is_trap


def _trapped_before(pair: CasePair, guarded: Guarded) -> bool:
    return any(_is_trap(launch, guarded.before) for launch in pair.before.section.launches)


def _broken_before(pair: CasePair, launch: Launch, guarded: Guarded, rule: GeometryRule, broken: str) -> bool:
    """Whether the baseline breaks the same rule in the same way with the same kernel."""
    return any(
        rule(pair.case, old, guarded.before) == broken
        for old in pair.before.section.launches
        if old.kernel.name == launch.kernel.name
    )


def _launches(pairs: Sequence[CasePair]) -> Iterator[tuple[CasePair, Launch]]:
    for pair in pairs:
        for launch in pair.after.section.launches:
            yield pair, launch
