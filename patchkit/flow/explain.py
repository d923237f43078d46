"""Which attention kernel a shape gets, before and after the patches, why, and what it uses.

Vocabulary: a *side* is the baseline or the candidate; an *account* is one side's decisions, launches and
what the compiler says about the launched kernels. Everything is read off the real code: it runs on the
launch recorder, and the units of the kernels that ran are compiled for the GPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from patchkit.build.compile import CompiledKernel, Job, compile_unit
from patchkit.build.compiler import Compiler, open_compiler
from patchkit.build.parallel import run_parallel
from patchkit.build.sources import SourceTree
from patchkit.build.toolchain import find_toolchain, rocwmma_for
from patchkit.config.lock import PinWanted, load_lock
from patchkit.config.profile import load_profile
from patchkit.flow.candidates import find_candidate
from patchkit.flow.subject import make_subject
from patchkit.flow.workspace import Workspace
from patchkit.gates.subject import Subject
from patchkit.recorder.backend import RecordedBackend, build_backend
from patchkit.recorder.branches import Decision
from patchkit.recorder.cases import Case
from patchkit.recorder.device import device_of
from patchkit.recorder.log import Launch
from patchkit.recorder.selection import Selection, select
from patchkit.recorder.session import Figures

Side = str
_SIDES: tuple[Side, Side] = ("before", "after")


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """One side. ``code`` maps mangled names of launched kernels to what the compiler made of them."""

    side: Side
    selection: Selection
    code: Mapping[str, CompiledKernel]

    def as_json(self) -> dict[str, object]:
        """Plain data."""
        return {
            "side": self.side,
            "supported": self.selection.is_supported,
            "decisions": [decision.as_json() for decision in self.selection.decisions],
            "launches": [self._launch_json(launch) for launch in self.selection.launches],
        }

    def _launch_json(self, launch: Launch) -> dict[str, object]:
        code = self.code.get(launch.kernel.name.mangled)
        row = {**launch.as_json(), "family": launch.kernel.family, "units": list(launch.kernel.units)}
        if code is not None:
            row |= {
                "vgprs": code.figures.vgprs,
                "sgprs": code.figures.sgprs,
                "vgpr_spills": code.figures.vgpr_spills,
                "static_lds": code.figures.lds_bytes,
                "waves_per_simd": code.figures.waves,
                "is_trap": code.is_trap,
            }
        return row


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Both sides of one case on one GPU."""

    arch: str
    branch: str
    case: Case
    tools: str
    accounts: tuple[Account, Account]

    @property
    def turn(self) -> tuple[Decision, Decision] | None:
        """The first decision that came out otherwise, before and after; None when both end alike."""
        before, after = (account.selection.decisions for account in self.accounts)
        if not before or not after or before[-1].text == after[-1].text:
            return None
        for old, new in zip(before, after, strict=False):
            if (old.kind, old.outcome) != (new.kind, new.outcome):
                return old, new
        return before[-1], after[-1]

    def as_json(self) -> dict[str, object]:
        """Plain data."""
        turn = self.turn
        return {
            "arch": self.arch,
            "branch": self.branch,
            "case": str(self.case),
            "tools": self.tools,
            "turn": {"before": turn[0].as_json(), "after": turn[1].as_json()} if turn is not None else None,
            "accounts": [account.as_json() for account in self.accounts],
        }


def explain_case(
    workspace: Workspace, *, arch: str, case: Case, upstream: PinWanted, environ: Mapping[str, str]
) -> Explanation:
    """Run one case on both trees of the candidate for ``arch``.

    Raises:
        ARCH_UNKNOWN, ARCH_GENERIC: there is no such profile.
        CANDIDATE_MISSING, CANDIDATE_BROKEN: there is nothing to explain.
        ToolchainMissing: there is no compiler.
        ToolchainError: upstream or the recorder does not build, or the executed code cannot be told.
    """
    pin = load_lock(workspace.series.lock).pin(upstream)
    load_profile(workspace.series.profiles, arch)  # a misspelt name is no missing candidate
    repository, candidate = find_candidate(workspace, (arch,), pin)
    toolchain = find_toolchain(workspace.cache_root, environ, workspace.reporter)
    subject = make_subject(workspace, repository, candidate, toolchain)
    compiler = open_compiler(toolchain, workspace.cache_root, workspace.reporter)
    rocwmma = rocwmma_for(toolchain, arch)
    told = "none" if rocwmma is None else f"{rocwmma.version} ({rocwmma.kind})"
    before, after = (
        _account(side, SourceTree(root), subject, arch, case, compiler)
        for side, root in zip(_SIDES, (subject.baseline, subject.candidate), strict=True)
    )
    return Explanation(
        arch=arch,
        branch=candidate.branch,
        case=case,
        tools=f"clang {toolchain.clang_version}, HIP headers {toolchain.hip_version}, rocWMMA {told}",
        accounts=(before, after),
    )


def _account(
    side: Side, tree: SourceTree, subject: Subject, arch: str, case: Case, compiler: Compiler
) -> Account:
    """Twice: to learn which units the kernels are in, then with what these kernels really use."""
    compiler.reporter.step(f"{side} the patches: recording")
    backend = build_backend(tree, compiler, arch)
    device = device_of(subject.profiles[arch])
    root = subject.cache_root
    first = select(case, backend.session(device, {}, root, compiler), backend, compiler)
    code = _code(first.launches, backend, arch, compiler)
    figures = {
        name: Figures(vgprs=kernel.figures.vgprs, lds=kernel.figures.lds_bytes)
        for name, kernel in code.items()
    }
    selection = select(case, backend.session(device, figures, root, compiler), backend, compiler)
    return Account(side=side, selection=selection, code=code)


def _code(
    launches: Sequence[Launch], backend: RecordedBackend, arch: str, compiler: Compiler
) -> dict[str, CompiledKernel]:
    """The launched kernels of attention units, compiled for the GPU."""
    wanted = {launch.kernel.name.mangled for launch in launches}
    units = sorted(
        {
            unit
            for launch in launches
            if launch.kernel.name.base.startswith("flash_attn")
            for unit in launch.kernel.units
        }
    )
    has_rocwmma = rocwmma_for(compiler.toolchain, arch) is not None
    made = run_parallel(
        units,
        lambda unit: compile_unit(
            Job(tree=backend.tree, unit=unit, arch=arch, which="device", rocwmma=has_rocwmma), compiler
        ),
        reporter=compiler.reporter,
        what="compiling the launched kernels",
        unit="units",
        stop=compiler.stop,
    )
    return {kernel.name: kernel for unit in made for kernel in unit.kernels if kernel.name in wanted}
