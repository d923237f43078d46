"""Recording on all GPUs at once: one on which the candidate ends badly leaves the others as they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from toolchains import script_compiler

from patchkit.carry.series.profile import load_profile
from patchkit.gpu.emulated.device import device_of
from patchkit.gpu.emulated.runtime import HostLibrary, RecordedBackend
from patchkit.prove.gates.launch.runs import (
    CandidateAborts,
    Comparison,
    GpuRuns,
    RecordedSides,
    bench_runs,
    compare_all,
)
from patchkit.toolchain.sides import BuiltSide
from patchkit.toolchain.units import SourceTree

_LOGS = 'echo "{\\"mark\\":\\"done\\"}" >> "$PATCHKIT_RECORDER_LOG"; echo run >> COUNT-"${0##*/}"'
_ABORTS = 'read -r _ arch < "$PATCHKIT_RECORDER_DEVICE"; [ "$arch" != gfx1030 ] || kill -ABRT $$'
_TABLE = "printf 'op_name,op_params,supported\\nMUL_MAT,m=1,1\\n'"


@pytest.fixture
def sides_of(tmp_path: Path) -> Callable[..., RecordedSides]:
    """Two sides of scripts; those of the candidate that are named abort as gfx1030."""

    def side(name: str, aborting: tuple[str, ...]) -> RecordedBackend:
        folder = tmp_path / name
        folder.mkdir()
        for program, text in (("test-backend-ops", _TABLE), ("llama-bench", ""), ("fattn_cases", "")):
            ends = _ABORTS if program in aborting else ":"
            lines = (_LOGS.replace("COUNT", str(folder / "count")), text or ":", ends, "exit 0")
            (folder / program).write_text("#!/bin/sh\n" + "\n".join(lines) + "\n")
            (folder / program).chmod(0o755)
        return RecordedBackend(
            tree=SourceTree(tmp_path),
            arch="gfx1151",
            stub=tmp_path / "stub",
            programs=BuiltSide(tree=name, backend="cpu", folder=folder, module=folder, cpu=folder, parts=()),
            library=HostLibrary(path=tmp_path / "lib.so", key=name, units=1),
            driver=folder / "fattn_cases",
        )

    return lambda *aborting: RecordedSides(before=side("before", ()), after=side("after", aborting), code={})


@pytest.mark.parametrize("program", ["fattn_cases", "llama-bench"])
def test_a_gpu_on_which_the_candidate_aborts_is_the_only_one_without_a_comparison(
    sides_of: Callable[..., RecordedSides], tmp_path: Path, checkout: Path, program: str
) -> None:
    wanted = [
        GpuRuns(device=device_of(load_profile(checkout / "arch_profiles", arch)), deep=False, matrices=False)
        for arch in ("gfx1151", "gfx1030", "gfx1100")
    ]
    compiler = script_compiler(tmp_path / "sdk", "exit 1", tmp_path / "cache")
    first, second, third = compare_all(wanted, sides_of(program), compiler)
    assert isinstance(second, CandidateAborts)
    assert "as gfx1030" in second.message
    for found, arch in ((first, "gfx1151"), (third, "gfx1100")):
        assert isinstance(found, Comparison)
        assert (found.device.arch, found.cases_identical) == (arch, True)
        assert [run for run, _, _ in found.benches] == list(bench_runs(deep=False, matrices=False))


def test_what_did_not_begin_on_such_a_gpu_is_left_out(
    sides_of: Callable[..., RecordedSides], tmp_path: Path, checkout: Path
) -> None:
    """Each of its runs may hang until the limit."""
    device = device_of(load_profile(checkout / "arch_profiles", "gfx1030"))
    compiler = script_compiler(tmp_path / "sdk", "exit 1", tmp_path / "cache")
    compare_all([GpuRuns(device=device, deep=False, matrices=False)], sides_of("fattn_cases"), compiler)
    assert not list((tmp_path / "after").glob("count-llama-bench"))
