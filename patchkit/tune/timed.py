"""Times settings with the timing model: each is put into upstream's table, and the launches are played.

The operations are those of the models in ``arch_profiles/models``. Only kernels for which the timing model is
validated against measurements are timed; others keep the order by judgement of :mod:`patchkit.tune.cost`.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from patchkit.base.jobs import open_pool, run_tasks
from patchkit.gpu.emulated.cases import Case
from patchkit.gpu.emulated.names import KernelName, read_name
from patchkit.gpu.emulated.operations import OperationCase
from patchkit.gpu.gguf import tensor_kinds_by_name
from patchkit.gpu.modelled.machine import Machine
from patchkit.gpu.modelled.operation import OperationTime, attention_case, head_size_of, matrix_case
from patchkit.gpu.modelled.recording import Recorder, Timed
from patchkit.gpu.modelled.shape import ModelShape
from patchkit.gpu.modelled.timings import Timings
from patchkit.toolchain.compile import CompileFailed, CompilerCrashed
from patchkit.toolchain.compiler import Compiler
from patchkit.toolchain.tree import files_digest
from patchkit.tune.cost import Modelled
from patchkit.tune.family import Candidate, Family, Setting, Site, TimedFamily, numbers_of

_KV_STEP = 256  # llama.cpp passes a multiple of so many KV rows to attention
_USUAL = "Q4_K"  # its matrices are used for types that no listed model has


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How settings are timed; ``jobs`` as for compiling."""

    site: Site
    compiler: Compiler
    jobs: int | None = None


def matrices_of(models: Sequence[ModelShape], kind: str, *, whole: int) -> tuple[tuple[int, int], ...]:
    """Rows and columns of each model's dense matrix of a type that has the most values over all layers.

    Rows are multiples of ``whole``. For a type that no model has, the matrices of Q4_K are used, if their
    columns are whole blocks. Empty for types that the gguf package does not know, since their block size is
    unknown.
    """

    def found(wanted: str) -> dict[tuple[int, int], None]:
        most: dict[tuple[int, int], None] = {}
        for model in models:
            dense = [
                weight
                for weight in model.weights
                if weight.role == "matrix"
                and weight.kind.name == wanted
                and weight.count > 1
                and weight.shape[1] % whole == 0
            ]
            if dense:
                columns, rows = max(dense, key=lambda weight: weight.values).shape[:2]
                most[rows, columns] = None
        return most

    known = tensor_kinds_by_name().get(kind)
    if known is None:
        return ()
    usual = {shape: None for shape in found(_USUAL) if shape[1] % known.block == 0}
    return tuple(sorted(found(kind) or usual))


def expert_cases(models: Sequence[ModelShape], kind: str, tokens: int, *, whole: int) -> tuple[Timed, ...]:
    """MoE matmuls with so many tokens, with each model's expert matrix of a type that has the most values."""
    found: dict[tuple[int, ...], None] = {}
    for model in models:
        experts = [
            weight
            for weight in model.weights
            if weight.role == "experts" and weight.kind.name == kind and weight.shape[1] % whole == 0
        ]
        if experts:
            columns, rows = max(experts, key=lambda weight: weight.values).shape[:2]
            found[rows, columns, model.experts, model.experts_used] = None
    return tuple(
        matrix_case(kind, rows, columns, tokens, experts=experts, used=used)
        for rows, columns, experts, used in found
    )


def why_not_timed(
    family: Family, site: Site, machine: Machine | None, variants: Collection[str]
) -> str | None:
    """Why no variant of a kernel is ranked by modelled time; None if at least one is."""
    if machine is None:
        return f"the timing model has no data for {site.profile.arch}"
    if not isinstance(family, TimedFamily) or not machine.has_error(family.timed_as):
        return "the timing model is not validated against measurements of such kernels"
    if not any(timed_cases(family, variant, machine) for variant in variants):
        return f"{NOT_TIMED}: {', '.join(variants)}"
    return None


NOT_TIMED = (
    "no listed model uses them, or the timing model is not validated against measurements of such kernels"
)


def timed_cases(family: TimedFamily, variant: str, machine: Machine) -> tuple[Timed, ...]:
    """The operations of a variant for which the error of modelled times is known."""
    return tuple(
        case
        for case in family.cases(variant)
        if machine.error_of(family.timed_as, head_size_of(case)) is not None
    )


def time_settings(
    timing: Timing, timings: Timings, family: TimedFamily, wanted: Mapping[str, Sequence[Setting]]
) -> dict[str, dict[Setting, Modelled]]:
    """The modelled times of the settings of each variant, including upstream's.

    A variant has none if its operations run other kernels or a BLAS library.

    Raises:
        The errors of :meth:`patchkit.gpu.modelled.timings.Timings.record` and of recording.
    """
    base = {
        variant: tuple((case, True) for case in cases)
        for variant in wanted
        if (cases := timed_cases(family, variant, timings.machine))
    }
    with open_pool("threads", timing.jobs) as pool:

        def timed(tasks: Sequence[_Task], of: str) -> dict[Candidate, _Times]:
            found = run_tasks(
                pool,
                partial(_time, timings, timing.site, family),
                tasks,
                reporter=timing.site.workspace.reporter,
                what=f"modelling {of}",
                unit="settings",
                stop=timing.compiler.stop,
            )
            return {
                Candidate(task.variant, dict(task.tree).get(task.variant, family.baseline(task.variant))): us
                for task, us in found
            }

        times = timed([_Task((), variant, cases) for variant, cases in base.items()], "upstream's settings")
        # Cases that do not run the variant with upstream's setting do not run it with other settings either.
        ran = {
            each.variant: tuple(
                (case, us is not None) for (case, _), us in zip(base[each.variant], found, strict=True)
            )
            for each, found in times.items()
            if any(us is not None for us in found)
        }
        if others := [
            _Task(tree, variant, ran[variant])
            for tree in _trees(family, {variant: wanted[variant] for variant in ran})
            for variant, _ in tree
        ]:
            times |= timed(others, "settings")
    return {
        variant: dict(_modelled(family, variant, settings, times, timings.machine))
        for variant, settings in wanted.items()
    }


def _modelled(
    family: TimedFamily,
    variant: str,
    settings: Sequence[Setting],
    times: Mapping[Candidate, tuple[float | None, ...]],
    machine: Machine,
) -> list[tuple[Setting, Modelled]]:
    base = family.baseline(variant)
    before = times.get(Candidate(variant, base), ())
    # All operations of a variant have the same head size, or none has one.
    case = next(iter(timed_cases(family, variant, machine)), None)
    error = None if case is None else machine.error_of(family.timed_as, head_size_of(case))
    if error is None:
        return []
    found = []
    for setting in dict.fromkeys([base, *settings]):
        after = times.get(Candidate(variant, setting), ())
        pairs = [(new, old) for new, old in zip(after, before, strict=False) if new and old]
        if pairs:
            ratio = math.exp(sum(math.log(new / old) for new, old in pairs) / len(pairs))
            us = tuple(new for new, _ in pairs)
            found.append((setting, Modelled(us=us, ratio=ratio, error=error)))
    return found


# The operations of a variant, each with whether to time it.
_Cases = tuple[tuple[Timed, bool], ...]
_Times = tuple[float | None, ...]
# The variants whose row has another setting than upstream's; empty for upstream's tree.
_Tree = tuple[tuple[str, Setting], ...]


@dataclass(frozen=True, slots=True)
class _Task:
    tree: _Tree
    variant: str
    cases: _Cases


def _trees(family: TimedFamily, wanted: Mapping[str, Sequence[Setting]]) -> Iterator[_Tree]:
    """The fewest trees that try all settings of all variants: most of the work is their host code."""
    tried = {
        variant: [setting for setting in dict.fromkeys(settings) if setting != family.baseline(variant)]
        for variant, settings in wanted.items()
    }
    for place in range(max(map(len, tried.values()), default=0)):
        yield tuple((variant, one[place]) for variant, one in tried.items() if place < len(one))


def _open(
    timings: Timings, site: Site, family: TimedFamily, task: _Task, stack: contextlib.ExitStack
) -> Recorder:
    """A recorder for the task's tree, with a cache key for only the setting of its variant.

    Other rows do not affect these recordings, so a new setting of another variant must not invalidate them.
    """
    changes = family.with_settings(dict(task.tree)) if task.tree else None
    own = {name: setting for name, setting in task.tree if name == task.variant}
    known_as = f"{family.name} {task.variant} {files_digest(family.with_settings(own))}" if own else None
    return timings.record(site.source, stack, changes, family.name, known_as=known_as)


def _time(timings: Timings, site: Site, family: TimedFamily, task: _Task) -> _Times:
    """Microseconds of each operation of the task's variant; None if another kernel ran.

    A setting that compiles as a candidate may fail in other kernels that use its row. It then has no times;
    other settings in the same tree are timed separately.
    """
    try:
        with contextlib.ExitStack() as stack:
            recorder = _open(timings, site, family, task, stack)
            return tuple(
                _us(timings, recorder, case, family, task.variant) if is_wanted else None
                for case, is_wanted in task.cases
            )
    except (CompileFailed, CompilerCrashed) as error:
        own = tuple(one for one in task.tree if one[0] == task.variant)
        if not own:
            raise
        if own != task.tree:
            return _time(timings, site, family, replace(task, tree=own))
        setting = "/".join(map(str, own[0][1]))
        site.workspace.reporter.warn(f"cannot time {task.variant} {setting}: {error.message}")
        return (None,) * len(task.cases)


def _us(timings: Timings, recorder: Recorder, case: Timed, family: TimedFamily, variant: str) -> float | None:
    time = timings.time(case, recorder, repeated=False)
    return time.us if time is not None and not time.products and _ran(time, family, variant) else None


def _ran(time: OperationTime, family: TimedFamily, variant: str) -> bool:
    names = [read_name(kernel.played.kernel) for kernel in time.kernels]
    return any(family.is_kernel(name, variant) for name in names)


def product_cases(kind: str, shapes: Sequence[tuple[int, int]], tokens: int) -> tuple[OperationCase, ...]:
    """Matmuls of matrices of a type with so many tokens."""
    return tuple(matrix_case(kind, rows, columns, tokens) for rows, columns in shapes)


_DEPTHS = (0, 4096, 16384, 65536)
PROMPTS = (512, 2048)
"""Batch sizes of prompts in tokens: llama.cpp's default micro-batch, and its default batch in one piece."""


def attention_cases(
    models: Sequence[ModelShape],
    block: tuple[int, int],
    blocks: Iterable[tuple[int, int]],
    *,
    most_shared: int = 8,
) -> tuple[Case, ...]:
    """Attention operations of the models' layers, with as many tokens as fill the columns of a ``block``.

    ``block`` is (head size, columns); the depths are 0 to 65536 tokens. A block shares its columns among the
    query heads of one KV head: a power of two, up to ``most_shared``. The widest of upstream's ``blocks`` for
    a head size is used for prompts: it gets 512 tokens, and at depth 0 also 2048. Models whose heads need
    more columns for a single token give no case. Upstream may choose another kernel; that shows when it runs.
    """
    head_size, columns = block
    widest = columns == max(each for size, each in blocks if size == head_size)
    heads = {
        (layer.heads, layer.kv_heads): None
        for model in models
        for layer in model.layers
        if layer.head_size_k == layer.head_size_v == head_size
    }
    found = []
    for of_q, of_kv in heads:
        ratio = of_q // of_kv
        shared = math.gcd(ratio, most_shared)
        first, *longer = PROMPTS if widest else (columns // shared,)
        batches = [(first, depth) for depth in _DEPTHS] + [(tokens, 0) for tokens in longer]
        found += [
            attention_case(
                head_size, of_q, of_kv, kv=depth + -(-tokens // _KV_STEP) * _KV_STEP, tokens=tokens
            )
            for tokens, depth in batches
            if tokens > 0
        ]
    return tuple(found)


def is_attention_of(name: KernelName, kernel: str, variant: str) -> bool:
    """Whether a kernel <head size of K, of V, tokens, query heads, ...> is of the variant, such as 256-32."""
    head_size, columns = numbers_of(variant)
    sizes = [name.integer(index) for index in range(4)]
    tokens, shared = sizes[2] or 0, sizes[3] or 0
    return name.base == kernel and sizes[:2] == [head_size, head_size] and tokens * shared == columns
