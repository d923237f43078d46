"""``patchkit package``."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from patchkit.cli.request import CandidateChoice, backend_for, candidate_options, program_options
from patchkit.cli.settings import FOLDER, Settings, verb
from patchkit.prove.build import PROGRAMS
from patchkit.prove.publish.package import Format, PackageRequest, run_package
from patchkit.toolchain.parts import BackendName


@verb(
    "package",
    example=(
        "patchkit package --arch gfx1151 --out dist",
        "patchkit package --arch gfx1151 --format tar --out dist",
        "patchkit package --arch gfx1151 --backend cpu --program llama-bench --json",
    ),
)
@candidate_options
@program_options
@click.option(
    "--format",
    "form",
    type=click.Choice(["wheel", "tar"]),
    default="wheel",
    show_default=True,
    help="wheel: for pip. tar: a .tar.gz to unpack anywhere; it runs in place.",
)
@click.option(
    "--out", type=FOLDER, default=".", metavar="DIR", help="Folder for the package (default: this one)."
)
def command(
    settings: Settings,
    choice: CandidateChoice,
    backend: BackendName | None,
    programs: tuple[str, ...],
    form: Format,
    out: Path,
) -> None:
    """Package the patched programs, as a Python wheel or a tar archive.

    After pip install of the wheel you can run llama-bench, llama-server and the others by name. The archive
    has them in one folder with their libraries, without Python. Both are named after the GPU and the build,
    and list the gates that these programs passed. The other machine needs the same major version of ROCm.
    """
    workspace = settings.workspace()
    chosen = choice.choose(workspace, check=False)  # checked later, after the other options
    request = PackageRequest(
        archs=chosen.archs,
        upstream=chosen.upstream,
        wish=choice.wish,
        backend=backend_for(chosen.archs, backend),
        programs=programs or PROGRAMS,
        format=form,
        out=out,
    )
    report = run_package(request, workspace, os.environ)
    file = shlex.quote(str(report.file))
    lines = [
        str(report.file),
        f"{report.size_bytes / 1e6:.1f} MB, sha256 {report.sha256}",
        report.proof,
        f"It needs {report.needs}",
        f"To install: {'pip install' if form == 'wheel' else 'tar -xzf'} {file}",
    ]
    settings.show(report, lines)
