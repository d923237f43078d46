"""Commits that have the names of ggml's files, but contents that no upstream file has."""

from __future__ import annotations

from pathlib import Path

import pytest
from demo_world import git

from patchkit.base.errors import ExitCode
from patchkit.cli.app import main


@pytest.mark.parametrize(("size", "known"), [(1 << 10, "by its code"), (9 << 20, "unknown")])
def test_status_does_not_search_a_huge_file(size: int, known: str, tmp_path: Path, capsys) -> None:
    clone = tmp_path / "clone"
    kernels = clone / "ggml" / "src" / "ggml-cuda"
    kernels.mkdir(parents=True)
    (kernels / "ggml-cuda.cu").write_text("int x;\n")
    (kernels / "common.cuh").write_text("static float warp_reduce_sum(float x) { return x; }\n")
    (clone / "ggml" / "include").mkdir()
    for name in ("include/ggml.h", "CMakeLists.txt"):
        (clone / "ggml" / name).write_text("\n")
    (kernels / "mmq.cuh").write_bytes(b"int y;\n".ljust(size))
    git(clone, "init", "--quiet")
    git(clone, "add", "--all")
    git(clone, "-c", "user.name=a", "-c", "user.email=a@localhost", "commit", "--quiet", "-m", "x")
    assert (
        main(["status", "--onto", "HEAD", "--repo", str(clone), "--cache-dir", str(tmp_path / "c")])
        == ExitCode.OK
    )
    (line,) = (each for each in capsys.readouterr().out.splitlines() if "as in llama.cpp" in each)
    assert known in line


def test_status_does_not_give_a_build_to_other_files_with_the_names_of_ggml(tmp_path: Path, capsys) -> None:
    clone = tmp_path / "clone"
    kernels = clone / "src" / "ggml-cuda"
    kernels.mkdir(parents=True)
    (clone / "include").mkdir()
    (clone / "include" / "ggml.h").write_text("words\n")
    for name in ("common.cuh", "ggml-cuda.cu", "mmq.cuh", "top-k.cu"):
        (kernels / name).write_text("words and words\n")
    git(clone, "init", "--quiet")
    git(clone, "add", "--all")
    git(clone, "-c", "user.name=a", "-c", "user.email=a@localhost", "commit", "--quiet", "-m", "x")
    status = main(["status", "--onto", "HEAD", "--repo", str(clone), "--cache-dir", str(tmp_path / "c")])
    shown = capsys.readouterr()
    assert (status, shown.out) == (ExitCode.USAGE, "")
    assert "has no GPU code of ggml" in shown.err
