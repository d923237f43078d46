"""``patchkit store``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import click

from patchkit.base.errors import UsageError
from patchkit.cli.settings import Settings, verb
from patchkit.toolchain.prune import Pruned, prune

Action = Literal["status", "prune"]

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT])i?B?", re.IGNORECASE)
_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*([hdw])", re.IGNORECASE)
_BYTES = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SECONDS = {"h": 3600, "d": 86400, "w": 7 * 86400}


@verb(
    "store",
    example=(
        "patchkit store status",
        "patchkit store prune --max-size 5G --older-than 30d",
    ),
)
@click.argument("action", type=click.Choice(["status", "prune"]))
@click.option("--max-size", metavar="SIZE", help="prune: maximum size to keep, for example 500M or 5G.")
@click.option(
    "--older-than",
    metavar="AGE",
    help="prune: remove results that were not used for this long, for example 12h or 30d.",
)
@click.option("--dry-run", is_flag=True, help="prune: only show how much would be removed.")
def command(
    settings: Settings,
    action: Action,
    max_size: str | None,
    older_than: str | None,
    dry_run: bool,
) -> None:
    """Show or limit the results of compilers and programs in the cache folder.

    These results are re-created when they are needed and missing. status shows their size. prune removes
    those that have been unused for longest; downloads, the SDK, candidates and evidence are kept.
    """
    given = {"--max-size": max_size, "--older-than": older_than, "--dry-run": dry_run}
    for name, value in given.items():
        if value and action == "status":
            raise _syntax(f"'patchkit store status' does not take {name}")
    if action == "prune" and max_size is None and older_than is None:
        raise _syntax("'patchkit store prune' requires --max-size or --older-than")
    most = None if max_size is None else _read("--max-size", max_size, _SIZE, _BYTES, "500M, 5G")
    age = None if older_than is None else _read("--older-than", older_than, _AGE, _SECONDS, "12h, 30d, 4w")
    root = settings.cache_root()
    done = prune(root, most_bytes=most, older_than_s=age, dry_run=dry_run or action == "status")
    settings.show(
        {"cache": str(root), "dry_run": dry_run, "gone": done.gone, "left": done.left},
        _lines(done, root, action, dry_run=dry_run),
    )


def _lines(done: Pruned, root: Path, action: Action, *, dry_run: bool) -> list[str]:
    lines = [f"in {root}:"]
    for kind, (count, size) in done.left.items():
        lines.append(f"{kind:<8} {count:>6}  {size / 1e6:>9.1f} MB")
    if action == "prune":
        count = sum(each[0] for each in done.gone.values())
        size = sum(each[1] for each in done.gone.values())
        done_or_not = "would be removed" if dry_run else "removed"
        lines.append(f"{done_or_not}: {count}, {size / 1e6:.1f} MB")
    return lines


def _read(name: str, text: str, form: re.Pattern[str], units: dict[str, int], example: str) -> int:
    found = form.fullmatch(text.strip())
    if found is None:
        raise UsageError(
            f"invalid value for {name}: {text!r}", code="USAGE_SYNTAX", hint=f"for example {example}"
        )
    unit = found[2].upper() if found[2].upper() in units else found[2].lower()
    return int(float(found[1]) * units[unit])


def _syntax(message: str) -> UsageError:
    return UsageError(message, code="USAGE_SYNTAX", hint="patchkit store --help")
