"""The options that say what to apply, or which candidate is meant.

``apply`` and ``plan`` share the first, every verb that looks at a candidate the second: a commit, a pin, GPUs
and patches are named the same way everywhere.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict

import click

from patchkit.base.errors import UsageError
from patchkit.cli.settings import FOLDER, TEXT

if TYPE_CHECKING:
    from patchkit.bump.onto.pin import Onto
    from patchkit.candidate.plan import Request
    from patchkit.candidate.record import Wish
    from patchkit.candidate.workspace import Workspace
    from patchkit.series.lock import Pin, PinWanted


_DIGITS = 9  # of a build number


class ArchMissing(UsageError):
    """No GPU was named, and this machine does not have exactly one."""

    code = "ARCH_MISSING"


def _build_number(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """6900 of ``6900`` or ``b6900``."""
    if value is None:
        return None
    text = value.removeprefix("b")
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS and int(text)):
        raise click.BadParameter("it is no build number such as b6900", ctx, param)
    return int(text)


class RequestOptions(TypedDict):
    """The values as click hands them over."""

    archs: tuple[str, ...]
    upstream: str | None
    source: Literal["auto", "git", "sdist"]
    upstream_url: str | None
    only: tuple[str, ...]
    without: tuple[str, ...]
    with_: tuple[str, ...]
    onto: str | None
    repo: Path | None
    as_build: int | None
    with_opt_in: bool
    drop_conflicts: bool
    unlocked: NotRequired[bool]


_ARCH = click.option(
    "--arch",
    "archs",
    type=TEXT,
    multiple=True,
    metavar="GFX",
    help="A GPU, as gfx1151; give it again for more.",
)
_UPSTREAM = click.option(
    "--upstream", type=TEXT, metavar="PIN", help="A pin of the lock: b6900 or a commit prefix."
)


_ONTO = click.option(
    "--onto",
    type=TEXT,
    is_flag=False,
    flag_value="HEAD",
    metavar="REV",
    help="A commit of your own clone of llama.cpp (without REV: its HEAD).",
)
_REPO = click.option(
    "--repo", type=FOLDER, metavar="DIR", help="Your clone, for --onto (default: the one you are in)."
)
_AS_BUILD = click.option(
    "--as-build",
    type=TEXT,
    callback=_build_number,
    metavar="N",
    help="The upstream build below --onto, where your clone does not tell.",
)
_PATCHES = (
    click.option("--with", "with_", multiple=True, metavar="ID", help="Add a patch that is opt-in."),
    click.option("--without", multiple=True, metavar="ID", help="Leave a patch out."),
    click.option("--only", multiple=True, metavar="ID", help="Only these patches."),
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
        from patchkit.candidate.find import check_candidate, find_candidate, made_for
        from patchkit.series.lock import load_lock
        from patchkit.series.profile import load_profile

        def pin_for(archs: tuple[str, ...]) -> Pin:
            if self.onto is None:
                return load_lock(workspace.series.lock).pin(self.upstream)
            from patchkit.bump.onto.pin import find_onto_pin

            return find_onto_pin(self.onto, workspace, archs)

        try:
            archs = choose_archs(workspace, self.archs)
        except ArchMissing:
            made = made_for(workspace, pin_for(()))
            if len(made) != 1:
                raise
            workspace.reporter.info(f"no --arch given: using the only candidate, for {' '.join(made[0])}")
            archs = made[0]
        for arch in archs:
            load_profile(workspace.series.profiles, arch)  # a misspelt name is no missing candidate
        pin = pin_for(archs)
        if check:
            _, candidate = find_candidate(workspace, archs, pin)
            check_candidate(workspace, candidate, pin, self.wish)
        return Chosen(archs=archs, upstream=pin if self.onto is not None else self.upstream)


def candidate_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that name a candidate; the function gets them as one ``choice``."""

    @functools.wraps(function)
    def packed(*args: Any, **options: Any) -> Any:  # noqa: ANN401  # whatever the command takes
        from patchkit.candidate.record import Wish

        onto = make_onto(options.pop("onto"), options.pop("repo"), None, options["upstream"])
        wish = Wish(with_=options.pop("with_"), without=options.pop("without"), only=options.pop("only"))
        choice = CandidateChoice(
            archs=options.pop("archs"), upstream=options.pop("upstream"), onto=onto, wish=wish
        )
        return function(*args, choice=choice, **options)

    decorated: Callable[..., Any] = packed
    for option in (*_PATCHES, _REPO, _ONTO, _UPSTREAM, _ARCH):
        decorated = option(decorated)
    return decorated


def make_onto(
    revision: str | None, repo: Path | None, build: int | None, upstream: str | None
) -> Onto | None:
    """What --onto, --repo and --as-build name; None when none of them was given.

    Raises OPTIONS_CONTRADICT.
    """
    if revision is None and repo is None and build is None:
        return None
    if upstream is not None:
        raise UsageError(
            "--upstream and --onto contradict each other",
            code="OPTIONS_CONTRADICT",
            why="one is a pin of the lock, the other a commit of your clone",
            hint="drop one of them",
        )
    from patchkit.bump.onto.pin import Onto

    directory = repo or FOLDER.convert(".", None, None)
    return Onto(revision=revision or "HEAD", directory=directory, as_build=build)


def program_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that say what of a candidate is built."""
    for option in (
        click.option(
            "--program", "programs", multiple=True, metavar="NAME", help="Only this one; again for more."
        ),
        click.option(
            "--backend",
            type=click.Choice(["hip", "cuda", "cpu"]),
            default="hip",
            show_default=True,
            help="What to build for; the CPU backend is always built too.",
        ),
    ):
        function = option(function)
    return function


def request_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options of a Request."""
    for option in (
        click.option(
            "--drop-conflicts", is_flag=True, help="With --onto: leave out what cannot be placed, and say so."
        ),
        click.option("--with-opt-in", is_flag=True, help="Add every patch that is opt-in for these GPUs."),
        *_PATCHES,
        click.option(
            "--upstream-url", type=TEXT, metavar="URL", help="A mirror or local clone to take the pin from."
        ),
        click.option(
            "--source",
            type=click.Choice(["auto", "git", "sdist"]),
            default="auto",
            show_default=True,
            help="Where the pin comes from; its tree hash decides either way.",
        ),
        _AS_BUILD,
        _REPO,
        _ONTO,
        _UPSTREAM,
        _ARCH,
    ):
        function = option(function)
    return function


def unlocked_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds ``--unlocked``, for the verbs that hold their inputs against the lock."""
    return click.option(
        "--unlocked", is_flag=True, help="Accept inputs that differ from the lock's; the commits say so."
    )(function)


def make_request(workspace: Workspace, options: RequestOptions) -> Request:
    """The Request of the options; raises ArchMissing when there is no telling which GPU is meant."""
    from patchkit.candidate.plan import Request

    return Request(
        archs=choose_archs(workspace, options["archs"]),
        upstream=options["upstream"],
        source=options["source"],
        upstream_url=options["upstream_url"],
        only=options["only"],
        without=options["without"],
        with_=options["with_"],
        unlocked=options.get("unlocked", False),
        with_opt_in=options["with_opt_in"],
    )


def requested_onto(options: RequestOptions) -> Onto | None:
    """The commit of the user's clone that is meant, if one is.

    Raises OPTIONS_CONTRADICT for options that say nothing of a clone, or only of one.
    """
    onto = make_onto(options["onto"], options["repo"], options["as_build"], options["upstream"])
    unfit = ["--unlocked"] if options.get("unlocked") else []
    unfit += ["--source"] if options["source"] != "auto" else []
    unfit += ["--upstream-url"] if options["upstream_url"] is not None else []
    if onto is not None and unfit:
        raise UsageError(
            f"{' and '.join(unfit)} cannot go with --onto",
            code="OPTIONS_CONTRADICT",
            why="a commit of your clone comes from there, and no lock records it",
            hint=f"drop {' and '.join(unfit)}",
        )
    if onto is None and options["drop_conflicts"]:
        raise UsageError(
            "--drop-conflicts goes with --onto",
            code="OPTIONS_CONTRADICT",
            why="what a pin of the lock gets is recorded there",
            hint="--without ID leaves a patch out",
        )
    return onto


def choose_archs(workspace: Workspace, named: tuple[str, ...]) -> tuple[str, ...]:
    """The named GPUs; without any, the only one of this machine.

    Raises ArchMissing with the GPUs that the series has patches for.
    """
    from patchkit.candidate.listing import archs_with_patches
    from patchkit.device.gpus import detect_gpus

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
