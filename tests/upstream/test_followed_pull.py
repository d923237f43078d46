"""A pull request for the real code, from its import to the build that has it, with trees of the corpus."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from demo_world import World, git, pin_text
from filelock import FileLock

from patchkit.base.reporter import NullReporter
from patchkit.carry.series.lock import load_lock
from patchkit.carry.upstream.cache import open_cache
from patchkit.carry.upstream.pin import obtain

pytestmark = [pytest.mark.upstream, pytest.mark.network, pytest.mark.slow]
LOCK = load_lock(Path(__file__).parent / "corpus.toml")
MMQ = "ggml/src/ggml-cuda/mmq.cu"
PLACE = "GGML_CUDA_CC_IS_RDNA3_0(cc) ? 128 : {}"
KNOWN = 'without = "w"\nexpected = { effect = "e", source = "s" }\n'


class Remote:
    """A repository with one commit for each tree, which borrows the objects of the corpus."""

    def __init__(self, folder: Path, objects: Path) -> None:
        self.folder = folder
        git(folder.parent, "init", "-q", "--bare", "-b", "master", folder.name)
        (folder / "objects/info/alternates").write_text(f"{objects}\n")
        git(folder, "config", "uploadpack.allowAnySHA1InWant", "true")
        git(folder, "config", "uploadpack.allowFilter", "true")

    def commit(self, tree: str, parent: str | None, message: str, *refs: str) -> str:
        parents = ("-p", parent) if parent is not None else ()
        made = git(self.folder, "commit-tree", *parents, "-m", message, tree)
        for ref in refs:
            git(self.folder, "update-ref", ref, made)
        return made

    def changed(self, commit: str, number: int) -> str:
        """The tree of a commit with another number of columns for Q6_K."""
        text = git(self.folder, "show", f"{commit}:{MMQ}") + "\n"
        new, count = re.subn(re.escape(PLACE.format("")) + r"\d+", PLACE.format(number), text)
        assert count == 1
        done = subprocess.run(
            ["git", "-C", str(self.folder), "hash-object", "-w", "--stdin"],
            input=new.encode(), check=True, capture_output=True,
        )  # fmt: skip
        git(self.folder, "read-tree", commit)
        git(self.folder, "update-index", "--cacheinfo", f"100644,{done.stdout.decode().strip()},{MMQ}")
        return git(self.folder, "write-tree")


@pytest.fixture
def remote(test_cache, tmp_path):
    cache = open_cache(test_cache / "corpus")
    with FileLock(test_cache / "corpus.lock"):
        for build in (10068, 11549):
            obtain(LOCK.pin(f"b{build}"), cache=cache, reporter=NullReporter())
    made = Remote(tmp_path / "upstream", cache.upstream / "objects")
    first = made.commit(LOCK.pin("b10068").tree, None, "as b10068", "refs/tags/b10068", "refs/heads/master")
    made.commit(LOCK.pin("b11549").tree, first, "as b11549", "refs/tags/b11549", "refs/heads/master")
    made.commit(made.changed("b10068", 1024), first, "CUDA: more columns for Q6_K", "refs/pull/7/head")
    return made


@pytest.fixture
def world(remote, checkout, tmp_path):
    world = World(tmp_path, checkout)
    (world.series / "patches").mkdir(parents=True)
    (world.series / "templates").mkdir()
    (world.series / "patches" / "series.toml").write_text('folders = ["ggml/src/ggml-cuda/"]\n')
    shutil.copytree(checkout / "arch_profiles", world.series / "arch_profiles")
    profile = world.series / "arch_profiles" / "gfx1151.toml"
    profile.write_text(re.sub(r"(?ms)^\[patches\]\n.*?(?=^\[|\Z)", "[patches]\n\n", profile.read_text()))
    world.lock.write_text(pin_text(remote.folder, 10068))
    return world


def said(world, *args: str, code: int = 0):
    done = world.run(*args, "--json")
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def test_from_its_import_to_the_build_that_has_it(world, remote) -> None:
    url = str(remote.folder)
    made = said(world, "import", "--pr", "7", "--url", url, "--guard", "gfx1151", "--id", "q6k")
    assert [edit["function"] for edit in made["edits"]] == ["ggml_cuda_should_use_mmq"]
    (path,) = (world.series / "patches").glob("*-q6k/patch.toml")
    path.write_text(path.read_text().replace("[builds]", f'why = "w"\n{KNOWN}\n[builds]', 1))
    said(world, "lock", "--arch", "gfx1151", "--with", "q6k")

    remote.commit(remote.changed("b10068", 2048), "b10068", "more still", "refs/pull/7/head")
    (found,) = said(world, "status", "--fetch")["pulls"]
    (difference,) = found["differences"]
    assert (found["state"], difference["place"]) == ("changed", f"ggml_cuda_should_use_mmq in {MMQ}")
    assert ["2048" in text for text in difference["removed"] + difference["added"]] == [False, True]

    updated = said(world, "import", "--update", "q6k")
    assert updated["patch"]["same_as_diff"].startswith("token for token, for gfx1151")
    assert "? 2048 : 256" in path.read_text()
    assert KNOWN in path.read_text()
    said(world, "lock", "--arch", "gfx1151", "--with", "q6k")

    tree = remote.changed("b11549", 2048)
    remote.commit(tree, "b11549", "CUDA: more columns (#7)", "refs/heads/master", "refs/tags/b11600")
    done = said(world, "bump", "--to", "b11600", "--no-verify", code=3)
    (patch,) = done["candidates"][0]["patches"]
    assert (patch["id"], patch["class"]) == ("q6k", "upstreamed")
    assert "reverted from upstream" in patch["proof"][0]
    (found,) = done["pulls"]
    assert (found["state"], found["in_pin"], found["merged"]["build"]) == ("merged", True, 11600)
