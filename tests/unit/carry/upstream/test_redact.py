from __future__ import annotations

import pytest

from patchkit.base.errors import SourceError
from patchkit.carry.upstream.git import redacted
from patchkit.carry.upstream.remote import fetch_commit
from patchkit.carry.upstream.repository import Repository


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("at https://me:secret@host/x.git, twice", "at https://***@host/x.git, twice"),
        ("https://token@host/x", "https://***@host/x"),
        ("https://me:se@cret@host/x", "https://***@host/x"),
        ("ssh://git@host/x", "ssh://git@host/x"),
        ("ssh://git:secret@host/x", "ssh://git:***@host/x"),
        ("git@host:me/x and https://host/@v1", "git@host:me/x and https://host/@v1"),
    ],
)
def test_secrets_in_urls_are_not_shown(text: str, shown: str) -> None:
    assert redacted(text) == shown


@pytest.mark.parametrize("scheme", ["http", "gopher"])
def test_a_remote_that_fails_does_not_give_its_password_away(repo: Repository, recorder, scheme: str) -> None:
    url = f"{scheme}://me:sesame@127.0.0.1:9/x.git"
    with pytest.raises(SourceError) as caught:
        fetch_commit(repo, url, "1" * 40, answer_s=20)
    error = caught.value
    said = [
        error.message,
        error.why,
        error.hint,
        *map(str, error.where),
        *(text for _, text in recorder.lines),
    ]
    assert "127.0.0.1" in str(said)
    assert "sesame" not in str(said)
