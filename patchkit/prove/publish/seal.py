"""The seal: a commit on top of a candidate that changes no file and records what was proven."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from patchkit.carry.series.lock import Pin
from patchkit.carry.upstream.refs import read_ref
from patchkit.carry.upstream.repository import Repository
from patchkit.prove.publish.decision import PublishDecision
from patchkit.prove.verify.run import Report

_WIDTH = 72
_KEYS = (
    "Patchkit-Candidate",
    "Gate-Passed",
    "Gate-Emulated",
    "Gate-Not-Run",
    "Patchkit-Evidence",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """The content of a seal."""

    report: Report
    decision: PublishDecision
    pin: Pin

    @property
    def emulated(self) -> tuple[str, ...]:
        """The values of the ``Gate-Emulated`` trailers."""
        return tuple(f"{name} ({where})" for name, where in self.decision.emulated)

    @property
    def not_run(self) -> tuple[str, ...]:
        """The values of the ``Gate-Not-Run`` trailers."""
        return tuple(f"{name} ({' '.join(why.split())})" for name, why in self.decision.not_run)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """An existing seal: its commit, the evidence that it names, and the signed tag on it."""

    tip: str
    evidence_ref: str
    evidence: str
    tag: str | None


def seal_message(seal: Seal, evidence: str) -> str:
    """The commit message of the seal; ``evidence`` is the ref and hash of the evidence."""
    report, decision, pin = seal.report, seal.decision, seal.pin
    what = f"{len(decision.passed)} gates passed" if decision.proven else "unproven"
    if decision.proof == "emulated":
        what += f", {len(decision.emulated)} on the emulated GPU"
    subject = f"patchkit: {'+'.join(report.archs)} on {pin.name}, {what}"
    body = (
        "This commit changes no file. The commits below it are the patches; the evidence records what was "
        "proven about them, and how."
    )
    if decision.emulated:
        names = ", ".join(name for name, _ in decision.emulated)
        body += f" No GPU was used for {names}: their code ran on an emulated one, which has no speed."
    if not decision.proven:
        body += f" {' '.join(_missing(decision))}"
    trailers = [f"Patchkit-Candidate: {report.tip}", f"Patchkit-Tree: {report.tree}"]
    trailers += [f"Gate-Passed: {name}" for name in decision.passed]
    trailers += [f"Gate-Emulated: {line}" for line in seal.emulated]
    trailers += [f"Gate-Not-Run: {line}" for line in seal.not_run]
    trailers += [
        f"Patchkit-Evidence: {evidence}",
        f"Upstream-Commit: {pin.commit or report.base}",
    ]
    return "\n\n".join([subject, textwrap.fill(body, _WIDTH), "\n".join(trailers)]) + "\n"


def _missing(decision: PublishDecision) -> Iterator[str]:
    on_emulated = dict(decision.emulated)
    not_run = [name for name in decision.missing if name not in on_emulated]
    if not_run:
        yield f"Required but not run: {', '.join(not_run)}. Nothing is known about what they would find."
    only_emulated = [name for name in decision.missing if name in on_emulated]
    if only_emulated:
        yield f"Required on hardware but not run there: {', '.join(only_emulated)}."


def find_same(repository: Repository, tip: str | None, seal: Seal) -> Sealed | None:
    """The seal at ``tip``, if it records the same about the same candidate and its evidence still exists."""
    if tip is None:
        return None
    shape = "%x00".join(f"%(trailers:key={key},valueonly,separator=%x0A)" for key in _KEYS)
    out = repository.git.run("log", "-1", f"--format={shape}", tip, "--").decode("utf-8", "replace")
    found = tuple(tuple(part.strip().splitlines()) for part in out.split("\0"))
    if found[:-1] != ((seal.report.tip,), seal.decision.passed, seal.emulated, seal.not_run):
        return None
    ref, _, sha = "".join(found[-1]).partition(" ")
    if read_ref(repository, ref) != sha:
        return None
    tags = repository.git.run("tag", "--list", "--points-at", tip, "patchkit-*").decode("utf-8", "replace")
    return Sealed(tip=tip, evidence_ref=ref, evidence=sha, tag=next(iter(tags.split()), None))
