"""The error boundary: the only place that prints errors and chooses the exit code."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import platform
import shlex
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path

import click

from patchkit.base.errors import ErrorGroup, ExitCode, InternalError, Location, PatchkitError
from patchkit.cli.commands import COMMANDS, CommonOption, Verbs, from_click
from patchkit.cli.error_text import error_as_json, exit_code_of
from patchkit.cli.settings import Settings, example_epilog, shared_options, version_of
from patchkit.cli.terminal import OutputFailed, make_streams_total, system_refusal, write_stderr

_HELP_COLUMNS = 120  # the widest help text; narrower terminals fold it further
_LIBRARIES = ("click", "GitPython", "jinja2", "libclang", "pydantic", "pypi-simple", "rich")


def _log_text(error: BaseException, argv: Sequence[str]) -> str:
    versions = [f"python {sys.version.split()[0]} ({sys.executable})", f"platform {platform.platform()}"]
    versions += [f"{name} {version_of(name)}" for name in ("patchkit", *_LIBRARIES)]
    return "\n".join(
        [
            f"command: patchkit {shlex.join(argv)}",
            f"folder: {_folder()}",
            *versions,
            "",
            *(line.rstrip("\n") for line in traceback.format_exception(error)),
            "",
        ]
    )


def _folder() -> str:
    try:
        return str(Path.cwd())
    except OSError:
        return "(deleted)"


# 128 + SIGPIPE: the status that shells report for a process whose output pipe was closed.
BROKEN_PIPE = 141


def _show_version(ctx: click.Context, _param: click.Parameter, value: object) -> None:
    if value and not ctx.resilient_parsing:
        ctx.ensure_object(Settings).terminal.data(f"patchkit {version_of('patchkit')}")
        ctx.exit()


@click.command(
    cls=Verbs,
    name="patchkit",
    epilog=example_epilog("patchkit apply --arch gfx1151", "patchkit apply --help"),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": _HELP_COLUMNS},
)
@click.option(
    "--version",
    cls=CommonOption,
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
@shared_options
def root() -> None:
    """Keep a set of patches for AMD GPUs on top of any recent llama.cpp.

    patchkit finds where each patch belongs by the structure of the code, so patches survive upstream's
    changes, and creates a git branch with one commit per patch. It can check that branch and predict its
    speed on an emulated GPU, without an AMD GPU or ROCm.
    """


class Interrupted(PatchkitError):
    """The run was stopped by Ctrl-C or a signal; the message names what it left, where the command knows."""

    code = "INTERRUPTED"
    exit_code = ExitCode.INTERRUPTED


def run_command(argv: Sequence[str]) -> int:
    """Run one command line and return the exit code; only a second Ctrl-C raises."""
    settings = Settings(json="--json" in argv)
    try:
        make_streams_total()
        code = _invoke(list(argv), settings)
        settings.terminal.finish()
    except BrokenPipeError:
        return _end_of_closed_pipe()
    except KeyboardInterrupt as stop:
        return _fail(_interrupted(stop), settings)
    except PatchkitError as error:
        return _fail(error, settings)
    except (OSError, ImportError) as error:
        refusal = _system_error_in(error)
        return _fail(refusal if refusal is not None else _bug(error, argv, settings), settings)
    except Exception as error:  # noqa: BLE001  the boundary: an unexpected error becomes a log, not a traceback
        return _fail(_bug(error, argv, settings), settings)
    return code


def _system_error_in(error: BaseException | None) -> PatchkitError | None:
    """Find a system error (disk, limits) in the chain of causes; a library may have wrapped it."""
    while error is not None:
        if isinstance(error, OSError) and (refusal := system_refusal(error)) is not None:
            return refusal
        error = error.__cause__ or error.__context__
    return None


def _interrupted(stop: KeyboardInterrupt) -> Interrupted:
    """Make the error from the signal (an argument) and from what the command leaves (notes)."""
    by = stop.args[0] if stop.args else "Ctrl-C"
    return Interrupted(
        ": ".join([f"stopped by {by}", *getattr(stop, "__notes__", ())]),
        hint="run the command again; it resumes where it can, and starts over where it cannot",
    )


def _invoke(argv: list[str], settings: Settings) -> int:
    """Run click's parsing and dispatch without click's own printing and exiting."""
    try:
        with root.make_context("patchkit", argv, obj=settings) as ctx:
            result = root.invoke(ctx)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        write_stderr(error.format_message())
        return ExitCode.USAGE
    except click.exceptions.Abort as error:
        # click raises it for a KeyboardInterrupt and for an end of input.
        raise (
            error.__cause__ if isinstance(error.__cause__, KeyboardInterrupt) else KeyboardInterrupt
        ) from error
    except click.ClickException as error:
        verb = next((word for word in argv if word in COMMANDS), "")
        raise from_click(error, f"patchkit {verb}".rstrip()) from error
    return int(result) if isinstance(result, int) else ExitCode.OK


def _fail(error: PatchkitError, settings: Settings) -> int:
    terminal = settings.terminal
    try:
        if settings.json and not isinstance(error, OutputFailed):
            terminal.document(error_as_json(error))
            terminal.finish()
        terminal.write_error(error)
    except BrokenPipeError:
        return _end_of_closed_pipe()
    except OutputFailed as worse:
        terminal.write_error(ErrorGroup("the error could not be written", [error, worse]))
    return exit_code_of(error)


def _bug(error: Exception, argv: Sequence[str], settings: Settings) -> PatchkitError:
    """Write the log and return the error to show; never raise."""
    summary = f"{type(error).__name__}: {error}".rstrip(": ")
    text = _log_text(error, argv)
    folders = [Path(tempfile.gettempdir())]
    with contextlib.suppress(Exception):  # finding the cache folder may itself be the error
        folders.insert(0, settings.cache_root() / "logs")
    for folder in folders:
        path = folder / f"patchkit-{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%SZ}-{os.getpid()}.log"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", errors="backslashreplace")
        except OSError:
            continue
        return InternalError(
            summary,
            code="UNEXPECTED",
            where=Location(path=str(path), label="versions and traceback"),
            why="this is a bug in patchkit",
            hint="please report it, and attach that file",
        )
    return InternalError(
        summary,
        code="UNEXPECTED",
        why="this is a bug in patchkit; no log file could be written",
        hint=text,
    )


def _end_of_closed_pipe() -> int:
    """End quietly. Redirecting stdout keeps the flush at interpreter exit from failing."""
    with contextlib.suppress(OSError):
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, 1)
    return BROKEN_PIPE
