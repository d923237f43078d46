"""Gate ``resources``: no kernel variant needs more resources than its patch declares.

The compiler reports registers, spills, scratch, LDS and waves per SIMD of every kernel of every touched unit,
in both trees. By default no variant may spill more or lose waves, and no new variant may appear.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, get_args

from patchkit.base.errors import GateError, Location, PatchkitError
from patchkit.base.occupancy import HardwareLimits, limits_of, reported_waves, resident_waves
from patchkit.base.process import run_tool
from patchkit.base.report.blocks import Block, Row, Table, columns, was_is
from patchkit.base.reporter import Reporter
from patchkit.base.text import counted
from patchkit.carry.series.promises import NOTHING_WORSE, Allowance
from patchkit.gpu.emulated.kernel_labels import label_kernel
from patchkit.prove.gates.base import Count, Evidence, GateResult, Many, Record, RunSetup
from patchkit.prove.gates.touched import CompiledPair, compile_touched, unpaired_units
from patchkit.prove.subject import Subject
from patchkit.toolchain.compile import CompiledKernel, CompiledUnit
from patchkit.toolchain.compiler import open_compiler
from patchkit.toolchain.hip import Toolchain, llvm_tool

VariantState = Literal["worse", "mixed", "pruned", "gone", "better", "new", "same", "trap"]
STATES: tuple[VariantState, ...] = get_args(VariantState)
"""What can happen to a variant, in the order in which a reader wants them."""


class Figures(Record):
    """The figures of one side: registers per lane, bytes per block, waves per SIMD, threads per block."""

    vgprs: Count
    sgprs: Count
    vgpr_spills: Count
    sgpr_spills: Count
    scratch_bytes: Count
    lds_bytes: Count
    threads: Count
    waves: Count
    model_waves: Count
    resident_waves: Count
    is_trap: bool


class KernelRow(Record):
    """One variant in one unit on one GPU; a side is None if the variant does not exist there."""

    unit: str
    arch: str
    variant: str
    before: Figures | None = None
    after: Figures | None = None
    state: VariantState

    @property
    def was(self) -> Figures | None:
        """The baseline's figures; None for a trap, which is not a real kernel to compare with."""
        return _unless_trap(self.before)

    @property
    def now(self) -> Figures | None:
        """The candidate's figures; None for a trap."""
        return _unless_trap(self.after)

    @property
    def kernel(self) -> str:
        """The name without template arguments."""
        return self.variant.split("<")[0]

    @property
    def more_spills(self) -> int:
        """How many more VGPRs are spilled than before."""
        return self.now.vgpr_spills - self.was.vgpr_spills if self.was and self.now else 0

    @property
    def fewer_waves(self) -> int:
        """How many of the reported waves are lost."""
        return self.was.waves - self.now.waves if self.was and self.now else 0

    @property
    def disagreements(self) -> tuple[str, ...]:
        """Where patchkit's occupancy model differs from the compiler."""
        sides = (("baseline", self.before), ("candidate", self.after))
        return tuple(
            f"{self.variant} ({side}): the model computes {one.model_waves} waves, the compiler {one.waves}"
            for side, one in sides
            if one is not None and one.waves != one.model_waves
        )


class ResourcesEvidence(Evidence):
    """Every variant of every kernel of every touched unit."""

    rows: Many[KernelRow]

    def blocks(self) -> Iterator[Block]:
        """A table of the variants that changed, and one of the others."""
        quiet = [row for row in self.rows if row.state in _QUIET]
        changed = [row for row in self.rows if row.state not in _QUIET]
        yield _table("kernels", "Kernel variants that changed, baseline -> candidate", changed)
        if quiet:
            yield _table(
                "kernels-unchanged",
                "Kernel variants that did not change, and traps",
                quiet,
                is_detail=True,
            )


def kernel_rows(
    before: CompiledUnit, after: CompiledUnit, names: Mapping[str, str], limits: HardwareLimits
) -> list[KernelRow]:
    """Every kernel of a unit, in the compiler's order: the baseline's first, then new ones."""
    old = {kernel.name: _figures(kernel, limits) for kernel in before.kernels}
    new = {kernel.name: _figures(kernel, limits) for kernel in after.kernels}
    return [
        KernelRow(
            unit=after.unit,
            arch=after.arch,
            variant=variant_of(names.get(name, name)),
            before=old.get(name),
            after=new.get(name),
            state=_state(old.get(name), new.get(name)),
        )
        for name in dict.fromkeys([*old, *new])
    ]


def _state(before: Figures | None, after: Figures | None) -> VariantState:
    was, now = _unless_trap(before), _unless_trap(after)
    if was is None:
        return "new" if now is not None else "trap"
    if now is None:
        return "pruned" if after is not None else "gone"
    spills, waves = now.vgpr_spills - was.vgpr_spills, now.waves - was.waves
    is_worse, is_better = spills > 0 or waves < 0, spills < 0 or waves > 0
    if is_worse and is_better:
        return "mixed"
    return "worse" if is_worse else "better" if is_better else "same"


def _unless_trap(figures: Figures | None) -> Figures | None:
    return None if figures is None or figures.is_trap else figures


def demangle(names: Iterable[str], toolchain: Toolchain, reporter: Reporter) -> dict[str, str]:
    """Demangled names by mangled ones; unchanged if the compiler's LLVM has no demangler."""
    wanted = list(dict.fromkeys(names))
    tool = llvm_tool(toolchain, "llvm-cxxfilt", reporter) if wanted else None
    if tool is None:
        return {name: name for name in wanted}
    out = run_tool([str(tool)], stdin="\n".join([*wanted, ""]).encode(), reporter=reporter).stdout
    return dict(zip(wanted, out.decode("utf-8", "replace").splitlines(), strict=True))


def variant_of(name: str) -> str:
    """``flash_attn_tile<64, 64, 2>`` of ``void flash_attn_tile<64, 64, 2>(char const*, int)``."""
    text = name.removeprefix("void ").removeprefix("(anonymous namespace)::")
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0:
            return text[:at]
    return text


def _figures(kernel: CompiledKernel, limits: HardwareLimits) -> Figures:
    seen = kernel.figures
    return Figures(
        vgprs=seen.vgprs,
        sgprs=seen.sgprs,
        vgpr_spills=seen.vgpr_spills,
        sgpr_spills=seen.sgpr_spills,
        scratch_bytes=seen.scratch_bytes,
        lds_bytes=seen.lds_bytes,
        threads=kernel.threads,
        waves=seen.waves,
        model_waves=reported_waves(seen.vgprs, seen.lds_bytes, kernel.threads, limits),
        resident_waves=resident_waves(seen.vgprs, seen.lds_bytes, kernel.threads, limits),
        is_trap=kernel.is_trap,
    )


_QUIET = ("same", "trap")
_FIGURES = (
    ("VGPRs #", "vgprs"),
    ("spilled #", "vgpr_spills"),
    ("waves #", "waves"),
    ("resident #", "resident_waves"),
    ("LDS #", "lds_bytes"),
    ("threads #", "threads"),
    ("scratch #", "scratch_bytes"),
    ("SGPRs #", "sgprs"),
    ("modelled #", "model_waves"),
)


def _table(name: str, caption: str, rows: Sequence[KernelRow], *, is_detail: bool = False) -> Table:
    ordered = sorted(rows, key=_importance)
    return Table(
        name=name,
        caption=caption,
        columns=columns("state", "variant", "GPU", *(title for title, _ in _FIGURES), "unit"),
        rows=tuple(
            Row(
                cells=(
                    *(row.state, label_kernel(row.variant), row.arch),
                    *(_cell(row, name) for _, name in _FIGURES),
                    row.unit.rpartition("/")[2],
                ),
            )
            for row in ordered
        ),
        note=(
            "Registers per lane, LDS in bytes per block, scratch in bytes per lane, waves per SIMD: from the "
            "compiler. 'resident' (only whole blocks) and 'modelled' are waves computed by patchkit. A new "
            "variant was a trap before."
        ),
        is_detail=is_detail,
    )


_VGPRS, _LDS_BYTES = 256, 65536  # what a wave addresses and a block gets: the scale on which changes compare


def _change(row: KernelRow) -> float:
    """The change in registers and LDS, as a share of what a kernel can have; a new kernel counts fully."""
    if row.was is None or row.now is None:
        return sum(
            side.vgprs / _VGPRS + side.lds_bytes / _LDS_BYTES
            for side in (row.was, row.now)
            if side is not None  # hostile evidence may have neither
        )
    was, now = row.was, row.now
    return abs(now.vgprs - was.vgprs) / _VGPRS + abs(now.lds_bytes - was.lds_bytes) / _LDS_BYTES


def _cell(row: KernelRow, name: str) -> str:
    before, after = (None if side is None else int(getattr(side, name)) for side in (row.was, row.now))
    if after is None:
        return "-" if before is None else f"{before} -> none"
    return str(after) if before is None else was_is(before, after)


def _importance(row: KernelRow) -> tuple[int, int, int, str]:
    size = abs(row.more_spills) or _value(row, "vgpr_spills")
    return STATES.index(row.state), -size, -abs(row.fewer_waves), row.variant


def _value(row: KernelRow, name: str) -> int:
    """The figure now; if there is none, the figure before."""
    return getattr(row.now or row.was, name, 0)


_SHOWN_NEW = 6
_SHOWN_VARIANTS = 4  # of one kernel: a table of MMQ tiles changes hundreds of variants at once
_SHOWN_DISAGREEMENTS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourcesGate:
    """Compares the device pass of the touched units."""

    name: str = "resources"

    @classmethod
    def make(cls, _: RunSetup) -> ResourcesGate:
        """The gate of a run."""
        return cls()

    def run(self, subject: Subject) -> GateResult:
        """Compile both trees (or reuse cached results) and compare. Raises the errors of the compiler."""
        if subject.toolchain is None:
            return GateResult.without_compiler(self.name)
        compiler = open_compiler(subject.toolchain, subject.cache_root, subject.reporter)
        pairs = compile_touched(subject, compiler, ("device",))
        rows = _rows(pairs, subject)
        worse = list(_worse(rows, subject))
        problems = [*worse, *_pruned(rows, subject), *_undeclared(rows, subject)]
        failed = [pair.unit for pair in pairs if not isinstance(pair.after, CompiledUnit)]
        alone = unpaired_units(subject)
        missing = (
            *(f"{unit}: it does not compile (gate compile)" for unit in failed),
            *(
                f"{unit}: only the candidate has it, so there is no baseline to compare with"
                for unit in alone
            ),
        )
        return GateResult(
            gate=self.name,
            verdict="failed" if problems or failed else "not run" if alone else "passed",
            summary=_summary(rows, len(worse)),
            problems=tuple(problems),
            evidence=ResourcesEvidence(rows=tuple(rows)),
            not_run=missing,
            lines=tuple(_lines(rows)),
        )


def _rows(pairs: Sequence[CompiledPair], subject: Subject) -> list[KernelRow]:
    if subject.toolchain is None:
        return []
    done = [(pair, pair.after) for pair in pairs if isinstance(pair.after, CompiledUnit)]
    mangled = [
        kernel.name for pair, after in done for unit in (pair.before, after) for kernel in unit.kernels
    ]
    names = demangle(mangled, subject.toolchain, subject.reporter)
    rows: list[KernelRow] = []
    for pair, after in done:
        rows += kernel_rows(pair.before, after, names, limits_of(subject.profiles[pair.arch]))
    return rows


def _allowance_for(row: KernelRow, subject: Subject) -> Allowance:
    """The largest allowances of all patches that name the kernel; if none does, nothing may get worse."""
    allowances = (patch.patch.resources.allowance(row.kernel) for patch in subject.patches)
    given = [each for each in allowances if each is not None]
    if not given:
        return NOTHING_WORSE
    return Allowance(
        kernels=(row.kernel,),
        more_spills=max(each.more_spills for each in given),
        fewer_waves=max(each.fewer_waves for each in given),
        why="; ".join(each.why for each in given),
    )


def _worse(rows: Sequence[KernelRow], subject: Subject) -> Iterator[PatchkitError]:
    for row in rows:
        allowed = _allowance_for(row, subject)
        if row.state not in {"worse", "mixed"}:
            continue
        found = []
        if row.more_spills > allowed.more_spills:
            found.append(f"spills {row.more_spills} more VGPRs")
        if row.fewer_waves > allowed.fewer_waves:
            found.append(f"loses {row.fewer_waves} waves per SIMD")
        if found:
            yield GateError(
                f"{row.variant} on {row.arch} {' and '.join(found)}: {_row_text(row)}",
                code="RESOURCES_WORSE",
                where=Location(path=row.unit, label=_blame(subject, row)),
                why=f"allowed: {allowed.more_spills} more spills, {allowed.fewer_waves} fewer waves"
                + (f" ({allowed.why})" if allowed.why else " (the default)"),
                hint="change values in the profile, or allow it with a reason in [resources] of patch.toml",
            )


def _pruned(rows: Sequence[KernelRow], subject: Subject) -> Iterator[PatchkitError]:
    for state, what in (("pruned", "is only a trap"), ("gone", "is missing")):
        lost = [row for row in rows if row.state == state]
        if lost:
            yield GateError(
                f"{lost[0].variant} on {lost[0].arch} {what} in the candidate"
                + (f", and {len(lost) - 1} more" if len(lost) > 1 else ""),
                code="RESOURCES_PRUNED",
                where=Location(path=lost[0].unit, label=_blame(subject, lost[0])),
                why="the baseline has code for it, which upstream's host code may launch",
                hint="patchkit diff shows which change removed it",
            )


def _undeclared(rows: Sequence[KernelRow], subject: Subject) -> Iterator[PatchkitError]:
    patterns = [pattern for patch in subject.patches for pattern in patch.patch.resources.new_kernels]
    extra = [
        row
        for row in rows
        if row.state == "new" and not any(fnmatchcase(row.variant, pattern) for pattern in patterns)
    ]
    if extra:
        yield GateError(
            f"{len(extra)} new kernels that no patch declares, for example {extra[0].variant}",
            code="RESOURCES_UNDECLARED_KERNELS",
            where=Location(path=extra[0].unit, label=_blame(subject, extra[0])),
            why="each costs compile time and binary size; kernels that are never launched must stay pruned"
            + (f" (declared: {', '.join(patterns)})" if patterns else ""),
            hint="declare them as new_kernels in [resources] of patch.toml, or keep them pruned",
        )


def _blame(subject: Subject, row: KernelRow) -> str:
    """The patches that change the unit itself; if none does, all patches, because a header changed."""
    own = subject.patches_of(row.unit)
    return ", ".join(own or [patch.id for patch in subject.patches])


def _summary(rows: Sequence[KernelRow], refused: int) -> str:
    count = {state: sum(row.state == state for row in rows) for state in ("worse", "mixed", "better", "new")}
    before = [row.was for row in rows if row.was]
    kept = [row.after for row in rows if row.was and row.after]
    spilled = (_spilling(before), _spilling(kept))
    odd = sum(len(row.disagreements) for row in rows)
    worse = count["worse"] + count["mixed"]
    allowed = f" ({worse - refused} allowed by a patch)" if worse > refused else ""
    new = _spilling([row.after for row in rows if row.state == "new" and row.after])
    added = f", plus {new[1]} in {counted(new[0], 'new variant')}" if new[0] else ""
    return (
        f"{len(rows)} kernels: {worse} worse{allowed}, {count['better']} better, "
        f"{count['new']} new; spilling variants {spilled[0][0]} -> {spilled[1][0]}, "
        f"spilled VGPRs {spilled[0][1]} -> {spilled[1][1]}{added}; "
        f"occupancy model and compiler {'agree on all' if not odd else f'disagree on {odd}'}"
    )


def _spilling(figures: Sequence[Figures]) -> tuple[int, int]:
    spilled = [one.vgpr_spills for one in figures if one.vgpr_spills]
    return len(spilled), sum(spilled)


def _lines(rows: Sequence[KernelRow]) -> Iterator[str]:
    for state, order in (("worse", 1), ("mixed", 1), ("better", -1)):
        chosen = [row for row in rows if row.state == state]
        chosen.sort(key=lambda row: (order * row.more_spills, order * row.fewer_waves), reverse=True)
        by_kernel: dict[str, list[KernelRow]] = {}
        for row in chosen:
            by_kernel.setdefault(row.kernel, []).append(row)
        for kernel, variants in by_kernel.items():
            for row in variants[:_SHOWN_VARIANTS]:
                yield f"{state:<7}{label_kernel(row.variant)} on {row.arch}: {_row_text(row)}"
            if rest := variants[_SHOWN_VARIANTS:]:
                yield f"{state:<7}{kernel}: {len(rest)} more variants, in the evidence"
    new = [row for row in rows if row.state == "new" and row.after is not None]
    if new:
        spilled = _spilling([row.after for row in new if row.after])
        yield f"new    {len(new)} variants (traps before): {spilled[0]} spill, {spilled[1]} VGPRs in total"
        worst = sorted(new, key=lambda row: row.after.vgpr_spills if row.after else 0, reverse=True)
        yield from (
            f"new    {label_kernel(row.variant)} on {row.arch}: {_row_text(row)}"
            for row in worst[:_SHOWN_NEW]
        )
        if rest := worst[_SHOWN_NEW:]:
            yield f"new    {len(rest)} more variants, in the evidence"
    same = sum(row.state == "same" for row in rows)
    traps = sum(row.state == "trap" for row in rows)
    yield f"same   {same} variants; {traps} are still traps"
    odd = [text for row in rows for text in row.disagreements]
    yield from (f"model  {text}" for text in odd[:_SHOWN_DISAGREEMENTS])
    if len(odd) > _SHOWN_DISAGREEMENTS:
        yield f"model  {len(odd) - _SHOWN_DISAGREEMENTS} more disagreements in the evidence"


def _row_text(row: KernelRow) -> str:
    sides = [one for one in (row.was, row.now) if one is not None]
    parts = (
        ("VGPR", [one.vgprs for one in sides]),
        ("spilled", [one.vgpr_spills for one in sides]),
        ("LDS", [one.lds_bytes for one in sides]),
        ("waves", [one.waves for one in sides]),
        ("resident", [one.resident_waves for one in sides]),
    )
    return ", ".join(f"{name} {was_is(values[0], values[-1])}" for name, values in parts if values)
