"""Comparison of modelled speeds of whole models with published ones.

A row has ``kind`` model-prefill or model-decode, ``model`` (a name of ``arch_profiles/models``), ``what``
(pp512, tg128) and, if they differ from llama-bench's defaults, ``depth`` and ``n_ubatch``. ``ts_before`` etc.
are tokens per second of the builds that ``config_before`` etc. describe.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from patchkit.gpu.modelled.against import (
    Published,
    Refused,
    Release,
    Side,
    pin_of,
)
from patchkit.gpu.modelled.network import Batch, ModelTime, time_model
from patchkit.gpu.modelled.operation import OperationTime
from patchkit.gpu.modelled.recording import Timed
from patchkit.gpu.modelled.shape import ModelShape, of_one_type

_TEST = re.compile(r"(pp|tg)(\d{1,6})")
_RATE = re.compile(r"\d+(?:\.\d+)?")
_MICRO_BATCH = 512  # llama-bench's default
_MOST = 2**20
# Descriptions of unmodified upstream builds in measurements. Any other build is not an upstream tree.
_UPSTREAM = re.compile(r"master|upstream|b\d{4,5}|HIP|HIP, no rocWMMA", re.IGNORECASE)
_ROCWMMA = re.compile(r"HIP \+ rocWMMA untuned|HIP \+ rocWMMA", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPoint:
    """A measured speed of a model that can be modelled: of row ``index``, on ``pin``."""

    index: int
    group: str
    side: Side
    what: str
    model: ModelShape
    batch: Batch
    pin: Release
    rocwmma: bool
    measured: float
    note: str = ""

    @property
    def is_prompt(self) -> bool:
        """Whether it is prompt processing, not token generation."""
        return self.what.startswith("pp")


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedModel:
    """A point and the modelled time of its batch."""

    json_keys: ClassVar = (
        "row=point.index group=point.group side=point.side model=point.model.name test=point.what "
        "batch=point.batch.tokens depth=point.batch.depth build=point.pin.build rocwmma=point.rocwmma "
        "note=point.note measured_tokens_per_second=point.measured "
        "modelled_tokens_per_second=modelled.rate error blas_share=modelled.of_library "
        "missing=modelled.missing"
    )

    point: ModelPoint
    modelled: ModelTime

    @property
    def error(self) -> float:
        """Modelled over measured tokens per second, minus 1."""
        return self.modelled.rate / self.point.measured - 1

    @property
    def has_unknown(self) -> bool:
        """Whether a part of the time is uncertain: BLAS calls, or operations without a kernel."""
        return self.modelled.of_library > 0 or bool(self.modelled.missing)


def model_points_of(
    rows: Sequence[Published], models: Sequence[ModelShape], pins: Sequence[Release]
) -> tuple[list[ModelPoint], list[Refused]]:
    """The whole-model rows that can be modelled, each on one of the pins; rows of kernels are ignored."""
    points: list[ModelPoint] = []
    refused: list[Refused] = []
    for index, row in enumerate(rows):
        if row.kind == "kernel-time":
            continue
        model, test = _model_of(row, models), test_of(row)
        if model is None or test is None:
            why = f"no shape of '{(row.model or '')[:60]}'" if model is None else "not a test of llama-bench"
            refused.append(Refused(index=index, group=row.group, side=None, why=f"whole model: {why}"))
            continue
        points += _points(index, row, model, test, pins, refused)
    return points, refused


def test_of(row: Published) -> tuple[str, int] | None:
    """llama-bench's test of a row: pp or tg, and its tokens; None if it is not one."""
    found = _TEST.fullmatch(row.what)
    return (found[1], int(found[2])) if found is not None and 0 < int(found[2]) < _MOST else None


def _model_of(row: Published, models: Sequence[ModelShape]) -> ModelShape | None:
    name = (row.model or "").casefold()
    for model in models:
        if name in {known.casefold() for known in (model.name, *model.also)}:
            return model
        family, _, kind = (row.model or "").rpartition(" ")
        if family.casefold() == model.family.casefold():
            return of_one_type(model, kind)
    return None


def _points(
    index: int,
    row: Published,
    model: ModelShape,
    test: tuple[str, int],
    pins: Sequence[Release],
    refused: list[Refused],
) -> Iterator[ModelPoint]:
    pin, note = pin_of(row, pins)
    for side in sides_of(row):
        if not side.is_upstream and not side.rocwmma:
            why = f"whole model: '{side.text[:60]}' is not an upstream tree"
            refused.append(Refused(index=index, group=row.group, side=side.side, why=why))
            continue
        yield ModelPoint(
            index=index,
            group=row.group,
            side=side.side,
            what=row.what,
            model=model,
            batch=batch_of(test, row),
            pin=pin,
            rocwmma=side.rocwmma,
            measured=side.rate,
            note=note,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSide:
    """A build of a row: its description and tokens per second; ``rocwmma``: upstream with rocWMMA."""

    side: Side
    text: str
    rate: float
    is_upstream: bool
    rocwmma: bool


def sides_of(row: Published) -> Iterator[MeasuredSide]:
    """The builds of a row that have a speed."""
    sides: tuple[tuple[Side, str, str | float | None], ...] = (
        ("before", row.config_before, row.ts_before),
        ("between", row.config_mid, row.ts_mid),
        ("after", row.config_after, row.ts_after),
    )
    for side, text, measured in sides:
        rate = _RATE.match(str(measured))
        if measured is None or rate is None or float(rate[0]) <= 0:
            continue
        yield MeasuredSide(
            side=side,
            text=text,
            rate=float(rate[0]),
            is_upstream=(not text and side == "before") or bool(_UPSTREAM.fullmatch(text)),
            rocwmma=bool(_ROCWMMA.fullmatch(text)),
        )


def batch_of(test: tuple[str, int], row: Published) -> Batch:
    """The batch in the middle of the test, which represents all of its batches."""
    kind, count = test
    depth = row.depth or 0
    tokens = min(count, row.n_ubatch or _MICRO_BATCH) if kind == "pp" else 1
    return Batch(tokens=tokens, depth=depth + (count - tokens) // 2)


def compare_model(point: ModelPoint, timed: Callable[[Timed], OperationTime | None]) -> ComparedModel:
    """Model the batch of a point; ``timed`` models one operation."""
    return ComparedModel(point=point, modelled=time_model(point.model, point.batch, "f16", timed))
