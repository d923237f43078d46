"""Preprocess every touched unit of both trees in many configurations, and explain the differences."""

from __future__ import annotations

import difflib
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

from patchkit.base.digests import sha256
from patchkit.base.errors import GateError, Location, PatchkitError
from patchkit.base.files import disk_errors
from patchkit.base.jobs import run_parallel
from patchkit.base.source import SourceText
from patchkit.carry.cpp.lexer import TokenKind, lex
from patchkit.prove.gates.isolation.evidence import Reading, Unreadable
from patchkit.prove.subject import Subject
from patchkit.toolchain.compile import hip_definitions, without_unread
from patchkit.toolchain.compiler import Compiler
from patchkit.toolchain.hip import RocWmma, Toolchain, hip_flags, rocwmma_for
from patchkit.toolchain.preprocess import (
    PreprocessFailed,
    head_digest,
    head_tokens,
    reading_digest,
    reading_text,
)
from patchkit.toolchain.preprocess import Reading as Job
from patchkit.toolchain.units import Platform, SourceTree, tree_definitions


class TokensDiffer(GateError):
    """The tokens of a unit differ in a configuration that no patch targets."""

    code = "ISOLATION_TOKENS"


# One per generation that upstream's conditions distinguish: Volta, Ampere, Hopper.
CUDA_ARCHS = ("sm_70", "sm_80", "sm_90")
# MUSA_ARCHITECTURES of ggml-musa/CMakeLists.txt at build 6900: mp_21, mp_22, mp_31.
MUSA_ARCHS = ("mp_21", "mp_22", "mp_31")

# Versions that upstream's conditions read from vendor headers; a recent one each (CUDA 12.8, MUSA 4.3).
_STAND_IN_MACROS = {"cuda": ("CUDART_VERSION=12080",), "musa": ("MUSART_VERSION=40300",)}
_VENDOR = re.compile(
    r"(cuda|cublas|cuda_\w+|cub/|curand|nv|mma\.h|cooperative_groups|musa|mublas|mudnn|mtgpu)"
)

# ggml-cuda/CMakeLists.txt and ggml-musa/CMakeLists.txt of build 6900 with default options.
_COMMON = ("GGML_BACKEND_BUILD", "GGML_BACKEND_SHARED", "GGML_SHARED", "GGML_SCHED_MAX_COPIES=4", "NDEBUG")
_DEFINITIONS = {
    "cuda": (*_COMMON, "GGML_CUDA_PEER_MAX_BATCH_SIZE=128", "GGML_CUDA_USE_GRAPHS"),
    "musa": (*_COMMON, "GGML_CUDA_PEER_MAX_BATCH_SIZE=128", "GGML_USE_MUSA", "__MUSACC__"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """``arch`` is the GPU of a device pass, or ``all`` for the host pass that all GPUs of a backend share."""

    platform: Platform
    arch: str
    which: Literal["host", "device"]
    rocwmma: bool
    flags: tuple[str, ...]

    @property
    def name(self) -> str:
        """``hip gfx1100 device, rocWMMA on``."""
        state = f", rocWMMA {'on' if self.rocwmma else 'off'}" if self.platform == "hip" else ""
        return f"{self.platform} {self.arch} {self.which}{state}"


def hip_configurations(
    toolchain: Toolchain, archs: Sequence[str], *, host_arch: str
) -> Iterator[Configuration]:
    """Every device pass with rocWMMA on and off, and the two host passes, in that order per GPU.

    ``host_arch`` is the GPU whose flags the host passes use. Without any rocWMMA, passes with it on are
    skipped.
    """
    wanted = rocwmma_for(toolchain, host_arch)
    for rocwmma in (True, False):
        if rocwmma and wanted is None:
            continue
        definitions = hip_definitions(rocwmma=rocwmma)
        passes: list[tuple[str, Literal["host", "device"], str]] = [(arch, "device", arch) for arch in archs]
        for arch, which, named in [*passes, (host_arch, "host", "all")]:
            flags = (*hip_flags(toolchain, arch, which=which), *rocwmma_flags(toolchain, arch, wanted))
            yield Configuration(
                platform="hip",
                arch=named,
                which=which,
                rocwmma=rocwmma,
                flags=(*flags, *definitions),
            )


def cuda_configurations(headers: Path) -> Iterator[Configuration]:
    """CUDA, preprocessed by clang: a device pass per GPU and the host pass."""
    listed = ",".join(f"{arch[3:]}0" for arch in CUDA_ARCHS)
    for arch in CUDA_ARCHS:
        yield _stand_in(headers, "cuda", arch, "device", f"--cuda-gpu-arch={arch}", listed)
    yield _stand_in(headers, "cuda", "all", "host", f"--cuda-gpu-arch={CUDA_ARCHS[0]}", listed)


def musa_configurations(headers: Path) -> Iterator[Configuration]:
    """MUSA, preprocessed by clang as CUDA, with the macros of MUSA's own compiler."""
    for arch in MUSA_ARCHS:
        # MUSA's compiler is a clang with CUDA as its language; __CUDA_ARCH__ is the one of sm_70 here.
        own = f"-D__MUSA_ARCH__={arch[3:]}0"
        yield _stand_in(headers, "musa", arch, "device", "--cuda-gpu-arch=sm_70", None, own)
    yield _stand_in(headers, "musa", "all", "host", "--cuda-gpu-arch=sm_70", None)


def stand_in_headers(names: Iterable[str], directory: Path) -> tuple[Path, tuple[str, ...]]:
    """A folder of empty headers for those of ``names`` that belong to a vendor, and their names.

    Raises:
        CacheError: the disk is full or not writable.
    """
    vendor = tuple(sorted({name for name in names if _VENDOR.match(name) and ".." not in name}))
    digest = sha256("\n".join(vendor))[:16]
    folder = directory / digest
    with disk_errors(folder, "writing stand-in headers"):
        for name in vendor:
            path = folder / name
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(b"// stands in for the vendor's header\n")
    return folder, vendor


def rocwmma_flags(toolchain: Toolchain, arch: str, wanted: RocWmma | None) -> list[str]:
    """The include folder that ``hip_flags`` omits for a GPU without rocWMMA support."""
    # A build has one rocWMMA for all of its GPUs, including those it does not support.
    if wanted is None or rocwmma_for(toolchain, arch) is not None:
        return []
    return ["-isystem", str(wanted.include)]


def _stand_in(
    headers: Path,
    platform: Literal["cuda", "musa"],
    arch: str,
    which: Literal["host", "device"],
    target: str,
    arch_list: str | None,
    *more: str,
) -> Configuration:
    macros = [*_DEFINITIONS[platform], *_STAND_IN_MACROS[platform]]
    if arch_list is not None:
        macros.append(f"__CUDA_ARCH_LIST__={arch_list}")
    return Configuration(
        platform=platform,
        arch=arch,
        which=which,
        rocwmma=False,
        flags=(
            *("-x", "cuda", "-std=gnu++17", "-nocudainc", "-nocudalib", target),
            "--cuda-host-only" if which == "host" else "--cuda-device-only",
            *("-isystem", str(headers)),
            *(f"-D{macro}" for macro in macros),
            *more,
        ),
    )


_MARKER = re.compile(rb'^#\s+(\d+)\s+"((?:[^"\\\n]|\\.)*)"[^\n]*$', re.MULTILINE)
_SMALL = 4000  # tokens per side that difflib can compare in well under a second
_SHOWN = 14  # tokens of a difference that a message shows


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """``before`` became ``after``, both as text; ``old`` and ``new`` are their places (None: end of unit)."""

    before: str
    after: str
    old: Location | None
    new: Location | None


def differing_runs(before: bytes, after: bytes, *, most: int) -> tuple[Run, ...]:
    """The first ``most`` differing runs; empty if the tokens are the same."""
    old, new = (tuple(_tokens(text)) for text in _from_difference(before, after))
    head = _common([text for text, _ in old], [text for text, _ in new])
    tail = _common([text for text, _ in reversed(old[head:])], [text for text, _ in reversed(new[head:])])
    left, right = old[head : len(old) - tail], new[head : len(new) - tail]
    if not left and not right:
        return ()
    following = (old[len(old) - tail :][:1], new[len(new) - tail :][:1])
    if max(len(left), len(right)) > _SMALL:
        return (_run(left, right, *following),)
    runs = []
    matcher = difflib.SequenceMatcher(None, [t for t, _ in left], [t for t, _ in right], autojunk=False)
    for tag, at, until, start, stop in matcher.get_opcodes():
        if tag != "equal":
            ends = (left[until : until + 1] or following[0], right[stop : stop + 1] or following[1])
            runs.append(_run(left[at:until], right[start:stop], *ends))
            if len(runs) == most:
                break
    return tuple(runs)


def _from_difference(before: bytes, after: bytes) -> tuple[bytes, bytes]:
    """Both texts from the last line marker before they differ; what is cut is most of a unit."""
    start = end = 0
    for one, other in zip(before.splitlines(keepends=True), after.splitlines(keepends=True), strict=False):
        if one != other:
            break
        if _MARKER.match(one):
            start = end
        end += len(one)
    return before[start:], after[start:]


# A token, and a function that computes its place: needed for few of half a million tokens.
_Placed = tuple[bytes, Callable[[], Location | None]]


def _run(
    left: Sequence[_Placed],
    right: Sequence[_Placed],
    after_left: Sequence[_Placed],
    after_right: Sequence[_Placed],
) -> Run:
    return Run(
        before=_text(left),
        after=_text(right),
        old=next((place() for _, place in (*left, *after_left)), None),
        new=next((place() for _, place in (*right, *after_right)), None),
    )


def _text(tokens: Sequence[_Placed]) -> str:
    shown = b" ".join(text for text, _ in tokens[:_SHOWN]).decode("utf-8", "replace")
    return shown + (f" ... ({len(tokens)} tokens)" if len(tokens) > _SHOWN else "")


def _common(left: Sequence[bytes], right: Sequence[bytes]) -> int:
    count = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        count += 1
    return count


def _tokens(text: bytes) -> Iterator[_Placed]:
    """Every token with its place; line markers are not tokens."""
    source = SourceText("<preprocessed>", text)
    markers = [(found.start(), found.end(), found) for found in _MARKER.finditer(text)]
    at = 0
    for token in lex(source):
        start = token.start
        if token.kind is TokenKind.COMMENT:
            continue
        while at < len(markers) and markers[at][0] <= start:
            at += 1
        if at and start < markers[at - 1][1]:
            continue
        yield token.text, partial(_place, source, markers[at - 1] if at else None, start)


def _place(
    source: SourceText, marker: tuple[int, int, re.Match[bytes]] | None, offset: int
) -> Location | None:
    if marker is None:
        return None
    _, end, found = marker
    # A line marker describes the line after it.
    line = int(found[1]) + source.line_of(offset) - source.line_of(end) - 1
    return Location(path=posixpath.normpath(found[2].decode("utf-8", "replace")), line=line)


_EXPLAINED = 6  # differing units that are examined; the others are counted
_RUNS = 3  # differing runs shown per unit


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadUnit:
    """One unit in one configuration: the digests of both trees' tokens, or why there is none."""

    configuration: Configuration
    unit: str
    before: str | PreprocessFailed
    after: str | PreprocessFailed

    @property
    def agrees(self) -> bool:
        """Whether the tokens of both trees are equal."""
        return self.before == self.after

    @property
    def is_unread(self) -> bool:
        """Whether neither tree can be preprocessed: these headers do not support the configuration."""
        return isinstance(self.before, PreprocessFailed) and isinstance(self.after, PreprocessFailed)

    @property
    def reading(self) -> Reading:
        """The reading as evidence."""
        before, after = (
            side if isinstance(side, str) else Unreadable(error=side.message)
            for side in (self.before, self.after)
        )
        return Reading(
            configuration=self.configuration.name, unit=self.unit, baseline=before, candidate=after
        )


_AT_ONCE = 8  # readings per unit in one task
Digest = TypeVar("Digest")


def compare(
    wanted: Sequence[tuple[Configuration, str]],
    trees: tuple[SourceTree, SourceTree],
    compiler: Compiler,
    *,
    whether: bool = False,
) -> list[ReadUnit]:
    """Preprocess every unit in its configuration, in both trees.

    A unit that :func:`patchkit.toolchain.preprocess.head_digest` finds equal is not read further. With
    ``whether``, neither is a unit whose head differs: then only the fact that it differs is needed.
    """
    by_unit: dict[str, list[int]] = {}
    for at, (_, unit) in enumerate(wanted):
        by_unit.setdefault(unit, []).append(at)
    # A task has several readings of one unit: those with a common head would wait for each other in separate
    # tasks, and a worker of a cluster scans the files of a unit only once.
    parts = [
        places[at : at + _AT_ONCE] for places in by_unit.values() for at in range(0, len(places), _AT_ONCE)
    ]
    done = run_parallel(
        [[wanted[at] for at in part] for part in parts],
        partial(_read_all, trees, compiler, whether),
        reporter=compiler.reporter,
        what="reading units",
        unit="parts",
        stop=compiler.stop,
    )
    by_place = {
        at: one for part, ones in zip(parts, done, strict=True) for at, one in zip(part, ones, strict=True)
    }
    return [by_place[at] for at in range(len(wanted))]


def _read_all(
    trees: tuple[SourceTree, SourceTree],
    compiler: Compiler,
    whether: bool,  # noqa: FBT001 - given by partial
    wanted: Sequence[tuple[Configuration, str]],
) -> list[ReadUnit]:
    return [_read(trees, compiler, *one, whether=whether) for one in wanted]


def _read(
    trees: tuple[SourceTree, SourceTree],
    compiler: Compiler,
    configuration: Configuration,
    unit: str,
    *,
    whether: bool,
) -> ReadUnit:
    jobs = [_job(configuration, unit, tree) for tree in trees]
    old, new = (_unless_failed(head_digest, job, compiler) for job in jobs)
    if isinstance(old, str) and isinstance(new, str):
        if old == new:
            return ReadUnit(configuration=configuration, unit=unit, before=old, after=new)
        if whether:
            plain, other = (head_tokens(job, compiler) or "" for job in jobs)
            if plain != other:
                return ReadUnit(configuration=configuration, unit=unit, before=plain, after=other)
    before, after = (_unless_failed(reading_digest, job, compiler) for job in jobs)
    return ReadUnit(configuration=configuration, unit=unit, before=before, after=after)


def _unless_failed(
    read: Callable[[Job, Compiler], Digest], job: Job, compiler: Compiler
) -> Digest | PreprocessFailed:
    try:
        return read(job, compiler)
    except PreprocessFailed as error:
        return error


def explain(
    reads: Sequence[ReadUnit],
    trees: tuple[SourceTree, SourceTree],
    compiler: Compiler,
    subject: Subject,
    kind: type[GateError] = TokensDiffer,
) -> list[PatchkitError]:
    """One problem per distinct difference, with its tokens, both places and the patch that causes it."""
    problems: dict[tuple[str, str, str], PatchkitError] = {}
    differing = [each for each in reads if not each.agrees and not each.is_unread]
    for each in _spread(differing):
        for run in _runs(each, trees, compiler):
            key = (str(run.new), run.before, run.after)
            if key not in problems:
                problems[key] = _problem(each, run, differing, subject, kind)
        if isinstance(each.after, PreprocessFailed):
            key = (each.after.message, "", "")
            problems.setdefault(key, _unreadable(each, each.after, subject))
    return list(problems.values())


def _job(configuration: Configuration, unit: str, tree: SourceTree) -> Job:
    flags = (*without_unread(configuration.flags, tree, unit), *tree_definitions(tree.root))
    return Job(tree=tree, unit=unit, flags=flags, name=configuration.name)


def _spread(reads: Sequence[ReadUnit]) -> Iterator[ReadUnit]:
    """A few readings that are as different as possible: one per unit and backend."""
    seen: set[tuple[str, str]] = set()
    chosen = 0
    for each in reads:
        kind = (each.unit.rpartition("/")[2].split("-instance")[0], each.configuration.platform)
        if kind not in seen and chosen < _EXPLAINED:
            seen.add(kind)
            chosen += 1
            yield each


def _runs(read: ReadUnit, trees: tuple[SourceTree, SourceTree], compiler: Compiler) -> tuple[Run, ...]:
    if isinstance(read.after, PreprocessFailed) or isinstance(read.before, PreprocessFailed):
        return ()
    before, after = (reading_text(_job(read.configuration, read.unit, tree), compiler) for tree in trees)
    return differing_runs(before, after, most=_RUNS)


def _problem(
    read: ReadUnit, run: Run, differing: Sequence[ReadUnit], subject: Subject, kind: type[GateError]
) -> PatchkitError:
    place = run.new or Location(path=read.unit)
    patches = ", ".join(subject.patches_of(place.path, place.line)) or "no patch"
    names = sorted({other.configuration.name for other in differing if other.unit == read.unit})
    others = f" and {len(names) - 1} more configurations" if len(names) > 1 else ""
    return kind(
        f"{read.unit} has different tokens for {read.configuration.name}{others}: "
        f"'{run.before}' became '{run.after}'",
        where=[
            Location(path=place.path, line=place.line, label=f"candidate, patch {patches}"),
            *([Location(path=run.old.path, line=run.old.line, label="baseline")] if run.old else []),
        ],
        why=f"the change of patch {patches} is not inside its guard there",
        hint=f"patchkit diff --patch {patches.split(',')[0]}",
    )


def _unreadable(read: ReadUnit, error: PreprocessFailed, subject: Subject) -> PatchkitError:
    place = error.where[0] if error.where else Location(path=read.unit)
    patches = ", ".join(subject.patches_of(place.path, place.line)) or "no patch"
    return GateError(
        error.message,
        code="ISOLATION_UNREADABLE",
        where=[Location(path=place.path, line=place.line, label=f"candidate, patch {patches}")],
        why=f"the baseline can be preprocessed there. {error.why or ''}".strip(),
        hint=f"patchkit diff --patch {patches.split(',')[0]}",
    )
