"""Upstream's history between two pins, from git remotes that leave file contents out and from others."""

from __future__ import annotations

from dataclasses import replace

import pytest
from demo_world import git, make_upstream, pin_at
from refusing import refused

from patchkit.base.reporter import NullReporter
from patchkit.carry.upstream.history import open_history

BUILDS = {
    1: {"a.cu": "1", "b.cu": "1"},
    2: {"a.cu": "2"},
    3: {"b.cu": "2"},
    4: {"a.cu": "3"},
    5: {"a.cu": None},
}


@pytest.fixture(scope="module")
def upstream(tmp_path_factory):
    """Five builds; the second and the fourth change a.cu, the third b.cu, the fifth removes a.cu."""
    folder = tmp_path_factory.mktemp("history") / "upstream"
    make_upstream(folder, BUILDS)
    return folder


@pytest.mark.parametrize("leaves_contents_out", ["true", "false"])
def test_changes_come_newest_first_with_their_contents(upstream, tmp_path, leaves_contents_out):
    git(upstream, "config", "uploadpack.allowFilter", leaves_contents_out)
    args = (tmp_path, f"file://{upstream}", pin_at(upstream, 1), pin_at(upstream, 5), NullReporter())
    with open_history(*args) as history:
        found = history.changes(["a.cu"])
        assert [change.subject for change in found] == ["change 5", "change 4", "change 2"]
        assert found[0].commit == git(upstream, "rev-parse", "b5")
        assert found[0].blobs["a.cu"][1] is None
        blobs = [blob for change in found for blob in change.blobs["a.cu"] if blob]
        data = history.read(blobs)
        assert [data[blob] for blob in found[2].blobs["a.cu"]] == [b"1", b"2"]
        assert [change.subject for change in history.changes(["b.cu"])] == ["change 3"]
        assert history.read([]) == {}
    assert list(tmp_path.iterdir()) == []


def test_the_span_begins_behind_the_older_pin_at(upstream, tmp_path):
    args = (tmp_path, str(upstream), pin_at(upstream, 2), pin_at(upstream, 4), NullReporter())
    with open_history(*args) as history:
        assert [change.subject for change in history.changes(["a.cu", "b.cu"])] == ["change 4", "change 3"]


@pytest.mark.parametrize(("first", "last"), [(4, 2), (3, 3)])
def test_there_is_nothing_between_pins_the_wrong_way_round(upstream, tmp_path, first, last):
    args = (tmp_path, str(upstream), pin_at(upstream, first), pin_at(upstream, last), NullReporter())
    with refused("HISTORY_UNAVAILABLE"), open_history(*args):
        pass


def test_a_remote_that_does_not_lead_there_is_no_history(upstream, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q", "-b", "master")
    git(other, "commit", "-q", "--allow-empty", "-m", "another root")
    new = pin_at(upstream, 5)
    for url in (str(other), str(tmp_path / "nowhere")):
        with (
            refused("HISTORY_UNAVAILABLE") as caught,
            open_history(tmp_path, url, pin_at(upstream, 1), new, NullReporter()),
        ):
            pass
        assert "could not fetch the history" in caught.value.message
    assert [path.name for path in tmp_path.iterdir()] == ["other"]
    stranger = replace(pin_at(upstream, 1), commit=git(other, "rev-parse", "HEAD"))
    with (
        refused("HISTORY_UNAVAILABLE") as caught,
        open_history(tmp_path, str(upstream), stranger, new, NullReporter()),
    ):
        pass
    assert "does not connect b1 and b5" in caught.value.message
