"""What may be published of a verified candidate, according to the policy of the series."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from patchkit.base.errors import ExitCode, GateError, PatchkitError
from patchkit.base.series_folder import PLAIN
from patchkit.base.verdict import EMULATED
from patchkit.prove.gates.base import DeviceEvidence, GateResult
from patchkit.prove.gates.registry import entries, ladder_of
from patchkit.prove.verify.policy import GatePolicy
from patchkit.prove.verify.run import Report

_NOT_ENOUGH = "passed on the emulated GPU, but the policy requires hardware"


class PublishNothing(PatchkitError):
    """The candidate has no patch: it is upstream's own tree, so there is nothing to prove."""

    code = "PUBLISH_NOTHING"
    exit_code = ExitCode.NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishDecision:
    """``passed`` gates, ``emulated`` ones with the emulated GPU, ``not_run`` ones with the reason.

    ``missing`` are required gates that did not run, or not on the hardware that the policy requires.
    ``needs_hardware`` are required gates that passed only on an emulated GPU. ``plain``: the candidate is for
    no GPU, so no gate needs one.
    """

    passed: tuple[str, ...]
    emulated: tuple[tuple[str, str], ...] = ()
    not_run: tuple[tuple[str, str], ...]
    missing: tuple[str, ...]
    needs_hardware: tuple[str, ...] = ()
    plain: bool = False

    @property
    def proven(self) -> bool:
        """Whether every required gate passed on the hardware that the policy requires."""
        return not self.missing

    @property
    def proof(self) -> Literal["hardware", "emulated", "unproven", "plain"]:
        """How the required gates passed, or ``unproven``."""
        if self.missing:
            return "unproven"
        if self.plain:
            return "plain"
        return "emulated" if self.needs_hardware else "hardware"

    @property
    def with_evidence(self) -> tuple[str, ...]:
        """All gates that passed, on hardware or emulated."""
        return (*self.passed, *(name for name, _ in self.emulated))

    def branch(self, archs: Sequence[str], pin: str) -> str:
        """The short branch name. A branch with less proof has a name of its own and never moves the other."""
        ending = f"-{self.proof}" if self.proof in ("emulated", "unproven") else ""
        return f"patchkit/{'+'.join(archs)}/{pin}{ending}"


def decide(report: Report, policy: GatePolicy, *, accept_not_run: bool) -> PublishDecision:
    """Decide what may be published.

    A gate that is not in the report counts as not run, so that omissions prove nothing.

    Raises:
        PublishNothing: the candidate has no patch, regardless of ``accept_not_run``.
        PUBLISH_GATE_FAILED: a gate failed, required or not.
        PUBLISH_NOT_PROVEN: a required gate did not run, or not on the hardware that the policy requires, and
            ``accept_not_run`` is not given or the gate needs no GPU.
    """
    if report.nothing is not None:
        raise PublishNothing(
            f"{report.branch} has no patch; nothing was published",
            why="it is upstream's own tree; only patches with their proof are published",
            hint=report.nothing.sentence,
        )
    results = {gate.gate: gate for gate in report.gates}
    if report.stopped is not None:
        raise GateError(
            f"the run was interrupted ({report.stopped}); nothing was published",
            code="PUBLISH_GATE_FAILED",
            hint=f"results up to there are in {report.folder}",
        )
    failed = [name for name, result in results.items() if result.verdict == "failed"]
    if failed:
        raise GateError(
            f"{', '.join(failed)} failed; nothing was published",
            code="PUBLISH_GATE_FAILED",
            why="a candidate with a failed gate is never published",
            hint=f"the evidence is in {report.folder}",
        )
    # Gates on the CPU backend have names of their own; they are listed and prove nothing about required
    # gates.
    is_plain = tuple(report.archs) == (PLAIN,)
    ladder = ladder_of(report.archs)
    names = (*ladder, *(name for name in results if name not in ladder))
    passed = tuple(name for name in names if name in results and results[name].verdict == "passed")
    emulated = tuple(
        (name, _emulated_on(results[name]))
        for name in names
        if name in results and results[name].verdict == EMULATED
    )
    on_emulated = {name for name, _ in emulated}
    not_run = tuple(
        (name, results[name].summary if name in results else "no result in the report")
        for name in ladder
        if name not in passed and name not in on_emulated
    )
    only_emulated = [(name, _NOT_ENOUGH) for name, _ in emulated if name in policy.hardware]
    open_ones = [*not_run, *only_emulated]
    missing = tuple(name for name in ladder if name in policy.required and name in dict(open_ones))
    # cpu-build and cpu-tests need this machine's compiler, which may be missing.
    unproven = [each.name for each in entries("anywhere") if each.name in missing and not each.plain_only]
    if unproven or (missing and not accept_not_run):
        where = " on the required hardware" if only_emulated and not unproven else ""
        lacks = "the tools that they need" if is_plain else "the GPU"
        hint = f"run them on a machine with {lacks}, or add --accept-not-run, which publishes the branch "
        raise GateError(
            f"required gates did not run{where}: {', '.join(unproven or missing)}; nothing was published",
            code="PUBLISH_NOT_PROVEN",
            why="; ".join(f"{name}: {why}" for name, why in open_ones if name in (unproven or missing)),
            hint="they need no GPU: patchkit verify --no-gpu, without --gate"
            if unproven
            else f"{hint}with 'unproven' in its name",
        )
    return PublishDecision(
        passed=passed,
        emulated=emulated,
        not_run=not_run,
        missing=missing,
        needs_hardware=tuple(name for name in policy.required if name in on_emulated),
        plain=is_plain,
    )


def _emulated_on(result: GateResult) -> str:
    """The emulated GPU according to the gate's evidence."""
    evidence = result.evidence
    on = evidence.emulated if isinstance(evidence, DeviceEvidence) else None
    return "emulated" if on is None else str(on)
