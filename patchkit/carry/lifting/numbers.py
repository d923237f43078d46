"""Numbers in a patch's texts that the profiles have under a name: ``@{ values['mmq.columns'] }@``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from patchkit.base.errors import UsageError
from patchkit.carry.lifting.write import Body
from patchkit.carry.series.profile import ArchProfile

_LIFTED = re.compile(r"@\{ values\['([^']+)'\] \}@")


def lift_numbers(body: Body, lifts: Sequence[tuple[str, str]], profiles: Sequence[ArchProfile]) -> Body:
    """The body with each number, wherever it stands in a text, as the profile's value of that name.

    Raises LIFT_UNKNOWN: a profile has no such value, or another one; or no text has the number.
    """
    for number, name in lifts:
        row = f'[[tuning.value]]\nname = "{name}"\nvalue = {number}\nsource = "..."\nmeasured_on = "..."'
        for profile in profiles:
            known = {each.name: each.value for each in profile.tuning.value}
            if str(known.get(name)) != number:
                has = f"has {known[name]}" if name in known else "has no such value"
                raise UsageError(
                    f"--lift {number}={name}: the profile of {profile.arch} {has}",
                    code="LIFT_UNKNOWN",
                    where=profile.where,
                    hint=f"add to it:\n{row}",
                )
        pattern = re.compile(rf"(?<![\w.]){re.escape(number)}(?![\w.])")
        wanted = f"@{{ values['{name}'] }}@"  # no backslash: as a replacement it stands for itself
        edits = tuple(
            replace(edit, text=pattern.sub(wanted, edit.text)) if edit.text is not None else edit
            for edit in body.edits
        )
        files = {path: pattern.sub(wanted, text) for path, text in body.files.items()}
        if edits == body.edits and files == body.files:
            raise UsageError(
                f"--lift {number}={name}: no new text has the number {number}", code="LIFT_UNKNOWN"
            )
        body = replace(body, edits=edits, files=files)
    if lifts and not profiles:
        raise UsageError(
            "--lift needs a GPU: a plain patch is for all of them",
            code="LIFT_UNKNOWN",
            hint="--guard gfx1151, for example",
        )
    return body


def lift_again(
    body: Body, before: Iterable[str], profiles: Sequence[ArchProfile]
) -> tuple[Body, tuple[str, ...]]:
    """Numbers that the texts ``before`` had from a profile come from there again; a note for each lost."""
    names = dict.fromkeys(name for each in before for name in _LIFTED.findall(each))
    notes = []
    for name in names:
        known = {str(row.value) for each in profiles for row in each.tuning.value if row.name == name}
        try:
            for number in sorted(known)[:1]:
                body = lift_numbers(body, [(number, name)], profiles)
        except UsageError as error:
            notes.append(f"no longer from the profile: {error.message}")
    return body, tuple(notes)
