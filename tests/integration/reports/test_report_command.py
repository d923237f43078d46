"""``patchkit report``, and the options of ``verify`` that write reports, through the command line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from adopted import adopt
from command_line import process_environment, process_start, run_patchkit
from shipped import SEED

from patchkit.base.errors import ExitCode
from patchkit.prove.report.registry import FORMATS

ROOT = Path(__file__).resolve().parents[3]
WHOLE = ROOT / "tests" / "corpus" / "evidence" / "whole"


def run(*argv: str) -> tuple[int, str, str]:
    """The exit code of a command, and what it wrote and said."""
    done = run_patchkit(*argv)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("form", "begin"),
    [
        ("terminal", "candidate/gfx1151/b6900  GPUs gfx1151, upstream"),
        ("markdown", "## candidate/gfx1151/b6900: Nothing failed: of 12 gates 7 passed"),
        ("junit", "<?xml version="),
        ("sarif", '{\n "$schema"'),
    ],
)
def test_each_format_goes_to_stdout_or_to_a_file(tmp_path: Path, form: str, begin: str) -> None:
    code, out, err = run("report", str(WHOLE), "--format", form)
    assert (code, err) == (0, "")
    assert out.lstrip().startswith(begin)
    file = tmp_path / "report"
    code, nothing, err = run("report", str(WHOLE), "--format", form, "--out", str(file))
    assert (code, nothing, err) == (0, "", "")
    assert file.read_text("utf-8") == out
    assert list(tmp_path.iterdir()) == [file]


def test_json_tells_what_is_in_the_evidence(tmp_path: Path) -> None:
    page = tmp_path / "r.html"
    code, out, _ = run("report", str(WHOLE), "--json", "--format", "markdown", "--out", str(page))
    document = json.loads(out)
    assert (code, document["ok"], document["written"]) == (0, True, str(page))
    assert {gate["gate"]: gate["verdict"] for gate in document["gates"]}["bench"] == "not run"
    assert {"gate": "bench", "what": "not run: needs the GPU"} in document["not_proven"]
    assert page.is_file()


@pytest.mark.parametrize(
    ("where", "code", "error"),
    [
        ("nowhere", ExitCode.USAGE, "EVIDENCE_MISSING"),
        (".", ExitCode.USAGE, "EVIDENCE_MISSING"),
        ("candidate/gfx1151/b6900", ExitCode.GIT, "CANDIDATE_MISSING"),
        (f"candidate/gfx1151/b{'9' * 5000}", ExitCode.USAGE, "EVIDENCE_MISSING"),
    ],
)
def test_evidence_that_is_not_there_is_said_with_the_next_command(where: str, code: int, error: str) -> None:
    returned, out, err = run("report", where)
    assert (returned, out) == (code, "")
    assert f"error[{error}]" in err
    assert "hint: " in err


def test_broken_evidence_leaves_an_earlier_report_alone(tmp_path: Path) -> None:
    folder = shutil.copytree(WHOLE, tmp_path / "evidence")
    (folder / "launch.json").write_text((folder / "launch.json").read_text()[:-50])
    page = tmp_path / "page.html"
    page.write_text("earlier")
    code, _, err = run("report", str(folder), "--format", "markdown", "--out", str(page))
    assert code == ExitCode.USAGE
    assert "error[EVIDENCE_UNREADABLE]" in err
    assert "launch.json:1:" in err
    assert page.read_text() == "earlier"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["evidence", "page.html"]


@pytest.mark.parametrize("option", [*(f"--{form.name}" for form in FORMATS if form.option), "--summary"])
def test_a_report_that_cannot_be_written_is_told_before_the_run(tmp_path: Path, option: str) -> None:
    missing = tmp_path / "no" / "report"
    code, _, err = run("verify", "--no-gpu", "--arch", "gfx1151", option, str(missing))
    assert code == ExitCode.CACHE
    assert f"no such folder: {missing.parent}" in err
    code, _, err = run("verify", "--no-gpu", "--arch", "gfx1151", option, str(tmp_path))
    assert code == ExitCode.CACHE
    assert "Is a directory" in err


@pytest.mark.extra_tools
def test_a_folder_that_may_not_be_read_is_the_disks_refusal(tmp_path: Path) -> None:
    """Root may read everything, so the command runs without that right; for others this changes nothing."""
    folder = shutil.copytree(WHOLE, tmp_path / "evidence")
    without = ["setpriv", "--inh-caps=-all", "--bounding-set=-all"] if os.geteuid() == 0 else []
    command = [*without, sys.executable, "-m", "patchkit", "report", str(folder)]
    folder.chmod(0)
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    finally:
        folder.chmod(0o700)
    assert done.returncode == ExitCode.CACHE, done.stderr
    assert "error[DISK_REFUSED]: reading the evidence failed: Permission denied" in done.stderr


def test_no_report_is_written_over_what_it_is_made_of(tmp_path: Path) -> None:
    folder = shutil.copytree(WHOLE, tmp_path / "evidence")
    before = (folder / "launch.json").read_bytes()
    (tmp_path / "link").symlink_to(folder / "launch.json")
    for out in (folder / "launch.json", tmp_path / "link"):
        code, _, err = run("report", str(folder), "--out", str(out))
        assert code == ExitCode.USAGE
        assert "error[REPORT_FILE_TAKEN]" in err
    assert (folder / "launch.json").read_bytes() == before


_REPORT = ("report", str(WHOLE), "--out")


@pytest.mark.parametrize(
    ("command", "place"),
    [
        (_REPORT, "/dev/stdout"),
        (_REPORT, "/proc/self/fd/1"),
        (_REPORT, "out"),
        (_REPORT, "link.svg"),
        (("verify", "--no-gpu", "--arch", "gfx1151", "--junit"), "/dev/stdout"),
        (("gate", "--base", "a", "--head", "b", "--summary"), "/dev/stdout"),
    ],
)
def test_a_document_on_stdout_is_alone_there(command: tuple[str, ...], place: str, tmp_path: Path) -> None:
    named = tmp_path / "out"
    (tmp_path / "link.svg").symlink_to(named)
    with named.open("wb") as stdout:
        start = [*process_start(), *command, place, "--json"]
        done = subprocess.run(start, stdout=stdout, check=False, cwd=tmp_path, env=process_environment())
    assert done.returncode == ExitCode.USAGE
    assert json.loads(named.read_text())["error"]["code"] == "STDOUT_TAKEN"


def test_a_document_and_a_report_may_both_be_thrown_away() -> None:
    argv = [sys.executable, "-m", "patchkit", "report", str(WHOLE), "--json", "--out", os.devnull]
    assert subprocess.run(argv, stdout=subprocess.DEVNULL, check=False).returncode == 0


def test_two_reports_of_one_run_need_two_files(tmp_path: Path) -> None:
    one = str(tmp_path / "report")
    code, _, err = run("verify", "--no-gpu", "--arch", "gfx1151", "--junit", one, "--summary", one)
    assert code == ExitCode.USAGE
    assert "error[REPORT_FILE_TAKEN]" in err


def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_text("utf-8")))
    reader.start()
    code, _, err = run("report", str(WHOLE), "--format", "markdown", "--out", str(pipe))
    reader.join()
    assert (code, err) == (0, "")
    assert got[0].startswith("## candidate/gfx1151/b6900")
    assert pipe.is_fifo()


def test_paths_of_the_machine_are_taken_out_of_what_is_handed_on(tmp_path: Path, monkeypatch) -> None:
    cache, home = tmp_path / "cache", tmp_path / "me"
    monkeypatch.setenv("HOME", str(home))
    folder = shutil.copytree(WHOLE, tmp_path / "evidence")
    report = json.loads((folder / "report.json").read_text())
    report["proven_with"] = [f"clang ({cache}/sdk/clang++)", f"rocWMMA ({home}/rocwmma)"]
    problem: dict = {"code": "X", "message": "m", "why": None, "hint": None}
    path = f"{ROOT}/patches/0001-x/patch.toml"
    problem |= {"where": [f"{path}:3"], "places": [{"path": path, "line": 3}]}
    report["gates"][-1]["problems"] = [problem]
    (folder / "report.json").write_text(json.dumps(report))
    for form in (form.name for form in FORMATS if form.name != "terminal"):
        code, out, err = run("report", str(folder), "--format", form, "--cache-dir", str(cache))
        assert code == 0, err
        assert str(tmp_path) not in out
        assert str(ROOT) not in out
        assert "patches/0001-x/patch.toml" in out
    _, out, _ = run("report", str(folder), "--cache-dir", str(cache))
    assert f"{ROOT}/patches/0001-x/patch.toml:3" in out
    assert f"clang ({cache}/sdk/clang++)" in out


@pytest.mark.upstream
@pytest.mark.slow
def test_verify_writes_all_reports_of_its_own_run(candidate_cache: Path, tmp_path: Path) -> None:
    cache = ("--cache-dir", str(candidate_cache))
    names = {name: tmp_path / name for name in ("junit", "sarif", "summary")}
    names["summary"].write_text("before\n")
    options = [part for name, path in names.items() for part in (f"--{name}", str(path))]
    verify = ("verify", "--no-gpu", *SEED, "--gate", "anchors", *options, *cache)
    code, _, err = run(*verify)
    assert code == 0, err
    suite = ET.parse(names["junit"]).getroot()
    assert (suite.get("failures"), suite.get("errors")) == ("0", "0")
    assert json.loads(names["sarif"].read_text())["version"] == "2.1.0"
    summary = names["summary"].read_text("utf-8")
    assert summary.startswith("before\n\n## candidate/gfx1151/b6900: Nothing failed: of 15 gates 1 passed")
    code, out, _ = run("report", "candidate/gfx1151/b6900", *cache)
    assert code == 0
    assert "passed   anchors      12 edits of 4 patches" in out
    assert run("report", *SEED, *cache)[1] == out

    # Then an anchor breaks: the finding lies in the patch.toml, at the line of the edit.
    series = tmp_path / "series"
    for part in ("patches", "templates", "arch_profiles"):
        shutil.copytree(ROOT / part, series / part)
    manifest = next((series / "patches").glob("*-fattn-decode-tile/patch.toml"))
    manifest.write_text(manifest.read_text().replace("get_best_fattn_kernel", "get_worst_fattn_kernel"))
    adopt(candidate_cache, series, "candidate/gfx1151/b6900")
    assert run(*verify, "--series-dir", str(series))[0] == ExitCode.GATE_FAILED
    assert ET.parse(names["junit"]).getroot().get("failures") == "1"
    (analysis,) = json.loads(names["sarif"].read_text())["runs"]
    (result, *_) = analysis["results"]
    place = result["locations"][0]["physicalLocation"]
    uri = manifest.relative_to(series).as_posix()
    assert (result["ruleId"], place["artifactLocation"]) == (
        "ENTITY_NOT_FOUND",
        {"uri": uri, "uriBaseId": "SERIES"},
    )
    line = manifest.read_text().splitlines()[place["region"]["startLine"] - 1]
    assert line.startswith("id = ")
    assert names["summary"].read_text("utf-8").count("## candidate/gfx1151/b6900: ") == 2
