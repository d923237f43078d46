"""An edit in a function that upstream renamed, of which most lines but fewer statements are the same."""

from __future__ import annotations

from patchkit.base.reporter import NullReporter
from patchkit.base.source import SourceText
from patchkit.carry.cpp.scopes import ScopeMap, parse_scopes
from patchkit.carry.judging.merged import follow_edit
from patchkit.carry.series.patch import Edit
from patchkit.carry.series.selector import Selector

PATH = "src/graph.cpp"
BODY = "".join(f"    sum += part_{at}(n);\n" for at in range(12))
OLD = (
    f"static int check_and_copy(int n, int * out) {{\n    int sum = 0;\n{BODY}"
    "    *out = sum;\n    return sum;\n}\n"
)
NEW = OLD.replace("check_and_copy(int n, int * out)", "check(int n)").replace("    *out = sum;\n", "")
TEXT = "    sum += mine(n);\n"


def scopes(text: str) -> ScopeMap:
    return parse_scopes(SourceText(PATH, text.encode()))


def follow(new: str, *, parameters: str | None = None) -> Edit | None:
    edit = Edit(
        id="check",
        file=PATH,
        function="check_and_copy",
        parameters=parameters,
        at=Selector(lines="    sum += part_5(n);", below="    sum += part_6(n);"),
        verb="insert_after",
        text=TEXT,
    )
    found = follow_edit(edit, edit, TEXT, (scopes(OLD), scopes(new)), NullReporter())
    return found[0] if found is not None else None


def test_the_edit_gets_the_new_name() -> None:
    found = follow(NEW)
    assert found is not None
    assert (found.function, found.parameters) == ("check", None)


def test_the_edit_gets_the_new_parameters_if_it_names_the_old_ones() -> None:
    found = follow(NEW, parameters="( int n , int * out )")
    assert found is not None
    assert (found.function, found.parameters) == ("check", "( int n )")


def test_a_function_that_is_too_different_is_not_followed() -> None:
    assert follow(NEW.replace("    return sum;\n", "    use(sum);\n" * 20 + "    return sum;\n")) is None


def test_a_function_whose_old_name_is_still_there_is_not_followed() -> None:
    assert follow(NEW + "\nint check_and_copy(int n, int * out) {\n    return other(n, out);\n}\n") is None
