"""Which combinations of K and V upstream compiles, read from a small tree with the shape of build 11549."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.toolchain.units import kv_definitions, kv_units, platform_units

_GPU = "ggml/src/ggml-cuda"
_CALL = 'file(GLOB SRCS "../ggml-cuda/*.cu")\nggml_cuda_fattn_vec_instances(${DIR}/../ggml-cuda SRCS)\n'


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """An option of two combinations over three types, with an instance for each of nine."""
    files = {
        "ggml/CMakeLists.txt": 'set   (GGML_CUDA_FA_QUANTS "q8_0-q8_0;q8_0-f16" CACHE STRING\n    "text")\n',
        "ggml/cmake/common.cmake": "    set(FA_TYPES q8_0 bf16 f16)\n",
        "ggml/src/ggml-hip/CMakeLists.txt": _CALL,
        f"{_GPU}/fattn.cu": "",
    }
    for k in ("q8_0", "bf16", "f16"):
        for v in ("q8_0", "bf16", "f16"):
            files[f"{_GPU}/template-instances/fattn-vec-instance-{k}-{v}.cu"] = ""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_every_combination_has_a_macro_and_f16_is_always_in(tree: Path) -> None:
    first, *macros = kv_definitions(tree)
    assert first == '-DGGML_CUDA_FA_QUANTS="q8_0-q8_0,q8_0-f16"'
    values = dict(macro.removeprefix("-DGGML_CUDA_FA_").split("=") for macro in macros)
    assert len(values) == 9
    assert {name for name, value in values.items() if value == "1"} == {"Q8_0_Q8_0", "Q8_0_F16", "F16_F16"}


def test_the_units_are_those_of_the_combinations(tree: Path) -> None:
    names = [
        f"{_GPU}/template-instances/fattn-vec-instance-{c}.cu" for c in ("f16-f16", "q8_0-f16", "q8_0-q8_0")
    ]
    assert list(kv_units(tree, _CALL)) == names
    assert list(platform_units(tree, "hip")) == [f"{_GPU}/fattn.cu", *names]


def test_a_tree_without_the_option_has_neither(tree: Path) -> None:
    (tree / "ggml/CMakeLists.txt").write_text('option(GGML_CUDA_FA_ALL_QUANTS "all" OFF)\n')
    assert kv_definitions(tree) == ()
    assert kv_units(tree, _CALL) == ()


def test_a_list_that_does_not_call_the_function_gets_no_unit_from_it(tree: Path) -> None:
    assert kv_units(tree, 'file(GLOB SRCS "../ggml-cuda/*.cu")') == ()
