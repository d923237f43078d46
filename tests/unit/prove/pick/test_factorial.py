"""Which builds a round has, and which two of them say what a patch does."""

from __future__ import annotations

from collections.abc import Mapping

from patchkit.prove.pick.factorial import FactorialDesign, design_round


def _cross(
    names: str,
    most: int,
    *,
    touches: Mapping[str, str] | None = None,
    needed: Mapping[str, str] | None = None,
) -> FactorialDesign:
    """``needed``: who leaves with a patch."""
    outs = {name: frozenset(name + (needed or {}).get(name, "")) for name in names}
    near = {name: frozenset(each) for name, each in (touches or {}).items()}
    return design_round(tuple(names), outs, near, most)


def _joined(design: FactorialDesign) -> list[str]:
    return ["".join(arm) for arm in design.arms]


def test_each_patch_is_left_out_of_the_whole_where_no_more_builds_are_allowed() -> None:
    design = _cross("abcd", 5)
    assert _joined(design) == ["abcd", "bcd", "acd", "abd", "abc"]
    assert list(design.pairs("b")) == [(("a", "c", "d"), ("a", "b", "c", "d"))]


def test_patches_apart_are_left_out_in_all_combinations_and_every_pair_differs_by_one() -> None:
    design = _cross("abcd", 16)
    assert len(set(design.arms)) == len(design.arms) == 16
    for name in "abcd":
        pairs = list(design.pairs(name))
        assert len(pairs) == 8
        assert len({arm for pair in pairs for arm in pair}) == 16  # no run counts twice for a patch
        assert all(set(with_) - set(without) == {name} for without, with_ in pairs)


def test_more_patches_than_can_be_crossed_are_crossed_in_groups() -> None:
    design = _cross("abcdefgh", 16)
    assert len(design.arms) <= 16
    assert sum(len(list(design.pairs(name))) for name in "abcdefgh") >= 16
    assert all(with_ in design.arms for name in "abcdefgh" for pair in design.pairs(name) for with_ in pair)


def test_of_patches_that_touch_one_kernel_one_at_a_time_is_left_out() -> None:
    design = _cross("abc", 24, touches={"a": "b", "b": "a"})
    assert _joined(design) == ["abc", "ab", "bc", "b", "ac", "a"]
    assert [("".join(without), "".join(with_)) for without, with_ in design.pairs("a")] == [
        ("bc", "abc"),
        ("b", "ab"),
    ]


def test_patches_that_leave_together_are_never_crossed() -> None:
    # c needs b and b needs a; b is not asked about.
    outs = {"a": frozenset("abc"), "c": frozenset("c"), "d": frozenset("d")}
    design = design_round(("a", "b", "c", "d"), outs, {}, 24)
    assert _joined(design) == ["abcd", "abc", "d", "", "abd", "ab"]


def test_what_is_clear_leaves_and_no_build_is_new() -> None:
    design = _cross("abcd", 16, touches={"a": "b"})
    fewer = design.only(frozenset("abd"))
    assert set(fewer.arms) < set(design.arms)
    assert all("c" in arm for arm in fewer.arms)
    assert set(fewer.one_by_one().arms) < set(fewer.arms)
    assert _joined(fewer.one_by_one()) == ["abcd", "bcd", "acd", "abc"]
