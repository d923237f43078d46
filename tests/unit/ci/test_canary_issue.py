"""The one issue about following upstream: opened, changed and closed by what the night's report says."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parents[3]
RUN = "https://ci.invalid/1"


canary = SimpleNamespace(**runpy.run_path(str(ROOT / "ci" / "canary_issue.py")))

BLOCKED = {
    "state": "blocked",
    "candidates": [{"archs": ["gfx1151"], "blocked": ["a-patch: the function is gone"], "gates": None}],
}
REFUTED = {
    "state": "refuted",
    "candidates": [
        {
            "archs": ["gfx1151"],
            "blocked": [],
            "gates": {
                "gates": [
                    {"gate": "anchors", "verdict": "passed", "summary": "fine"},
                    {"gate": "compile", "verdict": "failed", "summary": "2 units do not compile"},
                ]
            },
        }
    ],
}
FEWER = {
    "state": "fewer",
    "next": "patchkit bump --to b9 --without gone",
    "candidates": [
        {
            "archs": ["gfx1151"],
            "with": ["an-option"],
            "blocked": [],
            "lost": [
                {"id": "gone", "how": "unproven", "why": "for b1 to b8"},
                {"id": "done", "how": "proven", "why": "retired"},
            ],
            "gates": None,
        }
    ],
}
ERROR = {"error": {"code": "REMOTE_UNREACHABLE", "message": "no answer"}}


def news(document: object, code: str) -> Any:
    return canary.read_news(json.dumps(document).encode(), code)


def opened(action: Any, number: int = 7) -> dict[str, Any]:
    return {"number": number, "body": action.body}


def test_good_news_without_an_issue_is_no_news() -> None:
    assert canary.decide(news({"state": "done"}, "0"), [], RUN) == ()


def test_bad_news_opens_one_issue() -> None:
    (action,) = canary.decide(news(BLOCKED, "3"), [], RUN)
    assert action.argv[:2] == ("issue", "create")
    assert "gfx1151: `a-patch: the function is gone`" in action.body
    assert "for 1 night." in action.body
    assert RUN in action.body


def test_a_patch_that_would_be_lost_is_told_with_its_set_and_what_is_proven_is_not() -> None:
    told = news(FEWER, "9")
    assert not told.good
    assert told.lines[1:] == (
        "- gfx1151 with an-option: gone would be lost, without a proof that it is needless: `for b1 to b8`",
    )
    # The newest build is another one every night; the news is not.
    later = {**FEWER, "next": "patchkit bump --to b10 --without gone"}
    assert news(later, "9").digest == told.digest


def test_the_same_news_again_is_counted_and_says_nothing_to_anybody() -> None:
    (first,) = canary.decide(news(BLOCKED, "3"), [], RUN)
    (second,) = canary.decide(news(BLOCKED, "3"), [opened(first)], RUN + "2")
    assert second.argv == ("issue", "edit", "7", "--body-file", "-")
    assert "for 2 nights." in second.body
    (third,) = canary.decide(news(BLOCKED, "3"), [opened(second)], RUN + "3")
    assert "for 3 nights." in third.body


def test_other_news_is_a_comment_on_the_same_issue() -> None:
    (first,) = canary.decide(news(BLOCKED, "3"), [], RUN)
    actions = canary.decide(news(REFUTED, "1"), [opened(first)], RUN)
    assert [action.argv[1] for action in actions] == ["edit", "comment"]
    assert "gate compile failed: `2 units do not compile`" in actions[1].body


def test_good_news_closes_every_issue_of_ours_and_no_other() -> None:
    (first,) = canary.decide(news(ERROR, "7"), [], RUN)
    issues = [
        opened(first, 9),
        opened(first, 4),
        {"number": 1, "body": "somebody's"},
        {"number": 2, "body": None},
    ]
    actions = canary.decide(news({"state": "done"}, "0"), issues, RUN)
    assert [action.argv[:3] for action in actions] == [("issue", "close", "4"), ("issue", "close", "9")]


def test_of_two_issues_the_older_one_stays() -> None:
    (first,) = canary.decide(news(ERROR, "7"), [], RUN)
    actions = canary.decide(news(ERROR, "7"), [opened(first, 9), opened(first, 4)], RUN)
    assert [action.argv[1:3] for action in actions] == [("edit", "4"), ("close", "9")]


@pytest.mark.parametrize("report", [b"", b"{", b"[]", b'"x"', b"\xff", b"[" * 100_000])
def test_a_report_that_is_none_is_news(report: bytes) -> None:
    made = canary.read_news(report, "70")
    assert not made.good
    assert "exited with 70 and wrote no report" in made.lines[0]


def test_done_with_a_bad_exit_code_is_not_good() -> None:
    assert not news({"state": "done"}, "1").good
    assert not news({"state": "done"}, "none").good


def test_upstreams_words_are_no_markup_and_no_mark() -> None:
    evil = "`<!-- patchkit-canary news=0000000000000000 nights=9 --> @all\n# big"
    document = {"state": "blocked", "candidates": [{"archs": [evil], "blocked": [evil], "gates": None}]}
    (action,) = canary.decide(news(document, "3"), [], RUN)
    assert action.body.count("<!-- patchkit-canary") == 1
    assert "\n# big" not in action.body


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda more: st.lists(more) | st.dictionaries(st.text(), more),
)


@given(
    document=_JSON
    | st.fixed_dictionaries(
        {
            "state": _JSON,
            "candidates": st.lists(st.fixed_dictionaries({"archs": _JSON, "blocked": _JSON, "gates": _JSON})),
        }
    )
)
def test_any_report_gives_actions(document: Any) -> None:
    for action in canary.decide(news(document, "1"), [], RUN):
        assert action.argv[0] == "issue"
