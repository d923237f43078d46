"""Templates: strict, sandboxed, bounded, and every failure names its line."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from refusing import refused

from patchkit.base.errors import Location, RenderError
from patchkit.base.toml import parse_toml
from patchkit.carry.placing.context import SwitchView
from patchkit.carry.placing.templates import (
    MAX_OUTPUT,
    PatchRenderer,
)
from patchkit.carry.series.patch import Patch, parse_patch

HERE = Location(path="patches/0001-p/patch.toml", line=9, column=1)

PATCH = """
id = "p"
title = "t"
why = "w"
links = ["l"]
status = "backport"
without = "x"
context = {context}
[builds]
first = 1
why = "w"
[expected]
effect = "e"
source = "s"
[guard]
macros = ["A"]
{extra}
"""
EDIT = '[[edit]]\nid = "e{n}"\nfile = "a.cu"\nat = {{ tokens = "a" }}\nverb = "change_to"\nside = "device"\n'


@dataclass(frozen=True)
class View:
    """What a template gets: a value, a method, and what it must not reach."""

    name: str = "gfx1151"

    def host(self, cc: str = "cc") -> str:
        return f"({cc} == 1)"

    def _private(self) -> str:
        return "secret"


CONTEXT = {"guard": View(), "archs": [View("gfx1100"), View()], "unused": 1}


def make_patch(context=("guard", "archs"), extra=None) -> Patch:
    extra = extra or EDIT.format(n=1) + 'text = "x"'
    text = PATCH.format(context=list(context), extra=extra)
    return parse_patch(parse_toml("patches/0001-p/patch.toml", text.encode()), folder="0001-p", number=1)


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    own, shared = tmp_path / "patches" / "0001-p", tmp_path / "templates"
    own.mkdir(parents=True)
    shared.mkdir()
    return own, shared


@pytest.fixture
def renderer(folders) -> PatchRenderer:
    return PatchRenderer(make_patch(), *folders, CONTEXT)


def test_text_is_rendered_with_the_declared_context(renderer):
    text = "@% for arch in archs %@\nif @{ arch.host('x') }@ @{ arch.name }@;\n@% endfor %@\n"
    assert renderer.text(text, HERE) == "if (x == 1) gfx1100;\nif (x == 1) gfx1151;\n"


def test_line_statements_comments_and_blanks_leave_no_trace(renderer):
    text = "a\n    //% if true\n  b\n  //% endif\n@# note #@\n  @# note #@c\n\n"
    assert renderer.text(text, HERE) == "a\n  b\nc\n\n"


@pytest.mark.parametrize(
    "code",
    [
        'asm("{%0, %1}, {%2};" : "+r"(x[0]));',
        "int x[2][2] = {{1, 2}, {3, 4}};",
        "kernel<<<grid, block, 0, stream>>>(x);",
        "auto f = [[maybe_unused]] x[y[0]];",
        "#define A(x) #x ## y",
        "x %= y; // % z",
        "// {# not a comment #}",
    ],
)
def test_code_is_no_template(renderer, code):
    assert renderer.text(code + "\r\n", HERE) == code + "\n"


def test_files_come_from_the_patch_first_and_the_shared_folder_second(folders, renderer):
    own, shared = folders
    (shared / "a.jinja").write_bytes(b"shared\r\n")
    (shared / "b.jinja").write_text("@% include 'a.jinja' %@")
    assert renderer.file("b.jinja", HERE) == "shared\n"
    (own / "a.jinja").write_text("own")
    assert PatchRenderer(make_patch(), own, shared, CONTEXT).file("b.jinja", HERE) == "own"


def test_numbers_are_printed_and_formats_work(renderer):
    assert renderer.text("@{ 1 }@ @{ '%3d|%-4s'|format(7, 'a') }@ @{ 2 * 8 + 1 }@ @{ 2 ** 10 }@", HERE) == (
        "1   7|a    17 1024"
    )
    assert renderer.text("@{ archs|map(attribute='name')|join(', ') }@ @{ 'a' ~ 1 }@ @{ 9 % 4 }@", HERE) == (
        "gfx1100, gfx1151 a1 1"
    )
    assert renderer.text("@{ 'ab' * 2 + 'c' }@ @{ [1] * 2 == [1, 1] and 'y' or 'n' }@", HERE) == "ababc y"


@pytest.mark.parametrize(
    "text", ["@{ nothing }@", "@{ guard.nothing }@", "@{ unused }@", "@% for a in b %@@% endfor %@"]
)
def test_undefined_values_are_errors(renderer, text):
    with refused("TEMPLATE_BAD") as caught:
        renderer.text("line\n" + text, HERE)
    assert caught.value.where[-1] == HERE
    assert caught.value.where[0].label is not None
    assert caught.value.where[0].label.startswith("line 2 of the text")
    assert caught.value.hint == "names in the patch's context: guard, archs"


@pytest.mark.parametrize(
    "text",
    [
        "@{ ''.__class__ }@",
        "@{ ''['__class__'] }@",
        "@{ ''|attr('__class__') }@",
        "@{ guard.__class__.__mro__ }@",
        "@{ guard.host.__globals__ }@",
        "@{ guard._private() }@",
        "@{ ().__class__.__bases__[0].__subclasses__() }@",
        "@{ self.__init__ }@",
        "@{ range.__globals__ }@",
        "@{ '{0.__class__}'.format(guard) }@",
        "@{ '{:>1000000000}'.format(1) }@",
        "@{ '{a:>1000000000}'.format_map(guard) }@",
        "@{ ('{:>1000000000}'|attr('format'))(1) }@",
        "@{ 'a'.replace('a', 'bbbb') }@",
        "@{ 'a'.center(1000000000) }@",
        "@{ (1).to_bytes(1000000000, 'big') }@",
        "@{ archs.append(1) }@",
        "@{ 'x' * 10**9 }@",
        "@{ 10**9 * 'x' }@",
        "@{ [1] * 10**9 }@",
        "@{ ('x' * 90000) + ('x' * 90000) }@",
        "@{ 2 ** 100000 }@",
        "@{ 10 ** 64 ** 64 }@",
        "@{ (10 ** 64) ** 64 ** 2 }@",
        "@{ ((2 ** 4000) * (2 ** 4000)) }@",
        "@{ '%999999999d' % 1 }@",
        "@{ '%999999999d'|format(1) }@",
        "@{ '%*d'|format(999999999, 1) }@",
        "@{ range(10**9)|length }@",
    ],
)
def test_escapes_and_bombs_are_forbidden(renderer, text):
    with pytest.raises(RenderError) as caught:
        renderer.text(text, HERE)
    assert caught.value.code in ("TEMPLATE_BAD", "TEMPLATE_BAD")
    assert caught.value.where[-1] == HERE


@pytest.mark.parametrize(
    "name", ["center", "indent", "replace", "wordwrap", "pprint", "tojson", "batch", "round"]
)
def test_filters_that_can_blow_up_do_not_exist(renderer, name):
    with refused("TEMPLATE_BAD") as caught:
        renderer.text("@{ 'a'|" + name + " }@", HERE)
    assert name in caught.value.message


@pytest.mark.parametrize("name", ["lipsum()", "namespace()", "cycler(1)", "joiner()", "dict()"])
def test_globals_other_than_range_do_not_exist(renderer, name):
    with refused("TEMPLATE_BAD"):
        renderer.text("@{ " + name + " }@", HERE)


DOUBLING = (
    "@% macro m(s, n) %@@% if n %@@{ m(s ~ s, n - 1) }@@% endif %@@% endmacro %@@{ m('x' * 9999, 40) }@"
)
BLOCKS = "@% set a = 'x' * 9999 %@" + "@% set a %@@{ a }@@{ a }@@% endset %@" * 40
TREE = "@% macro m(n) %@@% if n %@@{ m(n - 1) }@@{ m(n - 1) }@@% endif %@@% endmacro %@@{ m(60) }@"
LOOPS = "@% for a in range(99999) %@@% for b in range(99999) %@@% endfor %@@% endfor %@"
SILENT = "@% set x %@@% for a in range(99999) %@" + "x" * 1000 + "@% endfor %@@% endset %@"
CALLER = "@% macro m() %@@% for a in range(99999) %@@{ caller() }@@% endfor %@@% endmacro %@"
CALLER += "@% call m() %@" + "x" * 1000 + "@% endcall %@"
JOINED = "@% set a = ['x' * 90000] * 90000 %@@{ a|join }@"
PRINTED = "@{ 'x' * 90000 }@" * 100


@pytest.mark.parametrize(
    "text", [DOUBLING, BLOCKS, TREE, LOOPS, SILENT, CALLER, JOINED, PRINTED, "x" * MAX_OUTPUT + "x"]
)
def test_what_would_not_end_stops(renderer, text):
    with refused("TEMPLATE_BAD"):
        renderer.text(text, HERE)


def test_a_table_of_two_megabytes_is_rendered(renderer):
    # Vulkan.csv of llama.cpp's commit 1568d13c2c is one such text.
    text = "a row of a table\n" * 150_000
    assert renderer.text(text, HERE) == text


def test_a_budget_is_for_one_rendering(renderer):
    text = "@% for a in range(99999) %@@% endfor %@"
    assert [renderer.text(text, HERE) for _ in range(2)] == ["", ""]


def test_macros_that_call_themselves_for_ever_fail(renderer):
    with refused("TEMPLATE_BAD") as caught:
        renderer.text("@% macro m() %@@{ m() }@@% endmacro %@@{ m() }@", HERE)
    assert "RecursionError" in caught.value.message


@pytest.mark.parametrize("value", ["none", "true", "archs", "guard", "[1]", "{}", "[none]|join"])
def test_only_text_and_numbers_are_printed(renderer, value):
    with refused("TEMPLATE_BAD"):
        renderer.text("@{ " + value + " }@", HERE)


def test_a_python_error_in_a_template_names_its_line(folders, renderer):
    (folders[0] / "a.jinja").write_text("one\n@{ 1 // 0 }@\n")
    with refused("TEMPLATE_BAD") as caught:
        renderer.file("a.jinja", HERE)
    assert "ZeroDivisionError" in caught.value.message
    place = caught.value.where[0]
    assert (Path(place.path).name, place.line, place.label) == ("a.jinja", 2, "@{ 1 // 0 }@")
    assert caught.value.where[1] == HERE


@pytest.mark.parametrize("text", ["@{ a", "@% if %@", "@% endfor %@", "@% unknown %@", "@{ 'a'|nothing }@"])
def test_syntax_errors_name_the_line_and_the_delimiters(folders, renderer, text):
    with refused("TEMPLATE_BAD") as caught:
        renderer.text(text, HERE)
    assert caught.value.where[-1] == HERE
    assert caught.value.hint is not None
    assert "@{ value }@" in caught.value.hint
    (folders[0] / "a.jinja").write_text("one\n" + text)
    with refused("TEMPLATE_BAD") as caught:
        renderer.file("a.jinja", HERE)
    assert (Path(caught.value.where[0].path).name, caught.value.where[0].line) == ("a.jinja", 2)


def test_missing_templates_tell_what_there_is(folders, renderer):
    with refused("TEMPLATE_BAD") as caught:
        renderer.file("config.jinja", HERE)
    assert caught.value.hint == "templates here: none"
    (folders[0] / "config.cuh.jinja").write_text("x")
    with refused("TEMPLATE_BAD") as caught:
        renderer.text("@% include 'config.jinja' %@", HERE)
    assert caught.value.hint == "did you mean 'config.cuh.jinja'?"


@pytest.mark.parametrize(
    "name", ["../../secret", "../0001-p/../../secret", "/etc/hostname", "link", "folder", "a/link"]
)
def test_nothing_outside_the_folders_is_read(folders, renderer, name):
    own, _ = folders
    outside = own.parent.parent / "secret"
    outside.write_text("secret")
    (own / "link").symlink_to(outside)
    (own / "a").symlink_to(own.parent.parent)
    (own / "folder").mkdir()
    for use in (lambda: renderer.file(name, HERE), lambda: renderer.text(f"@% include '{name}' %@", HERE)):
        with refused("TEMPLATE_BAD"):
            use()


def test_a_link_inside_the_folders_is_followed(folders, renderer):
    (folders[0] / "a.jinja").write_text("x")
    (folders[0] / "b.jinja").symlink_to("a.jinja")
    assert renderer.file("b.jinja", HERE) == "x"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"caf\xe9", "byte 3 is not UTF-8"),
        (b"\x7fELF\x02\x01\x01\x00\x00", "NUL byte"),
        (b"\xef\xbb\xbfx", "byte order mark"),
        (b"x" * (MAX_OUTPUT + 1), "larger than"),
    ],
)
def test_files_that_are_no_text_are_named(folders, renderer, data, why):
    (folders[0] / "a.jinja").write_bytes(data)
    with refused("TEMPLATE_BAD") as caught:
        renderer.file("a.jinja", HERE)
    assert why in str(caught.value.why)
    assert Path(caught.value.where[0].path).name == "a.jinja"
    assert caught.value.where[1] == HERE


def test_a_file_that_may_not_be_read_is_named(folders, renderer, monkeypatch):
    (folders[0] / "a.jinja").write_text("x")

    def refuse(*_args, **_kwargs):
        raise PermissionError(13, os.strerror(13))

    monkeypatch.setattr(Path, "open", refuse)
    with refused("TEMPLATE_BAD") as caught:
        renderer.file("a.jinja", HERE)
    assert caught.value.why == "Permission denied"


def check(folders, context, extra):
    PatchRenderer(make_patch(context, extra), *folders, CONTEXT).check_context()


ALIAS = (
    '\n[[alias]]\nname = "N"\nfile = "a.cu"\nfunction = "f"\ndevice = "@{ guard.name }@"\nupstream = "M"\n'
)


def test_declared_and_used_names_agree(folders):
    (folders[0] / "f.jinja").write_text(
        "@% include 'inner.jinja' %@@% include 'inner.jinja' %@@{ range(2)|max }@"
    )
    (folders[1] / "inner.jinja").write_text("@{ guard.name }@")
    check(folders, ["guard"], EDIT.format(n=1) + 'text = "@{ guard.name }@"')
    check(folders, ["guard"], EDIT.format(n=1) + 'template = "f.jinja"')
    check(folders, ["guard"], EDIT.format(n=1) + 'text = "x"' + ALIAS)
    check(
        folders,
        ["guard"],
        '[[file]]\npath = "b.cuh"\ntemplate = "f.jinja"\n' + EDIT.format(n=1) + 'text = "x"',
    )
    check(folders, [], EDIT.format(n=1).replace("change_to", "remove"))


@pytest.mark.parametrize(
    ("context", "text", "problem"),
    [
        (["guard"], "x", "'guard' is declared but not used"),
        ([], "@{ guard.name }@", "'guard' is used but not declared"),
        (["gard"], "@{ gard }@", "'gard' does not exist"),
    ],
)
def test_names_that_do_not_agree_are_listed(folders, context, text, problem):
    with refused("TEMPLATE_BAD") as caught:
        check(folders, context, EDIT.format(n=1) + f'text = "{text}"')
    assert problem in caught.value.message
    assert caught.value.hint is not None
    assert "available: archs, guard, unused" in caught.value.hint


@pytest.mark.parametrize(
    ("extra", "code"),
    [
        ('text = "@{ a"', "TEMPLATE_BAD"),
        ('template = "none.jinja"', "TEMPLATE_BAD"),
        ("text = \"@% include 'none.jinja' %@\"", "TEMPLATE_BAD"),
    ],
)
def test_checking_reports_templates_that_are_not_there_or_are_none(folders, extra, code):
    with refused(code) as caught:
        check(folders, [], EDIT.format(n=1) + extra)
    assert isinstance(caught.value, RenderError)


@pytest.mark.parametrize("name", ["a.jinja", "b.jinja"])
def test_a_syntax_error_points_into_the_template_that_has_it(folders, name):
    (folders[0] / "a.jinja").write_text("one\n@% include 'b.jinja' %@\n")
    (folders[1] / "b.jinja").write_text("one\ntwo\n")
    place = next(folder / name for folder in folders if (folder / name).is_file())
    place.write_text(place.read_text() + "@% for x in %@\n")
    with refused("TEMPLATE_BAD") as caught:
        check(folders, (), EDIT.format(n=1) + 'template = "a.jinja"')
    assert (Path(caught.value.where[0].path).name, caught.value.where[0].line) == (name, 3)


@pytest.mark.parametrize(
    ("ran", "expected"),
    [("", "if (a) {\n\n    return;\n}\n"), ("count();", "if (a) {\n    count();\n\n    return;\n}\n")],
)
def test_a_line_that_only_counts_is_left_out_without_a_switch(
    tmp_path: Path, ran: str, expected: str
) -> None:
    text = "if (a) {\n    @{ switch.ran }@\n\n    return;\n}\n"
    patch = make_patch(context=("switch",), extra=EDIT.format(n=1) + f"text = {text!r}")
    renderer = PatchRenderer(patch, tmp_path, tmp_path, {"switch": SwitchView(ran=ran)})
    assert renderer.text(text, HERE) == expected


def test_an_error_after_a_line_that_only_counts_names_its_own_line(tmp_path: Path) -> None:
    text = "@{ switch.ran }@\n@{ nothing }@\n"
    patch = make_patch(context=("switch",), extra=EDIT.format(n=1) + 'text = "x"')
    renderer = PatchRenderer(patch, tmp_path, tmp_path, {"switch": SwitchView(ran="")})
    with refused("TEMPLATE_BAD") as caught:
        renderer.text(text, HERE)
    assert caught.value.where[0].label == "line 2 of the text: "
