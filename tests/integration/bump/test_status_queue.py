"""``status`` warns of patches that should not be carried any more, and says what the queue costs."""

from __future__ import annotations

import json

import pytest

REPLACED = """\
[[replaced_by]]
file = "ggml/src/ggml-cuda/demo.cu"
function = "twin_b"
tokens = "x * scale"
why = "the product is upstream's"
"""


def status(river):
    done = river.run("status", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["queue"], river.run("status").stderr


def add(river, text, *, status_word=None):
    path = river.home / "patches" / "0002-demo-twin" / "patch.toml"
    old = path.read_text()
    if status_word is not None:
        old = old.replace('status = "not-submitted"', f'status = "{status_word}"')
    path.write_text(old.replace("[[edit]]", f"{text}\n\n[[edit]]", 1))


def test_the_queue_has_its_size_and_no_warnings(river):
    queue, talk = status(river)
    assert [(patch["id"], patch["edits"], patch["upstream"]) for patch in queue["patches"]] == [
        ("demo-launch-bounds", 2, "not submitted"),
        ("demo-twin", 1, "not submitted"),
    ]
    assert (queue["edits"], queue["bumps"], queue["conflicts"]) == (3, 0, 0)
    assert "warning" not in talk


@pytest.mark.parametrize(
    ("table", "word", "warning"),
    [
        ("[upstream]\nmerged_in = 1", "backport", "merged upstream in b1, but still carried at b1"),
        ('[expires]\non = 2025-01-01\nwhy = "measure again"', None, "expired on 2025-01-01: measure again"),
        (
            REPLACED,
            None,
            "superseded at ggml/src/ggml-cuda/demo.cu:10:12: the product is upstream's",
        ),
    ],
)
def test_a_patch_that_reached_its_end_is_warned_of(river, table, word, warning):
    add(river, table, status_word=word)
    queue, talk = status(river)
    (found,) = queue["patches"][1]["warnings"]
    assert warning in found
    assert f"warning: demo-twin: {warning}" in talk


def test_a_patch_whose_option_is_gone_is_warned_of(river):
    path = river.home / "patches" / "0002-demo-twin" / "patch.toml"
    path.write_text(path.read_text().replace('["GGML_USE_HIP"]', '["GGML_USE_HIP", "GGML_GONE"]'))
    queue, _ = status(river)
    (warning,) = queue["patches"][1]["warnings"]
    assert warning.startswith("retired: b1 no longer has option GGML_GONE")


def test_age_and_conflicts_of_past_bumps_are_counted(river):
    add(river, "[upstream]\nsince = 2025-01-01")
    path = river.home / "patches" / "0001-demo-launch-bounds" / "patch.toml"
    text = path.read_text()
    path.write_text(text.replace('call_arg = "64"', 'call_arg = "65"'))
    blocked = river.run("bump", "--to", "b2", "--no-verify")
    assert blocked.returncode == 3
    # The files a person has to open are the series', not those of the copy that the bump worked on.
    assert f"{path}:" in blocked.stdout
    assert f"{river.cache}/bump-" not in blocked.stdout
    assert "BLOCKED: nothing was changed\nnext: " in blocked.stdout
    # Mended and done: the conflict was met all the same.
    path.write_text(text)
    assert river.run("bump", "--to", "b2", "--no-verify").returncode == 0
    queue, _ = status(river)
    assert queue["patches"][1]["age_days"] > 300
    assert (queue["bumps"], queue["conflicts"]) == (1, 1)
