"""What may be published of a verified candidate, by the policy of the series."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from patchkit.base.errors import ExitCode, GateError, PatchkitError
from patchkit.base.series_folder import PLAIN
from patchkit.base.upstreams import build_name
from patchkit.base.verdict import EMULATED
from patchkit.prove.gates.base import DeviceEvidence, GateResult
from patchkit.prove.gates.registry import entries, ladder_of
from patchkit.prove.verify.policy import GatePolicy
from patchkit.prove.verify.run import Report

_NOT_ENOUGH = "passed on the emulated GPU, and the policy asks for hardware"


class PublishNothing(PatchkitError):
    """The candidate has no patch: it is upstream's own tree, of which nothing can be proven."""

    code = "PUBLISH_NOTHING"
    exit_code = ExitCode.NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """``passed`` gates, ``emulated`` ones with the GPU that was, ``not_run`` ones with the reason.

    ``missing`` are required ones that did not run, or not on the hardware that the policy asks for;
    ``needs_hardware`` are required ones that nothing but an emulated GPU passed. ``plain``: the candidate is
    for no GPU, so that no gate needs one.
    """

    passed: tuple[str, ...]
    emulated: tuple[tuple[str, str], ...] = ()
    not_run: tuple[tuple[str, str], ...]
    missing: tuple[str, ...]
    needs_hardware: tuple[str, ...] = ()
    plain: bool = False

    @property
    def proven(self) -> bool:
        """Whether every required gate passed, each where the policy asks for it."""
        return not self.missing

    @property
    def proof(self) -> Literal["hardware", "emulated", "unproven", "plain"]:
        """How the required gates passed, if all did."""
        if self.missing:
            return "unproven"
        if self.plain:
            return "plain"
        return "emulated" if self.needs_hardware else "hardware"

    @property
    def with_evidence(self) -> tuple[str, ...]:
        """The gates that passed, wherever."""
        return (*self.passed, *(name for name, _ in self.emulated))

    def branch(self, archs: Sequence[str], build: int) -> str:
        """The short name; those with less proof stand beside the one of hardware, and never move it."""
        ending = f"-{self.proof}" if self.proof in ("emulated", "unproven") else ""
        return f"patchkit/{'+'.join(archs)}/{build_name(build)}{ending}"


def decide(report: Report, policy: GatePolicy, *, accept_not_run: bool) -> Decision:
    """What may be published.

    A gate that the report does not know did not run: a report never proves by leaving something out.

    Raises:
        PublishNothing: the candidate has no patch, whatever is accepted.
        PUBLISH_GATE_FAILED: a gate failed, required or not.
        PUBLISH_NOT_PROVEN: a required gate did not run, or not on the hardware that the policy asks for, and
            ``accept_not_run`` is not given, or it is one that needs no GPU.
    """
    if report.nothing is not None:
        raise PublishNothing(
            f"{report.branch} has no patch; nothing was published",
            why="it is upstream's own tree, and what is published is patches and what was proven of them",
            hint=report.nothing.sentence,
        )
    results = {gate.gate: gate for gate in report.gates}
    if report.stopped is not None:
        raise GateError(
            f"the run ended in the middle ({report.stopped}); nothing was published",
            code="PUBLISH_GATE_FAILED",
            hint=f"what it found until then lies in {report.folder}",
        )
    failed = [name for name, result in results.items() if result.verdict == "failed"]
    if failed:
        raise GateError(
            f"{', '.join(failed)} failed; nothing was published",
            code="PUBLISH_GATE_FAILED",
            why="a branch is what passed, and a failed gate is never accepted",
            hint=f"the evidence lies in {report.folder}",
        )
    # Gates on the CPU backend, under names of their own, are told, and prove nothing of the ladder.
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
        (name, results[name].summary if name in results else "no such result")
        for name in ladder
        if name not in passed and name not in on_emulated
    )
    only_emulated = [(name, _NOT_ENOUGH) for name, _ in emulated if name in policy.hardware]
    open_ones = [*not_run, *only_emulated]
    missing = tuple(name for name in ladder if name in policy.required and name in dict(open_ones))
    # What plain patches change is built by this machine's compiler, and there may be none.
    left_out = [each.name for each in entries("anywhere") if each.name in missing and not each.plain_only]
    if left_out or (missing and not accept_not_run):
        where = " where the policy asks for it" if only_emulated and not left_out else ""
        lacks = "what they need" if is_plain else "the GPU"
        hint = f"run them on a machine with {lacks}, or add --accept-not-run, which publishes "
        raise GateError(
            f"required gates did not run{where}: {', '.join(left_out or missing)}; nothing was published",
            code="PUBLISH_NOT_PROVEN",
            why="; ".join(f"{name}: {why}" for name, why in open_ones if name in (left_out or missing)),
            hint="they need no GPU: patchkit verify --no-gpu, without --gate"
            if left_out
            else f"{hint}the name with 'unproven' in it",
        )
    return Decision(
        passed=passed,
        emulated=emulated,
        not_run=not_run,
        missing=missing,
        needs_hardware=tuple(name for name in policy.required if name in on_emulated),
        plain=is_plain,
    )


def _emulated_on(result: GateResult) -> str:
    """What emulated the GPU, as the gate's evidence says."""
    evidence = result.evidence
    on = evidence.emulated if isinstance(evidence, DeviceEvidence) else None
    return "emulated" if on is None else str(on)
