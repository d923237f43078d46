"""One run of a program on another machine: its paths there, its files brought back.

Vocabulary: a path *here* has a counterpart *there*. A file beside ggml's libraries goes with its folder,
any other by itself; a path where nothing is yet is an output, and is fetched when the program has ended. What
the program prints is read with the paths of here, so that who asked need not know where it ran.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from patchkit.proc import Completed
from patchkit.runner.base import Job, Runner

_SIGNALLED = 128  # a shell's status for a program that a signal ended, plus the signal
_IN_FOLDER = 'mkdir -p "$0" && exec "$@"'


class Elsewhere(Runner, Protocol):
    """A runner on another machine; ``session`` names this process's jobs."""

    @property
    def session(self) -> str:
        """What tells the jobs of this process from those of every other."""
        ...

    def scratch(self, name: str) -> str:
        """The path of a folder there for outputs; it need not exist."""
        ...

    def fetch(self, there: str, here: Path) -> None:
        """Bring a file here, whole or not at all."""
        ...


@dataclass(slots=True, kw_only=True)
class _Paths:
    """Counterparts of the paths of one run. ``libraries`` are folders there."""

    runner: Elsewhere
    scratch: str
    counterparts: dict[str, str] = field(default_factory=dict)
    libraries: list[str] = field(default_factory=list)
    outputs: dict[str, Path] = field(default_factory=dict)

    def word(self, word: str) -> str:
        """An argument as it reads there."""
        path = Path(word)
        if not path.is_absolute():
            return word
        if not path.exists():
            there = f"{self.scratch}/{path.name}"
            self.outputs[there] = path
            self.counterparts[word] = there
            return there
        if path.is_file() and any(path.parent.glob("libggml-base.so*")):
            return f"{self._folder(path.parent)}/{path.name}"
        return self._folder(path) if path.is_dir() else self._placed(path)

    def _folder(self, folder: Path) -> str:
        there = self._placed(folder)
        if there not in self.libraries:
            self.libraries.append(there)
        return there

    def _placed(self, path: Path) -> str:
        there = self.runner.place(path)
        self.counterparts[str(path)] = there
        return there

    def as_here(self, output: bytes) -> bytes:
        """What was printed, with the paths of here."""
        for here, there in sorted(self.counterparts.items(), key=lambda pair: -len(pair[1])):
            output = output.replace(there.encode(), here.encode())
        return output


def run_elsewhere(
    runner: Elsewhere,
    name: str,
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    timeout_s: float,
) -> Completed:
    """Run to the end; a negative status is a signal, as for a program here.

    Raises:
        ToolTimeout: it was stopped after ``timeout_s``.
        The errors of :mod:`patchkit.runner.errors`.
    """
    paths = _Paths(runner=runner, scratch=runner.scratch(name))
    words = tuple(paths.word(word) for word in argv)
    settings = {key: paths.word(value) for key, value in env.items()}
    if paths.libraries:
        settings["LD_LIBRARY_PATH"] = ":".join(paths.libraries)
    job = Job(
        argv=("sh", "-c", _IN_FOLDER, paths.scratch, *words),
        tag=f"{runner.session}-{name}",
        env=settings,
        timeout_s=timeout_s,
    )
    done = runner.run(job)
    if done.returncode == 0:
        for there, here in paths.outputs.items():
            runner.fetch(there, here)
    status = _SIGNALLED - done.returncode if done.returncode > _SIGNALLED else done.returncode
    return replace(
        done,
        argv=tuple(argv),
        returncode=status,
        stdout=paths.as_here(done.stdout),
        stderr=paths.as_here(done.stderr),
    )
