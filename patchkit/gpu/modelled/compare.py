"""Models the published measurements of a file and compares them."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import ClassVar

from patchkit.base.upstreams import build_name, llama_cpp
from patchkit.gpu.modelled.against import (
    Compared,
    Errors,
    Point,
    Ratio,
    Refused,
    Release,
    compared,
    errors_of,
    load_published,
    points_of,
    ratios_of,
    with_config,
)
from patchkit.gpu.modelled.attention import (
    AttentionPoint,
    ComparedAttention,
    attention_points_of,
    compare_attention,
)
from patchkit.gpu.modelled.recording import Recorder
from patchkit.gpu.modelled.shape import load_models
from patchkit.gpu.modelled.timings import Timings
from patchkit.gpu.modelled.whole import ComparedModel, ModelPoint, compare_model, model_points_of
from patchkit.toolchain.machine import Source

# The mul_mat_q table of RDNA3.5; trees before build 10229 do not have it.
_TABLE = llama_cpp().gpu_file("mmq-config-rdna3-5.cuh")
_DIFFERS = 0.04  # measured speedups below this are not counted as faster or slower


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All rows of a file: modelled ones, and those that could not be modelled, with the reason."""

    json_keys: ClassVar = (
        "arch points=compared not_modelled=refused errors=all_errors models attention ratios "
        "signs=sign_counts"
    )

    arch: str
    compared: tuple[Compared, ...]
    refused: tuple[Refused, ...]
    ratios: tuple[Ratio, ...]
    models: tuple[ComparedModel, ...] = ()
    attention: tuple[ComparedAttention, ...] = ()

    def attention_errors(self) -> dict[str, Errors]:
        """Errors of attention by kind of kernel, with prefill and decode separate."""
        found = [(one.name, one.error) for one in self.attention if one.error is not None]
        names = sorted({name for name, _ in found})
        return {name: errors_of([error for each, error in found if each == name]) for name in names}

    def model_errors(self) -> dict[str, Errors]:
        """Errors of whole models: prefill, token generation, and each without BLAS calls."""
        result = {}
        for name, is_prompt in (("prompts", True), ("generated tokens", False)):
            found = [one for one in self.models if one.point.is_prompt is is_prompt]
            known = [one for one in found if not one.has_unknown]
            if found:
                result[name] = errors_of([one.error for one in found])
            if known and len(known) < len(found):
                result[f"  {name} without BLAS"] = errors_of([one.error for one in known])
        return result

    def errors(self) -> dict[str, Errors]:
        """Errors of all points, of each kind of kernel, and of each group of the file."""
        found = [
            (one.point.kernel, one.point.group, one.error) for one in self.compared if one.error is not None
        ]
        names = ["all points"] * bool(found)
        result = {name: errors_of([error for *_, error in found]) for name in names}
        for kind in sorted({kind for kind, *_ in found}):
            result[kind] = errors_of([error for each, _, error in found if each == kind])
        for group in sorted({group for _, group, _ in found}):
            result[f"  {group}"] = errors_of([error for _, each, error in found if each == group])
        return result

    def ratio_errors(self) -> Errors:
        """Error statistics of at least one ratio."""
        return errors_of([ratio.error for ratio in self.ratios])

    def signs(self) -> tuple[int, int]:
        """Ratios sufficiently different from 1: how many have the right sign, and how many there are."""
        clear = [ratio for ratio in self.ratios if abs(ratio.measured - 1) >= _DIFFERS]
        return sum(ratio.has_sign for ratio in clear), len(clear)

    @property
    def all_errors(self) -> dict[str, dict[str, Errors]]:
        """Errors of points, whole models and attention, by name."""
        found = {"points": self.errors(), "models": self.model_errors(), "attention": self.attention_errors()}
        return {what: {name.strip(): one for name, one in errors.items()} for what, errors in found.items()}

    @property
    def sign_counts(self) -> dict[str, int]:
        """The counts of :meth:`signs`, by name."""
        return dict(zip(("right", "of"), self.signs(), strict=True))


SourceOf = Callable[[Release], Source]
"""Returns the source tree of a build."""


def compare(timings: Timings, path: Path, pins: Sequence[Release], source_of: SourceOf) -> Comparison:
    """Model every possible row of a file, on the tree of its build or of the nearest one of ``pins``.

    Raises:
        ConfigError, PUBLISHED_MALFORMED: the file is not a list of measurements.
        The errors of ``source_of`` and of recording.
    """
    rows = load_published(path)
    points, refused = points_of(rows, timings.machine, pins)
    models = load_models(timings.workspace.series.profiles)
    whole, others = model_points_of(rows, models, pins)
    modelled = list(_modelled(timings, source_of, points))
    modelled.sort(key=lambda one: (one.point.index, one.point.side == "after"))
    attention = attention_points_of(rows, models, pins)
    on_trees = list(_modelled_by_tree(timings, source_of, [*whole, *attention]))
    of_models = [one for one in on_trees if isinstance(one, ComparedModel)]
    of_attention = [one for one in on_trees if isinstance(one, ComparedAttention)]
    return Comparison(
        arch=timings.machine.device.arch,
        compared=tuple(modelled),
        refused=tuple(sorted([*refused, *others], key=lambda one: one.index)),
        ratios=ratios_of(modelled),
        models=tuple(sorted(of_models, key=lambda one: one.point.index)),
        attention=tuple(sorted(of_attention, key=lambda one: (one.point.index, one.point.side))),
    )


def _modelled_by_tree(
    timings: Timings, source_of: SourceOf, points: Sequence[ModelPoint | AttentionPoint]
) -> Iterator[ComparedModel | ComparedAttention]:
    """Model points grouped by tree, so that attention at two depths is reused for the model's speeds."""

    def tree(point: ModelPoint | AttentionPoint) -> tuple[int, bool]:
        return point.pin.build, point.rocwmma

    for (build, rocwmma), group in itertools.groupby(sorted(points, key=tree), key=tree):
        several = list(group)
        suffix = " with rocWMMA" if rocwmma else ""
        timings.workspace.reporter.step(
            f"modelling {len(several)} model speeds and attention times of {build_name(build)}{suffix}"
        )
        with contextlib.ExitStack() as stack:
            recorder = timings.record(source_of(several[0].pin), stack, rocwmma=rocwmma)
            timed = cache(partial(timings.time, recorder=recorder, repeated=False))
            for point in several:
                if isinstance(point, ModelPoint):
                    yield compare_model(point, timed)
                else:
                    yield compare_attention(point, timed)


def _modelled(timings: Timings, source_of: SourceOf, points: Sequence[Point]) -> Iterator[Compared]:
    for several, recorder in recorders_of(timings, source_of, points):
        for point in several:
            yield compared(point, timings.time(point.case, recorder, repeated=True))


def recorders_of(
    timings: Timings, source_of: SourceOf, points: Sequence[Point]
) -> Iterator[tuple[list[Point], Recorder]]:
    """The points of each tree, with a recorder for it that is valid until the next iteration.

    Raises:
        As :func:`compare`.
    """

    def tree(point: Point) -> tuple[int, str]:
        return point.pin.build, str(point.config or "")

    for (build, config), group in itertools.groupby(sorted(points, key=tree), key=tree):
        several = list(group)
        reporter = timings.workspace.reporter
        reporter.step(
            f"modelling {len(several)} operations of {build_name(build)}{f' with {config}' if config else ''}"
        )
        with contextlib.ExitStack() as stack:
            yield several, _recorder(timings, source_of, several[0], stack)


def _recorder(timings: Timings, source_of: SourceOf, point: Point, stack: contextlib.ExitStack) -> Recorder:
    base = timings.record(source_of(point.pin), stack)
    if point.config is None or not base.tree.has(_TABLE):
        return base
    table = (base.tree.root / _TABLE).read_bytes()
    changed = with_config(table, point.config)
    if changed == table:
        return base
    what = f"mmq-{point.config.threads}-{point.config.rows}"
    return timings.record(source_of(point.pin), stack, {_TABLE: changed}, what)
