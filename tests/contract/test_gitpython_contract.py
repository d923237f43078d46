"""Why GitPython only starts git: what it reads itself depends on the caller, and is not checked."""

from __future__ import annotations

import subprocess
import zlib
from pathlib import Path

import git
import pytest
from git.util import hex_to_bin

REF = "refs/patchkit/contract"


def _git(folder: Path, *args: str, stdin: bytes = b"") -> str:
    done = subprocess.run(["git", "-C", str(folder), *args], input=stdin, capture_output=True, check=True)
    return done.stdout.decode().strip()


def _repository(folder: Path, content: bytes) -> str:
    """A bare repository with one blob, which a ref names; its id."""
    folder.mkdir()
    _git(folder, "init", "--quiet", "--bare")
    blob = _git(folder, "hash-object", "-w", "--stdin", stdin=content)
    _git(folder, "update-ref", REF, blob)
    return blob


def test_a_named_repository_gives_way_to_the_callers_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = _repository(tmp_path / "ours", b"ours"), _repository(tmp_path / "theirs", b"theirs")
    with git.Repo(tmp_path / "ours") as repository:
        assert git.Reference(repository, REF).object.hexsha == ours
    monkeypatch.setenv("GIT_COMMON_DIR", str(tmp_path / "theirs"))
    with git.Repo(tmp_path / "ours") as repository:
        assert git.Reference(repository, REF).object.hexsha == theirs


def test_an_object_is_read_whose_content_is_not_its_id(tmp_path: Path) -> None:
    blob = _repository(tmp_path / "ours", b"ours")
    path = tmp_path / "ours" / "objects" / blob[:2] / blob[2:]
    path.chmod(0o644)
    path.write_bytes(zlib.compress(b"blob 4\0evil"))
    with (
        pytest.warns(DeprecationWarning, match="security"),
        git.Repo(tmp_path / "ours", odbt=git.GitDB) as repository,
    ):
        assert repository.odb.stream(hex_to_bin(blob)).read() == b"evil"
