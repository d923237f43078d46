"""What a pull request loosens: nothing is wrong with it, and a person should have seen it.

A gate proves what the rules ask for. Who changes the rules in the same pull request gets that as a line here.
"""

from __future__ import annotations

from collections.abc import Iterator

from patchkit.config.manifest import Patch
from patchkit.gating.side import Side


def find_attention(before: Side, after: Side) -> Iterator[str]:
    """One sentence each."""
    old, new = before.series, after.series
    if set(old.gates.required) - set(new.gates.required):
        gone = ", ".join(name for name in old.gates.required if name not in new.gates.required)
        yield f"patches/series.toml no longer requires {gone} before a branch is published"
    if set(new.folders) - set(old.folders):
        more = ", ".join(name for name in new.folders if name not in old.folders)
        yield f"patches/series.toml lets patches edit more of upstream: {more}"
    yield from _of_pins(before, after)
    for patch in new.patches:
        was = old.patch(patch.id)
        where = f"patches/{patch.folder}/patch.toml"
        if was is None:
            yield f"{where} is a new patch: {patch.title}"
        else:
            yield from _of_patch(was, patch, where)
    for patch in old.patches:
        if new.patch(patch.id) is None:
            yield f"patches/{patch.folder} is gone: the patch {patch.id} is applied nowhere any more"
    yield from _of_profiles(before, after)


def _of_pins(before: Side, after: Side) -> Iterator[str]:
    if before.lock.default != after.lock.default:
        yield f"the default pin becomes b{after.lock.default} instead of b{before.lock.default}"
    known = {pin.build: pin.followed for pin in before.lock.pins}
    for pin in after.lock.pins:
        for one in pin.followed:
            if one not in known.get(pin.build, ()):
                yield (
                    f"on {pin.name}, patches that name {one.function} in {one.file} go to {one.now_function} "
                    f"in {one.now_file}: a bump found that these are the same, and it is not checked here"
                )


def _of_patch(was: Patch, now: Patch, where: str) -> Iterator[str]:
    if was.guard_macros != now.guard_macros:
        yield f"{where} is guarded by {', '.join(now.guard_macros)} instead of {', '.join(was.guard_macros)}"
    if was.resources != now.resources:
        yield f"{where} changes what its kernels may cost ([resources])"
    if was.bench != now.bench:
        yield f"{where} changes what it promises ([bench])"
    if was.moves != now.moves:
        yield f"{where} changes which kernels it may move"
    if was.without != now.without:
        yield f"{where} says something else fails without it"


def _of_profiles(before: Side, after: Side) -> Iterator[str]:
    for arch, profile in after.profiles.items():
        was = before.profiles.get(arch)
        if was is None:
            yield f"arch_profiles/{arch}.toml is a new GPU"
            continue
        if (was.cmake, was.cmake_with_series) != (profile.cmake, profile.cmake_with_series):
            yield f"arch_profiles/{arch}.toml changes how llama.cpp is built for it"
        for name, choice in profile.patches.items():
            old = was.patches[name].default if name in was.patches else "absent"
            if old != choice.default:
                yield f"arch_profiles/{arch}.toml makes {name} {choice.default} (it was {old})"
