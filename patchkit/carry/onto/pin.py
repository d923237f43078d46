"""A commit of the user's clone as a pin: which one is meant, and the upstream build it stands on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from patchkit.base.errors import Location, UsageError
from patchkit.base.text import counted
from patchkit.base.upstreams import build_name, llama_cpp
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.record import candidate_ref, read_record
from patchkit.carry.candidate.target import known_pins
from patchkit.carry.onto.releases import build_tags, is_llama_cpp, newest_below, releases_at
from patchkit.carry.series.fault import FaultHere
from patchkit.carry.series.lock import Lock, Pin, load_lock, name_pin
from patchkit.carry.series.patch import Patch
from patchkit.carry.upstream.cache import open_cache
from patchkit.carry.upstream.clone import Clone, Commit, open_clone, read_commit, read_file, read_object
from patchkit.carry.upstream.refs import list_refs


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildFound:
    """Builds that a commit can stand on, both ends included; ``high`` None: any newer one.

    ``told`` says by what it is known.
    """

    json_keys: ClassVar = "low high known_by=told"

    low: int
    high: int | None
    told: str

    def has(self, build: int) -> bool:
        """Whether the commit can stand on that build."""
        return self.low <= build and (self.high is None or build <= self.high)

    def __str__(self) -> str:
        if self.high == self.low:
            return build_name(self.low)
        last = f" to {build_name(self.high)}" if self.high is not None else " or newer"
        return f"{build_name(self.low)}{last}"


def ggml_version(clone: Clone, commit: Commit) -> str | None:
    """``0.9.4``: the version of ggml that a commit states; None where it states none."""
    stated = llama_cpp().versions.ggml
    return stated.read(read_file(clone, commit, stated.file) or b"")


def find_build(clone: Clone, commit: Commit, version: str | None, pins: Sequence[Pin]) -> BuildFound | None:
    """The builds that the commit can stand on; None when nothing tells.

    Asked in this order: is its tree that of a known pin; which tag ``b<number>`` or ``v0.5.0``, or commit of
    a known pin, lies below it; what does ggml's version say. Of another project than llama.cpp only the last
    is asked: it has tags and counts of its own.
    """
    for pin in pins:
        if commit.tree == pin.tree or commit.sha == pin.commit:
            return BuildFound(low=pin.build, high=pin.build, told=pin.title)
    likely = by_version(version, pins) if version is not None else None
    if not is_llama_cpp(clone, commit.sha):
        return likely
    tagged = _below(clone, commit, pins)
    released = newest_below(clone, commit, tagged, pins)
    # Without a build below, a count is only as good as the history: a squashed one has a single commit.
    if released is not None and (tagged is not None or (likely is not None and likely.has(released[0]))):
        tagged = released
    if tagged is None:
        return likely
    build, name = tagged
    since = clone.count(f"{name}..{commit.sha}")
    called = name_pin(build, releases_at(clone, read_commit(clone, name).sha))
    told = f"{called} and {counted(since, 'commit')}" if since else called
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
    listed = clone.ask(
        "for-each-ref",
        f"--merged={commit.sha}",
        "--format=%(refname)",
        build_tags(),
    )
    for ref in listed:
        build = llama_cpp().tags.build_number(ref.removeprefix("refs/tags/"))
        if build is not None:
            known[build] = ref
    # Of a project whose history was merged with llama.cpp's the tags are of that project.
    newest_first = sorted(known.items(), reverse=True)
    return next((found for found in newest_first if is_llama_cpp(clone, found[1])), None)


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
            clone, commit, "no build's tag lies below it, and ggml's version is not that of a known build"
        )
    for patch in patches:
        first, last = patch.builds.first, patch.builds.last
        covered = first <= found.low and (last is None or (found.high is not None and found.high <= last))
        apart = (found.high is not None and found.high < first) or (last is not None and last < found.low)
        if not covered and not apart:
            until = f"to {build_name(last)}" if last is not None else "on"
            raise _unknown(
                clone, commit, f"{found} by {found.told}, and '{patch.id}' is for {build_name(first)} {until}"
            )
    return found


def _unknown(clone: Clone, commit: Commit, why: str) -> UsageError:
    say = "--as-build bNUMBER"
    if is_llama_cpp(clone, commit.sha):
        message = f"cannot tell which upstream build {commit.sha[:12]} is made from"
        hint = f"name the newest upstream build that is in it: {say}; or fetch the tags of builds: "
        hint += f"{clone.command} fetch --tags origin"
    else:
        message = f"cannot tell which llama.cpp build the ggml of {commit.sha[:12]} is from"
        why = f"this is not llama.cpp (no include/llama.h), so its tags and commit count are no builds; {why}"
        hint = f"name the newest llama.cpp build whose changes to ggml are in it: {say}"
    return UsageError(
        message, code="ONTO_BUILD_UNKNOWN", where=Location(path=str(clone.top)), why=why, hint=hint
    )


AsBuild = int | str | None
"""``--as-build``: the number of a build, a release (``v0.5.0``), or nothing said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Onto:
    """A commit of the user's clone: any revision that git reads there.

    ``as_build`` is the user's word for the upstream build below it: its number, or a release.
    """

    revision: str
    directory: Path
    as_build: AsBuild = None


def as_build_number(as_build: AsBuild, clone: Clone | None, pins: Sequence[Pin]) -> int | None:
    """The number that ``--as-build`` means: of a release, as a pin or the clone's tag has it.

    Raises ONTO_BUILD_UNKNOWN.
    """
    if not isinstance(as_build, str):
        return as_build
    known = next((pin.build for pin in pins if as_build in pin.releases), None)
    tag = f"refs/tags/{as_build}"
    why = "no pin is called so, and no tag of that name stands on a build that is known"
    hint = "say the newest upstream build that is in it: --as-build bNUMBER"
    if known is None and clone is not None and clone.ask("rev-parse", "--verify", "--quiet", tag):
        commit = read_commit(clone, tag)
        version = ggml_version(clone, commit)
        found = find_build(clone, commit, version, pins)
        guessed = by_version(version, pins) if version is not None else None
        known = found.low if found is not None and found != guessed else None
        if not is_llama_cpp(clone, commit.sha):
            why = f"no pin is called so, and the tag {as_build} there is of another project than llama.cpp"
    elif clone is not None:
        hint += f"; or have the tags fetched: {clone.command} fetch --tags origin"
    if known is None:
        raise UsageError(
            f"nothing here tells which build {as_build} is",
            code="ONTO_BUILD_UNKNOWN",
            where=Location(path=str(clone.top)) if clone is not None else (),
            why=why,
            hint=hint,
        )
    return known


def build_below(as_build: AsBuild, clone: Clone, commit: Commit, pins: Sequence[Pin]) -> int | None:
    """The newest upstream build in a commit: the one that is named, else by its history or tree.

    Raises ONTO_BUILD_UNKNOWN: nothing here has the release that ``as_build`` names.
    """
    named = as_build_number(as_build, clone, pins)
    if named is not None:
        return named
    version = ggml_version(clone, commit)
    found = find_build(clone, commit, version, pins)
    return found.low if found is not None else None


def require_build(build: int | None, name: str) -> int:
    """The build; raises ONTO_BUILD_UNKNOWN where there is none."""
    if build is None:
        raise UsageError(
            f"which upstream build is {name} made from?",
            code="ONTO_BUILD_UNKNOWN",
            why="no tag b<number> lies below it",
            hint="say the newest upstream build that is in it: --as-build bNUMBER",
        )
    return build


def pin_of(clone: Clone, commit: Commit, build: int) -> Pin:
    """The commit as a pin, taken to stand on that upstream build."""
    return Pin(
        build=build,
        commit=commit.sha,
        tree=commit.tree,
        committed=commit.date,
        commit_object=commit.raw,
        sources=(),
        clone=clone.top,
    )


def find_onto_pin(onto: Onto, workspace: Workspace, archs: Sequence[str]) -> Pin:
    """The pin of a commit, as the candidate for ``archs`` on it was made.

    A commit with the tree of that candidate means the same: HEAD has it after the branch was merged. Without
    a candidate it is a pin on which none can be found. Raises what reading the clone raises.
    """
    clone = open_clone(onto.directory, workspace.reporter)
    commit = read_commit(clone, onto.revision)
    repository = open_cache(workspace.cache_root).peek(workspace.reporter)
    refs = list_refs(repository, "refs") if repository is not None else {}
    wanted = candidate_ref(tuple(sorted(set(archs))), f"onto-{commit.sha[:12]}")
    folder = wanted.rpartition("/")[0]
    if repository is None:
        return pin_of(clone, commit, onto.as_build if isinstance(onto.as_build, int) else 0)
    made_there = [ref for ref in refs if ref.startswith(f"{folder}/onto-")]
    trees = repository.resolve(*(f"{ref}^{{tree}}" for ref in made_there))
    same = [ref for ref, tree in zip(made_there, trees, strict=True) if tree == commit.tree]
    for ref in (wanted, *sorted(same, key=lambda ref: refs[ref] != commit.sha)):
        made = read_record(repository, ref, refs)
        if made is not None and made.commit is not None:
            # The clone lacks a base without patchkit's commits where no branch was made on it.
            base = commit if made.commit == commit.sha else read_object(repository, made.commit)
            return replace(pin_of(clone, base, made.build), followed=made.followed)
    return pin_of(clone, commit, onto.as_build if isinstance(onto.as_build, int) else 0)


def find_commit_pin(onto: Onto, workspace: Workspace) -> Pin:
    """The pin of a commit as it is, whatever patches are for it; build 0 where nothing tells which it is.

    Raises ONTO_NOT_LLAMA_CPP, and what reading the clone raises.
    """
    clone = open_clone(onto.directory, workspace.reporter)
    commit = read_commit(clone, onto.revision)
    refuse_no_llama(clone, commit, (llama_cpp().folders.library,))
    lock = load_lock(workspace.series.lock)
    pins = known_pins(lock, workspace.series.catalogue)
    return pin_of(clone, commit, build_below(None, clone, commit, pins) or 0)


def build_of(
    onto: Onto,
    clone: Clone,
    commit: Commit,
    lock: Lock,
    workspace: Workspace,
    patches: Sequence[Patch],
    faults: Callable[[int], Iterable[FaultHere]],
) -> BuildFound:
    """The upstream build, as far as it must be known to tell which of the patches are for it.

    ``faults`` gives the known faults of a build on the GPUs asked for. Where the build stays unknown, those
    that all builds in question have are warned of.

    Raises ONTO_BUILD_UNKNOWN, and the errors of reading the catalogue of upstreams.
    """
    pins = known_pins(lock, workspace.series.catalogue)
    version = ggml_version(clone, commit)
    said = as_build_number(onto.as_build, clone, pins)
    if said is not None:
        called = name_pin(said, (onto.as_build,) if isinstance(onto.as_build, str) else ())
        likely = by_version(version, pins) if version is not None else None
        if likely is not None and not likely.has(said):
            workspace.reporter.warn(f"--as-build {called}, but {likely.told} is of {likely}")
        return BuildFound(low=said, high=said, told=f"{called}, as you said")
    likely = find_build(clone, commit, version, pins)
    try:
        found = require_one(likely, patches, clone, commit)
    except UsageError:
        if likely is not None and likely.high is not None:
            last = {each.fault.id for each in faults(likely.high)}
            for each in faults(likely.low):
                if each.fault.id in last and each.fault.is_harmful:
                    workspace.reporter.warn(f"known fault of {likely}: {each.sentence()}")
        raise
    if not is_llama_cpp(clone, commit.sha):
        return found
    tagged = [name for name in releases_at(clone, commit.sha) if name not in found.told]
    return replace(found, told=f"{found.told}, tagged {', '.join(tagged)}") if tagged else found


def refuse_no_llama(clone: Clone, commit: Commit, folders: Sequence[str]) -> None:
    """Refuse a commit of something else than llama.cpp. Raises ONTO_NOT_LLAMA_CPP."""
    names = [folder.rstrip("/") for folder in folders]
    if not any(clone.ask("cat-file", "-t", f"{commit.sha}:{name}") == ("tree",) for name in names):
        raise UsageError(
            f"{commit.sha[:12]} of {clone.top} has none of the folders that are patched",
            code="ONTO_NOT_LLAMA_CPP",
            where=Location(path=str(clone.top)),
            why=f"it has no {' and no '.join(names)}",
            hint="--repo DIR names your clone of llama.cpp, --onto REV the commit in it",
        )
