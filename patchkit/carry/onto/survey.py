"""``status --onto``: the age and the known faults of the copy of ggml in a commit of the user's clone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from patchkit.base.errors import Location, UsageError
from patchkit.base.upstreams import Upstream
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.renames import faulted_series
from patchkit.carry.candidate.target import known_pins
from patchkit.carry.onto.builds_by_code import BACKEND_FUNCTION, read_code
from patchkit.carry.onto.pin import BuildFound, Onto, as_build_number, ggml_version, likely_build
from patchkit.carry.onto.project import find_project
from patchkit.carry.series.catalogue import load_series
from patchkit.carry.series.fault import Fault
from patchkit.carry.series.lock import Pin, load_lock
from patchkit.carry.upstream.clone import Clone, Commit, open_clone


@dataclass(frozen=True, slots=True, kw_only=True)
class Behind:
    """By how many builds a copy of ggml is behind the newest known build: ``least`` to ``most``."""

    least: int
    most: int

    def __str__(self) -> str:
        """For example ``984 to 1249 builds``."""
        if self.most == 0:
            return "0 builds"
        return f"{self.least} to {self.most} builds" if self.least != self.most else f"{self.most} builds"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyStatus:
    """A copy of ggml in a commit. ``version``: of ggml, by its CMake file; None if that states none.

    ``build``: the builds of llama.cpp whose code it has, None if unknown; ``newest``: the newest build in the
    lock and the list of known builds. ``differs``: marks of those builds that the code lacks, or has though
    they belong to other builds, as the reasons in llama.cpp's description. ``faults``: known faults of this
    code, on any GPU. ``by_code``: whether they were found in the code; otherwise they are those of the build.
    """

    json_keys: ClassVar = (
        "project=project.name folder=project.root repository=clone.top commit=commit.sha version build "
        "newest behind differs faults by_code"
    )

    project: Upstream
    clone: Clone
    commit: Commit
    version: str | None
    build: BuildFound | None
    newest: Pin
    differs: tuple[str, ...]
    faults: tuple[Fault, ...]
    by_code: bool

    @property
    def behind(self) -> Behind | None:
        """By how many builds it is behind the newest known one."""
        if self.build is None:
            return None
        last, high = self.newest.build, self.build.high
        least = 0 if high is None else max(last - high, 0)
        return Behind(least=least, most=max(last - self.build.low, 0))


def survey(onto: Onto, workspace: Workspace) -> CopyStatus:
    """Look at the copy of ggml in a commit; nothing is copied, fetched or written.

    Raises as :func:`patchkit.carry.onto.project.find_project`, ONTO_NOT_LLAMA_CPP also if the files of the
    GPU code have other contents, ONTO_BUILD_UNKNOWN if --as-build names an unknown release, and the errors of
    lock and series.
    """
    series = load_series(workspace.series.patches)
    clone = open_clone(onto.directory, workspace.reporter)
    there = find_project(onto.directory, onto.revision, clone, ())
    pins = known_pins(load_lock(workspace.series.lock), workspace.series.catalogue)
    code = read_code(there, series.faults)
    if code is not None and not code.is_backend:
        raise UsageError(
            f"{there.commit.sha[:12]} of {there.clone.top} has no GPU code of ggml",
            code="ONTO_NOT_LLAMA_CPP",
            where=Location(path=there.project.gpu_folder),
            why=f"no file in that folder defines the function {BACKEND_FUNCTION}",
            hint="name your clone with --repo DIR, and the commit in it with --onto REV",
        )
    named = as_build_number(onto.as_build, there.clone, pins)
    build = (
        likely_build(there, code.build_range if code is not None else None, pins)
        if named is None
        else BuildFound(low=named, high=named, known_by="--as-build")
    )
    faults = faulted_series(series, code.faults if code is not None else None).faults
    return CopyStatus(
        project=there.project,
        clone=there.clone,
        commit=there.commit,
        version=ggml_version(there.clone, there.commit, there.project),
        build=build,
        newest=max(pins, key=lambda pin: pin.build),
        differs=tuple(mark.why for mark in code.build_range.unlike)
        if code is not None and code.build_range
        else (),
        faults=tuple(each for each in faults if build is not None and each.builds.covers(build.low)),
        by_code=code is not None,
    )
