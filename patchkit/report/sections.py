"""Which tables a report shows of which gate, and what it says of where the figures come from."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from patchkit.device.bench.statistics import bootstrap_median
from patchkit.report.document import Node
from patchkit.report.model import Evidence, GateReport
from patchkit.report.tables import Order, Row, Table, columns, figure, group, percent, was_is

_ARMS = ("baseline", "candidate")
_MOST_TESTS = 50  # far above any plan of ours, which has six tests and at most 20 rounds; the intervals
_MOST_ROUNDS = 100  # of fifty tests of a hundred rounds take some seconds
_KINDS = {"pp": "prompt processing", "tg": "text generation"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """One test; ``judgement`` is the gate's word for it."""

    test: str
    change: float
    low: float
    high: float
    noise: tuple[float, float]
    margin: float
    verdict: str
    judgement: str
    rounds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Tokens per second at a depth; ``low`` and ``high`` are None without an interval."""

    depth: int
    speed: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """``kind`` is ``pp512``; ``setting`` is what else the tests have in common."""

    kind: str
    title: str
    arm: str
    setting: str
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What is drawn."""

    strips: tuple[Strip, ...]
    curves: tuple[Curve, ...]


def bench_of(evidence: Node) -> Bench:
    """Strips and curves; raises EvidenceMalformed."""
    return Bench(
        strips=tuple(_strip(one) for one in evidence.get("tests").items()),
        curves=tuple(_curves(evidence.get("samples"))),
    )


def bench_tables(evidence: Node) -> Iterator[Table]:
    """Every test with its interval and what was said of it."""
    rows = []
    for one in evidence.get("tests").items():
        strip = _strip(one)
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
                    str(strip.rounds),
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


def _strip(one: Node) -> Strip:
    low, high = (end.number() for end in one.get("interval").pair())
    quiet, loud = (end.number() for end in one.get("baseline_against_itself").pair())
    return Strip(
        test=one.get("test").text(),
        change=one.get("change").number(),
        low=low,
        high=high,
        noise=(quiet, loud),
        margin=one.get("margin").number(),
        verdict=one.get("verdict").word("faster", "same", "slower", "undecided"),
        judgement=one.get("judgement").word("ok", "lost", "short", "open"),
        rounds=one.get("rounds").integer(),
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
        yield Curve(kind=kind, title=titles[kind], arm=arm, setting=setting, points=tuple(points))


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


_DIGEST = 12


def anchors_tables(evidence: Node) -> Iterator[Table]:
    """Where each edit lies in the candidate."""
    rows = [
        Row(
            cells=(
                edit.get("patch").text(),
                edit.get("edit").text(),
                edit.get("entity").text(),
                edit.get("confidence").text(),
                group(edit.get("places").texts()),
            )
        )
        for edit in evidence.get("edits").items()
    ]
    yield Table(
        name="edits",
        caption="Edits and the places they resolve to",
        columns=columns("patch", "edit", "in", "found by", "places ~"),
        rows=tuple(rows),
        is_detail=True,
    )


def isolation_tables(evidence: Node) -> Iterator[Table]:
    """Readings by configuration, those that differ in full, and the assembly that was compared."""
    same: Counter[str] = Counter()
    differ: Counter[str] = Counter()
    different: list[Row] = []
    for reading in evidence.get("readings").items():
        name, unit = reading.get("configuration").text(), reading.get("unit").text()
        before, after = (_reading(reading.get(side)) for side in ("baseline", "candidate"))
        (same if before == after else differ)[name] += 1
        if before != after:
            different.append(Row(cells=(name, unit, before, after), state="differs"))
    if different:
        yield Table(
            name="leaks",
            caption="Readings that are not the baseline's",
            columns=columns("configuration", "unit", "baseline", "candidate"),
            rows=tuple(different),
        )
    names = sorted({*same, *differ})
    yield Table(
        name="readings",
        caption="Readings of the touched units by configuration",
        columns=columns("configuration", "identical #", "different #"),
        rows=tuple(
            Row(cells=(name, str(same[name]), str(differ[name])), state="differs" if differ[name] else "same")
            for name in names
        ),
        is_detail=True,
    )
    code = [
        (kind, one)
        for kind, node in (
            ("device", evidence.get("device_code")),
            ("host, branch dead", evidence.get("host_branch").get("branch_dead_assembly")),
        )
        for one in node.items()
    ]
    yield Table(
        name="assembly",
        caption="Assembly compared with the baseline's",
        columns=columns("unit", "GPU", "pass", "lines #", "result ~"),
        rows=tuple(_assembly(kind, one) for kind, one in code),
        is_detail=True,
    )


def _assembly(kind: str, one: Node) -> Row:
    equal, lines = one.get("equal").flag(), one.get("lines").integer()
    told = "same code" if equal else one.get("difference").text()
    if equal and not lines:
        told = "does not compile in either tree"
    cells = (one.get("unit").text(), one.get("arch").text(), kind, str(lines), told)
    return Row(cells=cells, state="same" if equal else "differs")


def _reading(node: Node) -> str:
    """A digest, short, or why there is none."""
    if isinstance(node.value, dict):
        return f"unreadable: {node.get('error').text()}"
    return node.text()[:_DIGEST]


def compile_tables(evidence: Node) -> Iterator[Table]:
    """Passes, and the whole library when it was built."""
    yield Table(
        name="passes",
        caption="Units compiled in both trees",
        columns=columns("unit", "GPU", "pass", "result", "warnings #", "seconds #"),
        rows=tuple(_pass(one) for one in evidence.get("passes").items()),
        is_detail=True,
    )
    libraries = evidence.find("library")
    rows = [
        Row(
            cells=(
                one.get("path").text(),
                str(one.get("units").integer()),
                f"{one.get('size_bytes').integer() / 1e6:.1f} MB",
                f"{one.get('seconds').number():.0f}",
            )
        )
        for one in (libraries.items() if libraries is not None else ())
    ]
    if rows:
        yield Table(
            name="library",
            caption="The whole library, through upstream's CMake",
            columns=columns("file", "units #", "size #", "seconds #"),
            rows=tuple(rows),
            is_detail=True,
        )


def _pass(one: Node) -> Row:
    compiles = one.get("compiles").flag()
    cells = (
        one.get("unit").text(),
        one.get("arch").text(),
        one.get("pass").text(),
        "compiles" if compiles else "FAILS",
        *(_both(one, name) for name in ("warnings", "seconds")),
    )
    return Row(cells=cells, state="compiles" if compiles else "fails")


def _both(one: Node, name: str) -> str:
    """Both sides; a pass that failed has no figures of the candidate."""
    sides = [one.find(f"{name}_{side}") for side in ("baseline", "candidate")]
    told = [f"{side.number():g}" if side is not None else "-" for side in sides]
    return was_is(*told)


_ATTENTION = "flash_attn"
_MOST_GPUS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """A list of launches in the evidence: its ``key``, what one ``row`` is named by, and what it is of."""

    key: str
    row: str
    told: str


_LAUNCHES = (
    _Kind(key="samples", row="case", told="for attention at 65536 rows of KV"),
    _Kind(key="models", row="run", told="in llama-bench on small models"),
)


def launch_tables(evidence: Node) -> Iterator[Table]:
    """Per GPU that a patch is for: kernels by phase, geometry by shape and model; then the other GPUs."""
    others: list[Row] = []
    guarded = 0
    for arch, node in evidence.get("archs").fields():
        if node.find("transitions") is not None:
            guarded += 1
            if guarded > _MOST_GPUS:
                continue  # each has tables of its own; a profile is there for 16 GPUs
            yield _transitions(arch, node.get("transitions"))
            for kind in _LAUNCHES:
                if node.find(kind.key) is not None:  # evidence of before 2026-11 has none
                    yield _launches(arch, node.get(kind.key), kind)
        else:
            others.append(_unguarded(arch, node))
    if others:
        yield Table(
            name="other-gpus",
            caption="GPUs that no patch is for",
            columns=columns("GPU", "cases #", "model runs #", "launches"),
            rows=tuple(others),
            is_detail=True,
        )


def _transitions(arch: str, transitions: Node) -> Table:
    rows = []
    for node in transitions.items():
        before, after = node.get("before").text(), node.get("after").text()
        cells = (node.get("phase").text(), before, after, str(node.get("cases").integer()))
        state = "as before" if before == after else "changed"
        rows.append(Row(cells=(state, *cells), state=state))
    rows.sort(key=lambda row: row.state == "as before")
    return Table(
        name=f"kernels-by-phase-{arch}",
        caption=f"Which attention kernel runs on {arch}, by number of recorded cases",
        columns=columns("state", "phase", "baseline", "candidate", "cases #"),
        rows=tuple(rows),
        note="The host code ran against a stub of the GPU: this is what is launched, not what is computed.",
    )


def _launches(arch: str, found: Node, kind: _Kind) -> Table:
    rows = []
    for node in found.items():
        before, after = _attention(node.get("before")), _attention(node.get("after"))
        state = "as before" if before == after else "changed"
        rows.append(Row(cells=(state, node.get(kind.row).text(), before, after), state=state))
    return Table(
        name=f"{kind.key}-{arch}",
        caption=f"Launches {kind.told} on {arch}",
        columns=columns("state", kind.row, "baseline", "candidate"),
        rows=tuple(rows),
        note="Grid of blocks, 'of' threads of a block.",
        is_detail=True,
    )


def _attention(launches: Node) -> str:
    """The attention kernels of a step, once each, with their geometry."""
    found: dict[str, None] = {}
    for launch in launches.items():
        kernel = launch.get("kernel").text()
        if kernel.startswith(_ATTENTION):
            grid, block = (_sizes(launch.get(name)) for name in ("grid", "block"))
            found[f"{kernel} {grid} of {block.removesuffix('x1')}"] = None
    return group(list(found)) or "none"


def _sizes(node: Node) -> str:
    return "x".join(str(each.integer()) for each in node.items())


def _unguarded(arch: str, node: Node) -> Row:
    runs = [bench.get("identical").flag() for bench in node.get("benches").items()]
    same = node.get("cases_identical").flag() and all(runs)
    state = "as before" if same else "differ"
    told = "the baseline's" if same else "differ from the baseline's"
    return Row(cells=(arch, str(node.get("cases").integer()), str(len(runs)), told), state=state)


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


STATES = ("worse", "mixed", "pruned", "gone", "better", "new", "same", "trap")
"""What may have happened to a variant, in the order a reader wants them."""
_QUIET = ("same", "trap")
_FIGURES = (
    ("VGPRs #", "vgprs"),
    ("spilled #", "vgpr_spills"),
    ("waves #", "waves"),
    ("in whole blocks #", "resident_waves"),
    ("LDS #", "lds_bytes"),
    ("threads #", "threads"),
    ("scratch #", "scratch_bytes"),
    ("SGPRs #", "sgprs"),
    ("model says #", "model_waves"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kernel:
    """One variant; a side is None where it does not exist or can only trap."""

    variant: str
    arch: str
    unit: str
    state: str
    before: dict[str, int] | None
    after: dict[str, int] | None

    def change(self, name: str) -> int:
        """How much more than before; a new kernel is compared with nothing."""
        return self.after[name] - self.before[name] if self.before and self.after else 0

    def value(self, name: str) -> int:
        """The figure now, else as it was."""
        return (self.after or self.before or {}).get(name, 0)

    def row(self) -> Row:
        """As texts."""
        figures = [self._cell(name) for _, name in _FIGURES]
        return Row(
            cells=(self.state, self.variant, self.arch, *figures, self.unit.rpartition("/")[2]),
            state=self.state,
        )

    def _cell(self, name: str) -> str:
        if self.before and self.after:
            return was_is(self.before[name], self.after[name])
        if self.after:
            return str(self.after[name])
        return f"{self.before[name]} -> none" if self.before else "-"


def resources_tables(evidence: Node) -> Iterator[Table]:
    """Changed variants with their orders, then the others."""
    kernels = [_kernel(node) for node in evidence.get("rows").items()]
    changed = [one for one in kernels if one.state not in _QUIET]
    quiet = [one for one in kernels if one.state in _QUIET]
    yield _table("kernels", "Kernel variants that changed, baseline -> candidate", changed)
    if quiet:
        yield _table(
            "kernels-unchanged", "Kernel variants that did not change, and traps", quiet, is_detail=True
        )


def _table(name: str, caption: str, kernels: Sequence[_Kernel], *, is_detail: bool = False) -> Table:
    ordered = sorted(kernels, key=_importance)
    return Table(
        name=name,
        caption=caption,
        columns=columns("state", "variant", "GPU", *(title for title, _ in _FIGURES), "unit"),
        rows=tuple(one.row() for one in ordered),
        note=(
            "Registers per lane, LDS in bytes per block, scratch in bytes per lane, waves per SIMD: counted "
            "by the compiler; 'in whole blocks' and 'model says' by patchkit. A new variant was a trap."
        ),
        orders=() if is_detail else tuple(_orders(ordered)),
        is_detail=is_detail,
    )


def _importance(one: _Kernel) -> tuple[int, int, int, str]:
    spills, waves = one.change("vgpr_spills"), one.change("waves")
    size = abs(spills) or one.value("vgpr_spills")
    return STATES.index(one.state), -size, -abs(waves), one.variant


def _orders(kernels: Sequence[_Kernel]) -> Iterator[Order]:
    keys: tuple[tuple[str, Callable[[_Kernel], tuple[object, ...]] | None], ...] = (
        ("what matters most", None),
        ("name of the variant", lambda one: (one.variant, one.arch)),
        ("spilled registers", lambda one: (-one.value("vgpr_spills"), one.variant)),
        ("VGPRs", lambda one: (-one.value("vgprs"), one.variant)),
        ("fewest waves", lambda one: (one.value("waves"), one.variant)),
    )
    numbers = range(len(kernels))
    for label, key in keys:
        rows = numbers if key is None else sorted(numbers, key=lambda at, key=key: key(kernels[at]))  # type: ignore[misc]
        yield Order(label=label, rows=tuple(rows))


def _kernel(node: Node) -> _Kernel:
    return _Kernel(
        variant=node.get("variant").text(),
        arch=node.get("arch").text(),
        unit=node.get("unit").text(),
        state=node.get("state").word(*STATES),
        before=_resources_figures(node.find("before")),
        after=_resources_figures(node.find("after")),
    )


def _resources_figures(node: Node | None) -> dict[str, int] | None:
    if node is None or node.get("is_trap").flag():
        return None
    return {name: node.get(name).integer() for _, name in _FIGURES}


_TABLES: Mapping[str, Callable[[Node], Iterator[Table]]] = MappingProxyType(
    {
        "anchors": anchors_tables,
        "isolation": isolation_tables,
        "compile": compile_tables,
        "resources": resources_tables,
        "launch": launch_tables,
        "backend-ops": backend_ops_tables,
        "logits": logits_tables,
        "bench": bench_tables,
        "numerics": numerics_tables,
    }
)


def tables_of(gate: GateReport) -> tuple[Table, ...]:
    """The tables of one gate; none where it has no evidence, or where this module knows nothing of it.

    Raises EvidenceMalformed.
    """
    make = _TABLES.get(gate.name.partition("@")[0])
    if make is None or gate.evidence is None or not gate.evidence.value:
        return ()
    return tuple(make(gate.evidence))


def provenance(evidence: Evidence) -> tuple[tuple[str, str], ...]:
    """Everything that the figures rest on, by name. Raises EvidenceMalformed."""
    return tuple(dict.fromkeys(_provenance(evidence)))


def _provenance(evidence: Evidence) -> Iterator[tuple[str, str]]:
    yield "candidate", evidence.branch
    yield "GPUs", ", ".join(evidence.archs)
    yield "upstream's commit", evidence.base
    yield "candidate's commit", evidence.tip
    yield "candidate's tree", evidence.tree
    yield from (("tool", told) for told in evidence.proven_with)
    for gate in evidence.gates:
        if gate.evidence is not None:
            yield from _measured(gate.name, gate.evidence)


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
