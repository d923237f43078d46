"""The kinds of errors that patchkit raises on purpose, and their exit codes."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import ClassVar, Self


class ExitCode(enum.IntEnum):
    """Exit status of the process; one number per kind of failure."""

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
    """A position in a file: ``path:line:column``, lines and columns counted from 1.

    ``column`` counts bytes, as clang does. ``label`` describes the position.
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
        """``path:line:column: label``, without the parts that are not set."""
        return f"{self}: {self.label}" if self.label else str(self)


class PatchkitError(Exception):
    """Base of all expected errors.

    ``code`` is a constant that programs can match on, described in docs/reference/errors.md.
    ``where`` lists the positions involved, the most important first; ``why`` is the reason, if the
    message does not give it; ``hint`` is what to run or edit next.
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
        arguments = (type(self), self.message, self.code, self.where, self.why, self.hint)
        return (_rebuild, arguments, dict(self.__dict__))  # the dict has attributes of subclasses


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
    """A candidate failed a check."""

    code = "GATE"
    exit_code = ExitCode.GATE_FAILED


class UsageError(PatchkitError):
    """The command line is invalid, or names something that does not exist or cannot be done."""

    code = "USAGE"
    exit_code = ExitCode.USAGE


class ConfigError(PatchkitError):
    """A profile, patch.toml, series or lock file is missing or invalid."""

    code = "CONFIG"
    exit_code = ExitCode.USAGE


class AnchorError(PatchkitError):
    """A place in upstream's code is missing, ambiguous or changed."""

    code = "ANCHOR"
    exit_code = ExitCode.ANCHOR


class RenderError(PatchkitError):
    """A template does not render, or its output is not allowed."""

    code = "RENDER"
    exit_code = ExitCode.RENDER


class GitError(PatchkitError):
    """git is missing or failed, or a repository is not in the required state."""

    code = "GIT"
    exit_code = ExitCode.GIT


class ToolchainError(PatchkitError):
    """A compiler, libclang or another build tool is missing or failed."""

    code = "TOOLCHAIN"
    exit_code = ExitCode.TOOLCHAIN


class SourceError(PatchkitError):
    """The pinned tree could not be fetched, or does not match the lock."""

    code = "SOURCE"
    exit_code = ExitCode.SOURCE


class CacheError(PatchkitError):
    """A local disk operation failed: disk full, read-only, no permission."""

    code = "CACHE"
    exit_code = ExitCode.CACHE


class InternalError(PatchkitError):
    """An internal check failed; always a bug in patchkit."""

    code = "INTERNAL"
    exit_code = ExitCode.INTERNAL


class ErrorGroup(PatchkitError):
    """Several errors found in one pass, so that users see all of them at once.

    The exit code is that of the first member: the earliest stage that failed.
    """

    code = "SEVERAL"

    def __init__(self, message: str, errors: Sequence[PatchkitError]) -> None:
        super().__init__(message)
        self.errors = tuple(errors)

    def __reduce__(self) -> tuple[object, ...]:
        return (ErrorGroup, (self.message, self.errors))


def members_of(error: PatchkitError) -> Iterator[PatchkitError]:
    """The error itself, or the members of a group in order, with nested groups flattened."""
    if isinstance(error, ErrorGroup):
        for member in error.errors:
            yield from members_of(member)
    else:
        yield error


def raise_all(errors: Sequence[PatchkitError], message: str | None = None) -> None:
    """Raise the errors, if there are any; several as one group, with the first one's message by default."""
    if errors:
        raise errors[0] if len(errors) == 1 else ErrorGroup(message or errors[0].message, errors)


@dataclass(slots=True)
class InterruptNote:
    """A context manager that adds a note to a KeyboardInterrupt: the state that the interrupt leaves."""

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
