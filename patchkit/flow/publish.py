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

import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from patchkit.config.gate_policy import GatePolicy
from patchkit.config.lock import Pin, load_lock
from patchkit.config.series import load_series
from patchkit.errors import GitError, Location
from patchkit.fetch.cache import open_cache
from patchkit.fetch.gitremote import RemoteUrlBad, checked_url
from patchkit.flow.publish_evidence import collect_evidence
from patchkit.flow.publish_policy import Decision, decide
from patchkit.flow.verify import Report
from patchkit.flow.workspace import Workspace
from patchkit.vcs.orphan import write_note_commit, write_orphan
from patchkit.vcs.push import Replaced, push_refs
from patchkit.vcs.redact import redacted
from patchkit.vcs.refs import read_ref, update_refs
from patchkit.vcs.repository import Repository
from patchkit.vcs.signing import find_key, user_setting, write_signed_tag

__all__ = [
    "CandidateMoved",
    "NoSigningKey",
    "PublishRequest",
    "Published",
    "PushRemoteBad",
    "check_request",
    "run_publish",
]

_WIDTH = 72
_ID = 12  # hex digits of an object id in names


class CandidateMoved(GitError):
    """The candidate is not what was verified any more."""

    code = "PUBLISH_CANDIDATE_MOVED"


class NoSigningKey(GitError):
    """``--sign`` was given, and the user's git knows no key."""

    code = "NO_SIGNING_KEY"


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
    """What was published. ``before`` is where the branch was; ``unchanged``: it already said the same."""

    branch: str
    tip: str
    candidate: str
    before: str | None
    unchanged: bool
    evidence_ref: str
    evidence: str
    tag: str | None
    decision: Decision
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
        PublishGateFailed, PublishNotProven: the policy of the series forbids it.
        EvidenceMissing, EvidenceTooLarge: the evidence is not fit to be published.
        CandidateMoved, RefMoved: somebody else moved a branch meanwhile.
        SigningFailed: the user has a key, and git could not use it.
        PushRemoteBad, RemoteUnread, PushWouldReplace, PushRejected, PushShallow, PushFailed: it is published
            here, and nothing changed there.
        GitError, CacheError: git or the disk refused.

    Whatever is raised, the branch is where it was or whole; a KeyboardInterrupt has a note that says which.
    """
    check_request(request)
    policy: GatePolicy = load_series(workspace.series.patches).gates
    decision = decide(report, policy, accept_not_run=request.accept_not_run)
    pin = load_lock(workspace.series.lock).pin(request.upstream)
    stage = _Stage()
    with stage.noted(), open_cache(workspace.cache_root).hold(workspace.reporter) as repository:
        _check_candidate(repository, report)
        published = _publish(workspace, repository, report, decision, pin, request, environ, stage)
        if request.push is None:
            return published
        workspace.reporter.step(f"pushing to {redacted(request.push)}")
        stage.text = f"{published.branch} is published here; whether the push got through is not known"
        return _push(repository, published, request, environ)


def _publish(
    workspace: Workspace,
    repository: Repository,
    report: Report,
    decision: Decision,
    pin: Pin,
    request: PublishRequest,
    environ: Mapping[str, str],
    stage: _Stage,
) -> Published:
    branch = decision.branch(report.archs, pin.build)
    ref = f"refs/heads/{branch}"
    before = read_ref(repository, ref)
    files = collect_evidence(
        report.folder, passed=decision.passed, cache_root=workspace.cache_root, environ=environ
    )
    made = _find_same(repository, before, report, decision)
    if made is None:
        made = _write(repository, report, decision, pin, files, request, environ)
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
    )


def _write(
    repository: Repository,
    report: Report,
    decision: Decision,
    pin: Pin,
    files: Mapping[str, bytes],
    request: PublishRequest,
    environ: Mapping[str, str],
) -> _Made:
    name = f"{'+'.join(report.archs)} on b{pin.build}"
    told = f"Evidence of {name}\n\nCandidate: {report.tip}\nTree: {report.tree}\n"
    evidence = write_orphan(repository, files, message=told, date=pin.committed).commit
    evidence_ref = f"refs/patchkit/evidence/{'+'.join(report.archs)}/b{pin.build}/{evidence[:_ID]}"
    message = _seal(report, decision, pin, f"{evidence_ref} {evidence}")
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


def _seal(report: Report, decision: Decision, pin: Pin, evidence: str) -> str:
    """The message of the last commit."""
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
    trailers += [f"Gate-Not-Run: {name} ({' '.join(why.split())})" for name, why in decision.not_run]
    trailers += [f"Patchkit-Evidence: {evidence}", f"Upstream-Commit: {pin.commit or report.base}"]
    return "\n\n".join([subject, textwrap.fill(body, _WIDTH), "\n".join(trailers)]) + "\n"


def _find_same(
    repository: Repository, before: str | None, report: Report, decision: Decision
) -> _Made | None:
    """What is published already, when it says the same of the same candidate."""
    if before is None:
        return None
    keys = ("Patchkit-Candidate", "Gate-Passed", "Gate-Not-Run", "Patchkit-Evidence")
    shape = "%x00".join(f"%(trailers:key={key},valueonly,separator=%x0A)" for key in keys)
    out = repository.git.run("log", "-1", f"--format={shape}", before, "--").decode("utf-8", "replace")
    candidate, passed, not_run, evidence = (part.strip() for part in out.split("\0"))
    expected = [f"{name} ({' '.join(why.split())})" for name, why in decision.not_run]
    ref, _, sha = evidence.partition(" ")
    same = (candidate, passed.split("\n"), not_run.split("\n") if not_run else []) == (
        report.tip,
        list(decision.passed) or [""],
        expected,
    )
    if not same or read_ref(repository, ref) != sha:
        return None
    return _Made(tip=before, evidence_ref=ref, evidence=sha, tag=_tag_of(repository, before))


def _tag_of(repository: Repository, commit: str) -> str | None:
    out = repository.git.run("tag", "--list", "--points-at", commit, "patchkit-*").decode("utf-8", "replace")
    return next(iter(out.split()), None)


def _check_candidate(repository: Repository, report: Report) -> None:
    found = read_ref(repository, f"refs/heads/{report.branch.removeprefix('refs/heads/')}")
    if found != report.tip:
        raise CandidateMoved(
            f"{report.branch} is not what was verified any more; nothing was published",
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
    return NoSigningKey(
        "there is no key to sign with; nothing was published",
        why="git config --global user.signingkey is not set",
        hint="git config --global user.signingkey KEY, or leave --sign out",
    )
