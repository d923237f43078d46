"""JUnit and SARIF: not run is never passed, and problems lie where they are."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable

from patchkit.base.report.junit import junit_report
from patchkit.base.report.sarif import SCHEMA, sarif_report
from patchkit.prove.gates.registry import load
from patchkit.prove.report.model import Run
from patchkit.prove.report.registry import FORMATS


def _suite(evidence: Run) -> ET.Element:
    root = ET.fromstring(junit_report(evidence.report()))
    assert root.tag == "testsuites"
    (suite,) = root
    return suite


def test_each_gate_is_a_test_case_and_not_run_is_skipped(whole: Run) -> None:
    suite = _suite(whole)
    cases = {case.get("name"): case for case in suite.iter("testcase")}
    assert list(cases) == [gate.name for gate in whole.gates]
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "12",
        "failures": "0",
        "errors": "0",
        "skipped": "5",
    }
    assert cases["bench"][0].tag == "skipped"
    assert cases["bench"][0].get("message") == "needs the GPU"
    assert [child.tag for child in cases["anchors"]] == ["system-out"]
    assert "not proven: CUDA and MUSA" in (cases["isolation"].findtext("system-out") or "")


def test_a_failure_has_its_code_its_place_and_every_problem(failing: Run) -> None:
    suite = _suite(failing)
    (case,) = (case for case in suite.iter("testcase") if case.get("name") == "isolation")
    assert (case.get("file"), case.get("line")) == ("ggml/src/ggml-cuda/fattn.cu", "42")
    (failure,) = case.iter("failure")
    assert failure.get("type") == "ISOLATION_TOKENS"
    assert "fattn.cu:42:7: wmma-tile-params" in (failure.text or "")
    assert "another order of patches" in (failure.text or "")
    assert (suite.get("failures"), suite.get("skipped")) == ("1", "1")


def test_what_passed_on_an_emulated_gpu_is_told_apart(emulated: Run) -> None:
    suite = _suite(emulated)
    counts = [suite.get(name) for name in ("tests", "failures", "errors", "skipped")]
    assert counts == ["2", "0", "0", "0"]
    told = [each.get("value") for each in suite.iter("property") if each.get("name") == "passed (emulated)"]
    assert told == ["bench"]
    (case,) = (case for case in suite.iter("testcase") if case.get("name") == "bench")
    lines = (case.findtext("system-out") or "").splitlines()
    assert (lines[0], lines[-1]) == ("passed (emulated)", "not proven: speed: not measured; needs the GPU")
    (invocation,) = _run(emulated)["invocations"]
    (note,) = invocation["toolExecutionNotifications"]
    assert note["level"] == "note"
    assert note["message"]["text"].startswith("gate bench: passed (emulated): llama-bench comes to its end")


def test_what_the_timing_model_passed_is_told_apart_in_every_format(emulated: Run) -> None:
    gate = emulated.gates[1].model_copy(update={"name": "speed", "verdict": "passed (modelled)"})
    run = emulated.model_copy(update={"gates": (emulated.gates[0], gate)})
    assert run.headline == (
        "Nothing failed: of 2 gates 1 passed, 1 passed by the timing model, 0 failed, 0 did not run"
    )
    for form in FORMATS:
        told = load(form.render)(run.report())
        assert "passed (modelled)" in told or "mod ok" in told, form.name
        assert "passed (emulated)" not in told, form.name


def test_a_gate_that_could_not_be_run_is_an_error(stopped: Run) -> None:
    suite = _suite(stopped)
    assert (suite.get("failures"), suite.get("errors"), suite.get("skipped")) == ("0", "1", "1")
    (error,) = suite.iter("error")
    assert error.get("type") == "TOOLCHAIN"


def _run(evidence: Run) -> dict:
    document = json.loads(sarif_report(evidence.report(version="1.2.3")))
    assert_sarif(document)
    return document["runs"][0]


def assert_sarif(document: dict) -> None:
    """What SARIF 2.1.0 requires of the parts that patchkit writes (sections 3.13 to 3.58)."""
    assert document["$schema"] == SCHEMA
    assert document["version"] == "2.1.0"
    for run in document["runs"]:
        driver = run["tool"]["driver"]
        assert driver["name"]
        assert len({rule["id"] for rule in driver["rules"]}) == len(driver["rules"])
        for rule in driver["rules"]:
            assert rule["shortDescription"]["text"]
        for invocation in run["invocations"]:
            assert isinstance(invocation["executionSuccessful"], bool)
            for each in invocation["toolExecutionNotifications"]:
                assert each["message"]["text"]
                assert each["level"] in {"none", "note", "warning", "error"}
        for result in run["results"]:
            assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
            assert result["message"]["text"]
            assert result["level"] in {"none", "note", "warning", "error"}
            assert all(isinstance(value, str) for value in result["partialFingerprints"].values())
            for location in (*result["locations"], *result.get("relatedLocations", ())):
                artifact = location["physicalLocation"]["artifactLocation"]
                assert artifact["uriBaseId"] in run["originalUriBaseIds"]
                assert re.fullmatch(r"[A-Za-z0-9._~/%+@!$&'()*,;=:-]+", artifact["uri"])
                region = location["physicalLocation"].get("region", {})
                assert all(isinstance(value, int) and value >= 1 for value in region.values())


def test_a_finding_lies_at_its_line_with_the_patch_of_it(failing: Run) -> None:
    run = _run(failing)
    (result,) = run["results"]
    (location,) = result["locations"]
    assert location == {
        "physicalLocation": {
            "artifactLocation": {"uri": "ggml/src/ggml-cuda/fattn.cu", "uriBaseId": "UPSTREAM"},
            "region": {"startLine": 42, "startColumn": 7},
        },
        "message": {"text": "wmma-tile-params"},
    }
    (related,) = result["relatedLocations"]
    assert related["physicalLocation"]["artifactLocation"] == {
        "uri": "patches/0001-p/patch.toml",
        "uriBaseId": "SERIES",
    }
    assert "cuda sm_70 device" in result["message"]["text"]
    assert run["tool"]["driver"]["version"] == "1.2.3"


def test_what_has_no_line_and_what_did_not_run_are_notifications(failing: Run, whole: Run) -> None:
    def told(evidence: Run) -> list[tuple[str, str]]:
        (invocation,) = _run(evidence)["invocations"]
        return [(each["level"], each["message"]["text"]) for each in invocation["toolExecutionNotifications"]]

    assert ("warning", "gate compile: skipped: gate isolation failed") in told(failing)
    assert any(level == "error" and "another order of patches" in text for level, text in told(failing))
    assert ("warning", "gate bench: not run: needs the GPU") in told(whole)
    assert _run(whole)["results"] == []


def test_a_run_that_ended_in_the_middle_was_not_successful(stopped: Run, failing: Run) -> None:
    assert _run(stopped)["invocations"][0]["executionSuccessful"] is False
    assert _run(failing)["invocations"][0]["executionSuccessful"] is True


def test_odd_paths_become_addresses(with_problem: Callable[..., Run]) -> None:
    (result,) = _run(with_problem(place={"path": "$PATCHKIT_SERIES/a b/ü#%?.cu"}))["results"]
    uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == "a%20b/%C3%BC%23%25%3F.cu"
