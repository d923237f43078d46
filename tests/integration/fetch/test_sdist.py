from __future__ import annotations

import hashlib
import resource
from pathlib import Path

import pytest
from refusing import refused

from patchkit.base.reporter import NullReporter
from patchkit.carry.series.lock import SdistSource
from patchkit.carry.upstream import sdist
from patchkit.carry.upstream.sdist import fetch_sdist


def _source(upstream, **changes) -> SdistSource:
    fields = {
        "package": "pkg",
        "version": "1.0",
        "sha256": hashlib.sha256(upstream.archive).hexdigest(),
        "subdir": "third/llama.cpp",
        "omit": (),
    }
    return SdistSource(**(fields | changes))


def _fetch(source: SdistSource, index, folder: Path, reporter=None) -> Path:
    return fetch_sdist(source, downloads=folder, reporter=reporter or NullReporter(), index_url=index.url)


def _part(source: SdistSource, folder: Path) -> Path:
    return folder / f"{source.sha256}.part"


def test_a_file_is_found_by_name_and_kept_once_verified(upstream, index, tmp_path: Path) -> None:
    path = _fetch(_source(upstream), index, tmp_path / "d")
    assert path.read_bytes() == upstream.archive
    asked = len(index.asked)
    assert _fetch(_source(upstream), index, tmp_path / "d") == path
    assert len(index.asked) == asked
    path.write_bytes(b"rotten")
    assert _fetch(_source(upstream), index, tmp_path / "d").read_bytes() == upstream.archive


def test_a_cut_download_goes_on_by_itself(upstream, index, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(sdist, "_PIECE", 100)
    index.cuts = [300, 200]
    assert _fetch(_source(upstream), index, tmp_path).read_bytes() == upstream.archive
    assert [asked for path, asked in index.asked if "files" in path] == [None, "bytes=300-", "bytes=500-"]


def test_a_download_cut_for_good_goes_on_in_the_next_run(
    upstream, index, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(sdist, "_PIECE", 100)
    index.cuts = [100, 100, 100]
    with refused("SDIST_UNAVAILABLE"):
        _fetch(_source(upstream), index, tmp_path)
    assert _part(_source(upstream), tmp_path).stat().st_size == 300
    assert _fetch(_source(upstream), index, tmp_path).read_bytes() == upstream.archive
    assert index.asked[-1][1] == "bytes=300-"


def test_a_server_without_ranges_starts_again(upstream, index, tmp_path: Path) -> None:
    index.ranges = False
    index.cuts = [300]
    assert _fetch(_source(upstream), index, tmp_path).read_bytes() == upstream.archive


@pytest.mark.parametrize("size", [50, 10**6])
def test_a_part_that_is_something_else_is_dropped(upstream, index, tmp_path: Path, size: int) -> None:
    part = _part(_source(upstream), tmp_path)
    part.write_bytes(b"x" * size)
    assert _fetch(_source(upstream), index, tmp_path).read_bytes() == upstream.archive
    assert not part.exists()


def test_a_file_that_is_not_the_one_of_the_index_names_both_digests(upstream, index, tmp_path: Path) -> None:
    wanted = hashlib.sha256(upstream.archive).hexdigest()
    index.digest = wanted
    index.archive = b"something else"
    with refused("SDIST_DIGEST_MISMATCH") as caught:
        _fetch(_source(upstream), index, tmp_path)
    assert wanted in caught.value.message
    assert hashlib.sha256(b"something else").hexdigest() in caught.value.message
    assert list(tmp_path.glob("*.part")) == list(tmp_path.glob("*.tar.gz")) == []


def test_an_index_that_lists_another_digest_is_not_even_downloaded(upstream, index, tmp_path: Path) -> None:
    with refused("SDIST_DIGEST_MISMATCH"):
        _fetch(_source(upstream, sha256="1" * 64), index, tmp_path)
    assert all("files" not in path for path, _ in index.asked)


def test_a_withdrawn_file_is_still_taken(upstream, index, tmp_path: Path, recorder) -> None:
    index.yanked = True
    _fetch(_source(upstream), index, tmp_path, recorder)
    assert "yanked" in recorder.said("info")[0]


@pytest.mark.parametrize("changes", [{"package": "none"}, {"version": "2.0"}], ids=repr)
def test_what_the_index_does_not_have(upstream, index, tmp_path: Path, changes: dict[str, str]) -> None:
    with refused("SDIST_UNAVAILABLE"):
        _fetch(_source(upstream, **changes), index, tmp_path)


def test_a_wheel_of_that_version_is_no_sdist(upstream, index, tmp_path: Path) -> None:
    index.listed = "pkg-1.0-py3-none-any.whl"
    with refused("SDIST_UNAVAILABLE"):
        _fetch(_source(upstream), index, tmp_path)


@pytest.mark.parametrize(
    ("page", "code"),
    [
        ((200, "image/png", b"x"), "SDIST_UNAVAILABLE"),
        ((200, "application/vnd.pypi.simple.v1+json", b"{"), "SDIST_UNAVAILABLE"),
        ((500, "text/html", b""), "SDIST_UNAVAILABLE"),
    ],
    ids=["picture", "half-json", "broken"],
)
def test_an_index_that_is_none(upstream, index, tmp_path: Path, page, code: str) -> None:
    index.page = page
    with refused(code):
        _fetch(_source(upstream), index, tmp_path)


def test_nobody_answers(upstream, tmp_path: Path) -> None:
    with refused("SDIST_UNAVAILABLE") as caught:
        fetch_sdist(
            _source(upstream),
            downloads=tmp_path,
            reporter=NullReporter(),
            index_url="http://127.0.0.1:1/simple/",
        )
    assert caught.value.hint is not None


def test_a_file_without_end_is_stopped(upstream, index, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(sdist, "_LARGEST", 400)
    with refused("SDIST_UNAVAILABLE"):
        _fetch(_source(upstream), index, tmp_path)


def test_a_full_disk_is_named_and_the_part_is_kept(upstream, index, tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, before[1]))
    try:
        with refused("DISK_FULL"):
            _fetch(_source(upstream), index, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert _fetch(_source(upstream), index, tmp_path).read_bytes() == upstream.archive


def test_a_file_in_the_place_of_the_download_folder(upstream, index, tmp_path: Path) -> None:
    (tmp_path / "d").write_text("mine")
    with refused("DISK_REFUSED"):
        _fetch(_source(upstream), index, tmp_path / "d")
