"""A toolchain with the store of what it compiled, and its compiler, run with low priority."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from patchkit.base.process import Completed, run_tool
from patchkit.base.reporter import NullReporter, Reporter, Work
from patchkit.base.store import Journal, Store
from patchkit.toolchain.hip import Toolchain, toolchain_identity
from patchkit.toolchain.shared import shared_store


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiler:
    """A toolchain with the store of what it made; ``identity`` covers its version and its headers.

    Once ``stop`` is set every compiler that runs is ended. In another process, which shares only the file
    system, it has a ``stop`` of its own and reports nothing. Workers of the Dask ``scheduler``, if there is
    one, compile for it.
    """

    toolchain: Toolchain
    store: Store
    identity: str
    reporter: Reporter
    stop: threading.Event = field(default_factory=threading.Event, compare=False)
    scheduler: str | None = field(default=None, compare=False)

    def __reduce__(self) -> tuple[Callable[..., Compiler], tuple[Toolchain, Path, Reporter]]:
        return open_compiler, (self.toolchain, self.cache_root, NullReporter())

    @property
    def cache_root(self) -> Path:
        """The cache folder that the store lies in."""
        return self.store.root.parent

    def portable(self, arguments: Sequence[str]) -> list[str]:
        """Arguments without the folders of this machine, so that a key is the same in a copied cache.

        ``identity`` says what is in the toolchain's; what lies in the cache has its content in its name.
        """
        chain = self.toolchain
        places = [(str(chain.clang), "{clang}"), (str(chain.device_libs), "{device-libs}")]
        if chain.rocwmma is not None:
            places.append((str(chain.rocwmma.include), "{rocwmma}"))
        places.append((str(chain.root), "{root}"))
        places.append((str(self.cache_root), "{cache}"))
        told = []
        for argument in arguments:
            for place, name in places:
                argument = argument.replace(place, name)  # noqa: PLW2901 - folded over the places
            told.append(argument)
        return told


def open_compiler(
    toolchain: Toolchain,
    cache_root: Path,
    reporter: Reporter,
    scheduler: str | None = None,
    *,
    stop: threading.Event | None = None,
) -> Compiler:
    """The compiler of a toolchain, with the store ``cache_root``/objects and the shared one.

    Raises STORE_PLACE_BAD.
    """
    return Compiler(
        toolchain=toolchain,
        store=open_store(cache_root, reporter),
        identity=toolchain_identity(toolchain),
        reporter=reporter,
        scheduler=scheduler,
        stop=threading.Event() if stop is None else stop,
    )


_journals: dict[Path, Journal] = {}


def journal_file(cache_root: Path, tree: str) -> Path:
    """Where it is kept which entries the runs over a candidate's tree used."""
    return cache_root / "objects" / "used" / f"{tree}.json"


def open_store(cache_root: Path, reporter: Reporter) -> Store:
    """The store ``cache_root``/objects with the shared one, if any; all of one process have one journal.

    Raises STORE_PLACE_BAD.
    """
    journal = _journals.setdefault(cache_root.resolve(), Journal())
    shared = shared_store(os.environ, reporter)
    return Store(root=cache_root / "objects", shared=shared, journal=journal)


def run_clang(
    argv: Sequence[str],
    compiler: Compiler,
    *,
    cwd: Path,
    timeout_s: float,
    work: Work = "compile",
    stdin: bytes | None = None,
) -> Completed:
    """Run the compiler with low priority; its status is the caller's to look at.

    Raises:
        ToolMissing, TOOL_NOT_STARTED, ToolTimeout, ToolStopped: as :func:`patchkit.base.process.run_tool`.
    """
    # "nice" would hide that the compiler is gone behind a status of its own.
    front = nice() if shutil.which(argv[0]) else []
    completed = run_tool(
        [*front, *argv],
        cwd=cwd,
        stdin=stdin,
        timeout_s=timeout_s,
        check=False,
        reporter=compiler.reporter,
        stop=compiler.stop,
        work=work,
    )
    return replace(completed, argv=tuple(argv))


def nice() -> Sequence[str]:
    """What goes in front of a command so that a person can go on working."""
    return ["nice", "-n", "10"] if shutil.which("nice") else []
