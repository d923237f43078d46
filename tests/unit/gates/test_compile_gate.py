"""What the compile gate makes of diagnostics: new warnings, errors, and whose they are."""

from __future__ import annotations

from dataclasses import replace

from patchkit.build.compile import CompileFailed
from patchkit.build.remarks import Diagnostic
from patchkit.errors import Location
from patchkit.gates import compile as compile_gate
from patchkit.gates.touched import Pair

_FILE = "ggml/src/ggml-cuda/k.cuh"


def _found(line: int, text: str = "unused", kind: str = "warning") -> Diagnostic:
    return Diagnostic(kind=kind, where=Location(path=_FILE, line=line, column=1), text=text, flag="-Wx")


def test_warnings_that_only_moved_are_not_new(make_subject, make_unit) -> None:
    before = replace(make_unit({}), diagnostics=(_found(3), _found(9)))
    after = replace(make_unit({}), diagnostics=(_found(5), _found(11), _found(12), _found(13, "other")))
    authors = {_FILE: (None,) * 11 + ("my-patch", None)}
    pair = Pair(unit=after.unit, arch="gfx1151", which="device", before=before, after=after)
    problems = list(compile_gate._problems([pair], make_subject(authors=authors, touched=(_FILE,))))
    assert [problem.code for problem in problems] == ["COMPILE_NEW_WARNING"] * 2
    assert [str(problem.where[0]) for problem in problems] == [f"{_FILE}:12:1", f"{_FILE}:13:1"]
    assert problems[0].where[0].label == "my-patch"


def test_an_error_names_the_patch_of_its_line(make_subject, make_unit) -> None:
    failed = CompileFailed(
        "k.cu does not compile", where=[Location(path=_FILE, line=2, column=4)], why="text"
    )
    failed.diagnostics = (_found(2, "static assertion failed: C8", "error"),)
    pair = Pair(
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
