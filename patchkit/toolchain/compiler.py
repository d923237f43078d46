"""A toolchain with its cache of compiled units, and running its compiler with low priority."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from patchkit.base.process import Completed, run_tool
from patchkit.base.reporter import NullReporter, Reporter, Work
from patchkit.base.store import Store, store_in
from patchkit.toolchain.hip import Toolchain, toolchain_identity


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiler:
    """A toolchain with its cache; ``identity`` is a digest that covers its version and headers.

    Setting ``stop`` ends all running compilers. A copy in another process, which shares only the file
    system, has its own ``stop`` and reports nothing.
    """

    toolchain: Toolchain
    store: Store
    identity: str
    reporter: Reporter
    stop: threading.Event = field(default_factory=threading.Event, compare=False)

    def __reduce__(self) -> tuple[Callable[..., Compiler], tuple[Toolchain, Path, Reporter]]:
        return open_compiler, (self.toolchain, self.cache_root, NullReporter())

    @property
    def cache_root(self) -> Path:
        """The cache folder that contains the store."""
        return self.store.root.parent

    def portable(self, arguments: Sequence[str]) -> list[str]:
        """Arguments with this machine's folders replaced, so that keys are the same in a copied cache.

        ``identity`` covers the content of the toolchain's folders; paths in the cache contain digests.
        """
        chain = self.toolchain
        places = [(str(chain.clang), "{clang}"), (str(chain.device_libs), "{device-libs}")]
        if chain.rocwmma is not None:
            places.append((str(chain.rocwmma.include), "{rocwmma}"))
        places.append((str(chain.root), "{root}"))
        places.append((str(self.cache_root), "{cache}"))
        replaced = []
        for argument in arguments:
            for place, name in places:
                argument = argument.replace(place, name)  # noqa: PLW2901 - applies all replacements
            replaced.append(argument)
        return replaced


def open_compiler(
    toolchain: Toolchain,
    cache_root: Path,
    reporter: Reporter,
    *,
    stop: threading.Event | None = None,
) -> Compiler:
    """The compiler of a toolchain, with the store ``cache_root``/objects."""
    return Compiler(
        toolchain=toolchain,
        store=store_in(cache_root, "objects"),
        identity=toolchain_identity(toolchain),
        reporter=reporter,
        stop=threading.Event() if stop is None else stop,
    )


def run_clang(
    argv: Sequence[str],
    compiler: Compiler,
    *,
    cwd: Path,
    timeout_s: float,
    work: Work = "compile",
    stdin: bytes | None = None,
) -> Completed:
    """Run the compiler with low priority; the caller must check its status.

    Raises:
        ToolMissing, TOOL_NOT_STARTED, ToolTimeout, ToolStopped: as :func:`patchkit.base.process.run_tool`.
    """
    # Without this check, a missing compiler would only be a nonzero status of "nice".
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
    """The command prefix for low priority, so that the machine stays usable."""
    return ["nice", "-n", "10"] if shutil.which("nice") else []
