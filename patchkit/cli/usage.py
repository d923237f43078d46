"""Mistakes on the command line, in the same form as every other error.

click finds most of them; here they become our own classes, with the near misses and the next command.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import click

from patchkit.errors import UsageError


def near_misses(word: str, known: Sequence[str]) -> str | None:
    """``did you mean 'a' or 'b'?``, or ``None`` when nothing is near."""
    bare = {name.lstrip("-"): name for name in known}  # the dashes would make all options look alike
    near = [bare[name] for name in difflib.get_close_matches(word.lstrip("-"), bare, n=3, cutoff=0.6)]
    if not near:
        return None
    return f"did you mean {' or '.join(repr(name) for name in near)}?"


def unknown_command(word: str, known: Sequence[str]) -> UsageError:
    """The error for a first word that is no command."""
    return UsageError(
        f"there is no command '{word}'",
        code="USAGE_COMMAND",
        hint=near_misses(word, known) or f"the commands are: {', '.join(known)}",
    )


def from_click(error: click.ClickException, command: str) -> UsageError:
    """The same mistake as one of our errors; ``command`` stands in where click does not name one."""
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    path = ctx.command_path if ctx is not None else command
    help_hint = f"{path} --help"
    if isinstance(error, click.NoSuchOption):
        known = _options_of(ctx)
        return UsageError(
            f"'{path}' has no option '{error.option_name}'",
            code="USAGE_OPTION",
            hint=near_misses(error.option_name, known) or help_hint,
        )
    if isinstance(error, click.MissingParameter):
        return UsageError(_sentence(error.format_message()), code="USAGE_MISSING", hint=help_hint)
    if isinstance(error, click.BadParameter):
        return UsageError(_sentence(error.format_message()), code="USAGE_VALUE", hint=help_hint)
    return UsageError(_sentence(error.format_message()), code="USAGE_SYNTAX", hint=help_hint)


def _options_of(ctx: click.Context | None) -> tuple[str, ...]:
    if ctx is None:
        return ()
    return tuple(name for param in ctx.command.get_params(ctx) for name in param.opts if name.startswith("-"))


def _sentence(text: str) -> str:
    """As our messages are written: small first letter, no full stop."""
    text = " ".join(text.split()).removesuffix(".")
    return text[:1].lower() + text[1:]
