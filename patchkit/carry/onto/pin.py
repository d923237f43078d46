"""Turn a commit of the user's clone into a pin, and find the upstream build that it is based on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from patchkit.base.errors import Location, UsageError
from patchkit.base.text import counted
from patchkit.base.upstreams import Upstream, build_name, llama_cpp
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.record import candidate_ref, read_record
from patchkit.carry.candidate.target import known_pins
from patchkit.carry.onto.builds_by_code import BuildsByCode, CodeFound, read_code
from patchkit.carry.onto.project import ProjectCommit, find_project, project_of
from patchkit.carry.onto.releases import build_tags, is_llama_cpp, newest_below, releases_at
from patchkit.carry.series.fault import FaultHere
from patchkit.carry.series.lock import Pin, load_lock, name_pin
from patchkit.carry.series.patch import Patch
from patchkit.carry.upstream.cache import open_cache
from patchkit.carry.upstream.clone import Clone, Commit, open_clone, read_commit, read_file, read_object
from patchkit.carry.upstream.refs import list_refs


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildFound:
    """The builds that a commit may be based on, both ends included; ``high`` is None without an upper end.

    ``known_by``: how this was determined.
    """

    json_keys: ClassVar = "low high known_by"

    low: int
    high: int | None
    known_by: str

    def has(self, build: int) -> bool:
        """Whether the commit may be based on that build."""
        return self.low <= build and (self.high is None or build <= self.high)

    def __str__(self) -> str:
        if self.high == self.low:
            return build_name(self.low)
        last = f" to {build_name(self.high)}" if self.high is not None else " or newer"
        return f"{build_name(self.low)}{last}"


def ggml_version(clone: Clone, commit: Commit, project: Upstream | None = None) -> str | None:
    """The version of ggml in a commit's CMake file, such as ``0.9.4``; None if it has none.

    ``project`` None: llama.cpp.
    """
    stated = (project or llama_cpp()).versions.ggml
    return stated.read(read_file(clone, commit, stated.file) or b"")


def find_build(clone: Clone, commit: Commit, version: str | None, pins: Sequence[Pin]) -> BuildFound | None:
    """The builds that the commit may be based on; None if unknown.

    Determined, in this order, by a known pin with the same tree, by the newest tag (``b<number>`` or
    ``v0.5.0``) or commit of a known pin in its history, and by ggml's version. For projects other than
    llama.cpp only the last one is used, because they have their own tags and counts.
    """
    for pin in pins:
        if commit.tree == pin.tree or commit.sha == pin.commit:
            return BuildFound(low=pin.build, high=pin.build, known_by=pin.title)
    likely = by_version(version, pins) if version is not None else None
    if not is_llama_cpp(clone, commit.sha):
        return likely
    tagged = _below(clone, commit, pins)
    released = newest_below(clone, commit, tagged, pins)
    # Without a build in the history, counting commits may be wrong: a squashed history has a single commit.
    if released is not None and (tagged is not None or (likely is not None and likely.has(released[0]))):
        tagged = released
    if tagged is None:
        return likely
    build, name = tagged
    since = clone.count(f"{name}..{commit.sha}")
    pin_name = name_pin(build_name(build), releases_at(clone, read_commit(clone, name).sha))
    known_by = f"{pin_name} and {counted(since, 'commit')}" if since else pin_name
    # Commits that no remote has are the user's own. The others may be upstream's.
    has_remote = bool(clone.ask("for-each-ref", "--count=1", "refs/remotes"))
    own = clone.count(commit.sha, "--not", name, "--remotes") if since and has_remote else 0
    high = build + since - own
    if likely is not None and likely.high is not None and build <= likely.high < high:
        high = likely.high
    return BuildFound(low=build, high=high, known_by=known_by)


def _with_code(found: BuildFound | None, build_range: BuildsByCode | None) -> BuildFound | None:
    """The builds that both the history or version and the code allow; the code decides if they differ."""
    if build_range is None:
        return found
    by_code = BuildFound(low=max(build_range.low, 1), high=build_range.high, known_by=build_range.known_by)
    if found is None:
        return by_code
    low = max(found.low, by_code.low)
    highs = [each.high for each in (found, by_code) if each.high is not None]
    high = min(highs, default=None)
    if high is not None and high < low:
        return replace(by_code, known_by=f"{build_range.known_by}, though {found.known_by} is {found}")
    if (low, high) == (found.low, found.high):
        return found
    return BuildFound(low=low, high=high, known_by=f"{found.known_by} and {build_range.known_by}")


def _below(clone: Clone, commit: Commit, pins: Iterable[Pin]) -> tuple[int, str] | None:
    """The newest upstream build in the history of the commit, and git's name for it."""
    known: dict[int, str] = {}
    for pin in pins:
        sha = pin.commit if pin.commit_object is not None else None
        if sha is not None and clone.git.is_ancestor(sha, commit.sha):
            known[pin.build] = sha
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
    # If another project's history was merged with llama.cpp's, its tags are skipped.
    newest_first = sorted(known.items(), reverse=True)
    return next((found for found in newest_first if is_llama_cpp(clone, found[1])), None)


def by_version(version: str, pins: Iterable[Pin]) -> BuildFound | None:
    """The builds with this version of ggml: those between known builds of an older and a newer version."""
    mine = _numbers(version)
    known = [(_numbers(pin.ggml), pin.build) for pin in pins if pin.ggml is not None]
    older = [build for number, build in known if number < mine]
    newer = [build for number, build in known if number > mine]
    if not older:
        return None
    same = [build for number, build in known if number == mine]
    high = min(newer) - 1 if newer else None
    # For the newest known version, any newer build is possible, starting at the last known one that has it.
    low = max(same) if high is None and same else max(older) + 1
    return BuildFound(low=low, high=high, known_by=f"ggml {version} in its CMake file")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def require_one(
    found: BuildFound | None, patches: Sequence[Patch], clone: Clone, commit: Commit
) -> BuildFound:
    """The range, if every patch is either for all of its builds or for none of them.

    Raises ONTO_BUILD_UNKNOWN.
    """
    if found is None:
        raise _unknown(
            clone,
            commit,
            "its history has no tag of a build, and its ggml version is not that of a known build",
        )
    for patch in patches:
        if patch.builds.by_code is not None:
            continue
        first, last = patch.builds.first, patch.builds.last
        covered = first <= found.low and (last is None or (found.high is not None and found.high <= last))
        apart = (found.high is not None and found.high < first) or (last is not None and last < found.low)
        if not covered and not apart:
            until = f"to {build_name(last)}" if last is not None else "and later"
            raise _unknown(
                clone,
                commit,
                f"it may be {found} (from {found.known_by}), but '{patch.id}' is for "
                f"{build_name(first)} {until}",
            )
    return found


def _unknown(clone: Clone, commit: Commit, why: str) -> UsageError:
    option = "--as-build bNUMBER"
    if is_llama_cpp(clone, commit.sha):
        message = f"cannot determine the upstream build of {commit.sha[:12]}"
        hint = f"name the newest upstream build in its history with {option}, or fetch the tags of builds: "
        hint += f"{clone.command} fetch --tags origin"
    else:
        message = f"cannot determine the llama.cpp build of the ggml in {commit.sha[:12]}"
        why = f"this is not llama.cpp (no include/llama.h), so its tags and commits do not count; {why}"
        hint = f"name the newest llama.cpp build whose changes to ggml it has with {option}"
    return UsageError(
        message, code="ONTO_BUILD_UNKNOWN", where=Location(path=str(clone.top)), why=why, hint=hint
    )


AsBuild = int | str | None
"""``--as-build``: the number of a build, a release (``v0.5.0``), or None if not given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Onto:
    """A commit of the user's clone, by any revision that git understands there.

    ``as_build``: the upstream build that it is based on according to the user, as a number or a release.
    """

    revision: str
    directory: Path
    as_build: AsBuild = None


def as_build_number(as_build: AsBuild, clone: Clone | None, pins: Sequence[Pin]) -> int | None:
    """The build number for ``--as-build``; a release is looked up in the pins and in the clone's tags.

    Raises ONTO_BUILD_UNKNOWN.
    """
    if not isinstance(as_build, str):
        return as_build
    known = next((pin.build for pin in pins if as_build in pin.releases), None)
    tag = f"refs/tags/{as_build}"
    why = "no pin has that name, and no tag of that name is based on a known build"
    hint = "name the newest upstream build in its history with --as-build bNUMBER"
    if known is None and clone is not None and clone.ask("rev-parse", "--verify", "--quiet", tag):
        commit = read_commit(clone, tag)
        version = ggml_version(clone, commit)
        found = find_build(clone, commit, version, pins)
        guessed = by_version(version, pins) if version is not None else None
        known = found.low if found is not None and found != guessed else None
        if not is_llama_cpp(clone, commit.sha):
            why = f"no pin has that name, and the tag {as_build} there is of another project than llama.cpp"
    elif clone is not None:
        hint += f", or fetch the tags: {clone.command} fetch --tags origin"
    if known is None:
        raise UsageError(
            f"cannot determine the build number of {as_build}",
            code="ONTO_BUILD_UNKNOWN",
            where=Location(path=str(clone.top)) if clone is not None else (),
            why=why,
            hint=hint,
        )
    return known


def build_below(as_build: AsBuild, clone: Clone, commit: Commit, pins: Sequence[Pin]) -> int | None:
    """The upstream build that a commit is based on: the named one, else by its history, tree or code.

    Raises ONTO_BUILD_UNKNOWN if the release in ``as_build`` is unknown.
    """
    named = as_build_number(as_build, clone, pins)
    if named is not None:
        return named
    found = _likely_build(project_of(clone, commit), pins)
    return found.low if found is not None else None


def _likely_build(there: ProjectCommit, pins: Sequence[Pin]) -> BuildFound | None:
    code = read_code(there, ())
    return likely_build(there, code.build_range if code is not None else None, pins)


def require_build(build: int | None, name: str) -> int:
    """The build; raises ONTO_BUILD_UNKNOWN if it is None."""
    if build is None:
        raise UsageError(
            f"cannot determine the upstream build of {name}",
            code="ONTO_BUILD_UNKNOWN",
            why="its history has no tag b<number>",
            hint="name the newest upstream build in its history with --as-build bNUMBER",
        )
    return build


def pin_of(
    clone: Clone,
    commit: Commit,
    build: int,
    project: Upstream | None = None,
    faults: tuple[str, ...] | None = None,
) -> Pin:
    """The commit as a pin that is based on that upstream build; ``project`` and ``faults`` as in the pin."""
    return Pin(
        name=f"onto-{commit.sha[:12]}",
        build=build,
        commit=commit.sha,
        tree=commit.tree,
        committed=commit.date,
        commit_object=commit.raw,
        sources=(),
        clone=clone.top,
        project=project,
        faults=faults,
    )


def find_onto_pin(onto: Onto, workspace: Workspace, archs: Sequence[str]) -> Pin:
    """The pin of a commit as used by the candidate for ``archs`` on it.

    A commit with the tree of such a candidate counts too, for example HEAD after the branch was merged. If
    there is no candidate, the result is a pin without one. Raises what reading the clone raises.
    """
    found = _find(onto, workspace)
    clone, commit, project = found.clone, found.commit, found.project
    repository = open_cache(workspace.cache_root).peek(workspace.reporter)
    refs = list_refs(repository, "refs") if repository is not None else {}
    wanted = candidate_ref(tuple(sorted(set(archs))), f"onto-{commit.sha[:12]}")
    folder = wanted.rpartition("/")[0]
    if repository is None:
        return pin_of(clone, commit, onto.as_build if isinstance(onto.as_build, int) else 0, project)
    candidates = [ref for ref in refs if ref.startswith(f"{folder}/onto-")]
    trees = repository.resolve(*(f"{ref}^{{tree}}" for ref in candidates))
    same = [ref for ref, tree in zip(candidates, trees, strict=True) if tree == commit.tree]
    for ref in (wanted, *sorted(same, key=lambda ref: refs[ref] != commit.sha)):
        record = read_record(repository, ref, refs)
        if record is not None and record.commit is not None:
            # If no branch was made on it, the base without patchkit's commits is only in the cache.
            base = commit if record.commit == commit.sha else read_object(repository, record.commit)
            pin = pin_of(clone, base, record.build, project, record.faults)
            return replace(pin, followed=record.followed)
    return pin_of(clone, commit, onto.as_build if isinstance(onto.as_build, int) else 0, project)


def _find(onto: Onto, workspace: Workspace) -> ProjectCommit:
    """The commit and its project; one without ggml's folder is refused. Raises as :func:`find_project`."""
    clone = open_clone(onto.directory, workspace.reporter)
    return find_project(onto.directory, onto.revision, clone, (llama_cpp().folders.library,))


def find_commit_pin(onto: Onto, workspace: Workspace) -> Pin:
    """The pin of a commit, regardless of patches; build 0 if its upstream build is unknown.

    Raises ONTO_NOT_LLAMA_CPP, and what reading the clone raises.
    """
    there = _find(onto, workspace)
    lock = load_lock(workspace.series.lock)
    pins = known_pins(lock, workspace.series.catalogue)
    build = _likely_build(there, pins)
    return pin_of(there.clone, there.commit, build.low if build is not None else 0, there.project)


def build_of(
    onto: Onto,
    there: ProjectCommit,
    code: CodeFound | None,
    pins: Sequence[Pin],
    workspace: Workspace,
    patches: Sequence[Patch],
    faults: Callable[[int], Iterable[FaultHere]],
) -> BuildFound:
    """The upstream build, as precisely as needed to decide which of the patches are for it.

    ``code``: what the commit's code shows. ``faults`` gives the known faults of a build on the requested
    GPUs. If the build remains unknown, warns of the faults that all possible builds have.

    Raises ONTO_BUILD_UNKNOWN.
    """
    clone, commit = there.clone, there.commit
    build_range = code.build_range if code is not None else None
    named = as_build_number(onto.as_build, clone, pins)
    if named is not None:
        pin_name = name_pin(build_name(named), (onto.as_build,) if isinstance(onto.as_build, str) else ())
        version = ggml_version(clone, commit, there.project)
        likely = _with_code(by_version(version, pins) if version is not None else None, build_range)
        if likely is not None and not likely.has(named):
            workspace.reporter.warn(f"--as-build is {pin_name}, but {likely.known_by} belongs to {likely}")
        return BuildFound(low=named, high=named, known_by=f"{pin_name}, given by --as-build")
    likely = likely_build(there, build_range, pins)
    try:
        # The code's span is as narrow as its marks: a patch that begins within it is not for this commit.
        found = likely if likely and build_range else require_one(likely, patches, clone, commit)
    except UsageError:
        if likely is not None and likely.high is not None:
            last = {each.fault.id for each in faults(likely.high)}
            for each in faults(likely.low):
                if each.fault.id in last and each.fault.is_harmful:
                    workspace.reporter.warn(f"known fault of {likely}: {each.sentence()}")
        raise
    if not there.is_llama_cpp:
        return found
    tagged = [name for name in releases_at(clone, commit.sha) if name not in found.known_by]
    return replace(found, known_by=f"{found.known_by}, tagged {', '.join(tagged)}") if tagged else found


def likely_build(
    there: ProjectCommit, build_range: BuildsByCode | None, pins: Sequence[Pin]
) -> BuildFound | None:
    """The builds that a commit may be based on, by its history, the version of ggml, and its code."""
    version = ggml_version(there.clone, there.commit, there.project)
    return _with_code(find_build(there.clone, there.commit, version, pins), build_range)
