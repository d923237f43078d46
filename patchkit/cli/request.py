"""The options that say what to apply, or which candidate is meant.

``apply`` and ``plan`` share the first, every verb that looks at a candidate the second: a commit, a pin, GPUs
and patches are named the same way everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from patchkit.base.errors import UsageError
from patchkit.base.series_folder import PLAIN, is_plain
from patchkit.base.upstreams import llama_cpp
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.decision import Request, Wish
from patchkit.carry.candidate.find import candidate_archs, check_candidate, find_candidate
from patchkit.carry.candidate.listing import archs_with_patches
from patchkit.carry.onto.pin import AsBuild, Onto, find_onto_pin
from patchkit.carry.series.lock import Pin, PinWanted, load_lock
from patchkit.carry.series.profile import load_profiles
from patchkit.carry.upstream.sources import AUTO, source_words
from patchkit.cli.clone import CLONE, make_onto
from patchkit.cli.completing import gpus, patches, pins
from patchkit.cli.settings import TEXT, options, packed
from patchkit.gpu.hardware.gpus import detect_gpus
from patchkit.toolchain.parts import BackendName

_DIGITS = 9  # of a build number


class ArchMissing(UsageError):
    """No GPU was named, and this machine does not have exactly one."""

    code = "ARCH_MISSING"


def build_number(ctx: click.Context, param: click.Parameter, value: str | None) -> int | str | None:
    """6900 of ``6900`` or ``b6900``, and ``v0.5.0`` as it is; a callback of options."""
    if value is None:
        return None
    tags = llama_cpp().tags
    if tags.is_release(value):
        return value
    build = tags.parse_build(value)
    if build is None:
        raise click.BadParameter("it is no build such as b6900, and no release such as v0.5.0", ctx, param)
    return build


ARCHS = click.option(
    "--arch",
    "archs",
    type=TEXT,
    multiple=True,
    metavar="GFX",
    shell_complete=gpus,
    help="A GPU, as gfx1151; again for more. plain: no GPU, the patches for every build alone.",
)
_UPSTREAM = click.option(
    "--upstream",
    type=TEXT,
    metavar="PIN",
    shell_complete=pins,
    help="A pin of the lock: b6900, v0.5.0 or a commit prefix.",
)
_AS_BUILD = click.option(
    "--as-build",
    type=TEXT,
    callback=build_number,
    metavar="N",
    help="The upstream build or release below --onto, where your clone does not tell.",
)
_WHICH = options(ARCHS, _UPSTREAM, CLONE)
WITH = click.option(
    "--with", "with_", multiple=True, metavar="ID", shell_complete=patches, help="Add a patch that is opt-in."
)
TRUST = click.option(
    "--trust",
    type=click.Choice(["measured", "published", "modelled", "faults"]),
    help="How well a gain must be known: measured by two on the GPU, published by one and modelled (the "
    "default), or modelled alone; faults: also what mends faults that nobody reported.",
)
_PATCHES = options(
    click.option("--only", multiple=True, metavar="ID", shell_complete=patches, help="Only these patches."),
    click.option("--without", multiple=True, metavar="ID", shell_complete=patches, help="Leave a patch out."),
    WITH,
    TRUST,
)
DEVICE = click.Choice(["hip", "cuda", "cpu"])
program_options = options(
    click.option(
        "--backend",
        type=DEVICE,
        help="What to build for (default: hip; for a plain candidate cpu); the CPU backend is always built.",
    ),
    click.option(
        "--program", "programs", multiple=True, metavar="NAME", help="Only this one; again for more."
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """A candidate as it was named: its GPUs, and its pin as the flows take it."""

    archs: tuple[str, ...]
    upstream: PinWanted


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateChoice:
    """What the options say of the candidate that is meant."""

    archs: tuple[str, ...]
    upstream: str | None
    onto: Onto | None
    wish: Wish

    def choose(self, workspace: Workspace, *, check: bool = True) -> Chosen:
        """Which candidate that is: without --arch the GPU of this machine, else the only one that was made.

        Raises:
            ArchMissing: there is no telling which GPU is meant.
            CANDIDATE_MISSING, CANDIDATE_BROKEN: there is no such candidate; only looked for with ``check``.
            CANDIDATE_OTHER_SERIES: it is of another series, or has other patches; as above.
            The errors of reading lock, profiles and the user's clone.
        """

        def pin_for(archs: tuple[str, ...]) -> Pin:
            if self.onto is None:
                return load_lock(workspace.series.lock).pin(self.upstream)
            return find_onto_pin(self.onto, workspace, archs)

        try:
            archs = choose_archs(workspace, self.archs)
        except ArchMissing:
            made = candidate_archs(workspace, pin_for(()))
            if len(made) != 1:
                raise
            workspace.reporter.info(f"no --arch given: using the only candidate, for {' '.join(made[0])}")
            archs = made[0]
        load_profiles(workspace.series.profiles, archs)  # a misspelt name is no missing candidate
        pin = pin_for(archs)
        if pin.releases:
            workspace.reporter.info(f"on {pin.title}")
        if check:
            _, candidate = find_candidate(workspace, archs, pin)
            check_candidate(workspace, candidate, pin, self.wish)
        return Chosen(archs=archs, upstream=pin if self.onto is not None else self.upstream)


def _make_choice(
    *, archs: tuple[str, ...], upstream: str | None, onto: str | None, repo: Path | None, **wish: Any
) -> CandidateChoice:
    clone = make_onto(onto, repo, upstream=upstream)
    return CandidateChoice(archs=archs, upstream=upstream, onto=clone, wish=Wish(**wish))


candidate_options = packed("choice", _make_choice, _WHICH, _PATCHES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What apply, plan and try are asked for; ``wanted`` has the GPUs that were named, if any were."""

    wanted: Request
    onto: str | None
    repo: Path | None
    as_build: AsBuild
    drop_conflicts: bool

    def request(self, workspace: Workspace) -> Request:
        """The Request of the options; raises ArchMissing when there is no telling which GPU is meant."""
        return replace(self.wanted, archs=choose_archs(workspace, self.wanted.archs))

    def clone(self) -> Onto | None:
        """The commit of the user's clone that is meant, if one is.

        Raises OPTIONS_CONTRADICT for options that say nothing of a clone, or only of one.
        """
        onto = make_onto(self.onto, self.repo, self.as_build, self.wanted.upstream)
        unfit = ["--unlocked"] if self.wanted.unlocked else []
        unfit += ["--source"] if self.wanted.source != "auto" else []
        unfit += ["--upstream-url"] if self.wanted.upstream_url is not None else []
        if onto is not None and unfit:
            raise UsageError(
                f"{' and '.join(unfit)} cannot go with --onto",
                code="OPTIONS_CONTRADICT",
                why="a commit of your clone comes from there, and no lock records it",
                hint=f"drop {' and '.join(unfit)}",
            )
        if onto is None and self.drop_conflicts:
            raise UsageError(
                "--drop-conflicts goes with --onto",
                code="OPTIONS_CONTRADICT",
                why="what a pin of the lock gets is recorded there",
                hint="--without ID leaves a patch out",
            )
        return onto


def _make_asked(
    *, onto: str | None, repo: Path | None, as_build: AsBuild, drop_conflicts: bool = False, **wanted: Any
) -> Asked:
    return Asked(
        wanted=_make_wanted(**wanted), onto=onto, repo=repo, as_build=as_build, drop_conflicts=drop_conflicts
    )


def _make_wanted(**wanted: Any) -> Request:
    return Request(**wanted)


_SOURCE = options(
    click.option(
        "--source",
        type=click.Choice(source_words()),
        default=AUTO,
        show_default=True,
        help="Where the pin comes from; its tree hash decides either way.",
    ),
    click.option(
        "--upstream-url", type=TEXT, metavar="URL", help="A mirror or local clone to take the pin from."
    ),
)
_ALL_PATCHES = options(
    _PATCHES,
    click.option("--with-opt-in", is_flag=True, help="Add every patch that is opt-in for these GPUs."),
)

# Of lock, which records pins, and writes what the others hold their inputs against.
lock_options = packed("wanted", _make_wanted, ARCHS, _UPSTREAM, _SOURCE, _ALL_PATCHES)
# Of try, which makes no branch: nothing is accepted or dropped for one.
try_options = packed("asked", _make_asked, _WHICH, _AS_BUILD, _SOURCE, _ALL_PATCHES)
request_options = packed(
    "asked",
    _make_asked,
    _WHICH,
    _AS_BUILD,
    _SOURCE,
    _ALL_PATCHES,
    click.option(
        "--drop-conflicts", is_flag=True, help="With --onto: leave out what cannot be placed, and say so."
    ),
    click.option(
        "--accept-fault",
        "accept_faults",
        multiple=True,
        metavar="ID",
        help="Make it although this known fault of the build computes wrong results.",
    ),
    click.option(
        "--unlocked", is_flag=True, help="Accept inputs that differ from the lock's; the commits say so."
    ),
)


def backend_for(archs: tuple[str, ...], named: BackendName | None) -> BackendName:
    """What to build a candidate for; raises HARDWARE_REFUSED for a backend that a plain one has none of."""
    if archs != (PLAIN,):
        return named or "hip"
    if named not in (None, "cpu"):
        raise UsageError(
            f"a plain candidate names no GPU to build for with --backend {named}",
            code="HARDWARE_REFUSED",
            hint="--backend cpu, or a candidate for a GPU: --arch",
        )
    return "cpu"


def unproven(archs: tuple[str, ...]) -> str:
    """What is not known of a candidate that was just made."""
    return "placed, and built by nobody yet" if archs == (PLAIN,) else "placed and parsed, not run on a GPU"


def choose_archs(workspace: Workspace, named: tuple[str, ...]) -> tuple[str, ...]:
    """The named GPUs; without any, the only one of this machine. A plain series has none to ask for.

    Raises ArchMissing with the GPUs that the series has patches for, ARCH_IN_PLAIN_SERIES.
    """
    if is_plain(workspace.series.profiles):
        load_profiles(workspace.series.profiles, named)  # a GPU is refused at once
        return (PLAIN,)
    if named:
        return named
    found = detect_gpus()
    if len(found) == 1:
        workspace.reporter.info(f"no --arch given: using the GPU of this machine, {found[0]}")
        return found
    here = "no AMD GPU was found on this machine"
    if found:
        here = f"this machine has several: {', '.join(found)}"
    ready = found or archs_with_patches(workspace.series)
    raise ArchMissing(
        "which GPU is this for?",
        why=here,
        hint=" or ".join(f"--arch {arch}" for arch in ready) or "patchkit list",
    )
