"""Which upstream build a commit of the user's stands on, from what his repository and its CMake files say.

Patches have build ranges, so the number decides which of them are tried. It need not be exact: it is enough
that every build it can be gives the same patches. Where they differ, the user says it (``--as-build``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from patchkit.config.lock import Pin
from patchkit.config.manifest import Patch
from patchkit.errors import Location, UsageError
from patchkit.vcs.clone import Clone, Commit

_TAG = re.compile(r"b([1-9][0-9]{0,8})")
_VERSION = re.compile(rb"^[ \t]*set\(GGML_VERSION_(MAJOR|MINOR|PATCH)[ \t]+([0-9]{1,6})\)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildFound:
    """Builds that a commit can stand on, both ends included; ``high`` None: any newer one.

    ``told`` says by what it is known.
    """

    low: int
    high: int | None
    told: str

    def has(self, build: int) -> bool:
        """Whether the commit can stand on that build."""
        return self.low <= build and (self.high is None or build <= self.high)

    def __str__(self) -> str:
        if self.high == self.low:
            return f"b{self.low}"
        return f"b{self.low} or newer" if self.high is None else f"b{self.low} to b{self.high}"


def ggml_version(cmake: bytes) -> str | None:
    """``0.9.4`` from ggml/CMakeLists.txt; None where it is not written there (builds before 6400 or so)."""
    parts = {name.decode(): value.decode() for name, value in _VERSION.findall(cmake)}
    found = [parts.get(name) for name in ("MAJOR", "MINOR", "PATCH")]
    return ".".join(part for part in found if part is not None) if None not in found else None


def find_build(clone: Clone, commit: Commit, version: str | None, pins: Sequence[Pin]) -> BuildFound | None:
    """The builds that the commit can stand on; None when nothing tells.

    Asked in this order: is its tree that of a known pin; which tag ``b<number>``, or commit of a known pin,
    lies below it; what does ggml's version say.
    """
    for pin in pins:
        if commit.tree == pin.tree or commit.sha == pin.commit:
            return BuildFound(low=pin.build, high=pin.build, told=pin.name)
    likely = by_version(version, pins) if version is not None else None
    below = _below(clone, commit, pins)
    if below is None:
        return likely
    build, name = below
    since = clone.count(f"{name}..{commit.sha}")
    told = f"b{build} and {since} commit{'s'[: since != 1]}" if since else f"b{build}"
    # What no remote has is the user's own. Of the rest nothing tells whose it is; it may be upstream's.
    has_remote = bool(clone.ask("for-each-ref", "--count=1", "refs/remotes"))
    own = clone.count(commit.sha, "--not", name, "--remotes") if since and has_remote else 0
    high = build + since - own
    if likely is not None and likely.high is not None and build <= likely.high < high:
        high = likely.high
    return BuildFound(low=build, high=high, told=told)


def _below(clone: Clone, commit: Commit, pins: Iterable[Pin]) -> tuple[int, str] | None:
    """The newest upstream build in the history of the commit, and what git calls it."""
    known: dict[int, str] = {}
    for pin in pins:
        if pin.commit is not None and pin.commit_object is not None:
            ancestor = clone.git.attempt("merge-base", "--is-ancestor", pin.commit, commit.sha)
            if ancestor.status == 0:
                known[pin.build] = pin.commit
    listed = clone.ask("for-each-ref", f"--merged={commit.sha}", "--format=%(refname)", "refs/tags/b*")
    for ref in listed:
        named = _TAG.fullmatch(ref.removeprefix("refs/tags/"))
        if named is not None:
            known[int(named[1])] = ref
    return max(known.items()) if known else None


def by_version(version: str, pins: Iterable[Pin]) -> BuildFound | None:
    """The builds that ggml's version stands for: those between the known ones of an older and a newer one."""
    mine = _numbers(version)
    known = [(_numbers(pin.ggml), pin.build) for pin in pins if pin.ggml is not None]
    older = [build for number, build in known if number < mine]
    newer = [build for number, build in known if number > mine]
    if not older:
        return None
    same = [build for number, build in known if number == mine]
    high = min(newer) - 1 if newer else None
    # Of the newest known version on, every build is newer than the last one that has it.
    low = max(same) if high is None and same else max(older) + 1
    return BuildFound(low=low, high=high, told=f"ggml {version} in its CMake file")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def require_one(
    found: BuildFound | None, patches: Sequence[Patch], clone: Clone, commit: Commit
) -> BuildFound:
    """The range, if each of the patches is for all of its builds or for none.

    Raises ONTO_BUILD_UNKNOWN.
    """
    if found is None:
        raise _unknown(
            clone, commit, "no tag b<number> lies below it, and ggml's version is not that of a known build"
        )
    for patch in patches:
        first, last = patch.builds.first, patch.builds.last
        covered = first <= found.low and (last is None or (found.high is not None and found.high <= last))
        apart = (found.high is not None and found.high < first) or (last is not None and last < found.low)
        if not covered and not apart:
            until = f"to b{last}" if last is not None else "on"
            raise _unknown(
                clone, commit, f"{found} by {found.told}, and '{patch.id}' is for b{first} {until}"
            )
    return found


def _unknown(clone: Clone, commit: Commit, why: str) -> UsageError:
    return UsageError(
        f"which upstream build is {commit.sha[:12]} made from?",
        code="ONTO_BUILD_UNKNOWN",
        where=Location(path=str(clone.top)),
        why=why,
        hint="say the newest upstream build that is in it: --as-build bNUMBER; or have its tags fetched: "
        f"{clone.command} fetch --tags origin",
    )
