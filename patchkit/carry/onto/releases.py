"""Releases (``v0.5.0``) in the user's clone, and the build numbers that follow from them."""

from __future__ import annotations

from collections.abc import Sequence

from patchkit.base.upstreams import llama_cpp
from patchkit.carry.series.lock import Pin
from patchkit.carry.upstream.clone import Clone, Commit, read_commit, read_file
from patchkit.carry.upstream.tags import sorted_releases

_MOST = 20  # releases above the newest tagged build that are considered


def is_llama_cpp(clone: Clone, sha: str) -> bool:
    """Whether a commit belongs to llama.cpp or a fork of it.

    Other projects on ggml have a folder ``ggml`` with the same layout, and their own builds: whisper.cpp, for
    example, has tags from b2250 to b4938.
    """
    return bool(clone.ask("ls-tree", "--full-tree", sha, "--", *llama_cpp().identity))


def releases_at(clone: Clone, sha: str) -> tuple[str, ...]:
    """The releases that a commit is tagged as."""
    names = clone.ask("for-each-ref", f"--points-at={sha}", "--format=%(refname:strip=2)", _release_tags())
    return sorted_releases(name for name in names if llama_cpp().tags.is_release(name))


def newest_below(
    clone: Clone, commit: Commit, tagged: tuple[int, str] | None, pins: Sequence[Pin]
) -> tuple[int, str] | None:
    """The newest build in a commit's history according to release tags, and its ref; None if there is none.

    ``tagged``: the newest build according to build tags and pins, and git's name for it. A fork may have its
    own releases, so a release counts only if upstream's CMake file states the same version. Its build number
    is that of a pin with this name; otherwise, on the main line, that of ``tagged`` plus the commits since,
    or the number of all commits.
    """
    beyond = [f"--no-merged={tagged[1]}"] if tagged is not None else []
    refs = clone.ask(
        "for-each-ref", f"--merged={commit.sha}", *beyond, "--format=%(refname)", _release_tags()
    )
    found: dict[int, str] = {}
    for ref in [ref for ref in refs if llama_cpp().tags.is_release(ref.removeprefix("refs/tags/"))][:_MOST]:
        number = _number(clone, ref, tagged, pins)
        if number is not None and (tagged is None or number > tagged[0]):
            found[number] = ref
    return max(found.items(), default=None)


def _number(clone: Clone, ref: str, tagged: tuple[int, str] | None, pins: Sequence[Pin]) -> int | None:
    name = ref.removeprefix("refs/tags/")
    commit = read_commit(clone, ref)
    upstream = llama_cpp()
    stated = upstream.versions.project
    version = stated.read(read_file(clone, commit, stated.file) or b"") if stated is not None else None
    if version is None or f"{upstream.tags.release}{version}" != name:
        return None
    known = next((pin.build for pin in pins if name in pin.releases), None)
    if known is not None or not _is_on_main_line(clone, commit):
        return known
    if tagged is not None:
        return tagged[0] + clone.count(f"{tagged[1]}..{commit.sha}")
    is_whole = clone.ask("rev-parse", "--is-shallow-repository") == ("false",)
    return clone.count(commit.sha) if is_whole else None


def build_tags() -> str:
    """The git pattern for the tags of builds."""
    return f"refs/tags/{llama_cpp().tags.build_glob}"


def _release_tags() -> str:
    return f"refs/tags/{llama_cpp().tags.release_glob}"


def _is_on_main_line(clone: Clone, commit: Commit) -> bool:
    """Whether a build's tag or a remote's default branch contains the commit."""
    where = ("refs/remotes/*/HEAD", build_tags())
    refs = clone.ask("for-each-ref", f"--contains={commit.sha}", "--format=%(refname)", *where)
    return any(
        ref.endswith("/HEAD") or llama_cpp().tags.build_number(ref.removeprefix("refs/tags/")) for ref in refs
    )
