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
from patchkit.base.report.sarif import sarif_report
from patchkit.base.report.terminal import finding_lines
from patchkit.base.text import counted
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
from patchkit.cli.hazard_text import code_document, code_lines, hazard_lines
from patchkit.cli.settings import FOLDER, Settings, packed, verb, version_of
from patchkit.gpu.api import EmulatedRun, Sanitized, find_program
from patchkit.gpu.emulated.checks import CHECKS, CheckName, check_names, checks_help, chosen_checks
from patchkit.gpu.emulated.emulator import EmulationOptions, KernelCount
from patchkit.gpu.emulated.finding_report import finding_block, finding_blocks
from patchkit.gpu.emulated.findings import Finding, Suppression, load_suppressions, suppress

# Options that need a run, and so cannot be combined with --code.
_OF_RUNS = (
    *("kinds", "leaks", "schedule", "threads", "limit", "blocks", "profile"),
    *("side", "upstream", "onto", "repo"),
    *("suppressions", "sarif"),
)
_SIGNALLED = 128  # statuses from here on: the program was killed by a signal
_ON_REQUEST = [check.name for check in CHECKS if check.on_request]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Files:
    suppressions: Path | None
    report: Path | None
    sarif: Path | None

    def check(self) -> None:
        """Check the files before the program runs. Raises USAGE_SYNTAX, CacheError."""
        outputs = {"--report": self.report, "--sarif": self.sarif}
        for (one, path), (other, same) in itertools.combinations(outputs.items(), 2):
            if path is not None and path == same:
                raise UsageError(f"{one} and {other} name the same file", code="USAGE_SYNTAX")
        for wanted in outputs.values():
            if wanted is not None:
                check_output(wanted, "preparing the report")

    def write(self, document: object, report: Report) -> None:
        """Write the requested files. Raises CacheError."""
        if self.report is not None:
            write_output(self.report, _json(document), "writing the report")
        if self.sarif is not None:
            write_output(self.sarif, sarif_report(report).encode("utf-8"), "writing the report")


def _with_checks_in_help(function: Callable[..., Any]) -> Callable[..., Any]:
    """Insert the list of checks into the help text."""
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
    help=f"Run only this check; may be repeated (default: all except {', '.join(_ON_REQUEST)}).",
)
@click.option(
    "--code",
    type=FOLDER,
    metavar="FILE",
    help="Run nothing; search the machine code in FILE for hardware hazards.",
)
@click.option("--leaks", is_flag=True, help="Also report memory that the program never frees.")
@program_options
@packed(
    "files",
    _Files,
    click.option(
        "--suppressions",
        type=FOLDER,
        metavar="FILE",
        help="File of known findings to ignore, each with a reason.",
    ),
    click.option("--report", type=FOLDER, metavar="FILE", help="Write the findings as JSON."),
    click.option(
        "--sarif", type=FOLDER, metavar="FILE", help="Write the findings as SARIF, by file and line."
    ),
)
@click.argument("program", nargs=-1, type=click.UNPROCESSED, shell_complete=files)
@_with_checks_in_help
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
    """Find memory errors and races in the kernels of a HIP program, by running it on an emulated GPU.

    {checks}

    Each fault is reported once, with its kernel, block, wave, lane, address and the place of the launch. You
    also get the source line if the program was compiled with -gline-tables-only or -g. The program continues
    after a fault; the invalid access is skipped. Observations that are not faults are reported as notes.

    The exit status is 0 if there are no findings other than notes, else 1. Hardware hazards in the machine
    code, which do not show in an emulated run, are reported as 'static' and do not affect the exit status.
    With --code only these are searched for, and they do affect it.
    """
    if (code is None) == (not program):
        raise UsageError(
            "sanitize needs either a program or --code FILE",
            code="USAGE_SYNTAX",
            hint=f"patchkit sanitize --arch {arch} -- ./program arguments",
        )
    if code is not None:
        _inspect_code(settings, arch, code, files.report)
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
    left, suppressed, wrong = suppress(seen.findings, known)
    faults = [one for one in left if not one.is_note]
    if not faults:
        _check_whole(seen, program[0], has_any=bool(suppressed or left))
    elif seen.cut_short:
        settings.reporter().warn(
            f"{program[0]} ended before its report was complete, so the counts of findings are too low"
        )
    document = _document(seen.ran, checks, left, suppressed, wrong)
    document["static"] = code_document(seen.code, arch)
    summary = list(_summary(len(faults), len(left) - len(faults), suppressed, seen.ran, checks))
    files.write(document, _report(program, left, suppressed, seen.ran, summary))
    settings.show(document, [*_lines(left), *hazard_lines(seen.code), *summary])
    _show_profile(settings, seen.ran, is_wanted=profile)
    if faults:
        if wrong is not None:
            settings.reporter().warn(f"{wrong.message}: {', '.join(str(place) for place in wrong.where)}")
        raise click.exceptions.Exit(ExitCode.GATE_FAILED)
    if wrong is not None:
        if not settings.json:
            raise wrong
        raise click.exceptions.Exit(wrong.exit_code)


def _inspect_code(settings: Settings, arch: str, path: Path, report: Path | None) -> None:
    """Search the code of a file for hazards (``--code``)."""
    refuse_given(
        _OF_RUNS,
        "cannot be combined with --code, which runs nothing",
        f"patchkit sanitize --arch {arch} --code FILE",
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


def _show_profile(settings: Settings, ran: EmulatedRun, *, is_wanted: bool) -> None:
    if is_wanted and ran.report is not None and not settings.json:
        for line in profile_lines(ran.report):
            settings.reporter().info(line)


def _refusals(ran: EmulatedRun) -> str | None:
    """Why launches were refused, for the reason of an error; None where none was."""
    refused = () if ran.report is None else ran.report.refused
    return f"launches were rejected: {'; '.join(map(str, refused))}" if refused else None


def _on_cpu(ran: EmulatedRun) -> str | None:
    """The calls of hipBLAS instead of launches, for the reason of an error; None without any."""
    calls = sorted({one.call for one in ran.report.on_cpu}) if ran.report is not None else []
    return f"it called only {', '.join(calls)}, which no kernel computes here" if calls else None


def _check_whole(seen: Sanitized, program: str, *, has_any: bool) -> None:
    """Raise if the program did not run its kernels to the end: "no findings" would then mean nothing."""
    ran = seen.ran
    if ran.broken is not None:
        raise ran.broken
    if ran.report is None or seen.cut_short:
        why = f"the program did not use the GPU, or did not exit normally (status {ran.status})"
        hint = "see its output above; a HIP function that it names as missing is not supported yet"
        if ran.status == 0 and not seen.cut_short:
            why = "the program exited with status 0 and made no HIP call"
            hint = (
                "it uses the GPU only if it loads HIP's runtime (libamdhip64.so) and selects no other device"
            )
        raise ToolchainError(
            f"the emulated GPU wrote no report of {program}", code="EMULATION_UNREPORTED", why=why, hint=hint
        )
    # A sample computes wrong results, so the program may report an error; a signal is still unexpected.
    follows = ran.report.left_out > 0 and ran.status < _SIGNALLED
    if (ran.status and not follows) or ran.report.fault is not None:
        raise ToolchainError(
            f"{program} exited with status {ran.status}; no new findings up to that point",
            code="SANITIZED_FAILED",
            why=ran.report.fault
            or _refusals(ran)
            or "see the program's output above; code after the failure was not checked",
            hint="patchkit emulate runs it without checks",
        )
    if not has_any and not any(one.launches for one in ran.report.kernels):
        raise ToolchainError(
            f"{program} launched no kernel, so nothing was checked",
            code="NOTHING_LAUNCHED",
            why=_refusals(ran)
            or _on_cpu(ran)
            or "it made HIP calls, and exited with status 0 without a launch",
            hint="check its arguments: test-backend-ops, for example, needs -b ROCm0, and with -o the name "
            "of an operation",
        )


def _document(
    ran: EmulatedRun,
    checks: Sequence[str],
    left: Sequence[Finding],
    suppressed: Sequence[tuple[Finding, Suppression]],
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
            {"reason": known.reason, "link": known.link, **fields_of(one)} for one, known in suppressed
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


def _summary(
    faults: int,
    notes: int,
    suppressed: Sequence[tuple[Finding, Suppression]],
    ran: EmulatedRun,
    checks: Sequence[str],
) -> Iterator[str]:
    """Yield the number of findings, the launches checked, and what was not checked."""
    report = ran.report
    found = counted(faults, "finding") + (f" and {counted(notes, 'note')}" if notes else "")
    if report is None:
        yield f"{found} until the program ended; checks: {', '.join(checks)}"
        return
    kernels = [kernel for kernel in report.kernels if kernel.launches]
    launches = counted(sum(kernel.launches for kernel in kernels), "launch", "launches")
    yield (
        f"{found} in {launches} of {counted(len(kernels), 'kernel')} on an emulated "
        f"{ran.gpu.device.arch}; checks: {', '.join(checks)}"
    )
    if (sample := sampled(report)) is not None:
        yield sample + (f"; it exited with status {ran.status}" if ran.status else "")
    if suppressed:
        links = sorted({" ".join(known.link.split()) for _, known in suppressed})
        yield f"suppressed as known: {counted(len(suppressed), 'finding')}: {', '.join(links)}"
    if report.on_cpu:
        calls = sorted({one.call for one in report.on_cpu})
        yield f"not checked, because computed on the CPU: {', '.join(calls)}"


def _report(
    program: Sequence[str],
    left: Sequence[Finding],
    suppressed: Sequence[tuple[Finding, Suppression]],
    ran: EmulatedRun,
    summary: Sequence[str],
) -> Report:
    return Report(
        command="patchkit sanitize",
        title=shlex.join(program),
        headline=summary[0],
        notes=tuple(summary[1:]),
        sections=(Section(title="Findings", blocks=finding_blocks(left, suppressed, Path.cwd())),),
        facts=(
            ("GPU", f"emulated {ran.gpu.device.arch}, emulator {ran.gpu.identity}"),
            ("exit status of the program", str(ran.status)),
        ),
        rules={check.name: check.about for check in CHECKS},
        footer="Covers only the code paths that this run took. Ran on an emulated GPU, not on AMD hardware.",
        version=version_of("patchkit"),
    )
