"""A run of ``verify`` as SARIF 2.1.0 (OASIS standard of 27 March 2020): problems at file and line.

Every problem that lies in a file of the candidate or of the series is a *result*; its first place is the
location, the others are related locations. Paths are relative to one of two bases: ``UPSTREAM`` is the root
of the candidate's tree, ``SERIES`` the folder of patches, templates and profiles. A problem without such a
place, a gate that could not be run, one that did not run and one that passed on the emulated GPU are
*notifications* of the run: a viewer cannot show them at a line, and leaving them out would make a run look
clean that proved nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from patchkit.base.verdict import OFF_HARDWARE
from patchkit.prove.gates.record import GateReport, Place, Problem
from patchkit.prove.report.model import Run

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_BASES = {"upstream": "UPSTREAM", "series": "SERIES"}
_MOST = 5000  # results that GitHub shows of one run (its documentation, "SARIF support for code scanning")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A finding. A viewer shows it at ``place``; this and ``others`` are made by :func:`location`."""

    code: str
    message: str
    place: dict[str, object] | None
    others: Sequence[dict[str, object]] = ()
    fingerprint: str = ""
    level: str = "error"


def sarif_report(run: Run) -> str:
    """The run as JSON text."""
    placed = [(gate, one) for gate, one in run.problems if _source_places(one)][:_MOST]
    found_by = {problem.code: gate for gate, problem in reversed(placed)}
    rules = [_rule(code, found_by[code]) for code in dict.fromkeys(problem.code for _, problem in placed)]
    results = [
        Result(
            code=problem.code,
            message=_message(problem),
            place=_location(first),
            others=[_location(place) for place in others],
            fingerprint=problem.fingerprint,
        )
        for _, problem in placed
        for first, *others in [_source_places(problem)]
    ]
    return sarif_text(
        "patchkit",
        run.version,
        rules,
        results,
        {
            "automationDetails": {"id": f"patchkit-verify/{run.branch}"},
            "originalUriBaseIds": {
                "UPSTREAM": {"description": {"text": f"llama.cpp, tree {run.tree} of the candidate"}},
                "SERIES": {"description": {"text": "the folder of patches, templates and profiles"}},
            },
            "columnKind": "unicodeCodePoints",
            "invocations": [
                {
                    "executionSuccessful": run.stopped is None,
                    "toolExecutionNotifications": list(_notifications(run)),
                }
            ],
            "properties": {"base": run.base, "tip": run.tip, "tree": run.tree},
        },
    )


def sarif_text(
    tool: str,
    version: str,
    rules: Sequence[Mapping[str, object]],
    results: Sequence[Result],
    more: Mapping[str, object] | None = None,
) -> str:
    """A document of one run of a tool, as JSON text; ``more`` is what else is known of it."""
    driver: dict[str, object] = {"name": tool, "rules": rules}
    if version:
        driver["version"] = version
    numbers = {rule["id"]: number for number, rule in enumerate(rules)}
    whole = {
        "tool": {"driver": driver},
        **(more or {}),
        "results": [_result(result, numbers[result.code]) for result in results],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [whole]}, indent=1) + "\n"


def location(
    path: str, line: int | None, column: int | None, *, base: str | None = None, label: str | None = None
) -> dict[str, object]:
    """A place; ``base`` is the ``uriBaseId`` that the path is relative to, None for the repository's root."""
    artifact = {"uri": quote(path)} | ({"uriBaseId": base} if base is not None else {})
    physical: dict[str, object] = {"artifactLocation": artifact}
    if line is not None:
        physical["region"] = {"startLine": line} | ({"startColumn": column} if column is not None else {})
    made: dict[str, object] = {"physicalLocation": physical}
    return made | {"message": {"text": label}} if label else made


def _rule(code: str, gate: GateReport) -> dict[str, object]:
    return {
        "id": code,
        "shortDescription": {"text": f"{code}, found by patchkit's gate {gate.name}"},
        "defaultConfiguration": {"level": "error"},
        "properties": {"tags": [gate.name]},
    }


def _result(result: Result, rule: int) -> dict[str, object]:
    made: dict[str, object] = {
        "ruleId": result.code,
        "ruleIndex": rule,
        "level": result.level,
        "message": {"text": result.message},
        "locations": [result.place] if result.place is not None else [],
    }
    if result.fingerprint:
        made["partialFingerprints"] = {"patchkitFinding/v1": result.fingerprint}
    if result.others:
        made["relatedLocations"] = [place | {"id": at} for at, place in enumerate(result.others)]
    return made


def _source_places(problem: Problem) -> list[Place]:
    return [place for place in problem.places if place.side != "other"]


def _message(problem: Problem) -> str:
    return "\n".join(text for text in (problem.message, problem.why, problem.hint) if text)


def _location(place: Place) -> dict[str, object]:
    return location(place.file, place.line, place.column, base=_BASES[place.side], label=place.label)


def _notifications(run: Run) -> Iterator[dict[str, object]]:
    if run.nothing is not None:
        yield _notification(f"{run.headline}. {run.nothing}".rstrip(), "warning")
    for gate, problem in run.problems:
        if not _source_places(problem):
            places = "".join(f"\n{place}" for place in problem.places)
            yield _notification(f"gate {gate.name}: {problem.code}: {_message(problem)}{places}", "error")
    for gate, told in ((gate, f"not run: {gate.summary}") for gate in run.gates if gate.verdict == "not run"):
        yield _notification(f"gate {gate.name}: {told}", "warning")
    for gate in run.gates:
        if gate.verdict in OFF_HARDWARE:
            yield _notification(f"gate {gate.name}: {gate.verdict}: {gate.summary}", "note")


def _notification(text: str, level: str) -> dict[str, object]:
    return {"level": level, "message": {"text": text}}
