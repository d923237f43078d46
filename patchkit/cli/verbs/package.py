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
@click.option("--out", type=FOLDER, default=".", metavar="DIR", help="Where the wheel goes (default: here).")
def command(
    settings: Settings,
    choice: CandidateChoice,
    backend: BackendName | None,
    programs: tuple[str, ...],
    out: Path,
) -> None:
    """Make a wheel of the candidate's programs.

    pip installs it; llama-bench, llama-server and the others then run by their names. The wheel is named
    after the GPU and the build, and says which gates these bytes have passed.
    """
    workspace = settings.workspace()
    chosen = choice.choose(workspace, check=False)  # told after what is wrong with the other options
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
        f"install it: pip install {report.wheel}",
    ]
    settings.show(report, lines)
