"""A check takes code in the emulator, an entry of the table, and a row that says what it does not find."""

from __future__ import annotations

import runpy
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import pytest

from patchkit.base.report.sarif import sarif_report
from patchkit.cli.app import main
from patchkit.gpu.emulated import checks

ROOT = Path(__file__).resolve().parents[4]
EMULATOR = ROOT / "patchkit" / "gpu" / "emulated" / "native" / "emulator"
# Says the names of the emulator's checks, and whether asking for each by its name turns on that one.
PROGRAM = """
#include "emulator.hpp"
#include <cstdio>
using namespace patchkit::gpu;
int main() {
#define SAY(name)                                                                        \\
    {                                                                                    \\
        checks of_run;                                                                   \\
        bool * const found = of_run.find(#name);                                         \\
        const bool was_any = of_run.any();                                               \\
        *found = true;                                                                   \\
        std::printf("%s %d\\n", kinds::name, !was_any && of_run.name && of_run.any());   \\
    }
    PATCHKIT_CHECKS(SAY)
    return checks().find("nothing") == nullptr ? 0 : 1;
}
"""
TOY = checks.Check(
    name="toy",
    about="what toys do",
    help="what toys do, at length",
    costs="patience",
    on_request=True,
)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch):
    """The table with one more check."""
    monkeypatch.setattr(checks, "CHECKS", (*checks.CHECKS, TOY))
    # As in a new process, before and after: options are made when the command's module is imported.
    sys.modules.pop("patchkit.cli.verbs.sanitize", None)
    yield
    sys.modules.pop("patchkit.cli.verbs.sanitize", None)


def test_a_check_of_one_entry_is_offered_told_and_listed(
    toy: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sanitize", "--help"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert f"[{'|'.join(checks.check_names())}]" in told
    assert ", toy)." in told
    assert "toy (not by default): what toys do, at length." in told
    assert checks.chosen_checks(["toy", "races"]) == ("races", "toy")
    assert checks.chosen_checks([]) == checks.usual_checks()
    assert "toy" not in checks.usual_checks()
    gpu = SimpleNamespace(device=SimpleNamespace(arch="gfx1151"), identity="0")
    ran = SimpleNamespace(gpu=gpu, status=0)
    report = import_module("patchkit.cli.verbs.sanitize")._report(["./p"], [], [], ran, ["0 findings"])
    sarif = sarif_report(report)
    assert '"id": "toy"' in sarif
    assert "what toys do" in sarif
    reference = runpy.run_path(str(ROOT / "ci" / "reference.py"))["reference"]()["gates-and-formats.md"]
    assert "| `toy`, on request | what toys do | patience |" in reference


def test_the_emulator_turns_on_each_check_by_its_name(tmp_path: Path) -> None:
    compiler = shutil.which("g++") or shutil.which("clang++")
    assert compiler, "the tests need a C++ compiler (apt-get install g++)"
    (tmp_path / "names.cpp").write_text(PROGRAM)
    argv = [compiler, "-std=c++20", "-Wall", "-Wextra", "-Werror", checks.native_checks()]
    subprocess.run([*argv, "-I", str(EMULATOR), "names.cpp", "-o", "names"], cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "names"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"{name} 1" for name in checks.check_names()]


def test_the_type_has_the_names_of_the_table() -> None:
    assert get_args(checks.CheckName) == checks.check_names()


def test_the_page_of_checks_has_a_row_for_each() -> None:
    page = (ROOT / "docs" / "reference" / "checks.md").read_text("utf-8").splitlines()
    named = [line.split("`")[1] for line in page if line.startswith("| `")]
    assert [name for name in named if name in checks.check_names()] == list(checks.check_names())
