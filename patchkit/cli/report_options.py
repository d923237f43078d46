"""The options that write reports beside a run: one file per format, and the summary of a CI step."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import click

from patchkit.cli.outputs import check_beside_document
from patchkit.cli.settings import FOLDER, Settings
from patchkit.cli.versions import version_of

if TYPE_CHECKING:
    from patchkit.flow.workspace import Workspace


class ReportOptions(TypedDict):
    """The values as click hands them over."""

    html: Path | None
    junit: Path | None
    sarif: Path | None
    summary: Path | None


def report_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options."""
    for option in (
        click.option(
            "--summary", type=FOLDER, metavar="FILE", help="Append Markdown there, as GITHUB_STEP_SUMMARY."
        ),
        click.option("--sarif", type=FOLDER, metavar="FILE", help="Write problems at file:line as SARIF."),
        click.option("--junit", type=FOLDER, metavar="FILE", help="Write the gates as JUnit XML."),
        click.option("--html", type=FOLDER, metavar="FILE", help="Write a page to read without network."),
    ):
        function = option(function)
    return function


def report_writer(settings: Settings, workspace: Workspace, options: ReportOptions) -> Callable[[Path], None]:
    """What writes the wanted reports of a folder of evidence.

    Raises CacheError now for a file that cannot be written, not after the run, REPORT_FILE_TAKEN for one that
    is named twice, and STDOUT_TAKEN.
    """
    from patchkit.flow.report import Format, ReportPlan, check_apart, check_writable

    wanted: dict[Format, Path | None] = {
        "html": options["html"],
        "junit": options["junit"],
        "sarif": options["sarif"],
    }
    files = {form: path for form, path in wanted.items() if path is not None}
    plan = ReportPlan(files=files, summary=options["summary"])
    summary = [options["summary"]] if options["summary"] is not None else []
    places = [*files.values(), *summary]
    check_beside_document(settings, *places)
    for at, path in enumerate(places):
        check_apart(path, places[:at])
        check_writable(path, appends=path in summary)
    return lambda folder: plan.write(workspace, folder, os.environ, version_of("patchkit"))
