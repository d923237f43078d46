"""``patchkit lock``."""

from __future__ import annotations

from typing import Unpack

from patchkit.cli.request import RequestOptions, make_request, request_options
from patchkit.cli.settings import Settings, verb

__all__ = ["command"]


@verb("lock", example=("patchkit lock --arch gfx1151",))
@request_options
def command(settings: Settings, **options: Unpack[RequestOptions]) -> None:
    """Record what the series gives at the pin, after a patch, a template or a profile was changed.

    Rewrites the result in patches/upstream.lock; look at what changed with git diff before you commit it.
    """
    from patchkit.flow.lock import relock

    workspace = settings.workspace()
    recorded = relock(make_request(workspace, options), workspace)
    if settings.json:
        settings.terminal.document({"lock": str(workspace.series.lock), **recorded.as_json()})
    else:
        state = "recorded" if recorded.changed else "as it was"
        settings.terminal.data(
            f"{workspace.series.lock}: {state}, tree {recorded.tree}, commit {recorded.commit}"
        )
