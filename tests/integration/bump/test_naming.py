"""The commits of a drift, and of a file, a function and a build option that are gone."""

from __future__ import annotations

import pytest
from demo_world import git, make_upstream, pin_at

from patchkit.base.reporter import NullReporter
from patchkit.carry.bump.history import name_commits
from patchkit.carry.judging.classes import Classified, Drift, Gone
from patchkit.carry.series.catalogue import load_series
from patchkit.carry.upstream.history import open_history

KERNEL = "int kernel(int x) {\n    int a = 1;\n    return a + x;\n}\n"
BUILDS = [
    {"a.cu": f"#define GGML_OPTION\n{KERNEL}int helper() {{ return 1; }}\n", "b.cu": "int b;\n"},
    {"a.cu": f"#define GGML_OPTION\n\n// other lines, same code\n{KERNEL}int helper() {{ return 1; }}\n"},
    {"a.cu": f"#define GGML_OPTION\n{KERNEL.replace('a = 1', 'a = 2')}int helper() {{ return 1; }}\n"},
    {"a.cu": f"#define GGML_OPTION\n{KERNEL.replace('a = 1', 'a = 2')}"},
    {"b.cu": None},
    {"a.cu": KERNEL.replace("a = 1", "a = 3")},
]


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    folder = tmp_path_factory.mktemp("naming")
    upstream = folder / "upstream"
    make_upstream(upstream, dict(enumerate(BUILDS, start=1)))
    last = pin_at(upstream, len(BUILDS))
    with open_history(folder, str(upstream), pin_at(upstream, 1), last, NullReporter()) as found:
        yield found


PATCH = """\
id = "x"
title = "{title}"
why = "{why}"
guard = "none"
builds = {{ first = 1, why = "w" }}
edit = [{{ id = "e", file = "a.cu", function = "kernel", at = {{ tokens = "a" }}, verb = "remove" }}]
"""


def series_of(folder, title="x", why="w"):
    (folder / "0001-x").mkdir(parents=True)
    (folder / "series.toml").write_text("plain = true\n")
    (folder / "0001-x/patch.toml").write_text(PATCH.format(title=title, why=why))
    return load_series(folder)


def named(history, series, *, drift=(), gone=()):
    verdict = Classified(
        id="x", title="x", intent="x", patch_class="retired", reason="x", drift=tuple(drift), gone=tuple(gone)
    )
    files = {name: text.encode() for name, text in BUILDS[0].items()}
    (found,) = name_commits([verdict], history, files, series)
    return found


def test_a_drift_has_the_commits_that_changed_its_tokens_newest_first(history, tmp_path):
    drift = Drift(file="a.cu", entity="kernel", before="1", after="2", removed=(), added=())
    (found,) = named(history, series_of(tmp_path), drift=[drift]).drift
    assert [commit.subject for commit in found.commits] == ["change 6", "change 3"]


@pytest.mark.parametrize(
    ("gone", "subject"),
    [
        (Gone(what="file", name="b.cu"), "change 5"),
        (Gone(what="function", name="helper in a.cu"), "change 4"),
        (Gone(what="option", name="GGML_OPTION"), "change 6"),
    ],
    ids=str,
)
def test_what_is_gone_has_the_commit_that_took_it_away(history, tmp_path, gone, subject):
    (found,) = named(history, series_of(tmp_path), gone=[gone]).gone
    assert found.commit.subject == subject


def test_what_never_was_has_no_commit(history, tmp_path):
    drift = Drift(file="b.cu", entity="kernel", before="1", after="2", removed=(), added=())
    found = named(history, series_of(tmp_path), drift=[drift], gone=[Gone(what="option", name="GGML_OTHER")])
    assert (found.drift[0].commits, found.gone[0].commit) == ((), None)


@pytest.mark.parametrize(
    ("title", "why", "commits"),
    [
        ("change 4", "w", ["change 4"]),
        ("Fix the kernel", "w", ["fix the kernel (#321)"]),
        ("another title", "See https://github.com/ggml-org/llama.cpp/pull/321.", ["fix the kernel (#321)"]),
        ("another title (#4321)", "w", []),
    ],
)
def test_the_commit_of_a_pull_request_that_the_patch_names(tmp_path, title, why, commits):
    upstream = tmp_path / "upstream"
    make_upstream(upstream, dict(enumerate(BUILDS, start=1)))
    git(upstream, "commit", "-q", "--allow-empty", "-m", "fix the kernel (#321)")
    git(upstream, "tag", "b7")
    old, new = pin_at(upstream, 1), pin_at(upstream, 7)
    with open_history(tmp_path, str(upstream), old, new, NullReporter()) as history:
        found = named(history, series_of(tmp_path / "patches", title, why))
    assert [each.subject for each in found.merged] == commits
