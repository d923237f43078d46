"""A report as SARIF 2.1.0 (OASIS standard of 27 March 2020): findings at file and line.

Every finding in a file is a *result*: its first place is the location, the others are related locations.
Paths are relative to the root that a place names, or to the user's repository. Findings without a file, gates
that did not run and gates that passed without hardware are *notifications*: a viewer cannot show them at a
line, and without them a run that proved nothing would look clean.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import quote

from patchkit.base.report.blocks import Finding, Place, Report
from patchkit.base.verdict import OFF_HARDWARE

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_MOST = 5000  # results that GitHub shows of one run (its documentation, "SARIF support for code scanning")


def sarif_report(report: Report) -> str:
    """The report as JSON text."""
    placed = [(section, finding) for section, finding in report.findings if finding.files][:_MOST]
    rules = dict(report.rules)
    for section, finding in placed:
        rules.setdefault(finding.code, f"{finding.code}, found by patchkit's gate {section.title}")
    numbers = {code: number for number, code in enumerate(rules)}
    driver: dict[str, object] = {
        "name": report.command,
        "rules": [{"id": code, "shortDescription": {"text": about}} for code, about in rules.items()],
    }
    if report.version:
        driver["version"] = report.version
    run = {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"{report.command.replace(' ', '-')}/{report.title}"},
        "originalUriBaseIds": {
            name: {"description": {"text": about}} for name, about in report.roots.items()
        },
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {
                "executionSuccessful": report.is_complete,
                "toolExecutionNotifications": [
                    {"level": level, "message": {"text": text}} for level, text in _notifications(report)
                ],
            }
        ],
        "properties": {"provenance": [f"{name}: {value}" for name, value in report.provenance]},
        "results": [_result(finding, numbers[finding.code]) for _, finding in placed],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1) + "\n"


def _result(finding: Finding, rule: int) -> dict[str, object]:
    first, *others = finding.files
    made: dict[str, object] = {
        "ruleId": finding.code,
        "ruleIndex": rule,
        "level": finding.level,
        "message": {"text": _message(finding)},
        "locations": [_location(first)],
    }
    if finding.fingerprint:
        made["partialFingerprints"] = {"patchkitFinding/v1": finding.fingerprint}
    if others:
        made["relatedLocations"] = [_location(place) | {"id": at} for at, place in enumerate(others)]
    return made


def _location(place: Place) -> dict[str, object]:
    artifact = {"uri": quote(place.path)} | ({"uriBaseId": place.root} if place.root is not None else {})
    physical: dict[str, object] = {"artifactLocation": artifact}
    if place.line is not None:
        column = {"startColumn": place.column} if place.column is not None else {}
        physical["region"] = {"startLine": place.line} | column
    made: dict[str, object] = {"physicalLocation": physical}
    return made | {"message": {"text": place.label}} if place.label else made


def _message(finding: Finding) -> str:
    return "\n".join(text for text in (finding.message, finding.why, finding.hint) if text)


def _notifications(report: Report) -> Iterator[tuple[str, str]]:
    if report.notes:
        yield "warning", f"{report.headline}. {' '.join(report.notes)}"
    for section, finding in report.findings:
        if not finding.files:
            places = "".join(f"\n{place}" for place in finding.places)
            yield finding.level, f"{section.title}: {finding.code}: {_message(finding)}{places}"
    for gate in report.gates:
        if gate.verdict == "not run":
            yield "warning", f"gate {gate.title}: {gate.state}: {gate.summary}"
    for gate in report.gates:
        if gate.verdict in OFF_HARDWARE:
            yield "note", f"gate {gate.title}: {gate.verdict}: {gate.summary}"
