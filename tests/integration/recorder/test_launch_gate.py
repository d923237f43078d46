"""The launch gate on the shipped candidate, and on candidates that break what their patches promise.

Rules that a single edit of a patch can break are in tests/mutation; here are the good case, other GPUs, and
host code that loses support, aborts, does not compile or does not end. Everything that runs is upstream's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from patchkit.base.plain import fields_of
from patchkit.base.store import Store
from patchkit.carry.placing.guard import GuardedGpu
from patchkit.gpu.emulated.cases import own_cases
from patchkit.gpu.emulated.device import device_of
from patchkit.gpu.emulated.runtime import RecordedBackend, build_backend
from patchkit.gpu.emulated.session import RecordedRunFailed, RecordedRunHangs, Session
from patchkit.prove.build import build_sides
from patchkit.prove.gates import touched
from patchkit.prove.gates.base import GateResult
from patchkit.prove.gates.launch.gate import LaunchGate
from patchkit.prove.gates.launch.runs import known_cases
from patchkit.prove.subject import Subject
from patchkit.toolchain.compile import CompileFailed
from patchkit.toolchain.compiler import Compiler
from patchkit.toolchain.tree import overlay_tree
from patchkit.toolchain.units import SourceTree

pytestmark = [pytest.mark.hip, pytest.mark.slow]

_CUDA = "ggml/src/ggml-cuda"
_SELECTION, _WMMA, _TILE = f"{_CUDA}/fattn.cu", f"{_CUDA}/fattn-wmma-f16.cu", f"{_CUDA}/fattn-tile.cuh"
_RDNA_TABLE = "_get_config_amd_rdna(const int DKQ, const int DV, const int ncols) {\n"

Edits = Mapping[str, tuple[str, str]]


@pytest.fixture
def broken(subject: Subject) -> Callable[[Edits], Subject]:
    """The candidate with one piece of text replaced per file."""

    def make(edits: Edits) -> Subject:
        changes = {}
        for path, (old, new) in edits.items():
            text = (subject.candidate / path).read_text("utf-8")
            assert old in text, f"{path} no longer has: {old}"
            changes[path] = text.replace(old, new, 1).encode()
        return replace(subject, candidate=overlay_tree(subject.candidate, changes, "whole", below="."))

    return make


@pytest.fixture
def run_gate(monkeypatch: pytest.MonkeyPatch) -> Callable[..., GateResult]:
    """The gate on the GPU of the candidate and ``others``, with the device code of one small unit."""

    def run(subject: Subject, *others: str) -> GateResult:
        monkeypatch.setattr(touched, "touched_units", lambda _: (_SELECTION,))
        return LaunchGate(deep=False, others=others).run(subject)

    return run


@pytest.fixture(scope="module")
def baseline(subject: Subject, compiler: Compiler) -> RecordedBackend:
    programs = build_sides(subject, "cpu", is_timed=False).before
    return build_backend(SourceTree(subject.baseline), compiler, "gfx1151", programs)


def _session(side: RecordedBackend, subject: Subject, compiler: Compiler) -> Session:
    device = device_of(subject.profiles["gfx1151"])
    return Session(backend=side, device=device, kernels={}, compiler=compiler)


def _problems(result: GateResult) -> dict[str, str]:
    assert result.verdict == "failed", result.summary
    return {problem.code: f"{problem.message}\n{problem.why}" for problem in result.problems}


def test_the_shipped_candidate_passes_on_every_kind_of_gpu(subject: Subject) -> None:
    result = LaunchGate().run(subject)
    assert (result.verdict, result.problems) == ("passed", ())
    target = fields_of(result)["evidence"]["archs"]["gfx1151"]
    assert target["supported"] == [5248, 5248]  # of upstream's list at build 6900
    after = {row["after"] for row in target["transitions"] if row["phase"].startswith("decode")}
    assert after == {"TILE", "VEC", "not supported"}
    moved = {
        (row["phase"], row["before"], row["after"]): row["cases"]
        for row in target["transitions"]
        if row["before"] != row["after"]
    }
    assert {phase.split()[0] for phase, _, _ in moved} == {"decode"}
    assert moved["decode f16, grouped", "VEC", "TILE"] > 0
    assert moved["decode f16, grouped", "WMMA", "TILE"] > 0
    assert len(target["benches"]) == 24 + 4  # four with quantized matrices
    assert any("mul_mat_q x" in line for line in result.lines)
    # Upstream converts quantized KV of 131072 rows with a grid that the runtime refuses.
    assert list(target["upstream"]) == ["a launch that the GPU rejects"]
    others = {
        arch: each for arch, each in fields_of(result)["evidence"]["archs"].items() if arch != "gfx1151"
    }
    assert set(others) == set(subject.profiles) - {"gfx1151"}
    assert all(each["cases_identical"] for each in others.values())
    assert result.lines[-1].split() == sorted(others)


def _stamps(result: GateResult) -> dict[str, int]:
    """When each log that the evidence names was written."""
    archs = fields_of(result)["evidence"]["archs"].values()
    benches = [bench for arch in archs for bench in arch["benches"]]
    logs = [log for each in [*archs, *benches] for log in each["logs"]]
    return {log: Path(log).stat().st_mtime_ns for log in logs}


def test_a_second_run_records_nothing(subject: Subject, run_gate: Callable[..., GateResult]) -> None:
    first = _stamps(run_gate(subject, "gfx906"))
    again = run_gate(subject, "gfx906")
    assert again.verdict == "passed"
    assert _stamps(again) == first
    # Sides, and on each GPU cases and model runs; those of quantized matrices on the candidate's GPU alone.
    assert len(first) == 2 * ((1 + 12 + 4) + (1 + 12))


def test_a_head_size_that_loses_support_is_found_though_upstream_never_asks_for_it(
    broken: Callable[[Edits], Subject], run_gate: Callable[..., GateResult]
) -> None:
    found = _problems(
        run_gate(broken({_SELECTION: ("        case 128:\n        case 112:\n", "        case 128:\n")}))
    )
    assert set(found) == {"LAUNCH_SUPPORT_LOST"}
    assert "D=112" in found["LAUNCH_SUPPORT_LOST"]


@pytest.mark.parametrize("arch", ["gfx1150", "gfx906"])
def test_a_gpu_that_no_patch_is_for_must_launch_what_it_did(
    broken: Callable[[Edits], Subject], run_gate: Callable[..., GateResult], arch: str
) -> None:
    # As if the guard were too wide: every AMD GPU leaves out the vector kernel where it was chosen.
    edit = ("        if (can_use_vector_kernel && Q->ne[1] <= 2) {", "        if (false) {")
    anywhere = (
        "    if (can_use_vector_kernel) {\n        if (!ggml_is_quantized",
        "    if (false) {\n        if (!ggml_is_quantized",
    )
    found = _problems(run_gate(broken({_SELECTION: anywhere if arch == "gfx906" else edit}), arch))
    assert f"{arch}: no patch targets this GPU" in found["LAUNCH_UNGUARDED_CHANGED"]
    assert "flash_attn_ext_vec<" in found["LAUNCH_UNGUARDED_CHANGED"]


def test_a_gpu_that_its_family_lets_in_is_held_to_what_the_patches_promise(
    subject: Subject, run_gate: Callable[..., GateResult]
) -> None:
    # The patches' code asks for gfx1151 alone: on gfx1150 their promises are broken, once the guard names it.
    wide = [
        replace(part, guard=replace(part.guard, targets=(GuardedGpu.named("gfx1150"), *part.guard.targets)))
        for part in subject.patches
    ]
    found = _problems(run_gate(replace(subject, patches=tuple(wide)), "gfx1150"))
    assert "LAUNCH_UNGUARDED_CHANGED" not in found
    assert "gfx1150: decode" in found["LAUNCH_DECODE_WMMA"]


@pytest.mark.parametrize(
    ("edits", "says"),
    [
        # A missing TILE config ends in a division by zero at launch.
        (
            {
                _TILE: (
                    f"{_RDNA_TABLE}    GGML_CUDA_FATTN_TILE_CONFIG_CASE( 40,  40,  2,  64, 2,  32,  40)\n",
                    _RDNA_TABLE,
                ),
            },
            "crashed on the launch recorder as gfx1151, in case upstream-",
        ),
        # Upstream asks how many blocks fit, and asserts that one does.
        ({_WMMA: ("        , 0,\n", "        , 65537,\n")}, "GGML_ASSERT(max_blocks_per_sm > 0) failed"),
    ],
    ids=["tile-config-missing", "too-much-lds"],
)
def test_host_code_that_aborts_where_the_baseline_does_not_is_the_candidates_fault(
    broken: Callable[[Edits], Subject], run_gate: Callable[..., GateResult], edits: Edits, says: str
) -> None:
    found = _problems(run_gate(broken(edits)))
    assert set(found) == {"LAUNCH_ABORTED"}
    assert says in found["LAUNCH_ABORTED"]


def test_a_kernel_of_our_own_that_no_gpu_accepts_and_that_models_did_not_launch_is_found(
    broken: Callable[[Edits], Subject], run_gate: Callable[..., GateResult]
) -> None:
    entry = "void ggml_cuda_flash_attn_ext(ggml_backend_cuda_context & ctx, ggml_tensor * dst) {\n"
    launch = "    too_big<<<dim3(1, 70000, 1), 32, 0, ctx.stream()>>>();\n"
    found = _problems(
        run_gate(broken({_SELECTION: (entry, f"static __global__ void too_big() {{}}\n{entry}{launch}")}))
    )
    assert set(found) == {"LAUNCH_ILLEGAL", "LAUNCH_GRAPH_CHANGED"}
    assert "too_big with 70000 blocks in y, a grid has 1 to 65536" in found["LAUNCH_ILLEGAL"]
    assert "now too_big (1, 70000, 1)" in found["LAUNCH_GRAPH_CHANGED"]


def test_host_code_that_does_not_compile_fails_the_gate(
    broken: Callable[[Edits], Subject], run_gate: Callable[..., GateResult]
) -> None:
    # Host pass only, so that the device pass, which comes first, has nothing to say about it.
    edit = (
        '#include "fattn.cuh"\n',
        '#include "fattn.cuh"\n#ifndef __HIP_DEVICE_COMPILE__\nint x = y;\n#endif\n',
    )
    result = run_gate(broken({_SELECTION: edit}))
    (problem,) = result.problems
    assert isinstance(problem, CompileFailed)
    assert result.verdict == "failed"
    assert "undeclared identifier 'y'" in (problem.why or problem.message)


def test_upstreams_code_that_does_not_end_is_stopped_and_named(
    baseline: RecordedBackend,
    subject: Subject,
    compiler: Compiler,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr("patchkit.gpu.emulated.session._TIMEOUT_S", 0.001)
    with pytest.raises(RecordedRunHangs) as caught:
        _session(baseline, subject, replace(compiler, store=Store(root=tmp_path / "objects"))).run_cases(
            own_cases()
        )
    assert (
        "fattn_cases did not finish within 0.001 s on the launch recorder as gfx1151" in caught.value.message
    )
    assert not list(tmp_path.rglob("log.jsonl"))


def test_a_backend_that_cannot_be_loaded_is_not_a_recording(
    baseline: RecordedBackend, subject: Subject, compiler: Compiler, tmp_path: Path
) -> None:
    nothing = tmp_path / "libggml-hip.so"
    nothing.write_bytes(b"\x7fELF is not all of it")
    library = replace(baseline.library, path=nothing, key="none")
    session = _session(replace(baseline, library=library), subject, compiler)
    with pytest.raises(RecordedRunFailed) as caught:
        session.run_cases(own_cases()[:1])
    assert "fattn_cases failed on the launch recorder" in caught.value.message


def test_every_case_that_upstream_lists_is_understood(
    baseline: RecordedBackend, subject: Subject, compiler: Compiler
) -> None:
    cases, unknown = known_cases(_session(baseline, subject, compiler).support())
    assert unknown == ()
    assert len(cases) - len(own_cases()) > 5000
