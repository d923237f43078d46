"""``patchkit evidence`` and its commands ``export``, ``check`` and ``add``."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from patchkit.base.errors import ErrorGroup, ExitCode, Location, PatchkitError, UsageError
from patchkit.base.evidence import EvidenceFile, MeasuredMachine
from patchkit.base.files import check_output, disk_errors, write_output
from patchkit.base.text import counted
from patchkit.base.upstreams import build_name
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.find import find_candidate
from patchkit.carry.series.catalogue import load_series
from patchkit.carry.series.lock import load_lock
from patchkit.carry.series.measured import codes_of
from patchkit.cli.error_text import error_as_json, exit_code_of
from patchkit.cli.request import CandidateChoice, candidate_options
from patchkit.cli.settings import FOLDER, TEXT, Settings, verb, verb_group
from patchkit.gpu.hardware.machine_facts import machine_token, read_machine
from patchkit.gpu.hardware.runner import LocalRunner
from patchkit.prove.evidence.add import CheckedFile, PatchEffect, add_file, check_file, make_checker
from patchkit.prove.evidence.check import Checker, PlacePatches
from patchkit.prove.evidence.export import Exporter, Measurement, load_gate_measurement, load_measurement
from patchkit.prove.pulls.measured import place
from patchkit.toolchain.parts import BackendName


@verb_group(
    "evidence",
    example=(
        "patchkit evidence export --arch gfx1151",
        "patchkit evidence check gfx1151-b11549-0123456789ab.json",
        "patchkit evidence add gfx1151-b11549-0123456789ab.json",
    ),
)
def command() -> None:
    """Export what this machine measured, and check or add the measurements of others.

    An evidence file has all raw rounds of a measurement, the hashes of source trees and patches, and the
    relevant facts about the machine: GPU, clocks, driver, ROCm, compiler and kernel. It contains no serial
    numbers, no paths, and no name other than the one you choose to give. The files of a series are in its
    folder evidence/. patchkit show ID shows their results for a patch.
    """


@verb(
    "export",
    group=command,
    about="Write the measurements of this machine to a file.",
    example=(
        "patchkit evidence export --arch gfx1151",
        "patchkit evidence export --from ./sweep --by lhl --out mine.json",
    ),
)
@candidate_options
@click.option(
    "--from",
    "folder",
    type=FOLDER,
    metavar="DIR",
    help="Result folder of bench run or pick (default: the results of the bench gate for the candidate).",
)
@click.option("--by", type=TEXT, metavar="NAME", help="Your name or handle, to put into the file (optional).")
@click.option(
    "--out",
    type=FOLDER,
    metavar="FILE",
    help="File to write (default: in this folder, named after its content).",
)
def _export(
    settings: Settings, choice: CandidateChoice, folder: Path | None, by: str | None, out: Path | None
) -> None:
    """Write one file with everything about a measurement: machine, trees, patches, raw rounds, verdicts.

    By default exports what the bench gate measured for the candidate on this machine (patchkit verify --gate
    bench --model MODEL.gguf). The file is plain text; you can read all of it before you send it.
    """
    workspace = settings.workspace()
    if by is not None and not _is_handle(by):
        raise UsageError(
            f"'{by}' is not a valid name for --by",
            code="USAGE_SYNTAX",
            hint="use up to 39 letters, digits and dashes, as in a GitHub user name",
        )
    if folder is not None and (choice.archs or choice.upstream or choice.onto or not choice.wish.is_empty):
        raise UsageError(
            "--from cannot be combined with options that select a candidate",
            code="OPTIONS_CONTRADICT",
            why="the folder records which builds were measured, and on which GPU",
        )
    if out is not None:
        check_output(out, "writing the evidence file")
    archs, found = (
        load_measurement(folder, _machine_here(workspace))
        if folder is not None
        else _of_gate(workspace, choice)
    )
    series = workspace.series
    folders = {patch.id: patch.folder for patch in load_series(series.patches).patches}
    exporter = Exporter(
        codes=codes_of(series.patches, folders),
        lock=load_lock(workspace.series.lock),
        archs=archs,
        place=_maker(workspace),
        by=by,
    )
    file = exporter.export(found)
    place = out or Path(file.name)
    _refuse_other(place, file.text)
    write_output(place, file.text, "writing the evidence file")
    settings.show({"ok": True, "file": str(place), **_document(file)}, _export_lines(file, place))


def _refuse_other(place: Path, text: bytes) -> None:
    """Raise EVIDENCE_FILE_THERE if another file exists there: it may be the only copy of a measurement."""
    with disk_errors(place, "writing the evidence file"):
        is_other = place.is_file() and place.read_bytes() != text
    if is_other:
        raise UsageError(
            "a different file already exists",
            code="EVIDENCE_FILE_THERE",
            where=Location(path=str(place)),
            why="measurements are never overwritten",
            hint="name another file with --out, or move this one away",
        )


def _is_handle(name: str) -> bool:
    return re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]{0,38}", name) is not None


def _of_gate(workspace: Workspace, choice: CandidateChoice) -> tuple[tuple[str, ...], Measurement]:
    """Return the GPUs and the bench gate's measurement of the selected candidate."""
    chosen = choice.choose(workspace)
    repository, candidate = find_candidate(workspace, chosen.archs, chosen.upstream)
    tree = repository.git.run("rev-parse", f"{candidate.tip}^{{tree}}").decode("ascii").strip()
    found = load_gate_measurement(workspace.cache_root / "evidence" / tree / "bench.json")
    return candidate.archs, replace(found, patches={tree: candidate.ids})


def _machine_here(workspace: Workspace) -> Callable[[str, BackendName], MeasuredMachine]:
    runner = LocalRunner(reporter=workspace.reporter)
    token = machine_token(workspace.cache_root, runner)

    def read(arch: str, backend: BackendName) -> MeasuredMachine:
        return read_machine(runner, token, arch=arch, backend=backend)

    return read


def _maker(workspace: Workspace) -> PlacePatches:
    """Return what places sets of patches that no lock records, as apply does, without making a branch."""
    return partial(place, workspace=workspace)


_FILES = click.argument("files", nargs=-1, required=True, type=FOLDER, metavar="FILE...")


@verb(
    "check",
    group=command,
    about="Recompute every figure of a file and compare its hashes with the lock.",
    example=(
        "patchkit evidence check gfx1151-b11549-0123456789ab.json",
        "patchkit evidence check evidence/*.json --json",
    ),
)
@_FILES
def _check(settings: Settings, files: tuple[Path, ...]) -> int:
    """Check whether an evidence file is consistent, and show what it would change. Changes nothing.

    Trees and patches must be those of the series in use; sets of patches that the lock does not record are
    placed again for comparison. Every figure is recomputed from the raw rounds. A file that passes is
    consistent and plausible. No check can prove that someone measured it, which is why two machines must
    agree.
    """
    workspace = settings.workspace()
    checker = _checker(workspace)
    return _each(settings, files, lambda path: check_file(path, workspace.series, checker), added=False)


@verb(
    "add",
    group=command,
    about="Check files and add them to the series.",
    example=("patchkit evidence add gfx1151-b11549-0123456789ab.json",),
)
@_FILES
def _add(settings: Settings, files: tuple[Path, ...]) -> int:
    """Check evidence files as evidence check does, and copy them into the folder evidence/ of the series.

    From then on they count as claims about the patches, by the rules of [trust] in series.toml: a gain on two
    machines makes a patch 'measured'; a loss beyond noise on two machines turns it off by default.
    """
    workspace = settings.workspace()

    def add(path: Path) -> CheckedFile:
        # A new checker each time, so that it recognises a copy of a file that was added just now.
        return add_file(path, workspace.series, _checker(workspace))

    return _each(settings, files, add, added=True)


def _checker(workspace: Workspace) -> Checker:
    return make_checker(workspace.series, _maker(workspace), dt.datetime.now(dt.UTC).date())


def _each(
    settings: Settings, files: Sequence[Path], do: Callable[[Path], CheckedFile], *, added: bool
) -> int:
    """Process every file, then report all errors; return the exit code."""
    errors: list[PatchkitError] = []
    found: list[tuple[Path, CheckedFile]] = []
    for path in files:
        try:
            found.append((path, do(path)))
        except PatchkitError as error:
            errors.append(error)
    documents = [
        {
            "path": str(path),
            "new": one.is_new,
            "renamed": _is_renamed(path, one.file),
            **_document(one.file),
            "patches": _patches(one),
        }
        for path, one in found
    ]
    lines = [line for path, one in found for line in _checked_lines(path, one, added=added)]
    if not errors:
        settings.show({"ok": True, "files": documents}, lines)
        return ExitCode.OK
    refused = errors[0] if len(errors) == 1 else ErrorGroup("some evidence files were rejected", errors)
    if not found:
        raise refused
    settings.show({"ok": False, "files": documents, **error_as_json(refused)}, lines)
    settings.terminal.write_error(refused)
    return exit_code_of(refused)


def _document(file: EvidenceFile) -> dict[str, object]:
    return {
        "name": file.name,
        "who": file.who,
        "machine": json.loads(file.machine.model_dump_json()),
        "build": file.build,
        "tests": [f"{test.name} of {test.model}" for test in file.tests],
        "verdicts": [json.loads(one.model_dump_json()) for one in file.verdicts],
    }


def _patches(found: CheckedFile) -> list[dict[str, object]]:
    return [
        {
            "patch": one.patch,
            "counts": one.validity.counts,
            "why_not": one.validity.why or None,
            "level_before": one.before.level,
            "level_after": one.after.level,
            "loses": one.after.loses,
            "measured": one.measured,
        }
        for one in found.patches
    ]


def _machine_lines(file: EvidenceFile) -> Iterator[str]:
    machine = file.machine
    versions = (
        ("kernel", machine.kernel),
        ("driver", machine.driver),
        ("ROCm", machine.rocm),
        ("", machine.compiler),
    )
    known = ", ".join(f"{name} {value}".strip() for name, value in versions if value)
    yield f"  {machine.gpu} ({machine.arch}), {known or 'software versions unknown'}"
    clock = machine.clock_mhz
    if clock is not None:
        yield f"  GPU clock {clock.low:.0f} to {clock.high:.0f} MHz"


def _export_lines(file: EvidenceFile, place: Path) -> Iterator[str]:
    yield f"{place}: {counted(len(file.tests), 'test')}, {counted(len(file.arms), 'build')}, by {file.who}"
    yield from _machine_lines(file)
    for one in file.verdicts:
        test = file.tests[one.test]
        yield (
            f"  {one.verdict}: {test.name} of {test.model}, {one.of} against {one.against}: "
            f"{one.change:+.1%} ({one.low:+.1%} to {one.high:+.1%}), {counted(one.rounds, 'round')}"
        )
    if all(one.noise is None for one in file.verdicts):
        yield (
            "  no build was measured twice, so the noise is unknown; use patchkit verify --gate "
            "bench for that"
        )
    yield (
        "To contribute it, open a pull request that adds this file to evidence/ (docs/guide/your-machine.md)."
    )


def _checked_lines(path: Path, found: CheckedFile, *, added: bool) -> Iterator[str]:
    state = "valid"
    if added:
        state = f"added as evidence/{found.file.name}" if found.is_new else "already in the series"
    yield f"{path}: {state}; {found.file.who}, {found.file.day}, {build_name(found.file.build)}"
    if _is_renamed(path, found.file):
        yield f"  warning: its content belongs to {found.file.name}; it may have been edited since the export"
    yield from _machine_lines(found.file)
    for one in found.patches:
        yield from _patch_lines(one)
    if not found.patches:
        yield "  no two of its builds differ in exactly one patch, so it has no result for any patch"


def _is_renamed(path: Path, file: EvidenceFile) -> bool:
    """Return whether the file's name has export's form, but the digest in it is not that of its content."""
    return path.name != file.name and re.fullmatch(r".+-b\d+-[0-9a-f]{12}\.json", path.name) is not None


def _patch_lines(one: PatchEffect) -> Iterator[str]:
    yield f"  {one.patch}: {one.becomes}"
    if not one.validity.counts:
        yield f"    does not count: {one.validity.why}"
    yield from (f"    {each.text}, {each.test.model}" for each in one.measured)
