"""What llama-bench writes with ``-o jsonl``, of builds 6628 to 11549.

Vocabulary: a *row* is one line, which is one test of one run; its *samples* are the wall times of the
repetitions, in nanoseconds. A *test* is what makes rows comparable: tokens, depth, cache types and how the
model was run; two rows of equal tests differ in nothing but the build. Fields that a build lacks read as
those of the others: ``use_mmap`` became ``load_mode``, ``flash_attn`` a number (seen in the sources of the 14
builds of tests/upstream/corpus.toml: up to 9093 true or false, from 9538 on -1, 0 or 1).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from patchkit.errors import ExitCode, Location, PatchkitError

__all__ = ["BenchFieldMissing", "BenchGarbage", "BenchRow", "BenchTest", "BenchTruncated", "parse_rows"]

_AGAIN = "run the command again; the whole output is kept in the file named above"
_FLASH = {"False": "off", "True": "on", "0": "off", "1": "on", "-1": "auto"}


class BenchGarbage(PatchkitError):
    """A line of llama-bench is no JSON object, or has a value that cannot be."""

    code = "BENCH_GARBAGE"
    exit_code = ExitCode.GATE_FAILED


class BenchTruncated(PatchkitError):
    """The output of llama-bench stops in the middle of a line."""

    code = "BENCH_TRUNCATED"
    exit_code = ExitCode.GATE_FAILED


class BenchFieldMissing(PatchkitError):
    """A row lacks a field that every known build writes."""

    code = "BENCH_FIELD_MISSING"
    exit_code = ExitCode.GATE_FAILED


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class BenchTest:
    """One test; ``prompt``, ``generated`` and ``depth`` in tokens, ``flash`` off, on or auto.

    ``setting`` is the rest of how the model was run: type and size, batch sizes, threads, layers offloaded.
    """

    prompt: int
    generated: int
    depth: int
    type_k: str
    type_v: str
    flash: str
    setting: str

    @property
    def name(self) -> str:
        """As people write it: ``pp512@d4096``, with what is not the usual behind it."""
        parts = [f"pp{self.prompt}"] if self.prompt else []
        parts += [f"tg{self.generated}"] if self.generated else []
        text = f"{'+'.join(parts)}@d{self.depth}"
        if (self.type_k, self.type_v) != ("f16", "f16"):
            text += f" {self.type_k}" if self.type_k == self.type_v else f" {self.type_k}/{self.type_v}"
        return text if self.flash == "on" else f"{text} fa-{self.flash}"

    @property
    def tokens(self) -> int:
        """Tokens that one repetition takes time for."""
        return self.prompt + self.generated


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRow:
    """One row. ``backends`` and ``device`` are what the program says it ran on."""

    test: BenchTest
    samples_ns: tuple[int, ...]
    backends: tuple[str, ...]
    device: str
    gpu: str
    cpu: str
    build: int


def parse_rows(text: str, source: str) -> tuple[BenchRow, ...]:
    """Every row of the output; ``source`` names the file for messages.

    Raises:
        BenchGarbage: a line is not what llama-bench writes.
        BenchTruncated: the last line has no end.
        BenchFieldMissing: a field is not there.
    """
    if text and not text.endswith("\n"):
        raise BenchTruncated(
            "the output of llama-bench stops in the middle of a line",
            where=Location(path=source, line=text.count("\n") + 1),
            why="the program was ended, or the disk was full",
            hint=_AGAIN,
        )
    return tuple(
        _row(line, Location(path=source, line=number))
        for number, line in enumerate(text.splitlines(), start=1)
        if line.strip()
    )


def _row(line: str, where: Location) -> BenchRow:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _garbage(f"it is no JSON: {error}", where) from error
    if not isinstance(fields, dict):
        raise _garbage("it is JSON, but no object", where)
    table = cast("dict[str, object]", fields)
    samples = _samples(table, where)
    test = BenchTest(
        prompt=_count(table, "n_prompt", where),
        generated=_count(table, "n_gen", where),
        depth=_count(table, "n_depth", where),
        type_k=_text(table, "type_k", where),
        type_v=_text(table, "type_v", where),
        flash=_flash(_get(table, "flash_attn", where), where),
        setting=_setting(table, where),
    )
    if not test.tokens:
        raise _garbage("it is a test of no tokens", where)
    return BenchRow(
        test=test,
        samples_ns=samples,
        backends=tuple(part.strip() for part in _text(table, "backends", where).split(",")),
        device=str(table.get("devices", "auto")),
        gpu=str(table.get("gpu_info", "")),
        cpu=str(table.get("cpu_info", "")),
        build=_count(table, "build_number", where),
    )


def _setting(table: Mapping[str, object], where: Location) -> str:
    mode = table.get("load_mode")
    if mode is None:
        mode = "mmap" if _get(table, "use_mmap", where) else "none"
    parts = [
        _text(table, "model_type", where),
        f"{_count(table, 'model_size', where)} bytes",
        f"b{_count(table, 'n_batch', where)}",
        f"ub{_count(table, 'n_ubatch', where)}",
        f"t{_count(table, 'n_threads', where)}",
        f"ngl{_get(table, 'n_gpu_layers', where)}",
        f"load {mode}",
    ]
    return ", ".join(parts)


def _get(table: Mapping[str, object], name: str, where: Location) -> object:
    if name not in table:
        raise BenchFieldMissing(
            f"a row of llama-bench has no field '{name}'",
            where=where,
            why=f"it has: {', '.join(sorted(table))}",
            hint="this build of llama-bench is not known: patchkit/bench/rows.py reads 6628 to 11549",
        )
    return table[name]


def _count(table: Mapping[str, object], name: str, where: Location) -> int:
    value = _get(table, name, where)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise _garbage(f"'{name}' is {value!r}, not a count", where)
    return value


def _text(table: Mapping[str, object], name: str, where: Location) -> str:
    value = _get(table, name, where)
    if not isinstance(value, str):
        raise _garbage(f"'{name}' is {value!r}, not a text", where)
    return value


def _flash(value: object, where: Location) -> str:
    found = _FLASH.get(str(value))
    if found is None:
        raise _garbage(f"'flash_attn' is {value!r}", where)
    return found


def _samples(table: Mapping[str, object], where: Location) -> tuple[int, ...]:
    values = _get(table, "samples_ns", where)
    if not isinstance(values, Sequence) or isinstance(values, str) or not values:
        raise _garbage("'samples_ns' is no list of times", where)
    if not all(isinstance(value, int) and not isinstance(value, bool) and value > 0 for value in values):
        raise _garbage("'samples_ns' has a time that is no positive number of nanoseconds", where)
    return tuple(cast("Sequence[int]", values))


def _garbage(why: str, where: Location) -> BenchGarbage:
    return BenchGarbage("a line of llama-bench cannot be read", where=where, why=why, hint=_AGAIN)
