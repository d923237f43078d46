"""Which GPUs each file of a change is for: ``--guard``, for the whole change or by path patterns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from patchkit.base.errors import UsageError
from patchkit.base.text import visible

NO_GUARD = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guards:
    """Patterns and guards. The first pattern that matches a path decides; ``*`` also matches ``/``."""

    rules: tuple[tuple[str, str], ...]

    def of(self, path: str) -> str | None:
        """The guard of a path; None if no pattern matches."""
        return next((guard for pattern, guard in self.rules if fnmatchcase(path, pattern)), None)

    @property
    def names(self) -> tuple[str, ...]:
        """Every guard, without duplicates."""
        return tuple(dict.fromkeys(guard for _, guard in self.rules))

    def split(self, paths: Iterable[str], name: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Each guard with its paths, unguarded ones first; raises IMPORT_OPTIONS."""
        parts: dict[str, list[str]] = {}
        for path in paths:
            guard = self.of(path)
            if guard is None:
                raise UsageError(
                    f"{name}: no --guard matches {path}",
                    code="IMPORT_OPTIONS",
                    hint="add a last one for all other paths: --guard '*=none', or '*=' with a GPU",
                )
            parts.setdefault(guard, []).append(path)
        order = sorted(parts, key=lambda guard: guard != NO_GUARD)
        return tuple((guard, tuple(parts[guard])) for guard in order)


def parse_guards(given: Sequence[str]) -> Guards:
    """The values of ``--guard``: ``GPUS`` for every path, or ``PATTERN=GPUS``.

    Raises IMPORT_OPTIONS.
    """
    rules = []
    for value in given:
        pattern, equals, guard = value.rpartition("=")
        if equals and not (pattern and guard):
            raise UsageError(
                f"--guard '{visible(value)}' is neither GPUS nor PATTERN=GPUS",
                code="IMPORT_OPTIONS",
                hint="for example --guard 'ggml/src/ggml-cuda/*=gfx1151' --guard '*=none'",
            )
        rules.append((pattern or "*", guard))
    whole = [guard for pattern, guard in rules if pattern == "*"]
    if len(whole) > 1 or (whole and rules[-1][0] != "*"):
        raise UsageError(
            "--guard without a pattern must be given once, and last",
            code="IMPORT_OPTIONS",
            why="the first --guard that matches a path decides, and one without a pattern matches every path",
            hint="give the ones with patterns first, and the one for all other paths last",
        )
    return Guards(rules=tuple(rules))
