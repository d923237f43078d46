"""Take fixes of faults out of a candidate, and see that the gate ``graphs`` fails with a small graph.

A reviewer found ``FAULTS`` in kernels of ours while every gate passed (docs/records/gates.md); those in
``TWO_CONTEXTS``, ``CAPTURED``, ``STREAMS`` and ``NOT_OFF`` are planted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from emulated_trees import ARCH, ROOT
from filelock import FileLock

from patchkit.base.reporter import NullReporter
from patchkit.base.series_folder import SeriesDir
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.apply import run_apply
from patchkit.carry.candidate.decision import Request
from patchkit.carry.candidate.find import find_candidate
from patchkit.gpu.hardware.graphs.description import Graph, read_graph
from patchkit.gpu.hardware.graphs.patterns import pattern_graphs
from patchkit.gpu.hardware.graphs.vary import captured, forked, in_two_contexts
from patchkit.prove.build import Machine
from patchkit.prove.gates.graphs.evidence import GraphsEvidence
from patchkit.prove.gates.graphs.gate import GraphsGate, stored_graphs
from patchkit.prove.subject import Subject, make_subject
from patchkit.toolchain.hip import Toolchain

pytestmark = [pytest.mark.hip, pytest.mark.slow]

CUDA = "ggml/src/ggml-cuda"
# Of a reduced graph; the fused kernel of Q, K and V starts at seven: three matmuls, two RoPEs, two stores.
MOST_OPERATIONS = 7


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fix taken out: ``texts`` of ``file`` and what replaces them. ``graphs`` of the corpus show it."""

    id: str
    file: str
    texts: Mapping[str, str]
    graphs: tuple[str, ...]
    kind: str


FAULTS = (
    Fault(
        id="q8-1-by-address",
        file="quantize-once.cuh",
        texts={
            "!ggml_cuda_quantize_once_is_of_step(kept, src1, dst)": "false",
            "kept.of.view_src == (src1->view_src != nullptr ? src1->view_src : src1)": "true",
            "std::find(kept.readers.begin(), kept.readers.end(), dst) == kept.readers.end()": "true",
        },
        graphs=("experts-in-a-row",),
        kind="far",
    ),
    Fault(
        id="one-position-for-all-rows",
        file="attention-inputs.cuh",
        texts={"node->ne[2] != 1 || node->ne[3] != 1": "false"},
        graphs=("rope-heads-as-positions",),
        kind="far",
    ),
    Fault(
        id="reads-past-a-mask",
        file="fattn-common.cuh",
        texts={"ncols > 64 && (Q->ne[1] % ncols1 != 0 || mask->ne[3] != Q->ne[3])": "false"},
        graphs=("mask-of-two-sequences",),
        kind="memory",
    ),
)


@pytest.fixture(scope="module")
def modelled(gates_cache: Path, hip_toolchain: Toolchain) -> Subject:
    """The candidate at build 11549 with all patches whose gain is at least modelled."""
    series = SeriesDir(root=ROOT, origin="checkout")
    workspace = Workspace(series=series, cache_root=gates_cache, reporter=NullReporter())
    with FileLock(gates_cache.with_name("gates.lock")):  # other tests move the branch
        request = Request(archs=(ARCH,), upstream="b11549", unlocked=True, trust="modelled")
        run_apply(request, workspace, checkout=None)
        repository, candidate = find_candidate(workspace, (ARCH,), "b11549")
        return make_subject(workspace, repository, candidate, hip_toolchain)


TWO_CONTEXTS = (
    Fault(
        id="q8-1-of-all-contexts",
        file="quantize-once.cuh",
        texts={"all.of_context[&ctx]": "all.of_context[nullptr]"},
        graphs=("moe-layer", "qkv-rope-store"),
        kind="far",
    ),
)


CAPTURED = Fault(
    id="captured-graph-without-its-quantization",
    file="attention-inputs.cuh",
    texts={
        "    if (!copy.is_there) {\n        quantize_row_q8_1_cuda(": """\
    hipStreamCaptureStatus status = hipStreamCaptureStatusNone;
    CUDA_CHECK(hipStreamIsCapturing(stream, &status));
    if (!copy.is_there && status == hipStreamCaptureStatusNone) {
        quantize_row_q8_1_cuda("""
    },
    graphs=("qkv-rope-store",),
    kind="far",
)


STREAMS = Fault(
    id="q8-1-of-all-streams",
    file="quantize-once.cuh",
    texts={"ctx.curr_stream_no == 0 && !is_fusion_disabled": "!is_fusion_disabled"},
    graphs=("low-rank",),
    kind="far",
)


def _in_streams(graph: Graph) -> Graph:
    found = forked(graph)
    assert found is not None
    return found


NOT_OFF = Fault(
    id="a-switch-that-does-not-switch",
    file="moe-weighted-reduction.cu",
    texts={"ggml_cuda_patches().moe_sum_coalesce.use()": "++ggml_cuda_patches().moe_sum_coalesce.runs > 0"},
    graphs=("two-experts-summed",),
    kind="",
)


def test_a_patch_that_its_switch_does_not_turn_off_is_found_although_its_results_are_right(
    modelled: Subject, edited: Callable[..., Subject]
) -> None:
    result = _gate(*NOT_OFF.graphs).run(_planted(NOT_OFF, modelled, edited))
    assert result.verdict == "failed", result.summary
    assert [(one.code, "moe-sum-coalesce" in one.message) for one in result.problems] == [
        ("PATCH_NOT_OFF", True)
    ]


@pytest.mark.parametrize(
    ("fault", "needed"),
    [*((fault, in_two_contexts) for fault in TWO_CONTEXTS), (CAPTURED, captured), (STREAMS, _in_streams)],
    ids=[one.id for one in (*TWO_CONTEXTS, CAPTURED, STREAMS)],
)
def test_a_fault_that_needs_two_contexts_a_captured_graph_or_streams_is_found_with_them_only(
    modelled: Subject, edited: Callable[..., Subject], fault: Fault, needed: Callable[[Graph], Graph]
) -> None:
    subject = _planted(fault, modelled, edited)
    graphs = [one for one in pattern_graphs() if one.name in fault.graphs]
    with_it = [needed(one) for one in graphs]
    without = [one.changed(contexts=1, captured=False) for one in with_it]
    assert replace(_gate(), stored=without).run(subject).verdict == "passed (emulated)"
    result = replace(_gate(), stored=with_it).run(subject)
    assert result.verdict == "failed", result.summary
    assert isinstance(result.evidence, GraphsEvidence)
    # Whether values are wrong or the program ends depends on how the threads interleave.
    assert {one.kind for one in result.evidence.failed} <= {fault.kind, "ends", "memory", "not finite"}


def _planted(fault: Fault, candidate: Subject, edited: Callable[..., Subject]) -> Subject:
    path = f"{CUDA}/{fault.file}"
    text = (candidate.candidate / path).read_text("utf-8")
    for fixed, without in fault.texts.items():
        assert text.count(fixed) == 1
        text = text.replace(fixed, without)
    return edited(candidate, {path: text.encode()}, "reuse-q8-1-activations")


def _gate(*names: str) -> GraphsGate:
    graphs = [one for one in stored_graphs() if one.name in names]
    return GraphsGate(
        machine=Machine(backend="hip", emulates=ARCH), stored=graphs, patterns=(), budget_s=0, reducing_s=0
    )


@pytest.mark.parametrize("fault", FAULTS, ids=lambda one: one.id)
def test_a_fix_that_is_taken_out_fails_with_a_graph_of_few_operations(
    modelled: Subject, edited: Callable[..., Subject], fault: Fault
) -> None:
    subject = _planted(fault, modelled, edited)
    result = _gate(*fault.graphs).run(subject)
    assert result.verdict == "failed", result.summary
    assert {problem.code for problem in result.problems} == {"GRAPH_DIFFERS"}
    assert isinstance(result.evidence, GraphsEvidence)
    failed = result.evidence.failed
    assert {one.kind for one in failed} == {fault.kind}
    assert min(one.operations for one in failed) <= MOST_OPERATIONS
    for one in failed:
        assert read_graph(Path(one.description).read_bytes(), one.description).name == one.pattern
        assert "ggml_backend_graph_compute" in Path(one.reproducer).read_text("utf-8")


def test_with_the_fixes_every_stored_graph_passes(modelled: Subject) -> None:
    names = {name for fault in FAULTS for name in fault.graphs}
    result = _gate(*names).run(modelled)
    assert result.verdict == "passed (emulated)", [one.message for one in result.problems]
    assert isinstance(result.evidence, GraphsEvidence)
    assert result.evidence.stored >= len(FAULTS)
    assert result.evidence.switched_off == 2 * result.evidence.stored


def test_a_race_between_upstreams_own_streams_is_reported_as_upstreams(modelled: Subject) -> None:
    """The allocator places the RoPE of Q where the norm is, which the streams of K and V still read."""
    layer = next(one for one in pattern_graphs() if one.name == "layer")
    result = replace(_gate(), stored=[_in_streams(layer)]).run(modelled)
    assert result.verdict == "passed (emulated)", [one.message for one in result.problems]
    assert isinstance(result.evidence, GraphsEvidence)
    assert result.evidence.upstream == ("layer",)


@pytest.mark.hours
def test_random_graphs_of_a_candidate_pass(modelled: Subject) -> None:
    machine = Machine(backend="hip", emulates=ARCH)
    result = replace(GraphsGate(machine=machine), seed=1).run(modelled)
    assert result.verdict == "passed (emulated)", [one.message for one in result.problems]
