"""The options of a bump, and which candidates of the lock it moves to the new pin."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from patchkit.base.errors import UsageError
from patchkit.base.series_folder import PLAIN, SeriesDir, format_archs, is_plain
from patchkit.base.upstreams import build_name
from patchkit.carry.candidate.decision import Wish, decide, refuse_excluded_edits
from patchkit.carry.series.catalogue import Series, load_series
from patchkit.carry.series.lock import Lock, Pin, Result
from patchkit.carry.series.profile import ArchProfile, load_profiles
from patchkit.carry.series.selection import opted_in
from patchkit.carry.series.trust import Level
from patchkit.carry.upstream.pin import SourceWanted


@dataclass(frozen=True, slots=True, kw_only=True)
class BumpRequest:
    """The options of a bump.

    Without ``archs``, ``with_`` and ``trust`` it covers every variant of the lock (:func:`find_variants`).
    ``without``: ids of patches that may be lost. ``drop_conflicts``: exclude patches that cannot be carried.
    ``no_fetch``: report pull requests from the last fetch.
    ``accept_not_run``: move without gates although edited functions changed; the branches are unproven.
    ``accept_faults``: known faults that the new build may have. ``accept_missing``: names that patches may
    use although upstream removed them. ``commit``: write the lock to a branch.
    """

    to: str = "latest"
    archs: tuple[str, ...] = ()
    with_: tuple[str, ...] = ()
    trust: Level | None = None
    without: tuple[str, ...] = ()
    source: SourceWanted = "auto"
    upstream_url: str | None = None
    no_verify: bool = False
    accept_not_run: bool = False
    keep_default: bool = False
    drop_conflicts: bool = False
    commit: bool = False
    accept_faults: tuple[str, ...] = ()
    accept_missing: tuple[str, ...] = ()
    no_fetch: bool = False

    @property
    def is_about_one(self) -> bool:
        """Whether the bump covers a single candidate rather than every variant of the lock."""
        return bool(self.archs or self.with_ or self.trust is not None)

    @property
    def skips_gates(self) -> bool:
        """Whether no gate runs."""
        return self.no_verify or self.accept_not_run

    @property
    def is_offline(self) -> bool:
        """Whether pull requests are reported without contacting their remotes."""
        return self.no_fetch or self.source == "sdist"

    def command(self, *, to: str) -> str:
        """The command line of this request, quoted for a shell."""
        return " ".join(map(shlex.quote, ["patchkit", "bump", "--to", to, *self._options()]))

    def _options(self) -> Iterator[str]:
        for option, names in (("--arch", self.archs), ("--with", self.with_)):
            for name in names:
                yield from (option, name)
        if self.trust is not None:
            yield from ("--trust", self.trust)
        if self.source != "auto":
            yield from ("--source", self.source)
        if self.upstream_url is not None:
            yield from ("--upstream-url", self.upstream_url)
        flags = {
            "--no-verify": self.no_verify,
            "--accept-not-run": self.accept_not_run,
            "--keep-default": self.keep_default,
            "--commit": self.commit,
            "--drop-conflicts": self.drop_conflicts,
            "--no-fetch": self.no_fetch,
        }
        yield from (flag for flag, given in flags.items() if given)
        named = {
            "--without": self.without,
            "--accept-fault": self.accept_faults,
            "--accept-missing": self.accept_missing,
        }
        for option, names in named.items():
            for name in names:
                yield from (option, name)


def check_series(request: BumpRequest, folder: SeriesDir, lock: Lock) -> None:
    """Read the whole series before anything is fetched, so that errors in it are reported at once.

    Raises the errors of reading series and profiles, UNKNOWN_PATCH, PATCH_PAIR_SPLIT, UsageError.
    """
    refuse_excluded_edits(request.without)
    series = load_series(folder.patches)
    sets = {request.archs} if request.archs else {*_recorded(lock, folder)}
    for archs in sorted(sets):
        decide(series, load_profiles(folder.profiles, archs), lock.pin(None), Wish(with_=request.with_))


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One candidate that the lock carries from pin to pin: GPUs with a set of opt-in patches.

    ``pins``: the pins with its results, oldest first. ``patches_before``: every patch of those results; None
    if the lock has no result for it. ``branch``: whether it gets the branch of its GPUs; of several variants
    only the one without opt-in patches does. ``before``: earlier pins, each the last one that included a
    patch which is excluded now.
    """

    archs: tuple[str, ...]
    with_: tuple[str, ...]
    without: tuple[str, ...]
    pins: tuple[Pin, ...]
    patches_before: tuple[str, ...] | None
    branch: bool = True
    before: tuple[Pin, ...] = ()

    @property
    def compared(self) -> tuple[Pin, ...]:
        """The pins whose renderings the new ones are compared with, oldest first."""
        return _oldest_first((*self.pins, *self.before))

    def __str__(self) -> str:
        return format_archs(self.archs) + (f" with {', '.join(self.with_)}" if self.with_ else "")


def find_variants(
    request: BumpRequest, lock: Lock, pin: Pin, folder: SeriesDir
) -> tuple[tuple[Variant, ...], tuple[tuple[str, ...], ...]]:
    """The variants of a bump to ``pin``, sorted by GPUs and opt-in patches.

    With ``--arch``, ``--with`` or ``--trust`` there is one variant per set of GPUs: the named GPUs (or those
    with results at the default pin) with exactly these opt-in patches. Also returns the GPUs that the lock
    has results for only at pins newer than the target.

    Raises UsageError if there is no variant; UNKNOWN_PATCH, OPTIONS_CONTRADICT and PATCH_PAIR_SPLIT for
    ``--without``; and the errors of reading series and profiles.
    """
    series, target = load_series(folder.patches), pin.build
    variants: list[Variant] = []
    newer: list[tuple[str, ...]] = []
    for archs in _archs(request, lock, folder):
        profiles = load_profiles(folder.profiles, archs)
        recorded = [result for result in lock.results if result.archs == archs]
        if request.is_about_one:
            named = _named(request, series, profiles, pin)
            wanted = _opted(series, profiles, named.with_, target)
            same = [each for each in recorded if _opted_of(series, profiles, each) == wanted]
            recent = _recent(same, lock, target)
            variants.append(_variant(named, lock, target, archs, named.with_, recent))
            continue
        found: dict[tuple[str, ...], list[Result]] = {}
        for result in _recent(recorded, lock, target):
            found.setdefault(_opted_of(series, profiles, result), []).append(result)
        variants += [
            replace(
                _variant(request, lock, target, archs, with_, found[with_]),
                branch=len(found) == 1 or not with_,
            )
            for with_ in sorted(found)
        ]
        if not recorded and archs == (PLAIN,):
            variants.append(_variant(request, lock, target, archs, (), ()))
        else:
            newer += [] if found else [archs]
    if not variants:
        raise UsageError(
            f"nothing to bump: the lock has no candidate at its default pin or before {build_name(target)}",
            hint=f"patchkit bump --to {build_name(target)} --arch {PLAIN}"
            if is_plain(folder.profiles)
            else "name the GPU: patchkit bump --arch gfx1151",
        )
    recorded_ids = {name for each in variants for name in each.patches_before or ()}
    return tuple(_checked(each, series, folder, pin, recorded_ids) for each in variants), tuple(newer)


def _named(request: BumpRequest, series: Series, profiles: Sequence[ArchProfile], pin: Pin) -> BumpRequest:
    """Resolve ``--trust`` and ``--with`` into every ``--with`` and ``--without`` that they imply."""
    if request.trust is None and not request.with_:
        return request
    unknown = tuple(name for name in request.without if series.patch(name) is None)
    without = tuple(name for name in request.without if name not in unknown)
    decision = decide(series, profiles, pin, Wish(with_=request.with_, without=without, trust=request.trust))
    return replace(request, with_=decision.with_, without=(*decision.without, *unknown))


def _archs(request: BumpRequest, lock: Lock, folder: SeriesDir) -> list[tuple[str, ...]]:
    if request.archs:
        return [tuple(sorted(set(request.archs)))]
    return sorted(set(_recorded(lock, folder, pin=lock.default if request.is_about_one else None)))


def _recorded(lock: Lock, folder: SeriesDir, pin: str | None = None) -> Iterator[tuple[str, ...]]:
    """The sets of GPUs with results in the lock, at one pin or any; for a plain series also ``plain``."""
    if is_plain(folder.profiles):
        yield (PLAIN,)
    yield from (result.archs for result in lock.results if pin in (None, result.pin))


def _opted(
    series: Series, profiles: Sequence[ArchProfile], ids: Iterable[str], build: int
) -> tuple[str, ...]:
    return tuple(sorted(opted_in(series, profiles, set(ids), build)))


def _opted_of(series: Series, profiles: Sequence[ArchProfile], result: Result) -> tuple[str, ...]:
    return _opted(series, profiles, result.patches, result.build)


def _recent(results: Sequence[Result], lock: Lock, target: int) -> list[Result]:
    """The results at the default pin, and at the newest pin that is not newer than the target."""
    older = [result for result in results if result.build <= target]
    newest = max(older, key=lambda result: result.build).pin if older else None
    return [result for result in results if result.pin in (lock.default, newest)]


def _variant(
    request: BumpRequest,
    lock: Lock,
    target: int,
    archs: tuple[str, ...],
    with_: tuple[str, ...],
    results: Sequence[Result],
) -> Variant:
    pins = _oldest_first(lock.pin(result.pin) for result in results) or (lock.pin(),)
    # A target compared with itself shows no moves, so its own result is used only if there is no other.
    pins = tuple(pin for pin in pins if pin.build != target) or pins
    is_single = request.is_about_one
    dropped = {row.patch for pin in pins for row in pin.dropped if row.archs == archs}
    including = [
        [each for each in lock.results if each.archs == archs and name in each.patches] for name in dropped
    ]
    last_included = [max(each, key=lambda result: result.build) for each in including if each]
    return Variant(
        archs=archs,
        with_=with_ if is_single else tuple(name for name in with_ if name not in request.without),
        without=request.without,
        pins=pins,
        patches_before=tuple(dict.fromkeys(name for result in results for name in result.patches))
        if results
        else None,
        before=_oldest_first(lock.pin(each.pin) for each in last_included if each.build < target),
    )


def _oldest_first(pins: Iterable[Pin]) -> tuple[Pin, ...]:
    return tuple(sorted({pin.name: pin for pin in pins}.values(), key=lambda pin: pin.build))


def _checked(variant: Variant, series: Series, folder: SeriesDir, pin: Pin, recorded: set[str]) -> Variant:
    """Drop from ``without`` what the series no longer has but the lock records; raises for unknown ids."""
    without = tuple(
        name for name in variant.without if series.patch(name) is not None or name not in recorded
    )
    profiles = load_profiles(folder.profiles, variant.archs)
    decide(series, profiles, pin, Wish(without=without, with_=variant.with_))
    return replace(variant, without=without)
