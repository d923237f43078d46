"""TOML documents: parse errors, positions of keys, messages of validation."""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import pytest
from pydantic import Field
from refusing import refused

from patchkit.base.errors import ErrorGroup, Location
from patchkit.base.text import near_miss
from patchkit.base.toml import (
    MAX_BYTES,
    NOWHERE,
    NotInFile,
    Several,
    TomlTable,
    format_key_path,
    load_toml,
    parse_toml,
    validate,
)

TEXT = b"""# a comment with [brackets] and = signs
title = "x"  # = [no]
owner.name = "dotted"
owner.'odd key'.deep = 1

[build]
"GGML_HIP" = "ON"
long = \"\"\"
[not a header]
key = 1
\"\"\"
raw = '''x''''
when = 1979-05-27 07:32:00Z

[[row]]
size = 64
cells = [
  1,
  [2, "a,]b"], # comment ] in an array
  { x = 3, y.z = 4 },
]

[[row]]
size = 128

[row.extra]
note = "belongs to the second row"

[[row.part]]
n = 1
[[row.part]]
n = 2

["quoted \\u00e9".'lit']
\xc3\xa9t\xc3\xa9 = 0
""".replace(b"\xc3\xa9t\xc3\xa9", b'"\xc3\xa9t\xc3\xa9"')


@pytest.mark.parametrize(
    ("keys", "line", "column"),
    [
        ((), 1, 1),
        (("title",), 2, 1),
        (("owner",), 3, 1),
        (("owner", "name"), 3, 7),
        (("owner", "odd key"), 4, 7),
        (("owner", "odd key", "deep"), 4, 17),
        (("build",), 6, 1),
        (("build", "GGML_HIP"), 7, 1),
        (("build", "long"), 8, 1),
        (("build", "raw"), 12, 1),
        (("build", "when"), 13, 1),
        (("row",), 15, 1),
        (("row", 0), 15, 1),
        (("row", 0, "size"), 16, 1),
        (("row", 0, "cells", 0), 18, 3),
        (("row", 0, "cells", 1), 19, 3),
        (("row", 0, "cells", 1, 1), 19, 7),
        (("row", 0, "cells", 2), 20, 3),
        (("row", 0, "cells", 2, "x"), 20, 5),
        (("row", 0, "cells", 2, "y", "z"), 20, 14),
        (("row", 1), 23, 1),
        (("row", 1, "size"), 24, 1),
        (("row", 1, "extra"), 26, 1),
        (("row", 1, "extra", "note"), 27, 1),
        (("row", 1, "part", 0, "n"), 30, 1),
        (("row", 1, "part", 1), 31, 1),
        (("row", 1, "part", 1, "n"), 32, 1),
        (("quoted \u00e9", "lit"), 34, 1),
        (("quoted \u00e9", "lit", "\u00e9t\u00e9"), 35, 1),
    ],
)
def test_locate_points_at_the_key(keys: tuple[str | int, ...], line: int, column: int) -> None:
    where = parse_toml("f.toml", TEXT).locate(keys)
    assert (where.path, where.line, where.column) == ("f.toml", line, column)


@pytest.mark.parametrize(
    ("keys", "line"),
    [(("no",), 1), (("build", "no"), 6), (("row", 7), 15), (("row", 1, "extra", "no", 3), 26)],
)
def test_locate_of_a_missing_key_is_its_nearest_parent(keys: tuple[str | int, ...], line: int) -> None:
    assert parse_toml("f.toml", TEXT).locate(keys).line == line


def test_locate_with_windows_line_ends_counts_the_same_lines() -> None:
    document = parse_toml("f.toml", TEXT.replace(b"\n", b"\r\n"))
    assert (document.locate(("row", 1, "part", 1, "n")).line, document.locate(("title",)).column) == (32, 1)


@pytest.mark.parametrize(
    ("data", "line", "column", "why"),
    [
        (b"a = 1\nb = \n", 2, 5, "Invalid value"),
        (b'a = "\xc3\xa9" x', 1, 10, "Expected newline"),
        (b"a = 1\na = 2\n", 2, 6, "Cannot overwrite a value"),
        (b"a = [1,\r\n2", 2, 2, "Unclosed array"),
        (b"[a]\n[a]\n", 2, 3, "Cannot declare"),
        (b"a", 1, 2, "Expected '='"),
    ],
)
def test_syntax_errors_have_line_and_byte_column(data: bytes, line: int, column: int, why: str) -> None:
    with refused("TOML_BAD") as caught:
        parse_toml("f.toml", data)
    where = caught.value.where[0]
    assert (where.path, where.line, where.column) == ("f.toml", line, column)
    assert caught.value.why is not None
    assert caught.value.why.startswith(why)
    assert "(at " not in caught.value.why


def test_a_number_python_rejects_is_a_syntax_error_not_a_crash() -> None:
    with refused("TOML_BAD", match=r"f\.toml cannot be parsed"):
        parse_toml("f.toml", b"a = " + b"9" * 5000)


@pytest.mark.parametrize("number", ["nan", "-nan", "inf", "+inf", "-inf", "1e999", "-1_0.5e+400"])
@pytest.mark.parametrize("text", ["value = {}", "[[row]]\nvalue = {}", "a = 1\n  value = [0, {{ x = {} }}]"])
def test_a_number_that_is_not_finite_is_rejected_with_its_position(text: str, number: str) -> None:
    lines = text.format(number).split("\n")
    with refused("TOML_BAD") as caught:
        parse_toml("f.toml", text.format(number).encode())
    column = lines[-1].index("x" if "x" in lines[-1] else "value") + 1
    assert [str(place) for place in caught.value.where] == [f"f.toml:{len(lines)}:{column}"]


def test_strings_like_nan_and_finite_numbers_are_accepted() -> None:
    table = parse_toml("f.toml", b'nan = "nan"\ninf = -1.7e308\nlist = ["inf", 0.0]\n').table
    assert table == {"nan": "nan", "inf": -1.7e308, "list": ["inf", 0.0]}


def test_nesting_beyond_the_parser_is_an_error_not_a_crash() -> None:
    with refused("TOML_BAD", match="too deeply"):
        parse_toml("f.toml", b"a = " + b"[" * 100_000)


def test_bytes_that_are_not_utf8_are_named_with_their_place() -> None:
    with refused("TOML_BAD", match="0xff") as caught:
        parse_toml("f.toml", b'a = 1\nb = "\xff"\n')
    assert str(caught.value.where[0]) == "f.toml:2:6"


def test_a_byte_order_mark_is_named() -> None:
    with refused("TOML_BAD", match="byte order mark"):
        parse_toml("f.toml", b"\xef\xbb\xbfa = 1\n")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with refused("TOML_MISSING") as missing:
        load_toml(tmp_path / "no" / "folder" / "none.toml")
    assert f"ls {tmp_path}" in (missing.value.hint or "")
    with refused("TOML_BAD"):
        load_toml(tmp_path)
    (tmp_path / "file").write_text("")
    with refused("TOML_BAD") as caught:
        load_toml(tmp_path / "file" / "below.toml")
    assert caught.value.why == "Not a directory"
    os.mkfifo(tmp_path / "pipe")
    with refused("TOML_BAD", match="cannot read"):
        load_toml(tmp_path / "pipe")
    (tmp_path / "big.toml").write_bytes(b"#" * (MAX_BYTES + 1))
    with refused("TOML_BAD"):
        load_toml(tmp_path / "big.toml")


def test_load_reads_what_parse_gets(tmp_path: Path) -> None:
    (tmp_path / "f.toml").write_bytes(TEXT)
    document = load_toml(tmp_path / "f.toml")
    assert document.table == parse_toml("x", TEXT).table
    assert document.path == str(tmp_path / "f.toml")


@dataclass(frozen=True, kw_only=True)
class Verb(TomlTable):
    verb: Literal["change_to"]
    text: str


@dataclass(frozen=True, kw_only=True)
class Removal(TomlTable):
    verb: Literal["remove"]
    why: str | None = None


@dataclass(frozen=True, kw_only=True)
class Row(TomlTable):
    named_by: ClassVar[str] = "nwarps"
    nwarps: int
    acc: Literal["f16", "f32"]
    archs: Several[str] = ()
    wait_s: Annotated[float, Field(alias="wait")] = 0.0
    where: NotInFile[Location] = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, kw_only=True)
class Model(TomlTable):
    row: Several[Row] = ()
    edit: Several[Annotated[Verb | Removal, Field(discriminator="verb")]] = ()
    named: dict[str, Row] = field(default_factory=dict)


def failures(text: str) -> list[tuple[str, str, int | None, str | None, str | None]]:
    with pytest.raises(ErrorGroup) as caught:
        validate(parse_toml("f.toml", text.encode()), Model, what="thing")
    return [(e.code, e.message, e.where[0].line, e.why, e.hint) for e in caught.value.errors]


def test_a_valid_document_becomes_the_model() -> None:
    text = b'[[row]]\nnwarps = 4\nacc = "f16"\narchs = ["gfx1151"]\nwait = 1.5\n'
    model = validate(parse_toml("f.toml", text), Model, what="thing")
    assert model.row == (Row(nwarps=4, acc="f16", archs=("gfx1151",), wait_s=1.5),)
    assert model.row[0].where == Location(path="f.toml", line=2, column=1)


def test_all_problems_are_reported_in_file_order() -> None:
    text = '[[row]]\nnwarp = 4\nacc = "fp16"\n[[row]]\nacc = "f32"\nnwarps = "4"\nwait = true\n'
    assert failures(text) == [
        ("CONFIG_VALUE", "thing: 'row[0].nwarps' is missing", 1, None, "add 'nwarps' here"),
        ("CONFIG_VALUE", "thing: unknown key 'row[0].nwarp'", 2, None, "did you mean 'nwarps'?"),
        (
            "CONFIG_VALUE",
            "thing: 'row[0].acc' is 'fp16'",
            3,
            "it must be one of: f16, f32",
            "did you mean 'f16'?",
        ),
        ("CONFIG_VALUE", "thing: 'row[1].nwarps' is '4'", 6, "it should be a valid integer", None),
        ("CONFIG_VALUE", "thing: 'row[1].wait' is true", 7, "it should be a valid number", None),
    ]


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("wai", "did you mean 'wait'?"),
        ("wait_s", "did you mean 'wait'?"),
        ("where", "known keys: acc, archs, nwarps, wait"),
        ("zzz", "known keys: acc, archs, nwarps, wait"),
    ],
)
def test_an_unknown_key_of_a_nested_table_is_reported_with_the_known_keys(key: str, hint: str) -> None:
    unknown, *_ = failures(f'[named.a]\nnwarps = 1\nacc = "f16"\n{key} = 1.0\n')
    assert unknown == ("CONFIG_VALUE", f"thing: unknown key 'named.a.{key}'", 4, None, hint)


def test_members_of_a_union_are_not_part_of_the_key_path() -> None:
    assert failures('[[edit]]\nverb = "change_to"\ntxt = "x"\n') == [
        ("CONFIG_VALUE", "thing: 'edit[0].text' is missing", 1, None, "add 'text' here"),
        ("CONFIG_VALUE", "thing: unknown key 'edit[0].txt'", 3, None, "did you mean 'text'?"),
    ]
    assert failures('[[edit]]\nverb = "removes"\n') == [
        (
            "CONFIG_VALUE",
            "thing: 'edit[0].verb' is 'removes'",
            2,
            "it must be one of: change_to, remove",
            "did you mean 'remove'?",
        )
    ]
    assert failures("[[edit]]\nwhy = ''\n")[0][1] == "thing: 'edit[0].verb' is missing"
    assert failures("[[edit]]\nverb = 'remove'\nwhy = 3\n")[0][1:4] == (
        "thing: 'edit[0].why' is 3",
        3,
        "it should be a valid string",
    )


def test_long_values_and_tables_are_shortened() -> None:
    assert failures(f"row = '{'x' * 200}'\n")[0][1].endswith("xxx...")
    assert failures("[named]\na = [1]\n")[0][1] == "thing: 'named.a' is an array"
    assert failures("[row]\n")[0][1] == "thing: 'row' is a table"


def test_the_group_survives_pickling() -> None:
    with pytest.raises(ErrorGroup, match=r"f\.toml is not a valid thing$") as caught:
        validate(parse_toml("f.toml", b"x = 1\ny = 2\n"), Model, what="thing")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert [e.message for e in copy.errors] == [e.message for e in caught.value.errors]


def test_key_paths_and_near_misses() -> None:
    assert format_key_path(()) == "the document"
    assert format_key_path(("a", 0, "b")) == "a[0].b"
    assert near_miss("gfx1115", ["gfx1151", "gfx900"]) == "did you mean 'gfx1151'?"
    assert near_miss("quite else", ["gfx1151"]) is None


@pytest.mark.parametrize("part", ["a", '"a"', "'a' "])
@pytest.mark.parametrize("form", ["{} = 1", "[{}]", "k = {{ {} = 1 }}", "[[{}]]"])
def test_a_key_of_very_many_parts_is_rejected_before_parsing(part: str, form: str) -> None:
    text = "x = 1\n" + form.format(".".join([part] * 50_000))
    with refused("TOML_BAD") as caught:
        parse_toml("f.toml", text.encode())
    assert caught.value.where[0].line == 2


def test_long_values_are_not_taken_for_long_keys() -> None:
    parse_toml("f.toml", b"a.b.c.d = '" + b"some words. " * 10_000 + b"'\nb = '" + b"x" * 1_000_000 + b"'\n")
