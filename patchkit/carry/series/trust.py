"""How far a patch can be trusted on a GPU: a level, made of claims by rules that are data.

A claim says who saw what of the patch, where, on which GPU. Those of the public record stand in the patch's
folder (``evidence.toml``); others may be made of what machines measured. :func:`standing_of` takes them all.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, get_args

from pydantic import AfterValidator, Field

from patchkit.base.errors import Location
from patchkit.base.text import control_characters
from patchkit.base.toml import NOWHERE, NotInFile, Several, TomlTable, Words

Level = Literal["measured", "published", "modelled", "faults"]
"""measured: two independent sources on the GPU; published: one; modelled: none, but the timing model says a
gain; faults: nobody reports a gain, it mends what only the emulated GPU showed or the code says."""

LEVELS: tuple[Level, ...] = get_args(Level)
"""From most to least trusted; who trusts one trusts those before it."""

DEFAULT_TRUST: Level = "published"

Kind = Literal["hardware", "modelled", "emulated", "concluded"]
Says = Literal["gain", "mends", "same", "mixed", "loss"]
ModelSays = Literal["agrees", "disagrees", "silent"]
_MODEL_TOLD: dict[ModelSays, str] = {
    "agrees": "the model agrees",
    "disagrees": "the model says otherwise",
    "silent": "not modelled",
}


def _one_line(text: str) -> str:
    if any(control_characters(text)):
        raise ValueError("a claim is one line of text, without control characters")
    return text


_Line = Annotated[Words, AfterValidator(_one_line)]
_Build = Annotated[int, Field(ge=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim(TomlTable):
    """``[[claim]]``: who says what the patch does on these GPUs.

    ``who`` is one source, however often it speaks: two of that name are no second source. ``build`` is what
    was measured; ``last_build`` the last one that the claim still speaks of.
    """

    named_by: ClassVar[str] = "who"
    json_keys: ClassVar = "archs kind says who link figure on build last_build indirect note"
    archs: Annotated[Several[Annotated[str, Field(pattern=r"^gfx[0-9a-f]{3,4}$")]], Field(min_length=1)]
    kind: Annotated[
        Kind,
        Field(
            description="hardware: seen on such a GPU; modelled: by the timing model; emulated: on the "
            "emulated GPU; concluded: from the code, the compiler or another GPU"
        ),
    ]
    says: Annotated[
        Says,
        Field(
            description="gain: faster; mends: right where it was wrong; same: neither; loss: slower, beyond "
            "noise; mixed: gain and loss, so it counts for nothing"
        ),
    ]
    who: _Line
    link: Annotated[_Line, Field(description="Where it can be read: an address, or one of the documents")]
    figure: Annotated[_Line, Field(description="What was found, with its numbers")]
    on: dt.date | None = None
    build: _Build | None = None
    last_build: _Build | None = None
    indirect: Annotated[
        bool, Field(description="Not the patch was measured, but what does the same or more than it")
    ] = False
    note: _Line | None = None
    where: NotInFile[Location] = NOWHERE

    def is_about(self, arch: str, build: int | None) -> bool:
        """Whether it speaks of that GPU and that build; None: of any build."""
        ends = self.last_build
        return arch in self.archs and (ends is None or build is None or build <= ends)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimFile(TomlTable):
    """evidence.toml in the folder of a patch."""

    claims: Annotated[Several[Claim], Field(alias="claim", min_length=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustRules(TomlTable):
    """``[trust]`` of series.toml: how many sources on the GPU make a patch measured, and how many end it."""

    measured: Annotated[int, Field(ge=1, le=100, description="Sources that gained")] = 2
    loses: Annotated[int, Field(ge=1, le=100, description="Sources that lost: it is off by default")] = 2


TWO_AND_TWO = TrustRules()
"""The rules of a series that says none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What the claims come to on one GPU and build.

    ``trust``: the least trust with which the patch is in; None: only by name. It is ``level``, but for what
    is published: there the model has to agree, else it takes as much trust as the model itself, and none
    is enough where the model says the opposite. ``gains`` and ``losses``: the sources on the GPU;
    ``indirect``: those of them that measured something else. ``loses``: enough lost to switch a default off.
    """

    level: Level | None
    trust: Level | None
    gains: tuple[str, ...]
    losses: tuple[str, ...]
    indirect: tuple[str, ...]
    model: ModelSays
    loses: bool
    claims: tuple[Claim, ...]

    def sentence(self) -> str:
        """The level and what it was made of, as ``show`` and ``apply`` say it."""
        if self.loses:
            return f"slower for {_names(self.losses)}"
        against = f"; slower for {_names(self.losses)}" if self.losses else ""
        model = _MODEL_TOLD[self.model]
        match self.level:
            case "measured":
                return f"measured by {_names(self.gains)}{against}"
            case "published":
                return f"published {self._by()}, {model}{against}"
            case "modelled":
                return f"modelled, and measured by nobody{against}"
            case "faults":
                return f"against a fault, and timed by nobody{against}"
            case None:
                return f"{self._nothing()}{against}"

    def _by(self) -> str:
        """Who published it, and where nobody measured the patch itself, for what."""
        what = " for what does the same" if {*self.indirect} == {*self.gains} else ""
        return f"by {_names(self.gains)}{what}"

    def _nothing(self) -> str:
        if any(claim.kind == "hardware" for claim in self.claims):
            return "no gain is left of what was measured"
        if self.model == "disagrees":
            return "the model says that it is slower, and nobody measured it"
        return "nobody saw it on this GPU" if self.claims else "nothing is known"


def _names(sources: Sequence[str]) -> str:
    return f"{', '.join(sources[:-1])} and {sources[-1]}" if len(sources) > 1 else "".join(sources)


def standing_of(
    claims: Iterable[Claim], arch: str, build: int | None, rules: TrustRules = TWO_AND_TWO
) -> Standing:
    """What the claims say of a patch on one GPU and build; None: on any.

    Each source on the GPU (``hardware``) has one vote, whatever it says how often: for the patch, against it,
    or neither where it says both. A vote against takes one for it away. Sources that measured something else
    can make it published, not measured, and their losses are not the patch's. ``rules.loses`` votes against
    it end its default, whatever else is known; a person can still name it.
    """
    about = tuple(claim for claim in claims if claim.is_about(arch, build))
    gains, losses = _votes(about)
    direct = {each.who for each in about if each.kind == "hardware" and not each.indirect}
    indirect = tuple(who for who in gains if who not in direct)
    model = _model_says(about)
    loses = len(losses) >= rules.loses
    left = len(gains) - len(losses)
    left_direct = left - len(indirect)
    level: Level | None = None
    trust: Level | None = None
    if loses:
        pass
    elif left_direct >= rules.measured:
        level = trust = "measured"
    elif left > 0:
        level = "published"
        trust = {"agrees": "published", "silent": "modelled", "disagrees": None}[model]
    elif model == "agrees" and any(each.kind == "modelled" and each.says == "gain" for each in about):
        level = trust = "modelled"
    elif model != "disagrees" and any(each.says == "mends" for each in about):
        level = trust = "faults"
    return Standing(
        level=level,
        trust=trust,
        gains=gains,
        losses=losses,
        indirect=indirect,
        model=model,
        loses=loses,
        claims=about,
    )


def _votes(claims: Sequence[Claim]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The sources on the GPU that are for the patch, and those against it, in the order they speak."""
    said: dict[str, set[Says]] = {}
    for claim in claims:
        if claim.kind == "hardware" and not (claim.indirect and claim.says == "loss"):
            said.setdefault(claim.who, set()).add(claim.says)
    both = {"gain", "mends"}
    gains = tuple(who for who, words in said.items() if words & both and not words & {"loss", "mixed"})
    losses = tuple(who for who, words in said.items() if "loss" in words and not words & {*both, "mixed"})
    return gains, losses


def _model_says(claims: Sequence[Claim]) -> ModelSays:
    said = {claim.says for claim in claims if claim.kind in ("modelled", "emulated")}
    if "loss" in said:
        return "disagrees"
    return "agrees" if said & {"gain", "mends"} else "silent"


def admits(trust: Level, needed: Level | None) -> bool:
    """Whether who trusts so far takes what needs so much trust."""
    return needed is not None and LEVELS.index(needed) <= LEVELS.index(trust)
