"""Find again which of some patches the patches after them require, after edits changed between these."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import tomlkit

from patchkit.base.files import write_whole
from patchkit.base.reporter import NullReporter
from patchkit.base.series_folder import SeriesDir
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.decision import Decision
from patchkit.carry.judging.rendering import render_patch
from patchkit.carry.judging.requirements import PatchStack
from patchkit.carry.lifting.tables import Part, join_text, split_text, without_tables
from patchkit.carry.lifting.write import read_text
from patchkit.carry.placing.tree import read_upstream
from patchkit.carry.series.body import BODY_TABLES
from patchkit.carry.upstream.repository import Repository

Reasons = Mapping[str, str]
"""Why a patch requires others, by their ids."""


def find_requirements(
    decision: Decision,
    base: str,
    workspace: Workspace,
    repository: Repository,
    names: Collection[str],
    users: Collection[str],
) -> dict[str, Reasons]:
    """Which of the patches ``names`` each of the ``users`` requires, if it is placed after them on ``base``.

    A patch that another required one requires anyway is not listed. Raises GitError and CacheError.
    """
    files = read_upstream(repository, base, decision.series.read)
    stack = PatchStack(base=files.fresh(), series=workspace.series, reporter=NullReporter())
    found: dict[str, Reasons] = {}
    for selected in decision.selected:
        rendering = render_patch(selected, files, workspace.series) if selected.targets else None
        if rendering is None or rendering.placed is None:
            continue
        patch = rendering.patch
        requires = [each.patch for each in patch.requires]
        known = [name for name in names if name in stack.entries]
        if known and patch.id in users:
            found[patch.id] = stack.reasons(rendering, known, [one for one in requires if one not in names])
            requires = [*(one for one in requires if one not in names), *found[patch.id]]
        rendering.write(files)
        stack.add(rendering, requires)
    return found


def with_requirements(series: SeriesDir, folder: str, gone: Collection[str], new: Reasons) -> bool:
    """Let the patch in a folder no longer require some patches, but others; whether that changed it.

    Raises PATCH_BAD if its requirements are not ``[[requires]]`` tables.
    """
    path = series.patches / folder / "patch.toml"
    whole = split_text(str(path), read_text(path.parent))
    has = {part.table.get("patch") for part in whole.of("requires")}
    if not has.isdisjoint(gone) or not has.issuperset(new):
        if not has and tomlkit.parse(whole.head).get("requires"):
            raise without_tables(path)
        kept = [part for part in whole.parts if part.key != "requires" or part.table.get("patch") not in gone]
        parts = [requirement_part(name, why) for name, why in new.items() if name not in has]
        at = next((number for number, part in enumerate(kept) if part.key in BODY_TABLES), len(kept))
        at = max((number for number, part in enumerate(kept, 1) if part.key == "requires"), default=at)
        text = join_text(whole, whole.head, [*kept[:at], *parts, *kept[at:]])
        write_whole(path, text, "writing the patch")
        return True
    return False


def requirement_part(patch: str, why: str) -> Part:
    """A ``[[requires]]`` table."""
    text = tomlkit.dumps(tomlkit.item({"requires": [{"patch": patch, "why": why}]}))
    (part,) = split_text("", text).parts
    return part.moved()
