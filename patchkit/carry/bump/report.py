"""The result of a bump: as data, as text for a terminal, as the message of its commit."""

from __future__ import annotations

import json
import shlex
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Literal

from patchkit.base.errors import UsageError
from patchkit.base.files import write_whole
from patchkit.base.plain import fields_of
from patchkit.base.series_folder import PLAIN, format_archs
from patchkit.base.text import counted
from patchkit.base.upstreams import build_name
from patchkit.base.verdict import EMULATED, MODELLED
from patchkit.carry.bump.commit import BumpCommitted
from patchkit.carry.bump.request import BumpRequest
from patchkit.carry.bump.successor import Successor
from patchkit.carry.judging.classes import DROPPED, GOOD
from patchkit.carry.remotes.pulls import FollowedPull
from patchkit.carry.remotes.run import Following
from patchkit.carry.series.fault import refused_faults
from patchkit.carry.series.lock import Lock, Pin

State = Literal["done", "blocked", "faulty", "unverified", "refuted", "fewer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bump:
    """The whole bump; ``lock`` is the lock as it now is, or would have become.

    ``newer``: GPUs that were not followed, because the lock has them at pins newer than the target only.
    ``committed`` is the branch of ``--commit``. ``drifted``: why the gates are needed.
    """

    json_keys: ClassVar = (
        "state from=old to=new candidates=successors not_followed=newer pulls=following.pulls "
        "watches=following.watches next commit=committed"
    )

    request: BumpRequest
    old: Pin
    new: Pin
    state: State
    successors: tuple[Successor, ...]
    lock: Lock
    newer: tuple[tuple[str, ...], ...] = ()
    following: Following = field(default_factory=Following)
    committed: BumpCommitted | None = None
    drifted: UsageError | None = None

    @property
    def next(self) -> str | None:
        """The command that goes on where something has to be accepted first."""
        return _accepting(self) if self.state in {"fewer", "faulty"} else None


def bump_lines(bump: Bump) -> list[str]:
    """For a person: every patch with its class, what is in the way, what was proven."""
    lines = [f"{bump.old.title} -> {bump.new.title_with_id}"]
    for made in bump.successors:
        since = [build_name(build) for build in made.variant.builds]
        held = f", recorded at {' and '.join(since)}" if since != [bump.old.name] else ""
        lines += ["", f"for {made.variant}{held}:", *_candidate(bump, made)]
    lines += [
        f"not followed: {format_archs(archs)}, the lock has it at newer pins only" for archs in bump.newer
    ]
    told = {pull.patch: tuple(_merged(bump, pull)) for pull in bump.following.pulls}
    return [*lines, *bump.following.lines(bump.new.name, told)]


def _merged(bump: Bump, pull: FollowedPull) -> Iterator[str]:
    """What the classes say of a patch whose pull request the new pin has, and what to do with it."""
    if not pull.in_pin or pull.merged is None:
        return
    classes = {v.patch_class for made in bump.successors for v in made.verdicts if v.id == pull.patch}
    yield f"at {bump.new.name} the patch is {', '.join(sorted(classes)) or 'in no candidate'}"
    build = pull.merged.build
    if classes & DROPPED:
        number = "N" if build is None else build
        yield f'write status = "backport" and, below [upstream], merged_in = {number}'
    elif classes & GOOD:
        yield "it is placed all the same: was it merged in other words, or taken back? Look at both"
    elif "conflict" in classes:
        before = "bN" if build is None else build_name(build)
        yield f"what was merged may be in its way: then end it before {before} with [builds] last"


def ending_lines(bump: Bump, written: Sequence[str] = ()) -> list[str]:
    """How the bump ended, and what to do next; ``written``: patches that got new edits before it."""
    kept = "nothing was changed"
    if written:
        kept = f"lock and branches are as they were; the new edits of {', '.join(written)} stay"
    if bump.state == "blocked":
        return ["", f"BLOCKED: {kept}", "next: do what is first to do above, and run it again"]
    if bump.state == "faulty":
        return ["", f"FAULTY: that build is known to compute wrong results; {kept}",
                "next: another build, or with the fault:", f"  {_accepting(bump)}"]  # fmt: skip
    if bump.state == "unverified":
        return ["", f"NOT VERIFIED: {kept}", "next: run it again without --no-verify"]
    if bump.state == "refuted":
        return ["", f"FAILED: a gate does not pass; {kept}",
                "next: mend the patch and run it again; what passed is kept"]  # fmt: skip
    if bump.state == "fewer":
        needed = f"what is still needed gets [builds] that reach {bump.new.name} in its patch.toml"
        return ["", f"FEWER PATCHES: {kept}",
                f"next: {needed}; to go on without the rest:", f"  {_accepting(bump)}"]  # fmt: skip
    return ["", *_done(bump), *_dropped(bump)]


def _done(bump: Bump) -> Iterator[str]:
    committed = bump.committed
    kept = (
        ""
        if bump.lock.default == bump.new.build
        else f", the default pin stays {build_name(bump.lock.default)}"
    )
    if committed is None:
        commands = [shlex.join(made.made_by) for made in bump.successors]
        yield f"done: the lock has {bump.new.title} now{kept}"
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
    names = list(dict.fromkeys(name for made in bump.successors for name in made.dropped))
    if names:
        yield f"FEWER PATCHES: left out: {', '.join(names)}"
        yield (
            f"next: mend them, or end their ranges; at {bump.new.name} the lock leaves out what cannot be "
            "placed until its files change"
        )


def _accepting(bump: Bump) -> str:
    """The command that accepts every loss and every fault by name."""
    lost = [name for made in bump.successors for name in made.unproven]
    without = tuple(dict.fromkeys([*bump.request.without, *lost]))
    refused = [each.fault.id for made in bump.successors for each in refused_faults(made.faults, ())]
    accepted = tuple(dict.fromkeys([*bump.request.accept_faults, *refused]))
    # A release has its own name wherever it was found; a remote may have no tag for its build.
    to = bump.new.releases[-1] if bump.new.releases else bump.new.name
    return replace(bump.request, without=without, accept_faults=accepted).command(to=to)


def _candidate(bump: Bump, made: Successor) -> Iterator[str]:
    for verdict in made.verdicts:
        yield from (f"  {line}" for line in verdict.lines(bump.new.name))
    yield from (f"  known fault: {each.state()}" for each in made.faults)
    yield f"  upstream's history: {made.history}"
    if made.blocked:
        yield "  first to do, then bump again:"
        yield from (f"    {line}" for line in made.blocked)
    yield from (f"  {line}" for line in _losses(made))
    if made.candidate is None:
        return
    count = len(made.patches)
    many = counted(count, "patch", "patches") if count else "no patch, so it is upstream itself"
    name = made.branch if made.variant.branch else f"no branch ({shlex.join(made.made_by)})"
    yield f"  {name}  {made.candidate.tip[:12]}  {many}  tree {(made.tree or '')[:12]}"
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
        if made.variant.branch:
            words = made.made_by[2 : made.made_by.index("--upstream") + 2]
            no_gpu = ["--no-gpu"] if made.variant.archs != (PLAIN,) else []
            yield f"    next: {shlex.join(['patchkit', 'verify', *words, *no_gpu])}"
        return
    for result in made.report.gates:
        yield f"  {result.verdict:<8} {result.gate}: {result.summary}"


_HOW = {
    "proven": "no longer needed, {why}",
    "accepted": "left out, as --without says ({why})",
    "dropped": "LEFT OUT, as --drop-conflicts says ({why})",
    "unproven": "LOST, and nothing in upstream shows that it is needless ({why})",
}


def _losses(made: Successor) -> Iterator[str]:
    if made.losses:
        yield f"not in it any more ({len(made.had)} were):"
    for loss in made.losses:
        yield f"  {loss.id}: {_HOW[loss.how].format(why=' '.join(loss.why.split()))}"


def bump_message(bump: Bump) -> str:
    """Subject and body of the commit that moves the lock."""
    lines = [f"Bump llama.cpp to {bump.new.title}", ""]
    for made in bump.successors:
        since = " and ".join(build_name(build) for build in made.variant.builds)
        lines += [*_wrapped(f"{made.variant}, from {since}:"), ""]
        for verdict in made.verdicts:
            text = f"{verdict.id}: {verdict.patch_class}: {' '.join(verdict.reason.split())}"
            lines += _wrapped(text, "- ")
        named = [f"{loss.id} ({loss.how})" for loss in made.losses if loss.how != "proven"]
        lines += ["", *_wrapped(f"Left out: {', '.join(named)}.")] if named else []
        gates = made.report.gates if made.report is not None else ()
        passed = [gate.gate for gate in gates if gate.verdict == "passed"]
        emulated = [gate.gate for gate in gates if gate.verdict == EMULATED]
        modelled = [gate.gate for gate in gates if gate.verdict == MODELLED]
        others = [gate.gate for gate in gates if not gate.has_passed]
        if made.patches:
            lines += ["", f"Passed: {', '.join(passed) or 'no gate was run'}."]
            lines += [f"Passed on an emulated GPU: {', '.join(emulated)}."] if emulated else []
            lines += [f"Passed by the timing model: {', '.join(modelled)}."] if modelled else []
            lines += [f"Not run: {', '.join(others)}."] if others else []
        else:
            lines += ["", "Nothing to prove: no gate was run."]
        many = ", ".join(made.patches) or "no patch, so it is upstream itself"
        name = made.branch if made.variant.branch else "No branch"
        lines += [
            "",
            *_wrapped(f"{name}: {many}."),
            f"Commit {made.candidate.tip if made.candidate else None},",
            f"tree {made.tree}.",
        ]
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
    builds = f"{build_name(bump.old.build)}-{build_name(bump.new.build)}"
    path = cache_root / "reports" / f"bump-{builds}{tried}.json"
    write_whole(path, json.dumps(fields_of(bump), indent=1) + "\n", "writing the report")
    return path
