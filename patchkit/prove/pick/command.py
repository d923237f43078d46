"""``pick`` from the request to the files it leaves: journal, table, picture and ``picked.toml``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from patchkit.base.digests import key_of
from patchkit.base.errors import Location, UsageError
from patchkit.base.files import FileStamp, file_sha256, file_stamp, write_whole
from patchkit.base.plain import fields_of
from patchkit.base.series_folder import PLAIN
from patchkit.base.text import counted
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.decision import Request
from patchkit.carry.onto.pin import Onto
from patchkit.carry.series.picked import PickedFile, PickedPatch, picked_text
from patchkit.gpu.emulated.models import check_model, head_size_of
from patchkit.gpu.hardware.bench.conditions import summarise
from patchkit.gpu.hardware.bench.journal import JOURNAL, Journal, check_place, open_journal
from patchkit.gpu.hardware.bench.options import BenchPlan
from patchkit.gpu.hardware.bench.statistics import LEAST
from patchkit.gpu.hardware.runner import Runner
from patchkit.prove.bench.measured_on import keep_machine
from patchkit.prove.bench.visits import ENTRIES, Entry, Visited
from patchkit.prove.bench.wanted import WantedTest
from patchkit.prove.build import Machine, choose_backend
from patchkit.prove.pick.arms import Arms
from patchkit.prove.pick.decide import BUILDS, Picked, Plan, pick
from patchkit.prove.pick.meter import PICKED, RESULT, KeptMeter, Source
from patchkit.prove.pick.modelled import LABEL, modelled_source
from patchkit.prove.pick.source import BenchSource
from patchkit.toolchain.hip import find_toolchain
from patchkit.toolchain.parts import BackendName

_FORMAT = 1
MEASURED = "measured"
_SHOWN = 8  # patches that are for another build or GPU
_NO_GPU = (
    "patchkit pick --runner ssh://HOST where the GPU is, --emulated --modelled without one, "
    "or --backend cpu to see how it works"
)
_DOING = "keeping the result"
_ELSEWHERE = "name another folder with --out"


@dataclass(frozen=True, slots=True, kw_only=True)
class PickRequest:
    """``patches`` names GPUs, pin and candidate patches; ``minutes`` is for measuring, builds not counted.

    ``builds``: as :class:`patchkit.prove.pick.decide.Plan`.
    ``is_modelled``: on the emulated GPU and the timing model, and nothing is measured. ``backend`` None: HIP,
    if the GPU is here. ``out`` None: a folder in the cache. ``plan`` has what all
    tests share, its ``repetitions`` are of one visit.
    """

    patches: Request
    onto: Onto | None
    models: tuple[Path, ...]
    tests: tuple[WantedTest, ...]
    plan: BenchPlan
    minutes: float
    least: float = LEAST
    builds: int = BUILDS
    backend: BackendName | None = None
    out: Path | None = None
    fresh: bool = False
    timeout_s: float = 3600.0
    is_modelled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PickReport:
    """``picked`` is the decision, ``file`` what apply takes; ``kept`` visits and checks were made before.

    ``label`` says on what the times rest, ``onto`` on which commit of the user's clone the builds stand.
    """

    json_keys: ClassVar = (
        "format label device archs upstream picked=picked.picked picked_tree=tree "
        "patches=picked.decisions all_against_none=picked.whole picked_against_none=picked.check "
        "picked_is_checked=picked.is_checked none_against_itself=picked.noise models tests least "
        "minutes seconds_measured=picked.seconds rounds=picked.rounds measured_now=measured "
        "kept_from_before=kept conditions journal"
    )
    format: ClassVar = _FORMAT
    journal: ClassVar = JOURNAL

    picked: Picked
    label: str
    device: str
    archs: tuple[str, ...]
    upstream: str
    tree: str
    models: Mapping[str, str]
    tests: tuple[str, ...]
    least: float
    minutes: float
    folder: Path
    file: Path
    measured: int
    kept: int
    conditions: tuple[str, ...] = field(default=())
    onto: Onto | None = None


def run_pick(
    workspace: Workspace, request: PickRequest, runner: Runner, environ: Mapping[str, str]
) -> PickReport:
    """Build, check, measure and decide; what was measured before is not measured again.

    Raises:
        NOTHING_SELECTED: there is no patch to try.
        MODEL_MISSING, MODEL_UNREADABLE, OPTIONS_CONTRADICT: a model is none, or two have one name.
        DEVICE_MISSING: this machine has no GPU of the candidate, or llama-bench did not find it.
        BENCH_FOLDER_BUSY, BENCH_FOLDER_OTHER: the folder is not free for this measurement.
        An ErrorGroup of patches that could not be placed; what building raises.
        MODEL_CHANGED: a model's file became another one while it was measured.
        BENCH_FAILED and its like: a visit did not end well; what was measured is kept.
        CacheError: the disk refused.
    """
    if request.out is not None:
        check_place(request.out, fresh=request.fresh)
    models = _models(request.models)
    if request.is_modelled:
        backend: BackendName = "hip"
        machine = Machine(backend=backend, emulates=request.patches.archs[0])
    else:
        backend = _backend(request, runner)
        machine = Machine(backend=backend)
    toolchain = None
    if backend == "hip":
        toolchain = find_toolchain(workspace.cache_root, environ, workspace.reporter)
    arms = Arms(
        workspace=workspace,
        request=replace(request.patches, unlocked=True),
        onto=request.onto,
        toolchain=toolchain,
    )
    workspace.reporter.step("reading the models")
    stamps, hashes = _read(models)
    _refuse_nothing(arms)
    setup = _setup(request, arms, machine, hashes, runner)
    root = request.out or workspace.cache_root / "pick" / key_of(setup)[:16]
    source: Source = (
        modelled_source(arms, models, hashes, request.tests)
        if request.is_modelled
        else BenchSource(
            arms=arms,
            machine=machine,
            runner=runner,
            models=models,
            hashes=hashes,
            stamps=stamps,
            tests=request.tests,
            plan=request.plan,
            timeout_s=request.timeout_s,
            folder=root,
            reporter=workspace.reporter,
            is_fresh=request.fresh,
        )
    )
    plan = Plan(
        members=arms.members,
        models=tuple(models),
        seconds=60.0 * request.minutes,
        least=request.least,
        builds=request.builds,
        seed=key_of(setup)[:16],
        is_exact=request.is_modelled,
    )
    device = machine.told if request.is_modelled else f"{machine.told} of {runner.name}"
    label = LABEL if request.is_modelled else MEASURED
    with open_journal(root, setup, ENTRIES, derived=(PICKED, RESULT), fresh=request.fresh) as journal:
        workspace.reporter.step(f"picking among {counted(len(arms.members), 'patch', 'patches')}, in {root}")
        if not request.is_modelled:
            keep_machine(root, workspace.cache_root, runner, backend, arms.whole.archs[0], toolchain)
        return decide(workspace, plan, source, arms, journal, request, label=label, device=device)


def decide(
    workspace: Workspace,
    plan: Plan,
    source: Source,
    arms: Arms,
    journal: Journal[Entry],
    request: PickRequest,
    *,
    label: str,
    device: str,
) -> PickReport:
    """Let the decision ask the journal and the machine, and write what came of it. Raises as run_pick."""
    kept = journal.kept
    reporter = workspace.reporter
    if kept:
        reporter.info(f"going on: {counted(kept, 'run')} were kept from before; --fresh begins anew")
    try:
        picked = pick(plan, KeptMeter(journal=journal, source=source), reporter.info)
    except KeyboardInterrupt as stop:
        has = f"what was measured is kept in {journal.path}" if journal.entries else "what was built is kept"
        stop.add_note(f"{has}; the same command goes on")
        raise
    visits = [entry for entry in journal.entries if isinstance(entry, Visited)]
    folder = journal.path.parent
    whole = arms.whole
    report = PickReport(
        picked=picked,
        label=label,
        device=device,
        archs=whole.archs,
        upstream=whole.pin.name,
        tree=source.tree_of(picked.picked),
        models={name: source.hash_of(name) for name in plan.models},
        tests=tuple(test.name for test in request.tests),
        least=plan.least,
        minutes=request.minutes,
        folder=folder,
        file=folder / PICKED,
        measured=len(journal.entries) - kept,
        kept=kept,
        conditions=summarise([visit.conditions for visit in visits if visit.conditions]),
        onto=request.onto,
    )
    write_whole(report.file, picked_text(picked_file(report)), _DOING, _ELSEWHERE)
    write_whole(folder / RESULT, json.dumps(fields_of(report), indent=1) + "\n", _DOING, _ELSEWHERE)
    return report


def picked_file(report: PickReport) -> PickedFile:
    """What ``apply --picked`` takes."""
    return PickedFile(
        format=1,
        archs=report.archs,
        upstream=report.upstream,
        tree=report.tree,
        device=f"{report.device} ({report.label})",
        models=tuple(report.models),
        tests=report.tests,
        patch=tuple(
            PickedPatch(id=one.id, verdict=one.verdict, why=one.why) for one in report.picked.decisions
        ),
    )


def _refuse_nothing(arms: Arms) -> None:
    """Without a patch there is upstream to build, for minutes, and nothing to say of it."""
    plan = arms.whole
    if plan.ids:
        return
    skipped = [f"{each.id}: {each.reason}" for each in plan.patches]
    raise UsageError(
        f"no patch of the series is for {plan.pin.name} and {' '.join(plan.archs)}",
        code="NOTHING_SELECTED",
        why="\n".join(skipped[:_SHOWN]) or "the series has no patch",
        hint="patchkit list shows them, with the builds that they are for",
    )


def _models(paths: tuple[Path, ...]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for path in paths:
        check_model(path)
        if not _is_text(path.name):
            raise UsageError(
                f"the name of a model is not UTF-8: {path.name!r}",
                code="MODEL_UNREADABLE",
                why="the journal and picked.toml go by the names of models",
                hint="rename the file",
            )
        head_size_of(path)
        name = path.name.removesuffix(".gguf")
        if name in found:
            raise UsageError(
                f"two models are called {name}",
                code="OPTIONS_CONTRADICT",
                where=[Location(path=str(found[name])), Location(path=str(path))],
                hint="results go by the names of files: rename one of them",
            )
        found[name] = path
    return found


def _read(models: Mapping[str, Path]) -> tuple[dict[str, FileStamp], dict[str, str]]:
    """Each file's stamp, and then its hash, which takes seconds a gigabyte.

    Raises MODEL_UNREADABLE; OPTIONS_CONTRADICT where two are one, which would count twice.
    """
    stamps: dict[str, FileStamp] = {}
    hashes: dict[str, str] = {}
    for name, path in models.items():
        try:
            stamps[name], found = file_stamp(path), file_sha256(path)
        except OSError as error:
            raise UsageError(
                f"{path.name} cannot be read",
                code="MODEL_UNREADABLE",
                where=Location(path=str(path)),
                why=error.strerror,
                hint="--model names a GGUF file",
            ) from error
        same = next((other for other, known in hashes.items() if known == found), None)
        if same is not None:
            raise UsageError(
                f"the models {same} and {name} are the same bytes",
                code="OPTIONS_CONTRADICT",
                where=[Location(path=str(models[same])), Location(path=str(path))],
                why="one is a copy of the other, or a link to it, and would count twice",
                hint="name one of them",
            )
        hashes[name] = found
    return stamps, hashes


def _is_text(name: str) -> bool:
    """Whether a name that the system gave can be written down: bytes that are not UTF-8 are surrogates."""
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


def _backend(request: PickRequest, runner: Runner) -> BackendName:
    archs = request.patches.archs
    if request.backend is None and archs == (PLAIN,):
        raise UsageError(
            "a plain series names no GPU to measure on",
            code="HARDWARE_REFUSED",
            why="its patches are for every build: what they are measured with has to be said",
            hint="--backend cpu, or --backend cuda",
        )
    return choose_backend(request.backend, archs, runner, _NO_GPU)


def _setup(
    request: PickRequest, arms: Arms, machine: Machine, hashes: Mapping[str, str], runner: Runner
) -> dict[str, object]:
    """All that makes two measurements one; more time may be given later."""
    plan = request.plan
    everything = arms.whole.ids
    return {
        "format": _FORMAT,
        "upstream": arms.tree_of(()),
        "patches": list(everything),
        "tree": arms.tree_of(everything),
        "archs": list(arms.whole.archs),
        "device": machine.kind,
        "runner": runner.name,
        "models": dict(hashes),
        "tests": [test.name for test in request.tests],
        "repetitions": plan.repetitions,
        "of_repetitions": "the fastest",
        "batch": [plan.batch, plan.micro_batch],
        "cache_type": plan.cache_type,
        "threads": plan.threads,
        "least": request.least,
        "builds": request.builds,
    }
