"""``patchkit sanitize``."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from patchkit.base.errors import ExitCode, ToolchainError
from patchkit.base.files import check_output, write_output
from patchkit.base.text import counted
from patchkit.cli.emulated import Ran, arch_option, check_side, find_program, program_options, run_program
from patchkit.cli.settings import FOLDER, Settings, packed, verb, version_of

if TYPE_CHECKING:
    from patchkit.gpu.findings import Finding, Instruction, Suppression

_SHOWN_FRAMES = 4
_KINDS = {
    "memory": "accesses to what no allocation holds, or one that was freed; atomics at odd addresses",
    "waits": "registers used while the load that fills them is under way; barriers before LDS is done",
    "races": "waves of a block that touch the same LDS without a barrier between",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Files:
    suppressions: Path | None
    report: Path | None
    sarif: Path | None


@verb(
    "sanitize",
    example=(
        "patchkit sanitize --arch gfx1151 -- ./saxpy",
        "patchkit sanitize --arch gfx1151 --check races --sarif races.sarif -- ./my-kernel-test",
        "patchkit sanitize --arch gfx1151 --suppressions known.toml -- ./my-kernel-test",
        "patchkit sanitize --arch gfx1151 --side baseline -- test-backend-ops test -b ROCm0 -o SSM_SCAN",
    ),
)
@arch_option
@click.option(
    "--check",
    "kinds",
    type=click.Choice(list(_KINDS)),
    multiple=True,
    help="Look for this; again for more (default: all).",
)
@program_options
@packed(
    "files",
    _Files,
    click.option(
        "--suppressions", type=FOLDER, metavar="FILE", help="Findings that are known, each with its reason."
    ),
    click.option("--report", type=FOLDER, metavar="FILE", help="Write the findings as JSON."),
    click.option("--sarif", type=FOLDER, metavar="FILE", help="Write the findings at file:line as SARIF."),
)
@click.argument("program", nargs=-1, type=click.UNPROCESSED, required=True)
def command(
    settings: Settings,
    arch: str,
    kinds: tuple[Any, ...],
    program: tuple[str, ...],
    files: _Files,
    side: str | None,
    upstream: str | None,
    **options: Any,
) -> None:
    r"""Look for faults in the kernels of a HIP program while it runs on an emulated GPU.

    \b
    memory  accesses to what no allocation holds, or to what was freed
    waits   registers used while the load that fills them is under way
    races   waves of a block that touch the same LDS without a barrier between

    Each fault is shown once, with the source line if the program was compiled with -gline-tables-only
    or -g, its kernel, block, wave, lane and address, and where the program launched it. The program goes on
    behind a fault: an access to no memory is left out. The exit status is 0 when nothing was found, and 1
    when something was.
    """
    from patchkit.gpu.emulator import CHECKS, EmulationOptions
    from patchkit.gpu.findings import SourceLines, distinct, load_suppressions, suppress

    check_side("sanitize", side, upstream)
    known = () if files.suppressions is None else load_suppressions(files.suppressions)
    for wanted in (files.report, files.sarif):
        if wanted is not None:
            check_output(wanted, "preparing the report")
    if side is None:
        find_program(program[0])
    checks = tuple(one for one in CHECKS if not kinds or one in kinds)
    with tempfile.TemporaryDirectory(prefix="patchkit-sanitize-") as name:
        how = EmulationOptions(checks=checks, objects=Path(name), **options)
        ran = run_program(settings, arch, program, how, side=side, upstream=upstream)
        found = () if ran.report is None else ran.report.findings
        findings = distinct(found, SourceLines(Path(name), ran.tree))
    _check_whole(ran, program[0])
    left, left_out = suppress(findings, known)
    document = _document(ran, checks, left, left_out)
    if files.report is not None:
        write_output(files.report, _json(document), "writing the report")
    if files.sarif is not None:
        write_output(files.sarif, _sarif(left).encode("utf-8"), "writing the report")
    settings.show(document, _lines(left, left_out, ran, checks))
    if left:
        raise click.exceptions.Exit(ExitCode.GATE_FAILED)
    _check_ended_well(ran, program[0])


def _check_whole(ran: Ran, program: str) -> None:
    """Whether the program told what it ran: without that nothing was found means nothing."""
    if ran.broken is not None:
        raise ran.broken
    if ran.report is None:
        raise ToolchainError(
            f"{program} left no report of what it ran on the emulated GPU",
            code="EMULATION_UNREPORTED",
            why=f"it ended with status {ran.status}; it may have used no GPU, or ended without cleaning up",
            hint="patchkit emulate runs it without checks",
        )


def _check_ended_well(ran: Ran, program: str) -> None:
    """Nothing was found, which says something only of a program that ran its kernels to the end."""
    fault = None if ran.report is None else ran.report.fault
    if not ran.status and ran.report is not None and not any(one.launches for one in ran.report.kernels):
        raise ToolchainError(
            f"{program} launched no kernel: there was nothing to look at",
            code="NOTHING_LAUNCHED",
            hint="give it the arguments with which it uses the GPU",
        )
    if ran.status:
        raise ToolchainError(
            f"nothing was found until {program} ended with status {ran.status}",
            code="SANITIZED_FAILED",
            why=fault or "the program says why",
            hint="patchkit emulate runs it without checks",
        )


def _document(
    ran: Ran,
    checks: Sequence[str],
    left: Sequence[Finding],
    left_out: Sequence[tuple[Finding, Suppression]],
) -> dict[str, object]:
    report = ran.report
    return {
        "ok": not left,
        "status": ran.status,
        "emulator": ran.gpu.identity,
        "arch": ran.gpu.device.arch,
        "checks": list(checks),
        "launches": 0 if report is None else sum(kernel.launches for kernel in report.kernels),
        "instructions": 0 if report is None else report.instructions,
        "fault": None if report is None else report.fault,
        "findings": [dataclasses.asdict(one) for one in left],
        "suppressed": [
            {"reason": known.reason, "link": known.link, **dataclasses.asdict(one)} for one, known in left_out
        ],
    }


def _json(document: object) -> bytes:
    import json

    return (json.dumps(document, indent=1) + "\n").encode("utf-8")


def _lines(
    left: Sequence[Finding], left_out: Sequence[tuple[Finding, Suppression]], ran: Ran, checks: Sequence[str]
) -> Iterator[str]:
    for one in left:
        yield from _finding_lines(one)
        yield ""
    report = ran.report
    kernels = [] if report is None else [kernel for kernel in report.kernels if kernel.launches]
    launches = counted(sum(kernel.launches for kernel in kernels), "launch", "launches")
    yield (
        f"{counted(len(left), 'finding')} in {launches} of {counted(len(kernels), 'kernel')} on an emulated "
        f"{ran.gpu.device.arch}; looked for: {', '.join(checks)}"
    )
    if left_out:
        yield f"{len(left_out)} more are known: {', '.join(sorted({known.link for _, known in left_out}))}"
    if report is not None and report.on_cpu:
        calls = sorted({one.call for one in report.on_cpu})
        yield f"not looked at, computed on the CPU: {', '.join(calls)}"


def _finding_lines(one: Finding) -> Iterator[str]:
    from patchkit.gpu.names import read_name

    yield f"{one.kind}: {one.title}"
    yield f"  {_at(one.at)}"
    if one.other is not None:
        yield f"  {_at(one.other)}   (the other)"
    block = ", ".join(str(number) for number in one.block)
    often = counted(one.times, "time")
    more = f", at {one.instructions} instructions" if one.instructions > 1 else ""
    yield f"  kernel {read_name(one.kernel)}, block ({block}), wave {one.wave}; {often}{more}"
    if one.called_from:
        yield f"  launched from {', '.join(map(str, one.called_from[:_SHOWN_FRAMES]))}"


def _at(one: Instruction) -> str:
    return f"{one.place}   {one.text}"


def _sarif(left: Sequence[Finding]) -> str:
    from patchkit.report.sarif import Result, location, sarif_text

    rules = [{"id": kind, "shortDescription": {"text": about}} for kind, about in _KINDS.items()]
    placed = [one for one in left if one.at.file is not None]
    return sarif_text(
        "patchkit sanitize",
        version_of("patchkit"),
        rules,
        [
            Result(
                code=one.kind,
                message="\n".join(_finding_lines(one)),
                place=location(one.at.file or "", one.at.line, None),
                others=[
                    location(other.file, other.line, None, label=other.text)
                    for other in (one.other,)
                    if other is not None and other.file is not None
                ],
            )
            for one in placed
        ],
    )
