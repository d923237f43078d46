"""Evidence to make reports of: of real runs, of a run that failed, and of one that ended in the middle."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from evidence_files import files_of

from patchkit.base.errors import GateError, Location, PatchkitError
from patchkit.prove.gates.anchors import AnchorsEvidence
from patchkit.prove.gates.base import EmulatedOn, GateResult
from patchkit.prove.gates.bench import BenchEvidence, Samples
from patchkit.prove.gates.bench_emulated import Completed, Launched
from patchkit.prove.gates.isolation.evidence import HostBranch, IsolationEvidence, Reading, Unreadable
from patchkit.prove.report.evidence import parse_evidence
from patchkit.prove.report.model import Run

ROOT = Path(__file__).resolve().parents[4]
WHOLE = ROOT / "tests" / "corpus" / "evidence" / "whole"


class Leaks(GateError):
    code = "ISOLATION_TOKENS"


class Stopped(PatchkitError):
    code = "TOOLCHAIN"


@pytest.fixture(scope="session")
def whole_files() -> dict[str, bytes]:
    """Of real runs, shortened, by name.

    The gates that need no GPU, of build 6900 for gfx1151 with the four patches of that day; gates on the CPU
    backend, of an earlier candidate; the numbers from an NVIDIA GPU, which are of another run than the
    report.
    """
    return {path.name: path.read_bytes() for path in sorted(WHOLE.glob("*.json"))}


@pytest.fixture(scope="session")
def whole(whole_files: dict[str, bytes]) -> Run:
    return parse_evidence(whole_files, "evidence")


@pytest.fixture
def whole_but(whole_files: dict[str, bytes]) -> Callable[[str, Callable[[dict], None]], Run]:
    """The run of real gates with one file of evidence changed."""

    def read(name: str, change: Callable[[dict], None]) -> Run:
        document = json.loads(whole_files[name])
        change(document)
        return parse_evidence({**whole_files, name: json.dumps(document).encode()}, "e")

    return read


LEAK = Leaks(
    "fattn.cu reads differently for cuda sm_70 device: '8' became '16'",
    where=[
        Location(path="ggml/src/ggml-cuda/fattn.cu", line=42, column=7, label="wmma-tile-params"),
        Location(path="$PATCHKIT_SERIES/patches/0001-p/patch.toml", line=9, label="the edit"),
    ],
    why="no patch is for this GPU",
    hint="patchkit diff --patch wmma-tile-params",
)
NOWHERE = Leaks("the candidate has another order of patches", hint="patchkit apply --arch gfx1151")


def _reading(configuration: str, candidate: str | Unreadable) -> Reading:
    return Reading(configuration=configuration, unit="fattn.cu", baseline="a" * 64, candidate=candidate)


@pytest.fixture(scope="session")
def failing_files() -> dict[str, bytes]:
    """Of a run in which isolation found something."""
    results = [
        GateResult(gate="anchors", verdict="passed", summary="12 edits", evidence=AnchorsEvidence(edits=())),
        GateResult(
            gate="isolation",
            verdict="failed",
            summary="439 of 440 readings identical",
            problems=(LEAK, NOWHERE),
            not_run=("nvcc itself",),
            lines=("cuda: 1 DIFFER",),
            evidence=IsolationEvidence(
                changed_files=(),
                units={},
                stand_in_headers=(),
                readings=(
                    _reading("cuda sm_70 device", "a" * 64),
                    _reading("cuda sm_70 device", "b" * 64),
                    _reading("hip gfx906 device", Unreadable(error="unterminated conditional directive")),
                ),
                host_branch=HostBranch(),
                device_code=(),
            ),
        ),
        GateResult(gate="compile", verdict="not run", summary="skipped: gate isolation failed"),
    ]
    return files_of(results)


@pytest.fixture(scope="session")
def failing(failing_files: dict[str, bytes]) -> Run:
    return parse_evidence(failing_files, "evidence")


@pytest.fixture(scope="session")
def emulated() -> Run:
    """A run on a machine without a GPU: llama-bench came to its end on the emulated one."""
    kernel = Launched(kernel="flash_attn_tile<128, 128, 2, 2, false>", launches=12, instructions=34_567)
    ran = [Completed(side="baseline", command="llama-bench", tests=("pp96@d0",), kernels=())]
    ran += [Completed(side="candidate", command="llama-bench", tests=("pp96@d0",), kernels=(kernel,))]
    bench = BenchEvidence(
        runner="this machine",
        model="model.gguf",
        head_size=128,
        tests=(),
        samples=Samples(format=1, tests=()),
        conditions=(),
        rounds_taken_from_an_interrupted_run=0,
        backend="hip",
        sides={},
        completed=tuple(ran),
        emulated=EmulatedOn(gpu="gfx1151", emulator="0123456789abcdef"),
    )
    results = [
        GateResult(gate="anchors", verdict="passed", summary="12 edits", evidence=AnchorsEvidence(edits=())),
        GateResult(
            gate="bench",
            verdict="passed (emulated)",
            summary="llama-bench comes to its end on the emulated gfx1151; no speed is claimed",
            not_run=("speed: not measured; needs the GPU",),
            evidence=bench,
        ),
    ]
    return parse_evidence(files_of(results), "evidence")


@pytest.fixture
def with_problem(failing: Run) -> Callable[..., Run]:
    """The failed run with one gate, isolation, whose only problem and place are changed as given."""
    isolation = next(gate for gate in failing.gates if gate.name == "isolation")

    def make(*, place: dict[str, str] | None = None, gate: dict | None = None, **problem: str) -> Run:
        first = isolation.problems[0]
        places = first.places if place is None else (first.places[0].model_copy(update=place),)
        changed = first.model_copy(update={"places": places, **problem})
        one = isolation.model_copy(update={"problems": (changed,), **(gate or {})})
        return failing.model_copy(update={"gates": (one,)})

    return make


@pytest.fixture
def stopped() -> Run:
    """A run that ended in the middle: the compiler was not there."""
    results = [
        GateResult(gate="anchors", verdict="passed", summary="12 edits", evidence=AnchorsEvidence(edits=())),
        GateResult(gate="isolation", verdict="not run", summary="no clang", problems=(Stopped("no clang"),)),
        GateResult(gate="compile", verdict="not run", summary="skipped: gate isolation could not run"),
    ]
    return parse_evidence(files_of(results, ok=False, stopped="TOOLCHAIN"), "evidence")
