"""Published times of attention beside modelled ones.

Nobody publishes times of attention with all its sizes. Two kinds of rows say enough, where the model is one
of ``arch_profiles/models``: sums over a kernel's calls in one batch, and speeds of one build at two depths,
since all that a batch takes longer behind more tokens is attention.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from patchkit.base.upstreams import build_name
from patchkit.gpu.emulated.cases import Case
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

# Two speeds must be so far apart that errors of a percent in both leave something of their difference.
_LONGER = 1.1
_KERNEL = re.compile(r"(flash_attn_\w+)<([\d,]+)>")
_RANGE = re.compile(r"kv range (\d{1,3})k?-(\d{1,3})k\b")
# Words of builds that are in no tree, for the kernels of upstream's that they say they run.
_SAYS: tuple[tuple[re.Pattern[str], Kind], ...] = (
    (re.compile(r"flash_attn_tile|\bTILE\b"), "tile"),
    (re.compile(r"fattn-wmma-f16"), "wmma"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionPoint:
    """Microseconds of all attention of a batch of a model, less those of the batch ``less`` if there is one.

    Of row ``index``, modelled on ``pin``. ``kernel`` is what ran, where the row says so: the kind, and the
    first template arguments.
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
        """What is modelled for it."""
        return (self.batch,) if self.less is None else (self.batch, self.less)

    def __str__(self) -> str:
        behind = f"{self.less.depth} to {self.batch.depth}" if self.less else f"{self.batch.depth}"
        return f"{self.model.name}, attention of {self.batch.tokens} behind {behind}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedAttention:
    """A point with its modelled time and the kind of kernel that took it; ``why`` says why there is none."""

    json_keys: ClassVar = (
        "row=point.index group=point.group side=point.side model=point.model.name "
        "batch=point.batch.tokens depth=point.batch.depth less_depth=point.less.depth "
        "build=point.pin.build rocwmma=point.rocwmma kind note=point.note measured_us=point.measured_us "
        "modelled_us why_not=why"
    )

    point: AttentionPoint
    modelled_us: float | None
    kind: Kind
    why: str = ""

    @property
    def error(self) -> float:
        """Modelled over measured, minus 1."""
        if self.modelled_us is None:
            raise AssertionError(self.why)
        return self.modelled_us / self.point.measured_us - 1

    @property
    def name(self) -> str:
        """What its error is counted with: the kind of kernel, prompts and generated tokens apart."""
        return f"{self.kind}, {'decode' if self.point.batch.tokens == 1 else 'prompts'}"


def attention_points_of(
    rows: Sequence[Published], models: Sequence[ModelShape], pins: Sequence[Release]
) -> list[AttentionPoint]:
    """The points of a file; rows that are none are left alone."""
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


# What names a file's types: attention is that of the model in any of them.
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
    told = f"{row.what}; {row.heads_note}"
    named = _KERNEL.search(told)
    us = row.us_sum_fa if row.us_sum_fa is not None else row.us_sum
    between = _RANGE.search(row.what)
    depth = 1024 * int(between[1]) if between else row.depth
    if named is None or us is None or depth is None or row.n_tokens is None:
        return
    if row.calls not in {None, len(model.layers)}:
        return  # of several batches, or of a part of one
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
    """What each side whose attention is upstream's is called, and the time of a batch, a point of its own."""
    test = test_of(row)
    if test is None:
        return
    pin, note = pin_of(row, pins)
    for side in sides_of(row):
        said = next((kind for pattern, kind in _SAYS if pattern.search(side.text)), None)
        if not side.is_upstream and not side.rocwmma and said is None:
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
            rocwmma=side.rocwmma or said == "wmma",
            measured_us=batch.tokens * 1e6 / side.rate,
            kernel=said,
            note=note,
        )
        yield side.text, point


def _differences(speeds: Iterable[AttentionPoint]) -> Iterator[AttentionPoint]:
    """From each depth to the next one that takes long enough."""
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
    """A point with its modelled time; ``timed`` models one operation."""
    sums = []
    kinds: Counter[Kind] = Counter()
    for batch in point.batches:
        sums.append(0.0)
        for case, count in Counter(attention_of(layer, batch, "f16") for layer in point.model.layers).items():
            time = timed(case)
            if time is None or not time.kernels:
                return _none(point, f"{build_name(point.pin.build)} has no kernel for {case}")
            sums[-1] += count * time.us
            if batch is point.batch and not _is_windowed(case, point):
                kinds[time.kind] += count
                why = _another(point, time)
                if why is not None:
                    return _none(point, why)
    kind = kinds.most_common(1)[0][0]
    return ComparedAttention(point=point, modelled_us=sums[0] - sum(sums[1:]), kind=kind)


def _is_windowed(case: Case, point: AttentionPoint) -> bool:
    return case.kv < point.batch.depth


def _another(point: AttentionPoint, time: OperationTime) -> str | None:
    """Why what ran is not what was measured; None where it is."""
    main = max(time.kernels, key=lambda kernel: kernel.us)
    name = read_name(main.played.kernel)
    kept = (name.arguments or ())[: len(point.arguments)]
    if (point.kernel is not None and main.kind != point.kernel) or kept != point.arguments:
        return f"at {build_name(point.pin.build)} another kernel does it: {name}"
    return None


def _none(point: AttentionPoint, why: str) -> ComparedAttention:
    return ComparedAttention(point=point, modelled_us=None, kind=point.kernel or "attention", why=why)
