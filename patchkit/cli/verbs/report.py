"""``patchkit report``."""

from __future__ import annotations

import os
from pathlib import Path

import click

from patchkit.base.errors import ExitCode
from patchkit.cli.gate_options import check_beside_document
from patchkit.cli.request import CandidateChoice, candidate_options
from patchkit.cli.settings import FOLDER, TEXT, Settings, verb, version_of
from patchkit.prove.report.model import Run
from patchkit.prove.report.registry import format_names
from patchkit.prove.report.write import (
    check_apart,
    check_writable,
    find_evidence,
    make_report,
    read_evidence,
    write_report,
)


@verb(
    "report",
    example=(
        "patchkit report --arch gfx1151",
        "patchkit report candidate/gfx1151/b6900 --format markdown --out report.md",
        "patchkit report ./evidence --format sarif --out patchkit.sarif",
    ),
)
@click.argument("where", required=False, type=TEXT, metavar="[EVIDENCE_DIR|CANDIDATE]")
@candidate_options
@click.option(
    "--format",
    "form",
    type=click.Choice(format_names()),
    default="terminal",
    show_default=True,
    help="Format of the report.",
)
@click.option("--out", type=FOLDER, metavar="FILE", help="Write the report to FILE instead of stdout.")
def command(
    settings: Settings,
    where: str | None,
    choice: CandidateChoice,
    form: str,
    out: Path | None,
) -> int:
    """Write a report on the last verify of a candidate, or on a folder of evidence.

    Runs nothing, and does not re-evaluate the results. The exit code is 0 even if the candidate failed; the
    report shows that. In all formats except terminal, the paths of the cache folder and your home appear as
    $PATCHKIT_CACHE and $HOME. With --json, prints the evidence gate by gate, without the long tables.
    """
    if out is not None:
        check_beside_document(settings, out)
        check_writable(out)
    workspace = settings.workspace()
    if where is None:
        chosen = choice.choose(workspace, check=False)  # evidence stays valid even if the branch is gone
        folder, branch = find_evidence(workspace, None, archs=chosen.archs, upstream=chosen.upstream)
    else:
        folder, branch = find_evidence(workspace, where, archs=(), upstream=None)
    if out is not None:
        check_apart(out, folder.glob("*.json"))
    evidence = read_evidence(workspace, folder, os.environ, is_neutral=form != "terminal", of=branch)
    if out is not None or not settings.json:
        text = make_report(evidence, form, version=version_of("patchkit"))
        if out is not None:
            write_report(out, text)
        else:
            settings.terminal.raw(text.encode("utf-8", "backslashreplace"))
    if settings.json:
        settings.terminal.document(_document(evidence) | {"written": str(out) if out is not None else None})
    return ExitCode.OK


def _document(evidence: Run) -> dict[str, object]:
    return {
        "ok": evidence.ok,
        "nothing_to_prove": evidence.nothing is not None,
        "headline": evidence.headline,
        "branch": evidence.branch,
        "tip": evidence.tip,
        "tree": evidence.tree,
        "gates": [
            {"gate": gate.name, "verdict": gate.verdict, "summary": gate.summary, "seconds": gate.seconds}
            for gate in evidence.gates
        ],
        "problems": [
            {
                "gate": gate.name,
                "code": one.code,
                "message": one.message,
                "where": [str(at.shown) for at in one.places],
            }
            for gate in evidence.gates
            for one in gate.problems
        ],
        "not_proven": [{"gate": gate, "what": what} for gate, what in evidence.open],
        "evidence": evidence.folder,
    }
