"""A gate that raises ends the run: what was proven before it is kept, and nothing older pretends."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
from refusing import refused

from patchkit.base.errors import CacheError, ToolchainError
from patchkit.base.process import ToolCrashed
from patchkit.base.reporter import NullReporter
from patchkit.build.toolchain import RocWmma, Toolchain
from patchkit.candidate.workspace import Workspace
from patchkit.gates import verify
from patchkit.gates.base import Evidence, GateResult
from patchkit.gates.registry import entries
from patchkit.series.folder import SeriesDir

ROOT = Path(__file__).resolve().parents[3]


class Seen(Evidence):
    seen: str


@dataclass(frozen=True)
class Gate:
    name: str
    error: BaseException | None = None

    def run(self, subject: object) -> GateResult:
        del subject
        if self.error is not None:
            raise self.error
        return GateResult(gate=self.name, verdict="passed", summary="said", evidence=Seen(seen=self.name))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Runs verify with gates that only answer, over a candidate that is only described."""
    clang = tmp_path / "clang++"
    clang.write_text("#!/bin/sh\necho '  gfx1151'\n")
    clang.chmod(0o755)
    toolchain = Toolchain(
        kind="rocm", root=tmp_path, clang=clang, clang_version="22.1.8", hip_version="7.1.0",
        device_libs=tmp_path, rocwmma=None,
    )  # fmt: skip
    candidate = SimpleNamespace(
        branch="candidate/gfx1151/b6900", archs=("gfx1151",), base="b" * 40, tip="t" * 40, commits=("one",)
    )
    subject = SimpleNamespace(candidate_tree="c" * 40, reporter=NullReporter())
    monkeypatch.setattr(verify, "find_toolchain", lambda *_: toolchain)
    monkeypatch.setattr(verify, "make_subject", lambda *_: subject)
    series = SeriesDir(root=ROOT, origin="checkout")
    workspace = Workspace(series=series, cache_root=tmp_path / "cache", reporter=NullReporter())

    def start(
        compile_error: BaseException | None = None,
        archs: tuple[str, ...] = ("gfx1151",),
        then: Callable[[Path], None] | None = None,
    ) -> verify.Report:
        candidate.archs = archs
        monkeypatch.setattr(verify, "find_candidate", lambda *_: (None, candidate))
        names = {entry.gate: entry.name for entry in entries("anywhere")}

        def load(reference: str) -> SimpleNamespace:
            name = names[reference]
            return SimpleNamespace(make=lambda _: Gate(name, compile_error if name == "compile" else None))

        monkeypatch.setattr(verify, "load", load)
        return verify.run_verify(
            workspace, archs=archs, upstream=None, only=(), full=False, environ={}, then=then
        )

    return start


def _document(tmp_path: Path, name: str) -> dict:
    return json.loads((tmp_path / "cache/evidence" / ("c" * 40) / name).read_text())


def test_what_was_proven_before_is_kept_and_the_rest_is_not_run(run, tmp_path: Path) -> None:
    assert run().as_json()["ok"] is True
    assert _document(tmp_path, "report.json")["ok"] is True
    crash = ToolCrashed("clang++ was ended by SIGSEGV", why="a stack", hint="the command was: clang++")
    with pytest.raises(ToolchainError) as caught:
        run(crash)
    assert caught.value is crash
    report = _document(tmp_path, "report.json")
    assert (report["ok"], report["stopped"]) == (False, "TOOL_CRASHED")
    rows = {row["gate"]: (row["verdict"], row["summary"]) for row in report["gates"]}
    assert rows["isolation"][0] == "passed"
    assert rows["compile"] == ("not run", "clang++ was ended by SIGSEGV")
    assert rows["resources"] == ("not run", "gate compile could not run")
    assert rows["bench"][0] == "not run"
    assert _document(tmp_path, "compile.json")["problems"][0]["why"] == "a stack"
    assert _document(tmp_path, "isolation.json")["evidence"] == {"seen": "isolation"}


@pytest.mark.parametrize("error", [ToolCrashed("clang++ was ended by SIGSEGV"), KeyboardInterrupt()])
def test_reports_are_made_of_a_run_that_ended_in_the_middle(run, error: BaseException) -> None:
    seen: list[tuple[bool, str | None]] = []

    def look(folder: Path) -> None:
        report = json.loads((folder / "report.json").read_text())
        seen.append((report["ok"], report["stopped"]))

    run(then=look)
    with pytest.raises(type(error)):
        run(error, then=look)
    code = "INTERRUPTED" if isinstance(error, KeyboardInterrupt) else "TOOL_CRASHED"
    assert seen == [(True, None), (False, code)]


def test_a_report_that_cannot_be_written_does_not_hide_why_the_run_ended(run) -> None:
    def refuse(folder: Path) -> None:
        raise CacheError(f"no room beside {folder}", code="DISK_FULL")

    crash = ToolCrashed("clang++ was ended by SIGSEGV")
    with pytest.raises(ToolCrashed) as caught:
        run(crash, then=refuse)
    assert caught.value is crash
    with refused("DISK_FULL"):
        run(then=refuse)


def test_a_full_disk_is_told_even_when_the_evidence_of_it_finds_no_room(
    run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = CacheError("compiling failed: No space left on device", code="DISK_FULL")
    write = verify._write

    def refuse(path: Path, document: object) -> None:
        if path.name in {"compile.json", "report.json"}:
            raise CacheError(full.message, code="DISK_FULL", hint="another one")
        write(path, document)

    monkeypatch.setattr(verify, "_write", refuse)
    with refused("DISK_FULL") as caught:
        run(full)
    assert caught.value is full


@pytest.mark.parametrize(
    ("kind", "version", "told"),
    [
        ("git", "1.6.0 (git fa7e8ee6f1ad)", "rocWMMA for gfx1151: 1.6.0 (git fa7e8ee6f1ad)"),
        ("rocm", "2.2.1", "rocWMMA for gfx1151: 2.2.1 (rocm)"),
    ],
)
def test_the_report_says_which_rocwmma_was_used(
    run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, version: str, told: str
) -> None:
    chosen = RocWmma(kind=kind, include=tmp_path, version=version)
    monkeypatch.setattr(verify, "rocwmma_for", lambda *_: chosen)
    assert run().proven_with[-1] == told


def test_a_compiler_that_lacks_the_gpu_ends_it_before_the_first_gate(run, tmp_path: Path) -> None:
    with refused("SDK_COMPILER_LACKS_ARCH", match="makes no code for gfx1201"):
        run(archs=("gfx1201",))
    assert not (tmp_path / "cache/evidence").exists()


def test_ctrl_c_leaves_a_report_that_says_so(run, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(KeyboardInterrupt())
    report = _document(tmp_path, "report.json")
    assert (report["ok"], report["stopped"]) == (False, "INTERRUPTED")
    verdicts = {gate["gate"]: gate["verdict"] for gate in report["gates"]}
    assert (verdicts["anchors"], verdicts["compile"], verdicts["launch"]) == ("passed", "not run", "not run")
    assert "interrupted" in _document(tmp_path, "compile.json")["summary"]
