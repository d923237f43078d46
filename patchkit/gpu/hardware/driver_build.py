"""Compiles patchkit's drivers against the headers and libraries of a built side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from patchkit.base.digests import key_of, sha256
from patchkit.base.errors import Location, ToolchainError
from patchkit.base.process import ToolFailed, run_tool
from patchkit.base.reporter import Reporter, Work
from patchkit.base.store import Store
from patchkit.base.upstreams import upstream_of
from patchkit.gpu.emulated.cases import CASE_READER
from patchkit.toolchain.compiler import nice
from patchkit.toolchain.sides import BuiltSide

_NATIVE = Path(__file__).parent / "native"
_HEADERS = tuple(CASE_READER.with_name(name) for name in ("case_line.hpp", "apart.hpp", "open_device.hpp"))
_RUNS_MODELS = frozenset({"logits"})  # the other drivers use only ggml
_TIMEOUT_S = 600.0
_CXX, _OBJECT = "c++", "driver.o"
# Deprecated functions are used because every build has them.
_FLAGS = ("-std=c++17", "-O2", "-pthread", "-Wall", "-Wextra", "-Werror", "-Wno-deprecated-declarations")


def build_driver(name: str, side: BuiltSide, tree: Path, cache_root: Path, reporter: Reporter) -> Path:
    """Build the driver ``name`` for a side, once; ``tree`` has the headers.

    Raises:
        NOT_BUILT: it does not compile against this upstream.
        ToolMissing: there is no C++ compiler.
        CacheError: the cache cannot be written.
    """
    source = _NATIVE / f"{name}.cpp"
    store = Store(root=cache_root / "objects")
    texts = [sha256(path.read_bytes()) for path in (source, *_HEADERS)]
    # Sides with the same programs have the same upstream headers, so they share the object file.
    headers = sorted(built.part.key for built in side.parts if built.part.name == "programs")
    of_object = key_of({"driver": name, "source": texts, "flags": _FLAGS, "programs": headers})
    compile_argv = [*nice(), _CXX, *_FLAGS, f"-I{CASE_READER.parent}"]
    for include in upstream_of(tree).folders.api:
        compile_argv += ["-isystem", str(tree / include)]

    def run(argv: Sequence[str], work: Work) -> None:
        try:
            run_tool(argv, timeout_s=_TIMEOUT_S, reporter=reporter, work=work)
        except ToolFailed as error:
            raise ToolchainError(
                f"patchkit's driver {name} does not compile against this upstream",
                code="NOT_BUILT",
                where=Location(path=str(source)),
                why=error.why,
                hint=error.hint,
            ) from error

    def compile_it(folder: Path) -> None:
        reporter.step(f"building the driver {name}")
        run([*compile_argv, "-c", str(source), "-o", str(folder / _OBJECT)], "compile")

    project = [upstream_of(tree).targets.library] if name in _RUNS_MODELS else []

    def link_it(folder: Path) -> None:
        compiled = store.obtain(of_object, compile_it) / _OBJECT
        libraries = [f"-L{side.folder}", *(f"-l{library}" for library in (*project, "ggml", "ggml-base"))]
        places = [f"-Wl,-rpath,{side.folder}", f"-Wl,-rpath-link,{side.folder}"]
        run([_CXX, "-pthread", str(compiled), *libraries, *places, "-o", str(folder / name)], "link")

    key = key_of({"object": of_object, "libraries": str(side.folder), "side": side.identity})
    return store.obtain(key, link_it) / name
