"""What upstream's own host code launches for a small mixture of experts, and the time of it."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from patchkit.base.reporter import NullReporter
from patchkit.base.series_folder import find_series_dir
from patchkit.base.workspace import Workspace
from patchkit.carry.series.lock import load_lock
from patchkit.carry.series.profile import load_profile
from patchkit.carry.upstream.exported import export_pin
from patchkit.gpu.emulated.names import read_name
from patchkit.gpu.modelled.batches import BatchTest, RecordedBatches, Started, record_batches
from patchkit.gpu.modelled.recording import Recorder, traces_in
from patchkit.gpu.modelled.reduced import ReducedModel, reduced, whole_of_shape
from patchkit.gpu.modelled.roofline import peaks_of
from patchkit.gpu.modelled.timeline import time_batches
from patchkit.gpu.modelled.timings import Timings
from patchkit.toolchain.compiler import Compiler
from patchkit.toolchain.machine import Source

pytestmark = [pytest.mark.hip, pytest.mark.slow]

_LAYER = (
    ("attn_norm.weight", "[256]", "F32"),
    ("ffn_norm.weight", "[256]", "F32"),
    ("attn_q_norm.weight", "[64]", "F32"),
    ("attn_k_norm.weight", "[64]", "F32"),
    ("attn_q.weight", "[256, 256]", "Q8_0"),
    ("attn_k.weight", "[256, 64]", "Q8_0"),
    ("attn_v.weight", "[256, 64]", "Q8_0"),
    ("attn_output.weight", "[256, 256]", "Q8_0"),
    ("ffn_gate_inp.weight", "[256, 16]", "F32"),
    ("ffn_gate_exps.weight", "[256, 256, 16]", "Q8_0"),
    ("ffn_up_exps.weight", "[256, 256, 16]", "Q8_0"),
    ("ffn_down_exps.weight", "[256, 256, 16]", "Q8_0"),
)
_TESTS = (
    BatchTest(name="prompt", depth=0, tokens=16),
    BatchTest(name="text", depth=40, tokens=1),
    BatchTest(name="two", depth=40, tokens=1, sequences=2),
)


# Of a dense model whose layers see a window, but every sixth.
_WINDOWED_LAYER = (
    *(row for row in _LAYER if "exp" not in row[0] and "gate_inp" not in row[0]),
    ("post_attention_norm.weight", "[256]", "F32"),
    ("post_ffw_norm.weight", "[256]", "F32"),
    ("ffn_gate.weight", "[256, 256]", "Q8_0"),
    ("ffn_up.weight", "[256, 256]", "Q8_0"),
    ("ffn_down.weight", "[256, 256]", "Q8_0"),
)


def _shape(folder: Path, name: str, layers: int, rows: Sequence[tuple[str, str, str]], more: str) -> Path:
    tensors = [
        '{ name = "token_embd.weight", shape = [256, 512], type = "F16" }',
        '{ name = "output.weight", shape = [256, 512], type = "Q8_0" }',
        '{ name = "output_norm.weight", shape = [256], type = "F32" }',
        *(
            f'{{ name = "blk.*.{name}", shape = {shape}, type = "{kind}", count = {layers} }}'
            for name, shape, kind in rows
        ),
    ]
    path = folder / "small.toml"
    path.write_text(
        f'name = "{name}"\nsource = "made up"\nlayers = {layers}\nheads = 4\nkv_heads = 1\nhead_size = 64\n'
        f"{more}tensors = [{', '.join(tensors)}]\n",
        "utf-8",
    )
    return path


@pytest.fixture(scope="module")
def timings(gates_cache: Path, compiler: Compiler) -> Timings:
    series = find_series_dir(None)
    workspace = Workspace(series=series, cache_root=gates_cache, reporter=NullReporter())
    return Timings.of(workspace, load_profile(series.profiles, "gfx1151"), compiler)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ReducedModel:
    folder = tmp_path_factory.mktemp("shape")
    shape = _shape(folder, "qwen3moe small", 5, _LAYER, "experts = 16\nexperts_used = 2\n")
    return reduced(whole_of_shape(shape))


@pytest.fixture(scope="module")
def recorder(timings: Timings) -> Iterator[Recorder]:
    workspace = timings.workspace
    pin = load_lock(workspace.series.lock).pin("b6900")
    exported = export_pin(pin, workspace)
    source = Source(root=exported.root, tree=exported.tree, build=pin.build, commit=exported.commit[:9])
    with contextlib.ExitStack() as stack:
        yield timings.record(source, stack, rocwmma=False)


@pytest.fixture(scope="module")
def recorded(recorder: Recorder, timings: Timings, model: ReducedModel) -> RecordedBatches:
    return record_batches(recorder, model.file(timings.workspace.cache_root), _TESTS, "f16")


def _launches(recorded: RecordedBatches, test: str) -> list[Started]:
    return [event for event in recorded.runs[test].events if isinstance(event, Started)]


def test_each_different_launch_runs_once_and_those_of_the_tokens_before_do_not(recorded: RecordedBatches):
    of_text = _launches(recorded, "text")
    numbers = Counter(one.number for one in of_text)
    assert max(numbers.values()) > 2
    for number in numbers:
        (same,) = {(one.kernel, one.grid, one.block, one.lds) for one in of_text if one.number == number}
        trace = recorded.traces[number]
        (head,) = [head for head, path in traces_in(trace.parent) if path == trace]
        assert (head.kernel, head.grid, head.block) == same[:3]
    assert len(recorded.traces) == len(
        {one.number for test in _TESTS for one in _launches(recorded, test.name)}
    )
    # Forty tokens came before, in a batch that launches matrix kernels for them: none is among these.
    assert not any("mul_mat_q" in one.kernel for one in of_text)


def test_all_that_the_host_launches_is_there(recorded: RecordedBatches):
    names = {read_name(one.kernel).base for one in _launches(recorded, "text")}
    wanted = ("rms_norm", "quantize", "mul_mat_vec_q", "rope", "set_rows", "flash_attn", "topk_moe")
    assert [part for part in wanted if not any(part in name for name in names)] == []


def test_sequences_that_share_what_is_before_are_one_batch(recorded: RecordedBatches):
    (attention,) = {
        node.sources[1].shape[1] for node in recorded.runs["two"].nodes if node.op == "FLASH_ATTN_EXT"
    }
    assert attention == 256  # 40 rows and two more, in whole steps of 256
    (tokens,) = {node.result.shape[2] for node in recorded.runs["two"].nodes if node.op == "FLASH_ATTN_EXT"}
    assert tokens == 2


def test_sequences_behind_more_than_a_window_have_room(recorder: Recorder, timings: Timings, tmp_path: Path):
    shape = _shape(tmp_path, "gemma3 small", 6, _WINDOWED_LAYER, "window = 64\nwindow_every = 6\n")
    model = reduced(whole_of_shape(shape)).file(timings.workspace.cache_root)
    four = BatchTest(name="four", depth=2000, tokens=1, sequences=4)
    nodes = record_batches(recorder, model, [four], "f16").runs["four"].nodes
    rows = {node.sources[1].shape[1] for node in nodes if node.op == "FLASH_ATTN_EXT"}
    assert rows == {768, 2048}  # a window of each sequence and a batch of 512; and all there are


def test_times_are_of_all_layers_and_above_the_bound(
    timings: Timings, model: ReducedModel, recorded: RecordedBatches
):
    profile = load_profile(timings.workspace.series.profiles, "gfx1151")
    times = time_batches(timings.machine, model, recorded, _TESTS, peaks_of(profile), timings.compiler)
    text = times["text"]
    assert model.counts == (4, 1)
    counts = Counter[str]()
    for line in text.lines:
        counts[line.what] += round(line.count)
    assert counts["ffn_down_exps q8_0"] == 5
    assert counts["output q8_0"] == 1
    assert 0 < text.bound_us < text.us
    assert text.rate < times["two"].rate < 2 * text.rate
