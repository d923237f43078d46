"""A cache with a pin and a candidate, small enough to read; the limits of every GPU with a profile."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from patchkit.base.arch import load_gpu
from patchkit.base.occupancy import HardwareLimits, limits_of
from patchkit.base.reporter import NullReporter
from patchkit.carry.upstream.cache import create_repository
from patchkit.carry.upstream.commits import CommitStream, NewCommit, Written, write_commits
from patchkit.carry.upstream.refs import update_ref
from patchkit.carry.upstream.repository import Repository

DATE = "2025-10-31T10:54:19+02:00"
REF = "refs/heads/candidate/gfx1100+gfx1151/b6900"


@dataclass(frozen=True)
class Made:
    """What the fixture made: the cache folder, its repository, the base, the two commits."""

    cache: Path
    repository: Repository
    base: str
    commits: tuple[Written, ...]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    cache = tmp_path / "cache"
    repository = create_repository(cache / "upstream.git", NullReporter())
    with CommitStream(repository) as stream:
        stream.begin(message="upstream\n", date=DATE, parent=None)
        stream.put_file("src/a.cu", "100644", b"one\ntwo\n")
        stream.put_file("src/b.cu", "100644", b"caf\xe9\r\n")
        (base,) = stream.finish()
    commits = write_commits(
        repository,
        base.commit,
        [
            NewCommit(message="First: a\n\nPatchkit-Id: first\n", changes={"src/a.cu": b"one\nTWO\nthree\n"}),
            NewCommit(message="Second: b\n\nPatchkit-Id: second\n", changes={"src/b.cu": b"th\xe9\r\n"}),
        ],
        date=DATE,
    )
    update_ref(repository, "refs/patchkit/pin/b6900", base.commit, None)
    update_ref(repository, REF, commits[-1].commit, None)
    return Made(cache=cache, repository=repository, base=base.commit, commits=commits)


@pytest.fixture(scope="session")
def limits() -> dict[str, HardwareLimits]:
    """Limits by gfx id, of the profiles that come with patchkit."""
    profiles = Path(__file__).resolve().parents[2] / "arch_profiles"
    return {
        path.stem: limits_of(load_gpu(profiles, path.stem)) for path in sorted(profiles.glob("gfx*.toml"))
    }
