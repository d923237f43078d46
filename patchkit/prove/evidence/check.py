"""Whether an evidence file can be true: its hashes are the lock's, its figures those of its own rounds.

A file that passes is consistent and possible. That somebody measured it, no check can say: therefore two
machines have to agree before a patch gains or loses anything by it, and a person looks at the pull request.
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from patchkit.base.arch import GpuProfile
from patchkit.base.errors import ErrorGroup, GateError, Location, PatchkitError
from patchkit.base.evidence import MOST_TIMES, MOST_VERDICTS, EvidenceFile, MeasuredArm, MeasuredVerdict
from patchkit.base.upstreams import build_name
from patchkit.carry.series.lock import Lock, Pin, Result
from patchkit.carry.series.measured import digest_of_rendered
from patchkit.prove.evidence.figures import comparisons_of, verdicts_of
from patchkit.prove.evidence.possible import (
    copied_test,
    impossible_day,
    impossible_machine,
    impossible_times,
)

Made = Callable[[Pin, tuple[str, ...], tuple[str, ...]], Result]
"""What these GPUs are given on a pin by exactly these patches: placed anew, where no lock records it."""

_AGAIN = "export it anew from what was measured; a file is never edited"
_TOLERANCE = 2e-5  # of a fraction that is rounded to five digits: another libm may round otherwise


@dataclass(frozen=True, slots=True, kw_only=True)
class Checker:
    """What files are held against.

    ``made`` places a set of patches that the lock does not record; None: such a set is refused. ``profiles``
    say how fast a GPU can be. ``others`` are files of the same series by name, ``today`` is the date.
    """

    lock: Lock
    profiles: Mapping[str, GpuProfile]
    today: dt.date
    made: Made | None = None
    others: Mapping[str, EvidenceFile] = field(default_factory=dict)

    def check(self, file: EvidenceFile, source: str) -> None:
        """Everything. Raises a GateError, or an ErrorGroup of all there are; ``source`` names the file."""
        found = list(self._whole(file, source))
        # What is not whole cannot be computed with, and a foreign build needs no figures.
        found = found or list(self._hashes(file, source))
        found = found or [*self._possible(file, source), *self._figures(file, source)]
        found = found or list(self._copied(file, source))
        if len(found) == 1:
            raise found[0]
        if found:
            raise ErrorGroup(f"{source} is refused for {len(found)} reasons", found)

    def _whole(self, file: EvidenceFile, source: str) -> Iterator[PatchkitError]:
        for what, label in _broken(file):
            yield _error(what, source, label, code="EVIDENCE_ROUNDS_WRONG", hint=_AGAIN)
        for one, other in itertools.combinations(file.arms, 2):
            if (one.tree == other.tree) != (dict(one.patches) == dict(other.patches)):
                has = "one tree and two sets" if one.tree == other.tree else "two trees and one set"
                told = f"arms '{one.name}' and '{other.name}' have {has} of patches"
                why = "on one upstream the same patches give the same tree, and other patches another one"
                yield _error(told, source, "$.arms", code="EVIDENCE_TREE_FOREIGN", why=why, hint=_AGAIN)

    def _hashes(self, file: EvidenceFile, source: str) -> Iterator[PatchkitError]:
        pin = next((each for each in self.lock.pins if each.build == file.build), None)
        if pin is None:
            known = ", ".join(each.name for each in self.lock.pins)
            yield _error(
                f"it was measured on {build_name(file.build)}, which the lock does not have",
                source,
                "$.build",
                code="EVIDENCE_PIN_UNKNOWN",
                why=f"the lock has {known}",
                hint="measure on one of these; or follow upstream there first: patchkit bump",
            )
            return
        if file.tree != pin.tree:
            yield _foreign(f"{pin.name}", file.tree, pin.tree, source, "$.tree")
        for number, arm in enumerate(file.arms):
            yield from self._arm(file, pin, arm, source, f"$.arms[{number}]")

    def _arm(
        self, file: EvidenceFile, pin: Pin, arm: MeasuredArm, source: str, label: str
    ) -> Iterator[PatchkitError]:
        if not arm.patches:
            if arm.tree != pin.tree:
                yield _foreign(f"arm '{arm.name}', which has no patch", arm.tree, pin.tree, source, label)
            return
        try:
            result = self._result(pin, file.archs, arm)
        except PatchkitError as error:
            yield _error(
                f"arm '{arm.name}' cannot be made again: {error.message}",
                source,
                label,
                code="EVIDENCE_PATCH_FOREIGN",
                why=error.why or "its patches are not those of this series",
                hint="patchkit list shows the patches",
            )
            return
        if result is None:
            yield _error(
                f"nothing is recorded of the patches of arm '{arm.name}' together",
                source,
                label,
                code="EVIDENCE_PATCH_FOREIGN",
                why=f"{', '.join(sorted(arm.patches))} on {pin.name} for {' '.join(file.archs)}",
                hint="record it: patchkit lock; or check where upstream's source can be had",
            )
            return
        for name, digest in arm.patches.items():
            known = digest_of_rendered(result, name)
            if digest != known:
                yield _error(
                    f"patch '{name}' of arm '{arm.name}' is another one than that of the series",
                    source,
                    label,
                    code="EVIDENCE_PATCH_FOREIGN",
                    why=f"its digest is {digest[:12]}, that of the lock {known[:12]}",
                    hint="it may have been changed since: measure it again",
                )
        if arm.tree != result.tree:
            yield _foreign(f"arm '{arm.name}'", arm.tree, result.tree, source, label)

    def _result(self, pin: Pin, archs: Sequence[str], arm: MeasuredArm) -> Result | None:
        wanted = set(arm.patches)
        for result in self.lock.results:
            if (result.build, result.archs) == (pin.build, tuple(sorted(archs))) and set(
                result.patches
            ) == wanted:
                return result
        return None if self.made is None else self.made(pin, tuple(archs), tuple(arm.patches))

    def _possible(self, file: EvidenceFile, source: str) -> Iterator[PatchkitError]:
        for why in impossible_machine(file):
            what = "there is no such machine"
            yield _error(what, source, "$.machine", code="EVIDENCE_MACHINE_IMPOSSIBLE", why=why)
        pin = next(each for each in self.lock.pins if each.build == file.build)
        for why in impossible_day(file, pin, self.today):
            yield _error("it cannot be of that day", source, "$.day", code="EVIDENCE_DAY_IMPOSSIBLE", why=why)
        for number, test in enumerate(file.tests):
            for why in impossible_times(test, self.profiles.get(file.machine.arch)):
                what, label = f"no machine gives these times of {test.name}", f"$.tests[{number}].rounds"
                yield _error(what, source, label, code="EVIDENCE_TIMES_IMPOSSIBLE", why=why, hint=_AGAIN)

    def _figures(self, file: EvidenceFile, source: str) -> Iterator[PatchkitError]:
        expected = verdicts_of(file.arms, file.tests)
        if len(expected) != len(file.verdicts):
            yield _error(
                f"it has {len(file.verdicts)} verdicts where its rounds give {len(expected)}",
                source,
                "$.verdicts",
                code="EVIDENCE_FIGURES_WRONG",
                why="each pair of arms that can be compared is, in each test",
                hint=_AGAIN,
            )
            return
        for number, (said, found) in enumerate(zip(file.verdicts, expected, strict=True)):
            for name in differing(said, found):
                yield _error(
                    f"verdict {number}: '{name}' is not what the rounds give",
                    source,
                    f"$.verdicts[{number}].{name}",
                    code="EVIDENCE_FIGURES_WRONG",
                    why=f"it says {getattr(said, name)}, computed is {getattr(found, name)}",
                    hint=_AGAIN,
                )

    def _copied(self, file: EvidenceFile, source: str) -> Iterator[PatchkitError]:
        for name, other in self.others.items():
            if other.text == file.text:
                continue
            test = copied_test(file, other)
            if test is not None:
                yield _error(
                    f"its rounds of {test} are those of {name}",
                    source,
                    "$.tests",
                    code="EVIDENCE_COPIED",
                    why="their times move together as those of two measurements never do",
                    hint="one measurement is one file",
                )


def _broken(file: EvidenceFile) -> Iterator[tuple[str, str]]:
    """What keeps the rounds from being computed with, and the place of it."""
    names = [arm.name for arm in file.arms]
    if len(set(names)) < len(names):
        yield "two arms have one name", "$.arms"
    yield from _too_much(file)
    seen = set()
    for number, test in enumerate(file.tests):
        where = f"$.tests[{number}]"
        key = test.model_dump_json(exclude={"rounds"})
        if key in seen:
            yield "a test comes twice", where
        seen.add(key)
        if bool(test.prompt) == bool(test.generated):
            yield "a test is of a prompt or of generated tokens", where
        counts = {len(times) for one in test.rounds for times in one.values()}
        if len(counts) > 1:
            told = " and ".join(map(str, sorted(counts)))
            yield f"the runs of a test have {told} repetitions: some were taken out or added", where
        strange = {arm for one in test.rounds for arm in one} - set(names)
        if strange:
            yield f"a round has times of '{min(strange)}', which is no arm", where
    for name in names:
        if not any(name in one for test in file.tests for one in test.rounds):
            yield f"nothing was measured of arm '{name}'", "$.arms"


def _too_much(file: EvidenceFile) -> Iterator[tuple[str, str]]:
    """What would take longer to look at than anybody waits."""
    if sum(len(comparisons_of(file.arms, test)) for test in file.tests) > MOST_VERDICTS:
        yield f"its arms and tests ask for more than {MOST_VERDICTS} comparisons", "$.arms"
    if sum(len(times) for test in file.tests for one in test.rounds for times in one.values()) > MOST_TIMES:
        yield f"it has more than {MOST_TIMES} times", "$.tests"


def differing(said: MeasuredVerdict, found: MeasuredVerdict) -> Iterator[str]:
    """The fields of a verdict that are not as they are computed."""
    for name in MeasuredVerdict.model_fields:
        one, other = getattr(said, name), getattr(found, name)
        if name == "noise" and one is not None and other is not None:
            if not (_near(one.low, other.low) and _near(one.high, other.high)):
                yield name
        elif isinstance(one, float) and isinstance(other, float):
            if not _near(one, other):
                yield name
        elif one != other:
            yield name


def _near(one: float, other: float) -> bool:
    return abs(one - other) <= _TOLERANCE


def _foreign(what: str, said: str, known: str, source: str, label: str) -> GateError:
    return _error(
        f"{what} is another tree than the series gives",
        source,
        label,
        code="EVIDENCE_TREE_FOREIGN",
        why=f"it is {said[:12]}, that of the lock {known[:12]}",
        hint="the series may have changed since: measure again",
    )


def _error(
    message: str, source: str, label: str, *, code: str, why: str | None = None, hint: str | None = None
) -> GateError:
    return GateError(
        f"{source}: {message}",
        code=code,
        where=Location(path=source, label=label),
        why=why,
        hint=hint or "it is not taken; ask who made it",
    )
