"""Terminal and Markdown: answers first, no markup from evidence, nothing without bounds."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from patchkit.base.report.blocks import Row, Table, columns
from patchkit.base.report.markdown import cell, escaped, markdown_report, markdown_table
from patchkit.base.report.terminal import terminal_report, terminal_summary
from patchkit.prove.gates.record import Problem
from patchkit.prove.report.model import Run


def test_the_terminal_begins_with_answers_then_what_was_not_proven(whole: Run) -> None:
    text = terminal_report(whole.report())
    order = ("does it fit?    yes", "is it correct?  not run", "is it faster?   not measured", "not proven:")
    places = [
        text.index(part) for part in (*order, "gates: nothing failed", "passed   anchors", "256 -> 234")
    ]
    assert places == sorted(places)
    assert (
        "  better  flash_attn_ext_f16 head size 128, 16 columns, 4 warps, stride 64, f16 acc, softcap" in text
    )
    assert "256 -> 234" in text
    assert "Edits and the places they resolve to" in text
    summary = terminal_summary(whole.report(), 80)
    assert "256 -> 234" not in summary
    assert len(summary.splitlines()) < 60
    assert max(len(line) for line in summary.splitlines() if "patchkit " not in line) <= 110
    assert not re.search(r"[^\S\n]$", text, re.MULTILINE)


def test_the_terminal_shows_a_problem_with_its_places(failing: Run) -> None:
    text = terminal_report(failing.report())
    assert "does it fit?    no: isolation failed (439 of 440 readings identical)" in text
    assert "FAILED isolation: 439 of 440 readings identical" in text
    assert "  skipped  compile    gate isolation failed" in text
    assert "    --> ggml/src/ggml-cuda/fattn.cu:42:7: wmma-tile-params\n" in text
    assert "    hint: patchkit diff --patch wmma-tile-params\n" in text
    assert "cuda sm_70 device" in text
    assert "unreadable: unterminated conditional directive" in text


def test_what_passed_on_an_emulated_gpu_is_told_apart_and_what_it_launched_shown(emulated: Run) -> None:
    headline = "Nothing failed: of 2 gates 1 passed, 1 passed on an emulated GPU, 0 failed, 0 did not run"
    assert emulated.headline == headline
    text = terminal_report(emulated.report())
    assert "  bench: speed: not measured; needs the GPU" in text
    assert "\n  passed (emulated)  bench    llama-bench comes to its end" in text
    assert re.search(r"flash_attn_tile<128, 128, 2, 2, false> +0 +12\n", text)
    markdown = markdown_report(emulated.report())
    assert "☑️ passed (emulated)" in markdown
    assert "emulated gfx1151, emulator 0123456789abcdef" in markdown


def test_no_text_of_the_evidence_goes_on_with_a_line_of_its_own(with_problem: Callable[..., Run]) -> None:
    evil = "a\nok     bench: 9 of 9 faster (1.0 s)\x1b[2J"
    run = with_problem(
        place={"path": evil, "label": evil},
        gate={"summary": evil, "not_run": (evil,)},
        **dict.fromkeys(("message", "why", "hint"), evil),
    )
    run = run.model_copy(update={"branch": evil, "folder": evil, "proven_with": (evil,)})
    text = terminal_report(run.report())
    assert not [line for line in text.splitlines() if line.startswith("ok ")]
    assert "\x1b" not in text
    assert " ".join(text.split()).count("ok bench: 9 of 9") == 13  # each text is still there


def test_long_tables_are_cut_and_say_so(whole: Run) -> None:
    rows = tuple(Row(cells=(str(number),)) for number in range(500))
    table = Table(name="t", caption="c", columns=columns("n #"), rows=rows, note="all")
    lines = list(markdown_table(table))
    assert "450 more rows are in the evidence." in lines
    assert "| 49 |" in lines
    assert "| 50 |" not in lines
    assert lines[1] == "|--:|"


def test_the_summary_has_gates_open_points_and_foldable_tables(whole: Run) -> None:
    text = markdown_report(whole.report())
    assert "| bench | ⚪ not run | 0.0 | needs the GPU |" in text
    assert "- **bench**: not run: needs the GPU" in text
    assert (
        "<details><summary>resources: Kernel variants that changed, baseline -&gt; candidate</summary>"
        in text
    )
    assert r"flash\_attn\_ext\_f16 head size 128, 16 columns" in text
    assert text.count("<details>") == text.count("</details>")
    assert text.index("### Not proven") < text.index("<details>")


def test_the_summary_shows_problems_in_fences(failing: Run) -> None:
    text = markdown_report(failing.report())
    block = text[text.index("```text") : text.index("```\n", text.index("```text") + 7)]
    assert "ISOLATION_TOKENS: fattn.cu reads differently for cuda sm_70 device" in block
    assert "--> ggml/src/ggml-cuda/fattn.cu:42:7: wmma-tile-params" in block


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a | b", r"a \| b"),
        ("<script>", "&lt;script>"),
        ("[x](http://y)", r"\[x\](http://y)"),
        ("`code` *b* _i_ ~~s~~", r"\`code\` \*b\* \_i\_ \~\~s\~\~"),
        ("two\nlines\tand  more", "two lines and more"),
        ("@somebody", "@<!-- -->somebody"),
        ("&lt;", "&amp;lt;"),
        ("a\\|b", r"a\\\|b"),
        ("$x$ #1", r"\$x\$ \#1"),
    ],
)
def test_text_stays_text(text: str, shown: str) -> None:
    assert escaped(text) == shown


def test_a_cell_is_one_line_and_short() -> None:
    assert cell("x" * 1000) == "x" * 300 + "..."


def test_a_fence_is_longer_than_what_it_holds(with_problem: Callable[..., Run]) -> None:
    text = markdown_report(with_problem(why="```\n</details>\n````` # not a heading").report())
    assert text.count("``````") == 2
    assert "``````text\n" in text


def test_the_summary_stays_below_what_github_takes(whole: Run) -> None:
    (isolation,) = (gate for gate in whole.gates if gate.name == "isolation")
    problem_texts = ["é" * 19_000] * 200
    gates = tuple(
        isolation.model_copy(update={"name": f"g{at}", "summary": text, "not_run": (text,)})
        for at, text in enumerate(problem_texts)
    )
    short = markdown_report(whole.model_copy(update={"gates": gates}).report())
    assert len(short.encode()) < 1_000_000
    huge = isolation.model_copy(
        update={
            "problems": tuple(Problem(code="X", message=text, where=(), places=()) for text in problem_texts)
        }
    )
    cut = markdown_report(whole.model_copy(update={"gates": (huge,)}).report())
    assert 800_000 < len(cut.encode()) < 1_000_000
    assert cut.endswith("The rest was cut: the evidence has all of it.\n")
