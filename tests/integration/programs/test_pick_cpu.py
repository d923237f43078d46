"""``pick`` with the real llama-bench on the CPU backend, and patches with planted effects."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from planted import BUILD, EXPECTED, plant
from recorder import Recorder
from refusing import refused

from patchkit.base.files import file_stamp
from patchkit.base.reporter import NullReporter
from patchkit.base.series_folder import PLAIN, SeriesDir, find_series_dir
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.decision import Request
from patchkit.carry.init import make_plain_series
from patchkit.carry.onto.pin import Onto
from patchkit.gpu.emulated.models import SmallModel
from patchkit.gpu.hardware.bench.journal import JOURNAL, open_journal
from patchkit.gpu.hardware.bench.options import BenchPlan
from patchkit.gpu.hardware.runner import LocalRunner
from patchkit.prove.bench.test_list import parse_tests
from patchkit.prove.bench.visits import ENTRIES
from patchkit.prove.build import Machine
from patchkit.prove.gates.logits_scenes import groups
from patchkit.prove.pick.arms import Arms
from patchkit.prove.pick.decide import Picked, PickPlan, Visit, pick
from patchkit.prove.pick.meter import KeptMeter
from patchkit.prove.pick.source import BenchSource
from patchkit.prove.subject import Subject, lock_evidence

pytestmark = pytest.mark.cpu_build


@pytest.fixture
def source(cpu_subject: Subject, cpu_cache: Path, checkout: Path, tmp_path: Path) -> BenchSource:
    shipped = SeriesDir(root=checkout, origin="checkout")
    reporter = NullReporter()
    made = make_plain_series(
        tmp_path / "made", "b6900", None, Workspace(series=shipped, cache_root=cpu_cache, reporter=reporter)
    )
    clone, series = plant(cpu_subject.baseline, tmp_path, "cpu")
    for path in (made.folder / "patches").iterdir():
        path.rename(series / "patches" / path.name)
    workspace = Workspace(series=find_series_dir(series), cache_root=cpu_cache, reporter=reporter)
    models = {"small": SmallModel(head_size=64), "large": SmallModel(head_size=64, heads=12)}
    for name, model in models.items():
        model.write(tmp_path / f"{name}.gguf")
    smallest = groups()[0]
    return BenchSource(
        arms=Arms(
            workspace=workspace,
            request=Request(archs=(PLAIN,), unlocked=True),
            onto=Onto(directory=clone, revision="HEAD", as_build=BUILD),
            toolchain=None,
        ),
        machine=Machine(backend="cpu"),
        runner=LocalRunner(reporter=reporter),
        models={name: tmp_path / f"{name}.gguf" for name in models},
        hashes=dict.fromkeys(models, "0" * 64),
        tests=parse_tests("pp64,tg8"),
        plan=BenchPlan(batch=128, micro_batch=128, repetitions=3, threads=1),
        timeout_s=600.0,
        folder=tmp_path / "out",
        reporter=reporter,
        groups=(replace(smallest, models=smallest.models[:1], scenes=smallest.scenes[:1]),),
    )


def _pick(source: BenchSource, seconds: float, *, seed: str = "planted", least: float = 0.02) -> Picked:
    plan = PickPlan(
        members=source.arms.members, models=tuple(source.models), seconds=seconds, least=least, seed=seed
    )
    with open_journal(source.folder, {"test": seed}, ENTRIES) as journal:
        return pick(plan, KeptMeter(journal=journal, source=source))


def test_a_wrong_patch_is_out_with_its_case_and_no_loser_is_kept(source: BenchSource) -> None:
    first = _pick(source, 8.0)
    kept = (source.folder / JOURNAL).read_bytes()
    picked = _pick(source, 40.0)
    assert (source.folder / JOURNAL).read_bytes().startswith(kept)  # it went on, and measured nothing twice
    told = {one.id: one for one in picked.decisions}
    assert told["wrong"].verdict == "leave out"
    assert "RMS_NORM(" in told["wrong"].why
    # What a busy machine hides stays open, and what is open is not kept.
    assert set(picked.picked) <= set(EXPECTED)
    assert set(first.picked) <= set(EXPECTED)
    assert {one.verdict for name, one in told.items() if name not in EXPECTED} <= {"leave out", "unclear"}
    assert picked.rounds["whole"] == 5
    # What was right is not checked again by the next run, unless that is asked for.
    right = tuple(name for name in source.arms.whole.ids if name != "wrong")
    heard = Recorder()
    assert replace(source, reporter=heard).check(right) is None
    assert heard.said("info") == ["5 patches: right on this machine before, with the same trees and tools"]
    assert replace(source, reporter=heard, is_fresh=True).check(right) is None
    assert len(heard.said("info")) == 1
    # Gates read there what they wrote, so another run over this tree is waited for.
    held = lock_evidence(source.arms.workspace.cache_root, source.tree_of(right), NullReporter())
    with ThreadPoolExecutor(1) as pool, held:
        waiting = pool.submit(replace(source, reporter=heard).check, right)
        while len(heard.said("info")) == 1:
            time.sleep(0.1)
        assert (
            heard.said("info")[1]
            == f"waiting for another patchkit that checks tree {source.tree_of(right)[:12]}"
        )
        assert not waiting.done()


def test_a_model_that_became_another_file_is_not_measured_on(source: BenchSource) -> None:
    model = source.models["small"]
    source = replace(source, stamps={"small": file_stamp(model)})
    visit = Visit(stage="whole", round=0, model="small", arm=())
    assert set(source.sample(visit).samples_ns) == {"pp64", "tg8"}
    SmallModel(head_size=64, heads=8).write(model)
    with refused("MODEL_CHANGED", match="the model small changed"):
        source.sample(visit)
