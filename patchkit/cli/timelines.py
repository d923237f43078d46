"""``patchkit model --timeline``: the batches to time, and the text output of their times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.base.arch import GpuProfile
from patchkit.base.errors import UsageError
from patchkit.gpu.gguf import load_gguf_parts
from patchkit.gpu.modelled.batches import BatchTest, record_batches
from patchkit.gpu.modelled.machine import Machine
from patchkit.gpu.modelled.recording import Recorder
from patchkit.gpu.modelled.reduced import reduced, whole_of_header, whole_of_shape
from patchkit.gpu.modelled.roofline import peaks_of
from patchkit.gpu.modelled.timeline import Timeline, mean_of, time_batches
from patchkit.gpu.modelled.timings import Timings

_SHOWN = 20  # kernels in the table of a test
_MICRO_BATCH = 512  # llama-bench's default -ub


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineRequest:
    """The model and tests to time. ``parallel``: numbers of sequences that generate at the same time."""

    gguf: Path | None
    shape: Path | None
    depth: int
    prompt: int
    generated: int
    parallel: tuple[int, ...]
    kv_type: str


def model_timelines(
    timings: Timings, profile: GpuProfile, recorders: Mapping[str, Recorder], request: TimelineRequest
) -> tuple[str, dict[str, dict[str, Timeline]]]:
    """Return the model's name, and the timeline of each test by side.

    Raises:
        NOTHING_TO_ESTIMATE: no test was requested.
        The errors of reading the model, recording it and timing it.
    """
    if request.gguf is not None:
        whole = whole_of_header(load_gguf_parts(request.gguf), request.gguf)
    elif request.shape is not None:
        whole = whole_of_shape(request.shape)
    else:
        raise UsageError(
            "--timeline requires --gguf or --shape",
            code="USAGE_SYNTAX",
            hint="patchkit model --arch gfx1151 --gguf model.gguf --timeline",
        )
    tests: dict[str, tuple[BatchTest, list[BatchTest]]] = {}

    def add(name: str, test: BatchTest, *parts: BatchTest) -> None:
        tests[name] = (test, list(parts) or [test])

    at = f"@ d{request.depth}"
    if request.prompt:
        whole_prompt, *parts = _prompt(request.prompt, request.depth)
        add(f"pp{request.prompt} {at}", whole_prompt, *parts)
    middle = request.depth + request.generated // 2  # the token in the middle stands for all of them
    if request.generated:
        add(f"tg{request.generated} {at}", BatchTest(name="tg", depth=middle, tokens=1))
    for sequences in request.parallel:
        test = BatchTest(name=f"x{sequences}", depth=middle, tokens=1, sequences=sequences)
        add(f"tg{request.generated} x{sequences} {at}", test)
    if not tests:
        raise UsageError(
            "nothing to model: --pp and --tg are both 0", code="NOTHING_TO_ESTIMATE", hint="--pp 512 --tg 128"
        )
    model = reduced(whole)
    file = model.file(timings.workspace.cache_root)
    batches = list({part.name: part for _, parts in tests.values() for part in parts}.values())
    found: dict[str, dict[str, Timeline]] = {name: {} for name in tests}
    for side, recorder in recorders.items():
        recorded = record_batches(recorder, file, batches, request.kv_type)
        times = time_batches(timings.machine, model, recorded, batches, peaks_of(profile), timings.compiler)
        for name, (test, parts) in tests.items():
            found[name][side] = mean_of(test, [times[part.name] for part in parts])
    return whole.name, found


def _prompt(tokens: int, depth: int) -> Iterator[BatchTest]:
    """Yield the prompt, and the micro-batches whose mean stands for all of it: the first and the last."""
    size = min(tokens, _MICRO_BATCH)
    yield BatchTest(name="pp", depth=depth, tokens=tokens)
    yield BatchTest(name="pp.first", depth=depth, tokens=size)
    if tokens >= 2 * size:
        yield BatchTest(name="pp.last", depth=depth + (tokens // size - 1) * size, tokens=size)


def timeline_lines(
    machine: Machine, model: str, tests: Mapping[str, Mapping[str, Timeline]]
) -> Iterator[str]:
    """Yield, for each test and side, the kernels with the most time above their roofline."""
    yield f"{model}: kernels that llama.cpp's host code launches (modelled, not measured)"
    yield machine.box
    for test, sides in tests.items():
        for side, timeline in sides.items():
            yield ""
            yield (
                f"{test}, {side}: {timeline.rates}, {timeline.bound_us / timeline.us:.0%} of the "
                f"roofline; {timeline.us:.0f} us, {timeline.launches:.0f} launches and copies, BLAS "
                f"{timeline.library_us / timeline.us:.0%}"
            )
            head = f"{'us':>10} {'share':>6} {'above roof':>10} {'count':>6}  {'limited by':<18}"
            yield f"{head} kernel and operation"
            merged = timeline.merged()
            for line in merged[:_SHOWN]:
                note = " (minimum)" if line.is_bound else ""
                note = note if line.is_held or line.kind is None else " (error unknown)"
                yield (
                    f"{line.all_us:>10.1f} {line.all_us / timeline.us:>6.1%} {line.above:>10.1f} "
                    f"{line.count:>6.0f}  {line.limit:<18} {line.kernel}, {line.what}{note}"
                )
            yield from _rest(merged[_SHOWN:])
            yield f"  {machine.rate_error_text(timeline.kind, is_timeline=True)}"
        yield from _compared(sides)


def _rest(lines: Sequence[object]) -> Iterator[str]:
    if lines:
        yield f"{'':>10} and {len(lines)} more (--json lists all)"


def _compared(sides: Mapping[str, Timeline]) -> Iterator[str]:
    after = sides.get("candidate")
    before = sides.get("upstream")
    if before is not None and after is not None:
        faster = after.rate / before.rate
        yield f"the candidate is {faster:.3f} times as fast as upstream (modelled, its error is unknown)"
