"""An insertion next to code that upstream changed: it stays between the same two neighbours."""

from __future__ import annotations

import pytest

from patchkit.carry.judging.conflict_markers import Conflict
from patchkit.carry.judging.merged import _between

MINE = "    mine(x);\n"


def between(base: str, patch: str, upstream: str, path: str = "a.cpp") -> str | None:
    sides = [each.removesuffix("\n").encode().split(b"\n") for each in (patch, base, upstream)]
    found = _between(Conflict(0, 0, *sides), path)
    return None if found is None else b"\n".join(found).decode() + "\n"


@pytest.mark.parametrize(
    ("base", "upstream"),
    [
        ("    first(x, y);\n", "    first(x, y, z);\n"),  # a similar line
        ("    host_free(b->context);\n", "    release_aligned((void *) b->context);\n"),  # one statement
        ("    copy(x);\n", "    if (x) {\n        fast(x);\n    } else {\n        slow(x);\n    }\n"),
        ("    int a = f(x);\n    int b = g(x);\n", "    int a = f(x, 1);\n    h(a);\n    int b = g(x, 1);\n"),
    ],
)
def test_an_insertion_keeps_its_side_of_changed_code(base: str, upstream: str) -> None:
    assert between(base, MINE + base, upstream) == MINE + upstream
    assert between(base, base + MINE, upstream) == upstream + MINE


@pytest.mark.parametrize(
    ("base", "patch", "upstream"),
    [
        ("    first(x);\n", f"    first(x);\n{MINE}", "    other(y);\n    another(z);\n"),  # which of them?
        ("    first(x, y);\n", f"    first(x, y);\n{MINE}", "    first(x, z);\n    more(y);\n"),
        ("    first(x);\n", f"    changed(x);\n{MINE}", "    first(y);\n"),
        (
            "    a(x);\n    b(x);\n",
            f"    a(x);\n{MINE}    b(x);\n",
            "    a(y);\n    b(y);\n",
        ),  # not at a border
        ("    }\n", f"    }}\n{MINE}", "    };\n"),
        ("    first(x);\n", f"    first(x);\n{MINE}", "\n"),
    ],
)
def test_every_other_change_stays_a_conflict(base: str, patch: str, upstream: str) -> None:
    assert between(base, patch, upstream) is None


def test_text_is_compared_by_lines_only() -> None:
    assert between("name one two\n", "mine\nname one two\n", "name one three\n", "a.txt") is not None
    assert between("name one two\n", "mine\nname one two\n", "something else entirely\n", "a.txt") is None
