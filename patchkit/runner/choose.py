"""From what the user named to a runner."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from patchkit.report import Reporter
from patchkit.runner.base import LocalRunner, Runner
from patchkit.runner.ssh import SshRunner, parse_target


def choose_runner(
    url: str | None, *, config: Path | None, environ: Mapping[str, str], reporter: Reporter
) -> Runner:
    """This machine for None, else the one of the URL; ``config`` replaces the user's own ssh_config(5).

    Raises:
        RUNNER_URL_BAD: the URL names no place that patchkit knows. No connection is made yet.
    """
    if url is None:
        return LocalRunner(reporter=reporter)
    agent = environ.get("SSH_AUTH_SOCK")
    return SshRunner(target=parse_target(url), reporter=reporter, config=config, agent=agent)
