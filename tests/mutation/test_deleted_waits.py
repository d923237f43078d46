"""Every wait and barrier of three real kernels, deleted in the machine code one at a time.

By hand: ``pytest -m "hip or hours" tests/mutation/test_deleted_waits.py``; three minutes on two cores.
"""

from __future__ import annotations

import io
import json
import os
import struct
import subprocess
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

from patchkit.gpu.emulated.checks import usual_checks
from patchkit.gpu.emulated.device import device_of
from patchkit.gpu.emulated.emulated_sides import emulated_side
from patchkit.gpu.emulated.emulator import EmulationOptions, emulated_gpu
from patchkit.prove.build import build_tree
from patchkit.prove.subject import Subject
from patchkit.toolchain.compiler import open_compiler
from patchkit.toolchain.units import SourceTree

pytestmark = [pytest.mark.hip, pytest.mark.slow, pytest.mark.hours]

_CUDA = "ggml_src_ggml-cuda"
_ATTENTION = (
    "FLASH_ATTN_EXT(hsk=64,hsv=64,nh=4,nr23=[1,1],kv={kv},nb={nb},mask=1,sinks=0,max_bias=0.000000,"
    "logit_softcap=0.000000,prec=f32,type_KV=f16,permute=[0,1,2,3])"
)


@dataclass(frozen=True)
class Kernel:
    """One kernel of build 6900, run by a case of upstream's.

    Of the waits and barriers that are executed so many go unnoticed. Waits: between the loads of both halves
    of a register, which LDS gives in order, or behind a branch that loaded
    nothing. Barriers: another one follows before other waves come to the same LDS.
    """

    unit: str
    symbol: str
    case: str
    waits: int
    barriers: int


_KERNELS = {
    "tile": Kernel(
        f"{_CUDA}_template-instances_fattn-tile-instance-dkq64-dv64.cu",
        "_ZL15flash_attn_tileILi64ELi64ELi4ELi1ELb0E",
        _ATTENTION.format(kv=113, nb=3),
        0,
        3,
    ),
    "wmma": Kernel(
        f"{_CUDA}_fattn-wmma-f16.cu",
        "_ZL18flash_attn_ext_f16ILi64ELi32ELi4ELi64EfLb0E",
        _ATTENTION.format(kv=512, nb=35),
        9,
        1,
    ),
    "softmax": Kernel(
        f"{_CUDA}_softmax.cu",
        "_ZL12soft_max_f32ILb1ELi1024ELi1024EfE",
        "SOFT_MAX(type=f32,ne=[1024,16,1,1],mask=1,sinks=0,m_prec=f32,nr23=[1,1],scale=1.000000,"
        "max_bias=0.000000,inplace=0)",
        3,
        0,
    ),
}

# RDNA3 ISA guide, 16.5 and 16.2: SOPP has its operation in bits 16 to 22.
_NOP, _TRAP, _BARRIER, _WAIT = 0xBF800000, 0xBF900002, 0xBFBD0000, 0xBF89


@dataclass(frozen=True)
class Bench:
    """Runs a case with the device code of a unit as it is, or with one word of it replaced."""

    program: Path
    environment: dict[str, str]
    units: Path
    scratch: Path

    def run(self, kernel: Kernel, code: bytes | None, name: str) -> dict[str, Any]:
        """The report."""
        variables = dict(self.environment)
        folder, report = self.scratch / name, self.scratch / f"{name}.json"
        if code is not None:
            folder.mkdir(exist_ok=True)
            for unit in self.units.iterdir():
                place = folder / unit.name
                place.unlink(missing_ok=True)
                place.symlink_to(unit.resolve())
            (folder / kernel.unit).unlink()
            (folder / kernel.unit).write_bytes(code)
            variables["PATCHKIT_EMULATOR_UNITS"] = str(folder)
        variables["PATCHKIT_EMULATOR_REPORT"] = str(report)
        argv = [str(self.program), "test", "-b", "ROCm0", "-o", kernel.case]
        subprocess.run(argv, env=variables, capture_output=True, check=False, timeout=300)
        found: dict[str, Any] = json.loads(report.read_text("utf-8"))
        return found


@pytest.fixture(scope="module")
def bench(shipped: Subject, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    assert shipped.toolchain is not None
    compiler = open_compiler(shipped.toolchain, shipped.cache_root, shipped.reporter)
    built = build_tree(
        shipped, shipped.baseline, shipped.baseline_tree, "cpu", ("test-backend-ops",), is_timed=False
    )
    gpu = emulated_gpu(device_of(shipped.profiles["gfx1151"]), compiler)
    options = EmulationOptions(checks=usual_checks(), threads=1)
    with emulated_side(built, SourceTree(shipped.baseline), gpu, compiler, options) as side:
        yield Bench(
            program=side.built.program("test-backend-ops"),
            environment={"PATH": os.environ["PATH"], **side.built.environment},
            units=side.units.folder,
            scratch=tmp_path_factory.mktemp("deleted"),
        )


def _sites(code: bytes, symbol: str) -> Iterator[tuple[str, int]]:
    """Waits for loads and LDS, and barriers, by their place in the unit's bundle."""
    begin = code.rindex(b"\x7fELF")
    elf = ELFFile(io.BytesIO(code[begin:]))
    symbols = elf.get_section_by_name(".symtab").iter_symbols()
    named = [one for one in symbols if one.name.startswith(symbol)]
    (kernel,) = (one for one in named if one["st_info"]["type"] == "STT_FUNC")
    text = elf.get_section_by_name(".text")
    start = begin + kernel["st_value"] - text["sh_addr"] + text["sh_offset"]
    for place in range(start, start + kernel["st_size"], 4):
        (word,) = struct.unpack_from("<I", code, place)
        if word >> 16 == _WAIT:
            yield "wait", place
        elif word == _BARRIER:
            yield "barrier", place


@pytest.mark.parametrize("kernel", _KERNELS.values(), ids=_KERNELS)
def test_what_is_deleted_is_missed(bench: Bench, kernel: Kernel) -> None:
    assert bench.run(kernel, None, "whole")["findings"] == []
    code = (bench.units / kernel.unit).read_bytes()
    sites = list(_sites(code, kernel.symbol))

    def with_word(place: int, word: int) -> bytes:
        return code[:place] + struct.pack("<I", word) + code[place + 4 :]

    def delete(site: tuple[int, tuple[str, int]]) -> tuple[str, str]:
        number, (what, place) = site
        # One that is not executed cannot be missed.
        if bench.run(kernel, with_word(place, _TRAP), f"t{number}")["fault"] is None:
            return what, "not executed"
        report = bench.run(kernel, with_word(place, _NOP), f"n{number}")
        wanted = "waits" if what == "wait" else "races"
        kinds = {one["kind"] for one in report["findings"]}
        return what, "noticed" if wanted in kinds else f"found {sorted(kinds)}"

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        results = Counter(pool.map(delete, enumerate(sites)))
    assert results["wait", "found []"] == kernel.waits, results
    assert results["barrier", "found []"] == kernel.barriers, results
    assert results["wait", "noticed"] > 0.9 * (results["wait", "noticed"] + kernel.waits)
    assert set(results) <= {
        (what, how) for what in ("wait", "barrier") for how in ("noticed", "found []", "not executed")
    }
