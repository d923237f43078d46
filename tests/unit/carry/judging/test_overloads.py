"""An edit in one of several functions of a name, whose parameters upstream changed."""

from __future__ import annotations

from dataclasses import replace

from patchkit.base.reporter import NullReporter
from patchkit.base.source import SourceText
from patchkit.carry.cpp.scopes import ScopeMap, parse_scopes
from patchkit.carry.judging.merged import follow_edit
from patchkit.carry.series.patch import Edit
from patchkit.carry.series.selector import Selector

PATH = "src/graph.cpp"
OLD = """\
int build(int n) {
    int sum = first(n);
    return sum;
}

int build(int n, bool norm) {
    int sum = second(n);
    sum += norm;
    return sum;
}
"""
TEXT = "    sum += mine(n);\n"
EDIT = Edit(
    id="build",
    file=PATH,
    function="build",
    parameters="( int n , bool norm )",
    at=Selector(lines="    sum += norm;", below="    return sum;"),
    verb="insert_after",
    text=TEXT,
)


def scopes(text: str) -> ScopeMap:
    return parse_scopes(SourceText(PATH, text.encode()))


def follow(new: str) -> Edit | None:
    found = follow_edit(EDIT, replace(EDIT), TEXT, (scopes(OLD), scopes(new)), NullReporter())
    return found[0] if found is not None else None


def test_an_overload_with_another_parameter_is_followed() -> None:
    found = follow(OLD.replace("bool norm)", "bool norm, float scale)"))
    assert found is not None
    assert found.parameters == "( int n , bool norm , float scale )"
    assert (found.at, found.function) == (EDIT.at, "build")


def test_an_overload_among_others_is_not_followed_if_its_order_changed() -> None:
    other = "int build(float x) {\n    return int(x);\n}\n\n"
    assert follow(other + OLD.replace("bool norm)", "bool norm, float scale)")) is None
