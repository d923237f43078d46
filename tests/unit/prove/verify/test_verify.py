"""What verify makes of its gates: order, stopping, evidence; with gates that only answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
from refusing import refused

from patchkit.base.errors import CacheError, GateError, ToolchainError
from patchkit.base.process import ToolCrashed
from patchkit.base.reporter import NullReporter
from patchkit.base.series_folder import SeriesDir
from patchkit.base.workspace import Workspace
from patchkit.prove.gates.base import Evidence, GateResult
from patchkit.prove.gates.registry import entries
from patchkit.prove.verify import run as verify
from patchkit.toolchain.hip import RocWmma, Toolchain

ROOT = Path(__file__).resolve().parents[4]
TREE = "c" * 40
CRASH = ToolCrashed("clang++ was ended by SIGSEGV", why="a stack", hint="the command was: clang++")


class Seen(Evidence):
    seen: str


@dataclass(frozen=True)
class Gate:
    """A gate that gives ``answer``, a verdict, or raises it."""

    name: str
    answer: str | BaseException

    def run(self, subject: object) -> GateResult:
        del subject
        if isinstance(self.answer, BaseException):
            raise self.answer
        return GateResult(
            gate=self.name,
            verdict=self.answer,
            summary="said",
            problems=(GateError("wrong", hint="look"),) if self.answer == "failed" else (),
            evidence=Seen(seen=self.name),
        )


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Runs verify; gates pass but for one whose answer is given; the candidate is only described."""
    clang = tmp_path / "clang++"
    clang.write_text("#!/bin/sh\necho '  gfx1151'\n")
    clang.chmod(0o755)
    toolchain = Toolchain(
        kind="rocm", root=tmp_path, clang=clang, clang_version="22.1.8", hip_version="7.1.0",
        device_libs=tmp_path, rocwmma=None,
    )  # fmt: skip
    candidate = SimpleNamespace(
        branch="candidate/gfx1151/b6900",
        archs=("gfx1151",),
        build=6900,
        base="b" * 40,
        tip="t" * 40,
        commits=("one",),
        ids=("one",),
    )
    repository = SimpleNamespace(tree_of=lambda _: TREE)
    monkeypatch.setattr(verify, "find_toolchain", lambda *_: toolchain)
    monkeypatch.setattr(verify, "make_subject", lambda *_: SimpleNamespace(reporter=NullReporter()))
    monkeypatch.setattr(verify, "find_candidate", lambda *_: (repository, candidate))
    runs = count()  # nothing of an earlier run is reused here
    monkeypatch.setattr(verify, "key_of_run", lambda *_, full: f"run {next(runs)}, {full}")
    series = SeriesDir(root=ROOT, origin="checkout")
    workspace = Workspace(series=series, cache_root=tmp_path / "cache", reporter=NullReporter())

    def start(
        *,
        only: tuple[str, ...] = (),
        archs: tuple[str, ...] = ("gfx1151",),
        then: Callable[[Path], None] | None = None,
        **answers: str | BaseException,
    ) -> verify.Report:
        candidate.archs = archs
        names = {entry.gate: entry.name for entry in entries("anywhere")}

        def load(reference: str) -> SimpleNamespace:
            name = names[reference]
            return SimpleNamespace(make=lambda _: Gate(name, answers.get(name, "passed")))

        monkeypatch.setattr(verify, "load", load)
        return verify.run_verify(
            workspace, archs=archs, upstream=None, only=only, full=False, environ={}, then=then
        )

    return start


def _document(tmp_path: Path, name: str) -> dict:
    return json.loads((tmp_path / "cache/evidence" / TREE / name).read_text())


def _rows(tmp_path: Path) -> dict[str, tuple[str, str]]:
    gates = _document(tmp_path, "report.json")["gates"]
    return {row["gate"]: (row["verdict"], row["summary"]) for row in gates}


def test_what_passed_leaves_evidence_and_gates_that_need_a_gpu_are_never_passed(run, tmp_path: Path) -> None:
    assert not run().failed
    report = _document(tmp_path, "report.json")
    assert report["ok"] is True
    assert report["gates"][0]["evidence"] == str(tmp_path / "cache/evidence" / TREE / "anchors.json")
    assert _document(tmp_path, "anchors.json")["evidence"] == {"seen": "anchors"}
    rows = _rows(tmp_path)
    assert rows["launch"] == ("passed", "said")
    for name in ("backend-ops", "logits", "bench"):
        assert rows[name][0] == "not run"
        assert "GPU" in rows[name][1]


def test_a_plain_candidate_is_asked_for_what_looks_at_plain_patches(run, tmp_path: Path) -> None:
    """No HIP compiler is looked for, and what needs none is not said to have passed."""
    asked = ("anchors", "cpu-build", "cpu-tests")
    assert run(archs=("plain",)).proven_with == ()
    rows = _rows(tmp_path)
    assert [name for name, row in rows.items() if row[0] == "passed"] == [*asked]
    assert rows.keys() - asked == {"isolation"}
    assert rows["isolation"] == (
        "not run",
        "has nothing to check, because no patch of the candidate has a guard",
    )
    for gate in ("compile", "isolation", "backend-ops"):
        with refused("UNKNOWN_GATE"):
            run(archs=("plain",), only=(gate,))


def test_what_passed_on_an_emulated_gpu_is_no_failure_and_is_kept_apart(run, tmp_path: Path) -> None:
    report = run(launch="passed (emulated)")
    assert not report.failed
    assert _document(tmp_path, "report.json")["ok"] is True
    assert _rows(tmp_path)["launch"][0] == "passed (emulated)"
    assert _document(tmp_path, "launch.json")["verdict"] == "passed (emulated)"


def test_a_second_run_over_the_same_tree_waits_for_the_first(run, tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path\n"
        "from patchkit.base.reporter import NullReporter\n"
        "from patchkit.prove.subject import lock_evidence\n"
        "with lock_evidence(Path(sys.argv[1]), sys.argv[2], NullReporter()):\n"
        "    print('held', flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "cache"), TREE],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        second = threading.Thread(target=run, daemon=True)
        second.start()
        second.join(0.5)
        assert second.is_alive()
        assert not (tmp_path / "cache/evidence" / TREE).exists()
        first.communicate("")
        second.join(60)
    assert _document(tmp_path, "report.json")["ok"] is True


def test_a_failure_stops_and_the_rest_is_not_passed(run, tmp_path: Path) -> None:
    report = run(isolation="failed")
    assert report.failed
    assert [problem.message for problem in verify.failures(report)] == ["wrong"]
    assert _document(tmp_path, "report.json")["ok"] is False
    assert _rows(tmp_path)["compile"] == ("not run", "skipped: gate isolation failed")
    assert _document(tmp_path, "isolation.json")["problems"][0]["code"] == "GATE"
    assert not (tmp_path / "cache/evidence" / TREE / "compile.json").exists()


def test_a_gate_that_could_not_run_does_not_stop_the_others(run, tmp_path: Path) -> None:
    run(isolation="not run")
    rows = _rows(tmp_path)
    assert (rows["isolation"][0], rows["compile"][0]) == ("not run", "passed")


def test_what_is_not_asked_for_is_listed(run, tmp_path: Path) -> None:
    run(only=("compile",))
    rows = _rows(tmp_path)
    assert rows["anchors"] == rows["bench"] == ("not run", "skipped: not selected with --gate")
    assert rows["compile"][0] == "passed"


@pytest.mark.parametrize(("name", "says"), [("bench", "cannot run here"), ("isolat", "unknown gate")])
def test_an_unknown_gate_is_refused(run, name: str, says: str) -> None:
    with pytest.raises(verify.UnknownGate, match=says) as caught:
        run(only=("isolation", name))
    assert "isolation" in (caught.value.hint or "")


def test_what_was_proven_before_a_gate_broke_is_kept_and_the_rest_is_not_run(run, tmp_path: Path) -> None:
    with pytest.raises(ToolchainError) as caught:
        run(compile=CRASH)
    assert caught.value is CRASH
    report = _document(tmp_path, "report.json")
    assert (report["ok"], report["stopped"]) == (False, "TOOL_CRASHED")
    rows = _rows(tmp_path)
    assert rows["isolation"][0] == "passed"
    assert rows["compile"] == ("not run", "clang++ was ended by SIGSEGV")
    assert rows["resources"] == ("not run", "skipped: gate compile could not run")
    assert _document(tmp_path, "compile.json")["problems"][0]["why"] == "a stack"
    assert _document(tmp_path, "isolation.json")["evidence"] == {"seen": "isolation"}


@pytest.mark.parametrize("error", [CRASH, KeyboardInterrupt()])
def test_reports_are_made_of_a_run_that_ended_in_the_middle(
    run, tmp_path: Path, error: BaseException
) -> None:
    seen: list[tuple[bool, str | None]] = []

    def look(folder: Path) -> None:
        report = json.loads((folder / "report.json").read_text())
        seen.append((report["ok"], report["stopped"]))

    run(then=look)
    with pytest.raises(type(error)):
        run(compile=error, then=look)
    is_interrupted = isinstance(error, KeyboardInterrupt)
    assert seen == [(True, None), (False, "INTERRUPTED" if is_interrupted else "TOOL_CRASHED")]
    told = _document(tmp_path, "compile.json")["summary"]
    assert told == ("interrupted" if is_interrupted else CRASH.message)


def test_a_report_that_cannot_be_written_does_not_hide_why_the_run_ended(run) -> None:
    def refuse(folder: Path) -> None:
        raise CacheError(f"no room beside {folder}", code="DISK_FULL")

    with pytest.raises(ToolCrashed) as caught:
        run(compile=CRASH, then=refuse)
    assert caught.value is CRASH
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
        run(compile=full)
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
    with refused("SDK_UNUSABLE", match="does not support gfx1201"):
        run(archs=("gfx1201",))
    assert not (tmp_path / "cache/evidence").exists()
