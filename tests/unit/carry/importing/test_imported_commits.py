"""The files of a change, read from git."""

from __future__ import annotations

from pathlib import Path

from refusing import refused

from patchkit.base.reporter import NullReporter
from patchkit.carry.importing.commits import check_changes
from patchkit.carry.upstream.git import Change, Git


def test_a_file_without_content_in_the_repository_is_refused_by_name(tmp_path: Path) -> None:
    git = Git(reporter=NullReporter(), git_dir=tmp_path / "a.git")
    git.run("init", "--quiet", "--bare", "--template=", str(tmp_path / "a.git"))
    change = Change(path="a.txt", letter="M", modes=("100644", "100644"), ids=("1" * 40, "2" * 40))
    with refused("IMPORT_UNSUPPORTED") as caught:
        check_changes([change], "the change", git)
    assert caught.value.message.startswith("a.txt: its content is missing in the repository")
