"""Turn two versions of a file into edits of whole lines, each in the function or struct that it changes.

Unlike tokens, lines include comments and ``#pragma``, and everything outside of an edit stays as upstream has
it, byte for byte. An edit is as small as its change. The lines that it replaces are its selector if they have
enough words; otherwise unchanged lines above and below are added until the place is unique. An insertion
names both lines around it: in an upstream that already has the inserted text, the two are no longer adjacent,
so the edit does not match there. Between two definitions or members, an insertion depends only on the one
before it, and not on what follows.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from patchkit.base.source import SourceText, Span
from patchkit.carry.cpp.directives import find_unbalanced
from patchkit.carry.cpp.scopes import Entity, is_code, parse_scopes
from patchkit.carry.judging.line_diff import Block, compare_lines
from patchkit.carry.lifting.draft import Draft, NotLifted, apply_drafts, function_names, selected_spans
from patchkit.carry.placing.lines import (
    ENOUGH_WORDS,
    ENOUGH_WORDS_IN_FUNCTION,
    count_words,
    is_blank_edged,
    lines_selector,
    selector_text,
    sides,
)
from patchkit.carry.placing.names import find_definitions, list_members
from patchkit.carry.placing.plain import (
    MIN_WORDS,
    declared_names,
    find_half,
    find_repeated,
    find_repeated_lines,
)
from patchkit.carry.placing.select import select
from patchkit.carry.series.patch import Verb
from patchkit.carry.series.selector import Selector

_NEAR = 3  # lines of context on each side before the selector ``between`` is tried
_MANY = 40  # lines of context on each side at most, to keep patches readable
_TRIVIAL = 1  # lines without a word between two changes that are then joined


def lift_lines(path: str, old: bytes, new: bytes) -> tuple[Draft, ...]:
    """The edits that turn ``old`` into ``new``, in order.

    Raises NotLifted if they cannot give ``new`` byte for byte.
    """
    if not old:
        return (_at_the_end(path, old, new),)
    last: list[Draft] = []
    wanted = new
    if old.endswith(b"\n") != new.endswith(b"\n"):
        last, wanted = _last_break(path, old, new)
    before, after = SourceText(path, old), SourceText(path, wanted)
    lifter = LineLifter(before, after)
    drafts = lifter.drafts()
    if drafts and last and last[0].verb == "remove" and drafts[-1].selector.end:
        end = drafts.pop()  # text added at the end can do without the last line break itself
        size = len(last.pop().span)
        last.append(replace(end, text=end.text[:-size], rows=(end.rows or b"").removesuffix(b"\n")))
    drafts += last
    if apply_drafts(old, drafts) != new:
        raise NotLifted(f"{path}: it mixes different line endings")
    return tuple(drafts)


def _at_the_end(path: str, old: bytes, text: bytes) -> Draft:
    """The edit that adds a text at the end of a file."""
    return Draft(
        file=path,
        selector=Selector(end=True),
        span=Span(len(old), len(old)),
        text=text,
        line=old.count(b"\n") + 1,
        verb="insert_after",
        rows=text,
    )


def _last_break(path: str, old: bytes, new: bytes) -> tuple[list[Draft], bytes]:
    """The edit that adds or removes the last line break, and the new version without that difference."""
    end = len(old)
    draft = _at_the_end(path, old, b"\n")
    if new.endswith(b"\n"):
        return [draft], new.removesuffix(b"\n")
    size = 2 if old.endswith(b"\r\n") else 1
    return [replace(draft, span=Span(end - size, end), text=b"", verb="remove", rows=None)], new + old[-size:]


@dataclass(frozen=True, slots=True)
class _Window:
    """Lines ``[first, last)`` to replace, with ``above`` and ``below`` lines of context."""

    first: int
    last: int
    above: int
    below: int


class LineLifter:
    """Makes line edits that turn one version of a file into another."""

    def __init__(self, before: SourceText, after: SourceText) -> None:
        self.before, self.after = before, after
        self.rows, self.new_rows = before.rows, after.rows
        self.scopes, self.new_scopes = parse_scopes(before), parse_scopes(after)
        self.stop = len(self.rows) - before.data.endswith(b"\n")  # after the last line

    def blocks(self) -> list[Block]:
        """The differences; those separated only by lines without words are joined."""
        found: list[Block] = []
        stop = len(self.new_rows) - self.after.data.endswith(b"\n")
        for block in compare_lines(self.rows[: self.stop], self.new_rows[:stop]):
            last = found[-1] if found else None
            if last is not None and self._belong_together(last, block):
                found[-1] = Block(last.old, block.old_end, last.new, block.new_end)
            else:
                found.append(block)
        return [self._slides(block)[0] for block in found]

    def with_block(self, block: Block) -> bytes:
        """The old version with one block of the new one applied."""
        rows = [
            *self.rows[: block.old],
            *self.new_rows[block.new : block.new_end],
            *self.rows[block.old_end :],
        ]
        return b"\n".join(rows)

    def _belong_together(self, one: Block, other: Block) -> bool:
        between = self.rows[one.old_end : other.old]
        return len(between) <= _TRIVIAL and not count_words(between)

    def _slides(self, block: Block) -> list[Block]:
        """The places where an insertion has the same result, starting with the most natural one to read."""
        if block.old != block.old_end:
            return [block]
        low, rows = block.old, list(self.new_rows[block.new : block.new_end])
        while low > 0 and self.rows[low - 1] == rows[-1]:
            low, rows = low - 1, [rows[-1], *rows[:-1]]
        found = [(self._reading_key(low, rows), -low)]
        while low < self.stop and self.rows[low] == rows[0]:
            low, rows = low + 1, [*rows[1:], rows[0]]
            found.append((self._reading_key(low, rows), -low))
        shifts = [-place - block.old for _, place in sorted(found)]
        return [Block(block.old + by, block.old + by, block.new + by, block.new_end + by) for by in shifts]

    def _reading_key(self, place: int, rows: Sequence[bytes]) -> tuple[int, int]:
        """Sort key, lowest for the most natural place: by indentation, then by the position of empty lines.

        For example, an ``elseif`` or ``case`` goes with its own body, not with the end of the one before it.
        """
        before = self.rows[place - 1].strip() if place else b""
        after = self.rows[place].strip() if place < self.stop else b""
        first = next((row for row in rows if row.strip() and not row.startswith(b"#")), b"")
        depth = len(first) - len(first.lstrip())
        if not rows[0].strip() and before:
            return depth, 0
        return depth, (1 if not rows[-1].strip() and after else 2)

    def drafts(self) -> list[Draft]:
        """The edits of all blocks. A block that cannot be placed on its own is joined with the next one."""
        blocks = self.blocks()
        while True:
            found = [self._try_draft(block) for block in blocks]
            drafts = [draft for draft in found if draft is not None]
            wrong = [at for at, draft in enumerate(found) if draft is None]
            if not wrong:
                pairs = enumerate(itertools.pairwise(drafts))
                wrong = [at for at, (one, two) in pairs if two.span.start < one.span.end]
            if not wrong:
                return drafts
            if len(blocks) == 1:
                raise self._not_unique(blocks[0])
            first = min(wrong[0], len(blocks) - 2)
            one, other = blocks[first : first + 2]
            blocks[first : first + 2] = [Block(one.old, other.old_end, one.new, other.new_end)]

    def draft(self, block: Block) -> Draft:
        """The edit of a block; raises NotLifted if no lines identify its place."""
        found = self._try_draft(block)
        if found is None:
            raise self._not_unique(block)
        return found

    def _not_unique(self, block: Block) -> NotLifted:
        return NotLifted(f"{self.before.path}: no unique tokens or lines identify line {block.old + 1}")

    def _try_draft(self, block: Block) -> Draft | None:
        return next(filter(None, map(self._draft_at, self._slides(block))), None)

    def _draft_at(self, block: Block) -> Draft | None:
        if block.old == block.old_end:
            found = self._at_the_edge(block) or self._next_to_a_name(block)
            if found is not None:
                return found
        holder = self._holder(block)
        for each in (holder, None) if holder is not None else (None,):
            found = self._by_lines(block, each)
            if found is not None:
                return self._with_fallback(block, found, each)
        return None

    def _by_lines(self, block: Block, holder: Entity | None) -> Draft | None:
        """The edit of a block, selected by the lines that it replaces or that it goes between."""
        for window in self._windows(block, holder):
            found = self._draft(block, window, holder)
            if found is not None and self._is_unique(found):
                return found
        return None

    def _with_fallback(self, block: Block, found: Draft, holder: Entity | None) -> Draft:
        """For an insertion that can slide, add a second selector that does not depend on the lines above.

        Such an insertion has the same result before or after some lines. The selector of ``found`` includes
        more lines above them, because otherwise it would match again once the text is inserted. If upstream
        changed those, the second selector finds the place between the lines that it slides over and the lines
        below; whether the text is already there is then seen from its own lines.
        """
        slides = [each.old for each in self._slides(block)]
        up, down = block.old - min(slides), max(slides) - block.old
        inside = found.selector.inside
        is_between = inside is not None and inside.between is not None
        is_recognisable = count_words(self.rows[min(slides) : max(slides)]) >= MIN_WORDS
        if found.verb != "insert_after" or is_between or not (up and is_recognisable):
            return found
        stop = self._lines(holder).stop
        enough = ENOUGH_WORDS if holder is None else ENOUGH_WORDS_IN_FUNCTION
        region = holder.span if holder is not None and inside is None else Span(0, len(self.before.data))
        for below in range(down + 1, min(down + _NEAR, stop - block.old) + 1):
            near = self.rows[block.old - up : block.old + below]
            if not (near[0].strip() and near[-1].strip()) or count_words(near) < enough:
                continue
            other = self._draft(block, (_Window(block.old, block.old, up, below), inside), holder)
            if other is None or (other.verb, other.span) != (found.verb, found.span):
                continue
            rows = other.rows or b""
            added_half = find_half(self.new_scopes, Span(0, len(self.after.data)), other.selector, rows)
            existing_half = find_half(self.scopes, region, other.selector, rows)
            if (
                len(selected_spans(self.scopes, other)) == 1
                and added_half is not None
                and existing_half is None
            ):
                return replace(found, selector=Selector(first_of=(found.selector, other.selector)))
        return found

    def _at_the_edge(self, block: Block) -> Draft | None:
        """An insertion at the beginning or the end of the file."""
        text = b"\n".join(self.new_rows[block.new : block.new_end])
        if block.old == self.stop:
            ended = self.before.data.endswith(b"\n")
            text = text + b"\n" if ended else b"\n" + text
            at, word = len(self.before.data), Selector(end=True)
        elif block.old == 0:
            text, at, word = text + b"\n", 0, Selector(start=True)
        else:
            return None
        rows = text.replace(b"\r\n", b"\n")
        draft = self._make_draft(block, word, Span(at, at), rows, verb="insert_after")
        return draft if find_repeated(self.scopes, word, rows) is None else None

    def _next_to_a_name(self, block: Block) -> Draft | None:
        """An insertion outside of functions: after a named thing, with fallbacks in case that is gone.

        First the named thing before it, since what follows may change; then the lines on both sides; then the
        named thing after it; last the line after it alone.
        """
        rows = self.new_rows[block.new : block.new_end]
        text = _unix(rows) + b"\n"
        holder = self._innermost(block, self.scopes.definitions)
        outside = holder is None or holder.kind in ("record", "enum")
        if not is_code(self.before.path) or not outside or not _is_whole(self.before.path, text):
            return None
        if block.old == 0:
            return self._in_front_of_a_definition(block)  # there is nothing before the first line
        end = self.before.line_end(self.before.line_span(block.old).start)
        names = (each for each in self._names_on(block.old - 1, text) if self._line_of_end(each) == block.old)
        places = [each for each in names if self._can_anchor(each, text)][:1]
        following = list(self._following(block, holder, text))
        if not places and not following:
            return self._in_front_of_a_definition(block)
        between = self._by_lines(block, None)
        if between is not None and (between.verb, between.span) == ("insert_after", Span(end, end)):
            places.append(between.selector)
        places += following
        newline = self.before.newline
        selector = places[0] if len(places) == 1 else Selector(first_of=tuple(places[:4]))
        draft = self._make_draft(block, selector, Span(end, end), text, verb="insert_after")
        return replace(draft, text=newline + text.removesuffix(b"\n").replace(b"\n", newline))

    def _following(self, block: Block, holder: Entity | None, text: bytes) -> Iterator[Selector]:
        """Selectors of what follows an insertion: a named thing, and a line that occurs once in the file."""
        row = block.old
        while row < self.stop and not self.rows[row].strip():
            row += 1
        # A text that begins with an empty line goes before existing empty lines, any other text after them.
        fits = row == block.old or (text.startswith(b"\n") and self.rows[block.old - 1].strip())
        if row >= self.stop or not fits:
            return
        start = self.before.line_span(row + 1).start
        begins = [e for e in (*self.scopes.enums, *self.scopes.entities) if self._lines(e)[0] == row]
        found = [Selector(definition=e.name) for e in begins if holder is None]
        if holder is not None:
            for names, place in list_members(self.scopes, holder):
                if names and self.before.line_of(place.start) == row + 1 and re.fullmatch(rb"\w+", names[0]):
                    found.append(Selector(member=names[0].decode(), of=holder.name))
        if count_words([self.rows[row]]) > 1:
            found.append(Selector(lines=selector_text([self.rows[row]])))
        for each in found:
            spans = select(self.scopes, None, each)
            alone = len(spans) == 1 and self.before.line_of(spans[0].start) == self.before.line_of(start)
            if alone and self._can_anchor(each, text):
                yield Selector(before=each)

    def _in_front_of_a_definition(self, block: Block) -> Draft | None:
        """An insertion that ends where a definition of the file begins."""
        place, rows = block.old, self.new_rows[block.new : block.new_end]
        starts = {self._lines(e)[0]: e for e in (*self.scopes.enums, *reversed(self.scopes.entities))}
        while place not in starts and place < self.stop and self.rows[place] == rows[0]:
            place, rows = place + 1, [*rows[1:], rows[0]]
        entity = starts.get(place)
        if entity is None or self.rows[place - 1].strip():
            return None  # the line directly above may be the definition's own comment
        start = self.before.line_span(place + 1).start
        around = (e for e in self.scopes.definitions if e is not entity)
        text = _unix(rows) + b"\n"
        selector = Selector(definition=entity.name)
        if any(e.span.start < start < e.span.end for e in around) or not self._can_anchor(selector, text):
            return None
        draft = self._make_draft(block, selector, Span(start, start), text, verb="insert_before")
        return replace(draft, text=text.replace(b"\n", self.before.newline))

    def _can_anchor(self, selector: Selector, text: bytes) -> bool:
        """Whether the named thing is unique, and the text could be recognised if it were already there."""
        is_recognisable = declared_names(self.scopes, selector, text) or count_words([text]) >= MIN_WORDS
        alone = len(select(self.scopes, None, selector)) == 1
        return bool(is_recognisable) and alone and find_repeated(self.scopes, selector, text) is None

    def _line_of_end(self, selector: Selector) -> int:
        return self.before.line_of(select(self.scopes, None, selector)[0].end)

    def _names_on(self, row: int, text: bytes) -> Iterator[Selector]:
        """Selectors of named things that end on a line, outermost first."""
        span = self.before.line_span(row + 1)
        around = [e for e in self.scopes.definitions if e.span.start < span.start]
        ends = [
            e
            for e in self.scopes.definitions
            if span.start < e.span.end <= span.end and not _is_unfinished(self.before, e)
        ]
        holder = max((e for e in around if e.span.end > span.end), key=lambda e: e.span.start, default=None)
        if holder is None and ends:
            yield Selector(definition=min(ends, key=lambda e: e.span.start).name)
        elif holder is not None and holder.kind in ("record", "enum"):
            for names, place in list_members(self.scopes, holder):
                if names and span.start < place.end <= span.end and re.fullmatch(rb"\w+", names[0]):
                    yield Selector(member=names[0].decode(), of=holder.name)
        if holder is None and all(
            line.lstrip().startswith(b"#include") for line in text.split(b"\n") if line
        ):
            for line in self.scopes.directives:
                if line.keyword == b"include" and line.tokens and span.contains(line.span):
                    header = b"".join(token.text for token in line.tokens).strip(b'"<>')
                    yield Selector(include=header.decode("utf-8", "replace"))

    def _holder(self, block: Block) -> Entity | None:
        """The innermost function, struct, enum or macro around a change that can be selected by name."""
        return self._innermost(block, filter(self._named, self.scopes.definitions))

    def _innermost(self, block: Block, entities: Iterable[Entity]) -> Entity | None:
        """The innermost of some definitions that are around a change."""
        around = (each for each in entities if block.is_in(self._lines(each)))
        return max(around, key=lambda entity: entity.span.start, default=None)

    def _lines(self, entity: Entity | None) -> range:
        """The lines of a definition, or of the file."""
        return self.before.lines_of(entity.span) if entity is not None else range(self.stop)

    def _named(self, entity: Entity) -> tuple[str | None, str | None, Selector | None] | None:
        """Function, parameters and ``inside`` by which an edit finds a definition; None if ambiguous."""
        if entity.kind in ("record", "enum"):
            alone = list(find_definitions(self.scopes, entity.name)) == [entity.span]
            return (None, None, Selector(definition=entity.name)) if alone else None
        names = function_names(self.scopes, entity)
        return (*names, None) if names is not None else None

    def _windows(self, block: Block, holder: Entity | None) -> Iterator[tuple[_Window, Selector | None]]:
        """Windows from few lines to many, each with the selector to search inside of."""
        lines = self._lines(holder)
        named = self._named(holder) if holder is not None else None
        inside = named[2] if named is not None else None
        enough = ENOUGH_WORDS if holder is None else ENOUGH_WORDS_IN_FUNCTION
        most = (block.old - lines.start, lines.stop - block.old_end)
        # An insertion names a line on each side.
        least = (1, 1) if block.old == block.old_end else (0, 0)
        for above, below in sides((min(most[0], _NEAR), min(most[1], _NEAR)), least):
            window = _Window(block.old, block.old_end, above, below)
            near = self.rows[block.old - above : block.old_end + below]
            if is_blank_edged(near[:above], near[len(near) - below :]):
                continue
            if count_words(near) >= (enough if above or below else ENOUGH_WORDS):
                yield window, inside
        between = self._between(block, lines, inside)
        if between is not None:
            yield _Window(block.old, block.old_end, min(1, most[0]), min(1, most[1])), between
        for around in range(_NEAR, _MANY):
            above, below = min(around, most[0]), min(around, most[1])
            yield _Window(block.old, block.old_end, above, below), inside
            if (above, below) == most:
                return

    def _between(self, block: Block, lines: range, inside: Selector | None) -> Selector | None:
        """A ``between`` selector of the nearest unique lines on both sides."""
        rows = [row.strip() for row in self.rows[lines.start : lines.stop]]
        once = {row for row, count in Counter(rows).items() if count == 1 and count_words([row]) > 1}
        ups, downs = range(block.old - 2, lines.start, -1), range(block.old_end + 1, lines.stop - 1)
        above, below = (
            next((at for at in way if self.rows[at].strip() in once), None) for way in (ups, downs)
        )
        if above is None or below is None:
            return None
        ends = [Selector(lines=selector_text([self.rows[at]]), inside=inside) for at in (above, below)]
        return Selector(between=tuple(ends))

    def _draft(
        self, block: Block, wanted: tuple[_Window, Selector | None], holder: Entity | None
    ) -> Draft | None:
        window, inside = wanted
        above = self.rows[window.first - window.above : window.first]
        lines = self.rows[window.first : window.last]
        below = self.rows[window.last : window.last + window.below]
        new = self.new_rows[block.new : block.new_end]
        verb: Verb = "change_to" if new else "remove"
        first, last = window.first, window.last
        if not lines:
            verb = "insert_after" if above else "insert_before"
            lines, above, below = (above, [], below) if above else (below, [], [])
            first = window.first - window.above if verb == "insert_after" else window.first
            last = first + len(lines)
        if not lines:
            return None
        indents = is_code(self.before.path) and [row.strip() for row in lines] == [row.strip() for row in new]
        try:
            exact = True if indents or self._is_comment(window.first - window.above, window.last) else None
            selector = lines_selector(lines, (above, below), inside, exact)
        except UnicodeDecodeError as error:
            raise NotLifted(f"{self.before.path}: a line around it is not UTF-8") from error
        start = self.before.line_span(first + 1).start
        end = self.before.line_end(self.before.line_span(last).start)
        newline = self.before.newline
        rows = _unix(new)
        text = rows.replace(b"\n", newline)
        span = Span(start, end)
        match verb:
            case "insert_after":
                span, text = Span(end, end), newline + text
            case "insert_before":
                span, text = Span(start, start), text + newline
            case "remove":
                broken = self.before.data.startswith(newline, end)
                span = Span(start, end + len(newline)) if broken else span
            case _:
                pass
        region = holder.span if holder is not None and inside is None else Span(0, len(self.before.data))
        if verb.startswith("insert") and find_repeated_lines(self.scopes, region, rows) is not None:
            # The same lines exist elsewhere, so an insertion would look as if it were already made. Instead
            # replace the lines next to it by these and the new ones.
            both = (*lines, *new) if verb == "insert_after" else (*new, *lines)
            verb, span = "change_to", Span(start, end)
            rows = _unix(both)
            text = rows.replace(b"\n", newline)
        draft = self._make_draft(block, selector, span, rows + b"\n" if new else None, verb=verb)
        named = self._named(holder) if holder is not None else None
        reason = "" if holder is not None else self._reason()
        function, parameters, _ = named or (None, None, None)
        return replace(draft, text=text, function=function, parameters=parameters, reason=reason)

    def _is_comment(self, first: int, last: int) -> bool:
        """Whether lines of a code file are only comments, or the middle of one."""
        if not is_code(self.before.path) or last <= first:
            return False
        span = Span(self.before.line_span(first + 1).start, self.before.line_span(last).end)
        directives = any(span.contains(line.span) for line in self.scopes.directives)
        return not self.scopes.code_in(span) and not directives

    def _reason(self) -> str:
        if is_code(self.before.path):
            return "outside of functions and structs, with no named definition next to it"
        return "not a C++ file, so placed by its lines"

    def _make_draft(
        self, block: Block, selector: Selector, span: Span, rows: bytes | None, *, verb: Verb
    ) -> Draft:
        return Draft(
            file=self.before.path,
            selector=selector,
            span=span,
            text=rows or b"",
            line=block.old + 1,
            verb=verb,
            rows=rows,
        )

    def _is_unique(self, draft: Draft) -> bool:
        """Whether the selector matches exactly the draft's place, and nothing once the change is made."""
        found = selected_spans(self.scopes, draft)
        if len(found) != 1 or not found[0].start <= draft.span.start <= found[0].end:
            return False
        return not selected_spans(self.new_scopes, draft)


def _unix(rows: Iterable[bytes]) -> bytes:
    """Lines as a text with LF line endings, without the last one."""
    return b"\n".join(row.removesuffix(b"\r") for row in rows)


def _is_whole(path: str, text: bytes) -> bool:
    """Whether the brackets and ``#if`` lines of a text are balanced."""
    scopes = parse_scopes(SourceText(path, text))
    return not scopes.unpaired and find_unbalanced(scopes.directives) is None


def _is_unfinished(source: SourceText, entity: Entity) -> bool:
    """Whether more than a comment or a ``;`` follows a definition on its last line."""
    rest = source.data[entity.span.end : source.line_end(entity.span.end)].strip()
    if entity.kind in ("record", "enum"):
        return b";" not in rest
    return bool(rest) and not rest.startswith((b";", b"//", b"/*"))
