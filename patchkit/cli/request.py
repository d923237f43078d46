"""The options that select what to apply, and those that select an existing candidate.

``apply``, ``plan`` and ``try`` share the first, all commands on a candidate the second, so that commits,
pins, GPUs and patches have the same options everywhere.
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
    """No GPU was named, and this machine does not have exactly one AMD GPU."""

    code = "ARCH_MISSING"


def build_number(ctx: click.Context, param: click.Parameter, value: str | None) -> int | str | None:
    """Parse ``6900`` or ``b6900`` into 6900, and return ``v0.5.0`` unchanged; an option's callback."""
    if value is None:
        return None
    tags = llama_cpp().tags
    if tags.is_release(value):
        return value
    build = tags.parse_build(value)
    if build is None:
        raise click.BadParameter("expected a build such as b6900, or a release such as v0.5.0", ctx, param)
    return build


ARCHS = click.option(
    "--arch",
    "archs",
    type=TEXT,
    multiple=True,
    metavar="GFX",
    shell_complete=gpus,
    help="GPU, for example gfx1151 (default: this machine's). May be repeated. 'plain': no GPU, only patches "
    "that do not depend on one.",
)
_UPSTREAM = click.option(
    "--upstream",
    type=TEXT,
    metavar="PIN",
    shell_complete=pins,
    help="llama.cpp build of the lock file, by build (b6900), release (v0.5.0) or commit prefix (default: "
    "the lock's default).",
)
_AS_BUILD = click.option(
    "--as-build",
    type=TEXT,
    callback=build_number,
    metavar="N",
    help="Upstream build or release that --onto is based on, if neither its code nor its tags show it.",
)
_WHICH = options(ARCHS, _UPSTREAM, CLONE)
WITH = click.option(
    "--with",
    "with_",
    multiple=True,
    metavar="ID",
    shell_complete=patches,
    help="Add an optional (opt-in) patch, and the patches that it requires. May be repeated.",
)
TRUST = click.option(
    "--trust",
    type=click.Choice(["measured", "published", "modelled", "faults"]),
    help="Evidence that a patch needs. measured: two people measured a gain on this GPU; published "
    "(default): one did, for this or a similar change, and the timing model agrees; modelled: only the "
    "timing model predicts a gain; faults: as modelled, and fixes of faults not yet seen on this GPU.",
)
_PATCHES = options(
    click.option(
        "--only",
        multiple=True,
        metavar="ID",
        shell_complete=patches,
        help="Use only this patch. May be repeated.",
    ),
    click.option(
        "--without",
        multiple=True,
        metavar="ID",
        shell_complete=patches,
        help="Exclude a patch, or one optional edit of it (ID:EDIT). May be repeated.",
    ),
    WITH,
    TRUST,
)
DEVICE = click.Choice(["hip", "cuda", "cpu"])
program_options = options(
    click.option(
        "--backend",
        type=DEVICE,
        help="Backend to build (default: hip; cpu for a plain candidate). The CPU backend is always built.",
    ),
    click.option(
        "--program",
        "programs",
        multiple=True,
        metavar="NAME",
        help="Build only this program. May be repeated.",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The GPUs and the pin of a candidate."""

    archs: tuple[str, ...]
    upstream: PinWanted


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateChoice:
    """The options that select a candidate."""

    archs: tuple[str, ...]
    upstream: str | None
    onto: Onto | None
    wish: Wish

    def choose(self, workspace: Workspace, *, check: bool = True) -> Chosen:
        """Resolve the candidate. Without --arch, use this machine's GPU, else the only candidate that exists.

        Raises:
            ArchMissing: the GPU is ambiguous.
            CANDIDATE_MISSING, CANDIDATE_STALE: there is no such candidate; only with ``check``.
            CANDIDATE_STALE: it has another series or other patches; only with ``check``.
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
            workspace.reporter.info(f"no --arch given; using the only candidate: {' '.join(made[0])}")
            archs = made[0]
        load_profiles(workspace.series.profiles, archs)  # rejects a misspelt GPU before looking for a branch
        pin = pin_for(archs)
        if pin.releases:
            workspace.reporter.info(f"using llama.cpp {pin.title}")
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
# For propose, which names its one patch.
base_options = packed("base", _make_choice, _WHICH)


def with_named(patches: Request) -> Request:
    """The request, where patches of ``--only`` are also added if they are optional: to try them."""
    return replace(patches, with_=tuple(dict.fromkeys((*patches.with_, *patches.only))))


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyOptions:
    """The options of apply, plan and try; ``wanted`` has the GPUs that were named, if any."""

    wanted: Request
    onto: str | None
    repo: Path | None
    as_build: AsBuild
    drop_conflicts: bool

    def request(self, workspace: Workspace) -> Request:
        """Return the request with its GPUs resolved; raise ArchMissing if they are ambiguous."""
        return replace(self.wanted, archs=choose_archs(workspace, self.wanted.archs))

    def clone(self) -> Onto | None:
        """Return the selected commit of the user's clone, or None.

        Raises OPTIONS_CONTRADICT for options that need --onto, or exclude it.
        """
        onto = make_onto(self.onto, self.repo, self.as_build, self.wanted.upstream)
        unfit = ["--unlocked"] if self.wanted.unlocked else []
        unfit += ["--source"] if self.wanted.source != "auto" else []
        unfit += ["--upstream-url"] if self.wanted.upstream_url is not None else []
        if onto is not None and unfit:
            raise UsageError(
                f"{' and '.join(unfit)} cannot be combined with --onto",
                code="OPTIONS_CONTRADICT",
                why="with --onto the sources come from your clone, and the lock file does not cover them",
                hint=f"omit {' and '.join(unfit)}",
            )
        if onto is None and self.drop_conflicts:
            raise UsageError(
                "--drop-conflicts requires --onto",
                code="OPTIONS_CONTRADICT",
                why="without --onto, apply uses the patches that the lock records for the build",
                hint="exclude a patch with --without ID",
            )
        return onto


def _make_apply_options(
    *, onto: str | None, repo: Path | None, as_build: AsBuild, drop_conflicts: bool = False, **wanted: Any
) -> ApplyOptions:
    return ApplyOptions(
        wanted=_make_wanted(**wanted), onto=onto, repo=repo, as_build=as_build, drop_conflicts=drop_conflicts
    )


def _make_wanted(**wanted: Any) -> Request:
    return Request(**wanted)


SOURCE = options(
    click.option(
        "--source",
        type=click.Choice(source_words()),
        default=AUTO,
        show_default=True,
        help="How to download llama.cpp: by git, or as a source package (sdist). Builds of the lock are "
        "checked against its tree hash.",
    ),
    click.option(
        "--upstream-url", type=TEXT, metavar="URL", help="Mirror or local clone to get llama.cpp from."
    ),
)
_ALL_PATCHES = options(
    _PATCHES,
    click.option("--with-opt-in", is_flag=True, help="Add every optional (opt-in) patch of these GPUs."),
)

# For lock, which works on pins only.
lock_options = packed("wanted", _make_wanted, ARCHS, _UPSTREAM, SOURCE, _ALL_PATCHES)
# For try and pick, which make no branch, so options that accept or drop something for one do not apply.
try_options = packed("given", _make_apply_options, _WHICH, _AS_BUILD, SOURCE, _ALL_PATCHES)
request_options = packed(
    "given",
    _make_apply_options,
    _WHICH,
    _AS_BUILD,
    SOURCE,
    _ALL_PATCHES,
    click.option(
        "--drop-conflicts", is_flag=True, help="With --onto: skip patches that conflict, and list them."
    ),
    click.option(
        "--accept-fault",
        "accept_faults",
        multiple=True,
        metavar="ID",
        help="Continue although the build has this known fault (it computes wrong results).",
    ),
    click.option(
        "--unlocked",
        is_flag=True,
        help="Accept patch files that differ from those in the lock; the commit messages note it.",
    ),
)


def backend_for(archs: tuple[str, ...], named: BackendName | None) -> BackendName:
    """Return the backend to build; raise OPTIONS_CONTRADICT for a GPU backend and a plain candidate."""
    if archs != (PLAIN,):
        return named or "hip"
    if named not in (None, "cpu"):
        raise UsageError(
            f"cannot build a plain candidate with --backend {named}: it has no GPU to build for",
            code="OPTIONS_CONTRADICT",
            hint="use --backend cpu, or name a GPU with --arch",
        )
    return "cpu"


def choose_archs(workspace: Workspace, named: tuple[str, ...]) -> tuple[str, ...]:
    """Return the named GPUs, else the only one of this machine; ``plain`` in a plain series.

    Raises ArchMissing with the GPUs that the series has patches for, ARCH_IN_PLAIN_SERIES.
    """
    if is_plain(workspace.series.profiles):
        load_profiles(workspace.series.profiles, named)  # raises ARCH_IN_PLAIN_SERIES for a GPU
        return (PLAIN,)
    if named:
        return named
    found = detect_gpus()
    if len(found) == 1:
        workspace.reporter.info(f"no --arch given; using the GPU of this machine: {found[0]}")
        return found
    here = "this machine has no AMD GPU to detect it from"
    if found:
        here = f"this machine has several GPUs: {', '.join(found)}"
    ready = found or archs_with_patches(workspace.series)
    raise ArchMissing(
        "the GPU is missing: name it with --arch",
        why=here,
        hint=" or ".join(f"--arch {arch}" for arch in ready) or "patchkit list",
    )
