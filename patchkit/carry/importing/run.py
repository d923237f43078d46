"""``patchkit import`` of commits or a pull request: make one patch of the series."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from patchkit.base.errors import UsageError
from patchkit.base.series_folder import PLAIN, refuse_installed
from patchkit.base.upstreams import llama_cpp
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.target import known_pins
from patchkit.carry.importing.commits import compare_commits, read_pull, read_range
from patchkit.carry.lifting.change import Changeset
from patchkit.carry.lifting.pipeline import PatchOptions, Pipeline, Written, guard_profiles, open_pipeline
from patchkit.carry.onto.pin import AsBuild, as_build_number, build_below, require_build
from patchkit.carry.upstream.clone import open_clone


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRequest:
    """What to import: either ``source`` (``REV..REV`` or a commit) or ``pull`` is given.

    ``archs``: the GPUs of the candidate, if the commits are on the branch of one.
    """

    wanted: PatchOptions
    source: str | None = None
    pull: int | None = None
    url: str | None = None
    repo: Path | None = None
    as_build: AsBuild = None
    archs: tuple[str, ...] = (PLAIN,)


def run_import(request: ImportRequest, workspace: Workspace) -> Written:
    """Make a patch of commits or a pull request and put it into the series.

    Raises:
        IMPORT_NOTHING, IMPORT_UNSUPPORTED, IMPORT_NOTHING: the source cannot be imported.
        PatchkitError: from the clone, the remote or the cache, and as :meth:`Pipeline.make`.

    After any exception the series is unchanged.
    """
    refuse_installed(workspace.series)
    guard_profiles(request.wanted.guard, workspace.series.profiles)  # report a misspelt name before fetching
    with open_pipeline(workspace) as pipeline:
        change = _find(request, pipeline)
        title = change.by.subject or Path(request.source or "imported").stem
        return pipeline.make(change, request.wanted, title, request.archs)


def _find(request: ImportRequest, pipeline: Pipeline) -> Changeset:
    if request.pull is not None:
        return _of_pull(request, request.pull, pipeline)
    if request.source is None:
        raise UsageError(
            "nothing to import",
            code="IMPORT_NOTHING",
            hint="name a patch file, a range of commits REV..REV, or a pull request with --pr N --url REMOTE",
        )
    return _of_range(request, request.source, pipeline)


def _of_range(request: ImportRequest, revisions: str, pipeline: Pipeline) -> Changeset:
    workspace = pipeline.workspace
    clone = open_clone(request.repo or Path.cwd(), workspace.reporter)
    base, tip, by = read_range(clone, revisions, pipeline.repository)
    files = compare_commits(base.sha, tip.sha, revisions, pipeline.repository)
    pins = known_pins(pipeline.lock, workspace.series.catalogue)
    name = f"{base.sha[:12]} of {clone.top.name}"
    build = require_build(build_below(request.as_build, clone, base, pins), name)
    return Changeset(build=build, base=base.sha, name=name, files=files, by=by)


def _of_pull(request: ImportRequest, number: int, pipeline: Pipeline) -> Changeset:
    if request.url is None:
        raise UsageError(
            "--pr requires --url, the remote that has the pull request",
            code="IMPORT_NOTHING",
            hint=f"for example --pr {number} --url {llama_cpp().url}",
        )
    named = as_build_number(request.as_build, None, pipeline.lock.pins)
    pull = read_pull(request.url, number, pipeline.repository, pipeline.workspace.cache_root)
    name = f"pull request {number}"
    url = re.sub(r"(\.git)?/*$", "", request.url) + f"/pull/{number}"
    return Changeset(
        build=require_build(named or pull.build, name),
        base=pull.base,
        name=name,
        files=compare_commits(pull.base, pull.head, name, pipeline.repository),
        by=replace(pull.by, links=tuple(dict.fromkeys((url, *pull.by.links)))),
        url=url,
        head=pull.head,
    )
