"""The text of a patch.toml in parts: what is not changed keeps every byte."""

from __future__ import annotations

from pathlib import Path

import pytest
from refusing import refused

from patchkit.carry.lifting.tables import join_text, split_text

TEXT = """\
# the patch
id = "mine"
guard = "none"   # for all

# its builds
[builds]
first = 1
why = "so"
# between

# about one
# and more
[[edit]]
id = "one"
text = '''
[[edit]]
# no comment
'''

[[edit]]
id = "two"  # short
[edit.at]
lines = "x"
[[requires]]
patch = 'other' # why
why = "because"
"""


def test_every_table_is_a_part_with_its_comment() -> None:
    found = split_text("patch.toml", TEXT)
    assert [(part.key, part.number) for part in found.parts] == [
        ("builds", 0),
        ("edit", 0),
        ("edit", 1),
        ("requires", 0),
    ]
    assert found.head == TEXT[: TEXT.index("# its builds")]
    assert found.parts[1].comment == "# about one\n# and more\n"
    assert "[edit.at]" in found.parts[2].text
    assert found.head + "".join(part.text for part in found.parts) == TEXT
    assert join_text(found, found.head, found.parts) == TEXT


def test_a_part_that_goes_takes_its_comment_with_it() -> None:
    found = split_text("patch.toml", TEXT)
    text = join_text(found, found.head, [part for part in found.parts if part.order != 1])
    assert text == TEXT.replace(TEXT[TEXT.index("# about one") : TEXT.index('[[edit]]\nid = "two"')], "")


def test_a_new_part_has_a_blank_line_around_it() -> None:
    found = split_text("patch.toml", TEXT)
    (new,) = split_text("", '[[edit]]\nid = "three"\n').parts
    text = join_text(found, found.head, [*found.parts[:3], new.moved(), found.parts[3]])
    assert 'lines = "x"\n\n[[edit]]\nid = "three"\n\n[[requires]]' in text
    assert text.replace('\n\n[[edit]]\nid = "three"\n\n', "\n") == TEXT


@pytest.mark.parametrize("value", ["new", None])
def test_a_value_changes_and_the_rest_stays(value: str | None) -> None:
    part = split_text("patch.toml", TEXT).of("requires")[0].with_value("patch", value)
    line = 'patch = "new"  # why\n' if value is not None else ""
    assert part.text == f'[[requires]]\n{line}why = "because"\n'
    assert part.table == ({"patch": value} if value else {}) | {"why": "because"}


def test_a_value_that_is_not_on_a_line_of_its_own_is_refused() -> None:
    (part,) = split_text("", "[[requires]]\npatch = '''\nother'''\n").parts
    with refused("PATCH_BAD"):
        part.with_value("patch", "new")


def test_edits_without_headers_are_refused(tmp_path: Path) -> None:
    text = 'id = "mine"\nedit = [{ id = "one" }]\n'
    with refused("PATCH_BAD"):
        split_text(str(tmp_path / "patch.toml"), text)


def test_shipped_patches_can_be_taken_apart(checkout: Path) -> None:
    paths = sorted(checkout.glob("patches/*/patch.toml"))
    assert paths
    for path in paths:
        text = path.read_text()
        found = split_text(str(path), text)
        assert join_text(found, found.head, found.parts) == text
