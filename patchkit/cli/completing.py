"""Shell completion: the reply to a shell, and the completions of option values from the series.

The script of ``patchkit completion`` starts patchkit for each <tab>, with the words typed so far in the
environment. click determines what is being typed; ``shell_complete=`` of an option lists its values. To be
fast, this module only reads names from files: it imports nothing heavy, and fetches, writes and checks
nothing.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click
from click.shell_completion import BashComplete, CompletionItem, FishComplete, ShellComplete, ZshComplete

from patchkit.base.series_folder import SeriesDir, find_series_dir


class _Joined(ShellComplete):
    """For shells that treat ``--arch=gfx1151`` as one word: a completion must include the option."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        """Return the completions of the word being typed."""
        found = super().get_completions(args, incomplete)
        option, equals, _ = incomplete.partition("=")
        if not (equals and option.startswith("-")):
            return found
        plain = (item for item in found if item.type == "plain")
        return [CompletionItem(f"{option}={item.value}", help=item.help) for item in plain]


class _Bash(_Joined, BashComplete):
    """bash, which splits ``--arch=gfx1151`` into three words."""

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the one being typed, and that one."""
        words, incomplete = super().get_completion_args()
        return [word for word in words if word != "="], incomplete


class _Zsh(_Joined, ZshComplete):
    """zsh, which shows the help next to each option."""


class _Fish(_Joined, FishComplete):
    """fish, which also shows the help. click's script would cut it at its first comma."""

    source_template = FishComplete.source_template.replace("string split", "string split --max 1")


# Environment variable that the shell's script sets to request completions, for example to bash_complete.
COMPLETION = "_PATCHKIT_COMPLETE"
SHELLS: Mapping[str, type[ShellComplete]] = MappingProxyType({"bash": _Bash, "zsh": _Zsh, "fish": _Fish})


def script(shell: str) -> str:
    """Return the completion script for one of SHELLS."""
    completer = _completer(shell)
    # Not completer.source(): for bash, it runs the installed bash to check its version.
    return completer.source_template % completer.source_vars()


def write_completions(instruction: str) -> None:
    """Write the reply to an instruction such as ``bash_complete`` to stdout; errors are raised."""
    shell, _, what = instruction.partition("_")
    replies = {"complete": lambda: _completer(shell).complete() + "\n", "source": lambda: script(shell)}
    # Unbuffered, so that a closed pipe does not cause an error when Python exits.
    os.write(1, replies[what]().encode("utf-8", "surrogateescape"))


def _completer(shell: str) -> ShellComplete:
    from patchkit.cli.boundary import root
    from patchkit.cli.settings import Settings

    return SHELLS[shell](root, {"obj": Settings()}, "patchkit", COMPLETION)


def gpus(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete GPUs that have a profile."""
    names = sorted(path.stem for path in _series(ctx).profiles.glob("gfx*.toml"))
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def patches(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete patch ids, with their titles as help."""
    titles: dict[str, str] = {}
    for path in sorted(_series(ctx).patches.glob("*/patch.toml")):
        with contextlib.suppress(OSError, ValueError, KeyError):  # commands report a bad file
            patch = _read(path)
            titles[str(patch["id"])] = str(patch["title"])
    return [CompletionItem(name, help=title) for name, title in titles.items() if name.startswith(incomplete)]


def patches_and_gpus(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete patch ids and GPUs, for ``show``."""
    return [*patches(ctx, param, incomplete), *gpus(ctx, param, incomplete)]


def pins(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete builds and releases of the lock, newest first, with their dates as help."""
    found = []
    for pin in reversed(_read(_series(ctx).lock)["pin"]):  # the file is sorted by build
        pin_name, day = str(pin["name"]), str(pin["committed"])[:10]
        found += [(str(name), f"{pin_name}, {day}") for name in pin.get("releases", ())]
        found.append((pin_name, day))
    return [CompletionItem(name, help=about) for name, about in found if name.startswith(incomplete)]


def targets(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete targets of a bump or sweep: ``latest``, ``latest-release`` and the pins of the lock."""
    words = {"latest": "the newest build", "latest-release": "the newest release"}
    newest = [
        CompletionItem(name, help=about) for name, about in words.items() if name.startswith(incomplete)
    ]
    return [*newest, *pins(ctx, param, incomplete)]


def files(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete file names, for an argument that may be a file."""
    return [CompletionItem(incomplete, type="file")]


def _series(ctx: click.Context) -> SeriesDir:
    from patchkit.cli.settings import Settings

    settings = ctx.find_object(Settings)
    return find_series_dir(settings.series_dir if settings is not None else None)


def _read(path: Path) -> Mapping[str, Any]:
    import tomllib

    return tomllib.loads(path.read_text("utf-8"))
