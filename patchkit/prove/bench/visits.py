"""The journal entries of ``pick``: visits of builds that were measured, and builds that were checked."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from patchkit.gpu.hardware.bench.journal import Line, Question

Stage = Literal["whole", "each", "check"]
_Name = Annotated[str, Field(max_length=300)]
_Seconds = Annotated[float, Field(ge=0, le=10**7, allow_inf_nan=False)]
_Time = Annotated[int, Field(ge=1, le=10**15)]


class Visited(Line):
    """One visit: hashes of tree and model, ``samples_ns`` by test, and the machine's state at that time."""

    kind: Literal["visit"] = "visit"
    stage: Stage
    round: Annotated[int, Field(ge=0)]
    again: bool
    arm: Annotated[tuple[_Name, ...], Field(strict=False)]
    tree: _Name
    model: _Name
    model_hash: _Name
    samples_ns: Annotated[
        dict[_Name, Annotated[tuple[_Time, ...], Field(strict=False, min_length=1)]], Field(min_length=1)
    ]
    seconds: _Seconds
    conditions: dict[_Name, _Name]

    @property
    def question(self) -> Question:
        """The key of the visit."""
        return self.stage, self.round, self.model, self.arm, self.again

    @property
    def text(self) -> str:
        """The visit as text."""
        again = ", repeated" if self.again else ""
        return f"stage {self.stage}, round {self.round}, {self.model} with {listed(self.arm)}{again}"

    @property
    def tests(self) -> frozenset[str]:
        """The tests that were measured."""
        return frozenset(self.samples_ns)


class Checked(Line):
    """One check of an arm's results; ``fault`` is None if they are right."""

    kind: Literal["check"] = "check"
    arm: Annotated[tuple[_Name, ...], Field(strict=False)]
    tree: _Name
    fault: str | None
    seconds: _Seconds

    @property
    def question(self) -> Question:
        """The key of the check: its arm."""
        return (self.arm,)

    @property
    def text(self) -> str:
        """The check as text."""
        return f"check of {listed(self.arm)}"


JournalEntry = Visited | Checked
ENTRIES: TypeAdapter[JournalEntry] = TypeAdapter(Annotated[JournalEntry, Field(discriminator="kind")])


def listed(arm: tuple[str, ...]) -> str:
    """The patches of an arm as text."""
    return ", ".join(arm) or "upstream"
