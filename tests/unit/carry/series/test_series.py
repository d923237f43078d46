"""The patches folder as a whole: order, references, pairs and folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.base.errors import ErrorGroup, PatchkitError
from patchkit.carry.series.catalogue import Series, load_series

CUDA = "ggml/src/ggml-cuda/"
PATCH = """\
id = "{id}"
title = "t"
why = "w"
links = ["l"]
status = "backport"
without = "x"
builds = {{ first = 1, why = "w" }}
expected = {{ effect = "e", source = "s" }}
guard = {{ macros = ["A"] }}
"""
EDIT = """
[[edit]]
id = "{id}"
file = "{file}"
at = {{ tokens = "a" }}
verb = "remove"
side = "{side}"
pairs = {pairs}
"""


def edit(name="e", *, file=CUDA + "a.cu", side="device", pairs=()):
    return EDIT.format(id=name, file=file, side=side, pairs=list(pairs))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "series.toml").write_text(f'folders = ["{CUDA}"]\n')
    return tmp_path


@pytest.fixture
def write(folder: Path):
    def put(name, rest="", *, patch_id=None):
        (folder / name).mkdir()
        text = PATCH.format(id=patch_id or name[5:]) + (rest or edit())
        (folder / name / "patch.toml").write_text(text)

    return put


def problems(folder):
    with pytest.raises(ErrorGroup) as caught:
        load_series(folder)
    assert f"{folder} is not a valid series" in caught.value.message
    return caught.value.errors


def only(folder) -> PatchkitError:
    (error,) = problems(folder)
    return error


def line(folder, error, index=0):
    place = error.where[index]
    return str(Path(place.path).relative_to(folder)), place.line


def test_patches_come_in_the_order_of_their_numbers(folder, write):
    for name in ("0010-c", "0002-b", "0001-a"):
        write(name)
    (folder / "README.md").write_text("a stray file is no patch")
    series = load_series(folder)
    assert [patch.id for patch in series.patches] == ["a", "b", "c"]
    assert series.folders == (CUDA,)
    assert series.patch("b") is series.patches[1]
    assert series.patch("d") is None


def test_a_declared_folder_needs_no_slash_at_its_end(folder, write):
    (folder / "series.toml").write_text('folders = ["ggml/src/ggml-cuda"]\n')
    write("0001-a")
    assert load_series(folder).folders == (CUDA,)
    write("0002-b", edit(file="ggml/src/ggml-cuda-other/a.cu"))
    assert only(folder).code == "EDIT_OUTSIDE_FOLDERS"


def test_no_patches_are_a_series_too(folder):
    assert load_series(folder) == Series(folders=(CUDA,))


@pytest.mark.parametrize(
    "name", ["1-a", "00001-a", "0001_a", "0001-A", "0001-", "0001", "notes", "١٢٣٤-a", ".git"]
)
def test_a_folder_of_another_name_is_named(folder, name):
    (folder / name).mkdir()
    error = only(folder)
    assert (error.code, Path(error.where[0].path).name) == ("PATCH_BAD", name)


def test_a_folder_is_called_as_its_patch(folder, write):
    write("0001-a", patch_id="b")
    error = only(folder)
    assert error.code == "PATCH_BAD"
    assert line(folder, error) == ("0001-a/patch.toml", 1)
    assert error.hint == "rename the folder to 0001-b"


def test_a_folder_without_patch_toml_is_missing_one(folder):
    (folder / "0001-a").mkdir()
    assert only(folder).code == "TOML_MISSING"


def test_series_toml_is_checked_first(folder, write):
    (folder / "series.toml").write_text('folders = "x"\nfolder = ["x"]\n')
    with pytest.raises(ErrorGroup) as caught:
        load_series(folder)
    assert [error.code for error in caught.value.errors] == ["CONFIG_VALUE", "CONFIG_VALUE"]
    (folder / "series.toml").unlink()
    with pytest.raises(PatchkitError) as missing:
        load_series(folder)
    assert missing.value.code == "TOML_MISSING"


def test_two_patches_of_one_id_or_number(folder, write):
    write("0001-a")
    write("0001-b")
    error = only(folder)
    assert (error.code, error.message) == ("PATCH_BAD", "two patches have the same id or number: 1")
    assert [line(folder, error, i)[0] for i in (0, 1)] == ["0001-b/patch.toml", "0001-a/patch.toml"]
    write("0002-c", patch_id="a")
    assert "two patches have the same id or number: a" in [each.message for each in problems(folder)]


ALIAS = '\n[[alias]]\nname = "N"\nfile = "{file}"\nfunction = "f"\ndevice = "d"\nupstream = "u"\n'
FILE = '\n[[file]]\npath = "{path}"\ntemplate = "t"\n'


@pytest.mark.parametrize(
    "rest",
    [
        edit() + edit(),
        edit() + ALIAS.format(file=CUDA + "a.cu") * 2,
        edit() + FILE.format(path=CUDA + "b.cuh") * 2,
    ],
)
def test_two_things_of_one_name_in_a_patch_are_both_shown(folder, write, rest):
    write("0001-a", rest)
    first, second = problems(folder)
    assert first.code == second.code == "PATCH_BAD"
    assert line(folder, first)[1] < line(folder, second)[1]


def test_a_file_that_a_patch_names_below_a_folder_is_read(folder, write):
    write("0001-a", edit("near") + edit("below", file=CUDA + "template-instances/b.cu"))
    assert load_series(folder).read == (CUDA, CUDA + "template-instances/b.cu")


def ranged(first=None, last=None, name="e"):
    limits = {"first_build": first, "last_build": last}
    return edit(name) + "".join(f"{key} = {value}\n" for key, value in limits.items() if value is not None)


def test_an_edit_may_have_another_form_from_some_build_on(folder, write):
    write("0001-a", ranged(last=9) + ranged(10, 19) + ranged(20) + ranged(15, name="late"))
    (patch,) = load_series(folder).patches
    found = {build: [each.first_build for each in patch.for_build(build).edits] for build in (9, 10, 15, 20)}
    assert found == {9: [None], 10: [10], 15: [10, 15], 20: [20, 15]}
    assert patch.turns == (1, 10, 15, 20)
    assert load_series(folder).read == (CUDA,)


@pytest.mark.parametrize(
    ("rest", "code"),
    [
        (ranged(last=9) + ranged(9), "PATCH_BAD"),
        (ranged(last=9) + ranged(11), "PATCH_BAD"),
        (ranged(5) + ranged(10), "PATCH_BAD"),
        (ranged(last=9), "PATCH_BAD"),
        (ranged(5), "PATCH_BAD"),
        (ranged(5, 4), "CONFIG_VALUE"),
    ],
)
def test_builds_of_an_edit_neither_overlap_nor_leave_a_gap(folder, write, rest, code):
    write("0001-a", rest)
    error = problems(folder)[0]
    assert error.code == code
    assert line(folder, error)[0] == "0001-a/patch.toml"
    if len(error.where) > 1:
        assert line(folder, error)[1] > line(folder, error, 1)[1]


def test_an_edit_pair_is_whole_on_every_build(folder, write):
    host = edit("h", side="host", pairs=["p"])
    write("0001-a", edit("d", pairs=["p"]) + host + "last_build = 9\n" + edit())
    error = only(folder)
    assert (error.code, error.message) == ("PATCH_BAD", "pair 'p' has no host side")


@pytest.mark.parametrize(
    ("name", "hint"), [("fist", "did you mean 'first'?"), ("zzz", "patches: first, second")]
)
def test_a_requirement_names_another_patch_of_the_series(folder, write, name, hint):
    write("0001-first")
    write("0002-second", f'requires = [{{ patch = "{name}", why = "w" }}]\n' + edit())
    error = only(folder)
    assert (error.code, error.hint) == ("PATCH_BAD", hint)
    assert line(folder, error) == ("0002-second/patch.toml", 10)


def test_a_patch_cannot_require_itself(folder, write):
    write("0001-a", 'requires = [{ patch = "a", why = "w" }]\n' + edit())
    assert only(folder).code == "PATCH_BAD"


def test_patches_may_require_each_other(folder, write):
    write("0001-a", 'requires = [{ patch = "b", why = "w" }]\n' + edit())
    write("0002-b", 'requires = [{ patch = "a", why = "w" }]\n' + edit())
    assert len(load_series(folder).patches) == 2


def test_an_alias_that_is_used_is_defined(folder, write):
    uses = edit().replace('"remove"', '"use_alias"\nalias = "M"')
    write("0001-a", uses)
    error = only(folder)
    assert (error.code, error.hint) == ("PATCH_BAD", "add an [[alias]] table")
    assert line(folder, error) == ("0001-a/patch.toml", 12)
    (folder / "0001-a" / "patch.toml").write_text(
        PATCH.format(id="a") + uses.replace('"M"', '"N"') + ALIAS.format(file=CUDA + "a.cu")
    )
    assert load_series(folder).patches[0].aliases[0].name == "N"


@pytest.mark.parametrize(("side", "missing"), [("host", "device"), ("device", "host")])
def test_a_pair_has_both_sides(folder, write, side, missing):
    write("0001-a", edit(side=side, pairs=["stride"]))
    error = only(folder)
    assert (error.code, error.message) == ("PATCH_BAD", f"pair 'stride' has no {missing} side")
    (folder / "0001-a" / "patch.toml").write_text(
        PATCH.format(id="a") + edit(side=side, pairs=["stride"]) + edit("f", side=missing, pairs=["stride"])
    )
    assert len(load_series(folder).patches[0].edits) == 2


@pytest.mark.parametrize(
    ("rest", "number"),
    [
        (edit(file="src/llama.cpp"), 12),
        (edit(file="ggml/src/ggml-cuda"), 12),
        (edit() + FILE.format(path="ggml/src/new.cuh"), 20),
        (edit() + ALIAS.format(file="ggml/src/a.cu"), 20),
    ],
)
def test_nothing_outside_the_declared_folders_is_touched(folder, write, rest, number):
    write("0001-a", rest)
    error = only(folder)
    assert error.code == "EDIT_OUTSIDE_FOLDERS"
    assert line(folder, error)[0] == "0001-a/patch.toml"
    assert abs((line(folder, error)[1] or 0) - number) <= 1
    assert error.why == f"series.toml allows only {CUDA}"


def test_every_problem_of_every_patch_is_reported(folder, write):
    write("0001-a", edit(file="src/x.cu"))
    write("0002-b", "nothing = 1\n")
    (folder / "bad").mkdir()
    codes = [error.code for error in problems(folder)]
    assert codes == ["CONFIG_VALUE", "PATCH_BAD", "EDIT_OUTSIDE_FOLDERS"]


PLAIN = 'guard = "none"'
SHA = "0" * 64
REMOVE = f'\n[[remove]]\npath = "a.cpp"\nsha256 = "{SHA}"\n'
RENAME = '\n[[rename]]\nfrom = "a.cpp"\nto = "b.cpp"\n'
ADD = '\n[[file]]\npath = "{}"\ntemplate = "x"\n{}\n'
MODE = '\n[[mode]]\npath = "{}"\nexecutable = true\n'
PLAIN_EDIT = '\n[[edit]]\nid = "e"\nfile = "{}"\nat = {{ tokens = "a" }}\nverb = "remove"\n'


@pytest.fixture
def write_plain(folder: Path):
    def put(rest: str) -> None:
        (folder / "0001-a").mkdir()
        text = PATCH.format(id="a").replace('guard = { macros = ["A"] }', PLAIN) + rest
        (folder / "0001-a" / "patch.toml").write_text(text)

    return put


@pytest.mark.parametrize(
    "tables",
    [
        REMOVE + ADD.format("a.cpp", ""),
        REMOVE + REMOVE,
        REMOVE + RENAME,
        REMOVE + PLAIN_EDIT.format("a.cpp"),
        REMOVE + MODE.format("a.cpp"),
        RENAME + ADD.format("b.cpp", ""),
        RENAME + RENAME.replace("b.cpp", "c.cpp"),
        RENAME + RENAME.replace("a.cpp", "c.cpp"),
        RENAME + '\n[[rename]]\nfrom = "b.cpp"\nto = "a.cpp"\n',
        RENAME + '\n[[rename]]\nfrom = "b.cpp"\nto = "c.cpp"\n',
        RENAME + PLAIN_EDIT.format("b.cpp"),
        RENAME + MODE.format("b.cpp"),
        ADD.format("a.cpp", "") + MODE.format("a.cpp"),
        ADD.format("a.cpp", f'replaces = "{SHA}"') + PLAIN_EDIT.format("a.cpp"),
        MODE.format("a.cpp") + MODE.format("a.cpp"),
    ],
)
def test_a_path_has_one_fate_in_a_patch(folder, write_plain, tables):
    write_plain(tables)
    assert {error.code for error in problems(folder)} == {"PATCH_BAD"}


def test_a_file_is_renamed_edited_and_made_executable_by_one_patch(folder, write_plain):
    write_plain(RENAME + PLAIN_EDIT.format("a.cpp") + MODE.format("a.cpp"))
    (patch,) = load_series(folder).patches
    assert patch.found_files == {"a.cpp"}
    assert patch.touched_files == {"a.cpp", "b.cpp"}
    assert load_series(folder).read == (CUDA, "a.cpp", "b.cpp")


def test_a_file_is_not_renamed_to_itself(folder, write_plain):
    write_plain(RENAME.replace("b.cpp", "a.cpp"))
    error = only(folder)
    assert (error.code, error.why) == ("CONFIG_VALUE", "'from' and 'to' are the same path")


@pytest.mark.parametrize(
    "table",
    [
        REMOVE,
        RENAME,
        MODE.format("a.cpp"),
        ADD.format("a", f'replaces = "{SHA}"'),
        ADD.format("a", "executable = true"),
    ],
)
def test_what_is_no_new_text_is_for_plain_patches(folder, write, table):
    write("0001-a", table + edit())
    assert "guard" in (only(folder).why or "")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('template = "x"', ""),
        ('template = "x"', 'template = "x"\nblob = "y"'),
        ('template = "x"', 'blob = "y"'),
        ('template = "x"', f'template = "x"\nsha256 = "{SHA}"'),
        ('template = "x"', f'template = "x"\nexecutable = true\nreplaces = "{SHA}"'),
        ('template = "x"', f'blob = "../y"\nsha256 = "{SHA}"'),
        ('template = "x"', f'blob = "/y"\nsha256 = "{SHA}"'),
    ],
)
def test_the_keys_of_a_file_that_do_not_go_together(folder, write_plain, old, new):
    write_plain(ADD.format("a.cpp", "").replace(old, new))
    assert only(folder).code == "CONFIG_VALUE"


def test_ten_thousand_files_are_read(folder, write_plain):
    write_plain("".join(ADD.format(f"a/{number}", "") for number in range(10_000)))
    assert len(load_series(folder).patches[0].files) == 10_000


def test_only_a_plain_series_names_no_folders(folder, write):
    (folder / "series.toml").write_text("")
    with pytest.raises(ErrorGroup) as caught:
        load_series(folder)
    assert "'folders' is missing" in (caught.value.errors[0].why or "")
    (folder / "series.toml").write_text("plain = true\n")
    assert load_series(folder).folders == ()


CLAIM = """\
[[claim]]
archs = ["gfx1151"]
kind = "hardware"
says = "gain"
who = "ann"
link = "https://example.org/1"
figure = "prompts +2 %"
on = 2026-09-10
"""


def test_a_patch_has_the_claims_that_lie_beside_it(folder: Path, write) -> None:
    write("0001-one")
    write("0002-two")
    (folder / "0001-one" / "evidence.toml").write_text(CLAIM)
    one, two = load_series(folder).patches
    assert [(each.who, each.where.line) for each in one.claims] == [("ann", 5)]
    assert two.claims == ()


def test_the_earlier_name_of_a_fix_is_read(folder: Path, write) -> None:
    write("0001-one")
    (folder / "0001-one" / "evidence.toml").write_text(CLAIM.replace('says = "gain"', 'says = "mends"'))
    (patch,) = load_series(folder).patches
    assert [each.says for each in patch.claims] == ["fixes"]


@pytest.mark.parametrize(
    ("line", "wrong", "number"),
    [
        ('kind = "hardware"', 'kind = "seen"', 3),
        ('archs = ["gfx1151"]', "archs = []", 2),
        ('who = "ann"', 'who = "a\\u001b[31m"', 5),
        ('figure = "prompts +2 %"\n', "", 1),
    ],
)
def test_a_wrong_claim_is_told_with_its_place(
    folder: Path, write, line: str, wrong: str, number: int
) -> None:
    write("0001-one")
    (folder / "0001-one" / "evidence.toml").write_text(CLAIM.replace(line, wrong))
    (problem,) = problems(folder)
    (place,) = problem.where
    assert (Path(place.path).name, place.line) == ("evidence.toml", number)
