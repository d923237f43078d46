"""The options that every command takes, the run's settings, and how a command is declared."""

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
from patchkit.cli.commands import COMMANDS, CommonOption, Verb
from patchkit.cli.terminal import ColorChoice, Terminal


def version_of(distribution: str) -> str:
    """Return the installed version, or ``not installed`` (patchkit itself may run from a bare checkout)."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


if TYPE_CHECKING:
    from patchkit.base.workspace import Workspace
    from patchkit.cli.screen import Screen


class _Text(click.types.StringParamType):
    """A non-empty text. An empty one usually comes from a shell variable that is not set."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text, or fail if it is empty."""
        text = str(super().convert(value, param, ctx))
        if not text:
            self.fail("the value is empty; omit the option instead", param, ctx)
        return text


class _Folder(click.Path):
    """A path, made absolute. Empty is rejected, because Python would read it as the current folder."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the absolute path; raise WORKING_FOLDER_GONE if the current folder was deleted."""
        if not str(value):
            self.fail("the path is empty; use '.' for the current folder", param, ctx)
        try:
            return Path(str(value)).absolute()
        except FileNotFoundError as error:
            raise UsageError(
                f"cannot resolve the relative path '{value}'",
                code="WORKING_FOLDER_GONE",
                why="the current folder was deleted",
                hint="cd to a folder that exists, or give an absolute path",
            ) from error


class Size(click.FloatRange):
    """A finite number within bounds; click's FloatRange accepts ``nan`` in every range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number, or fail if it is not finite."""
        found = float(super().convert(value, param, ctx))
        if not math.isfinite(found):
            self.fail(f"expected a finite number, got {value}", param, ctx)
        return found


TEXT = _Text()
FOLDER = _Folder()


@dataclass(slots=True, kw_only=True)
class Settings:
    """The values of the common options of one run.

    Mutable, because click's callbacks fill it during parsing: an error found while parsing is then already
    reported as JSON or in colour, as requested.
    """

    cache_dir: Path | None = None
    series_dir: Path | None = None
    verbose: bool = False
    quiet: bool = False
    json: bool = False
    color: ColorChoice = "auto"

    @property
    def terminal(self) -> Terminal:
        """The terminal with the chosen colours."""
        return Terminal(color=self.color)

    def show(self, document: object, lines: Iterable[str], *, fit: bool = False) -> None:
        """Write a result: ``document`` with ``--json``, else ``lines`` (``fit`` as in ``Terminal.data``)."""
        if self.json:
            self.terminal.document(document)
        else:
            self.terminal.data("\n".join(lines), fit=fit)

    def show_screen(self, document: object, draw: Callable[[Screen], None]) -> None:
        """Write a result: ``document`` with ``--json``, else what ``draw`` puts on the screen."""
        if self.json:
            self.terminal.document(document)
            return
        screen = self.terminal.screen()
        draw(screen)
        self.terminal.data("\n".join(screen.lines), as_is=True)

    def reporter(self) -> Reporter:
        """Make the reporter of progress on stderr: none, plain lines, or lines and a bar."""
        from patchkit.cli.progress import make_reporter

        return make_reporter(verbose=self.verbose, quiet=self.quiet, color=self.color)

    def workspace(self) -> Workspace:
        """Return series, cache folder and reporter; raise the errors of finding the first two."""
        from patchkit.base.series_folder import find_series_dir
        from patchkit.base.workspace import Workspace

        return Workspace(
            series=find_series_dir(self.series_dir),
            cache_root=self.cache_root(),
            reporter=self.reporter(),
        )

    def cache_root(self) -> Path:
        """Return the cache folder: ``--cache-dir``, else ``PATCHKIT_CACHE``, else the user's."""
        if self.cache_dir is not None:
            return self.cache_dir
        from patchkit.base.workspace import default_cache_root

        return default_cache_root()


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def options(*members: Decorator) -> Decorator:
    """Combine several options into one decorator; help lists them in this order."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for member in reversed(members):
            function = member(function)
        return function

    return decorate


def packed(name: str, make: Callable[..., object], *members: Decorator) -> Decorator:
    """Combine options into one argument ``name``: what ``make`` returns for their values."""

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


_global = functools.partial(click.option, cls=CommonOption, expose_value=False, callback=_remember)

# The options of every command. Their values go into the Settings, not to the function.
shared_options = options(
    _global("--json", is_flag=True, help="Print one JSON document to stdout, errors included."),
    _global(
        "--cache-dir",
        type=FOLDER,
        metavar="DIR",
        help="Folder for llama.cpp's sources and build results (default: $PATCHKIT_CACHE, else the user's "
        "cache folder).",
    ),
    _global(
        "--series-dir",
        type=FOLDER,
        envvar="PATCHKIT_SERIES",
        metavar="DIR",
        help="Folder with a patch series of your own (default: $PATCHKIT_SERIES, else the series that comes "
        "with patchkit).",
    ),
    _global("-v", "--verbose", is_flag=True, help="Show details and every external command."),
    _global("-q", "--quiet", is_flag=True, help="Print results and errors only, no progress."),
    _global(
        "--color",
        type=click.Choice(["auto", "always", "never"]),
        help="When to use colours (default: auto: on a terminal, unless NO_COLOR is set).",
    ),
)


def example_epilog(*lines: str) -> str:
    r"""Return the examples below a help text; ``\b`` keeps click from wrapping them."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


class _Group(Verb, click.Group):
    """A command of several commands."""


def verb_group(name: str, *, example: tuple[str, ...]) -> Callable[[Callable[[], None]], click.Group]:
    """Declare a function as the command ``name``, to which :func:`verb` adds commands."""

    def decorate(function: Callable[[], None]) -> click.Group:
        make = click.group(name=name, cls=_Group, short_help=COMMANDS[name], epilog=example_epilog(*example))
        return make(shared_options(function))

    return decorate


def verb(
    name: str, *, example: tuple[str, ...], group: click.Group | None = None, about: str | None = None
) -> Callable[[Callable[..., Any]], click.Command]:
    """Declare a function as the command ``name``; it gets the Settings and may return an exit code.

    ``about`` is the summary of a command in a ``group``; those of the others are in COMMANDS.
    """

    def decorate(function: Callable[..., Any]) -> click.Command:
        command = click.command if group is None else group.command
        make = command(
            name=name, cls=Verb, short_help=about or COMMANDS[name], epilog=example_epilog(*example)
        )
        return make(shared_options(click.pass_obj(function)))

    return decorate
