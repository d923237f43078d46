"""After the edits of a plain patch: what tokens prove, and what they cannot tell."""

from __future__ import annotations

import pytest
from refusing import refused
from sources import read

from patchkit.base.source import Span
from patchkit.carry.cpp.scopes import parse_scopes
from patchkit.carry.placing.expand import Placement, apply_placements
from patchkit.carry.placing.plain import confirm_plain

SOURCE = """\
struct tile {
    void reset() { n = 0; }
    int n;
};
struct other {
    void reset() { n = 0; }
    int n;
};
void f(int a) {
    g(a);
}
"""


@pytest.fixture
def confirm(here):
    """Replaces each text by another one, and confirms."""

    def run(*changes: tuple[str, str], source: str = SOURCE) -> tuple[str, ...]:
        before = read(source)
        placements = []
        for number, (old, new) in enumerate(changes):
            start = source.index(old)
            span = Span(start, start + len(old))
            placements.append(
                Placement(span=span, replacement=new.encode(), edit=f"edit-{number}", where=here)
            )
        applied = apply_placements(before.source, placements)
        return confirm_plain(before, parse_scopes(applied.after), applied, ())

    return run


def test_members_of_a_renamed_struct_are_as_before(confirm):
    assert confirm(("struct tile {", "struct wide_tile {")) == ()


def test_a_definition_that_changes_without_an_edit_is_named(confirm):
    with refused("TWIN_TOUCHED") as caught:
        confirm(("};\n", "};\nstatic\n"))
    assert "'other' changed" in caught.value.message


def test_a_bracket_without_a_partner_is_refused(confirm):
    with refused("PLAIN_UNBALANCED") as caught:
        confirm(("g(a);", "if (a) { g(a);"))
    assert "'{' in line 9" in caught.value.message
    code, changed, *_ = caught.value.where
    assert (str(code), code.label) == ("t.cu:9", "with the edits: void f(int a) {")
    assert (str(changed), changed.label) == ("t.cu:10", "edit 'edit-0' changes this line")


def test_an_edit_that_removes_a_bracket_is_the_one_that_is_named(confirm):
    with refused("PLAIN_UNBALANCED") as caught:
        confirm(("struct tile {", "struct wide_tile {"), ("g(a);\n}", "g(a);\n"))
    labels = [place.label for place in caught.value.where if place.label]
    assert labels[1:] == ["edit 'edit-1' changes this line"]


def test_a_bracket_below_an_if_may_have_its_partner_below_another_one(confirm):
    # Upstream's own mul_mat_f is written so since 2e1c9cd814.
    opened, closed = "#ifdef X\n    if (a) {\n#endif\n    g(a);\n", "#ifdef X\n    }\n#endif\n"
    (told,) = confirm(("    g(a);\n", opened + closed + closed))
    assert told == "t.cu: '}' in line 20 has no partner, unless under another #if"
    assert confirm(("    g(a);\n", opened + closed)) == ()


def test_an_if_around_the_whole_file_decides_nothing(confirm):
    with refused("PLAIN_UNBALANCED"):
        confirm(("g(a);", "if (a) { g(a);"), source=f"#ifndef H\n#define H\n{SOURCE}#endif\n")
