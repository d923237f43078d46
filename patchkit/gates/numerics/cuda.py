"""The CUDA of this machine: nvcc, the headers it needs, and the GPU."""

from __future__ import annotations

import re
import shutil
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.base.errors import Location, ToolchainError
from patchkit.base.process import ToolFailed, ToolMissing, run_tool
from patchkit.base.reporter import Reporter
from patchkit.gates.base import Record

_HEADER = "cublas_v2.h"
_DEFAULT = Path("/usr/local/cuda")
_ASK_S = 60.0


class CannotMeasure(ToolchainError):
    """This machine cannot measure the kernel's numbers, or the candidate has none to measure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cuda:
    """``flags`` are what nvcc must be given to find the headers; ``version`` is nvcc's (13.0.88)."""

    nvcc: Path
    version: str
    flags: tuple[str, ...]


class NvidiaGpu(Record):
    """One GPU as nvidia-smi names it; ``compute_capability`` is ``9.0``."""

    name: str
    driver: str
    compute_capability: str

    @property
    def arch(self) -> str:
        """What nvcc compiles for: ``sm_90``."""
        return f"sm_{self.compute_capability.replace('.', '')}"


def find_cuda(environ: Mapping[str, str], reporter: Reporter, *, roots: Sequence[Path] | None = None) -> Cuda:
    """The first CUDA that is here. ``roots`` replaces the folders that are looked at behind the environment.

    Raises:
        CannotMeasure: none is, or what is there does not say its version, or cuBLAS' header is nowhere.
    """
    others = _roots() if roots is None else list(roots)
    nvcc = next(_nvccs(environ, others), None)
    if nvcc is None:
        raise CannotMeasure(
            "there is no nvcc",
            code="NVCC_MISSING",
            why=f"looked at NVCC, CUDA_HOME, PATH and {', '.join(map(str, others)) or 'nothing else'}",
            hint="install the CUDA toolkit, or set CUDA_HOME",
        )
    try:
        said = run_tool([str(nvcc), "--version"], timeout_s=_ASK_S, reporter=reporter).stdout
    except (ToolMissing, ToolFailed) as error:
        raise CannotMeasure(
            f"{nvcc} does not say its version", code="NVCC_MISSING", why=error.why, hint="set NVCC"
        ) from error
    version = parse_nvcc_version(said.decode("utf-8", "replace"))
    if version is None:
        raise CannotMeasure(
            f"{nvcc} is no nvcc", code="NVCC_MISSING", why=f"it says {said[:80]!r}", hint="set NVCC"
        )
    return Cuda(nvcc=nvcc, version=version, flags=_flags(nvcc, others))


def parse_nvcc_version(text: str) -> str | None:
    """The version in the output of ``nvcc --version``."""
    found = re.search(r"release [\d.]+, V([\d.]+)", text)
    return None if found is None else found[1]


def find_gpus(reporter: Reporter) -> tuple[NvidiaGpu, ...]:
    """The NVIDIA GPUs of this machine.

    Raises:
        CannotMeasure: nvidia-smi is not there, or names none.
    """
    ask = ["nvidia-smi", "--query-gpu=name,driver_version,compute_cap", "--format=csv,noheader"]
    try:
        text = run_tool(ask, timeout_s=_ASK_S, reporter=reporter).stdout.decode("utf-8", "replace")
    except ToolMissing as error:
        raise _no_gpu("there is no nvidia-smi") from error
    except ToolFailed as error:
        raise _no_gpu(error.why or "nvidia-smi failed") from error
    found = parse_gpus(text)
    if not found:
        raise _no_gpu(f"nvidia-smi names none: {text[:80]!r}")
    return found


def parse_gpus(text: str) -> tuple[NvidiaGpu, ...]:
    """What nvidia-smi printed, a line per GPU; other lines are left out."""
    lines = ([cell.strip() for cell in line.split(",")] for line in text.splitlines())
    return tuple(
        NvidiaGpu(name=cells[0], driver=cells[1], compute_capability=cells[2])
        for cells in lines
        if len(cells) == 3 and re.fullmatch(r"\d+\.\d+", cells[2])  # noqa: PLR2004  # what was asked for
    )


def _no_gpu(why: str) -> CannotMeasure:
    return CannotMeasure(
        "there is no NVIDIA GPU here",
        code="NVIDIA_GPU_MISSING",
        why=why,
        hint="patchkit numerics build DIR makes a folder that runs on another machine",
    )


def _nvccs(environ: Mapping[str, str], roots: Sequence[Path]) -> Iterator[Path]:
    named = [environ[name] for name in ("NVCC",) if environ.get(name)]
    if environ.get("CUDA_HOME"):
        named.append(str(Path(environ["CUDA_HOME"]) / "bin" / "nvcc"))
    named += ["nvcc", *(str(root / "bin" / "nvcc") for root in roots)]
    for one in named:
        if found := shutil.which(one, path=environ.get("PATH", "")):
            yield Path(found)


def _roots() -> list[Path]:
    return [_DEFAULT, *sorted((Path(sysconfig.get_paths()["purelib"]) / "nvidia").glob("cu*"))]


def _flags(nvcc: Path, roots: Sequence[Path]) -> tuple[str, ...]:
    """Nothing when the header lies beside nvcc, else where it does."""
    own = nvcc.resolve().parent.parent / "include"
    if (own / _HEADER).is_file():
        return ()
    for root in roots:
        if (root / "include" / _HEADER).is_file():
            return (f"-I{root / 'include'}",)
    raise CannotMeasure(
        f"{_HEADER} is not beside {nvcc}",
        code="CUDA_HEADERS_MISSING",
        where=Location(path=str(own / _HEADER)),
        why="ggml's CUDA backend includes it",
        hint="install cuBLAS of the same CUDA, as a package or as the wheel nvidia-cublas",
    )
