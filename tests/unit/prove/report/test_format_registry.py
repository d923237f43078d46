"""A report format takes its module and one entry of the registry, and nothing else."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from patchkit.cli.app import main
from patchkit.prove.gates.registry import load
from patchkit.prove.report import registry

ROOT = Path(__file__).resolve().parents[4]
WHOLE = ROOT / "tests" / "corpus" / "evidence" / "whole"
TOY = registry.Format(
    name="toy",
    render="toy_format:toy_report",
    ending="toy",
    about="a line per gate",
)
MODULE = """
def toy_report(report):
    return "".join(f"{gate.title},{gate.verdict}\\n" for gate in report.gates)
"""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The registry with one more format."""
    (tmp_path / "toy_format.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "FORMATS", (*registry.FORMATS, TOY))
    # As in a new process, before and after: options are made when the command's module is imported.
    sys.modules.pop("patchkit.cli.verbs.report", None)
    yield
    sys.modules.pop("toy_format", None)
    sys.modules.pop("patchkit.cli.verbs.report", None)


def test_a_format_of_one_entry_is_made_and_listed(toy: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(WHOLE), "--format", "toy"]) == 0
    assert capsys.readouterr().out.startswith("anchors,passed\nisolation,passed\n")
    reference = runpy.run_path(str(ROOT / "ci" / "reference.py"))["reference"]()["gates-and-formats.md"]
    assert "| `toy` |  | a line per gate |" in reference


@pytest.mark.parametrize("form", registry.FORMATS, ids=lambda form: form.name)
def test_what_an_entry_names_is_there(form: registry.Format) -> None:
    assert callable(load(form.render))
