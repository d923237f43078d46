"""patches/NNNN-topic/patch.toml: one reason to change upstream, as data.

Vocabulary: a *patch* is one commit; an *edit* is one structural change of it: entity, selector,
verb, text; a *new file* is ours alone and only added; an *alias* is a macro that reads as our
expression under the guard and as upstream's token elsewhere; an *edit pair* is the host and the
device side of one knob.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from patchkit.config.bench_rules import BenchRules, BenchRulesModel
from patchkit.config.fate import ExpiresModel, Fate, ReplacementModel, UpstreamModel, make_fate
from patchkit.config.kernel_moves import KernelMove, KernelMoveModel
from patchkit.config.prose import check_texts
from patchkit.config.resource_rules import ResourceRules, ResourceRulesModel
from patchkit.config.selector import Selector, SelectorModel
from patchkit.config.toml import Document, TomlModel, validate
from patchkit.errors import ErrorGroup, Location

Verb = Literal["change_to", "insert_before", "insert_after", "remove", "add_include", "use_alias"]
Side = Literal["host", "device"]
Status = Literal["not-submitted", "submitted", "rejected", "backport"]


def _below_root(path: str) -> str:
    if {".", ".."} & set(path.split("/")):
        raise ValueError("a path goes down only: no '.' and no '..'")
    if any(part.casefold().startswith(".git") for part in path.split("/")):
        raise ValueError("names that begin with '.git' are git's own")
    return path


def _one_line(text: str) -> str:
    if "\n" in text or text.endswith("\\"):
        raise ValueError("the meaning of an alias is one line of tokens")
    return text


_ID = r"^[a-z0-9]+(-[a-z0-9]+)*$"
_UPSTREAM_PATH = r"^[A-Za-z0-9_.+-]+(/[A-Za-z0-9_.+-]+)*$"
_MACRO = r"^[A-Za-z_][A-Za-z0-9_]*$"

_Path = Annotated[str, Field(pattern=_UPSTREAM_PATH), AfterValidator(_below_root)]
_Macro = Annotated[str, Field(pattern=_MACRO)]
_Meaning = Annotated[str, Field(min_length=1), AfterValidator(_one_line)]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRange:
    """The upstream builds a patch is for, both ends included; ``last`` None: no known end."""

    first: int
    last: int | None
    why: str

    def covers(self, build: int) -> bool:
        """Whether ``build`` lies in the range."""
        return self.first <= build and (self.last is None or build <= self.last)


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """Another patch without which this one must not be applied."""

    patch: str
    why: str
    where: Location


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFile:
    """A file of our own that the patch adds; ``template`` is relative to the patch folder."""

    path: str
    template: str
    where: Location


@dataclass(frozen=True, slots=True, kw_only=True)
class Alias:
    """A macro defined before ``function``.

    It reads as ``device`` under the device guard and as ``upstream`` elsewhere.
    """

    name: str
    file: str
    function: str
    device: str
    upstream: str
    where: Location


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One structural change. ``function`` None: the file itself is the entity.

    ``parameters`` tells twins apart: a token pattern that the parameter list must contain.
    ``count`` is the exact number of places. ``text`` is template source, given inline or by file.
    """

    id: str
    file: str
    function: str | None
    parameters: str | None
    at: Selector | None
    verb: Verb
    side: Side
    count: int
    text: str | None
    template: str | None
    alias: str | None
    header: str | None
    pairs: tuple[str, ...]
    where: Location


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """One patch.toml. ``number`` and ``folder`` come from the folder's name."""

    number: int
    folder: str
    id: str
    title: str
    why: str
    links: tuple[str, ...]
    status: Status
    effect: str
    effect_source: str
    without: str
    builds: BuildRange
    requires: tuple[Requirement, ...]
    guard_macros: tuple[str, ...]
    context: tuple[str, ...]
    files: tuple[NewFile, ...]
    aliases: tuple[Alias, ...]
    edits: tuple[Edit, ...]
    resources: ResourceRules
    fate: Fate
    bench: BenchRules
    moves: tuple[KernelMove, ...]
    where: Location


class _Builds(TomlModel):
    first: int = Field(ge=1)
    last: int | None = Field(default=None, ge=1)
    why: str = Field(min_length=1)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.last is not None and self.last < self.first:
            raise ValueError(f"last ({self.last}) is before first ({self.first})")
        return self


class _Expected(TomlModel):
    effect: str = Field(min_length=1)
    source: str = Field(min_length=1)


class _Requires(TomlModel):
    patch: str = Field(pattern=_ID)
    why: str = Field(min_length=1)


class _Guard(TomlModel):
    macros: list[_Macro] = Field(min_length=1)


class _File(TomlModel):
    path: _Path
    template: _Path


class _Alias(TomlModel):
    name: _Macro
    file: _Path
    function: str = Field(min_length=1)
    device: _Meaning
    upstream: _Meaning


_NEEDS: dict[str, tuple[str, ...]] = {
    "change_to": ("at", "text"),
    "insert_before": ("at", "text"),
    "insert_after": ("at", "text"),
    "remove": ("at",),
    "add_include": ("header",),
    "use_alias": ("at", "alias"),
}


class _Edit(TomlModel):
    id: str = Field(pattern=_ID)
    file: _Path
    function: str | None = Field(default=None, min_length=1)
    parameters: str | None = Field(default=None, min_length=1)
    at: SelectorModel | None = None
    verb: Verb
    side: Side
    count: int = Field(default=1, ge=1)
    text: str | None = Field(default=None, min_length=1)
    template: _Path | None = None
    alias: _Macro | None = None
    header: _Path | None = None
    pairs: list[str] = Field(default_factory=list)

    @model_validator(mode="after")
    def _fits_verb(self) -> Self:
        given = {name for name in ("at", "alias", "header") if getattr(self, name) is not None}
        if self.text is not None and self.template is not None:
            raise ValueError("give 'text' or 'template', not both")
        if self.text is not None or self.template is not None:
            given.add("text")
        needed = set(_NEEDS[self.verb])
        if missing := sorted(needed - given):
            raise ValueError(f"verb '{self.verb}' needs {' and '.join(missing)}")
        if extra := sorted(given - needed):
            raise ValueError(f"verb '{self.verb}' takes no {' and no '.join(extra)}")
        if self.at is not None and (self.at.before or self.at.after) and "insert" not in self.verb:
            raise ValueError(
                f"'before' and 'after' are empty places: verb '{self.verb}' has nothing to act on"
            )
        if self.at is None and self.count != 1:
            raise ValueError(f"'count' counts the places of 'at': verb '{self.verb}' has one place")
        if self.parameters is not None and self.function is None:
            raise ValueError("'parameters' tells twins of a function apart: name the 'function'")
        return self


class PatchModel(TomlModel):
    """What patch.toml must be; the JSON schema is made from this."""

    id: str = Field(pattern=_ID)
    title: str = Field(min_length=1, max_length=72)
    why: str = Field(min_length=1)
    links: list[str] = Field(min_length=1)
    status: Status
    without: str = Field(min_length=1)
    context: list[str] = Field(default_factory=list)
    builds: _Builds
    expected: _Expected
    guard: _Guard
    requires: list[_Requires] = Field(default_factory=list)
    file: list[_File] = Field(default_factory=list)
    alias: list[_Alias] = Field(default_factory=list)
    edit: list[_Edit] = Field(min_length=1)
    resources: ResourceRulesModel | None = None
    upstream: UpstreamModel | None = None
    expires: ExpiresModel | None = None
    replaced_by: list[ReplacementModel] = Field(default_factory=list)
    bench: BenchRulesModel | None = None
    moves: list[KernelMoveModel] = Field(default_factory=list)

    @model_validator(mode="after")
    def _fits_status(self) -> Self:
        if self.upstream is not None:
            self.upstream.fit(self.status)
        return self


def parse_patch(document: Document, *, folder: str, number: int) -> Patch:
    """Validate one patch.toml.

    Raises an ErrorGroup of ConfigErrors, each with file:line:column and near misses.
    """
    model = validate(document, PatchModel, what="patch")
    if unfit := list(check_texts(document)):
        raise ErrorGroup(f"{document.path} has texts that cannot be used", unfit)
    at = document.locate
    return Patch(
        number=number,
        folder=folder,
        id=model.id,
        title=model.title,
        why=model.why.strip(),
        links=tuple(model.links),
        status=model.status,
        effect=model.expected.effect.strip(),
        effect_source=model.expected.source.strip(),
        without=model.without.strip(),
        builds=BuildRange(first=model.builds.first, last=model.builds.last, why=model.builds.why),
        requires=tuple(
            Requirement(patch=row.patch, why=row.why, where=at(("requires", i, "patch")))
            for i, row in enumerate(model.requires)
        ),
        guard_macros=tuple(model.guard.macros),
        context=tuple(model.context),
        files=tuple(
            NewFile(path=row.path, template=row.template, where=at(("file", i, "path")))
            for i, row in enumerate(model.file)
        ),
        aliases=tuple(
            Alias(**row.model_dump(), where=at(("alias", i, "name"))) for i, row in enumerate(model.alias)
        ),
        edits=tuple(_edit(row, at(("edit", i, "id"))) for i, row in enumerate(model.edit)),
        resources=model.resources.build() if model.resources is not None else ResourceRules(),
        fate=make_fate(model.status, model.links, model.upstream, model.expires, model.replaced_by),
        bench=model.bench.build() if model.bench is not None else BenchRules(),
        moves=tuple(row.build() for row in model.moves),
        where=at(("id",)),
    )


def _edit(row: _Edit, where: Location) -> Edit:
    return Edit(
        id=row.id,
        file=row.file,
        function=row.function,
        parameters=row.parameters,
        at=row.at.build() if row.at is not None else None,
        verb=row.verb,
        side=row.side,
        count=row.count,
        text=row.text,
        template=row.template,
        alias=row.alias,
        header=row.header,
        pairs=tuple(row.pairs),
        where=where,
    )
