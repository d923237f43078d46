"""The speed test, with a shell program in place of llama-bench, and the verdict on its figures."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from patchkit.base.errors import (
    AnchorError,
    CacheError,
    ErrorGroup,
    PatchkitError,
    ToolchainError,
    UsageError,
)
from patchkit.base.reporter import NullReporter
from patchkit.gpu.hardware.bench.options import BenchPlan
from patchkit.gpu.hardware.bench.statistics import FEWEST, compare
from patchkit.prove.bench.test_list import parse_tests
from patchkit.prove.bisect.checks import SpeedCheck, is_of_the_build, judge_speeds
from patchkit.prove.build import Machine
from patchkit.toolchain.cmake import BuildFailed, NotConfigured
from patchkit.toolchain.sides import BuiltSide

RECORDED = Path(__file__).parents[2] / "gpu" / "hardware" / "recorded"
PROGRAM = """\
#!/bin/sh
here=$(dirname "$0")
[ "$1" = --help ] && exec cat "$here/help.txt"
[ -e "$here/broken" ] && exit 3
noise=$(od -An -N1 -tu1 /dev/urandom)
echo call >> "$here/calls"
for name in prompt generated; do
    case " $* $name" in *" -p 0 "*prompt | *" -n 0 "*generated) continue ;; esac
    ns=$(cat "$here/$name")
    sed "s/@NS@/$((ns + ns*noise/25600))/" "$here/$name.json"
done
"""


def build(folder: Path, *, prompt: float = 1.0, generated: float = 1.0) -> BuiltSide:
    """A build whose tests take these factors of the usual time, with up to 1 % of noise."""
    folder.mkdir(parents=True)
    program = folder / "llama-bench"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    (folder / "help.txt").write_bytes((RECORDED / "b6900-help.txt").read_bytes())
    row = json.loads((RECORDED / "b6900-cpu.jsonl").read_text("utf-8").splitlines()[0])
    for name, factor, lengths in (("prompt", prompt, (512, 0)), ("generated", generated, (0, 128))):
        line = {**row, "n_prompt": lengths[0], "n_gen": lengths[1], "n_depth": 0, "samples_ns": ["@NS@"]}
        (folder / f"{name}.json").write_text(json.dumps(line).replace('"@NS@"', "@NS@") + "\n")
        (folder / name).write_text(str(round(factor * 1e8)))
    return BuiltSide(tree=folder.name, backend="cpu", folder=folder, module=program, cpu=program, parts=())


def check(tmp_path: Path, tests: str = "pp512,tg128", slower: float = 0.1) -> SpeedCheck:
    model = tmp_path / "m.gguf"
    model.write_bytes(b"model")
    return SpeedCheck(
        model=model,
        tests=parse_tests(tests),
        plan=BenchPlan(),
        least=slower,
        machine=Machine(backend="cpu"),
        archs=("gfx1151",),
        timeout_s=60.0,
        reporter=NullReporter(),
    )


@pytest.mark.parametrize(
    ("factors", "tests", "outcome"),
    [
        ({"prompt": 1.3}, "pp512,tg128", "bad"),
        ({"prompt": 1.3}, "pp512", "bad"),
        ({"prompt": 1.3}, "tg128", "good"),  # only what was asked for decides
        ({"generated": 1.03}, "pp512,tg128", "good"),  # slower, but by less than matters
        ({"prompt": 0.7, "generated": 1.3}, "pp512,tg128", "bad"),
        ({}, "pp512,tg128", "good"),
    ],
)
def test_a_loss_beyond_the_limit_is_bad(
    tmp_path: Path, factors: dict[str, float], tests: str, outcome: str
) -> None:
    good = build(tmp_path / "good")
    found = check(tmp_path, tests).run(build(tmp_path / "it", **factors), lambda: good, tmp_path / "out")
    assert found.outcome == outcome
    # Decided after the fewest rounds: one call in each for the build, two for the first candidate.
    assert len((tmp_path / "it" / "calls").read_text().splitlines()) == FEWEST
    assert len((tmp_path / "good" / "calls").read_text().splitlines()) == 2 * FEWEST


def test_a_loss_at_the_limit_is_not_decided(tmp_path: Path) -> None:
    good = build(tmp_path / "good")
    found = check(tmp_path, "tg128", 0.1).run(
        build(tmp_path / "it", generated=1.1), lambda: good, tmp_path / "out"
    )
    assert found.outcome == "skip"
    assert len((tmp_path / "it" / "calls").read_text().splitlines()) == 3 * FEWEST


def test_finished_rounds_are_not_measured_again(tmp_path: Path) -> None:
    good, other = build(tmp_path / "good"), build(tmp_path / "it", prompt=1.3)
    first = check(tmp_path).run(other, lambda: good, tmp_path / "out")
    assert check(tmp_path).run(other, lambda: good, tmp_path / "out") == first
    assert len((tmp_path / "it" / "calls").read_text().splitlines()) == FEWEST


def test_a_build_without_a_result_is_skipped(tmp_path: Path) -> None:
    good, other = build(tmp_path / "good"), build(tmp_path / "it")
    (other.folder / "broken").touch()
    assert check(tmp_path).run(other, lambda: good, tmp_path / "out").outcome == "skip"


def test_few_rounds_and_noise_decide_nothing() -> None:
    draw = random.Random(1)
    noisy = [[draw.uniform(50, 150) for _ in range(FEWEST)] for _ in range(3)]
    assert judge_speeds([compare(noisy[0], noisy[1], noisy[2], least=0.05)], 0.05) == "skip"
    few = [100.0] * (FEWEST - 1)
    assert judge_speeds([compare(few, [200.0] * (FEWEST - 1), few, least=0.05)], 0.05) == "skip"


@pytest.mark.parametrize(
    ("error", "is_skipped"),
    [
        (BuildFailed("it does not compile"), True),
        (NotConfigured("no such target"), True),
        (ErrorGroup("two", [AnchorError("no place"), AnchorError("no place")]), True),
        (ErrorGroup("two", [AnchorError("no place"), CacheError("the disk is full")]), False),
        (ToolchainError("no such function", code="RECORDER_LACKS_CALLS"), True),
        (ToolchainError("no compiler", code="COMPILER_MISSING"), False),
        (CacheError("the disk is full"), False),
        (UsageError("no such build"), False),
    ],
)
def test_only_faults_of_a_build_skip_it(error: PatchkitError, is_skipped: bool) -> None:
    assert is_of_the_build(error) == is_skipped
