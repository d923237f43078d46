"""Where there are patches for some GPUs: on which pins of the lock, and by which options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from patchkit.series.catalogue import Series, load_series
from patchkit.series.folder import SeriesDir
from patchkit.series.lock import load_lock
from patchkit.series.patch import Patch
from patchkit.series.profile import ArchProfile, load_profile
from patchkit.series.selection import select_patches


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A pin with the patches that are on there, and those that come when they are asked for.

    ``is_default``: it needs no ``--upstream``.
    """

    build: int
    is_default: bool
    on: tuple[str, ...]
    opt_in: tuple[str, ...]

    @property
    def options(self) -> str:
        """What ``apply`` has to be given for a patch to be in: what is opt-in only where nothing is on."""
        words = [] if self.is_default else [f"--upstream b{self.build}"]
        if not self.on:
            words += [f"--with {name}" for name in self.opt_in]
        return " ".join(words)

    def as_json(self) -> dict[str, object]:
        """Plain data."""
        return {
            "build": self.build,
            "options": self.options,
            "on": list(self.on),
            "opt_in": list(self.opt_in),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Available:
    """The offers for some GPUs, those of the pin that was asked about first, then by build."""

    archs: tuple[str, ...]
    offers: tuple[Offer, ...]

    @property
    def sentence(self) -> str:
        """One sentence for a person, with options that can be typed as they stand."""
        gpus = " ".join(self.archs)
        if not self.offers:
            return f"No pin of the lock has a patch for {gpus}."
        ways = "; or ".join(self._way(offer) for offer in self.offers)
        return f"There are patches for {gpus}: {ways}."

    def _way(self, offer: Offer) -> str:
        words = ["patchkit apply", *(f"--arch {arch}" for arch in self.archs), offer.options]
        what = f"{len(offer.on)} patch{'es'[: 2 * (len(offer.on) > 1)]}" if offer.on else "opt-in"
        return f"{' '.join(filter(None, words))} ({what})"

    def as_json(self) -> dict[str, object]:
        """Plain data."""
        return {"sentence": self.sentence, "offers": [offer.as_json() for offer in self.offers]}


def find_available(series: SeriesDir, archs: Sequence[str], build: int) -> Available:
    """What there is for these GPUs, together, on ``build`` and on every other pin of the lock.

    Raises what reading the lock, the series and the profiles raises.
    """
    lock = load_lock(series.lock)
    loaded = load_series(series.patches)
    names = tuple(sorted(set(archs)))
    profiles = [load_profile(series.profiles, arch) for arch in names]
    pins = sorted((pin.build for pin in lock.pins), key=lambda each: (each != build, each))
    made = [_offer(loaded, profiles, each, is_default=each == lock.default) for each in pins]
    return Available(archs=names, offers=tuple(offer for offer in made if offer.on or offer.opt_in))


def _offer(series: Series, profiles: Sequence[ArchProfile], build: int, *, is_default: bool) -> Offer:
    asked = [patch.id for patch in series.patches if _is_opt_in(patch, profiles)]
    on = _selected(series, profiles, build, ())
    # All of them at once: a patch that needs another one comes with it.
    both = _selected(series, profiles, build, asked)
    return Offer(
        build=build,
        is_default=is_default,
        on=on,
        opt_in=tuple(name for name in both if name not in on),
    )


def _is_opt_in(patch: Patch, profiles: Sequence[ArchProfile]) -> bool:
    return any(patch.id in profile.patches_by_default("opt-in") for profile in profiles)


def _selected(
    series: Series, profiles: Sequence[ArchProfile], build: int, with_: Sequence[str]
) -> tuple[str, ...]:
    chosen = select_patches(series, profiles, build, only=(), without=(), with_=with_)
    return tuple(each.patch.id for each in chosen if each.targets)
