"""Find the earlier patches that a patch requires: it cannot be placed without them, or it uses their names.

The patches are stacked on one tree. For each earlier patch that changes a file of a new one, the new one is
placed on the tree without it, by structure. So lines of context, as in a diff, do not matter. If it can be
placed there, but git's merge gives other code, the earlier patch is required as well.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from patchkit.base.errors import PatchkitError, members_of
from patchkit.base.reporter import Reporter
from patchkit.base.series_folder import SeriesDir
from patchkit.base.source import SourceText, Span
from patchkit.carry.cpp.lexer import TokenKind
from patchkit.carry.cpp.scopes import ScopeMap, is_code, parse_scopes
from patchkit.carry.judging.derive import compare_derivations, merge_file
from patchkit.carry.judging.line_diff import compare_lines
from patchkit.carry.judging.rendering import Rendering
from patchkit.carry.placing.place import PlacedPatch, place_patch
from patchkit.carry.placing.tree import UpstreamFiles
from patchkit.carry.series.patch import Patch, path_of

Requirement = tuple[str, str]
"""The id of a required patch, and the reason."""

# Words before a name that do not declare it: it is an expression.
_NO_TYPE = frozenset({
    b"return", b"else", b"case", b"goto", b"new", b"delete", b"throw", b"sizeof", b"do", b"co_return",
    b"operator", b"not", b"and", b"or", b"if", b"while", b"using", b"namespace",
})  # fmt: skip
_POINTERS = frozenset({b"*", b"&", b"&&", b"const", b"__restrict__", b"restrict"})
_AFTER_NAME = frozenset({b"=", b";", b",", b"(", b"[", b"{", b":", b")"})
_BEFORE_TYPE = frozenset({b"{", b"}", b";", b":", b">"})
_LONGEST_TYPE = 40  # tokens


@dataclass(frozen=True, slots=True)
class _Name:
    """A name that a patch declares; ``function``: where it is local, None if it is not."""

    text: bytes
    path: str
    function: str | None


@dataclass(slots=True)
class _Entry:
    """A patch of the stack. ``below``: all patches that it requires, directly or not.

    ``without``: the tree without it and the patches that require it, with those before ``applied``.
    """

    rendering: Rendering
    below: frozenset[str]
    without: UpstreamFiles | None = None
    applied: int = 0
    declared: tuple[_Name, ...] | None = None

    @property
    def id(self) -> str:
        return self.rendering.patch.id


@dataclass(slots=True, kw_only=True)
class PatchStack:
    """Patches that are placed on one tree, in order. ``base``: the tree without patches.

    ``series``: the folders in which their templates are.
    """

    base: UpstreamFiles
    series: SeriesDir
    reporter: Reporter
    entries: dict[str, _Entry] = field(default_factory=dict)
    _known: dict[bytes, bool] = field(default_factory=dict)

    def add(self, rendering: Rendering, requires: Iterable[str]) -> None:
        """Put a placed patch on top; ``requires``: the ids of the patches of the stack that it requires."""
        below = self.closure(requires)
        self.entries[rendering.patch.id] = _Entry(rendering, frozenset(below))

    def closure(self, names: Iterable[str]) -> set[str]:
        """These patches of the stack, and all that they require."""
        known = [name for name in names if name in self.entries]
        return set(known).union(*(self.entries[name].below for name in known))

    def least(self, names: Collection[str]) -> list[str]:
        """The patches, in order, except those that another one of them requires anyway."""
        implied: set[str] = set().union(*(self.entries[name].below for name in names))
        return [name for name in self.entries if name in names and name not in implied]

    def requirements(self, rendering: Rendering) -> tuple[Requirement, ...]:
        """The smallest set of patches of the stack that a placed patch requires, in order.

        ``rendering``: the patch, placed on top of the whole stack. Raises GitError and CacheError.
        """
        if not self.entries:
            return ()
        why = dict(self._named(rendering))
        touching = self._touching(rendering)
        for name in touching:
            reason = self.reason(rendering, name)
            if reason:
                why.setdefault(name, reason)
        needed = set(why)
        rest = [name for name in touching if name not in self.closure(needed)]
        if len(rest) > 1 and self._misfit(rendering, self._with(self.closure(needed))):
            # Each of several patches can be missing, but not all of them.
            kept = set(touching) | needed
            for name in rest:
                less = {each for each in kept if name not in self.closure([each])}
                if not self._misfit(rendering, self._with(self.closure(less))):
                    kept = less
            why |= dict.fromkeys(kept - needed, "without it and similar patches it has no place")
            needed = kept
        return tuple((name, why[name]) for name in self.least(needed))

    def reason(self, rendering: Rendering, name: str) -> str:
        """Why a patch on top of the stack cannot be placed without one of the stack; empty if it can.

        Raises GitError and CacheError.
        """
        return self._misfit(rendering, self._without(name))

    def reasons(self, rendering: Rendering, names: Collection[str], others: Iterable[str]) -> dict[str, str]:
        """Why a patch on top of the stack requires some of its patches, apart from those that others require.

        ``names``: the patches in question; ``others``: other patches that it requires. Raises GitError and
        CacheError.
        """
        named = dict(self._named(rendering))
        why = {name: named.get(name) or self.reason(rendering, name) for name in names}
        needed = {name for name, reason in why.items() if reason} - self.closure(others)
        return {name: why[name] for name in self.least(needed)}

    def tree(self, names: Collection[str]) -> UpstreamFiles:
        """The tree with only these patches, and without those of them that require another one."""
        return self._with([name for name in names if self.entries[name].below <= {*names}])

    def _touching(self, rendering: Rendering) -> list[str]:
        """The patches of the stack that change or name a file of a patch."""
        mine = _paths(rendering)
        return [each.id for each in self.entries.values() if _paths(each.rendering) & mine]

    def _without(self, name: str) -> UpstreamFiles:
        """The tree without a patch and those that require it."""
        entry = self.entries[name]
        others = list(self.entries.values())
        if entry.without is None:
            entry.without = self.base.fresh()
        for other in others[entry.applied :]:
            if other is not entry and name not in other.below:
                self._replay(other.rendering, entry.without)
        entry.applied = len(others)
        return entry.without

    def _with(self, names: Collection[str]) -> UpstreamFiles:
        """The tree with only these patches."""
        files = self.base.fresh()
        for entry in self.entries.values():
            if entry.id in names:
                self._replay(entry.rendering, files)
        return files

    def _replay(self, rendering: Rendering, files: UpstreamFiles) -> None:
        """Write a patch to another tree than the one that it was placed on."""
        placed = rendering.placed
        if placed is None:
            return
        changes: dict[str, bytes] = {}
        for path, after in placed.changes.items():
            before, ours = rendering.before.get(path), files.read(path)
            if ours == before or before is None or ours is None:
                changes[path] = after
                continue
            merged, conflicts = merge_file(ours, before, after, self.reporter)
            if conflicts:
                again = self._place(rendering, files, [path])
                merged = again.changes.get(path, ours) if isinstance(again, PlacedPatch) else ours
            changes[path] = merged
        files.write(changes, placed.gone, placed.modes)

    def _misfit(self, rendering: Rendering, files: UpstreamFiles) -> str:
        """Why a patch cannot be placed on another tree, or has another result there; empty if neither."""
        before = rendering.before
        paths = [path for path in sorted(_paths(rendering)) if files.read(path) != before.get(path)]
        paths = [path for path in paths if self._matters(rendering, path, files.read(path))]
        again = self._place(rendering, files, paths) if paths else None
        if isinstance(again, str):
            return again
        if again is None or rendering.placed is None:
            return ""
        current = {path: data for path in paths if (data := files.read(path)) is not None}
        agreement = compare_derivations(
            {path: data for path, data in before.items() if path in paths},
            {path: data for path, data in rendering.placed.changes.items() if path in paths},
            current,
            {path: data for path, data in again.changes.items() if path in paths},
            self.reporter,
        )
        different = agreement.verdict == "differ"
        return f"without it, its change of {', '.join(paths)} has another result" if different else ""

    def _matters(self, rendering: Rendering, path: str, data: bytes | None) -> bool:
        """Whether a file with other content could change where the edits of a patch are placed in it."""
        before = rendering.before.get(path)
        edits = [edit for edit in rendering.patch.edits if edit.file == path]
        if data is None or before is None or not edits or _is_whole(rendering.patch):
            return True
        scopes = parse_scopes(SourceText(path, before))
        new = SourceText(path, data)
        blocks = compare_lines(scopes.source.rows, new.rows)
        rows = [(scopes.source.rows[b.old : b.old_end], new.rows[b.new : b.new_end]) for b in blocks]
        changed = b"\n".join(row for sides in rows for side in sides for row in side)
        for edit in edits:
            if edit.function is None or edit.verb == "add_include":
                return True
            last = edit.function.rpartition("::")[2].encode()
            found = [each for each in scopes.entities if each.answers_to(edit.function)]
            if not found or re.search(rb"\b" + re.escape(last) + rb"\b", changed):
                return True
            for entity in found:
                first, end = (scopes.source.line_of(at) - 1 for at in (entity.span.start, entity.span.end))
                if any(block.old <= end and block.old_end >= first for block in blocks):
                    return True
        return False

    def _place(self, rendering: Rendering, files: UpstreamFiles, paths: Collection[str]) -> PlacedPatch | str:
        """The part of a patch for some files, placed on a tree; or why it cannot be."""
        patch = rendering.patch
        if not _is_whole(patch):
            patch = patch.only([each for each in patch.parts if path_of(each) in paths])
        part = replace(rendering.selected, patch=patch)
        try:
            return place_patch(part, files, self.series.patches, self.series.templates, by_clang=False)
        except PatchkitError as error:
            return _format_misfit(tuple(members_of(error)), part.patch, paths)

    def _named(self, rendering: Rendering) -> Iterator[Requirement]:
        """The patches of the stack that declare a name which upstream does not have and a patch uses."""
        used: dict[bytes, set[tuple[str, str | None]]] = {}
        own: set[bytes] = set()
        for scopes, span in _added(rendering):
            own |= {name.text for name in _declared(scopes, span)}
            for text, function in _identifiers(scopes, span):
                used.setdefault(text, set()).add((scopes.source.path, function))
        for entry in self.entries.values():
            if entry.declared is None:
                entry.declared = tuple(_new_names(entry.rendering))
            for name in entry.declared:
                if name.text not in used or name.text in own:
                    continue
                here = name.function is None or (name.path, name.function) in used[name.text]
                if here and (name.function is not None or not self._has(name.text)):
                    shown = name.text.decode("utf-8", "replace")
                    yield entry.id, f"it uses '{shown}', which '{entry.id}' declares in {name.path}"
                    break

    def _has(self, name: bytes) -> bool:
        """Whether a file of upstream has a name anywhere, among those that are read."""
        if name not in self._known:
            word = re.compile(rb"\b" + re.escape(name) + rb"\b")
            self._known[name] = any(word.search(data) for data in self.base.base.values())
        return self._known[name]


def _paths(rendering: Rendering) -> set[str]:
    """The files that a patch names or changes."""
    placed = rendering.placed
    return {
        *rendering.before,
        *rendering.changes,
        *(placed.gone if placed else ()),
    }


def _is_whole(patch: Patch) -> bool:
    """Whether a patch replaces, removes or renames files, or changes their mode."""
    return bool(patch.removes or patch.renames or patch.modes or any(file.replaces for file in patch.files))


def _format_misfit(errors: Sequence[PatchkitError], patch: Patch, paths: Collection[str]) -> str:
    places = {edit.where: edit for edit in patch.edits}
    for error in errors:
        edit = next((places[where] for where in error.where if where in places), None)
        if edit is not None:
            return f"without it, edit '{edit.id}' has no place in {edit.file}"
    return f"without it, its change of {', '.join(paths)} has no place"


def _added(rendering: Rendering) -> Iterator[tuple[ScopeMap, Span]]:
    """The lines that a patch adds to files of code, as spans of the files after it."""
    for path, after in rendering.changes.items():
        if not is_code(path) or b"\0" in after:
            continue
        scopes = parse_scopes(SourceText(path, after))
        old = SourceText(path, rendering.before.get(path, b""))
        for block in compare_lines(old.rows, scopes.source.rows):
            if block.new < block.new_end:
                start = scopes.source.line_span(block.new + 1).start
                yield scopes, Span(start, scopes.source.line_span(block.new_end).end)


def _identifiers(scopes: ScopeMap, span: Span) -> Iterator[tuple[bytes, str | None]]:
    """The names in a part of a file, each with the function that it is in."""
    for at in scopes.code_in(span):
        token = scopes.code[at]
        if token.kind is TokenKind.IDENTIFIER:
            yield token.text, _function(scopes, token.span)
    for line in scopes.directives:
        if span.contains(line.span):
            yield from ((token.text, None) for token in line.tokens if token.kind is TokenKind.IDENTIFIER)


def _function(scopes: ScopeMap, span: Span) -> str | None:
    """The function in whose parameters or body a token is; None for its own name, and outside."""
    entity = scopes.enclosing(span)
    if entity is None or entity.kind != "function":
        return None
    return entity.name if entity.parameters.contains(span) or entity.body.contains(span) else None


def _declared(scopes: ScopeMap, span: Span) -> Iterator[_Name]:
    """The names that a part of a file declares, as far as its tokens show."""
    path, code = scopes.source.path, scopes.code
    enums = [each.body for each in scopes.enums]
    for at in scopes.code_in(span):
        token = code[at]
        if token.kind is not TokenKind.IDENTIFIER or not 0 < at < len(code) - 1:
            continue
        before, after = code[at - 1].text, code[at + 1].text
        in_enum = any(body.contains(token.span) for body in enums)
        is_value = in_enum and before in (b"{", b",") and after in (b",", b"=", b"}")
        if is_value or (after in _AFTER_NAME and _is_after_type(scopes, at)):
            yield _Name(token.text, path, None if is_value else _function(scopes, token.span))
    for line in scopes.directives:
        if line.keyword == b"define" and line.tokens and span.contains(line.span):
            yield _Name(line.tokens[0].text, path, None)


def _is_after_type(scopes: ScopeMap, at: int) -> bool:
    """Whether a type is in front of a name: ``float x``, ``const T * x``, ``std::vector<int> x``.

    ``a * x`` is a type and a name only at the beginning of a statement, or in the parameters of a function.
    """
    code = scopes.code
    last = at - 1
    while last > 0 and code[last].text in _POINTERS:
        last -= 1
    if last == at - 1 and code[last].text != b">":
        return (
            code[last].kind in (TokenKind.IDENTIFIER, TokenKind.KEYWORD) and code[last].text not in _NO_TYPE
        )
    lowest = max(last - _LONGEST_TYPE, 0)
    if code[last].text == b">":
        while last > lowest and code[last].text != b"<":
            last -= 1
        last -= 1
    first = last
    while first > lowest and (
        code[first].text == b"::" or code[first].kind in (TokenKind.IDENTIFIER, TokenKind.KEYWORD)
    ):
        first -= 1
    if first == last or _NO_TYPE & {token.text for token in code[first + 1 : last + 1]}:
        return False
    entity = scopes.enclosing(code[at].span)
    in_parameters = entity is not None and entity.parameters.contains(code[at].span)
    return code[first].text in _BEFORE_TYPE or (in_parameters and code[first].text in (b"(", b","))


def _new_names(rendering: Rendering) -> Iterator[_Name]:
    """The names that a patch declares and that its files, or functions, do not have without it."""
    found: dict[_Name, None] = {}
    for scopes, span in _added(rendering):
        before = rendering.before.get(scopes.source.path, b"")
        old = parse_scopes(SourceText(scopes.source.path, before))
        for name in _declared(scopes, span):
            places = [Span(0, len(before))]
            if name.function is not None:
                places = [each.span for each in old.entities if each.name == name.function]
            word = re.compile(rb"\b" + re.escape(name.text) + rb"\b")
            if not any(word.search(before, place.start, place.end) for place in places):
                found[name] = None
    yield from found
