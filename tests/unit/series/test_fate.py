"""How a patch stands upstream, and when somebody has to look at it again."""

from __future__ import annotations

import datetime as dt

import pytest

from patchkit.base.errors import ErrorGroup
from patchkit.series.patch import parse_patch
from patchkit.series.toml import parse_toml

TODAY = dt.date(2026, 11, 21)
TEXT = """\
id = "p"
title = "t"
why = "w"
links = ["https://example.invalid/1"]
status = "{status}"
without = "x"
builds = {{ first = 1, why = "b" }}
expected = {{ effect = "e", source = "s" }}
guard = {{ macros = ["GGML_USE_HIP"] }}
{tables}

[[edit]]
id = "e"
file = "ggml/src/ggml-cuda/a.cu"
function = "f"
at = {{ statement = "x" }}
verb = "remove"
side = "device"
"""


def patch(status, tables=""):
    document = parse_toml("patches/0001-p/patch.toml", TEXT.format(status=status, tables=tables).encode())
    return parse_patch(document, folder="0001-p", number=1)


@pytest.mark.parametrize(
    ("status", "tables", "text"),
    [
        ("not-submitted", "", "not submitted"),
        ("submitted", "", "submitted: https://example.invalid/1"),
        (
            "submitted",
            '[upstream]\nurl = "https://example.invalid/9"',
            "submitted: https://example.invalid/9",
        ),
        ("rejected", "", "rejected: no reason written down"),
        ("rejected", '[upstream]\nreason = "a rewrite is planned"', "rejected: a rewrite is planned"),
        ("backport", "[upstream]\nmerged_in = 7000", "merged in b7000"),
    ],
)
def test_the_standing_reads_as_a_sentence(status, tables, text):
    assert patch(status, tables).standing == text


@pytest.mark.parametrize(
    ("status", "table", "words"),
    [
        ("submitted", "", "needs [upstream] url"),
        ("rejected", "", "needs [upstream] reason"),
        ("backport", "", "needs [upstream] merged_in"),
        ("rejected", 'reason = "x"\nmerged_in = 5', "does not go with status 'rejected'"),
    ],
)
def test_a_table_has_what_the_status_calls_for(status, table, words):
    with pytest.raises(ErrorGroup) as caught:
        patch(status, f"[upstream]\n{table}")
    assert any(words in error.message + (error.why or "") for error in caught.value.errors)


def test_a_patch_expires_behind_a_build_or_a_day():
    by_build = patch("not-submitted", '[expires]\nbuild = 9093\nwhy = "MMA kernels come"').expires
    assert by_build.expired(9093, TODAY) is None
    assert by_build.expired(9094, TODAY) == "expired after b9093: MMA kernels come"
    by_day = patch("not-submitted", '[expires]\non = 2026-11-20\nwhy = "measure again"').expires
    assert by_day.expired(1, TODAY) == "expired on 2026-11-20: measure again"
    assert by_day.expired(1, dt.date(2026, 11, 20)) is None


@pytest.mark.parametrize("table", ['why = "x"', 'build = 1\non = 2026-01-01\nwhy = "x"'])
def test_an_expiry_is_one_of_both(table):
    with pytest.raises(ErrorGroup):
        patch("not-submitted", f"[expires]\n{table}")


def test_a_replacement_is_kept_as_written():
    (one,) = patch(
        "not-submitted",
        '[[replaced_by]]\nfile = "ggml/src/ggml-cuda/a.cu"\nfunction = "f"\ntokens = "g(x)"\nwhy = "same"',
    ).replaced_by
    assert (one.file, one.function, one.tokens, one.why) == ("ggml/src/ggml-cuda/a.cu", "f", "g(x)", "same")
