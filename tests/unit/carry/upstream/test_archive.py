from __future__ import annotations

import gzip
import io
import os
import re
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from refusing import refused

from patchkit.base.errors import SourceError
from patchkit.carry.upstream import sdist as module
from patchkit.carry.upstream.sdist import Limits, Member, read_archive

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
    monkeypatch.chdir(tmp_path)
    _read(path)
    assert list(tmp_path.iterdir()) == [path]


def test_progress_ends_at_the_size_of_the_file(make) -> None:
    path = make(*(_entry(f"{TREE}{number}", os.urandom(50_000)) for number in range(9)))
    seen: list[tuple[int, int]] = []
    _read(path, on_bytes=lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert {total for _, total in seen} == {path.stat().st_size}


def _link(path: str, to: str):
    return _entry(f"{TREE}{path}", kind=tarfile.SYMTYPE, to=to)


def _pair(first: str, second: str):
    return [_entry(f"{TREE}{first}"), _entry(f"{TREE}{second}")]


_REFUSED = {
    "an absolute path": [[_entry("/etc/passwd")], [_entry("/outside")]],
    "a path with '..'": [
        [_entry(f"{TREE}../../../../etc/passwd")],
        [_entry("../x")],
        [_entry("pkg-1.0/../outside")],
    ],
    "over 1024 bytes": [[_entry(f"{TREE}{'d/' * 600}x")]],
    "git's own folder": [[_entry(f"{TREE}.git/hooks/post-checkout")], [_entry(f"{TREE}sub/.GIT")]],
    "not in the top folder": [[_entry("other-1.0/x")]],
    "link to": [
        *([_link("link", to)] for to in ("/etc/passwd", "../x", "a/../../x", "../../third/x")),
        *([_link("link", to)] for to in ("a/../b", "..", "../..")),
        # Each target is inside by its text; followed one after the other they climb out.
        [_link("a/b/up", ".."), _link("a/b/out", "up/../..")],
        *(
            [
                _entry("pkg-1.0/setup.py"),
                _link("link", "good"),
                _entry(f"{TREE}hard", kind=tarfile.LNKTYPE, to=to),
                _entry(f"{TREE}later"),
            ]
            for to in ("/etc/passwd", "pkg-1.0/setup.py", f"{TREE}later", "../x", f"{TREE}link")
        ),
    ],
    "a device, a pipe": [
        [_entry(f"{TREE}dev", kind=kind)] for kind in (tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE)
    ],
    "it conflicts with": [
        _pair("a", "a"),
        _pair("a", "A"),
        _pair("Dir/x", "dir/y"),
        _pair("a", "a/b"),
        _pair("a/b", "a"),
        _pair("caf\u00e9", "cafe\u0301"),
        _pair("stra\u00dfe", "STRASSE"),
        _pair("x", "./x"),
        [_link("a", "b"), _entry(f"{TREE}a/x")],
    ],
}


@pytest.mark.parametrize(
    ("why", "entries"), [(why, entries) for why, cases in _REFUSED.items() for entries in cases]
)
def test_entries_that_are_refused(make, why: str, entries: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    with refused("ARCHIVE_REFUSED", match=re.escape(why)) as caught:
        _read(make(GOOD, *entries))
    assert caught.value.where[0].path.endswith("made.tar.gz")
    assert any(info.name[:20] in caught.value.message for info, _ in entries)


def test_links_that_climb_inside_the_tree_are_taken(make) -> None:
    assert _read(make(GOOD, _link("a/b/link", "../../good")))[1].data == b"../../good"


def test_a_bomb_by_ratio(make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FREE_BYTES", 100_000)
    path = make(_entry(f"{TREE}zeros", bytes(2_000_000)))
    with refused("ARCHIVE_REFUSED", match="unpacks to more than"):
        _read(path)
    assert len(_read(path, limits=Limits(ratio=10_000))) == 1


@pytest.mark.parametrize(
    ("why", "entries", "limits"),
    [
        (
            "unpacks to more than",
            [(f"{TREE}{number}", 40_000) for number in range(5)],
            Limits(total_bytes=150_000),
        ),
        ("unpacks to more than", [("pkg-1.0/big", 200_000), (f"{TREE}good", 1)], Limits(total_bytes=150_000)),
        ("5000 bytes", [(f"{TREE}big", 5000)], Limits(file_bytes=4999)),
        ("more than 4 entries", [(f"{TREE}{number}", 1) for number in range(5)], Limits(members=4)),
    ],
)
def test_too_much_is_refused(make, why: str, entries: list[tuple[str, int]], limits: Limits) -> None:
    path = make(*(_entry(name, os.urandom(size)) for name, size in entries))
    with refused("ARCHIVE_REFUSED", match=why):
        _read(path, limits=limits)


def test_a_bomb_in_a_header(make) -> None:
    info, data = _entry(f"{TREE}x")
    info.pax_headers = {"comment": "c" * 3_000_000}
    with refused("ARCHIVE_REFUSED", match="unpacks to more than"):
        _read(make((info, data)))


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
    with refused("ARCHIVE_REFUSED", match="damaged or truncated"):
        _read(path)


def test_a_tar_cut_short_or_damaged_inside_a_whole_gzip(make) -> None:
    path = make(*(_entry(f"{TREE}{number}", os.urandom(512)) for number in range(5)))
    tar = gzip.decompress(path.read_bytes())
    middle = 2 * 1024 + 10
    damaged = tar[:middle] + bytes([tar[middle] ^ 0xFF]) + tar[middle + 1 :]
    for data in (tar[: 2 * 1024], tar[: 2 * 1024 + 700], damaged):
        path.write_bytes(gzip.compress(data))
        with refused("ARCHIVE_REFUSED", match="damaged or truncated"):
            _read(path)


@pytest.mark.parametrize("data", [b"not gzip at all", gzip.compress(b"not a tar file" * 100)], ids=len)
def test_something_else_than_a_tar_gz(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.tar.gz").write_bytes(data)
    with refused("ARCHIVE_REFUSED", match="damaged or truncated"):
        _read(tmp_path / "x.tar.gz")


def test_an_archive_without_the_folder(make) -> None:
    with refused("ARCHIVE_REFUSED", match="has no files in"):
        _read(make(_entry("pkg-1.0/setup.py")))
