"""What remotes that a series follows had when they were last asked: their main line, branches, pull requests.

Commits and folders are kept between runs in a repository of its own in the cache, without the contents of
files; those are had by name where somebody compares them. Nothing is asked by itself: without a network there
is what the last answer left, with its date.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from patchkit.base.digests import sha256
from patchkit.base.errors import SourceError
from patchkit.base.files import disk_errors, write_whole
from patchkit.base.reporter import Reporter
from patchkit.carry.upstream.cache import Cache, remove_remains
from patchkit.carry.upstream.git import Change, Git, GitSilent, redacted
from patchkit.carry.upstream.remote import checked_url, complaint, is_disks

MAIN = "HEAD"
MAX_MIB = 1024
"""Of one fetch. All of llama.cpp's history without the contents of files is below a tenth of it."""
_MAX_OBJECTS = 5_000_000
_ANSWER_S = 10.0
_SILENCE_S = 60.0
_SIZE = re.compile(rb"Receiving objects: [^\r\n]*?\((?:\d+)/(\d+)\)(?:, ([0-9.]+) (bytes|KiB|MiB|GiB))?")
_MIB = {b"bytes": 2.0**-20, b"KiB": 2.0**-10, b"MiB": 1.0, b"GiB": 1024.0}
_NO_REF = re.compile(r"couldn't find remote ref (\S+)")
_AT_ONCE = 1000  # objects named on one command line


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a remote said at ``asked`` (UTC, RFC 3339).

    ``refs`` has the commit of each ref that was asked for, by its full name or HEAD; None: it is not there.
    ``merges``: whether it was ever seen to keep ``refs/pull/N/merge``, which not every host does. ``builds``
    are the first builds that have commits of its main line, as far as somebody wanted to know.
    """

    asked: str
    refs: Mapping[str, str | None]
    merges: bool = False
    builds: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedRemotes:
    """The repository ``folder``. Only :meth:`ask` and :meth:`fetch_blobs` talk to a remote, and write."""

    folder: Path
    git: Git

    def last(self, url: str) -> Answer | None:
        """The last answer; None when there is none that can be read."""
        try:
            found = json.loads(self._note(url).read_text("utf-8"))
            return Answer(**found)
        except (OSError, ValueError, TypeError):
            return None

    def ask(self, url: str, refs: Sequence[str], commits: Sequence[str], now: str) -> Answer:
        """Fetch what ``refs`` are now, and ``commits`` where the remote still gives them.

        The caller holds the cache. Raises RemoteUrlBad; FOLLOW_UNREACHABLE, FOLLOW_TOO_LARGE: no answer, or
        too much of it; GitError, CacheError.
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
                self._fetch(where, name, [commit])  # a head that was replaced: it may be gone, and is told so
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
        """The answer, which now knows the first build that has a commit."""
        known = replace(answer, builds={**answer.builds, commit: build})
        self._write(url, known)
        return known

    def has(self, commit: str) -> bool:
        """Whether the commit is here."""
        return self._commit(commit) is not None

    def merge_base(self, one: str, other: str) -> str | None:
        """The commit from which two histories differ, if they share any."""
        done = self.git.attempt("merge-base", one, other)
        return done.stdout.decode("ascii").split()[0] if done.status == 0 and done.stdout else None

    def is_ancestor(self, one: str, other: str) -> bool:
        """Whether the history of ``other`` has ``one``."""
        return self.git.attempt("merge-base", "--is-ancestor", one, other).status == 0

    def log(self, *revisions: str, most: int, paths: Sequence[str] = ()) -> tuple[Logged, ...]:
        """Commits, newest first, at most so many; with ``paths`` those that change one of them.

        A merge changes nothing by itself. Raises GitError.
        """
        wanted = ["--no-merges", "--full-history", "--raw", "--no-abbrev", "--no-renames"] if paths else []
        out = self.git.run(
            "log", f"--max-count={most}", "--format=%x00%H%x00%an <%ae> %aI%x00%s%x00", *wanted, *revisions,
            "--", *paths,
        )  # fmt: skip
        fields = out.decode("utf-8", "replace").split("\0")[1:]
        return tuple(
            Logged(commit=commit, author=author, subject=subject, changes=tuple(_changes(rows)))
            for commit, author, subject, rows in zip(*(fields[at::4] for at in range(4)), strict=True)
        )

    def between(self, first: str, last: str) -> frozenset[str]:
        """``first`` and every commit that has it and is in ``last``."""
        out = self.git.run("rev-list", "--ancestry-path", f"{first}..{last}").decode("ascii")
        return frozenset([first, *out.split()])

    def changes(self, before: str, after: str) -> tuple[Change, ...]:
        """What differs between two commits."""
        return self.git.changes(before, after)

    def read(self, blobs: Iterable[str]) -> dict[str, bytes]:
        """The contents that are here, by object id."""
        wanted = sorted(set(blobs))
        found = self.git.objects(each.encode() for each in wanted)
        return {sha: blob.data for sha, blob in zip(wanted, found, strict=True) if blob is not None}

    def fetch_blobs(self, url: str, blobs: Iterable[str]) -> None:
        """Have contents of files, those that are not here yet; raises as :meth:`ask`."""
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
        with disk_errors(self.folder, "making room for what is followed"):
            self.folder.mkdir(parents=True, exist_ok=True)
        remove_remains(self.folder)
        with disk_errors(self.folder, "making room for what is followed"):
            (self.folder / "config").unlink(missing_ok=True)  # of a run that was killed: it names a remote
        self.git.run("init", "--quiet", "--bare", "--template=", "--object-format=sha1")

    def _fetch(self, where: str, name: str, wanted: Sequence[str], *, by_name: bool = False) -> str:
        """What git complains of; nothing when it is done. ``by_name``: objects, and nothing they lead to.

        Raises CacheError: the disk refused.
        """
        self.git.run("config", f"remote.{name}.url", where)
        # A server that knows no filter sends contents as differences from those it thinks are here. That is
        # true of what it sent itself, and of nothing else; asked for contents alone, it must think of none.
        known = not by_name and self.git.run("for-each-ref", "--count=1", f"refs/followed/{name}")
        told = (f"--negotiation-tip=refs/followed/{name}/*",) if known else ()
        args = (
            *(() if known else ("-c", "fetch.negotiationAlgorithm=noop")),
            "fetch", "--progress", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules",
            "--no-auto-maintenance", "--filter=blob:none", *told, name, *wanted,
        )  # fmt: skip
        try:
            done = self.git.watch(*args, on_text=limited(where), answer_s=_ANSWER_S, silence_s=_SILENCE_S)
        except GitSilent as error:
            return error.message
        finally:
            # What the address holds may be secret; and a remote that stays would be asked by git itself.
            self.git.attempt("config", "--remove-section", f"remote.{name}")
        if done.status == 0:
            return ""
        if is_disks(failure := self.git.failure(args, done), done.stderr):
            raise failure
        return complaint(done.stderr) or "git does not say why"

    def _note(self, url: str) -> Path:
        return self.folder / f"{_name(url)}.json"

    def _write(self, url: str, answer: Answer) -> None:
        write_whole(self._note(url), json.dumps(asdict(answer)) + "\n", "keeping what a remote answered")


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    """One commit; ``author`` with the date, which a rebase keeps. ``changes`` of the paths asked for."""

    commit: str
    author: str
    subject: str
    changes: tuple[Change, ...] = ()


def open_followed(cache: Cache, reporter: Reporter, keep_open: tuple[int, ...] = ()) -> FollowedRemotes:
    """The repository of the cache; to be read, or with ``keep_open`` of the held one to be written."""
    folder = cache.root / "following.git"
    return FollowedRemotes(folder=folder, git=Git(reporter=reporter, git_dir=folder, keep_open=keep_open))


def _changes(rows: str) -> Iterator[Change]:
    for row in rows.splitlines():
        if row.startswith(":"):
            head, _, path = row.removeprefix(":").partition("\t")
            old_mode, new_mode, old, new, letter = head.split(" ")
            yield Change(path=path, letter=letter, modes=(old_mode, new_mode), ids=(old, new))


def _name(url: str) -> str:
    return f"r{sha256(url.encode('utf-8', 'surrogateescape'))[:16]}"


def _kept(name: str, ref: str) -> str:
    return f"refs/followed/{name}/{ref}"


def _unreachable(url: str, why: str) -> SourceError:
    return SourceError(
        f"{redacted(url)} could not be asked",
        code="FOLLOW_UNREACHABLE",
        why=redacted(why) or None,
        hint="check the address and the network; what was fetched before still counts, with its date",
    )


def limited(where: str) -> Callable[[bytes], None]:
    """What reads git's progress, and ends a fetch that brings more than llama.cpp's history."""

    def on_text(text: bytes) -> None:
        for count, size, unit in _SIZE.findall(text):
            if int(count) > _MAX_OBJECTS or (size and float(size) * _MIB[unit] > MAX_MIB):
                raise SourceError(
                    f"{redacted(where)} sends more than {MAX_MIB} MiB or {_MAX_OBJECTS} objects",
                    code="FOLLOW_TOO_LARGE",
                    why="the history of llama.cpp is not that large",
                    hint="look at the address",
                )

    return on_text
