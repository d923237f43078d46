from __future__ import annotations

import gzip
import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from refusing import refused

from patchkit.base.errors import SourceError
from patchkit.upstream import sdist as module
from patchkit.upstream.sdist import Limits, Member, read_archive

TREE = "pkg-1.0/third/llama.cpp/"


def _entry(name: str, data: bytes = b"x", mode: int = 0o644, kind: bytes = tarfile.REGTYPE, to: str = ""):
    info = tarfile.TarInfo(name)
    info.mode, info.type, info.linkname = mode, kind, to
    info.size = len(data) if kind == tarfile.REGTYPE else 0
    return info, data


GOOD = _entry(f"{TREE}good")


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Path]:
    def make(*entries: tuple[tarfile.TarInfo, bytes]) -> Path:
        path = tmp_path / "made.tar.gz"
        with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as out:
            for info, data in entries:
                out.addfile(info, io.BytesIO(data) if info.isreg() else None)
        return path

    return make


def _read(path: Path, **options) -> list[Member]:
    return list(read_archive(path, subdir="third/llama.cpp", **options))


def test_the_files_of_the_folder_come_with_mode_and_bytes(make) -> None:
    path = make(
        _entry("pkg-1.0", kind=tarfile.DIRTYPE),
        _entry("pkg-1.0/setup.py", b"evil()"),
        _entry(f"{TREE}.git", b"gitdir: elsewhere\n"),
        _entry(f"{TREE}a/run.sh", b"#!/bin/sh\r\n", mode=0o6777),
        _entry(f"{TREE}a/caf\u00e9", b"", mode=0o600),
        _entry(f"{TREE}link", kind=tarfile.SYMTYPE, to="a/run.sh"),
        _entry(f"{TREE}same", kind=tarfile.LNKTYPE, to=f"{TREE}a/run.sh"),
        _entry("pkg-1.0/third/llama.cpp-other/x"),
    )
    assert _read(path, omit=(".git",)) == [
        Member(path="a/run.sh", mode="100755", data=b"#!/bin/sh\r\n"),
        Member(path="a/caf\u00e9", mode="100644", data=b""),
        Member(path="link", mode="120000", data=b"a/run.sh"),
        Member(path="same", mode="100755", data=b"", same_as="a/run.sh"),
    ]


def test_nothing_is_written_anywhere(make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make(GOOD)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    _read(path)
    assert list((tmp_path / "empty").iterdir()) == []
    assert list(tmp_path.iterdir()) in ([path, tmp_path / "empty"], [tmp_path / "empty", path])


def test_progress_ends_at_the_size_of_the_file(make) -> None:
    path = make(*(_entry(f"{TREE}{number}", os.urandom(50_000)) for number in range(9)))
    seen: list[tuple[int, int]] = []
    _read(path, on_bytes=lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert {total for _, total in seen} == {path.stat().st_size}


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("/etc/passwd", "ARCHIVE_ABSOLUTE_PATH"),
        (f"{TREE}../../../../etc/passwd", "ARCHIVE_PARENT_PATH"),
        ("../x", "ARCHIVE_PARENT_PATH"),
        (f"{TREE}{'d/' * 600}x", "ARCHIVE_PATH_TOO_LONG"),
        (f"{TREE}.git/hooks/post-checkout", "ARCHIVE_GIT_FOLDER"),
        (f"{TREE}sub/.GIT", "ARCHIVE_GIT_FOLDER"),
        ("other-1.0/x", "ARCHIVE_DAMAGED"),
    ],
    ids=lambda value: value[:30],
)
def test_names_that_are_refused(make, name: str, code: str) -> None:
    with refused(code) as caught:
        _read(make(GOOD, _entry(name)))
    assert caught.value.where[0].path.endswith("made.tar.gz")
    assert name[:20] in caught.value.message


@pytest.mark.parametrize("name", ["/outside", "pkg-1.0/../outside"])
def test_names_outside_the_folder_are_checked_too(make, name: str) -> None:
    with pytest.raises(SourceError):
        _read(make(GOOD, _entry(name)))


@pytest.mark.parametrize(
    "to", ["/etc/passwd", "../x", "a/../../x", "../../third/x", "a/../b", "..", "../.."], ids=repr
)
def test_links_out_of_the_tree_are_refused(make, to: str) -> None:
    with refused("ARCHIVE_LINK_OUTSIDE"):
        _read(make(GOOD, _entry(f"{TREE}link", kind=tarfile.SYMTYPE, to=to)))


def test_links_that_climb_inside_the_tree_are_taken(make) -> None:
    path = make(GOOD, _entry(f"{TREE}a/b/link", kind=tarfile.SYMTYPE, to="../../good"))
    assert _read(path)[1].data == b"../../good"


def test_a_chain_of_links_that_leaves_the_tree_is_refused(make) -> None:
    # Each target is inside by its text; followed one after the other they climb out.
    with refused("ARCHIVE_LINK_OUTSIDE"):
        _read(
            make(
                _entry(f"{TREE}a/b/up", kind=tarfile.SYMTYPE, to=".."),
                _entry(f"{TREE}a/b/out", kind=tarfile.SYMTYPE, to="up/../.."),
            )
        )


@pytest.mark.parametrize("to", ["/etc/passwd", "pkg-1.0/setup.py", f"{TREE}later", "../x", f"{TREE}link"])
def test_hard_links_to_anything_but_an_earlier_file_are_refused(make, to: str) -> None:
    with refused("ARCHIVE_LINK_OUTSIDE"):
        _read(
            make(
                _entry("pkg-1.0/setup.py"),
                _entry(f"{TREE}link", kind=tarfile.SYMTYPE, to="good"),
                _entry(f"{TREE}hard", kind=tarfile.LNKTYPE, to=to),
                _entry(f"{TREE}later"),
            )
        )


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_special_files_are_refused(make, kind: bytes) -> None:
    with refused("ARCHIVE_SPECIAL_FILE"):
        _read(make(GOOD, _entry(f"{TREE}dev", kind=kind)))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("a", "a"),
        ("a", "A"),
        ("Dir/x", "dir/y"),
        ("a", "a/b"),
        ("a/b", "a"),
        ("caf\u00e9", "cafe\u0301"),
        ("stra\u00dfe", "STRASSE"),
        ("x", "./x"),
    ],
)
def test_entries_that_take_one_place_are_refused(make, first: str, second: str) -> None:
    with refused("ARCHIVE_DUPLICATE"):
        _read(make(_entry(f"{TREE}{first}"), _entry(f"{TREE}{second}")))


def test_a_link_cannot_become_a_folder(make) -> None:
    with refused("ARCHIVE_DUPLICATE"):
        _read(make(_entry(f"{TREE}a", kind=tarfile.SYMTYPE, to="b"), _entry(f"{TREE}a/x")))


def test_a_bomb_by_ratio(make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FREE_BYTES", 100_000)
    path = make(_entry(f"{TREE}zeros", bytes(2_000_000)))
    with refused("ARCHIVE_BOMB"):
        _read(path)
    assert len(_read(path, limits=Limits(ratio=10_000))) == 1


def test_a_bomb_by_size(make) -> None:
    files = [_entry(f"{TREE}{number}", os.urandom(40_000)) for number in range(5)]
    with refused("ARCHIVE_BOMB"):
        _read(make(*files), limits=Limits(total_bytes=150_000))


def test_a_bomb_outside_the_folder(make) -> None:
    with refused("ARCHIVE_BOMB"):
        _read(make(_entry("pkg-1.0/big", os.urandom(200_000)), GOOD), limits=Limits(total_bytes=150_000))


def test_a_bomb_in_a_header(make) -> None:
    info, data = _entry(f"{TREE}x")
    info.pax_headers = {"comment": "c" * 3_000_000}
    with refused("ARCHIVE_BOMB"):
        _read(make((info, data)))


def test_one_file_too_large(make) -> None:
    with refused("ARCHIVE_FILE_TOO_LARGE"):
        _read(make(_entry(f"{TREE}big", bytes(5000))), limits=Limits(file_bytes=4999))


def test_too_many_members(make) -> None:
    with refused("ARCHIVE_TOO_MANY_MEMBERS"):
        _read(make(*(_entry(f"{TREE}{number}") for number in range(5))), limits=Limits(members=4))


def test_a_sparse_file_cannot_claim_more_than_a_file_may_have(make, tmp_path: Path) -> None:
    info, data = _entry(f"{TREE}sparse", b"x" * 512)
    info.pax_headers = {"GNU.sparse.map": "0,512", "GNU.sparse.size": str(10**12), "GNU.sparse.name": "s"}
    with pytest.raises(SourceError):
        _read(make(GOOD, (info, data)))


@pytest.mark.parametrize("keep", [0, 5, 300, -9, -1])
def test_a_file_cut_short(make, keep: int) -> None:
    path = make(*(_entry(f"{TREE}{number}", os.urandom(5000)) for number in range(5)))
    data = path.read_bytes()
    path.write_bytes(data[:keep])
    with refused("ARCHIVE_DAMAGED"):
        _read(path)


def test_a_tar_cut_short_inside_a_whole_gzip(make) -> None:
    path = make(*(_entry(f"{TREE}{number}", os.urandom(512)) for number in range(5)))
    tar = gzip.decompress(path.read_bytes())
    for keep in (2 * 1024, 2 * 1024 + 700):
        path.write_bytes(gzip.compress(tar[:keep]))
        with refused("ARCHIVE_DAMAGED"):
            _read(path)


def test_a_damaged_entry_in_the_middle_is_no_end(make) -> None:
    path = make(*(_entry(f"{TREE}{number}", os.urandom(512)) for number in range(5)))
    tar = bytearray(gzip.decompress(path.read_bytes()))
    tar[2 * 1024 + 10] ^= 0xFF
    path.write_bytes(gzip.compress(bytes(tar)))
    with refused("ARCHIVE_DAMAGED"):
        _read(path)


@pytest.mark.parametrize("data", [b"not gzip at all", gzip.compress(b"not a tar file" * 100)], ids=len)
def test_something_else_than_a_tar_gz(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.tar.gz").write_bytes(data)
    with refused("ARCHIVE_DAMAGED"):
        _read(tmp_path / "x.tar.gz")


def test_an_archive_without_the_folder(make) -> None:
    with refused("ARCHIVE_NO_TREE"):
        _read(make(_entry("pkg-1.0/setup.py")))
