"""Merge the last rendering of a patch onto a new upstream with git, and decide whether to trust the result.

git looks at the lines around a change and ignores which function they are in. So a merge without conflicts is
accepted only if each change is still in the same function and no line of either side is lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from patchkit.base.reporter import Reporter
from patchkit.base.source import SourceText
from patchkit.carry.cpp.scopes import Entity, ScopeMap, is_code, parse_scopes
from patchkit.carry.judging.commute import are_complete
from patchkit.carry.judging.conflict_markers import Labels, interleave, list_conflicts, shorten_conflicts
from patchkit.carry.judging.derive import merge_file
from patchkit.carry.judging.line_diff import Block, compare_lines
from patchkit.carry.judging.rendering import Rendering
from patchkit.carry.placing.tree import UpstreamFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedFile:
    """One file of a patch: ``base`` without and ``patched`` with it on the old upstream, and its merge.

    ``upstream``: the file in the new upstream, at ``path``; None if there is none. ``was``: its path in the
    old one. ``merged`` has git's markers if there are ``conflicts``. ``doubt``: why a user has to check the
    merge; empty if it is accepted.
    """

    path: str
    was: str
    base: bytes | None
    patched: bytes
    upstream: bytes | None
    merged: bytes
    conflicts: int = 0
    doubt: str = ""

    @property
    def is_new(self) -> bool:
        """Whether the patch adds this file, and the new upstream does not have it either."""
        return self.base is None and self.upstream is None

    @property
    def is_left(self) -> bool:
        """Whether the patch still changes something in the file."""
        return self.merged != self.upstream


def unmergeable_files(last: Rendering) -> tuple[str, ...]:
    """Files that a patch renames, replaces or changes the mode of, which edits of lines cannot express."""
    placed = last.placed
    if placed is None:
        return ()
    return tuple(sorted({*placed.renamed, *placed.replaced, *placed.modes}))


def has_two_insertions(file: MergedFile, labels: Labels) -> bool:
    """Whether every conflict of a merge is of two complete insertions at the same place."""
    conflicts = list(list_conflicts(file.merged.split(b"\n"), labels))
    return bool(conflicts) and all(
        interleave(each, "after") is not None and are_complete(file.path, each.upstream, each.patch)
        for each in conflicts
    )


def _stays(path: str) -> str:
    return path


def merge_rendering(
    last: Rendering,
    files: UpstreamFiles,
    labels: Labels,
    reporter: Reporter,
    find: Callable[[str], str] = _stays,
) -> tuple[MergedFile, ...]:
    """Merge every file of a rendering with ``files``, in order of their paths.

    Args:
        last: the patch as placed on the old upstream.
        files: the new upstream with the earlier patches of the series.
        labels: names of the patch, the old and the new upstream, for conflict markers.
        reporter: logs the git commands.
        find: maps a path of the old upstream to the new one.

    Raises GitError and CacheError, as :func:`patchkit.carry.judging.derive.merge_file`.
    """
    return tuple(
        _merge(was, find(was), (last.before.get(was), after), files, labels, reporter)
        for was, after in sorted(last.changes.items())
    )


def _merge(
    was: str,
    path: str,
    versions: tuple[bytes | None, bytes],
    files: UpstreamFiles,
    labels: Labels,
    reporter: Reporter,
) -> MergedFile:
    base, patched = versions
    upstream = files.read(path)
    if upstream is None:
        doubt = "" if base is None else "upstream no longer has this file"
        return MergedFile(
            path=path, was=was, base=base, patched=patched, upstream=None, merged=patched, doubt=doubt
        )
    if any(b"\0" in (data or b"") for data in (base, patched, upstream)):
        doubt = "" if upstream == patched else "binary file"
        return MergedFile(
            path=path, was=was, base=base, patched=patched, upstream=upstream, merged=patched, doubt=doubt
        )
    merged, conflicts = merge_file(patched, base or b"", upstream, reporter, labels)
    if conflicts:
        merged, conflicts = shorten_conflicts(merged, labels)
    doubt = f"{conflicts} conflicts" if conflicts > 1 else "a conflict" if conflicts else ""
    if base is None and merged != upstream:
        doubt = "upstream now has a file of this name"
    elif not conflicts and merged != upstream:
        doubt = doubt_of(
            SourceText(was, base or b""), SourceText(was, patched), SourceText(path, upstream),
            SourceText(path, merged),
        )  # fmt: skip
    return MergedFile(
        path=path,
        was=was,
        base=base,
        patched=patched,
        upstream=upstream,
        merged=merged,
        conflicts=conflicts,
        doubt=doubt,
    )


def doubt_of(base: SourceText, patched: SourceText, upstream: SourceText, merged: SourceText) -> str:
    """Why a merge without conflicts is not accepted: lines are lost, or a change is in another function."""
    lost = _loses(base.data, patched.data, upstream.data, merged.data)
    return lost or _is_elsewhere(base, patched, upstream, merged)


def _loses(base: bytes, patched: bytes, upstream: bytes, merged: bytes) -> str:
    """Text if lines of upstream or of the patch do not occur as often as expected; empty if all do."""
    counts = [Counter(data.split(b"\n")) for data in (base, patched, upstream, merged)]
    expected = counts[2].copy()
    expected.update(counts[1])
    expected.subtract(counts[0])
    actual = counts[3]
    if all(actual[row] == count for row, count in expected.items()) and actual.keys() <= expected.keys():
        return ""
    return "upstream already has a part of the change"


def _is_elsewhere(base: SourceText, patched: SourceText, upstream: SourceText, merged: SourceText) -> str:
    """Text if a change is now in another function; empty if each is in the same one."""
    if not is_code(base.path):
        return ""
    before = list(_holders(base, patched))
    after = list(_holders(upstream, merged))
    if len(before) == len(after) and all(
        was.is_same(now) or _is_renamed((base, was.inside), (upstream, now.inside))
        for was, now in zip(before, after, strict=True)
    ):
        return ""
    was, now = (", ".join(dict.fromkeys(each.text for each in holders)) for holders in (before, after))
    return f"a change that was {was} is now {now}"


_SAME_ROWS = 0.8
"""Share of lines that a renamed definition has in common with the old one."""


def _is_renamed(old: tuple[SourceText, str], new: tuple[SourceText, str]) -> bool:
    """Whether a definition has the same lines in the new file, under a name that the old one lacks."""
    sides = []
    for source, name in (old, new):
        named = [each for each in parse_scopes(source).definitions if each.name == name]
        if len(named) != 1:
            return False
        rows = source.text(named[0].span).split(b"\n")
        sides.append([row.strip() for row in rows if row.strip()])
    for source, name in ((new[0], old[1]), (old[0], new[1])):
        if any(each.name == name for each in parse_scopes(source).definitions):
            return False
    # By counting: aligning the lines of the largest classes would take minutes.
    both = (Counter(sides[0]) & Counter(sides[1])).total()
    return 2 * both >= _SAME_ROWS * sum(map(len, sides))


@dataclass(frozen=True, slots=True)
class _Holder:
    """The innermost definition around a change (``inside``), or else the ones ``above`` and ``below`` it."""

    inside: str = ""
    above: str = ""
    below: str = ""

    @property
    def text(self) -> str:
        """As text."""
        if self.inside:
            return f"in '{self.inside}'"
        places = [f"after '{self.above}'"] if self.above else []
        places += [f"before '{self.below}'"] if self.below else []
        return " and ".join(places) or "in the file"

    def is_same(self, other: _Holder) -> bool:
        """Whether both are the same place. Between definitions one common neighbour suffices."""
        if self.inside or other.inside or self == other:
            return self.inside == other.inside
        return self.above == other.above or self.below == other.below


def _holders(old: SourceText, new: SourceText) -> Iterator[_Holder]:
    """The holder of each change; consecutive changes with the same holder give it once."""
    scopes = parse_scopes(old)
    last: _Holder | None = None
    for block in compare_lines(old.rows, new.rows):
        found = _holder(scopes, block)
        if found != last:
            yield found
        last = found


def _holder(scopes: ScopeMap, block: Block) -> _Holder:
    entities = sorted(scopes.definitions, key=lambda each: each.span)
    inside: Entity | None = None
    above, below = "", ""
    for entity in entities:
        lines = scopes.source.lines_of(entity.span)
        if block.is_in(lines):
            inside = entity
        elif lines.stop <= block.old:
            above = entity.name
        elif lines.start >= block.old_end and not below:
            below = entity.name
    if inside is None:
        return _Holder(above=above, below=below)
    same = [each for each in entities if each.name == inside.name]
    rank = f" ({same.index(inside) + 1} of {len(same)})" if len(same) > 1 else ""
    return _Holder(inside=f"{inside.name}{rank}")
