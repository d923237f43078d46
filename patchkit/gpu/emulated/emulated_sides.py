"""One side on the emulated GPU: its programs, its host code, and its kernels (compiled when launched)."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from patchkit.base.files import disk_errors, temporary_folder
from patchkit.base.store import STORES
from patchkit.gpu.emulated.emulator import DeviceUnits, EmulatedGpu, EmulationOptions
from patchkit.gpu.emulated.kept_runs import KeptRuns
from patchkit.gpu.emulated.runtime import HostLibrary, build_host_library
from patchkit.toolchain.compile import LINE_TABLES
from patchkit.toolchain.compiler import Compiler
from patchkit.toolchain.parts import GPU_LIBRARIES, Part
from patchkit.toolchain.sides import BuiltPart, BuiltSide, put_file
from patchkit.toolchain.units import SourceTree

# Without graph capture, a fault can be attributed to the operation that launched the kernel.
_WITHOUT_GRAPHS = {"GGML_CUDA_DISABLE_GRAPHS": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatedSide:
    """``built`` runs like any side, in its ``environment``; ``units`` compiles and provides its kernels."""

    built: BuiltSide
    units: DeviceUnits


@contextlib.contextmanager
def emulated_side(
    side: BuiltSide,
    tree: SourceTree,
    gpu: EmulatedGpu,
    compiler: Compiler,
    options: EmulationOptions,
    *,
    rocwmma: bool = True,
    fresh: bool = False,
    whole: Collection[str] | None = None,
) -> Iterator[EmulatedSide]:
    """Make a side that was built for the CPU run on the emulated GPU, for the duration of the context.

    Args:
        side: its programs and CPU backend; not modified.
        tree: the sources that it was built from.
        gpu: the emulated GPU.
        compiler: compiles host code, and the units of launched kernels.
        options: how programs run.
        rocwmma: whether upstream's rocWMMA attention kernel is compiled.
        fresh: do not reuse kept runs.
        whole: units that are always compiled whole (None: all). From other units, single kernels may be
            compiled, which is faster (:func:`patchkit.toolchain.compile.compile_kernel`).

    Raises:
        CompileFailed: a unit of the HIP backend does not compile.
        RECORDER_LACKS_CALLS, HOST_LINK_FAILED: its host code does not link against the runtime.
        CacheError: the cache cannot be written.
    """
    library = build_host_library(
        tree, compiler, arch=gpu.device.arch, stub=gpu.runtime, libraries=side.folder, rocwmma=rocwmma
    )
    built = _with_library(side, library, compiler)
    with temporary_folder("emulated") as folder:
        # Line tables are always on, so that runs with and without checks share object files.
        units = DeviceUnits(
            tree, gpu.device.arch, compiler, folder / "units", LINE_TABLES, rocwmma=rocwmma, whole=whole
        )
        with units.served() as variables:
            environment = {**_WITHOUT_GRAPHS, **gpu.environment(folder, options), **variables}
            kept = KeptRuns(
                identity=f"{built.identity} on {gpu.identity}",
                units=units,
                store=compiler.store.sibling(*STORES["kept"].split("/")),
                is_fresh=fresh,
            )
            yield EmulatedSide(built=replace(built, environment=environment, kept=kept), units=units)


def _with_library(side: BuiltSide, library: HostLibrary, compiler: Compiler) -> BuiltSide:
    """Collect the side's files and the library in a separate folder, where ggml looks for backends."""
    part = Part(
        name="gpu",
        backend="hip",
        sources=library.key,
        entries={},
        library=GPU_LIBRARIES["hip"],
        compiler=compiler.identity,
    )
    folder = side.folder.parent / f"emulated-{side.identity[:16]}-{library.key[:16]}"
    with disk_errors(folder, "putting a build together"):
        folder.mkdir(parents=True, exist_ok=True)
        for path in (*sorted(side.folder.iterdir()), library.path):
            put_file(path, folder / path.name)
    return replace(
        side,
        backend="hip",
        folder=folder,
        module=folder / library.path.name,
        cpu=folder / side.cpu.name,
        parts=(*side.parts, BuiltPart(part=part, folder=library.path.parent, seconds=0.0, uses_ccache=False)),
    )
