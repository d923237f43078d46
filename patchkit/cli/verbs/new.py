"""``patchkit new``."""

from __future__ import annotations

from typing import Any, cast

import click

from patchkit.base.errors import UsageError
from patchkit.carry.importing.new import NewRequest, NewVerb, run_new
from patchkit.cli.completing import pins
from patchkit.cli.new_patch import describe_written, make_wanted, wanted_values
from patchkit.cli.settings import TEXT, Settings, options, verb

_PLACE = options(
    click.argument("topic", type=TEXT, metavar="TOPIC"),
    click.option("--file", type=TEXT, required=True, metavar="PATH", help="The file, as upstream names it."),
    click.option(
        "--function", type=TEXT, metavar="NAME", help="The function (default: the file as a whole)."
    ),
    click.option(
        "--parameters", type=TEXT, metavar="TOKENS", help="Tokens of its parameters, where it has twins."
    ),
    click.option("--at", type=TEXT, required=True, metavar="TOKENS", help="The tokens that are there now."),
    click.option(
        "--upstream",
        type=TEXT,
        metavar="PIN",
        shell_complete=pins,
        help="A pin of the lock (default: the newest cached).",
    ),
)
_VERBS = options(
    click.option("--change-to", type=TEXT, metavar="TEXT", help="What takes their place."),
    click.option("--insert-before", type=TEXT, metavar="TEXT", help="What comes before them."),
    click.option("--insert-after", type=TEXT, metavar="TEXT", help="What comes behind them."),
    click.option("--remove", is_flag=True, help="Take them away."),
)


@verb(
    "new",
    example=(
        "patchkit new q6k-columns --arch gfx1151 --file ggml/src/ggml-cuda/mmq.cu \\",
        "  --function ggml_cuda_should_use_mmq --upstream b11549 \\",
        "  --at '(cc) ? 128 : 256' --change-to '(cc) ? 128 : 1024'",
    ),
)
@_PLACE
@_VERBS
@wanted_values
def command(
    settings: Settings,
    wanted: dict[str, Any],
    change_to: str | None,
    insert_before: str | None,
    insert_after: str | None,
    *,
    remove: bool,
    **place: Any,
) -> None:
    """Write a patch of one change: a place in a function, and what to put there.

    The patch.toml has what it must have, the profile its line, and both are tried first: plan accepts them.
    What it is good for is asked for when its result is recorded or published.
    """
    verbs = {"change_to": change_to, "insert_before": insert_before, "insert_after": insert_after}
    given = {name: text for name, text in verbs.items() if text is not None} | (
        {"remove": ""} if remove else {}
    )
    if len(given) != 1:
        raise UsageError(
            "say what to do there, once",
            code="USAGE_MISSING",
            hint="--change-to TEXT, --insert-before TEXT, --insert-after TEXT or --remove",
        )
    ((name, text),) = given.items()
    workspace = settings.workspace()
    wanted_patch = make_wanted(wanted, workspace)
    request = NewRequest(wanted=wanted_patch, verb=cast("NewVerb", name), text=text, **place)
    done = run_new(request, workspace)
    settings.show(done, describe_written(done))
