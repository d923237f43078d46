"""``patchkit export --check``: whether a folder has the files of its release.json, and what they give.

The folder is untrusted. Nothing in it is run, and git applies its patches in an index of its own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from patchkit.base.digests import sha256
from patchkit.base.errors import Location, UsageError, raise_all
from patchkit.base.files import open_regular, temporary_folder
from patchkit.base.text import visible
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.diff import Release, ReleasedPatch
from patchkit.carry.importing.commits import own_repository
from patchkit.carry.importing.diffs import read_diff
from patchkit.carry.upstream.cache import open_cache
from patchkit.carry.upstream.export import RELEASE
from patchkit.carry.upstream.repository import Repository

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_MOST_BYTES = 4 * 1024 * 1024  # of release.json; a row has some 400


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedRelease:
    """A release whose files are as recorded. ``tree``: whether they give its tree, as text."""

    json_keys: ClassVar = "directory upstream=release.upstream base=release.base files tree is_tree_checked"

    directory: Path
    release: Release
    is_tree_checked: bool

    @property
    def files(self) -> list[str]:
        """The names of the patch files, in order."""
        return [each.file for each in self.release.patches]

    @property
    def tree(self) -> str:
        """The tree, and whether it was compared."""
        if self.is_tree_checked:
            return f"on {self.release.upstream} they give tree {self.release.tree[:12]}, as recorded"
        return f"tree {self.release.tree[:12]} was not checked: {self.release.upstream} is not in the cache"


def check_release(directory: Path, workspace: Workspace) -> CheckedRelease:
    """Compare a folder with its release.json; if the cache has the base, also apply the patches to it.

    Raises:
        RELEASE_DIFFERS: a file is missing or was changed, or the patches give another tree.
        RELEASE_BAD: there is no release.json, or it is not one of patchkit.
        GitError, CacheError: errors of git and the disk.
    """
    release = _read(directory / RELEASE)
    found: list[tuple[ReleasedPatch, bytes]] = []
    errors = []
    for each in release.patches:
        path = directory / each.file
        try:
            data = read_diff(path)
        except UsageError as error:
            errors.append(_differs(path, f"{each.file} cannot be read", error.why))
            continue
        if sha256(data) != each.sha256:
            errors.append(_differs(path, f"{each.file} was changed after the export", None))
        found.append((each, data))
    known = {each.file for each in release.patches}
    others = [
        path for path in sorted(directory.iterdir()) if path.suffix == ".patch" and path.name not in known
    ]
    errors += [_differs(path, f"{visible(path.name)} is not in {RELEASE}", None) for path in others]
    raise_all(errors, f"{directory} differs from its {RELEASE}")
    repository = open_cache(workspace.cache_root).peek(workspace.reporter)
    is_known = repository is not None and repository.has_object(f"{release.base_tree}^{{tree}}")
    if repository is not None:
        _require_base(directory, release, repository)
    if repository is not None and is_known:
        _require_tree(directory, release, found, repository)
    return CheckedRelease(directory=directory, release=release, is_tree_checked=is_known)


def _read(path: Path) -> Release:
    try:
        with open_regular(path) as stream:
            return Release.model_validate_json(stream.read(_MOST_BYTES))  # what is longer is no JSON then
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else visible(str(error))
        raise UsageError(
            f"cannot read {path}",
            code="RELEASE_BAD",
            where=Location(path=str(path)),
            why=why,
            hint="it is written by patchkit export --release",
        ) from error


def _require_base(directory: Path, release: Release, repository: Repository) -> None:
    """Raise RELEASE_DIFFERS if the cache has the base of a release with another tree than ``base_tree``."""
    (tree,) = repository.resolve(f"{release.base}^{{tree}}")
    name = f"{release.base[:12]} ({visible(release.upstream)})"
    if tree is None and _NAME.fullmatch(release.upstream):
        (tree,) = repository.resolve(f"refs/patchkit/pin/{release.upstream}^{{tree}}")
        name = release.upstream
    if tree is not None and tree != release.base_tree:
        why = f"{RELEASE} has base_tree {release.base_tree}, and {name} has tree {tree}"
        raise _differs(directory / RELEASE, f"base_tree of {RELEASE} is not the tree of its base", why)


def _require_tree(
    directory: Path,
    release: Release,
    found: Sequence[tuple[ReleasedPatch, bytes]],
    repository: Repository,
) -> None:
    with temporary_folder("release") as folder:
        git = own_repository(folder, repository)
        git.run("read-tree", release.base_tree)
        for each, data in found:
            done = git.attempt("apply", "--cached", "--whitespace=nowarn", "-p1", "-", stdin=data)
            if done.status != 0:
                path = directory / each.file
                raise _differs(
                    path, f"{each.file} does not apply on {release.upstream}", visible(done.stderr)
                )
        tree = git.run("write-tree").decode("ascii").strip()
    if tree != release.tree:
        why = f"{RELEASE} has {release.tree}, and the files give {tree}"
        raise _differs(directory / RELEASE, "the patches do not give the recorded tree", why)


def _differs(path: Path, message: str, why: str | None) -> UsageError:
    return UsageError(
        message,
        code="RELEASE_DIFFERS",
        where=Location(path=str(path)),
        why=why or None,
        hint="export again, or get the release again",
    )
