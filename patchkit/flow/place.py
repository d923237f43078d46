"""Placing one patch: render, anchor, guard, apply, confirm. Memory only; nothing is written.

Vocabulary: a *placed* patch is the new bytes of each file it touches, with the evidence of each edit
and the digests the lock records. Every edit that fails is reported, not only the first.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.anchors.resolve import Anchor, resolve_anchor
from patchkit.config.manifest import Edit, Patch
from patchkit.cxx.scopes import ScopeMap
from patchkit.edits.confirm import EditUnparsable, Evidence, confirm_entities, confirm_passes
from patchkit.edits.expand import expand_alias, expand_edit
from patchkit.edits.guard import Guard
from patchkit.edits.isolation import GuardLeak, require_isolated
from patchkit.edits.model import Applied, Placement, apply_placements
from patchkit.errors import AnchorError, ErrorGroup, Location, PatchkitError
from patchkit.flow.context import make_context, make_guard
from patchkit.flow.newfile import check_new_files, check_place, with_line
from patchkit.flow.selection import Selected
from patchkit.flow.upstream import UpstreamFiles
from patchkit.render.renderer import PatchRenderer
from patchkit.source import SourceText, Span


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedEdit:
    """Where one edit went. ``locations`` are in the file before this patch; ``digest`` is the entity's."""

    id: str
    file: str
    entity: str
    verb: str
    side: str
    locations: tuple[Location, ...]
    digest: str
    evidence: Evidence
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPatch:
    """``changes``: path to new bytes. ``rendered``: sha256 of texts by edit id or path of a new file."""

    changes: Mapping[str, bytes]
    edits: tuple[PlacedEdit, ...]
    new_files: tuple[str, ...]
    rendered: Mapping[str, str]
    entities: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """What all steps of one patch need."""

    patch: Patch
    guard: Guard
    archs: tuple[str, ...]
    renderer: PatchRenderer
    files: UpstreamFiles


def place_patch(selected: Selected, files: UpstreamFiles, patches: Path, templates: Path) -> PlacedPatch:
    """Place one patch on the current state of ``files``.

    Raises one ErrorGroup with every AnchorError and RenderError of the patch.
    """
    patch = selected.patch
    guard = make_guard(patch.guard_macros, selected.targets)
    context = make_context(guard, selected.targets, patch.context)
    renderer = PatchRenderer(patch, patches / patch.folder, templates, context)
    archs = tuple(target.arch for target in guard.targets)
    job = _Job(patch=patch, guard=guard, archs=archs, renderer=renderer, files=files)
    errors: list[PatchkitError] = []
    renderer.check_context()
    added = _new_files(job, errors)
    by_file: dict[str, list[Edit]] = {}
    for edit in patch.edits:
        by_file.setdefault(edit.file, []).append(edit)
    changes, placed = dict(added), []
    for path, edits in by_file.items():
        try:
            after, done = _place_file(job, path, edits, added)
        except ErrorGroup as group:
            errors.extend(group.errors)
            continue
        changes[path] = after
        placed += done
    if errors:
        raise ErrorGroup(f"patch '{patch.id}' cannot be placed", errors)
    order = {edit.id: rank for rank, edit in enumerate(patch.edits)}
    placed.sort(key=lambda edit: order[edit.id])
    rendered = {edit.id: _sha256(edit.text.encode()) for edit in placed}
    rendered |= {path: _sha256(data) for path, data in added.items()}
    entities = {f"{edit.file}::{edit.entity}": edit.digest for edit in placed if edit.digest}
    return PlacedPatch(
        changes=changes, edits=tuple(placed), new_files=tuple(added), rendered=rendered, entities=entities
    )


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _new_files(job: _Job, errors: list[PatchkitError]) -> dict[str, bytes]:
    added: dict[str, bytes] = {}
    for file in job.patch.files:
        blocked = check_place(file, [*job.files.names, *added])
        if blocked is not None:
            errors.append(blocked)
            continue
        try:
            added[file.path] = job.renderer.file(file.template, file.where).encode()
        except PatchkitError as exc:
            errors.append(exc)
    errors.extend(check_new_files(job.patch.files, added, job.files, job.archs, job.guard.macros))
    return added


def _place_file(
    job: _Job, path: str, edits: Sequence[Edit], added: Mapping[str, bytes]
) -> tuple[bytes, list[PlacedEdit]]:
    data = job.files.read(path)
    if data is None:
        raise ErrorGroup("", [_file_missing(job, path, edits)])
    before = job.files.scopes(SourceText(path, data))
    anchored, placements = _anchor_all(job, before, edits)
    applied = None
    try:
        applied = apply_placements(before.source, placements)
        after = job.files.scopes(applied.after)
        pairs = [(anchor, _spans_after(applied, anchor.edit)) for anchor, _ in anchored]
        aliases = {alias.name: alias.upstream for alias in job.patch.aliases}
        require_isolated(before, after, job.guard, aliases, edits[0].where)
        confirm_entities(before, after, applied, pairs)
        trees = job.files.trees([before.source, applied.after], job.archs, job.guard.macros, added)
        evidence = confirm_passes(after, pairs, trees[0], trees[1])
    except PatchkitError as exc:
        if applied is not None and isinstance(exc, EditUnparsable | GuardLeak):
            # The line exists in memory only, and plan shows no text of a patch that failed.
            exc.where = (with_line(applied.after, exc.where[0]), *exc.where[1:])
            exc.hint = "correct the text in patch.toml, or its template"
        raise ErrorGroup("", [exc]) from exc
    done = [
        _placed(before, anchor, text, seen) for (anchor, text), seen in zip(anchored, evidence, strict=True)
    ]
    return applied.after.data, done


def _anchor_all(
    job: _Job, scopes: ScopeMap, edits: Sequence[Edit]
) -> tuple[list[tuple[Anchor, str]], list[Placement]]:
    """Every edit of one file, anchored, rendered and expanded; raises an ErrorGroup of all that failed."""
    anchored: list[tuple[Anchor, str]] = []
    placements: list[Placement] = []
    errors: list[PatchkitError] = []
    for alias in job.patch.aliases:
        if alias.file == scopes.source.path:
            try:
                device = job.renderer.text(alias.device, alias.where)
                placements.append(expand_alias(scopes, alias, job.guard, device))
            except PatchkitError as exc:
                errors.append(exc)
    for edit in edits:
        try:
            anchor = resolve_anchor(scopes, edit)
            text = _text(job, edit)
            placements += expand_edit(scopes, anchor, job.guard, text)
            anchored.append((anchor, text or edit.alias or edit.header or ""))
        except PatchkitError as exc:
            errors.append(exc)
    if errors:
        raise ErrorGroup("", errors)
    return anchored, placements


def _text(job: _Job, edit: Edit) -> str | None:
    if edit.text is not None:
        return job.renderer.text(edit.text, edit.where)
    if edit.template is not None:
        return job.renderer.file(edit.template, edit.where)
    return None


def _spans_after(applied: Applied, edit: Edit) -> list[Span]:
    return [
        span
        for placement, span in zip(applied.placements, applied.spans, strict=True)
        if placement.edit == edit.id
    ]


def _placed(scopes: ScopeMap, anchor: Anchor, text: str, evidence: Evidence) -> PlacedEdit:
    edit = anchor.edit
    return PlacedEdit(
        id=edit.id,
        file=edit.file,
        entity=anchor.entity_name,
        verb=edit.verb,
        side=edit.side,
        locations=tuple(scopes.source.locate(span.start) for span in anchor.spans)
        or (Location(path=edit.file),),
        digest=anchor.digest,
        evidence=evidence,
        text=text,
    )


def _file_missing(job: _Job, path: str, edits: Sequence[Edit]) -> AnchorError:
    close = difflib.get_close_matches(path, job.files.paths, n=3)
    return AnchorError(
        f"upstream has no {path}",
        code="UPSTREAM_FILE_MISSING",
        where=[edits[0].where, *(Location(path=name, label="a similar name") for name in close)],
        why="upstream moved or removed it, or this pin is of another era",
        hint="correct 'file', or the patch's build range",
    )
