"""``bench compare``: compares files of llama-bench in a table."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.base.errors import Location, UsageError
from patchkit.gpu.hardware.bench.rows import BenchRow, parse_rows
from patchkit.gpu.hardware.bench.tables import Series, Table, compare_series

# A row has about 1500 bytes (builds 6900 to 11549). A sweep of 5 depths with 5 repetitions has 50 rows.
_MOST_BYTES = 16 * 2**20
_MOST_ROWS = 2000
_MOST_SAMPLES = 10_000
_MEASURE = "measure again: llama-bench ... -o jsonl > FILE, without 2>&1"


def load_rows(path: Path) -> tuple[BenchRow, ...]:
    """Read all rows of a file, at least one.

    Raises:
        BENCH_FILE_BAD: as documented.
        BenchUnreadable: a line is not output of llama-bench.
    """
    text = _text(path, _bytes(path))
    rows = parse_rows(text, str(path), hint=_MEASURE)
    samples = sum(len(row.samples_ns) for row in rows)
    if not rows:
        raise UsageError(
            "the file contains no results of llama-bench",
            code="BENCH_FILE_BAD",
            where=Location(path=str(path)),
            hint=_MEASURE,
        )
    if len(rows) > _MOST_ROWS or samples > _MOST_SAMPLES:
        raise _too_large(path, f"it has {len(rows)} rows with {samples} repetitions")
    return rows


def _bytes(path: Path) -> bytes:
    """The content, up to one byte more than is accepted; devices and pipes are not read."""
    try:
        if path.exists() and not path.is_file():
            raise UsageError(
                f"{path.name or path} is not a file",
                code="BENCH_FILE_BAD",
                where=Location(path=str(path)),
                hint=f"ls -ld {path}",
            )
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL
        raise UsageError(
            "the file cannot be read",
            code="BENCH_FILE_BAD",
            where=Location(path=str(path)),
            why=getattr(error, "strerror", None) or str(error),
            hint="give files that llama-bench wrote with -o jsonl or -o json",
        ) from error
    if len(content) > _MOST_BYTES:
        raise _too_large(path, f"it has more than {_MOST_BYTES // 2**20} MiB")
    return content


def _text(path: Path, content: bytes) -> str:
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise UsageError(
            "the file is UTF-16, not UTF-8",
            code="BENCH_FILE_BAD",
            where=Location(path=str(path), line=1),
            why="older PowerShell versions write UTF-16 when output is redirected with '>'",
            hint=f"iconv -f UTF-16 -t UTF-8 {path} > {path.stem}.utf8.jsonl",
        )
    content = content.removeprefix(codecs.BOM_UTF8)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            "the file is not UTF-8",
            code="BENCH_FILE_BAD",
            where=Location(path=str(path), line=content.count(b"\n", 0, error.start) + 1),
            why=f"byte 0x{content[error.start]:02x}: {error.reason}",
            hint=_MEASURE,
        ) from error


def _too_large(path: Path, why: str) -> UsageError:
    return UsageError(
        "the file is too large for a measurement",
        code="BENCH_FILE_BAD",
        where=Location(path=str(path)),
        why=f"{why}; limits: {_MOST_ROWS} rows, {_MOST_SAMPLES} repetitions, {_MOST_BYTES // 2**20} MiB",
        hint="split it, or give another file",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareRequest:
    """Defaults: ``labels`` are the file names, ``baseline`` is the first label; ``across`` as in tables."""

    files: tuple[Path, ...]
    labels: tuple[str, ...] = ()
    baseline: str | None = None
    across: tuple[str, ...] = ()


def run_bench_compare(request: CompareRequest) -> Table:
    """Read the files and compare them.

    Raises:
        BENCH_FILES_INCOMPARABLE, USAGE_VALUE: raised before anything is read.
        BENCH_FILE_BAD and similar, BenchUnreadable: a file is not valid.
        BENCH_FILES_INCOMPARABLE: the results cannot be compared.
    """
    labels = _labels(request)
    base = _base(labels, request.baseline)
    series = [
        Series(label=label, source=str(path), rows=load_rows(path))
        for label, path in zip(labels, request.files, strict=True)
    ]
    return compare_series(series, base=base, across=request.across)


def _labels(request: CompareRequest) -> tuple[str, ...]:
    labels = request.labels or tuple(
        path.name.removesuffix(".jsonl").removesuffix(".json") for path in request.files
    )
    if len(labels) != len(request.files):
        raise UsageError(
            f"{len(labels)} labels were given for {len(request.files)} files",
            code="BENCH_FILES_INCOMPARABLE",
            hint="give --label once per file, in their order, or omit it",
        )
    odd = next((label for label in labels if not label.strip() or not label.isprintable()), None)
    if odd is not None:
        raise UsageError(
            f"{odd!r} is not a valid label",
            code="BENCH_FILES_INCOMPARABLE",
            hint="--label takes printable text for a column title",
        )
    twice = next((label for label in labels if labels.count(label) > 1), None)
    if twice is not None:
        places = zip(labels, request.files, strict=True)
        raise UsageError(
            f"two files have the label '{twice}'",
            code="BENCH_FILES_INCOMPARABLE",
            where=[Location(path=str(path)) for label, path in places if label == twice],
            hint="give distinct labels: --label ONE --label OTHER, in the order of the files",
        )
    return labels


def _base(labels: Sequence[str], named: str | None) -> int:
    if named is None:
        return 0
    if named not in labels:
        raise UsageError(
            f"no file has the label '{named}'",
            code="BENCH_FILES_INCOMPARABLE",
            hint=f"--baseline takes one of: {', '.join(labels)}",
        )
    return labels.index(named)
