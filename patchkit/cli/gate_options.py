"""The options that write reports beside a run: one file per format, and the summary of a CI step."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, cast

import click

from patchkit.base.errors import Location, UsageError
from patchkit.cli.settings import FOLDER, TEXT, Settings, version_of
from patchkit.report.registry import FORMATS

_STDOUT = 1


def check_beside_document(settings: Settings, *files: Path | None) -> None:
    """Raise STDOUT_TAKEN when stdout gets a JSON document and one of the files is stdout, by any name."""
    for path in files:
        if settings.json and path is not None and _is_stdout(path):
            raise UsageError(
                f"{path} is stdout, and there the JSON document goes",
                code="STDOUT_TAKEN",
                where=Location(path=str(path)),
                hint="name a file, or leave --json out",
            )


def _is_stdout(path: Path) -> bool:
    with contextlib.suppress(OSError):  # no such file yet, or stdout is closed
        return os.path.samestat(path.stat(), os.fstat(_STDOUT)) and not path.samefile(os.devnull)
    return False


if TYPE_CHECKING:
    from patchkit.build.parts import BackendName
    from patchkit.candidate.workspace import Workspace
    from patchkit.gates.hardware import Hardware


class HardwareOptions(TypedDict):
    """The values as click hands them over."""

    no_gpu: bool
    backend: BackendName | None
    model: Path | None
    text: Path | None
    runner: str | None
    ssh_config: Path | None
    fresh: bool


def hardware_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options."""
    for option in (
        click.option("--fresh", is_flag=True, help="Run again what passed on this very machine before."),
        click.option("--ssh-config", type=FOLDER, metavar="FILE", help="For --runner, instead of your own."),
        click.option(
            "--runner", type=TEXT, metavar="ssh://HOST", help="Run on that machine (default: here)."
        ),
        click.option(
            "--text", type=FOLDER, metavar="FILE", help="A text for logits to read with that model."
        ),
        click.option(
            "--model",
            type=FOLDER,
            metavar="GGUF",
            help="A model for logits and bench, instead of small ones.",
        ),
        click.option(
            "--backend",
            type=click.Choice(["hip", "cuda", "cpu"]),
            help="Also run the gates that need a device, on this one (default: hip, if the GPU is here).",
        ),
        click.option("--no-gpu", is_flag=True, help="Only the gates that need no GPU."),
    ):
        function = option(function)
    return function


def check_hardware(options: HardwareOptions) -> None:
    """Refuse what cannot be meant; raises HARDWARE_REFUSED."""
    if options["no_gpu"] and (options["backend"] or options["model"] or options["runner"]):
        raise UsageError(
            "--no-gpu runs nothing on a device, and --backend, --model or --runner say on which and how",
            code="HARDWARE_REFUSED",
            hint="leave out one of them",
        )
    if options["text"] and not options["model"]:
        raise UsageError(
            "--text needs a --model to read it with", code="HARDWARE_REFUSED", hint="--model names a GGUF"
        )
    if options["ssh_config"] and not options["runner"]:
        raise UsageError(
            "--ssh-config is for --runner, which is not given",
            code="HARDWARE_REFUSED",
            hint="--runner ssh://host",
        )


def make_hardware(workspace: Workspace, archs: Sequence[str], options: HardwareOptions) -> Hardware:
    """The gates that run on hardware; raises RUNNER_URL_BAD. No connection is made yet."""
    from patchkit.device.runner import choose_runner
    from patchkit.gates.hardware import choose_hardware

    runner = choose_runner(
        options["runner"], config=options["ssh_config"], environ=os.environ, reporter=workspace.reporter
    )
    return choose_hardware(
        archs,
        options["backend"],
        model=options["model"],
        text=options["text"],
        no_gpu=options["no_gpu"],
        runner=runner,
        fresh=options["fresh"],
    )


if TYPE_CHECKING:
    from patchkit.candidate.workspace import Workspace


class ReportOptions(TypedDict):
    """The values as click hands them over, beside those of the formats, which go by their names."""

    summary: Path | None


def report_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options."""
    function = click.option(
        "--summary", type=FOLDER, metavar="FILE", help="Append Markdown there, as GITHUB_STEP_SUMMARY."
    )(function)
    for form in sorted(FORMATS, key=lambda each: each.name, reverse=True):
        if form.option:
            function = click.option(f"--{form.name}", type=FOLDER, metavar="FILE", help=form.option)(function)
    return function


def report_writer(settings: Settings, workspace: Workspace, options: ReportOptions) -> Callable[[Path], None]:
    """What writes the wanted reports of a folder of evidence.

    Raises CacheError now for a file that cannot be written, not after the run, REPORT_FILE_TAKEN for one that
    is named twice, and STDOUT_TAKEN.
    """
    from patchkit.report.write import ReportPlan, check_apart, check_writable

    given = cast("Mapping[str, Path | None]", options)
    files = {form.name: path for form in FORMATS if (path := given.get(form.name)) is not None}
    plan = ReportPlan(files=files, summary=options["summary"])
    summary = [options["summary"]] if options["summary"] is not None else []
    places = [*files.values(), *summary]
    check_beside_document(settings, *places)
    for at, path in enumerate(places):
        check_apart(path, places[:at])
        check_writable(path, appends=path in summary)
    return lambda folder: plan.write(workspace, folder, os.environ, version_of("patchkit"))
