"""The options that every command takes, and what they amount to."""

from __future__ import annotations

import functools
import importlib.metadata
import math
from collections.abc import Callable, Iterable
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
    from patchkit.base.workspace import Workspace


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


class Size(click.FloatRange):
    """A number within bounds, and with an end: ``nan`` is within all of them."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number itself."""
        found = float(super().convert(value, param, ctx))
        if not math.isfinite(found):
            self.fail(f"{value} is no number to count with", param, ctx)
        return found


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
        return Terminal(color=self.color)

    def show(self, document: object, lines: Iterable[str], *, fit: bool = False) -> None:
        """Write a result: the document under ``--json``, else the lines for a person (``fit``: as `data`)."""
        if self.json:
            self.terminal.document(document)
        else:
            self.terminal.data("\n".join(lines), fit=fit)

    def reporter(self) -> Reporter:
        """Who hears about the work: nobody, a log, or a terminal."""
        from patchkit.cli.progress import make_reporter

        return make_reporter(verbose=self.verbose, quiet=self.quiet, color=self.color)

    def workspace(self) -> Workspace:
        """What a verb works on; raises the errors of finding the series and the cache folder."""
        from patchkit.base.series_folder import find_series_dir
        from patchkit.base.workspace import Workspace

        return Workspace(
            series=find_series_dir(self.series_dir),
            cache_root=self.cache_root(),
            reporter=self.reporter(),
        )

    def cache_root(self) -> Path:
        """The cache folder: named, else ``PATCHKIT_CACHE``, else the user's."""
        if self.cache_dir is not None:
            return self.cache_dir
        from patchkit.base.workspace import default_cache_root

        return default_cache_root()


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def options(*members: Decorator) -> Decorator:
    """One decorator for several options; the help shows them in this order."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for member in reversed(members):
            function = member(function)
        return function

    return decorate


def packed(name: str, make: Callable[..., object], *members: Decorator) -> Decorator:
    """Options that the command gets as one argument: what ``make`` makes of their values, given by name."""

    def declare() -> None: ...

    options(*members)(declare)
    names = [str(option.name) for option in vars(declare)["__click_params__"]]

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def pack(*args: Any, **values: Any) -> Any:
            own = {each: values.pop(each) for each in names}
            return function(*args, **values, **{name: make(**own)})

        return options(*members)(pack)

    return decorate


def _remember(ctx: click.Context, param: click.Parameter, value: object) -> None:
    settings = ctx.find_object(Settings)
    if settings is not None and value not in (None, False):
        setattr(settings, str(param.name), value)


_global = functools.partial(click.option, expose_value=False, callback=_remember)

# The options of every command; they go into the Settings, not to the function.
shared_options = options(
    _global("--json", is_flag=True, help="One JSON document on stdout, also for errors."),
    _global(
        "--cache-dir",
        type=FOLDER,
        metavar="DIR",
        help="Where upstream is kept (default: the user cache folder; also PATCHKIT_CACHE).",
    ),
    _global(
        "--series-dir",
        type=FOLDER,
        envvar="PATCHKIT_SERIES",
        metavar="DIR",
        help="Your own patches/, templates/ and arch_profiles/ (also PATCHKIT_SERIES).",
    ),
    _global("-v", "--verbose", is_flag=True, help="Echo every outside command."),
    _global("-q", "--quiet", is_flag=True, help="Only errors."),
    _global(
        "--color",
        type=click.Choice(["auto", "always", "never"]),
        help="Colours on stderr (default: auto).",
    ),
)


def example_epilog(*lines: str) -> str:
    r"""The examples under a help text; ``\b`` keeps click from wrapping them."""
    return "\b\nExample:\n" + "\n".join(f"  {line}" for line in lines)


def verb(
    name: str, *, example: tuple[str, ...], group: click.Group | None = None, about: str | None = None
) -> Callable[[Callable[..., Any]], click.Command]:
    """Makes the function the command ``name``; it gets the Settings first, returns an exit code or None.

    A command of a ``group`` says itself what it is ``about``, the others in COMMANDS.
    """

    def decorate(function: Callable[..., Any]) -> click.Command:
        command = click.command if group is None else group.command
        make = command(
            name=name, cls=Verb, short_help=about or COMMANDS[name], epilog=example_epilog(*example)
        )
        return make(shared_options(click.pass_obj(function)))

    return decorate
