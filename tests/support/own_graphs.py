"""Programs of ours with graphs of ggml's, and trees that have one patch of the series and no other."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from command_line import run_patchkit
from emulated_trees import ARCH, CORPUS, ROOT
from filelock import FileLock

from patchkit.base.reporter import NullReporter
from patchkit.carry.upstream.cache import open_cache
from patchkit.carry.upstream.exported import export_tree
from patchkit.toolchain.sides import BuiltSide


def compile_with_ggml(program: Path, side: BuiltSide, tree: Path, folder: Path) -> Path:
    """The program, linked with the ggml of a side; made once in ``folder``."""
    made = folder / f"{program.stem}-{side.identity}"
    if not made.is_file():
        includes = [f"-I{tree / name}" for name in ("include", "ggml/include")]
        libraries = [f"-L{side.folder}", "-lggml", "-lggml-base", f"-Wl,-rpath,{side.folder}"]
        argv = ["c++", "-std=c++17", "-O1", *includes, str(program), *libraries, "-o", str(made)]
        subprocess.run(argv, check=True, timeout=600)
    return made


def tree_with(
    patch: str, build: int, *, needs: Sequence[str] = (), test_cache: Path, gates_cache: Path, folder: Path
) -> Path:
    """The tree of a build with this patch and those it ``needs``; the series is copied to ``folder``."""
    series = folder / "series"
    for name in ("patches", "templates", "arch_profiles"):
        shutil.copytree(ROOT / name, series / name)
    shutil.copy(CORPUS, series / "patches" / "upstream.lock")
    cache = test_cache / "corpus"
    where = ("--series-dir", series, "--cache-dir", cache, "--upstream", f"b{build}", "--arch", ARCH)
    with FileLock(test_cache / "corpus.lock"):
        named = [part for name in (*needs, patch) for part in ("--with", name, "--only", name)]
        done = run_patchkit("apply", *where, *named, "--unlocked", "--json")
        assert done.returncode == 0, done.stderr
        repository = open_cache(cache).peek(NullReporter())
        assert repository is not None
        tip = json.loads(done.stdout)["commits"][-1]["commit"]
        return export_tree(repository, tip, gates_cache / "trees").root
