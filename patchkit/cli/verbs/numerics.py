"""``patchkit numerics``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from patchkit.base.errors import ErrorGroup, ExitCode, UsageError
from patchkit.cli.complaint import complain
from patchkit.cli.request import CandidateChoice, candidate_options
from patchkit.cli.settings import FOLDER, Settings, verb

if TYPE_CHECKING:
    from patchkit.gates.numerics.command import Measurement
    from patchkit.gates.numerics.manifest import Manifest

Action = Literal["build", "run", "judge"]


@verb(
    "numerics",
    example=(
        "patchkit numerics build ./bundle --arch gfx1151",
        "patchkit numerics run ./bundle --arch gfx1151",
        "patchkit numerics judge ./bundle --arch gfx1151 --json",
    ),
)
@click.argument("action", type=click.Choice(["build", "run", "judge"]))
@click.argument("folder", type=FOLDER)
@candidate_options
@click.option("--all-legal", is_flag=True, help="Measure every setting that a table may ever choose (build).")
@click.option(
    "--no-isolation", is_flag=True, help="Do not compare CUDA builds of baseline and candidate (build)."
)
def command(
    settings: Settings,
    action: Action,
    folder: Path,
    choice: CandidateChoice,
    *,
    all_legal: bool,
    no_isolation: bool,
) -> int:
    """Measure the patched attention kernel's numbers on an NVIDIA GPU, here or on another machine.

    'build' writes FOLDER. Copy it to a machine with an NVIDIA GPU, nvcc, a C++ compiler and ninja, run
    'sh run.sh' in it there, and copy it back: 'judge' says what its results prove. 'run' does all of that on
    this machine. Exit code 1 when the numbers are wrong or the measurement is not complete.
    """
    from patchkit.gates.numerics.command import build_numerics, judge_numerics_bundle, run_numerics_bundle

    if action != "build" and (all_legal or no_isolation):
        raise UsageError(
            f"'patchkit numerics {action}' takes no option of build",
            code="USAGE_SYNTAX",
            hint="patchkit numerics --help",
        )
    workspace = settings.workspace()
    chosen = choice.choose(workspace)
    if action == "build":
        manifest = build_numerics(
            workspace,
            archs=chosen.archs,
            upstream=chosen.upstream,
            folder=folder,
            all_legal=all_legal,
            isolation=not no_isolation,
        )
        _show_bundle(settings, folder, manifest)
        return ExitCode.OK
    if action == "run":
        found = run_numerics_bundle(
            workspace, archs=chosen.archs, upstream=chosen.upstream, folder=folder, environ=os.environ
        )
    else:
        found = judge_numerics_bundle(workspace, archs=chosen.archs, upstream=chosen.upstream, folder=folder)
    _show(settings, found)
    return ExitCode.OK if found.result.verdict == "passed" else ExitCode.GATE_FAILED


def _show_bundle(settings: Settings, folder: Path, manifest: Manifest) -> None:
    if settings.json:
        settings.terminal.document({"ok": True, "folder": str(folder), **manifest.model_dump(mode="json")})
        return
    points = sum(len(program.points) for program in manifest.programs if not program.is_planted)
    settings.terminal.data(
        f"{folder}: {points} settings in {len(manifest.programs)} programs, {len(manifest.jobs)} jobs\n"
        f"next, where the NVIDIA GPU is: sh run.sh\n"
        f"then: patchkit numerics judge {folder} --arch {' --arch '.join(manifest.archs)}"
    )


def _show(settings: Settings, found: Measurement) -> None:
    terminal = settings.terminal
    if settings.json:
        terminal.document(found.as_json())
        return
    result = found.result
    lines = [f"numerics {result.verdict}: {result.summary}", *result.lines]
    lines += [f"not run: {line}" for line in result.not_run]
    terminal.data("\n".join([*lines, f"evidence: {found.evidence}"]))
    if found.problems:
        terminal.talk(complain(ErrorGroup("the numbers are not proven", found.problems), terminal.paint))
