"""Places that are found and refused all the same."""

from __future__ import annotations

import pytest
from refusing import refused
from sources import read

from patchkit.carry.placing.resolve import resolve_anchor


def resolve(text, edit):
    return resolve_anchor(read(text), edit)


@pytest.mark.parametrize(
    "text",
    [
        "int a =\n#ifdef A\n  1;\n#else\n  2;\n#endif\n",
        "#ifdef A\nint a = 1\n#endif\n  ;\n",
        "f(int a,\n#ifdef A\n  1);\n#elif B\n  2);\n#endif\n",
    ],
)
def test_a_span_over_part_of_a_group_crosses_it(edit, text):
    with refused("ANCHOR_CROSSES_DIRECTIVE") as caught:
        resolve(text, edit({"statement": "int a"}))
    labels = [place.label for place in caught.value.where]
    assert labels[1:] == ["the span begins here", "the group begins here"]


def test_a_span_over_a_whole_group_is_fine(edit):
    text = "f(a,\n#ifdef A\n  1,\n#else\n  2,\n#endif\n  3);\n"
    assert len(resolve(text, edit({"statement": "f(a"})).spans) == 1


IF = "void f() {\n    if (a) b = 1;\n    c;\n    if (d) { e; } else g;\n}\n"


@pytest.mark.parametrize(
    ("verb", "at"),
    [
        ("insert_before", {"statement": "b = 1"}),
        ("insert_before", {"tokens": "b"}),
        ("insert_before", {"tokens": "{ e; }"}),
        ("insert_before", {"tokens": "g"}),
        ("insert_after", {"statement": "b = 1"}),
        ("insert_after", {"tokens": "= 1;"}),
        ("remove", {"statement": "b = 1"}),
        ("remove", {"tokens": "{ e; }"}),
        ("remove", {"statement": "g"}),
        ("insert_after", {"before": {"statement": "b = 1"}}),
        ("insert_before", {"after": {"statement": "b = 1"}}),
        ("insert_before", {"between": [{"tokens": "(a)"}, {"tokens": "b ="}]}),
    ],
)
def test_the_unbraced_body_of_a_control_statement_is_refused(edit, verb, at):
    with refused("ANCHOR_UNBRACED") as caught:
        resolve(IF, edit(at, function="f", verb=verb))
    assert str(caught.value.where[0]).endswith("patch.toml:7:1")
    assert str(caught.value.where[1]).startswith(("t.cu:2:", "t.cu:4:"))


@pytest.mark.parametrize(
    ("verb", "at"),
    [
        ("insert_before", {"statement": "if (a)"}),
        ("insert_after", {"statement": "if (a)"}),
        ("insert_before", {"after": {"statement": "if (a)"}}),
        ("insert_before", {"statement": "c;"}),
        ("insert_after", {"statement": "if (d)"}),
        ("insert_after", {"tokens": "b"}),
        ("insert_before", {"statement": "e;"}),
        ("remove", {"statement": "e;"}),
        ("remove", {"tokens": "= 1"}),
        ("change_to", {"statement": "b = 1"}),
        ("use_alias", {"tokens": "b"}),
    ],
)
def test_everything_else_is_allowed(edit, verb, at):
    assert len(resolve(IF, edit(at, function="f", verb=verb)).spans) == 1
