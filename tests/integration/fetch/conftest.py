from __future__ import annotations

import hashlib
import io
import subprocess
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from recorder import Recorder

from patchkit.carry.series.lock import GitSource, Pin, SdistSource

FILES = {
    "ggml/src/a.cu": (0o644, b"int a;\r\n"),
    "ggml/src/b.bin": (0o644, bytes(range(256)) * 2000),
    "run.sh": (0o755, b"#!/bin/sh\n"),
    ".gitattributes": (0o644, b"*.cu text eol=lf\n"),
    ".gitignore": (0o644, b"*.bin\n"),
}


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@dataclass
class Upstream:
    """A little upstream: a clone as a user has it, and the same tree as an sdist."""

    clone: Path
    commit: str
    tree: str
    raw: bytes
    archive: bytes
    git: Callable[..., bytes]

    def pin(self, *, url: str | None = None, with_object: bool = True, sha256: str | None = None) -> Pin:
        sdist = SdistSource(
            package="pkg",
            version="1.0",
            sha256=sha256 or hashlib.sha256(self.archive).hexdigest(),
            subdir="third/llama.cpp",
            omit=(".git",),
        )
        return Pin(
            name="b77",
            build=77,
            commit=self.commit,
            tree=self.tree,
            committed="2025-10-31T10:54:19+02:00",
            commit_object=self.raw if with_object else None,
            sources=(GitSource(url=url or str(self.clone)), sdist),
        )


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    clone = tmp_path / "clone"
    clone.mkdir()

    def git(*args: str) -> bytes:
        argv = ["git", "-c", "user.name=U", "-c", "user.email=u@x", "-c", "core.attributesFile=/dev/null"]
        return subprocess.run([*argv, *args], cwd=clone, check=True, capture_output=True).stdout

    git("init", "-q")
    (clone / ".git" / "info").mkdir(exist_ok=True)
    (clone / ".git" / "info" / "attributes").write_text("* -text\n")
    for number in (1, 2):
        (clone / "history").write_text(str(number))
        git("add", "history")
        git("commit", "-q", "-m", f"before {number}")
    git("rm", "-q", "history")
    for path, (mode, data) in FILES.items():
        (clone / path).parent.mkdir(parents=True, exist_ok=True)
        (clone / path).write_bytes(data)
        (clone / path).chmod(mode)
    git("add", "-f", ".")
    git("commit", "-q", "-m", "the pinned one")
    commit = git("rev-parse", "HEAD").decode().strip()
    return Upstream(
        clone=clone,
        commit=commit,
        tree=git("rev-parse", "HEAD^{tree}").decode().strip(),
        raw=git("cat-file", "commit", "HEAD"),
        archive=make_archive(FILES),
        git=git,
    )


def make_archive(files: dict[str, tuple[int, bytes]]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for path, (mode, data) in {**files, ".git": (0o644, b"gitdir: x\n")}.items():
            info = tarfile.TarInfo(f"pkg-1.0/third/llama.cpp/{path}")
            info.mode, info.size = mode, len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


@dataclass
class Index:
    """A package index with one file. ``cuts``: how many bytes each answer gives before it is cut."""

    archive: bytes
    url: str = ""
    listed: str = "pkg-1.0.tar.gz"
    digest: str | None = None
    cuts: list[int] = field(default_factory=list)
    ranges: bool = True
    yanked: bool = False
    page: tuple[int, str, bytes] | None = None
    asked: list[tuple[str, str | None]] = field(default_factory=list)

    def listing(self) -> bytes:
        sha256 = self.digest or hashlib.sha256(self.archive).hexdigest()
        yanked = ' data-yanked="a reason"' if self.yanked else ""
        return f'<a href="/files/{self.listed}#sha256={sha256}"{yanked}>{self.listed}</a>'.encode()


@contextmanager
def serving(index: Index) -> Iterator[Index]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            asked = self.headers.get("Range")
            index.asked.append((self.path, asked))
            if self.path.startswith("/simple/"):
                self._list()
            else:
                self._file(asked)

        def _list(self) -> None:
            known = self.path == "/simple/pkg/"
            status, kind, body = index.page or (200 if known else 404, "text/html", index.listing())
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _file(self, asked: str | None) -> None:
            begin = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and index.ranges else 0
            if begin >= len(index.archive):
                self.send_error(416)
                return
            body = index.archive[begin:]
            self.send_response(206 if begin else 200)
            if begin:
                self.send_header(
                    "Content-Range", f"bytes {begin}-{len(index.archive) - 1}/{len(index.archive)}"
                )
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: index.cuts.pop(0)] if index.cuts else body)
            self.close_connection = True

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    index.url = f"http://127.0.0.1:{server.server_address[1]}/simple/"
    try:
        yield index
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def index(upstream: Upstream) -> Iterator[Index]:
    with serving(Index(archive=upstream.archive)) as made:
        yield made
