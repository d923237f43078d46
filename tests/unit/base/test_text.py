"""Untrusted text: no control characters, and no lines of its own."""

from __future__ import annotations

import unicodedata

import pytest

from patchkit.base.text import control_characters, differing, one_line, visible


def test_newlines_tabs_and_letters_of_any_language_are_kept() -> None:
    text = "Überschrift\t日本語\n  \U0001f600"
    assert visible(text) == text


@pytest.mark.parametrize("end", ["\n", "\r\n", "\t", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029", "\n\n"])
def test_one_line_is_one_line_for_every_reader(end: str) -> None:
    assert one_line(f"  a{end}b") == "  a b"


def test_one_line_escapes_control_characters() -> None:
    assert one_line("a\x1b[2J\n\u202eb") == "a\\x1b[2J \\u202eb"


def test_every_control_character_of_unicode_is_found() -> None:
    controls = [chr(number) for number in range(0x110000) if unicodedata.category(chr(number)) == "Cc"]
    assert list(control_characters("".join(controls))) == controls
    assert list(control_characters("a\nb\u200bc\u202ed é")) == ["\n", "\u200b", "\u202e"]


def test_undecodable_bytes_are_decoded_and_escaped() -> None:
    assert visible("é\u202e\x9b/日".encode().decode("ascii", "surrogateescape")) == "é\\u202e\\x9b/日"
    assert visible(b"\xff\xc3".decode("utf-8", "surrogateescape")) == "\\xff\\xc3"


def test_of_two_long_texts_only_what_differs_is_shown() -> None:
    words = [f"w{number}" for number in range(100)]
    before, after = differing(" ".join(words), " ".join([*words[:50], "new", *words[50:]]))
    assert before.split(" ")[-8:] == words[-8:]
    assert " new w50 " in after
    assert "[... 34 words ...]" in after
    assert len(after.split(" ")) < 50
    assert differing("int f(int n);", "int f();") == ("int f(int n);", "int f();")
