"""Comparison of modelled attention times with published ones.

Published measurements do not include attention times with all sizes. Two kinds of rows are sufficient if the
model is one of ``arch_profiles/models``: totals of a kernel's calls in one batch, and speeds of one build at
two depths, because the additional time of a batch at a larger depth is all attention.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from patchkit.base.upstreams import build_name
from patchkit.gpu.emulated.names import read_name
from patchkit.gpu.modelled.against import (
    Published,
    Release,
    Side,
    pin_of,
)
from patchkit.gpu.modelled.machine import Kind
from patchkit.gpu.modelled.network import Batch, attention_of
from patchkit.gpu.modelled.operation import OperationTime, kind_of
from patchkit.gpu.modelled.recording import Timed
from patchkit.gpu.modelled.shape import ModelShape
from patchkit.gpu.modelled.whole import batch_of, sides_of, test_of

# Minimum ratio of two times, so that errors of one percent in both do not dominate their difference.
_LONGER = 1.1
_KERNEL = re.compile(r"(flash_attn_\w+)<([\d,]+)>")
_RANGE = re.compile(r"kv range (\d{1,3})k?-(\d{1,3})k\b")
# Names in the descriptions of forks that show which of upstream's kernels they run.
_SAYS: tuple[tuple[re.Pattern[str], Kind], ...] = (
    (re.compile(r"flash_attn_tile|\bTILE\b"), "tile"),
    (re.compile(r"fattn-wmma-f16"), "wmma"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionPoint:
    """Total attention time of a batch of a model, minus that of the batch ``less`` if there is one.

    From row ``index``, modelled on ``pin``. ``kernel`` and ``arguments`` (its first template arguments) are
    the kernel that ran, if the row names it.
    """

    index: int
    group: str
    side: Side
    model: ModelShape
    what: str
    batch: Batch
    less: Batch | None
    pin: Release
    rocwmma: bool
    measured_us: float
    kernel: Kind | None = None
    arguments: tuple[str, ...] = ()
    note: str = ""

    @property
    def batches(self) -> tuple[Batch, ...]:
        """The batches to model."""
        return (self.batch,) if self.less is None else (self.batch, self.less)

    def __str__(self) -> str:
        depths = f"{self.less.depth} to {self.batch.depth}" if self.less else f"{self.batch.depth}"
        return f"{self.model.name}, attention of {self.batch.tokens} tokens at depth {depths}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedAttention:
    """A point with its modelled time and main kernel, or ``why`` it has no time."""

    json_keys: ClassVar = (
        "row=point.index group=point.group side=point.side model=point.model.name "
        "batch=point.batch.tokens depth=point.batch.depth less_depth=point.less.depth "
        "build=point.pin.build rocwmma=point.rocwmma kind note=point.note measured_us=point.measured_us "
        "modelled_us error why_not=why"
    )

    point: AttentionPoint
    modelled_us: float | None
    kind: Kind
    why: str = ""

    @property
    def error(self) -> float | None:
        """Modelled over measured time, minus 1; None without a modelled time."""
        return None if self.modelled_us is None else self.modelled_us / self.point.measured_us - 1

    @property
    def name(self) -> str:
        """The group for error statistics: kind of kernel, with prefill and decode separate."""
        return f"{self.kind}, {'decode' if self.point.batch.tokens == 1 else 'prompts'}"


def attention_points_of(
    rows: Sequence[Published], models: Sequence[ModelShape], pins: Sequence[Release]
) -> list[AttentionPoint]:
    """The attention points of a file; other rows are ignored."""
    speeds: dict[tuple[object, ...], list[AttentionPoint]] = {}
    found: list[AttentionPoint] = []
    for index, row in enumerate(rows):
        model = _attends_as(row, models)
        if model is None:
            continue
        if row.kind == "kernel-time":
            found += _of_kernel(index, row, model, pins)
            continue
        for text, speed in _speeds(index, row, model, pins):
            key = (
                row.group,
                row.source,
                row.date,
                row.what,
                model.name,
                speed.batch.tokens,
                speed.side,
                text,
            )
            speeds.setdefault(key, []).append(speed)
    found += itertools.chain.from_iterable(map(_differences, speeds.values()))
    return sorted(found, key=lambda point: (point.index, point.side))


# The type suffix of a file name: attention does not depend on the type of the weights.
_TYPES = re.compile(r"[ -](?:UD-)?(?:I?Q\d|B?F16|MXFP4).*$", re.IGNORECASE)


def _attends_as(row: Published, models: Sequence[ModelShape]) -> ModelShape | None:
    wanted = _TYPES.sub("", row.model or "").casefold()
    for model in models:
        if wanted in {_TYPES.sub("", name).casefold() for name in (model.name, *model.also)}:
            return model
    return None


def _of_kernel(
    index: int, row: Published, model: ModelShape, pins: Sequence[Release]
) -> Iterator[AttentionPoint]:
    description = f"{row.what}; {row.heads_note}"
    named = _KERNEL.search(description)
    us = row.us_sum_fa if row.us_sum_fa is not None else row.us_sum
    between = _RANGE.search(row.what)
    depth = 1024 * int(between[1]) if between else row.depth
    if named is None or us is None or depth is None or row.n_tokens is None:
        return
    if row.calls not in {None, len(model.layers)}:
        return  # the calls of several batches, or of a part of one
    pin, note = pin_of(row, pins)
    yield AttentionPoint(
        index=index,
        group=row.group,
        side="before",
        model=model,
        what=row.what,
        batch=Batch(tokens=row.n_tokens, depth=depth),
        less=None,
        pin=pin,
        rocwmma=False,
        measured_us=us,
        kernel=kind_of(named[1]),
        arguments=tuple(named[2].split(",")),
        note=note,
    )


def _speeds(
    index: int, row: Published, model: ModelShape, pins: Sequence[Release]
) -> Iterator[tuple[str, AttentionPoint]]:
    """For each side with upstream's attention: its description, and a point for the time of a batch."""
    test = test_of(row)
    if test is None:
        return
    pin, note = pin_of(row, pins)
    for side in sides_of(row):
        named = next((kind for pattern, kind in _SAYS if pattern.search(side.text)), None)
        if not side.is_upstream and not side.rocwmma and named is None:
            continue
        batch = batch_of(test, row)
        point = AttentionPoint(
            index=index,
            group=row.group,
            side=side.side,
            model=model,
            what=row.what,
            batch=batch,
            less=None,
            pin=pin,
            rocwmma=side.rocwmma or named == "wmma",
            measured_us=batch.tokens * 1e6 / side.rate,
            kernel=named,
            note=note,
        )
        yield side.text, point


def _differences(speeds: Iterable[AttentionPoint]) -> Iterator[AttentionPoint]:
    """Differences from each depth to the next one with a sufficiently longer time."""
    ordered = sorted(speeds, key=lambda speed: speed.batch.depth)
    base = ordered[0]
    for speed in ordered[1:]:
        if speed.batch.depth == base.batch.depth or speed.measured_us < _LONGER * base.measured_us:
            continue
        yield replace(speed, less=base.batch, measured_us=speed.measured_us - base.measured_us)
        base = speed


def compare_attention(
    point: AttentionPoint, timed: Callable[[Timed], OperationTime | None]
) -> ComparedAttention:
    """Model the time of a point; ``timed`` models one operation."""
    sums = []
    kinds: Counter[Kind] = Counter()
    for batch in point.batches:
        sums.append(0.0)
        for case, count in Counter(attention_of(layer, batch, "f16") for layer in point.model.layers).items():
            time = timed(case)
            if time is None or not time.kernels:
                return _none(point, f"{build_name(point.pin.build)} has no kernel for {case}")
            sums[-1] += count * time.us
            if batch is point.batch and case.kv >= point.batch.depth:
                kinds[time.kind] += count
                why = _another(point, time)
                if why is not None:
                    return _none(point, why)
    kind = kinds.most_common(1)[0][0]
    return ComparedAttention(point=point, modelled_us=sums[0] - sum(sums[1:]), kind=kind)


def _another(point: AttentionPoint, time: OperationTime) -> str | None:
    """Why the modelled kernel is not the measured one; None if it is."""
    main = max(time.kernels, key=lambda kernel: kernel.us)
    name = read_name(main.played.kernel)
    kept = (name.arguments or ())[: len(point.arguments)]
    if (point.kernel is not None and main.kind != point.kernel) or kept != point.arguments:
        return f"{build_name(point.pin.build)} uses another kernel for it: {name}"
    return None


def _none(point: AttentionPoint, why: str) -> ComparedAttention:
    return ComparedAttention(point=point, modelled_us=None, kind=point.kernel or "attention", why=why)
