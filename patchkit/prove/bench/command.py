"""``bench run``: baselines and candidate measured by one command that can be stopped and run again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.base.errors import Location, UsageError
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.record import Wish
from patchkit.carry.series.lock import PinWanted
from patchkit.gpu.emulated.models import SmallModel, head_size_of, model_file
from patchkit.gpu.hardware.bench.folder import open_sweep, refuse_other_folder
from patchkit.gpu.hardware.bench.options import BenchPlan
from patchkit.gpu.hardware.bench.tables import Table
from patchkit.gpu.hardware.runner import Runner
from patchkit.prove.bench.arms import BenchArm, build_arms
from patchkit.prove.bench.measured_on import machine_of
from patchkit.prove.bench.sweep import Sweep
from patchkit.prove.build import Machine, choose_backend, prepare_subject
from patchkit.toolchain.parts import BackendName

_FORMAT = 1  # of the folder; a change makes every old one another measurement
_NO_GPU = "patchkit bench run --runner ssh://HOST where the GPU is, or --backend cpu to see how it works"
# As the bench gate's own, when the user has no model: see patchkit/prove/gates/bench.py.
_SMALL = SmallModel(head_size=64, heads=32, kv_heads=8, layers=4)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRunRequest:
    """``plan`` says what to measure: its ``repetitions`` are calls of llama-bench per label and depth.

    ``backend`` None: HIP, if the GPU is here. ``model`` None: a small one with random weights. ``out`` None:
    a folder in the cache. ``timeout_s`` is per call. ``wish``: what the candidate must be made of.
    """

    archs: tuple[str, ...]
    upstream: PinWanted
    plan: BenchPlan
    backend: BackendName | None = None
    model: Path | None = None
    out: Path | None = None
    fresh: bool = False
    timeout_s: float = 3600.0
    wish: Wish | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRunReport:
    """``files`` by label; ``measured`` and ``kept`` are calls of llama-bench now and before."""

    table: Table
    folder: Path
    files: Mapping[str, Path]
    arms: Mapping[str, str]
    model: str
    measured: int
    kept: int
    conditions: tuple[str, ...]


def run_bench(
    workspace: Workspace, request: BenchRunRequest, runner: Runner, environ: Mapping[str, str]
) -> BenchRunReport:
    """Build, measure what is missing, and compare.

    Raises:
        MODEL_MISSING, MODEL_UNREADABLE: there is no such model, or it is none.
        DEVICE_MISSING: this machine has no GPU of the candidate, or llama-bench did not find it.
        CANDIDATE_MISSING and what building raises: see :func:`patchkit.prove.build.run_build`.
        BENCH_FOLDER_BUSY, BENCH_FOLDER_OTHER: the folder is not free for this measurement.
        BENCH_FAILED and its like, BENCH_TESTS_UNASKED: a call did not end well; what was measured is kept.
        CacheError: the disk refused.
    """
    if request.model is not None:
        if not request.model.is_file():
            raise UsageError(
                "there is no such model",
                code="MODEL_MISSING",
                where=Location(path=str(request.model)),
                hint="--model names a GGUF",
            )
        head_size_of(request.model)
    if request.out is not None:
        refuse_other_folder(request.out)  # before hours of building
    backend = choose_backend(request.backend, request.archs, runner, _NO_GPU)
    subject, _ = prepare_subject(workspace, request.archs, request.upstream, backend, environ, request.wish)
    arms = build_arms(subject, backend)
    machine = Machine(backend=backend)
    small = SmallModel(head_size=64) if machine.is_cpu else _SMALL
    model = request.model or model_file(small, workspace.cache_root, workspace.reporter)
    setup = _setup(request, arms, backend, model, runner)
    root = request.out or workspace.cache_root / "bench" / _key(setup)
    with open_sweep(root, setup, fresh=request.fresh) as folder:
        sweep = Sweep(
            plan=request.plan,
            archs=subject.archs,
            arms=arms,
            machine=machine,
            model=model,
            timeout_s=request.timeout_s,
            folder=folder,
            runner=runner,
            reporter=workspace.reporter,
        )
        folder.keep_machine(machine_of(subject, backend, runner))
        measured, kept = sweep.measure()
        files = sweep.gather()
        return BenchRunReport(
            table=sweep.table(files),
            folder=folder.root,
            files=files,
            arms={arm.label: arm.what for arm in arms},
            model=model.name if request.model else "patchkit's small model with random weights",
            measured=measured,
            kept=kept,
            conditions=sweep.conditions(),
        )


def _setup(
    request: BenchRunRequest, arms: Sequence[BenchArm], backend: BackendName, model: Path, runner: Runner
) -> dict[str, object]:
    """What every run of a folder has in common; depths and repetitions may be added to later."""
    plan, state = request.plan, model.stat()
    return {
        "format": _FORMAT,
        "arms": {arm.label: arm.as_json() for arm in arms},
        "archs": list(request.archs),
        "backend": backend,
        "model": [model.name, state.st_size, state.st_mtime_ns if request.model else 0],
        "prompts": list(plan.prompts),
        "generated": list(plan.generated),
        "batch": [plan.batch, plan.micro_batch],
        "cache_type": plan.cache_type,
        "threads": plan.threads,
        "runner": runner.name,
    }


def _key(setup: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(setup, sort_keys=True).encode()).hexdigest()[:16]
