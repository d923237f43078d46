"""The rules about quantized matrices on made-up runs of models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from launches import comparison_of, compiled_kernel, recorded

from patchkit.carry.series.profile import load_profile
from patchkit.gpu.emulated.device import device_of
from patchkit.gpu.emulated.models import SmallModel
from patchkit.gpu.emulated.session import BenchRun, RecordedRun
from patchkit.prove.gates.launch.geometry import Guarded
from patchkit.prove.gates.launch.launch_text import matrix_lines
from patchkit.prove.gates.launch.rules import about_matrices, check_graphs, check_matrices, unshown_matrices
from patchkit.prove.gates.launch.runs import Comparison, bench_runs

_UNIT = "ggml/src/ggml-cuda/template-instances/mmq-instance-q4_k.cu"
_MMQ = "_Z9mul_mat_qIL9ggml_type12ELi64ELb0EEvPKc"
_MMVQ = "_Z13mul_mat_vec_qIL9ggml_type12ELi4ELb0EEvPKc"
_QUANTIZE = "_Z13quantize_q8_1PKf"
_NORM = "_Z12rms_norm_f32ILi256EEvPKf"

# name, threads per block
Launched = tuple[str, int]


@pytest.fixture
def compared(tmp_path: Path) -> Callable[..., Comparison]:
    """One run of a quantized model on both sides; each launch is one kernel with so many threads."""

    def run(launches: list[Launched]) -> RecordedRun:
        sizes = [(name, _UNIT, (4, 1, 1), (32, threads // 32, 1)) for name, threads in launches]
        return recorded(tmp_path, sizes)

    def make(before: list[Launched], after: list[Launched]) -> Comparison:
        test = BenchRun(model=SmallModel(head_size=64, weights=("Q4_K",)), prompt=4, generated=0, depth=0)
        return comparison_of((run([]), run([])), [(test, run(before), run(after))])

    return make


@pytest.fixture
def guarded(checkout: Path) -> Guarded:
    return Guarded(
        device=device_of(load_profile(checkout / "arch_profiles", "gfx1151")),
        rows={},
        code={_UNIT: {_MMQ: compiled_kernel(_MMQ, 128), _QUANTIZE: compiled_kernel(_QUANTIZE, 1024)}},
        code_before={
            _UNIT: {
                _MMQ: compiled_kernel(_MMQ, 256),
                _MMVQ: compiled_kernel(_MMVQ, 128),
                _QUANTIZE: compiled_kernel(_QUANTIZE, 1024),
            }
        },
        about_matrices=("limits",),
    )


def test_a_patch_is_about_matrices_when_it_changes_their_files() -> None:
    def patch(name: str, touched: tuple[str, ...], added: tuple[str, ...] = ()) -> SimpleNamespace:
        return SimpleNamespace(id=name, touched=touched, new_files=added)

    folder = "ggml/src/ggml-cuda"
    patches = [
        patch("attention", (f"{folder}/fattn.cu",)),
        patch("limits", (f"{folder}/mmvq.cu",)),
        patch("table", (f"{folder}/fattn.cu",), (f"{folder}/mmq-config-tuned.cuh",)),
    ]
    assert about_matrices(patches) == ("limits", "table")  # type: ignore[arg-type]


def test_other_matrix_kernels_are_a_changed_graph_unless_a_patch_is_about_them(compared) -> None:
    moved = compared([(_NORM, 256), (_MMVQ, 128)], [(_NORM, 256), (_MMQ, 128)])
    assert check_graphs(moved, matrices_may_change=True) == []
    (problem,) = check_graphs(moved, matrices_may_change=False)
    assert problem.code == "LAUNCH_GRAPH_CHANGED"
    assert "launch 1 was mul_mat_vec_q<12, 4, false>" in (problem.why or "")


def test_a_product_of_our_own_kernel_is_one_of_matrices(compared) -> None:
    own = [("mul_mat_prompts_activations", 1024), ("mul_mat_prompts<(ggml_type)2, 128, false>", 128)]
    moved = compared([(_NORM, 256), (_QUANTIZE, 128), (_MMQ, 256)], [(_NORM, 256), *own])
    assert check_graphs(moved, matrices_may_change=True) == []
    assert check_graphs(moved, matrices_may_change=False) != []


def test_what_prepared_a_product_for_the_blas_library_may_go_with_it(compared) -> None:
    library = [("dequantize_block_q6_K<half>", 64), ("convert_unary<float, half>", 256)]
    moved = compared([(_NORM, 256), *library], [(_NORM, 256), (_QUANTIZE, 128), (_MMQ, 128)])
    assert check_graphs(moved, matrices_may_change=True) == []
    assert check_graphs(moved, matrices_may_change=False) != []


def test_work_that_goes_to_the_host_may_leave_a_graph_and_nothing_else_may(compared) -> None:
    rows = "_Z10k_get_rowsILi64EEvPKv"
    graph = [(rows, 256), (_NORM, 256), (rows, 256), (_MMQ, 128)]
    fewer = compared(graph, graph[1:])
    assert check_graphs(fewer, matrices_may_change=False, leaving=("k_get_rows",)) == []
    assert check_graphs(fewer, matrices_may_change=False, leaving=("k_get_row",)) != []
    for other in (graph[2:], [*graph[1:3], (rows, 256), graph[3]], [(rows, 128), *graph[1:]]):
        found = check_graphs(compared(graph, other), matrices_may_change=False, leaving=("k_get_rows",))
        assert [problem.code for problem in found] == ["LAUNCH_GRAPH_CHANGED"]


def test_a_kernel_of_a_patch_may_do_the_work_of_those_it_replaces_and_of_no_other(compared) -> None:
    ours = ("norm_quantized<256, 4>", 256)
    moved = compared([(_NORM, 256), (_MMQ, 128), (_NORM, 256)], [ours, (_MMQ, 128), (_NORM, 256)])
    assert (
        check_graphs(moved, matrices_may_change=False, leaving=("rms_norm_f32",), own=("norm_quantized",))
        == []
    )
    assert check_graphs(moved, matrices_may_change=False, leaving=("rms_norm_f32",)) != []
    assert check_graphs(moved, matrices_may_change=False, own=("norm_quantized",)) != []


@pytest.mark.parametrize("matrices_may_change", [True, False])
def test_another_block_of_any_other_kernel_is_a_changed_graph(compared, matrices_may_change: bool) -> None:
    moved = compared([(_NORM, 256), (_MMQ, 256)], [(_NORM, 128), (_MMQ, 256)])
    (problem,) = check_graphs(moved, matrices_may_change=matrices_may_change)
    assert "of (32, 8, 1) with 0 bytes, now rms_norm_f32<256> (4, 1, 1) of (32, 4, 1)" in (problem.why or "")


def test_what_a_patch_promises_breaks_no_rule_and_is_told(compared, guarded: Guarded) -> None:
    moved = compared([(_QUANTIZE, 128), (_MMVQ, 128)], [(_QUANTIZE, 128), (_MMQ, 128)])
    assert check_matrices(moved, guarded) == []
    assert unshown_matrices(moved, guarded.about_matrices) == []
    told = list(matrix_lines(moved))
    assert " ".join(told[1].split()) == "pp4 mul_mat_vec_q x1 of 128 -> mul_mat_q x1 of 128"


@pytest.mark.parametrize(
    ("launched", "code", "why"),
    [
        ((_MMQ, 256), "LAUNCH_BLOCK_MISMATCH", "with 256 threads per block, compiled for 128"),
        ((_MMVQ, 128), "LAUNCH_KERNEL_MISSING", f"mul_mat_vec_q<12, 4, false> of {_UNIT}"),
    ],
)
def test_host_and_device_that_disagree_are_found(
    compared, guarded: Guarded, launched: Launched, code: str, why: str
) -> None:
    (problem,) = check_matrices(compared([(_QUANTIZE, 128)], [launched]), guarded)
    assert problem.code == code
    assert why in (problem.why or "")


def test_a_trap_is_found_unless_upstream_launches_it_too(compared, guarded: Guarded) -> None:
    trap = {_UNIT: {_MMQ: compiled_kernel(_MMQ, 256, is_trap=True)}}
    broken = compared([(_MMQ, 256)], [(_MMQ, 256)])
    (problem,) = check_matrices(broken, replace(guarded, code=trap))
    assert problem.code == "LAUNCH_KERNEL_TRAPS"
    assert check_matrices(broken, replace(guarded, code=trap, code_before=trap)) == []


def test_kernels_of_units_that_nobody_compiled_are_not_judged(compared, guarded: Guarded) -> None:
    assert (
        check_matrices(compared([(_MMQ, 256)], [(_MMQ, 64)]), replace(guarded, code={}, code_before={})) == []
    )


def test_a_patch_without_any_effect_is_said_not_to_be_shown(compared, guarded: Guarded) -> None:
    same = compared([(_MMQ, 256)], [(_MMQ, 256)])
    (note,) = unshown_matrices(same, guarded.about_matrices)
    assert note.startswith("limits on gfx1151: no effect is visible")
    assert "(Q4_K)" in note
    assert unshown_matrices(same, ()) == []
    assert list(matrix_lines(same))[1].endswith(", unchanged")


def test_quantized_models_are_run_with_few_and_many_columns_where_they_are_asked_for() -> None:
    plain, more = (bench_runs(deep=False, matrices=asked) for asked in (False, True))
    assert not any(run.model.weights for run in plain)
    assert [run.test for run in more if run.model.weights] == ["pp5", "pp48", "pp512", "tg4"]
    assert [run for run in more if not run.model.weights] == list(plain)
