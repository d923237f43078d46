"""Real code of llama.cpp laid out as other projects on ggml have it, and the marks and signs on real trees.

The trees are those of the corpus. A project's tree is made of one of them: the folder ``ggml`` moved to where
the project has it, and a file by which it is recognised.
"""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import run_patchkit
from demo_world import git
from shipped import LOCK, ROOT
from thorough import ordinary

from patchkit.base.reporter import NullReporter
from patchkit.base.upstreams import llama_cpp
from patchkit.carry.judging.preconditions import has_sign
from patchkit.carry.onto.builds_by_code import find_builds_by_code
from patchkit.carry.placing.tree import read_upstream
from patchkit.carry.series.catalogue import load_series
from patchkit.carry.upstream.cache import open_cache

pytestmark = [pytest.mark.upstream, pytest.mark.network]

CORPUS = tomllib.loads((Path(__file__).parent / "corpus.toml").read_text())["pin"]
TREES = {int(row["name"][1:]): row["tree"] for row in CORPUS}
SERIES = load_series(ROOT / "patches")

# What the code of a tree shows, and the build ranges of the faults do not: the host-buffer fault was upstream
# before, for another reason (PR 13895 until PR 16308).
EARLIER = {6628: {"host-buffers-read-directly"}}
# Its build range ends with the first tree that was run without it, the code shows the fix before (PR 21566).
FIXED = {9093: {"fused-gate-race"}}


@pytest.fixture(scope="module")
def corpus(test_cache: Path) -> Path:
    """The cache of the corpus."""
    return test_cache / "corpus"


@pytest.fixture(scope="module")
def fetch(corpus: Path, checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], None]:
    """Fetches the tree of a build into the cache, by a series whose lock has a pin for each of them."""
    series = tmp_path_factory.mktemp("corpus") / "series"
    for name in ("patches", "templates", "arch_profiles"):
        shutil.copytree(checkout / name, series / name)
    shutil.copy(Path(__file__).parent / "corpus.toml", series / "patches" / "upstream.lock")

    def run(build: int) -> None:
        where = ("--series-dir", series, "--cache-dir", corpus)
        done = run_patchkit("plan", *where, "--arch=gfx1151", f"--upstream=b{build}")
        assert done.returncode == 0, done.stderr

    return run


@pytest.mark.parametrize("build", ordinary([*TREES], (6900, 10068, 11549)))
def test_the_code_of_every_known_tree_shows_its_build_and_faults(corpus, fetch, build):
    fetch(build)
    repository = open_cache(corpus).peek(NullReporter())
    files = read_upstream(repository, f"refs/patchkit/pin/b{build}", SERIES.read)
    marks = llama_cpp().marks
    there = {mark for mark in marks if has_sign(mark.sign, files)}
    assert there == {mark for mark in marks if mark.covers(build)}
    build_range = find_builds_by_code(marks, there)
    assert build_range.low <= build <= (build_range.high or build)
    coded = [fault for fault in SERIES.faults if fault.code]
    shown = {fault.id for fault in coded if all(has_sign(sign, files) for sign in fault.code)}
    known = {fault.id for fault in coded if fault.builds.covers(build)}
    assert shown == known.union(EARLIER.get(build, ())) - FIXED.get(build, set())


# Where each project has ggml, and a file by which it is recognised.
LAYOUTS = {
    "ggml": ("", ()),
    "whisper.cpp": ("ggml/", ("include/whisper.h",)),
    "ollama": ("ml/backend/ggml/ggml/", ("ml/backend/ggml/ggml.go",)),
    "stable-diffusion.cpp in vendor/sd/": ("vendor/sd/ggml/", ("vendor/sd/stable-diffusion.h",)),
}


def project(folder: Path, corpus: Path, build: int, prefix: str, others: tuple[str, ...]) -> Path:
    """A repository of one commit: that build's ggml at ``prefix``, and empty ``others``."""
    git(folder.parent, "init", "-q", "-b", "main", str(folder))
    objects = folder / ".git" / "objects" / "info" / "alternates"
    objects.write_text(f"{corpus / 'upstream.git' / 'objects'}\n")
    where = f"--prefix={prefix}" if prefix else "--empty"
    if prefix:
        git(folder, "read-tree", where, f"{TREES[build]}:ggml")
    else:
        git(folder, "read-tree", f"{TREES[build]}:ggml")
    git(folder, "checkout-index", "-a", "-q")
    for name in others:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
        git(folder, "add", name)
    git(folder, "commit", "-q", "-m", f"ggml of b{build}")
    return folder


def apply(corpus: Path, repo: Path, *args: str) -> dict:
    done = run_patchkit(
        *("apply", "--cache-dir", corpus, "--json", "--arch=gfx1151", "--onto=HEAD", "--repo", repo, *args)
    )
    assert done.returncode == 0, (done.stdout[-2000:], done.stderr[-2000:])
    return json.loads(done.stdout)


def blobs(repo: Path, base: str, tip: str, prefix: str) -> dict[str, str]:
    """The ids of the changed files, by their path below ``prefix``; all changed files are below it."""
    rows = git(repo, "diff-tree", "-r", "--no-renames", base, tip).splitlines()
    changed = {row.split("\t")[1]: row.split("\t")[0].split()[3] for row in rows}
    assert all(path.startswith(prefix) for path in changed)
    return {path.removeprefix(prefix): blob for path, blob in changed.items()}


@pytest.mark.slow
@pytest.mark.parametrize("build", ordinary([10068, 11549], (10068,)))
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_copy_of_ggml_gets_the_same_bytes_as_llama_cpp(corpus, fetch, tmp_path, name, build):
    fetch(build)
    prefix, others = LAYOUTS[name]
    repo = project(tmp_path / "clone", corpus, build, prefix, others)
    done = apply(corpus, repo)
    assert done["onto"]["project"] == name
    assert done["onto"]["build"]["low"] <= build <= (done["onto"]["build"]["high"] or build)
    assert not [each for each in done["faults"] if each["refused"]]
    got = blobs(repo, done["base"], done["commits"][-1]["commit"], f"{prefix}src/ggml-cuda/")
    pin = LOCK.pin(f"b{build}")
    recorded = max(
        (one for one in LOCK.results if (one.pin, one.archs) == (pin.name, ("gfx1151",))),
        key=lambda one: -len(one.patches),
    )
    assert [each["id"] for each in done["commits"]] == list(recorded.patches)
    lock_repo = open_cache(corpus).peek(NullReporter()).path
    run_patchkit("apply", "--cache-dir", corpus, "--arch=gfx1151", f"--upstream=b{build}")
    assert got == blobs(lock_repo, pin.tree, recorded.tree, "ggml/src/ggml-cuda/")


@pytest.mark.slow
def test_a_fault_of_the_code_stops_apply_if_its_patch_is_excluded(corpus, fetch, tmp_path):
    fetch(10068)
    repo = project(tmp_path / "clone", corpus, 10068, "", ())
    asked = ("--onto=HEAD", "--repo", repo, "--without=integrated-host-buffers", "--json")
    done = run_patchkit("apply", "--cache-dir", corpus, "--arch=gfx1151", *asked)
    error = json.loads(done.stdout)["error"]
    assert error["code"] == "FAULT_UNMENDED"
    assert "host-buffers-read-directly on gfx1151" in error["why"]
    # The flag set to false, as PR 28604 did, and nothing else: the same build, without the fault.
    source = repo / "src" / "ggml-cuda" / "ggml-cuda.cu"
    text = source.read_text()
    assert text.count("integrated = prop.integrated;") == 1
    source.write_text(text.replace("integrated = prop.integrated;", "integrated = false;"))
    git(repo, "commit", "-q", "-am", "as PR 28604")
    done = run_patchkit("plan", "--cache-dir", corpus, "--arch=gfx1151", *asked)
    assert done.returncode == 0, done.stdout
    found = json.loads(done.stdout)
    assert "host-buffers-read-directly" not in {each["id"] for each in found["faults"]}
