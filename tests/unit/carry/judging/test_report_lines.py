"""The text of a verdict: one line for each place, and nothing twice."""

from __future__ import annotations

from dataclasses import replace

from patchkit.base.errors import AnchorError, Location
from patchkit.carry.judging.classes import Agreement, ChangedDeclaration, Classified, Drift
from patchkit.carry.placing.resolve import AnchorNotFound

INSIDE = Location(path="src/a.cpp", line=7, column=1, label="'run' begins here")
DRIFT = Drift(
    file="src/a.cpp", entity="run", before="1", after="2", removed=("int old;",), added=("int now;",)
)
LIMIT = ChangedDeclaration(
    kind="macro",
    name="LIMIT",
    how="whose definition changed",
    used=Location(path="src/a.cpp", line=9),
    declared=Location(path="src/a.h", line=1),
    before="#define LIMIT 4",
    after="#define LIMIT 8",
)


def lost(edit: str, line: int, why: str) -> AnchorNotFound:
    own = Location(path="/series/patches/0001-mine/patch.toml", line=line, column=1)
    return AnchorNotFound(
        f"no match for edit '{edit}' in 'run' of src/a.cpp", edit=edit, inside=INSIDE, where=[own, INSIDE],
        why=why, hint="compare both",
    )  # fmt: skip


CONFLICT = Classified(
    id="mine",
    title="mine",
    intent="",
    patch_class="conflict",
    reason="2 of 3 edits cannot be placed",
    problems=(
        lost("one", 10, "the line 'x' does not occur there"),
        lost("two", 20, "upstream no longer has 'y'"),
    ),
    drift=(DRIFT,),
    declarations=(LIMIT,),
    next_step="patchkit resolve mine --to b2: needs your decision in src/a.cpp",
)


def test_edits_without_a_place_in_one_function_have_one_line_each() -> None:
    assert list(CONFLICT.lines("b2"))[:4] == [
        "b2 mine: conflict: 2 of 3 edits cannot be placed",
        "  ANCHOR_NOT_FOUND: 2 edits have no place in 'run' (src/a.cpp:7)",
        "    /series/patches/0001-mine/patch.toml:10: edit 'one': the line 'x' does not occur there",
        "    /series/patches/0001-mine/patch.toml:20: edit 'two': upstream no longer has 'y'",
    ]


def test_the_usual_hint_is_shown_once_and_only_without_a_command() -> None:
    assert not any("hint" in line for line in CONFLICT.lines("b2"))
    lines = list(replace(CONFLICT, next_step="").lines("b2"))
    assert [line for line in lines if "hint" in line] == ["    hint: compare both"]
    moved = lost("one", 10, "gone")
    moved.hint = "its line is now in src/b.cpp"
    assert "    hint: its line is now in src/b.cpp" in list(replace(CONFLICT, problems=(moved,)).lines("b2"))


def test_a_change_of_upstream_is_shown_once_in_a_report() -> None:
    seen: set[str] = set()
    first, second = (list(CONFLICT.lines("b2", seen)) for _ in range(2))
    assert "    - int old;" in first
    assert "    - #define LIMIT 4" in first
    assert "  changed upstream: run in src/a.cpp, shown above" in second
    assert not any(line.strip().startswith(("- ", "+ ")) for line in second)
    assert any(line.endswith("(src/a.h:1), shown above") for line in second)


def test_a_patch_that_waits_for_another_one_has_no_details() -> None:
    waiting = replace(CONFLICT, waits_for="first", next_step="patchkit resolve first --to b2: first")
    assert list(waiting.lines("b2")) == [
        "b2 mine: conflict: 2 of 3 edits cannot be placed",
        "  next: patchkit resolve first --to b2: first",
    ]


def test_the_same_error_of_several_edits_is_written_once() -> None:
    errors = tuple(
        AnchorError(
            "no definition of 'f' in src/a.cpp", code="ENTITY_NOT_FOUND", where=Location(path="p", line=at)
        )
        for at in (1, 2)
    )
    lines = list(replace(CONFLICT, problems=errors, drift=(), declarations=(), next_step="").lines("b2"))
    assert lines[1:] == [
        "  ENTITY_NOT_FOUND: no definition of 'f' in src/a.cpp",
        "    p:1",
        "    the same: p:2",
    ]


def test_the_proof_of_a_patch_that_fits_is_shown_only_if_it_is_not_the_usual_one() -> None:
    clean = replace(
        CONFLICT, patch_class="clean", problems=(), drift=(), declarations=(), next_step="",
        proof=("placed by structure at 1 place", "one derivation only"),
    )  # fmt: skip
    agrees = replace(clean, agreement=Agreement(verdict="agree"))
    assert len(list(agrees.lines("b2"))) == 1
    assert list(clean.lines("b2"))[1:] == ["  proof: one derivation only"]
