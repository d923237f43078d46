"""For whom each file of a change is: ``--guard``, for all of it or by patterns of paths."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from patchkit.base.errors import UsageError
from patchkit.base.text import visible

EVERYBODY = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guards:
    """Pattern and guard, in order: of a path the first that fits counts. ``*`` fits any folders, too."""

    rules: tuple[tuple[str, str], ...]

    def of(self, path: str) -> str | None:
        """The guard of a path; None where no pattern fits."""
        return next((guard for pattern, guard in self.rules if fnmatchcase(path, pattern)), None)

    @property
    def names(self) -> tuple[str, ...]:
        """Every guard, once."""
        return tuple(dict.fromkeys(guard for _, guard in self.rules))

    def split(self, paths: Iterable[str], name: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Each guard with its paths, what is for everybody first; raises IMPORT_GUARD_UNKNOWN."""
        parts: dict[str, list[str]] = {}
        for path in paths:
            guard = self.of(path)
            if guard is None:
                raise UsageError(
                    f"{name}: no --guard says for whom {path} is",
                    code="IMPORT_GUARD_UNKNOWN",
                    hint="a last one for the rest: --guard '*=none', or of a GPU",
                )
            parts.setdefault(guard, []).append(path)
        order = sorted(parts, key=lambda guard: guard != EVERYBODY)
        return tuple((guard, tuple(parts[guard])) for guard in order)


def parse_guards(given: Sequence[str]) -> Guards:
    """The values of ``--guard``: ``GPUS`` for every path, or ``PATTERN=GPUS``.

    Raises IMPORT_GUARD_UNKNOWN.
    """
    rules = []
    for value in given:
        pattern, equals, guard = value.rpartition("=")
        if equals and not (pattern and guard):
            raise UsageError(
                f"--guard '{visible(value)}' is neither GPUS nor PATTERN=GPUS",
                code="IMPORT_GUARD_UNKNOWN",
                hint="--guard 'ggml/src/ggml-cuda/*=gfx1151' --guard '*=none', for example",
            )
        rules.append((pattern or "*", guard))
    whole = [guard for pattern, guard in rules if pattern == "*"]
    if len(whole) > 1 or (whole and rules[-1][0] != "*"):
        raise UsageError(
            "several --guard without a pattern, or one behind which others never count",
            code="IMPORT_GUARD_UNKNOWN",
            why="of a path the first --guard that fits counts, and this one fits every path",
            hint="name the patterns first, and the one for all paths last",
        )
    return Guards(rules=tuple(rules))
