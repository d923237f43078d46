"""The list of report formats, which the command line, the writers and the documentation read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One format.

    ``render`` names the function that renders a :class:`patchkit.base.report.blocks.Report`: its headline and
    answers, everything unproven, every finding, and the tables where the format has a place for them. Texts
    of a run have no control characters except line feeds, whoever wrote the evidence; the rendered text must
    not have any either.
    ``ending`` is the file extension; ``patchkit gate --reports`` writes all formats that have one. ``option``
    is the help of the option of ``verify`` that writes this format; empty: there is no such option.
    """

    name: str
    render: str
    ending: str
    about: str
    option: str = ""


FORMATS: tuple[Format, ...] = (
    Format(
        name="terminal",
        render="patchkit.base.report.terminal:terminal_report",
        ending="",
        about="plain text: answers, what was not proven, gates, tables",
    ),
    Format(
        name="markdown",
        render="patchkit.base.report.markdown:markdown_report",
        ending="md",
        about="for pull requests and step summaries of GitHub Actions",
    ),
    Format(
        name="junit",
        render="patchkit.base.report.junit:junit_report",
        ending="junit.xml",
        about="one test case per gate, as CI systems read it",
        option="Write the gates as JUnit XML.",
    ),
    Format(
        name="sarif",
        render="patchkit.base.report.sarif:sarif_report",
        ending="sarif",
        about="problems at file and line, for code scanning",
        option="Write problems at file:line as SARIF.",
    ),
)


def format_names() -> tuple[str, ...]:
    """Names of all formats, in the order of the help."""
    return tuple(form.name for form in FORMATS)


def find_format(name: str) -> Format:
    """The format of that name, one of :func:`format_names`."""
    return next(form for form in FORMATS if form.name == name)
