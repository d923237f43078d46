"""Files of a candidate as upstream would write them."""

from __future__ import annotations

import pytest

from patchkit.base.errors import UsageError
from patchkit.carry.candidate.upstream_form import upstream_text
from patchkit.carry.placing.guard import Guard, GuardedGpu

GUARD = Guard(macros=("GGML_USE_HIP",), targets=(GuardedGpu.named("gfx1151"),))
FAMILY = Guard(macros=("GGML_USE_HIP",), targets=(GuardedGpu.named("gfx1150"), GuardedGpu.named("gfx1151")))


def form(text: str, before: str | None, family: str | None = None, guard: Guard = GUARD) -> str:
    return upstream_text("a.cu", text, before, guard, family)


@pytest.mark.parametrize("condition", [GUARD.device, GUARD.region])
def test_without_a_guard_the_new_code_takes_the_place_of_the_old(condition: str) -> None:
    before = "int a;\nold();\nint b;\n"
    text = f"int a;\n#if {condition}\nnew();\n#else\nold();\n#endif\nint b;\n"
    assert form(text, before) == "int a;\nnew();\nint b;\n"


def test_removed_code_is_gone() -> None:
    text = f"int a;\n#if !({GUARD.device})\nold();\n#endif\nint b;\n"
    assert form(text, "int a;\nold();\nint b;\n") == "int a;\nint b;\n"


def test_directives_inside_a_group_stay() -> None:
    text = f"#if {GUARD.region}\n#ifdef X\nx();\n#else\ny();\n#endif\n#endif\nint b;\n"
    assert form(text, "int b;\n") == "#ifdef X\nx();\n#else\ny();\n#endif\nint b;\n"


def test_code_for_a_family_names_it_by_upstreams_macro() -> None:
    text = f"int a;\n#if {FAMILY.device}\nnew();\n#else\nold();\n#endif\nint b;\n"
    assert form(text, "int a;\nold();\nint b;\n", "rdna3_5", FAMILY) == (
        "int a;\n#if defined(RDNA3_5)\nnew();\n#else\nold();\n#endif // defined(RDNA3_5)\nint b;\n"
    )


def test_host_code_for_a_family_needs_no_directives() -> None:
    text = (
        f"#if {FAMILY.region}\nif {FAMILY.host('cc')} {{\n    return 1;\n}}\n#endif\n"
        f"#if {FAMILY.region}\nif ({FAMILY.host('a.b[0].cc')} && x) {{\n    return 1;\n}}\n#endif\n"
    )
    assert form(text, "", "rdna3_5", FAMILY) == (
        "if (GGML_CUDA_CC_IS_RDNA3_5(cc)) {\n    return 1;\n}\n"
        "if (GGML_CUDA_CC_IS_RDNA3_5(a.b[0].cc) && x) {\n    return 1;\n}\n"
    )


@pytest.mark.parametrize(
    ("line", "without"),
    [
        ("    if (A && n > 1 &&", "    if (n > 1 &&"),
        ("    if (n > 1 && A) {", "    if (n > 1) {"),
        ("    f(1, A ? g(n, 2) : 7, 3);", "    f(1, g(n, 2), 3);"),
        ("    const int n = A ? m : 7;", "    const int n = m;"),
        ("    if A {\n        g();\n\n        h();\n    }", "    g();\n\n    h();"),
    ],
)
def test_a_condition_that_always_holds_is_gone(line: str, without: str) -> None:
    text = f"#if {GUARD.region}\n{line.replace('A', GUARD.host('cc'))}\n#endif\n"
    assert form(text, "") == f"{without}\n"


@pytest.mark.parametrize("line", ["if (A || x) {", "if A {\n    f();\n} else {", "x = !A;", "if (!A) {"])
def test_a_condition_in_another_form_is_refused_with_its_line(line: str) -> None:
    text = f"int a;\n#if {GUARD.region}\n{line.replace('A', GUARD.host('cc'))}\n#endif\n"
    with pytest.raises(UsageError) as caught:
        form(text, "int a;\n")
    assert caught.value.code == "PROPOSE_REFUSED"
    assert caught.value.where[0].line == 2


@pytest.mark.parametrize(
    ("before", "text", "after"),
    [
        (
            "    f(a, b);\n",
            "    f(a,\n#if G\n        new\n#else\n        b\n#endif\n        );\n",
            "    f(a, new);\n",
        ),
        (
            "    if (a) {\n",
            "    if (a\n#if G\n        && b\n#endif\n        ) {\n",
            "    if (a && b) {\n",
        ),
        ("    old(); // why\n", "#if G\n    new();\n#else\n    old(); // why\n#endif\n", "    new();\n"),
    ],
)
def test_a_part_of_a_line_returns_to_its_line(before: str, text: str, after: str) -> None:
    text = text.replace("G", GUARD.device)
    assert form(f"int x;\n{text}int y;\n", f"int x;\n{before}int y;\n") == f"int x;\n{after}int y;\n"


def test_a_new_file_has_no_guard_around_it() -> None:
    text = f'#pragma once\n\n#include "a.h"\n\n#if {GUARD.region}\n\nint a;\n\n#endif // {GUARD.region}\n'
    assert form(text, None) == '#pragma once\n\n#include "a.h"\n\nint a;\n'


def test_other_gpus_and_upstreams_own_conditions_stay() -> None:
    text = "#if defined(GGML_USE_HIP)\nif (cc == GGML_CUDA_CC_OFFSET_AMD + 0x11510) {}\n#endif\n"
    assert form(text, text) == text
