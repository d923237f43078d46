"""Tokenize C++, CUDA or HIP into tokens with byte spans, including all branches, comments and directives."""

from __future__ import annotations

import enum
import re
from functools import lru_cache, partial
from typing import NamedTuple

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
_KINDS = tuple(TokenKind)  # indexed instead of called: calling an enum costs as much as the rest of a token


class Token(NamedTuple):
    """One token: ``text`` is exactly the bytes ``[start, end)`` of the source.

    A tuple, because a bump makes millions of them.
    """

    kind: TokenKind
    text: bytes
    start: int
    end: int

    @property
    def span(self) -> Span:
        """Its place in the source."""
        return Span(self.start, self.end)


_token = partial(tuple.__new__, Token)  # faster than the constructor, which is a Python function

# A token of ordinary code with the whitespace before it. Line splices inside a token, invalid characters and
# unpaired quotes are left to libclang, where each token costs a call through ctypes.
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
# Digraphs, merge conflict markers, editor placeholders, splices in a word, a lone carriage return, and names
# of type traits (``struct __is_void`` turns a keyword into a name in the whole file).
_UNUSUAL = re.compile(
    rb"<%|%>|<:|:>|%:|<\#|(?m:^(?:<{4}|={4}|>{4}))|[^ \t\r\n]\\[ \t]*\r?\n[^ \t\r\n]|\r(?!\n)"
    rb"|__(?:is|add|array|decay|make|reference|remove|underlying)"
)


def _may_go_on(text: bytes, following: bytes) -> bool:
    """Whether a comment may continue on the next line, or a number may be hexadecimal with an exponent."""
    return text.rstrip(b" \t").endswith(b"\\") or (text[-1] in b"pP" and following in (b"+", b"-"))


# Where a file is cut into pieces: after a line that begins with a closing brace. A cut in a comment or a raw
# string leaves a piece that is not ordinary.
_CUT = re.compile(rb"\n\}[^\n]*\n")


def _lex_ordinary(data: bytes) -> tuple[Token, ...] | None:
    """The tokens of ordinary code; None if libclang is needed.

    The next version of a file has mostly the same definitions, so tokens are kept for each of them.
    """
    if _UNUSUAL.search(data) is not None:
        return None
    tokens: list[Token] = []
    ends = [*(found.end() for found in _CUT.finditer(data)), len(data)]
    pieces = [(start, data[start:end]) for start, end in zip((0, *ends), ends, strict=False) if start < end]
    # One call of libclang for the words of all new pieces. With one for each piece, a bump of 30 patches from
    # build 7040 to 7140 made 2,944 calls, half of the time for lexing; with this it makes 234.
    _kinds_of({word for _, piece in pieces if piece not in _pieces for word in _WORD.findall(piece)})
    for start, piece in pieces:
        found = _lex_piece(piece, start)
        if found is None:
            return _lex_whole(data)
        tokens += found
    return tuple(tokens)


_WORD = re.compile(rb"\b[A-Za-z_][A-Za-z0-9_]*")
_MOST_PIECES = 16384
_pieces: dict[bytes, tuple[int, tuple[Token, ...] | None]] = {}  # by text: where it was last, and its tokens


def _lex_piece(data: bytes, offset: int) -> tuple[Token, ...] | None:
    """The tokens of a piece that begins at ``offset`` of its file; None if it is not ordinary code."""
    known = _pieces.get(data)
    if known is None:
        if len(_pieces) >= _MOST_PIECES:
            _pieces.clear()
        tokens = _lex_whole(data, offset)
    else:
        before, tokens = known
        if before == offset or tokens is None:
            return tokens
        by = offset - before
        tokens = tuple([_token((kind, text, start + by, end + by)) for kind, text, start, end in tokens])
    _pieces[data] = offset, tokens
    return tokens


def _lex_whole(data: bytes, offset: int = 0) -> tuple[Token, ...] | None:
    """The tokens of ordinary code that begins at ``offset`` of its file; None if libclang is needed."""
    tokens: list[Token] = []
    kinds = _kinds_of({*_WORD.findall(data)})
    end, quoted = 0, -1
    for found in _ORDINARY.finditer(data):
        index = found.lastindex
        if index is None:  # end of the text
            return tuple(tokens)
        if index == _STRANGE:
            return None
        start, end = found.span(index)
        text = data[start:end]
        if index == _NAME:
            if start == quoted:
                return None  # a word directly after a literal may be its suffix
            kind = kinds[text]
        else:
            kind = _KIND_OF[index]
            quoted = end if index == _QUOTED else -1
            if index in (_COMMENT, _NUMBER) and _may_go_on(text, data[end : end + 1]):
                return None
        tokens.append(_token((kind, text, offset + start, offset + end)))
    return None


_known: dict[bytes, TokenKind] = {}  # whether a word is a keyword, from libclang; depends on the word only


def _kinds_of(words: set[bytes]) -> dict[bytes, TokenKind]:
    """The kind of each word, keyword or name, according to libclang."""
    new = sorted(word for word in words if word not in _known)  # a difference would read all known ones
    if new:
        if len(_known) > _MOST_WORDS:
            _known.clear()
            new = sorted(words)
        text = SourceText("<words>", b"\n".join(new) + b"\n")
        _known.update((token.text, token.kind) for token in lex_by_clang(text))
    return _known


def lex(source: SourceText) -> tuple[Token, ...]:
    """All tokens of a source text in order, including comments, as libclang lexes them.

    Raises :class:`LEXER_MISMATCH` if the offsets from libclang do not match the bytes.
    """
    if not source.data.strip():
        return ()
    found = _lex_ordinary(source.data)
    return found if found is not None else lex_by_clang(source)


def lex_by_clang(source: SourceText) -> tuple[Token, ...]:
    """All tokens of a source text, lexed by libclang; raises as :func:`lex`."""
    # Without the added newline clang drops a last line that has none; offsets do not change.
    data = source.data + b"\n"
    unit = parse_unit(_MAIN, ["-xc++", "-std=c++17", "-nostdinc"], {_MAIN: data}, SINGLE_FILE | _SKIP_BODIES)
    raw = raw_tokens(unit, _MAIN, len(data))
    if raw is None:
        return ()
    # fattn-tile.cuh of build 6900 takes 13 ms this way, 32 ms with an object of the bindings per token, and
    # 170 ms if each token's extent is read as well. Only the first and the last extent are read, to detect a
    # changed memory layout.
    rows, first, last = raw
    base = rows[0][1] - first.start
    tokens = []
    for kind, location, length in rows:
        start = location - base
        end = start + length
        if end > len(source.data) or data[start] == _BACKSLASH:
            start, end = _own_bytes(source, start, end)
        tokens.append(Token(_KINDS[kind], source.data[start:end], start, end))
    if (tokens[-1].start, tokens[-1].end) != _own_bytes(source, last.start, last.end):
        raise InternalError(
            f"token offsets from libclang do not match {source.path}",
            code="LEXER_MISMATCH",
            hint="to check the installation: patchkit doctor",
        )
    return tuple(tokens)


def _own_bytes(source: SourceText, start: int, end: int) -> tuple[int, int]:
    """Start and end of a token, without bytes that clang adds to it.

    At the start of a continued line that is the backslash before it; in a raw string or comment that the
    file does not close, it is the newline added for clang.
    """
    end = min(end, len(source.data))
    splice = _SPLICE.match(source.data, start, end)
    return splice.end() if splice is not None else start, end


@lru_cache(maxsize=1024)
def lex_pattern(pattern: str) -> tuple[Token, ...]:
    """The tokens of a token pattern from a patch file, without comments."""
    source = SourceText("<pattern>", pattern.encode())
    return tuple(token for token in lex(source) if token.kind is not TokenKind.COMMENT)
