"""What <tab> offers: the answer to a shell, and the values of options that the series knows.

The script of ``patchkit completion`` starts patchkit again for each <tab>, with the words typed so far in the
environment. click finds out what is being typed; an option says with ``shell_complete=`` what it may be. Only
names in files are read here: nothing heavy is imported, fetched, written or checked.
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
    """For shells to which ``--arch=gfx1151`` is one word: the answer takes its place, so it has all of it."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        """What the word being typed may become."""
        found = super().get_completions(args, incomplete)
        option, equals, _ = incomplete.partition("=")
        if not (equals and option.startswith("-")):
            return found
        plain = (item for item in found if item.type == "plain")
        return [CompletionItem(f"{option}={item.value}", help=item.help) for item in plain]


class _Bash(_Joined, BashComplete):
    """bash takes ``--arch=gfx1151`` for three words."""

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words before the one being typed, and that one."""
        words, incomplete = super().get_completion_args()
        return [word for word in words if word != "="], incomplete


class _Zsh(_Joined, ZshComplete):
    """Shows what an option is about beside it."""


class _Fish(_Joined, FishComplete):
    """As zsh. click's script would cut that text at its first comma."""

    source_template = FishComplete.source_template.replace("string split", "string split --max 1")


# Set by the script of a shell that wants to know what a <tab> may become, and to what: patchkit completion.
COMPLETION = "_PATCHKIT_COMPLETE"
SHELLS: Mapping[str, type[ShellComplete]] = MappingProxyType({"bash": _Bash, "zsh": _Zsh, "fish": _Fish})


def script(shell: str) -> str:
    """What one of SHELLS must read, to ask patchkit at each <tab>."""
    asking = _asking(shell)
    # Not asking.source(): that of bash starts the bash of this machine, to look at its version.
    return asking.source_template % asking.source_vars()


def offer(asked: str) -> None:
    """Write to stdout what a shell's script asked for, as ``bash_complete``; raises whatever goes wrong."""
    shell, _, what = asked.partition("_")
    answers = {"complete": lambda: _asking(shell).complete() + "\n", "source": lambda: script(shell)}
    # At once and with no buffer: a shell that went away is no error when Python ends.
    os.write(1, answers[what]().encode("utf-8", "surrogateescape"))


def _asking(shell: str) -> ShellComplete:
    from patchkit.cli.boundary import root
    from patchkit.cli.settings import Settings

    return SHELLS[shell](root, {"obj": Settings()}, "patchkit", COMPLETION)


def gpus(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The GPUs that have a profile."""
    names = sorted(path.stem for path in _series(ctx).profiles.glob("gfx*.toml"))
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def patches(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The ids of the patches, with their titles."""
    titles: dict[str, str] = {}
    for path in sorted(_series(ctx).patches.glob("*/patch.toml")):
        with contextlib.suppress(OSError, ValueError, KeyError):  # whoever reads it for work will say so
            patch = _read(path)
            titles[str(patch["id"])] = str(patch["title"])
    return [CompletionItem(name, help=title) for name, title in titles.items() if name.startswith(incomplete)]


def patches_and_gpus(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """What ``show`` shows."""
    return [*patches(ctx, param, incomplete), *gpus(ctx, param, incomplete)]


def pins(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The builds and releases that the lock has, the newest first, with their days."""
    found = []
    for pin in sorted(_read(_series(ctx).lock)["pin"], key=lambda pin: -int(pin["build"])):
        build, day = f"b{pin['build']}", str(pin["committed"])[:10]
        found += [(str(name), f"{build}, {day}") for name in pin.get("releases", ())]
        found.append((build, day))
    return [CompletionItem(name, help=told) for name, told in found if name.startswith(incomplete)]


def targets(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Where a bump or a sweep may go to: what a remote is asked for, and the pins that are known."""
    words = {"latest": "the newest build", "latest-release": "the newest release"}
    asked = [CompletionItem(name, help=told) for name, told in words.items() if name.startswith(incomplete)]
    return [*asked, *pins(ctx, param, incomplete)]


def files(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Whatever file the shell finds, for a word that is not always one."""
    return [CompletionItem(incomplete, type="file")]


def _series(ctx: click.Context) -> SeriesDir:
    from patchkit.cli.settings import Settings

    settings = ctx.find_object(Settings)
    return find_series_dir(settings.series_dir if settings is not None else None)


def _read(path: Path) -> Mapping[str, Any]:
    import tomllib

    return tomllib.loads(path.read_text("utf-8"))
