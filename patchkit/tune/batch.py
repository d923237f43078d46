"""Batch limits of mul_mat_vec_q, by modelled time: up to how many columns it is used instead of mul_mat_q.

Both kernels compute a matmul of a dense matrix with 2 to 8 columns: ``mul_mat_vec_q`` as upstream chooses it,
and ``mul_mat_q`` in a changed tree that uses it from two columns on. A limit is proposed if the matrix kernel
is faster by more than the error of nine in ten such ratios.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import ClassVar

from patchkit.base.errors import ConfigError, Location, ToolchainError, UsageError
from patchkit.base.jobs import open_pool, run_tasks
from patchkit.base.plain import fields_of
from patchkit.base.source import SourceText
from patchkit.base.upstreams import llama_cpp
from patchkit.base.workspace import Workspace
from patchkit.carry.cpp.scopes import parse_scopes
from patchkit.carry.series.lock import Pin, load_lock
from patchkit.carry.series.profile import load_profile
from patchkit.carry.upstream.exported import export_pin
from patchkit.gpu.emulated.operations import OperationCase
from patchkit.gpu.gguf import tensor_kinds_by_name
from patchkit.gpu.modelled.shape import load_models
from patchkit.gpu.modelled.timings import Timings
from patchkit.toolchain.compiler import open_compiler
from patchkit.toolchain.hip import find_toolchain
from patchkit.toolchain.machine import Source
from patchkit.tune.family import MODELLED_ONLY, Row
from patchkit.tune.profile_text import write_profile
from patchkit.tune.request import TuneRequest
from patchkit.tune.timed import matrices_of, product_cases

_FILE = llama_cpp().gpu_file("mmvq.cu")
_CHOICE = "ggml_cuda_should_use_mmvq"
_FIRST = b"\n    return ggml_is_quantized(type) && ne11 <= 1;\n"
COLUMNS = range(2, 9)
"""Numbers of columns to compare: a single column always uses the vector kernel; MMVQ_MAX_BATCH_SIZE is 8."""
_ROWS = 128  # rows per block of the matrix kernel
_TABLE = "mmvq_batch"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedColumns:
    """Times of both kernels with so many columns, one per shape."""

    json_keys: ClassVar = "columns vector_us matrix_us ratio"

    columns: int
    vector_us: tuple[float, ...]
    matrix_us: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """Vector over matrix kernel time, geometric mean over shapes; above 1, the matrix kernel wins."""
        pairs = list(zip(self.vector_us, self.matrix_us, strict=True))
        return math.exp(sum(math.log(vector / matrix) for vector, matrix in pairs) / len(pairs))


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeLimit:
    """One quantization type; ``shapes`` (rows, columns) are the matrices that it was timed with.

    ``profile`` is the limit that the profile has now, or None.
    """

    json_keys: ClassVar = "type shapes profile columns=timed"

    type: str
    shapes: tuple[tuple[int, int], ...]
    timed: tuple[TimedColumns, ...]
    profile: int | None

    def limit(self, error: float) -> int:
        """The most columns up to which the matrix kernel is never faster by more than ``error``."""
        ahead = [one.columns for one in self.timed if one.ratio > 1 + error]
        return min(ahead, default=COLUMNS[-1] + 1) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """The result. Nine in ten ratios of both kernels are within ``error``; ``complete``: has all types."""

    json_keys: ClassVar = "arch kernel build=pin.build order error complete types=limits"

    arch: str
    pin: Pin
    error: float
    types: tuple[TypeLimit, ...]
    complete: bool

    kernel: ClassVar = "mmvq"
    order: ClassVar = "modelled time"

    @property
    def limits(self) -> list[dict[str, object]]:
        """The types, each with its proposed limit."""
        return [{**fields_of(one), "limit": one.limit(self.error)} for one in self.types]


def always_matrix(source: bytes) -> bytes:
    """Change mmvq.cu so that the matrix kernel is used for more than one column.

    Raises:
        TUNE_KERNEL_UNTUNABLE: the function that chooses the kernel is not defined exactly once.
    """
    found = [each for each in parse_scopes(SourceText(_FILE, source)).entities if each.answers_to(_CHOICE)]
    if len(found) != 1:
        raise ToolchainError(
            f"{_FILE} does not define {_CHOICE} exactly once",
            code="TUNE_KERNEL_UNTUNABLE",
            where=Location(path=_FILE),
            why=f"{len(found)} functions of that name were found",
            hint="use another build, for example: --upstream b11549",
        )
    start = found[0].body.start
    return source[:start] + _FIRST + source[start:]


def run_batch_limits(workspace: Workspace, request: TuneRequest) -> BatchReport:
    """Model both kernels for all types that the matrix kernel supports.

    Raises:
        TIMING_UNKNOWN, TUNE_KERNEL_UNTUNABLE: the timing model does not cover this GPU.
        TUNE_OPTIONS: a name is not a quantization type.
        TUNE_KERNEL_UNTUNABLE: the build chooses the kernel in another way.
        SourceError, GitError: the pin could not be fetched.
        The errors of recording.
    """
    profile = load_profile(workspace.series.profiles, request.arch)
    toolchain = find_toolchain(workspace.cache_root, os.environ, workspace.reporter)
    compiler = open_compiler(toolchain, workspace.cache_root, workspace.reporter)
    timings = Timings.of(workspace, profile, compiler)
    error = timings.machine.ratio_error("mmvq", "mmq")
    if error is None:
        raise UsageError(
            f"cannot tune mmvq for {request.arch}",
            code="TUNE_KERNEL_UNTUNABLE",
            why="the timing model is not validated against measurements of both kernels on this GPU",
            hint="see docs/reference/modelling.md for what a timing file needs",
        )
    pin = load_lock(workspace.series.lock).pin(request.upstream)
    known = _types(request.variants)
    exported = export_pin(pin, workspace)  # once, before the threads start
    source = Source(root=exported.root, tree=exported.tree, build=pin.build, commit=exported.commit[:9])
    models = load_models(workspace.series.profiles)
    shapes = {kind: _three(matrices_of(models, kind, whole=_ROWS)) for kind in known}
    sides = ("vector", "matrix")
    with open_pool("threads", request.jobs) as pool:
        done = run_tasks(
            pool,
            partial(_time, timings, source, shapes),
            list(sides),
            reporter=workspace.reporter,
            what="modelling kernels",
            unit="kernels",
            stop=compiler.stop,
        )
        times = dict(done)
    now = {row.type: row.max_batch for row in profile.tuning.mmvq_batch}
    found = [_limit(kind, shapes[kind], times["vector"], times["matrix"], now.get(kind)) for kind in known]
    return BatchReport(
        arch=request.arch,
        pin=pin,
        error=error,
        types=tuple(one for one in found if one.timed),
        complete=not request.variants,
    )


_Times = Mapping[OperationCase, float]


def _types(wanted: Sequence[str]) -> tuple[str, ...]:
    quantized = tuple(name for name, kind in tensor_kinds_by_name().items() if kind.block > 1)
    for name in wanted:
        if name not in quantized:
            raise UsageError(
                f"unknown quantization type '{name}'",
                code="TUNE_OPTIONS",
                hint=f"types: {', '.join(quantized)}",
            )
    return tuple(name for name in quantized if not wanted or name in wanted)


def _three(shapes: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The smallest, the middle and the largest matrix."""
    ordered = sorted(shapes, key=math.prod)
    return tuple(dict.fromkeys(ordered[at] for at in (0, len(ordered) // 2, -1)))


def _time(
    timings: Timings, source: Source, shapes: Mapping[str, Sequence[tuple[int, int]]], side: str
) -> dict[OperationCase, float]:
    """Microseconds of each matmul by the kernel of that side; cases that ran another kernel are omitted."""
    wanted = "mmvq" if side == "vector" else "mmq"
    found = {}
    with contextlib.ExitStack() as stack:
        recorder = timings.record(source, stack)
        if side == "matrix":
            if not recorder.tree.has(_FILE):
                raise ToolchainError(f"this build has no {_FILE}", code="TUNE_KERNEL_UNTUNABLE")
            changed = always_matrix((recorder.tree.root / _FILE).read_bytes())
            recorder = timings.record(source, stack, {_FILE: changed}, "mmvq-never")
        for kind, several in shapes.items():
            for columns in COLUMNS:
                for case in product_cases(kind, several, columns):
                    time = timings.time(case, recorder, repeated=False)
                    if time is not None and not time.products and time.kind == wanted:
                        found[case] = time.us
    return found


def _limit(
    kind: str, shapes: Sequence[tuple[int, int]], vector: _Times, matrix: _Times, profile: int | None
) -> TypeLimit:
    timed = []
    for columns in COLUMNS:
        cases = [case for case in product_cases(kind, shapes, columns) if case in vector and case in matrix]
        if cases:
            timed.append(
                TimedColumns(
                    columns=columns,
                    vector_us=tuple(vector[case] for case in cases),
                    matrix_us=tuple(matrix[case] for case in cases),
                )
            )
    return TypeLimit(type=kind, shapes=tuple(shapes), timed=tuple(timed), profile=profile)


def write_limits(workspace: Workspace, report: BatchReport, today: date) -> bool:
    """Write the limits to the profile, keeping those measured on hardware; returns whether it changed.

    Raises:
        TUNE_OPTIONS: the run did not cover all types.
        TUNE_PROFILE_NOT_WRITTEN, CacheError: the file cannot be changed.
    """
    folder = workspace.series.profiles
    path = folder / f"{report.arch}.toml"
    if not report.complete:
        raise ConfigError(
            "cannot write the limits of a run that does not cover all types",
            code="TUNE_OPTIONS",
            where=Location(path=str(path)),
            hint=f"patchkit tune --arch {report.arch} --kernel mmvq --upstream {report.pin.name} --write",
        )
    kept = [
        row
        for row in load_profile(folder, report.arch).tuning.mmvq_batch
        if not row.measured_on.startswith(MODELLED_ONLY)
    ]
    rows: list[Row] = [
        {"type": row.type, "max_batch": row.max_batch, "source": row.source, "measured_on": row.measured_on}
        for row in kept
    ]
    rows += [
        {
            "type": one.type,
            "max_batch": one.limit(report.error),
            "source": f"modelled (patchkit tune of {today.isoformat()}, build {report.pin.build}): from "
            f"{one.limit(report.error) + 1} columns on mul_mat_q is ahead by more than the error",
            "measured_on": f"{MODELLED_ONLY}{report.arch}, no hardware; nine of ten such ratios were within "
            f"{report.error:.0%}",
        }
        for one in report.types
        if one.type not in {row.type for row in kept} and one.limit(report.error) < COLUMNS[-1]
    ]
    return write_profile(path, _TABLE, rows)
