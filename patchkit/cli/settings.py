"""The options that every command takes, and what they amount to."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from patchkit.base.errors import UsageError
from patchkit.base.reporter import Reporter
from patchkit.cli.commands import COMMANDS, Verb
from patchkit.cli.terminal import ColorChoice, Terminal


def version_of(distribution: str) -> str:
    """The installed version, or ``not installed`` (patchkit itself may run from a bare checkout)."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


if TYPE_CHECKING:
    from patchkit.candidate.workspace import Workspace


class _Text(click.types.StringParamType):
    """Any text but none: an empty one is a variable that a script forgot to set."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The text itself."""
        text = str(super().convert(value, param, ctx))
        if not text:
            self.fail("it is empty; leave the option out instead", param, ctx)
        return text


class _Folder(click.Path):
    """A path, made absolute at once. Empty is refused: Python would take it for the current folder."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """The absolute path; raises WORKING_FOLDER_GONE when there is nothing it could be relative to."""
        if not str(value):
            self.fail("an empty path names no folder; the current one is '.'", param, ctx)
        try:
            return Path(str(value)).absolute()
        except FileNotFoundError as error:
            raise UsageError(
                f"'{value}' is relative to a folder that is gone",
                code="WORKING_FOLDER_GONE",
                why="the current folder was deleted",
                hint="cd to a folder that exists, or give an absolute path",
            ) from error


TEXT = _Text()
FOLDER = _Folder()


@dataclass(slots=True, kw_only=True)
class Settings:
    """The global options of one run.

    The one mutable object of the command line: click's callbacks fill it while they parse, so that
    an error found halfway is already reported the way that was asked for.
    """

    cache_dir: Path | None = None
    series_dir: Path | None = None
    verbose: bool = False
    quiet: bool = False
    json: bool = False
    color: ColorChoice = "auto"

    @property
    def terminal(self) -> Terminal:
        """How to speak."""
        return Terminal(json=self.json, color=self.color)

    def reporter(self) -> Reporter:
        """Who hears about the work: nobody, a log, or a terminal."""
        from patchkit.cli.progress import make_reporter

        return make_reporter(verbose=self.verbose, quiet=self.quiet, color=self.color)

    def workspace(self) -> Workspace:
        """What a verb works on; raises the errors of finding the series and the cache folder."""
        from patchkit.candidate.workspace import Workspace
        from patchkit.series.folder import find_series_dir

        return Workspace(
            series=find_series_dir(self.series_dir),
            cache_root=self.cache_root(),
            reporter=self.reporter(),
        )

    def cache_root(self) -> Path:
        """The cache folder: named, else ``PATCHKIT_CACHE``, else the user's."""
        if self.cache_dir is not None:
            return self.cache_dir
        from patchkit.upstream.cache import default_cache_root

        return default_cache_root()


def _remember(ctx: click.Context, param: click.Parameter, value: object) -> None:
    settings = ctx.find_object(Settings)
    if settings is not None and value not in (None, False):
        setattr(settings, str(param.name), value)


def shared_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the global options; they go into the Settings, not to the function."""
    for option in (
        click.option(
            "--color",
            type=click.Choice(["auto", "always", "never"]),
            expose_value=False,
            callback=_remember,
            help="Colours on stderr (default: auto).",
        ),
        click.option(
            "-q", "--quiet", is_flag=True, expose_value=False, callback=_remember, help="Only errors."
        ),
        click.option(
            "-v",
            "--verbose",
            is_flag=True,
            expose_value=False,
            callback=_remember,
            help="Echo every outside command.",
        ),
        click.option(
            "--series-dir",
            type=FOLDER,
            metavar="DIR",
            expose_value=False,
            callback=_remember,
            help="Your own patches/, templates/ and arch_profiles/.",
        ),
        click.option(
            "--cache-dir",
            type=FOLDER,
            metavar="DIR",
            expose_value=False,
            callback=_remember,
            help="Where upstream is kept (default: the user cache folder; also PATCHKIT_CACHE).",
        ),
        click.option(
            "--json",
            is_flag=True,
            expose_value=False,
            callback=_remember,
            help="One JSON document on stdout, also for errors.",
        ),
    ):
        function = option(function)
    return function


def example_epilog(*lines: str) -> str:
    r"""The examples under a help text; ``\b`` keeps click from wrapping them."""
    return "\b\nExample:\n" + "\n".join(f"  {line}" for line in lines)


def verb(name: str, *, example: tuple[str, ...]) -> Callable[[Callable[..., Any]], click.Command]:
    """Makes the function the command ``name``; it gets the Settings first, returns an exit code or None."""

    def decorate(function: Callable[..., Any]) -> click.Command:
        make = click.command(name=name, cls=Verb, short_help=COMMANDS[name], epilog=example_epilog(*example))
        return make(shared_options(click.pass_obj(function)))

    return decorate
