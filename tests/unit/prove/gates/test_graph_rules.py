"""The gate graphs: when results of both sides count as different, and what its evidence shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.base.reporter import NullReporter
from patchkit.gpu.hardware.graphs.description import Graph, Tensor
from patchkit.gpu.hardware.graphs.running import Computed, Result, run_graphs
from patchkit.gpu.hardware.graphs.vary import switched_off
from patchkit.gpu.hardware.program import RunContext
from patchkit.prove.build import Machine
from patchkit.prove.gates.graphs.comparing import used_although_off
from patchkit.prove.gates.graphs.gate import GraphsGate
from patchkit.prove.gates.graphs.judging import Claims, Difference, allowed_distance, compare, rounding_of
from patchkit.prove.gates.registry import find_entry, load
from patchkit.toolchain.sides import BuiltSide

EXACT = Claims(differ=("mul_mat_prompts*",), without=())


def _graph(weights: str = "q4_K") -> Graph:
    return Graph(
        name="matmul",
        dims={},
        tensors=(
            Tensor(name="w", leaf="weight", type=weights, ne=(256, 8)),
            Tensor(name="x", leaf="input", ne=(256,)),
            Tensor(name="y", op="mul_mat", of=("w", "x"), output=True),
        ),
    )


def _side(
    bits: str, nmse: float = 0.0, worst: float = 0.0, *, is_finite: bool = True, kernel: str = "k"
) -> Computed:
    result = Result(name="y", round=0, hash=bits, nmse=nmse, worst=worst, is_finite=is_finite)
    return Computed(results=(result,), kernels=frozenset({kernel}))


def _kind(found: Difference | None) -> str | None:
    return None if found is None else found.kind


@pytest.mark.parametrize(
    ("before", "after", "claims", "kind"),
    [
        (_side("a"), _side("a"), EXACT, None),
        (_side("a", 1e-5), _side("b", 1e-5), EXACT, "bits"),
        (_side("a", 1e-5), _side("b", 1e-5, kernel="mul_mat_prompts"), EXACT, None),
        (_side("a", 1e-5, kernel="mul_mat_prompts"), _side("b", 1e-5), EXACT, None),
        (_side("a", 1e-5), _side("b", 1e-5), Claims(differ=(), without=("other",)), None),
        (_side("a", 1e-5), _side("b", 0.2, kernel="mul_mat_prompts"), EXACT, "far"),
        (_side("a", 1e-5), _side("b", 1e-5, 1.0, kernel="mul_mat_prompts"), EXACT, "far"),
        (_side("a", 1e-5), _side("b", float("nan"), is_finite=False), EXACT, "not finite"),
        (_side("a", 2.0), _side("b", 1.0), EXACT, None),  # upstream's own is wrong
        (_side("a", float("nan"), is_finite=False), _side("b", 1.0), EXACT, None),
        (_side("a"), Computed(has_ended=False), EXACT, "ends"),
        (Computed(has_ended=False), Computed(has_ended=False), EXACT, None),
    ],
)
def test_what_counts_as_a_difference(
    before: Computed, after: Computed, claims: Claims, kind: str | None
) -> None:
    assert _kind(compare(_graph(), before, after, claims)) == kind


def test_the_bound_depends_on_the_type_of_weights_and_on_the_baseline() -> None:
    nearest = Result(name="y", round=0, hash="a")
    assert allowed_distance(rounding_of(_graph("f16")), nearest) == (2.0**-22, 8 * 2.0**-11)
    assert allowed_distance(rounding_of(_graph("bf16")), nearest) == (2.0**-18, 8 * 2.0**-9)
    assert allowed_distance(rounding_of(_graph("q6_K")), nearest) == (2.0**-14, 8 * 2.0**-7)
    further = Result(name="y", round=0, hash="a", nmse=1e-3, worst=0.5)
    assert allowed_distance(rounding_of(_graph("q6_K")), further) == (3e-3, 1.5)


def test_the_error_of_few_values_may_scatter() -> None:
    few = Result(name="y", round=0, hash="a", values=4)
    many = Result(name="y", round=0, hash="a", values=1_000_000)
    assert allowed_distance(rounding_of(_graph("q6_K")), few)[0] == 6 * 2.0**-14
    assert allowed_distance(rounding_of(_graph("q6_K")), many)[0] == pytest.approx(1.01 * 2.0**-14)


def test_a_patch_that_runs_although_it_is_off_is_one_whose_switch_does_nothing() -> None:
    stderr = "patch fuse-qkv-rope-kv-store 0\npatch fuse-norm-q8-1 2\npatch rope-block-size 3\n"
    assert used_although_off(switched_off(_graph()), stderr) == {"fuse-norm-q8-1": 2, "rope-block-size": 3}
    some = switched_off(_graph(), "fuse-qkv-rope-kv-store,rope-block-size")
    assert used_although_off(some, stderr) == {"rope-block-size": 3}
    assert not used_although_off(_graph(), stderr)


def test_a_machine_without_the_emulated_gpu_runs_nothing() -> None:
    result = GraphsGate(machine=Machine(backend="hip"), stored=(), patterns=()).run(None)  # type: ignore[arg-type]
    assert result.verdict == "not run"
    assert "needs the emulated GPU" in result.summary


def test_the_registry_names_it() -> None:
    entry = find_entry("graphs")
    assert entry is not None
    assert (entry.runs_on, entry.reads) == ("emulated", {"results": "[results]"})
    assert load(entry.gate) is GraphsGate


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A driver that prints two graphs and is killed in the third."""
    lines = [
        "g0 result y round=0 hash=00000000000000aa",
        "g0 result y round=1 hash=00000000000000ab nmse=1e-05 worst=0.25 finite=1 values=64",
        "g0 done findings=2",
        "g1 unsupported t3",
        "fattn-tile.cuh:837: ERROR: a kernel prints this before it traps",
        "g2 result y round=0 hash=00000000000000ac",
    ]
    path = tmp_path / "driver"
    path.write_text("#!/bin/sh\n" + "".join(f"echo '{line}'\n" for line in lines) + "kill -SEGV $$\n")
    path.chmod(0o755)
    return path


def test_a_crash_costs_the_graph_that_it_is_in_and_those_after_it(program: Path, tmp_path: Path) -> None:
    side = BuiltSide(
        backend="hip",
        tree="",
        folder=tmp_path,
        module=tmp_path / "hip.so",
        cpu=tmp_path / "cpu.so",
        parts=(),
        environment={},
    )
    ran, found = run_graphs(
        program,
        side,
        [_graph()] * 4,
        device="ROCm0",
        name="test",
        timeout_s=60,
        place=RunContext(folder=tmp_path / "runs", reporter=NullReporter()),
    )
    assert ran is None
    assert [one.has_ended for one in found] == [True, True, False, False]
    assert [(one.round, one.hash[-2:], one.nmse) for one in found[0].results] == [
        (0, "aa", 0),
        (1, "ab", 1e-5),
    ]
    assert found[0].has_findings
    assert found[1].skipped == "unsupported"
