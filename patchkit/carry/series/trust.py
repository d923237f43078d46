"""How far a patch can be trusted on a GPU: a level, derived from claims by the rules of the series.

A claim is an observation of the patch's effect: by whom, where, on which GPU. Public reports are in the
patch's folder (``evidence.toml``); others are made from evidence files. :func:`assess_claims` uses them all.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field

from patchkit.base.errors import Location
from patchkit.base.text import control_characters
from patchkit.base.toml import NOWHERE, NotInFile, Several, TomlTable, Words

Level = Literal["measured", "published", "modelled", "faults"]
"""measured: two independent sources on the GPU; published: one; modelled: none, but the timing model predicts
a gain; faults: no reported gain, but it fixes a fault that only the emulated GPU or the code shows."""

LEVELS: tuple[Level, ...] = get_args(Level)
"""From most to least trusted; accepting one level accepts those before it."""

DEFAULT_TRUST: Level = "published"

Kind = Literal["hardware", "modelled", "emulated", "concluded"]
Says = Literal["gain", "fixes", "same", "mixed", "loss"]
ModelSays = Literal["agrees", "disagrees", "silent"]
_MODEL_TEXT: dict[ModelSays, str] = {
    "agrees": "the timing model agrees",
    "disagrees": "the timing model disagrees",
    "silent": "not modelled",
}


def _one_line(text: str) -> str:
    if any(control_characters(text)):
        raise ValueError("a claim must be one line of text, without control characters")
    return text


_Line = Annotated[Words, AfterValidator(_one_line)]
_Build = Annotated[int, Field(ge=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim(TomlTable):
    """``[[claim]]``: what a source reports about the patch on these GPUs.

    ``who`` is one source, however many claims it makes: the same name never counts as a second source.
    ``build`` is the build that was measured, ``last_build`` the last one for which the claim holds.
    """

    named_by: ClassVar[str] = "who"
    json_keys: ClassVar = "archs kind says who link figure on build last_build indirect note"
    archs: Annotated[Several[Annotated[str, Field(pattern=r"^gfx[0-9a-f]{3,4}$")]], Field(min_length=1)]
    kind: Annotated[
        Kind,
        Field(
            description="hardware: observed on such a GPU; modelled: by the timing model; emulated: on the "
            "emulated GPU; concluded: from the code, the compiler or another GPU"
        ),
    ]
    says: Annotated[
        Says,
        BeforeValidator(lambda word: "fixes" if word == "mends" else word),  # its earlier name
        Field(
            description="gain: faster; fixes: correct where it was wrong; same: neither; loss: slower, "
            "beyond noise; mixed: gain and loss, so it is not counted"
        ),
    ]
    who: _Line
    link: Annotated[_Line, Field(description="Where to read it: a URL, or a file of the documentation")]
    figure: Annotated[_Line, Field(description="The result, with its numbers")]
    on: dt.date | None = None
    build: _Build | None = None
    last_build: _Build | None = None
    indirect: Annotated[
        bool, Field(description="Measured was not the patch itself, but a change that does the same or more")
    ] = False
    note: _Line | None = None
    where: NotInFile[Location] = NOWHERE

    def is_about(self, arch: str, build: int | None) -> bool:
        """Whether it applies to that GPU and that build; None: any build."""
        ends = self.last_build
        return arch in self.archs and (ends is None or build is None or build <= ends)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimFile(TomlTable):
    """evidence.toml in the folder of a patch: claims about it."""

    claims: Annotated[Several[Claim], Field(alias="claim", min_length=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustRules(TomlTable):
    """``[trust]`` of series.toml: how many sources on the GPU make a patch measured, or turn it off."""

    measured: Annotated[int, Field(ge=1, le=100, description="Sources that report a gain")] = 2
    loses: Annotated[
        int, Field(ge=1, le=100, description="Sources that report a loss: the patch is off by default")
    ] = 2


TWO_AND_TWO = TrustRules()
"""The rules of a series without ``[trust]``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """The claims about a patch on one GPU and build, combined.

    ``trust``: the least trust setting with which the patch is applied; None: only by name. It equals
    ``level``, except for published patches: those need an agreeing model. Without a model result the setting
    must be ``modelled``, and if the model disagrees no setting is enough. ``gains`` and ``losses``: the
    sources on the GPU; ``indirect``: those that measured something else. ``loses``: enough sources report a
    loss to turn the patch off by default.
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
        """The level and its sources, as ``show`` and ``apply`` print it."""
        if self.loses:
            return f"measured slower by {_names(self.losses)}"
        against = f"; measured slower by {_names(self.losses)}" if self.losses else ""
        model = _MODEL_TEXT[self.model]
        match self.level:
            case "measured":
                return f"measured by {_names(self.gains)}{against}"
            case "published":
                return f"published {self._by()}, {model}{against}"
            case "modelled":
                return f"faster in the timing model, not measured{against}"
            case "faults":
                return f"fixes a fault, speed not measured{against}"
            case None:
                return f"{self._nothing()}{against}"

    def _by(self) -> str:
        """The publishers, and whether all of them measured an equivalent change instead of the patch."""
        what = " for an equivalent change" if {*self.indirect} == {*self.gains} else ""
        return f"by {_names(self.gains)}{what}"

    def _nothing(self) -> str:
        if any(claim.kind == "hardware" for claim in self.claims):
            return "the measurements show no net gain"
        if self.model == "disagrees":
            return "slower in the timing model, not measured"
        return "not observed on this GPU" if self.claims else "no evidence"


def _names(sources: Sequence[str]) -> str:
    return f"{', '.join(sources[:-1])} and {sources[-1]}" if len(sources) > 1 else "".join(sources)


def assess_claims(
    claims: Iterable[Claim], arch: str, build: int | None, rules: TrustRules = TWO_AND_TWO
) -> Assessment:
    """Combine the claims about a patch on one GPU and build; None: any build.

    Each source on the GPU (``hardware``) has one vote, however many claims it makes: for the patch, against
    it, or neither if it reports both. A vote against cancels one vote for. Sources that measured something
    else can make a patch published but not measured, and their losses are not counted. ``rules.loses`` votes
    against turn the patch off by default, whatever else is known; it can still be applied by name.
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
    elif model != "disagrees" and any(each.says == "fixes" for each in about):
        level = trust = "faults"
    return Assessment(
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
    """The sources on the GPU that are for the patch, and those against it, in the order of their claims."""
    effects: dict[str, set[Says]] = {}
    for claim in claims:
        if claim.kind == "hardware" and not (claim.indirect and claim.says == "loss"):
            effects.setdefault(claim.who, set()).add(claim.says)
    both = {"gain", "fixes"}
    gains = tuple(who for who, says in effects.items() if says & both and not says & {"loss", "mixed"})
    losses = tuple(who for who, says in effects.items() if "loss" in says and not says & {*both, "mixed"})
    return gains, losses


def _model_says(claims: Sequence[Claim]) -> ModelSays:
    effects = {claim.says for claim in claims if claim.kind in ("modelled", "emulated")}
    if "loss" in effects:
        return "disagrees"
    return "agrees" if effects & {"gain", "fixes"} else "silent"


def admits(trust: Level, needed: Level | None) -> bool:
    """Whether the setting ``trust`` includes patches that need ``needed``."""
    return needed is not None and LEVELS.index(needed) <= LEVELS.index(trust)
