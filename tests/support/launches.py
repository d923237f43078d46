"""Launches, kernels and recorded runs that never were, for tests of what is made of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from patchkit.carry.series.profile import load_profile
from patchkit.gpu.emulated.cases import Case, OpRow
from patchkit.gpu.emulated.device import device_of
from patchkit.gpu.emulated.log import Kernel, Launch, Triple
from patchkit.gpu.emulated.names import read_name
from patchkit.gpu.emulated.session import RecordedRun
from patchkit.prove.gates.launch.runs import BenchPair, Comparison
from patchkit.toolchain.compile import CompiledKernel
from patchkit.toolchain.remarks import ResourceRemark

ROOT = Path(__file__).resolve().parents[2]

# A mark of the log, or a launch: mangled name, unit, grid and block.
Event = str | tuple[str, str, Triple, Triple]


def compiled_kernel(name: str, threads: int, *, lds: int = 1024, is_trap: bool = False) -> CompiledKernel:
    """What the compiler says of a kernel of 100 VGPRs."""
    figures = ResourceRemark(
        name=name, sgprs=40, vgprs=100, scratch_bytes=0, waves=10, sgpr_spills=0, vgpr_spills=0, lds_bytes=lds
    )
    return CompiledKernel(figures=figures, threads=threads, is_trap=is_trap)


def launch_of(
    mangled: str, unit: str = "x.cu", *, grid: Triple = (1, 1, 1), block: Triple = (32, 1, 1)
) -> Launch:
    """A launch of one kernel."""
    return Launch(kernel=Kernel(name=read_name(mangled), units=(unit,)), grid=grid, block=block, lds=0)


def recorded(tmp_path: Path, events: Iterable[Event]) -> RecordedRun:
    """A run whose log says this; equal logs have equal digests."""
    lines: list[dict[str, object]] = []
    for number, event in enumerate(events):
        if isinstance(event, str):
            lines.append({"mark": event})
            continue
        name, unit, grid, block = event
        lines.append({"kernel": number, "name": name, "units": [unit]})
        lines.append({"launch": number, "grid": grid, "block": block, "lds": 0})
    text = "".join(json.dumps(line) + "\n" for line in lines)
    folder = tmp_path / f"run-{len(list(tmp_path.iterdir()))}"
    folder.mkdir()
    (folder / "log.jsonl").write_text(text, "utf-8")
    return RecordedRun(folder=folder, digest=str(hash(text)))


def comparison_of(
    cases: tuple[RecordedRun, RecordedRun],
    benches: Sequence[BenchPair],
    *,
    asked: Sequence[Case] = (),
    arch: str = "gfx1151",
) -> Comparison:
    """What was recorded as one GPU, whose upstream supports one operation on both sides."""
    row = OpRow(params="x", is_supported=True)
    return Comparison(
        device=device_of(load_profile(ROOT / "arch_profiles", arch)),
        support=((row,), (row,)),
        asked=tuple(asked),
        not_understood=(),
        cases=cases,
        benches=tuple(benches),
    )
