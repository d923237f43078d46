"""List which patches exist for which GPUs, and on which pins of the lock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, TypeVar

from patchkit.base.arch import list_profiles
from patchkit.base.errors import ErrorGroup, PatchkitError
from patchkit.base.series_folder import SeriesDir, arch_options, format_archs
from patchkit.base.text import counted
from patchkit.base.upstreams import build_name
from patchkit.carry.candidate.decision import Wish, decide
from patchkit.carry.series.catalogue import Series, load_series
from patchkit.carry.series.lock import Lock, Pin, load_lock
from patchkit.carry.series.patch import Patch
from patchkit.carry.series.profile import ArchProfile, PatchDefault, load_profile, load_profiles
from patchkit.carry.series.selection import Terms, terms_of
from patchkit.carry.series.switches import has_switch

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """The whole series with its lock, and its ``profiles`` by name."""

    series: Series
    profiles: tuple[ArchProfile, ...]
    lock: Lock

    @property
    def patches(self) -> tuple[Patch, ...]:
        """The patches of the series, in order."""
        return self.series.patches

    def terms(self, patch: Patch, profile: ArchProfile) -> Terms:
        """The terms of the patch on the GPU, for the build of :meth:`label_build`.

        The patch with the run-time switches is on with any patch that has a switch.
        """
        build = self.label_build(patch)
        found = terms_of(self.series, patch, profile, build)
        if patch.switches is None:
            return found
        switched = [each for each in self.patches if has_switch(each) and each.builds.covers(build)]
        is_on = any(terms_of(self.series, each, profile, build).default == "on" for each in switched)
        return replace(found, is_offered=True, needs="measured") if is_on else found

    def label_build(self, patch: Patch) -> int:
        """The build to report for a patch: the lock's default, or else the nearest one that it is for."""
        default = self.lock.pin().build
        if patch.builds.covers(default):
            return default
        return patch.builds.first if default < patch.builds.first else patch.builds.last or default

    def default_of(self, patch: str, arch: str) -> str:
        """Whether the patch is ``on``, ``opt-in`` or ``off`` for the GPU."""
        (profile,) = (profile for profile in self.profiles if profile.arch == arch)
        (found,) = (each for each in self.patches if each.id == patch)
        return self.terms(found, profile).default

    def count(self, default: PatchDefault, arch: str) -> int:
        """How many of the default build's patches a GPU has on, opt-in or off."""
        of_build = [patch for patch in self.patches if patch.builds.covers(self.lock.pin().build)]
        return sum(self.default_of(patch.id, arch) == default for patch in of_build)


def load_catalogue(series: SeriesDir) -> Catalogue:
    """Read the whole series.

    Raises an ErrorGroup of the errors in all of its files.
    """
    errors: list[PatchkitError] = []
    lock = _collect(errors, partial(load_lock, series.lock))
    loaded = _collect(errors, partial(load_series, series.patches))
    names = _collect(errors, partial(list_profiles, series.profiles)) or ()
    profiles = [_collect(errors, partial(load_profile, series.profiles, name)) for name in names]
    if errors or lock is None or loaded is None:
        raise ErrorGroup("the series has errors", errors)
    return Catalogue(
        series=loaded,
        profiles=tuple(profile for profile in profiles if profile is not None),
        lock=lock,
    )


def _collect(errors: list[PatchkitError], load: Callable[[], _T]) -> _T | None:
    try:
        return load()
    except PatchkitError as error:
        errors.append(error)
        return None


def archs_with_patches(series: SeriesDir) -> tuple[str, ...]:
    """The GPUs that have at least one patch on at the default build, sorted.

    Raises the errors of the lock, the series and the profiles.
    """
    build = load_lock(series.lock).pin().build
    loaded = load_series(series.patches)
    of_build = [patch for patch in loaded.patches if patch.builds.covers(build)]
    profiles = load_profiles(series.profiles, list_profiles(series.profiles))
    # Plain patches do not count, because every GPU has them.
    own = [patch for patch in of_build if not patch.is_plain]
    return tuple(
        profile.arch
        for profile in profiles
        if any(terms_of(loaded, patch, profile, build).default == "on" for patch in own)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A pin with the patches that are on there, and those that are opt-in.

    ``is_default``: it needs no ``--upstream``.
    """

    json_keys: ClassVar = "build on opt_in options"

    build: int
    is_default: bool
    on: tuple[str, ...]
    opt_in: tuple[str, ...]

    @property
    def options(self) -> str:
        """The options of ``apply`` that give at least one patch; opt-in ones only if nothing is on."""
        words = [] if self.is_default else [f"--upstream {build_name(self.build)}"]
        if not self.on:
            words += [f"--with {name}" for name in self.opt_in]
        return " ".join(words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Available:
    """The offers for some GPUs: that of the requested pin first, then by build.

    ``options`` name the GPUs on the command line.
    """

    json_keys: ClassVar = "sentence offers"

    archs: tuple[str, ...]
    options: tuple[str, ...]
    offers: tuple[Offer, ...]

    @property
    def sentence(self) -> str:
        """One sentence to show to the user, with commands to copy."""
        gpus = format_archs(self.archs)
        if not self.offers:
            return f"No pin of the lock has a patch for {gpus}."
        ways = "; or ".join(self._way(offer) for offer in self.offers)
        return f"There are patches for {gpus}: {ways}."

    def _way(self, offer: Offer) -> str:
        words = ["patchkit apply", *self.options, offer.options]
        what = counted(len(offer.on), "patch", "patches") if offer.on else "opt-in"
        return f"{' '.join(filter(None, words))} ({what})"


def find_available(series: SeriesDir, archs: Sequence[str], build: int) -> Available:
    """The patches for all of these GPUs together, on ``build`` and on every other pin of the lock.

    Raises the errors of reading the lock, the series and the profiles.
    """
    lock = load_lock(series.lock)
    loaded = load_series(series.patches)
    profiles = load_profiles(series.profiles, archs)
    pins = sorted(lock.pins, key=lambda pin: (pin.build != build, pin.build))
    offers = [_offer(loaded, profiles, pin, is_default=pin.name == lock.default) for pin in pins]
    return Available(
        archs=tuple(profile.arch for profile in profiles),
        options=tuple(arch_options((profile.arch for profile in profiles), series.profiles)),
        offers=tuple(offer for offer in offers if offer.on or offer.opt_in),
    )


def _offer(series: Series, profiles: Sequence[ArchProfile], pin: Pin, *, is_default: bool) -> Offer:
    on = decide(series, profiles, pin, Wish()).ids
    # All at once, because a patch that requires another one needs it, too.
    both = decide(series, profiles, pin, Wish(with_opt_in=True)).ids
    return Offer(
        build=pin.build, is_default=is_default, on=on, opt_in=tuple(name for name in both if name not in on)
    )
