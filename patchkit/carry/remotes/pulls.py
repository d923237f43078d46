"""The state of the pull requests that patches come from, as far as it can be determined with git alone.

``refs/pull/N/head`` remains when a pull request is closed. ``refs/pull/N/merge`` exists while one is open and
without conflicts, on hosts that create it at all; if it is gone, the pull request is closed or in conflict,
and git cannot distinguish these. A pull request is merged if its head is in the main line, or if the subject
of a commit of the main line ends with ``(#N)``, which GitHub writes for squash merges.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple

from patchkit.base.text import one_line
from patchkit.base.upstreams import build_name
from patchkit.carry.judging.changed import MOST_FILES, Difference, Versions, compare_changes
from patchkit.carry.series.catalogue import Series
from patchkit.carry.series.lock import Pin
from patchkit.carry.series.patch import Patch
from patchkit.carry.upstream.followed import MAIN, Answer, FollowedRemotes
from patchkit.carry.upstream.git import Change, redacted

PullState = Literal[
    "unchanged", "changed", "merged", "closed or in conflict", "not compared", "not there", "not asked"
]
STATE_TEXTS = {"not there": "does not exist", "not asked": "not fetched yet"}
"""States as shown in text; all others are shown as they are."""
_PULL = re.compile(r"(?P<remote>.+?)/pulls?/(?P<number>[1-9][0-9]{0,9})/?")
_MAKES_MERGES = re.compile(r"https://(?:[^/@]*@)?github\.com/")
_NO_FILE = "000000"  # the mode of a file that does not exist
_SUBMODULE = "160000"
_MOST_COMMITS = 50_000  # commits of the main line whose subjects are searched


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedPull:
    """The pull request of a patch; ``recorded``: base and head of the imported change, if recorded."""

    patch: str
    remote: str
    number: int
    recorded: tuple[str, str] | None

    @property
    def head_ref(self) -> str:
        """The remote's ref for its newest commit."""
        return f"refs/pull/{self.number}/head"

    @property
    def merge_ref(self) -> str:
        """The host's ref for its merge with the main line; it exists while it is open without conflicts."""
        return f"refs/pull/{self.number}/merge"


def named_pull(patch: Patch) -> NamedPull | None:
    """The pull request of a submitted patch, from its URL ``REMOTE/pull/N``; None if it names none."""
    table = patch.upstream
    if patch.status != "submitted":
        return None
    url = table.url if table is not None and table.url is not None else next(iter(patch.links), "")
    found = _PULL.fullmatch(url)
    if found is None:
        return None
    recorded = (table.base, table.head) if table is not None and table.base and table.head else None
    return NamedPull(patch=patch.id, remote=found["remote"], number=int(found["number"]), recorded=recorded)


def named_pulls(series: Series) -> tuple[NamedPull, ...]:
    """The pull requests of all patches, in their order."""
    return tuple(pull for patch in series.patches if (pull := named_pull(patch)) is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """The commit of the main line that merged a pull request, how it was found, and its first build."""

    commit: str
    how: str
    build: int | None

    def __str__(self) -> str:
        return (
            f"{f'{build_name(self.build)}, ' if self.build is not None else ''}{self.commit[:12]}: {self.how}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedPull:
    """The state of a patch's pull request at the last fetch.

    ``asked``: the time of that fetch. ``is_offered``: whether it is open and has no conflicts; None if the
    remote does not provide this. ``in_pin``: whether the pin contains it; None if it is not merged, or
    unknown.
    """

    json_keys: ClassVar = (
        "patch number remote=shown_remote state asked recorded head merged in_pin is_offered "
        "differences notes"
    )

    patch: str
    number: int
    remote: str
    state: PullState
    asked: str | None = None
    recorded: str | None = None
    head: str | None = None
    merged: Merged | None = None
    in_pin: bool | None = None
    is_offered: bool | None = None
    differences: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def shown_remote(self) -> str:
        """The remote's URL without passwords."""
        return redacted(self.remote)

    def lines(self, pin: str) -> Iterator[str]:
        """As text; ``pin``: name of the pin of ``in_pin``."""
        when = f" (as of {self.asked})" if self.asked is not None else ""
        state = STATE_TEXTS.get(self.state, self.state)
        yield f"{self.patch}: pull request {self.number} of {self.shown_remote}: {state}{when}"
        if self.merged is not None:
            here = {
                True: f"{pin} contains it",
                False: f"{pin} does not contain it yet",
                None: f"not known whether {pin} contains it",
            }
            yield f"  merged in {one_line(str(self.merged))}; {here[self.in_pin]}"
        yield from (f"  {note}" for note in self.notes)
        for difference in self.differences:
            yield from (f"  {line}" for line in difference.lines())


class _Ends(NamedTuple):
    base: str
    head: str


def ends_of(pull: NamedPull, answer: Answer, remotes: FollowedRemotes) -> tuple[_Ends, ...]:
    """The recorded and the newest change of a pull request, as far as their commits were fetched."""
    head, main = answer.refs.get(pull.head_ref), answer.refs.get(MAIN)
    if head is None or pull.recorded is None:
        return ()
    if head == pull.recorded[1]:
        recorded = _Ends(*pull.recorded)
        return (recorded,) if all(map(remotes.has, recorded)) else ()
    base = remotes.merge_base(head, main) if main is not None else None
    wanted = [_Ends(*pull.recorded), *([_Ends(base, head)] if base is not None else [])]
    return tuple(ends for ends in wanted if all(map(remotes.has, ends)))


def find_merge(pull: NamedPull, answer: Answer, remotes: FollowedRemotes) -> tuple[str, str] | None:
    """The commit of the main line that merged the pull request, and how that was found."""
    head, main = answer.refs.get(pull.head_ref), answer.refs.get(MAIN)
    if head is None or main is None:
        return None
    if remotes.git.is_ancestor(head, main):
        return head, "the main line contains its newest commit"
    base = remotes.merge_base(head, main)
    span = main if base is None else f"{base}..{main}"
    squashed = [
        each
        for each in remotes.log("--first-parent", span, most=_MOST_COMMITS)
        if each.subject.rstrip().endswith(f"(#{pull.number})")
    ]
    if not squashed:
        return None
    return squashed[-1].commit, f"a commit of the main line names it: {one_line(squashed[-1].subject)}"


def judge_pull(
    pull: NamedPull, answer: Answer | None, remotes: FollowedRemotes, pin: Pin, failure: str | None
) -> FollowedPull:
    """The state of a pull request. Reads only; ``failure``: why the remote could not be fetched now."""
    found = FollowedPull(
        patch=pull.patch,
        number=pull.number,
        remote=pull.remote,
        state="not asked",
        recorded=pull.recorded[1] if pull.recorded else None,
        notes=(f"fetch failed: {failure}",) if failure is not None else (),
    )
    if answer is None or pull.head_ref not in answer.refs:
        return found
    head = answer.refs[pull.head_ref]
    found = replace(found, asked=answer.asked, head=head)
    if head is None:
        return _noted(replace(found, state="not there"), f"the remote has no {pull.head_ref}")
    has_merge = answer.refs.get(pull.merge_ref) is not None
    if has_merge or answer.merges or _MAKES_MERGES.match(pull.remote):
        found = replace(found, is_offered=has_merge)
    merge = find_merge(pull, answer, remotes)
    if merge is not None:
        merged = Merged(commit=merge[0], how=merge[1], build=answer.builds.get(merge[0]))
        return replace(found, state="merged", merged=merged, in_pin=_is_in(merged, pin, remotes))
    if pull.recorded is None:
        found = _noted(replace(found, state="not compared"), _ends_to_write(head, answer, remotes))
    elif head == pull.recorded[1]:
        found = replace(found, state=_unchanged_state(found))
    else:
        found = _compared(found, pull, answer, remotes)
    return _noted(found, *_offer(found))


def _ends_to_write(head: str, answer: Answer, remotes: FollowedRemotes) -> str:
    main = answer.refs.get(MAIN)
    base = remotes.merge_base(head, main) if main is not None else None
    text = "patch.toml does not record the commits that it was made from"
    if base is None:
        return text
    return f'{text}; if it was these, write below [upstream]: head = "{head}" and base = "{base}"'


def _noted(found: FollowedPull, *notes: str) -> FollowedPull:
    return replace(found, notes=(*found.notes, *notes))


def _unchanged_state(found: FollowedPull) -> PullState:
    """The state of a pull request whose code is still the imported one."""
    return "unchanged" if found.is_offered is not False else "closed or in conflict"


def _compared(found: FollowedPull, pull: NamedPull, answer: Answer, remotes: FollowedRemotes) -> FollowedPull:
    """The state of a pull request with a new head, by comparing the code with the imported one."""
    changed = replace(found, state="changed")
    ends = ends_of(pull, answer, remotes)
    if len(ends) != 2:  # noqa: PLR2004  the recorded change and the newest one
        gone = pull.recorded is not None and not all(map(remotes.has, pull.recorded))
        why = "the remote no longer has the imported commits" if gone else "no common history"
        return _noted(changed, f"cannot show what changed: {why}")
    changes = [remotes.git.changes(*each) for each in ends]
    if max(map(len, changes)) > MOST_FILES:
        return _noted(changed, f"cannot show what changed: more than {MOST_FILES} files")
    old, new = (read_versions(each, remotes) for each in changes)
    if old is None or new is None:
        return _noted(changed, "cannot show what changed: the contents of its files were not fetched")
    differences = compare_changes(old, new)
    if differences:
        return replace(changed, differences=differences)
    same = f"new head {(found.head or '')[:12]} without changes in code: only the base or comments differ"
    return _noted(replace(found, state=_unchanged_state(found)), same)


def blob_ids(changes: Sequence[Change]) -> Iterator[str]:
    """The blob ids of the files of a change."""
    for change in changes:
        for mode, sha in zip(change.modes, change.ids, strict=True):
            if mode not in (_SUBMODULE, _NO_FILE):
                yield sha


def read_versions(changes: Sequence[Change], remotes: FollowedRemotes) -> tuple[Versions, ...] | None:
    """The files of a change, before and after; None if some contents were not fetched."""
    blobs = remotes.read(blob_ids(changes))
    if any(sha not in blobs for sha in blob_ids(changes)):
        return None

    def data(mode: str, sha: str) -> bytes | None:
        return None if mode == _NO_FILE else blobs.get(sha, sha.encode())

    return tuple(Versions(change.path, *map(data, change.modes, change.ids)) for change in changes)


def _offer(found: FollowedPull) -> tuple[str, ...]:
    name = f"refs/pull/{found.number}/merge"
    if found.is_offered is None:
        return (f"not known whether it is open: this remote has never had {name}",)
    if not found.is_offered:
        return (f"closed or in conflict with the main line (there is no {name}; git cannot tell which)",)
    return ()


def _is_in(merged: Merged, pin: Pin, remotes: FollowedRemotes) -> bool | None:
    if pin.commit is not None and remotes.has(pin.commit):
        return remotes.git.is_ancestor(merged.commit, pin.commit)
    return pin.build >= merged.build if merged.build is not None else None
