"""Text of strangers: no orders to the terminal, no lines that look like ours."""

from __future__ import annotations

import unicodedata

import pytest

from patchkit.base.text import control_characters, one_line, visible


def test_lines_tabs_and_letters_of_any_language_stay() -> None:
    text = "Überschrift\t日本語\n  \U0001f600"
    assert visible(text) == text


@pytest.mark.parametrize("end", ["\n", "\r\n", "\t", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029", "\n\n"])
def test_one_line_is_one_line_for_every_reader(end: str) -> None:
    assert one_line(f"  a{end}b") == "  a b"


def test_one_line_gives_no_orders_either() -> None:
    assert one_line("a\x1b[2J\n\u202eb") == "a\\x1b[2J \\u202eb"


def test_every_control_character_of_unicode_is_an_order() -> None:
    controls = [chr(number) for number in range(0x110000) if unicodedata.category(chr(number)) == "Cc"]
    assert list(control_characters("".join(controls))) == controls
    assert list(control_characters("a\nb\u200bc\u202ed é")) == ["\n", "\u200b", "\u202e"]


def test_bytes_that_the_locale_did_not_read_are_characters_and_give_no_orders() -> None:
    assert visible("é\u202e\x9b/日".encode().decode("ascii", "surrogateescape")) == "é\\u202e\\x9b/日"
    assert visible(b"\xff\xc3".decode("utf-8", "surrogateescape")) == "\\xff\\xc3"
