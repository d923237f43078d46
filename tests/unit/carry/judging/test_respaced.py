"""An edit of lines in which upstream only changed spaces."""

from __future__ import annotations

import pytest

from patchkit.base.reporter import NullReporter
from patchkit.base.source import SourceText
from patchkit.carry.cpp.scopes import ScopeMap, parse_scopes
from patchkit.carry.judging.merged import follow_edit
from patchkit.carry.series.patch import Edit
from patchkit.carry.series.selector import Selector

# From llama_context::decode of llama.cpp b6840 and b7847.
OLD = """\
int llama_context::decode(const llama_batch & batch_inp) {
    const int64_t n_embd  = hparams.n_embd_inp();

    // when computing embeddings, all tokens are output
    const bool output_all = cparams.embeddings;

    if (!balloc->init(batch_inp, vocab, memory.get(), n_embd, n_seq_max, output_all)) {
        return -1;
    }
    return 0;
}
"""
LINE = "    const bool output_all = cparams.embeddings;\n"
RESPACED = "    const bool output_all   = cparams.embeddings;\n"
MORE = "    const bool has_samplers = !sampling.samplers.empty();\n"
TEXT = "    const bool output_all = false;\n"
EDIT = Edit(
    id="decode",
    file="src/llama-context.cpp",
    function="llama_context::decode",
    at=Selector(lines=f"    // when computing embeddings, all tokens are output\n{LINE}"),
    verb="change_to",
    text=TEXT,
)


def scopes(text: str) -> ScopeMap:
    return parse_scopes(SourceText(EDIT.file, text.encode()))


def follow(new: str) -> Edit | None:
    found = follow_edit(EDIT, EDIT, TEXT, (scopes(OLD), scopes(new)), NullReporter())
    return found[0] if found is not None else None


@pytest.mark.parametrize("new", [RESPACED, RESPACED + MORE, RESPACED + "\n"])
def test_the_edit_is_followed(new: str) -> None:
    found = follow(OLD.replace(LINE, new))
    assert found is not None
    assert found.at is not None
    assert found.at.lines == f"    // when computing embeddings, all tokens are output\n{RESPACED}"


def test_an_edit_that_was_followed_before_is_followed_again() -> None:
    found = follow(OLD.replace(LINE, RESPACED))
    assert found is not None
    text = OLD.replace(LINE, RESPACED)
    again = follow_edit(found, EDIT, TEXT, (scopes(text), scopes(text + "\nint more;\n")), NullReporter())
    assert again is not None
    assert again[0].at == found.at


@pytest.mark.parametrize(
    "new",
    [
        "    const bool output_all   = cparams.embeddings || all;\n",  # not only spaces
        "        const bool output_all = cparams.embeddings;\n",  # another indentation
        f"{RESPACED}    // when computing embeddings, all tokens are output\n{RESPACED}",  # twice
    ],
)
def test_other_changes_are_a_conflict(new: str) -> None:
    assert follow(OLD.replace(LINE, new)) is None
