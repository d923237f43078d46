"""Every error patchkit raises on purpose, and the exit code of its kind."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import ClassVar, Self


class ExitCode(enum.IntEnum):
    """What the process returns; one number per kind of failure."""

    OK = 0
    GATE_FAILED = 1
    USAGE = 2
    ANCHOR = 3
    RENDER = 4
    GIT = 5
    TOOLCHAIN = 6
    SOURCE = 7
    CACHE = 8
    FEWER_PATCHES = 9
    NOTHING = 10
    INTERNAL = 70
    INTERRUPTED = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """A place a person can open: ``path:line:column``, lines and columns counted from 1.

    ``column`` counts bytes, as clang does. ``label`` says what stands there.
    """

    path: str
    line: int | None = None
    column: int | None = None
    label: str | None = None

    def __str__(self) -> str:
        parts = [self.path]
        if self.line is not None:
            parts.append(str(self.line))
            if self.column is not None:
                parts.append(str(self.column))
        return ":".join(parts)

    @property
    def with_label(self) -> str:
        """``path:line:column: label``, as far as it has them."""
        return f"{self}: {self.label}" if self.label else str(self)


class PatchkitError(Exception):
    """Root of all expected failures.

    ``code`` is a constant a program can match on; docs/reference/errors.md says what each one means.
    ``where`` lists the places involved, the most important first; ``why`` is the reason when the
    message alone does not give it; ``hint`` is the next command or edit.
    """

    code: str = "PATCHKIT"
    exit_code: ClassVar[ExitCode] = ExitCode.INTERNAL

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        where: Location | Sequence[Location] | None = None,
        why: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code
        if where is None:
            self.where: tuple[Location, ...] = ()
        elif isinstance(where, Location):
            self.where = (where,)
        else:
            self.where = tuple(where)
        self.why = why
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        made = (type(self), self.message, self.code, self.where, self.why, self.hint)
        return (_rebuild, made, dict(self.__dict__))  # and what a kind of error has besides


def _rebuild(
    cls: type[PatchkitError],
    message: str,
    code: str,
    where: tuple[Location, ...],
    why: str | None,
    hint: str | None,
) -> PatchkitError:
    return cls(message, code=code, where=where, why=why, hint=hint)


class GateError(PatchkitError):
    """A check found that a candidate is not what it must be."""

    code = "GATE"
    exit_code = ExitCode.GATE_FAILED


class UsageError(PatchkitError):
    """The command line asks for something that cannot be."""

    code = "USAGE"
    exit_code = ExitCode.USAGE


class ConfigError(PatchkitError):
    """A profile, patch.toml, series or lock file is not what it must be."""

    code = "CONFIG"
    exit_code = ExitCode.USAGE


class AnchorError(PatchkitError):
    """A place in upstream's code is missing, ambiguous or not what it was."""

    code = "ANCHOR"
    exit_code = ExitCode.ANCHOR


class RenderError(PatchkitError):
    """A template does not render, or renders something it must not."""

    code = "RENDER"
    exit_code = ExitCode.RENDER


class GitError(PatchkitError):
    """git is missing, refused, or a repository is not in the state it must be in."""

    code = "GIT"
    exit_code = ExitCode.GIT


class ToolchainError(PatchkitError):
    """A compiler, libclang or another build tool is missing or failed."""

    code = "TOOLCHAIN"
    exit_code = ExitCode.TOOLCHAIN


class SourceError(PatchkitError):
    """The pinned tree could not be had, or what came is not what the lock names."""

    code = "SOURCE"
    exit_code = ExitCode.SOURCE


class CacheError(PatchkitError):
    """The local disk refused: full, read-only, no permission."""

    code = "CACHE"
    exit_code = ExitCode.CACHE


class InternalError(PatchkitError):
    """patchkit broke a promise to itself; always a bug."""

    code = "INTERNAL"
    exit_code = ExitCode.INTERNAL


class ErrorGroup(PatchkitError):
    """Several failures found in one pass, so that none hides behind the first.

    The command line exits with the code of the first member: the earliest stage that failed.
    """

    code = "SEVERAL"

    def __init__(self, message: str, errors: Sequence[PatchkitError]) -> None:
        super().__init__(message)
        self.errors = tuple(errors)

    def __reduce__(self) -> tuple[object, ...]:
        return (ErrorGroup, (self.message, self.errors))


def members_of(error: PatchkitError) -> Iterator[PatchkitError]:
    """The error itself, or all the members of a group, groups in groups opened, in order."""
    if isinstance(error, ErrorGroup):
        for member in error.errors:
            yield from members_of(member)
    else:
        yield error


@dataclass(slots=True)
class InterruptNote:
    """A context that gives a KeyboardInterrupt a note: ``text`` says what is true if the work ends now."""

    text: str

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, KeyboardInterrupt):
            error.add_note(self.text)


def map_texts(error: PatchkitError, transform: Callable[[str], str]) -> None:
    """Apply ``transform`` to the message, paths, reason and hint of an error, and of a group's members."""
    for member in error.errors if isinstance(error, ErrorGroup) else ():
        map_texts(member, transform)
    error.message = transform(error.message)
    error.args = (error.message,)
    error.where = tuple(replace(place, path=transform(place.path)) for place in error.where)
    error.why = error.why and transform(error.why)
    error.hint = error.hint and transform(error.hint)
