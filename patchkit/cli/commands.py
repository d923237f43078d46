"""The table of the commands, their help, and the conversion of click's errors to patchkit's.

click detects most mistakes on the command line; the conversion adds an error code and suggestions.
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

# The only list of the commands. Help, reference and shell completion take names, order and summaries from it.
GROUPS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "Get a patched llama.cpp": {
            "up": "Build and install llama-server with the patches for your GPU.",
            "apply": "Create a llama.cpp branch with the patches for your GPU.",
            "list": "List the patches, and which of them a GPU gets.",
            "show": "Show one patch or one GPU in detail.",
            "pick": "Benchmark the patches here and keep those that help.",
            "status": "Show your branches and whether they are current.",
            "bump": "Move all patches to a newer llama.cpp build.",
            "doctor": "Check that this machine has what patchkit needs.",
        },
        "Check and benchmark it": {
            "verify": "Run all checks that are possible on this machine.",
            "build": "Build upstream and the patched branch side by side.",
            "bench": "Run llama-bench on both, or compare result files.",
            "explain": "Show which kernels run, before and after the patches.",
            "report": "Write a report on the last verify (Markdown, SARIF, ...).",
            "bisect": "Find the build or patch that made it wrong or slow.",
            "evidence": "Export your measurements; check or add those of others.",
            "package": "Package the patched programs (wheel or tar archive).",
        },
        "Write and maintain patches": {
            "plan": "Show what apply would do, without changing anything.",
            "diff": "Show what the patches change in llama.cpp.",
            "export": "Write the patches as files for git am.",
            "propose": "Prepare a pull request to llama.cpp.",
            "init": "Create a patch series of your own.",
            "new": "Write a patch with a single edit.",
            "import": "Turn a diff, commits or a pull request into patches.",
            "absorb": "Put changes made to a branch with git into the series.",
            "series": "Drop, combine, split and reorder the patches.",
            "try": "Show what an edited patch does to the compiled kernels.",
            "resolve": "Merge a patch that conflicts with a newer llama.cpp.",
            "sweep": "Show on which builds each patch fits.",
            "lock": "Record the new results after you edited a patch.",
            "gate": "Check a pull request: run only the gates it can affect.",
        },
        "Run and time HIP kernels without a GPU": {
            "emulate": "Run a HIP program on an emulated AMD GPU.",
            "sanitize": "Find memory errors and races in a HIP program's kernels.",
            "model": "Predict the time of an operation or a model (modelled).",
            "estimate": "Compute the roofline of a model: its maximum speed.",
            "tune": "Find a kernel's best settings from compiler output.",
        },
        "Set up": {
            "sdk": "Install a HIP SDK, for machines without ROCm.",
            "store": "Show, limit or export the cached build results.",
            "completion": "Print the completion script for bash, zsh or fish.",
        },
    }
)
COMMANDS: Mapping[str, str] = MappingProxyType(
    {name: about for members in GROUPS.values() for name, about in members.items()}
)


class CommonOption(click.Option):
    """An option that every command has; help lists these last, under their own heading."""


class Verb(click.Command):
    """A command whose help lists the common options last, and fails with OutputFailed if stdout does."""

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """Return click's --help, printing through our terminal."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.callback = _show_help
        return option

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command's own options, its subcommands, then the common options."""
        own: list[tuple[str, str]] = []
        common: list[tuple[str, str]] = []
        help_option = self.get_help_option(ctx)
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                is_common = isinstance(param, CommonOption) or param is help_option
                (common if is_common else own).append(record)
        if own:
            with formatter.section("Options"):
                formatter.write_dl(own)
        if isinstance(self, click.Group):
            self.format_commands(ctx, formatter)
        with formatter.section("Common options"):
            formatter.write_dl(common)


def _show_help(ctx: click.Context, _param: click.Parameter, value: object) -> None:
    if value and not ctx.resilient_parsing:
        ctx.obj.terminal.data(ctx.get_help())
        ctx.exit()


class Verbs(Verb, click.Group):
    """The root group."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command, or ``None`` if there is none of that name."""
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
        """Resolve the command; raise USAGE_COMMAND with the nearest names."""
        if args and args[0] not in COMMANDS:
            raise UsageError(
                f"unknown command '{args[0]}'",
                code="USAGE_COMMAND",
                hint=near_miss(args[0], COMMANDS, most=3) or f"commands: {', '.join(COMMANDS)}",
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the groups from the table; click's own version would import every command."""
        del ctx
        wide = max(map(len, COMMANDS))
        for title, members in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(wide), about) for name, about in members.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete a command's name from the table; click's own version would import every command."""
        from click.shell_completion import CompletionItem

        names = [
            CompletionItem(name, help=about)
            for name, about in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]


def from_click(error: click.ClickException, command: str) -> UsageError:
    """Convert an error of click to a UsageError; ``command`` is used if click names no command."""
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
    """Return the text in the style of our messages: lower-case first letter, no full stop."""
    text = " ".join(text.split()).removesuffix(".")
    return text[:1].lower() + text[1:]
