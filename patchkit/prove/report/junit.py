"""A run of ``verify`` as JUnit XML: one test case per gate.

A gate that failed is a failure with every problem in its text; one that could not be run, or that ended the
run, is an error; one that did not run is skipped, which no reader takes for passed. What a gate that passed
leaves out stands in its ``system-out``, which says so of one that passed on the emulated GPU. The form is
that of Ant's task, as Jenkins, GitLab and GitHub's actions read it.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterable

from patchkit.base.verdict import OFF_HARDWARE
from patchkit.prove.gates.record import GateReport, Problem
from patchkit.prove.report.model import Run


def junit_report(run: Run) -> str:
    """The run as XML text."""
    broken = {gate.name for gate in run.gates if gate.has_broken}
    skipped = sum(gate.verdict == "not run" and gate.name not in broken for gate in run.gates)
    figures = {
        "name": f"patchkit verify {run.branch}",
        "tests": str(len(run.gates)),
        "failures": str(run.count("failed")),
        "errors": str(len(broken)),
        "time": f"{sum(gate.seconds for gate in run.gates):.2f}",
    }
    root = ET.Element("testsuites", figures)
    suite = ET.SubElement(root, "testsuite", {**figures, "skipped": str(skipped)})
    properties = ET.SubElement(suite, "properties")
    for name in ("base", "tip", "tree"):
        ET.SubElement(properties, "property", {"name": name, "value": getattr(run, name)})
    for told in run.proven_with:
        ET.SubElement(properties, "property", {"name": "tool", "value": told})
    if run.nothing is not None:
        told = f"{run.headline}. {run.nothing}".rstrip()
        ET.SubElement(properties, "property", {"name": "nothing to prove", "value": told})
    for gate in run.gates:
        if gate.verdict in OFF_HARDWARE:
            ET.SubElement(properties, "property", {"name": gate.verdict, "value": gate.name})
    for gate in run.gates:
        _case(suite, gate, "+".join(run.archs))
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _case(suite: ET.Element, gate: GateReport, archs: str) -> None:
    attributes = {"classname": f"patchkit.verify.{archs}", "name": gate.name, "time": f"{gate.seconds:.2f}"}
    place = next((each for problem in gate.problems for each in problem.places if each.side != "other"), None)
    if place is not None:
        attributes["file"] = place.file
        if place.line is not None:
            attributes["line"] = str(place.line)
    case = ET.SubElement(suite, "testcase", attributes)
    if gate.verdict == "failed":
        _outcome(case, "failure", gate, gate.problems)
    elif gate.has_broken:
        _outcome(case, "error", gate, gate.problems)
    elif gate.verdict == "not run":
        ET.SubElement(case, "skipped", {"message": gate.summary})
    verdict = [gate.verdict] if gate.verdict in OFF_HARDWARE else []
    told = [*verdict, gate.summary, *gate.lines, *(f"not proven: {each}" for each in gate.not_run)]
    ET.SubElement(case, "system-out").text = "\n".join(told)


def _outcome(case: ET.Element, kind: str, gate: GateReport, problems: Iterable[Problem]) -> None:
    blocks = ["\n".join(problem.lines(arrow="")) for problem in problems]
    first = next(iter(problems), None)
    code = first.code if first is not None else "GATE_FAILED"
    found = ET.SubElement(case, kind, {"type": code, "message": gate.summary})
    found.text = "\n\n".join(blocks) or gate.summary
