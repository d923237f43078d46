"""``pick`` from the request to its output files: journal, table, picture and ``picked.toml``."""

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
from patchkit.prove.bench.test_list import WantedTest
from patchkit.prove.bench.visits import ENTRIES, JournalEntry, Visited
from patchkit.prove.build import Machine, choose_backend
from patchkit.prove.pick.arms import Arms
from patchkit.prove.pick.decide import BUILDS, Picked, PickPlan, pick
from patchkit.prove.pick.meter import PICKED, RESULT, KeptMeter, Source
from patchkit.prove.pick.modelled import LABEL, modelled_source
from patchkit.prove.pick.source import BenchSource
from patchkit.toolchain.hip import find_toolchain
from patchkit.toolchain.parts import BackendName

_FORMAT = 1
MEASURED = "measured"
_SHOWN = 8  # skipped patches that an error lists
_NO_GPU = (
    "run it on the machine with the GPU: patchkit pick --runner ssh://HOST; without a GPU: --emulated "
    "--modelled; or try it with --backend cpu"
)
_DOING = "saving the result"
_ELSEWHERE = "name another folder with --out"


@dataclass(frozen=True, slots=True, kw_only=True)
class PickRequest:
    """``patches`` names GPUs, pin and candidate patches; ``minutes`` is the time for measuring, not building.

    ``builds``: as in :class:`patchkit.prove.pick.decide.PickPlan`. ``is_modelled``: use the emulated GPU and
    the timing model; nothing is measured. ``backend`` None: HIP, if this machine has the GPU. ``out`` None: a
    folder in the cache. ``plan`` has the options that all tests share; its ``repetitions`` are per visit.
    ``drafts``: of speculative decoding, which the tests with one token more verify; 0: none.
    """

    patches: Request
    onto: Onto | None
    models: tuple[Path, ...]
    tests: tuple[WantedTest, ...]
    plan: BenchPlan
    minutes: float
    drafts: int = 0
    least: float = LEAST
    builds: int = BUILDS
    backend: BackendName | None = None
    out: Path | None = None
    fresh: bool = False
    timeout_s: float = 3600.0
    is_modelled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PickReport:
    """``picked`` is the decision, ``file`` the input of apply; ``kept`` counts answers from earlier runs.

    ``label`` is the source of the times; ``drafts`` as in the request; ``onto`` is the commit of the user's
    clone that the builds are based on.
    """

    json_keys: ClassVar = (
        "format label device archs upstream picked=picked.picked picked_tree=tree "
        "patches=picked.decisions all_against_none=picked.whole picked_against_none=picked.check "
        "picked_is_checked=picked.is_checked none_against_itself=picked.noise models tests drafts least "
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
    drafts: int = 0
    onto: Onto | None = None


def run_pick(
    workspace: Workspace, request: PickRequest, runner: Runner, environ: Mapping[str, str]
) -> PickReport:
    """Build, check, measure and decide; measurements of earlier runs are reused.

    Raises:
        NOTHING_SELECTED: there is no patch to try.
        MODEL_MISSING, GGUF_BAD, OPTIONS_CONTRADICT: a file is not a model, or two models have one name.
        DEVICE_MISSING: this machine has no GPU of the candidate, or llama-bench did not find it.
        BENCH_FOLDER_UNUSABLE: the folder cannot be used for this measurement.
        An ErrorGroup of patches that could not be placed; the errors of building.
        MODEL_CHANGED: a model's file changed while it was measured.
        BENCH_FAILED and similar: a visit failed; measurements up to there are kept.
        CacheError: the disk is full or not writable.
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
    plan = PickPlan(
        members=arms.members,
        models=tuple(models),
        seconds=60.0 * request.minutes,
        least=request.least,
        builds=request.builds,
        seed=key_of(setup)[:16],
        is_exact=request.is_modelled,
    )
    device = machine.label if request.is_modelled else f"{machine.label} of {runner.name}"
    label = LABEL if request.is_modelled else MEASURED
    with open_journal(root, setup, ENTRIES, derived=(PICKED, RESULT), fresh=request.fresh) as journal:
        workspace.reporter.step(f"picking from {counted(len(arms.members), 'patch', 'patches')}, in {root}")
        if not request.is_modelled:
            keep_machine(root, workspace.cache_root, runner, backend, arms.whole.archs[0], toolchain)
        return decide(workspace, plan, source, arms, journal, request, label=label, device=device)


def decide(
    workspace: Workspace,
    plan: PickPlan,
    source: Source,
    arms: Arms,
    journal: Journal[JournalEntry],
    request: PickRequest,
    *,
    label: str,
    device: str,
) -> PickReport:
    """Decide with answers from the journal and the machine, and write the result. Raises as run_pick."""
    kept = journal.kept
    reporter = workspace.reporter
    if kept:
        reporter.info(f"continuing with {counted(kept, 'run')} of earlier runs; to start over: --fresh")
    try:
        picked = pick(plan, KeptMeter(journal=journal, source=source), reporter.info)
    except KeyboardInterrupt as stop:
        has = f"measurements are kept in {journal.path}" if journal.entries else "builds are kept"
        stop.add_note(f"{has}; run the same command to continue")
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
        drafts=request.drafts,
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
    """The content of picked.toml, the input of ``apply --picked``."""
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
    """Raise if there is no patch, before upstream is built for minutes."""
    plan = arms.whole
    if plan.ids:
        return
    skipped = [f"{each.id}: {each.reason}" for each in plan.patches]
    raise UsageError(
        f"no patch of the series is for {plan.pin.name} and {' '.join(plan.archs)}",
        code="NOTHING_SELECTED",
        why="\n".join(skipped[:_SHOWN]) or "the series has no patch",
        hint="patchkit list shows all patches and the builds that they are for",
    )


def _models(paths: tuple[Path, ...]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for path in paths:
        check_model(path)
        if not _is_text(path.name):
            raise UsageError(
                f"the file name of a model is not UTF-8: {path.name!r}",
                code="GGUF_BAD",
                why="the journal and picked.toml identify models by name",
            )
        head_size_of(path)
        name = path.name.removesuffix(".gguf")
        if name in found:
            raise UsageError(
                f"two models have the name {name}",
                code="OPTIONS_CONTRADICT",
                where=[Location(path=str(found[name])), Location(path=str(path))],
                hint="results are identified by file name: rename one of them",
            )
        found[name] = path
    return found


def _read(models: Mapping[str, Path]) -> tuple[dict[str, FileStamp], dict[str, str]]:
    """The stamp of each file, and then its hash, which takes seconds per gigabyte.

    Raises GGUF_BAD, and OPTIONS_CONTRADICT if two are the same model, which would count twice.
    """
    stamps: dict[str, FileStamp] = {}
    hashes: dict[str, str] = {}
    for name, path in models.items():
        try:
            stamps[name], found = file_stamp(path), file_sha256(path)
        except OSError as error:
            raise UsageError(
                f"{path.name} cannot be read",
                code="GGUF_BAD",
                where=Location(path=str(path)),
                why=error.strerror,
                hint="--model must name a GGUF file",
            ) from error
        same = next((other for other, known in hashes.items() if known == found), None)
        if same is not None:
            raise UsageError(
                f"the models {same} and {name} have the same content",
                code="OPTIONS_CONTRADICT",
                where=[Location(path=str(models[same])), Location(path=str(path))],
                why="one is a copy of or a link to the other, and would count twice",
            )
        hashes[name] = found
    return stamps, hashes


def _is_text(name: str) -> bool:
    """Whether a file name is valid text: bytes that are not UTF-8 appear as surrogates."""
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


def _backend(request: PickRequest, runner: Runner) -> BackendName:
    archs = request.patches.archs
    if request.backend is None and archs == (PLAIN,):
        raise UsageError(
            "a plain series has no GPU to measure on",
            code="OPTIONS_CONTRADICT",
            why="its patches are for every backend, so one must be chosen",
            hint="--backend cpu or --backend cuda",
        )
    return choose_backend(request.backend, archs, runner, _NO_GPU)


def _setup(
    request: PickRequest, arms: Arms, machine: Machine, hashes: Mapping[str, str], runner: Runner
) -> dict[str, object]:
    """All that must be equal for measurements to be combined; the time is not part of it."""
    plan = request.plan
    everything = arms.ids
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
