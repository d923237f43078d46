"""Lets a candidate count as made from a series that gives another one, as a faulty patchkit leaves it."""

from __future__ import annotations

from pathlib import Path

from patchkit.base.reporter import NullReporter
from patchkit.base.series_folder import SeriesDir
from patchkit.carry.candidate.find import read_candidate
from patchkit.carry.candidate.inputs import digest_today
from patchkit.carry.candidate.record import record_ref, write_record
from patchkit.carry.upstream.cache import open_cache
from patchkit.carry.upstream.refs import list_refs, read_ref, update_ref


def adopt(cache: Path, series: Path, branch: str) -> None:
    """Rewrite the record of a candidate branch, so that its files are those of ``series``."""
    repository = open_cache(cache).peek(NullReporter())
    assert repository is not None
    ref = f"refs/heads/{branch}"
    candidate = read_candidate(repository, ref, list_refs(repository, "refs"))
    assert candidate.record is not None
    folder = SeriesDir(root=series, origin="named")
    digest = digest_today(folder, candidate.archs, [commit.id for commit in candidate.commits])
    record = candidate.record.model_copy(update={"inputs": digest, "series": str(series)})
    name = record_ref(ref)
    update_ref(repository, name, write_record(repository, record), read_ref(repository, name))
