"""The builds a git remote has: its tags, and a pin made of what a tag names.

Vocabulary: a *build* is a tag ``b<number>``, as upstream names its releases; nearly every commit of
upstream's main branch has one. A pin made here has no more authority than the remote: what it names
becomes the lock's truth only when a bump writes it there, for a person to review.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping

from patchkit.config.lock import GitSource, Pin
from patchkit.errors import SourceError
from patchkit.fetch.gitremote import checked_url, fetch_commit
from patchkit.report import Reporter
from patchkit.vcs.redact import redacted
from patchkit.vcs.repository import Repository
from patchkit.vcs.runner import Git

_TAG = re.compile(r"refs/tags/b([1-9][0-9]*)(\^\{\})?")
_COMMITTER = re.compile(rb"^committer .*> ([0-9]+) ([+-][0-9]{2})([0-9]{2})$", re.MULTILINE)


def list_builds(url: str, reporter: Reporter) -> Mapping[int, str]:
    """Commit by build number, ascending.

    Raises:
        RemoteUrlBad: no such kind of address.
        REMOTE_HAS_NO_BUILDS: nothing answers there, or it has no such tag.
    """
    where = checked_url(url)
    reporter.step(f"asking {redacted(url)} for its builds")
    finished = Git(reporter=reporter).attempt("ls-remote", "--tags", where, "b*")
    if finished.status != 0:
        last = [line for line in finished.stderr.splitlines() if line.startswith(("fatal", "error", "ssh"))]
        raise SourceError(
            f"{redacted(url)} cannot be asked for its builds",
            code="REMOTE_HAS_NO_BUILDS",
            why="\n".join(last) or finished.stderr.strip() or None,
            hint="check the address and the network, or name a mirror or a clone with --upstream-url",
        )
    found: dict[int, str] = {}
    for line in finished.stdout.decode("utf-8", "replace").splitlines():
        sha, _, name = line.partition("\t")
        tag = _TAG.fullmatch(name)
        if tag is not None and (tag[2] or int(tag[1]) not in found):
            found[int(tag[1])] = sha
    if not found:
        raise SourceError(
            f"{redacted(url)} has no tag that names a build",
            code="REMOTE_HAS_NO_BUILDS",
            why="builds are tags like b11549",
            hint="if it is a clone of yours: git fetch --tags",
        )
    return dict(sorted(found.items()))


def read_pin(
    repository: Repository, url: str, build: int, commit: str, *, reporter: Reporter, answer_s: float = 60.0
) -> Pin:
    """The pin of a build: its commit is fetched, and tree, date and commit object are read from it.

    The caller holds the cache. Nothing but objects is written. Raises the errors of
    :func:`patchkit.fetch.gitremote.fetch_commit` and REMOTE_COMMIT_UNREADABLE.
    """
    fetch_commit(repository, url, commit, reporter=reporter, answer_s=answer_s)
    raw = repository.git.run("cat-file", "commit", commit)
    found = _COMMITTER.search(raw)
    if found is None:
        raise SourceError(
            f"{commit} of {redacted(url)} has no committer with a date", code="REMOTE_COMMIT_UNREADABLE"
        )
    return Pin(
        build=build,
        commit=commit,
        tree=repository.tree_of(commit),
        committed=_rfc3339(int(found[1]), found[2].decode(), found[3].decode()),
        commit_object=raw,
        sources=(GitSource(url=checked_url(url)),),
    )


def _rfc3339(seconds: int, hours: str, minutes: str) -> str:
    offset = dt.timedelta(hours=abs(int(hours)), minutes=int(minutes))
    zone = dt.timezone(-offset if hours.startswith("-") else offset)
    return dt.datetime.fromtimestamp(seconds, tz=zone).isoformat()
