"""The driver of gate ``graphs`` compares each node, computed from the CPU's values, on upstream's code."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gate_subject import ARCH, subject_for

from patchkit.base.reporter import NullReporter
from patchkit.base.series_folder import SeriesDir
from patchkit.gpu.hardware.driver_build import build_driver
from patchkit.gpu.hardware.graphs.description import Compared, Graph
from patchkit.gpu.hardware.graphs.running import DRIVER, Result, run_graphs
from patchkit.gpu.hardware.program import RunContext
from patchkit.prove.build import Machine
from patchkit.prove.gates.sides import sides_on
from patchkit.prove.subject import Subject
from patchkit.toolchain.hip import Toolchain
from patchkit.toolchain.sides import BuiltSide

ROOT = Path(__file__).resolve().parents[2]
MACHINE = Machine(backend="hip", emulates=ARCH)
FAR = 0.03
pytestmark = [pytest.mark.hip, pytest.mark.slow]


@pytest.fixture(scope="module")
def subject(gates_cache: Path, hip_toolchain: Toolchain) -> Subject:
    """The series as it is, at build 11549."""
    series = SeriesDir(root=ROOT, origin="checkout")
    return subject_for(series, gates_cache, hip_toolchain, [ARCH], upstream="b11549")


@pytest.fixture(scope="module")
def upstream(subject: Subject) -> Iterator[BuiltSide]:
    """Upstream's side on the emulated GPU."""
    with sides_on(MACHINE, subject) as sides:
        yield sides.before


def _results(
    subject: Subject,
    side: BuiltSide,
    graph: Graph,
    folder: Path,
    compared: Compared,
    device: str = MACHINE.device,
) -> dict[str, Result]:
    driver = build_driver(DRIVER, side, subject.baseline, subject.cache_root, NullReporter())
    place = RunContext(folder=folder, reporter=NullReporter(), stop=threading.Event())
    _, (computed,) = run_graphs(
        driver,
        side,
        [graph],
        device=device,
        name="upstream",
        timeout_s=600,
        place=place,
        compared=compared,
    )
    assert computed.has_ended
    return {one.name: one for one in computed.results}


def _graph(*tensors: dict[str, Any]) -> Graph:
    return Graph.model_validate({"name": "of-a-test", "dims": {}, "tensors": list(tensors)})


def test_an_operation_that_is_wrong_is_far_from_the_cpu_alone(
    subject: Subject, upstream: BuiltSide, tmp_path: Path
) -> None:
    # docs/records/findings.md, 13
    graph = _graph(
        {"name": "a", "leaf": "input", "ne": [64, 4, 8]},
        {"name": "b", "op": "scale", "of": ["a"], "f": [0.5, 0.0]},
        {"name": "c", "op": "permute", "of": ["b"], "i": [0, 2, 1, 3]},
        {"name": "d", "op": "silu_inplace", "of": ["c"], "output": True},
    )
    found = _results(subject, upstream, graph, tmp_path, "each node")
    assert [name for name, one in found.items() if one.nmse > FAR] == ["d"]
    assert _results(subject, upstream, graph, tmp_path, "results")["d"].nmse > FAR


def test_rounding_that_a_later_operation_amplifies_is_no_nodes_own(
    subject: Subject, upstream: BuiltSide, tmp_path: Path
) -> None:
    # silu of a large negative number is nearly an exponential: rounding to 8 bits becomes a factor.
    graph = _graph(
        {"name": "w", "leaf": "weight", "type": "q4_K", "ne": [256, 64]},
        {"name": "a", "leaf": "input", "ne": [256, 1]},
        {"name": "b", "op": "mul_mat", "of": ["w", "a"]},
        {"name": "c", "op": "scale", "of": ["b"], "f": [-40.0, 0.0]},
        {"name": "d", "op": "softplus", "of": ["c"]},
        {"name": "e", "op": "scale", "of": ["d"], "f": [-1.0, 0.0]},
        {"name": "f", "op": "silu", "of": ["e"], "output": True},
    )
    found = _results(subject, upstream, graph, tmp_path, "each node")
    assert list(found) == ["b", "c", "d", "e", "f"]
    assert all(one.nmse < FAR for one in found.values())
    assert _results(subject, upstream, graph, tmp_path, "results")["f"].nmse > FAR


MASKED = {"name": "m", "leaf": "mask", "type": "f32", "ne": [64, 4]}
INPUT = {"name": "a", "leaf": "input", "ne": [256, 8]}
ON_CPU = {
    "overlapping-rows": (
        INPUT,
        {"name": "b", "op": "scale", "of": ["a"], "f": [2.0, 0.0]},
        {
            "name": "v",
            "op": "view",
            "of": ["b"],
            "ne": [256, 4],
            "nb": ["128.0", "1.2", "1.3"],
            "output": True,
        },
    ),
    "rows-with-gaps": (
        INPUT,
        {"name": "b", "op": "scale", "of": ["a"], "f": [2.0, 0.0]},
        {"name": "v", "op": "view", "of": ["b"], "ne": [64, 8], "nb": ["1.1", "1.2", "1.3"]},
        {"name": "c", "op": "silu_inplace", "of": ["v"], "output": True},
    ),
    "integers": (
        {"name": "n", "leaf": "numbers", "type": "i64", "ne": [8]},
        {"name": "k", "op": "cont", "of": ["n"], "output": True},
    ),
    "hidden-values": (MASKED, {"name": "b", "op": "cont", "of": ["m"], "output": True}),
    "idle": (
        INPUT,
        {"name": "b", "op": "silu", "of": ["a"], "idle": True},
        {"name": "c", "op": "scale", "of": ["a"], "f": [2.0, 0.0], "output": True},
    ),
}


@pytest.mark.parametrize("compared", ["results", "each node"])
@pytest.mark.parametrize("name", ON_CPU)
def test_the_cpu_is_not_far_from_itself(
    subject: Subject, upstream: BuiltSide, tmp_path: Path, name: str, compared: Compared
) -> None:
    itself = replace(upstream, module=upstream.cpu)
    found = _results(subject, itself, _graph(*ON_CPU[name]), tmp_path, compared, device="CPU")
    assert found
    assert {(one.nmse, one.worst, one.is_finite) for one in found.values()} == {(0.0, 0.0, True)}
    left_out = {"v", "b"} if name == "idle" else {"v"}
    assert compared == "results" or found.keys().isdisjoint(left_out)


def test_contexts_do_not_share_a_weight_that_an_operation_changes(
    subject: Subject, upstream: BuiltSide, tmp_path: Path
) -> None:
    graph = _graph(
        {"name": "w", "leaf": "weight", "ne": [256, 64]},
        {"name": "v", "leaf": "weight", "ne": [256, 64]},
        {"name": "a", "leaf": "input", "ne": [256, 3]},
        {"name": "b", "op": "silu_inplace", "of": ["w"]},
        {"name": "c", "op": "mul_mat", "of": ["b", "a"], "output": True},
        {"name": "d", "op": "mul_mat", "of": ["v", "a"], "output": True},
    )
    itself = replace(upstream, module=upstream.cpu)
    found = _results(subject, itself, graph.changed(contexts=2), tmp_path, "results", device="CPU")
    assert {name: one.nmse for name, one in found.items()} == dict.fromkeys(["c", "d", "c/2", "d/2"], 0.0)


def test_files_of_the_switches_choose_no_cases(subject: Subject) -> None:
    host = "ggml/src/ggml-cuda/ggml-cuda.cu"
    assert host in subject.changed_files
    assert host not in subject.computing_files
    assert set(subject.backend_files) == set(subject.computing_files) < set(subject.changed_files)
