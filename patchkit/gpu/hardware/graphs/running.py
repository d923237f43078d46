"""Runs graphs on a device with the driver ``graph_check``, and reads the distance from the CPU's results."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from patchkit.base.errors import Location, ToolchainError
from patchkit.gpu.emulated.log import parse_recording
from patchkit.gpu.hardware.graphs.description import Compared, Graph, driver_lines
from patchkit.gpu.hardware.program import ProgramRun, RunContext, run_program
from patchkit.toolchain.sides import BuiltSide

DRIVER = "graph_check"
"""The driver's name, for :func:`patchkit.gpu.hardware.driver_build.build_driver`."""
LOG = "PATCHKIT_RECORDER_LOG"
_WITHOUT_CAPTURE = "GGML_CUDA_DISABLE_GRAPHS"
_RESULT = re.compile(
    r"(?P<id>\S+) result (?P<name>\S+) round=(?P<round>\d+) hash=(?P<hash>[0-9a-f]{16})"
    r"( nmse=(?P<nmse>\S+) worst=(?P<worst>\S+) finite=(?P<finite>[01]) values=(?P<values>\d+))?"
)
_DONE = re.compile(r"(?P<id>\S+) done findings=(?P<findings>\d+)")
_OF_GRAPH = re.compile(r"g\d+ ")
_SKIPPED = re.compile(r"(?P<id>\S+) (?P<why>invalid|unsupported)(?: (?P<name>\S+))?")
_SHAPE = re.compile(r"\S+ shape (?P<name>\S+) (?P<type>\S+) (?P<ne>[\d,]+)")
_CRASHES = frozenset({"PROGRAM_CRASHED", "PROGRAM_FAILED", "DEVICE_LOST"})
_OWN_ERROR = "graph_check: "  # how the driver's own messages begin
_SHAPES_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One output of one round: a digest of its bits, and its distance from the CPU's if that was computed.

    ``nmse`` is the squared error over the sum of squares of all ``values``, ``worst`` the largest error of
    one value over the root mean square of all.
    """

    name: str
    round: int
    hash: str
    nmse: float = 0.0
    worst: float = 0.0
    is_finite: bool = True
    values: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """A graph on one side: its ``results``, or why it was ``skipped`` (invalid or unsupported).

    ``kernels`` were launched for it. ``has_ended``: False if the program ended in this graph.
    ``has_findings``: the checks reported something that earlier graphs of the run had not shown.
    """

    results: tuple[Result, ...] = ()
    skipped: str = ""
    kernels: frozenset[str] = frozenset()
    has_ended: bool = True
    has_findings: bool = False


@dataclass(slots=True, kw_only=True)
class _Read:
    results: list[Result] = field(default_factory=list)
    skipped: str = ""
    is_done: bool = False
    findings: int = 0


def run_graphs(  # noqa: PLR0913 - what runs, where, and how
    driver: Path,
    side: BuiltSide,
    graphs: Sequence[Graph],
    *,
    device: str,
    name: str,
    timeout_s: float,
    place: RunContext,
    variables: Mapping[str, str] | None = None,
    compared: Compared = "results",
) -> tuple[ProgramRun | None, tuple[Computed, ...]]:
    """Compute graphs that can share a process, in order.

    A graph in which the program crashes counts as not ended, and so do those after it (the run is then None).

    Raises:
        The errors of :func:`run_program`, except for a crash.
        PROGRAM_FAILED: the output has another form.
    """
    lines = "".join(driver_lines(one, f"g{n}", compared=compared) for n, one in enumerate(graphs))
    file = place.write(f"{name}.graphs", lines, "writing graphs")
    log = place.write(f"{name}.launches", "", "writing graphs")
    environment = {**side.environment, **(variables or {}), LOG: str(log)}
    environment |= graphs[0].environment if graphs else {}
    if graphs and graphs[0].captured:
        environment.pop(_WITHOUT_CAPTURE, None)
    argv = [str(driver), str(side.module), str(side.cpu), device, str(file)]
    out = place.folder / f"{name}.out"
    ran: ProgramRun | None = None
    try:
        ran = run_program(name, argv, place=place, env=environment, timeout_s=timeout_s)
    except ToolchainError as error:
        if error.code not in _CRASHES or _OWN_ERROR in (place.folder / f"{name}.err").read_text(
            "utf-8", "replace"
        ):
            raise
    read = _parse(out.read_text("utf-8", "replace"), where=str(out))
    launched = _launched(log)
    return ran, tuple(_computed(read, launched, f"g{n}") for n in range(len(graphs)))


def _computed(read: Mapping[str, _Read], launched: Mapping[str, frozenset[str]], identity: str) -> Computed:
    one = read.get(identity)
    if one is None:
        return Computed(has_ended=False)
    return Computed(
        results=tuple(one.results),
        skipped=one.skipped,
        kernels=launched.get(identity, frozenset()),
        has_ended=one.is_done or bool(one.skipped),
        has_findings=one.findings > 0,
    )


def _launched(log: Path) -> dict[str, frozenset[str]]:
    """The names of kernels by graph. A log that a crash cut short is read up to there."""
    text = log.read_text("utf-8", "replace")
    lines = text.splitlines() if text.endswith("\n") or not text else text.splitlines()[:-1]
    recording = parse_recording(lines, str(log))
    return {
        section.mark: frozenset(launch.kernel.name.base for launch in section.launches)
        for section in recording.sections
    }


def _parse(text: str, *, where: str) -> dict[str, _Read]:
    """The driver's output by graph. Other lines are what kernels print, for example before they trap.

    Raises PROGRAM_FAILED for a complete line about a graph that has another form.
    """
    found: dict[str, _Read] = {}
    findings = 0
    for number, line in enumerate(text.splitlines(keepends=True), start=1):
        if not line.endswith("\n"):
            break
        text_line = line.rstrip("\n")
        if match := _RESULT.fullmatch(text_line):
            result = Result(
                name=match["name"],
                round=int(match["round"]),
                hash=match["hash"],
                nmse=float(match["nmse"] or 0),
                worst=float(match["worst"] or 0),
                is_finite=match["finite"] != "0",
                values=int(match["values"] or 0),
            )
            found.setdefault(match["id"], _Read()).results.append(result)
        elif match := _DONE.fullmatch(text_line):
            one = found.setdefault(match["id"], _Read())
            one.is_done, one.findings = True, int(match["findings"]) - findings
            findings = int(match["findings"])
        elif match := _SKIPPED.fullmatch(text_line):
            found.setdefault(match["id"], _Read()).skipped = match["why"]
        elif _OF_GRAPH.match(text_line):
            raise ToolchainError(
                "cannot parse a line of the driver graph_check",
                code="PROGRAM_FAILED",
                where=Location(path=where, line=number),
                why=f"the line: {text_line[:160]!r}",
            )
    return found


def by_environment(graphs: Sequence[Graph]) -> Iterator[tuple[int, ...]]:
    """Positions of graphs that can share a process, because their environments are equal."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for number, graph in enumerate(graphs):
        key = (graph.captured, *sorted(graph.environment.items()))
        groups.setdefault(key, []).append(number)
    yield from map(tuple, groups.values())


def differing(before: Computed, after: Computed) -> tuple[tuple[Result, Result], ...]:
    """Results whose bits differ, as pairs of both sides."""
    ours = {(one.name, one.round): one for one in after.results}
    pairs = ((one, ours.get((one.name, one.round))) for one in before.results)
    return tuple((one, other) for one, other in pairs if other is not None and other.hash != one.hash)


def read_shapes(
    driver: Path, side: BuiltSide, graph: Graph, *, place: RunContext
) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Type and extents of each node, without computing anything; empty for a graph that ggml does not accept.

    Raises the errors of :func:`run_program`.
    """
    file = place.write("shapes.graphs", driver_lines(graph, "g"), "writing a graph")
    argv = [str(driver), "shapes", str(file)]
    ran = run_program("shapes", argv, place=place, env=side.environment, timeout_s=_SHAPES_S)
    found = (_SHAPE.fullmatch(line) for line in ran.text().splitlines())
    return {one["name"]: (one["type"], tuple(map(int, one["ne"].split(",")))) for one in found if one}
