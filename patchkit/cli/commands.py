"""The commands by name, and mistakes on the command line as errors of our own.

click finds most of the mistakes; here they get a code, the near misses and the next command.
"""

from __future__ import annotations

import importlib
import keyword
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import click

from patchkit.base.errors import UsageError
from patchkit.base.text import near_miss

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# The one table of the commands: the help, the reference and <tab> take names, order and words from here.
# The five of the first day: what one came for, what it is worth, where one stands, how to go on when
# llama.cpp does, and what is missing when any of it fails. The others stand by what they are about.
GROUPS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "The first day": {
            "apply": "Make the candidate branch: the pin plus one commit per patch.",
            "verify": "Prove what can be proven of the candidate, and say what was not.",
            "status": "Show the pins, what is cached, and which candidates exist.",
            "bump": "Follow upstream to another pin; all of it or nothing.",
            "doctor": "Check what patchkit needs on this machine.",
        },
        "Carry patches": {
            "plan": "Show what apply would do, and what would fail. Reads only.",
            "list": "List the patches and the GPUs.",
            "show": "Show one patch or one GPU in full.",
            "diff": "Show what the candidate changes in upstream.",
            "export": "Write the candidate as a series of patches for git am.",
            "resolve": "Merge a patch that a new upstream does not take.",
            "sweep": "Show what becomes of every patch on many upstreams. Reads only.",
            "init": "Make a series of your own, to carry your patches in.",
            "new": "Write a patch of one change: a place, and what to put there.",
            "import": "Make a patch of a diff, of commits or of a pull request.",
            "lock": "Record what the series gives at the pin, after a patch changed.",
        },
        "Prove them": {
            "build": "Build baseline and candidate for this machine, side by side.",
            "bench": "Compare results of llama-bench, or measure both sides in one go.",
            "pick": "Find the patches that pay on this machine, by measuring.",
            "explain": "Show which attention kernel a shape gets, before and after.",
            "report": "Make a report of what verify found, in one of several formats.",
            "evidence": "Hand on what this machine measured, and take what others did.",
            "gate": "Judge a pull request: run only the gates that it can affect.",
            "package": "Make a wheel of the candidate's programs.",
        },
        "Tune kernels": {
            "try": "Show what a change to the series does to its kernels, at once.",
            "tune": "Find a kernel's best settings by what the compiler makes of it.",
        },
        "A GPU without a GPU": {
            "emulate": "Run a HIP program on an emulated GPU, on any machine.",
            "sanitize": "Look for faults in a HIP program's kernels, on an emulated GPU.",
            "model": "Say how long a GPU would take for an operation: modelled.",
            "estimate": "Show how fast a model can be on a GPU at most: a roofline.",
        },
        "Set-up": {
            "sdk": "Install, show or remove a HIP SDK, for machines without ROCm.",
            "store": "Show, bound or pack the results that the cache folder keeps.",
            "completion": "Print what makes the Tab key complete, in bash, zsh or fish.",
        },
    }
)
COMMANDS: Mapping[str, str] = MappingProxyType(
    {name: about for members in GROUPS.values() for name, about in members.items()}
)


class Verb(click.Command):
    """A command whose help goes out like every other result: a stdout that refuses it is OutputFailed."""

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """The option of click, with our way of writing."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.callback = _show_help
        return option


def _show_help(ctx: click.Context, _param: click.Parameter, value: object) -> None:
    if value and not ctx.resilient_parsing:
        ctx.obj.terminal.data(ctx.get_help())
        ctx.exit()


class Verbs(Verb, click.Group):
    """The root group."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of the table."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports the verb; ``None`` when there is none of that name."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        name = f"{cmd_name}_" if keyword.iskeyword(cmd_name) else cmd_name
        module = importlib.import_module(f"patchkit.cli.verbs.{name}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The verb named first; raises USAGE_COMMAND with the nearest names."""
        if args and args[0] not in COMMANDS:
            raise UsageError(
                f"there is no command '{args[0]}'",
                code="USAGE_COMMAND",
                hint=near_miss(args[0], COMMANDS, most=3) or f"the commands are: {', '.join(COMMANDS)}",
            )
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the commands above the options: they are what is looked for."""
        self.format_commands(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the groups without importing the verbs, as click's own version would."""
        del ctx
        wide = max(map(len, COMMANDS))
        for title, members in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(wide), about) for name, about in members.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """What <tab> offers for a command, without importing the verbs, as click's own version would."""
        from click.shell_completion import CompletionItem

        names = [
            CompletionItem(name, help=about)
            for name, about in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]


def from_click(error: click.ClickException, command: str) -> UsageError:
    """The same mistake as one of our errors; ``command`` stands in where click does not name one."""
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    path = ctx.command_path if ctx is not None else command
    help_hint = f"{path} --help"
    if isinstance(error, click.NoSuchOption):
        return UsageError(
            f"'{path}' has no option '{error.option_name}'",
            code="USAGE_OPTION",
            hint=near_miss(error.option_name, _options_of(ctx), most=3) or help_hint,
        )
    message = _sentence(error.format_message())
    if isinstance(error, click.MissingParameter):
        return UsageError(message, code="USAGE_MISSING", hint=help_hint)
    if isinstance(error, click.BadParameter):
        return UsageError(message, code="USAGE_VALUE", hint=help_hint)
    return UsageError(message, code="USAGE_SYNTAX", hint=help_hint)


def _options_of(ctx: click.Context | None) -> tuple[str, ...]:
    if ctx is None:
        return ()
    return tuple(name for param in ctx.command.get_params(ctx) for name in param.opts if name.startswith("-"))


def _sentence(text: str) -> str:
    """As our messages are written: small first letter, no full stop."""
    text = " ".join(text.split()).removesuffix(".")
    return text[:1].lower() + text[1:]
