"""The error boundary: whatever happens below, one message, one exit code, no traceback."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import click
import pytest

from patchkit.base.errors import ErrorGroup, GitError, RenderError
from patchkit.cli import app, commands
from patchkit.cli.settings import Settings, verb


@pytest.fixture
def as_doctor(monkeypatch: pytest.MonkeyPatch):
    """Puts a function in the place of ``doctor``, so that each kind of end can be had at will."""

    def replace(body):
        @verb("doctor", example=("patchkit doctor",))
        @click.option("--count", type=int)
        def command(settings: Settings, count: int | None) -> object:
            """Stand in."""
            return body(settings)

        monkeypatch.setattr(commands.Verbs, "get_command", lambda *_: command)

    return replace


def _raise(error: BaseException):
    def body(settings: Settings) -> None:
        raise error

    return body


def test_success_is_zero_and_a_returned_code_is_kept(as_doctor) -> None:
    as_doctor(lambda _: None)
    assert app.main(["doctor"]) == 0
    as_doctor(lambda _: 6)
    assert app.main(["doctor"]) == 6


def test_an_expected_error_goes_to_stderr_with_its_code(as_doctor, capsys) -> None:
    as_doctor(_raise(GitError("git refused", hint="git fsck")))
    assert app.main(["doctor"]) == 5
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "error[GIT]: git refused\nhint: git fsck\n"


def test_under_json_the_error_is_the_document(as_doctor, capsys) -> None:
    as_doctor(_raise(ErrorGroup("several", [RenderError("a"), GitError("b")])))
    assert app.main(["doctor", "--json"]) == 4
    out, err = capsys.readouterr()
    assert [member["code"] for member in json.loads(out)["error"]["errors"]] == ["RENDER", "GIT"]
    assert "error[RENDER]: a" in err


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), click.Abort()])
def test_an_interrupt_is_130_and_claims_nothing_it_does_not_know(as_doctor, capsys, stop) -> None:
    as_doctor(_raise(stop))
    assert app.main(["doctor"]) == 130
    out, err = capsys.readouterr()
    assert (out, err.splitlines()[0]) == ("", "error[INTERRUPTED]: stopped by Ctrl-C")


def test_an_interrupt_under_json_is_a_document_with_what_the_verb_knew(as_doctor, capsys) -> None:
    stop = KeyboardInterrupt()
    stop.add_note("the branch was not moved")
    as_doctor(_raise(stop))
    assert app.main(["doctor", "--json"]) == 130
    error = json.loads(capsys.readouterr().out)["error"]
    told = (error["code"], error["exit_code"], error["message"])
    assert told == ("INTERRUPTED", 130, "stopped by Ctrl-C: the branch was not moved")


@pytest.mark.parametrize(
    ("number", "code", "hint"),
    [
        (errno.EMFILE, "SYSTEM_REFUSED", "ulimit -n"),
        (errno.ENOMEM, "SYSTEM_REFUSED", "out of memory"),
        (errno.ENOSPC, "DISK_REFUSED", "df -h"),
    ],
)
def test_what_the_system_refuses_is_no_bug(as_doctor, capsys, number: int, code: str, hint: str) -> None:
    as_doctor(_raise(OSError(number, "refused", b"a/\xff")))
    assert app.main(["doctor"]) == 8
    err = capsys.readouterr().err
    assert f"error[{code}]" in err
    assert hint in err


def test_a_path_that_no_system_takes_is_a_mistake_and_is_told_by_its_ends(capsys) -> None:
    assert app.main(["plan", "--series-dir", "A" * 100_000]) == 2
    err = capsys.readouterr().err
    assert "error[DISK_REFUSED]" in err
    assert len(err) < 2000


def test_a_library_that_could_not_be_loaded_for_that_reason_is_none_either(as_doctor, capsys) -> None:
    def body(settings: Settings) -> None:
        error = OSError(errno.EMFILE, "Too many open files")
        raise ImportError(f"Failed to initialize: {error}") from error

    as_doctor(body)
    assert app.main(["doctor"]) == 8
    assert "error[SYSTEM_REFUSED]: a system limit was reached: Too many open files" in capsys.readouterr().err


def test_help_and_version_are_text_even_under_json(capsys) -> None:
    assert app.main(["--json", "plan", "--help"]) == 0
    assert capsys.readouterr().out.startswith("Usage: patchkit plan ")
    assert app.main(["--json", "--version"]) == 0
    assert capsys.readouterr().out.startswith("patchkit ")


@pytest.mark.parametrize(
    "argv",
    [
        ["apply", "--checkout", ""],
        ["export", ""],
        ["status", "--cache-dir", ""],
        ["--series-dir", "", "list"],
        ["plan", "--upstream", ""],
        ["plan", "--upstream-url", ""],
    ],
)
def test_an_empty_value_is_not_the_current_folder(capsys, argv: list[str]) -> None:
    assert app.main(argv) == 2
    assert "error[USAGE_VALUE]" in capsys.readouterr().err


def test_a_relative_path_in_a_deleted_folder(tmp_path: Path, monkeypatch, capsys) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert app.main(["apply", "--checkout", "files"]) == 2
    err = capsys.readouterr().err
    assert "error[WORKING_FOLDER_GONE]: cannot resolve the relative path 'files'" in err


def test_lock_has_no_unlocked_option(capsys) -> None:
    assert app.main(["lock", "--unlocked"]) == 2
    assert "has no option '--unlocked'" in capsys.readouterr().err


def test_a_bug_leaves_a_log_and_one_message(as_doctor, capsys, tmp_path: Path) -> None:
    as_doctor(_raise(ZeroDivisionError("by nothing")))
    assert app.main(["doctor", "--cache-dir", str(tmp_path)]) == 70
    (log,) = (tmp_path / "logs").iterdir()
    err = capsys.readouterr().err
    assert "error[UNEXPECTED]: ZeroDivisionError: by nothing" in err
    assert str(log) in err
    assert "Traceback" not in err
    text = log.read_text()
    assert "Traceback" in text
    assert "pydantic 2." in text
    assert f"command: patchkit doctor --cache-dir {tmp_path}" in text


def test_a_bug_with_an_unwritable_cache_still_leaves_a_log(
    as_doctor, capsys, tmp_path: Path, monkeypatch
) -> None:
    as_doctor(_raise(ZeroDivisionError()))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "cache").write_text("a file where the folder should be")
    assert app.main(["doctor", "--cache-dir", str(tmp_path / "cache")]) == 70
    assert len(list(tmp_path.glob("patchkit-*.log"))) == 1
    assert "error[UNEXPECTED]: ZeroDivisionError\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "code", "hint"),
    [
        (["aply"], "USAGE_COMMAND", "did you mean 'apply'?"),
        (["zzzz"], "USAGE_COMMAND", "commands: up, apply, list"),
        (["--jsn"], "USAGE_OPTION", "did you mean '--json'?"),
        (["doctor", "--cuont", "3"], "USAGE_OPTION", "did you mean '--count'?"),
        (["doctor", "--zzzz"], "USAGE_OPTION", "patchkit doctor --help"),
        (["doctor", "--count", "three"], "USAGE_VALUE", "patchkit doctor --help"),
        (["doctor", "--color", "pink"], "USAGE_VALUE", "patchkit doctor --help"),
        (["doctor", "extra"], "USAGE_SYNTAX", "patchkit doctor --help"),
        (["doctor", "--count"], "USAGE_SYNTAX", "patchkit doctor --help"),
    ],
)
def test_a_mistake_on_the_command_line_is_2_in_the_same_form(as_doctor, capsys, argv, code, hint) -> None:
    as_doctor(lambda _: None)
    assert app.main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"error[{code}]: ")
    assert f"hint: {hint}" in err


def test_global_options_work_before_and_after_the_command(as_doctor, tmp_path: Path) -> None:
    seen = []
    as_doctor(seen.append)
    app.main(["-v", "--cache-dir", "one", "doctor", "--cache-dir", "two", "--color", "never", "--json"])
    (settings,) = seen
    assert settings == Settings(cache_dir=Path("two").absolute(), verbose=True, color="never", json=True)


def test_no_command_shows_the_help_and_is_a_mistake(capsys) -> None:
    assert app.main([]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Get a patched llama.cpp:" in err
