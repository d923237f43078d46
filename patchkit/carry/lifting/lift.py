"""From a changeset to edits: a text that changes becomes drafts, by lines or, behind a guard, by tokens."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from patchkit.base.errors import AnchorError, ErrorGroup, Location, PatchkitError
from patchkit.base.reporter import Reporter
from patchkit.base.source import SourceText
from patchkit.carry.cpp.scopes import is_code
from patchkit.carry.lifting.change import Changeset
from patchkit.carry.lifting.draft import Draft, NotLifted, named_place
from patchkit.carry.lifting.guarded import NewText, escape_template, guard_draft
from patchkit.carry.lifting.lines import lift_lines
from patchkit.carry.lifting.tokens import lift_tokens
from patchkit.carry.lifting.whole import edited_texts, new_texts, refuse_guarded, whole_files
from patchkit.carry.lifting.write import Body, NewEdit


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifted:
    """What comes of a changeset; ``texts`` are what the edits of ``body`` are made from, in their order."""

    texts: tuple[NewText, ...]
    body: Body


def lift(
    change: Changeset,
    elsewhere: Callable[[str], Iterable[bytes]],
    reporter: Reporter,
    *,
    is_guarded: bool,
) -> Lifted:
    """The edits of a changeset, the templates of its new files, and what becomes of whole files.

    ``elsewhere`` gives a file as other upstreams have it: no edit of a guarded patch may fit there twice.

    Raises one ErrorGroup of IMPORT_NOT_LIFTED for all that a person has to write; IMPORT_UNSUPPORTED: a
    guard cannot be about whole files.
    """
    texts: list[NewText] = []
    errors: list[PatchkitError] = []
    if is_guarded:
        refuse_guarded(change.files, change.name)
    for path, before, after in edited_texts(change.files):
        reporter.step(f"reading {path}")
        try:
            if is_guarded and is_code(path):
                drafts = lift_tokens(path, before, after, list(elsewhere(path)))
            else:
                drafts = lift_lines(path, before, after)
        except NotLifted as error:
            errors.append(_not_lifted(str(error), is_guarded=False))
            continue
        for draft in drafts:
            try:
                texts += (
                    guard_draft(SourceText(path, before), draft) if is_guarded else [_for_everybody(draft)]
                )
            except NotLifted as error:
                errors.append(_not_lifted(str(error), is_guarded=is_guarded))
    if errors:
        raise errors[0] if len(errors) == 1 else ErrorGroup("a person has to write a part of this", errors)
    body = Body(
        edits=tuple(_named(texts)),
        files={path: escape_template(data.decode("utf-8")) for path, data in new_texts(change.files).items()},
        whole=whole_files(change.files),
    )
    return Lifted(texts=tuple(texts), body=body)


def _for_everybody(draft: Draft) -> NewText:
    rows = (draft.rows or b"").decode("utf-8").replace("\r\n", "\n")
    return NewText(draft=draft, side=None, text=escape_template(rows), plain=draft.text, verb=draft.verb)


def _not_lifted(why: str, *, is_guarded: bool) -> AnchorError:
    place, _, reason = why.partition(": ")
    path, _, line = place.partition(":")
    return AnchorError(
        f"{place} cannot become an edit: {reason}",
        code="IMPORT_NOT_LIFTED",
        where=Location(path=path, line=int(line) if line.isdigit() else None),
        hint="docs/guide/patch.md shows how to write it"
        + ("; or, for code that is for everybody: --guard none" if is_guarded else ""),
    )


def _named(texts: Sequence[NewText]) -> Iterator[NewEdit]:
    """Edits with ids made of what they are in: ``should-use-mmq``, ``should-use-mmq-2``."""
    taken: dict[str, int] = {}
    for each in texts:
        draft = each.draft
        word = named_place(draft.selector, draft.function) or draft.file.rpartition("/")[2]
        slug = re.sub(r"[^a-z0-9]+", "-", word.casefold()).strip("-") or "edit"
        taken[slug] = taken.get(slug, 0) + 1
        name = slug if taken[slug] == 1 else f"{slug}-{taken[slug]}"
        is_include = each.header is not None
        yield NewEdit(
            id=name,
            file=draft.file,
            function=draft.function,
            parameters=draft.parameters,
            selector=None if is_include else draft.selector,
            verb="add_include" if is_include else each.verb,
            side=each.side,
            text=None if is_include or each.verb == "remove" else each.text,
            header=each.header,
            note=f"{draft.reason}." if draft.reason else "",
        )
