"""Which names of programs are handed to cmake as targets."""

from __future__ import annotations

import pytest
from refusing import refused

from patchkit.prove.build import PROGRAMS, check_programs


def test_upstreams_programs_are_taken() -> None:
    check_programs((*PROGRAMS, "llama-gguf-hash", "test-tokenizer-1-bpe", "rpc-server"))


@pytest.mark.parametrize(
    "name",
    ["", "install", "clean", "all", "--clean-first", "-j99", "../llama-cli", "llama-cli;x", "llama-x\n"],
)
def test_what_is_no_program_never_reaches_cmake(name: str) -> None:
    with refused("USAGE_VALUE", match="is not a program of upstream"):
        check_programs(["llama-bench", name])
