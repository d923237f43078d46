"""Try a new patch on a copy of the series: does it give the change, and does it fit the newest upstream?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from patchkit.base.arch import list_profiles
from patchkit.base.errors import AnchorError, Location, PatchkitError
from patchkit.base.series_folder import SeriesDir
from patchkit.base.source import SourceText, Span
from patchkit.base.text import counted
from patchkit.base.toml import load_toml
from patchkit.base.upstreams import build_name
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.decision import Request
from patchkit.carry.candidate.plan import make_plan
from patchkit.carry.candidate.staging import copied_series
from patchkit.carry.cpp.scopes import is_code, parse_scopes
from patchkit.carry.judging.derive import bare
from patchkit.carry.judging.rendering import Rendering, files_before
from patchkit.carry.lifting.change import Changeset
from patchkit.carry.lifting.guarded import NewText
from patchkit.carry.lifting.whole import expected_files, require_files
from patchkit.carry.lifting.write import NewPatch, Writing
from patchkit.carry.placing.context import make_guard
from patchkit.carry.placing.guard import Guard
from patchkit.carry.placing.place import PlacedPatch, place_patch
from patchkit.carry.placing.tree import UpstreamFiles
from patchkit.carry.series.lock import load_lock
from patchkit.carry.series.patch import Patch, parse_patch
from patchkit.carry.series.profile import NO_GPU, ArchProfile, load_profiles
from patchkit.carry.series.selection import Selected
from patchkit.carry.upstream.cache import Cache
from patchkit.carry.upstream.pin import find_pinned
from patchkit.carry.upstream.repository import Repository


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafted:
    """A patch that was not tried yet, and the change that it was made from.

    ``texts``: the drafts of its edits, in order.
    """

    patch: NewPatch
    texts: tuple[NewText, ...]
    change: Changeset


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A patch read from a copy of the series and placed. ``same``: how its result equals the change."""

    rendering: Rendering
    placed: PlacedPatch
    guard: Guard | None
    same: str

    @property
    def patch(self) -> Patch:
        """The patch."""
        return self.rendering.patch


@dataclass(frozen=True, slots=True, kw_only=True)
class OnNewest:
    """Result of placing new patches with the whole series on the newest cached pin.

    ``missing``: ids of patches that could not be placed.
    """

    summary: str
    errors: tuple[PatchkitError, ...] = ()
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A copy of the series to try patches on. ``every``: all profiles, as they were before."""

    series: SeriesDir
    workspace: Workspace
    cache: Cache
    repository: Repository
    every: tuple[ArchProfile, ...]

    def put(self, writing: Writing) -> Patch:
        """Write a patch into the copy, and read it back."""
        folder = writing.put(self.series)
        number = int(folder.name.partition("-")[0])
        return parse_patch(load_toml(folder / "patch.toml"), folder=folder.name, number=number)

    def place(self, selected: Selected, files: UpstreamFiles) -> PlacedPatch:
        """Place a patch of the copy on files; raises one ErrorGroup with every reason why it does not fit."""
        return place_patch(selected, files, self.series.patches, self.series.templates)

    def try_on(
        self, files: UpstreamFiles, patch: Patch, drafted: Drafted, below: Guarded | None = None
    ) -> Trial:
        """Place a patch of the copy on files, and compare the result with its change.

        ``below``: the guarded code of earlier patches. Raises what placing raises, and EDITS_DIFFER.
        """
        archs = drafted.patch.archs or ()
        targets = tuple(each for each in self.every if each.arch in archs)
        selected = Selected(patch=patch, targets=targets or _one(self.every), reason="")
        placed = self.place(selected, files)
        guard = make_guard(patch.guard, targets) if targets else None
        same = _compare(placed, drafted, guard, below or Guarded())
        before = files_before(patch, files)
        rendering = Rendering(selected=selected, upstream=files.fresh(), before=before, placed=placed)
        return Trial(rendering=rendering, placed=placed, guard=guard, same=same)

    def look_at_newest(self, patches: Sequence[NewPatch]) -> OnNewest:
        """Place the patches with the whole series on the newest cached pin."""
        lock = load_lock(self.series.lock)
        cached = [pin for pin in lock.pins if find_pinned(self.repository, pin) is not None]
        if not cached:
            return OnNewest(summary="no pin is cached")
        newest = max(cached, key=lambda pin: pin.build)
        first = max(patch.first_build for patch in patches)
        if newest.build < first:
            return OnNewest(summary=f"{newest.name} is older than {build_name(first)}")
        ids = [patch.id for patch in patches]
        archs = tuple(dict.fromkeys(arch for patch in patches for arch in patch.archs or ()))
        request = Request(
            archs=archs or tuple(each.arch for each in _one(self.every)),
            upstream=newest.name,
            with_=tuple(ids),
        )
        plan = make_plan(request, self.workspace, self.cache, lock)
        mine = [each for each in plan.patches if each.id in ids]
        places = sum(len(edit.locations) for each in mine for edit in each.edits)
        found = "cannot be placed" if plan.errors else f"placed at {counted(places, 'place')}"
        return OnNewest(
            summary=f"{newest.name}: {found}",
            errors=plan.errors,
            missing=tuple(each.id for each in mine if each.placed is None),
        )


@contextmanager
def open_stage(workspace: Workspace, cache: Cache, repository: Repository) -> Iterator[Stage]:
    """A stage that exists while the context lasts. Errors raised in it name the files of the real series."""
    with copied_series(workspace.series, cache, "import-", "copying the series") as stage:
        yield Stage(
            series=stage,
            workspace=replace(workspace, series=stage),
            cache=cache,
            repository=repository,
            every=load_profiles(stage.profiles, list_profiles(stage.profiles)),
        )


def _one(every: Sequence[ArchProfile]) -> tuple[ArchProfile, ...]:
    """A GPU to parse a plain patch for; NO_GPU in a plain series."""
    return tuple(each for each in every if each.arch == "gfx1151")[:1] or tuple(every[:1]) or (NO_GPU,)


@dataclass(slots=True)
class Guarded:
    """Guards that earlier patches of a queue added to the files, to be ignored when comparing a later patch.

    ``conditions``: the conditions of their ``#if`` lines, by file. ``checked``: each text with a GPU check,
    as file, text, and the text without the check.
    """

    conditions: dict[str, set[str]] = field(default_factory=dict)
    checked: list[tuple[str, str, bytes]] = field(default_factory=list)

    def add(self, placed: PlacedPatch, texts: Sequence[NewText], guard: Guard) -> None:
        """Add one more patch."""
        for path in placed.changes:
            self.conditions.setdefault(path, set()).update((guard.device, guard.region))
        self.checked += _checked_texts(placed, texts)


def _checked_texts(placed: PlacedPatch, texts: Sequence[NewText]) -> list[tuple[str, str, bytes]]:
    return [
        (edit.file, edit.text, each.plain)
        for edit, each in zip(placed.edits, texts, strict=True)
        if each.checks_gpu
    ]


def _compare(placed: PlacedPatch, drafted: Drafted, guard: Guard | None, below: Guarded) -> str:
    """How the result equals the change, as text; raises EDITS_DIFFER if it does not."""
    files = drafted.change.files
    require_files(placed, files)
    expected = expected_files(files)
    checked = [*below.checked, *_checked_texts(placed, drafted.texts)]
    own = {guard.device, guard.region} if guard is not None else set()
    code: dict[str, bytes | None] = {}
    for path, data in expected.items():
        result = placed.changes.get(path)
        conditions = own | below.conditions.get(path, set())
        if result is None or data is None or not conditions:
            code[path] = data
        else:
            is_same = _same_for_gpu(path, result, data, frozenset(conditions), checked)
            code[path] = result if is_same else data
    require_same(placed.changes, code, "the change")
    if guard is None:
        return "byte for byte"
    same = f"token for token, for {' '.join(each.arch for each in guard.targets)}"
    return same + ("; host code checks the GPU at run time" if checked else "")


def require_same(result: Mapping[str, bytes], wanted: Mapping[str, bytes | None], name: str) -> None:
    """Raise EDITS_DIFFER if the files that edits give are not exactly those of a change."""
    wrong = sorted(path for path in {*result, *wanted} if result.get(path) != wanted.get(path))
    if wrong:
        raise AnchorError(
            f"the generated edits do not give the same result as {name} in {', '.join(wrong)}",
            code="EDITS_DIFFER",
            where=[Location(path=path) for path in wrong],
            why="the whitespace does not fit the layout of the file, or a guard cannot separate the code",
            hint="write the edits by hand (docs/guide/patch.md), or import the change in smaller parts",
        )


def _same_for_gpu(
    path: str,
    result: bytes,
    expected: bytes,
    conditions: frozenset[str],
    checked: Sequence[tuple[str, str, bytes]],
) -> bool:
    """Whether a guarded file has the tokens of the diff on its GPUs, where its GPU checks are true."""
    if not is_code(path):
        return result == expected
    view = _texts(path, bare(path, result, conditions))
    for _, text, plain in (each for each in checked if each[0] == path):
        ours, theirs = _texts("<text>", text.encode()), _texts("<text>", plain)
        at = next((at for at in range(len(view)) if view[at : at + len(ours)] == ours), None)
        if at is None:
            return False
        view[at : at + len(ours)] = theirs
    return view == _texts(path, expected)


def _texts(path: str, data: bytes) -> list[bytes]:
    return parse_scopes(SourceText(path, data)).texts_in(Span(0, len(data)))
