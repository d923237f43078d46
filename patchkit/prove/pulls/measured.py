"""The evidence files of a pull request: each added or changed one is checked as untrusted input."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from patchkit.base.errors import ErrorGroup, PatchkitError, members_of
from patchkit.base.evidence import check_name
from patchkit.base.upstreams import build_name
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.decision import Request
from patchkit.carry.candidate.plan import Plan
from patchkit.carry.series.lock import Pin, Result
from patchkit.prove.evidence.add import check_file, make_checker
from patchkit.prove.pulls.first_look import FirstLook
from patchkit.prove.pulls.judge import make_candidate
from patchkit.prove.pulls.side import SeriesSide


def judge_evidence(
    look: FirstLook, after: SeriesSide, workspace: Workspace
) -> tuple[tuple[PatchkitError, ...], tuple[str, ...]]:
    """Errors in the files, and notes for a reviewer.

    With ``--explain`` nothing is computed. Raises CacheError.
    """
    changed = {change.path: change.letter for change in look.pull.changes}
    paths = [path for path, part in look.parts.items() if part == "evidence"]
    errors: list[PatchkitError] = []
    attention = [f"{path} was removed and no longer counts" for path in paths if changed[path] == "D"]
    added = [path for path in paths if changed[path] != "D"]
    if look.request.explain:
        attention += [f"{path} would be checked: each figure against its rounds" for path in added]
        return (), tuple(attention)
    if added:
        checker = make_checker(
            after.files,
            partial(place, workspace=replace(workspace, series=after.files)),
            look.request.now().date(),
        )
        for path in added:
            try:
                found = check_file(after.files.root / path, after.files, checker)
                check_name(found.file, path.removeprefix("evidence/"), path)
            except PatchkitError as error:
                errors += members_of(error)
                continue
            effects = "; ".join(f"{one.patch} {one.becomes}" for one in found.patches)
            whose = f"{found.file.who}, {found.file.machine.gpu}, {build_name(found.file.build)}"
            attention.append(f"{path} is valid ({whose}): {effects or 'it measures no patch on its own'}")
    return tuple(errors), tuple(attention)


def place(pin: Pin, archs: tuple[str, ...], patches: tuple[str, ...], workspace: Workspace) -> Result:
    """The result of patches that no lock records together; no ref is kept.

    Raises an ErrorGroup of what cannot be placed, and the errors of planning.
    """
    found = make_candidate(Request(archs=archs, upstream=pin.name, only=patches), workspace)
    if isinstance(found, Plan):
        raise ErrorGroup("the patches cannot be placed together", found.errors)
    return found.result
