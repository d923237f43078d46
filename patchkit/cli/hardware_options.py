"""The options of ``verify`` that say on what, where and with what programs run."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import click

from patchkit.cli.settings import FOLDER, TEXT
from patchkit.errors import UsageError

if TYPE_CHECKING:
    from patchkit.build.parts import BackendName
    from patchkit.flow.hardware import Hardware
    from patchkit.flow.workspace import Workspace


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
    from patchkit.flow.hardware import choose_hardware
    from patchkit.runner.choose import choose_runner

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
