"""Publishing a verified candidate: one commit on top of it says what was proven, and all refs move at once.

Everything is written as objects first. Then the refs move, together, if they are where they were; whoever
stops before that moment leaves nothing but unused objects.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from patchkit.base.errors import GitError, InterruptNote, Location
from patchkit.base.plain import fields_of
from patchkit.base.upstreams import build_name
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
from patchkit.prove.publish.decision import Decision, decide
from patchkit.prove.publish.evidence import collect_evidence
from patchkit.prove.publish.range_proof import carry_range
from patchkit.prove.publish.seal import Seal, Sealed, find_same, seal_message
from patchkit.prove.verify.policy import load_proven_series
from patchkit.prove.verify.run import Report

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
    decision: Decision
    handover: Handover | None
    pushed_to: str | None = None
    replaced: tuple[Replaced, ...] = ()

    @property
    def emulated(self) -> dict[str, str]:
        """The gates that passed without hardware, each with its verdict."""
        return dict(self.decision.emulated)

    @property
    def not_run(self) -> dict[str, str]:
        """The gates that did not run, each with the reason."""
        return dict(self.decision.not_run)


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
        PATCH_UNDOCUMENTED: a patch does not say everything yet.
        EVIDENCE_MISSING, EVIDENCE_TOO_LARGE: the evidence is not fit to be published.
        PUBLISH_CANDIDATE_MOVED, REF_MOVED: somebody else moved a branch meanwhile.
        SIGNING_FAILED: the user has a key, and git could not use it.
        PushRemoteBad, PUSH_REMOTE_UNREAD, PUSH_WOULD_REPLACE, PUSH_REJECTED, PUSH_SHALLOW, PUSH_FAILED: it is
            published
            here, and nothing changed there.
        GitError, CacheError: git or the disk refused.

    Whatever is raised, the branch is where it was or whole; a KeyboardInterrupt has a note that says which.
    """
    check_request(request)
    series = load_proven_series(workspace.series.patches)
    decision = decide(report, series.gates.of(report.archs), accept_not_run=request.accept_not_run)
    pin = load_lock(workspace.series.lock).pin(request.upstream)
    cache = open_cache(workspace.cache_root)
    with InterruptNote("nothing was published") as note, cache.hold(workspace.reporter) as repository:
        _check_candidate(repository, report)
        check_documented(_patches_of(repository, series, report))
        carried = carry_range(repository, series, archs=report.archs, build=pin.build, tip=report.tip)
        told = Seal(report=report, decision=decision, pin=pin, range=carried)
        published = _publish(workspace, repository, told, request, environ, note)
        if request.push is None:
            return published
        workspace.reporter.step(f"pushing to {redacted(request.push)}")
        note.text = f"{published.branch} is published here; whether the push got through is not known"
        return _push(repository, published, request.push, request, environ)


def _publish(
    workspace: Workspace,
    repository: Repository,
    told: Seal,
    request: PublishRequest,
    environ: Mapping[str, str],
    note: InterruptNote,
) -> Published:
    report, decision = told.report, told.decision
    branch = decision.branch(report.archs, told.pin.build)
    ref = f"refs/heads/{branch}"
    before = read_ref(repository, ref)
    files = collect_evidence(
        report.folder, passed=decision.with_evidence, cache_root=workspace.cache_root, environ=environ
    )
    made, refs = find_same(repository, before, told), dict[str, str]()
    if made is None:
        made, refs = _write(repository, told, files, request, environ)
    handover = hand_over(repository, told.pin, base=report.base, ref=ref, tip=made.tip)
    if refs:
        moves = {name: (sha, read_ref(repository, name)) for name, sha in refs.items()}
        moves = {name: move for name, move in moves.items() if move[0] != move[1]}
        workspace.reporter.step(f"publishing {branch}")
        note.text = f"{branch} is where it was, or complete at {made.tip[:_ID]}"
        update_refs(repository, {**moves, ref: (made.tip, before)})
    note.text = f"{branch} is published at {made.tip[:_ID]}"
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
) -> tuple[Sealed, dict[str, str]]:
    """Write evidence, seal and tag as objects; also returns the refs that are to name evidence and tag."""
    report, decision, pin = told.report, told.decision, told.pin
    archs = "+".join(report.archs)
    if told.range is not None:
        document = json.dumps(fields_of(told.range), indent=1) + "\n"
        files = {
            **files,
            "range-proof.json": document.encode(),
            "range-diff.txt": told.range.range_diff.encode(),
        }
    text = f"Evidence of {archs} on {build_name(pin.build)}\n\nCandidate: {report.tip}\nTree: {report.tree}\n"
    evidence = write_orphan(repository, files, message=text, date=pin.committed).commit
    evidence_ref = f"refs/patchkit/evidence/{archs}/{build_name(pin.build)}/{evidence[:_ID]}"
    message = seal_message(told, f"{evidence_ref} {evidence}")
    tip = write_note_commit(repository, report.tip, message=message, date=pin.committed).commit
    refs = {evidence_ref: evidence}
    tag = None
    key = find_key(repository, environ) if request.sign is not False else {}
    if key:
        tag = f"{decision.branch(report.archs, pin.build).replace('/', '-')}-{tip[:_ID]}"
        refs[f"refs/tags/{tag}"] = write_signed_tag(repository, key, name=tag, commit=tip, message=message)
    elif request.sign:
        raise GitError(
            "there is no key to sign with; nothing was published",
            code="NO_SIGNING_KEY",
            why="git config --global user.signingkey is not set",
            hint="git config --global user.signingkey KEY, or leave --sign out",
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
            f"{report.branch} is not what was verified any more; nothing was published",
            code="PUBLISH_CANDIDATE_MOVED",
            where=Location(path=str(repository.path)),
            why=f"verified: {report.tip}, there now: {found or 'no such branch'}",
            hint="patchkit verify looks at what is there now",
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
        repository.reporter.warn(f"replaced there: {one}")
    return replace(published, pushed_to=redacted(url), replaced=replaced)
