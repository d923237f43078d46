"""patch.toml: what it means, and what each mistake is called and where."""

from __future__ import annotations

import datetime as dt

import pytest

from patchkit.base.errors import ErrorGroup, ExitCode
from patchkit.base.toml import parse_toml
from patchkit.carry.series.patch import BuildRange, Edit, NewFile, Replacement, parse_patch
from patchkit.carry.series.promises import Allowance, BenchRules, ExpectedGain, ResourceRules
from patchkit.carry.series.selector import Selector

NOTHING = "a patch needs an [[edit]], a [[file]], a [[remove]], a [[rename]] or a [[mode]]"
TODAY = dt.date(2026, 11, 21)
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


MOVES = """
[[moves]]
from = "mma"
to = ["tile"]
head_sizes = [256]
why = "the choice of MMA for this head size is what the patch takes away"

[[moves]]
from = "wmma"
to = ["mma", "tile"]
may_stay = true
why = "upstream chooses between them"
"""


def test_moves_are_read_with_the_head_sizes_that_they_are_about():
    moves = parse(GOOD + MOVES).moves
    assert [(move.origin, move.to, move.head_sizes, move.may_stay) for move in moves] == [
        ("mma", ("tile",), (256,), False),
        ("wmma", ("mma", "tile"), (), True),
    ]


def test_width_is_about_operations_and_sizes_of_batches():
    (change,) = parse(
        GOOD
        + '\n[[width]]\noperations = ["MUL_MAT"]\nmin_tokens = 5\nmax_tokens = 8\nwhy = "another kernel"\n'
    ).widths
    assert [tokens for tokens in range(2, 17) if change.covers(("ADD", "MUL_MAT"), tokens)] == [5, 6, 7, 8]
    assert change.covers((), 5)  # a whole model has matmuls
    assert not change.covers(("FLASH_ATTN_EXT",), 5)


@pytest.mark.parametrize(
    ("build", "last", "covered"),
    [(6899, 9093, False), (6900, 9093, True), (9093, 9093, True), (9094, 9093, False), (99999, None, True)],
)
def test_a_build_range_includes_both_ends(build, last, covered):
    assert BuildRange(first=6900, last=last, why="w").covers(build) is covered


@pytest.mark.parametrize(
    ("old", "new", "code", "line", "says"),
    [
        ('without = "A', 'witout = "A', "CONFIG_VALUE", 8, "did you mean 'without'?"),
        ('{ call = "kernel" }', '{ cal = "kernel" }', "CONFIG_VALUE", 50, "did you mean 'call'?"),
        ('title = "do it better"\n', "", "CONFIG_VALUE", 1, "'title' is missing"),
        ('side = "host"\npairs', "pairs", "CONFIG_VALUE", 1, "edit 'launch' has no side"),
        ('[guard]\nmacros = ["GGML_USE_HIP"]', "", "CONFIG_VALUE", 1, "'guard' is missing"),
        ('id = "my-patch"', 'id = "my-patch\\n"', "CONFIG_VALUE", 1, "'id'"),
        ('id = "launch"', 'id = "-launch"', "CONFIG_VALUE", 46, "-launch"),
        ('verb = "change_to"', 'verb = "change"', "CONFIG_VALUE", 51, "insert_before"),
        ('side = "host"\npairs', 'side = "both"\npairs', "CONFIG_VALUE", 52, "host, device"),
        ('text = "new"\n', "", "CONFIG_VALUE", 45, "verb 'change_to' needs text"),
        ('at = { call = "kernel" }\n', "", "CONFIG_VALUE", 45, "verb 'change_to' needs at"),
        (
            'text = "new"',
            'text = "new"\ntemplate = "t"',
            "CONFIG_VALUE",
            45,
            "'text' or 'template', not both",
        ),
        (
            'text = "new"',
            'text = "new"\nheader = "t"',
            "CONFIG_VALUE",
            45,
            "verb 'change_to' takes no header",
        ),
        ('"change_to"', '"remove"', "CONFIG_VALUE", 45, "verb 'remove' takes no text"),
        ('"change_to"', '"use_alias"', "CONFIG_VALUE", 45, "verb 'use_alias' needs alias"),
        ('header = "my.cuh"\n', "", "CONFIG_VALUE", 38, "verb 'add_include' needs header"),
        ('header = "my.cuh"', 'header = "my.cuh"\ncount = 2', "CONFIG_VALUE", 38, "'count'"),
        ('header = "my.cuh"', 'header = "m.h"\nat = { start = true }', "CONFIG_VALUE", 38, "include ="),
        ('function = "launch"\n', "", "CONFIG_VALUE", 45, "needs 'function'"),
        ('text = "new"', 'text = "new"\ncount = 0', "CONFIG_VALUE", 55, "greater than or equal to 1"),
        ("last = 9093", "last = 1", "CONFIG_VALUE", 11, "last (1) is before first (6900)"),
        ("first = 6900", "first = 0", "CONFIG_VALUE", 12, "greater than or equal to 1"),
        ('macros = ["GGML_USE_HIP"]', "macros = []", "CONFIG_VALUE", 21, "at least 1 item"),
        ('["GGML_USE_HIP"]', '["A) || (1"]', "CONFIG_VALUE", 21, "A) || (1"),
        ('name = "MY_STRIDE"', 'name = "MY-STRIDE"', "CONFIG_VALUE", 32, "MY-STRIDE"),
        ('device = "stride"', 'device = "a\\nb"', "CONFIG_VALUE", 35, "one line"),
        ('upstream = "STRIDE"', 'upstream = "a \\\\"', "CONFIG_VALUE", 36, "one line"),
        ('path = "ggml/', 'path = "/ggml/', "CONFIG_VALUE", 28, "/ggml/src/ggml-cuda/my.cuh"),
        ('path = "ggml/src', 'path = "ggml/../src', "CONFIG_VALUE", 28, "'..'"),
        ('template = "my', 'template = "../my', "CONFIG_VALUE", 29, "'..'"),
        ('header = "my', 'header = "./my', "CONFIG_VALUE", 42, "'..'"),
        ('path = "ggml/src', 'path = "ggml\\\\src', "CONFIG_VALUE", 28, "path"),
        ('"do it better"', '"' + "x" * 73 + '"', "CONFIG_VALUE", 2, "72 characters"),
        (
            '{ call = "kernel" }',
            '{ before = { body = true, of = "x" } }',
            "CONFIG_VALUE",
            50,
            "takes no 'of'",
        ),
        (
            '{ call = "kernel" }',
            '{ after = { call = "k" } }',
            "CONFIG_VALUE",
            45,
            "has nothing to act on",
        ),
    ],
)
def test_each_mistake_has_its_place_and_its_reason(old, new, code, line, says):
    assert GOOD.count(old) == 1
    found = failures(GOOD.replace(old, new))
    assert code in [each[0] for each in found]
    assert any(each[:2] == (code, line) and says in " ".join(map(str, each[2:])) for each in found), found


def test_a_patch_without_edits_and_files_is_none():
    text = GOOD[: min(GOOD.index(table) for table in ("[[edit]]", "[[file]]") if table in GOOD)]
    ((code, line, _, why, _),) = failures(text)
    assert (code, line, why) == ("CONFIG_VALUE", 1, NOTHING)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        (".git/config", "reserved by git"),
        ("sub/.GIT/x", "reserved by git"),
        ("sub/.git. ", "reserved by git"),
        ("git~1/x", "reserved by git"),
        (".git::$INDEX_ALLOCATION/x", "reserved by git"),
        (".g\u200cit/x", "printable"),
        (".gitmodules", "git fetch"),
        ("sub/.GitModules", "git fetch"),
        ("gitmod~1", "git fetch"),
        ("../x", "'.' or '..'"),
        ("a/./b", "'.' or '..'"),
        ("a//b", "single '/'"),
        ("a/", "single '/'"),
        ("a\\\\b", "backslash"),
        ("a\\tb", "printable"),
        ("a\u202eb", "printable"),
        ("x" * 256, "at most 1000 bytes"),
        ("/".join(["\u00e9" * 100] * 6), "at most 1000 bytes"),
    ],
)
def test_a_path_that_no_patch_may_touch(path, why):
    ((_, line, _, told, _),) = failures(GOOD.replace("ggml-cuda/my.cuh", f"ggml-cuda/{path}"))
    assert line == 28
    assert why in told


@pytest.mark.parametrize(
    "path", [".github/workflows/a.yml", ".gitignore", ".gitattributes", "a b (1).txt", "caf\u00e9.h", "c@d=e"]
)
def test_a_path_that_is_one_like_others(path):
    assert parse(GOOD.replace("ggml-cuda/my.cuh", f"ggml-cuda/{path}")).files[0].path.endswith(path)


@pytest.mark.parametrize("path", ["/etc/passwd", ""])
def test_a_path_begins_at_the_root(path):
    (found,) = failures(GOOD.replace("ggml/src/ggml-cuda/my.cuh", path))
    assert found[1] == 28


def test_prose_and_code_have_several_lines():
    text = GOOD.replace("Because.", "Because.\n\tAnd so.").replace("A gate fails.", "A\\ngate.")
    text = text.replace('effect = "none"', 'effect = "no\\nthing"').replace('call = "k', 'call = "f(\\n')
    assert parse(text.replace('text = "new"', 'text = "\\tnew\\n"')).why == "Because.\n\tAnd so."


@pytest.mark.parametrize(
    ("old", "new", "name", "char"),
    [
        ("do it better", "do it\\nbetter", "title", "000A"),
        ("do it better", "do it\\tbetter", "title", "0009"),
        ("example.invalid/1", "example.invalid/\\nPatchkit-Id: forged", "links[0]", "000A"),
        ("Because.", "Because\\u001b[31m.", "why", "001B"),
        ("Because.", "Because\\u202e.", "why", "202E"),
        ("Because.", "Because\\u007f.", "why", "007F"),
        ("do it better", "do it\\u200bbetter", "title", "200B"),
        ("the code is there", "the code\\nis there", "builds.why", "000A"),
        ('source = "read"', 'source = "r\\nead"', "expected.source", "000A"),
        ("it traps", "it\\u2028traps", "requires[0].why", "2028"),
        ('call = "kernel"', 'call = "kernel\\u0007"', "edit[1].at.call", "0007"),
        ('text = "new"', 'text = "new\\u0000"', "edit[1].text", "0000"),
        ('function = "launch"', 'function = "launch\\n"', "edit[1].function", "000A"),
    ],
)
def test_a_control_character_is_named_with_its_place(old, new, name, char):
    ((code, line, message, *_),) = failures(GOOD.replace(old, new))
    assert (code, message) == (
        "PATCH_BAD",
        f"'{name}' contains the control character U+{char}",
    )
    assert line is not None


@pytest.mark.parametrize("title", [" do it", "do it ", "do  it", " "])
def test_blanks_that_mail_would_not_keep(title):
    assert [each[:2] for each in failures(GOOD.replace("do it better", title))] == [("PATCH_BAD", 2)]


@pytest.mark.parametrize("first", ["From: a b", "Subject: x", "---", "diff -u a b", "Index: a", "[PATCH] x"])
def test_a_reason_that_begins_like_a_header_or_a_diff(first):
    ((code, _, message, *_),) = failures(GOOD.replace("Because.", first))
    assert code == "PATCH_BAD"
    assert first.split(maxsplit=1)[0] in message


def stands(status, tables=""):
    return parse(GOOD.replace('"rejected"', f'"{status}"') + tables)


@pytest.mark.parametrize(
    ("status", "tables", "text"),
    [
        ("not-submitted", "", "not submitted"),
        ("submitted", "", "submitted: https://example.invalid/1"),
        ("submitted", '[upstream]\nurl = "https://a.invalid/9"', "submitted: https://a.invalid/9"),
        ("rejected", "", "rejected: no reason recorded"),
        ("rejected", '[upstream]\nreason = "a rewrite is planned"', "rejected: a rewrite is planned"),
        ("backport", "[upstream]\nmerged_in = 7000", "merged in b7000"),
    ],
)
def test_the_upstream_state_as_text(status, tables, text):
    assert stands(status, tables).upstream_text == text


def test_a_patch_expires_behind_a_build_or_a_day():
    by_build = parse(GOOD + '[expires]\nbuild = 9093\nwhy = "MMA kernels come"').expires
    assert by_build.expired(9093, TODAY) is None
    assert by_build.expired(9094, TODAY) == "expired after b9093: MMA kernels come"
    by_day = parse(GOOD + '[expires]\non = 2026-11-20\nwhy = "measure again"').expires
    assert by_day.expired(1, TODAY) == "expired on 2026-11-20: measure again"
    assert by_day.expired(1, dt.date(2026, 11, 20)) is None


def test_a_replacement_is_kept_as_written():
    table = '[[replaced_by]]\nfile = "a.cu"\nfunction = "f"\ntokens = "g(x)"\nwhy = "same"'
    assert parse(GOOD + table).replaced_by == (
        Replacement(file="a.cu", function="f", tokens="g(x)", why="same"),
    )


def test_a_gain_has_tests_gpus_and_a_source():
    assert parse(GOOD).bench == BenchRules(allowed_loss=0.0, expected=(), why="")
    table = (
        '[bench]\nallowed_loss = 0.01\ncontrol = ["tg*@d0"]\nwhy = "w"\n'
        '[[bench.expected]]\ntest = "pp*@d16384"\ngain = 0.5\narchs = ["gfx1151"]\nhead_sizes = [64]\n'
        'source = "who and how"\n'
    )
    gain = ExpectedGain(
        test="pp*@d16384", gain=0.5, archs=("gfx1151",), head_sizes=(64,), source="who and how"
    )
    expected = BenchRules(allowed_loss=0.01, control=("tg*@d0",), expected=(gain,), why="w")
    assert parse(GOOD + table).bench == expected


def test_kernels_that_need_other_numbers_have_an_entry_of_their_own():
    assert parse(GOOD).resources == ResourceRules(more_spills=0, fewer_waves=0, why="")
    table = (
        '[resources]\nkernels = ["f"]\nfewer_waves = 7\nwhy = "half the threads"\n'
        '[[resources.allow]]\nkernels = ["g"]\nmore_spills = 4\nwhy = "traded for LDS"\n'
    )
    rules = parse(GOOD + table).resources
    assert (rules.kernels, rules.fewer_waves, rules.why) == (("f",), 7, "half the threads")
    assert rules.allowance("f") == rules
    assert rules.allowance("g") == Allowance(kernels=("g",), more_spills=4, why="traded for LDS")
    assert rules.allowance("h") is None


EXPECTED = '[bench]\nwhy = "w"\n[[bench.expected]]\ntest = "pp*"\narchs = ["gfx1151"]\n'


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ("[bench]\nallowed_loss = 0.01", "'bench.why' is missing"),
        ('[bench]\nallowed_loss = -0.01\nwhy = "w"', "'bench.allowed_loss' is -0.01"),
        ('[bench]\nallowed_loss = 0.5\nwhy = "w"', "'bench.allowed_loss' is 0.5"),
        (f"{EXPECTED}gain = 0.5", "'bench.expected[0].source' is missing"),
        (f'{EXPECTED}gain = 0.0\nsource = "s"', "'bench.expected[0].gain' is 0.0"),
        ("[resources]\nmore_spills = 4", "'resources.why' is missing"),
        ('[resources]\nmore_spills = -1\nwhy = "x"', "'resources.more_spills' is -1"),
        (
            '[resources]\nwhy = "x"\n[[resources.allow]]\nfewer_waves = 1\nwhy = "y"',
            "'resources.allow[0].kernels' is missing",
        ),
        (
            '[resources]\nwhy = "x"\n[[resources.allow]]\nkernels = ["f"]\nfewer_waves = 1',
            "'resources.allow[0].why' is missing",
        ),
        ('[expires]\nwhy = "x"', "either 'build' or 'on'"),
        ('[expires]\nbuild = 1\non = 2026-01-01\nwhy = "x"', "either 'build' or 'on'"),
        ("[upstream]", "status 'rejected' needs [upstream] reason"),
        ('[upstream]\nreason = "x"\nmerged_in = 5', "merged_in does not go with status 'rejected'"),
    ],
)
def test_a_table_that_says_too_little_or_too_much_is_refused_with_its_line(table, says):
    (error,) = failures(f"{GOOD}{table}\n")
    assert says in f"{error[2]}: {error[3]}"
    assert error[1]


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (f'url = "u/pull/1"\nhead = "{"1" * 40}"', "give both or neither"),
        (f'head = "{"1" * 40}"\nbase = "{"2" * 40}"', "needs its 'url'"),
    ],
)
def test_the_ends_of_a_pull_request_are_two_and_of_one(lines: str, says: str) -> None:
    with pytest.raises(ErrorGroup) as caught:
        stands("submitted", f"[upstream]\n{lines}")
    assert says in str(caught.value.errors[0].why)


@pytest.mark.parametrize(("status", "key"), [("submitted", "url"), ("backport", "merged_in")])
def test_a_status_calls_for_a_key_of_the_table(status, key):
    with pytest.raises(ErrorGroup) as caught:
        stands(status, "[upstream]")
    assert caught.value.message.startswith(f"{PATH} is not a valid patch")
    assert f"status '{status}' needs [upstream] {key}" in str(caught.value.errors[0].why)


PLAIN = """\
id = "my-patch"
title = "do it better"
guard = "none"
builds = { first = 6900, why = "seen there" }

[[edit]]
id = "launch"
file = "common/arg.cpp"
function = "launch"
at = { call = "kernel" }
verb = "change_to"
text = "new"
"""


def test_a_plain_patch_needs_little_and_says_what_is_missing_of_it():
    patch = parse(PLAIN)
    assert patch.is_plain
    assert patch.macros == ()
    assert [line.split(" ")[0] for line in patch.undocumented] == ["why", "links", "without", "expected"]
    assert parse(GOOD).undocumented == ()


INCLUDE = 'verb = "add_include"\nheader = "a.h"'


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('guard = "none"', 'guard = "nothing"', "'guard'"),
        ('text = "new"', 'text = "new"\nside = "host"', "must not have a side"),
        ('at = { call = "kernel" }\n', 'alias = "A"\n', "needs at"),
        ('verb = "change_to"\n', 'verb = "use_alias"\nalias = "A"\n', "takes no text"),
        ('at = { call = "kernel" }\nverb = "change_to"\ntext = "new"', INCLUDE, "for guarded patches"),
        ('at = { call = "kernel" }', 'at = { call = "kernel", above = "x" }', "for 'lines' only"),
        ('text = "new"', 'text = "new"\ndigest = "abc"', "digest' is 'abc'"),
        ('function = "launch"', f'digest = "{"0" * 64}"', "needs 'function'"),
        ('guard = "none"', 'guard = "none"\nauthors = ["nobody"]', "authors[0]"),
    ],
)  # fmt: skip
def test_each_mistake_in_a_plain_patch_is_told(old, new, says):
    assert old in PLAIN
    told = [f"{message} {why}" for _, _, message, why, _ in failures(PLAIN.replace(old, new))]
    assert any(says in text for text in told), told
