from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest
from processes import command_lines, is_gone
from refusing import refused

from patchkit.carry.upstream import remote
from patchkit.carry.upstream.cache import create_repository
from patchkit.carry.upstream.git import Finished
from patchkit.carry.upstream.remote import RemoteUrlBad, fetch_commit
from patchkit.carry.upstream.repository import Repository


@pytest.fixture
def repo(tmp_path: Path, recorder) -> Repository:
    return create_repository(tmp_path / "upstream.git", recorder)


def _fetch(repo: Repository, url: str, commit: str, answer_s: float = 20) -> None:
    fetch_commit(repo, url, commit, answer_s=answer_s)


def test_one_commit_comes_without_history_and_without_a_ref(repo: Repository, upstream) -> None:
    _fetch(repo, upstream.clone.as_uri(), upstream.commit)
    assert repo.tree_of(upstream.commit) == upstream.tree
    assert repo.has_object(f"{upstream.commit}^{{tree}}")
    assert not repo.has_object(upstream.git("rev-parse", "HEAD~1").decode().strip())
    assert repo.git.run("for-each-ref") == b""
    assert not (repo.path / "FETCH_HEAD").exists()


def test_a_commit_that_is_no_tip_and_a_relative_path(
    repo: Repository, upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(upstream.clone.parent)
    older = upstream.git("rev-parse", "HEAD~1").decode().strip()
    _fetch(repo, "clone", older)
    assert repo.has_object(older)


def test_a_commit_the_remote_does_not_have(repo: Repository, upstream) -> None:
    with refused("REMOTE_COMMIT_UNKNOWN") as caught:
        _fetch(repo, str(upstream.clone), "1" * 40)
    assert f"git -C {upstream.clone} fetch origin" in (caught.value.hint or "")


@pytest.mark.parametrize("url", ["/nonexistent/repo", "http://127.0.0.1:1/x", "ssh://127.0.0.1:1/x"])
def test_nothing_there(repo: Repository, url: str) -> None:
    with refused("REMOTE_UNREACHABLE") as caught:
        _fetch(repo, url, "1" * 40)
    assert url in caught.value.message
    assert caught.value.why


@pytest.mark.parametrize("url", ["", "--upload-pack=touch x", "ext::sh -c id", "ftp://host/x", "fd::3"])
def test_urls_that_are_not_taken(repo: Repository, url: str, recorder) -> None:
    before = len(recorder.lines)
    with pytest.raises(RemoteUrlBad):
        _fetch(repo, url, "1" * 40)
    assert len(recorder.lines) == before


def test_a_remote_that_never_answers_is_given_up(repo: Repository) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/llama.cpp.git"
        with refused("REMOTE_UNREACHABLE", match=r"no response from http.* 0\.5 s"):
            _fetch(repo, url, "1" * 40, answer_s=0.5)
        assert sys.executable in command_lines()
        assert is_gone(url)


def test_a_password_is_never_asked_for(repo: Repository, upstream) -> None:
    import http.server
    import threading

    class Wall(http.server.BaseHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="x"')
            self.end_headers()

    with http.server.HTTPServer(("127.0.0.1", 0), Wall) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        with refused("REMOTE_UNREACHABLE") as caught:
            _fetch(repo, f"http://127.0.0.1:{server.server_address[1]}/x", upstream.commit)
        server.shutdown()
        thread.join()
    assert "terminal prompts disabled" in (caught.value.why or "")


@pytest.mark.parametrize(
    ("stderr", "code", "told"),
    [
        # git's newer protocol serves any commit; a server that speaks only the old one may refuse.
        (
            "error: Server does not allow request for unadvertised object 1",
            "REMOTE_COMMIT_UNKNOWN",
            "allowAny",
        ),
        ("fatal: write error: No space left on device", "DISK_FULL", "free some space"),
        ("fatal: detected dubious ownership in repository", "REMOTE_UNREACHABLE", "another user owns it"),
    ],
)
def test_a_refusal_of_git_is_explained(repo: Repository, stderr: str, code: str, told: str) -> None:
    failed = Finished(status=128, stdout=b"", stderr=f"{stderr}\n")
    error = remote._why("url", "1" * 40, failed, repo.git.failure(("fetch",), failed))
    assert error.code == code
    assert told in f"{error.why} {error.hint}"
