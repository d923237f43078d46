"""Upstream's tags in a git remote: builds (``b11549``), and the releases (``v0.5.0``) among their commits.

A build's number is the count of commits that its history has (``git rev-list --count``), so builds are in the
order of the main line. A release says nothing about its place: that is the number of its commit, which nearly
always has a tag of its own; where it has none, commits are counted as upstream counts them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from patchkit.base.errors import SourceError, UsageError
from patchkit.base.files import working_folder
from patchkit.base.reporter import Reporter
from patchkit.base.text import counted
from patchkit.base.upstreams import build_name, llama_cpp
from patchkit.carry.upstream.followed import limited
from patchkit.carry.upstream.git import Git, GitSilent, redacted
from patchkit.carry.upstream.remote import checked_url, complaint

_COMMIT = re.compile(r"[0-9a-f]{7,40}")
_LISTED = re.compile(r"([0-9a-f]{40})\trefs/tags/([^\^]*)(\^\{\})?")
_NEAR = 256  # commits below a release in which a build is looked for first: about nine days
_MOST = 12000  # as many as upstream ever had; a build further off is looked at with the whole history
_MOST_COUNTED = 20  # releases without a build's tag that are looked at for the newest one
_ANSWER_S = 30.0
_SILENCE_S = 60.0


def sorted_releases(names: Iterable[str]) -> tuple[str, ...]:
    """By their numbers, for a person; nothing is decided by this order."""
    return tuple(sorted(names, key=lambda name: [int(part) for part in name[1:].split(".")]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tags:
    """Commits by build number, ascending, and by release."""

    url: str
    builds: Mapping[int, str]
    releases: Mapping[str, str] = field(default_factory=dict)

    def releases_of(self, commit: str) -> tuple[str, ...]:
        """The releases that a commit is."""
        return sorted_releases(name for name, sha in self.releases.items() if sha == commit)

    def build_of(self, commit: str) -> int | None:
        """The build that a commit is tagged as."""
        return next((build for build, sha in self.builds.items() if sha == commit), None)


def list_tags(url: str, reporter: Reporter) -> Tags:
    """The builds and releases of a remote; tags of any other name are not looked at.

    Raises:
        RemoteUrlBad: no such kind of address.
        REMOTE_HAS_NO_BUILDS: nothing answers there, or it has no such tag.
    """
    where = checked_url(url)
    reporter.step(f"asking {redacted(url)} for its builds and releases")
    names = llama_cpp().tags
    globs = (names.build_glob, names.release_glob)
    finished = Git(reporter=reporter).attempt("ls-remote", "--tags", where, *globs)
    if finished.status != 0:
        raise SourceError(
            f"{redacted(url)} cannot be asked for its builds",
            code="REMOTE_HAS_NO_BUILDS",
            why=complaint(finished.stderr) or finished.stderr.strip() or None,
            hint="check the address and the network, or name a mirror or a clone with --upstream-url",
        )
    found: dict[str, str] = {}
    # By lines of bytes: a name may hold what ends a line only in Unicode.
    for line in finished.stdout.split(b"\n"):
        row = _LISTED.fullmatch(line.decode("utf-8", "replace"))
        # An annotated tag comes twice, the second time with the commit that it names.
        if row is not None and (row[3] or row[2] not in found):
            found[row[2]] = row[1]
    builds = {build: sha for name, sha in found.items() if (build := names.build_number(name)) is not None}
    releases = {name: sha for name, sha in found.items() if names.is_release(name)}
    if not builds and not releases:
        raise SourceError(
            f"{redacted(url)} has no tag that names a build or a release",
            code="REMOTE_HAS_NO_BUILDS",
            why="builds are tags like b11549, releases like v0.5.0",
            hint="if it is a clone of yours: git fetch --tags",
        )
    return Tags(url=url, builds=dict(sorted(builds.items())), releases=releases)


def find_tagged(name: str, tags: Tags, root: Path, reporter: Reporter) -> tuple[int, str] | None:
    """Number and commit of what a remote has under a name; None where it has no such thing.

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
    """The build number of a release: that of the tag at its commit, else of as many commits as it has.

    The commits are fetched without their files into a folder of their own below ``root``.

    Raises:
        REMOTE_COMMIT_UNREADABLE: what it names is no commit.
        RELEASE_UNNUMBERED, FOLLOW_TOO_LARGE: the remote does not have its history, or sends anything else.
        RELEASE_OFF_MAIN_LINE: it is not among the builds: the commit of that number is another one.
        GitError, CacheError: git or the disk refused.
    """
    commit = tags.releases[release]
    tagged = tags.build_of(commit)
    if tagged is not None:
        return tagged
    with working_folder(root, "counting-", "making room for the history") as folder:
        git = Git(reporter=reporter, git_dir=folder)
        git.run("init", "--quiet", "--bare", "--template=", "--object-format=sha1")
        git.run("config", "remote.upstream.url", checked_url(tags.url))
        reporter.step(f"{release} has no build's tag at its commit: counting its commits")
        _fetch(git, tags, release, commit, f"--depth={_NEAR}")
        if git.attempt("cat-file", "commit", commit).status != 0:
            raise SourceError(
                f"{release} of {redacted(tags.url)} is no commit",
                code="REMOTE_COMMIT_UNREADABLE",
                hint="its tag names something else; name another release, or a build",
            )
        found = _count(git, tags, commit)
        if found is None and _cut_off(git):
            _fetch(git, tags, release, commit, "--unshallow")
            found = _count(git, tags, commit)
        if found is None:
            raise _unnumbered(
                tags, release, "its history is cut off there, above the build that it stands on"
            )
        _refuse_off_main_line(git, tags, release, found)
    return found.number


def newest_release(root: Path, tags: Tags, reporter: Reporter) -> tuple[str, int] | None:
    """The release that is furthest in the main line, whatever its name is, with its number; None without any.

    Those beside it, and what cannot be numbered, are left out, and told. Raises GitError, CacheError.
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
        reporter.warn(f"{len(untagged)} releases have no build's tag; {_MOST_COUNTED} were looked at")
    return max(numbers.items(), key=lambda found: found[1], default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counted:
    """A commit's number, and the newest build in its history, if any is tagged."""

    number: int
    below: int | None


def _count(git: Git, tags: Tags, commit: str) -> _Counted | None:
    """From the newest build below, or from the first commit on; None where the history is cut off before."""
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
    """The commits whose parents are not there."""
    if git.git_dir is None or not (git.git_dir / "shallow").exists():
        return set()
    return set((git.git_dir / "shallow").read_text("ascii").split())


def _refuse_off_main_line(git: Git, tags: Tags, release: str, found: _Counted) -> None:
    """Builds are numbered along the main line: what is beside it would have the number of another commit."""
    why = _off_main_line(git, tags, tags.releases[release], found)
    if why is None:
        return
    below = f"; the build that it stands on is {build_name(found.below)}" if found.below is not None else ""
    raise UsageError(
        f"{release} is beside the main line of {redacted(tags.url)}, so it is no build",
        code="RELEASE_OFF_MAIN_LINE",
        why=f"its history has {counted(found.number, 'commit')}, {why}",
        hint=f"take it from a clone: patchkit apply --onto {release} --repo DIR{below}",
    )


def _off_main_line(git: Git, tags: Tags, commit: str, found: _Counted) -> str | None:
    """By what a commit is seen to be beside the main line: the next build does not have it."""
    above = next((build for build in tags.builds if build >= found.number), None)
    newest = max(tags.builds, default=None)
    if above is None or newest is None:
        return (
            None if newest is None or found.below == newest else f"and {build_name(newest)} is not among them"
        )
    if above == found.number:
        return f"and {build_name(above)} is another commit"
    if above - found.number <= _MOST:
        _fetch(git, tags, build_name(above), tags.builds[above], f"--depth={above - found.number + 1}")
        if git.attempt("merge-base", "--is-ancestor", commit, tags.builds[above]).status == 0:
            return None
    return f"and {build_name(above)}, the next build, is not seen to have it"


def _fetch(git: Git, tags: Tags, release: str, commit: str, depth: str) -> None:
    args = (
        "fetch", "--progress", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules",
        "--no-auto-maintenance", "--filter=tree:0", depth, "upstream", commit,
    )  # fmt: skip
    try:
        done = git.watch(*args, on_text=limited(tags.url), answer_s=_ANSWER_S, silence_s=_SILENCE_S)
    except GitSilent as error:
        raise _unnumbered(tags, release, error.message) from error
    # From here on nothing is fetched that nobody asked for.
    for name in ("remote.upstream.promisor", "remote.upstream.partialclonefilter"):
        git.attempt("config", "--unset", name)
    if done.status != 0:
        raise _unnumbered(tags, release, complaint(done.stderr) or None)


def _unnumbered(tags: Tags, release: str, why: str | None) -> SourceError:
    return SourceError(
        f"{redacted(tags.url)} does not tell which build {release} is",
        code="RELEASE_UNNUMBERED",
        why=why,
        hint="name its build, as --to b11549: the file nightly-tag.txt of upstream's release says it; or if "
        "it is a clone of yours: git fetch --unshallow --tags",
    )
