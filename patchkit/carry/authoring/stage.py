"""A new patch tried on a copy of the series first: is it the diff, and does it fit the newest upstream?"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from patchkit.base.arch import list_profiles
from patchkit.base.errors import AnchorError, Location, PatchkitError
from patchkit.base.files import disk_errors, working_folder
from patchkit.base.series_folder import SeriesDir
from patchkit.base.source import SourceText
from patchkit.base.text import counted
from patchkit.base.workspace import Workspace
from patchkit.carry.authoring.change import FileChange
from patchkit.carry.authoring.guarded import NewText
from patchkit.carry.authoring.whole import expected_files, require_files
from patchkit.carry.authoring.write import NewPatch, next_number, write_patch
from patchkit.carry.candidate.plan import Request, make_plan
from patchkit.carry.cpp.scopes import ScopeMap, is_code, parse_scopes
from patchkit.carry.following.derive import bare
from patchkit.carry.following.staging import name_series
from patchkit.carry.placing.context import make_guard
from patchkit.carry.placing.guard import Guard
from patchkit.carry.placing.place import PlacedPatch, place_patch
from patchkit.carry.placing.tree import read_upstream
from patchkit.carry.series.catalogue import Series, load_series
from patchkit.carry.series.lock import load_lock
from patchkit.carry.series.patch import Patch
from patchkit.carry.series.profile import NO_GPU, ArchProfile, load_profiles
from patchkit.carry.series.selection import Selected
from patchkit.carry.upstream.cache import Cache
from patchkit.carry.upstream.pin import find_pinned
from patchkit.carry.upstream.repository import Repository


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """``same`` says how the result is the diff's; ``newest`` is the newest cached pin, and what it says."""

    same: str
    newest: str
    newest_errors: tuple[PatchkitError, ...]


def prove(
    patch: NewPatch,
    workspace: Workspace,
    *,
    base: str,
    expected: Sequence[FileChange] | None,
    guarded: Sequence[NewText],
    repository: Repository,
    cache: Cache,
    write: Callable[[SeriesDir, Sequence[ArchProfile]], object] | None = None,
) -> Proof:
    """Place a patch on the commit ``base`` and, with the whole series, on the newest cached pin.

    ``expected`` are the files as the diff makes them; None: there is no diff. ``write`` puts the patch into a
    copy of the series, given the profiles of its GPUs; None: as a new one.

    Raises what placing on ``base`` raises, and IMPORT_DIFFERS: the result is not the diff's.
    """
    with working_folder(cache.root, "import-", "making room for the patch") as folder:
        stage = SeriesDir(root=folder, origin=workspace.series.origin)
        with disk_errors(folder, "making room for the patch"):
            for part in workspace.series.folders:
                if part.is_dir():
                    shutil.copytree(part, folder / part.name)
            stage.templates.mkdir(exist_ok=True)
        try:
            every = load_profiles(stage.profiles, list_profiles(stage.profiles))
            targets = [each for each in every if patch.archs is not None and each.arch in patch.archs]
            if write is None:
                number = next_number(load_series(stage.patches))
                write_patch(patch, stage, number=number, profiles=targets, source="a trial")
            else:
                write(stage, targets)
            series = load_series(stage.patches)
            made = series.patch(patch.id)
            if made is None:
                raise AssertionError("the patch was written a moment ago")
            placed = _place(made, series, stage, tuple(targets) or _one(every), base, repository)
            same = "there is no diff to compare with"
            if expected is not None:
                guard = make_guard(made.guard, targets) if targets else None
                require_files(placed, expected)
                same = _compare(placed, expected_files(expected), guarded, guard)
            return _on_newest(patch, replace(workspace, series=stage), cache, repository, same)
        except PatchkitError as error:
            name_series(error, stage=folder, series=workspace.series)
            raise


def _one(every: Sequence[ArchProfile]) -> tuple[ArchProfile, ...]:
    """A GPU to parse for, where the patch is for all of them; none in a plain series."""
    return tuple(each for each in every if each.arch == "gfx1151")[:1] or tuple(every[:1]) or (NO_GPU,)


def _place(
    made: Patch,
    series: Series,
    stage: SeriesDir,
    targets: tuple[ArchProfile, ...],
    base: str,
    repository: Repository,
) -> PlacedPatch:
    files = read_upstream(repository, base, series.read)
    return place_patch(
        Selected(patch=made, targets=targets, reason=""), files, stage.patches, stage.templates
    )


def _compare(
    placed: PlacedPatch,
    expected: Mapping[str, bytes | None],
    guarded: Sequence[NewText],
    guard: Guard | None,
) -> str:
    """How the result is the diff's; raises IMPORT_DIFFERS."""
    if guard is None:
        wrong = sorted(
            path for path in {*expected, *placed.changes} if expected.get(path) != placed.changes.get(path)
        )
        told = "byte for byte"
    else:
        asked = [
            (edit.file, edit.text, each.plain)
            for edit, each in zip(placed.edits, guarded, strict=True)
            if each.asks
        ]
        wrong = [
            path
            for path, data in expected.items()
            if not _same_for_gpu(
                path, placed.changes.get(path, b""), data or b"", (guard.device, guard.region), asked
            )
        ]
        told = f"token for token, for {' '.join(each.arch for each in guard.targets)}"
        if asked:
            told += "; host code asks which GPU it is"
    if wrong:
        raise AnchorError(
            f"what was made of the diff gives another result in {', '.join(wrong)}",
            code="IMPORT_DIFFERS",
            where=[Location(path=path) for path in wrong],
            why="blanks that the layout of a file does not allow, or code that a guard cannot hold apart",
            hint="write the patch by hand (docs/guide/patch.md), or import it in smaller parts",
        )
    return told


def _same_for_gpu(
    path: str,
    made: bytes,
    expected: bytes,
    conditions: tuple[str, ...],
    asked: Sequence[tuple[str, str, bytes]],
) -> bool:
    """Whether a guarded file is, for its GPUs, the code of the diff; what asks which GPU it is, is one."""
    if not is_code(path):
        return made == expected
    view = _tokens(parse_scopes(SourceText(path, bare(path, made, frozenset(conditions)))))
    for _, text, plain in (each for each in asked if each[0] == path):
        ours = _tokens(parse_scopes(SourceText("<text>", text.encode())))
        theirs = _tokens(parse_scopes(SourceText("<text>", plain)))
        at = next((at for at in range(len(view)) if view[at : at + len(ours)] == ours), None)
        if at is None:
            return False
        view[at : at + len(ours)] = theirs
    return view == _tokens(parse_scopes(SourceText(path, expected)))


def _tokens(scopes: ScopeMap) -> list[bytes]:
    pieces = [(token.span.start, token.text) for token in scopes.code]
    pieces += [(line.span.start, b"#" + line.condition) for line in scopes.directives]
    return [text for _, text in sorted(pieces)]


def _on_newest(patch: NewPatch, staged: Workspace, cache: Cache, repository: Repository, same: str) -> Proof:
    """With the whole series, on the newest pin that is cached."""
    lock = load_lock(staged.series.lock)
    cached = [pin for pin in lock.pins if find_pinned(repository, pin) is not None]
    if not cached:
        return Proof(same=same, newest="no pin is cached", newest_errors=())
    newest = max(cached, key=lambda pin: pin.build)
    if newest.build < patch.first_build:
        return Proof(same=same, newest=f"older than b{patch.first_build}: {newest.name}", newest_errors=())
    archs = patch.archs or tuple(
        each.arch
        for each in _one(load_profiles(staged.series.profiles, list_profiles(staged.series.profiles)))
    )
    request = Request(archs=archs, upstream=newest.name, with_=(patch.id,))
    plan = make_plan(request, staged, cache, lock)
    made = next((each for each in plan.patches if each.id == patch.id), None)
    places = sum(len(edit.locations) for edit in made.edits) if made is not None else 0
    told = (
        f"{newest.name}: placed at {counted(places, 'place')}"
        if not plan.errors
        else f"{newest.name}: it cannot be placed"
    )
    return Proof(same=same, newest=told, newest_errors=plan.errors)
