"""Whether an evidence file can be true: its hashes match the lock, its figures follow from its own rounds.

A file that passes is consistent and possible. No check can prove that it was measured. Therefore two machines
must agree before a patch gains or loses anything, and a person reviews the pull request.
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
from patchkit.prove.evidence.plausibility import (
    copied_test,
    impossible_day,
    impossible_machine,
    impossible_times,
)

PlacePatches = Callable[[Pin, tuple[str, ...], tuple[str, ...]], Result]
"""Places exactly these patches on a pin for these GPUs, for sets that no lock records."""

_AGAIN = "export it again from the measurement; evidence files must not be edited"
_TOLERANCE = 2e-5  # of a fraction rounded to five digits: another libm may round differently


@dataclass(frozen=True, slots=True, kw_only=True)
class Checker:
    """Checks files against a series.

    ``place`` places a set of patches that the lock does not record; None: such a set is rejected.
    ``profiles`` limit how fast a GPU can be. ``others`` are the files of the series by name, ``today`` is the
    date.
    """

    lock: Lock
    profiles: Mapping[str, GpuProfile]
    today: dt.date
    place: PlacePatches | None = None
    others: Mapping[str, EvidenceFile] = field(default_factory=dict)

    def check(self, file: EvidenceFile, source: str) -> None:
        """Run all checks. Raises a GateError, or an ErrorGroup of several; ``source`` names the file."""
        found = list(self._whole(file, source))
        # Later checks need a complete file, and a file of another build needs no check of its figures.
        found = found or list(self._hashes(file, source))
        found = found or [*self._possible(file, source), *self._figures(file, source)]
        found = found or list(self._copied(file, source))
        if len(found) == 1:
            raise found[0]
        if found:
            raise ErrorGroup(f"{source} is rejected", found)

    def _whole(self, file: EvidenceFile, source: str) -> Iterator[PatchkitError]:
        for what, label in _broken(file):
            yield _error(what, source, label, code="EVIDENCE_REFUSED", hint=_AGAIN)
        for one, other in itertools.combinations(file.arms, 2):
            if (one.tree == other.tree) != (dict(one.patches) == dict(other.patches)):
                has = "one tree and two sets" if one.tree == other.tree else "two trees and one set"
                what = f"arms '{one.name}' and '{other.name}' have {has} of patches"
                why = "on one upstream the same patches give the same tree, and different ones another tree"
                yield _error(what, source, "$.arms", code="EVIDENCE_REFUSED", why=why, hint=_AGAIN)

    def _hashes(self, file: EvidenceFile, source: str) -> Iterator[PatchkitError]:
        pin = next((each for each in self.lock.pins if each.build == file.build), None)
        if pin is None:
            known = ", ".join(each.name for each in self.lock.pins)
            yield _error(
                f"it was measured on {build_name(file.build)}, which is not in the lock",
                source,
                "$.build",
                code="EVIDENCE_REFUSED",
                why=f"the lock has {known}",
                hint="measure on one of these, or follow upstream first: patchkit bump",
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
                f"arm '{arm.name}' cannot be reproduced: {error.message}",
                source,
                label,
                code="EVIDENCE_REFUSED",
                why=error.why or "its patches are not those of this series",
                hint="patchkit list shows the patches",
            )
            return
        if result is None:
            yield _error(
                f"the lock does not record the patches of arm '{arm.name}' together",
                source,
                label,
                code="EVIDENCE_REFUSED",
                why=f"{', '.join(sorted(arm.patches))} on {pin.name} for {' '.join(file.archs)}",
                hint="record them: patchkit lock; or check the file where upstream's source is available",
            )
            return
        for name, digest in arm.patches.items():
            known = digest_of_rendered(result, name)
            if digest != known:
                yield _error(
                    f"patch '{name}' of arm '{arm.name}' differs from the one in the series",
                    source,
                    label,
                    code="EVIDENCE_REFUSED",
                    why=f"its digest is {digest[:12]}, in the lock {known[:12]}",
                    hint="it may have changed since the measurement: measure it again",
                )
        if arm.tree != result.tree:
            yield _foreign(f"arm '{arm.name}'", arm.tree, result.tree, source, label)

    def _result(self, pin: Pin, archs: Sequence[str], arm: MeasuredArm) -> Result | None:
        wanted = set(arm.patches)
        for result in self.lock.results:
            if (result.pin, result.archs) == (pin.name, tuple(sorted(archs))) and set(
                result.patches
            ) == wanted:
                return result
        return None if self.place is None else self.place(pin, tuple(archs), tuple(arm.patches))

    def _possible(self, file: EvidenceFile, source: str) -> Iterator[PatchkitError]:
        for why in impossible_machine(file):
            what = "the description of the machine is impossible"
            yield _error(what, source, "$.machine", code="EVIDENCE_REFUSED", why=why)
        pin = next(each for each in self.lock.pins if each.build == file.build)
        for why in impossible_day(file, pin, self.today):
            yield _error("the date is impossible", source, "$.day", code="EVIDENCE_REFUSED", why=why)
        for number, test in enumerate(file.tests):
            for why in impossible_times(test, self.profiles.get(file.machine.arch)):
                what, label = f"the times of {test.name} are impossible", f"$.tests[{number}].rounds"
                yield _error(what, source, label, code="EVIDENCE_REFUSED", why=why, hint=_AGAIN)

    def _figures(self, file: EvidenceFile, source: str) -> Iterator[PatchkitError]:
        expected = verdicts_of(file.arms, file.tests)
        if len(expected) != len(file.verdicts):
            yield _error(
                f"it has {len(file.verdicts)} verdicts, but its rounds give {len(expected)}",
                source,
                "$.verdicts",
                code="EVIDENCE_REFUSED",
                why="every pair of arms that can be compared must be, in each test",
                hint=_AGAIN,
            )
            return
        for number, (stated, computed) in enumerate(zip(file.verdicts, expected, strict=True)):
            for name in differing(stated, computed):
                yield _error(
                    f"verdict {number}: '{name}' does not follow from the rounds",
                    source,
                    f"$.verdicts[{number}].{name}",
                    code="EVIDENCE_REFUSED",
                    why=f"the file has {getattr(stated, name)}, the rounds give {getattr(computed, name)}",
                    hint=_AGAIN,
                )

    def _copied(self, file: EvidenceFile, source: str) -> Iterator[PatchkitError]:
        for name, other in self.others.items():
            if other.text == file.text:
                continue
            test = copied_test(file, other)
            if test is not None:
                yield _error(
                    f"its rounds of {test} are copied from {name}",
                    source,
                    "$.tests",
                    code="EVIDENCE_REFUSED",
                    why="their times vary together, which those of two measurements never do",
                    hint="submit each measurement once",
                )


def _broken(file: EvidenceFile) -> Iterator[tuple[str, str]]:
    """What makes the rounds unusable, and its place in the file."""
    names = [arm.name for arm in file.arms]
    if len(set(names)) < len(names):
        yield "two arms have one name", "$.arms"
    yield from _too_much(file)
    seen = set()
    for number, test in enumerate(file.tests):
        where = f"$.tests[{number}]"
        key = test.model_dump_json(exclude={"rounds"})
        if key in seen:
            yield "a test occurs twice", where
        seen.add(key)
        if bool(test.prompt) == bool(test.generated):
            yield "a test must be of either a prompt or generated tokens", where
        counts = {len(times) for one in test.rounds for times in one.values()}
        if len(counts) > 1:
            several = " and ".join(map(str, sorted(counts)))
            yield f"the runs of a test have {several} repetitions: some were removed or added", where
        strange = {arm for one in test.rounds for arm in one} - set(names)
        if strange:
            yield f"a round has times of '{min(strange)}', which is not an arm", where
    for name in names:
        if not any(name in one for test in file.tests for one in test.rounds):
            yield f"arm '{name}' has no measurements", "$.arms"


def _too_much(file: EvidenceFile) -> Iterator[tuple[str, str]]:
    """Amounts of data that would take too long to check."""
    if sum(len(comparisons_of(file.arms, test)) for test in file.tests) > MOST_VERDICTS:
        yield f"its arms and tests need more than {MOST_VERDICTS} comparisons", "$.arms"
    if sum(len(times) for test in file.tests for one in test.rounds for times in one.values()) > MOST_TIMES:
        yield f"it has more than {MOST_TIMES} times", "$.tests"


def differing(stated: MeasuredVerdict, computed: MeasuredVerdict) -> Iterator[str]:
    """The fields of a verdict that differ from the computed ones."""
    for name in MeasuredVerdict.model_fields:
        one, other = getattr(stated, name), getattr(computed, name)
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


def _foreign(what: str, stated: str, known: str, source: str, label: str) -> GateError:
    return _error(
        f"{what} has another tree than the series gives",
        source,
        label,
        code="EVIDENCE_REFUSED",
        why=f"it is {stated[:12]}, in the lock {known[:12]}",
        hint="the series may have changed since the measurement: measure again",
    )


def _error(
    message: str, source: str, label: str, *, code: str, why: str | None = None, hint: str | None = None
) -> GateError:
    return GateError(
        f"{source}: {message}",
        code=code,
        where=Location(path=source, label=label),
        why=why,
        hint=hint or "the file is rejected; contact its author",
    )
