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
    """Print the lines that make the Tab key complete commands, options and values.

    Appended to the file that your shell reads at its start, as below, it is there in each new one. GPUs,
    patches and pins are those of the series; the key starts patchkit, which reads names and changes nothing.
    """
    text = script(shell)
    settings.show({"shell": shell, "script": text}, [text.rstrip("\n")])
