"""Watched forks: their new commits, and which patches of the series these resemble."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from patchkit.base.errors import PatchkitError
from patchkit.base.source import SourceText, Span
from patchkit.base.text import counted, one_line
from patchkit.carry.cpp.scopes import parse_scopes
from patchkit.carry.judging.changed import FunctionChange, function_changes
from patchkit.carry.judging.drift import list_statements
from patchkit.carry.remotes.pulls import STATE_TEXTS, blob_ids, read_versions
from patchkit.carry.series.catalogue import Series, Watch
from patchkit.carry.series.lock import Lock
from patchkit.carry.series.patch import Edit, Patch
from patchkit.carry.upstream.followed import MAIN, Answer, FollowedRemotes, Logged
from patchkit.carry.upstream.git import redacted

MOST_REPORTED = 100
"""New commits of one fork to report; a fork that was never fetched may have thousands."""
_RUN = 8  # tokens that a commit and a patch must share in one place; fewer are shared by chance
_MOST_FILES = 60  # files per commit; one with more is a squashed merge, and is not read
_MOST_READ = 600  # files of all new commits of one fork
_MOST_KNOWN = 5000  # commits of a branch before it was rebased
_LONGEST = 200  # characters of author and subject, which are untrusted
_SHOWN = 3  # names of one kind per patch


@dataclass(frozen=True, slots=True, kw_only=True)
class Resemblance:
    """A patch of the series that a commit resembles, with the similarities, strongest first."""

    patch: str
    by: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCommit:
    """A commit of a fork; ``files``: those of its changed files that the series reads."""

    commit: str
    author: str
    subject: str
    files: tuple[str, ...]
    resembles: tuple[Resemblance, ...]

    def lines(self) -> Iterator[str]:
        """As text."""
        yield f"{self.commit[:12]} {one_line(self.subject)} ({one_line(self.author)})"
        for each in self.resembles:
            yield f"  resembles {each.patch}: {one_line('; '.join(each.by))}"
        if not self.resembles:
            yield f"  resembles none of your patches: {one_line(_listed(self.files))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedFork:
    """The new commits of a ``[[watch]]`` branch: since ``seen``, or if that is None all that upstream lacks.

    ``asked``: the time of the last fetch. ``unlisted``: number of older new commits that are not listed.
    """

    json_keys: ClassVar = "name url=shown_url branch state asked seen tip commits unlisted notes"

    name: str
    url: str
    branch: str
    state: Literal["asked", "not there", "not asked"]
    asked: str | None = None
    asked_now: bool = False
    seen: str | None = None
    tip: str | None = None
    commits: tuple[NewCommit, ...] = ()
    unlisted: int = 0
    notes: tuple[str, ...] = ()

    @property
    def shown_url(self) -> str:
        """The URL without passwords."""
        return redacted(self.url)

    def lines(self) -> Iterator[str]:
        """As text."""
        when = f" (as of {self.asked})" if self.asked is not None else ""
        head = f"{self.name}, {self.branch}"
        if self.state != "asked":
            yield f"{head}: {STATE_TEXTS[self.state]}{when}"
        else:
            since = f"since {self.seen[:12]}" if self.seen is not None else "that upstream lacks"
            many = counted(len(self.commits) + self.unlisted, "commit")
            yield f"{head}: {many} {since}, in files that this series reads{when}"
        yield from (f"  {note}" for note in self.notes)
        for commit in self.commits:
            yield from (f"  {line}" for line in commit.lines())
        if self.unlisted:
            yield f"  ... and {self.unlisted} older commits"


def watch_name(watch: Watch) -> str:
    """The name of a watch, or the end of its URL."""
    return watch.name or "/".join(redacted(watch.url).rstrip("/").removesuffix(".git").split("/")[-2:])


def branch_ref(watch: Watch) -> str:
    """The ref of the watched branch on the remote."""
    return f"refs/heads/{watch.branch}"


def new_commits(
    watch: Watch,
    answer: Answer,
    mains: Sequence[str],
    seen: str | None,
    remotes: FollowedRemotes,
    series: Series,
) -> tuple[tuple[Logged, ...], int, tuple[str, ...]]:
    """The new commits to report, the number of older ones that are not, and notes.

    ``mains``: tips of upstream's main line, whose commits are not the fork's own.
    """
    tip = answer.refs.get(branch_ref(watch))
    if tip is None:
        return (), 0, ()
    notes = []
    without = [f"^{main}" for main in mains]
    if not mains:
        notes.append("upstream's main line was not fetched, so its commits are listed too")
    known: set[tuple[str, str]] = set()
    if seen is not None and remotes.has(seen):
        if remotes.git.is_ancestor(seen, tip):
            without.append(f"^{seen}")
        else:
            notes.append(
                "the branch was rebased; commits with the author, date and subject of a seen one are skipped"
            )
            before = remotes.log(seen, *without, most=_MOST_KNOWN, paths=series.read)
            known = {(each.author, each.subject) for each in before}
    elif seen is not None:
        notes.append(
            f"the last seen commit, {seen[:12]}, no longer exists; all commits of the fork are listed"
        )
    found = remotes.log(tip, *without, most=_MOST_KNOWN, paths=series.read)
    new = [each for each in found if (each.author, each.subject) not in known]
    return tuple(new[:MOST_REPORTED]), len(new[MOST_REPORTED:]), tuple(notes)


def fork_blobs(commits: Sequence[Logged]) -> Iterator[str]:
    """The blob ids that are needed to find what commits resemble."""
    left = _MOST_READ
    for commit in commits:
        left -= len(commit.changes)
        if len(commit.changes) <= _MOST_FILES and left >= 0:
            yield from blob_ids(commit.changes)


def judge_watch(
    watch: Watch,
    answer: Answer | None,
    mains: Sequence[str],
    lock: Lock,
    remotes: FollowedRemotes,
    series: Series,
    failure: str | None,
) -> WatchedFork:
    """What is new on a branch. Reads only; ``failure``: why the remote could not be fetched now."""
    seen = lock.seen(watch.url, watch.branch)
    found = WatchedFork(
        name=watch_name(watch),
        url=watch.url,
        branch=watch.branch,
        state="not asked",
        seen=seen,
        notes=(f"fetch failed: {failure}",) if failure is not None else (),
    )
    if answer is None or branch_ref(watch) not in answer.refs:
        return found
    tip = answer.refs[branch_ref(watch)]
    found = replace(found, asked=answer.asked, tip=tip)
    if tip is None:
        return replace(found, state="not there", notes=(*found.notes, "the remote has no such branch"))
    commits, unlisted, notes = new_commits(watch, answer, mains, seen, remotes, series)
    shapes = [_Shape.of(patch) for patch in series.patches]
    return replace(
        found,
        state="asked",
        commits=tuple(_new_commit(commit, shapes, remotes) for commit in commits),
        unlisted=unlisted,
        notes=(*found.notes, *notes),
    )


def main_line(answer: Answer | None) -> str | None:
    """The tip of a remote's main line."""
    return answer.refs.get(MAIN) if answer is not None else None


def _new_commit(commit: Logged, shapes: Sequence[_Shape], remotes: FollowedRemotes) -> NewCommit:
    files = tuple(change.path for change in commit.changes)
    versions = read_versions(commit.changes, remotes) if len(files) <= _MOST_FILES else None
    changes = function_changes(versions) if versions is not None else ()
    alike = ((shape.patch, tuple(shape.like(files, changes))) for shape in shapes)
    return NewCommit(
        commit=commit.commit,
        author=commit.author[:_LONGEST],
        subject=commit.subject[:_LONGEST],
        files=files[:MOST_REPORTED],
        resembles=tuple(Resemblance(patch=patch, by=by) for patch, by in alike if by),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """What a patch touches: files, functions by file, and runs of tokens that it adds."""

    patch: str
    files: frozenset[str]
    functions: frozenset[tuple[str, str]]
    runs: frozenset[tuple[str, ...]]

    @classmethod
    def of(cls, patch: Patch) -> _Shape:
        files = patch.touched_files
        return cls(
            patch=patch.id,
            files=files,
            functions=frozenset((edit.file, edit.function) for edit in patch.edits if edit.function),
            runs=frozenset(run for edit in patch.edits for run in _own_runs(edit)),
        )

    def like(self, files: Sequence[str], changes: Sequence[FunctionChange]) -> Iterator[str]:
        """The similarities of a commit with the patch, strongest first."""
        touched = [
            each.place
            for each in changes
            if any(
                each.file == file and (each.function == name or each.function.endswith(f"::{name}"))
                for file, name in self.functions
            )
        ]
        if touched:
            yield f"function {_listed(touched)}"
        shared = next((run for each in changes for run in _new_runs(each) if run in self.runs), None)
        if shared is not None:
            yield f"tokens '{' '.join(shared)}'"
        same = [path for path in files if path in self.files]
        if same and not touched:
            yield f"file {_listed(same)}"


def _own_runs(edit: Edit) -> Iterator[tuple[str, ...]]:
    """Runs of tokens in an edit's text, without those of its selector and of template expressions."""
    if edit.text is None:
        return
    found = _runs(_words(edit.text))
    existing = set(_runs(_words(edit.at.tokens or ""))) if edit.at is not None else set()
    yield from (run for run in found if "@" not in run and run not in existing)


def _words(text: str) -> list[str]:
    try:
        scopes = parse_scopes(SourceText("<text>", text.encode()))
        statements = list_statements(scopes, Span(0, len(scopes.source.data))).texts
    except (PatchkitError, RecursionError):
        return []
    return " ".join(statements).split(" ")


def _new_runs(change: FunctionChange) -> Iterator[tuple[str, ...]]:
    existing = set(_runs(" ".join(change.removed).split(" ")))
    yield from (run for run in _runs(" ".join(change.added).split(" ")) if run not in existing)


def _runs(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    return (tuple(words[at : at + _RUN]) for at in range(len(words) - _RUN + 1))


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"
