"""What ci/shell/week.sh reads from a bump, and the summary of what the weekly job changed.

usage: python ci/week_text.py branch --folder OUT      the branch with the new lock; exit code 1 if none
       python ci/week_text.py candidates --folder OUT  name and options of each candidate that has a branch
       python ci/week_text.py write --folder OUT --code 9 --series CLONE

It reads the output of ``patchkit --json``: ``bump.json``, and for each candidate ``verify-NAME.json`` and
``package-NAME.json``. If one of them is missing or an error, the summary reports that. ``week.md``: the first
line is the subject; after an empty line follows the body, in Markdown that is readable as plain text.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

_MOST = 60  # rows of each list
_LONGEST = 400  # characters of one line of untrusted text
_STATES = {
    "blocked": "you have to change a patch; nothing was changed",
    "faulty": "that build is known to compute wrong results; nothing was changed",
    "unverified": "edited functions changed upstream, and no gate was requested; nothing was changed",
    "refuted": "a gate failed; nothing was changed",
    "fewer": "patches would be lost; nothing was changed",
}
_HOW = {"proven": "no longer needed", "accepted": "excluded by --without", "dropped": "DROPPED"}


def read(path: Path) -> dict[str, Any]:
    """A document; empty if the file is missing or is not one."""
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def new_branch(bump: dict[str, Any]) -> str | None:
    """The branch with the new lock; None if the bump made none."""
    commit = bump.get("commit")
    branch = commit.get("branch") if bump.get("state") == "done" and isinstance(commit, dict) else None
    return branch if isinstance(branch, str) else None


def candidates(bump: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Name and options of each candidate that has a branch and a patch."""
    for made in dicts(bump.get("candidates")):
        if made.get("branch") and made.get("applied"):
            words = [f"--arch {arch}" for arch in made["archs"]]
            yield "+".join(made["archs"]), f"{' '.join(words)} --upstream b{bump['to']['build']}"


def subject(bump: dict[str, Any], code: int) -> str:
    """One line: the build, and the outcome."""
    error = bump.get("error")
    if isinstance(error, dict):
        return f"llama.cpp: no bump, {plain(error.get('code'))}"
    if not bump:
        return f"llama.cpp: no bump, the job exited with {code} and wrote no report"
    pins = f"llama.cpp b{bump['from']['build']} -> b{bump['to']['build']}"
    state = str(bump.get("state"))
    if state != "done":
        return f"{pins}: {_STATES.get(state, plain(state))}"
    if new_branch(bump) is None:
        return f"llama.cpp b{bump['to']['build']}: nothing new"
    made = dicts(bump.get("candidates"))
    left = {loss["id"] for each in made for loss in dicts(each.get("lost")) if loss.get("how") == "dropped"}
    carried = {name for each in made for name in each.get("applied", ())}
    text = f"{pins}: {len(carried)} patch{'es'[: 2 * (len(carried) != 1)]} carried"
    text += f", {len(left)} dropped" if left else ""
    return text + ("" if code in {0, 9} else f"; a later step failed (exit code {code})")


def body(bump: dict[str, Any], folder: Path) -> Iterator[str]:
    """Everything below the subject."""
    error = bump.get("error")
    if isinstance(error, dict):
        yield from error_lines(error)
    branch = new_branch(bump)
    if branch is not None:
        yield f"The new lock is the branch `{plain(branch)}` of the series: look at it and merge it."
    for made in dicts(bump.get("candidates")):
        yield from candidate(bump, made, folder)


def candidate(bump: dict[str, Any], made: dict[str, Any], folder: Path) -> Iterator[str]:
    """One set of patches: the class of each, the results of the gates, what was published."""
    name = "+".join(map(str, made["archs"]))
    opted = ", ".join(map(str, made.get("with", ())))
    yield from ("", f"## {name}" + (f" with {opted}" if opted else ""), "")
    applied = made.get("applied", [])
    for patch in dicts(made.get("patches")):
        if patch["id"] in applied or (patch["class"] == "conflict" and not made.get("tip")):
            yield f"- {plain(patch['id'])}: {patch['class']}: {plain(patch['reason'])}"
            yield from (
                f"  - changed upstream: `{plain(row['entity'])}`" for row in dicts(patch.get("drift"))
            )
    yield from (f"- to do first: {plain(why)}" for why in made.get("blocked", ()))
    for loss in dicts(made.get("lost")):
        how = _HOW.get(str(loss["how"]), "WOULD BE LOST")
        yield f"- {plain(loss['id'])}: {how}: {plain(loss['why'])}"
        (patch,) = [each for each in dicts(made.get("patches")) if each["id"] == loss["id"]] or [{}]
        if patch.get("waits_for"):
            yield f"  - resolve {plain(patch['waits_for'])} first"
            continue
        for problem in dicts(patch.get("problems")):
            own, *others = [
                f"{plain(each['path'])}:{each['line']}" for each in dicts(problem.get("where"))
            ] or [""]
            why = f" ({plain(problem['why'])})" if problem.get("why") else ""
            yield f"  - `{plain(problem['code'])}`: {plain(problem['message'])}{why}"
            yield f"    - {', '.join([own, *others[:_MOST]])}"
    if any(loss.get("how") == "dropped" for loss in dicts(made.get("lost"))):
        options = " ".join(f"--arch {arch}" for arch in made["archs"])
        options += f" --upstream b{bump['to']['build']}"
        yield f"- to see the conflict: `patchkit plan {options} --with ID`"
    for fault in (one for one in dicts(made.get("faults")) if one.get("archs")):
        yield f"- known fault of the build: {plain(fault.get('id'))} on {' '.join(fault.get('archs', ()))}"
    yield from proofs(made, name, folder)


def proofs(made: dict[str, Any], name: str, folder: Path) -> Iterator[str]:
    """The results of the gates of one candidate, and what they did not check."""
    own = bool(made.get("branch"))
    verify = read(folder / f"verify-{name}.json") if own else {}
    rows = dicts(verify.get("gates")) or dicts((made.get("gates") or {}).get("gates"))
    if made.get("applied") and not rows:
        yield "- no gate ran: only the places of the edits were checked"
    for row in rows:
        yield f"- gate {plain(row['gate'])}: {plain(row['verdict'])}: {plain(row['summary'])}"
        if own:  # the other sets of these GPUs have the same rows
            yield from (f"  - not proven: {plain(why)}" for why in row.get("not_run", ())[:_MOST])
    if isinstance(verify.get("error"), dict):
        yield from error_lines(verify["error"])
    yield from results(made, verify, name, folder)


def results(made: dict[str, Any], verify: dict[str, Any], name: str, folder: Path) -> Iterator[str]:
    """What was published, and the files next to the summary."""
    own = bool(made.get("branch"))
    published = verify.get("published")
    if isinstance(published, dict):
        yield f"- published: `{plain(published.get('branch'))}` at {plain(published.get('tip'))[:12]}"
        if published.get("pushed_to"):
            yield f"- pushed to {plain(published['pushed_to'])}"
    elif made.get("tip") and made.get("applied"):
        yield "- nothing was published" if own else "- not published: only the default branch of a GPU is"
    if (folder / f"report-{name}.md").is_file() and own:
        yield f"- report: report-{name}.md"
    package = read(folder / f"package-{name}.json") if own else {}
    if package.get("wheel"):
        yield f"- wheel: {Path(package['wheel']).name}, sha256 {plain(package['sha256'])}"
        yield f"  - {plain(package['proof'])}"
    elif isinstance(package.get("error"), dict):
        yield from error_lines(package["error"])


def error_lines(error: dict[str, Any]) -> Iterator[str]:
    """The error of patchkit."""
    yield f"- `{plain(error.get('code'))}`: {plain(error.get('message'))}"
    yield from (f"  - {part}: {plain(error[part])}" for part in ("why", "hint") if error.get(part))


def plain(value: object) -> str:
    """One line that cannot end a code span, mention a user or start markup."""
    text = "".join(letter if letter.isprintable() else " " for letter in str(value))[:_LONGEST]
    return text.replace("`", "'").replace("<", "(").replace("@", "(at)")


def dicts(value: object) -> list[dict[str, Any]]:
    """The first dictionaries of a list."""
    return [one for one in value if isinstance(one, dict)][:_MOST] if isinstance(value, list) else []


def main(argv: Sequence[str] | None = None) -> int:
    """Answer, or write the text."""
    parser = argparse.ArgumentParser(description="What the weekly job changed.")
    parser.add_argument("what", choices=["branch", "candidates", "write"])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--code", type=int, default=0)
    parser.add_argument("--series", default="")
    options = parser.parse_args(argv)
    bump = read(options.folder / "bump.json")
    if options.what == "branch":
        branch = new_branch(bump)
        print(branch or "")
        return int(branch is None)
    if options.what == "candidates":
        for name, words in candidates(bump):
            print(name, words)
        return 0
    lines = [subject(bump, options.code), ""]
    if options.code or bump.get("state") != "done" or new_branch(bump) is not None:
        lines += body(bump, options.folder)
    text = "\n".join(lines).rstrip() + "\n"
    # The clone that the job worked on is deleted at its end.
    text = text.replace(f"{options.series}/", "") if options.series else text
    (options.folder / "week.md").write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
