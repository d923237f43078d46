"""Records what upstream's host code launches and copies for batches of a model, each launch once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patchkit.base.digests import key_of
from patchkit.base.errors import Location
from patchkit.base.files import disk_errors
from patchkit.gpu.emulated.kept_runs import obtain_by_units
from patchkit.gpu.emulated.log import RecordingUnreadable
from patchkit.gpu.emulated.runtime import MODEL_DRIVER, build_driver
from patchkit.gpu.modelled.recording import Recorder, pack_trace, recording_variables

_FORMAT = 1  # of an entry; raise it to invalidate all recordings
_TIMEOUT_S = 7200.0
_LOG = "launches.jsonl"
# Lines of the recorder's log that come from the driver; the others are launches that it passes through.
_OURS = ("started", "moved", "node", "test", "blas")
_ROOM = 256  # llama.cpp rounds the size of a KV cache up to a multiple of this


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTest:
    """One batch at a context depth of ``depth``: ``tokens`` per sequence, for ``sequences`` sequences."""

    name: str
    depth: int
    tokens: int
    sequences: int = 1

    @property
    def all_tokens(self) -> int:
        """Tokens of all sequences."""
        return self.tokens * self.sequences


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenTensor:
    """A tensor of a graph: ``at`` is its address; ``shape`` has four dimensions, row length first."""

    name: str
    at: int
    bytes: int
    type: str
    shape: tuple[int, ...]
    is_leaf: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """An operation of the graph."""

    op: str
    result: SeenTensor
    sources: tuple[SeenTensor, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A launch. Launches with the same ``number`` are equal; ``pointers`` are its pointer arguments."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    lds: int
    number: int
    pointers: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A copy or fill by the runtime: the call (``how``), its size and destination."""

    how: str
    bytes: int
    to: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryCall:
    """A BLAS library call, such as ``hipblasGemmEx 4096x512x4096``."""

    call: str


Event = Started | Moved | LibraryCall


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRun:
    """One test as it ran: the operations of its graphs, and its launches and copies in order."""

    nodes: tuple[Node, ...]
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedBatches:
    """Recorded tests by name. ``traces`` has the recording of each launch, by its number."""

    runs: Mapping[str, BatchRun]
    traces: Mapping[int, Path]


def plan_of(tests: Sequence[BatchTest], kv: str) -> str:
    """The tests in the driver's input format, grouped by number of sequences and sorted by depth.

    Each number of sequences has its own context, because llama.cpp then allocates more rows for windowed
    layers.
    """
    lines = []
    for sequences in sorted({test.sequences for test in tests}):
        of_these = sorted(
            (test for test in tests if test.sequences == sequences), key=lambda test: test.depth
        )
        rows = max(test.depth + test.tokens * test.sequences for test in of_these)
        lines.append(f"context {-(-rows // _ROOM) * _ROOM} {sequences} {kv}")
        lines += [f"test {test.name} {test.depth} {test.tokens} {sequences}" for test in of_these]
    return "".join(f"{line}\n" for line in lines)


def record_batches(recorder: Recorder, model: Path, tests: Sequence[BatchTest], kv: str) -> RecordedBatches:
    """Run the batches, or reuse their recordings.

    Raises:
        TIMING_RUN_FAILED: upstream cannot load the model, or a kernel failed on the emulated GPU.
        CompileFailed, NOT_BUILT: a unit or the driver does not compile.
        CacheError: the cache cannot be written.
    """
    compiler, side = recorder.compiler, recorder.side
    driver = build_driver(compiler, recorder.tree.root, side.built, recorder.gpu.runtime, source=MODEL_DRIVER)
    plan = plan_of(tests, kv)
    store = compiler.store.sibling("timing", "traces")
    key = key_of(
        {
            **recorder.depends,
            "what": "batches",
            "format": _FORMAT,
            "driver": driver.parent.name,
            "model": model.parent.name,
            "plan": plan,
            "blocks": [*recording_variables(Path()).values()][1:],
        }
    )

    def run(folder: Path, more: Mapping[str, str]) -> None:
        _run(recorder, driver, model, plan, folder, more)

    folder = obtain_by_units(store, key, side.units, run)
    with (
        disk_errors(folder, "reading a model's launches"),
        (folder / _LOG).open(encoding="utf-8") as lines,
    ):
        runs, numbers = parse_batches(lines, str(folder / _LOG))
    return RecordedBatches(
        runs=runs, traces={number: folder / f"{trace}.trace" for number, trace in numbers.items()}
    )


def _run(
    recorder: Recorder, driver: Path, model: Path, plan: str, folder: Path, more: Mapping[str, str]
) -> None:
    log = folder / "log"
    with disk_errors(folder, "recording a model"):
        (folder / "plan").write_text(plan, "utf-8")
    argv = [str(driver), str(model), str(folder / "plan"), str(recorder.side.built.folder)]
    recorder.run_program(argv, folder, more, "the model", _TIMEOUT_S, lines=3)
    with disk_errors(folder, "recording a model"):
        kept = set()
        with log.open(encoding="utf-8", errors="replace") as lines, (folder / _LOG).open("w") as ours:
            for line in lines:
                if line.startswith(tuple(f'{{"{name}"' for name in _OURS)):
                    ours.write(line)
                    if line.startswith('{"started"'):
                        kept.add(json.loads(line)["trace"])
        log.unlink()
        for trace in folder.glob("*.trace"):
            if int(trace.stem) in kept:
                pack_trace(trace)
            else:  # a launch that ran again only because others need its results
                trace.unlink()


def parse_batches(lines: Iterable[str], path: str) -> tuple[dict[str, BatchRun], dict[int, int]]:
    """The tests of a log by name, and the trace of each launch number; ``path`` is used in messages.

    Raises RecordingUnreadable.
    """
    reader = _Reader()
    for place, line in enumerate(lines, start=1):
        try:
            reader.take(json.loads(line))
        except (ValueError, KeyError, TypeError) as error:
            raise RecordingUnreadable(
                "the log of a model's launches cannot be read",
                where=Location(path=path, line=place),
                why=f"{error!r} in {line[:80]!r}",
                hint="delete that folder of the cache and run the command again",
            ) from error
    return reader.runs, reader.numbers


class _Reader:
    """Processes lines one by one; ``runs`` has the finished tests."""

    def __init__(self) -> None:
        self.runs: dict[str, BatchRun] = {}
        self.numbers: dict[int, int] = {}
        self._name = ""
        self._nodes: list[Node] = []
        self._events: list[Event] = []

    def take(self, event: object) -> None:
        """Process a line. Raises KeyError, TypeError or ValueError if the driver does not write such."""
        match event:
            case {"test": str(name)}:
                if self._name:
                    self.runs[self._name] = BatchRun(nodes=tuple(self._nodes), events=tuple(self._events))
                self._name, self._nodes, self._events = name, [], []
            case {"started": str(kernel), "number": int(number), "trace": int(trace), **rest}:
                if trace >= 0:
                    self.numbers[number] = trace
                self._events.append(_started(rest, kernel, number))
            case {"moved": str(how), "bytes": int(size), "to": int(to)}:
                self._events.append(Moved(how=how, bytes=size, to=to))
            case {"blas": call, "m": m, "n": n, "k": k}:
                self._events.append(LibraryCall(call=f"{call} {m}x{n}x{k}"))
            case {"node": str(op), "result": result, "from": sources}:
                tensors = tuple(map(_tensor, sources))
                self._nodes.append(Node(op=op, result=_tensor(result), sources=tensors))
            case _:
                raise ValueError("not a line of the driver")


def _started(of: Mapping[Any, Any], kernel: str, number: int) -> Started:
    return Started(
        kernel=kernel,
        grid=_three(of["grid"]),
        block=_three(of["block"]),
        lds=int(of["lds"]),
        number=number,
        pointers=tuple(map(int, of["pointers"])),
    )


def _tensor(of: Mapping[str, Any]) -> SeenTensor:
    return SeenTensor(
        name=str(of["name"]),
        at=int(of["at"]),
        bytes=int(of["bytes"]),
        type=str(of["type"]),
        shape=tuple(int(extent) for extent in of["shape"]),
        is_leaf=bool(of["leaf"]),
    )


def _three(of: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = of
    return (int(x), int(y), int(z))
