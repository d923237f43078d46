"""Replace numbers in a patch's texts by named values of the profiles: ``@{ values['mmq.columns'] }@``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from patchkit.base.errors import UsageError
from patchkit.carry.lifting.write import Body
from patchkit.carry.series.profile import ArchProfile

_LIFTED = re.compile(r"@\{ values\['([^']+)'\] \}@")


def lift_numbers(body: Body, lifts: Sequence[tuple[str, str]], profiles: Sequence[ArchProfile]) -> Body:
    """Replace each number, wherever it occurs in a text, by the profile's value of that name.

    Raises LIFT_UNKNOWN if a profile has no such value or a different one, or if no text has the number.
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
                    hint=f"add this to it:\n{row}",
                )
        pattern = re.compile(rf"(?<![\w.]){re.escape(number)}(?![\w.])")
        wanted = f"@{{ values['{name}'] }}@"  # without backslashes, so re.sub takes it literally
        edits = tuple(
            replace(edit, text=pattern.sub(wanted, edit.text)) if edit.text is not None else edit
            for edit in body.edits
        )
        files = {path: pattern.sub(wanted, text) for path, text in body.files.items()}
        if edits == body.edits and files == body.files:
            raise UsageError(
                f"--lift {number}={name}: the number {number} is not in any new text", code="LIFT_UNKNOWN"
            )
        body = replace(body, edits=edits, files=files)
    if lifts and not profiles:
        raise UsageError(
            "--lift takes values from a GPU's profile, but a plain patch is for all GPUs",
            code="LIFT_UNKNOWN",
            hint="guard the patch, for example with --guard gfx1151",
        )
    return body


def lift_again(
    body: Body, before: Iterable[str], profiles: Sequence[ArchProfile]
) -> tuple[Body, tuple[str, ...]]:
    """Lift the numbers that the old texts (``before``) took from a profile, with a note for each failure."""
    names = dict.fromkeys(name for each in before for name in _LIFTED.findall(each))
    notes = []
    for name in names:
        known = {str(row.value) for each in profiles for row in each.tuning.value if row.name == name}
        try:
            for number in sorted(known)[:1]:
                body = lift_numbers(body, [(number, name)], profiles)
        except UsageError as error:
            notes.append(f"no longer taken from the profile: {error.message}")
    return body, tuple(notes)
