"""``patchkit export``."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from patchkit.carry.candidate.container import BASES
from patchkit.carry.candidate.diff import run_export
from patchkit.cli.request import CandidateChoice, candidate_options
from patchkit.cli.settings import FOLDER, Settings, verb


@verb(
    "export",
    example=(
        "patchkit export --arch gfx1151 patches-gfx1151",
        "patchkit export --arch gfx1151 --also nvidia patches-nvidia",
        "patchkit export --arch gfx1151 --containerfile 7.2 image",
    ),
)
@candidate_options
@click.option(
    "--also",
    type=click.Choice(["nvidia"]),
    help="Widen the guards: the patches are then active on NVIDIA GPUs, too, to test and measure them there. "
    "No gate checks that. Only for patches without AMD-only code ([guard] neutral).",
)
@click.option(
    "--containerfile",
    "rocm",
    metavar="ROCM",
    type=click.Choice(list(BASES)),
    help="Also write a Containerfile for this version of ROCm: 6.4, 7.2, 7.14 or 10.0. podman or docker then "
    "builds an image with llama-server; toolbox can use it.",
)
@click.argument("directory", type=FOLDER, metavar="DIR")
def command(
    settings: Settings, choice: CandidateChoice, also: str | None, rocm: str | None, directory: Path
) -> None:
    """Write the patches into DIR, one file each, for git am.

    DIR must be new, empty, or hold an unchanged earlier export. The files are the same bytes on every run.
    """
    workspace = settings.workspace()
    chosen = choice.choose(workspace)
    written = run_export(
        workspace,
        archs=chosen.archs,
        upstream=chosen.upstream,
        directory=directory,
        is_widened=also is not None,
        rocm=rocm,
    )
    wider = ", also active on NVIDIA GPUs (not checked by any gate)" if also else ""
    lines = [f"{written.directory}: {len(written.files)} patches of {written.branch}{wider}"]
    lines += [f"  {path.name}" for path in written.files]
    pattern = f"{shlex.quote(str(written.directory))}/*.patch"
    lines += [
        "",
        f"To apply them, in a clone of llama.cpp at {written.base[:12]}: git am --keep-cr {pattern}",
    ]
    if written.containerfile is not None:
        lines += ["", "To build an image from it: podman build " + shlex.quote(str(written.directory))]
    settings.show(written, lines)
