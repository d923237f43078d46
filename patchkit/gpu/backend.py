"""Everything that one side needs to run on the recorder, built or found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from patchkit.build.compiler import Compiler
from patchkit.build.units import SourceTree
from patchkit.gpu.device import PlayedDevice
from patchkit.gpu.programs import Programs, build_programs
from patchkit.gpu.runtime import HostLibrary, build_driver, build_host_library, build_stub
from patchkit.gpu.session import Figures, Session


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedBackend:
    """One side. ``arch`` is the GPU its host pass was compiled with; any of that wave size can be played."""

    tree: SourceTree
    arch: str
    stub: Path
    programs: Programs
    library: HostLibrary
    driver: Path

    def session(
        self, device: PlayedDevice, figures: Mapping[str, Figures], cache_root: Path, compiler: Compiler
    ) -> Session:
        """This side on one GPU, with runs kept below ``cache_root``; it stops when the compiler does."""
        return Session(
            device=device,
            library=self.library,
            programs=self.programs,
            stub=self.stub,
            driver=self.driver,
            figures=figures,
            cache_root=cache_root,
            reporter=compiler.reporter,
            stop=compiler.stop,
        )

    def as_json(self) -> dict[str, object]:
        """How it was built."""
        return {
            "programs": "upstream's CMake, -O1, GGML_BACKEND_DL, CPU only",
            "programs_key": self.programs.key,
            "host_library": f"host pass of {self.library.units} units, -O1, with {self.arch} as the target",
            "host_library_key": self.library.key,
            "device_code": "none: kernels are registered by name, with the unit they come from",
        }


def build_backend(
    tree: SourceTree, compiler: Compiler, arch: str, *, programs: Programs | None = None
) -> RecordedBackend:
    """Build what is missing for one tree. Raises what the builders of its parts raise.

    ``programs`` are those of another tree that differs in GPU sources only.
    """
    stub = build_stub(compiler)
    programs = programs or build_programs(tree.root, compiler)
    library = build_host_library(tree, compiler, arch=arch, stub=stub, libraries=programs.folder)
    driver = build_driver(compiler, tree.root / "ggml/include", programs.folder, programs.key, stub)
    return RecordedBackend(tree=tree, arch=arch, stub=stub, programs=programs, library=library, driver=driver)
