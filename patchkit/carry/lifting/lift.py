"""Turn a changeset into edits: changed files become drafts, by lines or, in a guarded patch, by tokens."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from patchkit.base.errors import AnchorError, Location, PatchkitError, raise_all
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
    """A lifted changeset; ``texts`` are the drafts that the edits of ``body`` were made from, in order."""

    texts: tuple[NewText, ...]
    body: Body


def lift(
    change: Changeset,
    elsewhere: Callable[[str], Iterable[bytes]],
    reporter: Reporter,
    *,
    is_guarded: bool,
) -> Lifted:
    """The edits of a changeset, the templates of its new files, and its changes to whole files.

    ``elsewhere`` gives the versions of a file in other upstreams, in which no edit of a guarded patch may
    match twice.

    Raises IMPORT_NOT_LIFTED (one ErrorGroup) for everything that has to be written by hand;
    IMPORT_UNSUPPORTED if a guarded patch would change whole files.
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
                texts += guard_draft(SourceText(path, before), draft) if is_guarded else [_plain_text(draft)]
            except NotLifted as error:
                errors.append(_not_lifted(str(error), is_guarded=is_guarded))
    raise_all(errors, "parts of this change have to be written by hand")
    body = Body(
        edits=tuple(_named(texts)),
        files={path: escape_template(data.decode("utf-8")) for path, data in new_texts(change.files).items()},
        whole=whole_files(change.files),
    )
    return Lifted(texts=tuple(texts), body=body)


def _plain_text(draft: Draft) -> NewText:
    rows = (draft.rows or b"").decode("utf-8").replace("\r\n", "\n")
    return NewText(draft=draft, side=None, text=escape_template(rows), plain=draft.text, verb=draft.verb)


def _not_lifted(why: str, *, is_guarded: bool) -> AnchorError:
    place, _, reason = why.partition(": ")
    path, _, line = place.partition(":")
    return AnchorError(
        f"{place} cannot become an edit: {reason}",
        code="IMPORT_NOT_LIFTED",
        where=Location(path=path, line=int(line) if line.isdigit() else None),
        hint="docs/guide/patch.md shows how to write it by hand"
        + ("; if the code is for all GPUs, use --guard none" if is_guarded else ""),
    )


def _named(texts: Sequence[NewText]) -> Iterator[NewEdit]:
    """Edits with ids made from the definition that they are in: ``should-use-mmq``, ``should-use-mmq-2``."""
    used: dict[str, int] = {}
    for each in texts:
        draft = each.draft
        word = named_place(draft.selector, draft.function) or draft.file.rpartition("/")[2]
        slug = re.sub(r"[^a-z0-9]+", "-", word.casefold()).strip("-") or "edit"
        used[slug] = used.get(slug, 0) + 1
        name = slug if used[slug] == 1 else f"{slug}-{used[slug]}"
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
