"""Which candidates a change of the series can affect, and which changes need a reviewer's attention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from patchkit.base.errors import PatchkitError
from patchkit.base.series_folder import EVIDENCE
from patchkit.carry.candidate.decision import Decision, Request, decide
from patchkit.carry.series.lock import Lock, Pin, Result, ResultKey
from patchkit.carry.series.patch import Patch
from patchkit.carry.series.selection import opted_in
from patchkit.prove.gates.registry import entries
from patchkit.prove.pulls.side import SeriesSide


def find_attention(before: SeriesSide, after: SeriesSide) -> Iterator[str]:
    """Changes that a reviewer should look at although nothing is wrong: one sentence each."""
    old, new = before.series, after.series
    if set(old.gates.required) - set(new.gates.required):
        gone = ", ".join(name for name in old.gates.required if name not in new.gates.required)
        yield f"patches/series.toml no longer requires {gone} before a branch is published"
    if set(old.gates.hardware) - set(new.gates.hardware):
        gone = ", ".join(name for name in old.gates.hardware if name not in new.gates.hardware)
        yield f"patches/series.toml no longer requires hardware for {gone}: an emulated GPU is enough"
    if set(new.folders) - set(old.folders):
        more = ", ".join(name for name in new.folders if name not in old.folders)
        yield f"patches/series.toml lets patches edit more folders of upstream: {more}"
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
            yield f"patches/{patch.folder} was removed: the patch {patch.id} is no longer applied"
    yield from _of_profiles(before, after)


def _of_pins(before: SeriesSide, after: SeriesSide) -> Iterator[str]:
    if before.lock.default != after.lock.default:
        yield f"the default pin changes from {before.lock.default} to {after.lock.default}"
    known = {pin.name: pin.followed for pin in before.lock.pins}
    called = {pin.name: pin.releases for pin in before.lock.pins}
    for pin in after.lock.pins:
        if pin.releases != called.get(pin.name, ()):
            names = ", ".join(pin.releases) or "no release"
            yield f"the lock names {pin.name} as {names}; whether upstream tagged it so is not checked here"
        for one in pin.followed:
            if one not in known.get(pin.name, ()):
                yield f"on {pin.name}, {one}: found by a bump; not checked here"


def _of_patch(was: Patch, now: Patch, where: str) -> Iterator[str]:
    if was.macros != now.macros:
        guards = [", ".join(each.macros) or "nothing" for each in (now, was)]
        yield f"{where} is guarded by {guards[0]} instead of {guards[1]}"
    if was.resources != now.resources:
        yield f"{where} changes how many resources its kernels may need ([resources])"
    if was.bench != now.bench:
        yield f"{where} changes the speed that it promises ([bench])"
    if was.moves != now.moves:
        yield f"{where} changes which kernels it may move"
    if was.launches != now.launches:
        yield f"{where} changes what it promises about launches ([launches])"
    if was.without != now.without:
        yield f"{where} changes what fails without it"


def _of_profiles(before: SeriesSide, after: SeriesSide) -> Iterator[str]:
    for arch, profile in after.profiles.items():
        was = before.profiles.get(arch)
        if was is None:
            yield f"arch_profiles/{arch}.toml is a new GPU"
            continue
        if was.cmake_options(was.build.cmake_with_series) != profile.cmake_options(
            profile.build.cmake_with_series
        ):
            yield f"arch_profiles/{arch}.toml changes how llama.cpp is built for it"
        for name, choice in profile.patches.items():
            old = was.patches[name].default if name in was.patches else "absent"
            if old != choice.default:
                yield f"arch_profiles/{arch}.toml makes {name} {choice.default} (it was {old})"


# The facts that gates which check every GPU read from GPUs that no patch targets.
_FOREIGN_FACTS = ("device_macro", "compute_capability", "wave_size", "matrix")


@dataclass(frozen=True, slots=True, kw_only=True)
class AffectedCandidate:
    """``patches`` as the head selects them; ``only`` if the lock records fewer than the profiles turn on.

    ``before`` is the result in the lock of the fork point, ``recorded`` that in the lock of the head.
    """

    archs: tuple[str, ...]
    pin: Pin
    patches: tuple[str, ...]
    with_: tuple[str, ...]
    only: tuple[str, ...]
    reasons: tuple[str, ...]
    before: Result | None
    recorded: Result | None

    @property
    def name(self) -> str:
        """``gfx1151 on b6900``, plus the opt-in patches that were requested."""
        more = f" with {' '.join(self.with_)}" if self.with_ else ""
        return f"{'+'.join(self.archs)} on {self.pin.name}{more}"


def find_targets(
    before: SeriesSide, after: SeriesSide, changed: Sequence[str], foreign: Sequence[str]
) -> tuple[AffectedCandidate, ...]:
    """All targets of the head; targets that no change reaches have no reasons.

    Args:
        before: the fork point.
        after: the head.
        changed: changed paths of the series except the lock, which is compared by content.
        foreign: see :func:`foreign_profiles`; their effect on other targets is checked at the default pin.

    Raises:
        PATCH_PAIR_SPLIT, UNKNOWN_PATCH: the head's data splits patches that belong together.
    """
    requests = dict.fromkeys([*_recorded(before, after), *_unrecorded(after, changed)])
    found: dict[ResultKey, AffectedCandidate] = {}
    for request in requests:
        target = _target(request, before, after, changed, foreign)
        key = (target.pin.name, target.archs, target.patches)
        if key not in found or not found[key].reasons:
            found[key] = target
    return tuple(sorted(found.values(), key=lambda each: (each.pin.build, each.archs, each.patches)))


def foreign_profiles(before: SeriesSide, after: SeriesSide) -> tuple[str, ...]:
    """GPUs that were added, removed, or changed in facts that gates read for other GPUs' candidates."""
    names = sorted({*before.profiles, *after.profiles})
    return tuple(name for name in names if _foreign(before, name) != _foreign(after, name))


def _foreign(side: SeriesSide, arch: str) -> object:
    profile = side.profiles.get(arch)
    if profile is None:
        return None
    facts = [profile.facts.report(name) for name in _FOREIGN_FACTS]
    return [None if fact is None else fact.value for fact in facts]


def _recorded(before: SeriesSide, after: SeriesSide) -> Iterator[Request]:
    """The request of each result in the head's lock, with the head's profiles and patches."""
    for result in after.lock.results:
        if any(arch not in after.profiles for arch in result.archs):
            continue  # stale_results reports it
        pin = after.lock.pin(result.pin)
        ids = tuple(name for name in result.patches if after.series.patch(name) is not None)
        # Patches requested when the result was recorded; a patch that the head makes opt-in is not requested.
        asked = before if before.lock.result(*result.key) is not None else after
        profiles = [asked.profiles[arch] for arch in result.archs if arch in asked.profiles]
        with_ = opted_in(asked.series, profiles, ids, result.build)
        request = Request(archs=result.archs, upstream=pin.name, with_=with_)
        then, now = _ids(before, pin, request), _ids(after, pin, request)
        is_part = result.patches not in (now, then) and ids == result.patches
        yield replace(request, only=ids) if is_part else request


def _unrecorded(after: SeriesSide, changed: Sequence[str]) -> Iterator[Request]:
    """GPUs that get patches at the default pin but have no result in the lock are candidates as well."""
    pin = after.lock.pin(None)
    for arch in after.profiles:
        if any(arch in result.archs and result.pin == pin.name for result in after.lock.results):
            continue
        request = Request(archs=(arch,), upstream=pin.name)
        ids = _ids(after, pin, request)
        if ids and any(_reaching(after, (arch,), ids, changed)):
            yield request


def _ids(side: SeriesSide, pin: Pin, request: Request) -> tuple[str, ...] | None:
    """The selected patches; None if these GPUs or patches do not exist on this side."""
    if any(arch not in side.profiles for arch in request.archs):
        return None
    try:
        return _decide(side, pin, request).ids
    except PatchkitError:
        return None


def _decide(side: SeriesSide, pin: Pin, request: Request) -> Decision:
    return decide(side.series, [side.profiles[arch] for arch in sorted(request.archs)], pin, request)


def _target(
    request: Request, before: SeriesSide, after: SeriesSide, changed: Sequence[str], foreign: Sequence[str]
) -> AffectedCandidate:
    pin = after.lock.pin(request.upstream)
    patches = _decide(after, pin, request).ids  # raises errors, which _ids ignores
    known = _ids(before, pin, request) or ()
    recorded = after.lock.result(pin.name, request.archs, patches)
    was = before.lock.result(pin.name, request.archs, patches)
    reasons = [
        *_reaching(after, request.archs, patches, changed),
        *_reaching(before, request.archs, known, changed),
        *_lock_reasons(before.lock, pin, was, recorded),
    ]
    strangers = [arch for arch in foreign if arch not in request.archs]
    if strangers and patches and pin.name == after.lock.default:
        looking = " and ".join(gate.name for gate in entries() if gate.sees_every_gpu)
        reasons.append(f"{looking} check {', '.join(strangers)} too")
    if known != patches and known:
        reasons.append(f"its patches are {', '.join(patches) or 'none'} instead of {', '.join(known)}")
    return AffectedCandidate(
        archs=request.archs,
        pin=pin,
        patches=patches,
        with_=request.with_,
        only=request.only,
        reasons=tuple(dict.fromkeys(reasons)),
        before=was,
        recorded=recorded,
    )


def _lock_reasons(before: Lock, pin: Pin, was: Result | None, recorded: Result | None) -> Iterator[str]:
    known = next((each for each in before.pins if each.name == pin.name), None)
    if known is None:
        yield f"patches/upstream.lock: {pin.name} is a new pin"
    elif (known.tree, known.commit, known.committed) != (pin.tree, pin.commit, pin.committed):
        yield f"patches/upstream.lock: {pin.name} is another pin"
    elif known.followed != pin.followed:
        yield f"patches/upstream.lock: functions of {pin.name} are followed to other places"
    if recorded != was:  # their position in the file does not matter
        yield "patches/upstream.lock: another result is recorded"


def _reaching(
    side: SeriesSide, archs: Sequence[str], ids: Sequence[str], changed: Sequence[str]
) -> Iterator[str]:
    """The changed paths that are inputs of a candidate of this side."""
    profiles = [side.profiles[arch] for arch in archs if arch in side.profiles]
    files = {f"arch_profiles/{path}" for profile in profiles for path in profile.inputs}
    patches = [patch for name in ids if (patch := side.series.patch(name)) is not None]
    folders = ("templates/", *(_folder(patch) for patch in patches))
    for path in changed:
        if path in {f"{_folder(patch)}{EVIDENCE}" for patch in patches}:
            continue  # it affects whether a patch is selected, which is compared as such
        if path in files or path == "patches/series.toml" or (ids and path.startswith(folders)):
            yield path


def _folder(patch: Patch) -> str:
    return f"patches/{patch.folder}/"
