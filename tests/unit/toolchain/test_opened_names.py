"""The files that a pass opened, from the names in clang's dependency file."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.toolchain.opened import opened_files
from patchkit.toolchain.units import SourceTree

FOLDER = "ggml/src/ggml-cuda"
UNIT = f"{FOLDER}/instances/a.cu"


@pytest.fixture
def tree(tmp_path: Path) -> SourceTree:
    root = tmp_path / "a tree"
    (root / FOLDER / "instances").mkdir(parents=True)
    (root / UNIT).write_text('#include "../rows.cuh"\n#include "../head.cuh"\n')
    for name in ("rows", "head"):
        (root / FOLDER / f"{name}.cuh").write_text(f"int {name};\n")
    return SourceTree(root)


def opened(tree: SourceTree, *names: str) -> list[str] | None:
    dependencies = tree.root.parent / "opened.d"
    dependencies.write_text("unit: " + " \\\n  ".join(name.replace(" ", "\\ ") for name in names) + "\n")
    return opened_files(dependencies, tree, UNIT)


@pytest.mark.parametrize("before", ["", "./", "{root}/"])
def test_a_name_that_goes_up_is_that_of_the_file(tree: SourceTree, before: str) -> None:
    start = before.format(root=tree.root)
    names = (f"{start}{UNIT}", f"{start}{FOLDER}/instances/../head.cuh")
    assert opened(tree, *names) == [f"{FOLDER}/head.cuh", UNIT]


def test_a_name_that_goes_up_after_a_link_is_unclear(tree: SourceTree) -> None:
    far = tree.root / "far/below"
    far.mkdir(parents=True)
    (tree.root / "far/head.cuh").write_text("int other;\n")
    (tree.root / FOLDER / "link").symlink_to(far, target_is_directory=True)
    assert opened(tree, f"{FOLDER}/link/../head.cuh") is None


@pytest.mark.parametrize(
    "name", ["ggml/src/none.h", "/usr/include/stdio.h", f"{FOLDER}/../../../../head.cuh"]
)
def test_a_file_that_is_not_in_reach_is_unclear(tree: SourceTree, name: str) -> None:
    assert opened(tree, name) is None
