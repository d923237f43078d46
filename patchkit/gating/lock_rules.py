"""What a pull request may do to the lock, before anything it names is downloaded.

Vocabulary: a source is *known* when the lock of the fork point downloads from the same git address or the
same package; the tree hash decides about the bytes, but a pull request does not choose whom CI talks to.
"""

from __future__ import annotations

from collections.abc import Iterator

from patchkit.config.lock import GitSource, Lock, Pin, Result, Source
from patchkit.errors import ConfigError, Location
from patchkit.gating.errors import LockOutdated, LockUnrecorded, LockUntrue, PinRewritten, SourceNew
from patchkit.gating.side import Side
from patchkit.gating.targets import Target

__all__ = ["check_pins", "check_recorded", "stale_results"]

_SHOWN = 8


def check_pins(before: Lock, after: Lock) -> Iterator[ConfigError]:
    """Pins that were rewritten, and sources that are not known."""
    old = {pin.build: pin for pin in before.pins}
    known = {_address(source) for pin in before.pins for source in pin.sources}
    for pin in after.pins:
        was = old.get(pin.build)
        if was is not None and _identity(was) != _identity(pin):
            yield PinRewritten(
                f"{pin.name} is tree {pin.tree[:12]} in the head and {was.tree[:12]} before",
                where=pin.where or Location(path="patches/upstream.lock"),
                why="a build of upstream has one tree and one commit; nothing was downloaded",
                hint="restore the pin; a wrong pin is taken out and put in again by two pull requests",
            )
        for source in pin.sources:
            if _address(source) not in known:
                yield SourceNew(
                    f"{pin.name} would be downloaded from {_address(source)}, which is new",
                    where=pin.where or Location(path="patches/upstream.lock"),
                    why="a pull request does not choose whom this machine talks to; nothing was downloaded",
                    hint="look at the address, and put it into the lock of the base first",
                )


def _identity(pin: Pin) -> tuple[object, ...]:
    return (pin.tree, pin.commit, pin.committed, pin.commit_object)


def _address(source: Source) -> str:
    return source.url if isinstance(source, GitSource) else f"the package {source.package}"


def check_recorded(target: Target, made: Result) -> Iterator[ConfigError]:
    """How the lock of the head stands to what the head gives."""
    command = " ".join(
        ["patchkit lock", *(f"--arch {arch}" for arch in target.archs), f"--upstream {target.pin.name}"]
        + [f"--with {name}" for name in target.with_]
        + [f"--only {name}" for name in target.only]
    )
    recorded = target.recorded
    if recorded is None:
        if made.patches or target.before is not None:
            yield LockUnrecorded(
                f"the lock has no result for {target.name}, patches {', '.join(made.patches) or 'none'}",
                where=Location(path="patches/upstream.lock"),
                why="the lock decides the bytes of a candidate",
                hint=command,
            )
        return
    where = recorded.where or Location(path="patches/upstream.lock")
    names = sorted({*recorded.inputs, *made.inputs})
    changed = [name for name in names if recorded.inputs.get(name) != made.inputs.get(name)]
    if changed:
        yield LockOutdated(
            f"the lock's result for {target.name} was made of other files",
            where=[where, *(Location(path=name) for name in changed[:_SHOWN])],
            why="a file that a candidate is made of changed, and the lock still records the old one",
            hint=command,
        )
        return
    for what, told, given in (
        ("tree", recorded.tree, made.tree),
        ("commit", recorded.commit, made.commit),
    ):
        if told != given:
            yield LockUntrue(
                f"{target.name}: the lock records {what} {told[:12]}, its own files give {given[:12]}",
                where=where,
                why="the row was edited by hand, or made by another patchkit",
                hint=command,
            )


def stale_results(side: Side) -> Iterator[ConfigError]:
    """Results of GPUs or patches that the head does not have."""
    for result in side.lock.results:
        gone = [f"arch_profiles/{arch}.toml" for arch in result.archs if arch not in side.profiles]
        gone += [f"the patch {name}" for name in result.patches if side.series.patch(name) is None]
        if gone:
            yield LockOutdated(
                f"the lock has a result for {'+'.join(result.archs)} on b{result.build}, "
                f"and the head does not have {', '.join(gone)}",
                where=result.where or Location(path="patches/upstream.lock"),
                hint="patchkit lock --all",
            )
