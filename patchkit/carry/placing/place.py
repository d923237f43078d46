"""Place one patch in memory: render, anchor, guard, apply and confirm its edits."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import ClassVar, Literal

from patchkit.base.digests import sha256
from patchkit.base.errors import AnchorError, ErrorGroup, Location, PatchkitError, RenderError
from patchkit.base.source import SourceText, Span
from patchkit.carry.cpp.ast import Pass, Tree, is_cpp, parser_digest
from patchkit.carry.cpp.directives import find_unbalanced
from patchkit.carry.cpp.doubt import Names, find_doubt, find_misspelt
from patchkit.carry.cpp.scopes import ScopeMap, is_code, parse_scopes
from patchkit.carry.placing.confirm import (
    EditUnparsable,
    confirm_entities,
    confirm_passes,
    doubtful_message,
    judge_new_issues,
)
from patchkit.carry.placing.context import make_context, make_guard
from patchkit.carry.placing.expand import (
    Applied,
    Placement,
    apply_placements,
    expand_alias,
    expand_edit,
    expand_switch_include,
)
from patchkit.carry.placing.files import change_files
from patchkit.carry.placing.guard import Guard, GuardLeak, require_isolated
from patchkit.carry.placing.plain import confirm_plain, expand_plain, is_blank
from patchkit.carry.placing.resolve import Anchor, resolve_anchor
from patchkit.carry.placing.templates import PatchRenderer
from patchkit.carry.placing.tree import Confirmation, UpstreamFiles
from patchkit.carry.series.patch import Edit, Patch
from patchkit.carry.series.selection import Selected


def check_new_files(
    job: _Job, added: Mapping[str, bytes], around: Mapping[str, bytes], warnings: list[str]
) -> Iterator[PatchkitError]:
    """The first fault of each file in ``added``; they may include each other and the files in ``around``.

    A possible fault that cannot be confirmed is a warning in a plain patch, and an error in any other.
    """
    is_plain = job.patch.is_plain
    sources = [
        SourceText(path, data) for path, data in added.items() if (is_cpp if is_plain else is_code)(path)
    ]
    if is_plain:
        trees = job.files.plain_trees(sources, job.archs, around)
    else:
        trees = job.files.trees(sources, job.archs, job.guard.macros, around)
    where = {file.path: file.where for file in job.patch.files}
    for source, passes in zip(sources, trees, strict=True):
        scopes = parse_scopes(source)
        stray = find_unbalanced(scopes.directives)
        if stray is not None:
            yield RenderError(
                f"{source.path}: #{stray.keyword.decode('utf-8', 'replace')} has no partner in the file",
                code="NEW_FILE_BAD",
                where=[with_line(source, source.locate(stray.span.start)), where[source.path]],
                why="it would change which parts of the including file are compiled",
            )
            continue
        fault = _first_fault(scopes, passes, where[source.path], warnings if is_plain else None)
        if fault is not None:
            yield fault


def _first_fault(
    scopes: ScopeMap,
    passes: Mapping[tuple[Pass, str], Tree],
    file: Location,
    warnings: list[str] | None,
) -> PatchkitError | None:
    source = scopes.source
    for key, tree in passes.items():
        for issue in tree.issues:
            doubt = find_doubt(scopes, issue.offset, Names(tree))
            place = source.locate(issue.offset)
            if doubt is not None and warnings is not None:
                warning = f"{place}: {doubtful_message(issue, doubt)}"
                warnings += [warning] if warning not in warnings else []
                continue
            kind = "syntax error" if doubt is None else "possible syntax error"
            which = key[0] if warnings is not None else " ".join(key)
            return RenderError(
                f"{kind} in the {which} pass of new file {source.path}: {issue.message}",
                code="NEW_FILE_BAD",
                where=[with_line(source, place), file],
                why="a new file must parse on its own, so it has to include what it uses"
                + (f"; no parsed file declares '{doubt}'" if doubt is not None else ""),
            )
    return None


def with_line(source: SourceText, place: Location) -> Location:
    """The place with the text of its line, because the file was never written and cannot be opened."""
    if place.line is None:
        return place
    text = source.text(source.line_span(place.line)).decode("utf-8", "replace").strip()
    return replace(place, label=text or "(an empty line)")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedEdit:
    """The place of one edit. ``locations`` are in the file before this patch.

    ``entity_digest`` is that of the entity before the edit. ``seen_in`` are the passes (``device gfx1151``)
    whose AST has the edit in its entity; it is empty for macros and the file as a whole, which are located by
    tokens only. ``at`` is the selector that matched and ``parameters`` the pattern that distinguishes
    overloads, both as in patch.toml, at line ``where``.
    """

    json_keys: ClassVar = (
        "id file entity verb side locations text entity_digest at parameters where confidence seen_in"
    )

    id: str
    file: str
    entity: str
    verb: str
    side: str
    locations: tuple[Location, ...]
    text: str
    entity_digest: str
    seen_in: tuple[str, ...]
    at: str | None
    parameters: str | None
    where: Location

    @property
    def confidence(self) -> Literal["ast", "tokens"]:
        """What the location is confirmed by, the AST or only the tokens."""
        return "ast" if self.seen_in else "tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPatch:
    """The result of placing a patch. ``changes`` maps paths to new bytes.

    ``rendered``: sha256 of texts by edit id or path of a new file. ``gone`` are paths that no longer exist,
    ``renamed`` maps each new path to its old one, ``replaced`` are files whose whole content is replaced,
    ``modes`` the modes to set. ``warnings``: possible syntax errors of a plain patch, whose cause may be a
    name that is not declared in the parsed files.
    """

    changes: Mapping[str, bytes]
    edits: tuple[PlacedEdit, ...]
    new_files: tuple[str, ...]
    rendered: Mapping[str, str]
    entities: Mapping[str, str]
    warnings: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
    replaced: tuple[str, ...] = ()
    modes: Mapping[str, str] = field(default_factory=dict)

    @property
    def removed(self) -> list[str]:
        """The paths that no longer exist, except those of renamed files."""
        return [path for path in self.gone if path not in self.renamed.values()]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """The inputs that all steps of placing one patch share.

    ``header``: path of the file that declares the patch's run-time switch; None if it has none.
    """

    patch: Patch
    guard: Guard
    archs: tuple[str, ...]
    renderer: PatchRenderer
    files: UpstreamFiles
    header: str | None = None


def _make_job(selected: Selected, files: UpstreamFiles, patches: Path, templates: Path) -> _Job:
    patch, switches = selected.patch, selected.switches
    switch = switches.of(patch.id) if switches is not None else None
    guard = make_guard(patch.guard, selected.targets)
    if switch is not None:
        guard = replace(guard, switch=switch.name)
    context = make_context(guard, selected.targets, patch.context, switch=switch, switches=switches)
    renderer = PatchRenderer(patch, patches / patch.folder, templates, context)
    archs = tuple(target.arch for target in guard.targets)
    header = switches.header if switches is not None and switch is not None else None
    return _Job(patch=patch, guard=guard, archs=archs, renderer=renderer, files=files, header=header)


def render_edits(selected: Selected, files: UpstreamFiles, patches: Path, templates: Path) -> dict[str, str]:
    """The text of each edit that has one, by id, without looking for its place. Raises RenderError."""
    job = _make_job(selected, files, patches, templates)
    texts = ((edit.id, _text(job, edit)) for edit in selected.patch.edits)
    return {name: text for name, text in texts if text is not None}


def place_patch(
    selected: Selected,
    files: UpstreamFiles,
    patches: Path,
    templates: Path,
    *,
    by_clang: bool = True,
    is_known: IsKnown | None = None,
) -> PlacedPatch:
    """Place one patch on the current state of ``files``.

    ``by_clang``: whether to parse the result with clang too. Without it, the places and the new content are
    the same, and only tokens confirm them. A plain patch is not parsed if clang has accepted the same change
    of the same files before, or if ``is_known`` returns True for the edits of each file.

    Raises one ErrorGroup with every AnchorError and RenderError of the patch.
    """
    job = _make_job(selected, files, patches, templates)
    patch, renderer = job.patch, job.renderer
    errors: list[PatchkitError] = []
    warnings: list[str] = []
    renderer.check_context()
    whole = change_files(patch, files, patches / patch.folder, renderer.file, errors)
    added = whole.added
    by_file: dict[str, list[Edit]] = {}
    for edit in patch.edits:
        by_file.setdefault(edit.file, []).append(edit)
    changes, placed = {**added, **whole.replaced}, []
    new_paths = {old: new for new, old in whole.renamed.items()}
    missing: list[str] = []
    edited, faults = _edit_files(job, by_file, missing)
    written = {each.after.source.path: each.after.source.data for each in edited}
    # A new file, and the edits of a plain patch, may use declarations that other files only have with the
    # patch. Guarded edits are next to upstream's code, which has to parse without them too.
    around = {**added, **written}
    # A blob may be binary, whatever its name.
    new = {path: data for path, data in added.items() if b"\0" not in data}
    doubts = [*missing, *(doubt for each in edited for doubt in each.doubts)] if by_clang else []
    confirmation = _confirmation(job, edited, added) if by_clang and patch.is_plain else Confirmation()
    parses = by_clang and not confirmation.exists
    by_clang = parses and not _are_known(job, edited, added, is_known)
    if by_clang:
        errors.extend(check_new_files(job, new, around, warnings))
    errors.extend(faults)
    for each in edited:
        try:
            if by_clang:
                placed += _confirm_file(job, each, added, around if patch.is_plain else added, warnings)
            else:
                placed += [_placed(each.before, *anchored, ()) for anchored in each.anchored]
        except PatchkitError as error:
            errors.append(error)
            continue
        path = each.after.source.path
        changes[new_paths.get(path, path)] = each.after.source.data
    for path in {**whole.renamed, **whole.modes}:
        if path not in changes and (data := files.read(whole.renamed.get(path, path))) is not None:
            changes[path] = data
    if errors:
        raise ErrorGroup(f"patch '{patch.id}' cannot be placed", errors)
    if parses and not warnings:
        confirmation.record()
    order = {edit.id: rank for rank, edit in enumerate(patch.edits)}
    placed.sort(key=lambda edit: order[edit.id])
    rendered = {edit.id: sha256(edit.text) for edit in placed}
    rendered |= {path: sha256(data) for path, data in {**added, **whole.replaced}.items()}
    entities = {f"{edit.file}::{edit.entity}": edit.entity_digest for edit in placed if edit.entity_digest}
    return PlacedPatch(
        changes=changes,
        edits=tuple(placed),
        new_files=tuple(added),
        rendered=rendered,
        entities=entities,
        warnings=(*doubts, *warnings),
        gone=tuple(sorted(whole.gone)),
        renamed=whole.renamed,
        replaced=tuple(whole.replaced),
        modes=whole.modes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _EditedFile:
    """One file before and after the edits of a patch, confirmed by tokens."""

    before: ScopeMap
    after: ScopeMap
    anchored: Sequence[tuple[Anchor, str]]
    pairs: Sequence[tuple[Anchor, Sequence[Span]]]
    doubts: tuple[str, ...] = ()


IsKnown = Callable[[Sequence[PlacedEdit], ScopeMap, Sequence[Span]], bool]
"""Whether clang is known to accept the edits of one file: the edits, the file after them, their places."""


def _are_known(
    job: _Job, edited: Sequence[_EditedFile], added: Mapping[str, bytes], is_known: IsKnown | None
) -> bool:
    """Whether clang is known to accept all edits: a macro of one file may be used in another one."""
    if is_known is None or not job.patch.is_plain or added:
        return False
    files = [each for each in edited if is_code(each.after.source.path)]
    return all(is_cpp(each.after.source.path) and _is_known(each, is_known) for each in files)


def _is_known(edited: _EditedFile, is_known: IsKnown) -> bool:
    placed = [_placed(edited.before, *anchored, ()) for anchored in edited.anchored]
    spans = [span for _, several in edited.pairs for span in several]
    if not is_known(placed, edited.after, spans):
        return False
    return next(find_misspelt(edited.after, {token.text for token in edited.before.code}), None) is None


def _confirmation(job: _Job, edited: Sequence[_EditedFile], added: Mapping[str, bytes]) -> Confirmation:
    """The record that clang has accepted these edits: everything that the check by clang depends on."""
    parts: list[str | bytes] = [_own_digest(), *job.archs[:1]]
    for each in edited:
        parts += [each.after.source.path, each.after.source.data]
        parts += [f"{span.start} {span.end}" for _, spans in each.pairs for span in spans]
    for path, data in sorted(added.items()):
        parts += [path, data]
    return job.files.confirmation(parts)


@cache
def _own_digest() -> bytes:
    """Digest of the code that decides whether clang accepts edits."""
    carry = resources.files("patchkit.carry")
    names = ("cpp/doubt.py", "cpp/lexer.py", "cpp/scopes.py", "placing/confirm.py", "placing/place.py")
    code = b"".join(hashlib.sha256(carry.joinpath(name).read_bytes()).digest() for name in names)
    return parser_digest() + code


def _edit_files(
    job: _Job, by_file: Mapping[str, Sequence[Edit]], skipped: list[str]
) -> tuple[list[_EditedFile], list[PatchkitError]]:
    """Every file with its edits applied, and the errors of those that could not be edited.

    ``skipped`` gets a line for each optional edit of a file that upstream does not have.
    """
    found: list[_EditedFile] = []
    errors: list[PatchkitError] = []
    for path, edits in by_file.items():
        if job.files.read(path) is None and all(edit.optional for edit in edits):
            skipped += [_skipped(edit, _file_missing(job, path, edits)) for edit in edits]
            continue
        try:
            found.append(_edit_file(job, path, edits))
        except ErrorGroup as group:
            errors.extend(group.errors)
        except PatchkitError as error:
            errors.append(error)
    return found, errors


def _edit_file(job: _Job, path: str, edits: Sequence[Edit]) -> _EditedFile:
    data = job.files.read(path)
    if data is None:
        raise _file_missing(job, path, edits)
    before = parse_scopes(SourceText(path, data))
    anchored, placements, skipped = _anchor_all(job, before, edits)
    applied = apply_placements(before.source, placements)
    after = parse_scopes(applied.after)
    pairs = [(anchor, _spans_after(applied, anchor.edit)) for anchor, _ in anchored]
    doubts: tuple[str, ...] = ()
    if job.patch.is_plain:
        doubts = (*skipped, *confirm_plain(before, after, applied, pairs))
    else:
        aliases = {alias.name: alias.upstream for alias in job.patch.aliases}
        try:
            require_isolated(before, after, job.guard, aliases, edits[0].where)
        except GuardLeak as error:
            raise _shown(error, applied.after) from error
        confirm_entities(before, after, applied, pairs)
    return _EditedFile(before=before, after=after, anchored=anchored, pairs=pairs, doubts=doubts)


def _shown(error: PatchkitError, after: SourceText) -> PatchkitError:
    """The error with the text of its line, which is in memory only: plan shows no failed patch."""
    error.where = (with_line(after, error.where[0]), *error.where[1:])
    error.hint = "correct the text in patch.toml or in its template"
    return error


def _confirm_file(
    job: _Job,
    edited: _EditedFile,
    added: Mapping[str, bytes],
    around: Mapping[str, bytes],
    warnings: list[str],
) -> list[PlacedEdit]:
    """The edits of one file, confirmed by clang; ``added`` and ``around`` are files for its includes."""
    try:
        seen = _confirm_by_clang(job, edited, added, around, warnings)
    except EditUnparsable as error:
        raise _shown(error, edited.after.source) from error
    return [_placed(edited.before, *each, passes) for each, passes in zip(edited.anchored, seen, strict=True)]


def _confirm_by_clang(
    job: _Job,
    edited: _EditedFile,
    added: Mapping[str, bytes],
    around: Mapping[str, bytes],
    warnings: list[str],
) -> tuple[tuple[str, ...], ...]:
    """As :func:`confirm_passes`; for a plain patch only new syntax errors count.

    If the text after the edits has no syntax error, none is new and the text before need not be parsed. For
    edits that only add an include of the patch's header, nothing else is parsed: the effect of that header
    shows without upstream's headers too. (With them each pass of a matmul unit takes half a second, and there
    are six, build 11549.)
    """
    before, after, pairs = edited.before, edited.after, edited.pairs
    alone = all(anchor.edit.verb == "add_include" for anchor, _ in pairs)
    warnings += _misspelt(job, before, after, around)
    (new,) = _trees(job, after.source, around, alone=alone)
    old = new
    if any(tree.issues for tree in new.values()):
        (old,) = _trees(job, before.source, added, with_names=True, alone=alone)
    if not job.patch.is_plain:
        return confirm_passes(after, pairs, old, new)
    warnings += judge_new_issues(before, after, pairs, old, new)
    return tuple(() for _ in pairs)


def _trees(
    job: _Job,
    source: SourceText,
    added: Mapping[str, bytes],
    *,
    with_names: bool = False,
    alone: bool = False,
) -> list[dict[tuple[Pass, str], Tree]]:
    if not job.patch.is_plain:
        files = job.files.without_any() if alone else job.files
        return files.trees([source], job.archs, job.guard.macros, added, with_names=with_names)
    if not is_cpp(source.path):
        return [{}]
    return job.files.plain_trees([source], job.archs, added, with_names=with_names)


def _misspelt(job: _Job, before: ScopeMap, after: ScopeMap, added: Mapping[str, bytes]) -> Iterator[str]:
    """Warnings for undeclared names in the edits that resemble a keyword."""
    found = list(find_misspelt(after, {token.text for token in before.code}))
    if not found or not is_cpp(after.source.path):
        return
    (trees,) = _trees(job, after.source, added, with_names=True)
    for token, keyword in found:
        if any(Names(tree).is_unknown(token.text) for tree in trees.values()):
            name, place = token.text.decode(), after.source.locate(token.start)
            yield f"{place}: no parsed file declares '{name}'; did you mean '{keyword}'?"


def _anchor_all(
    job: _Job, scopes: ScopeMap, edits: Sequence[Edit]
) -> tuple[list[tuple[Anchor, str]], list[Placement], tuple[str, ...]]:
    """Anchor, render and expand all edits of one file; raises an ErrorGroup of all that failed.

    An edit of a plain patch that only concerns empty lines, or is optional, cannot fail: it is skipped, with
    a warning.
    """
    skipped: list[str] = []
    anchored: list[tuple[Anchor, str]] = []
    errors: list[PatchkitError] = []
    placements = _expand_aliases(job, scopes, errors)
    for edit in edits:
        text = None
        try:
            text = _text(job, edit)
            anchor = resolve_anchor(scopes, edit)
            if job.patch.is_plain:
                placements += expand_plain(scopes.source, anchor, text)
            else:
                placements += expand_edit(scopes, anchor, job.guard, text)
            anchored.append((anchor, text or edit.alias or edit.header or ""))
        except PatchkitError as exc:
            if job.patch.is_plain and is_blank(edit, text):
                skipped.append(f"{edit.file}: edit '{edit.id}' changes only empty lines and was skipped")
            elif edit.optional:
                skipped.append(_skipped(edit, exc))
            else:
                errors.append(exc)
    if errors:
        raise ErrorGroup("", errors)
    if job.header is not None and any(edit.verb != "add_include" for edit in edits):
        placements += expand_switch_include(scopes, job.header, job.guard, edits[0].where)
    return anchored, placements, tuple(skipped)


def _expand_aliases(job: _Job, scopes: ScopeMap, errors: list[PatchkitError]) -> list[Placement]:
    """The placements of the patch's aliases in one file; ``errors`` gets those of the others."""
    placements: list[Placement] = []
    for alias in job.patch.aliases:
        if alias.file == scopes.source.path:
            try:
                device = job.renderer.text(alias.device, alias.where)
                placements.append(expand_alias(scopes, alias, job.guard, device))
            except PatchkitError as exc:
                errors.append(exc)
    return placements


def _skipped(edit: Edit, error: PatchkitError) -> str:
    return f"{edit.file}: optional edit '{edit.id}' was skipped: {error.message}"


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


def _placed(scopes: ScopeMap, anchor: Anchor, text: str, seen_in: tuple[str, ...]) -> PlacedEdit:
    edit = anchor.edit
    return PlacedEdit(
        id=edit.id,
        file=edit.file,
        entity=anchor.entity_name,
        verb=edit.verb,
        side=edit.side or "every backend",
        locations=tuple(scopes.source.locate(span.start) for span in anchor.spans)
        or (Location(path=edit.file),),
        text=text,
        entity_digest=anchor.digest,
        seen_in=seen_in,
        at=None if edit.at is None else str(edit.at),
        parameters=edit.parameters,
        where=edit.where,
    )


def _file_missing(job: _Job, path: str, edits: Sequence[Edit]) -> AnchorError:
    close = difflib.get_close_matches(path, job.files.paths, n=3)
    return AnchorError(
        f"upstream has no {path}",
        code="UPSTREAM_FILE_MISSING",
        where=[edits[0].where, *(Location(path=name, label="a similar name") for name in close)],
        why="upstream moved or removed it, or the patch is not for this build",
        hint="correct 'file', or the build range of the patch",
    )
