"""The gates that run programs, on the CPU backend: real builds, real models, planted errors."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from patchkit.base.plain import fields_of
from patchkit.base.reporter import NullReporter
from patchkit.gpu.emulated.models import SmallModel, model_file
from patchkit.gpu.hardware.attention import gate_cases
from patchkit.gpu.hardware.logits import scenes
from patchkit.prove.build import Machine, build_sides
from patchkit.prove.gates.backend_ops import BackendOpsGate
from patchkit.prove.gates.logits import LogitsGate
from patchkit.prove.gates.logits_scenes import ModelGroup, groups
from patchkit.prove.subject import Subject

pytestmark = [pytest.mark.cpu_build, pytest.mark.slow]

MASK = "const float mv = mp ? slope*GGML_CPU_FP16_TO_FP32(mp[ic]) : 0.0f;"
# One key of 64 is forgotten; and scores two percent too large.
KEY_LOST = MASK + "\n            if (ic % 64 == 63) { continue; }"
SCALE = "s = s*scale; // scale KQ value"
SCALE_OFF = "s = s*scale*1.02f; // scale KQ value"

OPS = BackendOpsGate(
    machine=Machine(backend="cpu"),
    pattern=r"hsk=64,.*kv=113,nb=(1|35),.*type_K(V)?=f16",
    cases=[
        case
        for case in gate_cases()
        if case.head_size == 64 and case.kv == 4096 and case.tokens in {1, 33} and case.gqa == 4
    ],
)
LLAMA = SmallModel(head_size=64, heads=8, kv_heads=2, spread=0.08)
LOGITS = LogitsGate(
    machine=Machine(backend="cpu"),
    groups=(
        ModelGroup(
            kind="attention",
            models=(LLAMA,),
            scenes=tuple(scene for scene in scenes() if scene.name in {"long-f16", "two-q8_0"}),
        ),
    ),
)
# Where a half of a quantized V is read back, of which the path for halves knows nothing.
QUANTIZED_V = "v_to_float(v_data, V32, DV);"
QUANTIZED_V_OFF = QUANTIZED_V + "\n                    if (ic % 64 == 63) { V32[0] = 0.0f; }"


def test_both_sides_share_what_no_patch_changes(cpu_subject: Subject) -> None:
    sides = build_sides(cpu_subject, "cpu")
    assert [built.part.key for built in sides.before.parts] == [built.part.key for built in sides.after.parts]
    assert sides.before.folder == sides.after.folder
    assert (sides.before.folder / "llama-bench").is_file()
    again = build_sides(cpu_subject, "cpu")
    assert [built.seconds for built in again.before.parts] == [0.0, 0.0]


def test_the_shipped_candidate_passes_backend_ops(cpu_subject: Subject) -> None:
    result = OPS.run(cpu_subject)
    assert result.verdict == "passed", result.problems
    assert result.gate == "backend-ops@cpu"
    evidence = fields_of(result)["evidence"]
    assert evidence["tests_run"] == evidence["tests_passed"] == evidence["baseline_tests_run"]
    assert evidence["tests_run"] > 10
    own = evidence["own"]
    assert len(own) == len(OPS.cases) > 10
    # Upstream's CPU code is some way off the definition: a reference that agrees to the bit would be itself.
    assert all(1e-9 < row["nmse"][0] < 5e-4 for row in own)
    assert any("the GPU kernels: no code" in line for line in result.not_run)
    json.dumps(evidence)


def test_the_shipped_candidate_passes_logits(cpu_subject: Subject) -> None:
    result = LOGITS.run(cpu_subject)
    assert result.verdict == "passed", result.problems
    distances = {
        row["scene"]["name"]: row["baseline"]["nmse"] for row in fields_of(result)["evidence"]["scenes"]
    }
    assert 1e-9 < distances["long-f16"] < 1e-4  # against the path without flash attention
    assert distances["two-q8_0"] == 0.0  # against itself: there is no other path


def test_every_kind_of_model_is_as_near_as_arithmetic_allows(cpu_subject: Subject) -> None:
    kinds = tuple(group for group in groups() if group.kind != "attention")
    result = replace(LOGITS, groups=kinds).run(cpu_subject)
    assert result.verdict == "passed", result.problems
    pairs = fields_of(result)["evidence"]["scenes"]
    assert {pair["model"] for pair in pairs} >= {"mamba", "mamba2", "rwkv6", "rwkv7"}
    assert max(pair["baseline"]["nmse"] for pair in pairs) < 3e-3  # weights of two bits
    # Behind 32768 keys there are two paths, too, and what was written is what both of them read.
    deep = [pair["baseline"]["nmse"] for pair in pairs if pair["scene"]["name"] == "deep-32768"]
    assert all(1e-9 < nmse < 1e-3 for nmse in deep)  # the CPU's flash attention sums V in halves
    assert "qwen3next: this upstream does not support the architecture" in result.not_run


def test_a_wrong_value_in_a_quantized_cache_is_caught_behind_many_keys(plant) -> None:
    deep = tuple(group for group in groups() if group.kind == "depth" and group.is_default)
    told = replace(LOGITS, groups=deep).run(plant(QUANTIZED_V, QUANTIZED_V_OFF))
    assert {problem.code for problem in told.problems} == {"LOGITS_FAR"}
    assert sorted(problem.message.partition(": ")[0] for problem in told.problems) == [
        "llama-d256-gqa4, deep-4096-q4_0",
        "llama-d64-gqa4, deep-16384-q8_0",
    ]


def test_a_lost_key_is_caught_by_both(plant) -> None:
    subject = plant(MASK, KEY_LOST)
    found = OPS.run(subject)
    assert found.verdict == "failed"
    codes = {problem.code for problem in found.problems}
    assert codes == {"BACKEND_OPS_FAILED", "BACKEND_OPS_INEXACT"}
    assert "NMSE = " in (found.problems[0].why or "")
    assert (
        fields_of(found)["evidence"]["baseline_tests_passed"]
        == fields_of(found)["evidence"]["baseline_tests_run"]
    )
    assert not fields_of(found)["evidence"]["sides"]["candidate"][1]["shared"]
    assert fields_of(found)["evidence"]["sides"]["candidate"][0]["shared"]
    told = LOGITS.run(subject)
    assert {problem.code for problem in told.problems} == {"LOGITS_FAR"}


def test_scores_two_percent_off_are_caught_by_logits(plant) -> None:
    told = LOGITS.run(plant(SCALE, SCALE_OFF))
    assert {problem.code for problem in told.problems} == {"LOGITS_FAR"}


def test_a_crash_of_the_candidate_alone_is_its_fault(plant) -> None:
    subject = plant(MASK, MASK + '\n            if (ic == 5) { GGML_ABORT("planted"); }')
    found = OPS.run(subject)
    (problem,) = found.problems
    assert (found.verdict, problem.code) == ("failed", "BACKEND_OPS_BROKEN")
    assert "only on the candidate: test-backend-ops was ended by SIGABRT" in problem.message
    folder = subject.cache_root / "evidence" / subject.candidate_tree / "backend-ops-cpu"
    record = json.loads((folder / "test-both.json").read_text())
    assert (record["state"], record["partial"]) == ("PROGRAM_CRASHED", True)
    told = LOGITS.run(subject)
    assert [problem.code for problem in told.problems] == ["LOGITS_BROKEN"]


def test_a_compile_error_names_the_patch_of_its_line(plant) -> None:
    subject = plant(SCALE, "s = s*scale*no_such_name;")
    result = OPS.run(subject)
    (problem,) = result.problems
    assert problem.code == "CANDIDATE_BUILD_FAILED"
    assert "no_such_name" in problem.message
    assert problem.where[0].path == "ggml/src/ggml-cpu/ops.cpp"
    assert problem.where[0].label == "planted"
    assert "build.log" in (problem.hint or "")


def test_a_model_that_is_none_is_refused(cpu_subject: Subject, tmp_path: Path) -> None:
    gate = replace(LOGITS, model=tmp_path / "none.gguf")
    with pytest.raises(Exception, match="model file not found"):
        gate.run(cpu_subject)
    (tmp_path / "none.gguf").write_bytes(b"GGUF garbage")
    with pytest.raises(Exception, match="logits failed with status 3"):
        gate.run(cpu_subject)


def test_a_text_is_read_with_a_model_that_has_a_vocabulary(
    cpu_subject: Subject, cpu_cache: Path, checkout: Path
) -> None:
    model = SmallModel(head_size=64, vocabulary=259, spread=0.08, reads_bytes=True)
    gate = replace(
        LOGITS,
        model=model_file(model, cpu_cache, NullReporter()),
        text=checkout / "docs" / "architecture.md",
    )
    result = gate.run(cpu_subject)
    assert result.verdict == "passed", result.problems
    read = fields_of(result)["evidence"]["text"]
    assert read["baseline"] == read["candidate"]
    # Flash attention against the path without: near, and not the same numbers.
    assert read["candidate"]["worst"] > 0
    assert read["candidate"]["mean"] < 1e-3
    assert read["candidate"]["perplexity"] > 1
    assert any(line.startswith("text: KL") for line in result.lines)
