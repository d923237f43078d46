"""What the compile gate makes of diagnostics: new warnings, errors, and whose they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from patchkit.base.errors import Location
from patchkit.prove.gates import compile as compile_gate
from patchkit.prove.gates.touched import CompiledPair, unpaired_units
from patchkit.toolchain.cmake import BuildFailed, BuiltLibrary
from patchkit.toolchain.compile import CompileFailed
from patchkit.toolchain.remarks import Diagnostic

_FILE = "ggml/src/ggml-cuda/k.cuh"
_UNIT = "ggml/src/ggml-cuda/k.cu"


def _found(line: int, text: str = "unused", kind: str = "warning") -> Diagnostic:
    return Diagnostic(kind=kind, where=Location(path=_FILE, line=line, column=1), text=text, flag="-Wx")


def test_warnings_that_only_moved_are_not_new(make_subject, make_unit) -> None:
    before = replace(make_unit({}), diagnostics=(_found(3), _found(9)))
    after = replace(make_unit({}), diagnostics=(_found(5), _found(11), _found(12), _found(13, "other")))
    authors = {_FILE: (None,) * 11 + ("my-patch", None)}
    pair = CompiledPair(unit=after.unit, arch="gfx1151", which="device", before=before, after=after)
    problems = list(compile_gate._problems([pair], make_subject(authors=authors, touched=(_FILE,))))
    assert [problem.code for problem in problems] == ["COMPILE_NEW_WARNING"] * 2
    assert [str(problem.where[0]) for problem in problems] == [f"{_FILE}:12:1", f"{_FILE}:13:1"]
    assert problems[0].where[0].label == "my-patch"


def test_an_error_names_the_patch_of_its_line(make_subject, make_unit) -> None:
    failed = CompileFailed(
        "k.cu does not compile", where=[Location(path=_FILE, line=2, column=4)], why="text"
    )
    failed.diagnostics = (_found(2, "static assertion failed: C8", "error"),)
    pair = CompiledPair(
        unit="ggml/src/ggml-cuda/k.cu", arch="gfx1151", which="host", before=make_unit({}), after=failed
    )
    authors = {_FILE: (None, "my-patch")}
    subject = make_subject(authors=authors, touched=(_FILE,))
    (problem,) = compile_gate._problems([pair, pair], subject)
    assert problem.message == ("k.cu does not compile for gfx1151 (host pass): static assertion failed: C8")
    assert problem.where[0].label == "my-patch"
    assert "the nearest patch is my-patch" in problem.why


def test_the_nearest_patch_of_an_upstream_line_is_named(make_subject) -> None:
    authors = {_FILE: ("one", None, None, None, "two")}
    subject = make_subject(authors=authors, touched=(_FILE,))
    assert subject.patches_of(_FILE, 2) == ("one",)
    assert subject.patches_of(_FILE, 4) == ("two",)
    assert subject.patches_of(_FILE) == ("my-patch",)
    assert subject.patches_of("elsewhere", 3) == ()


def test_an_error_of_the_whole_library_names_the_patch_of_its_line(
    make_subject, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    subject = replace(make_subject(authors={_FILE: (None, "my-patch")}), toolchain=SimpleNamespace())
    failed = BuildFailed(
        "the library does not build: nowhere",
        where=[Location(path=f"{subject.candidate}/{_FILE}", line=2, column=7)],
        why="the end of the log",
        hint="all that was said is in a file",
    )
    failed.diagnostics = (_found(2, "nowhere", "error"),)

    def fail(*_: object) -> None:
        raise failed

    monkeypatch.setattr(compile_gate, "open_compiler", lambda *_: None)
    monkeypatch.setattr(compile_gate, "compile_touched", lambda *_: [])
    monkeypatch.setattr(compile_gate, "build_library", fail)
    result = compile_gate.CompileGate(library=True).run(subject)
    assert result.verdict == "failed"
    (problem,) = result.problems
    assert problem.code == "COMPILE_CANDIDATE"
    assert (problem.where[0].path, problem.where[0].line, problem.where[0].label) == (_FILE, 2, "my-patch")
    assert (problem.why, problem.hint) == (failed.why, failed.hint)


def test_a_library_that_builds_is_described(make_subject, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = replace(make_subject(), toolchain=SimpleNamespace())
    built = BuiltLibrary(
        path=Path("/b/libggml-hip.so"), size_bytes=47_300_000, units=103, cmake="4.1", cached_by="ccache",
        warnings=(), seconds=357.0,
    )  # fmt: skip
    monkeypatch.setattr(compile_gate, "open_compiler", lambda *_: None)
    monkeypatch.setattr(compile_gate, "compile_touched", lambda *_: [])
    monkeypatch.setattr(compile_gate, "build_library", lambda *_: built)
    result = compile_gate.CompileGate(library=True).run(subject)
    assert result.verdict == "passed"
    assert result.not_run == ()
    assert result.lines[1] == (
        "whole library: libggml-hip.so, 103 units, 47.3 MB, linked, cmake 4.1, 357 s with ccache, 0 warnings"
    )


def test_a_unit_that_only_the_candidate_has_is_not_compared_and_so_not_passed(
    make_subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    units = {"ggml/src/ggml-hip/CMakeLists.txt": 'file(GLOB SOURCES "../ggml-cuda/*.cu")\n', _UNIT: ""}
    new, gone = "ggml/src/ggml-cuda/new.cu", "ggml/src/ggml-cuda/gone.cu"
    subject = replace(
        make_subject({**units, gone: ""}, {**units, new: ""}, touched=(_UNIT, gone, new)),
        toolchain=SimpleNamespace(),
    )
    assert unpaired_units(subject) == (new,)
    monkeypatch.setattr(compile_gate, "open_compiler", lambda *_: None)
    monkeypatch.setattr(compile_gate, "compile_touched", lambda *_: [])
    result = compile_gate.CompileGate().run(subject)
    assert result.verdict == "not run"
    assert any(line.startswith(f"{new}: only the candidate has it") for line in result.not_run)
