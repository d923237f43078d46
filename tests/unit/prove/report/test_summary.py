"""The first lines of a report: answers, what is unproven and by what command, what to do next."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from evidence_files import files_of

from patchkit.base.report.blocks import Answer
from patchkit.base.report.terminal import terminal_summary
from patchkit.base.verdict import Verdict
from patchkit.prove.gates.base import NOT_SELECTED, GateResult
from patchkit.prove.report.evidence import parse_evidence
from patchkit.prove.report.model import Run

FIT = ("anchors", "isolation", "compile", "resources", "launch")
PATCHES = [
    {
        "id": "one",
        "title": "a tile size",
        "trust": "measured",
        "sources": ["ann", "bob"],
        "gain": "by ann, bob",
    },
    {"id": "two", "title": "a fusion", "trust": "modelled", "sources": [], "gain": "modelled"},
    {"id": "three", "title": "a barrier", "trust": None, "sources": [], "gain": "nothing is known"},
]


def _gate(name: str, verdict: Verdict = "passed", summary: str = "s", *not_run: str) -> GateResult:
    return GateResult(gate=name, verdict=verdict, summary=summary, not_run=not_run)


def _run(gates: Sequence[GateResult], **changes: object) -> Run:
    return parse_evidence(files_of(list(gates), **changes), "e")


def _answers(run: Run) -> dict[str, Answer]:
    return {each.question.split()[-1]: each for each in run.report().answers}


def _fit() -> list[GateResult]:
    return [_gate(name) for name in FIT]


def test_a_run_without_a_gpu_answers_what_it_can() -> None:
    needs = [
        _gate(name, "not run", "needs the GPU") for name in ("backend-ops", "sanitize", "logits", "bench")
    ]
    run = _run([*_fit(), *needs], patches=PATCHES)
    answers = _answers(run)
    assert answers["fit?"].state == "yes"
    assert answers["fit?"].text.startswith(
        "yes: 3 patches apply and compile for gfx1151; code for other GPUs"
    )
    assert answers["correct?"].state == "unknown"
    assert "nothing was executed for gfx1151" in answers["correct?"].text
    assert answers["faster?"].text == (
        "not measured in this run; "
        "measured by others (ann, bob): 1 of 3, modelled: 1 of 3, no gain known: 1 of 3"
    )
    right, faster = run.report().unproven
    assert right.command == "patchkit verify --arch gfx1151 --upstream b6900"
    assert faster.command.endswith("--gate bench --model FILE.gguf")


@pytest.mark.parametrize(
    ("name", "question"),
    [("compile", "fit?"), ("logits", "correct?"), ("bench", "faster?"), ("speed", "faster?")],
)
def test_a_failure_is_a_no(name: str, question: str) -> None:
    gates = [_gate(each) for each in FIT if each != name] + [_gate(name, "failed", "two are wrong")]
    run = _run([*gates, _gate("cpu-build", "not run", f"skipped: gate {name} failed")])
    answers = _answers(run)
    assert (answers[question].state, answers[question].text[:2]) == ("no", "no")
    assert "two are wrong" in answers[question].text
    assert [each.state for each in answers.values()].count("no") == 1
    assert run.report().steps[0].command.endswith("--without ID")


def test_a_measurement_of_something_similar_is_none_of_the_patch() -> None:
    similar = {**PATCHES[0], "trust": "published", "sources": []}
    text = _answers(_run(_fit(), patches=[similar]))["faster?"].text
    assert text == "not measured in this run; something similar measured by others: the patch"


def test_hardware_comes_before_the_emulated_gpu() -> None:
    emulated = [_gate(name, "passed (emulated)") for name in ("backend-ops", "sanitize", "logits")]
    answer = _answers(_run([*_fit(), *emulated]))["correct?"]
    assert (answer.state, "emulated gfx1151, not on hardware" in answer.text) == ("partly", True)
    both = [_gate("backend-ops"), emulated[1], _gate("logits")]
    answer = _answers(_run([*_fit(), *both]))["correct?"]
    assert (answer.state, answer.text.startswith("yes, on the GPU: ")) == ("yes", True)


def test_a_gate_that_was_not_selected_is_skipped_not_missing_hardware() -> None:
    run = _run([_gate("anchors"), *(_gate(name, "not run", NOT_SELECTED) for name in (*FIT[1:], "bench"))])
    text = terminal_summary(run.report())
    assert "  skipped  bench      not selected with --gate" in text
    assert "gates that --gate did not select: isolation, compile, resources, launch, bench" in text
    assert "not checked: isolation, compile, resources, launch" in " ".join(text.split())


def test_what_was_not_proven_is_grouped_by_what_would_prove_it() -> None:
    gates = [
        _gate("compile", "passed", "s", "linking (--full links all)"),
        _gate("launch", "passed", "s", "numbers: nothing is computed", "grids: a guess"),
        _gate("logits", "passed (emulated)", "s", "the GPU did not run it: emulated", "a real text: --model"),
        _gate("bench@cpu", "not run", "undecided", "tg16: open"),
    ]
    groups = {each.what: each for each in _run(gates).report().unproven}
    assert sum(len(each.details) for each in groups.values()) == 7
    assert groups["what only a full run covers: linking"].command.endswith(" --full")
    limits = next(each for what, each in groups.items() if what.startswith("2 limits of the gates"))
    assert (limits.command, len(limits.details)) == ("", 2)
    hardware = next(each for what, each in groups.items() if "itself" in what)
    assert hardware.command.endswith("--runner ssh://HOST")


def test_commands_quote_what_evidence_names() -> None:
    run = _run([_gate("anchors")], branch="candidate/x; rm -rf ~/b1", archs=["gfx1151;reboot"])
    command = run.report().steps[-1].command
    assert "--arch 'gfx1151;reboot'" in command
    run = _run([_gate("anchors")], branch="candidate/gfx1151/$(reboot)")
    assert "reboot" not in run.report().steps[-1].command
