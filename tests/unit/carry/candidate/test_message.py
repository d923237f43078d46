"""Commit messages survive the way through a mail: no line of them looks like a header or a diff."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchkit.carry.candidate.commit import _fill
from patchkit.carry.series.patch import BREAKS_MAIL

DANGERS = ["---", "--- a/file", "diff -u", "Index: file", "From someone", "From: x", "Subject: y", ">From z"]


@pytest.mark.parametrize("danger", DANGERS)
def test_no_line_begins_with_what_ends_a_message(danger: str) -> None:
    for room in range(60, 73):
        text = _fill(f"{'x' * (room - 4)} yy {danger} {'z ' * 40}")
        assert text.split() == f"{'x' * (room - 4)} yy {danger} {'z ' * 40}".split()
        assert not any(BREAKS_MAIL.match(line) for line in text.splitlines()), text


@given(st.lists(st.sampled_from([*DANGERS, "word", "a", "measured"]), max_size=60))
def test_any_mix_of_them_keeps_its_words(parts: list[str]) -> None:
    text = _fill(" ".join(["Reason", *parts]))
    assert text.split() == " ".join(["Reason", *parts]).split()
    assert not any(BREAKS_MAIL.match(f"{line} ") for line in text.splitlines())


def test_ordinary_text_is_filled_to_the_width() -> None:
    assert _fill(f"{'word ' * 20}\n\n end") == f"{' '.join(['word'] * 14)}\n{' '.join(['word'] * 6)} end"
    assert _fill("") == ""


@pytest.mark.parametrize("danger", DANGERS)
def test_git_reads_the_whole_message_back(tmp_path: Path, danger: str) -> None:
    body = _fill(f"Because {'x' * 58} {danger} {'z ' * 40}the end")
    mail = f"From: a <a@b>\nDate: Thu, 1 Jan 2025 00:00:00 +0000\nSubject: [PATCH] s\n\n{body}\n---\n\n"
    subprocess.run(
        ["git", "mailinfo", str(tmp_path / "message"), str(tmp_path / "patch")],
        input=mail.encode(),
        check=True,
        capture_output=True,
    )
    assert (tmp_path / "message").read_text() == f"{body}\n"
