"""patches/upstream.lock: which upstream trees patchkit knows, and what it made of them.

Vocabulary: a *pin* is one upstream commit with the hash of its tree; its *sources* say how the tree
can be had; its *commit object* is the raw upstream commit, with which a tree from any source stands
on the very commit of upstream. A function is *followed* when this pin has it under another name or in
another file than patch.toml says. A *result* is what one list of patches gave for one list of archs:
commit and tree, and the digests of everything that went in.

The file is written by :mod:`patchkit.config.lock_text`; a person reads it, and never edits it.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from patchkit.config.lock_check import find_problems
from patchkit.config.lock_model import GitModel, LockModel, PinModel, ResultModel, decode_object
from patchkit.config.toml import Document, load_toml, validate
from patchkit.errors import ConfigError, ErrorGroup, Location, UsageError

_SHORTEST_PREFIX = 4  # hex digits; git itself takes no fewer


@dataclass(frozen=True, slots=True, kw_only=True)
class GitSource:
    """A git repository that serves the pinned commit."""

    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SdistSource:
    """A source distribution that carries the tree in ``subdir``, but for the ``omit`` paths.

    ``sha256`` is that of the archive; ``omit`` is relative to ``subdir``.
    """

    package: str
    version: str
    sha256: str
    subdir: str
    omit: tuple[str, ...]


Source = GitSource | SdistSource


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Followed:
    """A function that patches name, and its place on one pin; found and proven by a bump."""

    file: str
    function: str
    now_file: str
    now_function: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """One upstream commit. ``committed`` is RFC 3339 with its zone; it dates patchkit's commits.

    ``ggml`` is the version in ggml's CMake file, where it is written down: it tells about which build a tree
    without history is. A pin with a ``clone`` (``--onto``) is a commit of the user's repository there and no
    source has it; its ``build`` is that of upstream below it.
    """

    build: int
    commit: str | None
    tree: str
    committed: str
    commit_object: bytes | None
    sources: tuple[Source, ...]
    followed: tuple[Followed, ...] = ()
    ggml: str | None = None
    clone: Path | None = None
    where: Location | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        """``b`` and the build number, as upstream names its releases; of a clone ``onto-`` and the commit."""
        return f"b{self.build}" if self.clone is None else f"onto-{(self.commit or self.tree)[:12]}"

    @property
    def option(self) -> str:
        """What names this pin on the command line: ``--upstream b6900``, or ``--onto`` with the clone."""
        if self.clone is None:
            return f"--upstream {self.name}"
        return f"--onto {self.name.removeprefix('onto-')} --repo {shlex.quote(str(self.clone))}"


PinWanted = str | Pin | None
"""A pin as the command line names it: by name, the lock's default, or the pin itself (``--onto``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What patches gave on a pin. ``archs`` is sorted, ``patches`` in order of application.

    ``inputs``: sha256 by path of every profile, patch.toml and template; ``rendered``: sha256 by
    ``patch-id/edit-id``; ``entities``: token digest by ``file::entity``.
    """

    build: int
    archs: tuple[str, ...]
    patches: tuple[str, ...]
    tree: str
    commit: str
    inputs: Mapping[str, str]
    rendered: Mapping[str, str]
    entities: Mapping[str, str]
    where: Location | None = field(default=None, compare=False)

    @property
    def key(self) -> tuple[int, tuple[str, ...], tuple[str, ...]]:
        """What tells results apart: build, archs, patches."""
        return (self.build, self.archs, self.patches)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """The whole file; ``default`` is the build used when none is asked for."""

    path: str
    default: int
    pins: tuple[Pin, ...]
    results: tuple[Result, ...]

    def pin(self, wanted: PinWanted | int = None) -> Pin:
        """The pin of a build (``6900``, ``b6900``), of a commit prefix, or the default; a pin is itself.

        Raises:
            PIN_UNKNOWN: none fits.
            PIN_AMBIGUOUS: a commit prefix fits several.
        """
        if isinstance(wanted, Pin):
            return wanted
        name = str(self.default if wanted is None else wanted).strip().lower()
        exact = [pin for pin in self.pins if name in (pin.name, str(pin.build), pin.commit)]
        if exact:
            return exact[0]
        near = [pin for pin in self.pins if len(name) >= _SHORTEST_PREFIX and _starts(pin, name)]
        if len(near) == 1:
            return near[0]
        known = ", ".join(pin.name for pin in self.pins)
        where = Location(path=self.path)
        if near:
            raise UsageError(
                f"'{wanted}' fits several pins: {', '.join(pin.name for pin in near)}",
                code="PIN_AMBIGUOUS",
                where=where,
                hint="give more digits of the commit, or the build number",
            )
        raise UsageError(
            f"the lock has no pin '{wanted}'",
            code="PIN_UNKNOWN",
            where=where,
            hint=f"use one of the pins it has: {known}",
        )

    def result(self, build: int, archs: Sequence[str], patches: Sequence[str]) -> Result | None:
        """The recorded result for exactly these archs (any order) and patches (this order)."""
        key = (build, tuple(sorted(archs)), tuple(patches))
        return next((result for result in self.results if result.key == key), None)

    def with_followed(self, build: int, followed: Sequence[Followed]) -> Lock:
        """This lock with what was found on a pin added to what it says of it already."""
        pins = []
        for pin in self.pins:
            if pin.build == build:
                said = {(each.file, each.function): each for each in (*pin.followed, *followed)}
                pins.append(replace(pin, followed=tuple(sorted(said.values()))))
            else:
                pins.append(pin)
        return replace(self, pins=tuple(pins))

    def with_result(self, result: Result) -> Lock:
        """This lock with ``result`` in the place of the one with the same key, if any."""
        kept = (other for other in self.results if other.key != result.key)
        return Lock(
            path=self.path,
            default=self.default,
            pins=self.pins,
            results=tuple(sorted((*kept, result), key=lambda each: each.key)),
        )


def load_lock(path: Path) -> Lock:
    """Read and check a lock file; raises as :func:`parse_lock`, and the errors of reading a file."""
    return parse_lock(load_toml(path))


def parse_lock(document: Document) -> Lock:
    """The lock in a document.

    Raises:
        ErrorGroup: one ConfigError per wrong field, with its line: types and forms first; when those
            are right, what does not fit together.
    """
    model = validate(document, LockModel, what="lock")
    problems: tuple[ConfigError, ...] = find_problems(model, document.locate)
    if problems:
        count = len(problems)
        raise ErrorGroup(f"{document.path} is not a valid lock: {count} problem{'s'[: count > 1]}", problems)
    at: Callable[[tuple[str | int, ...]], Location] = document.locate
    return Lock(
        path=document.path,
        default=model.default,
        pins=tuple(_pin(row, at(("pin", i, "build"))) for i, row in enumerate(model.pin)),
        results=tuple(_result(row, at(("result", i, "build"))) for i, row in enumerate(model.result)),
    )


def _pin(row: PinModel, where: Location) -> Pin:
    return Pin(
        build=row.build,
        commit=row.commit,
        tree=row.tree,
        committed=row.committed,
        commit_object=decode_object(row.commit_object),
        sources=tuple(
            GitSource(url=source.url)
            if isinstance(source, GitModel)
            else SdistSource(
                package=source.package,
                version=source.version,
                sha256=source.sha256,
                subdir=source.subdir,
                omit=source.omit,
            )
            for source in row.source
        ),
        followed=tuple(
            Followed(
                file=each.file,
                function=each.function,
                now_file=each.now_file,
                now_function=each.now_function,
            )
            for each in row.followed
        ),
        ggml=row.ggml,
        where=where,
    )


def _result(row: ResultModel, where: Location) -> Result:
    return Result(
        build=row.build,
        archs=row.archs,
        patches=row.patches,
        tree=row.tree,
        commit=row.commit,
        inputs=row.inputs,
        rendered=row.rendered,
        entities=row.entities,
        where=where,
    )


def _starts(pin: Pin, prefix: str) -> bool:
    return pin.commit is not None and pin.commit.startswith(prefix)
