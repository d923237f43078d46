"""Releases (``v0.5.0``) in the user's clone, and which build a commit of upstream's main line is by them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from patchkit.carry.series.lock import RELEASE, Pin
from patchkit.carry.upstream.clone import Clone, Commit, read_commit, read_file
from patchkit.carry.upstream.tags import build_of_tag, sorted_releases

_CMAKE = "CMakeLists.txt"
_VERSION = re.compile(rb"^[ \t]*set\(LLAMA_VERSION_(MAJOR|MINOR|PATCH)[ \t]+([0-9]{1,6})\)", re.MULTILINE)
_MOST = 20  # releases above the newest tagged build that are looked at
_HEADERS = ("include/llama.h", "llama.h")  # the second until b3263; no other project on ggml has either


def is_llama_cpp(clone: Clone, sha: str) -> bool:
    """Whether a commit is of llama.cpp or a fork of it.

    Other projects on ggml have a folder ``ggml`` of the same layout, and builds of their own: whisper.cpp,
    for example, has tags from b2250 to b4938.
    """
    return bool(clone.ask("ls-tree", "--full-tree", sha, "--", *_HEADERS))


def releases_at(clone: Clone, sha: str) -> tuple[str, ...]:
    """The releases that a commit is tagged as."""
    names = clone.ask("for-each-ref", f"--points-at={sha}", "--format=%(refname:strip=2)", "refs/tags/v*")
    return sorted_releases(name for name in names if RELEASE.fullmatch(name))


def newest_below(
    clone: Clone, commit: Commit, tagged: tuple[int, str] | None, pins: Sequence[Pin]
) -> tuple[int, str] | None:
    """The newest build that releases tell below a commit, and its ref; None where they tell none.

    ``tagged`` is the newest that a tag or a pin tells, and what git calls it. A fork may have releases of its
    own: what counts is one that upstream's own CMake file names so. Its number is that of a pin that is
    called so; else, on the main line, as many more as there are commits above ``tagged``, or all of them.
    """
    beyond = [f"--no-merged={tagged[1]}"] if tagged is not None else []
    refs = clone.ask("for-each-ref", f"--merged={commit.sha}", *beyond, "--format=%(refname)", "refs/tags/v*")
    found: dict[int, str] = {}
    for ref in [ref for ref in refs if RELEASE.fullmatch(ref.removeprefix("refs/tags/"))][:_MOST]:
        number = _number(clone, ref, tagged, pins)
        if number is not None and (tagged is None or number > tagged[0]):
            found[number] = ref
    return max(found.items(), default=None)


def _number(clone: Clone, ref: str, tagged: tuple[int, str] | None, pins: Sequence[Pin]) -> int | None:
    name = ref.removeprefix("refs/tags/")
    commit = read_commit(clone, ref)
    if _version(read_file(clone, commit, _CMAKE) or b"") != name:
        return None
    known = next((pin.build for pin in pins if name in pin.releases), None)
    if known is not None or not _is_on_main_line(clone, commit):
        return known
    if tagged is not None:
        return tagged[0] + clone.count(f"{tagged[1]}..{commit.sha}")
    is_whole = clone.ask("rev-parse", "--is-shallow-repository") == ("false",)
    return clone.count(commit.sha) if is_whole else None


def _version(cmake: bytes) -> str | None:
    """``v0.5.0`` from upstream's own CMake file."""
    parts = {name.decode(): value.decode() for name, value in _VERSION.findall(cmake)}
    found = [parts.get(name) for name in ("MAJOR", "MINOR", "PATCH")]
    return f"v{'.'.join(part for part in found if part is not None)}" if None not in found else None


def _is_on_main_line(clone: Clone, commit: Commit) -> bool:
    """Whether a build's tag, or the branch that a remote shows first, has the commit."""
    where = ("refs/remotes/*/HEAD", "refs/tags/b*")
    refs = clone.ask("for-each-ref", f"--contains={commit.sha}", "--format=%(refname)", *where)
    return any(ref.endswith("/HEAD") or build_of_tag(ref.removeprefix("refs/tags/")) for ref in refs)
