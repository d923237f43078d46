"""What machines measured beside what the model says: the same builds and tests, and who is outside."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from measured_files import BOTH, UPSTREAM, measured

from patchkit.base.evidence import EvidenceFile
from patchkit.base.plain import fields_of
from patchkit.carry.series.profile import load_profile
from patchkit.gpu.emulated.device import device_of
from patchkit.gpu.emulated.operations import OperationCase
from patchkit.gpu.modelled.against import load_published, measured_rows
from patchkit.gpu.modelled.machine import Busy, KernelTime, Machine, load_machine
from patchkit.gpu.modelled.measured import MeasuredComparison, compare_measured
from patchkit.gpu.modelled.network import Batch, ModelTime, Part
from patchkit.gpu.modelled.operation import OperationTime, TimedKernel, kind_of
from patchkit.gpu.modelled.shape import load_models
from patchkit.gpu.modelled.whole import model_points_of

MMQ = "_Z9mul_mat_qIL9ggml_type12E"
MODEL = "llama 7B Q4_0"
TREES = {"upstream": UPSTREAM, "candidate": BOTH}


@pytest.fixture(scope="module")
def played(request: pytest.FixtureRequest) -> Machine:
    """The shipped gfx1151; nine of ten ratios of its mul_mat_q are within a few per cent."""
    profiles = Path(request.config.rootpath) / "arch_profiles"
    return load_machine(profiles, device_of(load_profile(profiles, "gfx1151")))


@pytest.fixture(scope="module")
def file() -> EvidenceFile:
    """The first patch, and so both, gain ten per cent in prompts of 512 and nothing in text."""
    return measured()


def time_of(machine: Machine, us: float, *, other: float = 1e5) -> ModelTime:
    """A model of two operations, one of which a patch may change."""

    def part(name: str, took: float) -> Part:
        case = OperationCase(id=name, op="MUL_MAT", type="q4_0", tokens=512)
        kernel = KernelTime.model_construct(
            kernel=MMQ, us=took, busy=Busy(**dict.fromkeys(Busy.model_fields, 0.1))
        )
        kernels = (TimedKernel(played=kernel, kind=kind_of(MMQ), launch_us=0.0),)
        return Part(
            case=case, count=1, time=OperationTime(case=case, machine=machine, kernels=kernels, products=())
        )

    return ModelTime(batch=Batch(tokens=512, depth=0), parts=(part("a", us), part("b", other)), missing=())


def found(file: EvidenceFile, machine: Machine, after: float, **changes: object) -> list[MeasuredComparison]:
    asked: dict[str, object] = {"model": MODEL, "is_prompt": True, "count": 512, "depth": 0, "trees": TREES}
    times = {"upstream": time_of(machine, 3e5), "candidate": time_of(machine, after)}
    return list(compare_measured([file], machine, times=times, **{**asked, **changes}))  # type: ignore[arg-type]


def test_a_modelled_gain_like_the_measured_one_is_within(file: EvidenceFile, played: Machine) -> None:
    (one,) = found(file, played, 2.64e5)  # 400000 to 364000 us: 1.099
    assert one.ratio is not None
    assert one.ratio[1] == pytest.approx(1.10, abs=0.01)
    assert not one.is_outside
    assert any("within its error" in line for line in one.lines())
    assert one.measured.keys() == {"upstream", "candidate"}


def test_a_modelled_gain_that_nobody_measured_is_outside(file: EvidenceFile, played: Machine) -> None:
    (one,) = found(file, played, 1e5)  # twice as fast
    assert one.is_outside
    assert any("OUTSIDE its error" in line for line in one.lines())
    assert fields_of(one)["outside"] is True


@pytest.mark.parametrize(
    "changes",
    [
        {"model": "llama 8B Q4_0"},
        {"count": 511},
        {"depth": 4096},
        {"is_prompt": False, "count": 512},
        {"trees": {"upstream": "8" * 40}},
    ],
    ids=["model", "tokens", "depth", "kind", "build"],
)
def test_what_is_not_the_same_is_not_shown(
    file: EvidenceFile, played: Machine, changes: dict[str, object]
) -> None:
    assert found(file, played, 2e5, **changes) == []


def test_another_gpu_is_not_shown(file: EvidenceFile, played: Machine) -> None:
    other = replace(played, device=replace(played.device, arch="gfx1201"))
    assert found(file, other, 2e5) == []


def test_the_table_of_errors_counts_what_machines_measured(
    file: EvidenceFile, tmp_path: Path, checkout: Path
) -> None:
    """Upstream's builds are modelled; builds with patches are not in an upstream tree and are skipped."""
    (tmp_path / file.name).write_bytes(file.text)
    rows = load_published(tmp_path)
    assert rows == load_published(tmp_path / file.name) == tuple(measured_rows(file))
    pin = type("Pin", (), {"build": 11549, "name": "b11549", "committed": "2026-10-01T00:00:00+00:00"})()
    points, refused = model_points_of(rows, load_models(checkout / "arch_profiles"), [pin])
    assert {(one.what, one.is_prompt) for one in points} == {("pp512", True), ("tg128", False)}
    assert len(points) == 4  # two tests of upstream's build, which was measured twice
    assert len(refused) == 6
    assert all("not an upstream tree" in one.why for one in refused)


def test_what_kind_of_test_a_batch_is(played: Machine) -> None:
    time = time_of(played, 1e5)
    assert time.kind == "prompt"
    assert replace(time, batch=Batch(tokens=1, depth=0)).kind == "text"
    called = replace(time.parts[0].time, products=("hipblasGemmEx 4096x512x4096",))
    library = replace(time.parts[0], time=called)
    assert replace(time, parts=(library,)).kind == "prompt with BLAS"
    expert = replace(time.parts[0], case=replace(time.parts[0].case, experts=8, used=2))
    assert replace(time, parts=(expert,)).kind == "prompt of an MoE model"
