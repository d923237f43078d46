"""A gate takes its module and one entry of the registry, and nothing else."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from demo_world import FOLDER, SOURCE, World, make_series, make_upstream

from patchkit.cli.app import main
from patchkit.prove.gates import registry
from patchkit.prove.gates.base import Evidence
from patchkit.prove.gates.registry import gate_names

ROOT = Path(__file__).resolve().parents[4]
GATE = """
from dataclasses import dataclass

from patchkit.prove.gates.base import Count, Evidence, GateResult, Many, Record
from patchkit.base.report.blocks import Row, Table, columns


class Counted(Record):
    path: str
    lines: Count


class ToyEvidence(Evidence):
    files: Many[Counted]

    def blocks(self):
        rows = tuple(Row(cells=(one.path, str(one.lines))) for one in self.files)
        titles = columns("file", "lines #")
        yield Table(name="toy", caption="Lines of changed files", columns=titles, rows=rows)


@dataclass(frozen=True)
class ToyGate:
    name: str = "toy"

    @classmethod
    def make(cls, setup):
        return cls()

    def run(self, subject):
        files = tuple(
            Counted(path=path, lines=(subject.candidate / path).read_bytes().count(b"\\n"))
            for path in subject.changed_files
        )
        evidence = ToyEvidence(files=files)
        return GateResult(gate=self.name, verdict="passed", summary=f"{len(files)} files", evidence=evidence)
"""
TOY = registry.GateEntry(
    name="toy",
    runs_on="anywhere",
    gate="toy_gate:ToyGate",
    evidence="toy_gate:ToyEvidence",
    about="nothing: it counts lines",
    compiles=False,
)


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The registry with one more gate."""
    (tmp_path / "toy_gate.py").write_text(GATE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "REGISTRY", (*registry.REGISTRY, TOY))
    yield
    sys.modules.pop("toy_gate", None)


@pytest.fixture
def run(tmp_path: Path, checkout: Path, capsys: pytest.CaptureFixture[str]):
    """Runs a command over a small upstream with a candidate for gfx1151."""
    world = World(tmp_path, checkout)
    make_upstream(
        world.upstream, {1: {f"{FOLDER}/demo.cu": SOURCE, f"{FOLDER}/common.cuh": "#pragma once\n"}}
    )
    make_series(world, 1, ("gfx1151", "gfx1100"), config=True, last=None)

    def start(*argv: str) -> str:
        code = main(world.words(*argv))
        out, err = capsys.readouterr()
        assert code == 0, err
        return out

    start("apply", "--arch", "gfx1151")
    return start


def test_a_gate_of_one_entry_is_run_kept_shown_and_listed(toy: None, run) -> None:
    document = json.loads(run("verify", "--no-gpu", "--arch", "gfx1151", "--gate", "toy", "--json"))
    rows = {row["gate"]: row for row in document["gates"]}
    assert (rows["toy"]["verdict"], rows["anchors"]["verdict"]) == ("passed", "not run")
    kept = json.loads(Path(rows["toy"]["evidence"]).read_text())["evidence"]
    changed = [one["path"] for one in kept["files"]]
    assert f"{FOLDER}/demo.cu" in changed
    for form in ("terminal", "markdown"):
        report = run("report", "--arch", "gfx1151", "--format", form)
        assert "Lines of changed files" in report
        assert "demo.cu" in report
    assert 'name="toy"' in run("report", "--arch", "gfx1151", "--format", "junit")
    reference = runpy.run_path(str(ROOT / "ci" / "reference.py"))["reference"]()["gates-and-formats.md"]
    assert "| `toy` | anywhere | nothing: it counts lines |" in reference


@pytest.mark.parametrize("entry", registry.REGISTRY, ids=lambda entry: entry.name)
def test_what_an_entry_names_is_there(entry: registry.GateEntry) -> None:
    assert callable(registry.load(entry.gate).make)
    assert issubclass(registry.load(entry.evidence), Evidence)


def test_names_alone_import_nothing_of_the_gates() -> None:
    shown = "[name for name in sys.modules if 'patchkit.prove.gates.' in name]"
    source = f"import sys, patchkit.prove.gates.registry; print({shown})"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['patchkit.prove.gates.registry']"
    assert import_module("patchkit.prove.gates.registry").find_entry("nothing") is None


def test_a_name_on_the_cpu_is_the_gates() -> None:
    assert "logits@cpu" in registry.cpu_names()
    assert "anchors@cpu" not in registry.cpu_names()
    entry = registry.find_entry("logits@cpu")
    assert entry is not None
    assert entry.name == "logits"


def test_gates_run_where_what_they_prove_can_be_seen() -> None:
    assert {"anchors", "isolation", "compile", "resources", "launch"} <= set(gate_names("anywhere"))
    assert {"backend-ops", "logits", "bench"} <= set(gate_names("device"))
    assert {"sanitize", "speed"} <= set(gate_names("emulated"))
