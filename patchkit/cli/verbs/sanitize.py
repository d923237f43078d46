"""``patchkit sanitize``."""

from __future__ import annotations

import itertools
import json
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from patchkit.base.errors import ConfigError, ExitCode, ToolchainError, UsageError
from patchkit.base.files import check_output, write_output
from patchkit.base.plain import fields_of, plain
from patchkit.base.report.blocks import Report, Section
from patchkit.base.report.html import html_report
from patchkit.base.report.sarif import sarif_report
from patchkit.base.report.terminal import finding_lines
from patchkit.base.text import counted
from patchkit.cli.code_look import code_document, code_lines, hazard_lines
from patchkit.cli.completing import files
from patchkit.cli.emulated import (
    SideChoice,
    arch_option,
    built_side,
    open_gpu,
    profile_lines,
    program_options,
    refuse_given,
    sampled,
)
from patchkit.cli.settings import FOLDER, Settings, packed, verb, version_of
from patchkit.gpu.api import Ran, Sanitized, find_program
from patchkit.gpu.emulated.checks import CHECKS, CheckName, check_names, checks_help, chosen_checks
from patchkit.gpu.emulated.emulator import EmulationOptions, KernelCount
from patchkit.gpu.emulated.finding_report import finding_block, finding_blocks
from patchkit.gpu.emulated.findings import Finding, Suppression, load_suppressions, suppress

# Options that say nothing about code that is not run.
_OF_RUNS = (
    *("kinds", "leaks", "schedule", "threads", "limit", "blocks", "profile"),
    *("side", "upstream", "onto", "repo"),
    *("suppressions", "sarif", "html"),
)
_SIGNALLED = 128  # and above: the status of a program that a signal ended
_ON_REQUEST = [check.name for check in CHECKS if check.on_request]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Files:
    suppressions: Path | None
    report: Path | None
    sarif: Path | None
    html: Path | None

    def check(self) -> None:
        """Before the program runs. Raises USAGE_SYNTAX, CacheError."""
        asked = {"--report": self.report, "--sarif": self.sarif, "--html": self.html}
        for (one, path), (other, same) in itertools.combinations(asked.items(), 2):
            if path is not None and path == same:
                raise UsageError(f"{one} and {other} name the same file", code="USAGE_SYNTAX")
        for wanted in asked.values():
            if wanted is not None:
                check_output(wanted, "preparing the report")

    def write(self, document: object, report: Report) -> None:
        """Raises CacheError."""
        if self.report is not None:
            write_output(self.report, _json(document), "writing the report")
        if self.sarif is not None:
            write_output(self.sarif, sarif_report(report).encode("utf-8"), "writing the report")
        if self.html is not None:
            page = html_report(report).encode("utf-8", "backslashreplace")
            write_output(self.html, page, "writing the report")


def _telling_checks(function: Callable[..., Any]) -> Callable[..., Any]:
    """Puts what each check finds into the help."""
    function.__doc__ = (function.__doc__ or "").format(checks=checks_help())
    return function


@verb(
    "sanitize",
    example=(
        "patchkit sanitize --arch gfx1151 -- ./saxpy",
        "patchkit sanitize --arch gfx1151 --check races --sarif races.sarif -- ./my-kernel-test",
        "patchkit sanitize --arch gfx1151 --suppressions known.toml -- ./my-kernel-test",
        "patchkit sanitize --arch gfx1151 --leaks -- ./saxpy",
        "patchkit sanitize --arch gfx1151 --side baseline -- test-backend-ops test -b ROCm0 -o SSM_SCAN",
        "patchkit sanitize --arch gfx1151 --code build/bin/libggml-hip.so",
        "patchkit sanitize --arch gfx1151 --side baseline --onto HEAD -- test-backend-ops test -o SSM_SCAN",
    ),
)
@arch_option
@click.option(
    "--check",
    "kinds",
    type=click.Choice(check_names()),
    multiple=True,
    help=f"Look for this; again for more (default: all but {', '.join(_ON_REQUEST)}).",
)
@click.option(
    "--code",
    type=FOLDER,
    metavar="FILE",
    help="Run nothing: look at the code in FILE for hazards of the chip that no run shows.",
)
@click.option("--leaks", is_flag=True, help="Look for memory that the program never frees, too.")
@program_options
@packed(
    "files",
    _Files,
    click.option(
        "--suppressions", type=FOLDER, metavar="FILE", help="Findings that are known, each with its reason."
    ),
    click.option("--report", type=FOLDER, metavar="FILE", help="Write the findings as JSON."),
    click.option("--sarif", type=FOLDER, metavar="FILE", help="Write the findings at file:line as SARIF."),
    click.option("--html", type=FOLDER, metavar="FILE", help="Write a page to read without network."),
)
@click.argument("program", nargs=-1, type=click.UNPROCESSED, shell_complete=files)
@_telling_checks
def command(
    settings: Settings,
    arch: str,
    kinds: tuple[Any, ...],
    code: Path | None,
    program: tuple[str, ...],
    files: _Files,
    side: SideChoice | None,
    *,
    leaks: bool,
    profile: bool,
    **options: Any,
) -> None:
    """Look for faults in the kernels of a HIP program while it runs on an emulated GPU.

    {checks}

    Each fault is shown once, with the source line if the program was compiled with -gline-tables-only
    or -g, its kernel, block, wave, lane and address, and where the program launched it. The program goes on
    behind a fault: an access to no memory is left out. What is worth knowing and no fault is a note. The
    exit status is 0 when nothing was found but notes, and 1 when something was. Hazards of
    the chip, which no run shows, are told beside it as 'static' and leave the exit status alone; with --code
    they are all that is looked for, and count.
    """
    if (code is None) == (not program):
        raise UsageError(
            "sanitize needs a program, or --code FILE, and not both",
            code="USAGE_SYNTAX",
            hint=f"patchkit sanitize --arch {arch} -- ./program arguments",
        )
    if code is not None:
        _look(settings, arch, code, files.report)
        return
    known = () if files.suppressions is None else load_suppressions(files.suppressions)
    files.check()
    if side is None:
        find_program(program[0])
    checks = _checks(kinds, with_leaks=leaks)
    how = EmulationOptions(checks=checks, **options)
    gpu = open_gpu(settings, arch)
    built = built_side(settings, gpu, program[0], side)
    seen = gpu.sanitize(program, how, prepares=built, quiet=settings.json)
    left, left_out, wrong = suppress(seen.findings, known)
    faults = [one for one in left if not one.is_note]
    if not faults:
        _check_whole(seen, program[0], has_any=bool(left_out or left))
    elif seen.cut_short:
        settings.reporter().warn(
            f"{program[0]} ended before it could tell all it ran: how often things happened is not known"
        )
    document = _document(seen.ran, checks, left, left_out, wrong)
    document["static"] = code_document(seen.code, arch)
    told = list(_told(len(faults), len(left) - len(faults), left_out, seen.ran, checks))
    files.write(document, _report(program, left, left_out, seen.ran, told))
    settings.show(document, [*_lines(left), *hazard_lines(seen.code), *told])
    _show_profile(settings, seen.ran, is_wanted=profile)
    if faults:
        if wrong is not None:
            settings.reporter().warn(f"{wrong.message}: {', '.join(str(place) for place in wrong.where)}")
        raise click.exceptions.Exit(ExitCode.GATE_FAILED)
    if wrong is not None:
        if not settings.json:
            raise wrong
        raise click.exceptions.Exit(wrong.exit_code)


def _look(settings: Settings, arch: str, path: Path, report: Path | None) -> None:
    """``--code``: nothing runs."""
    refuse_given(
        _OF_RUNS, "is about a run, and --code runs nothing", f"patchkit sanitize --arch {arch} --code FILE"
    )
    if report is not None:
        check_output(report, "preparing the report")
    seen = open_gpu(settings, arch).look(path)
    document = code_document(seen, arch)
    if report is not None:
        write_output(report, _json(document), "writing the report")
    settings.show(document, list(code_lines(seen, path, arch)))
    if not document["ok"]:
        raise click.exceptions.Exit(ExitCode.GATE_FAILED)


def _checks(kinds: Sequence[CheckName], *, with_leaks: bool) -> tuple[CheckName, ...]:
    checks = chosen_checks(kinds)
    return chosen_checks((*checks, "leaks")) if with_leaks else checks


def _show_profile(settings: Settings, ran: Ran, *, is_wanted: bool) -> None:
    if is_wanted and ran.report is not None and not settings.json:
        for line in profile_lines(ran.report):
            settings.reporter().info(line)


def _refusals(ran: Ran) -> str | None:
    """Why launches were refused, for the reason of an error; None where none was."""
    refused = () if ran.report is None else ran.report.refused
    return f"launches were refused: {'; '.join(map(str, refused))}" if refused else None


def _check_whole(seen: Sanitized, program: str, *, has_any: bool) -> None:
    """That nothing was found says something only of a program that ran its kernels to the end."""
    ran = seen.ran
    if ran.broken is not None:
        raise ran.broken
    if ran.report is None or seen.cut_short:
        raise ToolchainError(
            f"{program} left no report of what it ran on the emulated GPU",
            code="EMULATION_UNREPORTED",
            why=f"it ended with status {ran.status}; it may have used no GPU, or ended without cleaning up",
            hint="if it lacks a function of HIP (it says so above), the emulated GPU has not got it yet; "
            "patchkit emulate runs it without checks",
        )
    # What a sample computes is wrong, and the program may say so; but not by a signal.
    follows = ran.report.left_out > 0 and ran.status < _SIGNALLED
    if (ran.status and not follows) or ran.report.fault is not None:
        raise ToolchainError(
            f"{program} ended with status {ran.status}, and nothing new was found until then",
            code="SANITIZED_FAILED",
            why=ran.report.fault
            or _refusals(ran)
            or "the program says why; what it did not come to was not looked at",
            hint="patchkit emulate runs it without checks",
        )
    if not has_any and not any(one.launches for one in ran.report.kernels):
        raise ToolchainError(
            f"{program} launched no kernel: there was nothing to look at",
            code="NOTHING_LAUNCHED",
            why=_refusals(ran) or "it did not come to one, or has no code for this GPU",
            hint="give it the arguments with which it uses the GPU, or the --arch that it was compiled for",
        )


def _document(
    ran: Ran,
    checks: Sequence[str],
    left: Sequence[Finding],
    left_out: Sequence[tuple[Finding, Suppression]],
    wrong: ConfigError | None,
) -> dict[str, object]:
    report = ran.report
    return {
        "ok": all(one.is_note for one in left) and wrong is None,
        "status": ran.status,
        "emulator": ran.gpu.identity,
        "arch": ran.gpu.device.arch,
        "checks": list(checks),
        "launches": 0 if report is None else sum(kernel.launches for kernel in report.kernels),
        "instructions": 0 if report is None else report.instructions,
        "kernels": [] if report is None else [_kernel(one) for one in report.kernels if one.launches],
        "blocks_left_out": 0 if report is None else report.left_out,
        "refused": [] if report is None else [one.model_dump() for one in report.refused],
        "fault": None if report is None else report.fault,
        "findings": left,
        "suppressed": [
            {"reason": known.reason, "link": known.link, **fields_of(one)} for one, known in left_out
        ],
        "unused_suppressions": [] if wrong is None else [str(place) for place in wrong.where],
    }


def _kernel(one: KernelCount) -> dict[str, object]:
    return one.model_dump(exclude={"by_instruction"})


def _json(document: object) -> bytes:
    return (json.dumps(plain(document), indent=1) + "\n").encode("utf-8")


def _lines(left: Sequence[Finding]) -> Iterator[str]:
    for one in left:
        yield from finding_lines(finding_block(one))
        yield ""


def _told(
    faults: int,
    notes: int,
    left_out: Sequence[tuple[Finding, Suppression]],
    ran: Ran,
    checks: Sequence[str],
) -> Iterator[str]:
    """How much was found, in what, and what was not looked at."""
    report = ran.report
    found = counted(faults, "finding") + (f" and {counted(notes, 'note')}" if notes else "")
    if report is None:
        yield f"{found} until the program ended; looked for: {', '.join(checks)}"
        return
    kernels = [kernel for kernel in report.kernels if kernel.launches]
    launches = counted(sum(kernel.launches for kernel in kernels), "launch", "launches")
    yield (
        f"{found} in {launches} of {counted(len(kernels), 'kernel')} on an emulated "
        f"{ran.gpu.device.arch}; looked for: {', '.join(checks)}"
    )
    if (sample := sampled(report)) is not None:
        yield sample + (f"; it ended with status {ran.status}" if ran.status else "")
    if left_out:
        links = sorted({" ".join(known.link.split()) for _, known in left_out})
        yield f"known, and left out: {counted(len(left_out), 'finding')}: {', '.join(links)}"
    if report.on_cpu:
        calls = sorted({one.call for one in report.on_cpu})
        yield f"not looked at, computed on the CPU: {', '.join(calls)}"


def _report(
    program: Sequence[str],
    left: Sequence[Finding],
    left_out: Sequence[tuple[Finding, Suppression]],
    ran: Ran,
    told: Sequence[str],
) -> Report:
    return Report(
        command="patchkit sanitize",
        title=shlex.join(program),
        headline=told[0],
        notes=tuple(told[1:]),
        sections=(Section(title="Findings", blocks=finding_blocks(left, left_out, Path.cwd())),),
        facts=(
            ("GPU", f"emulated {ran.gpu.device.arch}, emulator {ran.gpu.identity}"),
            ("the program's status", str(ran.status)),
        ),
        rules={check.name: check.about for check in CHECKS},
        footer="Found means found on the path that this run took; no AMD GPU took part.",
        version=version_of("patchkit"),
    )
