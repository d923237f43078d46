"""A candidate that is proven to be there is not placed again; whatever is not proven is."""

from __future__ import annotations

import json

import pytest

REF = "refs/heads/candidate/gfx1151/b1"
RECORD = "refs/patchkit/made/gfx1151/b1"


@pytest.fixture
def locked(world):
    """A world whose lock records the candidate that is there."""
    assert world.run("lock", "--arch", "gfx1151").returncode == 0
    assert world.run("apply", "--arch", "gfx1151").returncode == 0
    return world


def apply_again(world, *args):
    """The report of another apply, and whether it placed the patches and wrote commits."""
    done = world.run("apply", "--arch", "gfx1151", "-v", "--json", *args)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), "fast-import" in done.stderr


def test_the_same_again_places_nothing_and_tells_the_same(locked, tmp_path):
    first = json.loads(locked.run("apply", "--arch", "gfx1151", "--json", cache=tmp_path / "other").stdout)
    refs = locked.refs()
    report, placed = apply_again(locked)
    assert not placed
    assert (first.pop("unchanged"), report.pop("unchanged")) == (False, True)
    assert (first["handover"].pop("path"), first["handover"].pop("commands")) != (
        report["handover"].pop("path"),
        report["handover"].pop("commands"),
    )
    assert report == first
    assert locked.refs() == refs


def test_the_files_are_checked_out_without_placing(locked, tmp_path):
    _, placed = apply_again(locked, "--checkout", str(tmp_path / "files"))
    assert not placed
    assert locked.git("rev-parse", "HEAD", at=tmp_path / "files") == locked.refs()[REF]


def _change_record(world, **fields):
    record = json.loads(world.git("cat-file", "blob", RECORD)) | fields
    path = world.series.parent / "record.json"
    path.write_text(json.dumps(record))
    world.git("update-ref", RECORD, world.git("hash-object", "-w", str(path)))


def _drop_record(world):
    world.git("update-ref", "-d", RECORD)


def _other_program(world):
    _change_record(world, program="0" * 64)


def _other_request(world):
    _change_record(world, without=["demo-other"])


def _move_branch(world):
    world.git("update-ref", REF, f"{REF}~1")


def _lose_a_file(world):
    blob = world.git("rev-parse", f"{REF}:ggml/src/ggml-cuda/demo.cu")
    (_path_of(world, blob)).unlink()


def _damage_a_file(world):
    """Another file's bytes, well-formed, under this one's name."""
    blob = world.git("rev-parse", f"{REF}:ggml/src/ggml-cuda/demo.cu")
    other = world.git("rev-parse", f"{REF}~1:ggml/src/ggml-cuda/demo.cu")
    path = _path_of(world, blob)
    path.chmod(0o644)
    path.write_bytes(_path_of(world, other).read_bytes())


def _path_of(world, blob):
    return world.cache / "upstream.git" / "objects" / blob[:2] / blob[2:]


@pytest.mark.parametrize(
    "spoil", [_drop_record, _other_program, _other_request, _move_branch], ids=lambda each: each.__name__[1:]
)
def test_what_is_not_as_it_was_made_is_placed_and_mended(locked, spoil):
    before, refs = locked.git("cat-file", "blob", RECORD), locked.refs()
    spoil(locked)
    _, placed = apply_again(locked)
    assert placed
    assert locked.git("cat-file", "blob", RECORD) == before
    assert locked.refs() == refs
    assert not apply_again(locked)[1]


@pytest.mark.parametrize("spoil", [_lose_a_file, _damage_a_file], ids=lambda each: each.__name__[1:])
def test_a_candidate_with_a_damaged_object_is_not_believed(locked, spoil):
    spoil(locked)
    _, placed = apply_again(locked)
    assert placed


def test_a_result_that_the_lock_does_not_record_is_placed_each_time(world):
    assert world.run("apply", "--arch", "gfx1151").returncode == 0
    refs = world.refs()
    report, placed = apply_again(world)
    assert (report["lock_state"], report["unchanged"], placed) == ("not recorded in the lock", True, True)
    assert world.refs() == refs
