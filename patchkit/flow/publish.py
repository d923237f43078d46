"""Publishing a verified candidate: one commit on top that says what was proven, one move of all refs.

Vocabulary: the *published branch* is ``patchkit/<arch[+arch]>/b<build>``, or that with ``-unproven``. Its
last commit, the *seal*, changes no file: its trailers name the candidate, every gate and the evidence; below
it lie the candidate's own commits, unchanged. The *evidence* is a commit without a parent, kept by the ref
``refs/patchkit/evidence/<arch[+arch]>/b<build>/<id>``, which never moves. A *tag* is made when the user's git
has a signing key.

Everything is written as objects first. Then the refs move, together, if they are where they were; whoever
stops before that moment leaves nothing but unused objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from patchkit.config.lock import load_lock
from patchkit.config.series import load_series
from patchkit.errors import GitError, Location
from patchkit.fetch.cache import open_cache
from patchkit.fetch.gitremote import RemoteUrlBad, checked_url
from patchkit.flow.handover import Handover, hand_over
from patchkit.flow.publish_evidence import collect_evidence
from patchkit.flow.publish_policy import Decision, decide
from patchkit.flow.publish_range import carry_range
from patchkit.flow.publish_seal import Seal, Sealed, find_same, seal_message
from patchkit.flow.verify import Report
from patchkit.flow.workspace import Workspace
from patchkit.vcs.orphan import write_note_commit, write_orphan
from patchkit.vcs.push import Replaced, push_refs
from patchkit.vcs.redact import redacted
from patchkit.vcs.refs import read_ref, update_refs
from patchkit.vcs.repository import Repository
from patchkit.vcs.signing import find_key, user_setting, write_signed_tag

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
