"""The rendered tile table, compiled as plain C++: host and device agree, and every rule stops the compiler.

The header needs a handful of macros of upstream's common.cuh; with ``__host__`` and ``__device__`` empty
both sides are ordinary functions, so one program can compare them for every variant.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from patchkit.carry.placing.context import make_context, make_guard
from patchkit.carry.placing.templates import PatchRenderer
from patchkit.carry.placing.wmma import lds_bytes, wmma_table
from patchkit.carry.series.catalogue import load_series
from patchkit.carry.series.profile import load_profile

_STUB = """
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#define __host__
#define __device__
#define GGML_USE_HIP
#define GGML_HIP_ROCWMMA_FATTN
#define GGML_CUDA_CC_OFFSET_AMD 0x1000000
#define FATTN_KQ_STRIDE 256
#define GGML_UNUSED_VARS(...)
#define GGML_ABORT(...) std::abort()
"""


@pytest.fixture(scope="module")
def compiler() -> str:
    found = shutil.which("g++") or shutil.which("clang++")
    assert found, "the tests need a C++ compiler (apt-get install g++)"
    return found


def render(checkout: Path, archs: tuple[str, ...]) -> str:
    patch = load_series(checkout / "patches").patch("wmma-tile-params")
    profiles = [load_profile(checkout / "arch_profiles", arch) for arch in archs]
    guard = make_guard(patch.guard, profiles)
    folder = checkout / "patches" / patch.folder
    renderer = PatchRenderer(
        patch, folder, checkout / "templates", make_context(guard, profiles, patch.context)
    )
    return renderer.file(patch.files[0].template, patch.files[0].where)


def build(compiler: str, folder: Path, header: str, arch: str, body: str) -> subprocess.CompletedProcess[str]:
    (folder / "common.cuh").write_text("#pragma once\n" + _STUB)
    (folder / "fattn-common.cuh").write_text("#pragma once\n")
    (folder / "fattn-wmma-config.cuh").write_text(header)
    (folder / "main.cpp").write_text(f'#include "fattn-wmma-config.cuh"\nint main() {{\n{body}\n}}\n')
    command = [compiler, "-std=c++17", "-Wall", "-Wno-unused-function", f"-D__{arch}__"]
    return subprocess.run(
        [*command, str(folder / "main.cpp"), "-o", str(folder / "program")],
        capture_output=True,
        text=True,
        check=False,
    )


def _compare(rows, cc: int) -> str:
    lines = ["int bad = 0;"]
    for row in rows:
        variant, params = row.variant, row.params
        call = f"{variant.head_size}, {variant.ncols}, {2 if variant.acc == 'f16' else 4}"
        for name, value in (("kq_stride", params.kq_stride), ("nwarps", params.nwarps)):
            getter = f"ggml_cuda_fattn_wmma_get_{name}"
            lines.append(f"bad += {getter}({call}, GGML_CUDA_CC_OFFSET_AMD + {cc}) != {value};")
            lines.append(f"static_assert({getter}({call}) == {value});")
        lines.append(f"static_assert(ggml_cuda_fattn_wmma_get_min_waves({call}) == {params.min_waves});")
        lds = f"ggml_cuda_fattn_wmma_lds_bytes({call}, {params.kq_stride}, {params.nwarps})"
        lines.append(f"static_assert({lds} == {lds_bytes(row.variant, params)});")
    lines.append("static_assert(ggml_cuda_fattn_wmma_get_config(72, 16, 2) == 0);")
    return "\n".join([*lines, "return bad;"])


@pytest.mark.parametrize("archs", [("gfx1151",), ("gfx1100", "gfx1101", "gfx1102", "gfx1151")])
def test_host_and_device_agree_with_the_profile_for_every_variant(checkout, compiler, tmp_path, archs):
    header = render(checkout, archs)
    for arch in archs:
        profile = load_profile(checkout / "arch_profiles", arch)
        rows = wmma_table(profile)
        assert len(rows) == 23
        built = build(compiler, tmp_path, header, arch, _compare(rows, profile.compute_capability))
        assert built.returncode == 0, built.stderr
        assert subprocess.run([str(tmp_path / "program")], check=False).returncode == 0


def test_another_gpu_gets_no_parameters(checkout, compiler, tmp_path):
    header = render(checkout, ("gfx1151",))
    body = "return ggml_cuda_fattn_wmma_get_nwarps(64, 16, 2, GGML_CUDA_CC_OFFSET_AMD + 0x1100);"
    built = build(compiler, tmp_path, header, "gfx1151", body)
    assert built.returncode == 0, built.stderr
    assert subprocess.run([str(tmp_path / "program")], capture_output=True, check=False).returncode != 0


@pytest.mark.parametrize(
    ("variant", "params", "rule"),
    [
        ((128, 16, 2), (64, 8, 1), "C1"),
        ((80, 16, 2), (64, 8, 1), "C2"),
        ((64, 16, 4), (32, 2, 1), "C3"),
        ((64, 16, 2), (512, 4, 1), "C4"),
        ((64, 16, 2), (256, 12, 1), "C6"),
        ((112, 32, 4), (256, 64, 1), "C7"),
        ((80, 32, 4), (256, 16, 1), "C8"),
        ((64, 16, 2), (128, 8, 32), "value does not fit"),
    ],
)
def test_a_broken_rule_stops_the_compiler_by_name(checkout, compiler, tmp_path, variant, params, rule):
    header = render(checkout, ("gfx1151",))
    pattern = r"(CONFIG_CASE\( *{}, {}, {}, +)\d+, +\d+, +\d+".format(*variant)
    broken, count = re.subn(pattern, r"\g<1>{}, {}, {}".format(*params), header)
    assert count == 1
    built = build(compiler, tmp_path, broken, "gfx1151", "return 0;")
    assert built.returncode != 0
    assert rule in built.stderr
