"""A report as JUnit XML: one test case per gate.

A failed gate is a failure with every finding in its text. A gate that could not run, or that ended the run,
is an error. A gate that did not run is skipped, so that nothing counts it as passed. The ``system-out`` of a
gate that passed lists what it did not prove, and its verdict if it passed without hardware. The format is
that of Ant's JUnit task, which Jenkins, GitLab and GitHub actions read.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET

from patchkit.base.report.blocks import Report, Section
from patchkit.base.report.terminal import finding_lines
from patchkit.base.verdict import OFF_HARDWARE


def junit_report(report: Report) -> str:
    """The report as XML text."""
    gates = report.gates
    broken = [gate for gate in gates if gate.has_broken]
    figures = {
        "name": f"{report.command} {report.title}",
        "tests": str(len(gates)),
        "failures": str(sum(gate.verdict == "failed" for gate in gates)),
        "errors": str(len(broken)),
        "time": f"{sum(gate.seconds for gate in gates):.2f}",
    }
    root = ET.Element("testsuites", figures)
    skipped = sum(gate.verdict == "not run" for gate in gates) - len(broken)
    suite = ET.SubElement(root, "testsuite", {**figures, "skipped": str(skipped)})
    properties = ET.SubElement(suite, "properties")
    known = [*report.provenance, *(("note", note) for note in report.notes)]
    known += [(str(gate.verdict), gate.title) for gate in gates if gate.verdict in OFF_HARDWARE]
    for name, value in known:
        ET.SubElement(properties, "property", {"name": name, "value": value})
    for gate in gates:
        _case(suite, gate, report.command.replace(" ", "."))
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _case(suite: ET.Element, gate: Section, group: str) -> None:
    attributes = {"classname": group, "name": gate.title, "time": f"{gate.seconds:.2f}"}
    place = next((each for finding in gate.findings for each in finding.files), None)
    if place is not None:
        attributes["file"] = place.path
        if place.line is not None:
            attributes["line"] = str(place.line)
    case = ET.SubElement(suite, "testcase", attributes)
    if gate.verdict == "failed":
        _outcome(case, "failure", gate)
    elif gate.has_broken:
        _outcome(case, "error", gate)
    elif gate.verdict == "not run":
        ET.SubElement(case, "skipped", {"message": gate.summary})
    verdict = [gate.verdict] if gate.verdict in OFF_HARDWARE else []
    printed = [*verdict, gate.summary, *gate.lines, *(f"not proven: {each}" for each in gate.open)]
    ET.SubElement(case, "system-out").text = "\n".join(printed)


def _outcome(case: ET.Element, kind: str, gate: Section) -> None:
    findings = gate.findings
    code = findings[0].code if findings else "GATE_FAILED"
    found = ET.SubElement(case, kind, {"type": code, "message": gate.summary})
    text = "\n\n".join("\n".join(finding_lines(finding, arrow="")) for finding in findings)
    found.text = text or gate.summary
