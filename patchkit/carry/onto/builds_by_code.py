"""The llama.cpp build of a copy of ggml, and its known faults, by its code.

The marks in ``upstreams/llama.cpp.toml`` are code that llama.cpp has in some range of builds only. A copy
that was synchronised without changes has the marks of exactly one span between two of their limits. A fork
that took single later changes has the marks of one span except for these; then the span with the fewest
differences is its build, and the differences are reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from patchkit.base.errors import CacheError, GitError
from patchkit.base.text import counted
from patchkit.base.upstreams import CodeSign, Mark, llama_cpp
from patchkit.carry.judging.preconditions import defines, has_sign
from patchkit.carry.onto.project import ProjectCommit
from patchkit.carry.placing.tree import UpstreamFiles
from patchkit.carry.series.fault import Fault

_MOST_BYTES = (
    8 << 20
)  # of a file that is searched: upstream's largest has about 1 MiB; lexing 30 MiB takes minutes

# In common.cuh of every build since 3236, the first with a folder of GPU code.
BACKEND_FUNCTION = "warp_reduce_sum"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildsByCode:
    """The builds whose code a copy of ggml has, both included; ``high`` None: up to the newest one.

    ``low`` 0: older than every mark. ``unlike``: marks that differ from these builds, because the copy has
    later changes, lacks earlier ones, or replaced the code.
    """

    low: int
    high: int | None
    unlike: tuple[Mark, ...] = ()

    @property
    def known_by(self) -> str:
        """How this was determined."""
        but = f", which differs in {counted(len(self.unlike), 'place')}" if self.unlike else ""
        return f"its code{but}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeFound:
    """What the code of a commit shows. ``build_range`` None: too little of the code is known.

    ``faults``: ids of the known faults that have signs, and whose signs are all there. ``is_backend``:
    whether it is GPU code of ggml at all, and not other files under the same names.
    """

    build_range: BuildsByCode | None
    faults: tuple[str, ...]
    is_backend: bool = True


def read_code(found: ProjectCommit, faults: Sequence[Fault]) -> CodeFound | None:
    """Compare the code of a commit with the marks and with the signs of the faults; None if it is not there.

    Only files that these name are read, and if a fork has moved a function, other files of GPU code with its
    name.
    """
    marks = llama_cpp().marks
    backend = CodeSign(file=llama_cpp().gpu_file("common.cuh"), function=BACKEND_FUNCTION)
    wanted = [*(mark.sign for mark in marks), backend, *(sign for fault in faults for sign in fault.code)]
    if found.project.gpu_file("common.cuh") not in found.names:
        return None
    try:
        there = _find_signs(found, wanted)
    except (GitError, CacheError):
        return None  # a partial clone lacks files, or a path is a link; copying the commit reports damage
    build_range = find_builds_by_code(marks, {mark for mark in marks if mark.sign in there})
    ids = (fault.id for fault in faults if fault.code and there.issuperset(fault.code))
    return CodeFound(build_range=build_range, faults=tuple(ids), is_backend=backend in there)


def _find_signs(found: ProjectCommit, wanted: Sequence[CodeSign]) -> frozenset[CodeSign]:
    """Those of the signs that the commit has."""
    placed = {sign: replace(sign, file=found.project.place(sign.file) or sign.file) for sign in wanted}
    paths = {sign.file for sign in placed.values()} & found.names
    files = _read(found, paths)
    moved = {
        sign.function
        for sign in placed.values()
        if sign.function is not None and not defines(files, sign.file, sign.function)
    }
    folder = f"{found.project.gpu_folder}/"
    hits = found.clone.refs.search(found.commit.sha, sorted(moved), folder)
    others = {name: sorted({path for path, _ in at} - paths) for name, at in hits.items()}
    files = _read(found, paths.union(*others.values()))

    def has(sign: CodeSign) -> bool:
        if sign.function not in moved:
            return has_sign(sign, files)
        homes = (path for path in others[sign.function] if defines(files, path, sign.function))
        return any(has_sign(replace(sign, file=path), files) for path in homes)

    return frozenset(sign for sign in wanted if has(placed[sign]))


def _read(found: ProjectCommit, paths: Iterable[str]) -> UpstreamFiles:
    read = found.clone.refs.read_blobs(found.commit.sha, sorted(paths))
    base = {path: data for path, data in read.items() if len(data) <= _MOST_BYTES}
    return UpstreamFiles(base, found.names, project=found.project)


def find_builds_by_code(marks: Sequence[Mark], there: set[Mark]) -> BuildsByCode | None:
    """The span of builds whose marks are most like those that are ``there``; None without any mark.

    Of several equally similar spans, the result has the oldest one and those directly after it.
    """
    if not there:
        return None
    limits = sorted({0, *_limits(marks)})
    differing = {low: tuple(mark for mark in marks if mark.covers(low) != (mark in there)) for low in limits}
    least = min(map(len, differing.values()))
    low = next(each for each in limits if len(differing[each]) == least)
    high: int | None = None
    for each in limits[limits.index(low) + 1 :]:
        if len(differing[each]) > least:
            high = each - 1
            break
    return BuildsByCode(low=low, high=high, unlike=differing[low])


def _limits(marks: Iterable[Mark]) -> Iterable[int]:
    for mark in marks:
        yield mark.first
        if mark.last is not None:
            yield mark.last + 1
