"""The bench gate around a program that writes recorded output of the real llama-bench, well and badly."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from refusing import refused

from patchkit.base.plain import fields_of
from patchkit.base.reporter import NullReporter
from patchkit.carry.series.promises import NO_GAIN, BenchRules, ExpectedGain
from patchkit.gpu.hardware.bench.journal import load_journal
from patchkit.gpu.hardware.bench.measure import CALLS, Arm, Setup
from patchkit.gpu.hardware.bench.options import BenchPlan
from patchkit.gpu.hardware.runner import LocalRunner
from patchkit.prove.gates.base import GateResult
from patchkit.prove.gates.bench import BenchGate
from patchkit.prove.subject import Subject

_RECORDED = Path(__file__).parents[2] / "gpu" / "hardware" / "recorded"

# Writes the recorded rows, every time scaled by FACTOR and a small noise that depends on how often it ran.
_PROGRAM = """\
#!/bin/sh
[ "$1" = --help ] && {{ cat {recorded}/b6900-help.txt; exit 0; }}
n=$(cat {here}/count 2>/dev/null || echo 0); n=$((n + 1)); echo $n > {here}/count
{trouble}
awk -v n=$n -v w=${{w:-1}} -v f={factor} '{{
  match($0, /"samples_ns": \\[[^]]*\\]/)
  head = substr($0, 1, RSTART - 1); tail = substr($0, RSTART + RLENGTH)
  base = 1000000 * NR * f * (1 + w * ((n * 5) % 13 - 6) / 6500)
  printf "%s\\"samples_ns\\": [ %d, %d, %d ]%s\\n", head, base, base * 1.001, base * 0.999, tail
}}' {recorded}/b6900-cpu.jsonl
"""


@pytest.fixture
def bench(tmp_path: Path, make_subject: Callable[..., Subject]) -> Callable[..., GateResult]:
    """Runs the gate over two such programs."""

    def run(
        *,
        factor: float = 1.0,
        trouble: str = "",
        rules: BenchRules | None = None,
        device: str | None = None,
        rounds: int = 8,
        timeout_s: float = 60.0,
    ) -> GateResult:
        for name, scale in (("base", 1.0), ("cand", factor)):
            folder = tmp_path / name
            folder.mkdir(exist_ok=True)
            program = folder / "llama-bench"
            text = _PROGRAM.format(recorded=_RECORDED, here=folder, factor=scale, trouble=trouble)
            program.write_text(text if name == "cand" else text.replace(trouble or "\0", ""))
            program.chmod(0o755)
        (tmp_path / "m.gguf").write_bytes(b"model")
        setup = Setup(
            arms=(
                Arm(label="baseline", folder=tmp_path / "base", tree="b" * 40),
                Arm(label="candidate", folder=tmp_path / "cand", tree="c" * 40),
                Arm(label="again", folder=tmp_path / "base", tree="b" * 40),
            ),
            model=tmp_path / "m.gguf",
            plan=BenchPlan(prompts=(64,), generated=(8,), depths=(0, 256), device=device),
            runner=LocalRunner(reporter=NullReporter()),
        )
        gate = BenchGate(setup=setup, timeout_s=timeout_s, rounds=rounds)
        subject = make_subject()
        (part,) = subject.patches
        part = replace(part, patch=replace(part.patch, bench=rules or NO_GAIN))
        return gate.run(replace(subject, patches=(part,)))

    return run


def _outputs(tmp_path: Path, pattern: str) -> list[str]:
    return sorted(path.name for path in (tmp_path / "cache").rglob(pattern))


def test_two_equal_programs_pass(bench, tmp_path: Path) -> None:
    result = bench()
    assert (result.verdict, result.problems) == ("passed", ())
    assert "4 tests in 8 rounds on this machine: 4 same" in result.summary
    assert _outputs(tmp_path, "*.jsonl") == ["finished.jsonl"]
    assert any(line.startswith("temperatures") for line in result.lines)
    json.dumps(fields_of(result))


def test_a_slower_candidate_fails_and_says_by_how_much(bench) -> None:
    result = bench(factor=1 / 0.9)
    assert result.verdict == "failed"
    assert [problem.code for problem in result.problems] == ["BENCH_SLOWER"] * 4
    assert "changes by -10.0%" in result.problems[0].message
    assert "slower than the allowed -2.0%" in (result.problems[0].why or "")


def test_a_promise_that_is_not_kept_fails(bench) -> None:
    gain = ExpectedGain(test="pp*", gain=0.3, archs=("gfx1151",), head_sizes=(), source="somebody")
    rules = BenchRules(expected=(gain,), why="w")
    result = bench(rules=rules)
    assert [problem.code for problem in result.problems] == ["BENCH_GAIN_MISSING"] * 2
    assert "my-patch promises +30% (somebody)" in (result.problems[0].why or "")
    assert bench(rules=rules, factor=0.5).verdict == "passed"


def test_what_noise_hides_is_not_a_pass(bench) -> None:
    # The runs of the candidate differ by up to 18 % from their middle.
    result = bench(trouble="w=200")
    assert (result.verdict, result.problems) == ("not run", ())
    assert "in 16 rounds" in result.summary  # as many again, once
    assert "4 still open, which does not pass" in result.summary
    assert len(result.not_run) == 4


@pytest.mark.parametrize(
    ("trouble", "code"),
    [
        ("echo 'error: invalid parameter' >&2; exit 1", "BENCH_FAILED"),
        ("kill -SEGV $$", "BENCH_FAILED"),
        ("kill -KILL $$", "BENCH_FAILED"),
        ("echo 'ggml_backend_cuda_buffer_type_alloc_buffer: cudaMalloc failed: out of memory' >&2; exit 1",
         "BENCH_OUT_OF_MEMORY"),
        ("echo 'ROCm error: unspecified launch failure' >&2; kill -ABRT $$", "BENCH_GPU_LOST"),
        (f"head -c 1500 {_RECORDED}/b6900-cpu.jsonl; exit 0", "BENCH_FAILED"),
        ("echo 'llama_model_load: loading'; exit 0", "BENCH_FAILED"),
    ],
)  # fmt: skip
def test_a_program_that_ends_badly_has_its_own_error_and_its_output_is_kept(
    bench, tmp_path: Path, trouble: str, code: str
) -> None:
    with refused(code) as caught:
        bench(trouble=f"[ $n = 2 ] && {{ {trouble}; }}")
    assert caught.value.where
    assert _outputs(tmp_path, "*.failed") == ["001-d0-d256-candidate.failed"]
    (journal,) = (tmp_path / "cache").rglob("journal.jsonl")
    _, calls = load_journal(journal, CALLS)
    assert (0, "candidate") in {(call.round, call.label) for call in calls}


def test_a_program_that_hangs_is_stopped(bench) -> None:
    with refused("BENCH_FAILED", match="did not end"):
        bench(trouble="sleep 600", timeout_s=0.5)


def test_an_interrupted_measurement_is_gone_on_with(bench, tmp_path: Path) -> None:
    with refused("BENCH_FAILED"):
        bench(trouble="[ $n = 3 ] && exit 1")
    result = bench()
    assert result.verdict == "passed"
    assert fields_of(result)["evidence"]["rounds_taken_from_an_interrupted_run"] == 2
    count = int((tmp_path / "base" / "count").read_text())
    assert count == 16, "the baseline ran twice per round, and no round twice"
    assert fields_of(bench())["evidence"]["rounds_taken_from_an_interrupted_run"] == 0


def test_a_run_on_another_device_proves_nothing(bench) -> None:
    with refused("BENCH_DEVICE_WRONG", match=r"ran on 'none' with CPU, not on ROCm0"):
        bench(device="ROCm0")


def test_a_full_disk_leaves_no_half_output(bench, tmp_path: Path, monkeypatch) -> None:
    import resource

    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, limits[1]))
    try:
        with refused("DISK_FULL"):
            bench()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    (journal,) = (tmp_path / "cache").rglob("journal.jsonl")
    assert journal.read_bytes().endswith(b"\n")
    assert load_journal(journal, CALLS)[1] == ()
