"""The model of ``picked.toml``, the patches chosen by measuring; ``pick`` writes it, ``apply`` reads it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from patchkit.base.errors import ConfigError, Location
from patchkit.base.toml import NOWHERE, NotInFile, Several, TomlTable, Words, load_toml, validate
from patchkit.carry.series.lock import ObjectId

PickedVerdict = Annotated[
    Literal["keep", "leave out", "unclear"],
    BeforeValidator(lambda word: "unclear" if word == "cannot tell" else word),
]
"""Files of earlier versions have ``cannot tell`` for ``unclear``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PickedPatch(TomlTable):
    """One patch that was measured; ``why`` is a sentence for the user."""

    id: Words
    verdict: PickedVerdict
    why: Words
    where: NotInFile[Location] = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class PickedFile(TomlTable):
    """``upstream`` names the pin, ``tree`` is that of the picked set; ``device`` describes the machine."""

    format: Annotated[int, Field(ge=1, le=1)]
    archs: Annotated[Several[Words], Field(min_length=1)]
    upstream: Words
    tree: ObjectId
    device: Words
    models: Several[Words]
    tests: Several[Words]
    patch: Several[PickedPatch]
    where: NotInFile[Location] = NOWHERE

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for one in self.patch:
            if one.id in seen:
                raise ValueError(f"patch '{one.id}' is listed twice")
            seen.add(one.id)

    @property
    def kept(self) -> tuple[str, ...]:
        """The patches to apply."""
        return tuple(one.id for one in self.patch if one.verdict == "keep")


def load_picked(path: Path) -> PickedFile:
    """Read a file that ``pick`` wrote.

    Raises:
        PICKED_NOTHING: it keeps no patch.
        The errors of reading a TOML file.
    """
    document = load_toml(path)
    if not document.data:
        raise ConfigError(
            "the file is empty",
            code="PICKED_NOTHING",
            where=Location(path=str(path)),
            hint="give the picked.toml that patchkit pick wrote",
        )
    picked = validate(document, PickedFile, what="picked set")
    if not picked.kept:
        raise ConfigError(
            "the file keeps no patch",
            code="PICKED_NOTHING",
            where=Location(path=str(path)),
            why="no patch was shown to be faster than unpatched upstream on that machine",
            hint="build upstream without patches; or, if results were unclear, run patchkit pick with more "
            "--minutes",
        )
    return picked


def picked_text(picked: PickedFile) -> str:
    """The text of the file; equal choices give equal bytes."""
    return "\n".join(_lines(picked)) + "\n"


def _lines(picked: PickedFile) -> Iterator[str]:
    yield "# Written by patchkit pick; patchkit apply --picked FILE takes it."
    yield f"format = {picked.format}"
    yield f"archs = {_array(picked.archs)}"
    yield f"upstream = {_text(picked.upstream)}"
    yield f"tree = {_text(picked.tree)}"
    yield f"device = {_text(picked.device)}"
    yield f"models = {_array(picked.models)}"
    yield f"tests = {_array(picked.tests)}"
    for one in picked.patch:
        yield ""
        yield "[[patch]]"
        yield f"id = {_text(one.id)}"
        yield f"verdict = {_text(one.verdict)}"
        yield f"why = {_text(one.why)}"


def _text(words: str) -> str:
    """A basic string of TOML: all of JSON's escapes are valid in TOML; only DEL needs one more."""
    return json.dumps(words, ensure_ascii=False).replace("\x7f", "\\u007f")


def _array(words: Sequence[str]) -> str:
    return f"[{', '.join(map(_text, words))}]"
