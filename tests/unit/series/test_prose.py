"""The texts of a patch.toml that cannot become a commit message, a mail or a line of a terminal."""

from __future__ import annotations

import pytest

from patchkit.base.errors import ErrorGroup
from patchkit.series.patch import parse_patch
from patchkit.series.toml import parse_toml

GOOD = r'''
id = "demo"
title = "do it better"
why = """
Because.
	And so."""
links = ["https://example.invalid/1"]
status = "not-submitted"
without = """
It is
worse."""
builds = { first = 1, why = "the demo exists" }
guard = { macros = ["GGML_USE_HIP"] }

[expected]
effect = """
no
thing"""
source = "nobody measured it"

[[requires]]
patch = "other"
why = "it traps"

[[edit]]
id = "scale"
file = "ggml/src/ggml-cuda/a.cu"
function = "f"
at = { tokens = "return\nx" }
verb = "change_to"
side = "device"
text = """
	return
	y;
"""
'''


def failures(old: str, new: str) -> list[tuple[str, str, int | None]]:
    assert old in GOOD
    document = parse_toml("patch.toml", GOOD.replace(old, new).encode())
    with pytest.raises(ErrorGroup) as caught:
        parse_patch(document, folder="0001-demo", number=1)
    return [(error.code, error.message, error.where[0].line) for error in caught.value.errors]


def test_prose_and_code_have_several_lines() -> None:
    patch = parse_patch(parse_toml("patch.toml", GOOD.encode()), folder="0001-demo", number=1)
    assert patch.why == "Because.\n\tAnd so."


@pytest.mark.parametrize(
    ("old", "new", "name", "char"),
    [
        ("do it better", "do it\\nbetter", "title", "000A"),
        ("do it better", "do it\\tbetter", "title", "0009"),
        ("example.invalid/1", "example.invalid/\\nPatchkit-Id: forged", "links[0]", "000A"),
        ("Because.", "Because\\u001b[31m.", "why", "001B"),
        ("Because.", "Because\\u202e.", "why", "202E"),
        ("Because.", "Because\\u007f.", "why", "007F"),
        ("do it better", "do it\\u200bbetter", "title", "200B"),
        ("the demo exists", "the demo\\nexists", "builds.why", "000A"),
        ("nobody measured", "nobody\\nmeasured", "expected.source", "000A"),
        ("it traps", "it\\u2028traps", "requires[0].why", "2028"),
        ("return\\nx", "return\\u0007x", "edit[0].at.tokens", "0007"),
        ("	y;", "	y;\\u0000", "edit[0].text", "0000"),
        ('function = "f"', 'function = "f\\n"', "edit[0].function", "000A"),
    ],
)
def test_a_control_character_is_named_with_its_place(old: str, new: str, name: str, char: str) -> None:
    ((code, message, line),) = failures(old, new)
    assert code == "PATCH_CONTROL_CHARACTER"
    assert message == f"'{name}' holds the control character U+{char}"
    assert line is not None


@pytest.mark.parametrize("title", [" do it", "do it ", "do  it", " "])
def test_blanks_that_mail_would_not_keep(title: str) -> None:
    ((code, _, line),) = failures('"do it better"', f'"{title}"')
    assert (code, line) == ("PATCH_UNTIDY_LINE", 3)


@pytest.mark.parametrize("first", ["From: a b", "Subject: x", "---", "diff -u a b", "Index: a", "[PATCH] x"])
def test_a_reason_that_begins_like_a_header_or_a_diff(first: str) -> None:
    ((code, message, _),) = failures("Because.", first)
    assert code == "PATCH_BREAKS_MAIL"
    assert first.split(maxsplit=1)[0] in message


@pytest.mark.parametrize("path", [".git/config", ".gitattributes", "sub/.GIT/x", "sub/.gitmodules"])
def test_the_names_of_git_are_no_place_for_a_file(path: str) -> None:
    new = f'[[file]]\npath = "ggml/src/ggml-cuda/{path}"\ntemplate = "t"\n\n[[requires]]'
    document = parse_toml("patch.toml", GOOD.replace("[[requires]]", new).encode())
    with pytest.raises(ErrorGroup) as caught:
        parse_patch(document, folder="0001-demo", number=1)
    (error,) = caught.value.errors
    assert error.why == "names that begin with '.git' are git's own"
