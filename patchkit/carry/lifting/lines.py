"""From two versions of a file to edits of whole lines, each in the function or struct that it changes.

A line says more than tokens: comments and ``#pragma`` are in it, and what an edit does not mean stays as
upstream has it, to the byte. An edit is as small as its change. What it replaces tells its place by itself
where it says enough; lines above and below, which stay, are added until the place is the only one. What is
inserted stands between two lines, both named: where upstream has it already, they are no neighbours any more.
Between two definitions, or members, it hangs on the one in front of it instead, whatever comes behind.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from patchkit.base.source import SourceText, Span
from patchkit.carry.cpp.directives import find_unbalanced
from patchkit.carry.cpp.scopes import Entity, is_code, parse_scopes
from patchkit.carry.judging.rows import Block, compare_rows
from patchkit.carry.lifting.draft import Draft, NotLifted, apply_drafts, function_names, selected_spans
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

_SAYS_ENOUGH, _SAYS_ENOUGH_IN_ITS_FUNCTION = 5, 3
"""Words from which lines tell a place that they alone have: in the file, and in the function that is named.

None of the changes cut from upstream's history (tests/upstream/test_round_trip.py) went to a wrong place so.
"""
_BESIDE = 3  # lines on each side before the place is looked for between two others
_MANY = 40  # lines on each side; a person reads no more
_TRIVIAL = 1  # lines without a word that may lie between two changes that are one


def lift_lines(path: str, old: bytes, new: bytes) -> tuple[Draft, ...]:
    """The edits that make ``new`` of ``old``, in order.

    Raises NotLifted: the change cannot be written so that it comes out byte for byte.
    """
    if not old:
        return (_whole_file(path, new),)
    last: list[Draft] = []
    wanted = new
    if old.endswith(b"\n") != new.endswith(b"\n"):
        last, wanted = _last_break(path, old, new)
    before, after = SourceText(path, old), SourceText(path, wanted)
    lifter = LineLifter(before, after)
    drafts = lifter.drafts()
    if drafts and last and last[0].verb == "remove" and drafts[-1].selector.end:
        end = drafts.pop()  # what is added there need only end without a line break
        size = len(last.pop().span)
        last.append(replace(end, text=end.text[:-size], rows=(end.rows or b"").removesuffix(b"\n")))
    drafts += last
    if apply_drafts(old, drafts) != new:
        raise NotLifted(f"{path}: its lines end in more than one way")
    return tuple(drafts)


def _whole_file(path: str, new: bytes) -> Draft:
    """All of a file that is empty before."""
    return Draft(
        file=path,
        function=None,
        parameters=None,
        selector=Selector(end=True),
        span=Span(0, 0),
        text=new,
        line=1,
        verb="insert_after",
        rows=new,
    )


def _last_break(path: str, old: bytes, new: bytes) -> tuple[list[Draft], bytes]:
    """The edit of the last line break of a file, and the new version without it."""
    end = len(old)
    draft = Draft(
        file=path,
        function=None,
        parameters=None,
        selector=Selector(end=True),
        span=Span(end, end),
        text=b"\n",
        line=old.count(b"\n") + 1,
        verb="insert_after",
        rows=b"\n",
    )
    if new.endswith(b"\n"):
        return [draft], new.removesuffix(b"\n")
    size = 2 if old.endswith(b"\r\n") else 1
    return [replace(draft, span=Span(end - size, end), text=b"", verb="remove", rows=None)], new + old[-size:]


@dataclass(frozen=True, slots=True)
class _Window:
    """Lines ``[first, last)`` are replaced; ``above`` and ``below`` of them stay, so many on each side."""

    first: int
    last: int
    above: int
    below: int


class LineLifter:
    """Two versions of a file, of which one is made into the other."""

    def __init__(self, before: SourceText, after: SourceText) -> None:
        self.before, self.after = before, after
        self.rows, self.new_rows = before.rows, after.rows
        self.scopes, self.new_scopes = parse_scopes(before), parse_scopes(after)
        self.stop = len(self.rows) - before.data.endswith(b"\n")  # behind the last line

    def blocks(self) -> list[Block]:
        """What differs; what only lines without a word lie between is one change."""
        found: list[Block] = []
        stop = len(self.new_rows) - self.after.data.endswith(b"\n")
        for block in compare_rows(self.rows[: self.stop], self.new_rows[:stop]):
            last = found[-1] if found else None
            if last is not None and self._belong_together(last, block):
                found[-1] = Block(last.old, block.old_end, last.new, block.new_end)
            else:
                found.append(block)
        return [self._slides(block)[0] for block in found]

    def with_block(self, block: Block) -> bytes:
        """The old version with one block of the new one in it."""
        rows = [
            *self.rows[: block.old],
            *self.new_rows[block.new : block.new_end],
            *self.rows[block.old_end :],
        ]
        return b"\n".join(rows)

    def _belong_together(self, one: Block, other: Block) -> bool:
        between = self.rows[one.old_end : other.old]
        return len(between) <= _TRIVIAL and not _words(between)

    def _slides(self, block: Block) -> list[Block]:
        """The places where an insertion reads the same, that where a person would see it first."""
        if block.old != block.old_end:
            return [block]
        low, rows = block.old, list(self.new_rows[block.new : block.new_end])
        while low > 0 and self.rows[low - 1] == rows[-1]:
            low, rows = low - 1, [rows[-1], *rows[:-1]]
        found = [(self._reads_badly(low, rows), -low)]
        while low < self.stop and self.rows[low] == rows[0]:
            low, rows = low + 1, [*rows[1:], rows[0]]
            found.append((self._reads_badly(low, rows), -low))
        shifts = [-place - block.old for _, place in sorted(found)]
        return [Block(block.old + by, block.old + by, block.new + by, block.new_end + by) for by in shifts]

    def _reads_badly(self, place: int, rows: Sequence[bytes]) -> tuple[int, int]:
        """What a person would mark has the least first: how far to the right it begins, then empty lines.

        An ``elseif`` or ``case`` with what it governs, not the end of the one before it.
        """
        before = self.rows[place - 1].strip() if place else b""
        behind = self.rows[place].strip() if place < self.stop else b""
        first = next((row for row in rows if row.strip() and not row.startswith(b"#")), b"")
        depth = len(first) - len(first.lstrip())
        if not rows[0].strip() and before:
            return depth, 0
        return depth, (1 if not rows[-1].strip() and behind else 2)

    def drafts(self) -> list[Draft]:
        """The edits of all blocks; a block that cannot stand alone is one with what is next to it."""
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
                raise self._not_told_apart(blocks[0])
            first = min(wrong[0], len(blocks) - 2)
            one, other = blocks[first : first + 2]
            blocks[first : first + 2] = [Block(one.old, other.old_end, one.new, other.new_end)]

    def draft(self, block: Block) -> Draft:
        """The edit of a block; raises NotLifted where no lines tell its place apart."""
        found = self._try_draft(block)
        if found is None:
            raise self._not_told_apart(block)
        return found

    def _not_told_apart(self, block: Block) -> NotLifted:
        return NotLifted(f"{self.before.path}: neither tokens nor lines tell line {block.old + 1} apart")

    def _try_draft(self, block: Block) -> Draft | None:
        return next(filter(None, map(self._draft_at, self._slides(block))), None)

    def _draft_at(self, block: Block) -> Draft | None:
        if block.old == block.old_end:
            found = self._at_the_edge(block) or self._beside_a_name(block)
            if found is not None:
                return found
        holder = self._holder(block)
        for each in (holder, None) if holder is not None else (None,):
            found = self._by_lines(block, each)
            if found is not None:
                return self._or_by_what_follows(block, found, each)
        return None

    def _by_lines(self, block: Block, holder: Entity | None) -> Draft | None:
        """The edit of a block by the lines that it replaces or stands between."""
        for window in self._windows(block, holder):
            found = self._draft(block, window, holder)
            if found is not None and self._is_unique(found):
                return found
        return None

    def _or_by_what_follows(self, block: Block, found: Draft, holder: Entity | None) -> Draft:
        """An addition that can slide stands behind the lines that it may slide over, whatever is above these.

        The lines of ``found`` reach further up, or they would be neighbours again once it is there. Where
        upstream changed that, the place is between these lines and what follows; that the addition is there
        already its own lines tell.
        """
        slides = [each.old for each in self._slides(block)]
        up, down = block.old - min(slides), max(slides) - block.old
        inside = found.selector.inside
        is_between = inside is not None and inside.between is not None
        says = _words(self.rows[min(slides) : max(slides)]) >= MIN_WORDS
        if found.verb != "insert_after" or is_between or not (up and says):
            return found
        high = self._lines_of(holder)[1] if holder is not None else self.stop - 1
        enough = _SAYS_ENOUGH if holder is None else _SAYS_ENOUGH_IN_ITS_FUNCTION
        region = holder.span if holder is not None and inside is None else Span(0, len(self.before.data))
        for below in range(down + 1, min(down + _BESIDE, high + 1 - block.old) + 1):
            near = self.rows[block.old - up : block.old + below]
            if not (near[0].strip() and near[-1].strip()) or _words(near) < enough:
                continue
            other = self._draft(block, (_Window(block.old, block.old, up, below), inside), holder)
            if other is None or (other.verb, other.span) != (found.verb, found.span):
                continue
            rows = other.rows or b""
            tells = find_half(self.new_scopes, Span(0, len(self.after.data)), other.selector, rows)
            is_there = find_half(self.scopes, region, other.selector, rows)
            if len(selected_spans(self.scopes, other)) == 1 and tells is not None and is_there is None:
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
        draft = self._made(block, word, Span(at, at), rows, verb="insert_after")
        return draft if find_repeated(self.scopes, word, rows) is None else None

    def _beside_a_name(self, block: Block) -> Draft | None:
        """An insertion outside of functions: behind a name, or what else tells its place where that is gone.

        First what is named in front, where what comes behind may change; then both lines beside it; then
        what is named behind; last the line behind it alone.
        """
        rows = self.new_rows[block.new : block.new_end]
        text = b"\n".join(row.removesuffix(b"\r") for row in rows) + b"\n"
        holder = self._inside(block)
        outside = holder is None or holder.kind in ("record", "enum")
        if not is_code(self.before.path) or not outside or not _is_whole(self.before.path, text):
            return None
        if block.old == 0:
            return self._in_front_of_a_definition(block)  # nothing stands in front of the first line
        end = self.before.line_end(self.before.line_span(block.old).start)
        names = (each for each in self._names_on(block.old - 1, text) if self._line_of_end(each) == block.old)
        places = [each for each in names if self._takes(each, text)][:1]
        behind = list(self._behind(block, holder, text))
        if not places and not behind:
            return self._in_front_of_a_definition(block)
        between = self._by_lines(block, None)
        if between is not None and (between.verb, between.span) == ("insert_after", Span(end, end)):
            places.append(between.selector)
        places += behind
        newline = self.before.newline
        selector = places[0] if len(places) == 1 else Selector(first_of=tuple(places[:4]))
        draft = self._made(block, selector, Span(end, end), text, verb="insert_after")
        return replace(draft, text=newline + text.removesuffix(b"\n").replace(b"\n", newline))

    def _behind(self, block: Block, holder: Entity | None, text: bytes) -> Iterator[Selector]:
        """What follows an insertion and tells its place: a name, and a line that the file has once."""
        row = block.old
        while row < self.stop and not self.rows[row].strip():
            row += 1
        # A text that begins with an empty line goes in front of those that are there, any other behind them.
        fits = row == block.old or (text.startswith(b"\n") and self.rows[block.old - 1].strip())
        if row >= self.stop or not fits:
            return
        start = self.before.line_span(row + 1).start
        begins = [e for e in (*self.scopes.enums, *self.scopes.entities) if self._lines_of(e)[0] == row]
        found = [Selector(definition=e.name) for e in begins if holder is None]
        if holder is not None:
            for names, place in list_members(self.scopes, holder):
                if names and self.before.line_of(place.start) == row + 1 and re.fullmatch(rb"\w+", names[0]):
                    found.append(Selector(member=names[0].decode(), of=holder.name))
        if _words([self.rows[row]]) > 1:
            found.append(Selector(lines=_text([self.rows[row]])))
        for each in found:
            spans = select(self.scopes, None, each)
            alone = len(spans) == 1 and self.before.line_of(spans[0].start) == self.before.line_of(start)
            if alone and self._takes(each, text):
                yield Selector(before=each)

    def _inside(self, block: Block) -> Entity | None:
        """The innermost definition around an insertion, whether or not its name is its alone."""
        around = []
        for entity in self.scopes.definitions:
            first, last = self._lines_of(entity)
            if first < block.old <= last:
                around.append(entity)
        return max(around, key=lambda entity: entity.span.start, default=None)

    def _in_front_of_a_definition(self, block: Block) -> Draft | None:
        """An insertion that ends where a definition of the file begins."""
        place, rows = block.old, self.new_rows[block.new : block.new_end]
        starts = {self._lines_of(e)[0]: e for e in (*self.scopes.enums, *reversed(self.scopes.entities))}
        while place not in starts and place < self.stop and self.rows[place] == rows[0]:
            place, rows = place + 1, [*rows[1:], rows[0]]
        entity = starts.get(place)
        if entity is None or self.rows[place - 1].strip():
            return None  # what is directly above a definition may be a comment of its own
        start = self.before.line_span(place + 1).start
        around = (e for e in self.scopes.definitions if e is not entity)
        text = b"\n".join(row.removesuffix(b"\r") for row in rows) + b"\n"
        selector = Selector(definition=entity.name)
        if any(e.span.start < start < e.span.end for e in around) or not self._takes(selector, text):
            return None
        draft = self._made(block, selector, Span(start, start), text, verb="insert_before")
        return replace(draft, text=text.replace(b"\n", self.before.newline))

    def _takes(self, selector: Selector, text: bytes) -> bool:
        """Whether the named thing is one, and would tell the text where it is already."""
        says = declared_names(self.scopes, selector, text) or _words([text]) >= MIN_WORDS
        alone = len(select(self.scopes, None, selector)) == 1
        return bool(says) and alone and find_repeated(self.scopes, selector, text) is None

    def _line_of_end(self, selector: Selector) -> int:
        return self.before.line_of(select(self.scopes, None, selector)[0].end)

    def _names_on(self, row: int, text: bytes) -> Iterator[Selector]:
        """What ends on a line and has a name, the outermost first."""
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
        """The innermost function, struct, enum or macro that a change is inside of, if its name is enough."""
        found: list[Entity] = []
        for entity in self.scopes.definitions:
            first, last = self._lines_of(entity)
            inserts = block.old == block.old_end
            inside = (
                first < block.old <= last if inserts else first <= block.old and block.old_end <= last + 1
            )
            if inside and self._named(entity) is not None:
                found.append(entity)
        return max(found, key=lambda entity: entity.span.start, default=None)

    def _lines_of(self, entity: Entity) -> tuple[int, int]:
        """First and last line of a definition, from 0."""
        last = max(entity.span.start, entity.span.end - 1)
        return self.before.line_of(entity.span.start) - 1, self.before.line_of(last) - 1

    def _named(self, entity: Entity) -> tuple[str | None, str | None, Selector | None] | None:
        """Function, parameters and ``inside`` by which an edit finds a definition; None: not it alone."""
        if entity.kind in ("record", "enum"):
            alone = list(find_definitions(self.scopes, entity.name)) == [entity.span]
            return (None, None, Selector(definition=entity.name)) if alone else None
        names = function_names(self.scopes, entity)
        return (*names, None) if names is not None else None

    def _windows(self, block: Block, holder: Entity | None) -> Iterator[tuple[_Window, Selector | None]]:
        """From the fewest lines to more, each with what it is to be looked for inside of."""
        low, high = self._lines_of(holder) if holder is not None else (0, self.stop - 1)
        named = self._named(holder) if holder is not None else None
        inside = named[2] if named is not None else None
        enough = _SAYS_ENOUGH if holder is None else _SAYS_ENOUGH_IN_ITS_FUNCTION
        most = (block.old - low, high + 1 - block.old_end)
        for above, below in _sides(most):
            if block.old == block.old_end and (above < min(1, most[0]) or below < min(1, most[1])):
                continue  # what is added stands between two lines
            window = _Window(block.old, block.old_end, above, below)
            near = self.rows[block.old - above : block.old_end + below]
            beside = near[:above], near[len(near) - below :]
            # An empty line at the far end says nothing, and comes and goes.
            if any(len(rows) > 1 and not rows[at].strip() for rows, at in zip(beside, (0, -1), strict=True)):
                continue
            if _words(near) >= (enough if above or below else _SAYS_ENOUGH):
                yield window, inside
        between = self._between(block, (low, high), inside)
        if between is not None:
            yield _Window(block.old, block.old_end, min(1, most[0]), min(1, most[1])), between
        for beside_it in range(_BESIDE, _MANY):
            above, below = min(beside_it, most[0]), min(beside_it, most[1])
            yield _Window(block.old, block.old_end, above, below), inside
            if (above, below) == most:
                return

    def _between(self, block: Block, domain: tuple[int, int], inside: Selector | None) -> Selector | None:
        """The nearest lines on both sides that are there once, as a place to look between."""
        rows = [row.strip() for row in self.rows[domain[0] : domain[1] + 1]]
        once = {row for row, count in Counter(rows).items() if count == 1 and _words([row]) > 1}
        above = next(
            (at for at in range(block.old - 2, domain[0], -1) if self.rows[at].strip() in once), None
        )
        below = next(
            (at for at in range(block.old_end + 1, domain[1]) if self.rows[at].strip() in once), None
        )
        if above is None or below is None:
            return None
        ends = [Selector(lines=_text([self.rows[at]]), inside=inside) for at in (above, below)]
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
            selector = Selector(
                lines=_text(lines),
                above=_text(above) if above else None,
                below=_text(below) if below else None,
                inside=inside,
                exact=True if indents or self._is_comment(window.first - window.above, window.last) else None,
            )
        except UnicodeDecodeError as error:
            raise NotLifted(f"{self.before.path}: a line around it is not UTF-8") from error
        start = self.before.line_span(first + 1).start
        end = self.before.line_end(self.before.line_span(last).start)
        newline = self.before.newline
        rows = b"\n".join(row.removesuffix(b"\r") for row in new)
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
            # It is there already, rightly: with the lines beside it, it is no addition.
            both = (*lines, *new) if verb == "insert_after" else (*new, *lines)
            verb, span = "change_to", Span(start, end)
            rows = b"\n".join(row.removesuffix(b"\r") for row in both)
            text = rows.replace(b"\n", newline)
        draft = self._made(block, selector, span, rows + b"\n" if new else None, verb=verb)
        named = self._named(holder) if holder is not None else None
        reason = "" if holder is not None else self._reason()
        function, parameters, _ = named or (None, None, None)
        return replace(draft, text=text, function=function, parameters=parameters, reason=reason)

    def _is_comment(self, first: int, last: int) -> bool:
        """Whether lines of code are comments, or the middle of one."""
        if not is_code(self.before.path) or last <= first:
            return False
        span = Span(self.before.line_span(first + 1).start, self.before.line_span(last).end)
        directives = any(span.contains(line.span) for line in self.scopes.directives)
        return not self.scopes.code_in(span) and not directives

    def _reason(self) -> str:
        if is_code(self.before.path):
            return "it is in no function or struct, and no name is beside it"
        return "the file is no C++: its lines tell the place"

    def _made(self, block: Block, selector: Selector, span: Span, rows: bytes | None, *, verb: Verb) -> Draft:
        return Draft(
            file=self.before.path,
            function=None,
            parameters=None,
            selector=selector,
            span=span,
            text=rows or b"",
            line=block.old + 1,
            verb=verb,
            rows=rows,
        )

    def _is_unique(self, draft: Draft) -> bool:
        """Whether the selector finds exactly the draft's lines, and none where the change is made."""
        found = selected_spans(self.scopes, draft)
        if len(found) != 1 or not found[0].start <= draft.span.start <= found[0].end:
            return False
        return not selected_spans(self.new_scopes, draft)


def _sides(most: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """How many lines above and below: from none to a few, as many on both sides first."""
    for total in range(2 * _BESIDE + 1):
        pairs = [(above, total - above) for above in range(total + 1)]
        for above, below in sorted(pairs, key=lambda pair: abs(pair[1] - pair[0])):
            if above <= min(most[0], _BESIDE) and below <= min(most[1], _BESIDE):
                yield above, below


def _words(rows: Sequence[bytes]) -> int:
    return sum(len(re.findall(rb"\w+", row)) for row in rows)


def _text(rows: Sequence[bytes]) -> str:
    """Lines as a selector has them; one alone needs no line break."""
    text = b"\n".join(row.removesuffix(b"\r") for row in rows).decode("utf-8")
    return text if len(rows) == 1 and text.strip() else text + "\n"


def _is_whole(path: str, text: bytes) -> bool:
    """Whether every bracket and ``#if`` of a text has its partner in it."""
    scopes = parse_scopes(SourceText(path, text))
    return not scopes.unpaired and find_unbalanced(scopes.directives) is None


def _is_unfinished(source: SourceText, entity: Entity) -> bool:
    """Whether more than a comment or a ``;`` stands behind a definition on its last line."""
    rest = source.data[entity.span.end : source.line_end(entity.span.end)].strip()
    if entity.kind in ("record", "enum"):
        return b";" not in rest
    return bool(rest) and not rest.startswith((b";", b"//", b"/*"))
