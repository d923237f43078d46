"""Whether a bump can ask upstream's history, and the verdicts with what it says.

Vocabulary: see :mod:`patchkit.flow.naming`. That a history cannot be had is said in the report; it is
never a reason for a bump to fail.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from patchkit.classify.model import Classified
from patchkit.config.lock import GitSource, Pin
from patchkit.errors import GitError, SourceError
from patchkit.fetch.cache import Cache
from patchkit.fetch.history import open_history
from patchkit.fetch.pin import obtain
from patchkit.flow.naming import name_commits
from patchkit.flow.upstream import read_upstream
from patchkit.report import Reporter
from patchkit.vcs.redact import redacted


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Both pins, what the user said of the source, and the folders of the series."""

    old: Pin
    new: Pin
    source: Literal["auto", "git", "sdist"]
    upstream_url: str | None
    folders: Sequence[str]


def with_commits(
    verdicts: Sequence[Classified], asked: Asked, cache: Cache, reporter: Reporter
) -> tuple[tuple[Classified, ...], str]:
    """The verdicts with upstream's commits where they can be had, and a sentence about that.

    Raises CacheError when the disk refuses.
    """
    found = tuple(verdicts)
    if not any(verdict.drift or verdict.gone for verdict in found):
        return found, "not needed: nothing changed or went that a patch rests on"
    url, why = _remote(asked)
    if url is None:
        return found, f"not asked: {why}"
    try:
        with cache.hold(reporter) as repository:
            commit = obtain(asked.old, cache=cache, reporter=reporter).commit
            files = read_upstream(repository, commit, asked.folders).base
            with open_history(cache.root, url, asked.old, asked.new, reporter) as history:
                return name_commits(found, history, files), f"asked of {redacted(url)}"
    except (SourceError, GitError) as error:
        return found, f"not to be had: {error.message}"


def _remote(asked: Asked) -> tuple[str | None, str]:
    """The remote to ask; None with the reason why none is asked."""
    if asked.source == "sdist":
        return None, "a source package has no history"
    unknown = [pin.name for pin in (asked.old, asked.new) if pin.commit is None]
    if unknown:
        return None, f"the commit of {' and '.join(unknown)} is not known"
    named = [source.url for source in asked.new.sources if isinstance(source, GitSource)]
    if asked.upstream_url is None and not named:
        return None, f"{asked.new.name} has no git remote; name one with --upstream-url"
    return asked.upstream_url or named[0], ""
