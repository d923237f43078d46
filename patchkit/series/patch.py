"""patches/NNNN-topic/patch.toml: one reason to change upstream, as data."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from patchkit.base.errors import ConfigError, ErrorGroup, Location
from patchkit.base.text import orders_in
from patchkit.series.promises import (
    BenchRules,
    BenchRulesModel,
    KernelMove,
    KernelMoveModel,
    LaunchPromises,
    ResourceRules,
    ResourceRulesModel,
)
from patchkit.series.selector import Selector, SelectorModel
from patchkit.series.toml import Document, KeyPath, TomlModel, validate

BREAKS_MAIL = re.compile(
    r"---|diff -|index:|>?from[ :]|subject:|date:|message-id:|content-|\[patch\]", re.IGNORECASE
)
"""How a line must not begin: git am would take it for the start of the diff or for a header.

From git's mailinfo.c: patchbreak() and check_inbody_header().
"""

_PROSE: frozenset[KeyPath] = frozenset({("why",), ("without",), ("expected", "effect")})
_CODE_KEYS = frozenset({"text", "at", "parameters"})
_SEVERAL_LINES = frozenset("\n\t")


def check_texts(document: Document) -> Iterator[ConfigError]:
    """Every string of a valid patch.toml that could not become what it is for."""
    for path, text in _strings(document.table, ()):
        allowed = _SEVERAL_LINES if path in _PROSE or _is_code(path) else frozenset()
        bad = next((char for char in orders_in(text) if char not in allowed), None)
        if bad is not None:
            yield ConfigError(
                f"{_name(path)} holds the control character U+{ord(bad):04X}",
                code="PATCH_CONTROL_CHARACTER",
                where=document.locate(path),
                why="only why, without, effect and the text of an edit have several lines",
                hint="remove it",
            )
        elif path[0] in ("title", "links") and text != " ".join(text.split()):
            yield ConfigError(
                f"{_name(path)} has blanks that git am would not keep",
                code="PATCH_UNTIDY_LINE",
                where=document.locate(path),
                hint="one blank between words, none at the ends",
            )
        elif path == ("why",) and BREAKS_MAIL.match(text.lstrip()):
            yield ConfigError(
                f"'why' begins with '{text.split()[0]}'",
                code="PATCH_BREAKS_MAIL",
                where=document.locate(path),
                why="git am would take that line for a header or for the start of the diff",
                hint="begin with another word",
            )


def _strings(value: object, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _strings(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _strings(inner, (*path, index))


def _is_code(path: KeyPath) -> bool:
    return len(path) >= 3 and path[0] == "edit" and path[2] in _CODE_KEYS  # noqa: PLR2004  edit, number, key


def _name(path: KeyPath) -> str:
    names = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return f"'{names.removeprefix('.')}'"


Standing = Literal["none", "submitted", "merged", "rejected"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """A token pattern in a function of upstream that means: upstream does this itself now."""

    file: str
    function: str
    tokens: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """``url``, ``merged_in`` and ``reason`` belong to the standing; ``since`` is when the patch was begun."""

    standing: Standing = "none"
    url: str | None = None
    merged_in: int | None = None
    reason: str | None = None
    since: dt.date | None = None
    expires_build: int | None = None
    expires_on: dt.date | None = None
    expires_why: str | None = None
    replaced_by: tuple[Replacement, ...] = ()

    def __str__(self) -> str:
        match self.standing:
            case "none":
                return "not submitted"
            case "submitted":
                return f"submitted: {self.url or 'no link'}"
            case "merged":
                return f"merged in b{self.merged_in}" if self.merged_in else "merged, build not written down"
            case "rejected":
                return f"rejected: {self.reason or 'no reason written down'}"

    def expired(self, build: int, today: dt.date) -> str | None:
        """Why a person has to look at the patch now, if so."""
        if self.expires_build is not None and build > self.expires_build:
            return f"expired after b{self.expires_build}: {self.expires_why}"
        if self.expires_on is not None and today > self.expires_on:
            return f"expired on {self.expires_on.isoformat()}: {self.expires_why}"
        return None


class UpstreamModel(TomlModel):
    """``[upstream]``."""

    url: str | None = Field(default=None, min_length=1)
    merged_in: int | None = Field(default=None, ge=1)
    reason: str | None = Field(default=None, min_length=1)
    since: dt.date | None = None

    def fit(self, status: str) -> None:
        """Raises ValueError when the table lacks what the patch's status calls for, or excludes."""
        if status == "submitted" and self.url is None:
            raise ValueError("status 'submitted' needs [upstream] url")
        if status == "rejected" and self.reason is None:
            raise ValueError("status 'rejected' needs [upstream] reason")
        if status == "backport" and self.merged_in is None:
            raise ValueError("status 'backport' needs [upstream] merged_in")
        if status != "backport" and self.merged_in is not None:
            raise ValueError(f"merged_in does not go with status '{status}': it is a 'backport' then")


class ExpiresModel(TomlModel):
    """``[expires]``."""

    build: int | None = Field(default=None, ge=1)
    on: dt.date | None = None
    why: str = Field(min_length=1)

    @model_validator(mode="after")
    def _one_end(self) -> Self:
        if (self.build is None) == (self.on is None):
            raise ValueError("give 'build' or 'on', one of them")
        return self


class ReplacementModel(TomlModel):
    """``[[replaced_by]]``."""

    file: str = Field(min_length=1)
    function: str = Field(min_length=1)
    tokens: str = Field(min_length=1)
    why: str = Field(min_length=1)

    def build(self) -> Replacement:
        """The table as data."""
        return Replacement(file=self.file, function=self.function, tokens=self.tokens, why=self.why.strip())


_STANDINGS: dict[str, Standing] = {"submitted": "submitted", "rejected": "rejected", "backport": "merged"}


def make_fate(
    status: str,
    links: Sequence[str],
    upstream: UpstreamModel | None,
    expires: ExpiresModel | None,
    replaced_by: Sequence[ReplacementModel],
) -> Fate:
    """The tables as data; a patch without ``[upstream]`` stands as its status says, by its first link."""
    table = upstream if upstream is not None else UpstreamModel()
    return Fate(
        standing=_STANDINGS.get(status, "none"),
        url=table.url or (links[0] if status == "submitted" and links else None),
        merged_in=table.merged_in,
        reason=table.reason,
        since=table.since,
        expires_build=expires.build if expires is not None else None,
        expires_on=expires.on if expires is not None else None,
        expires_why=expires.why.strip() if expires is not None else None,
        replaced_by=tuple(row.build() for row in replaced_by),
    )


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
    launches: LaunchPromises
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
    launches: LaunchPromises = Field(default_factory=LaunchPromises)

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
        launches=model.launches,
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
