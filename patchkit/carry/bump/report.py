"""The result of a bump: as data, as text for a terminal, and as a commit message."""

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
    """The result of a bump. ``lock`` is the new lock, also if it was not written.

    ``newer``: GPUs that were skipped because the lock has results for them only at pins newer than the
    target. ``committed``: the branch of ``--commit``. ``drifted``: the error that says why the gates are
    needed.
    """

    json_keys: ClassVar = (
        "state from=old to=new candidates=successors not_followed=newer pulls=following.pulls "
        "next commit=committed"
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
        """The command that continues by accepting the losses and faults, if that is what blocks the bump."""
        return _accept_command(self) if self.state in {"fewer", "faulty"} else None


def format_bump(bump: Bump) -> list[str]:
    """Every patch with its class, what blocks the bump, and the results of the gates."""
    lines = [f"{bump.old.title} -> {bump.new.title_with_id}"]
    for successor in bump.successors:
        since = [pin.name for pin in successor.variant.pins]
        held = f", recorded at {' and '.join(since)}" if since != [bump.old.name] else ""
        lines += ["", f"for {successor.variant}{held}:", *_successor_lines(bump, successor)]
    lines += [f"skipped: {format_archs(archs)}, recorded only at newer pins" for archs in bump.newer]
    merged_notes = {pull.patch: tuple(_merged_pull_lines(bump, pull)) for pull in bump.following.pulls}
    return [*lines, *bump.following.lines(bump.new.name, merged_notes)]


def _merged_pull_lines(bump: Bump, pull: FollowedPull) -> Iterator[str]:
    """For a patch whose pull request is in the new pin: its classes, and what to do with the patch."""
    if not pull.in_pin or pull.merged is None:
        return
    classes = {
        v.patch_class for successor in bump.successors for v in successor.verdicts if v.id == pull.patch
    }
    yield f"at {bump.new.name} the patch is {', '.join(sorted(classes)) or 'in no candidate'}"
    build = pull.merged.build
    if classes & DROPPED:
        number = "N" if build is None else build
        yield f'write status = "backport" and, below [upstream], merged_in = {number}'
    elif classes & GOOD:
        yield "but it can still be placed: it may have been merged in another form, or reverted; check both"
    elif "conflict" in classes:
        before = "bN" if build is None else build_name(build)
        yield f"it may conflict with the merged change; if so, end it before {before} with [builds] last"


def format_ending(bump: Bump, written: Sequence[str] = ()) -> list[str]:
    """How the bump ended, and what to do next. ``written``: patches that ``resolve`` gave new edits."""
    kept = "nothing was changed"
    if written:
        kept = f"lock and branches are unchanged; the new edits of {', '.join(written)} are kept"
    if bump.state == "blocked":
        return ["", f"BLOCKED: {kept}", "next: fix what is listed above, then bump again"]
    if bump.state == "faulty":
        return ["", f"FAULTY: this build is known to compute wrong results; {kept}",
                "next: choose another build, or accept the fault:", f"  {_accept_command(bump)}"]  # fmt: skip
    if bump.state == "unverified":
        return ["", f"NOT VERIFIED: {kept}", "next: run it again without --no-verify"]
    if bump.state == "refuted":
        return ["", f"FAILED: a gate failed; {kept}",
                "next: fix the patch and bump again; results that are still valid are reused"]  # fmt: skip
    if bump.state == "fewer":
        needed = f"for each patch you still need, extend [builds] in its patch.toml to {bump.new.name}"
        return ["", f"FEWER PATCHES: {kept}",
                f"next: {needed}; to continue without the others:", f"  {_accept_command(bump)}"]  # fmt: skip
    return ["", *_done_lines(bump), *_dropped_lines(bump)]


def _done_lines(bump: Bump) -> Iterator[str]:
    committed = bump.committed
    kept = "" if bump.lock.default == bump.new.name else f", the default pin stays {bump.lock.default}"
    if committed is None:
        others = [one.command for one in bump.successors if not one.variant.branch]
        yield f"done: the lock now has {bump.new.title}{kept}"
        yield f"next: commit {bump.lock.path}{'; to make the candidates without a branch:' if others else ''}"
        yield from (f"  {command}" for command in others)
    elif committed.branch is None:
        yield f"done: HEAD of {committed.repository} already has this lock{kept}; nothing to commit"
    else:
        where = f"{committed.branch} of {committed.repository}"
        yield f"done: {where} has the lock, at {committed.commit[:12]}{kept}"
        yield f"next: git merge {committed.branch}; your working files, including the lock, are unchanged"


def _dropped_lines(bump: Bump) -> Iterator[str]:
    """What ``--drop-conflicts`` excluded, listed last because the user did not name these patches."""
    names = list(dict.fromkeys(name for successor in bump.successors for name in successor.dropped_losses))
    if names:
        yield f"FEWER PATCHES: excluded: {', '.join(names)}"
        yield (
            f"next: fix them, or end their build ranges; at {bump.new.name} the lock excludes each of them "
            "until its files change"
        )


def _accept_command(bump: Bump) -> str:
    """The command that accepts every loss and every fault by name."""
    lost = [name for successor in bump.successors for name in successor.unproven]
    without = tuple(dict.fromkeys([*bump.request.without, *lost]))
    refused = [
        each.fault.id for successor in bump.successors for each in refused_faults(successor.faults, ())
    ]
    accepted = tuple(dict.fromkeys([*bump.request.accept_faults, *refused]))
    # Use the release's name, if it has one: the remote may have no tag for the build.
    to = bump.new.releases[-1] if bump.new.releases else bump.new.name
    return replace(bump.request, without=without, accept_faults=accepted).command(to=to)


def _successor_lines(bump: Bump, successor: Successor) -> Iterator[str]:
    seen: set[str] = set()
    for verdict in successor.verdicts:
        yield from (f"  {line}" for line in verdict.lines(bump.new.name, seen))
    yield from (f"  known fault: {each.state()}" for each in successor.faults)
    yield f"  upstream's history: {successor.history}"
    yield from (f"  {line}" for line in _blocked_lines(successor, bump.new.build))
    yield from (f"  {line}" for line in _loss_lines(successor))
    if successor.candidate is None:
        return
    count = len(successor.patches)
    many = counted(count, "patch", "patches") if count else "no patches: identical to upstream"
    name = successor.branch if successor.variant.branch else f"no branch ({shlex.join(successor.apply_args)})"
    yield f"  {name}  {successor.candidate.tip[:12]}  {many}  tree {(successor.tree or '')[:12]}"
    if successor.patches_before and not successor.patches:
        count = len(successor.patches_before)
        yield f"  this candidate no longer has any patches; before the bump it had {count}"
        offered = " ".join(f"--with {name}" for name in successor.offered)
        yield f"    opt-in patches: {offered}" if offered else "    there are no opt-in patches either"
    for each in successor.followed:
        yield f"  recorded in the lock: {each}"
    if not successor.patches:
        there = (
            successor.report.nothing.sentence
            if successor.report is not None and successor.report.nothing
            else ""
        )
        yield f"  no gate was run: the candidate has no patches. {there}".rstrip()
        return
    if successor.report is None:
        yield "  no gate was run: the patches can be placed, nothing else was checked"
        if successor.variant.branch:
            words = successor.apply_args[2 : successor.apply_args.index("--upstream") + 2]
            no_gpu = ["--no-gpu"] if successor.variant.archs != (PLAIN,) else []
            yield f"    next: {shlex.join(['patchkit', 'verify', *words, *no_gpu])}"
        return
    for result in successor.report.gates:
        yield f"  {result.verdict:<8} {result.gate}: {result.summary}"


def _blocked_lines(successor: Successor, build: int) -> Iterator[str]:
    """What to fix, in order; patches that wait for another one are listed with that one."""
    if successor.blocked:
        yield "fix first, then bump again:"
    waiting: dict[str, list[str]] = {}
    for verdict in successor.verdicts:
        if verdict.waits_for is not None:
            waiting.setdefault(verdict.waits_for, []).append(verdict.id)
    hidden = {name for names in waiting.values() for name in names}
    for line in successor.blocked:
        name = line.partition(":")[0]
        if name not in hidden:
            yield f"  {line}"
        if name in waiting:
            yield f"    then {', '.join(waiting[name])}"
    if successor.missing:
        yield "will not compile:"
        yield from (f"  {line}" for line in successor.missing)
        yield f"  next: give the patch edits or files with first_build = {build},"
        yield "  or, for a name that is declared all the same, bump with --accept-missing NAME"


_LOSS_TEXTS = {
    "proven": "no longer needed, {why}",
    "accepted": "excluded by --without ({why})",
    "dropped": "EXCLUDED by --drop-conflicts ({why})",
    "unproven": "LOST, with no proof that upstream made it unnecessary ({why})",
}


def _loss_lines(successor: Successor) -> Iterator[str]:
    if successor.losses:
        yield f"no longer included (there were {len(successor.patches_before)} patches):"
    for loss in successor.losses:
        yield f"  {loss.id}: {_LOSS_TEXTS[loss.how].format(why=' '.join(loss.why.split()))}"


def bump_message(bump: Bump) -> str:
    """Subject and body of the commit that moves the lock."""
    lines = [f"Bump llama.cpp to {bump.new.title}", ""]
    for successor in bump.successors:
        since = " and ".join(pin.name for pin in successor.variant.pins)
        lines += [*_wrapped(f"{successor.variant}, from {since}:"), ""]
        for verdict in successor.verdicts:
            text = f"{verdict.id}: {verdict.patch_class}: {' '.join(verdict.reason.split())}"
            lines += _wrapped(text, "- ")
        named = [f"{loss.id} ({loss.how})" for loss in successor.losses if loss.how != "proven"]
        lines += ["", *_wrapped(f"Excluded: {', '.join(named)}.")] if named else []
        gates = successor.report.gates if successor.report is not None else ()
        passed = [gate.gate for gate in gates if gate.verdict == "passed"]
        emulated = [gate.gate for gate in gates if gate.verdict == EMULATED]
        modelled = [gate.gate for gate in gates if gate.verdict == MODELLED]
        others = [gate.gate for gate in gates if not gate.has_passed]
        if successor.patches:
            lines += ["", f"Passed: {', '.join(passed) or 'no gate was run'}."]
            lines += [f"Passed on an emulated GPU: {', '.join(emulated)}."] if emulated else []
            lines += [f"Passed by the timing model: {', '.join(modelled)}."] if modelled else []
            lines += [f"Not run: {', '.join(others)}."] if others else []
        else:
            lines += ["", "No gate was run: the candidate has no patches."]
        many = ", ".join(successor.patches) or "no patches, identical to upstream"
        name = successor.branch if successor.variant.branch else "No branch"
        lines += [
            "",
            *_wrapped(f"{name}: {many}."),
            f"Commit {successor.candidate.tip if successor.candidate else None},",
            f"tree {successor.tree}.",
        ]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _wrapped(text: str, first: str = "") -> list[str]:
    return textwrap.wrap(
        text, 72, initial_indent=first, subsequent_indent=" " * len(first), break_long_words=False
    )


def keep_report(bump: Bump, cache_root: Path) -> Path:
    """Write the report into the cache folder; raises CacheError.

    A bump that was not done gets a file of its own, because ``status`` counts its conflicts also after the
    next try.
    """
    tried = "" if bump.state == "done" else f"-{bump.state}"
    builds = f"{build_name(bump.old.build)}-{build_name(bump.new.build)}"
    path = cache_root / "reports" / f"bump-{builds}{tried}.json"
    write_whole(path, json.dumps(fields_of(bump), indent=1) + "\n", "writing the report")
    return path
