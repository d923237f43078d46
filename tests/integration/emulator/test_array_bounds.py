"""Indices and pointers that go from one ``__shared__`` array into another, as clang's own checks see them."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.hip, pytest.mark.slow]

_ALL = "memory,waits,races,hidden,barriers,uninitialised,asynchrony"
_ARCHS = ["gfx1151", "gfx1201"]
_SCHEDULES = ["in-order", "shuffle 1"]
# As docs/reference/checks.md has them.
_FLAGS = {
    kinds: (
        *("-Xclang", f"-fsanitize={kinds}", "-Xclang", f"-fsanitize-recover={kinds}"),
        *("-Xclang", "-fsanitize-minimal-runtime"),
    )
    for kinds in ("local-bounds", "array-bounds,local-bounds")
}
_FAULTS = [
    *("index too large", "index below", "writes beyond", "by pointer", "walks on", "either array"),
    *("four at once", "counts beyond", "row below"),
]


@pytest.fixture(scope="module")
def programs(compile_program):
    return {
        (kinds, arch): compile_program(
            "checked_bounds", "-std=c++20", "-gline-tables-only", *flags, arch=arch
        )
        for kinds, flags in _FLAGS.items()
        for arch in _ARCHS
    }


@pytest.fixture
def every_kind() -> str:
    """What is looked for."""
    return _ALL


@pytest.mark.parametrize("arch", _ARCHS)
@pytest.mark.parametrize("case", _FAULTS)
def test_who_goes_from_one_array_into_another_is_told(told, programs, case, arch):
    for schedule in _SCHEDULES:
        findings = [
            one
            for one in told(programs["local-bounds", arch], case, arch, schedule)
            if "goes past the end of the variable that its address is based on" in one.what
        ]
        assert findings
        for one in findings:
            assert (one.kind, one.is_note) == ("memory", False)
            assert any("checked_bounds.hip:" in place for place in one.at.places)


@pytest.mark.parametrize("arch", _ARCHS)
def test_an_index_that_only_its_own_member_lacks_is_told_where_indices_are_asked_for(told, programs, arch):
    assert told(programs["local-bounds", arch], "member", arch) == []
    findings = told(programs["array-bounds,local-bounds", arch], "member", arch)
    assert ["uses an index out of the bounds of its array" in one.what for one in findings] == [True]


@pytest.mark.parametrize("arch", _ARCHS)
@pytest.mark.parametrize("kinds", _FLAGS)
def test_who_stays_in_its_array_is_none(told, emulate, programs, kinds, arch):
    listed = emulate(programs[kinds, arch], arch=arch).stdout.splitlines()
    clean = [name for name in listed if name.startswith("clean: ")]
    assert len(clean) == 8
    assert {name: told(programs[kinds, arch], name, arch) for name in clean} == {name: [] for name in clean}
