"""Published times: which can be modelled on what, and how errors are counted."""

from __future__ import annotations

from pathlib import Path

import pytest
from refusing import refused

from patchkit.base.errors import ErrorGroup
from patchkit.carry.series.lock import load_lock
from patchkit.carry.series.profile import load_profile
from patchkit.gpu.emulated.device import device_of
from patchkit.gpu.modelled.against import (
    Published,
    TileConfig,
    errors_of,
    load_published,
    points_of,
    with_config,
)
from patchkit.gpu.modelled.machine import load_machine

_ROW = {
    "kind": "kernel-time",
    "group": "g",
    "source": "somebody",
    "date": "2026-09-09",
    "what": "MUL_MAT via mul_mat_q (MMQ)",
    "type": "q4_0",
    "M": 4096,
    "N": 128,
    "K": 4096,
    "us_before": 200.0,
}


@pytest.fixture
def machine(checkout: Path):
    profile = load_profile(checkout / "arch_profiles", "gfx1151")
    return load_machine(checkout / "arch_profiles", device_of(profile))


@pytest.fixture
def pins(checkout: Path):
    return load_lock(checkout / "patches" / "upstream.lock").pins


def _points(machine, pins, **changes):
    return points_of([Published.model_validate({**_ROW, **changes})], machine, pins)


def test_a_row_is_modelled_on_the_pin_nearest_to_its_date(machine, pins):
    (point,), none = _points(machine, pins)
    assert (point.case.rows, point.case.columns, point.case.tokens, point.case.type) == (
        4096,
        4096,
        128,
        "q4_0",
    )
    assert (point.pin.build, point.kernel, point.measured_us, none) == (11549, "mmq", 200.0, [])
    assert point.note == "measured in 2026-09"
    (older,), _ = _points(machine, pins, date="2025-05-16")
    assert older.pin.build == 6900
    (stated,), _ = _points(machine, pins, llama_build="09232370 (b6901)")
    assert (stated.pin.build, stated.note) == (6900, "measured on b6901")


def test_both_sides_of_a_row_are_points_where_their_blocks_are_stated(machine, pins):
    configs = {"config_before": "nthreads=256, I=128", "config_after": "nthreads=128, I=64"}
    points, none = _points(machine, pins, us_after=190.0, **configs)
    assert [(point.side, point.config) for point in points] == [
        ("before", TileConfig(threads=256, rows=128)),
        ("after", TileConfig(threads=128, rows=64)),
    ]
    assert none == []


def test_what_somebody_changed_otherwise_is_refused_and_the_other_side_is_not(machine, pins):
    points, (refusal,) = _points(machine, pins, us_after=190.0, config_after="my branch")
    assert [point.side for point in points] == ["before"]
    assert (refusal.side, refusal.why) == ("after", "the change 'my branch' is not in an upstream tree")


def test_a_branch_with_other_blocks_is_modelled_with_these(machine, pins):
    (point,), _ = _points(machine, pins, source="AMD-Ecosystem/llama.cpp#80 (somebody)")
    assert point.config == TileConfig(threads=128, rows=64)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"what": "GEMM f16 (torch.mm)"}, "not llama.cpp's MUL_MAT according to 'what'"),
        ({"what": "MUL_MAT_ID via MMQ"}, "not llama.cpp's MUL_MAT according to 'what'"),
        ({"M": None}, "type, M, N or K is missing"),
        ({"type": "Q4_0_ROCMI4"}, "ggml has no type Q4_0_ROCMI4"),
        ({"what": "MUL_MAT (rocBLAS GEMM)"}, "computed by a BLAS library, whose kernels are not in the tree"),
        ({"what": "MUL_MAT (float path, small n)"}, "'what' does not name the kernel"),
        ({"us_before": None}, "it has no time"),
    ],
)
def test_what_cannot_be_modelled_says_why(machine, pins, changes, why):
    points, (refusal,) = _points(machine, pins, **changes)
    assert (points, refusal.why) == ([], why)


def test_errors_are_absolute_and_the_bias_is_not():
    found = errors_of([0.1, -0.3, 0.2])
    assert (found.points, found.median, found.p90) == (3, 0.2, 0.3)
    assert found.bias == pytest.approx(1.1)


def test_other_blocks_replace_those_of_128_rows_only():
    table = b"CASE(GGML_TYPE_Q4_0, 128, 2,  64,  16, L);\nCASE(GGML_TYPE_Q4_0, 256, 2, 128,  64, L);"
    changed = with_config(table, TileConfig(threads=128, rows=64))
    assert changed.splitlines() == [table.splitlines()[0], b"CASE(GGML_TYPE_Q4_0, 128, 2, 64,  64, L);"]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("row = 3", "has no measurements"),
        ("", "has no measurements"),
        ("[[row]]\nkind = 'kernel-time'\nM = -4", "is not a measurement: M"),
        ("[[row]]\nus_before = 'fast'", "is not a measurement: kind"),
    ],
)
def test_a_file_that_is_none_is_refused_with_its_place(tmp_path: Path, text, what):
    path = tmp_path / "measured.toml"
    path.write_text(text, "utf-8")
    with refused("PUBLISHED_MALFORMED", match=what) as error:
        load_published(path)
    assert error.value.where[0].path == str(path)


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1151"])
def test_every_gpu_with_a_timing_file_has_all_figures(checkout: Path, arch: str):
    profiles = checkout / "arch_profiles"
    assert (profiles / "timing" / f"{arch}.toml").is_file()
    found = load_machine(profiles, device_of(load_profile(profiles, arch)))
    assert f"wgps {found.device.multiprocessors}\n" in found.text()


def test_nothing_is_known_of_a_gpu_without_a_timing_file(checkout: Path):
    profiles = checkout / "arch_profiles"
    device = device_of(load_profile(profiles, "gfx1201"), guess_units=True)
    with refused("TIMING_UNKNOWN") as error:
        load_machine(profiles, device)
    assert "gfx1151" in (error.value.hint or "")


def test_a_timing_file_that_lacks_a_figure_is_refused_at_its_place(checkout: Path, tmp_path: Path):
    profiles = tmp_path / "arch_profiles"
    (profiles / "timing").mkdir(parents=True)
    text = (checkout / "arch_profiles" / "timing" / "gfx1151.toml").read_text("utf-8")
    (profiles / "timing" / "gfx1151.toml").write_text(text.replace("figures.barrier]", "figures.barriers]"))
    with pytest.raises(ErrorGroup) as error:
        load_machine(profiles, device_of(load_profile(checkout / "arch_profiles", "gfx1151")))
    told = " ".join(problem.message for problem in error.value.errors)
    assert ("barriers" in told, "barrier" in told) == (True, True)
