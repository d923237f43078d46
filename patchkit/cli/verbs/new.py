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
    click.option(
        "--file", type=TEXT, required=True, metavar="PATH", help="File to edit, by its path in llama.cpp."
    ),
    click.option(
        "--function", type=TEXT, metavar="NAME", help="Function to edit (default: search the whole file)."
    ),
    click.option(
        "--parameters",
        type=TEXT,
        metavar="TOKENS",
        help="Parameter list of the function, if several have its name.",
    ),
    click.option("--at", type=TEXT, required=True, metavar="TOKENS", help="The code that is there now."),
    click.option(
        "--upstream",
        type=TEXT,
        metavar="PIN",
        shell_complete=pins,
        help="llama.cpp build, one of those in the lock file (default: the newest cached).",
    ),
)
_VERBS = options(
    click.option("--change-to", type=TEXT, metavar="TEXT", help="Replace the code of --at by TEXT."),
    click.option("--insert-before", type=TEXT, metavar="TEXT", help="Insert TEXT before it."),
    click.option("--insert-after", type=TEXT, metavar="TEXT", help="Insert TEXT after it."),
    click.option("--remove", is_flag=True, help="Remove it."),
)


@verb(
    "new",
    example=(
        "patchkit new q2k-columns --arch gfx1151 --file ggml/src/ggml-cuda/mmq.cu \\",
        "  --function ggml_cuda_should_use_mmq --upstream b11549 \\",
        "  --at 'return ne11 <= 128' --change-to 'return ne11 <= 512'",
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
    """Write a patch with a single edit: a place in a function, and the code to put there.

    Writes patch.toml and the line in the GPU's profile, after checking that the patch applies. You describe
    its purpose and expected gain in patch.toml later, before you record (lock) or publish its result.
    """
    verbs = {"change_to": change_to, "insert_before": insert_before, "insert_after": insert_after}
    given = {name: text for name, text in verbs.items() if text is not None} | (
        {"remove": ""} if remove else {}
    )
    if len(given) != 1:
        raise UsageError(
            "exactly one edit is required",
            code="USAGE_MISSING",
            hint="use one of --change-to TEXT, --insert-before TEXT, --insert-after TEXT, --remove",
        )
    ((name, text),) = given.items()
    workspace = settings.workspace()
    wanted_patch = make_wanted(wanted, workspace)
    request = NewRequest(wanted=wanted_patch, verb=cast("NewVerb", name), text=text, **place)
    done = run_new(request, workspace)
    settings.show(done, describe_written(done))
