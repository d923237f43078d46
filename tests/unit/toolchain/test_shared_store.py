"""The shared store: valid entries are fetched, others are created locally."""

from __future__ import annotations

import functools
import http.server
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from refusing import refused

from patchkit.base.digests import key_of
from patchkit.base.reporter import NullReporter
from patchkit.base.store import Store, shared_key
from patchkit.toolchain.shared import SharedStore, _Record, pack_entry, shared_store

KEY, OTHER = key_of({"what": "one"}), key_of({"what": "other"})
TEXT = b"what a compiler made\n" * 50


class Listener(NullReporter):
    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, text: str) -> None:
        self.warnings.append(text)


class World:
    """A shared store with two entries, and a local store that fetches from it."""

    def __init__(self, folder: Path) -> None:
        self.place, self.filled, self.reporter = folder / "place", 0, Listener()
        theirs = Store(root=folder / "theirs" / "objects")
        for key, text in ((KEY, TEXT), (OTHER, b"another\n")):
            made = theirs.obtain(key, functools.partial(self._fill, text))
            pack_entry(shared_key("objects", key), made, iter(sorted(made.rglob("*"))), self.place)
        self.filled = 0
        self.root = folder / "ours" / "objects"

    def _fill(self, text: bytes, folder: Path) -> None:
        self.filled += 1
        (folder / "output").write_bytes(text)
        (folder / "program").write_bytes(b"#!/bin/sh\n")
        (folder / "program").chmod(0o755)
        (folder / "alias").symlink_to("output")

    def obtain(self, place: str | None = None) -> Path:
        shared = SharedStore(place=place or str(self.place), reporter=self.reporter)
        return Store(root=self.root, shared=shared).obtain(KEY, functools.partial(self._fill, TEXT))

    def file(self, kind: str, key: str = KEY) -> Path:
        record = self.place / "ac" / shared_key("objects", key)
        if kind == "ac":
            return record
        (blob,) = (one["blob"] for one in json.loads(record.read_text())["files"] if one["name"] == "output")
        return self.place / "cas" / str(blob)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@contextmanager
def served(folder: Path, status: int = 200) -> Iterator[str]:
    """An HTTP file server that can reject all requests."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: object) -> None:
            super().__init__(*args, directory=str(folder))  # type: ignore[arg-type]

        def do_GET(self) -> None:
            if status == 200:
                super().do_GET()
            else:
                self.send_error(status)

        def log_message(self, *_args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


def is_whole(folder: Path) -> bool:
    program = folder / "program"
    return (
        (folder / "output").read_bytes() == (folder / "alias").read_bytes() == TEXT
        and (folder / "alias").is_symlink()
        and program.stat().st_mode & 0o111 != 0
        and {path.name for path in folder.iterdir()} == {"output", "program", "alias"}
    )


def test_an_entry_is_fetched_from_a_folder_and_from_a_server(world: World, tmp_path: Path) -> None:
    assert is_whole(world.obtain())
    world.root = tmp_path / "again" / "objects"
    with served(world.place) as url:
        assert is_whole(world.obtain(url))
    assert (world.filled, world.reporter.warnings) == (0, [])


def test_find_or_fetch_creates_nothing(world: World) -> None:
    store = Store(root=world.root, shared=SharedStore(place=str(world.place), reporter=world.reporter))
    found = store.find_or_fetch(KEY)
    assert found is not None
    assert is_whole(found)
    assert store.find_or_fetch(key_of({"what": "missing"})) is None
    assert len(list(world.root.glob("*/*"))) == 1


def test_a_missing_entry_is_created_without_a_warning(world: World) -> None:
    world.file("ac").unlink()
    assert is_whole(world.obtain())
    with served(world.place) as url:
        world.root = world.root.with_name("more")
        assert is_whole(world.obtain(url))
    assert (world.filled, world.reporter.warnings) == (2, [])


@pytest.mark.parametrize("kind", ["ac", "cas"])
def test_an_entry_with_a_flipped_byte_is_ignored(world: World, kind: str, tmp_path: Path) -> None:
    path = world.file(kind)
    good = path.read_bytes()
    for at in range(0, len(good), max(1, len(good) // 40)):
        path.write_bytes(good[:at] + bytes([good[at] ^ 0x20]) + good[at + 1 :])
        world.root = tmp_path / f"flipped-{at}" / "objects"
        before = world.filled
        assert is_whole(world.obtain())
        assert world.filled == before + 1, at
    assert all("is ignored and will be created locally" in text for text in world.reporter.warnings)


def cut(path: Path, by: int) -> None:
    path.write_bytes(path.read_bytes()[:-by])


def forge(world: World, where: str, name: str, value: str) -> None:
    """A forged record: other content with a matching digest."""
    text = json.loads(world.file("ac").read_text())
    (text["links"] if where == "links" else text["files"][0])[name] = value
    forged = _Record.model_validate(text)
    world.file("ac").write_text(forged.model_copy(update={"digest": forged.own_digest()}).model_dump_json())


def to_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, Callable[[World], object]] = {
    "swapped records": lambda w: w.file("ac").write_bytes(w.file("ac", OTHER).read_bytes()),
    "swapped blobs": lambda w: w.file("cas").write_bytes(w.file("cas", OTHER).read_bytes()),
    "short record": lambda w: cut(w.file("ac"), 20),
    "short blob": lambda w: cut(w.file("cas"), 4),
    "no blob": lambda w: w.file("cas").unlink(),
    "empty blob": lambda w: w.file("cas").write_bytes(b""),
    "a name that leads out": lambda w: forge(w, "files", "name", "../../out"),
    "a link that leads out": lambda w: forge(w, "links", "alias", "../../../etc/passwd"),
    "a folder": lambda w: to_folder(w.file("ac")),
}


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_entry_is_created_locally_and_leaves_nothing(
    world: World, how: str, tmp_path: Path
) -> None:
    DAMAGES[how](world)
    assert is_whole(world.obtain())
    assert world.filled == 1
    (warning,) = world.reporter.warnings
    assert "is ignored and will be created locally" in warning
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ours", "place", "theirs"]


def test_an_unreachable_server_is_contacted_once(world: World, tmp_path: Path) -> None:
    with served(world.place) as url:
        pass
    shared = SharedStore(place=url, reporter=world.reporter)
    for name in ("a", "b"):
        assert not shared.fetch(KEY, tmp_path / name)
    with served(world.place, status=503) as url:
        assert is_whole(world.obtain(url))
    assert ["continuing without it" in text for text in world.reporter.warnings] == [
        True,
        True,
    ]


@pytest.mark.parametrize("place", ["nowhere", "ftp://x/y", "http://", "file:///tmp"])
def test_an_invalid_store_is_rejected(place: str) -> None:
    with refused("STORE_PLACE_BAD"):
        shared_store({"PATCHKIT_STORE": place}, NullReporter())


def test_without_the_variable_there_is_no_shared_store() -> None:
    assert shared_store({}, NullReporter()) is None
    assert shared_store({"PATCHKIT_STORE": " "}, NullReporter()) is None
