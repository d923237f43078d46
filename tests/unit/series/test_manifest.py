"""patch.toml: what it means, and what each mistake is called and where."""

from __future__ import annotations

import pytest

from patchkit.base.errors import ErrorGroup, ExitCode
from patchkit.series.patch import BuildRange, Edit, NewFile, parse_patch
from patchkit.series.selector import Selector
from patchkit.series.toml import parse_toml

PATH = "patches/0007-my-patch/patch.toml"
GOOD = """\
id = "my-patch"
title = "do it better"
why = \"\"\"
Because.
\"\"\"
links = ["https://example.invalid/1"]
status = "rejected"
without = "A gate fails."
context = ["guard"]

[builds]
first = 6900
last = 9093
why = "the code is there"

[expected]
effect = "none"
source = "read"

[guard]
macros = ["GGML_USE_HIP"]

[[requires]]
patch = "other"
why = "it traps"

[[file]]
path = "ggml/src/ggml-cuda/my.cuh"
template = "my.cuh.jinja"

[[alias]]
name = "MY_STRIDE"
file = "ggml/src/ggml-cuda/a.cu"
function = "kernel"
device = "stride"
upstream = "STRIDE"

[[edit]]
id = "include-it"
file = "ggml/src/ggml-cuda/a.cu"
verb = "add_include"
header = "my.cuh"
side = "host"

[[edit]]
id = "launch"
file = "ggml/src/ggml-cuda/a.cu"
function = "launch"
parameters = "int n"
at = { call = "kernel" }
verb = "change_to"
side = "host"
pairs = ["p"]
text = "new"
"""


def parse(text):
    return parse_patch(parse_toml(PATH, text.encode()), folder="0007-my-patch", number=7)


def failures(text):
    with pytest.raises(ErrorGroup) as caught:
        parse(text)
    assert caught.value.message.startswith(f"{PATH} is not a valid patch")
    assert all(error.exit_code is ExitCode.USAGE for error in caught.value.errors)
    return [
        (error.code, error.where[0].line, error.message, error.why, error.hint)
        for error in caught.value.errors
    ]


def test_a_patch_is_read_whole():
    patch = parse(GOOD)
    assert (patch.number, patch.folder, patch.id, patch.why) == (7, "0007-my-patch", "my-patch", "Because.")
    assert patch.builds == BuildRange(first=6900, last=9093, why="the code is there")
    assert [(r.patch, r.why, r.where.line) for r in patch.requires] == [("other", "it traps", 24)]
    assert patch.files == (
        NewFile(path="ggml/src/ggml-cuda/my.cuh", template="my.cuh.jinja", where=patch.files[0].where),
    )
    assert (patch.aliases[0].name, patch.aliases[0].where.line) == ("MY_STRIDE", 32)
    include, launch = patch.edits
    assert (include.at, include.header, include.count, include.pairs) == (None, "my.cuh", 1, ())
    assert isinstance(launch, Edit)
    assert (launch.at, launch.parameters, launch.where.line, launch.pairs) == (
        Selector(call="kernel"),
        "int n",
        46,
        ("p",),
    )
    assert (patch.where.path, patch.where.line) == (PATH, 1)


@pytest.mark.parametrize(
    ("build", "last", "covered"),
    [(6899, 9093, False), (6900, 9093, True), (9093, 9093, True), (9094, 9093, False), (99999, None, True)],
)
def test_a_build_range_includes_both_ends(build, last, covered):
    assert BuildRange(first=6900, last=last, why="w").covers(build) is covered


@pytest.mark.parametrize(
    ("old", "new", "code", "line", "says"),
    [
        ('without = "A', 'witout = "A', "CONFIG_UNKNOWN_KEY", 8, "did you mean 'without'?"),
        ('header = "my.cuh"', 'headers = "my.cuh"', "CONFIG_UNKNOWN_KEY", 42, "did you mean 'header'?"),
        ('{ call = "kernel" }', '{ cal = "kernel" }', "CONFIG_UNKNOWN_KEY", 50, "did you mean 'call'?"),
        ('without = "A gate fails."\n', "", "CONFIG_MISSING_KEY", 1, "'without' is missing"),
        ('effect = "none"\n', "", "CONFIG_MISSING_KEY", 16, "'expected.effect' is missing"),
        ('id = "my-patch"', 'id = "My_Patch"', "CONFIG_BAD_VALUE", 1, "My_Patch"),
        ('id = "my-patch"', 'id = "my-patch\\n"', "CONFIG_BAD_VALUE", 1, "'id'"),
        ('id = "launch"', 'id = "-launch"', "CONFIG_BAD_VALUE", 46, "-launch"),
        ('"rejected"', '"rejectd"', "CONFIG_BAD_VALUE", 7, "did you mean 'rejected'?"),
        ('verb = "change_to"', 'verb = "change"', "CONFIG_BAD_VALUE", 51, "insert_before"),
        ('side = "host"\npairs', 'side = "both"\npairs', "CONFIG_BAD_VALUE", 52, "host, device"),
        ('text = "new"\n', "", "CONFIG_BAD_VALUE", 45, "verb 'change_to' needs text"),
        ('at = { call = "kernel" }\n', "", "CONFIG_BAD_VALUE", 45, "verb 'change_to' needs at"),
        (
            'text = "new"',
            'text = "new"\ntemplate = "t"',
            "CONFIG_BAD_VALUE",
            45,
            "'text' or 'template', not both",
        ),
        (
            'text = "new"',
            'text = "new"\nheader = "t"',
            "CONFIG_BAD_VALUE",
            45,
            "verb 'change_to' takes no header",
        ),
        ('"change_to"', '"remove"', "CONFIG_BAD_VALUE", 45, "verb 'remove' takes no text"),
        ('"change_to"', '"use_alias"', "CONFIG_BAD_VALUE", 45, "verb 'use_alias' needs alias"),
        ('header = "my.cuh"\n', "", "CONFIG_BAD_VALUE", 38, "verb 'add_include' needs header"),
        ('header = "my.cuh"', 'header = "my.cuh"\ncount = 2', "CONFIG_BAD_VALUE", 38, "'count'"),
        ('function = "launch"\n', "", "CONFIG_BAD_VALUE", 45, "name the 'function'"),
        ('text = "new"', 'text = "new"\ncount = 0', "CONFIG_BAD_VALUE", 55, "greater than or equal to 1"),
        ('text = "new"', 'text = "new"\ncount = "2"', "CONFIG_BAD_VALUE", 55, "valid integer"),
        ("last = 9093", "last = 1", "CONFIG_BAD_VALUE", 11, "last (1) is before first (6900)"),
        ("first = 6900", "first = 0", "CONFIG_BAD_VALUE", 12, "greater than or equal to 1"),
        ('macros = ["GGML_USE_HIP"]', "macros = []", "CONFIG_BAD_VALUE", 21, "at least 1 item"),
        ('["GGML_USE_HIP"]', '["A) || (1"]', "CONFIG_BAD_VALUE", 21, "A) || (1"),
        ('name = "MY_STRIDE"', 'name = "MY-STRIDE"', "CONFIG_BAD_VALUE", 32, "MY-STRIDE"),
        ('device = "stride"', 'device = "a\\nb"', "CONFIG_BAD_VALUE", 35, "one line"),
        ('upstream = "STRIDE"', 'upstream = "a \\\\"', "CONFIG_BAD_VALUE", 36, "one line"),
        ('path = "ggml/', 'path = "/ggml/', "CONFIG_BAD_VALUE", 28, "/ggml/src/ggml-cuda/my.cuh"),
        ('path = "ggml/src', 'path = "ggml/../src', "CONFIG_BAD_VALUE", 28, "'..'"),
        ('template = "my', 'template = "../my', "CONFIG_BAD_VALUE", 29, "'..'"),
        ('header = "my', 'header = "./my', "CONFIG_BAD_VALUE", 42, "'..'"),
        ('path = "ggml/src', 'path = "ggml\\\\src', "CONFIG_BAD_VALUE", 28, "path"),
        ('"do it better"', '"' + "x" * 73 + '"', "CONFIG_BAD_VALUE", 2, "72 characters"),
        ('{ call = "kernel" }', '{ call = "k", tokens = "k" }', "CONFIG_BAD_VALUE", 50, "found tokens, call"),
        ('{ call = "kernel" }', '{ call_arg = "k" }', "CONFIG_BAD_VALUE", 50, "'call_arg' needs 'of'"),
        (
            '{ call = "kernel" }',
            '{ before = { body = true, of = "x" } }',
            "CONFIG_BAD_VALUE",
            50,
            "takes no 'of'",
        ),
        (
            '{ call = "kernel" }',
            '{ after = { call = "k" } }',
            "CONFIG_BAD_VALUE",
            45,
            "has nothing to act on",
        ),
        ('{ call = "kernel" }', '"kernel"', "CONFIG_BAD_VALUE", 50, "kernel"),
    ],
)
def test_each_mistake_has_its_place_and_its_reason(old, new, code, line, says):
    assert GOOD.count(old) == 1
    found = failures(GOOD.replace(old, new))
    assert code in [each[0] for each in found]
    assert any(each[:2] == (code, line) and says in " ".join(map(str, each[2:])) for each in found), found


def test_a_patch_without_edits_is_none():
    assert failures(GOOD[: GOOD.index("[[edit]]")])[0][:2] == ("CONFIG_MISSING_KEY", 1)


def test_every_mistake_is_reported_in_the_order_of_the_file():
    text = (
        GOOD.replace('"my-patch"', '"My"').replace("first = 6900", "first = 0").replace('"my.cuh"', '"a b"')
    )
    assert [line for _, line, *_ in failures(text)] == [1, 12, 42]
