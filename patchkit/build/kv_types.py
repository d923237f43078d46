"""For which types of K and V upstream compiles the vector attention kernel, where CMake says so by macros.

Vocabulary: a *combination* is a type of K and one of V, as ``q8_0-f16``. Since a build between 10566 and
11063 a CMake function turns the option GGML_CUDA_FA_QUANTS into one macro per combination, 0 or 1, and into
the list of units; before, the build list named or globbed them and there were no such macros.
"""

from __future__ import annotations

import re
from pathlib import Path

_OPTION = re.compile(r'set\s*\(\s*GGML_CUDA_FA_QUANTS\s+"([^"]+)"')
_TYPES = re.compile(r"set\s*\(\s*FA_TYPES\s+([^)]+)\)")
_CALL = re.compile(r"^\s*ggml_cuda_fattn_vec_instances\s*\(", re.MULTILINE)
_INSTANCE = "ggml/src/ggml-cuda/template-instances/fattn-vec-instance-{}.cu"


def kv_definitions(tree: Path) -> tuple[str, ...]:
    """The ``-D`` options that the CMake of a tree gives every GPU unit for this; none in older trees."""
    option = _option(tree)
    types = _TYPES.search(_text(tree / "ggml/cmake/common.cmake"))
    if option is None or types is None:
        return ()
    compiled = _combinations(option)
    macros = [
        f"-DGGML_CUDA_FA_{k.upper()}_{v.upper()}={int(f'{k}-{v}' in compiled)}"
        for v in types[1].split()
        for k in types[1].split()
    ]
    return (f'-DGGML_CUDA_FA_QUANTS="{option.replace(";", ",")}"', *macros)


def kv_units(tree: Path, build_list: str) -> tuple[str, ...]:
    """The units that the text ``build_list`` of a backend's CMake adds through that function, sorted."""
    option = _option(tree)
    if option is None or _CALL.search(build_list) is None:
        return ()
    names = (_INSTANCE.format(combination) for combination in _combinations(option))
    return tuple(sorted(name for name in names if (tree / name).is_file()))


def _option(tree: Path) -> str | None:
    found = _OPTION.search(_text(tree / "ggml/CMakeLists.txt"))
    return found[1] if found is not None else None


def _combinations(option: str) -> frozenset[str]:
    """The function always adds f16 with f16."""
    return frozenset({"f16-f16", *(part.strip().lower() for part in re.split("[;,]", option))})


def _text(path: Path) -> str:
    return path.read_text("utf-8", "replace") if path.is_file() else ""
