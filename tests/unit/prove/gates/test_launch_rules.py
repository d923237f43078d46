"""The rules of the launch gate on made-up launches; the real ones are in tests/integration/recorder."""

from __future__ import annotations

from dataclasses import replace

import pytest
from launches import compiled_kernel, launch_of

from patchkit.carry.placing.wmma import wmma_table
from patchkit.carry.series.catalogue import load_series
from patchkit.carry.series.profile import load_profile
from patchkit.carry.series.promises import CasePromise, KernelMove
from patchkit.gpu.emulated.cases import Case, OpRow
from patchkit.gpu.emulated.device import device_of
from patchkit.gpu.emulated.log import Launch, Section
from patchkit.gpu.emulated.session import CaseRecord
from patchkit.prove.gates.launch.geometry import Guarded
from patchkit.prove.gates.launch.rules import check_guarded, check_support, grouping_applies, upstream_own
from patchkit.prove.gates.launch.runs import CasePair

_WMMA_UNIT = "ggml/src/ggml-cuda/fattn-wmma-f16.cu"
_TILE_UNIT = "ggml/src/ggml-cuda/template-instances/fattn-tile-instance-dkq128-dv128.cu"
_VEC_UNIT = "ggml/src/ggml-cuda/template-instances/fattn-vec-instance-f16-f16.cu"
_WMMA = "_ZL18flash_attn_ext_f16ILi128ELi32ELi4ELi64EfLb0EEvPKc"
_TILE = "_ZL15flash_attn_tileILi128ELi128ELi1ELi4ELb0EEvPKc"
_VEC = "_ZL18flash_attn_ext_vecILi128ELi1EL9ggml_type1ELS0_1ELb0EEvPKc"

_DECODE = Case(id="d", head_size=128, head_size_v=128, kv_heads=2, gqa=4, kv=4096, tokens=1)
_PREFILL = replace(_DECODE, id="p", tokens=512)


def _launch(mangled: str, unit: str, waves: int, **changes) -> Launch:
    launch = launch_of(mangled, unit, grid=(16, 4, 8), block=(32, waves, 1))
    return replace(launch, **{"resident": 2, **changes})


def _wmma(**changes) -> Launch:
    return _launch(_WMMA, _WMMA_UNIT, 8, **changes)


def _tile(**changes) -> Launch:
    return _launch(_TILE, _TILE_UNIT, 4, **changes)


def _vec(**changes) -> Launch:
    return _launch(_VEC, _VEC_UNIT, 4, **changes)


def _old_wmma(**changes) -> Launch:
    return _launch(_WMMA, _WMMA_UNIT, 4, **changes)


def _record(case: Case, *launches: Launch, is_supported: bool = True) -> CaseRecord:
    section = Section(mark=f"case {case.id}", steps=(launches,), products=())
    return CaseRecord(case=case, is_supported=is_supported, section=section)


def _pair(case: Case, before: Launch | None, after: Launch | None) -> CasePair:
    old, new = (
        _record(case, *([launch] if launch is not None else []), is_supported=launch is not None)
        for launch in (before, after)
    )
    return CasePair(case=case, before=old, after=new)


def _promises(checkout, *ids: str) -> tuple[CasePromise, ...]:
    """What patches of the shipped series say of their launches."""
    patches = load_series(checkout / "patches").patches
    return tuple(promise for patch in patches if patch.id in ids for promise in patch.launches.cases)


@pytest.fixture
def rules(checkout) -> Guarded:
    profile = load_profile(checkout / "arch_profiles", "gfx1151")
    return Guarded(
        device=device_of(profile),
        promises=_promises(checkout, "wmma-tile-params", "fattn-decode-tile"),
        rows={
            (row.variant.head_size, row.variant.ncols, row.variant.acc): row for row in wmma_table(profile)
        },
        code={
            _WMMA_UNIT: {_WMMA: compiled_kernel(_WMMA, 256)},
            _TILE_UNIT: {_TILE: compiled_kernel(_TILE, 128)},
        },
        code_before={
            _WMMA_UNIT: {_WMMA: compiled_kernel(_WMMA, 128)},
            _TILE_UNIT: {_TILE: compiled_kernel(_TILE, 128, is_trap=True)},
        },
    )


def _codes(pairs: list[CasePair], rules: Guarded) -> list[str]:
    return [problem.code for problem in check_guarded(pairs, rules)]


def test_what_the_series_promises_breaks_no_rule(rules):
    good = [_pair(_DECODE, _vec(), _tile()), _pair(_PREFILL, _old_wmma(), _wmma())]
    assert _codes(good, rules) == []


@pytest.mark.parametrize(
    ("pair", "codes"),
    [
        (_pair(_DECODE, _vec(), _wmma()), ["LAUNCH_DECODE_WMMA"]),
        (_pair(_PREFILL, _old_wmma(), _tile()), ["LAUNCH_PREFILL_NOT_WMMA", "LAUNCH_FAMILY_CHANGED"]),
    ],
    ids=["decode on WMMA", "prefill that leaves WMMA"],
)
def test_a_promise_that_is_broken_is_found(rules, pair, codes):
    assert _codes([pair], rules) == codes


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (_DECODE, ["LAUNCH_DECODE_VEC"]),
        (replace(_DECODE, gqa=1), []),
        (replace(_DECODE, mask=False), []),
        (replace(_DECODE, max_bias=8.0), []),
        (replace(_DECODE, kv=4097), []),
        (replace(_DECODE, type_k="q8_0", type_v="q8_0"), []),
    ],
)
def test_decode_on_vec_is_wrong_only_where_grouping_applies(rules, case, expected):
    assert _codes([_pair(case, _vec(), _vec())], rules) == expected
    if expected:
        assert grouping_applies(case)


def test_decode_may_change_only_with_the_patch_that_says_so(rules, checkout):
    rules = replace(rules, promises=_promises(checkout, "wmma-tile-params"))
    assert _codes([_pair(_DECODE, _vec(), _tile())], rules) == ["LAUNCH_FAMILY_CHANGED"]


_LEAVES = KernelMove(origin="wmma", to=("mma", "tile"), head_sizes=(), why="a test")


@pytest.mark.parametrize(
    ("move", "before", "after", "codes"),
    [
        (_LEAVES, _old_wmma(), _tile(), []),
        (None, _old_wmma(), _tile(), ["LAUNCH_FAMILY_CHANGED"]),
        (replace(_LEAVES, head_sizes=(256,)), _old_wmma(), _tile(), ["LAUNCH_FAMILY_CHANGED"]),
        (_LEAVES, _old_wmma(), _vec(), ["LAUNCH_FAMILY_CHANGED"]),
        (_LEAVES, _vec(), _tile(), ["LAUNCH_FAMILY_CHANGED"]),
        (_LEAVES, _old_wmma(), _old_wmma(), ["LAUNCH_FAMILY_KEPT"]),
        (replace(_LEAVES, may_stay=True), _old_wmma(), _old_wmma(), []),
    ],
    ids=["declared", "not declared", "of other head sizes", "to others", "from others", "kept", "may stay"],
)
def test_a_move_is_about_its_families_and_head_sizes_only(rules, move, before, after, codes):
    old_table = {_WMMA_UNIT: {_WMMA: compiled_kernel(_WMMA, 128)}}
    moved = replace(rules, promises=(), rows={}, code=old_table, moves=() if move is None else (move,))
    assert _codes([_pair(_PREFILL, before, after)], moved) == codes


def test_a_trap_is_found_even_when_the_baseline_never_launched_it(rules):
    trapping = replace(rules, code={_TILE_UNIT: {_TILE: compiled_kernel(_TILE, 128, is_trap=True)}})
    problems = check_guarded([_pair(_DECODE, _vec(), _tile())], trapping)
    assert [problem.code for problem in problems] == ["LAUNCH_KERNEL_TRAPS"]
    assert "flash_attn_tile<128, 128, 1, 4, false>" in (problems[0].why or "")


def test_a_trap_that_upstream_launches_too_is_shown_and_does_not_fail(rules):
    trapping = replace(rules, code={_TILE_UNIT: {_TILE: compiled_kernel(_TILE, 128, is_trap=True)}})
    pairs = [_pair(replace(_DECODE, head_size=40), _tile(), _tile())]
    assert _codes(pairs, trapping) == []
    assert [broken.message for broken in upstream_own(pairs, trapping)] == [
        "a launch of a kernel that is a trap"
    ]


def test_a_kernel_that_its_unit_does_not_have_is_found(rules):
    empty = replace(rules, code={_TILE_UNIT: {}})
    assert _codes([_pair(_DECODE, _vec(), _tile())], empty) == ["LAUNCH_KERNEL_MISSING"]


def test_kernels_of_units_that_nobody_compiled_are_not_judged(rules):
    assert _codes([_pair(replace(_DECODE, gqa=1), _vec(), _vec())], rules) == []


@pytest.mark.parametrize(
    ("launch", "why"),
    [
        (_wmma(block=(32, 4, 1)), "128 threads per block, compiled for 256"),
        (_wmma(block=(64, 4, 1)), "64 lanes, a wave has 32"),
    ],
)
def test_blocks_must_be_what_the_kernel_was_compiled_for(rules, launch, why):
    problems = check_guarded([_pair(_PREFILL, _old_wmma(), launch)], rules)
    assert [problem.code for problem in problems] == ["LAUNCH_BLOCK_MISMATCH"]
    assert why in (problems[0].why or "")


def test_blocks_must_be_what_the_table_says_even_withoutcompiled_kernel(rules):
    blind = replace(rules, code={})
    problems = check_guarded([_pair(_PREFILL, _old_wmma(), _old_wmma())], blind)
    assert [problem.code for problem in problems] == ["LAUNCH_BLOCK_MISMATCH"]
    assert "4 waves per block, the table has 8" in (problems[0].why or "")


# The table's row for head size 128, 32 columns, f32 keeps a stride of 256 rows: 4096 rows are 16 steps.
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"grid": (16, 16, 8)}, []),
        ({"grid": (16, 17, 8)}, ["LAUNCH_GRANULARITY"]),
        ({"grid": (16, 15, 8), "resident": 16}, ["LAUNCH_GRANULARITY"]),
        ({"grid": (16, 15, 8), "resident": 15}, []),
        ({"grid": (16, 16, 8), "resident": 16}, []),
    ],
)
def test_the_split_of_kv_rows_fits_the_kernels_step(rules, changes, expected):
    assert _codes([_pair(_PREFILL, _old_wmma(), _wmma(**changes))], rules) == expected


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"grid": (16, 65537, 8)}, "with 65537 blocks in y, a grid has 1 to 65536"),
        ({"grid": (0, 1, 1)}, "with 0 blocks in x"),
        ({"block": (32, 33, 1)}, "1056 threads"),
        ({"lds": 65000}, "66024 bytes of LDS"),
        ({"resident": 0}, "no block fits"),
    ],
)
def test_launches_that_the_gpu_refuses_are_found(rules, changes, why):
    problems = check_guarded([_pair(_DECODE, _vec(), _tile(**changes))], rules)
    assert "LAUNCH_ILLEGAL" in [problem.code for problem in problems]
    assert any(why in (problem.why or "") for problem in problems)


def test_what_the_baseline_launches_as_illegally_is_upstreams(rules):
    big = _vec(grid=(1, 131072, 2))
    pairs = [_pair(replace(_DECODE, gqa=1), big, big)]
    assert _codes(pairs, rules) == []
    (found,) = upstream_own(pairs, rules)
    assert found.message == "a launch that the GPU rejects"
    assert str(found).endswith(
        "flash_attn_ext_vec<128, 1, 1, 1, false> with 131072 blocks in y, a grid has 1 to 65536"
    )


def test_a_supported_case_must_launch_attention(rules):
    silent = CasePair(case=_DECODE, before=_record(_DECODE, _vec()), after=_record(_DECODE))
    assert _codes([silent], rules) == ["LAUNCH_NOTHING"]
    assert silent.after.attention == ()


@pytest.mark.parametrize("case", [_DECODE, _PREFILL])
def test_a_case_of_ours_that_loses_support_is_found_in_decode_too(rules, case):
    own = replace(case, id="own-1")
    assert _codes([_pair(own, _vec(), None)], rules) == ["LAUNCH_SUPPORT_LOST"]
    assert _codes([_pair(own, None, _tile() if own.is_decode else _wmma())], rules) == []


def test_support_may_grow_and_must_not_shrink():
    both = [OpRow(params="a", is_supported=True), OpRow(params="b", is_supported=False)]
    grown = [OpRow(params="a", is_supported=True), OpRow(params="b", is_supported=True)]
    assert check_support("gfx1151", both, grown) == []
    (problem,) = check_support("gfx1151", grown, both)
    assert (problem.code, problem.why) == ("LAUNCH_SUPPORT_LOST", "b")


def test_a_baseline_without_support_proves_nothing():
    (problem,) = check_support("gfx1151", [], [])
    assert problem.code == "LAUNCH_NOTHING"


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ([{"permute": f"021{n}"} for n in range(3)], 1),
        ([{"kv": 256 * n} for n in range(1, 6)], 3),
    ],
    ids=["cases that read the same once", "a few of many"],
)
def test_a_finding_counts_all_cases_and_shows_a_few(rules, changes, shown):
    pairs = [_pair(replace(_DECODE, id=str(n), **each), _vec(), _wmma()) for n, each in enumerate(changes)]
    problem = next(each for each in check_guarded(pairs, rules) if each.code == "LAUNCH_DECODE_WMMA")
    assert problem.message.endswith(f"({len(changes)} cases)")
    assert (problem.why or "").count("D=128") == shown
    assert (problem.why or "").endswith("and 2 more")
    assert problem.hint
