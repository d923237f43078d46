"""``patchkit completion``."""

from __future__ import annotations

import click

from patchkit.cli.completing import script
from patchkit.cli.settings import Settings, verb


@verb(
    "completion",
    example=(
        "patchkit completion bash >> ~/.bashrc",
        "patchkit completion zsh >> ~/.zshrc  # below the line with compinit",
        "patchkit completion fish >> ~/.config/fish/config.fish",
    ),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(settings: Settings, shell: str) -> None:
    """Print the shell script that makes the Tab key complete commands, options and values.

    Append it to your shell's start-up file, as below, to have it in every new shell. It also completes GPUs,
    patches and builds of the series. Each Tab starts patchkit, which reads these names and changes nothing.
    """
    text = script(shell)
    settings.show({"shell": shell, "script": text}, [text.rstrip("\n")])
