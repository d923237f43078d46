"""A Containerfile that builds llama.cpp with a candidate's patches for one version of ROCm."""

from __future__ import annotations

import os
import re

from patchkit.base.errors import UsageError
from patchkit.base.series_folder import PLAIN
from patchkit.base.upstreams import llama_cpp
from patchkit.carry.candidate.record import Candidate
from patchkit.carry.placing.templates import written_text
from patchkit.carry.series.lock import Pin
from patchkit.carry.upstream.remote import upstream_url
from patchkit.carry.upstream.repository import Repository

BASES = {
    "6.4": "rocm/dev-ubuntu-24.04:6.4-complete",
    "7.2": "rocm/dev-ubuntu-24.04:7.2.4-complete",
    "7.14": "rocm/dev-ubuntu-24.04:7.14.1-full",
    "10.0": "rocm/dev-ubuntu-24.04:10.0.0-full",
}
"""AMD's development images by version of ROCm.

The names are from llama.cpp's own .devops/rocm.Dockerfile (6.4: PR 15994) and from CONTAINERS.md of
stew675/llama-cpp-rdna-boosts (7.2.4, 7.14.1, 10.0.0).
"""

NAME = "Containerfile"


def containerfile(repository: Repository, candidate: Candidate, pin: Pin, rocm: str) -> bytes:
    """The file, for an image with the folder of exported patches as its context.

    Raises:
        USAGE_VALUE: the candidate is on a commit of a clone, which an image could not fetch, or it is for no
            GPU or has no patches.
        GitError: git failed.
    """
    if pin.clone is not None:
        raise UsageError(
            f"{candidate.branch} is on a commit of your own clone",
            code="USAGE_VALUE",
            why="the image fetches llama.cpp by a commit or a tag that a git remote has",
            hint="export a candidate on a build of the lock, without --onto",
        )
    is_plain = candidate.archs == (PLAIN,)
    if is_plain or not candidate.commits:
        raise UsageError(
            f"{candidate.branch} {'is for no GPU' if is_plain else 'has no patches'}",
            code="USAGE_VALUE",
            why="the image builds the patches for the GPUs of --arch",
            hint="name a GPU that has patches; patchkit list shows them",
        )
    folder = _common_folder(repository, candidate)
    archs = "-".join(candidate.archs)
    text = written_text(
        "Containerfile.jinja",
        build=pin.name,
        count=len(candidate.commits),
        archs=candidate.archs,
        rocm=rocm,
        base=BASES[rocm],
        tag=re.sub(r"[^a-z0-9.-]", "-", f"llama-{archs}-rocm{rocm}".lower()),
        upstream=upstream_url(pin) or llama_cpp().url,
        ref=pin.commit or f"refs/tags/{pin.name}",
        part=f"HEAD:{folder}",
        tree=repository.git.run("rev-parse", f"{candidate.tip}:{folder}").decode().strip(),
        tip=candidate.tip,
    )
    return text.encode("utf-8")


def _common_folder(repository: Repository, candidate: Candidate) -> str:
    """The innermost folder with all files that the patches change; empty for the whole tree."""
    changes = repository.git.changes(candidate.base, candidate.tip)
    return os.path.commonpath([os.path.dirname(each.path) for each in changes])  # noqa: PTH120 - paths of git
