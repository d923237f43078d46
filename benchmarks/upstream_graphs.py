"""Graphs in which upstream's HIP backend is far from the CPU, reduced to few operations.

    patchkit apply --arch gfx1151 --trust modelled
    python benchmarks/upstream_graphs.py --minutes 120 --seed 1 --out FOLDER

Random graphs run on the emulated GPU with upstream's code alone. A graph counts if a result is further from
the CPU's than rounding to f16, or of activations to 8 bits, explains (as the gate allows), or if the
program ends in it while the CPU computes it. FOLDER gets a description and a program for each, and a line for
each in ``found.txt`` with its cause: an operation that is far from the CPU's although it gets the CPU's
values; fused operations, or others at the same time; or rounding that later operations amplify. With
``--again`` only the causes of descriptions of an earlier run are looked for. The candidate is only needed
because both sides are built from it.
"""

from __future__ import annotations

import argparse
import re
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from emulated_candidate import emulated_candidate

from patchkit.gpu.hardware.driver_build import build_driver
from patchkit.gpu.hardware.graphs.description import Compared, Graph, read_graph, write_graph
from patchkit.gpu.hardware.graphs.patterns import pattern_graphs
from patchkit.gpu.hardware.graphs.reducing import Shapes, reduce_graph
from patchkit.gpu.hardware.graphs.reproducer import reproducer
from patchkit.gpu.hardware.graphs.running import (
    DRIVER,
    Computed,
    Result,
    by_environment,
    differing,
    read_shapes,
    run_graphs,
)
from patchkit.gpu.hardware.graphs.vary import random_graphs
from patchkit.gpu.hardware.program import RunContext
from patchkit.prove.build import Machine
from patchkit.prove.gates.graphs.judging import allowed_distance, rounding_error, rounding_of
from patchkit.prove.gates.sides import sides_on
from patchkit.toolchain.sides import BuiltSide

_TIMEOUT_S = 900.0
_ENDS = "the program ends"
_SAYS_WHY = re.compile(r"\.cuh?:\d+:|fault|error", re.IGNORECASE)
_NMSE = re.compile(r" has NMSE ([^;]+);")
_SMALLER = 100.0
_BATCH = 16
_REDUCING_S = 240.0
# Both backends round: distances of matmuls reach four times the bound for one (seed 11).
_BOTH_ROUND = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """Upstream's side, ready to compute graphs."""

    side: BuiltSide
    driver: Path
    place: RunContext
    device: str

    def computed(self, graphs: Sequence[Graph], compared: Compared = "results") -> list[Computed]:
        """The results of graphs; one in which the program ends costs only itself."""
        done: dict[int, Computed] = {}
        for group in by_environment(graphs):
            left = list(group)
            while left:
                _, some = run_graphs(
                    self.driver,
                    replace(self.side, kept=None),
                    [graphs[n] for n in left],
                    device=self.device,
                    name="upstream",
                    timeout_s=_TIMEOUT_S,
                    place=self.place,
                    compared=compared,
                )
                ended = next((n for n, one in enumerate(some) if not one.has_ended), len(left))
                done.update(zip(left[: ended + 1], some[: ended + 1], strict=True))
                left = left[ended + 1 :]
        return [done[n] for n in range(len(graphs))]

    def faults(self, graphs: Sequence[Graph]) -> list[str]:
        """What is wrong with each graph; empty for nothing, or if ggml or the CPU does not accept it."""
        return [_fault(*pair) for pair in zip(graphs, self.computed(graphs), strict=True)]

    def cause(self, graph: Graph, fault: str) -> str:
        """Where a graph's fault comes from."""
        if fault == _ENDS:
            self.computed([graph])
            lines = (self.place.folder / "upstream.err").read_text("utf-8", "replace").splitlines()
            return next((line for line in reversed(lines) if _SAYS_WHY.search(line)), "no message").strip()
        done = self.computed([graph])[0]
        simpler: dict[str, dict[str, object]] = {
            "in two contexts at the same time": {"contexts": 1},
            "in a captured graph": {"captured": False},
            "placed by ggml": {"memory": "apart"},
            "in other streams or by other variables": {"environment": {}},
            "fused, or several in one call": {"steps": True},
        }
        for words, change in simpler.items():
            changed = graph.changed(**change)
            if changed == graph:
                continue
            other = self.computed([changed])[0]
            if not other.results:
                return f"not known: without operations {words} there is no result"
            if differing(other, done) and not _fault(changed, other):
                return f"operations that are {words}"
        alone = self.computed([graph.changed(memory="apart")], "each node")[0]
        if not alone.has_ended or not alone.results:
            return "not known: the nodes cannot be computed one by one"
        far = dict.fromkeys(
            graph.named[one.name].op
            for one in alone.results
            if _is_far(one, rounding_error(graph, graph.named[one.name]))
        )
        return f"{', '.join(far)} alone" if far else "rounding that later operations amplify"

    def shapes(self, graph: Graph) -> Shapes:
        """Type and extents of each node."""
        return read_shapes(self.driver, self.side, graph, place=self.place)


def _fault(graph: Graph, computed: Computed) -> str:
    if not computed.has_ended:
        return _ENDS
    for one in computed.results:
        if not one.is_finite:
            return f"{one.name} is not finite"
        if _is_far(one, rounding_of(graph)):
            return f"{one.name} has NMSE {one.nmse:.1e}; rounding of this size: {rounding_of(graph) ** 2:.1e}"
    return ""


def _kind(fault: str) -> str:
    """The fault without the tensor and its numbers."""
    return "is far" if _NMSE.search(fault) else fault.split(" ", 1)[-1]


def _is_alike(one: str, fault: str) -> bool:
    """Whether a smaller graph still has the fault: of the same kind, and not a hundred times smaller."""
    sizes = [float(found[1]) if (found := _NMSE.search(text)) else 0.0 for text in (one, fault)]
    return bool(one) and _kind(one) == _kind(fault) and sizes[0] >= sizes[1] / _SMALLER


def _is_far(one: Result, rounding: float) -> bool:
    explained = allowed_distance(rounding, replace(one, nmse=0.0, worst=0.0))
    nmse, worst = _BOTH_ROUND * explained[0], _BOTH_ROUND**0.5 * explained[1]
    return not (one.is_finite and one.nmse <= nmse and one.worst <= worst)


def search(upstream: Upstream, seed: int, minutes: float, out: Path) -> None:
    """Compute random graphs until the time is over, and reduce the first fault of each pattern and kind."""
    end = time.monotonic() + 60 * minutes
    graphs = random_graphs(pattern_graphs(), seed)
    known: set[tuple[str, str]] = set()
    count = 0
    while time.monotonic() < end:
        some = list(islice(graphs, _BATCH))
        for graph, fault in zip(some, upstream.faults(some), strict=True):
            kind = _kind(fault)
            if not fault or (graph.name, kind) in known:
                continue
            known.add((graph.name, kind))
            until = time.monotonic() + _REDUCING_S
            smallest = reduce_graph(
                graph,
                lambda tried, fault=fault: [_is_alike(one, fault) for one in upstream.faults(tried)],  # type: ignore[misc]
                upstream.shapes,
                is_over=lambda until=until: time.monotonic() > until,  # type: ignore[misc]
            )
            name = f"fault-{len(known)}"
            (out / f"{name}.json").write_text(write_graph(smallest), "utf-8")
            (out / f"{name}.cpp").write_text(reproducer(smallest, fault), "utf-8")
            ops = " ".join(one.op for one in smallest.nodes)
            again = upstream.faults([smallest])[0]
            cause = upstream.cause(smallest, again) if again else "not known: it does not come again"
            line = f"{name}: {graph.name}, {graph.about}: {fault}; reduced to: {ops}; cause: {cause}"
            _report(line, out / "found.txt")
        count += len(some)
        print(f"{count} graphs", flush=True)


def _report(line: str, path: Path) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")
    print(line, flush=True)


def explain(upstream: Upstream, folders: Sequence[Path], out: Path) -> None:
    """Look for the cause of each description in folders, and count causes."""
    causes: Counter[str] = Counter()
    paths = sorted(found for folder in folders for found in folder.rglob("*.json"))
    if not paths:
        raise SystemExit(f"no description in {', '.join(map(str, folders))}")
    for path in paths:
        graph = read_graph(path.read_bytes(), str(path))
        fault = upstream.faults([graph])[0]
        cause = upstream.cause(graph, fault) if fault else "no fault here"
        causes[cause] += 1
        ops = " ".join(one.op for one in graph.nodes)
        line = f"{path.parent.name}/{path.stem}: {graph.name}: {fault or 'no fault'}; {ops}; cause: {cause}"
        _report(line, out / "explained.txt")
    for cause, count in causes.most_common():
        print(f"{count:5} {cause}")


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arch", default="gfx1151", help="the emulated GPU")
    parser.add_argument("--minutes", type=float, default=120, help="time for random graphs")
    parser.add_argument("--seed", type=int, default=1, help="of the random graphs")
    parser.add_argument("--out", type=Path, required=True, help="a folder for what is found")
    parser.add_argument("--again", type=Path, nargs="+", default=[], help="folders of an earlier run")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    machine = Machine(backend="hip", emulates=options.arch)
    subject = emulated_candidate(options.arch)
    with sides_on(machine, subject) as sides:
        upstream = Upstream(
            side=sides.before,
            driver=build_driver(DRIVER, sides.before, subject.baseline, subject.cache_root, subject.reporter),
            place=RunContext(folder=options.out / "runs", reporter=subject.reporter, stop=threading.Event()),
            device=machine.device,
        )
        if options.again:
            explain(upstream, options.again, options.out)
        else:
            search(upstream, options.seed, options.minutes, options.out)


if __name__ == "__main__":
    main()
