"""What a pull request may change in the lock, checked before anything it names is downloaded or placed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from patchkit.base.errors import ConfigError, Location
from patchkit.carry.candidate.inputs import hash_inputs
from patchkit.carry.candidate.lock import changed_inputs, difference
from patchkit.carry.series.lock import GitSource, Lock, Pin, Result, Source
from patchkit.prove.pulls.side import SeriesSide
from patchkit.prove.pulls.targets import AffectedCandidate

_SHOWN = 8


def check_pins(before: Lock, after: Lock) -> Iterator[ConfigError]:
    """Report pins that were rewritten, and sources that are not known."""
    old = {pin.name: pin for pin in before.pins}
    known = {_address(source) for pin in before.pins for source in pin.sources}
    for pin in after.pins:
        was = old.get(pin.name)
        if was is not None and _identity(was) != _identity(pin):
            yield ConfigError(
                f"the tree of {pin.name} is {pin.tree[:12]} in the head, but {was.tree[:12]} in the base",
                code="GATE_LOCK_WRONG",
                where=pin.where or Location(path="patches/upstream.lock"),
                why="a build of upstream has one tree and one commit; nothing was downloaded",
                hint="restore the pin; to replace a wrong one, remove and add it again in two pull requests",
            )
        for source in pin.sources:
            if _address(source) not in known:
                yield ConfigError(
                    f"{pin.name} would be downloaded from {_address(source)}, which is new",
                    code="GATE_SOURCE_NEW",
                    where=pin.where or Location(path="patches/upstream.lock"),
                    why="a pull request may not choose new servers for this machine; nothing was downloaded",
                    hint="check the address, and add it to the lock of the base first",
                )


def _identity(pin: Pin) -> tuple[object, ...]:
    return (pin.tree, pin.commit, pin.committed, pin.commit_object)


def _address(source: Source) -> str:
    return source.url if isinstance(source, GitSource) else f"the package {source.package}"


def check_described(side: SeriesSide, targets: Sequence[AffectedCandidate]) -> list[ConfigError]:
    """Report results of the head's lock that do not match its series, from the files alone.

    Raises LOCK_INPUT_UNUSABLE.
    """
    problems = [one for target in targets if (one := _described(side, target)) is not None]
    if len(problems) > 1:
        for problem in problems:
            problem.hint = "patchkit lock --all"
    return problems


def _described(side: SeriesSide, target: AffectedCandidate) -> ConfigError | None:
    recorded = target.recorded
    if recorded is not None:
        places = _changed(side, recorded)
        if not places:
            return None
        return ConfigError(
            f"the lock's result for {target.name} is from other files",
            code="GATE_LOCK_WRONG",
            where=[recorded.where or Location(path="patches/upstream.lock"), *places],
            why="an input of the candidate changed, but the lock still records the old one",
            hint=_command(target),
        )
    if not target.reasons or not (target.patches or target.before is not None):
        return None
    # The results before the change show which files the author forgot to record.
    others = [one for one in side.lock.results if (one.pin, one.archs) == (target.pin.name, target.archs)]
    places = [place for one in others for place in _changed(side, one)]
    return ConfigError(
        f"the lock has no result for {target.name}, patches {', '.join(target.patches) or 'none'}",
        code="GATE_LOCK_WRONG",
        where=[Location(path="patches/upstream.lock"), *dict.fromkeys(places)],
        why="the lock must record the result of every candidate",
        hint="patchkit lock --all" if places else _command(target),
    )


def _changed(side: SeriesSide, recorded: Result) -> list[Location]:
    """The inputs of a result that differ from what it records, with both digests."""
    patches = [patch for name in recorded.patches if (patch := side.series.patch(name)) is not None]
    profiles = [side.profiles[arch] for arch in recorded.archs if arch in side.profiles]
    now = hash_inputs(profiles, [patch.folder for patch in patches], side.files)
    then: Mapping[str, str] = recorded.inputs
    names = changed_inputs(now, then, side.files)
    return [Location(path=name, label=difference(name, now, then)) for name in names[:_SHOWN]]


def _command(target: AffectedCandidate) -> str:
    return " ".join(
        ["patchkit lock", *(f"--arch {arch}" for arch in target.archs), f"--upstream {target.pin.name}"]
        + [f"--with {name}" for name in target.with_]
        + [f"--only {name}" for name in target.only]
    )


def check_recorded(target: AffectedCandidate, actual: Result) -> Iterator[ConfigError]:
    """Compare the tree and commit that the lock records with those that the head gives."""
    recorded = target.recorded
    if recorded is None:
        return
    for what, recorded_hash, actual_hash in (
        ("tree", recorded.tree, actual.tree),
        ("commit", recorded.commit, actual.commit),
    ):
        if recorded_hash != actual_hash:
            yield ConfigError(
                f"{target.name}: the lock records {what} {recorded_hash[:12]}, but its files give "
                f"{actual_hash[:12]}",
                code="GATE_LOCK_WRONG",
                where=recorded.where or Location(path="patches/upstream.lock"),
                why="the row was edited by hand or written by another patchkit; no gate ran on either",
                hint=_command(target),
            )


def stale_results(side: SeriesSide) -> Iterator[ConfigError]:
    """Results for GPUs or patches that the head does not have."""
    for result in side.lock.results:
        gone = [f"arch_profiles/{arch}.toml" for arch in result.archs if arch not in side.profiles]
        gone += [f"the patch {name}" for name in result.patches if side.series.patch(name) is None]
        if gone:
            yield ConfigError(
                f"the lock has a result for {'+'.join(result.archs)} on {result.pin}, "
                f"but the head does not have {', '.join(gone)}",
                code="GATE_LOCK_WRONG",
                where=result.where or Location(path="patches/upstream.lock"),
                hint="patchkit lock --all",
            )
