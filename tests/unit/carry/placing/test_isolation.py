"""With the guard false a file reads as before, whatever the rendered text tries."""

from __future__ import annotations

import pytest
from sources import read

from patchkit.base.source import Span
from patchkit.carry.placing.expand import guard_insertion, guard_replacement
from patchkit.carry.placing.guard import GuardLeak, require_isolated

BEFORE = '#include "a.h"\nvoid f() {\n    old(); /* note */\n    last();\n}\n'


@pytest.fixture
def replaced(guard, here):
    def run(new):
        before = read(BEFORE)
        start = before.source.data.index(b"old")
        source = before.source
        span = Span(start, start + len(b"old();"))
        where, text = guard_replacement(source, span, new.encode(), guard.device)
        after = read(source.data[: where.start] + text + source.data[where.end :])
        require_isolated(before, after, guard, {}, here)
        return after.source.data

    return run


@pytest.mark.parametrize(
    "text",
    [
        "new();",
        "",
        "#pragma unroll\nfor (;;) { }",
        "#ifdef X\nnew();\n#else\nnewer();\n#endif",
    ],
)
def test_text_that_stays_under_its_guard_is_isolated(replaced, text):
    assert all(line in replaced(text) for line in text.encode().split(b"\n"))


@pytest.mark.parametrize(
    "text",
    [
        "new();\n#endif",
        "new();\n#if 1",
        "#endif\nnew();\n#if 1",
        "new();\n#else\nnewer();",
        "new();\n#elif defined(__gfx1100__)",
        "new();\n#elif 1\nnewer();",
        "#else",
        "new() \\",
        "// comment \\",
        "/* never closed",
        'R"(never closed',
    ],
)
def test_text_that_leaves_its_guard_is_a_leak(replaced, text):
    with pytest.raises(GuardLeak) as caught:
        replaced(text)
    assert caught.value.where[0].path == "t.cu"
    assert "outside the guard" in caught.value.message


@pytest.mark.parametrize(
    "after",
    [
        BEFORE.replace("last", "lost"),
        BEFORE + "int more;\n",
        BEFORE.replace("    last();\n", ""),
        BEFORE.replace("a.h", "b.h"),
        BEFORE.replace('#include "a.h"\n', ""),
        "#undef X\n" + BEFORE,
    ],
)
def test_any_token_or_directive_that_differs_is_a_leak(guard, here, after):
    with pytest.raises(GuardLeak):
        require_isolated(read(BEFORE), read(after), guard, {}, here)


@pytest.mark.parametrize(
    "after", [BEFORE.replace("note", "noted"), BEFORE.replace("    ", "\t"), BEFORE[:-1]]
)
def test_layout_and_comments_do_not_count(guard, here, after):
    require_isolated(read(BEFORE), read(after), guard, {}, here)


def test_the_three_generated_shapes_of_both_conditions(guard, here):
    for condition in (guard.device, guard.region):
        after = (
            f"#if {condition}\nint a;\n#endif\n"
            f"#if {condition}\nint a;\n#else\nint b;\n#endif\n"
            f"#if !({condition})\nint c;\n#endif\n"
        )
        require_isolated(read("int b;\nint c;\n"), read(after), guard, {}, here)


@pytest.mark.parametrize("tail", ["#else\nint d;\n", "#elif X\n"])
def test_a_negated_region_has_no_other_branch(guard, here, tail):
    after = f"#if !({guard.device})\nint c;\n{tail}#endif\n"
    with pytest.raises(GuardLeak):
        require_isolated(read("int c;\n"), read(after), guard, {}, here)


def test_another_guard_is_not_ours(guard, two_gpus, here):
    with pytest.raises(GuardLeak):
        require_isolated(
            read("int a;\n"), read(f"#if {two_gpus.device}\nint b;\n#endif\nint a;\n"), guard, {}, here
        )


def test_regions_of_an_earlier_patch_with_the_same_guard_are_no_difference(guard, here):
    region = f"#if {guard.device}\nint a;\n#endif\n"
    require_isolated(read(region + "int b;\n"), read(region + region + "int b;\n"), guard, {}, here)


def test_an_alias_reads_as_what_upstream_wrote(guard, here):
    definition = f"#if {guard.device}\n#define N n\n#else\n#define N A + 1\n#endif\n"
    require_isolated(read("int x = A + 1;\n"), read(definition + "int x = N;\n"), guard, {"N": "A + 1"}, here)
    with pytest.raises(GuardLeak):
        require_isolated(read("int x = B;\n"), read(definition + "int x = N;\n"), guard, {"N": "A + 1"}, here)


def test_an_insertion_is_isolated(guard, here):
    before = read(BEFORE)
    span = before.code[0].span
    where, text = guard_insertion(before.source, span, b"int a;", guard.device, after=False)
    after = read(before.source.data[: where.start] + text + before.source.data[where.end :])
    require_isolated(before, after, guard, {}, here)


@pytest.mark.parametrize("text", ["x();\n%:elif defined(OTHER)", "x();\n%:endif\ny();\n%:if 1"])
def test_directives_written_with_the_digraph_leak(replaced, text):
    with pytest.raises(GuardLeak, match="%:"):
        replaced(text)
