"""Compiling one unit: caching and errors; the compilers are shell scripts."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from toolchains import script_compiler

from patchkit.base.errors import CacheError
from patchkit.base.process import ToolFailed, ToolMissing, ToolTimeout
from patchkit.base.reporter import NullReporter
from patchkit.toolchain.compile import CompileFailed, CompilerCrashed, Job, compile_unit
from patchkit.toolchain.compiler import Compiler, open_compiler
from patchkit.toolchain.preprocess import PreprocessFailed, Reading, reading_digest
from patchkit.toolchain.units import SourceTree

UNIT = "ggml/src/ggml-cuda/k.cu"

# Writes what a device pass writes: assembly of one kernel, and its remarks.
_GOOD = r"""
echo run >> "$HOME/runs"
for word; do [ "$last" = -o ] && out=$word; last=$word; done
case "$*" in *-E*) echo 'int x;'; exit 0;; esac
cat > "$out" <<END

_Z1kv:
 s_endpgm
 .section .rodata
 .amdhsa_kernel _Z1kv
amdhsa.kernels:
  - .args:
    .max_flat_workgroup_size: 64
    .name:           _Z1kv
END
tail='[-Rpass-analysis=kernel-resource-usage]'
for line in "Function Name: _Z1kv" "TotalSGPRs: 8" "VGPRs: 24" "ScratchSize [bytes/lane]: 0" \
  "Occupancy [waves/SIMD]: 16" "SGPRs Spill: 0" "VGPRs Spill: 0" "LDS Size [bytes/block]: 0"; do
  echo "k.cu:1:1: remark: $line $tail" >&2
done
echo "k.cu:3:7: warning: unused variable 'x' [-Wunused-variable]" >&2
"""


@pytest.fixture
def tree(tmp_path: Path) -> SourceTree:
    path = tmp_path / "tree" / UNIT
    path.parent.mkdir(parents=True)
    path.write_text('#include "k.cuh"\n#define A_UNIT_THAT_STANDS_FOR_ITSELF\n')
    (path.parent / "k.cuh").write_text("int x;\n")
    return SourceTree(tmp_path / "tree")


@pytest.fixture
def compiler_of(tmp_path: Path) -> Callable[[str], Compiler]:
    return lambda script: script_compiler(tmp_path / "prefix", script, tmp_path / "cache")


def _job(tree: SourceTree) -> Job:
    return Job(tree=tree, unit=UNIT, arch="gfx1151", which="device")


def _runs() -> int:
    log = Path(os.environ["HOME"]) / "runs"
    return len(log.read_text().splitlines()) if log.exists() else 0


def test_a_unit_is_compiled_once_with_its_diagnostics(tree: SourceTree, compiler_of) -> None:
    compiler = compiler_of(_GOOD)
    first, second = compile_unit(_job(tree), compiler), compile_unit(_job(tree), compiler)
    assert (first.cached, second.cached, _runs()) == (False, True, 2)
    assert second == replace(first, cached=True)
    (kernel,) = first.kernels
    assert (kernel.name, kernel.figures.vgprs, kernel.threads, kernel.is_trap) == ("_Z1kv", 24, 64, False)
    assert [str(found.where) for found in first.diagnostics] == ["k.cu:3:7"]
    assert "s_endpgm" in first.output.read_text()


def test_only_changes_that_affect_the_output_recompile(tree: SourceTree, compiler_of, tmp_path) -> None:
    compiler = compiler_of(_GOOD)
    compile_unit(_job(tree), compiler)
    (tree.root / "ggml/src/ggml-cuda/other.cuh").write_text("not included")
    assert compile_unit(_job(SourceTree(tree.root)), compiler).cached
    assert not compile_unit(replace(_job(tree), arch="gfx1100"), compiler).cached
    assert compile_unit(replace(_job(tree), rocwmma=False), compiler).cached  # nothing reads its macro
    (tree.root / "ggml/src/ggml-cuda/k.cuh").write_text("int y;\n")
    assert not compile_unit(_job(SourceTree(tree.root)), compiler).cached
    (tree.root / "ggml/src/ggml-cuda/k.cuh").write_text("#ifdef GGML_HIP_ROCWMMA_FATTN\n#endif\n")
    for rocwmma in (True, False):
        assert not compile_unit(replace(_job(SourceTree(tree.root)), rocwmma=rocwmma), compiler).cached
    assert not compile_unit(_job(tree), compiler_of(_GOOD + "# another compiler\n")).cached


def test_a_prefix_that_moved_is_the_same_compiler(tree: SourceTree, compiler_of, tmp_path: Path) -> None:
    compiler = compiler_of(_GOOD)
    compile_unit(_job(tree), compiler)
    moved = replace(compiler.toolchain, root=tmp_path / "elsewhere", device_libs=tmp_path / "elsewhere")
    assert compile_unit(_job(tree), open_compiler(moved, tmp_path / "cache", NullReporter())).cached


@pytest.mark.parametrize(
    ("script", "error", "expected"),
    [
        ("echo 'ggml/src/a.cuh:3:7: error: no member x' >&2; exit 1", CompileFailed, "no member x"),
        ("echo 'PLEASE submit a bug report to ...' >&2; exit 139", CompilerCrashed, "clang crashed on"),
        ("echo 'error: unable to write: No space left on device' >&2; exit 1", CacheError, "compiling"),
        ("kill -SEGV $$", CompilerCrashed, "killed by SIGSEGV on ggml/src/ggml-cuda/k.cu"),
        ("kill -KILL $$", CompilerCrashed, "killed by SIGKILL"),
        ("kill -XFSZ $$", CacheError, "File too large"),
        ("exit 153", CacheError, "File too large"),
        ("exit 3", ToolFailed, "status 3"),
        ('touch "$HOME/x"; for w; do [ "$l" = -o ] && : > "$w"; l=$w; done', None, ""),
    ],
    ids=[
        "error",
        "crash",
        "disk full",
        "signal",
        "killed",
        "size limit",
        "size limit of a wrapper",
        "status",
        "no kernels",
    ],
)
def test_each_failure_has_its_error_and_leaves_no_entry(
    tree: SourceTree, compiler_of, tmp_path: Path, script: str, error, expected: str
) -> None:
    compiler = compiler_of(script)
    if error is None:
        assert compile_unit(_job(tree), compiler).kernels == ()
        return
    with pytest.raises(error, match=expected) as caught:
        compile_unit(_job(tree), compiler)
    assert error is not CacheError or caught.value.code == "DISK_FULL"
    left = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert all(path.parent.name == "failed" for path in left)
    if error in {CompileFailed, CompilerCrashed}:
        assert any(str(path) in (caught.value.hint or "") for path in left)  # its output is kept
    if error is CompileFailed:
        assert str(caught.value.where[0]) == "ggml/src/a.cuh:3:7"
        assert left
        assert str(left[0]) in (caught.value.hint or "")


def test_a_compiler_that_hangs_is_stopped_and_leaves_no_entry(
    tree: SourceTree, compiler_of, tmp_path: Path
) -> None:
    with pytest.raises(ToolTimeout, match=r"did not end within 0\.2 s"):
        compile_unit(_job(tree), compiler_of("sleep 60"), timeout_s=0.2)
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []
    assert compile_unit(_job(tree), compiler_of(_GOOD)).kernels  # and the next run tries again


def test_a_missing_compiler_and_a_bad_cache_have_their_errors(
    tree: SourceTree, compiler_of, tmp_path
) -> None:
    compiler = compiler_of(_GOOD)
    (tmp_path / "cache").write_text("a file in the way")
    with pytest.raises(CacheError):
        compile_unit(_job(tree), compiler)
    (tmp_path / "cache").unlink()
    compiler.toolchain.clang.unlink()
    with pytest.raises(ToolMissing):
        compile_unit(_job(tree), compiler)


def test_a_copied_cache_is_reused(tree: SourceTree, compiler_of, tmp_path: Path) -> None:
    """With the toolchain, empty headers and kept files in the cache, as an SDK's user has them."""
    first, second = tmp_path / "cache", tmp_path / "elsewhere" / "copied"

    def work(compiler: Compiler) -> tuple[str, str]:
        cache = compiler.store.root.parent
        flags = ("-Xclang", str(cache / "objects" / "ab" / "markers"), "-isystem", str(cache / "stand-in"))
        unit = compile_unit(replace(_job(tree), form="object", flags=flags), compiler)
        reading = Reading(tree=tree, unit=UNIT, flags=("-x", "cuda", *flags), name="cuda")
        return unit.key, reading_digest(reading, compiler)

    def compiler_in(cache: Path) -> Compiler:
        chain = replace(outside.toolchain, root=cache / "sdk" / "usr", clang=cache / "sdk" / "clang++")
        return open_compiler(chain, cache, NullReporter())

    outside = compiler_of(_GOOD)
    (first / "sdk").mkdir(parents=True)
    shutil.copy2(outside.toolchain.clang, first / "sdk" / "clang++")
    made = work(compiler_in(first))
    runs = _runs()
    shutil.copytree(first, second)
    shutil.rmtree(first)
    assert work(compiler_in(second)) == made
    assert _runs() == runs


def test_readings_are_cached_and_errors_are_not(tree: SourceTree, compiler_of) -> None:
    compiler = compiler_of(_GOOD)
    reading = Reading(tree=tree, unit=UNIT, flags=("-x", "cuda"), name="cuda sm_70 device")
    assert reading_digest(reading, compiler) == reading_digest(reading, compiler)
    assert _runs() == 1
    broken = compiler_of("echo 'k.cu:1:1: fatal error: unterminated #if' >&2; exit 1")
    with pytest.raises(PreprocessFailed, match="for cuda sm_70 device: unterminated #if") as caught:
        reading_digest(reading, broken)
    assert str(caught.value.where[0]) == "k.cu:1:1"
