"""Comparison of modelled kernel times with published ones: which rows can be modelled, and the errors."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from patchkit.base.errors import ConfigError, Location
from patchkit.base.evidence import EvidenceFile, load_evidence_file, load_evidence_folder
from patchkit.base.toml import load_toml
from patchkit.base.upstreams import build_name
from patchkit.gpu.emulated.operations import OperationCase
from patchkit.gpu.gguf import tensor_kinds_by_name
from patchkit.gpu.modelled.machine import Kind, Machine
from patchkit.gpu.modelled.operation import OperationTime, kind_of, matrix_case

Side = Literal["before", "between", "after"]
_MOST = 2**24


class Published(BaseModel):
    """A published measurement. Times in microseconds; M rows, N tokens, K columns.

    For whole models, ``ts_`` are tokens per second as published. ``us_sum`` is the total of all ``calls`` of
    a kernel in a batch of ``n_tokens``, ``us_sum_fa`` that of attention.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)

    kind: str
    group: str = ""
    source: str = ""
    date: str = ""
    what: str = ""
    type: str | None = None
    rows: Annotated[int | None, Field(alias="M", gt=0, lt=_MOST)] = None
    tokens: Annotated[int | None, Field(alias="N", gt=0, lt=_MOST)] = None
    columns: Annotated[int | None, Field(alias="K", gt=0, lt=_MOST)] = None
    config_before: str = ""
    config_after: str = ""
    us_before: Annotated[float | None, Field(gt=0)] = None
    us_after: Annotated[float | None, Field(gt=0)] = None
    llama_build: str = ""
    model: str | None = None
    depth: Annotated[int | None, Field(ge=0, lt=_MOST)] = None
    n_ubatch: Annotated[int | None, Field(gt=0, le=4096)] = None
    config_mid: str = ""
    ts_before: str | float | None = None
    ts_mid: str | float | None = None
    ts_after: str | float | None = None
    n_tokens: Annotated[int | None, Field(gt=0, lt=_MOST)] = None
    calls: int | str | None = None
    us_sum: Annotated[float | None, Field(gt=0)] = None
    us_sum_fa: Annotated[float | None, Field(gt=0)] = None
    heads_note: str = ""


class Release(Protocol):
    """An upstream build whose tree is available."""

    @property
    def build(self) -> int:
        """Its build number."""

    @property
    def name(self) -> str:
        """Its name, such as b11549."""

    @property
    def committed(self) -> str:
        """Commit date, ISO 8601."""


R = TypeVar("R", bound=Release)


@dataclass(frozen=True, slots=True, kw_only=True)
class TileConfig:
    """Block configuration of mul_mat_q: its threads, and the rows of weights per block (I)."""

    threads: int
    rows: int

    def __str__(self) -> str:
        return f"nthreads={self.threads}, I={self.rows}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A measured time to model: of row ``index``, on the build ``pin``, with ``config`` for all blocks."""

    index: int
    group: str
    side: Side
    case: OperationCase
    kernel: Kind
    pin: Release
    config: TileConfig | None
    measured_us: float
    note: str = ""

    @property
    def operation(self) -> str:
        """The operation, with sizes and types."""
        return str(self.case)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A row, or one side of it, that cannot be modelled, with the reason."""

    json_keys: ClassVar = "row=index group side why"

    index: int
    group: str
    side: Side | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A point and its modelled time, or ``why`` it has none."""

    json_keys: ClassVar = (
        "row=point.index group=point.group side=point.side operation=point.operation kind=point.kernel "
        "build=point.pin.build config=point.config note=point.note measured_us=point.measured_us "
        "modelled_us=modelled.us error why_not=why"
    )

    point: Point
    modelled: OperationTime | None
    why: str = ""

    @property
    def error(self) -> float | None:
        """Modelled over measured time, minus 1; None without a modelled time."""
        return None if self.modelled is None else self.modelled.us / self.point.measured_us - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """Speedup of one row (before over after), measured and modelled."""

    json_keys: ClassVar = "row=index measured modelled error"

    index: int
    group: str
    case: str
    measured: float
    modelled: float

    @property
    def error(self) -> float:
        """Modelled over measured speedup, minus 1."""
        return self.modelled / self.measured - 1

    @property
    def has_sign(self) -> bool:
        """Whether model and measurement agree on faster or slower."""
        return (self.modelled - 1) * (self.measured - 1) > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Absolute errors: median and 90th percentile. ``bias``: median of modelled over measured."""

    points: int
    median: float
    p90: float
    bias: float


def load_published(path: Path) -> tuple[Published, ...]:
    """Read the ``[[row]]`` tables of a file in the format of kernels.toml; other tables are ignored.

    From an evidence file, or a folder of these, read the speeds of its builds.

    Raises:
        ConfigError: the file is not valid TOML.
        PUBLISHED_MALFORMED: it has no rows, or a row is invalid.
        The errors of reading an evidence file.
    """
    if path.is_dir() or path.suffix == ".json":
        files = load_evidence_folder(path).values() if path.is_dir() else (load_evidence_file(path),)
        return tuple(row for file in files for row in measured_rows(file))
    document = load_toml(path)
    rows = document.table.get("row")
    if not isinstance(rows, list) or not rows:
        raise ConfigError(
            f"{path.name} has no measurements",
            code="PUBLISHED_MALFORMED",
            where=Location(path=str(path)),
            why="it needs [[row]] tables with kind, type, M, N, K and us_before",
            hint="docs/reference/modelling.md has an example",
        )
    found = []
    for number, row in enumerate(rows):
        try:
            found.append(Published.model_validate(row))
        except ValidationError as error:
            first = error.errors()[0]
            raise ConfigError(
                f"row {number + 1} of {path.name} is not a measurement: {'.'.join(map(str, first['loc']))}",
                code="PUBLISHED_MALFORMED",
                where=document.locate(("row", number)),
                why=first["msg"],
                hint="docs/reference/modelling.md has an example",
            ) from error
    return tuple(found)


def measured_rows(file: EvidenceFile) -> Iterator[Published]:
    """A machine's measurements as rows. A build without patches is upstream; others cannot be modelled."""
    for test in file.tests:
        plain = (test.type_k, test.type_v, test.flash) == ("f16", "f16", "on")
        what = f"pp{test.prompt}" if test.prompt else f"tg{test.generated}"
        for arm in file.arms:
            times = [statistics.median(one[arm.name]) for one in test.rounds if arm.name in one]
            if not times:
                continue
            yield Published(
                kind="model-prefill" if test.prompt else "model-decode",
                group=f"{file.who}, {file.machine.gpu}",
                source=f"evidence/{file.name}",
                date=file.day,
                what=what if plain else test.name,
                llama_build=build_name(file.build),
                model=test.model,
                depth=test.depth,
                n_ubatch=min(test.micro_batch, 4096) or None,
                config_before=arm.name if arm.patches else "",
                ts_before=test.tokens * 1e9 / statistics.median(times),
            )


_CONFIG = re.compile(r"nthreads=(\d{1,4}), I=(\d{1,4})")
_LIBRARIES = re.compile(r"rocblas|hipblas|blaslt", re.IGNORECASE)
_NAMES: tuple[tuple[str, Kind], ...] = (
    (r"MMVQ|mul_mat_vec_q", "mmvq"),
    (r"MMVF|mul_mat_vec\b|mul_mat_vec_f", "mmvf"),
    (r"MMQ|mul_mat_q", "mmq"),
)
# From about this build on, the blocks of mul_mat_q are rows of a table (docs/records/tune.md).
_FIRST_TABLE = 10229
_BUILD = re.compile(r"\bb?(\d{4,5})\b(?!-\d\d)")  # excludes the year of a date


def points_of(
    rows: Sequence[Published], machine: Machine, pins: Sequence[Release]
) -> tuple[list[Point], list[Refused]]:
    """The kernel rows that can be modelled, each on the pin of its build or the nearest one by date."""
    points: list[Point] = []
    refused: list[Refused] = []
    for index, row in enumerate(rows):
        if row.kind != "kernel-time":
            continue  # patchkit.gpu.modelled.whole
        why = _why_not(row)
        if why is not None:
            refused.append(Refused(index=index, group=row.group, side=None, why=why))
            continue
        points += _points(index, row, machine, pins, refused)
    return points, refused


def _why_not(row: Published) -> str | None:
    kind = tensor_kinds_by_name().get((row.type or "").upper())
    reasons = (
        (
            "MUL_MAT" not in row.what or "MUL_MAT_ID" in row.what,
            "not llama.cpp's MUL_MAT according to 'what'",
        ),
        (None in (row.type, row.rows, row.tokens, row.columns), "type, M, N or K is missing"),
        (kind is None, f"ggml has no type {row.type}"),
        (
            kind is not None and (row.columns or 0) % kind.block != 0,
            "K is not a multiple of the type's block",
        ),
        (bool(_LIBRARIES.search(row.what)), "computed by a BLAS library, whose kernels are not in the tree"),
        (_named_kernel(row) is None, "'what' does not name the kernel"),
        (row.us_before is None and row.us_after is None, "it has no time"),
    )
    return next((why for is_so, why in reasons if is_so), None)


def _points(
    index: int, row: Published, machine: Machine, pins: Sequence[Release], refused: list[Refused]
) -> Iterator[Point]:
    kernel = _named_kernel(row)
    if row.type is None or row.rows is None or row.columns is None or row.tokens is None or kernel is None:
        raise AssertionError("such rows were skipped before")
    case = matrix_case(row.type, row.rows, row.columns, row.tokens)
    usual = machine.config_of(row.source) if kernel == "mmq" else None
    states_config = any(_CONFIG.search(text) for text in (row.config_before, row.config_after))
    with_table = [pin for pin in pins if pin.build >= _FIRST_TABLE]
    pin, note = pin_of(row, with_table if (usual or states_config) and with_table else pins)
    sides: tuple[tuple[Side, str, float | None], ...] = (
        ("before", row.config_before, row.us_before),
        ("after", row.config_after, row.us_after),
    )
    for side, text, measured in sides:
        if measured is None:
            continue
        stated = _CONFIG.search(text)
        config = TileConfig(threads=int(stated[1]), rows=int(stated[2])) if stated else None
        if config is None and side == "after":
            why = f"the change '{text[:60]}' is not in an upstream tree"
            refused.append(Refused(index=index, group=row.group, side=side, why=why))
            continue
        yield Point(
            index=index,
            group=row.group,
            side=side,
            case=case,
            kernel=kernel,
            pin=pin,
            config=config or (TileConfig(threads=usual.nthreads, rows=usual.i) if usual else None),
            measured_us=measured,
            note=note,
        )


def _named_kernel(row: Published) -> Kind | None:
    return next((kind for pattern, kind in _NAMES if re.search(pattern, row.what)), None)


def pin_of(row: Published, pins: Sequence[R]) -> tuple[R, str]:
    """The pin to model a row on, and a note if it differs from the row's own build."""
    stated = _BUILD.search(row.llama_build)
    build = int(stated[1]) if stated and not row.llama_build.startswith("20") else None
    if build is not None:
        pin = min(pins, key=lambda each: abs(each.build - build))
        return pin, "" if pin.build == build else f"measured on {build_name(build)}"
    when = _moment(row.llama_build if row.llama_build.startswith("20") else row.date)
    if when is None:
        return max(pins, key=lambda each: each.build), "measured on an unknown build"
    pin = min(pins, key=lambda each: abs(datetime.fromisoformat(each.committed) - when))
    return pin, f"measured in {when:%Y-%m}"


def _moment(text: str) -> datetime | None:
    found = re.match(r"(20\d\d)(?:-(\d\d))?(?:-(\d\d))?", text)
    if found is None:
        return None
    try:
        return datetime(int(found[1]), int(found[2] or 7), int(found[3] or 15), tzinfo=UTC)
    except ValueError:
        return None


def compared(point: Point, modelled: OperationTime | None) -> Compared:
    """A point with its modelled time, unless another kernel was launched than was measured."""
    why = ""
    if modelled is None or not modelled.kernels:
        why = f"{build_name(point.pin.build)} has no kernel for it"
    elif modelled.products:
        why = f"{build_name(point.pin.build)} uses a BLAS library for it"
    elif not any(kind_of(kernel.played.kernel) == point.kernel for kernel in modelled.kernels):
        why = f"{build_name(point.pin.build)} uses another kernel for it: {modelled.kind}"
    return Compared(point=point, modelled=None if why else modelled, why=why)


def ratios_of(all_compared: Sequence[Compared]) -> tuple[Ratio, ...]:
    """Speedups of the rows with both sides."""
    by_row: dict[int, dict[Side, Compared]] = {}
    for one in all_compared:
        if one.modelled is not None:
            by_row.setdefault(one.point.index, {})[one.point.side] = one
    found = []
    for index, sides in sorted(by_row.items()):
        if len(sides) != 2:  # noqa: PLR2004  before and after
            continue
        before, after = sides["before"], sides["after"]
        if before.modelled is None or after.modelled is None:
            raise AssertionError("sides without a time were skipped before")
        found.append(
            Ratio(
                index=index,
                group=before.point.group,
                case=str(before.point.case),
                measured=before.point.measured_us / after.point.measured_us,
                modelled=before.modelled.us / after.modelled.us,
            )
        )
    return tuple(found)


def errors_of(errors: Sequence[float]) -> Errors:
    """Statistics of at least one error (modelled over measured, minus 1)."""
    ordered = sorted(abs(error) for error in errors)
    return Errors(
        points=len(ordered),
        median=statistics.median(ordered),
        p90=ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))],
        bias=1 + statistics.median(errors),
    )


_ROW = re.compile(rb"CASE\((?P<type>\w+),\s*(?P<threads>\d+),\s*(?P<waves>\d+),\s*(?P<rows>\d+),")
_SMALLEST = 128


def with_config(table: bytes, config: TileConfig) -> bytes:
    """The mul_mat_q table with other blocks in place of upstream's 128-row ones."""

    def changed(match: re.Match[bytes]) -> bytes:
        if int(match["rows"]) < _SMALLEST:
            return match[0]
        return b"CASE(%s, %d, %s, %d," % (match["type"], config.threads, match["waves"], config.rows)

    return _ROW.sub(changed, table)
