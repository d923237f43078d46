"""Compilers that crash, hang or are too old, and disks without room, met by the real thing."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from shipped import ROOT, SEED, recorded
from small_disk import on_small_disk

from patchkit.base.errors import ExitCode
from patchkit.base.reporter import NullReporter
from patchkit.toolchain.compile import CompilerCrashed, Job, compile_unit
from patchkit.toolchain.compiler import open_compiler
from patchkit.toolchain.hip import Toolchain
from patchkit.toolchain.units import SourceTree

pytestmark = pytest.mark.hip

_UNIT = "ggml/src/ggml-cuda/k.cu"
_KERNEL = """\
#include <hip/hip_runtime.h>
template<int n> __global__ void k(float * x) {
#pragma unroll
    for (int i = 0; i < n; i++) { x[i * threadIdx.x] += x[i] * i; }
}
"""
_TREE = recorded("gfx1151", 6900).tree


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree of one unit whose assembly has some 100 kB."""
    path = tmp_path / "tree" / _UNIT
    path.parent.mkdir(parents=True)
    kernels = "".join(f"template __global__ void k<{n}>(float *);\n" for n in range(64, 70))
    path.write_text(_KERNEL + kernels)
    return tmp_path / "tree"


@pytest.fixture
def rocm_of(hip_toolchain: Toolchain, tmp_path: Path) -> Callable[[str], Path]:
    """A ROCm whose compiler is a script: these lines, which may misbehave, then the real compiler."""

    def make(lines: str) -> Path:
        root = tmp_path / "rocm"
        (root / "lib/llvm/bin").mkdir(parents=True)
        (root / "amdgcn").mkdir()
        (root / "include").symlink_to(hip_toolchain.root / "include")
        (root / "amdgcn/bitcode").symlink_to(hip_toolchain.device_libs)
        clang = root / "lib/llvm/bin/clang++"
        clang.write_text(f'#!/bin/sh\n{lines}\nexec "{hip_toolchain.clang}" "$@"\n')
        clang.chmod(0o755)
        return root

    return make


def _verify(cache: Path, rocm: Path, *more: str) -> list[str]:
    where = [*SEED, "--cache-dir", str(cache)]
    return [sys.executable, "-m", "patchkit", "verify", "--no-gpu", *where, *more]


def _environment(rocm: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "ROCM_PATH": str(rocm)}


@pytest.fixture
def applied(pin_cache: Path) -> Path:
    argv = [
        sys.executable,
        "-m",
        "patchkit",
        "apply",
        *SEED,
        "--cache-dir",
        str(pin_cache),
    ]
    subprocess.run(argv, check=True, capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    return pin_cache


def _entries(cache: Path) -> list[Path]:
    """What looks like a finished entry of the store with code in it."""
    return [
        path for path in (cache / "objects").glob("[0-9a-f][0-9a-f]/*/output") if path.parent.name[0] != "."
    ]


def test_a_crash_of_the_real_compiler_is_told_with_what_it_said(
    hip_toolchain: Toolchain, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "crashes").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "crashes"))  # clang puts what reproduces it there
    unit = tree / _UNIT
    good = unit.read_text()
    unit.write_text("#pragma clang __debug crash\n")
    compiler = open_compiler(hip_toolchain, tmp_path / "cache", NullReporter())
    job = Job(tree=SourceTree(tree), unit=_UNIT, arch="gfx1151", which="device")
    with pytest.raises(CompilerCrashed, match=r"killed by SIG(ILL|TRAP|ABRT) on ggml") as caught:
        compile_unit(job, compiler)
    (log,) = (tmp_path / "cache/objects/failed").iterdir()
    assert str(log) in (caught.value.hint or "")
    assert "PLEASE submit a bug report" in log.read_text()
    assert _entries(tmp_path / "cache") == []
    unit.write_text(good)
    fresh = Job(tree=SourceTree(tree), unit=_UNIT, arch="gfx1151", which="device")
    assert len(compile_unit(fresh, compiler).kernels) == 6


# Compiles the unit below argv[1] into the cache argv[2] with the pickled toolchain on stdin.
_COMPILE = """
import pickle, resource, sys
from pathlib import Path
from patchkit.toolchain.compile import Job, compile_unit
from patchkit.toolchain.compiler import open_compiler
from patchkit.toolchain.units import SourceTree
from patchkit.base.errors import PatchkitError
from patchkit.base.reporter import NullReporter

chain = pickle.loads(sys.stdin.buffer.read())
compiler = open_compiler(chain, Path(sys.argv[2]), NullReporter())
if len(sys.argv) > 3:
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), int(sys.argv[3])))
job = Job(tree=SourceTree(Path(sys.argv[1])), unit="ggml/src/ggml-cuda/k.cu", arch="gfx1151", which="device")
try:
    print("kernels", len(compile_unit(job, compiler).kernels))
except PatchkitError as error:
    print("error", error.code)
files = (path for path in Path(sys.argv[2]).rglob("*") if path.is_file())
# What the front end left is whole, as long as its facts are there; so is the list of what it opened.
holds = lambda folder, *names: all((folder / name).is_file() for name in names)
whole = lambda folder: holds(folder, "unit.bc", "facts.json") or holds(folder, "opened.json")
files = (path for path in files if not whole(path.parent))
print(sorted({path.parent.name for path in files}))
"""


@pytest.mark.parametrize("limit", [0, 20_000])
def test_a_limit_on_the_size_of_files_leaves_no_entry(
    hip_toolchain: Toolchain, tree: Path, tmp_path: Path, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "crashes").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "crashes"))
    done = subprocess.run(
        [sys.executable, "-c", _COMPILE, str(tree), str(tmp_path / "cache"), str(limit)],
        input=pickle.dumps(hip_toolchain),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=False,
    )
    assert done.stdout.decode().splitlines()[0] == "error DISK_FULL", done
    assert _entries(tmp_path / "cache") == []


@pytest.mark.parametrize("kilobytes", [8, 64])
def test_a_disk_that_is_really_full_leaves_no_entry(
    hip_toolchain: Toolchain, tree: Path, tmp_path: Path, kilobytes: int
) -> None:
    """The cache on a small tmpfs in a mount namespace; where those are forbidden the test above stands."""
    mount = tmp_path / "small"
    done = subprocess.run(
        [
            *on_small_disk(mount, kilobytes),
            *(sys.executable, "-c", _COMPILE, str(tree), str(mount / "cache")),
        ],
        input=pickle.dumps(hip_toolchain),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=False,
    )
    told, left = done.stdout.decode().splitlines()
    assert told == "error DISK_FULL"
    assert left in {"[]", "['failed']"}  # what the compiler said, when there was room for that


@pytest.mark.slow
def test_verify_ends_with_the_crash_and_says_so_in_the_evidence(
    applied: Path, rocm_of: Callable[[str], Path]
) -> None:
    rocm = rocm_of('case " $* " in *" -S "*) kill -SEGV $$;; esac')
    argv = _verify(applied, rocm, "--gate", "anchors", "--gate", "compile", "--gate", "resources")
    done = subprocess.run(argv, env=_environment(rocm), capture_output=True, text=True, check=False)
    assert done.returncode == ExitCode.TOOLCHAIN, done.stderr
    assert "error[COMPILER_CRASHED]: clang++ was killed by SIGSEGV on ggml/src/ggml-cuda/" in done.stderr
    report = json.loads((applied / "evidence" / _TREE / "report.json").read_text())
    assert (report["ok"], report["stopped"]) == (False, "COMPILER_CRASHED")
    assert {row["gate"]: row["verdict"] for row in report["gates"]}["anchors"] == "passed"
    assert [path for path in _entries(applied) if not (path / "facts.json").is_file()] == []


@pytest.mark.slow
def test_ctrl_c_ends_the_compilers_and_leaves_no_entry(
    applied: Path, rocm_of: Callable[[str], Path], tmp_path: Path
) -> None:
    mark = tmp_path / "compiling"
    rocm = rocm_of(f'case " $* " in *" -S "*) echo $$ >> "{mark}"; exec sleep 600;; esac')
    argv = _verify(applied, rocm, "--gate", "compile")
    with subprocess.Popen(argv, env=_environment(rocm), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "gate compile" in line:
                break
        while not mark.exists():
            assert process.poll() is None
            os.sched_yield()
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
        assert process.wait() == ExitCode.INTERRUPTED, said
    for pid in mark.read_text().split():
        assert not Path(f"/proc/{pid}/cmdline").exists() or b"sleep" not in _command(pid)
    assert _entries(applied) == []
    report = json.loads((applied / "evidence" / _TREE / "report.json").read_text())
    assert (report["ok"], report["stopped"]) == (False, "INTERRUPTED")


def _command(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_a_compiler_that_does_not_know_the_gpu_is_refused(
    applied: Path, rocm_of: Callable[[str], Path]
) -> None:
    rocm = rocm_of("case \"$*\" in *supported-cpus*) echo '  gfx1100'; exit 0;; esac")
    done = subprocess.run(
        _verify(applied, rocm), env=_environment(rocm), capture_output=True, text=True, check=False
    )
    assert done.returncode == ExitCode.TOOLCHAIN
    assert "error[SDK_UNUSABLE]: clang" in done.stderr
    assert "does not support gfx1151" in done.stderr
    assert not (applied / "evidence").exists()


def test_a_disk_without_room_for_the_trees_is_told(applied: Path, hip_toolchain: Toolchain, tmp_path) -> None:
    mount = tmp_path / "small"
    used = sum(path.stat().st_size for path in applied.rglob("*") if path.is_file())
    script = f"cp -a '{applied}' '{mount}/cache' && exec \"$@\""
    argv = on_small_disk(mount, used // 1024 + 8000, script)
    verify = _verify(mount / "cache", tmp_path, "--gate", "anchors")
    done = subprocess.run(
        [*argv, *verify],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == ExitCode.CACHE, done.stderr
    assert "error[DISK_FULL]" in done.stderr
