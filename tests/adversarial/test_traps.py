"""What upstream may do to the code under a patch, one trap at a time, and the class that must come of it."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace

import pytest
from thorough import ordinary

from patchkit.carry.series.patch import Replacement

CHOICE = "ggml_cuda_get_best_fattn_kernel"
PRUNE = (
    "#ifdef GGML_USE_WMMA_FATTN\n"
    "            (ncols2 != 1 && DV != 40 && DV != 512) ||\n"
    "#endif // GGML_USE_WMMA_FATTN\n"
)


def swap(text, old, new, count=1):
    assert text.count(old) == count, (old, text.count(old))
    return text.replace(old, new)


def classes(found):
    return {name: verdict.patch_class for name, verdict in found.items()}


def function_of(text, name):
    """The text of a function definition of one line's header, by its braces in column 0."""
    found = re.search(rf"^[^\n]*\b{name}\([^;{{]*\{{\n.*?^\}}\n", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[0]


def test_nothing_changed_is_clean_by_both_derivations(ground):
    found = ground.classify({})
    assert set(classes(found).values()) == {"clean"}
    assert {verdict.agreement.verdict for verdict in found.values()} == {"agree"}
    assert not any(verdict.drift or verdict.moves for verdict in found.values())


@pytest.mark.thorough
def test_a_renamed_function_is_followed_and_shown(ground):
    text = ground.read("fattn.cu").replace(CHOICE, "ggml_cuda_choose_fattn")
    found = ground.classify({"fattn.cu": text})
    assert classes(found) == {
        "wmma-tile-params": "clean",
        "fattn-keep-gqa-tiles": "clean",
        "fattn-decode-tile": "moved",
    }
    move = found["fattn-decode-tile"].moves[0]
    assert move.how == "renamed"
    assert "'ggml_cuda_choose_fattn'" in move.detail
    assert found["fattn-decode-tile"].agreement.verdict == "agree"


@pytest.mark.thorough
def test_a_function_that_was_followed_is_followed_on_from_its_new_name(ground):
    renamed = {"fattn.cu": ground.read("fattn.cu").replace(CHOICE, "ggml_cuda_choose_fattn")}
    _, last = ground.step(renamed, ground.last)
    found, _ = ground.step(renamed, last, build=6902)
    assert set(classes(found).values()) == {"clean"}
    again = {"fattn.cu": ground.read("fattn.cu").replace(CHOICE, "ggml_cuda_pick_fattn")}
    found, _ = ground.step(again, last, build=6903)
    assert (
        "'ggml_cuda_choose_fattn' is now 'ggml_cuda_pick_fattn'" in found["fattn-decode-tile"].moves[0].detail
    )


def renamed_and_changed(ground):
    text = ground.read("fattn.cu").replace(CHOICE, "ggml_cuda_choose_fattn")
    return swap(text, "if (mask && mask->ne[2] != 1) {", "if (mask && mask->ne[2] > 72) {")


def test_a_function_renamed_and_changed_a_little_is_followed_when_both_derivations_agree(ground):
    found = ground.classify({"fattn.cu": renamed_and_changed(ground)})["fattn-decode-tile"]
    assert found.patch_class == "moved"
    assert [move.how for move in found.moves] == ["renamed"]
    assert found.agreement.verdict == "agree"
    (drift,) = found.drift  # so that the gates are needed
    assert drift.entity == "ggml_cuda_choose_fattn"
    assert any("72" in unit for unit in drift.added)


@pytest.mark.thorough
def test_a_function_renamed_and_changed_at_the_place_itself_is_not_followed_but_named(ground):
    text = swap(
        renamed_and_changed(ground),
        "if (ggml_cuda_should_use_wmma_fattn(cc) && K->ne[1] % FATTN_KQ_STRIDE == 0",
        "if (K->ne[1] % FATTN_KQ_STRIDE == 0 && ggml_cuda_should_use_wmma_fattn(cc)",
    )
    found = ground.classify({"fattn.cu": text})["fattn-decode-tile"]
    assert found.patch_class == "conflict"
    (problem,) = found.problems
    assert problem.code == "ENTITY_NOT_FOUND"
    assert any("'ggml_cuda_choose_fattn' has 9" in (place.label or "") for place in problem.where)


@pytest.mark.thorough
def test_a_function_renamed_with_a_rival_is_not_followed(ground):
    text = renamed_and_changed(ground)
    function = function_of(text, "ggml_cuda_choose_fattn")
    rival = function.replace("ggml_cuda_choose_fattn", "ggml_cuda_choose_other").replace("576", "577")
    found = ground.classify({"fattn.cu": text.replace(function, f"{function}\n{rival}")})["fattn-decode-tile"]
    assert found.patch_class == "conflict"
    (problem,) = found.problems
    assert len([place for place in problem.where if "has 9" in (place.label or "")]) == 2
    assert found.intent


def split_at(ground, comment):
    """The choice of the kernel, with what is below a comment in a helper of its own."""
    head, middle, tail = ground.read("fattn.cu").partition(comment)
    assert middle
    body, brace, rest = tail.partition("\n}\n")
    helper = f"static best_fattn_kernel fattn_of_the_rest(const ggml_tensor * Q) {{\n{middle}{body}{brace}"
    position = head.index(f"static best_fattn_kernel {CHOICE}")
    return f"{head[:position]}{helper}\n{head[position:]}    return fattn_of_the_rest(Q);{brace}{rest}"


@pytest.mark.thorough
def test_a_function_split_in_two_is_a_conflict_for_what_is_in_the_other_half(ground):
    text = split_at(ground, "    // Use the WMMA kernel if possible:")
    found = ground.classify({"fattn.cu": text})["fattn-decode-tile"]
    assert found.patch_class == "conflict"
    (problem,) = found.problems
    assert any("fattn_of_the_rest" in (place.label or "") for place in problem.where)
    text = split_at(ground, "    // If there are no tensor cores available,")
    found = ground.classify({"fattn.cu": text})["fattn-decode-tile"]
    assert found.patch_class == "clean"
    assert [drift.entity for drift in found.drift] == [CHOICE]


def test_a_function_moved_to_another_file_is_followed_there(ground):
    text = ground.read("fattn.cu")
    function = function_of(text, CHOICE)
    new = '#pragma once\n#include "common.cuh"\n#include "fattn-common.cuh"\n\n' + function
    found = ground.classify({"fattn.cu": swap(text, function, ""), "fattn-choice.cuh": new})
    assert classes(found)["fattn-decode-tile"] == "moved"
    move = found["fattn-decode-tile"].moves[0]
    assert (move.how, move.after.path) == ("another file", "ggml/src/ggml-cuda/fattn-choice.cuh")


@pytest.mark.thorough
def test_a_name_that_another_file_uses_for_something_else_is_not_followed(ground):
    text = ground.read("fattn.cu")
    function = function_of(text, CHOICE)
    head = function.partition("{\n")[0]
    new = f"#pragma once\n{head}{{\n    return BEST_FATTN_KERNEL_TILE;\n}}\n"
    found = ground.classify({"fattn.cu": swap(text, function, ""), "fattn-choice.cuh": new})
    assert classes(found)["fattn-decode-tile"] == "conflict"
    assert [problem.code for problem in found["fattn-decode-tile"].problems] == ["ENTITY_NOT_FOUND"]


def test_a_twin_is_a_conflict_that_names_both(ground):
    text = ground.read("fattn.cu")
    twin = f"static best_fattn_kernel {CHOICE}(const int cc) {{\n"
    twin += "    return cc ? BEST_FATTN_KERNEL_TILE : BEST_FATTN_KERNEL_NONE;\n}\n\n"
    position = text.index(f"static best_fattn_kernel {CHOICE}")
    found = ground.classify({"fattn.cu": text[:position] + twin + text[position:]})["fattn-decode-tile"]
    assert found.patch_class == "conflict"
    (problem,) = found.problems
    assert problem.code == "ENTITY_AMBIGUOUS"
    assert len([place for place in problem.where if place.path.endswith("fattn.cu")]) == 2


def test_a_reordered_condition_is_moved_and_both_statements_are_shown(ground):
    text = swap(
        ground.read("fattn.cu"),
        "if (ggml_cuda_should_use_wmma_fattn(cc) && K->ne[1] % FATTN_KQ_STRIDE == 0",
        "if (K->ne[1] % FATTN_KQ_STRIDE == 0 && ggml_cuda_should_use_wmma_fattn(cc)",
    )
    found = ground.classify({"fattn.cu": text})["fattn-decode-tile"]
    assert found.patch_class == "moved"
    (move,) = found.moves
    assert move.how == "statement"
    assert "FATTN_KQ_STRIDE == 0 && ggml_cuda_should_use_wmma_fattn" in move.detail
    assert found.drift


@pytest.mark.thorough
def test_a_statement_that_changed_its_place_in_the_function_is_moved(ground):
    text = ground.read("fattn.cu")
    start = text.index("    // Use the WMMA kernel if possible:")
    end = text.index("    // If there are no tensor cores available,")
    earlier = text.index("    // If Turing tensor cores available, use them:")
    block = text[start:end]
    found = ground.classify({"fattn.cu": text[:earlier] + block + text[earlier:start] + text[end:]})
    assert found["fattn-decode-tile"].patch_class == "moved"
    assert found["fattn-decode-tile"].moves[0].how == "order"


ROW_PATCH = """\
id = "tile-row"
title = "another row for head size 256"
why = "The row of upstream leaves registers unused."
links = ["https://example.invalid/1"]
status = "not-submitted"
without = "the row is upstream's"
builds = { first = 1, why = "the table exists" }
expected = { effect = "none", source = "nobody measured it" }
guard = { macros = ["GGML_USE_HIP"] }

[[edit]]
id = "row"
file = "ggml/src/ggml-cuda/fattn-tile.cuh"
function = "ggml_cuda_fattn_tile_get_config_amd_rdna"
at = { table_row = "256, 256, 8", of = "GGML_CUDA_FATTN_TILE_CONFIG_CASE" }
verb = "change_to"
side = "device"
text = "GGML_CUDA_FATTN_TILE_CONFIG_CASE(256, 256, 8, 128, 8, 32, 256)"
"""


@pytest.mark.thorough
def test_a_macro_table_that_became_a_struct_table_is_a_conflict(make_ground, checkout, tmp_path):
    folder = tmp_path / "series"
    (folder / "patches" / "0001-tile-row").mkdir(parents=True)
    (folder / "patches" / "series.toml").write_text('folders = ["ggml/src/ggml-cuda/"]\n')
    (folder / "patches" / "0001-tile-row" / "patch.toml").write_text(ROW_PATCH)
    (folder / "templates").mkdir()
    shutil.copytree(checkout / "arch_profiles", folder / "arch_profiles")
    profile = folder / "arch_profiles" / "gfx1151.toml"
    row = 'tile-row = { default = "on", why = "for the test", source = "the test" }\n'
    profile.write_text(re.sub(r"(?m)^\[patches\]\n", "[patches]\n" + row, profile.read_text()))
    ground = make_ground(folder, ("tile-row",))
    text = ground.read("fattn-tile.cuh")
    table = function_of(text, "ggml_cuda_fattn_tile_get_config_amd_rdna")
    rows = re.sub(r"GGML_CUDA_FATTN_TILE_CONFIG_CASE\((.*)\)", r"    { \1 },", table)
    rows = rows.replace(") {\n", ") {\n    static constexpr fattn_tile_row rows[] = {\n", 1)
    rows = rows.replace("\n    return 0;", "    };\n    return find_row(rows, DKQ, DV, ncols);")
    found = ground.classify({"fattn-tile.cuh": swap(text, table, rows)})["tile-row"]
    assert found.patch_class == "conflict"
    (problem,) = found.problems
    assert problem.code == "ANCHOR_NOT_FOUND"
    assert any(place.path.endswith("fattn-tile.cuh") and place.line for place in problem.where)


@pytest.mark.parametrize(
    ("form", "taken"),
    ordinary(
        [
            (form, taken)
            for form in ("guarded", "bare")
            for taken in (
                ("wmma-tile-params",),
                ("fattn-decode-tile",),
                ("fattn-keep-gqa-tiles", "fattn-decode-tile"),
                ("wmma-tile-params", "fattn-keep-gqa-tiles", "fattn-decode-tile"),
            )
        ],
        kept=1,
    ),
)
def test_a_change_merged_verbatim_is_upstreamed(ground, taken, form):
    from patchkit.carry.judging.derive import bare
    from patchkit.carry.judging.rendering import render_patch
    from patchkit.carry.placing.context import make_guard

    files = ground.files.fresh()
    for name in taken:
        rendering = render_patch(ground.last[name].selected, files, ground.series_dir)
        files.write(rendering.placed.changes)
    guard = make_guard(ground.series.patch("wmma-tile-params").guard, [ground.profile])
    conditions = frozenset({guard.device, guard.region})
    changes = {}
    for path in files.paths:
        data = files.read(path)
        if data != ground.files.base.get(path):
            name = path.removeprefix("ggml/src/ggml-cuda/")
            changes[name] = bare(path, data, conditions) if form == "bare" else data
    found = ground.classify(changes)
    assert {name for name, each in classes(found).items() if each == "upstreamed"} == set(taken)
    assert all("placed again by structure" in found[name].proof[0] for name in taken)
    others = {name: found[name] for name in found if name not in taken}
    assert {verdict.patch_class for verdict in others.values()} <= {"clean", "moved"}


def test_a_second_place_of_the_same_kind_is_no_matter_of_guessing(ground):
    last = "    return BEST_FATTN_KERNEL_TILE;\n}\n"
    again = (
        "    if (ggml_cuda_should_use_wmma_fattn(cc)) {\n        return BEST_FATTN_KERNEL_WMMA_F16;\n    }\n"
    )
    found = ground.classify({"fattn.cu": swap(ground.read("fattn.cu"), last, again + last)})
    assert [problem.code for problem in found["fattn-decode-tile"].problems] == ["ANCHOR_AMBIGUOUS"]
    assert "requires 'fattn-decode-tile'" in found["fattn-keep-gqa-tiles"].reason
    assert found["wmma-tile-params"].patch_class == "clean"


@pytest.mark.thorough
def test_half_of_a_change_merged_is_not_upstreamed(ground):
    changes = ground.last["wmma-tile-params"].placed.changes
    header = {path: data for path, data in changes.items() if path.endswith(".cuh")}
    found = ground.classify({path.rpartition("/")[2]: data for path, data in header.items()})
    assert found["wmma-tile-params"].patch_class == "conflict"
    assert [problem.code for problem in found["wmma-tile-params"].problems] == ["NEW_FILE_BAD"]


MERGED_DIFFERENTLY = (
    "if (ggml_cuda_should_use_wmma_fattn(cc) && K->ne[1] % FATTN_KQ_STRIDE == 0",
    (
        "if (ggml_cuda_should_use_wmma_fattn(cc) && !(GGML_CUDA_CC_IS_RDNA3(cc) && Q->ne[1] == 1) && "
        "K->ne[1] % FATTN_KQ_STRIDE == 0"
    ),
)


@pytest.mark.thorough
def test_a_change_merged_differently_is_never_clean(ground):
    text = swap(ground.read("fattn.cu"), *MERGED_DIFFERENTLY)
    found = ground.classify({"fattn.cu": text})["fattn-decode-tile"]
    assert found.patch_class == "moved"
    assert found.agreement.verdict == "does not apply"
    assert "GGML_CUDA_CC_IS_RDNA3" in found.moves[0].detail
    assert any("GGML_CUDA_CC_IS_RDNA3" in unit for drift in found.drift for unit in drift.added)


def test_a_change_merged_differently_as_the_patch_foresaw_is_superseded(ground):
    foreseen = Replacement(
        file="ggml/src/ggml-cuda/fattn.cu",
        function=CHOICE,
        tokens="!(GGML_CUDA_CC_IS_RDNA3(cc) && Q->ne[1] == 1)",
        why="upstream keeps a batch of one off the rocWMMA kernel itself",
    )

    def declare(patch):
        return replace(patch, replaced_by=(foreseen,)) if patch.id == "fattn-decode-tile" else patch

    text = swap(ground.read("fattn.cu"), *MERGED_DIFFERENTLY)
    found = ground.classify({"fattn.cu": text}, patches=declare)
    assert found["fattn-decode-tile"].patch_class == "superseded"
    assert found["fattn-decode-tile"].reason == foreseen.why
    # Its pair goes with it: alone it only compiles kernels that nothing launches.
    assert found["fattn-keep-gqa-tiles"].patch_class == "conflict"
    assert "requires 'fattn-decode-tile', which is superseded" in found["fattn-keep-gqa-tiles"].reason
    assert ground.classify({}, patches=declare)["fattn-decode-tile"].patch_class == "clean"


def test_a_deleted_file_retires_the_patch(ground):
    found = ground.classify({"fattn-wmma-f16.cu": None})
    assert found["wmma-tile-params"].patch_class == "retired"
    assert "file ggml/src/ggml-cuda/fattn-wmma-f16.cu" in map(str, found["wmma-tile-params"].gone)
    assert "b6900 to b9093" in found["wmma-tile-params"].reason
    assert found["fattn-decode-tile"].patch_class == "clean"


def test_a_deleted_function_retires_the_patch(ground):
    text = ground.read("fattn.cu")
    found = ground.classify({"fattn.cu": swap(text, function_of(text, CHOICE), "")})
    assert found["fattn-decode-tile"].patch_class == "retired"
    assert found["fattn-decode-tile"].gone[0].what == "function"
    # Its pair goes with it, by the same loss: alone it only compiles kernels that nothing launches.
    assert found["fattn-keep-gqa-tiles"].patch_class == "retired"
    assert "requires 'fattn-decode-tile', which is retired" in found["fattn-keep-gqa-tiles"].reason
    assert found["fattn-keep-gqa-tiles"].gone == found["fattn-decode-tile"].gone


@pytest.mark.thorough
def test_behind_the_end_of_its_range_a_patch_is_retired_only_by_what_is_really_gone(ground):
    text = ground.read("fattn.cu")
    for changed, patch_class in (
        (text, "out of range"),
        (text.replace(CHOICE, "ggml_cuda_choose_fattn"), "out of range"),
        (renamed_and_changed(ground), "out of range"),
        (swap(text, function_of(text, CHOICE), ""), "retired"),
    ):
        found = ground.classify({"fattn.cu": changed}, build=20000)
        assert found["fattn-decode-tile"].patch_class == patch_class


@pytest.mark.parametrize("build", ordinary([6901, 20000], kept=1))
def test_a_removed_build_option_retires_all_that_is_guarded_by_it(ground, build):
    # Every place is still there, and a comment that names the option: clean code that nobody would compile.
    word = b"GGML_HIP_ROCWMMA_FATTN"
    changes = {
        path.removeprefix("ggml/src/ggml-cuda/"): data.replace(word, b"GGML_HIP_OTHER")
        for path, data in ground.files.base.items()
        if word in data and path.startswith("ggml/src/ggml-cuda/")
    }
    changes["fattn.cu"] = b"// GGML_HIP_ROCWMMA_FATTN was removed\n" + ground.read("fattn.cu").encode()
    found = ground.classify(changes, build=build)
    assert set(classes(found).values()) == {"retired"}
    assert all("option GGML_HIP_ROCWMMA_FATTN" in map(str, verdict.gone) for verdict in found.values())


@pytest.mark.thorough
def test_another_if_around_the_place_is_moved(ground):
    text = ground.read("fattn-tile.cuh")
    new = f"#ifndef GGML_TILE_KEEP_ALL\n{PRUNE}#endif // GGML_TILE_KEEP_ALL\n"
    found = ground.classify({"fattn-tile.cuh": swap(text, PRUNE, new)})["fattn-keep-gqa-tiles"]
    assert found.patch_class == "moved"
    assert found.moves[0].how == "nesting"
    assert "GGML_TILE_KEEP_ALL" in found.moves[0].detail


def churn(text):
    """What a formatter does: other indentation, braces on lines of their own, no blank lines, other stars."""
    lines = []
    for line in text.split("\n"):
        if not line.strip():
            continue
        if line.endswith("\\") or line.lstrip().startswith("#"):
            lines.append(line)
            continue
        indent = len(line) - len(line.lstrip(" "))
        line = "\t" * (indent // 4) + line.strip()  # noqa: PLW2901
        lines += [line[:-2], "{"] if line.endswith(") {") and "//" not in line else [line]
    return "\n".join(lines).replace(" * __restrict__ ", "* __restrict__ ") + "\n"


def test_a_reformatted_tree_is_clean(ground):
    changes = {
        path.removeprefix("ggml/src/ggml-cuda/"): churn(data.decode())
        for path, data in ground.files.base.items()
        if path.startswith("ggml/src/ggml-cuda/fattn") and b'R"' not in data
    }
    assert len(changes) > 5
    found = ground.classify(changes)
    assert set(classes(found).values()) == {"clean"}
    assert not any(verdict.drift for verdict in found.values())
    # Nothing is merged as text any more: there is one derivation, and the proof says so.
    assert any("one derivation only" in each for verdict in found.values() for each in verdict.proof)


@pytest.mark.thorough
def test_the_group_itself_removed_is_a_conflict_with_intent(ground):
    text = ground.read("fattn-tile.cuh")
    found = ground.classify({"fattn-tile.cuh": swap(text, PRUNE, "")})
    assert found["fattn-keep-gqa-tiles"].patch_class == "conflict"
    assert "trap for every variant" in found["fattn-keep-gqa-tiles"].intent
    (drift,) = found["fattn-keep-gqa-tiles"].drift  # what changed there, for who has to look
    assert any("GGML_USE_WMMA_FATTN" in unit for unit in drift.removed)
    assert (
        found["fattn-decode-tile"].patch_class == "conflict"
    )  # decode would launch what is not known to exist


def test_what_goes_wrong_with_one_patch_is_its_class_and_ends_nothing_else(ground):
    # A last rendering that lacks the functions: whoever compares with it cannot find them.
    was = ground.last["fattn-decode-tile"]
    broken = replace(was, before=dict.fromkeys(was.before, b""))
    found, _ = ground.step({}, {**ground.last, "fattn-decode-tile": broken})
    assert found["wmma-tile-params"].patch_class == "clean"
    assert found["fattn-keep-gqa-tiles"].reason.startswith("requires 'fattn-decode-tile', which")
    assert found["fattn-decode-tile"].reason.startswith("cannot be classified: ")
    assert [error.code for error in found["fattn-decode-tile"].problems] == ["ENTITY_NOT_FOUND"]
