"""Which units of two trees ``try`` looks at, and which types of tensors its cases are of."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.prove.trying import differing_units, types_of
from patchkit.toolchain.units import SourceTree

FOLDER = "ggml/src/ggml-cuda"
TABLE = """\
constexpr int rows(int type) {
    if (type == TYPE_A) {
        return 64;
    }
    if (type == TYPE_B) {
        return 128;
    }
    return 32;
}
"""
UNITS = {
    "a.cu": '#include "table.cuh"\nCASE(TYPE_A);\n',
    "b.cu": '#include "table.cuh"\nCASE(TYPE_B);\n',
    "other.cu": '#include "table.cuh"\nCASE(TYPE_C);\n',
    "host.cu": '#include "table.cuh"\nenum { A = TYPE_A, B = TYPE_B };\n',  # names all of them
    "alone.cu": "int alone();\n",
}


def tree(root: Path, table: str, **changed: str) -> SourceTree:
    folder = root / FOLDER
    folder.mkdir(parents=True)
    (folder / "table.cuh").write_text(table)
    (root / "ggml/src/ggml-hip").mkdir()
    (root / "ggml/src/ggml-hip/CMakeLists.txt").write_text('file(GLOB SOURCES "../ggml-cuda/*.cu")\n')
    for name, text in UNITS.items():
        (folder / name).write_text(changed.get(name.removesuffix(".cu"), text))
    return SourceTree(root)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("return 64", "return 96", ["a"]),
        ("return 128", "return 96", ["b"]),
        ("return 32", "return 96", []),  # what it is about no unit says
    ],
)
def test_of_a_row_the_units_that_name_it_come_first(
    tmp_path: Path, old: str, new: str, named: list[str]
) -> None:
    before, after = tree(tmp_path / "old", TABLE), tree(tmp_path / "new", TABLE.replace(old, new))
    units, likely = differing_units(before, after)
    assert set(units) == {f"{FOLDER}/{name}.cu" for name in ("a", "b", "other", "host")}
    assert likely == units[: len(named)] == [f"{FOLDER}/{name}.cu" for name in named]


def test_a_unit_that_changed_itself_is_likely(tmp_path: Path) -> None:
    before = tree(tmp_path / "old", TABLE)
    after = tree(tmp_path / "new", TABLE, alone="int alone(float);\n")
    assert differing_units(before, after) == ([f"{FOLDER}/alone.cu"], [f"{FOLDER}/alone.cu"])


@pytest.mark.parametrize(
    ("variants", "types"),
    [
        (["mul_mat_q<(ggml_type)2, 48, false, (ggml_prec)30>", "f<(ggml_type)2>"], ("q4_0",)),
        (["f<64, (ggml_type)12, (ggml_type)8>"], ("q4_K", "q8_0")),
        (["f<(ggml_type)2>", "g<64>"], ()),  # the other one may be of any type
        (["f<(ggml_type)2>", "f<(ggml_type)999>"], ()),
        ([], ()),
    ],
)
def test_kernels_say_of_which_types_they_are(variants: list[str], types: tuple[str, ...]) -> None:
    assert types_of(variants) == types
