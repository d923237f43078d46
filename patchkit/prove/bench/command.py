"""``bench run``: measures baselines and candidate with one command that can be interrupted and resumed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from patchkit.base.digests import key_of
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.decision import Wish
from patchkit.carry.series.lock import PinWanted
from patchkit.gpu.emulated.models import check_model, head_size_of
from patchkit.gpu.hardware.bench.conditions import summarise
from patchkit.gpu.hardware.bench.journal import check_place
from patchkit.gpu.hardware.bench.measure import Setup, open_bench
from patchkit.gpu.hardware.bench.options import BenchPlan
from patchkit.gpu.hardware.bench.tables import Series, Table, compare_series
from patchkit.gpu.hardware.runner import Runner
from patchkit.prove.bench.arms import build_arms, small_model
from patchkit.prove.bench.measured_on import keep_machine
from patchkit.prove.build import Machine, check_device, choose_backend, prepare_subject
from patchkit.toolchain.parts import BackendName

_NO_GPU = (
    "run on the machine with the GPU: patchkit bench run --runner ssh://HOST; or try it with --backend cpu"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRunRequest:
    """``plan`` is what to measure; its ``repetitions`` are calls of llama-bench per label and depth.

    ``backend`` None: HIP, if this machine has the GPU. ``model`` None: a small one with random weights.
    ``out`` None: a folder in the cache. ``timeout_s`` is per call. ``wish``: what the candidate must consist
    of. ``off``: patches to measure the candidate without, one at a time; they need a run-time switch.
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
    off: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRunReport:
    """``files`` by label; ``measured`` and ``kept`` count calls of llama-bench now and in earlier runs."""

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
        MODEL_MISSING, GGUF_BAD: the model does not exist or is not a model.
        DEVICE_MISSING: this machine has no GPU of the candidate, or llama-bench did not find it.
        CANDIDATE_MISSING and the errors of building: see :func:`patchkit.prove.build.run_build`.
        BENCH_FOLDER_UNUSABLE: the folder cannot be used for this measurement.
        BENCH_FAILED and similar, BENCH_FAILED: a call failed; measurements up to there are kept.
        CacheError: the disk is full or not writable.
    """
    if request.model is not None:
        check_model(request.model)
        head_size_of(request.model)
    if request.out is not None:
        check_place(request.out, fresh=request.fresh)  # early, because building takes hours
    backend = choose_backend(request.backend, request.archs, runner, _NO_GPU)
    subject, _ = prepare_subject(workspace, request.archs, request.upstream, backend, environ, request.wish)
    machine = Machine(backend=backend)
    model = request.model or small_model(machine, workspace.cache_root, workspace.reporter)
    setup = Setup(
        arms=build_arms(subject, backend, request.off),
        model=model,
        plan=replace(request.plan, repetitions=1, device=None if machine.is_cpu else machine.device),
        runner=runner,
        more={
            "archs": list(request.archs),
            "backend": backend,
            "model_changed": model.stat().st_mtime_ns if request.model else 0,
        },
    )
    root = request.out or workspace.cache_root / "bench" / key_of(setup.identity())[:16]
    with open_bench(
        root,
        setup,
        reporter=workspace.reporter,
        timeout_s=request.timeout_s,
        is_apart=True,
        check_talk=lambda talk, where: check_device(machine, talk, subject.archs, where),
        fresh=request.fresh,
    ) as bench:
        keep_machine(root, subject.cache_root, runner, backend, subject.archs[0], subject.toolchain)
        rounds = request.plan.repetitions
        bench.measure(rounds)
        found = bench.entries(rounds)
        files = {arm.label: bench.gather(arm.label, rounds) for arm in setup.arms}
        table = compare_series(
            [
                Series(
                    label=label,
                    source=str(path),
                    rows=tuple(row for one in found if one.label == label for row in bench.rows(one)),
                )
                for label, path in files.items()
            ],
            distinct=True,
        )
        return BenchRunReport(
            table=table,
            folder=root,
            files=files,
            arms={arm.label: arm.what for arm in setup.arms},
            model=model.name if request.model else "patchkit's small model with random weights",
            measured=bench.measured,
            kept=len(found) - bench.measured,
            conditions=summarise([one.conditions for one in found]),
        )
