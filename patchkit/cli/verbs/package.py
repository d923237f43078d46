"""``patchkit package``."""

from __future__ import annotations

import os
from pathlib import Path

import click

from patchkit.cli.request import CandidateChoice, backend_for, candidate_options, program_options
from patchkit.cli.settings import FOLDER, Settings, verb
from patchkit.prove.build import PROGRAMS
from patchkit.prove.publish.package import run_package
from patchkit.toolchain.parts import BackendName


@verb(
    "package",
    example=(
        "patchkit package --arch gfx1151 --out dist",
        "patchkit package --arch gfx1151 --backend cpu --program llama-bench --json",
    ),
)
@candidate_options
@program_options
@click.option(
    "--out", type=FOLDER, default=".", metavar="DIR", help="Folder for the wheel (default: this one)."
)
def command(
    settings: Settings,
    choice: CandidateChoice,
    backend: BackendName | None,
    programs: tuple[str, ...],
    out: Path,
) -> None:
    """Build a Python wheel that contains the patched programs.

    After pip install you can run llama-bench, llama-server and the others by name. The wheel is named after
    the GPU and the build, and its metadata lists the gates that these binaries passed.
    """
    workspace = settings.workspace()
    chosen = choice.choose(workspace, check=False)  # checked later, after the other options
    report = run_package(
        workspace,
        archs=chosen.archs,
        upstream=chosen.upstream,
        wish=choice.wish,
        backend=backend_for(chosen.archs, backend),
        programs=programs or PROGRAMS,
        out=out,
        environ=os.environ,
    )
    lines = [
        str(report.wheel),
        f"{report.size_bytes / 1e6:.1f} MB, sha256 {report.sha256}",
        report.proof,
        f"To install: pip install {report.wheel}",
    ]
    settings.show(report, lines)
