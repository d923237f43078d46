from __future__ import annotations

import dataclasses
import os
import pickle
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from refusing import refused

from patchkit.base.errors import ErrorGroup
from patchkit.base.reporter import NullReporter
from patchkit.carry.series.lock import GitSource, Pin, load_lock
from patchkit.carry.upstream import pin as module
from patchkit.carry.upstream.cache import Cache, open_cache
from patchkit.carry.upstream.pin import find_pinned, obtain, pin_ref
from patchkit.carry.upstream.refs import list_refs

REPORTER = NullReporter()


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return open_cache(tmp_path / "cache")


class _Steps(NullReporter):
    def __init__(self) -> None:
        self.last = ""

    def step(self, text: str) -> None:
        self.last = text


def _get(pin: Pin, **options: object) -> tuple[str, str]:
    """The commit to build on, and what it was got from in the end."""
    reporter = _Steps()
    commit = obtain(pin, reporter=reporter, **options)
    if not reporter.last:
        return commit, "cache"
    return commit, "sdist" if "from the source package" in reporter.last else "git"


def _refs(cache: Cache) -> dict[str, str]:
    repository = cache.peek(REPORTER)
    return list_refs(repository, "refs") if repository else {}


@pytest.mark.parametrize("base", ["real commit", "made commit"])
def test_both_sources_give_the_same_base(upstream, index, tmp_path: Path, base: str) -> None:
    pin = upstream.pin(with_object=base == "real commit")
    one, source = _get(pin, cache=open_cache(tmp_path / "1"), source="git")
    two, other = _get(pin, cache=open_cache(tmp_path / "2"), source="sdist", index_url=index.url)
    assert (source, other) == ("git", "sdist")
    assert one == two
    assert (one == upstream.commit) is (base == "real commit")


def test_a_made_base_names_the_build_and_the_commit(upstream, index, cache: Cache) -> None:
    pin = dataclasses.replace(
        upstream.pin(with_object=False), commit=None, sources=upstream.pin().sources[1:]
    )
    made = obtain(pin, cache=cache, index_url=index.url, reporter=REPORTER)
    repository = cache.peek(REPORTER)
    assert repository is not None
    text = repository.git.run("log", "-1", "--format=%an %ad|%s|%(trailers)", made).decode()
    assert text.strip() == "patchkit Fri Oct 31 10:54:19 2025 +0200|llama.cpp b77|Upstream-Build: 77"


def test_the_history_is_cut_cleanly(upstream, index, cache: Cache) -> None:
    obtain(upstream.pin(), cache=cache, source="sdist", index_url=index.url, reporter=REPORTER)
    repository = cache.peek(REPORTER)
    assert repository is not None
    assert repository.git.run("rev-list", "--count", upstream.commit) == b"1\n"
    assert repository.git.attempt("fsck", "--strict").status == 0
    repository.git.run("gc", "--quiet", "--prune=now")
    assert find_pinned(repository, upstream.pin()) is not None


def test_the_second_time_needs_nothing(upstream, index, cache: Cache, recorder) -> None:
    obtain(upstream.pin(), cache=cache, source="sdist", index_url=index.url, reporter=REPORTER)
    asked = len(index.asked)
    again = obtain(
        upstream.pin(url="/gone"), cache=cache, index_url="http://127.0.0.1:1/simple/", reporter=recorder
    )
    assert again == upstream.commit
    assert len(index.asked) == asked
    assert len(recorder.said("command")) == 1  # which git it is was asked before
    assert not list(cache.downloads.iterdir())


def test_the_base_depends_on_the_pin_and_not_on_who_was_here_before(upstream, index, cache: Cache) -> None:
    """Two lists have the same tree, one without the commit: each gets its base, and nobody is asked again."""
    known = upstream.pin()
    bare = dataclasses.replace(known, commit=None, commit_object=None, sources=known.sources[1:])
    first = obtain(known, cache=cache, source="sdist", index_url=index.url, reporter=REPORTER)
    asked = len(index.asked)
    other, source = _get(bare, cache=cache, index_url=index.url)
    assert (other != first, source) == (True, "cache")
    assert _get(known, cache=cache, index_url=index.url) == (first, "cache")
    assert len(index.asked) == asked


def test_auto_takes_git_first(upstream, index, cache: Cache) -> None:
    assert _get(upstream.pin(), cache=cache, index_url=index.url) == (upstream.commit, "git")
    assert index.asked == []


@pytest.mark.parametrize("url", ["/nonexistent", "http://127.0.0.1:1/x"])
def test_auto_falls_back_and_says_so(upstream, index, cache: Cache, recorder, url: str) -> None:
    obtain(upstream.pin(url=url), cache=cache, index_url=index.url, reporter=recorder)
    assert url in recorder.said("warn")[0]
    assert "using the sdist" in recorder.said("warn")[0]


def test_auto_falls_back_from_a_remote_that_never_answers(
    upstream, index, cache: Cache, recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert module._AUTO_ANSWER_S == 10
    monkeypatch.setattr(module, "_AUTO_ANSWER_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/x"
        obtain(upstream.pin(url=url), cache=cache, index_url=index.url, reporter=recorder)
    assert recorder.said("warn")[0].startswith(f"no response from {url}: git produced no output for 0.5 s")


def test_a_mirror_takes_the_place_of_the_locks_remote(upstream, cache: Cache) -> None:
    pin = upstream.pin(url="/nonexistent")
    assert _get(pin, cache=cache, source="git", upstream_url=str(upstream.clone)) == (upstream.commit, "git")


def test_git_alone_does_not_fall_back(upstream, index, cache: Cache) -> None:
    with refused("REMOTE_UNREACHABLE"):
        obtain(
            upstream.pin(url="/nonexistent"),
            cache=cache,
            source="git",
            index_url=index.url,
            reporter=REPORTER,
        )
    assert index.asked == []
    assert _refs(cache) == {}


def test_all_failures_are_told_together(upstream, index, cache: Cache) -> None:
    with pytest.raises(ErrorGroup, match="no source has the tree of b77") as caught:
        obtain(
            upstream.pin(url="/nonexistent", sha256="1" * 64),
            cache=cache,
            index_url=index.url,
            reporter=REPORTER,
        )
    assert [error.code for error in caught.value.errors] == ["REMOTE_UNREACHABLE", "SDIST_DIGEST_MISMATCH"]


@pytest.mark.parametrize("source", ["git", "sdist"])
def test_another_tree_is_refused_naming_both_and_leaves_no_ref(
    upstream, index, cache: Cache, source: str
) -> None:
    pin = dataclasses.replace(upstream.pin(with_object=False), tree="1" * 40)
    with refused("TREE_MISMATCH") as caught:
        obtain(pin, cache=cache, source=source, index_url=index.url, reporter=REPORTER)
    assert upstream.tree in caught.value.message
    assert "1" * 40 in caught.value.message
    assert _refs(cache) == {}


def test_a_damaged_archive_with_the_right_digest(upstream, index, cache: Cache) -> None:
    index.archive = upstream.archive = upstream.archive[:-20]
    with refused("ARCHIVE_REFUSED"):
        obtain(upstream.pin(), cache=cache, source="sdist", index_url=index.url, reporter=REPORTER)
    assert _refs(cache) == {}


def test_a_pin_that_changed_in_the_lock_is_made_again(upstream, index, cache: Cache) -> None:
    made = obtain(upstream.pin(with_object=False), cache=cache, source="git", reporter=REPORTER)
    assert made != upstream.commit
    assert _get(upstream.pin(), cache=cache, source="git") == (upstream.commit, "cache")
    assert _refs(cache) == {pin_ref(upstream.pin()): upstream.commit}


def test_wishes_that_do_not_fit_the_lock(upstream, cache: Cache) -> None:
    pin = upstream.pin()
    with refused("UPSTREAM_URL_UNUSED"):
        obtain(pin, cache=cache, source="sdist", upstream_url="x", reporter=REPORTER)
    without: Pin = dataclasses.replace(pin, commit=None, commit_object=None, sources=pin.sources[1:])
    with refused("UPSTREAM_URL_UNUSED"):
        obtain(without, cache=cache, upstream_url="x", reporter=REPORTER)
    with refused("SOURCE_NOT_IN_LOCK"):
        obtain(without, cache=cache, source="git", reporter=REPORTER)
    only_git = dataclasses.replace(pin, sources=(GitSource(url="x"),))
    with refused("SOURCE_NOT_IN_LOCK"):
        obtain(only_git, cache=cache, source="sdist", reporter=REPORTER)
    assert not cache.root.exists()


@pytest.mark.network
@pytest.mark.slow
def test_the_real_sdist_gives_the_real_commit(checkout: Path, cache: Cache) -> None:
    pin = load_lock(checkout / "patches" / "upstream.lock").pin("b6900")
    assert pin.tree == "825d48d696e3989507318cae2a9d8e6e0c601eef"
    commit = "c22473b580807929fd9e3a3344a48e8cfbe6c88f"
    assert _get(pin, cache=cache, source="sdist") == (commit, "sdist")
    assert _get(pin, cache=cache) == (commit, "cache")


def test_a_hostile_environment(
    upstream, index, cache: Cache, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trap = tmp_path / "trapped"
    (tmp_path / "hooks").mkdir()
    for name in ("reference-transaction", "post-checkout", "pre-auto-gc"):
        (tmp_path / "hooks" / name).write_text(f"#!/bin/sh\ntouch {trap}\n")
        (tmp_path / "hooks" / name).chmod(0o755)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path))
    monkeypatch.setenv("GIT_TEMPLATE_DIR", str(tmp_path / "hooks"))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.hooksPath")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", str(tmp_path / "hooks"))
    monkeypatch.setenv("LC_ALL", "xx")
    for source in ("git", "sdist"):
        here = open_cache(tmp_path / source)
        got = obtain(upstream.pin(), cache=here, source=source, index_url=index.url, reporter=REPORTER)
        assert got == upstream.commit
    assert not trap.exists()
    assert not (tmp_path / "elsewhere").exists()


_OBTAIN = """
import pickle, sys
from pathlib import Path
from patchkit.carry.upstream.cache import open_cache
from patchkit.carry.upstream.pin import obtain
from patchkit.base.reporter import NullReporter
pin, root, source, url = pickle.loads(bytes.fromhex(sys.argv[1]))
print(obtain(pin, cache=open_cache(root), source=source, index_url=url, reporter=NullReporter()))
"""


def test_two_processes_at_once(upstream, index, cache: Cache) -> None:
    both = [
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                _OBTAIN,
                pickle.dumps((upstream.pin(), cache.root, source, index.url)).hex(),
            ],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for source in ("git", "sdist")
    ]
    assert [process.communicate()[0].strip() for process in both] == [upstream.commit] * 2
