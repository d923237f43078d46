"""``patchkit export``."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from patchkit.base.errors import UsageError
from patchkit.base.text import counted
from patchkit.carry.candidate.container import BASES
from patchkit.carry.candidate.diff import ExportOptions, run_export
from patchkit.carry.importing.released import check_release
from patchkit.cli.request import CandidateChoice, candidate_options
from patchkit.cli.settings import FOLDER, Settings, verb


@verb(
    "export",
    example=(
        "patchkit export --arch gfx1151 patches-gfx1151",
        "patchkit export --arch gfx1151 --also nvidia patches-nvidia",
        "patchkit export --arch gfx1151 --containerfile 7.2 image",
        "patchkit export --arch plain --original-names --no-trailers --release release",
        "patchkit export --check release",
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
@click.option(
    "--original-names", is_flag=True, help="Name the files as they were when they were imported, where known."
)
@click.option("--no-trailers", is_flag=True, help="Omit patchkit's trailers, such as Patchkit-Id.")
@click.option(
    "--release",
    is_flag=True,
    help="Also write release.json: base, tip, tree, and the sha256 of each file, in order.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Write nothing, but compare DIR with its release.json. If the base is in the cache, also apply the "
    "files to it and compare the tree.",
)
@click.argument("directory", type=FOLDER, metavar="DIR")
def command(
    settings: Settings,
    choice: CandidateChoice,
    also: str | None,
    rocm: str | None,
    directory: Path,
    *,
    original_names: bool,
    no_trailers: bool,
    release: bool,
    check: bool,
) -> None:
    """Write the patches into DIR, one file each, for git am.

    DIR must be new, empty, or hold an unchanged earlier export. The files are the same bytes on every run.
    Imported patches keep their author, date, subject and message.
    """
    workspace = settings.workspace()
    if check:
        given = {
            "--arch": choice.archs,
            "--upstream": choice.upstream is not None,
            "--onto": choice.onto is not None,
            "--also": also is not None,
            "--containerfile": rocm is not None,
            "--original-names": original_names,
            "--no-trailers": no_trailers,
            "--release": release,
        }
        others = [option for option, value in given.items() if value]
        if others:
            raise UsageError(
                f"--check cannot be combined with {', '.join(others)}",
                code="OPTIONS_CONTRADICT",
                why="it writes nothing, and release.json names the base and the files",
                hint=f"patchkit export --check {shlex.quote(str(directory))}",
            )
        checked = check_release(directory, workspace)
        counts = counted(len(checked.files), "patch", "patches")
        settings.show(checked, [f"{directory}: {counts} as in release.json", checked.tree])
        return
    if rocm is not None and original_names:
        raise UsageError(
            "--containerfile and --original-names cannot be combined",
            code="OPTIONS_CONTRADICT",
            why="an image applies the patches in the order of their names",
        )
    chosen = choice.choose(workspace)
    written = run_export(
        workspace,
        archs=chosen.archs,
        upstream=chosen.upstream,
        directory=directory,
        is_widened=also is not None,
        options=ExportOptions(
            original_names=original_names, trailers=not no_trailers, release=release, rocm=rocm
        ),
    )
    wider = ", also active on NVIDIA GPUs (not checked by any gate)" if also else ""
    lines = [f"{written.directory}: {len(written.files)} patches of {written.branch}{wider}"]
    lines += [f"  {path.name}" for path in written.files]
    lines += [f"no file for {name}: it changes nothing on this build" for name in written.empty]
    names = [path.name for path in written.files]
    pattern = f"{shlex.quote(str(written.directory))}/*.patch"
    if names != sorted(names) or not all(name.endswith(".patch") for name in names):
        pattern = shlex.join(map(str, written.files))  # the shell would sort them otherwise
    lines += [
        "",
        f"To apply them, in a clone of llama.cpp at {written.base[:12]}: git am --keep-cr {pattern}",
    ]
    if written.containerfile is not None:
        lines += ["", "To build an image from it: podman build " + shlex.quote(str(written.directory))]
    settings.show(written, lines)
