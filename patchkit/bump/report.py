"""What a bump says about itself: as data, as lines for a terminal, as the message of its commit."""

from __future__ import annotations

import json
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

from patchkit.base.files import write_whole
from patchkit.bump.candidates import Candidates
from patchkit.bump.commit import BumpCommitted
from patchkit.bump.request import bump_command
from patchkit.bump.run import Bump
from patchkit.bump.sweep import detail_lines


def bump_json(bump: Bump) -> dict[str, object]:
    """Plain data."""
    return {
        "state": bump.state,
        "from": {"build": bump.old.build, "commit": bump.old.commit, "tree": bump.old.tree},
        "to": {"build": bump.new.build, "commit": bump.new.commit, "tree": bump.new.tree},
        "candidates": [
            {
                "archs": list(made.archs),
                "with": list(made.row.with_),
                "compared_with": list(made.row.builds),
                "branch": made.branch if made.row.branch else None,
                "made_by": _apply(made),
                "tip": made.tip,
                "tree": made.tree,
                "before": list(made.had),
                "applied": list(made.patches),
                "lost": [loss.as_json() for loss in made.losses],
                "opt_in": list(made.offered),
                "blocked": list(made.blocked),
                "history": made.history,
                "followed": [asdict(each) for each in made.followed],
                "patches": [verdict.as_json() for verdict in made.verdicts],
                "gates": made.report.as_json() if made.report is not None else None,
            }
            for made in bump.made
        ],
        "not_followed": [list(archs) for archs in bump.newer],
        "next": _accepting(bump) if bump.state == "fewer" else None,
    }


def bump_lines(bump: Bump) -> list[str]:
    """For a person: every patch with its class, what is in the way, what was proven."""
    name = (bump.new.commit or bump.new.tree)[:12]
    lines = [f"{bump.old.name} -> {bump.new.name} ({name})"]
    for made in bump.made:
        since = [f"b{build}" for build in made.row.builds]
        held = f", recorded at {' and '.join(since)}" if since != [bump.old.name] else ""
        lines += ["", f"for {_set(made)}{held}:", *_candidate(bump, made)]
    lines += [f"not followed: {' '.join(archs)}, the lock has it at newer pins only" for archs in bump.newer]
    return lines


def ending_lines(bump: Bump, committed: BumpCommitted | None) -> list[str]:
    """How the bump ended, and what to do next; ``committed`` is the branch of ``--commit``."""
    if bump.state == "blocked":
        return ["", "BLOCKED: nothing was changed", "next: do what is first to do above, and run it again"]
    if bump.state == "refuted":
        return ["", "FAILED: a gate does not pass; nothing was changed",
                "next: mend the patch and run it again; what passed is kept"]  # fmt: skip
    if bump.state == "fewer":
        needed = f"what is still needed gets [builds] that reach {bump.new.name} in its patch.toml"
        return ["", "FEWER PATCHES: nothing was changed",
                f"next: {needed}; to go on without the rest:", f"  {_accepting(bump)}"]  # fmt: skip
    return ["", *_done(bump, committed), *_dropped(bump)]


def _done(bump: Bump, committed: BumpCommitted | None) -> Iterator[str]:
    kept = "" if bump.lock.default == bump.new.build else f", the default pin stays b{bump.lock.default}"
    if committed is None:
        commands = [_apply(made) for made in bump.made]
        yield f"done: the lock has {bump.new.name} now{kept}"
        if len(commands) == 1:
            yield f"next: commit {bump.lock.path}; its candidate: {commands[0]}"
        else:
            yield f"next: commit {bump.lock.path}; its candidates:"
            yield from (f"  {command}" for command in commands)
    elif committed.branch is None:
        yield f"done: HEAD of {committed.repository} has this lock already{kept}; no commit was made"
    else:
        where = f"{committed.branch} of {committed.repository}"
        yield f"done: {where} has the lock, at {committed.commit[:12]}{kept}"
        yield f"next: git merge {committed.branch}; your files, the lock too, are as they were"


def _dropped(bump: Bump) -> Iterator[str]:
    """What ``--drop-conflicts`` left out: nobody has named it, so it is told last and not forgotten."""
    names = list(dict.fromkeys(name for made in bump.made for name in made.dropped))
    if names:
        yield f"FEWER PATCHES: left out because of a conflict: {', '.join(names)}"
        yield (
            "next: mend them, or end their ranges; until then apply and lock at this pin need "
            f"{' '.join(f'--without {name}' for name in names)}"
        )


def _accepting(bump: Bump) -> str:
    """The command that accepts every loss by name."""
    lost = [name for made in bump.made for name in made.unproven]
    without = tuple(dict.fromkeys([*bump.request.without, *lost]))
    return bump_command(replace(bump.request, without=without), to=bump.new.name)


def _apply(made: Candidates) -> str:
    return " ".join(map(shlex.quote, ["patchkit", "apply", *made.asked]))


def _set(made: Candidates) -> str:
    return " ".join(made.archs) + (f" with {', '.join(made.row.with_)}" if made.row.with_ else "")


def _candidate(bump: Bump, made: Candidates) -> Iterator[str]:
    for verdict in made.verdicts:
        yield from (f"  {line}" for line in detail_lines(bump.new.name, verdict))
    yield f"  upstream's history: {made.history}"
    if made.blocked:
        yield "  first to do, then bump again:"
        yield from (f"    {line}" for line in made.blocked)
    yield from (f"  {line}" for line in _losses(made))
    if made.tip is None:
        return
    count = len(made.patches)
    many = f"{count} patch{'es'[: 2 * (count != 1)]}" if count else "no patch, so it is upstream itself"
    name = made.branch if made.row.branch else f"no branch ({_apply(made)})"
    yield f"  {name}  {made.tip[:12]}  {many}  tree {(made.tree or '')[:12]}"
    if made.had and not made.patches:
        yield f"  this candidate has no patches any more; before it had {len(made.had)}"
        offered = " ".join(f"--with {name}" for name in made.offered)
        yield f"    opt-in there: {offered}" if offered else "    nothing is opt-in there"
    for each in made.followed:
        old = f"'{each.function}' of {each.file}"
        yield f"  the lock says where {old} is: '{each.now_function}' in {each.now_file}"
    if not made.patches:
        there = made.report.nothing.sentence if made.report is not None and made.report.nothing else ""
        yield f"  nothing to prove, no gate was run: no patch is in. {there}".rstrip()
        return
    if made.report is None:
        yield "  no gate was run: nothing of this candidate is proven but its places"
        if made.row.branch:
            archs = "".join(f" --arch {arch}" for arch in made.archs)
            yield f"    next: patchkit verify{archs} --upstream {bump.new.name} --no-gpu"
        return
    for gate in made.report.gates:
        result = gate.result
        yield f"  {result.verdict:<8} {result.gate}: {result.summary}"


_HOW = {
    "proven": "no longer needed, {why}",
    "accepted": "left out, as --without says ({why})",
    "dropped": "LEFT OUT because of a conflict, as --drop-conflicts says ({why})",
    "unproven": "LOST, and nothing in upstream shows that it is needless ({why})",
}


def _losses(made: Candidates) -> Iterator[str]:
    if made.losses:
        yield f"not in it any more ({len(made.had)} were):"
    for loss in made.losses:
        yield f"  {loss.id}: {_HOW[loss.how].format(why=' '.join(loss.why.split()))}"


def bump_message(bump: Bump) -> str:
    """Subject and body of the commit that moves the lock."""
    lines = [f"Bump llama.cpp to {bump.new.name}", ""]
    for made in bump.made:
        since = " and ".join(f"b{build}" for build in made.row.builds)
        lines += [*_wrapped(f"{_set(made)}, from {since}:"), ""]
        for verdict in made.verdicts:
            text = f"{verdict.id}: {verdict.patch_class}: {' '.join(verdict.reason.split())}"
            lines += _wrapped(text, "- ")
        named = [f"{loss.id} ({loss.how})" for loss in made.losses if loss.how != "proven"]
        lines += ["", *_wrapped(f"Left out: {', '.join(named)}.")] if named else []
        gates = made.report.gates if made.report is not None else ()
        passed = [gate.result.gate for gate in gates if gate.result.verdict == "passed"]
        others = [gate.result.gate for gate in gates if gate.result.verdict != "passed"]
        if made.patches:
            lines += ["", f"Passed: {', '.join(passed) or 'no gate was run'}."]
            lines += [f"Not run: {', '.join(others)}."] if others else []
        else:
            lines += ["", "Nothing to prove: no gate was run."]
        many = ", ".join(made.patches) or "no patch, so it is upstream itself"
        name = made.branch if made.row.branch else "No branch"
        lines += ["", *_wrapped(f"{name}: {many}."), f"Commit {made.tip},", f"tree {made.tree}."]
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
