"""The one list of report formats: the command line, the writers and the documents read it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One format.

    ``render`` names the function that makes the text of a :class:`patchkit.base.report.blocks.Report`: its
    headline, all that is ``open`` in it, every finding, and where the format has a place for them each
    section's tables. The texts of a run have no control characters but line feeds, whoever wrote the
    evidence; what is made of them must not have any either. ``shows_sweep``: it also shows the matrix of a
    sweep, else that is refused. ``ending`` is that of its files, and ``patchkit gate --reports`` writes those
    that have one.
    ``option`` is the help of the option of ``verify`` that writes it beside a run; empty: there is none.
    """

    name: str
    render: str
    ending: str
    about: str
    option: str = ""
    shows_sweep: bool = False


FORMATS: tuple[Format, ...] = (
    Format(
        name="terminal",
        render="patchkit.base.report.terminal:terminal_report",
        ending="",
        about="plain text, what was not proven first",
        shows_sweep=True,
    ),
    Format(
        name="markdown",
        render="patchkit.base.report.markdown:markdown_report",
        ending="md",
        about="for the summary of a step of GitHub Actions",
        shows_sweep=True,
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
    Format(
        name="html",
        render="patchkit.base.report.html:html_report",
        ending="html",
        about="one page with sortable tables and drawings, without network or scripts",
        option="Write a page to read without network.",
        shows_sweep=True,
    ),
)


def format_names() -> tuple[str, ...]:
    """The names, in the order of the help."""
    return tuple(form.name for form in FORMATS)


def find_format(name: str) -> Format:
    """The format of that name, which is one of :func:`format_names`."""
    return next(form for form in FORMATS if form.name == name)
