"""Errors as a person and as a program read them."""

from __future__ import annotations

import json
import re

import pytest

from patchkit.base.errors import AnchorError, ConfigError, ErrorGroup, ExitCode, Location, RenderError
from patchkit.base.text import visible
from patchkit.cli.error_text import error_as_json, exit_code_of, format_error
from patchkit.cli.terminal import Terminal

_ANCHOR = AnchorError(
    "2 matches for function 'mul'",
    where=[
        Location(path="ggml/mul.cu", line=412, column=1, label="first match"),
        Location(path="patches/0007/patch.toml", line=18),
    ],
    why="two functions\nhave that name",
    hint='add inside = "..."',
)


def test_one_error_reads_like_a_compilers() -> None:
    assert format_error(_ANCHOR).split("\n") == [
        "error[ANCHOR]: 2 matches for function 'mul'",
        " --> ggml/mul.cu:412:1: first match",
        " --> patches/0007/patch.toml:18",
        "why: two functions",
        "      have that name",
        'hint: add inside = "..."',
    ]


def test_an_error_without_details_is_one_line() -> None:
    assert format_error(ConfigError("no such profile")) == "error[CONFIG]: no such profile"


def test_a_group_shows_every_member_and_the_count() -> None:
    inner = ErrorGroup("one patch", [RenderError("a"), RenderError("b")])
    text = format_error(ErrorGroup("the plan does not hold", [_ANCHOR, inner]))
    assert text.count("error[") == 3
    assert text.endswith("\n\nthe plan does not hold: 3 errors")


def test_a_group_exits_as_its_first_member() -> None:
    inner = ErrorGroup("x", [RenderError("a"), _ANCHOR])
    assert exit_code_of(ErrorGroup("y", [inner, _ANCHOR])) is ExitCode.RENDER
    assert exit_code_of(_ANCHOR) is ExitCode.ANCHOR


def test_an_empty_group_is_still_an_error() -> None:
    assert exit_code_of(ErrorGroup("nothing", [])) is ExitCode.INTERNAL


def test_paint_touches_only_the_labels() -> None:
    painted = format_error(_ANCHOR, lambda text, role: f"<{role}>{text}</>")
    assert painted.startswith("<error>error[ANCHOR]</>: 2 matches")
    assert "\n <place>--></> ggml/mul.cu:412:1: first match" in painted
    assert "\n<hint>hint</>: add" in painted


def test_json_carries_every_field() -> None:
    document = error_as_json(_ANCHOR)
    assert document == {
        "error": {
            "code": "ANCHOR",
            "exit_code": 3,
            "message": "2 matches for function 'mul'",
            "where": [
                {"path": "ggml/mul.cu", "line": 412, "column": 1, "label": "first match"},
                {"path": "patches/0007/patch.toml", "line": 18, "column": None, "label": None},
            ],
            "why": "two functions\nhave that name",
            "hint": 'add inside = "..."',
        }
    }


def test_json_of_a_group_lists_its_members() -> None:
    document = error_as_json(ErrorGroup("both", [RenderError("a"), _ANCHOR]))["error"]
    assert isinstance(document, dict)
    assert document["code"] == "SEVERAL"
    assert document["exit_code"] == 4
    assert [member["message"] for member in document["errors"]] == ["a", "2 matches for function 'mul'"]


_EVIL = "a\x1b]0;title\x07\x1b[2Jb\rc\u202ed\x9be"
_SHOWN = "a\\x1b]0;title\\x07\\x1b[2Jb\\x0dc\\u202ed\\x9be"


def test_nothing_in_an_error_gives_orders_to_the_terminal() -> None:
    error = AnchorError(_EVIL, where=Location(path=_EVIL, label=_EVIL), why=_EVIL, hint=_EVIL)
    told = format_error(ErrorGroup(_EVIL, [error]))
    assert told.count(_SHOWN) == 6
    assert visible(told) == told
    assert error_as_json(error)["error"]["message"] == _EVIL  # a program reads what it was


def test_a_name_with_a_line_break_has_no_line_of_its_own() -> None:
    name = "a\n::add-mask::error[FAKE]: it is all well"
    told = format_error(ErrorGroup(name, [AnchorError(f"{name} is not read", where=Location(path=name))]))
    assert [line.split()[0] for line in told.splitlines() if line] == [
        "error[ANCHOR]:",
        "-->",
        "a\\n::add-mask::error[FAKE]:",
    ]


def test_a_result_gives_no_orders_and_a_document_stays_one(capsys) -> None:
    Terminal().data(_EVIL)
    assert capsys.readouterr().out == f"{_SHOWN}\n"
    Terminal().document([f"{_EVIL}\x7f"])
    assert json.loads(capsys.readouterr().out) == [f"{_EVIL}\x7f"]


@pytest.mark.parametrize("value", ["A" * 100_000, "A\n" * 50_000, "A " * 50_000, "\x1b" * 100_000])
def test_a_very_long_value_is_told_by_its_ends_and_its_size(value: str) -> None:
    text = f"the value '{value}' is none"
    error = AnchorError(text, where=Location(path=value), why=text, hint=text)
    told = format_error(ErrorGroup(text, [error]))
    assert len(told) < 50_000
    assert told.startswith("error[ANCHOR]: the value '" + visible(value[:20]).replace("\n", "\\n"))
    assert told.endswith("' is none: 1 error")
    assert len(re.findall(r"\[\.\.\. \d+ (?:characters|lines) \.\.\.\]", told)) == 5
    assert error_as_json(error)["error"]["message"] == text  # a program may look for what it gave


def test_what_was_left_out_is_counted() -> None:
    told = format_error(AnchorError(f"<{'A' * 5000}>"))
    head, count, tail = re.fullmatch(
        r"error.ANCHOR.: <(A+)\[\.\.\. (\d+) characters \.\.\.\](A+)>", told
    ).groups()
    assert len(head) + int(count) + len(tail) == 5000


def test_a_command_to_run_again_is_whole() -> None:
    hint = "the command was: clang++ " + " ".join(["-I/a/folder/of/some/depth"] * 200)
    assert format_error(AnchorError("no", hint=hint)).endswith(hint)
