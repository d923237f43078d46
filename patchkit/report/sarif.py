"""A run of ``verify`` as SARIF 2.1.0 (OASIS standard of 27 March 2020): problems at file and line.

Every problem that lies in a file of the candidate or of the series is a *result*; its first place is the
location, the others are related locations. Paths are relative to one of two bases: ``UPSTREAM`` is the root
of the candidate's tree, ``SERIES`` the folder of patches, templates and profiles. A problem without such a
place, a gate that could not be run and one that did not run are *notifications* of the run: a viewer cannot
show them at a line, and leaving them out would make a run look clean that proved nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from urllib.parse import quote

from patchkit.report.model import Evidence, GateReport, Place, Problem

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_BASES = {"upstream": "UPSTREAM", "series": "SERIES"}
_MOST = 5000  # results that GitHub shows of one run (its documentation, "SARIF support for code scanning")


def sarif_report(evidence: Evidence, version: str = "") -> str:
    """The run as JSON text; ``version`` is patchkit's."""
    placed = [(gate, one) for gate, one in evidence.problems if _source_places(one)][:_MOST]
    rules = list(dict.fromkeys(problem.code for _, problem in placed))
    driver: dict[str, object] = {
        "name": "patchkit",
        "rules": [_rule(code, next(gate for gate, one in placed if one.code == code)) for code in rules],
    }
    if version:
        driver["version"] = version
    run = {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"patchkit-verify/{evidence.branch}"},
        "originalUriBaseIds": {
            "UPSTREAM": {"description": {"text": f"llama.cpp, tree {evidence.tree} of the candidate"}},
            "SERIES": {"description": {"text": "the folder of patches, templates and profiles"}},
        },
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {
                "executionSuccessful": evidence.stopped is None,
                "toolExecutionNotifications": list(_notifications(evidence)),
            }
        ],
        "results": [_result(problem, rules) for _, problem in placed],
        "properties": {"base": evidence.base, "tip": evidence.tip, "tree": evidence.tree},
    }
    return sarif_document(run)


def sarif_document(run: Mapping[str, object]) -> str:
    """A document of one run, as JSON text."""
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1) + "\n"


def physical_location(
    path: str, line: int | None, column: int | None, *, base: str | None = None
) -> dict[str, object]:
    """A place; ``base`` is the ``uriBaseId`` that the path is relative to, None for the repository's root."""
    artifact = {"uri": quote(path)} | ({"uriBaseId": base} if base is not None else {})
    physical: dict[str, object] = {"artifactLocation": artifact}
    if line is not None:
        physical["region"] = {"startLine": line} | ({"startColumn": column} if column is not None else {})
    return {"physicalLocation": physical}


def _rule(code: str, gate: GateReport) -> dict[str, object]:
    return {
        "id": code,
        "shortDescription": {"text": f"{code}, found by patchkit's gate {gate.name}"},
        "defaultConfiguration": {"level": "error"},
        "properties": {"tags": [gate.name]},
    }


def _source_places(problem: Problem) -> list[Place]:
    return [place for place in problem.places if place.side != "other"]


def _result(problem: Problem, rules: list[str]) -> dict[str, object]:
    first, *others = _source_places(problem)
    result: dict[str, object] = {
        "ruleId": problem.code,
        "ruleIndex": rules.index(problem.code),
        "level": "error",
        "message": {"text": _message(problem)},
        "locations": [_location(first)],
        "partialFingerprints": {"patchkitFinding/v1": problem.fingerprint},
    }
    if others:
        result["relatedLocations"] = [_location(place) | {"id": at} for at, place in enumerate(others)]
    return result


def _message(problem: Problem) -> str:
    return "\n".join(text for text in (problem.message, problem.why, problem.hint) if text)


def _location(place: Place) -> dict[str, object]:
    location = physical_location(place.path, place.line, place.column, base=_BASES[place.side])
    if place.label:
        location["message"] = {"text": place.label}
    return location


def _notifications(evidence: Evidence) -> Iterator[dict[str, object]]:
    if evidence.nothing is not None:
        yield _notification(f"{evidence.headline}. {evidence.nothing}".rstrip(), "warning")
    for gate, problem in evidence.problems:
        if not _source_places(problem):
            places = "".join(f"\n{place}" for place in problem.places)
            yield _notification(f"gate {gate.name}: {problem.code}: {_message(problem)}{places}", "error")
    for gate, told in (
        (gate, f"not run: {gate.summary}") for gate in evidence.gates if gate.verdict == "not run"
    ):
        yield _notification(f"gate {gate.name}: {told}", "warning")


def _notification(text: str, level: str) -> dict[str, object]:
    return {"level": level, "message": {"text": text}}
