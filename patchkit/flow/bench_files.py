"""Files of llama-bench's output, made by anybody on any machine.

Everything about them is checked: a damaged, enormous or hostile one gives an error with its line, and never
more work than one of the largest that a person would measure.
"""

from __future__ import annotations

import codecs
from pathlib import Path

from patchkit.bench.rows import BenchRow, parse_rows
from patchkit.errors import Location, UsageError

# A row has some 1500 bytes (build 6900 to 11549). A sweep of 5 depths in 5 repetitions has 50 of them.
_MOST_BYTES = 16 * 2**20
_MOST_ROWS = 2000
_MOST_SAMPLES = 10_000
_MEASURE = "measure again: llama-bench ... -o jsonl > FILE, without 2>&1"


def load_rows(path: Path) -> tuple[BenchRow, ...]:
    """Every row of a file, at least one.

    Raises:
        BENCH_FILE_MISSING, BENCH_FILE_TOO_LARGE, BENCH_FILE_ENCODING, BENCH_FILE_EMPTY: as they say.
        BenchGarbage, BenchTruncated, BenchFieldMissing: a line is not what llama-bench writes.
    """
    text = _text(path, _bytes(path))
    rows = parse_rows(text, str(path), hint=_MEASURE)
    samples = sum(len(row.samples_ns) for row in rows)
    if not rows:
        raise UsageError(
            "there is no result of llama-bench in the file",
            code="BENCH_FILE_EMPTY",
            where=Location(path=str(path)),
            hint=_MEASURE,
        )
    if len(rows) > _MOST_ROWS or samples > _MOST_SAMPLES:
        raise _too_large(path, f"it has {len(rows)} rows with {samples} repetitions")
    return rows


def _bytes(path: Path) -> bytes:
    """The content, read no further than one byte beyond what is accepted; a device or pipe is never read."""
    try:
        if path.exists() and not path.is_file():
            raise UsageError(
                f"{path.name or path} is no file",
                code="BENCH_FILE_MISSING",
                where=Location(path=str(path)),
                hint=f"ls -ld {path}",
            )
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL
        raise UsageError(
            "the file cannot be read",
            code="BENCH_FILE_MISSING",
            where=Location(path=str(path)),
            why=getattr(error, "strerror", None) or str(error),
            hint="name files that llama-bench wrote with -o jsonl",
        ) from error
    if len(content) > _MOST_BYTES:
        raise _too_large(path, f"it has more than {_MOST_BYTES // 2**20} MiB")
    return content


def _text(path: Path, content: bytes) -> str:
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise UsageError(
            "the file is UTF-16, not UTF-8",
            code="BENCH_FILE_ENCODING",
            where=Location(path=str(path), line=1),
            why="older PowerShells write that when output is redirected with '>'",
            hint=f"iconv -f UTF-16 -t UTF-8 {path} > {path.stem}.utf8.jsonl",
        )
    content = content.removeprefix(codecs.BOM_UTF8)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            "the file is not UTF-8",
            code="BENCH_FILE_ENCODING",
            where=Location(path=str(path), line=content.count(b"\n", 0, error.start) + 1),
            why=f"byte 0x{content[error.start]:02x}: {error.reason}",
            hint=_MEASURE,
        ) from error
    # An editor may have taken the last line's end; a row that was cut off does not end with its brace.
    return f"{text}\n" if text.endswith("}") else text


def _too_large(path: Path, why: str) -> UsageError:
    return UsageError(
        "the file is larger than any measurement",
        code="BENCH_FILE_TOO_LARGE",
        where=Location(path=str(path)),
        why=f"{why}; accepted are {_MOST_ROWS} rows, {_MOST_SAMPLES} repetitions, {_MOST_BYTES // 2**20} MiB",
        hint="split it, or name another file",
    )
