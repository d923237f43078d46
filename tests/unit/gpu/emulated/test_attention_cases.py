"""Attention cases: upstream's, as it prints them, and ours."""

from __future__ import annotations

import pytest

from patchkit.gpu.emulated.cases import (
    CaseNotUnderstood,
    SupportMalformed,
    case_line,
    own_cases,
    parse_support,
    upstream_case,
)

_PARAMS = (
    "hsk=64,hsv=64,nh=4,nr23=[16,3],kv=512,nb=35,mask=1,sinks=0,max_bias=8.000000,"
    "logit_softcap=10.000000,prec=def,type_KV=q8_0,permute=[0,2,1,3]"
)


def test_upstreams_variables_become_a_case():
    case = upstream_case(_PARAMS, 7)
    assert (case.id, case.head_size, case.kv_heads, case.gqa, case.sequences) == ("upstream-7", 64, 4, 16, 3)
    assert (case.kv, case.tokens, case.mask, case.sinks) == (512, 35, True, False)
    assert (case.max_bias, case.softcap, case.precise) == (8.0, 10.0, False)
    assert (case.type_k, case.type_v, case.permute) == ("q8_0", "q8_0", "0213")
    assert case.is_quantized
    assert not case.is_decode


@pytest.mark.parametrize(("kind", "sizes"), [("q8_0", (64, 32)), ("f16", (40, 20)), ("bf16", (40, 20))])
def test_head_sizes_are_rounded_up_to_whole_blocks_as_upstream_does(kind, sizes):
    params = _PARAMS.replace("hsk=64,hsv=64", "hsk=40,hsv=20").replace("q8_0", kind)
    case = upstream_case(params, 0)
    assert (case.head_size, case.head_size_v) == sizes


def test_later_builds_name_both_types_and_more_variables():
    later = _PARAMS.replace("type_KV=q8_0", "type_K=f16,type_V=bf16") + ",v_is_view_of_k=0"
    case = upstream_case(later, 0)
    assert (case.type_k, case.type_v) == ("f16", "bf16")


@pytest.mark.parametrize(
    ("params", "why"),
    [
        (_PARAMS + ",flavour=3", "unknown: flavour"),
        (_PARAMS + ",v_is_view_of_k=1", "unknown: v_is_view_of_k"),
        (_PARAMS.replace("kv=512,", ""), "'kv'"),
        (_PARAMS.replace("nb=35", "nb=many"), "many"),
    ],
)
def test_a_case_we_cannot_build_is_refused_not_guessed(params, why):
    with pytest.raises(CaseNotUnderstood) as caught:
        upstream_case(params, 0)
    assert why in (caught.value.why or "")
    assert "test_flash_attn_ext" in (caught.value.hint or "")


def test_our_cases_cover_what_the_gate_promises():
    cases = own_cases()
    assert len({case.id for case in cases}) == len(cases)
    assert {case.head_size for case in cases} == {40, 64, 80, 96, 112, 128, 256, 576}
    assert {case.gqa for case in cases} == {1, 2, 4, 8, 16}
    assert {case.kv for case in cases} >= {256, 131072}
    assert {case.type_k for case in cases} == {"f16", "q8_0", "q4_0"}
    assert {case.tokens for case in cases} >= {1, 2, 33, 512}
    for option in (
        [case for case in cases if not case.mask],
        [case for case in cases if case.sinks],
        [case for case in cases if case.max_bias],
        [case for case in cases if case.softcap],
        [case for case in cases if not case.precise],
        [case for case in cases if case.sequences > 1],
    ):
        assert any(case.is_decode for case in option)
        assert any(not case.is_decode for case in option)


def test_quantized_types_are_asked_only_of_head_sizes_of_whole_blocks():
    assert not [case for case in own_cases() if case.is_quantized and case.head_size % 32]


def test_the_line_for_the_driver_states_every_variable():
    line = case_line(upstream_case(_PARAMS, 7))
    assert line == (
        "upstream-7 hsk=64 hsv=64 nh=4 nr2=16 nr3=3 kv=512 nb=35 mask=1 sinks=0 max_bias=8 logit_softcap=10 "
        "prec=default type_k=q8_0 type_v=q8_0 permute=0213 view=1\n"
    )


def test_the_memory_of_a_case_is_that_of_its_tensors():
    # K and V twice as long (views) at 2 bytes, Q and the result at 4 bytes, the mask at 2, three sequences.
    kept, batch, mask = 512 * 4 * 2 * (64 + 64) * 2, 35 * 4 * 16 * (64 + 64) * 4, 512 * 35 * 2
    assert upstream_case(_PARAMS, 7).bytes == 3 * (kept + batch + mask)


def test_cases_read_like_a_sentence():
    assert str(upstream_case(_PARAMS, 7)) == (
        "D=64 gqa=16 kv=512 tokens=35 q8_0 ALiBi soft cap f16 accumulators 3 sequences"
    )


def test_the_support_table_is_read_by_its_columns():
    text = (
        '"backend_name","op_name","op_params","supported"\n'
        '"ROCm0","FLASH_ATTN_EXT","hsk=40,hsv=40","1"\n'
        '"ROCm0","FLASH_ATTN_EXT","hsk=72,hsv=72","0"\n'
        '"ROCm0","ADD","x","1"\n'
    )
    assert [(row.params, row.is_supported) for row in parse_support(text)] == [
        ("hsk=40,hsv=40", True),
        ("hsk=72,hsv=72", False),
    ]


@pytest.mark.parametrize("text", ["", "no such option\n", '"op_name","op_params"\n"a","b"\n'])
def test_another_table_is_an_error(text):
    with pytest.raises(SupportMalformed):
        parse_support(text)
