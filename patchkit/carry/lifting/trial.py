"""A new patch tried on a copy of the series first: is it the diff, and does it fit the newest upstream?"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from patchkit.base.arch import list_profiles
from patchkit.base.errors import AnchorError, Location, PatchkitError
from patchkit.base.files import disk_errors
from patchkit.base.series_folder import SeriesDir
from patchkit.base.source import SourceText
from patchkit.base.text import counted
from patchkit.base.toml import load_toml
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.decision import Request
from patchkit.carry.candidate.plan import make_plan
from patchkit.carry.candidate.staging import copied_series
from patchkit.carry.cpp.scopes import ScopeMap, is_code, parse_scopes
from patchkit.carry.judging.derive import bare
from patchkit.carry.lifting.change import FileChange
from patchkit.carry.lifting.guarded import NewText
from patchkit.carry.lifting.whole import expected_files, require_files
from patchkit.carry.lifting.write import NewPatch, next_number, profile_line, write_patch
from patchkit.carry.placing.context import make_guard
from patchkit.carry.placing.guard import Guard
from patchkit.carry.placing.place import PlacedPatch, place_patch
from patchkit.carry.placing.tree import UpstreamFiles, read_upstream
from patchkit.carry.series.catalogue import load_series
from patchkit.carry.series.lock import load_lock
from patchkit.carry.series.patch import Patch, parse_patch
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A copy of the series, for patches to be tried on. ``every`` are the profiles as they were."""

    series: SeriesDir
    workspace: Workspace
    every: tuple[ArchProfile, ...]

    def targets(self, patch: NewPatch) -> tuple[ArchProfile, ...]:
        """The profiles of the GPUs that a patch is for; none of a plain one."""
        return tuple(each for each in self.every if patch.archs is not None and each.arch in patch.archs)

    def put(self, patch: NewPatch, number: int) -> Patch:
        """Write a new patch into the copy, and read it as anybody would."""
        folder = write_patch(
            patch, self.series, number=number, profiles=self.targets(patch), source="a trial"
        )
        return parse_patch(load_toml(folder / "patch.toml"), folder=folder.name, number=number)

    def take(self, patch: NewPatch, number: int) -> None:
        """Take a patch away again."""
        shutil.rmtree(self.series.patches / f"{number:04d}-{patch.id}", ignore_errors=True)
        for profile in self.targets(patch):
            path = self.series.profiles / f"{profile.arch}.toml"
            with disk_errors(path, "writing the profile"):
                text = path.read_text("utf-8").replace(profile_line(patch, "a trial"), "", 1)
                path.write_text(text, "utf-8", newline="\n")

    def place(self, made: Patch, targets: Sequence[ArchProfile], files: UpstreamFiles) -> PlacedPatch:
        """Place a patch of the copy on files; raises one ErrorGroup of what stands against it."""
        selected = Selected(patch=made, targets=tuple(targets) or _one(self.every), reason="")
        return place_patch(selected, files, self.series.patches, self.series.templates)


@contextmanager
def open_stage(workspace: Workspace, cache: Cache) -> Iterator[Stage]:
    """A stage that is gone when the context ends; errors that leave it name the files of the series."""
    with copied_series(workspace.series, cache, "import-", "making room for the patch") as stage:
        every = load_profiles(stage.profiles, list_profiles(stage.profiles))
        yield Stage(series=stage, workspace=replace(workspace, series=stage), every=every)


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
    with open_stage(workspace, cache) as stage:
        targets = stage.targets(patch)
        if write is None:
            stage.put(patch, next_number(load_series(stage.series.patches)))
        else:
            write(stage.series, targets)
        series = load_series(stage.series.patches)
        made = series.patch(patch.id)
        if made is None:
            raise AssertionError("the patch was written a moment ago")
        placed = stage.place(made, targets, read_upstream(repository, base, series.read))
        for warning in placed.warnings:
            workspace.reporter.warn(warning)
        same = "there is no diff to compare with"
        if expected is not None:
            guard = make_guard(made.guard, targets) if targets else None
            same = compare(placed, expected, guarded, guard, Guarded())
        told, errors, _ = look_at_newest([patch], stage, cache, repository)
        return Proof(same=same, newest=told, newest_errors=errors)


def _one(every: Sequence[ArchProfile]) -> tuple[ArchProfile, ...]:
    """A GPU to parse for, where the patch is for all of them; none in a plain series."""
    return tuple(each for each in every if each.arch == "gfx1151")[:1] or tuple(every[:1]) or (NO_GPU,)


@dataclass(slots=True)
class Guarded:
    """What guarded patches of a queue left in the files so far: a later patch is compared without it.

    ``conditions`` are those of their ``#if`` lines by file, ``asked`` each text that asks which GPU it is:
    its file, itself, and what stands there where every build has it.
    """

    conditions: dict[str, set[str]] = field(default_factory=dict)
    asked: list[tuple[str, str, bytes]] = field(default_factory=list)

    def add(self, placed: PlacedPatch, texts: Sequence[NewText], guard: Guard) -> None:
        """One more patch, that the next ones stand on."""
        for path in placed.changes:
            self.conditions.setdefault(path, set()).update((guard.device, guard.region))
        self.asked += _asked(placed, texts)


def _asked(placed: PlacedPatch, texts: Sequence[NewText]) -> list[tuple[str, str, bytes]]:
    return [
        (edit.file, edit.text, each.plain)
        for edit, each in zip(placed.edits, texts, strict=True)
        if each.asks
    ]


def compare(
    placed: PlacedPatch,
    files: Sequence[FileChange],
    texts: Sequence[NewText],
    guard: Guard | None,
    below: Guarded,
) -> str:
    """How the result is the diff's; ``below`` is what earlier patches guard. Raises IMPORT_DIFFERS."""
    require_files(placed, files)
    expected = expected_files(files)
    asked = [*below.asked, *_asked(placed, texts)]
    own = {guard.device, guard.region} if guard is not None else set()
    wrong = []
    for path in sorted({*expected, *placed.changes}):
        made, data = placed.changes.get(path), expected.get(path)
        conditions = own | below.conditions.get(path, set())
        if made is None or data is None or not conditions:
            same = made == data
        else:
            same = _same_for_gpu(path, made, data, frozenset(conditions), asked)
        wrong += [] if same else [path]
    if wrong:
        raise AnchorError(
            f"what was made of the diff gives another result in {', '.join(wrong)}",
            code="IMPORT_DIFFERS",
            where=[Location(path=path) for path in wrong],
            why="blanks that the layout of a file does not allow, or code that a guard cannot hold apart",
            hint="write the patch by hand (docs/guide/patch.md), or import it in smaller parts",
        )
    if guard is None:
        return "byte for byte"
    told = f"token for token, for {' '.join(each.arch for each in guard.targets)}"
    return told + ("; host code asks which GPU it is" if asked else "")


def _same_for_gpu(
    path: str,
    made: bytes,
    expected: bytes,
    conditions: frozenset[str],
    asked: Sequence[tuple[str, str, bytes]],
) -> bool:
    """Whether a guarded file is, for its GPUs, the code of the diff; what asks which GPU it is, is one."""
    if not is_code(path):
        return made == expected
    view = _tokens(parse_scopes(SourceText(path, bare(path, made, conditions))))
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


def look_at_newest(
    patches: Sequence[NewPatch], stage: Stage, cache: Cache, repository: Repository
) -> tuple[str, tuple[PatchkitError, ...], tuple[str, ...]]:
    """The patches, with the whole series, on the newest cached pin: what is told, errors, ids not placed."""
    lock = load_lock(stage.series.lock)
    cached = [pin for pin in lock.pins if find_pinned(repository, pin) is not None]
    if not cached:
        return "no pin is cached", (), ()
    newest = max(cached, key=lambda pin: pin.build)
    first = max(patch.first_build for patch in patches)
    if newest.build < first:
        return f"older than b{first}: {newest.name}", (), ()
    ids = [patch.id for patch in patches]
    archs = tuple(dict.fromkeys(arch for patch in patches for arch in patch.archs or ()))
    request = Request(
        archs=archs or tuple(each.arch for each in _one(stage.every)),
        upstream=newest.name,
        with_=tuple(ids),
    )
    plan = make_plan(request, stage.workspace, cache, lock)
    places = sum(len(edit.locations) for each in plan.patches if each.id in ids for edit in each.edits)
    told = (
        f"{newest.name}: placed at {counted(places, 'place')}"
        if not plan.errors
        else f"{newest.name}: it cannot be placed"
    )
    failed = tuple(each.id for each in plan.patches if each.id in ids and each.placed is None)
    return told, plan.errors, failed
