"""From anchors to placements, and what is refused on the way."""

from __future__ import annotations

from dataclasses import replace

import pytest
from refusing import refused
from sources import read

from patchkit.carry.placing.expand import apply_placements, expand_alias, expand_edit, expand_switch_include
from patchkit.carry.placing.guard import GuardLeak, require_isolated
from patchkit.carry.placing.resolve import EntityNotFound, resolve_anchor

HOST = "(cc == GGML_CUDA_CC_OFFSET_AMD + 0x1151)"


def expanded(text, edit, guard, rendered=None):
    scopes = read(text)
    placements = expand_edit(scopes, resolve_anchor(scopes, edit), guard, rendered)
    return apply_placements(scopes.source, placements).after.data.decode()


@pytest.mark.parametrize("verb", ["insert_before", "insert_after"])
@pytest.mark.parametrize(
    ("word", "after"),
    [
        ("before", "  a;\n#if {d}\n  x;\n#endif\n  b; // c\n"),
        ("after", "  a;\n  b; // c\n#if {d}\n  x;\n#endif\n"),
    ],
)
def test_before_and_after_are_places_of_their_own(edit, guard, verb, word, after):
    chosen = edit({word: {"tokens": "b;"}}, verb=verb)
    assert expanded("  a;\n  b; // c\n", chosen, guard, "x;") == after.format(d=guard.device)


@pytest.mark.parametrize("text", ["b;", f"b; // {HOST}", "x == GGML_CUDA_CC_OFFSET_AMD + 0x11510;"])
def test_a_host_edit_that_does_not_ask_is_refused(edit, guard, text):
    with refused("HOST_GUARD_MISSING") as caught:
        expanded("a;\n", edit({"tokens": "a;"}, side="host"), guard, text)
    assert "without the host guard of gfx1151" in caught.value.message


def test_every_gpu_of_the_guard_must_be_asked_for(edit, two_gpus):
    with refused("HOST_GUARD_MISSING") as caught:
        expanded("a;\n", edit({"tokens": "a;"}, side="host"), two_gpus, f"if {HOST} b;")
    assert "of gfx90a" in caught.value.message


def test_one_statement_may_take_the_place_of_a_governed_one(edit, guard):
    text = "void f() {\n    if (a)\n        b;\n}\n"
    chosen = edit({"statement": "b"}, function="f")
    assert "        { c; d; }\n#else\n        b;\n" in expanded(text, chosen, guard, "{ c; d; }")
    with refused("SEVERAL_STATEMENTS") as caught:
        expanded(text, chosen, guard, "c; d;")
    assert str(caught.value.where[1]) == "t.cu:3:9"
    assert expanded(text, replace(chosen, at=edit({"tokens": "a"}).at), guard, "c")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('#include "a.cuh"\n#include "b.cuh"\n\nvoid f() { }\n', 3),
        ('#pragma once\n#ifdef X\n#include "x.cuh"\n#endif\n#include "a.cuh"\nint a;\n', 6),
        ('#include "a.cuh"\n#ifdef X\n#include "x.cuh"\n#endif\n', 2),
        ('#include "a.cuh"\nvoid f() { }\n#include "impl.cuh"\n', 2),
        ('#ifndef T_H\n#define T_H\n#include "a.cuh"\n#endif\n', 4),
        ('#include "a.cuh"\n#include <b>\n#include\n', 2),
    ],
)
def test_an_include_goes_behind_the_unconditional_ones_at_the_top(edit, guard, text, line):
    after = expanded(text, edit(verb="add_include", header="our.cuh"), guard).split("\n")
    assert after[line - 1 : line + 2] == [f"#if {guard.device}", '#include "our.cuh"', "#endif"]


def test_an_include_behind_the_last_line_of_a_file_adds_no_newline_to_it(edit, guard):
    after = expanded('#include "a.cuh"', edit(verb="add_include", header="our.cuh", side="host"), guard)
    assert after == f'#include "a.cuh"\n#if {guard.region}\n#include "our.cuh"\n#endif'


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_includes_of_several_patches_are_in_one_block(edit, guard, newline):
    first, second = (edit(verb="add_include", header=name, side="host") for name in ("one.cuh", "two.cuh"))
    before = newline.join(('#include "a.cuh"', "int a;", ""))
    after = expanded(expanded(before, first, guard), second, guard)
    ours = (f"#if {guard.region}", '#include "two.cuh"', '#include "one.cuh"', "#endif")
    assert after == newline.join(('#include "a.cuh"', *ours, "int a;", ""))


def test_an_include_is_not_added_to_a_block_of_another_condition(edit, guard):
    for block in (f"#if {guard.device}", f"#if {guard.region} && 1"):
        before = f'#include "a.cuh"\n{block}\n#include "one.cuh"\n#endif\n'
        after = expanded(before, edit(verb="add_include", header="two.cuh", side="host"), guard)
        ours = f'#if {guard.region}\n#include "two.cuh"\n#endif\n'
        assert after == before.replace("\n", "\n" + ours, 1)


def test_the_include_of_the_switches_is_added_once(edit, guard):
    where = edit({"tokens": "a"}).where
    scopes = read('#include "a.cuh"\nint a;\n')
    placements = expand_switch_include(scopes, "switches.cuh", guard, where)
    once = apply_placements(scopes.source, placements).after.data.decode()
    assert once == f'#include "a.cuh"\n#if {guard.region}\n#include "switches.cuh"\n#endif\nint a;\n'
    later = expanded(once, edit(verb="add_include", header="our.cuh", side="host"), guard)
    assert later.index("our.cuh") < later.index("switches.cuh")
    assert expand_switch_include(read(later), "switches.cuh", guard, where) == ()


def test_an_include_that_is_to_be_read_first_goes_before_the_one_it_names(edit, guard):
    chosen = edit({"include": "../b.cuh"}, verb="add_include", header="../our.cuh", side="host")
    after = expanded('#include "a.cuh"\n#include "../b.cuh"\n\nCASE(1);\n', chosen, guard)
    ours = f'#if {guard.region}\n#include "../our.cuh"\n#endif\n'
    assert after == f'#include "a.cuh"\n{ours}#include "../b.cuh"\n\nCASE(1);\n'


@pytest.mark.parametrize(
    "text",
    [
        "#include <a>\nint b;\n",
        '#ifdef A\n#include "a.cuh"\n#endif\n',
        '#ifndef A\n#include "a.cuh"\n#endif\n',
        '#ifndef A\n#define B\n#include "a.cuh"\n#endif\n',
        '#ifndef A\n#define A\n#else\n#include "a.cuh"\n#endif\n',
        'int a;\n#ifndef A\n#define A\n#include "a.cuh"\n#endif\n',
    ],
)
def test_without_such_a_line_there_is_no_place(edit, guard, text):
    with refused("NO_INCLUDE_BLOCK"):
        expanded(text, edit(verb="add_include", header="our.cuh"), guard)


@pytest.mark.parametrize(
    "line", ['#include "our.cuh"', "#include <our.cuh>", '#if A\n#include "our.cuh"\n#endif']
)
def test_an_include_that_is_there_is_refused_with_its_line(edit, guard, line):
    with refused("ALREADY_INCLUDED") as caught:
        expanded(
            f'#include "a.cuh"\nvoid f() {{ }}\n{line}\n', edit(verb="add_include", header="our.cuh"), guard
        )
    assert caught.value.where[1].line in (3, 4)


def test_an_alias_is_defined_twice_in_front_of_its_function(alias, guard):
    scopes = read("int x;\r\nvoid f() { }\r\n")
    placement = expand_alias(scopes, alias, guard, " stride\n")
    after = apply_placements(scopes.source, [placement]).after.data.decode()
    assert after == (
        "int x;\r\n"
        f"#if {guard.device}\r\n#define MY_STRIDE stride\r\n#else\r\n#define MY_STRIDE STRIDE\r\n#endif\r\n"
        "void f() { }\r\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        "int MY_STRIDE;\nvoid f() { }\n",
        "#define MY_STRIDE 1\nvoid f() { }\n",
        "#define OTHER MY_STRIDE\nvoid f() { }\n",
        "#ifdef MY_STRIDE\n#endif\nvoid f() { }\n",
    ],
)
def test_an_alias_whose_name_occurs_anywhere_is_taken(alias, guard, text):
    with refused("ALIAS_UNUSABLE") as caught:
        expand_alias(read(text), alias, guard, "stride")
    assert caught.value.where[1].line == 1


@pytest.mark.parametrize("device", ["a\nb", "a \\", "  "])
def test_an_alias_stands_for_one_line(alias, guard, device):
    with refused("ALIAS_UNUSABLE"):
        expand_alias(read("void f() { }"), alias, guard, device)
    with refused("ALIAS_UNUSABLE"):
        expand_alias(read("void f() { }"), replace(alias, upstream=device.strip()), guard, "stride")


def test_an_alias_needs_its_function(alias, guard):
    with pytest.raises(EntityNotFound):
        expand_alias(read("void g() { }"), alias, guard, "stride")


@pytest.mark.parametrize("fields", [{"verb": "remove"}, {"verb": "use_alias", "alias": "MY_A"}])
def test_a_host_edit_that_cannot_check_the_gpu_is_refused(edit, guard, fields):
    with refused("HOST_GUARD_MISSING", match="cannot check which GPU"):
        expanded("a;\n", edit({"tokens": "a"}, side="host", **fields), guard)


@pytest.mark.parametrize(
    ("verb", "after"),
    [
        ("change_to", "#if {d}\nb;\n#elif {g}\n{e}\n#else\na;\n#endif\n"),
        ("insert_before", "#if {d}\nb;\n#elif {g}\n{e}\n#endif\na;\n"),
        ("insert_after", "a;\n#if {d}\nb;\n#elif {g}\n{e}\n#endif\n"),
    ],
)
def test_a_pair_is_an_error_for_no_gpu_in_particular(edit, guard, here, verb, after):
    refusing = replace(guard, refused=("__gfx11_generic__", "__SPIRV__"))
    paired = edit({"tokens": "a;"}, verb=verb, pairs=("p",))
    text = expanded("a;\n", paired, refusing, "b;")
    error = next(line for line in text.splitlines() if line.startswith("#error"))
    assert "gfx1151" in error
    assert text == after.format(d=refusing.device, g=refusing.generic, e=error)
    require_isolated(read("a;\n"), read(text), refusing, {}, here)
    # What stands there must be an error and no code.
    with pytest.raises(GuardLeak):
        require_isolated(read("a;\n"), read(text.replace(error, "c;")), refusing, {}, here)
    # Where no host code depends on it nothing is refused.
    assert "#error" not in expanded("a;\n", edit({"tokens": "a;"}, verb=verb), refusing, "b;")
