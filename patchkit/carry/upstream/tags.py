"""Upstream's tags in a git remote: builds (``b11549``) and releases (``v0.5.0``).

A build's number is the number of commits in its history (``git rev-list --count``), so builds are in the
order of the main line. A release's name does not determine its build. Nearly always its commit also has a
build tag; otherwise commits are counted as upstream counts them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from patchkit.base.errors import SourceError, UsageError
from patchkit.base.reporter import Reporter
from patchkit.base.text import counted
from patchkit.base.upstreams import build_name, llama_cpp
from patchkit.carry.upstream.git import Git, redacted
from patchkit.carry.upstream.remote import checked_url, complaint, fetch_history, temporary_history

_COMMIT = re.compile(r"[0-9a-f]{7,40}")
_LISTED = re.compile(r"([0-9a-f]{40})\trefs/tags/([^\^]*)(\^\{\})?")
_NEAR = 256  # commits below a release that are fetched first to find a build: about nine days
_MOST = 12000  # more than upstream ever had; to reach a more distant build, the whole history is fetched
_MOST_COUNTED = 20  # releases without a build tag that are numbered to find the newest one


def sorted_releases(names: Iterable[str]) -> tuple[str, ...]:
    """By their numbers, for display; no decision depends on this order."""
    return tuple(sorted(names, key=lambda name: [int(part) for part in name[1:].split(".")]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tags:
    """Commits by build number, ascending, and by release."""

    url: str
    builds: Mapping[int, str]
    releases: Mapping[str, str] = field(default_factory=dict)

    def releases_of(self, commit: str) -> tuple[str, ...]:
        """The releases that a commit is tagged as."""
        return sorted_releases(name for name, sha in self.releases.items() if sha == commit)

    def build_of(self, commit: str) -> int | None:
        """The build that a commit is tagged as."""
        return next((build for build, sha in self.builds.items() if sha == commit), None)

    def between(self, first: int, last: int) -> tuple[int, ...]:
        """The builds from one to another, both included, ascending."""
        return tuple(sorted(build for build in self.builds if first <= build <= last))


def list_tags(url: str, reporter: Reporter) -> Tags:
    """The builds and releases of a remote; other tags are ignored.

    Raises:
        RemoteUrlBad: the URL is of an unsupported kind.
        REMOTE_HAS_NO_BUILDS: the remote does not respond, or has no such tags.
    """
    where = checked_url(url)
    reporter.step(f"listing the builds and releases of {redacted(url)}")
    names = llama_cpp().tags
    globs = (names.build_glob, names.release_glob)
    finished = Git(reporter=reporter).attempt("ls-remote", "--tags", where, *globs)
    if finished.status != 0:
        raise SourceError(
            f"could not list the builds of {redacted(url)}",
            code="REMOTE_HAS_NO_BUILDS",
            why=complaint(finished.stderr) or finished.stderr.strip() or None,
            hint="check the URL and the network, or name a mirror or a clone with --upstream-url",
        )
    found: dict[str, str] = {}
    # Split as bytes, because a name may contain characters that end a line in Unicode.
    for line in finished.stdout.split(b"\n"):
        row = _LISTED.fullmatch(line.decode("utf-8", "replace"))
        # An annotated tag is listed twice, the second time with the commit that it points to.
        if row is not None and (row[3] or row[2] not in found):
            found[row[2]] = row[1]
    builds = {build: sha for name, sha in found.items() if (build := names.build_number(name)) is not None}
    releases = {name: sha for name, sha in found.items() if names.is_release(name)}
    if not builds and not releases:
        raise SourceError(
            f"{redacted(url)} has no tag that names a build or a release",
            code="REMOTE_HAS_NO_BUILDS",
            why="builds are tags like b11549, releases like v0.5.0",
            hint="if it is your own clone: git fetch --tags",
        )
    return Tags(url=url, builds=dict(sorted(builds.items())), releases=releases)


def find_tagged(name: str, tags: Tags, root: Path, reporter: Reporter) -> tuple[int, str] | None:
    """Build number and commit for a name; None if the remote does not have it.

    ``b11549``, ``11549``, ``v0.5.0``, seven digits or more of the commit of one, ``latest`` (the newest
    build), or ``latest-release``. Raises as :func:`number_release`.
    """
    builds, releases = tags.builds, tags.releases
    if name == "latest":
        return max(builds.items(), default=None)
    if name == "latest-release":
        newest = newest_release(root, tags, reporter)
        return (newest[1], releases[newest[0]]) if newest is not None else None
    if name in releases:
        return number_release(root, tags, name, reporter), releases[name]
    build = llama_cpp().tags.parse_build(name)
    if build in builds or not _COMMIT.fullmatch(name):
        return next(((at, sha) for at, sha in builds.items() if at == build), None)
    commits = {sha for sha in (*builds.values(), *releases.values()) if sha.startswith(name)}
    if len(commits) != 1:
        return None
    (commit,) = commits
    release = next((each for each, sha in releases.items() if sha == commit), None)
    build = tags.build_of(commit)
    if build is None and release is not None:
        build = number_release(root, tags, release, reporter)
    return (build, commit) if build is not None else None


def number_release(root: Path, tags: Tags, release: str, reporter: Reporter) -> int:
    """The build number of a release: that of the build tag at its commit, else its number of commits.

    The commits are fetched, without their files, into a temporary folder below ``root``.

    Raises:
        REMOTE_COMMIT_UNKNOWN: the tag does not name a commit.
        RELEASE_UNNUMBERED, SourceError: the remote lacks the history, or sends something else.
        RELEASE_OFF_MAIN_LINE: it is not on the main line, where another commit has that number.
        GitError, CacheError: git or the disk reported an error.
    """
    commit = tags.releases[release]
    tagged = tags.build_of(commit)
    if tagged is not None:
        return tagged
    with temporary_history(root, "counting-", tags.url, reporter) as git:
        reporter.step(f"{release} has no build tag at its commit: counting its commits")
        _fetch(git, tags, release, commit, f"--depth={_NEAR}")
        if git.attempt("cat-file", "commit", commit).status != 0:
            raise SourceError(
                f"{release} of {redacted(tags.url)} is not a commit",
                code="REMOTE_COMMIT_UNKNOWN",
                hint="its tag points to something else; name another release, or a build",
            )
        found = _count(git, tags, commit)
        if found is None and _cut_off(git):
            _fetch(git, tags, release, commit, "--unshallow")
            found = _count(git, tags, commit)
        if found is None:
            raise _unnumbered(
                tags, release, "the remote's history is shallow and ends above the preceding build"
            )
        _refuse_off_main_line(git, tags, release, found)
    return found.number


def newest_release(root: Path, tags: Tags, reporter: Reporter) -> tuple[str, int] | None:
    """The release with the highest build number, whatever its name, and that number; None without any.

    Releases that are not on the main line or cannot be numbered are skipped with a warning. Raises GitError,
    CacheError.
    """
    numbers: dict[str, int] = {}
    untagged = []
    for release, commit in tags.releases.items():
        build = tags.build_of(commit)
        if build is not None:
            numbers[release] = build
        else:
            untagged.append(release)
    for release in untagged[:_MOST_COUNTED]:
        try:
            numbers[release] = number_release(root, tags, release, reporter)
        except (SourceError, UsageError) as error:
            reporter.warn(f"{error.message}{f': {error.why}' if error.why else ''}")
    if len(untagged) > _MOST_COUNTED:
        reporter.warn(f"{len(untagged)} releases have no build tag; only {_MOST_COUNTED} were numbered")
    return max(numbers.items(), key=lambda found: found[1], default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counted:
    """A commit's number, and the newest tagged build in its history, if any."""

    number: int
    below: int | None


def _count(git: Git, tags: Tags, commit: str) -> _Counted | None:
    """Count from the newest build below, or from the first commit; None if the history is cut off before."""
    history = git.run("rev-list", commit).decode("ascii").split()
    known = {sha: build for build, sha in tags.builds.items()}
    below = max((known[sha] for sha in history if sha in known), default=None)
    if below is None:
        since = history
    else:
        since = git.run("rev-list", commit, f"^{tags.builds[below]}").decode("ascii").split()
    if _cut_off(git).intersection(since):
        return None
    return _Counted(number=(below or 0) + len(since), below=below)


def _cut_off(git: Git) -> set[str]:
    """The commits whose parents are missing."""
    if git.git_dir is None or not (git.git_dir / "shallow").exists():
        return set()
    return set((git.git_dir / "shallow").read_text("ascii").split())


def _refuse_off_main_line(git: Git, tags: Tags, release: str, found: _Counted) -> None:
    """Builds are numbered along the main line, so a commit beside it would get the number of another one."""
    why = _off_main_line(git, tags, tags.releases[release], found)
    if why is None:
        return
    below = f"; the preceding build is {build_name(found.below)}" if found.below is not None else ""
    raise UsageError(
        f"{release} is not on the main line of {redacted(tags.url)}, so it has no build number",
        code="RELEASE_OFF_MAIN_LINE",
        why=f"its history has {counted(found.number, 'commit')}, {why}",
        hint=f"use it from a clone: patchkit apply --onto {release} --repo DIR{below}",
    )


def _off_main_line(git: Git, tags: Tags, commit: str, found: _Counted) -> str | None:
    """Why a commit is not on the main line: the next build does not contain it; None if it is."""
    above = next((build for build in tags.builds if build >= found.number), None)
    newest = max(tags.builds, default=None)
    if above is None or newest is None:
        return (
            None if newest is None or found.below == newest else f"and {build_name(newest)} is not among them"
        )
    if above == found.number:
        return f"and {build_name(above)} is a different commit"
    if above - found.number <= _MOST:
        _fetch(git, tags, build_name(above), tags.builds[above], f"--depth={above - found.number + 1}")
        if git.is_ancestor(commit, tags.builds[above]):
            return None
    return f"and {build_name(above)}, the next build, does not seem to contain it"


def _fetch(git: Git, tags: Tags, release: str, commit: str, depth: str) -> None:
    why = fetch_history(git, tags.url, "--filter=tree:0", depth, "upstream", commit)
    if why:
        raise _unnumbered(tags, release, why)


def _unnumbered(tags: Tags, release: str, why: str | None) -> SourceError:
    return SourceError(
        f"cannot determine the build of {release} from {redacted(tags.url)}",
        code="RELEASE_UNNUMBERED",
        why=why,
        hint="name its build, for example --to b11549 (see nightly-tag.txt in upstream's release); or, if it "
        "is your own clone: git fetch --unshallow --tags",
    )
