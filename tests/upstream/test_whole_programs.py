"""Whole programs give the same results whenever asynchronous work runs, as long as HIP allows it.

ggml's scheduler copies the inputs of a graph to the GPU, and the program then writes those of the next one.
An integrated GPU that reads them in place (builds 10039 to 11062) may read those of the next graph.
"""

from __future__ import annotations

import contextlib
import functools
import json
import signal
import socket
import string
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from emulated_trees import EmulatedTrees
from kernel_scenes import SceneTrees, environment_with_ggml

from patchkit.base.reporter import NullReporter
from patchkit.gpu.emulated.emulator import EmulationOptions, Schedule, load_report
from patchkit.gpu.emulated.findings import Call, Finding, SourceLines, distinct
from patchkit.gpu.emulated.models import SmallModel
from patchkit.gpu.emulated.names import host_name
from patchkit.toolchain.compiler import open_compiler
from patchkit.toolchain.hip import Toolchain
from patchkit.toolchain.tree import overlay_tree

pytestmark = [pytest.mark.upstream, pytest.mark.network, pytest.mark.hip, pytest.mark.slow]
_HOST = "ggml/src/ggml-cuda/ggml-cuda.cu"
_FAULTY = 10068
_RIGHT = 11549
# All are built together, because the second would find the first one's folder without it.
_PROGRAMS = ("llama-perplexity", "llama-server")
_SCHEDULES: tuple[tuple[Schedule, int], ...] = (("late", 0), ("shuffle", 1), ("shuffle", 7))
_BLOCKING = {"HIP_LAUNCH_BLOCKING": "1"}
_TEXT = "The quick brown fox jumps over the lazy dog. " * 40
_PRINTABLE = string.ascii_letters + string.digits + " "
_PROMPTS = (
    "the cat sat on a mat",
    "two dogs ran past old trees and ten birds sang of rain in the hills",
    "rain",
    "of all the trees in the hills ten were old, and two of them were cut before the rain came",
)


@dataclass(frozen=True, kw_only=True)
class Programs:
    """Programs of one build, with the HIP backend of ``candidate`` if there is one."""

    trees: EmulatedTrees
    build: int
    folder: Path
    candidate: Path | None = None
    variables: Mapping[str, str] = field(default_factory=dict)

    @contextlib.contextmanager
    def started(
        self, program: str, *arguments: str, options: EmulationOptions
    ) -> Iterator[subprocess.Popen[str]]:
        """A running program."""
        with self.trees.running(
            self.build, options, programs=_PROGRAMS, candidate=self.candidate, whole=()
        ) as side:
            process = subprocess.Popen(
                [side.program(program), *arguments],
                env={**environment_with_ggml(side), **self.variables},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            try:
                yield process
            finally:
                process.kill()
                process.wait()
                if process.stdout is not None:
                    process.stdout.close()

    def logits(self, options: EmulationOptions) -> bytes:
        """The logits that llama-perplexity saves of a text, in chunks of four micro-batches."""
        text, saved = self.folder / "text", self.folder / "logits"
        text.write_text(_TEXT, "utf-8")
        saved.unlink(missing_ok=True)
        sizes = ("-c", "128", "-b", "128", "-ub", "32", "--chunks", "2")
        given = ("-m", str(_model(self.folder)), "-f", str(text), "-ngl", "99", "-t", "1", "--no-warmup")
        asked = (*given, *sizes, "--save-all-logits", str(saved))
        with self.started("llama-perplexity", *asked, options=options) as process:
            printed, _ = process.communicate(timeout=600)
        assert process.returncode == 0, printed
        return saved.read_bytes()

    def answers(self, slots: int, options: EmulationOptions) -> list[str]:
        """What llama-server generates for the prompts, sent at once if there are several slots."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        sizes = ("-np", str(slots), "-c", str(256 * slots), "-b", "64", "-ub", "16", "--port", str(port))
        given = ("-m", str(_model(self.folder)), "-ngl", "99", "-t", "1", "--no-warmup", "--log-disable")
        with self.started("llama-server", *given, *sizes, options=options) as process:
            _wait_for(process, port)
            with ThreadPoolExecutor(slots) as pool:
                found = list(pool.map(lambda prompt: _complete(port, prompt), _PROMPTS))
            process.send_signal(signal.SIGINT)  # it then ends by itself, and its report is written
            process.communicate(timeout=120)
        return found


def _model(folder: Path) -> Path:
    path = folder / "model.gguf"
    if not path.exists():
        SmallModel(head_size=64, kv_heads=2, vocabulary=259, spread=0.08, reads_bytes=True).write(path)
    return path


def _wait_for(process: subprocess.Popen[str], port: int) -> None:
    limit = time.monotonic() + 600
    while True:
        assert process.poll() is None
        assert time.monotonic() < limit
        with contextlib.suppress(urllib.error.URLError, ConnectionError), _opened(port, "health"):
            return
        time.sleep(0.2)


def _complete(port: int, prompt: str) -> str:
    # Build 10068 refuses an answer that is no text, so only printable tokens may be generated: 3 is byte 0.
    banned = [[token, False] for token in range(259) if chr(token - 3 if token > 2 else 0) not in _PRINTABLE]
    greedy = {"n_predict": 12, "temperature": 0, "cache_prompt": False}
    wanted = {"prompt": prompt, "logit_bias": banned, **greedy}
    with _opened(port, "completion", json.dumps(wanted).encode()) as answer:
        return str(json.load(answer)["content"])


def _opened(port: int, path: str, data: bytes | None = None) -> Any:
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/{path}", data=data, headers=headers)
    return urllib.request.urlopen(request, timeout=600)


@pytest.fixture
def programs(hip_toolchain: Toolchain, gates_cache: Path, tmp_path: Path) -> Callable[..., Programs]:
    """Programs of a build, which are built once."""
    trees = EmulatedTrees(gates_cache, open_compiler(hip_toolchain, gates_cache, NullReporter()))
    return functools.partial(Programs, trees=trees, folder=tmp_path)


_IN_ORDER = EmulationOptions()


def _found_in(folder: Path, use: Callable[[EmulationOptions], object]) -> list[Finding]:
    """What the check of asynchronous work finds."""
    report, objects = folder / "report.json", folder / "objects"
    objects.mkdir(exist_ok=True)
    use(EmulationOptions(report=report, checks=("asynchrony",), objects=objects))
    return distinct(load_report(report).findings, SourceLines(objects))


def _changed_by(findings: Sequence[Finding]) -> set[str]:
    """The functions of the program that change memory which a kernel still reads."""
    frames = (call.function for one in findings if one.is_of_program for call in one.other_called_from)
    return {host_name(frame) for frame in frames}


@pytest.mark.parametrize("schedule", _SCHEDULES)
def test_perplexity_is_the_same_whenever_work_runs(
    programs: Callable[..., Programs], schedule: tuple[Schedule, int]
) -> None:
    right = programs(build=_RIGHT)
    assert right.logits(EmulationOptions(schedule=schedule)) == right.logits(_IN_ORDER)


def test_perplexity_reuses_no_memory_too_early(programs: Callable[..., Programs]) -> None:
    right = programs(build=_RIGHT)
    assert _found_in(right.folder, right.logits) == []


@pytest.mark.parametrize("schedule", _SCHEDULES)
def test_a_server_answers_the_same_to_requests_at_once_whenever_work_runs(
    programs: Callable[..., Programs], schedule: tuple[Schedule, int]
) -> None:
    right = programs(build=_RIGHT)
    alone = right.answers(1, _IN_ORDER)
    assert len(set(alone)) == len(_PROMPTS)
    assert right.answers(len(_PROMPTS), EmulationOptions(schedule=schedule)) == alone


def test_a_server_reuses_no_memory_too_early_but_for_the_cache_it_clears_first(
    programs: Callable[..., Programs],
) -> None:
    right = programs(build=_RIGHT)
    found = _found_in(right.folder, functools.partial(right.answers, len(_PROMPTS)))
    assert _changed_by(found) == set()
    # docs/records/findings.md, 10: what was written there is not used.
    assert all("common_context_can_seq_rm" in map(_name, one.called_from) for one in found), found


def _name(call: Call) -> str:
    return host_name(call.function)


def _reads_inputs_in_place(tree: Path) -> Path:
    """A variant of the tree that reports the GPU as integrated to ggml, as builds 10039 to 11062 do."""
    text = (tree / _HOST).read_text("utf-8")
    (line,) = (one for one in text.splitlines() if ".integrated = false;" in one)
    changed = text.replace(line, "        info.devices[id].integrated = prop.integrated;")
    return overlay_tree(tree, {_HOST: changed.encode()}, "in-place", below=".")


@pytest.mark.parametrize(
    ("build", "is_planted"),
    [
        pytest.param(_RIGHT, True, id="planted"),
        pytest.param(_FAULTY, False, id="b10068", marks=pytest.mark.hours),
    ],
)
def test_inputs_that_are_read_in_place_are_found_unless_the_host_waits_for_each_kernel(
    programs: Callable[..., Programs], build: int, is_planted: bool
) -> None:
    wrong = programs(build=build)
    if is_planted:
        wrong = replace(wrong, candidate=_reads_inputs_in_place(wrong.trees.root(build)))
    waiting = replace(wrong, variables=_BLOCKING)
    late = EmulationOptions(schedule=("late", 0))
    expected = wrong.logits(_IN_ORDER)
    assert wrong.logits(late) != expected
    assert waiting.logits(late) == expected
    assert {
        "llm_graph_input_pos::set_input",
        "llama_kv_cache::set_input_kq_mask",
    } <= _changed_by(_found_in(wrong.folder, wrong.logits))
    assert _found_in(waiting.folder, waiting.logits) == []
    answers = wrong.answers(len(_PROMPTS), _IN_ORDER)
    assert wrong.answers(len(_PROMPTS), late) != answers
    assert waiting.answers(len(_PROMPTS), late) == answers


@pytest.mark.hours
def test_with_the_patch_for_them_inputs_are_copied(
    programs: Callable[..., Programs], scene_trees: SceneTrees
) -> None:
    patched = programs(
        build=_FAULTY, candidate=scene_trees.tree_with("integrated-host-buffers", build=_FAULTY)
    )
    assert patched.logits(EmulationOptions(schedule=("late", 0))) == patched.logits(_IN_ORDER)
    assert _found_in(patched.folder, patched.logits) == []
