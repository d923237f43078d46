"""The bench gate with the real llama-bench on the CPU backend: equal builds, and one that is 10 % slower."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from patchkit.base.plain import fields_of
from patchkit.base.reporter import NullReporter
from patchkit.gpu.hardware.runner import LocalRunner
from patchkit.prove.build import Machine
from patchkit.prove.gates.base import GateResult
from patchkit.prove.gates.bench import BenchOnDevice
from patchkit.prove.subject import Subject

pytestmark = pytest.mark.cpu_build

_SOURCE = "ggml/src/ggml-cpu/ggml-cpu.cpp"
_RETURN = "    return ggml_graph_compute(cgraph, &cplan);\n"
# Every graph takes a ninth longer than it took: a tenth fewer tokens per second.
_SLOWER = """\
    const int64_t began = ggml_time_us();
    const enum ggml_status status = ggml_graph_compute(cgraph, &cplan);
    const int64_t ended = ggml_time_us();
    while (ggml_time_us() - ended < (ended - began)/9) {
    }
    return status;
"""


@pytest.fixture
def slower(cpu_subject: Subject, tmp_path: Path) -> Subject:
    root = tmp_path / "slower"
    shutil.copytree(cpu_subject.candidate, root, symlinks=True, copy_function=os.link)
    path = root / _SOURCE
    text = path.read_text("utf-8")
    assert text.count(_RETURN) == 1
    path.unlink()
    path.write_text(text.replace(_RETURN, _SLOWER), "utf-8")
    return replace(cpu_subject, candidate=root, candidate_tree="slower")


def _bench(subject: Subject, rounds: int) -> GateResult:
    runner = LocalRunner(reporter=NullReporter())
    return BenchOnDevice(machine=Machine(backend="cpu"), runner=runner, rounds=rounds).run(subject)


def _tests(result: GateResult) -> list[dict[str, object]]:
    return cast("list[dict[str, object]]", fields_of(result)["evidence"]["tests"])


def test_two_builds_of_equal_code_are_never_told_apart(cpu_subject: Subject) -> None:
    result = _bench(cpu_subject, 8)
    assert result.gate == "bench@cpu"
    assert [test["test"] for test in _tests(result)] == ["tg16@d0", "tg16@d128", "pp128@d0", "pp128@d128"]
    assert {test["verdict"] for test in _tests(result)} <= {"same", "unclear"}
    assert result.verdict in {"passed", "not run"}
    assert not result.problems
    assert any("the GPU kernels: no code" in line for line in result.not_run)


def test_a_build_that_is_a_tenth_slower_never_passes_and_is_caught_where_the_machine_lets_it(
    slower: Subject,
) -> None:
    result = _bench(slower, 8)
    assert result.verdict != "passed"
    for test in _tests(result):
        assert test["verdict"] in {"slower", "unclear"}
        if cast("float", test["smallest_loss_seen"]) < 0.05:
            assert test["verdict"] == "slower"
            assert test["judgement"] == "lost"
