"""Instances of a template are read once: what the head of a unit may say, and what it must not."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.base.reporter import NullReporter
from patchkit.prove.verify.timings import Stopwatch
from patchkit.toolchain.compiler import open_compiler
from patchkit.toolchain.hip import Toolchain
from patchkit.toolchain.preprocess import Reading, head_digest, head_tokens, reading_digest
from patchkit.toolchain.units import SourceTree

pytestmark = pytest.mark.hip

FOLDER = "ggml/src/ggml-cuda"
HEADER = """\
#pragma once
#if defined(GUARDED)
#define ROWS 8
#else
#define ROWS 4
#endif
#define LATER(n) int after_##n[ROWS];
int rows[ROWS];
"""
UNIT = '// made by a script\n\n#include "../tile.cuh"\n\nLATER(a);\n'
FLAGS = ("-x", "c++", "-nostdinc")


class World:
    """Trees with one header and one unit each, and the readings of both."""

    def __init__(self, folder: Path, toolchain: Toolchain) -> None:
        self.folder, self.watch = folder, Stopwatch(NullReporter())
        self.compiler = open_compiler(toolchain, folder / "cache", self.watch)
        self._count = 0

    def tree(self, header: str = HEADER, unit: str = UNIT) -> SourceTree:
        self._count += 1
        root = self.folder / f"tree-{self._count}"
        (root / FOLDER / "instances").mkdir(parents=True)
        (root / FOLDER / "tile.cuh").write_text(header)
        for name in ("a", "b"):
            (root / FOLDER / "instances" / f"{name}.cu").write_text(unit.replace("(a)", f"({name})"))
        return SourceTree(root)

    def reading(self, tree: SourceTree, name: str = "a", flags: tuple[str, ...] = FLAGS) -> Reading:
        return Reading(tree=tree, unit=f"{FOLDER}/instances/{name}.cu", flags=flags, name="test")

    def head(self, tree: SourceTree, name: str = "a", flags: tuple[str, ...] = FLAGS) -> str | None:
        return head_digest(self.reading(tree, name, flags), self.compiler)

    def whole(self, tree: SourceTree, flags: tuple[str, ...] = FLAGS) -> str:
        return reading_digest(self.reading(tree, "a", flags), self.compiler)


@pytest.fixture
def world(tmp_path: Path, hip_toolchain: Toolchain) -> World:
    return World(tmp_path, hip_toolchain)


def test_instances_share_one_reading(world: World) -> None:
    tree = world.tree()
    with world.watch.stage("read"):
        assert world.head(tree, "a") != world.head(tree, "b")
    assert {each.work: each.tools for each in world.watch.stages[0].spent} == {"preprocess": 1, "patchkit": 1}


@pytest.mark.parametrize(
    ("old", "new", "alike", "guarded"),
    [
        ("#pragma once", "#pragma once  // said", True, True),
        ("ROWS 8", "ROWS 16", True, False),  # behind its guard
        ("ROWS 4", "ROWS 5", False, True),
        ("int rows[ROWS];", "int rows[4];", True, False),
        ("LATER(n) int", "LATER(n) long", False, False),  # seen by the text behind the head only
    ],
)
def test_alike_by_its_head_is_alike_whole(
    world: World, old: str, new: str, *, alike: bool, guarded: bool
) -> None:
    before, after = world.tree(), world.tree(HEADER.replace(old, new))
    for flags, expected in ((FLAGS, alike), ((*FLAGS, "-DGUARDED"), guarded)):
        heads = [world.head(tree, flags=flags) for tree in (before, after)]
        whole = [world.whole(tree, flags) for tree in (before, after)]
        assert (heads[0] == heads[1]) is expected
        assert (whole[0] == whole[1]) is expected


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("int rows[ROWS];\n", "int rows[ROWS];\n#define UNUSED 1\n"),
        ("#define LATER", "#define UNUSED 1\n#define LATER"),
        ("#define ROWS 4", "#define ROWS  4\n#define UNUSED \\\n    int more;"),
    ],
)
def test_a_macro_that_nobody_uses_differs_by_the_head_alone(world: World, old: str, new: str) -> None:
    before, after = world.tree(), world.tree(HEADER.replace(old, new))
    assert world.head(before) != world.head(after)
    assert world.whole(before) == world.whole(after)
    tokens = [head_tokens(world.reading(tree), world.compiler) for tree in (before, after)]
    assert tokens[0] == tokens[1] is not None


@pytest.mark.parametrize(("old", "new"), [("ROWS 4", "ROWS 5"), ("int rows", "long rows")])
def test_other_tokens_of_a_head_are_other_tokens_of_the_unit(world: World, old: str, new: str) -> None:
    before, after = world.tree(), world.tree(HEADER.replace(old, new))
    assert world.whole(before) != world.whole(after)
    tokens = [head_tokens(world.reading(tree), world.compiler) for tree in (before, after)]
    assert tokens[0] != tokens[1]


def test_text_behind_the_head_counts(world: World) -> None:
    before, after = world.tree(), world.tree(unit=UNIT.replace("LATER(a);", "LATER(a); int more;"))
    assert world.head(before) != world.head(after)


@pytest.mark.parametrize(
    ("header", "unit"),
    [
        (HEADER, UNIT + "#include <stdint.h>\n"),
        (HEADER, UNIT + "#define LATE 1\n"),
        (HEADER, "int first;\n" + UNIT),
        (HEADER, "/* a comment\n" + UNIT.replace("\n\n#", " */\n#", 1)),
        (HEADER, UNIT.replace("../tile.cuh", "../other.cuh")),
        (HEADER, UNIT + "// goes on \\\nint hidden;\n"),
        (HEADER + "int count = __COUNTER__;\n", UNIT),
    ],
    ids=["include", "define", "text before", "long comment", "no such file", "long line", "counter"],
)
def test_any_other_unit_is_read_whole(world: World, header: str, unit: str) -> None:
    assert world.head(world.tree(header, unit)) is None
