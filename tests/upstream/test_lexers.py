"""The lexer of ordinary code against libclang, on every source of a real tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.base.reporter import NullReporter
from patchkit.base.source import SourceText
from patchkit.carry.cpp.lexer import lex, lex_by_clang
from patchkit.carry.series.lock import load_lock
from patchkit.carry.upstream.cache import open_cache
from patchkit.carry.upstream.pin import obtain

pytestmark = [pytest.mark.upstream, pytest.mark.network]
LOCK = load_lock(Path(__file__).parent / "corpus.toml")
SOURCES = (".c", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".m", ".metal")
MOST_BYTES = 200_000  # of one file: a header of a vendor's alone takes seconds


@pytest.mark.parametrize("folder", ["ggml/src/ggml-cuda/", "src/", "common/"])
def test_each_source_has_the_tokens_that_libclang_gives(test_cache, folder: str) -> None:
    newest = max(LOCK.pins, key=lambda pin: pin.build)
    cache = open_cache(test_cache / "corpus")
    base = obtain(newest, cache=cache, reporter=NullReporter())
    repository = cache.peek(NullReporter())
    paths = [each.path for each in repository.list_files(base, folder) if each.path.endswith(SOURCES)]
    assert paths
    for path, data in repository.read_blobs(base, paths).items():
        if len(data) < MOST_BYTES:
            source = SourceText(path, data)
            assert lex(source) == lex_by_clang(source), path
