"""The verdict: its word, its exit code, and how it is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from patchkit.base.errors import ConfigError, ExitCode, GateError, Location
from patchkit.base.plain import fields_of
from patchkit.base.reporter import NullReporter
from patchkit.base.series_folder import SeriesDir
from patchkit.base.workspace import Workspace
from patchkit.carry.upstream.git import Change
from patchkit.carry.upstream.repository import Repository
from patchkit.prove.gates.isolation.readings import TokensDiffer
from patchkit.prove.pulls.changes import Pull
from patchkit.prove.pulls.outputs import gate_sarif, write_outputs
from patchkit.prove.pulls.run import in_order
from patchkit.prove.pulls.text import gate_lines, gate_markdown
from patchkit.prove.pulls.verdict import CandidateVerdict, Finding, GateRow, PullVerdict

LEAK = Finding(
    problem=TokensDiffer(
        "a.cu has different tokens for cuda sm_70 device",
        where=Location(path="a.cu", line=3),
        hint="patchkit diff",
    ),
    target="gfx1151 on b6900",
    patch_places=(Location(path="patches/0001-a/patch.toml", line=9, column=1, label="edit one"),),
    leaks=("cuda sm_70 device",),
)
OWN = Finding(problem=GateError("1 changed file of patchkit itself", code="GATE_OWN_TESTS_NEEDED"))
BEHIND = Finding(problem=ConfigError("the lock is behind", code="GATE_LOCK_WRONG"))
ROWS = (
    GateRow(gate="anchors", state="passed", why="it changed", summary="2 edits", not_proven=("the rest",)),
    GateRow(gate="isolation", state="failed", why="it changed", summary="1 of 2 readings"),
    GateRow(gate="compile", state="not run", why="gate isolation failed"),
    GateRow(gate="bench", state="not needed", why="tree abc is as it was"),
)

WORKSPACE = Workspace(
    series=SeriesDir(root=Path("s"), origin="named"), cache_root=Path("c"), reporter=NullReporter()
)


def verdict(*findings: Finding, rows: tuple[GateRow, ...] = ROWS, **more: object) -> PullVerdict:
    path = "arch_profiles/gfx1151.toml"
    pull = Pull(
        repository=Repository(path=Path("r"), reporter=NullReporter()),
        kind="patchkit",
        base="b" * 40,
        head="c" * 40,
        fork_point="a" * 40,
        behind=0,
        changes=(Change(path=path, letter="M", modes=("100644", "100644"), ids=("", "")),),
    )
    judged = CandidateVerdict(
        name="gfx1151 on b6900",
        archs=("gfx1151",),
        build=6900,
        patches=("a",),
        reasons=(path,),
        tree_before="1" * 40,
        tree="2" * 40,
        rows=rows,
    )
    values = {"attention": (), "own_tests": "not needed"} | more
    return PullVerdict(pull=pull, parts={path: "profile"}, judged=(judged,), findings=findings, **values)


@pytest.mark.parametrize(
    ("made", "word", "code"),
    [
        (verdict(), "passed", ExitCode.OK),
        (verdict(LEAK), "blocked", ExitCode.GATE_FAILED),
        (verdict(OWN), "not proven", ExitCode.GATE_FAILED),
        (verdict(LEAK, OWN), "blocked", ExitCode.GATE_FAILED),
        (verdict(BEHIND), "blocked", ExitCode.USAGE),
        (verdict(rows=ROWS[3:]), "nothing to prove", ExitCode.OK),
        (verdict(rows=ROWS[2:]), "not proven", ExitCode.OK),  # not run is never passed
        (verdict(rows=(), own_tests="passed"), "passed", ExitCode.OK),
        (verdict(explained=True), "explained", ExitCode.OK),
        (verdict(BEHIND, explained=True), "blocked", ExitCode.USAGE),
    ],
)
def test_a_verdict_has_one_word_and_the_exit_code_of_its_first_finding(
    made: PullVerdict, word: str, code: ExitCode
) -> None:
    assert (made.word, made.exit_code) == (word, code)
    document = fields_of(made)
    assert document["verdict"] == word
    assert document["changes"] == [
        {"path": "arch_profiles/gfx1151.toml", "status": "changed", "part": "profile"}
    ]


def test_a_lock_that_is_behind_hides_nothing() -> None:
    assert [one.problem.code for one in in_order((BEHIND, LEAK))] == [
        "ISOLATION_TOKENS",
        "GATE_LOCK_WRONG",
    ]


def test_what_ran_and_what_was_needed_are_told_apart() -> None:
    assert verdict().ran == ("anchors", "isolation")
    assert verdict().needed == ("anchors", "isolation", "compile")


def test_lines_tell_the_place_in_the_patch_and_the_configuration() -> None:
    text = "\n".join(gate_lines(verdict(LEAK)))
    assert "ISOLATION_TOKENS comes from patches/0001-a/patch.toml:9:1: edit one" in text
    assert "ISOLATION_TOKENS leaks into cuda sm_70 device" in text
    assert "must not be merged" in text
    assert "tree 222222222222, before: 111111111111" in text


def test_markdown_has_findings_gates_and_what_is_not_proven() -> None:
    text = gate_markdown(verdict(LEAK, attention=("the default pin changes from b1 to b2",)))
    assert "## patchkit gate: blocked" in text
    assert "at `a.cu:3`" in text
    assert "comes from `patches/0001-a/patch.toml:9:1: edit one`" in text
    assert "| isolation | failed | 1 of 2 readings |" in text
    assert "- gfx1151 on b6900, compile: gate isolation failed" in text
    assert "- the default pin changes from b1 to b2" in text


def test_text_of_a_pull_request_is_no_markup() -> None:
    evil = ConfigError("<img src=x> | [a](http://b) `c` @d\n# e", hint="`; rm")
    text = gate_markdown(verdict(Finding(problem=evil)))
    assert "<img" not in text
    assert "\n# e" not in text
    assert "](http" not in text.replace("\\](http", "")
    assert "@d" not in text
    assert "next: \\`; rm" in text


def test_text_of_a_pull_request_is_no_line_of_the_verdict() -> None:
    evil = "a\n  ok     bench  9 of 9 faster\x1b[2J"
    rows = (GateRow(gate="anchors", state="passed", why=evil, summary=evil, not_proven=(evil,)),)
    lines = gate_lines(verdict(rows=rows, attention=(evil,)))
    assert not [line for line in "\n".join(lines).splitlines() if line.startswith("  ok     bench")]
    assert sum("a   ok     bench  9 of 9 faster\\x1b[2J" in line for line in lines) == 3


def test_a_finding_in_sarif_lies_at_the_line_of_the_patch() -> None:
    document = json.loads(gate_sarif(verdict(LEAK, OWN), "1.2.3"))
    (run,) = document["runs"]
    assert (document["version"], run["tool"]["driver"]["version"]) == ("2.1.0", "1.2.3")
    (leak,) = run["results"]
    assert leak["locations"] == [
        {
            "physicalLocation": {
                "artifactLocation": {"uri": "patches/0001-a/patch.toml"},
                "region": {"startLine": 9, "startColumn": 1},
            },
            "message": {"text": "edit one"},
        }
    ]
    (related,) = leak["relatedLocations"]
    assert related["physicalLocation"] == {"artifactLocation": {"uri": "a.cu"}, "region": {"startLine": 3}}
    (own,) = run["invocations"][0]["toolExecutionNotifications"]
    assert "GATE_OWN_TESTS_NEEDED" in own["message"]["text"]


def test_a_summary_is_added_to_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "summary.md"
    path.write_text("before\n")
    for made in (verdict(), verdict(LEAK)):
        write_outputs(made, WORKSPACE, summary=path, sarif=None, reports=None, environ={}, version="1")
    text = path.read_text()
    assert text.startswith("before\n## patchkit gate: passed")
    assert "## patchkit gate: blocked" in text


def test_what_passed_on_an_emulated_gpu_counts_and_is_told_apart() -> None:
    row = GateRow(
        gate="logits", state="passed (emulated)", why="it changed", summary="20 scenes", seconds=1.0
    )
    found = verdict(rows=(row,))
    assert (found.word, found.exit_code, found.ran) == ("passed", ExitCode.OK, ("logits",))
    assert "  emu ok logits  20 scenes (1.0 s)" in gate_lines(found)
    assert "| logits | passed (emulated) | 20 scenes |" in gate_markdown(found)
    assert fields_of(found)["candidates"][0]["gates"][0]["state"] == "passed (emulated)"
