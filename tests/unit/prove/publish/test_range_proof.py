"""What counts as outside of the declared entities, on small files and on the shipped candidate."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.base.reporter import NullReporter
from patchkit.base.toml import parse_toml
from patchkit.carry.candidate.record import Candidate, CandidateCommit
from patchkit.carry.series.catalogue import Series
from patchkit.carry.series.patch import parse_patch
from patchkit.carry.upstream.cache import create_repository
from patchkit.carry.upstream.commits import NewCommit, write_commits, write_orphan
from patchkit.prove.publish.range_proof import RangeProofFailed, prove_range, stray_lines

_BASE = b"""#include "a.h"

static int twin_a(int x) {
    return x;
}

static int twin_b(int x) {
    return x;
}
int table[] = { 1, 2 };
"""


def _stray(tip: bytes, *functions: str) -> tuple[str, ...]:
    return stray_lines("f.cu", _BASE, tip, functions)


def test_a_declared_function_may_change_and_no_other() -> None:
    tip = _BASE.replace(b"twin_b(int x) {\n    return x;", b"twin_b(int x) {\n    return 2*x;\n    // more")
    assert _stray(tip, "twin_b") == ()
    assert _stray(tip, "twin_a") == ("- return x;", "+ return 2*x;")
    assert _stray(tip) == ("- return x;", "+ return 2*x;")


def test_lines_of_the_preprocessor_may_be_added_anywhere() -> None:
    lines = b'#if defined(X)\n#include "ours.h"\n#define ALIAS \\\n    (1 + 2)\n#endif // defined(X)\n'
    assert _stray(_BASE.replace(b"static int twin_b", lines + b"static int twin_b")) == ()


@pytest.mark.parametrize(
    ("old", "new", "stray"),
    [
        (b"{ 1, 2 }", b"{ 1, 3 }", ("- int table[] = { 1, 2 };", "+ int table[] = { 1, 3 };")),
        (b'#include "a.h"\n', b"", ('- #include "a.h"',)),
        (b"int table", b"int more;\nint table", ("+ int more;",)),
        (b"static int twin_a(int x) {\n    return x;\n}\n", b"", ("- static int twin_a(int x) {", "- }")),
    ],
    ids=["a value", "an include gone", "a declaration", "a function gone"],
)  # fmt: skip
def test_anything_else_is_a_stray(old: bytes, new: bytes, stray: tuple[str, ...]) -> None:
    found = _stray(_BASE.replace(old, new), "twin_b")
    assert set(stray) <= set(found)


def test_a_declared_function_that_vanishes_is_seen() -> None:
    tip = _BASE.replace(b"static int twin_b(int x) {\n    return x;\n}\n", b"")
    assert _stray(tip, "twin_b")


_PATCH = """\
id = "files"
title = "files"
builds = { first = 1, why = "the test" }
guard = "none"

[[edit]]
id = "twice"
file = "old.cu"
function = "twin_b"
at = { statement = "return x" }
verb = "change_to"
text = "return 2*x;"

[[rename]]
from = "old.cu"
to = "new.cu"

[[remove]]
path = "gone.txt"
sha256 = "SHA"

[[mode]]
path = "run.sh"
executable = true

[[file]]
path = "logo.png"
blob = "logo.png"
sha256 = "SHA"
replaces = "SHA"

[[file]]
path = "ours.txt"
template = "ours.jinja"
""".replace("SHA", "0" * 64)
_DATE = "2025-10-31T10:54:19+02:00"
_MADE = {
    "new.cu": _BASE.replace(b"twin_b(int x) {\n    return x;", b"twin_b(int x) {\n    return 2*x;"),
    "logo.png": b"\0new",
    "ours.txt": b"ours\n",
    "run.sh": b"echo\n",
}


@pytest.mark.parametrize(
    ("changes", "gone", "modes", "stray"),
    [
        ({}, (), {}, None),
        ({"new.cu": _MADE["new.cu"].replace(b"{ 1, 2 }", b"{ 1, 3 }")}, (), {}, "new.cu"),
        ({"other.txt": b"more\n"}, (), {}, "other.txt"),
        ({}, ("other.txt",), {}, "other.txt"),
        ({}, (), {"logo.png": "100755"}, "logo.png"),
    ],
    ids=["as declared", "another line of a renamed file", "a change", "a removal", "a mode"],
)
def test_whole_files_are_compared_with_what_patches_declare(
    tmp_path: Path,
    changes: dict[str, bytes],
    gone: tuple[str, ...],
    modes: dict[str, str],
    stray: str | None,
) -> None:
    repository = create_repository(tmp_path / "upstream.git", NullReporter())
    base = {
        "old.cu": _BASE,
        "gone.txt": b"gone\n",
        "run.sh": b"echo\n",
        "logo.png": b"\0",
        "other.txt": b"\n",
    }
    start = write_orphan(repository, base, message="base", date=_DATE)
    made = NewCommit(
        message="files",
        changes=_MADE | changes,
        gone=("old.cu", "gone.txt", *gone),
        modes={"run.sh": "100755"} | modes,
    )
    (tip,) = write_commits(repository, start.commit, [made], date=_DATE)
    patch = parse_patch(parse_toml("patch.toml", _PATCH.encode()), folder="0001-files", number=1)
    candidate = Candidate(
        ref="refs/heads/candidate/gfx1151/b1",
        archs=("gfx1151",),
        pin="b1",
        build=1,
        base=start.commit,
        tip=tip.commit,
        commits=(CandidateCommit(id="files", commit=tip.commit, subject="files"),),
    )
    series = Series(folders=("ggml/",), patches=(patch,))
    if stray is None:
        proof = prove_range(repository, series, candidate, candidate)
        assert {one.path: one.declared for one in proof.new.files} == {
            "gone.txt": ("removed",),
            "logo.png": ("another file in its place",),
            "new.cu": ("twin_b",),
            "old.cu": ("renamed to new.cu",),
            "ours.txt": ("a new file",),
            "run.sh": (),
        }
        return
    with pytest.raises(RangeProofFailed) as caught:
        prove_range(repository, series, candidate, candidate)
    assert [place.path for place in caught.value.where] == [stray]
