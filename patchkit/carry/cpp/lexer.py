"""Bytes of C++, CUDA or HIP to tokens with byte spans; every branch, comment and directive is seen."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from functools import lru_cache

from patchkit.base.errors import InternalError
from patchkit.base.source import SourceText, Span
from patchkit.carry.cpp.libclang import SINGLE_FILE, parse_unit, raw_tokens

_MAIN = "/main.cpp"
_SPLICE = re.compile(rb"(?:\\[ \t]*\r?\n)+")
_BACKSLASH = 0x5C
_SKIP_BODIES = 0x40  # CXTranslationUnit_SkipFunctionBodies: tokens do not need the AST


class TokenKind(enum.IntEnum):
    """CXTokenKind of clang-c/Index.h."""

    PUNCTUATION = 0
    KEYWORD = 1
    IDENTIFIER = 2
    LITERAL = 3
    COMMENT = 4


_MOST_WORDS = 500_000
_KINDS = tuple(TokenKind)  # indexed, not called: an enum's call costs as much as the rest of a token


@dataclass(frozen=True, slots=True)
class Token:
    """One token: ``text`` is exactly the bytes of ``span``."""

    kind: TokenKind
    text: bytes
    span: Span


# A token of ordinary code with the blanks in front of it. A splice inside of a token, a character that is
# none, a quote without its partner: that is libclang's to judge, where each token goes through ctypes.
_ORDINARY = re.compile(
    rb"""
    (?: [ \t\n] | \r\n | \\[ \t]*\r?\n )*
    (?:
        ( //[^\r\n]* | /\*(?s:.*?)\*/ )
      | ( (?:u8|[uUL])?R"(?P<mark>[A-Za-z0-9_{}\[\]\#<>%:;.?*+\-/^&|~!=,']{0,16})\((?s:.*?)\)(?P=mark)"
        | (?:u8|[uUL])?(?: "(?:[^"\\\r\n]|\\[^\r\n])*" | '(?:[^'\\\r\n]|\\[^\r\n])+' ) )
      | ( \.?[0-9] (?: '[0-9A-Za-z_] | [eE][+-] | [0-9A-Za-z_.] )* )
      | ( (?!(?:u8|[uUL])?R")[A-Za-z_][A-Za-z0-9_]* )
      | ( %:%: | <<= | >>= | ->\* | \.\.\. | :: | \.\* | \#\# | -> | \+\+ | -- | << | >> | <= | >= | == | !=
        | && | \|\| | [-+*/%&|^]= | /(?!\*) | [-+*%&|^~!=<>?:;,.(){}\[\]\#] )
      | \Z
      | ( (?s:.) )
    )
    """,
    re.VERBOSE,
)
_COMMENT, _QUOTED, _NUMBER, _NAME, _PUNCTUATOR, _STRANGE = 1, 2, 4, 5, 6, 7
_KIND_OF = {
    _COMMENT: TokenKind.COMMENT,
    _QUOTED: TokenKind.LITERAL,
    _NUMBER: TokenKind.LITERAL,
    _PUNCTUATOR: TokenKind.PUNCTUATION,
}
# Digraphs, marks of a merge conflict, placeholders of an editor, splices in a word, a line end that is none
# everywhere, names of type traits (``struct __is_void`` makes a keyword a name in all of the file).
_UNUSUAL = re.compile(
    rb"<%|%>|<:|:>|%:|<\#|(?m:^(?:<{4}|={4}|>{4}))|[^ \t\r\n]\\[ \t]*\r?\n[^ \t\r\n]|\r(?!\n)"
    rb"|__(?:is|add|array|decay|make|reference|remove|underlying)"
)
_new = object.__new__
_set_start, _set_end, _set_kind, _set_text, _set_span = (
    getattr(kind, name).__set__
    for kind, name in ((Span, "start"), (Span, "end"), (Token, "kind"), (Token, "text"), (Token, "span"))
)


def _token(kind: TokenKind, data: bytes, start: int, end: int) -> Token:
    """``Token(kind, data[start:end], Span(start, end))``, where start and end are known to be right."""
    span, token = _new(Span), _new(Token)
    _set_start(span, start)
    _set_end(span, end)
    _set_kind(token, kind)
    _set_text(token, data[start:end])
    _set_span(token, span)
    return token


def _may_go_on(text: bytes, following: bytes) -> bool:
    """Whether a comment may go on in the next line, or a number be hexadecimal with an exponent."""
    return text.rstrip(b" \t").endswith(b"\\") or (text[-1] in b"pP" and following in (b"+", b"-"))


def _lex_ordinary(data: bytes) -> tuple[Token, ...] | None:
    """The tokens of ordinary code; None where only libclang knows."""
    if _UNUSUAL.search(data) is not None:
        return None
    tokens: list[Token] = []
    names: list[Token] = []
    end, quoted = 0, -1
    for found in _ORDINARY.finditer(data):
        index = found.lastindex
        if index is None:  # the end
            break
        if index == _STRANGE:
            return None
        start, end = found.span(index)
        # Frozen classes set their fields one by one, and check what is right here by its making.
        span, token = _new(Span), _new(Token)
        _set_start(span, start)
        _set_end(span, end)
        _set_text(token, data[start:end])
        _set_span(token, span)
        if index != _NAME:
            _set_kind(token, _KIND_OF[index])
            quoted = end if index == _QUOTED else -1
            if index in (_COMMENT, _NUMBER) and _may_go_on(token.text, data[end : end + 1]):
                return None
        elif start == quoted:
            return None  # a word directly behind a quote may be a suffix of it
        else:
            names.append(token)
        tokens.append(token)
    else:
        return None
    kinds = _kinds_of({token.text for token in names})
    for token in names:
        _set_kind(token, kinds[token.text])
    return tuple(tokens)


_known: dict[bytes, TokenKind] = {}  # which words are keywords; of libclang, a pure function of the word


def _kinds_of(words: set[bytes]) -> dict[bytes, TokenKind]:
    """Whether each word is a keyword, as libclang says."""
    new = sorted(words - _known.keys())
    if new:
        if len(_known) > _MOST_WORDS:
            _known.clear()
            new = sorted(words)
        text = SourceText("<words>", b"\n".join(new) + b"\n")
        _known.update((token.text, token.kind) for token in lex_by_clang(text))
    return _known


def lex(source: SourceText) -> tuple[Token, ...]:
    """All tokens of a source text in order, comments included, as libclang has them.

    Raises :class:`LEXER_MISMATCH` when the offsets read from libclang do not lie on the bytes.
    """
    if not source.data.strip():
        return ()
    found = _lex_ordinary(source.data)
    return found if found is not None else lex_by_clang(source)


def lex_by_clang(source: SourceText) -> tuple[Token, ...]:
    """All tokens of a source text, each of them asked of libclang; raises as :func:`lex`."""
    # The trailing newline keeps clang from dropping a last line without one; offsets do not change.
    data = source.data + b"\n"
    unit = parse_unit(_MAIN, ["-xc++", "-std=c++17", "-nostdinc"], {_MAIN: data}, SINGLE_FILE | _SKIP_BODIES)
    raw = raw_tokens(unit, _MAIN, len(data))
    if raw is None:
        return ()
    # fattn-tile.cuh of build 6900 takes 13 ms; with an object of the bindings for each token 32, and 170 when
    # each is asked for its extent. The first and the last are, so a changed layout is an error.
    rows, first, last = raw
    base = rows[0][1] - first.start
    tokens = []
    for kind, location, length in rows:
        start = location - base
        end = start + length
        if end > len(source.data) or data[start] == _BACKSLASH:
            start, end = _own_bytes(source, start, end)
        tokens.append(_token(_KINDS[kind], source.data, start, end))
    if tokens[-1].span != Span(*_own_bytes(source, last.start, last.end)):
        raise InternalError(
            f"token offsets of libclang do not fit {source.path}",
            code="LEXER_MISMATCH",
            hint="patchkit doctor",
        )
    return tuple(tokens)


def _own_bytes(source: SourceText, start: int, end: int) -> tuple[int, int]:
    """Start and end of a token without what clang adds to it.

    At the very start of a continued line that is the backslash before it; in a raw string or comment
    that the file does not end, the newline added for clang.
    """
    end = min(end, len(source.data))
    splice = _SPLICE.match(source.data, start, end)
    return splice.end() if splice is not None else start, end


@lru_cache(maxsize=1024)
def lex_pattern(pattern: str) -> tuple[Token, ...]:
    """Tokens of a token pattern written in a patch file, comments dropped."""
    source = SourceText("<pattern>", pattern.encode())
    return tuple(token for token in lex(source) if token.kind is not TokenKind.COMMENT)
