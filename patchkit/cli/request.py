"""The options that say what to apply, and the Request they make.

``apply``, ``plan``, ``diff`` and ``export`` share them, so that what one shows is what another does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict

import click

from patchkit.cli.settings import TEXT
from patchkit.errors import UsageError

if TYPE_CHECKING:
    from patchkit.flow.plan import Request
    from patchkit.flow.workspace import Workspace

__all__ = [
    "ArchMissing",
    "RequestOptions",
    "candidate_options",
    "choose_archs",
    "choose_candidate",
    "make_request",
    "program_options",
    "request_options",
    "unlocked_option",
]


class ArchMissing(UsageError):
    """No GPU was named, and this machine does not have exactly one."""

    code = "ARCH_MISSING"


class RequestOptions(TypedDict):
    """The values as click hands them over."""

    archs: tuple[str, ...]
    upstream: str | None
    source: Literal["auto", "git", "sdist"]
    upstream_url: str | None
    only: tuple[str, ...]
    without: tuple[str, ...]
    with_: tuple[str, ...]
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


def candidate_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that name a candidate."""
    for option in (_UPSTREAM, _ARCH):
        function = option(function)
    return function


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
        click.option("--with", "with_", multiple=True, metavar="ID", help="Add a patch that is opt-in."),
        click.option("--without", multiple=True, metavar="ID", help="Leave a patch out."),
        click.option("--only", multiple=True, metavar="ID", help="Only these patches."),
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
    from patchkit.flow.plan import Request

    return Request(
        archs=choose_archs(workspace, options["archs"]),
        upstream=options["upstream"],
        source=options["source"],
        upstream_url=options["upstream_url"],
        only=options["only"],
        without=options["without"],
        with_=options["with_"],
        unlocked=options.get("unlocked", False),
    )


def choose_archs(workspace: Workspace, named: tuple[str, ...]) -> tuple[str, ...]:
    """The named GPUs; without any, the only one of this machine.

    Raises ArchMissing with the GPUs that the series has patches for.
    """
    from patchkit.flow.gpus import detect_gpus
    from patchkit.flow.listing import archs_with_patches

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


def choose_candidate(workspace: Workspace, named: tuple[str, ...], upstream: str | None) -> tuple[str, ...]:
    """As :func:`choose_archs`; on a machine without a GPU, those of the only candidate that was made.

    Raises what reading the lock raises, too.
    """
    from patchkit.config.lock import load_lock
    from patchkit.flow.candidates import made_for

    try:
        return choose_archs(workspace, named)
    except ArchMissing:
        made = made_for(workspace, load_lock(workspace.series.lock).pin(upstream).build)
        if len(made) != 1:
            raise
        workspace.reporter.info(f"no --arch given: using the only candidate, for {' '.join(made[0])}")
        return made[0]
