from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from recorder import Recorder

from patchkit.carry.upstream.cache import create_repository
from patchkit.carry.upstream.commits import CommitStream, Written
from patchkit.carry.upstream.repository import Repository

DATE = "2025-10-31T10:54:19+02:00"


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def repo(tmp_path: Path, recorder: Recorder) -> Repository:
    return create_repository(tmp_path / "cache" / "upstream.git", recorder)


@pytest.fixture
def make_root(repo: Repository) -> Callable[..., Written]:
    """Make a root commit of {path: bytes or (mode, bytes)}."""

    def make(files: dict[str, bytes | tuple[str, bytes]]) -> Written:
        with CommitStream(repo) as stream:
            stream.begin(message="base", date=DATE, parent=None)
            for path, content in files.items():
                mode, data = content if isinstance(content, tuple) else ("100644", content)
                stream.put_file(path, mode, data)
            return stream.finish()[0]

    return make


@pytest.fixture
def base(make_root: Callable[..., Written]) -> Written:
    return make_root(
        {
            "README.md": b"# upstream\n",
            "run.sh": ("100755", b"#!/bin/sh\n"),
            "link": ("120000", b"README.md"),
            "src/a.cu": b"int a;\nint b;\n",
            "src/crlf.cu": b"one\r\ntwo\r\n",
            "src/odd \"n\\ame'.cu": b"\xff\xfe no newline",
        }
    )


@pytest.fixture
def plain_git() -> Callable[..., str]:
    """git as a user would run it, in a folder of theirs."""
    program = shutil.which("git")
    assert program

    def run(cwd: Path, *args: str) -> str:
        return subprocess.run(
            [program, "-c", "user.name=u", "-c", "user.email=u@x", *args],
            cwd=cwd,
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    return run
