"""Mangled names of kernels, as clang writes them."""

from __future__ import annotations

import pytest

from patchkit.gpu.emulated.names import family_of, host_name, read_name

_TAIL = "EvPKcS1_S1_S1_S1_PKiPfP15HIP_vector_typeIfLj2EEffffjfiiiiiiiiiiiiiliiliiiiil"
_WMMA = f"_ZL18flash_attn_ext_f16ILi128ELi32ELi4ELi64EfLb0E{_TAIL}"
_HALF = f"_ZL18flash_attn_ext_f16ILi64ELi16ELi8ELi64E6__halfLb1E{_TAIL}"
_TILE = f"_ZL15flash_attn_tileILi128ELi128ELi1ELi4ELb0E{_TAIL}"
_VEC = f"_ZL18flash_attn_ext_vecILi128ELi1EL9ggml_type8ELS0_8ELb0E{_TAIL}"


@pytest.mark.parametrize(
    ("mangled", "shown"),
    [
        (_WMMA, "flash_attn_ext_f16<128, 32, 4, 64, float, false>"),
        (_HALF, "flash_attn_ext_f16<64, 16, 8, 64, half, true>"),
        (_TILE, "flash_attn_tile<128, 128, 1, 4, false>"),
        (_VEC, "flash_attn_ext_vec<128, 1, 8, 8, false>"),
        ("_ZL9scale_f32PKfPfffi", "scale_f32"),
        ("_Z3fooILin3EEvv", "foo<-3>"),
    ],
)
def test_names_are_shown_as_a_person_writes_them(mangled, shown):
    assert str(read_name(mangled)) == shown


def test_arguments_that_are_not_plain_leave_the_base():
    mangled = "_ZL11k_bin_bcastIXadL_ZL6op_addffEEfffJEEvPKT0_"
    name = read_name(mangled)
    assert (name.base, name.arguments, str(name)) == ("k_bin_bcast", None, "k_bin_bcast")
    assert name.integer(0) is None


def test_what_is_no_mangled_function_keeps_its_name():
    assert str(read_name("_ZN3foo3barEv")) == "_ZN3foo3barEv"
    assert str(read_name("plain_c_kernel")) == "plain_c_kernel"


def test_integers_are_read_by_position_and_only_where_they_are():
    name = read_name(_HALF)
    assert [name.integer(index) for index in (0, 1, 2, 4, 9)] == [64, 16, 8, None, None]


@pytest.mark.parametrize(
    ("mangled", "unit", "family"),
    [
        (_WMMA, "ggml/src/ggml-cuda/fattn-wmma-f16.cu", "wmma"),
        (_WMMA, "ggml/src/ggml-cuda/template-instances/fattn-mma-f16-instance-ncols1_8-ncols2_1.cu", "mma"),
        (_TILE, "ggml/src/ggml-cuda/template-instances/fattn-tile-instance-dkq128-dv128.cu", "tile"),
        (_VEC, "ggml/src/ggml-cuda/template-instances/fattn-vec-instance-q8_0-q8_0.cu", "vec"),
        ("_ZL22flash_attn_mma_promptsILi64ELi4EEvPKc", "ggml/src/ggml-cuda/fattn.cu", "mma"),
        ("_ZL26flash_attn_combine_resultsILi128EEvPKf", "ggml/src/ggml-cuda/fattn-wmma-f16.cu", "other"),
    ],
)
def test_families_are_told_apart_by_name_and_unit(mangled, unit, family):
    assert family_of(read_name(mangled), [unit]) == family


@pytest.mark.parametrize(
    ("mangled", "name"),
    [
        ("_ZN19llm_graph_input_pos9set_inputEPK12llama_ubatch", "llm_graph_input_pos::set_input"),
        ("_ZNK14llama_kv_cache17set_input_kq_maskEP11ggml_tensorb", "llama_kv_cache::set_input_kq_mask"),
        ("_ZL6launchv", "launch"),
        ("main", "main"),
        ("_ZN1aIiE1bEv", "_ZN1aIiE1bEv"),  # template arguments are not read
    ],
)
def test_a_host_function_is_named_with_its_class(mangled: str, name: str) -> None:
    assert host_name(mangled) == name
