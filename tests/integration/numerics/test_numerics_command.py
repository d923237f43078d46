"""patchkit numerics through the command line, on the real candidate; what needs a GPU is recorded."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from caches import link_kept
from command_line import patchkit_process, run_patchkit

from patchkit.base.errors import ExitCode
from patchkit.cli.app import main

ROOT = Path(__file__).resolve().parents[3]
RECORD = ROOT / "tests" / "unit" / "gates" / "numerics" / "recorded" / "h200-b6900.tar.xz"
GUARD = "defined(GGML_USE_HIP) && defined(GGML_HIP_ROCWMMA_FATTN)"
CUDA = "ggml/src/ggml-cuda"


@pytest.fixture
def cache(built: Path, tmp_path: Path) -> Path:
    """A cache with the candidate and the trees that its bundle was made of."""
    return shutil.copytree(built.with_name("cache"), tmp_path / "cache", copy_function=link_kept)


@pytest.fixture
def patchkit(cache: Path, capsys) -> Callable[..., tuple[int, str, str]]:
    """Runs one command on that cache; gives its exit code and both outputs."""

    def run(*argv: str) -> tuple[int, str, str]:
        returned = main([*argv, "--cache-dir", str(cache)])
        out, err = capsys.readouterr()
        return returned, out, err

    return run


@pytest.fixture(scope="module")
def built(shipped_apply, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle of the candidate, and beside it the cache it was made in; to be copied."""
    folder = tmp_path_factory.mktemp("numerics") / "bundle"
    cache = shutil.copytree(shipped_apply[0], folder.with_name("cache"), copy_function=link_kept)
    where = ("--arch", "gfx1151", "--cache-dir", cache)
    done = run_patchkit("numerics", "build", folder, *where)
    assert done.returncode == 0, done.stderr
    assert "sh run.sh" in done.stdout
    return folder


@pytest.fixture
def bundle(built: Path, tmp_path: Path) -> Path:
    """The bundle, for a test of its own."""
    return shutil.copytree(built, tmp_path / "bundle")


def _files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def test_a_bundle_is_the_same_each_time_and_never_written_over(
    bundle: Path, patchkit, tmp_path: Path
) -> None:
    code, out, err = patchkit("numerics", "build", str(tmp_path / "again"), "--arch", "gfx1151", "--json")
    assert code == 0, err
    assert json.loads(out)["ok"] is True
    assert _files(tmp_path / "again") == _files(bundle)
    code, _, err = patchkit("numerics", "build", str(bundle), "--arch", "gfx1151")
    assert code == ExitCode.USAGE
    assert "error[BUNDLE_EXISTS]" in err


def test_the_kernel_is_forced_on_by_structure(bundle: Path) -> None:
    kernel = (bundle / "forced" / CUDA / "fattn-wmma-f16.cu").read_text()
    before = (bundle / "candidate" / CUDA / "fattn-wmma-f16.cu").read_text()
    assert GUARD in before
    assert GUARD not in kernel
    assert "GGML_CUDA_CC_OFFSET_AMD" not in kernel
    assert kernel.count("#if 0") == before.count("#if 0") + 1  # the variant that only CUDA has
    table = (bundle / "forced" / CUDA / "fattn-wmma-config.cuh").read_text()
    assert table.count('#include "patchkit-rows.inc"') == 1
    assert "    GGML_CUDA_FATTN_WMMA_CONFIG_CASE(" not in table
    selection = (bundle / "forced" / CUDA / "fattn.cu").read_text()
    plain = (bundle / "candidate" / CUDA / "fattn.cu").read_text()
    start = selection.index("        float patchkit_cap;") - len("    {\n")
    end = start + len(selection) - len(plain)
    assert selection[:start] + selection[end:] == plain  # nothing but the one block
    assert (
        plain[start:].startswith("    const bool can_use_vector_kernel =")
        or "can_use_vector_kernel" in (plain[start : start + 200])
    )


def test_what_is_measured_is_what_the_profiles_render(bundle: Path) -> None:
    manifest = json.loads((bundle / "numerics.json").read_text())
    assert [table["name"] for table in manifest["tables"]] == [
        "gfx1151",
        "gfx1100",
        "gfx1201",
        "alternatives",
    ]
    assert all(len(table["points"]) == 23 for table in manifest["tables"][:3])
    header = (bundle / "candidate" / CUDA / "fattn-wmma-config.cuh").read_text()
    for size, columns, acc, stride, warps in manifest["tables"][0]["points"]:
        row = f"CASE({size:3}, {columns}, {2 if acc == 'f16' else 4}, {stride:3}, {warps:2},"
        assert row in header
    for name in ("run.sh", "job.sh"):
        assert subprocess.run(["sh", "-n", str(bundle / name)], check=False).returncode == 0


def test_recorded_results_are_judged_for_their_candidate_only(bundle: Path, patchkit) -> None:
    mine = json.loads((bundle / "numerics.json").read_text())
    with tarfile.open(RECORD) as archive:
        archive.extractall(bundle, filter="data")
    record = json.loads((bundle / "numerics.json").read_text())
    trees = {name: mine[name] for name in ("candidate_tree", "baseline_tree")}
    (bundle / "numerics.json").write_text(json.dumps(record | trees))
    code, out, err = patchkit("numerics", "judge", str(bundle), "--arch", "gfx1151", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert (found["ok"], found["verdict"]) == (True, "passed")
    kept = json.loads(Path(found["evidence_file"]).read_text())
    assert kept["evidence"]["counts"]["failed"] == 0
    (bundle / "numerics.json").write_text(json.dumps(record | trees | {"candidate_tree": "f" * 40}))
    code, out, err = patchkit("numerics", "judge", str(bundle), "--arch", "gfx1151")
    assert code == ExitCode.GATE_FAILED
    assert "numerics failed" in out
    assert "error[NUMERICS_FOREIGN]" in err
    code, _, err = patchkit("numerics", "run", str(bundle), "--arch", "gfx1151")
    assert (code, "error[NUMERICS_FOREIGN]" in err) == (ExitCode.GATE_FAILED, True)


def test_a_bundle_that_was_not_run_is_not_judged(bundle: Path, patchkit) -> None:
    code, _, err = patchkit("numerics", "judge", str(bundle), "--arch", "gfx1151")
    assert code == ExitCode.TOOLCHAIN
    assert "error[NUMERICS_RESULTS_MISSING]" in err
    code, _, err = patchkit("numerics", "judge", str(bundle.parent), "--arch", "gfx1151")
    assert code == ExitCode.USAGE
    assert "error[NOT_A_BUNDLE]" in err
    code, _, err = patchkit("numerics", "judge", str(bundle), "--arch", "gfx1151", "--all-legal")
    assert code == ExitCode.USAGE


def test_without_an_nvidia_gpu_nothing_is_run(bundle: Path, patchkit, monkeypatch, tmp_path: Path) -> None:
    # A folder with links to what git needs, and no nvidia-smi.
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("git", "sh"):
        (tools / name).symlink_to(f"/usr/bin/{name}")
    monkeypatch.setenv("PATH", str(tools))
    code, _, err = patchkit("numerics", "run", str(bundle), "--arch", "gfx1151")
    assert code == ExitCode.TOOLCHAIN
    assert "error[NVIDIA_GPU_MISSING]" in err
    assert not (bundle / "results").exists()


def test_a_full_disk_leaves_no_bundle(patchkit, cache: Path, tmp_path: Path) -> None:
    code, _, err = patchkit("numerics", "build", str(tmp_path / "first"), "--arch", "gfx1151")
    assert code == 0, err  # the trees are in the cache now
    done = patchkit_process(
        *("numerics", "build", tmp_path / "b", "--arch", "gfx1151", "--cache-dir", cache),
        before="import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))",
    )
    assert done.returncode == ExitCode.CACHE, done.stderr
    assert "error[DISK_FULL]" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir() if "b" in path.name.split(".")) == []


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder with an nvidia-smi that names one GPU."""
    folder = tmp_path / "tools"
    folder.mkdir()
    (folder / "nvidia-smi").write_text("#!/bin/sh\necho 'A GPU, 1.2, 9.0'\n")
    (folder / "nvidia-smi").chmod(0o755)
    return folder


def _script(folder: Path, what: str, path: str) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": path, "LANES": "2"}
    return subprocess.run(
        ["sh", str(folder / "run.sh"), what], env=environ, capture_output=True, text=True, check=False
    )


def _scripts(tmp_path: Path) -> Path:
    folder = tmp_path / "small"
    folder.mkdir()
    for name in ("run.sh", "job.sh"):
        text = (ROOT / "patchkit" / "gates" / "numerics" / "native" / name).read_bytes()
        (folder / name).write_bytes(text)
    return folder


def test_run_sh_tells_what_is_missing(tmp_path: Path, tools: Path) -> None:
    folder = _scripts(tmp_path)
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("sh", "mkdir", "dirname"):
        (bare / name).symlink_to(f"/usr/bin/{name}" if Path(f"/usr/bin/{name}").exists() else f"/bin/{name}")
    done = _script(folder, "run", str(bare))
    assert (done.returncode, "no NVIDIA GPU" in done.stderr) == (4, True)
    if not Path("/usr/local/cuda/bin/nvcc").exists():
        done = _script(folder, "build", f"{tools}:{bare}")
        assert (done.returncode, "no nvcc" in done.stderr) == (3, True)


_NINJA = """rule make
  command = sh make.sh $out
build bin/ops: make equal/baseline/a.cu.o equal/candidate/a.cu.o equal/baseline/b.cu.o equal/candidate/b.cu.o
build equal/baseline/a.cu.o: make
build equal/candidate/a.cu.o: make
build equal/baseline/b.cu.o: make
build equal/candidate/b.cu.o: make
"""


def test_run_sh_builds_again_what_differs(tmp_path: Path, tools: Path) -> None:
    """``a`` differs in its first build only, as nvcc's objects now and then do; ``b`` always does."""
    folder = _scripts(tmp_path)
    (folder / "equal").mkdir()
    (tools / "nvcc").write_text("#!/bin/sh\necho 'release 13.0, V13.0.88'\n")
    (tools / "nvcc").chmod(0o755)
    (tools / "ninja").symlink_to(Path(sys.executable).with_name("ninja"))
    (folder / "build.ninja").write_text(_NINJA)
    (folder / "make.sh").write_text(
        'echo once >> "$1.builds"\necho same > "$1"\n'
        'case $1 in */b.cu.o) echo "$1" > "$1";; esac\n'
        'case $1 in equal/baseline/a*) [ "$(wc -l < "$1.builds")" -gt 1 ] || echo odd > "$1";; esac\n'
    )
    done = _script(folder, "build", f"{tools}:/usr/bin:/bin")
    assert done.returncode == 0, done.stderr
    sums = [line.split() for line in (folder / "results" / "objects.txt").read_text().splitlines()]
    of = {name: [digest for digest, one in sums if one == name] for _, name in sums}
    assert len(set(of["baseline/a.cu.o"])) == 2
    assert of["baseline/a.cu.o"][-1] == of["candidate/a.cu.o"][-1]
    assert set(of["baseline/b.cu.o"]).isdisjoint(of["candidate/b.cu.o"])
    builds = {name: len((folder / f"equal/baseline/{name}.cu.o.builds").read_text().split()) for name in "ab"}
    assert builds == {"a": 2, "b": 4}
    assert "built again, because the two objects differ: a.cu.o b.cu.o" in done.stderr


def test_run_sh_keeps_how_each_job_ended(tmp_path: Path, tools: Path) -> None:
    folder = _scripts(tmp_path)
    (folder / "results").mkdir()
    (folder / "results" / "old.status").write_text("0 1\n")
    (folder / "fails.sh").write_text("echo half; exit 1\n")
    (folder / "hangs.sh").write_text("exec sleep 60\n")
    (folder / "dies.sh").write_text("kill -SEGV $$\n")
    (folder / "jobs.txt").write_text(
        "good 20 echo hsk=(64|80),\nfails 20 sh fails.sh\nhangs 1 sh hangs.sh\ndies 20 sh dies.sh\n"
    )
    (folder / "jobs-alone.txt").write_text("alone 20 echo alone\n")
    done = _script(folder, "run", f"{tools}:/usr/bin:/bin")
    assert done.returncode == 0, done.stderr
    statuses = {path.stem: path.read_text().split()[0] for path in (folder / "results").glob("*.status")}
    assert statuses == {"good": "0", "fails": "1", "hangs": "124", "dies": "139", "alone": "0"}
    assert (folder / "results" / "good.out").read_text() == "hsk=(64|80),\n"
    assert (folder / "results" / "fails.out").read_text() == "half\n"
    assert "A GPU" in (folder / "results" / "gpu-after.csv").read_text()


def test_what_run_sh_started_does_not_outlive_it(tmp_path: Path, tools: Path) -> None:
    folder = _scripts(tmp_path)
    (folder / "long.sh").write_text("echo $$ > pid.partial; mv pid.partial pid; exec sleep 600\n")
    (folder / "jobs.txt").write_text("long 600 sh long.sh\n")
    environ = {"PATH": f"{tools}:/usr/bin:/bin"}
    argv = ["sh", str(folder / "run.sh"), "run"]
    with subprocess.Popen(argv, env=environ, stderr=subprocess.DEVNULL, start_new_session=True) as process:
        until = time.monotonic() + 60
        while not (folder / "pid").exists():
            assert time.monotonic() < until
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGTERM)  # as patchkit does on Ctrl-C
        process.wait(timeout=60)
    started = int((folder / "pid").read_text())
    while time.monotonic() < until and Path(f"/proc/{started}").exists():
        time.sleep(0.05)
    assert not Path(f"/proc/{started}").exists()
    assert not (folder / "results" / "long.status").exists()


@pytest.fixture
def cuda_machine(tools: Path, tmp_path: Path, monkeypatch) -> Path:
    """PATH and CUDA_HOME of a machine with the GPU and nvcc of the record; its nvcc compiles nothing."""
    (tools / "nvidia-smi").write_text("#!/bin/sh\necho 'NVIDIA H200, 580.159.04, 9.0'\n")
    home = tmp_path / "cuda"
    (home / "bin").mkdir(parents=True)
    (home / "include").mkdir()
    (home / "include" / "cublas_v2.h").write_text("")
    nvcc = home / "bin" / "nvcc"
    nvcc.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && { echo "release 13.0, V13.0.88"; exit 0; }\n'
        'echo "nvcc fatal: this one compiles nothing" >&2\nexit 1\n'
    )
    nvcc.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    monkeypatch.setenv("CUDA_HOME", str(home))
    for name in ("CC", "CXX"):  # nor does anything else, so that a build ends at once
        monkeypatch.setenv(name, "false")
    return home


def test_verify_runs_numerics_where_there_is_an_nvidia_gpu(patchkit, cache: Path, cuda_machine: Path) -> None:
    argv = ("verify", "--arch", "gfx1151", "--gate", "numerics", "--json")
    code, out, _ = patchkit(*argv)
    assert code == ExitCode.TOOLCHAIN
    assert json.loads(out)["error"]["code"] == "NUMERICS_BUILD_FAILED"
    report = json.loads(next((cache / "evidence").glob("*/report.json")).read_text())
    assert {row["verdict"] for row in report["gates"]} == {"not run"}
    # The record in place of what this machine cannot compute: same GPU, driver and nvcc.
    (folder,) = (cache / "numerics").iterdir()
    mine = (folder / "numerics.json").read_text()
    with tarfile.open(RECORD) as archive:
        archive.extractall(folder, filter="data")
    trees = {name: json.loads(mine)[name] for name in ("candidate_tree", "baseline_tree")}
    record = json.loads((folder / "numerics.json").read_text()) | trees
    (folder / "numerics.json").write_text(json.dumps(record))
    code, out, err = patchkit(*argv)
    assert code == 0, err
    rows = {row["gate"]: row for row in json.loads(out)["gates"]}
    assert rows["numerics"]["verdict"] == "passed"
    assert "results of an earlier run taken again" in rows["numerics"]["summary"]
    # Another driver: nothing is taken again, and this machine still cannot compile it.
    smi = cuda_machine.parent / "tools" / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho 'NVIDIA H200, 590.1, 9.0'\n")
    code, out, _ = patchkit(*argv)
    assert json.loads(out)["error"]["code"] == "NUMERICS_BUILD_FAILED"


def test_a_gpu_without_nvcc_is_a_gate_not_run(patchkit, tools: Path, monkeypatch, cuda_machine: Path) -> None:
    monkeypatch.delenv("CUDA_HOME")
    monkeypatch.setattr("patchkit.gates.numerics.cuda._roots", list)
    code, out, err = patchkit("verify", "--arch", "gfx1151", "--gate", "numerics", "--json")
    assert code == 0, err
    rows = {row["gate"]: row for row in json.loads(out)["gates"]}
    assert rows["numerics"]["verdict"] == "not run"
    assert "there is no nvcc" in rows["numerics"]["summary"]
