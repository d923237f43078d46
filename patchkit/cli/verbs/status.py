"""``patchkit status``."""

from __future__ import annotations

import datetime as dt
import shlex
from collections.abc import Iterator
from pathlib import Path

import click

from patchkit.base.errors import UsageError
from patchkit.base.series_folder import PLAIN, arch_options, format_archs
from patchkit.base.text import counted
from patchkit.base.upstreams import build_name
from patchkit.carry.candidate.listing import archs_with_patches
from patchkit.carry.onto.survey import CopyStatus, survey
from patchkit.carry.series.lock import Pin
from patchkit.carry.status import MadeCandidate, Queue, Status, read_status
from patchkit.cli.clone import CLONE, make_onto
from patchkit.cli.screen import Cell, Screen
from patchkit.cli.settings import Settings, verb
from patchkit.cli.terminal import write_stderr

_STATES: dict[str, tuple[str, str]] = {
    "recorded": ("current", "good"),
    "differs": ("outdated", "caution"),
    "series changed": ("outdated", "caution"),
    "not recorded": ("custom", ""),
    "on a clone": ("in a clone", ""),
}
_OUTDATED = ("differs", "series changed")
_ORIGINS = {
    "named": "from --series-dir or PATCHKIT_SERIES",
    "checkout": "of this checkout of patchkit",
    "installed": "installed with patchkit",
}


@verb(
    "status",
    example=(
        "patchkit status",
        "patchkit status --fetch",
        "patchkit status --onto HEAD --repo ~/whisper.cpp",
    ),
)
@click.option("--fetch", is_flag=True, help="Look up the pull requests of the patches.")
@CLONE
def command(settings: Settings, *, fetch: bool, onto: str | None, repo: Path | None) -> None:
    """Show your branches, whether they are current, and what to do next.

    Changes nothing. With a series of your own, or with -v, also shows the carried patches and their pull
    requests, as they were at the last status --fetch or bump.

    With --onto, shows instead how old the copy of ggml in that commit is and which known faults its code has.
    The clone may be of llama.cpp or of another project on ggml.
    """
    asked = make_onto(onto, repo)
    if asked is not None:
        if fetch:
            raise UsageError(
                "--fetch and --onto cannot be combined",
                code="OPTIONS_CONTRADICT",
                why="--onto looks at a commit of your clone, which has no pull requests",
            )
        copy = survey(asked, settings.workspace())
        settings.show_screen(copy, lambda screen: _draw_copy(screen, copy))
        return
    now = dt.datetime.now(tz=dt.UTC)
    status = read_status(settings.workspace(), now, fetch=fetch)
    terminal = settings.terminal
    shows_patches = settings.verbose or fetch or status.series.origin == "named"
    settings.show_screen(status, lambda screen: _draw(screen, status, now, shows_patches=shows_patches))
    if settings.json:
        return
    for patch in status.queue.patches:
        for warning in patch.warnings:
            write_stderr(f"{terminal.paint('warning', 'error')}: {patch.id}: {warning}")
    for made, found in ((one.made, one.fault) for one in status.faults):
        if found.archs and found.fault.is_harmful:
            where = f"known fault of {made.branch}"
            write_stderr(f"{terminal.paint('warning', 'error')}: {where}: {found.sentence()}")
    for error in status.broken:
        terminal.write_error(error)


def _draw_copy(screen: Screen, copy: CopyStatus) -> None:
    """Add what is known of the copy of ggml in a commit."""
    screen.prose(f"{copy.project.title} at {copy.commit.sha[:12]}", role="heading")
    build = f"{copy.build}, by {copy.build.known_by}" if copy.build is not None else "unknown"
    rows: list[tuple[Cell, ...]] = [
        ("ggml", copy.version or "no version in its CMake file"),
        ("as in llama.cpp", build),
    ]
    if copy.behind is not None:
        rows.append(("behind", f"{copy.behind}; the newest known build is {copy.newest.title}"))
    screen.table(rows)
    if copy.differs:
        screen.prose("Unlike these builds:")
        for why in copy.differs:
            screen.prose(why, indent=2)
    screen.heading("Known faults" if copy.by_code else "Known faults of this build")
    for fault in copy.faults:
        role = "bad" if fault.refuses else "caution" if fault.is_harmful else "muted"
        how = f"fixed by {fault.patch}" if fault.patch is not None else "no patch fixes it"
        seen = "" if fault.seen_on == "hardware" else ", seen on the emulated GPU only"
        screen.prose(f"{fault.id}: {fault.title}", role=role)
        screen.prose(f"{fault.does}{seen}; {how}; on {' '.join(fault.archs)}", indent=2)
    if not copy.faults:
        screen.prose("none", indent=2)
    screen.heading("What you can do")
    where = ["--onto", copy.commit.sha[:12], "--repo", str(copy.clone.top)]
    screen.table([(shlex.join(["patchkit", "plan", "--arch", "GFX", *where]), "shows the patches for it")])


def _draw(screen: Screen, status: Status, now: dt.datetime, *, shows_patches: bool) -> None:
    default = status.lock.pin(None)
    screen.heading("Your branches")
    rows: list[tuple[Cell, ...]] = []
    for one in status.candidates:
        many = counted(len(one.made.commits), "patch", "patches")
        rows.append((one.made.branch, _state(one, default), f"{many} on {_base(one, status, now)}"))
    screen.table(rows)
    if not rows:
        screen.prose("none yet", indent=2)
    screen.heading("What you can do")
    screen.table([(command, why) for command, why in _steps(status)])
    screen.heading("llama.cpp builds in the lock file")
    pins: list[tuple[Cell, ...]] = []
    for pin in status.lock.pins:
        cached = "downloaded" if pin.name in status.cached else "not downloaded"
        is_default = ("default", "good") if pin is default else ""
        pins.append((pin.title, f"tree {pin.tree[:12]}", _age(pin, now), cached, is_default))
    screen.table(pins)
    for pin in status.lock.pins:
        for row in pin.dropped:
            screen.prose(
                f"{pin.title}: dropped for {format_archs(row.archs)}: {row.patch}: {row.why}", indent=2
            )
    if shows_patches:
        _draw_queue(screen, status.queue, default.title)
        for line in status.following.lines(default.name):
            screen.prose(line.lstrip(), indent=len(line) - len(line.lstrip()))
    screen.blank()
    screen.table(
        [
            ("series", f"{status.series.root} ({_ORIGINS[status.series.origin]})"),
            ("cache", str(status.repository.parent)),
        ],
        indent=0,
    )


def _base(one: MadeCandidate, status: Status, now: dt.datetime) -> str:
    pin = next((pin for pin in status.lock.pins if pin.name == one.made.pin), None)
    record = one.made.record
    if record is not None and record.clone is not None:
        branch = f"branch {record.branch}" if record.branch else "no branch"
        return f"llama.cpp {build_name(one.made.build)}, {branch} in {record.clone}"
    if pin is None:
        return f"llama.cpp {build_name(one.made.build)}"
    return f"llama.cpp {pin.title} of {_age(pin, now)}"


def _age(pin: Pin, now: dt.datetime) -> str:
    committed = dt.datetime.fromisoformat(pin.committed)
    days = max((now - committed).days, 0)
    return f"{committed.date().isoformat()} ({counted(days, 'day')} old)"


def _state(one: MadeCandidate, default: Pin) -> Cell:
    if not one.made.commits:
        return ("equals upstream", "muted")
    if one.standing == "recorded" and one.made.build < default.build:
        return ("older build", "caution")
    text, role = _STATES[one.standing]
    return (text, role) if role else text


def _steps(status: Status) -> Iterator[tuple[str, str]]:
    """Yield commands with the reason to run them."""
    profiles = status.series.profiles
    default = status.lock.pin()
    own = [one for one in status.candidates if one.standing != "on a clone"]
    if not status.candidates:
        archs = archs_with_patches(status.series)[:1] or (PLAIN,)
        yield shlex.join(["patchkit", "apply", *arch_options(archs, profiles)]), "creates a branch"
        return
    done = {(one.made.archs, one.made.pin) for one in own}
    updated: set[tuple[tuple[str, ...], str]] = set()
    is_stale = any(one.standing == "series changed" and _is_recorded(one, status) for one in own)
    if is_stale:
        yield "patchkit lock --all", "records the changed patches"
    for one in own:
        words = ["patchkit", "apply", *arch_options(one.made.archs, profiles)]
        if one.standing in _OUTDATED:
            if (one.made.archs, one.made.pin) not in updated:
                again = [*words, "--upstream", one.made.pin]
                yield shlex.join(again), f"updates {one.made.branch}"
            updated.add((one.made.archs, one.made.pin))
        elif one.made.build < default.build and (one.made.archs, default.name) not in done:
            done.add((one.made.archs, default.name))
            yield shlex.join(words), f"creates a branch on {default.name}"
    current = [
        one
        for one in own
        if one.made.commits and one.standing not in _OUTDATED and one.made.pin == default.name
    ]
    for one in current[:1]:
        words = ["patchkit", "verify", *arch_options(one.made.archs, profiles)]
        yield shlex.join(words), f"checks {one.made.branch}"
    if status.series.origin != "installed":
        yield "patchkit bump --to latest", f"moves to a llama.cpp build newer than {default.name}"


def _is_recorded(one: MadeCandidate, status: Status) -> bool:
    """Whether the lock has a result for the same GPUs and build, which has to be recorded again."""
    return any((each.pin, each.archs) == (one.made.pin, one.made.archs) for each in status.lock.results)


def _draw_queue(screen: Screen, queue: Queue, pin: str) -> None:
    if not queue.patches:
        return
    screen.heading(f"Carried patches on {pin}: {len(queue.patches)}, with {counted(queue.edits, 'edit')}")
    rows: list[tuple[Cell, ...]] = []
    for patch in queue.patches:
        age = f"{counted(patch.age_days, 'day')} old" if patch.age_days is not None else "age unknown"
        rows.append(
            (
                patch.id,
                counted(patch.edits, "edit"),
                age,
                f"carried for {counted(patch.builds, 'build')}",
                patch.upstream,
            )
        )
    screen.table(rows)
    if queue.bumps:
        screen.prose(f"Conflicts so far: {queue.conflicts} in {counted(queue.bumps, 'bump')}", indent=2)
