"""locate() answers for every key path, and finds every key of every document."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from patchkit.base.toml import Document, KeyPath, find_places, parse_toml

# Characters that mean something to a TOML reader, and some that do not.
CHARACTERS = st.sampled_from(list("ab\u00e9 .,=#[]{}'\"\\-_1\t"))
TEXTS = st.text(CHARACTERS, max_size=6)
VALUES = st.recursive(
    st.integers(-9, 9) | st.booleans() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
TABLES = st.dictionaries(TEXTS, VALUES, max_size=4)
BLANKS = st.sampled_from(["", " ", "  # a ] comment = [", "\t"])


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def inline(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{quoted(k)} = {inline(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(inline(v) for v in value) + "]"
    if isinstance(value, str) and "'" not in value:
        return f"'{value}'"
    return quoted(value) if isinstance(value, str) else str(value)


def written(
    table: Mapping[str, object], rows: Sequence[Mapping[str, object]], name: str, blank: str, newline: str
) -> str:
    lines = [f"{quoted(key)} = {inline(value)}{blank}" for key, value in table.items()]
    for row in rows:
        lines += ["", f"[[{quoted(name)}.rows]]{blank}"]
        lines += [f"{quoted(key)}={inline(value)}" for key, value in row.items()]
        lines += [f"[{quoted(name)}.rows.below]", 'deep.er = """', '[no]""x""""' + blank]
    return newline.join([*lines, ""])


def paths(value: object, path: KeyPath = ()) -> Iterator[KeyPath]:
    yield path
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from paths(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from paths(inner, (*path, index))


@st.composite
def documents(draw: st.DrawFn) -> Document:
    table = draw(TABLES)
    name = draw(TEXTS.filter(lambda text: text not in table))
    rows = draw(st.lists(TABLES.map(lambda row: {k: v for k, v in row.items() if k != "below"}), max_size=2))
    text = written(table, rows, name, draw(BLANKS), draw(st.sampled_from(["\n", "\r\n"])))
    return parse_toml("f.toml", text.encode())


@given(documents())
def test_every_key_has_a_place_and_the_key_is_written_there(document: Document) -> None:
    places = find_places(document.data)
    assert set(places) == set(paths(document.table))
    for path, offset in places.items():
        if path and isinstance(path[-1], str):
            line = document.data[offset:].decode().split("\n", 1)[0]
            bare_key = path[-1] in {"rows", "below", "deep", "er"} and not line.startswith('"')
            key = path[-1] if bare_key else quoted(path[-1])
            assert key in line if line.startswith("[") else line.startswith(key)


@given(documents(), st.lists(TEXTS | st.integers(-1, 3), max_size=5))
def test_locate_is_total_and_answers_with_a_parent(document: Document, keys: list[str | int]) -> None:
    where = document.locate(tuple(keys))
    parents = [tuple(keys[:n]) for n in range(len(keys), -1, -1)]
    expected = next(parent for parent in parents if parent in set(paths(document.table)))
    assert where == document.locate(expected)
    assert where.line is not None
    assert where.column is not None
    assert 1 <= where.line <= document.data.count(b"\n") + 1


@given(st.text(st.sampled_from(list("ab=.,[]{}\"'\\#\n\r 1t")), max_size=40))
def test_whatever_the_parser_takes_the_scanner_finds_completely(text: str) -> None:
    try:
        table = tomllib.loads(text)
    except ValueError:
        return
    assert set(find_places(text.encode())) == set(paths(table))
