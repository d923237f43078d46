"""Which tables a report shows of which gate, and what it says of where the figures come from."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from patchkit.device.bench.statistics import bootstrap_median
from patchkit.gates.blocks import (
    Block,
    Change,
    Changes,
    Curve,
    Curves,
    Point,
    Row,
    Table,
    columns,
    figure,
    percent,
)
from patchkit.gates.document import Node
from patchkit.report.model import GateReport, Run

_ARMS = ("baseline", "candidate")
_MOST_TESTS = 50  # far above any plan of ours, which has six tests and at most 20 rounds; the intervals
_MOST_ROUNDS = 100  # of fifty tests of a hundred rounds take some seconds
_KINDS = {"pp": "prompt processing", "tg": "text generation"}


def bench_blocks(evidence: Node) -> Iterator[Block]:
    """Changes and speeds to be drawn, and every test with its interval and what was said of it."""
    yield Changes(tests=tuple(_change(one) for one in evidence.get("tests").items()))
    yield Curves(curves=tuple(_curves(evidence.get("samples"))))
    rows = []
    for one in evidence.get("tests").items():
        strip = _change(one)
        speeds = [figure(one.get(f"{arm}_tokens_per_second").number()) for arm in _ARMS]
        state = f"{strip.judgement}: {strip.verdict}" + (", control" if one.get("control").flag() else "")
        rows.append(
            Row(
                cells=(
                    state,
                    strip.test,
                    *speeds,
                    percent(strip.change),
                    f"{percent(strip.low)} to {percent(strip.high)}",
                    f"{percent(strip.noise[0])} to {percent(strip.noise[1])}",
                    f"-{one.get('smallest_loss_seen').number() * 100:.1f} %",
                    str(one.get("rounds").integer()),
                    one.get("why").text(),
                ),
                state=strip.judgement,
            )
        )
    titles = ("result", "test", "baseline t/s #", "candidate t/s #", "change #", "99 % interval #")
    yield Table(
        name="bench",
        caption=f"llama-bench with {evidence.get('model').text()} on {evidence.get('runner').text()}",
        columns=columns(*titles, "baseline against itself #", "would see #", "rounds #", "why ~"),
        rows=tuple(rows),
        note="Intervals are of the median over rounds in which both sides took turns; open is no pass.",
    )


def _change(one: Node) -> Change:
    low, high = (end.number() for end in one.get("interval").pair())
    quiet, loud = (end.number() for end in one.get("baseline_against_itself").pair())
    return Change(
        test=one.get("test").text(),
        change=one.get("change").number(),
        low=low,
        high=high,
        noise=(quiet, loud),
        verdict=one.get("verdict").word("faster", "same", "slower", "undecided"),
        judgement=one.get("judgement").word("ok", "lost", "short", "open"),
    )


def _curves(samples: Node) -> Iterator[Curve]:
    found: dict[tuple[str, str, str], list[Point]] = {}
    titles: dict[str, str] = {}
    for test in samples.get("tests").items(most=_MOST_TESTS):
        prompt, generated = (test.get(name).integer() for name in ("prompt", "generated"))
        if bool(prompt) == bool(generated):
            continue  # both at once are neither kind
        kind = f"pp{prompt}" if prompt else f"tg{generated}"
        titles[kind] = f"{_KINDS[kind[:2]]}, {prompt or generated} tokens"
        setting = ", ".join(test.get(name).text() for name in ("setting", "type_k", "type_v", "flash"))
        for arm in _ARMS:
            point = _point(test.get("depth").integer(), prompt or generated, test.get("samples_ns").get(arm))
            found.setdefault((kind, setting, arm), []).append(point)
    for (kind, setting, arm), points in found.items():
        points.sort(key=lambda point: point.depth)
        yield Curve(title=titles[kind], arm=arm, setting=setting, points=tuple(points))


def _point(depth: int, tokens: int, rounds: Node) -> Point:
    times = [
        statistics.median(one.integer(least=1) for one in each.items(least=1))
        for each in rounds.items(most=_MOST_ROUNDS)
    ]
    speeds = [tokens * 1e9 / time for time in times]
    if len(speeds) < 2:  # noqa: PLR2004 - one value has no spread
        return Point(depth=depth, speed=speeds[0] if speeds else 0.0, low=None, high=None)
    interval = bootstrap_median(speeds)
    return Point(depth=depth, speed=interval.middle, low=interval.low, high=interval.high)


_WORST = 40  # cases of ours that are shown, of several hundred


def backend_ops_tables(evidence: Node) -> Iterator[Table]:
    """Counts of upstream's cases, and the least exact of ours."""
    yield Table(
        name="backend-ops",
        caption=f"test-backend-ops on {evidence.get('device').text()}",
        columns=columns("side", "cases run #", "passed #"),
        rows=tuple(
            Row(
                cells=(
                    side,
                    str(evidence.get(f"{key}run").integer()),
                    str(evidence.get(f"{key}passed").integer()),
                )
            )
            for side, key in (("baseline", "baseline_tests_"), ("candidate", "tests_"))
        ),
    )
    cases = [(_largest(one.get("nmse")), one) for one in evidence.get("own").items()]
    cases.sort(key=lambda pair: -pair[0])
    rows = [
        Row(cells=(one.get("case").text(), *(_figures(one.get(name)) for name in ("nmse", "worst_row"))))
        for _, one in cases[:_WORST]
    ]
    if rows:
        yield Table(
            name="backend-ops-own",
            caption="patchkit's own cases against double precision, the least exact first",
            columns=columns("case", "NMSE #", "NMSE of the worst row #"),
            rows=tuple(rows),
            note=f"The {len(rows)} least exact of {len(cases)}; two figures are baseline and candidate.",
            is_detail=True,
        )


def _largest(node: Node) -> float:
    """The worse side; what is no number is worse than any number."""
    found = [one.measured() for one in node.items() if one.value is not None]
    return math.inf if any(map(math.isnan, found)) else max(found, default=0.0)


def _figures(node: Node) -> str:
    """Both sides, or one when both sides are the same files."""
    told = ["-" if one.value is None else f"{one.measured():.1e}" for one in node.items()]
    return " -> ".join(told) or "-"


def logits_tables(evidence: Node) -> Iterator[Table]:
    """Every scene of every model."""
    rows = []
    for one in evidence.get("scenes").items():
        before, after = one.get("baseline"), one.get("candidate")
        figures = [f"{_small(before, name)} -> {_small(after, name)}" for name in ("nmse", "kl")]
        finite = "yes" if after.get("is_finite").flag() else "NO"
        rows.append(
            Row(cells=(one.get("model").text(), one.get("scene").get("name").text(), *figures, finite))
        )
    yield Table(
        name="logits",
        caption=f"Logits against the CPU, on {evidence.get('device').text()}",
        columns=columns("model", "scene", "NMSE #", "KL in nats #", "finite"),
        rows=tuple(rows),
        note=evidence.get("reference").text(),
        is_detail=True,
    )


def _small(side: Node, name: str) -> str:
    found = side.find(name)
    return "-" if found is None else f"{found.measured():.1e}"


def numerics_tables(evidence: Node) -> Iterator[Table]:
    """Tables of settings, measured on an NVIDIA GPU."""
    rows = []
    for one in evidence.get("tables").items():
        worst = one.find("nmse_max")
        rows.append(
            Row(
                cells=(
                    one.get("name").text(),
                    *(str(one.get(name).integer()) for name in ("settings", "passed", "cases", "failed")),
                    f"{worst.measured():.1e}" if worst is not None else "-",
                )
            )
        )
    gpu = evidence.get("gpu")
    yield Table(
        name="numerics",
        caption=f"The kernel's numbers on {gpu.get('name').text()}, by table of settings",
        columns=columns("table", "settings #", "passed #", "cases #", "failed #", "largest NMSE #"),
        rows=tuple(rows),
        note="Measured on an NVIDIA GPU in place of the target: docs/gates.md says what that proves.",
    )


_BLOCKS: Mapping[str, Callable[[Node], Iterator[Block]]] = MappingProxyType(
    {
        "backend-ops": backend_ops_tables,
        "logits": logits_tables,
        "bench": bench_blocks,
        "numerics": numerics_tables,
    }
)


def blocks_of(gate: GateReport) -> tuple[Block, ...]:
    """What is shown of one gate: nothing where it has no evidence, or of a kind that nobody here knows.

    Raises EvidenceMalformed.
    """
    if gate.evidence is None:
        return ()
    if not isinstance(gate.evidence, Node):
        return tuple(gate.evidence.blocks())
    make = _BLOCKS.get(gate.name.partition("@")[0])
    return () if make is None else tuple(make(gate.evidence))


def tables_of(gate: GateReport) -> tuple[Table, ...]:
    """The tables of one gate. Raises EvidenceMalformed."""
    return tuple(block for block in blocks_of(gate) if isinstance(block, Table))


def provenance(run: Run) -> tuple[tuple[str, str], ...]:
    """Everything that the figures rest on, by name. Raises EvidenceMalformed."""
    return tuple(dict.fromkeys(_provenance(run)))


def _provenance(run: Run) -> Iterator[tuple[str, str]]:
    yield "candidate", run.branch
    yield "GPUs", ", ".join(run.archs)
    yield "upstream's commit", run.base
    yield "candidate's commit", run.tip
    yield "candidate's tree", run.tree
    yield from (("tool", told) for told in run.proven_with)
    for gate in run.gates:
        if isinstance(gate.evidence, Node):
            yield from _measured(gate.name, gate.evidence)
        elif gate.evidence is not None:
            yield from ((f"{gate.name}: {name}", told) for name, told in gate.evidence.provenance())


def _measured(gate: str, evidence: Node) -> Iterator[tuple[str, str]]:
    """Who measured it, on what, when."""
    run_at = evidence.find("run_at")
    if run_at is not None:
        yield f"{gate}: run at", run_at.text()
    identity = evidence.find("identity")
    if identity is not None:
        yield f"{gate}: run by", identity.get("runner").text()
        yield f"{gate}: machine", identity.get("machine").text()
        yield f"{gate}: settings", identity.get("settings").text()
    for name in ("device", "model", "nvcc"):
        found = evidence.find(name)
        if found is not None:
            yield f"{gate}: {name}", found.text()
    gpu = evidence.find("gpu")
    if gpu is not None:
        yield f"{gate}: GPU and driver", f"{gpu.get('name').text()}, {gpu.get('driver').text()}"
