"""The door to libclang: its errors are ours."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from clang import cindex
from refusing import refused

from patchkit.carry.cpp.libclang import (
    PREPROCESSING_RECORD,
    _range_functions,
    library_version,
    parse_unit,
    skipped_ranges,
)


def test_the_version_is_that_of_the_pinned_wheel():
    assert library_version() == "clang 18.1.1"


def test_arguments_that_clang_refuses_altogether_are_a_parse_failure():
    with refused("LIBCLANG_PARSE") as caught:
        parse_unit("/missing.cpp", ["-xc++"], {}, 0)
    assert "/missing.cpp" in caught.value.message
    assert caught.value.hint == "to check the installation: patchkit doctor"


@pytest.mark.parametrize("error", [OSError("no such file"), cindex.LibclangError("does not load")])
def test_a_library_that_does_not_load_says_how_to_reinstall_it(monkeypatch, error):
    def refuse():
        raise error

    monkeypatch.setattr(cindex.Index, "create", staticmethod(refuse))
    with refused("LIBCLANG_UNAVAILABLE") as caught:
        parse_unit("/a.cpp", [], {"/a.cpp": b""}, 0)
    assert caught.value.hint is not None
    assert "libclang==18.1.1" in caught.value.hint


class _Unit:
    def __init__(self):
        self.cursor = self

    def walk_preorder(self):
        return []


def test_a_library_that_does_not_tell_its_version_is_named_so(monkeypatch):
    monkeypatch.setattr("patchkit.carry.cpp.libclang.parse_unit", lambda *_: _Unit())
    assert library_version() == "clang (unknown version)"


def test_skipped_ranges_of_many_threads_share_one_declaration() -> None:
    # Declaring the argument types per call freed them under another thread's call.
    path, source = "/skipped.cpp", b"#if 0\nint a;\n#endif\nint b;\n"

    def count(_: int) -> int:
        unit = parse_unit(path, ["-xc++"], {path: source}, PREPROCESSING_RECORD)
        return sum(len(skipped_ranges(unit, path)) for _ in range(20))

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(count, range(8))) == 160
    assert _range_functions() is _range_functions()
