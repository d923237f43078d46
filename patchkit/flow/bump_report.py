"""What a bump says about itself: as data, as lines for a terminal, as the message of its commit.

Vocabulary: a *report* is kept in ``reports/<name>.json`` of the cache folder; ``status`` counts the conflicts
in them.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from patchkit.classify.model import GOOD
from patchkit.flow.bump import Bump, Candidates
from patchkit.flow.bump_commit import BumpCommitted
from patchkit.flow.sweep_text import detail_lines
from patchkit.vcs.disk import write_whole

__all__ = ["bump_json", "bump_lines", "bump_message", "ending_lines", "keep_report"]


def bump_json(bump: Bump) -> dict[str, object]:
    """Plain data."""
    return {
        "state": bump.state,
        "from": {"build": bump.old.build, "commit": bump.old.commit, "tree": bump.old.tree},
        "to": {"build": bump.new.build, "commit": bump.new.commit, "tree": bump.new.tree},
        "candidates": [
            {
                "archs": list(made.archs),
                "branch": made.branch,
                "tip": made.tip,
                "tree": made.tree,
                "applied": list(made.patches),
                "blocked": list(made.blocked),
                "history": made.history,
                "followed": [asdict(each) for each in made.followed],
                "patches": [verdict.as_json() for verdict in made.verdicts],
                "gates": made.report.as_json() if made.report is not None else None,
            }
            for made in bump.made
        ],
    }


def bump_lines(bump: Bump) -> list[str]:
    """For a person: every patch with its class, what is in the way, what was proven."""
    name = (bump.new.commit or bump.new.tree)[:12]
    lines = [f"{bump.old.name} -> {bump.new.name} ({name})"]
    for made in bump.made:
        lines += ["", f"for {' '.join(made.archs)}:", *_candidate(bump, made)]
    return lines


def ending_lines(bump: Bump, committed: BumpCommitted | None) -> list[str]:
    """How the bump ended, and what to do next; ``committed`` is the branch of ``--commit``."""
    if bump.state == "blocked":
        return ["", "BLOCKED: nothing was changed", "next: do what is first to do above, and run it again"]
    if bump.state == "refuted":
        return ["", "FAILED: a gate does not pass; nothing was changed",
                "next: mend the patch and run it again; what passed is kept"]  # fmt: skip
    kept = "" if bump.lock.default == bump.new.build else f", the default pin stays b{bump.lock.default}"
    if committed is None:
        return ["", f"done: the lock has {bump.new.name} now{kept}",
                f"next: commit {bump.lock.path}; its candidate: patchkit apply{_names(bump)}"]  # fmt: skip
    if committed.branch is None:
        return ["", f"done: HEAD of {committed.repository} has this lock already{kept}; no commit was made"]
    return [
        "",
        f"done: {committed.branch} of {committed.repository} has the lock, at {committed.commit[:12]}{kept}",
        f"next: git merge {committed.branch}; your files, the lock too, are as they were",
    ]


def _names(bump: Bump) -> str:
    archs = "".join(f" --arch {arch}" for arch in bump.made[0].archs)
    return f"{archs} --upstream {bump.new.name}"


def _candidate(bump: Bump, made: Candidates) -> Iterator[str]:
    for verdict in made.verdicts:
        yield from (f"  {line}" for line in detail_lines(bump.new.name, verdict))
    yield f"  upstream's history: {made.history}"
    if made.blocked:
        yield "  first to do, then bump again:"
        yield from (f"    {line}" for line in made.blocked)
        return
    count = sum(verdict.patch_class in GOOD for verdict in made.verdicts)
    many = f"{count} patch{'es'[: 2 * (count != 1)]}" if count else "no patch, so it is upstream itself"
    yield f"  {made.branch}  {(made.tip or '')[:12]}  {many}  tree {(made.tree or '')[:12]}"
    for each in made.followed:
        old = f"'{each.function}' of {each.file}"
        yield f"  the lock says where {old} is: '{each.now_function}' in {each.now_file}"
    if not made.patches:
        there = made.report.nothing.sentence if made.report is not None and made.report.nothing else ""
        yield f"  nothing to prove, no gate was run: no patch is in. {there}".rstrip()
        return
    if made.report is None:
        archs = "".join(f" --arch {arch}" for arch in made.archs)
        yield "  no gate was run: nothing of this candidate is proven but its places"
        yield f"    next: patchkit verify{archs} --upstream {bump.new.name} --no-gpu"
        return
    for gate in made.report.gates:
        result = gate.result
        yield f"  {result.verdict:<8} {result.gate}: {result.summary}"


def bump_message(bump: Bump) -> str:
    """Subject and body of the commit that moves the lock."""
    lines = [f"Bump llama.cpp to {bump.new.name}", ""]
    for made in bump.made:
        lines += [f"{' '.join(made.archs)}, from {bump.old.name}:", ""]
        for verdict in made.verdicts:
            text = f"{verdict.id}: {verdict.patch_class}: {' '.join(verdict.reason.split())}"
            lines += _wrapped(text, "- ")
        gates = made.report.gates if made.report is not None else ()
        passed = [gate.result.gate for gate in gates if gate.result.verdict == "passed"]
        others = [gate.result.gate for gate in gates if gate.result.verdict != "passed"]
        if made.patches:
            lines += ["", f"Passed: {', '.join(passed) or 'no gate was run'}."]
            lines += [f"Not run: {', '.join(others)}."] if others else []
        else:
            lines += ["", "Nothing to prove: no gate was run."]
        many = ", ".join(made.patches) or "no patch, so it is upstream itself"
        lines += ["", *_wrapped(f"{made.branch}: {many}."), f"Commit {made.tip},", f"tree {made.tree}."]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _wrapped(text: str, first: str = "") -> list[str]:
    return textwrap.wrap(
        text, 72, initial_indent=first, subsequent_indent=" " * len(first), break_long_words=False
    )


def keep_report(bump: Bump, cache_root: Path) -> Path:
    """Write the report into the cache folder; raises CacheError.

    That of a bump which did not end well has a name of its own: what it met counts after the next try, too.
    """
    tried = "" if bump.state == "done" else f"-{bump.state}"
    path = cache_root / "reports" / f"bump-b{bump.old.build}-b{bump.new.build}{tried}.json"
    write_whole(path, json.dumps(bump_json(bump), indent=1) + "\n", "writing the report")
    return path
