"""Functions that a bump found under another name or in another file, put into the patches of a series.

Vocabulary: see ``Followed`` in :mod:`patchkit.config.lock`. patch.toml keeps the name it has; what a pin
says of it stands with that pin, because the same patch is for builds before and after the renaming.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from patchkit.classify.retarget import Target, retarget_patch
from patchkit.config.lock import Followed, Pin
from patchkit.config.profile_data import ArchProfile
from patchkit.config.series import Series
from patchkit.flow.rendering import Rendering
from patchkit.flow.selection import Selected, select_patches


def followed_series(series: Series, pin: Pin) -> Series:
    """The series with the functions where ``pin`` has them."""
    if not pin.followed:
        return series
    targets = {
        (each.file, each.function): Target(file=each.now_file, function=each.now_function)
        for each in pin.followed
    }
    return replace(series, patches=tuple(retarget_patch(patch, targets) for patch in series.patches))


def select_on(
    series: Series,
    profiles: Sequence[ArchProfile],
    pin: Pin,
    with_: Sequence[str],
    without: Sequence[str] = (),
) -> tuple[Selected, ...]:
    """What applies to a pin and these GPUs, with the functions where the pin has them.

    Raises as :func:`patchkit.flow.selection.select_patches`.
    """
    series = followed_series(series, pin)
    return select_patches(series, profiles, pin.build, only=(), without=without, with_=with_)


def followed_by(series: Series, renderings: Iterable[Rendering]) -> tuple[Followed, ...]:
    """What a pin has to say for these renderings to come again; ``series`` is as patch.toml has it."""
    found: set[Followed] = set()
    for rendering in renderings:
        patch = series.patch(rendering.patch.id)
        if patch is None:
            continue
        named = {edit.id: edit for edit in patch.edits}
        for edit in rendering.patch.edits:
            was = named[edit.id]
            if was.function is None or edit.function is None:
                continue
            if (was.file, was.function) != (edit.file, edit.function):
                found.add(
                    Followed(
                        file=was.file, function=was.function, now_file=edit.file, now_function=edit.function
                    )
                )
    return tuple(sorted(found))
