"""Builds that are shell scripts, for tests of ``bisect``: what they print is whether they are good.

``python bisected.py FOLDER FAULT COMMAND...`` searches twelve of them, of which those from FAULT on are bad.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from patchkit.base.reporter import NullReporter, Reporter
from patchkit.gpu.hardware.bench.journal import open_journal
from patchkit.prove.bisect.checks import CommandCheck
from patchkit.prove.bisect.command import TESTED, BisectReport, search_candidates
from patchkit.prove.bisect.steps import Step
from patchkit.toolchain.cmake import BuildFailed
from patchkit.toolchain.sides import BuiltSide

SIZE = 12


@dataclass
class Scripts:
    """Four builds and then patches; ``broken`` do not build. ``made`` has the names of those that were."""

    folder: Path
    fault: int
    broken: frozenset[int] = frozenset()
    size: int = SIZE
    is_fixed_without: bool = True
    made: list[str] = field(default_factory=list)

    @property
    def all(self) -> tuple[Step, ...]:
        builds = [Step(name=f"b{100 + at}", identity=(f"{at:040x}",), build=100 + at) for at in range(4)]
        names = [f"patch-{at}" for at in range(4, self.size)]
        patches = [
            Step(name=f"b103 + {name}", identity=tuple(names[: count + 1]), patch=name)
            for count, name in enumerate(names)
        ]
        return (*builds, *patches)

    def tree_of(self, step: Step) -> str:
        return f"tree of {step.name}"

    def tree_without(self, patch: str) -> str:
        return f"tree without {patch}"

    @contextmanager
    def ready(self, step: Step) -> Iterator[BuiltSide]:
        at = self.all.index(step)
        if at in self.broken:
            raise BuildFailed("the build of upstream failed: no such type")
        with self._side(step.name, is_good=at < self.fault) as side:
            yield side

    @contextmanager
    def ready_without(self, patch: str) -> Iterator[BuiltSide]:
        with self._side(f"without {patch}", is_good=self.is_fixed_without) as side:
            yield side

    @contextmanager
    def _side(self, name: str, *, is_good: bool) -> Iterator[BuiltSide]:
        self.made.append(name)
        folder = self.folder / name.replace(" ", "-")
        folder.mkdir(parents=True, exist_ok=True)
        program = folder / "llama-cli"
        program.write_text(f"#!/bin/sh\necho {'Paris' if is_good else 'Pxris'} $GGML_PATCHES_OFF\n")
        program.chmod(0o755)
        environment = {"GGML_PATCHES_OFF": name.partition(" ")[0]}
        yield BuiltSide(
            tree=name,
            backend="cpu",
            folder=folder,
            module=program,
            cpu=program,
            parts=(),
            environment=environment,
        )


def search(
    scripts: Scripts,
    *command: str,
    out: Path,
    fresh: bool = False,
    environ: Mapping[str, str] | None = None,
    timeout_s: float = 60.0,
    reporter: Reporter | None = None,
) -> BisectReport:
    """As the command does it, with the journal in ``out``."""
    by = reporter or NullReporter()
    check = CommandCheck(argv=command, environ=environ or dict(os.environ), timeout_s=timeout_s, reporter=by)
    with open_journal(out, {"test": dict(check.identity)}, TESTED, fresh=fresh) as journal:
        return search_candidates(scripts, check, journal, by)


if __name__ == "__main__":
    place = Path(sys.argv[1])
    found = search(Scripts(place / "builds", int(sys.argv[2])), *sys.argv[3:], out=place / "out")
    sys.stdout.write(f"{found.bad} {len(found.tested)}\n")
