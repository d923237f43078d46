"""The options of ``verify`` that publish, and what a person is told about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypedDict

import click

from patchkit.cli.settings import TEXT
from patchkit.errors import UsageError

if TYPE_CHECKING:
    from patchkit.cli.request import CandidateChoice
    from patchkit.flow.publish import Published, PublishRequest


class PublishOptions(TypedDict):
    """The values as click hands them over."""

    publish: bool
    accept_not_run: bool
    push: str | None
    force_push: bool
    sign: bool | None


def publish_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options."""
    for option in (
        click.option(
            "--sign/--no-sign", default=None, help="Sign a tag (default: if your git has user.signingkey)."
        ),
        click.option("--force-push", is_flag=True, help="Replace what the remote has, exactly as listed."),
        click.option("--push", type=TEXT, metavar="REMOTE", help="Push what was published there."),
        click.option(
            "--accept-not-run",
            is_flag=True,
            help="Publish although required gates did not run: as 'unproven', naming them.",
        ),
        click.option("--publish", is_flag=True, help="Publish the branch if the required gates passed."),
    ):
        function = option(function)
    return function


def publish_request(options: PublishOptions, choice: CandidateChoice) -> PublishRequest | None:
    """What to publish; None for nothing. Raises PUBLISH_OPTION_ALONE, PushRemoteBad, before any work."""
    if not options["publish"]:
        names = {"accept_not_run": "--accept-not-run", "push": "--push", "force_push": "--force-push"}
        given = [text for name, text in names.items() if options[name]]  # type: ignore[literal-required]
        if options["sign"] is not None:
            given.append("--sign" if options["sign"] else "--no-sign")
        if given:
            raise UsageError(
                f"{', '.join(given)}: nothing is published without --publish",
                code="PUBLISH_OPTION_ALONE",
                hint="add --publish",
            )
        return None
    if choice.onto is not None:
        raise UsageError(
            "a candidate on a commit of your clone is not published",
            code="PUBLISH_OPTION_ALONE",
            why="its branch is in your repository already, and the push is yours",
            hint="leave out --publish, and push the branch that apply --onto made",
        )
    from patchkit.flow.publish import PublishRequest, check_request

    request = PublishRequest(
        accept_not_run=options["accept_not_run"],
        push=options["push"],
        force_push=options["force_push"],
        sign=options["sign"],
        upstream=choice.upstream,
    )
    check_request(request)
    return request


def published_lines(published: Published) -> list[str]:
    """What a person reads."""
    state = "already published" if published.unchanged else "published"
    lines = [f"{state}: {published.branch}  {published.tip[:12]}, on candidate {published.candidate[:12]}"]
    if published.before is not None and not published.unchanged:
        lines.append(f"  it was at {published.before[:12]}")
    if not published.decision.proven:
        lines.append(f"  UNPROVEN: {', '.join(published.decision.missing)} did not run")
    lines.append(f"  evidence: {published.evidence_ref}")
    if published.tag is not None:
        lines.append(f"  signed tag: {published.tag}")
    if published.pushed_to is not None:
        lines.append(f"  pushed to {published.pushed_to}")
        lines += [f"  replaced there: {one}" for one in published.replaced]
    elif published.handover is not None:
        first, *more = published.handover.lines()
        lines += [f"  get it with: {first}", *(f"{'':15}{line}" for line in more)]
        if published.handover.kind == "am":
            lines.append(f"{'':15}without the last commit of the branch, which changes no file")
    return lines
