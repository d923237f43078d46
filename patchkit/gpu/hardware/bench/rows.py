"""Parses llama-bench's output of ``-o jsonl`` or ``-o json``, for builds 6628 to 11549."""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from patchkit.base.errors import Location, UsageError

_LARGEST = 2**63 - 1  # llama-bench uses int64_t and uint64_t; real values are far smaller
_LONGEST = 1000  # characters of a string; the longest known ones list every device of a machine


class BenchUnreadable(UsageError):
    """A file given as output of llama-bench is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """The fields of one row and its location; ``hint`` is the hint of errors.

    Every method raises BenchUnreadable for an unexpected value, and for a missing field without a default
    (``without``).
    """

    table: Mapping[str, object]
    where: Location
    hint: str

    def get(self, name: str) -> object:
        """The JSON value."""
        if name not in self.table:
            raise BenchUnreadable(
                f"a row of llama-bench has no field '{name}'",
                code="BENCH_FILE_BAD",
                where=self.where,
                why=f"it has: {', '.join(sorted(self.table))[:_LONGEST]!r}",
                hint="this version of llama-bench is not supported; b6628 to b11549 are",
            )
        return self.table[name]

    def count(self, name: str) -> int:
        """An integer of at least 0."""
        value = self.integer(name)
        if value < 0:
            raise self.garbage(f"'{name}' is {value}, not a count")
        return value

    def integer(self, name: str) -> int:
        """An integer."""
        value = self.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _LARGEST:
            raise self.garbage(f"'{name}' is {reprlib.repr(value)}, not an integer")
        return value

    def text(self, name: str, without: str | None = None) -> str:
        """A printable string of limited length."""
        value = self.get(name) if without is None else self.table.get(name, without)
        if not isinstance(value, str) or not value.isprintable() or len(value) > _LONGEST:
            raise self.garbage(f"'{name}' is {reprlib.repr(value)}, not a printable string")
        return value

    def word(self, name: str) -> str | None:
        """A setting of any type as text; None if the build has no such field."""
        value = self.table.get(name)
        if value is None or isinstance(value, str):
            return None if value is None else self.text(name)
        if not isinstance(value, bool):
            return str(self.integer(name))
        return str(value)

    def times(self, name: str) -> tuple[int, ...]:
        """At least one wall time in nanoseconds."""
        values = self.get(name)
        if not isinstance(values, Sequence) or isinstance(values, str) or not values:
            raise self.garbage(f"'{name}' is not a list of times")
        if not all(type(value) is int and 0 < value <= _LARGEST for value in values):
            raise self.garbage(f"'{name}' has a value that is not a positive number of nanoseconds")
        return tuple(cast("Sequence[int]", values))

    def garbage(self, why: str) -> BenchUnreadable:
        """The error for an invalid value in this row."""
        return BenchUnreadable(
            "cannot parse a line of llama-bench",
            code="BENCH_FILE_BAD",
            where=self.where,
            why=why,
            hint=self.hint,
        )


_BLANK, _OF_ARRAYS = re.compile(r"\s*"), re.compile(r"[\s,\[\]]*")  # separators between objects
# Beginnings of lines in llama-bench's other formats, which lack the time of each repetition.
_OTHER_FORMATS = {
    "|": "Markdown (-o md)",
    "build_commit,": "CSV (-o csv)",
    "CREATE TABLE ": "SQL (-o sql)",
    "INSERT INTO ": "SQL (-o sql)",
}


def _objects(text: str, source: str, hint: str) -> Iterator[Fields]:
    """The fields of each object, one per line or from an array. Raises BenchUnreadable."""
    decoder = json.JSONDecoder()
    is_array = text.lstrip().startswith("[")
    between = _OF_ARRAYS if is_array else _BLANK
    at, end, line = 0, 0, 1
    while True:
        skipped = between.match(text, end)
        start = skipped.end() if skipped else end
        line, at = line + text.count("\n", at, start), start
        here = Fields(table={}, where=Location(path=source, line=line), hint=hint)
        if at == len(text):
            if is_array and not text.rstrip().endswith("]"):
                raise _truncated(here, "the array of -o json has no closing bracket")
            return
        try:
            found, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            is_last = not text.rstrip().endswith("]") if is_array else text.find("\n", at) == -1
            if is_last and text[at] == "{":
                raise _truncated(here, f"the last row is incomplete: {error}") from error
            other = next((name for begin, name in _OTHER_FORMATS.items() if text.startswith(begin, at)), None)
            raise here.garbage(
                f"it is {other}, without the time of each repetition" if other else f"it is not JSON: {error}"
            ) from error
        if not isinstance(found, dict):
            raise here.garbage("it is JSON, but not an object")
        yield Fields(table=cast("dict[str, object]", found), where=here.where, hint=hint)


def _truncated(here: Fields, why: str) -> BenchUnreadable:
    return BenchUnreadable(
        "the output of llama-bench is incomplete",
        code="BENCH_FILE_BAD",
        where=here.where,
        why=why,
        hint=here.hint,
    )


def load_mode_of(fields: Fields) -> str:
    """How the model was loaded; builds up to 10068 report only whether mmap was used."""
    if fields.table.get("load_mode") is not None:
        return fields.text("load_mode")
    return "mmap" if fields.get("use_mmap") else "none"


_AGAIN = "run the command again; the complete output is kept in the file named above"
_FLASH = {"False": "off", "True": "on", "0": "off", "1": "on", "-1": "auto"}

# Fields that affect the measurement, with their default values as llama-bench prints them; builds without a
# field have only the default behaviour. From the sources of the 14 builds.
_USUAL: Mapping[str, frozenset[str]] = {
    "cpu_mask": frozenset({"0x0"}),
    "cpu_strict": frozenset({"False"}),
    "poll": frozenset({"50"}),
    "n_cpu_moe": frozenset({"0"}),
    "split_mode": frozenset({"layer"}),
    "main_gpu": frozenset({"0"}),
    "no_kv_offload": frozenset({"False"}),
    "tensor_split": frozenset({"0.00"}),
    "tensor_buft_overrides": frozenset({"none"}),
    "use_direct_io": frozenset({"False"}),
    "lazy_mode": frozenset({"auto", "off"}),
    "embeddings": frozenset({"False"}),
    "no_op_offload": frozenset({"0"}),
    "no_host": frozenset({"False"}),
    "repack": frozenset({"True"}),
    "fit_target": frozenset({"0"}),
    "fit_min_ctx": frozenset({"0"}),
}


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class BenchTest:
    """One test; lengths in tokens; ``flash`` is off, on or auto.

    ``setting``: other settings of the run: model type and size, batch sizes, threads, offloaded layers.
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
        """Short name such as ``pp512@d4096``, followed by unusual settings."""
        parts = [f"pp{self.prompt}"] if self.prompt else []
        parts += [f"tg{self.generated}"] if self.generated else []
        text = f"{'+'.join(parts)}@d{self.depth}"
        if self.cache != "f16":
            text += f" {self.cache}"
        return text if self.flash == "on" else f"{text} fa-{self.flash}"

    @property
    def cache(self) -> str:
        """The type of the KV cache; both types if K and V differ."""
        return self.type_k if self.type_k == self.type_v else f"{self.type_k}/{self.type_v}"

    @property
    def tokens(self) -> int:
        """Tokens that one repetition's time is for."""
        return self.prompt + self.generated


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class BenchModel:
    """The model as reported by llama-bench: its type, size in bytes, and number of parameters."""

    kind: str
    size_bytes: int
    params: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRow:
    """One row. ``backends`` and ``device`` are as reported by llama-bench."""

    test: BenchTest
    samples_ns: tuple[int, ...]
    model: BenchModel
    conditions: Mapping[str, str]
    backends: tuple[str, ...]
    device: str
    build: int
    commit: str

    @property
    def tokens_per_second(self) -> tuple[float, ...]:
        """The speed of each repetition, as in llama-bench; their mean is its ``avg_ts``."""
        return tuple(self.test.tokens * 1e9 / sample for sample in self.samples_ns)


def parse_rows(text: str, source: str, *, hint: str = _AGAIN) -> tuple[BenchRow, ...]:
    """Parse all rows of the output; ``source`` is the file named in errors, ``hint`` their hint.

    Raises:
        BenchUnreadable: a row is invalid, lacks a field, or is incomplete.
    """
    return tuple(map(_row, _objects(text, source, hint)))


def _row(fields: Fields) -> BenchRow:
    samples = fields.times("samples_ns")
    test = BenchTest(
        prompt=fields.count("n_prompt"),
        generated=fields.count("n_gen"),
        depth=fields.count("n_depth"),
        type_k=fields.text("type_k"),
        type_v=fields.text("type_v"),
        flash=_flash(fields),
        setting=_setting(fields),
    )
    if not test.tokens:
        raise fields.garbage("the test has no tokens")
    backends = fields.text("backends")
    gpu, cpu = fields.text("gpu_info", ""), fields.text("cpu_info", "")
    unusual = [
        f"{name} {word}"
        for name, usual in _USUAL.items()
        if (word := fields.word(name)) is not None and word not in usual
    ]
    return BenchRow(
        test=test,
        samples_ns=samples,
        model=BenchModel(
            kind=fields.text("model_type"),
            size_bytes=fields.count("model_size"),
            params=fields.count("model_n_params"),
        ),
        conditions={
            "cache": test.cache,
            "flash": test.flash,
            "batch": f"{fields.count('n_batch')}/{fields.count('n_ubatch')}",
            "threads": str(fields.count("n_threads")),
            "layers": str(fields.integer("n_gpu_layers")),
            "load": load_mode_of(fields),
            "backend": backends,
            "device": gpu or cpu or "unknown",
            "other": ", ".join(unusual) or "as usual",
        },
        backends=tuple(part.strip() for part in backends.split(",")),
        device=fields.text("devices", "auto"),
        build=fields.count("build_number"),
        commit=fields.text("build_commit", "unknown"),
    )


def _setting(fields: Fields) -> str:
    parts = [
        fields.text("model_type"),
        f"{fields.count('model_size')} bytes",
        f"b{fields.count('n_batch')}",
        f"ub{fields.count('n_ubatch')}",
        f"t{fields.count('n_threads')}",
        f"ngl{fields.integer('n_gpu_layers')}",
        f"load {load_mode_of(fields)}",
    ]
    return ", ".join(parts)


def _flash(fields: Fields) -> str:
    word = fields.word("flash_attn") if fields.get("flash_attn") is not None else None
    if word not in _FLASH:
        raise fields.garbage(f"'flash_attn' is {word!r}")
    return _FLASH[word]
