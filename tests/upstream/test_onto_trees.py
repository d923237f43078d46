"""``apply --onto`` on real trees: builds, commits between their tags, and an owner's edit beside a patch.

The history is made here, of the trees of the corpus; a commit between two tags has some files of the later
build.
"""

from __future__ import annotations

import json
import shutil
import tomllib
from collections import Counter
from pathlib import Path

import pytest
from caches import link_kept
from command_line import run_patchkit
from demo_world import git
from shipped import recorded_opt_in

pytestmark = [pytest.mark.upstream, pytest.mark.slow, pytest.mark.thorough]

CUDA = "ggml/src/ggml-cuda"
CORPUS = tomllib.loads((Path(__file__).parent / "corpus.toml").read_text())["pin"]
TREES = {int(row["name"][1:]): row["tree"] for row in CORPUS}
WITH_ALL = tuple(f"--with={name}" for name in recorded_opt_in("gfx1151", 11549))

# Where the owner writes his notes: beside the lines that the patches for builds 6900, 10068 and 11549 edit.
NEIGHBOURS = {
    "fattn.cu": ("switch (Q->ne[0]) {", "const int cc = "),
    "ggml-cuda.cu": ("return (ggml_backend_buft_is_cuda(buft) && buft->device == dev)",),
    "fattn-tile.cuh": ("if (GGML_CUDA_CC_IS_RDNA(cc)) {",),
}

# A commit after the tag of a build: the files that it has from a later one.
BETWEEN = {
    "b6900 and the selection of b7079": (6900, 7079, ("fattn.cu", "fattn-common.cuh")),
    "b7551 and the selection and tiles of b8156": (7551, 8156, ("fattn.cu", "fattn-tile.cuh")),
    "b11063 and all of attention of b11549": (
        11063,
        11549,
        ("fattn.cu", "fattn-tile.cuh", "fattn-common.cuh"),
    ),
}


class History:
    """A bare upstream with one tagged commit per build of the corpus, and clones of it."""

    def __init__(self, cache: Path, folder: Path) -> None:
        self.cache, self.folder = cache, folder
        self.upstream = folder / "upstream.git"
        git(folder, "init", "-q", "--bare", "-b", "master", str(self.upstream))
        alternates = self.upstream / "objects" / "info" / "alternates"
        alternates.write_text(f"{cache / 'upstream.git' / 'objects'}\n")
        parent: tuple[str, ...] = ()
        for build, tree in sorted(TREES.items()):
            commit = git(self.upstream, "commit-tree", tree, *parent, "-m", f"upstream b{build}")
            git(self.upstream, "tag", f"b{build}", commit)
            parent = ("-p", commit)
        git(self.upstream, "update-ref", "refs/heads/master", parent[1])

    def clone(self, name: str, build: int, *, later: tuple[int, tuple[str, ...]] | None = None) -> Path:
        """An owner's clone at a build, with the files of a later one, if any, and an edit of his own."""
        clone = self.folder / name
        git(self.folder, "clone", "-q", "--shared", "--no-checkout", str(self.upstream), str(clone))
        git(clone, "switch", "-q", "-c", "mine", f"b{build}")
        if later is not None:
            git(clone, "checkout", "-q", f"b{later[0]}", "--", *(f"{CUDA}/{file}" for file in later[1]))
            git(clone, "commit", "-q", "-m", "a commit between the tags")
        for file, neighbours in NEIGHBOURS.items():
            path = clone / CUDA / file
            text = path.read_text()
            for neighbour in neighbours:
                text = text.replace(neighbour, f"/* the owner's note */ {neighbour}")
            path.write_text(text)
        git(clone, "commit", "-q", "-am", "an edit of the owner's")
        return clone

    def patchkit(self, *args: str, code: int | None = 0) -> dict:
        done = run_patchkit(args[0], "--cache-dir", self.cache, "--json", *args[1:])
        assert code is None or done.returncode == code, (done.stdout[-2000:], done.stderr[-2000:])
        return json.loads(done.stdout)

    def added(self, at: Path, base: str, tip: str) -> dict[str, Counter[str]]:
        """The lines that the patches add, by file, in any order."""
        out = git(at, "diff", "-U0", "--no-color", base, tip)
        found: dict[str, Counter[str]] = {}
        name = ""
        for line in out.splitlines():
            if line.startswith("+++ "):
                name = line[6:]
            elif line.startswith("+"):
                found.setdefault(name, Counter())[line[1:].strip()] += 1
        return found


@pytest.fixture(scope="module")
def history(checkout: Path, test_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> History:
    """Of the trees in the corpus cache, fetched where they are missing; patchkit works on a copy."""
    folder = tmp_path_factory.mktemp("history")
    series = folder / "series"
    for name in ("patches", "templates", "arch_profiles"):
        if (checkout / name).is_dir():
            shutil.copytree(checkout / name, series / name)
    (series / "templates").mkdir(exist_ok=True)
    shutil.copy(Path(__file__).parent / "corpus.toml", series / "patches" / "upstream.lock")
    corpus = test_cache / "corpus"
    where = ("--series-dir", series, "--cache-dir", corpus)
    for build in TREES:
        done = run_patchkit("plan", *where, "--arch", "gfx1151", "--upstream", f"b{build}", "--json")
        assert done.returncode == 0, done.stderr
    cache = folder / "cache"
    shutil.copytree(corpus / "upstream.git", cache / "upstream.git", copy_function=link_kept)
    return History(cache, folder)


@pytest.mark.parametrize(("build", "asked"), [(6900, ()), (10068, ()), (11549, WITH_ALL)])
def test_beside_an_edit_of_the_owners_every_patch_lands_as_on_the_pin(history, build, asked):
    clone = history.clone(f"at-{build}", build)
    pin = history.patchkit(
        "apply", "--arch", "gfx1151", "--onto", f"b{build}", "--repo", str(clone), "--branch", "pin", *asked
    )
    mine = history.patchkit("apply", "--arch", "gfx1151", "--onto", "HEAD", "--repo", str(clone), *asked)
    assert [each["id"] for each in mine["commits"]] == [each["id"] for each in pin["commits"]] != []
    assert {each["class"] for each in mine["classes"]} <= {"clean", "moved", "out of range", "off", "retired"}
    before = history.added(clone, pin["base"], pin["commits"][-1]["commit"])
    after = history.added(clone, mine["base"], mine["commits"][-1]["commit"])
    assert after == before
    git(clone, "merge", "-q", "--ff-only", "patchkit/gfx1151")
    assert any("the owner's note" in (clone / name).read_text() for name in after)
    assert git(clone, "status", "--porcelain") == ""


@pytest.mark.parametrize("name", BETWEEN)
def test_between_two_tags_a_patch_lands_in_its_function_or_both_sides_are_named(history, name):
    build, later, files = BETWEEN[name]
    clone = history.clone(f"after-{build}", build, later=(later, files))
    asked = WITH_ALL if build > 10000 else ()
    onto = ("--arch", "gfx1151", "--repo", str(clone), *asked)
    told = history.patchkit("plan", "--onto", "HEAD", *onto, code=None)
    if "error" in told:
        members = told["error"].get("errors", [told["error"]])
        assert members[-1]["code"] == "ONTO_CONFLICT"
        places = [place["path"] for each in members for place in each["where"]]
        assert any(place.endswith("patch.toml") for place in places), members
        assert any(place.startswith(CUDA) for place in places), members
    reference = history.patchkit("plan", "--onto", f"b{build}", *onto)
    entities = {
        (patch["id"], edit["id"]): (edit["file"], edit["entity"])
        for patch in reference["patches"]
        for edit in patch["edits"]
    }
    placed = [(patch["id"], edit) for patch in told["patches"] for edit in patch["edits"]]
    assert placed
    for patch, edit in placed:
        assert (edit["file"], edit["entity"]) == entities[patch, edit["id"]]
