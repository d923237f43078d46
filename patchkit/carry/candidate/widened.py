"""A candidate's commits with wider guards: for NVIDIA GPUs, too, or as upstream would write them.

patchkit changes only the GPUs that a profile is for. Many patches have no instruction that only AMD GPUs
have; on an NVIDIA GPU they can be tested and measured, and offered to upstream. The guards are text that
patchkit generated, so they are exchanged as text, and nothing is placed again.

In upstream's form (:func:`upstream_text`) a guard names a family of GPUs by upstream's macros, or is gone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from patchkit.base.errors import UsageError
from patchkit.carry.candidate.record import Candidate
from patchkit.carry.candidate.trailers import cut_trailers
from patchkit.carry.candidate.upstream_form import upstream_text
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
        out = repository.git.run("log", "-1", "--format=%an <%ae>%n%aI%n%B", commit.commit, "--")
        author, written, message = out.split(b"\n", 2)
        # Trailers say how a commit was made; this one was made otherwise.
        text = cut_trailers(message).decode("utf-8", "replace")
        change = partial(_widened_bytes, guard=guard)
        made = _changed(repository, commit.commit, text, change)
        commits.append(replace(made, author=(author.decode("utf-8", "replace"), written.decode("ascii"))))
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


def _widened_bytes(_path: str, data: bytes, _before: bytes | None, guard: Guard) -> bytes:
    return widened_text(data.decode("utf-8"), guard).encode()


def upstream_commit(
    repository: Repository, commit: str, message: str, guard: Guard | None, family: str | None
) -> NewCommit:
    """The commit of a patch, in upstream's form and with another message; nothing is written.

    ``guard`` is that of the patch, None for a plain one; ``family`` as of :func:`upstream_family`. Raises
    PROPOSE_REFUSED if a guard is used in a way that has no such form, and GitError, CacheError.
    """

    def change(path: str, data: bytes, before: bytes | None) -> bytes:
        if guard is None:
            return data
        known = before.decode("utf-8") if before is not None else None
        return upstream_text(path, data.decode("utf-8"), known, guard, family).encode()

    return _changed(repository, commit, message, change)


def upstream_family(patch: Patch, series: Series, profile: ArchProfile) -> str | None:
    """The family of GPUs that the patch is proposed for, such as ``rdna3_5``; None: all GPUs.

    All GPUs, if the patch is declared as neutral or fixes a fault in device code that all of them run.
    """
    if isinstance(patch.guard, str) or patch.guard.neutral:
        return None
    is_fix = any(fault.patch == patch.id for fault in series.faults)
    if is_fix and not patch.files and all(edit.side == "device" for edit in patch.edits):
        return None
    return patch.guard.family or next(iter(profile.relatives))


def _changed(
    repository: Repository, commit: str, message: str, change: Callable[[str, bytes, bytes | None], bytes]
) -> NewCommit:
    """The commit with each file changed by a function of its path, its bytes and those before the commit."""
    changed = {each.path: each.letter for each in repository.git.changes(f"{commit}^", commit)}
    gone = tuple(path for path, letter in changed.items() if letter == "D")
    files = repository.read_blobs(commit, [path for path in changed if path not in gone])
    known = [path for path, letter in changed.items() if letter != "A" and path not in gone]
    before = repository.read_blobs(f"{commit}^", known)
    changes = {path: change(path, data, before.get(path)) for path, data in files.items()}
    return NewCommit(message=message, changes=changes, gone=gone)


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
            hint="run patchkit apply, then this command, both with these options added: "
            + " ".join(f"--without {name}" for name in others),
        )
