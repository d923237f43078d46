"""``patchkit build``."""

from __future__ import annotations

import os
from collections.abc import Iterator

from patchkit.cli.request import CandidateChoice, backend_for, candidate_options, program_options
from patchkit.cli.settings import Settings, verb
from patchkit.prove.build import PROGRAMS, BuildReport, run_build
from patchkit.toolchain.parts import BackendName


@verb(
    "build",
    example=(
        "patchkit build --arch gfx1151",
        "patchkit build --arch gfx1151 --backend cpu --json",
    ),
)
@candidate_options
@program_options
def command(
    settings: Settings,
    choice: CandidateChoice,
    backend: BackendName | None,
    programs: tuple[str, ...],
) -> None:
    """Build upstream (the baseline) and the patched branch (the candidate) side by side.

    Files that no patch changes are built once for both. An interrupted build resumes. Prints the build
    folders, which are in the cache folder, and the full log of Ninja and the compilers.
    """
    workspace = settings.workspace()
    chosen = choice.choose(workspace, check=False)  # checked later, after the other options
    report = run_build(
        workspace,
        archs=chosen.archs,
        upstream=chosen.upstream,
        wish=choice.wish,
        backend=backend_for(chosen.archs, backend),
        programs=programs or PROGRAMS,
        environ=os.environ,
    )
    settings.show(report, _lines(report))


def _lines(report: BuildReport) -> Iterator[str]:
    yield f"{report.branch}, build {report.build}, for {report.backend}"
    for name, side in (("baseline", report.sides.before), ("candidate", report.sides.after)):
        yield from ("", f"{name}: {side.folder}")
        for built in side.parts:
            took = f"{built.seconds:.0f} s" if built.seconds else "already built"
            shared = ", shared by both" if report.sides.is_shared(built.part.key) else ""
            ccache = ", with ccache" if built.uses_ccache else ""
            yield f"  {built.part.name:<9}{took}{ccache}{shared}; log: {built.log}"
    yield from ("", "Built, but not checked yet: patchkit verify runs the checks")
