"""Opens, updates and closes the one issue for failing bumps to upstream's newest build.

The issue is identified by its label and a mark in its text. The mark contains a digest of the result, so an
unchanged result only raises the count of nights in the text and writes no comment.

usage: python ci/canary_issue.py --report canary.json --code 1 --run URL [--dry-run]

It calls ``gh``, which reads GH_TOKEN and GH_REPO. The report is the output of ``patchkit bump --json``; if it
is missing or damaged, the issue reports that.
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
_TITLE = "the bump to upstream's newest build fails"
_LONGEST = 4000  # characters of the report in the issue
_MOST = 40  # rows of each list


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """The result of a night; ``good``: the bump works. ``lines``: Markdown without markup from the report."""

    good: bool
    lines: tuple[str, ...]

    @property
    def digest(self) -> str:
        """Equal for two nights with the same result."""
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """Arguments of one ``gh`` command, and its standard input."""

    argv: tuple[str, ...]
    body: str


def read_news(report: bytes, code: str) -> News:
    """The result in a report; never raises, not even for a damaged report."""
    try:
        document: Any = json.loads(report)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        return News(good=False, lines=(f"The canary exited with {_plain(code)} and wrote no report.",))
    error = document.get("error")
    if isinstance(error, dict):
        text = f"{error.get('code')}: {error.get('message')}"
        return News(good=False, lines=(f"Exit code {_plain(code)}: `{_plain(text)}`",))
    if code == "0" and document.get("state") == "done":
        return News(good=True, lines=())
    lines = [f"Exit code {_plain(code)}, `{_plain(document.get('state'))}`."]
    for made in _dicts(document.get("candidates")):
        name = "+".join(_plain(arch) for arch in _list(made.get("archs")))
        opted = ", ".join(_plain(patch) for patch in _list(made.get("with")))
        name += f" with {opted}" if opted else ""
        lines += [f"- {name}: `{_plain(why)}`" for why in _list(made.get("blocked"))]
        lines += [
            f"- {name}: {_plain(row.get('id'))} would be lost, without a proof that it is needless: "
            f"`{_plain(row.get('why'))}`"
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
    """The actions, given the open issues with the label (``number`` and ``body``)."""
    ours = _ours(issues)
    if news.good:
        return tuple(
            Action(argv=("issue", "close", str(number), "--comment", f"The bump works again: {run}"), body="")
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
    # Two runs at the same time may have opened two issues: keep the older one.
    actions += [
        Action(argv=("issue", "close", str(other), "--comment", f"Duplicate of #{number}."), body="")
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
        f"The bump to upstream's newest build has failed for {count}.\n\n{lines}\n\n"
        f"Newest run: {run}\n\n`patchkit bump --to latest --keep-default` prints the same, and what to "
        f"do first.\n\n<!-- patchkit-canary news={news.digest} nights={nights} -->\n"
    )


def _plain(value: object) -> str:
    """One short line that cannot end a code span, mention a user or hide a mark."""
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
    """Read the report and the open issues, then act."""
    parser = argparse.ArgumentParser(description="Update the canary's issue.")
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
        _gh(
            "label",
            "create",
            LABEL,
            "--force",
            "--description",
            "The nightly bump to upstream's newest build",
        )
    for action in decide(news, json.loads(listed), options.run):
        print("gh", *action.argv)
        if not options.dry_run:
            _gh(*action.argv, body=action.body)
    return 0 if news.good else 1


if __name__ == "__main__":
    sys.exit(main())
