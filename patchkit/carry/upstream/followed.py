"""The main line, branches and pull requests of remotes that a series follows, as last fetched.

Commits and folders are kept between runs in a separate repository in the cache, without file contents. These
are fetched by object id when they are compared. Nothing is fetched implicitly: without a network, the last
state is used, with its date.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from patchkit.base.digests import sha256
from patchkit.base.errors import SourceError
from patchkit.base.files import disk_errors, write_whole
from patchkit.base.reporter import Reporter
from patchkit.carry.upstream.cache import Cache, remove_remains
from patchkit.carry.upstream.git import Git, GitTimeout, redacted
from patchkit.carry.upstream.remote import FETCH, SILENCE_S, checked_url, complaint, is_disks, limited

MAIN = "HEAD"
_ANSWER_S = 10.0
_NO_REF = re.compile(r"couldn't find remote ref (\S+)")
_AT_ONCE = 1000  # objects on one command line


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The state of a remote at ``asked`` (UTC, RFC 3339).

    ``refs`` has the commit of each requested ref, by full name or HEAD; None: it does not exist. ``merges``:
    whether the remote was ever seen to have ``refs/pull/N/merge``, which not every host provides. ``builds``
    are the first builds that contain commits of its main line, as far as they were looked up.
    """

    asked: str
    refs: Mapping[str, str | None]
    merges: bool = False
    builds: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedRemotes:
    """The repository ``folder``. Only :meth:`ask` and :meth:`fetch_blobs` contact a remote and write."""

    folder: Path
    git: Git

    def last(self, url: str) -> Answer | None:
        """The last answer; None if there is no readable one."""
        try:
            found = json.loads(self._note(url).read_text("utf-8"))
            return Answer(**found)
        except (OSError, ValueError, TypeError):
            return None

    def ask(self, url: str, refs: Sequence[str], commits: Sequence[str], now: str) -> Answer:
        """Fetch the current ``refs``, and ``commits`` if the remote still has them.

        The caller holds the cache. Raises RemoteUrlBad, REMOTE_UNREACHABLE (no response), SourceError,
        GitError, CacheError.
        """
        where = checked_url(url)
        self._prepare()
        name = _name(url)
        missing: set[str] = set()
        while wanted := [ref for ref in refs if ref not in missing]:
            specs = [f"+{ref}:{_kept(name, ref)}" for ref in wanted]
            complaints = self._fetch(where, name, specs)
            gone = _NO_REF.search(complaints)
            if gone is not None and gone[1] in wanted:
                missing.add(gone[1])
            elif complaints:
                raise _unreachable(url, complaints)
            else:
                break
        found = {ref: self._commit(_kept(name, ref)) if ref not in missing else None for ref in refs}
        for commit in commits:
            if self._commit(commit) is None:
                self._fetch(where, name, [commit])  # a replaced head, which may be gone; callers report that
        before = self.last(url)
        answer = Answer(
            asked=now,
            refs={**(before.refs if before else {}), **found},
            merges=(before is not None and before.merges)
            or any(sha is not None and ref.endswith("/merge") for ref, sha in found.items()),
            builds=before.builds if before else {},
        )
        self._write(url, answer)
        return answer

    def note_build(self, url: str, answer: Answer, commit: str, build: int) -> Answer:
        """The answer with the first build that contains a commit added."""
        known = replace(answer, builds={**answer.builds, commit: build})
        self._write(url, known)
        return known

    def has(self, commit: str) -> bool:
        """Whether the commit was fetched."""
        return self._commit(commit) is not None

    def merge_base(self, one: str, other: str) -> str | None:
        """The newest common commit of two histories, if there is one."""
        done = self.git.attempt("merge-base", one, other)
        return done.stdout.decode("ascii").split()[0] if done.status == 0 and done.stdout else None

    def log(self, *revisions: str, most: int) -> tuple[Logged, ...]:
        """Commits, newest first, at most ``most``. Raises GitError."""
        out = self.git.run("log", f"--max-count={most}", "--format=%x00%H%x00%s%x00", *revisions, "--")
        fields = out.decode("utf-8", "replace").split("\0")[1:]
        return tuple(
            Logged(commit=commit, subject=subject)
            for commit, subject, _ in zip(*(fields[at::3] for at in range(3)), strict=True)
        )

    def between(self, first: str, last: str) -> frozenset[str]:
        """``first`` and every descendant of it in the history of ``last``."""
        out = self.git.run("rev-list", "--ancestry-path", f"{first}..{last}").decode("ascii")
        return frozenset([first, *out.split()])

    def read(self, blobs: Iterable[str]) -> dict[str, bytes]:
        """The file contents that were fetched, by object id."""
        wanted = sorted(set(blobs))
        found = self.git.objects(each.encode() for each in wanted)
        return {sha: blob.data for sha, blob in zip(wanted, found, strict=True) if blob is not None}

    def fetch_blobs(self, url: str, blobs: Iterable[str]) -> None:
        """Fetch file contents that are missing; raises as :meth:`ask`."""
        wanted = "".join(f"{each}\n" for each in sorted(set(blobs)))
        listed = self.git.run("cat-file", "--batch-check", stdin=wanted.encode()).decode() if wanted else ""
        missing = [line.split(" ")[0] for line in listed.splitlines() if line.endswith("missing")]
        for at in range(0, len(missing), _AT_ONCE):
            complaints = self._fetch(checked_url(url), _name(url), missing[at : at + _AT_ONCE], by_name=True)
            if complaints:
                raise _unreachable(url, complaints)

    def _commit(self, name: str) -> str | None:
        done = self.git.attempt("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
        return done.stdout.decode("ascii").strip() if done.status == 0 else None

    def _prepare(self) -> None:
        with disk_errors(self.folder, "creating the repository for followed remotes"):
            self.folder.mkdir(parents=True, exist_ok=True)
        remove_remains(self.folder)
        with disk_errors(self.folder, "creating the repository for followed remotes"):
            (self.folder / "config").unlink(missing_ok=True)  # left by a killed run; it names a remote
        self.git.init()

    def _fetch(self, where: str, name: str, wanted: Sequence[str], *, by_name: bool = False) -> str:
        """Git's error message; empty on success. ``by_name``: fetch objects without what they refer to.

        Raises CacheError: the disk reported an error.
        """
        self.git.run("config", f"remote.{name}.url", where)
        # A server without filter support sends contents as deltas against contents that it assumes to be
        # here. This holds for what it sent before, and for nothing else. So for contents alone, claim to
        # have nothing.
        known = not by_name and self.git.run("for-each-ref", "--count=1", f"refs/followed/{name}")
        tips = (f"--negotiation-tip=refs/followed/{name}/*",) if known else ()
        args = (
            *(() if known else ("-c", "fetch.negotiationAlgorithm=noop")),
            *FETCH, "--filter=blob:none", *tips, name, *wanted,
        )  # fmt: skip
        try:
            done = self.git.watch(*args, on_text=limited(where), answer_s=_ANSWER_S, silence_s=SILENCE_S)
        except GitTimeout as error:
            return error.message
        finally:
            # The URL may contain a secret; and git itself would contact a remote that stays configured.
            self.git.attempt("config", "--remove-section", f"remote.{name}")
        if done.status == 0:
            return ""
        if is_disks(failure := self.git.failure(args, done), done.stderr):
            raise failure
        return complaint(done.stderr) or "git gives no reason"

    def _note(self, url: str) -> Path:
        return self.folder / f"{_name(url)}.json"

    def _write(self, url: str, answer: Answer) -> None:
        write_whole(self._note(url), json.dumps(asdict(answer)) + "\n", "saving the state of a remote")


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    """One commit."""

    commit: str
    subject: str


def open_followed(cache: Cache, reporter: Reporter, keep_open: tuple[int, ...] = ()) -> FollowedRemotes:
    """The cache's repository, for reading; for writing, ``keep_open`` comes from the held cache."""
    folder = cache.root / "following.git"
    return FollowedRemotes(folder=folder, git=Git(reporter=reporter, git_dir=folder, keep_open=keep_open))


def _name(url: str) -> str:
    return f"r{sha256(url.encode('utf-8', 'surrogateescape'))[:16]}"


def _kept(name: str, ref: str) -> str:
    return f"refs/followed/{name}/{ref}"


def _unreachable(url: str, why: str) -> SourceError:
    return SourceError(
        f"could not fetch from {redacted(url)}",
        code="REMOTE_UNREACHABLE",
        why=redacted(why) or None,
        hint="check the URL and the network; the last fetched state is still used, with its date",
    )
