"""Publish a verified candidate: a commit on top of it records what was proven, and all refs move at once.

Everything is first written as objects. Then the refs move together, if they have not moved meanwhile. An
interruption before that leaves only unused objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from patchkit.base.errors import GitError, InterruptNote, Location
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.handover import Handover, hand_over
from patchkit.carry.candidate.relock import check_documented
from patchkit.carry.series.catalogue import Series
from patchkit.carry.series.lock import load_lock
from patchkit.carry.series.patch import Patch
from patchkit.carry.upstream.cache import open_cache
from patchkit.carry.upstream.commits import write_note_commit, write_orphan
from patchkit.carry.upstream.git import redacted
from patchkit.carry.upstream.push import Replaced, find_key, push_refs, user_setting, write_signed_tag
from patchkit.carry.upstream.refs import read_ref, update_refs
from patchkit.carry.upstream.remote import RemoteUrlBad, checked_url
from patchkit.carry.upstream.repository import Repository
from patchkit.prove.publish.decision import PublishDecision, decide
from patchkit.prove.publish.evidence import collect_evidence
from patchkit.prove.publish.seal import Seal, Sealed, find_same, seal_message
from patchkit.prove.verify.policy import load_proven_series
from patchkit.prove.verify.run import Report

_ID = 12  # hex digits of an object id in names


class PushRemoteBad(GitError):
    """``--push`` does not name a remote."""

    code = "PUSH_REMOTE_BAD"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishRequest:
    """The request. ``sign`` None: sign if there is a key. ``upstream`` names the pin, as for verify."""

    accept_not_run: bool = False
    push: str | None = None
    force_push: bool = False
    sign: bool | None = None
    upstream: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What was published. ``before`` is the previous tip of the branch; ``unchanged``: it is the same.

    A ``handover`` for ``git am`` contains only the candidate's commits, as the seal changes no file.
    """

    json_keys: ClassVar = (
        "branch tip candidate before unchanged evidence_ref evidence tag handover pushed_to replaced "
        "proven=decision.proven proof=decision.proof passed=decision.passed emulated not_run"
    )

    branch: str
    tip: str
    candidate: str
    before: str | None
    unchanged: bool
    evidence_ref: str
    evidence: str
    tag: str | None
    decision: PublishDecision
    handover: Handover | None
    pushed_to: str | None = None
    replaced: tuple[Replaced, ...] = ()

    @property
    def emulated(self) -> dict[str, str]:
        """The gates that passed without hardware, each with the emulated GPU."""
        return dict(self.decision.emulated)

    @property
    def not_run(self) -> dict[str, str]:
        """The gates that did not run, each with the reason."""
        return dict(self.decision.not_run)


def check_request(request: PublishRequest) -> None:
    """Reject invalid requests early, before hours of gates. Raises PushRemoteBad."""
    if request.push is not None:
        try:
            checked_url(request.push)
        except RemoteUrlBad as error:
            raise PushRemoteBad(
                f"'{redacted(request.push)}' is not a remote to push to",
                why=error.why,
                hint="use a path, host:path or a URL",
            ) from error


def run_publish(
    workspace: Workspace, report: Report, request: PublishRequest, *, environ: Mapping[str, str]
) -> Published:
    """Publish what the report proves, and push it if requested.

    Raises:
        PublishNothing: the candidate has no patch.
        PUBLISH_GATE_FAILED, PUBLISH_NOT_PROVEN: the policy of the series forbids it.
        PATCH_BAD: the documentation of a patch is incomplete.
        EVIDENCE_MISSING, UsageError: the evidence cannot be published.
        PUBLISH_CANDIDATE_MOVED, REF_MOVED: a branch was moved by another process.
        SIGNING_FAILED: there is a key, but git could not use it.
        PushRemoteBad, PUSH_FAILED, PUSH_SHALLOW, PUSH_FAILED: it is
            published locally, and nothing changed on the remote.
        GitError, CacheError: git or the disk failed.

    In all cases the branch is either unchanged or complete; a KeyboardInterrupt has a note about it.
    """
    check_request(request)
    series = load_proven_series(workspace.series.patches)
    decision = decide(report, series.gates.of(report.archs), accept_not_run=request.accept_not_run)
    pin = load_lock(workspace.series.lock).pin(request.upstream)
    cache = open_cache(workspace.cache_root)
    with InterruptNote("nothing was published") as note, cache.hold(workspace.reporter) as repository:
        _check_candidate(repository, report)
        check_documented(_patches_of(repository, series, report))
        seal = Seal(report=report, decision=decision, pin=pin)
        published = _publish(workspace, repository, seal, request, environ, note)
        if request.push is None:
            return published
        workspace.reporter.step(f"pushing to {redacted(request.push)}")
        note.text = f"{published.branch} is published locally; it is unknown whether the push succeeded"
        return _push(repository, published, request.push, request, environ)


def _publish(
    workspace: Workspace,
    repository: Repository,
    seal: Seal,
    request: PublishRequest,
    environ: Mapping[str, str],
    note: InterruptNote,
) -> Published:
    report, decision = seal.report, seal.decision
    branch = decision.branch(report.archs, seal.pin.name)
    ref = f"refs/heads/{branch}"
    before = read_ref(repository, ref)
    files = collect_evidence(
        report.folder, passed=decision.with_evidence, cache_root=workspace.cache_root, environ=environ
    )
    sealed, refs = find_same(repository, before, seal), dict[str, str]()
    if sealed is None:
        sealed, refs = _write(repository, seal, files, request, environ)
    handover = hand_over(repository, seal.pin, base=report.base, ref=ref, tip=sealed.tip)
    if refs:
        moves = {name: (sha, read_ref(repository, name)) for name, sha in refs.items()}
        moves = {name: move for name, move in moves.items() if move[0] != move[1]}
        workspace.reporter.step(f"publishing {branch}")
        note.text = f"{branch} is unchanged, or complete at {sealed.tip[:_ID]}"
        update_refs(repository, {**moves, ref: (sealed.tip, before)})
    note.text = f"{branch} is published at {sealed.tip[:_ID]}"
    return Published(
        branch=branch,
        tip=sealed.tip,
        candidate=report.tip,
        before=before,
        unchanged=before == sealed.tip,
        evidence_ref=sealed.evidence_ref,
        evidence=sealed.evidence,
        tag=sealed.tag,
        decision=decision,
        handover=handover,
    )


def _write(
    repository: Repository,
    seal: Seal,
    files: Mapping[str, bytes],
    request: PublishRequest,
    environ: Mapping[str, str],
) -> tuple[Sealed, dict[str, str]]:
    """Write evidence, seal and tag as objects. Also returns the refs for evidence and tag."""
    report, decision, pin = seal.report, seal.decision, seal.pin
    archs = "+".join(report.archs)
    text = f"Evidence of {archs} on {pin.name}\n\nCandidate: {report.tip}\nTree: {report.tree}\n"
    evidence = write_orphan(repository, files, message=text, date=pin.committed).commit
    evidence_ref = f"refs/patchkit/evidence/{archs}/{pin.name}/{evidence[:_ID]}"
    message = seal_message(seal, f"{evidence_ref} {evidence}")
    tip = write_note_commit(repository, report.tip, message=message, date=pin.committed).commit
    refs = {evidence_ref: evidence}
    tag = None
    key = find_key(repository, environ) if request.sign is not False else {}
    if key:
        tag = f"{decision.branch(report.archs, pin.name).replace('/', '-')}-{tip[:_ID]}"
        refs[f"refs/tags/{tag}"] = write_signed_tag(repository, key, name=tag, commit=tip, message=message)
    elif request.sign:
        raise GitError(
            "there is no signing key; nothing was published",
            code="NO_SIGNING_KEY",
            why="git config --global user.signingkey is not set",
            hint="git config --global user.signingkey KEY, or omit --sign",
        )
    return Sealed(tip=tip, evidence_ref=evidence_ref, evidence=evidence, tag=tag), refs


def _patches_of(repository: Repository, series: Series, report: Report) -> list[Patch]:
    """The patches whose commits the candidate has."""
    out = repository.git.run(
        "log", "--format=%(trailers:key=Patchkit-Id,valueonly)", f"{report.base}..{report.tip}", "--"
    )
    ids = out.decode("utf-8", "replace").split()
    return [patch for patch in series.patches if patch.id in ids]


def _check_candidate(repository: Repository, report: Report) -> None:
    found = read_ref(repository, f"refs/heads/{report.branch.removeprefix('refs/heads/')}")
    if found != report.tip:
        raise GitError(
            f"{report.branch} changed since it was verified; nothing was published",
            code="PUBLISH_CANDIDATE_MOVED",
            where=Location(path=str(repository.path)),
            why=f"verified: {report.tip}, now: {found or 'no such branch'}",
            hint="verify it again: patchkit verify",
        )


def _push(
    repository: Repository,
    published: Published,
    url: str,
    request: PublishRequest,
    environ: Mapping[str, str],
) -> Published:
    refs = {f"refs/heads/{published.branch}": published.tip, published.evidence_ref: published.evidence}
    if published.tag is not None:
        name = f"refs/tags/{published.tag}"
        refs[name] = read_ref(repository, name) or published.tip
    replaced = push_refs(
        repository,
        checked_url(url),
        refs,
        force=request.force_push,
        credential_helper=user_setting(repository, "credential.helper", environ),
    )
    for one in replaced:
        repository.reporter.warn(f"replaced on the remote: {one}")
    return replace(published, pushed_to=redacted(url), replaced=replaced)
