"""From a candidate in the cache to what gates look at: exported trees, patches, and whose line is whose.

Everything is read from the candidate itself, not planned anew: a gate judges the bytes that would be
published. What git says decides which files changed and which patch a line comes from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from patchkit.build.toolchain import Toolchain
from patchkit.build.tree import export_tree
from patchkit.config.manifest import Patch
from patchkit.config.profile import list_profiles, load_profile
from patchkit.config.profile_data import ArchProfile
from patchkit.config.series import Series, load_series
from patchkit.errors import GitError, Location
from patchkit.flow.candidates import Candidate, CandidateCommit
from patchkit.flow.context import make_guard
from patchkit.flow.workspace import Workspace
from patchkit.gates.subject import PatchPart, Subject
from patchkit.vcs.repository import Repository

_PROFILES = "--format=%(trailers:key=Patchkit-Profile,valueonly)"


def make_subject(
    workspace: Workspace, repository: Repository, candidate: Candidate, toolchain: Toolchain | None
) -> Subject:
    """Export both trees into ``<cache>/trees`` and read the rest from git.

    Raises:
        CANDIDATE_PATCH_UNKNOWN: series and candidate do not belong together.
        TREE_ENTRY_REFUSED, CacheError, GitError: exporting failed.
        ConfigError: the series or a profile is not what it must be.
    """
    series = load_series(workspace.series.patches)
    folder = workspace.series.profiles
    profiles = {arch: load_profile(folder, arch) for arch in list_profiles(folder)}
    trees = workspace.cache_root / "trees"
    baseline = export_tree(repository, candidate.base, trees)
    tip = export_tree(repository, candidate.tip, trees)
    parts = tuple(
        _part(repository, _patch_of(series, candidate, made), made, profiles) for made in candidate.commits
    )
    return Subject(
        baseline=baseline.root,
        baseline_tree=baseline.tree,
        candidate=tip.root,
        candidate_tree=tip.tree,
        build=candidate.build,
        archs=candidate.archs,
        patches=parts,
        profiles=profiles,
        authors=_authors(repository, candidate, parts, tip.root),
        toolchain=toolchain,
        cache_root=workspace.cache_root,
        reporter=workspace.reporter,
        base=candidate.base,
    )


def _patch_of(series: Series, candidate: Candidate, made: CandidateCommit) -> Patch:
    patch = series.patch(made.id)
    if patch is None:
        raise GitError(
            f"{candidate.branch} has a commit of patch '{made.id}', which the series does not have",
            code="CANDIDATE_PATCH_UNKNOWN",
            where=Location(path=candidate.ref),
            why="the candidate was made from another series, or the patch was renamed since",
            hint=f"patchkit apply {' '.join(f'--arch {arch}' for arch in candidate.archs)}",
        )
    return patch


def _part(
    repository: Repository, patch: Patch, made: CandidateCommit, profiles: Mapping[str, ArchProfile]
) -> PatchPart:
    trailers = repository.git.run("log", "-1", _PROFILES, made.commit, "--").decode("utf-8", "replace")
    targets = [profiles[line.split()[0]] for line in trailers.splitlines() if line.strip()]
    out = repository.git.run(
        "diff-tree", "-r", "-z", "--no-renames", "--name-status", f"{made.commit}^", made.commit
    )
    fields = out.decode("utf-8", "surrogateescape").split("\0")
    changes = list(zip(fields[0::2], fields[1::2], strict=False))
    return PatchPart(
        id=patch.id,
        commit=made.commit,
        guard=make_guard(patch.guard_macros, targets),
        touched=tuple(path for state, path in changes if state != "A"),
        new_files=tuple(path for state, path in changes if state == "A"),
        resources=patch.resources,
        bench=patch.bench,
        moves=patch.moves,
    )


def _authors(
    repository: Repository, candidate: Candidate, parts: Sequence[PatchPart], root: Path
) -> dict[str, tuple[str | None, ...]]:
    by_commit = {part.commit: part.id for part in parts}
    paths = sorted({path for part in parts for path in (*part.touched, *part.new_files)})
    found: dict[str, tuple[str | None, ...]] = {}
    for path in paths:
        if not (root / path).is_file():
            continue
        out = repository.git.run(
            "blame", "--porcelain", "-s", f"{candidate.base}..{candidate.tip}", "--", path
        )
        found[path] = tuple(by_commit.get(sha) for sha in _blamed(out))
    return found


def _blamed(porcelain: bytes) -> list[str]:
    """The commit of each line: its header is a hash and two or three numbers, its text begins with a tab."""
    commits: list[str] = []
    current = ""
    for line in porcelain.split(b"\n"):
        if line.startswith(b"\t"):
            commits.append(current)
            continue
        words = line.split(b" ")
        if len(words) in {3, 4} and len(words[0]) == 40 and words[1].isdigit():  # noqa: PLR2004 - as above
            current = words[0].decode("ascii")
    return commits
