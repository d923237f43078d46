"""patchkit try on the real pin: one patch that touches one unit, compiled, compared, and watched."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import run_patchkit
from demo_world import git
from shipped import ROOT

from patchkit.base.errors import ExitCode
from patchkit.prove.trying import instructions_of

pytestmark = pytest.mark.hip

PATCH = "ssm-scan-barrier"
ONLY = ("--arch", "gfx1151", "--upstream", "b6900", "--only", PATCH, "--with", PATCH, "--no-run")


def _refs(cache: Path) -> str:
    argv = ["git", "-C", str(cache / "upstream.git"), "for-each-ref", "refs/heads"]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def test_the_kernels_that_a_patch_changes_are_named_and_nothing_moves(gates_cache: Path) -> None:
    before = _refs(gates_cache)
    done = run_patchkit("try", *ONLY, "--against", "upstream", "--json", "--cache-dir", gates_cache)
    assert done.returncode == ExitCode.OK, done.stderr
    told = json.loads(done.stdout)
    assert (told["patches"], told["units"], told["checked"]) == ([PATCH], 1, [])
    names = {row["variant"].split("<")[0] for row in told["kernels"]}
    assert names == {"ssm_scan_f32"}
    assert {row["unit"] for row in told["kernels"]} == {"ggml/src/ggml-cuda/ssm-scan.cu"}
    assert _refs(gates_cache) == before


def test_a_commit_of_ones_own_clone_is_tried_and_only_read(gates_cache: Path, tmp_path: Path) -> None:
    clone, unit = tmp_path / "clone", "ggml/src/ggml-cuda/argmax.cu"
    git(tmp_path, "init", "-q", str(clone))
    alternates = clone / ".git" / "objects" / "info" / "alternates"
    alternates.write_text(f"{gates_cache / 'upstream.git' / 'objects'}\n")
    pin = git(gates_cache / "upstream.git", "rev-parse", "refs/patchkit/pin/b6900^{tree}")
    git(clone, "read-tree", pin)
    text = git(clone, "show", f"{pin}:{unit}") + "\n// mine\n"
    (tmp_path / "mine").write_text(text)
    blob = git(clone, "hash-object", "-w", str(tmp_path / "mine"))
    git(clone, "update-index", "--cacheinfo", f"100644,{blob},{unit}")
    mine = git(clone, "commit-tree", git(clone, "write-tree"), "-m", "mine")
    git(clone, "update-ref", "HEAD", mine)
    before, refs = _refs(gates_cache), git(clone, "for-each-ref")
    onto = ("--onto", "HEAD", "--repo", clone, "--as-build", "b6900")
    told = ("--arch", "gfx1151", "--only", PATCH, "--with", PATCH, "--no-run", "--against", "upstream")
    done = run_patchkit("try", *told, *onto, "--json", "--cache-dir", gates_cache)
    assert done.returncode == ExitCode.OK, done.stderr
    found = json.loads(done.stdout)
    assert (found["patches"], found["build"], found["commit"]) == ([PATCH], 6900, mine[:12])
    assert found["before"] == f"your {mine[:12]}"
    assert {row["variant"].split("<")[0] for row in found["kernels"]} == {"ssm_scan_f32"}
    assert (_refs(gates_cache), git(clone, "for-each-ref")) == (before, refs)


@pytest.fixture
def series(tmp_path: Path) -> Path:
    """A copy of the series, to be edited."""
    for name in ("patches", "templates", "arch_profiles"):
        shutil.copytree(ROOT / name, tmp_path / "series" / name)
    return tmp_path / "series"


def _next(lines: Iterator[str], part: str) -> str:
    return next(line for line in lines if part in line)


def test_each_save_is_tried_again_until_ctrl_c(gates_cache: Path, series: Path) -> None:
    argv = [sys.executable, "-m", "patchkit", "try", *ONLY, "--against", "upstream", "--watch"]
    argv += ["--series-dir", str(series), "--cache-dir", str(gates_cache)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        watchdog = threading.Timer(300, process.kill)
        watchdog.start()
        try:
            assert process.stdout is not None
            lines = iter(process.stdout)
            assert "9 kernels changed" in _next(lines, "kernels changed")
            _next(lines, "waiting for a change")
            toml = next((series / "patches").glob(f"*-{PATCH}")) / "patch.toml"
            good = toml.read_text()
            toml.write_text(good.replace("__syncthreads();", "__syncthreads("))
            _next(lines, "error[")
            _next(lines, "waiting for a change")
            toml.write_text(good.replace("__syncthreads();", "__syncthreads(); __syncthreads();"))
            assert "9 kernels changed" in _next(lines, "kernels changed")
            _next(lines, "waiting for a change")
            process.send_signal(signal.SIGINT)
            assert process.wait() == ExitCode.INTERRUPTED
        finally:
            watchdog.cancel()
            process.kill()


def test_watching_has_no_document(gates_cache: Path) -> None:
    done = run_patchkit("try", *ONLY, "--watch", "--json", "--cache-dir", gates_cache)
    assert done.returncode == ExitCode.USAGE
    assert "--watch cannot be combined with --json" in done.stderr


ASSEMBLY = """
k:
.LBB0_1:                                ; %entry
\t.loc\t1 7 0
\ts_load_b64 s[0:1], s[0:1], 0x0
.Ltmp0:
\ts_cbranch_scc1 .LBB0_1
\ts_endpgm
\t.section\t.rodata
"""


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("1 7 0", "1 8 0", True),
        ("%entry", "%.lr.ph", True),
        (".LBB0_1", ".LBB3_1", True),
        (".Ltmp0", ".Ltmp9", True),
        ("0x0", "0x8", False),
        ("s_cbranch_scc1", "s_cbranch_scc0", False),
        (".LBB0_1\n\ts_endpgm", ".LBB0_2\n\ts_endpgm", False),
    ],
)
def test_code_is_compared_without_lines_and_names(old: str, new: str, *, same: bool) -> None:
    before, after = (instructions_of(text, "k") for text in (ASSEMBLY, ASSEMBLY.replace(old, new)))
    assert (before == after) is same
