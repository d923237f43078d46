"""What a person watching sees, on a terminal and in a log."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from patchkit.base.reporter import NullReporter
from patchkit.cli import progress
from patchkit.cli.progress import BarReporter, LineReporter, make_reporter


def test_a_log_has_one_line_per_event(capsys) -> None:
    reporter = LineReporter(verbose=True)
    reporter.step("fetching b6900")
    reporter.info("no answer, using the sdist")
    reporter.warn("not in the lock")
    reporter.command("git fetch --depth=1")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.split("\n") == [
        "* fetching b6900",
        "  no answer, using the sdist",
        "warning: not in the lock",
        "+ git fetch --depth=1",
        "",
    ]


def test_no_text_gives_orders_to_the_terminal(capsys) -> None:
    LineReporter(verbose=False).info("a\x1b[2Jb")
    out = io.StringIO()
    BarReporter(Console(file=out, force_terminal=True, width=80), verbose=False).info("a\x1b[2Jb")
    assert capsys.readouterr().err == "  a\\x1b[2Jb\n"
    assert "a\\x1b[2Jb" in out.getvalue()


def test_commands_are_shown_only_when_verbose(capsys) -> None:
    LineReporter(verbose=False).command("git fetch")
    assert capsys.readouterr().err == ""


def test_progress_of_short_work_is_not_shown_in_a_log(capsys) -> None:
    with LineReporter(verbose=False).progress("downloading", "bytes") as advance:
        for done in range(0, 26_000_001, 1_000_000):
            advance(done, 26_000_000)
    assert capsys.readouterr().err == ""


def test_progress_in_a_log_is_a_line_per_minute(capsys, monkeypatch) -> None:
    monkeypatch.setattr(progress, "_SILENCE_S", 0.0)
    with LineReporter(verbose=False).progress("compiling", "files") as advance:
        for done in (1, 2, 3):
            advance(done, 100)
    assert capsys.readouterr().err.splitlines() == [
        f"  compiling: {percent} % of 100 files" for percent in (1, 2, 3)
    ]


def test_progress_of_unknown_length_says_nothing_in_a_log(capsys) -> None:
    with LineReporter(verbose=False).progress("receiving", "objects") as advance:
        advance(10)
        advance(10, 0)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("unit", "shown"), [("bytes", "13.0/26.0 MB"), ("objects", "13000000/26000000 objects")]
)
def test_a_bar_shows_the_amount_and_goes_away(unit: str, shown: str) -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=120, color_system=None)
    with BarReporter(console, verbose=False).progress("getting [b6900]", unit) as advance:
        advance(13_000_000, 26_000_000)
    assert "getting [b6900]" in stream.getvalue()
    assert shown in stream.getvalue()
    assert stream.getvalue().endswith("\x1b[2K")


def test_a_terminal_gets_text_as_it_is() -> None:
    stream = io.StringIO()
    reporter = BarReporter(Console(file=stream, width=40), verbose=True)
    reporter.step("[bold]not markup[/bold] " + "x" * 60)
    reporter.command("git fetch")
    reporter.info("i")
    reporter.warn("w")
    assert stream.getvalue().split("\n") == [
        "* [bold]not markup[/bold] " + "x" * 60,
        "+ git fetch",
        "  i",
        "warning: w",
        "",
    ]


def test_quiet_is_silence_and_a_pipe_gets_lines() -> None:
    assert isinstance(make_reporter(verbose=True, quiet=True, color="auto"), NullReporter)
    assert isinstance(make_reporter(verbose=True, quiet=False, color="auto"), LineReporter)


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert isinstance(make_reporter(verbose=False, quiet=False, color="never"), BarReporter)
