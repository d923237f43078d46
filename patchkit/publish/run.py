"""Publishing a verified candidate: one commit on top that says what was proven, one move of all refs.

Everything is written as objects first. Then the refs move, together, if they are where they were; whoever
stops before that moment leaves nothing but unused objects.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from patchkit.base.errors import ExitCode, GateError, GitError, Location, PatchkitError
from patchkit.candidate.find import Candidate, read_candidate
from patchkit.candidate.handover import Handover, hand_over
from patchkit.candidate.workspace import Workspace
from patchkit.gates.registry import gate_names
from patchkit.gates.verify import Report
from patchkit.publish.evidence import collect_evidence
from patchkit.publish.range_proof import prove_range
from patchkit.series.catalogue import GatePolicy, Series, load_series
from patchkit.series.lock import Pin, load_lock
from patchkit.upstream.cache import open_cache
from patchkit.upstream.commits import write_note_commit, write_orphan
from patchkit.upstream.git import redacted
from patchkit.upstream.push import Replaced, find_key, push_refs, user_setting, write_signed_tag
from patchkit.upstream.refs import list_refs, read_ref, update_refs
from patchkit.upstream.remote import RemoteUrlBad, checked_url
from patchkit.upstream.repository import Repository


class PublishNothing(PatchkitError):
    """The candidate has no patch: it is upstream's own tree, of which nothing can be proven."""

    code = "PUBLISH_NOTHING"
    exit_code = ExitCode.NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """``passed`` gates, ``not_run`` ones with the reason, and the required ones among those: ``missing``."""

    passed: tuple[str, ...]
    not_run: tuple[tuple[str, str], ...]
    missing: tuple[str, ...]

    @property
    def proven(self) -> bool:
        """Whether every required gate passed."""
        return not self.missing

    def branch(self, archs: Sequence[str], build: int) -> str:
        """The short name; the unproven one stands beside the other, and never moves it."""
        return f"patchkit/{'+'.join(archs)}/b{build}{'' if self.proven else '-unproven'}"


def decide(report: Report, policy: GatePolicy, *, accept_not_run: bool) -> Decision:
    """What may be published.

    A gate that the report does not know did not run: a report never proves by leaving something out.

    Raises:
        PublishNothing: the candidate has no patch, whatever is accepted.
        PUBLISH_GATE_FAILED: a gate failed, required or not.
        PUBLISH_NOT_PROVEN: a required gate did not run, and ``accept_not_run`` is not given, or it is one
            that needs no GPU.
    """
    if report.nothing is not None:
        raise PublishNothing(
            f"{report.branch} has no patch; nothing was published",
            why="it is upstream's own tree, and what is published is patches and what was proven of them",
            hint=report.nothing.sentence,
        )
    results = {gate.result.gate: gate.result for gate in report.gates}
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
    ladder = gate_names()
    names = (*ladder, *(name for name in results if name not in ladder))
    passed = tuple(name for name in names if name in results and results[name].verdict == "passed")
    not_run = tuple(
        (name, results[name].summary if name in results else "no such result")
        for name in ladder
        if name not in passed
    )
    missing = tuple(name for name, _ in not_run if name in policy.required)
    left_out = [name for name in missing if name in gate_names("anywhere")]
    if left_out or (missing and not accept_not_run):
        hint = "run them on a machine with the GPU, or add --accept-not-run, which publishes "
        raise GateError(
            f"required gates did not run: {', '.join(left_out or missing)}; nothing was published",
            code="PUBLISH_NOT_PROVEN",
            why="; ".join(f"{name}: {why}" for name, why in not_run if name in (left_out or missing)),
            hint="they need no GPU: patchkit verify --no-gpu, without --gate"
            if left_out
            else f"{hint}the name with 'unproven' in it",
        )
    return Decision(passed=passed, not_run=not_run, missing=missing)


_PUBLISHED = re.compile(r"refs/heads/patchkit/(?P<archs>[^/]+)/b(?P<build>[0-9]+)(?:-unproven)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedRange:
    """``trailers`` of the seal and ``files`` of the evidence; both empty without another pin."""

    trailers: tuple[str, ...]
    files: dict[str, bytes]


NO_RANGE = CarriedRange(trailers=(), files={})


def carry_range(repository: Repository, series: Series, report: Report, build: int) -> CarriedRange:
    """Prove the step from the pin published before; the nearest older one, else the nearest newer one.

    Raises:
        RangeProofFailed: one of the two differs outside of what its patches declare.
    """
    refs = list_refs(repository, "refs")
    candidate = _candidate(repository, report.archs, build, report.tip, refs)
    before = _nearest(repository, report.archs, build, refs)
    if before is None:
        return NO_RANGE
    proof = prove_range(repository, series, before, candidate)
    document = json.dumps(proof.as_json(), indent=1) + "\n"
    return CarriedRange(
        trailers=(f"Range-Proof: b{before.build} {before.tip}",),
        files={"range-proof.json": document.encode(), "range-diff.txt": proof.range_diff.encode()},
    )


def _nearest(
    repository: Repository, archs: tuple[str, ...], build: int, refs: dict[str, str]
) -> Candidate | None:
    found: dict[int, str] = {}
    for ref in refs:
        name = _PUBLISHED.fullmatch(ref)
        if name is not None and name["archs"] == "+".join(archs) and int(name["build"]) != build:
            # The longer name is the unproven one and sorts behind: the proven one stays.
            found.setdefault(int(name["build"]), ref)
    older = [one for one in found if one < build]
    nearest = max(older) if older else min(found, default=None)
    if nearest is None or f"refs/patchkit/pin/b{nearest}" not in refs:
        return None
    (sealed,) = repository.resolve(f"{found[nearest]}^")  # below the seal lies the candidate
    return _candidate(repository, archs, nearest, sealed, refs) if sealed is not None else None


def _candidate(
    repository: Repository, archs: tuple[str, ...], build: int, tip: str, refs: dict[str, str]
) -> Candidate:
    ref = f"refs/heads/candidate/{'+'.join(archs)}/b{build}"
    return read_candidate(repository, ref, {**refs, ref: tip})


_WIDTH = 72
_KEYS = ("Patchkit-Candidate", "Gate-Passed", "Gate-Not-Run", "Range-Proof", "Patchkit-Evidence")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """What a seal tells."""

    report: Report
    decision: Decision
    pin: Pin
    range: CarriedRange

    @property
    def not_run(self) -> tuple[str, ...]:
        """The values of the ``Gate-Not-Run`` trailers."""
        return tuple(f"{name} ({' '.join(why.split())})" for name, why in self.decision.not_run)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """A seal that exists: its commit and the evidence it names."""

    tip: str
    evidence_ref: str
    evidence: str


def seal_message(told: Seal, evidence: str) -> str:
    """The message of the seal; ``evidence`` is the ref and id of the evidence."""
    report, decision, pin = told.report, told.decision, told.pin
    what = f"{len(decision.passed)} gates passed" if decision.proven else "unproven"
    subject = f"patchkit: {'+'.join(report.archs)} on b{pin.build}, {what}"
    body = (
        "This commit changes no file. The commits below it are the patches; what was proven of them, with "
        "what and how, lies in the evidence."
    )
    if not decision.proven:
        body += (
            f" Required and not run: {', '.join(decision.missing)}. Nothing is known of what they would find."
        )
    trailers = [f"Patchkit-Candidate: {report.tip}", f"Patchkit-Tree: {report.tree}"]
    trailers += [f"Gate-Passed: {name}" for name in decision.passed]
    trailers += [f"Gate-Not-Run: {line}" for line in told.not_run]
    trailers += [
        *told.range.trailers,
        f"Patchkit-Evidence: {evidence}",
        f"Upstream-Commit: {pin.commit or report.base}",
    ]
    return "\n\n".join([subject, textwrap.fill(body, _WIDTH), "\n".join(trailers)]) + "\n"


def find_same(repository: Repository, tip: str | None, told: Seal) -> Sealed | None:
    """The seal at ``tip``, when it says the same of the same candidate and its evidence is still there."""
    if tip is None:
        return None
    shape = "%x00".join(f"%(trailers:key={key},valueonly,separator=%x0A)" for key in _KEYS)
    out = repository.git.run("log", "-1", f"--format={shape}", tip, "--").decode("utf-8", "replace")
    found = tuple(tuple(part.strip().splitlines()) for part in out.split("\0"))
    ranges = tuple(line.removeprefix("Range-Proof: ") for line in told.range.trailers)
    if found[:-1] != ((told.report.tip,), told.decision.passed, told.not_run, ranges):
        return None
    ref, _, sha = "".join(found[-1]).partition(" ")
    return Sealed(tip=tip, evidence_ref=ref, evidence=sha) if read_ref(repository, ref) == sha else None


_ID = 12  # hex digits of an object id in names


class PushRemoteBad(GitError):
    """``--push`` names no remote."""

    code = "PUSH_REMOTE_BAD"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishRequest:
    """What was asked for. ``sign`` None: if there is a key. ``upstream`` names the pin, as for verify."""

    accept_not_run: bool = False
    push: str | None = None
    force_push: bool = False
    sign: bool | None = None
    upstream: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What was published. ``before`` is where the branch was; ``unchanged``: it already said the same.

    A ``handover`` for ``git am`` has the candidate's commits only: the seal changes no file.
    """

    branch: str
    tip: str
    candidate: str
    before: str | None
    unchanged: bool
    evidence_ref: str
    evidence: str
    tag: str | None
    decision: Decision
    handover: Handover | None
    pushed_to: str | None = None
    replaced: tuple[Replaced, ...] = ()

    def as_json(self) -> dict[str, object]:
        """Plain data."""
        return {
            "branch": self.branch,
            "tip": self.tip,
            "candidate": self.candidate,
            "before": self.before,
            "unchanged": self.unchanged,
            "proven": self.decision.proven,
            "passed": list(self.decision.passed),
            "not_run": dict(self.decision.not_run),
            "evidence": {"ref": self.evidence_ref, "commit": self.evidence},
            "tag": self.tag,
            "handover": self.handover.as_json() if self.handover is not None else None,
            "pushed_to": self.pushed_to,
            "replaced": [{"ref": one.name, "old": one.old, "lost": list(one.lost)} for one in self.replaced],
        }


@dataclass(slots=True)
class _Stage:
    """What is true if the work is interrupted now."""

    text: str = "nothing was published"

    @contextmanager
    def noted(self) -> Iterator[None]:
        try:
            yield
        except KeyboardInterrupt as stop:
            stop.add_note(self.text)
            raise


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """Objects that exist, and the refs that are to name them."""

    tip: str
    evidence_ref: str
    evidence: str
    tag: str | None
    refs: Mapping[str, str] = field(default_factory=dict)


def check_request(request: PublishRequest) -> None:
    """Refuse before hours of gates what can be refused at once; raises PushRemoteBad."""
    if request.push is not None:
        try:
            checked_url(request.push)
        except RemoteUrlBad as error:
            raise PushRemoteBad(
                f"'{redacted(request.push)}' is no remote to push to",
                why=error.why,
                hint="a path, host:path or a URL",
            ) from error


def run_publish(
    workspace: Workspace, report: Report, request: PublishRequest, *, environ: Mapping[str, str]
) -> Published:
    """Publish what the report proves, and push it when asked to.

    Raises:
        PublishNothing: the candidate has no patch.
        PUBLISH_GATE_FAILED, PUBLISH_NOT_PROVEN: the policy of the series forbids it.
        RangeProofFailed: it, or what was published on another pin, differs where no patch declares it.
        EVIDENCE_MISSING, EVIDENCE_TOO_LARGE: the evidence is not fit to be published.
        PUBLISH_CANDIDATE_MOVED, REF_MOVED: somebody else moved a branch meanwhile.
        SIGNING_FAILED: the user has a key, and git could not use it.
        PushRemoteBad, RemoteUnread, PUSH_WOULD_REPLACE, PushRejected, PUSH_SHALLOW, PushFailed: it is
            published
            here, and nothing changed there.
        GitError, CacheError: git or the disk refused.

    Whatever is raised, the branch is where it was or whole; a KeyboardInterrupt has a note that says which.
    """
    check_request(request)
    series = load_series(workspace.series.patches)
    decision = decide(report, series.gates, accept_not_run=request.accept_not_run)
    pin = load_lock(workspace.series.lock).pin(request.upstream)
    stage = _Stage()
    with stage.noted(), open_cache(workspace.cache_root).hold(workspace.reporter) as repository:
        _check_candidate(repository, report)
        told = Seal(
            report=report,
            decision=decision,
            pin=pin,
            range=carry_range(repository, series, report, pin.build),
        )
        published = _publish(workspace, repository, told, request, environ, stage)
        if request.push is None:
            return published
        workspace.reporter.step(f"pushing to {redacted(request.push)}")
        stage.text = f"{published.branch} is published here; whether the push got through is not known"
        return _push(repository, published, request, environ)


def _publish(
    workspace: Workspace,
    repository: Repository,
    told: Seal,
    request: PublishRequest,
    environ: Mapping[str, str],
    stage: _Stage,
) -> Published:
    report, decision, pin = told.report, told.decision, told.pin
    branch = decision.branch(report.archs, pin.build)
    ref = f"refs/heads/{branch}"
    before = read_ref(repository, ref)
    files = collect_evidence(
        report.folder, passed=decision.passed, cache_root=workspace.cache_root, environ=environ
    )
    same = find_same(repository, before, told)
    made = _published_as(repository, same) if same is not None else None
    is_new = made is None
    if made is None:
        made = _write(repository, told, {**files, **told.range.files}, request, environ)
    handover = hand_over(repository, pin, base=report.base, ref=ref, tip=made.tip)
    if is_new:
        moves = {name: (sha, read_ref(repository, name)) for name, sha in made.refs.items()}
        moves = {name: move for name, move in moves.items() if move[0] != move[1]}
        workspace.reporter.step(f"publishing {branch}")
        stage.text = f"{branch} is where it was, or complete at {made.tip[:_ID]}"
        update_refs(repository, {**moves, ref: (made.tip, before)})
    stage.text = f"{branch} is published at {made.tip[:_ID]}"
    return Published(
        branch=branch,
        tip=made.tip,
        candidate=report.tip,
        before=before,
        unchanged=before == made.tip,
        evidence_ref=made.evidence_ref,
        evidence=made.evidence,
        tag=made.tag,
        decision=decision,
        handover=handover,
    )


def _write(
    repository: Repository,
    told: Seal,
    files: Mapping[str, bytes],
    request: PublishRequest,
    environ: Mapping[str, str],
) -> _Made:
    report, decision, pin = told.report, told.decision, told.pin
    name = f"{'+'.join(report.archs)} on b{pin.build}"
    text = f"Evidence of {name}\n\nCandidate: {report.tip}\nTree: {report.tree}\n"
    evidence = write_orphan(repository, files, message=text, date=pin.committed).commit
    evidence_ref = f"refs/patchkit/evidence/{'+'.join(report.archs)}/b{pin.build}/{evidence[:_ID]}"
    message = seal_message(told, f"{evidence_ref} {evidence}")
    tip = write_note_commit(repository, report.tip, message=message, date=pin.committed).commit
    refs = {evidence_ref: evidence}
    tag = None
    key = find_key(repository, environ) if request.sign is not False else None
    if request.sign and key is None:
        raise _no_key()
    if key is not None:
        tag = f"{decision.branch(report.archs, pin.build).replace('/', '-')}-{tip[:_ID]}"
        refs[f"refs/tags/{tag}"] = write_signed_tag(repository, key, name=tag, commit=tip, message=message)
    return _Made(tip=tip, evidence_ref=evidence_ref, evidence=evidence, tag=tag, refs=refs)


def _published_as(repository: Repository, same: Sealed) -> _Made:
    tag = _tag_of(repository, same.tip)
    return _Made(tip=same.tip, evidence_ref=same.evidence_ref, evidence=same.evidence, tag=tag)


def _tag_of(repository: Repository, commit: str) -> str | None:
    out = repository.git.run("tag", "--list", "--points-at", commit, "patchkit-*").decode("utf-8", "replace")
    return next(iter(out.split()), None)


def _check_candidate(repository: Repository, report: Report) -> None:
    found = read_ref(repository, f"refs/heads/{report.branch.removeprefix('refs/heads/')}")
    if found != report.tip:
        raise GitError(
            f"{report.branch} is not what was verified any more; nothing was published",
            code="PUBLISH_CANDIDATE_MOVED",
            where=Location(path=str(repository.path)),
            why=f"verified: {report.tip}, there now: {found or 'no such branch'}",
            hint="patchkit verify looks at what is there now",
        )


def _push(
    repository: Repository, published: Published, request: PublishRequest, environ: Mapping[str, str]
) -> Published:
    if request.push is None:
        raise AssertionError("nothing to push to")
    refs = {f"refs/heads/{published.branch}": published.tip, published.evidence_ref: published.evidence}
    if published.tag is not None:
        name = f"refs/tags/{published.tag}"
        refs[name] = read_ref(repository, name) or published.tip
    replaced = push_refs(
        repository,
        checked_url(request.push),
        refs,
        force=request.force_push,
        credential_helper=user_setting(repository, "credential.helper", environ),
    )
    for one in replaced:
        repository.reporter.warn(f"replaced there: {one}")
    return replace(published, pushed_to=redacted(request.push), replaced=replaced)


def _no_key() -> GitError:
    return GitError(
        "there is no key to sign with; nothing was published",
        code="NO_SIGNING_KEY",
        why="git config --global user.signingkey is not set",
        hint="git config --global user.signingkey KEY, or leave --sign out",
    )
