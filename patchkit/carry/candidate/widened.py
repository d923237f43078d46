"""A candidate's commits with wider guards: their code also runs on NVIDIA GPUs.

patchkit changes only the GPUs that a profile is for. Many patches have no instruction that only AMD GPUs
have; on an NVIDIA GPU they can be tested and measured, and offered to upstream. The guards are text that
patchkit generated, so they are exchanged as text, and nothing is placed again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from patchkit.base.errors import UsageError
from patchkit.carry.candidate.record import Candidate, CandidateCommit
from patchkit.carry.candidate.trailers import cut_trailers
from patchkit.carry.placing.context import make_guard
from patchkit.carry.placing.guard import Guard
from patchkit.carry.series.catalogue import Series
from patchkit.carry.series.patch import GuardMacros, Patch
from patchkit.carry.series.profile import ArchProfile
from patchkit.carry.upstream.commits import NewCommit, write_commits
from patchkit.carry.upstream.repository import Repository

_CUDA = "!defined(GGML_USE_HIP) && !defined(GGML_USE_MUSA)"
_HOST = "GGML_CUDA_CC_IS_NVIDIA"  # upstream's macro on a compute capability
# What a template compares: members, elements and calls without arguments, as in devices[ctx.device].cc.
_CAPABILITY = r"(?P<cc>[A-Za-z_](?:\w|\.|->|\(\)|\[[^\[\]]*\])*)"


def widen(
    repository: Repository, candidate: Candidate, series: Series, profiles: Mapping[str, ArchProfile]
) -> str:
    """Write the candidate's commits with wider guards on its base, and return the last one. No ref moves.

    Raises:
        USAGE_OPTION: a patch is not declared as neutral, or the candidate is for several GPUs.
        GitError, CacheError: git or the disk reported an error.
    """
    if len(candidate.archs) != 1:
        raise UsageError(
            f"guards of {candidate.branch} cannot be widened: it is for several GPUs",
            code="USAGE_OPTION",
            hint="use a candidate for one GPU: --arch gfx1151",
        )
    patches = {commit.id: series.require(commit.id) for commit in candidate.commits}
    _refuse_others(candidate, patches)
    profile = profiles[candidate.archs[0]]
    commits = []
    for commit in candidate.commits:
        guard = make_guard(patches[commit.id].guard, [profile])
        commits.append(_widened(repository, commit, guard))
    date = repository.git.run("log", "-1", "--format=%aI", candidate.tip, "--").decode("ascii").strip()
    return write_commits(repository, candidate.base, commits, date=date)[-1].commit


def widened_text(text: str, guard: Guard) -> str:
    """A file of a candidate with its guards widened; ``guard`` is that of the patches that wrote them."""
    for condition in sorted({guard.device, guard.region}, key=len, reverse=True):
        text = text.replace(condition, f"({_CUDA}) || ({condition})")
    for target in guard.targets:
        same = re.compile(rf"{_CAPABILITY} == GGML_CUDA_CC_OFFSET_AMD \+ 0x{target.cc:x}\b")
        text = same.sub(lambda found: f"({_HOST}({found['cc']}) || {found[0]})", text)
    return text


def _widened(repository: Repository, commit: CandidateCommit, guard: Guard) -> NewCommit:
    changed = [change.path for change in repository.git.changes(f"{commit.commit}^", commit.commit)]
    files = repository.read_blobs(commit.commit, changed)
    out = repository.git.run("log", "-1", "--format=%an <%ae>%n%aI%n%B", commit.commit, "--")
    author, date, message = out.split(b"\n", 2)
    return NewCommit(
        # Trailers say how a commit was made; this one was made otherwise.
        message=cut_trailers(message).decode("utf-8", "replace"),
        author=(author.decode("utf-8", "replace"), date.decode("ascii")),
        changes={path: widened_text(data.decode("utf-8"), guard).encode() for path, data in files.items()},
        gone=tuple(path for path in changed if path not in files),
    )


def _refuse_others(candidate: Candidate, patches: Mapping[str, Patch]) -> None:
    others = [
        name
        for name, patch in patches.items()
        if not (isinstance(patch.guard, GuardMacros) and patch.guard.neutral)
    ]
    if others:
        raise UsageError(
            f"guards of {candidate.branch} cannot be widened: some of its patches are for AMD GPUs only",
            code="USAGE_OPTION",
            where=[patches[name].where for name in others],
            why=f"not declared with [guard] neutral: {', '.join(others)}",
            hint="run patchkit apply again with these options added: "
            + " ".join(f"--without {name}" for name in others),
        )
