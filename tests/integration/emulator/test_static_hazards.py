"""``sanitize --code``: hazards in code that nothing runs, and what is told of them beside a run."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from patchkit.base.errors import UsageError
from patchkit.base.reporter import NullReporter
from patchkit.gpu.emulated.emulator import build_look, find_disassembler, this_level
from patchkit.gpu.emulated.hazards import CodeLook, look_at_file

pytestmark = [pytest.mark.hip, pytest.mark.slow]

_SOURCE = Path(__file__).with_name("hazardous_code.hip")
_KERNELS = sorted(set(re.findall(r"\b(?:hazard|clean)_(?:barrier|dual)_\w+", _SOURCE.read_text("utf-8"))))


@pytest.fixture(scope="module")
def code(compile_program, tmp_path_factory) -> Callable[..., Path]:
    """Device code of the kernels, for a GPU."""
    made: dict[tuple[str, ...], Path] = {}

    def build(arch: str, *flags: str) -> Path:
        path = made.setdefault((arch, *flags), tmp_path_factory.mktemp("code") / "code")
        if not path.exists():
            compile_program.device("hazardous_code", path, "-O3", "-gline-tables-only", *flags, arch=arch)
        return path

    return build


@pytest.fixture(scope="module")
def look(compiler) -> Callable[..., CodeLook]:
    """Looks at a file as the command does."""

    def run(path: Path, arch: str) -> CodeLook:
        return look_at_file(
            path,
            arch=arch,
            program=build_look(compiler, this_level()),
            disassembler=find_disassembler(compiler.toolchain),
            reporter=NullReporter(),
        )

    return run


def _hazardous(seen: CodeLook) -> set[str]:
    return {one.at.function for one in seen.hazards}


@pytest.mark.parametrize(("arch", "kinds"), [("gfx1151", ("barrier", "dual")), ("gfx1201", ("barrier",))])
def test_each_planted_hazard_is_found_and_nothing_else(code, look, arch, kinds):
    planted = {name for name in _KERNELS if name.startswith(tuple(f"hazard_{kind}" for kind in kinds))}
    assert all(sum(kind in name for name in planted) >= 8 for kind in kinds)
    seen = look(code(arch), arch)
    assert _hazardous(seen) == planted
    assert all(one.at.function.split("_")[1] == one.kind for one in seen.hazards)


def test_waves_on_one_cu_owe_no_wait_for_stores(code, look):
    by_hand = {"hazard_barrier_by_hand", "hazard_barrier_one_too_few"}  # they say for themselves what they do
    seen = look(code("gfx1151", "-mcumode"), "gfx1151")
    assert {name for name in _hazardous(seen) if "barrier" in name} == by_hand


def test_a_hazard_has_both_places_and_what_it_is(code, look):
    (one,) = (
        one for one in look(code("gfx1151"), "gfx1151").hazards if one.at.function == "hazard_dual_waits"
    )
    assert "reads v2 17 wait states after the DPP instruction" in one.what
    assert (one.at.text.split()[0], one.other.text.split()[0]) == ("v_dual_mul_f32", "v_add_f32_dpp")
    (turn,) = (
        one for one in look(code("gfx1151"), "gfx1151").hazards if one.at.function == "hazard_barrier_turn"
    )
    lines = _SOURCE.read_text("utf-8").splitlines()
    assert turn.other.file == str(_SOURCE)
    assert "all[threadIdx.x] = other + k;" in lines[(turn.other.line or 0) - 1]


@pytest.fixture(scope="module")
def sanitize(gates_cache: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the command in a process of its own."""

    def run(*arguments: str | Path, arch: str = "gfx1151") -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "patchkit", "--cache-dir", gates_cache, "sanitize", "--arch", arch]
        return subprocess.run(
            [*map(str, argv), *map(str, arguments)], capture_output=True, text=True, check=False, timeout=600
        )

    return run


def test_hazards_are_told_beside_a_run_and_leave_its_status_alone(sanitize, compile_program):
    program = compile_program("hazardous_code", "-gline-tables-only")
    done = sanitize("--", program)
    assert done.returncode == 0, done.stderr
    assert "static: hazard_barrier_by_hand reaches a barrier" in done.stdout
    assert "hazard_barrier_turn" not in done.stdout  # it did not run
    assert "0 findings in 1 launch" in done.stdout
    document = json.loads(sanitize("--json", "--", program).stdout)
    assert document["ok"]
    assert [one["at"]["function"] for one in document["static"]["hazards"]] == ["hazard_barrier_by_hand"]


def test_a_program_is_looked_at_without_running_it(sanitize, compile_program, tmp_path):
    report = tmp_path / "report.json"
    done = sanitize("--code", compile_program("hazardous_code"), "--report", report)
    assert done.returncode == 1, done.stderr
    assert "hipSuccess" not in done.stdout
    assert "static: hazard_dual_next reads v2 1 wait state after" in done.stdout
    document = json.loads(report.read_text("utf-8"))
    assert not document["ok"]
    assert document["code_for"] == ["gfx1151"]
    assert document["dual_same_parity"] >= 9


def test_code_for_another_member_of_the_family_is_told(sanitize, code):
    done = sanitize("--code", code("gfx1100"))
    assert done.returncode == 1, done.stderr
    assert "has no code for gfx1151 here, only for gfx1100" in done.stdout
    assert "hazard_dual_next" in done.stdout


def test_code_without_a_hazard_ends_well(sanitize, compile_program, tmp_path):
    own = tmp_path / "code"
    compile_program.device("own_kernel", own)
    done = sanitize("--code", own)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("0 hazards in ")


def test_what_holds_no_code_is_refused(look, code, tmp_path):
    nothing, cut, pipe = tmp_path / "nothing", tmp_path / "cut", tmp_path / "pipe"
    nothing.write_bytes(b"__CLANG_OFFLOAD_BUNDL" * 9)
    cut.write_bytes(code("gfx1151").read_bytes()[:3000])
    os.mkfifo(pipe)
    for path in (nothing, cut, pipe, tmp_path / "missing", tmp_path):
        with pytest.raises(UsageError) as refused:
            look(path, "gfx1151")
        assert (refused.value.code, refused.value.where[0].path) == ("CODE_UNREADABLE", str(path))


def test_damaged_code_is_read_to_no_harm(look, code, tmp_path):
    whole = code("gfx1151").read_bytes()
    damaged = tmp_path / "damaged"
    for place in range(0, len(whole), max(len(whole) // 40, 1)):
        damaged.write_bytes(whole[:place] + b"\xff\xff\xff\xff" + whole[place + 4 :])
        with contextlib.suppress(UsageError):
            look(damaged, "gfx1151")


@pytest.mark.parametrize("option", [("--check", "races"), ("--threads", "2"), ("--sarif", "x.sarif")])
def test_options_of_runs_are_refused(sanitize, code, option):
    done = sanitize("--code", code("gfx1151"), *option)
    assert done.returncode == 2, done.stdout
    assert option[0] in done.stderr


def test_a_program_and_code_are_one_too_many(sanitize, code):
    assert sanitize("--code", code("gfx1151"), "--", "true").returncode == 2
    assert sanitize().returncode == 2
