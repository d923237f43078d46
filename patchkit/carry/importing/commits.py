"""The changes and authors of commits and pull requests, from git's comparison of two trees."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from patchkit.base.errors import Location, SourceError, UsageError, raise_all
from patchkit.base.files import disk_errors
from patchkit.base.text import visible
from patchkit.carry.lifting.change import Authorship, FileChange
from patchkit.carry.placing.files import MAX_BLOB
from patchkit.carry.placing.tree import REGULAR
from patchkit.carry.series.treepath import fault_of_path
from patchkit.carry.upstream.clone import Clone, Commit, copy_commit, read_commit
from patchkit.carry.upstream.git import Change as TreeChange
from patchkit.carry.upstream.git import Git, redacted
from patchkit.carry.upstream.remote import fetch_commit, fetch_history, temporary_history
from patchkit.carry.upstream.repository import ATTRIBUTES, Repository
from patchkit.carry.upstream.tags import list_tags

_MOST_COMMITS = 200
_NOTHING = "000000"
_MOST_BEFORE = 64 * 1024 * 1024  # bytes of a removed file, of which only the digest is kept


def ends_of_range(clone: Clone, revisions: str) -> tuple[Commit, Commit]:
    """The merge base of FIRST and LAST in ``FIRST..LAST``, and LAST; or a single commit and its parent.

    Raises IMPORT_NOTHING, ONTO_NO_COMMIT.
    """
    first, dots, last = revisions.partition("..")
    if dots and (not first or last.startswith(".")):
        raise UsageError(
            f"'{visible(revisions)}' is not a range of commits",
            code="IMPORT_NOTHING",
            hint="use FIRST..LAST, for example master..my-branch, or a single commit",
        )
    tip = read_commit(clone, (last or "HEAD") if dots else first)
    fork = clone.ask("merge-base", read_commit(clone, first).sha, tip.sha) if dots else ()
    return read_commit(clone, fork[0] if fork else first if dots else f"{tip.sha}^"), tip


def read_range(clone: Clone, revisions: str, cache: Repository) -> tuple[Commit, Commit, Authorship]:
    """The commits at both ends of ``FIRST..LAST`` (or of a single commit), copied into the cache.

    The first one is the merge base of FIRST and LAST.

    Raises IMPORT_NOTHING, ONTO_NO_COMMIT, CLONE_UNUSABLE, GitError.
    """
    base, tip = ends_of_range(clone, revisions)
    shas = clone.ask("rev-list", "--reverse", f"--max-count={_MOST_COMMITS}", f"{base.sha}..{tip.sha}", "--")
    for commit in (base, tip):
        copy_commit(clone, commit.sha, commit.tree, cache)
    found = clone.git.objects(sha.encode() for sha in shas)
    return base, tip, Authorship.joined([commit_authorship(each.data) for each in found if each is not None])


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRequest:
    """``refs/pull/N/head`` of a remote, its base (where it left the main line), and the build of the base."""

    head: str
    base: str
    build: int | None
    by: Authorship


def read_pull(url: str, number: int, cache: Repository, root: Path) -> PullRequest:
    """Fetch a pull request's head and base into the cache.

    Args:
        url: a git remote that has ``refs/pull/<number>/head``, as on GitHub.
        number: the number of the pull request.
        cache: the repository of the cache, held by the caller.
        root: the cache folder, for a temporary copy of the history.

    Raises:
        RemoteUrlBad: the address is of no supported kind.
        IMPORT_NOTHING: the remote does not answer, or has no such pull request.
        GitError, CacheError, SourceError: errors of git, the disk or the remote.
    """
    name = f"refs/pull/{number}/head"
    with temporary_history(root, "pull-", url, cache.reporter) as git:
        refs = (f"+{name}:refs/import/head", "+HEAD:refs/import/main")
        failed = fetch_history(git, url, "--filter=tree:0", "upstream", *refs)
        if failed:
            raise SourceError(
                f"could not fetch pull request {number} from {redacted(url)}",
                code="IMPORT_NOTHING",
                why=failed,
                hint=f"git ls-remote {redacted(url)} '{name}' shows whether it exists",
            )
        head = git.run("rev-parse", "refs/import/head").decode("ascii").strip()
        base = git.run("merge-base", "refs/import/head", "refs/import/main").decode("ascii").split()[0]
        if base == head:  # merged as a fast-forward: take its last commit
            base = git.run("rev-parse", f"{head}^").decode("ascii").strip()
        span = git.run("rev-list", "--reverse", f"--max-count={_MOST_COMMITS}", f"{base}..{head}")
        found = git.objects(sha.encode() for sha in span.decode("ascii").split())
        by = Authorship.joined([commit_authorship(each.data) for each in found if each is not None])
        below = set(git.run("rev-list", base).decode("ascii").split())
    try:
        tags = list_tags(url, cache.reporter).builds
    except SourceError:
        tags = {}
    for commit in (base, head):
        fetch_commit(cache, url, commit)
    build = max((build for build, sha in tags.items() if sha in below), default=None)
    return PullRequest(head=head, base=base, build=build, by=by)


def compare_commits(base: str, tip: str, name: str, cache: Repository) -> tuple[FileChange, ...]:
    """The files that differ between two commits of the cache; raises as :func:`check_changes`."""
    return check_changes(cache.git.renames(base, tip), name, cache.git)


def check_changes(changes: Sequence[TreeChange], name: str, git: Git) -> tuple[FileChange, ...]:
    """The files of a change, with their bytes, if a patch can carry all of them.

    Raises IMPORT_UNSUPPORTED for each file that no patch can carry (as one ErrorGroup), and IMPORT_NOTHING.
    """
    ids = [sha for change in changes for sha in change.ids if sha.strip("0")]
    sizes = git.sizes(ids)
    wrong = [(change.path, why) for change in changes if (why := _unsupported(change, sizes)) is not None]
    wanted = [change for change in changes if _unsupported(change, sizes) is None]
    ids = [sha for change in wanted for sha in change.ids if sha.strip("0")]
    blobs = {
        sha: found.data for sha, found in zip(ids, git.objects(map(str.encode, ids)), strict=True) if found
    }
    wrong += [
        (change.path, "its content is missing in the repository (a partial clone, or a damaged one)")
        for change in wanted
        if any(
            mode != _NOTHING and sha not in blobs for mode, sha in zip(change.modes, change.ids, strict=True)
        )
    ]
    files = []
    for change in wanted:
        if any(change.path == path for path, _ in wrong):
            continue
        before, after = (
            None if mode == _NOTHING else blobs[sha]
            for mode, sha in zip(change.modes, change.ids, strict=True)
        )
        old, new = (REGULAR if mode == _NOTHING else mode for mode in change.modes)
        files.append(
            FileChange(path=change.path, before=before, after=after, source=change.source, modes=(old, new))
        )
    errors = [
        UsageError(
            f"{visible(path)}: {why}",
            code="IMPORT_UNSUPPORTED",
            where=Location(path=name),
            hint="remove it from the diff; docs/reference/patches.md lists what a patch can do",
        )
        for path, why in sorted(wrong)
    ]
    raise_all(errors, f"{name} cannot become a patch")
    if not files:
        raise UsageError(f"{name} changes nothing", code="IMPORT_NOTHING", where=Location(path=name))
    return tuple(files)


def _unsupported(change: TreeChange, sizes: Mapping[str, int]) -> str | None:
    """Why no patch can carry this change; None if one can."""
    modes = {*change.modes}
    if "120000" in modes:
        return "a symbolic link; patches carry regular files only"
    if "160000" in modes:
        return "a submodule; its files belong to another repository"
    for path in (change.path, change.source):
        fault = fault_of_path(path) if path is not None else None
        if fault is not None:
            return fault
    before, after = (sizes.get(sha, 0) for sha in change.ids)
    if after > MAX_BLOB or before > _MOST_BEFORE:
        return f"too large ({max(before, after) // 2**20} MiB); the limit is {MAX_BLOB // 2**20} MiB"
    return None


def own_repository(folder: Path, cache: Repository) -> Git:
    """A bare repository in ``folder`` with its own index that borrows the cache's objects."""
    path = folder / "index.git"
    Git(reporter=cache.reporter).init(path)
    with disk_errors(path, "writing a temporary file"):
        (path / "info").mkdir(exist_ok=True)
        (path / "info" / "attributes").write_bytes(ATTRIBUTES)
    return Git(reporter=cache.reporter, git_dir=path, borrows=cache.path / "objects")


def commit_authorship(raw: bytes) -> Authorship:
    """Authors and message from a raw commit object."""
    head, _, text = raw.partition(b"\n\n")
    author = next((line[7:] for line in head.split(b"\n") if line.startswith(b"author ")), b"")
    subject, _, message = text.decode("utf-8", "replace").partition("\n")
    who, _, date = author.decode("utf-8", "replace").rpartition("> ")
    return Authorship.parse(subject, message, f"{who}>", _date(date))


def _date(text: str) -> dt.datetime | None:
    """A date of a commit object: seconds since 1970 and a zone."""
    found = re.fullmatch(r"([0-9]{1,10}) ([+-])([0-9]{2})([0-9]{2})", text)
    if found is None:
        return None
    offset = dt.timedelta(hours=int(found[3]), minutes=int(found[4]))
    with suppress(ValueError, OverflowError):
        zone = dt.timezone(offset if found[2] == "+" else -offset)
        return dt.datetime.fromtimestamp(int(found[1]), zone)
    return None
