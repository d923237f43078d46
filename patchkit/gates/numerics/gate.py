"""Gate ``numerics``: the patched attention kernel computes right, as measured on an NVIDIA GPU.

The kernel is forced on in a CUDA build (:mod:`patchkit.gates.numerics.forced`), compiled once per setting
of its table, and run over upstream's cases and ours against sums in double precision. The same bundle
compares what CUDA makes of baseline and candidate. It proves indexing, barriers and the use of shared
memory for these settings; it says nothing of rocWMMA's fragment code, of AMD's rounding, or of speed on
AMD.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from patchkit.base.errors import CacheError, GateError, Location, PatchkitError, ToolchainError
from patchkit.base.files import disk_errors
from patchkit.base.jobs import cores
from patchkit.base.process import run_tool
from patchkit.base.reporter import NullReporter
from patchkit.candidate.subject import Subject
from patchkit.gates.base import GateResult
from patchkit.gates.numerics.bundle import make_bundle
from patchkit.gates.numerics.cuda import CannotMeasure, Cuda, NvidiaGpu, find_cuda, find_gpus
from patchkit.gates.numerics.judge import judge_numerics
from patchkit.gates.numerics.manifest import Manifest, NotABundle, load_manifest
from patchkit.gates.numerics.outputs import ResultsUnreadable, load_results

_RUN_S = 4 * 3600.0
_AGAIN = "results of an earlier run taken again (same sources, nvcc, GPU, driver)"


def run_bundle(folder: Path, subject: Subject, environ: Mapping[str, str]) -> None:
    """Build and run a bundle on this machine; its results lie in it afterwards.

    Raises:
        NotABundle, NUMERICS_FOREIGN: it is none, or of another candidate.
        CannotMeasure: this machine has no nvcc, no headers of CUDA, no GPU or no ninja.
        NUMERICS_BUILD_FAILED: it does not compile here.
        DISK_FULL: the disk refused.
        ToolTimeout, ToolFailed, ToolCrashed: run.sh did not come to its end.
    """
    foreign = _foreign(load_manifest(folder), folder, subject)
    if foreign is not None:
        raise foreign
    reporter = subject.reporter
    gpu = find_gpus(reporter)[0]
    cuda = find_cuda(environ, reporter)
    env = {
        "NVCC": str(cuda.nvcc),
        "CUDA_FLAGS": " ".join(cuda.flags),
        "CUDA_ARCH": gpu.arch,
        "JOBS": str(cores()),
        "NINJA": _ninja(environ),
    }
    env |= {name: environ[name] for name in ("CC", "CXX", "CUDA_VISIBLE_DEVICES") if name in environ}
    reporter.step(f"building and running the kernel's numbers on {gpu.name}")
    script = ["sh", str(folder / "run.sh")]
    done = run_tool(script, env=env, timeout_s=_RUN_S, check=False, reporter=reporter)
    if done.returncode != 0:
        raise _run_error(done.returncode, done.stderr, folder)


def judge_bundle(folder: Path, subject: Subject) -> GateResult:
    """What the results in a bundle prove of a candidate.

    Raises:
        NotABundle, ResultsUnreadable, CacheError: as they say.
    """
    manifest = load_manifest(folder)
    foreign = _foreign(manifest, folder, subject)
    if foreign is not None:
        return GateResult.ended_by("numerics", foreign)
    return judge_numerics(manifest, load_results(folder))


@dataclass(frozen=True, slots=True, kw_only=True)
class NumericsGate:
    """The gate on this machine. ``fresh``: run again what passed with the same sources, nvcc and GPU."""

    environ: Mapping[str, str]
    fresh: bool = False

    @classmethod
    def make(cls, *, fresh: bool) -> NumericsGate | None:
        """The gate on this machine, if it has an NVIDIA GPU."""
        try:
            find_gpus(NullReporter())
        except ToolchainError:
            return None
        return cls(environ=os.environ, fresh=fresh)

    @property
    def name(self) -> str:
        """The gate's name."""
        return "numerics"

    def run(self, subject: Subject) -> GateResult:
        """Make the bundle in the cache, build what is not built yet, run it and judge what came back.

        A machine that cannot run it, or a candidate without the kernel, is a 'not run' with the reason.
        """
        try:
            gpu = find_gpus(subject.reporter)[0]
            cuda = find_cuda(self.environ, subject.reporter)
            folder = _kept_bundle(subject)
            earlier = None if self.fresh else _earlier(folder, subject, gpu, cuda)
            if earlier is not None:
                subject.reporter.info(f"gate {self.name}: {earlier.summary}")
                return earlier
            run_bundle(folder, subject, self.environ)
        except CannotMeasure as error:
            reason = f"{error.message}: {error.why}" if error.why else error.message
            return GateResult(gate=self.name, verdict="not run", summary=reason)
        return judge_bundle(folder, subject)


def _earlier(folder: Path, subject: Subject, gpu: NvidiaGpu, cuda: Cuda) -> GateResult | None:
    """The results that lie in the bundle, if they passed on the same GPU, driver and nvcc."""
    try:
        results = load_results(folder)
        result = judge_bundle(folder, subject)
    except (ResultsUnreadable, NotABundle):
        return None
    same = (results.gpus[0], results.nvcc) == (gpu, cuda.version)
    if not same or result.verdict != "passed":
        return None
    return replace(result, summary=f"{result.summary}; {_AGAIN}")


def _kept_bundle(subject: Subject) -> Path:
    """The bundle in the cache, under a name that says what is in it: built objects are used again."""
    root = subject.cache_root / "numerics"
    with disk_errors(root, "making a bundle"):
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".partial-", dir=root) as scratch:
            made = Path(scratch) / "bundle"
            make_bundle(subject, made)
            digest = hashlib.sha256()
            for path in sorted(found for found in made.rglob("*") if found.is_file()):
                digest.update(path.relative_to(made).as_posix().encode() + b"\0" + path.read_bytes())
            folder = root / f"{subject.candidate_tree[:16]}-{digest.hexdigest()[:16]}"
            if not folder.is_dir():
                made.rename(folder)
    return folder


def _ninja(environ: Mapping[str, str]) -> str:
    beside = Path(sys.executable).with_name("ninja")
    found = environ.get("NINJA") or shutil.which("ninja", path=environ.get("PATH")) or str(beside)
    if not Path(found).is_file():
        raise CannotMeasure(
            "there is no ninja",
            code="NINJA_MISSING",
            why="a bundle is built with it",
            hint="pip install ninja, or the package ninja-build, or set NINJA",
        )
    return found


def _foreign(manifest: Manifest, folder: Path, subject: Subject) -> GateError | None:
    if (manifest.candidate_tree, manifest.baseline_tree) == (subject.candidate_tree, subject.baseline_tree):
        return None
    return GateError(
        f"the bundle {folder} is of candidate {manifest.candidate_tree[:12]}",
        code="NUMERICS_FOREIGN",
        where=Location(path=str(folder)),
        why=f"the candidate to judge is {subject.candidate_tree[:12]} on {subject.baseline_tree[:12]}",
        hint=f"patchkit numerics build DIR --arch {subject.archs[0]}",
    )


def _run_error(status: int, stderr: bytes, folder: Path) -> PatchkitError:
    why = stderr.decode("utf-8", "replace").strip()[-2000:] or "it wrote nothing to stderr"
    hint = f"sh {folder}/run.sh"
    match status:  # as run.sh says in its head
        case 3:
            return CannotMeasure("run.sh finds no nvcc", code="NVCC_MISSING", why=why, hint=hint)
        case 4:
            return CannotMeasure("run.sh finds no NVIDIA GPU", code="NVIDIA_GPU_MISSING", why=why, hint=hint)
        case 6:
            return CacheError(
                "run.sh could not write its results", code="DISK_FULL", why=why, hint=f"df -h {folder}"
            )
        case _:
            return ToolchainError(
                "the bundle could not be built and run",
                code="NUMERICS_BUILD_FAILED",
                where=Location(path=str(folder / "results" / "build.log")),
                why=why,
                hint=hint,
            )
