"""``patchkit numerics``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from patchkit.base.errors import ErrorGroup, ExitCode, UsageError
from patchkit.cli.request import CandidateChoice, candidate_options
from patchkit.cli.settings import FOLDER, Settings, verb

if TYPE_CHECKING:
    from patchkit.gates.base import GateResult
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
    from patchkit.gates.numerics.command import build_numerics, measure_numerics

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
        document = {"ok": True, "folder": str(folder), **manifest.model_dump(mode="json")}
        settings.show(document, _bundle_lines(folder, manifest))
        return ExitCode.OK
    result, evidence = measure_numerics(
        workspace,
        archs=chosen.archs,
        upstream=chosen.upstream,
        folder=folder,
        run_in=os.environ if action == "run" else None,
    )
    passed = result.verdict == "passed"
    settings.show(
        {"ok": passed, **result.as_json(), "evidence_file": str(evidence)}, _lines(result, evidence)
    )
    if result.problems and not settings.json:
        settings.terminal.complain(ErrorGroup("the numbers are not proven", result.problems))
    return ExitCode.OK if passed else ExitCode.GATE_FAILED


def _bundle_lines(folder: Path, manifest: Manifest) -> Iterator[str]:
    points = sum(len(program.points) for program in manifest.programs if not program.planted)
    yield f"{folder}: {points} settings in {len(manifest.programs)} programs, {len(manifest.jobs)} jobs"
    yield "next, where the NVIDIA GPU is: sh run.sh"
    yield f"then: patchkit numerics judge {folder} --arch {' --arch '.join(manifest.archs)}"


def _lines(result: GateResult, evidence: Path) -> Iterator[str]:
    yield f"numerics {result.verdict}: {result.summary}"
    yield from result.lines
    yield from (f"not run: {line}" for line in result.not_run)
    yield f"evidence: {evidence}"
