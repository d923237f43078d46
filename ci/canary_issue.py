"""Brings the one issue about following upstream up to date: opened, changed when the news is, and closed.

The issue is known by its label and by a mark in its text, which also carries a digest of the news: the same
news again changes nothing but the text's count of nights, and writes no comment: nobody learns to look away.

usage: python ci/canary_issue.py --report canary.json --code 1 --run URL [--dry-run]

It calls ``gh`` (GH_TOKEN and GH_REPO are its own). The report is what ``patchkit bump --json`` wrote;
it may be missing or broken, which is news, too.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LABEL = "patchkit-canary"
_MARK = re.compile(r"<!-- patchkit-canary news=([0-9a-f]{16}) nights=(\d{1,6}) -->")
_TITLE = "upstream cannot be followed"
_LONGEST = 4000  # characters of the report's own words in the issue
_MOST = 40  # rows of each list


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """What a night found; ``good``: the series follows. ``lines`` are markdown without markup of others."""

    good: bool
    lines: tuple[str, ...]

    @property
    def digest(self) -> str:
        """What makes two nights the same."""
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """Arguments of one ``gh`` command, and its standard input."""

    argv: tuple[str, ...]
    body: str


def read_news(report: bytes, code: str) -> News:
    """The news of a report; never raises, whatever the report is."""
    try:
        document: Any = json.loads(report)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        return News(
            good=False, lines=(f"The canary ended with exit code {_plain(code)} and without a report.",)
        )
    error = document.get("error")
    if isinstance(error, dict):
        told = f"{error.get('code')}: {error.get('message')}"
        return News(good=False, lines=(f"Exit code {_plain(code)}: `{_plain(told)}`",))
    if code == "0" and document.get("state") == "done":
        return News(good=True, lines=())
    lines = [f"Exit code {_plain(code)}, `{_plain(document.get('state'))}`."]
    for made in _dicts(document.get("candidates")):
        name = "+".join(_plain(arch) for arch in _list(made.get("archs")))
        opted = ", ".join(_plain(patch) for patch in _list(made.get("with")))
        name += f" with {opted}" if opted else ""
        lines += [f"- {name}: `{_plain(why)}`" for why in _list(made.get("blocked"))]
        lines += [
            f"- {name}: {_plain(row.get('id'))} would be lost without a proof: `{_plain(row.get('why'))}`"
            for row in _dicts(made.get("lost"))
            if row.get("how") in {"unproven", "dropped"}
        ]
        gates = made.get("gates")
        rows = _dicts(gates.get("gates")) if isinstance(gates, dict) else []
        lines += [
            f"- {name}: gate {_plain(row.get('gate'))} failed: `{_plain(row.get('summary'))}`"
            for row in rows
            if row.get("verdict") == "failed"
        ]
    return News(good=False, lines=tuple(lines))


def decide(news: News, issues: Sequence[dict[str, Any]], run: str) -> tuple[Action, ...]:
    """What to do, given the open issues with the label (``number`` and ``body``)."""
    ours = _ours(issues)
    if news.good:
        return tuple(
            Action(argv=("issue", "close", str(number), "--comment", f"Followed again: {run}"), body="")
            for number, _, _ in ours
        )
    if not ours:
        text = _text(news, run, nights=1)
        argv = ("issue", "create", "--title", _TITLE, "--label", LABEL, "--body-file", "-")
        return (Action(argv=argv, body=text),)
    number, digest, nights = ours[0]
    text = _text(news, run, nights=nights + 1)
    actions = [Action(argv=("issue", "edit", str(number), "--body-file", "-"), body=text)]
    if digest != news.digest:
        actions.append(Action(argv=("issue", "comment", str(number), "--body-file", "-"), body=text))
    # A race of two runs may have made two: the older one stays.
    actions += [
        Action(argv=("issue", "close", str(other), "--comment", f"The same as #{number}."), body="")
        for other, _, _ in ours[1:]
    ]
    return tuple(actions)


def _ours(issues: Sequence[dict[str, Any]]) -> list[tuple[int, str, int]]:
    found = []
    for issue in issues:
        mark = _MARK.search(str(issue.get("body") or ""))
        if mark is not None:
            found.append((int(issue["number"]), mark[1], int(mark[2])))
    return sorted(found)


def _text(news: News, run: str, *, nights: int) -> str:
    lines = "\n".join(news.lines[:_MOST])[:_LONGEST]
    count = f"{nights} night{'s'[: nights != 1]}"
    return (
        f"The series does not follow upstream's newest build, for {count} now.\n\n{lines}\n\n"
        f"Newest run: {run}\n\nHere: `patchkit bump --to latest --keep-default` tells the same, and what "
        f"to do first.\n\n<!-- patchkit-canary news={news.digest} nights={nights} -->\n"
    )


def _plain(value: object) -> str:
    """One short line that cannot end a code span, mention anybody or hide a mark."""
    text = "".join(letter if letter.isprintable() else " " for letter in str(value))[:300]
    return text.replace("`", "'").replace("<!--", "<! --")


def _list(value: object) -> list[object]:
    return value[:_MOST] if isinstance(value, list) else []


def _dicts(value: object) -> list[dict[str, Any]]:
    return [one for one in _list(value) if isinstance(one, dict)]


def _gh(*argv: str, body: str = "") -> str:
    done = subprocess.run(["gh", *argv], input=body, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S607
    return done.stdout


def main(argv: Sequence[str] | None = None) -> int:
    """Read the report, look at the open issues, act."""
    parser = argparse.ArgumentParser(description="Brings the canary's issue up to date.")
    parser.add_argument("--report", type=Path, required=True)
    parser.add_argument("--code", required=True)
    parser.add_argument("--run", required=True)
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args(argv)
    report = options.report.read_bytes() if options.report.is_file() else b""
    news = read_news(report, options.code)
    listed = _gh(
        "issue", "list", "--label", LABEL, "--state", "open", "--json", "number,body", "--limit", "20"
    )
    if not news.good and not options.dry_run:
        _gh("label", "create", LABEL, "--force", "--description", "The nightly try to follow upstream")
    for action in decide(news, json.loads(listed), options.run):
        print("gh", *action.argv)
        if not options.dry_run:
            _gh(*action.argv, body=action.body)
    return 0 if news.good else 1


if __name__ == "__main__":
    sys.exit(main())
