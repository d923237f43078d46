"""Decide whether two insertions at the same place may be in any order.

git has a conflict if both sides insert lines at one place. Most of these have no order that is wrong: two
includes, two test cases, two functions. Everything that is not known to be such a pair stays a conflict.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from patchkit.base.source import SourceText, Span
from patchkit.carry.cpp.directives import find_unbalanced
from patchkit.carry.cpp.lexer import TokenKind
from patchkit.carry.cpp.scopes import ScopeMap, is_code, parse_scopes

_LIST_ITEM = re.compile(rb"\s*[\w./${}+-]+\s*")
_CASE = re.compile(rb"case [\w:]+\s*:")
_LABELS = re.compile(rb"(?:case [\w:]+\s*:\s*)+")
_CONDITIONS = frozenset({b"if", b"ifdef", b"ifndef", b"elif", b"else", b"endif"})
_MAPS = frozenset({b"map", b"unordered_map"})
_LONGEST_HEAD = 60  # tokens of a declaration before its initializer
_LEAVES = re.compile(rb"(?:break|continue|return\b.*|goto \w+)\s*;\s*}?")
_APPEND = re.compile(
    rb"(\w+(?:\.\w+)?)\.(?:emplace_back|push_back|insert|emplace)\s*\(|(add_(?:opt|option|arg|argument|test)|register_\w+)\s*\("
)
_NAME = re.compile(rb"[A-Za-z_]\w*")
_MEMBER = re.compile(rb"[A-Za-z_][\w:<>,\s*&]*[\s*&](\w+)\s*(?:\[[\w\s]*\]\s*)*(?:=[^;{}()]*)?;")
_FUNCTION = re.compile(rb"[A-Za-z_][\w:<>,\s*&]*[\s*&](\w+)\s*\([^={};]*\)\s*(?:const\s*)?;")
_CONSTANT = re.compile(rb"(?:static |inline )*(?:constexpr|const)\b[^=;{}]*=[^=].*;", re.DOTALL)


def are_complete(path: str, theirs: Sequence[bytes], ours: Sequence[bytes]) -> bool:
    """Whether the rows of both sides are complete: no bracket and no ``#if`` lacks its partner."""
    if not is_code(path):
        return True
    both = [parse_scopes(SourceText(path, b"\n".join(rows) + b"\n")) for rows in (theirs, ours)]
    return not any(scopes.unpaired or find_unbalanced(scopes.directives) is not None for scopes in both)


def can_follow(upstream: SourceText, row: int, theirs: Sequence[bytes], ours: Sequence[bytes]) -> bool:
    """Whether rows may be inserted after those that upstream inserted at the same place.

    ``upstream``: the file with ``theirs``, which begin at ``row``, counted from 0.
    """
    if not is_code(upstream.path):
        is_list = upstream.path.endswith(("CMakeLists.txt", ".cmake"))
        return is_list and all(_LIST_ITEM.fullmatch(each) for each in (*theirs, *ours) if each.strip())
    if not _rows(ours) or not _rows(theirs):
        return True
    both = [parse_scopes(SourceText(upstream.path, b"\n".join(rows) + b"\n")) for rows in (theirs, ours)]
    if any(scopes.unpaired or find_unbalanced(scopes.directives) is not None for scopes in both):
        return False
    if any(map(_has_loose_directives, both)) or not all(scopes.code for scopes in both):
        return all(map(_has_only_includes, both))
    start = upstream.line_span(min(row + 1, len(upstream.rows))).start
    around = [each for each in parse_scopes(upstream).definitions if each.span.start < start < each.span.end]
    holder = max(around, key=lambda each: each.span.start, default=None)
    is_bare = not any(scopes.directives for scopes in both)
    if holder is None:
        is_known = all(map(_is_definitions, both)) and not _names_shared(both)
        is_known = is_known or (is_bare and _are_declarations(both, _FUNCTION))
        return is_known or _are_rows_of_map(parse_scopes(upstream), start, both)
    is_known = False
    if holder.kind == "enum":
        is_known = _are_enumerators(both)
    elif holder.kind == "record":
        is_known = _are_declarations(both, _MEMBER) or _are_declarations(both, _FUNCTION)
    elif holder.kind == "function":
        is_branches = _are_cases(theirs, ours) or _are_labels(theirs, ours)
        is_known = is_branches or _are_appends(both) or _are_constants(both)
    return is_known and is_bare


def _has_loose_directives(scopes: ScopeMap) -> bool:
    """Whether there are preprocessor lines outside of functions, structs and enums, but for conditions."""
    spans = [each.span for each in scopes.definitions if each.kind != "macro"]
    loose = [line for line in scopes.directives if not any(span.contains(line.span) for span in spans)]
    return any(line.keyword not in _CONDITIONS for line in loose)


def _has_only_includes(scopes: ScopeMap) -> bool:
    return not scopes.code and all(line.keyword == b"include" for line in scopes.directives)


def _is_definitions(scopes: ScopeMap) -> bool:
    """Whether code consists of whole functions, structs and enums only."""
    spans = [each.span for each in scopes.definitions if each.kind != "macro"]
    outside = [
        token
        for token in scopes.code
        if token.text != b";" and not any(span.contains(token.span) for span in spans)
    ]
    return bool(spans) and not outside


def _declared(scopes: ScopeMap) -> set[bytes]:
    return {each.name.rpartition("::")[2].encode() for each in scopes.definitions}


def _words(scopes: ScopeMap) -> set[bytes]:
    return {token.text for token in scopes.code if token.kind is TokenKind.IDENTIFIER}


def _names_shared(both: Sequence[ScopeMap]) -> bool:
    """Whether one of two texts uses or declares a name that the other one declares."""
    one, other = both
    return bool(_declared(one) & _words(other) or _declared(other) & _words(one))


def _rows(rows: Sequence[bytes]) -> list[bytes]:
    return [row.strip() for row in rows if row.strip() and not row.strip().startswith(b"//")]


def _are_cases(theirs: Sequence[bytes], ours: Sequence[bytes]) -> bool:
    """Whether both are whole branches of a switch, which begin with a label and leave it at the end."""
    both = _rows(theirs), _rows(ours)
    if not all(rows and _CASE.match(rows[0]) for rows in both):
        return False
    for rows in both:
        ends = [_CASE.sub(b"", row, count=1).strip() for row in rows[-2:]]
        if ends[-1] == b"}":
            ends.pop()
        if not ends or not _LEAVES.fullmatch(ends[-1]):
            return False
    return True


def _are_labels(theirs: Sequence[bytes], ours: Sequence[bytes]) -> bool:
    """Whether both are only labels of a switch, which then share what follows them."""
    return all(_LABELS.fullmatch(row) for row in (*_rows(theirs), *_rows(ours)))


def _are_enumerators(both: Sequence[ScopeMap]) -> bool:
    """Whether both are only values of an enum without a number: upstream's keep the numbers that it gave."""
    names: list[bytes] = []
    for scopes in both:
        texts = [token.text for token in scopes.code]
        if len(texts) % 2 or any(text != b"," for text in texts[1::2]):
            return False
        names += texts[::2]
    return all(map(_NAME.fullmatch, names)) and len(names) == len({*names})


def _are_declarations(both: Sequence[ScopeMap], form: re.Pattern[bytes]) -> bool:
    """Whether both only declare in this form, and neither uses a name that the other one declares."""
    names: list[set[bytes]] = []
    for scopes in both:
        found = [form.fullmatch(each) for each in _statements(scopes)]
        if not found or not all(found):
            return False
        names.append({match[1] for match in found if match is not None})
    return not (names[0] & _words(both[1]) or names[1] & _words(both[0]))


def _are_rows_of_map(upstream: ScopeMap, start: int, both: Sequence[ScopeMap]) -> bool:
    """Whether both are rows ``{ key, value },`` with different keys in the initializer of a map or set."""
    at = upstream.first_from(start)
    around = upstream.parents[at] if at < len(upstream.code) else None
    if around is None or upstream.code[around].text != b"{" or any(scopes.directives for scopes in both):
        return False
    head: list[bytes] = []
    for token in reversed(upstream.code[max(0, around - _LONGEST_HEAD) : around]):
        if token.text in (b";", b"}", b"{"):
            break
        head.append(token.text)
    if head[:1] != [b"="] or not _MAPS & {*head}:
        return False
    keys = [key for scopes in both for key in _keys(scopes)]
    return None not in keys and len(keys) == len({*keys})


def _keys(scopes: ScopeMap) -> Iterator[bytes | None]:
    """The keys of rows ``{ key, value },``; None for anything else."""
    code, position = scopes.code, 0
    while position < len(code):
        closing = scopes.match.get(position) if code[position].text == b"{" else None
        if closing is None or [token.text for token in code[closing + 1 : closing + 2]] != [b","]:
            yield None
            return
        texts = [token.text for token in code[position + 1 : closing]]
        yield b" ".join(texts[: texts.index(b",")]) if b"," in texts else None
        position = closing + 2


def _statements(scopes: ScopeMap) -> list[bytes]:
    """The texts of simple statements at the top of a text; empty if there is anything else."""
    found: list[bytes] = []
    start: int | None = None
    at = 0
    while at < len(scopes.code):
        token = scopes.code[at]
        start = token.start if start is None else start
        if token.text == b";":
            found.append(scopes.source.text(Span(start, token.end)))
            start = None
        at = max(at, scopes.match.get(at, at)) + 1
    return found if start is None else []


def _are_appends(both: Sequence[ScopeMap]) -> bool:
    """Whether both only append to the same list, as the lists of tests and of program options do."""
    lists: set[bytes] = set()
    for scopes in both:
        statements = _statements(scopes)
        found = [_APPEND.match(each) for each in statements]
        if not statements or not all(found):
            return False
        lists |= {match[1] or match[2] for match in found if match is not None}
    return len(lists) == 1


def _are_constants(both: Sequence[ScopeMap]) -> bool:
    """Whether both only declare constants, and neither uses a constant of the other one."""
    names: list[set[bytes]] = []
    for scopes in both:
        statements = _statements(scopes)
        if not statements or not all(_CONSTANT.fullmatch(each) for each in statements):
            return False
        if any(
            token.text in (b"++", b"--")
            or (
                token.text.endswith(b"=")
                and token.text != b"="
                and token.text not in (b"==", b"!=", b"<=", b">=")
            )
            for token in scopes.code
        ):
            return False
        heads = [re.findall(rb"(\w+)\s*(?:\[[^]]*\]\s*)?$", each.partition(b"=")[0]) for each in statements]
        names.append({head[0] for head in heads if head})
    return not (names[0] & _words(both[1]) or names[1] & _words(both[0]))
