"""Whether the patched attention kernel computes right: run on an NVIDIA GPU, where its interface exists too.

The kernel is forced on in a CUDA build (:mod:`patchkit.gates.numerics.gate`), compiled once per setting
of its table, and run over upstream's cases and ours against sums in double precision. The same bundle
compares what CUDA makes of baseline and candidate. It proves indexing, barriers and the use of shared
memory for these settings; it says nothing of rocWMMA's fragment code, of AMD's rounding, or of speed on
AMD.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from patchkit.base.errors import AnchorError, CacheError, GateError, Location, PatchkitError, ToolchainError
from patchkit.base.files import disk_errors
from patchkit.base.process import run_tool
from patchkit.base.reporter import NullReporter
from patchkit.base.source import SourceText, Span
from patchkit.build.jobs import workers
from patchkit.build.tree import overlay_tree
from patchkit.build.units import GPU_SOURCES
from patchkit.candidate.subject import PatchPart, Subject
from patchkit.cpp.scopes import parse_scopes
from patchkit.edits.resolve import find_entity
from patchkit.edits.select import select
from patchkit.gates.base import GateResult
from patchkit.gates.isolation.host_branch import host_expressions
from patchkit.gates.numerics.bundle import BundleInputs, write_bundle
from patchkit.gates.numerics.cuda import (
    Cuda,
    CudaHeadersMissing,
    NvccMissing,
    NvidiaGpu,
    NvidiaGpuMissing,
    find_cuda,
    find_gpus,
)
from patchkit.gates.numerics.judge import judge_numerics
from patchkit.gates.numerics.manifest import Manifest, NotABundle, load_manifest
from patchkit.gates.numerics.outputs import OutputGarbled, ResultsMissing, load_results
from patchkit.gates.numerics.sets import ALTERNATIVES, Point, Table, legal_table
from patchkit.kernels.occupancy import limits_of
from patchkit.kernels.wmma import wmma_table
from patchkit.series.selector import Statement

ROWS_FILE = "patchkit-rows.inc"
WMMA_UNIT = "ggml/src/ggml-cuda/fattn-wmma-f16.cu"
_SELECTION = "ggml/src/ggml-cuda/fattn.cu"
_TABLE = "ggml_cuda_fattn_wmma_get_config_"
_CHOOSE = "ggml_cuda_get_best_fattn_kernel"
_DISPATCH = "ggml_cuda_flash_attn_ext_wmma_f16"
# Head sizes of the switches of ggml_cuda_flash_attn_ext_wmma_f16; 40 and 576 have no WMMA kernel. A soft cap
# compiles to a trap unless the head size is 128 or 256 ("Skip unused kernel variants").
_FORCED = b"""\
    {
        float patchkit_cap;
        memcpy(&patchkit_cap, (const float *) KQV->op_params + 2, sizeof(float));
        const int64_t patchkit_D   = Q->ne[0];
        const bool    patchkit_has = patchkit_D == 64 || patchkit_D == 80 || patchkit_D == 96 ||
                                     patchkit_D == 112 || patchkit_D == 128 || patchkit_D == 256;
        return patchkit_has && K->ne[1] % FATTN_KQ_STRIDE == 0 &&
               (patchkit_cap == 0.0f || patchkit_D == 128 || patchkit_D == 256) ?
               BEST_FATTN_KERNEL_WMMA_F16 : BEST_FATTN_KERNEL_NONE;
    }
"""


@dataclass(frozen=True, slots=True)
class _Change:
    span: Span
    text: bytes


def wmma_patch(subject: Subject) -> PatchPart | None:
    """The patch that changes the WMMA kernel and brings its table, or None when the candidate has none."""
    return next((patch for patch in subject.patches if WMMA_UNIT in patch.touched and patch.new_files), None)


def forced_definitions(patch: PatchPart) -> tuple[str, ...]:
    """Compiler definitions that belong to :func:`forced_tree`."""
    return ("GGML_HIP_ROCWMMA_FATTN", patch.guard.targets[0].macro)


def forced_tree(subject: Subject, patch: PatchPart) -> Path:
    """The forced tree of ``patch``, made once beside the candidate's exported tree.

    Raises:
        NUMERICS_CANNOT_FORCE: a place is not there, or not once.
        CacheError: the disk refused.
    """
    arch = patch.guard.targets[0].arch
    changes: dict[str, bytes] = {}
    for path in (*patch.touched, *patch.new_files):
        changes[path] = _opened(subject.candidate, path, patch)
    table = next((path for path in patch.new_files if (_TABLE + arch).encode() in changes[path]), None)
    if table is None:
        raise _missing(patch.new_files[0], f"the table function {_TABLE}{arch}")
    changes[table] = _rows_outside(table, changes[table], _TABLE + arch)
    changes[WMMA_UNIT] = _without_cuda_variant(changes[WMMA_UNIT])
    changes[_SELECTION] = _selection_forced((subject.candidate / _SELECTION).read_bytes())
    digest = hashlib.sha256()
    for path, data in sorted(changes.items()):
        digest.update(f"{path} {hashlib.sha256(data).hexdigest()}\n".encode())
    return overlay_tree(subject.candidate, changes, f"forced-{digest.hexdigest()[:12]}", below=GPU_SOURCES)


def _opened(root: Path, path: str, patch: PatchPart) -> bytes:
    """Step 1 for one file. A file that shows nothing of the guard is taken as it is."""
    guard = patch.guard
    reading = {
        _tokens(guard.device): b"defined(__CUDA_ARCH__)",
        _tokens(f"!({guard.device})"): b"!defined(__CUDA_ARCH__)",
        _tokens(guard.region): b"1",
        _tokens(f"!({guard.region})"): b"0",
    }
    data = (root / path).read_bytes()
    scopes = parse_scopes(SourceText(path, data))
    changes = [
        _Change(line.span, b"#" + line.keyword + b" " + reading[line.condition.partition(b" ")[2]])
        for line in scopes.directives
        if line.keyword in {b"if", b"elif"} and line.condition.partition(b" ")[2] in reading
    ]
    changes += [_Change(Span(start, end), b"(true)") for start, end in host_expressions(data)]
    return _changed(data, changes)


def _rows_outside(path: str, data: bytes, name: str) -> bytes:
    scopes = parse_scopes(SourceText(path, data))
    entity = find_entity(scopes, name, None, Location(path=path))
    text = b'\n#include "' + ROWS_FILE.encode() + b'"\n    return 0;\n'
    return _changed(data, [_Change(entity.body, text)])


def _without_cuda_variant(data: bytes) -> bytes:
    scopes = parse_scopes(SourceText(WMMA_UNIT, data))
    body = find_entity(scopes, _DISPATCH, None, Location(path=WMMA_UNIT)).body
    wanted = b"if " + _tokens("!defined(GGML_USE_HIP)")
    openings = [group.branches[0].directive for group in scopes.groups if body.contains(group.span)]
    found = [line for line in openings if line.condition == wanted]
    if len(found) != 1:
        raise _missing(WMMA_UNIT, f"the variant with 8 columns in {_DISPATCH}", len(found))
    return _changed(data, [_Change(found[0].span, b"#if 0")])


def _selection_forced(data: bytes) -> bytes:
    scopes = parse_scopes(SourceText(_SELECTION, data))
    function = find_entity(scopes, _CHOOSE, None, Location(path=_SELECTION))
    places = select(scopes, function, Statement("const bool can_use_vector_kernel ="))
    if len(places) != 1:
        raise _missing(_SELECTION, f"the end of the checks that all kernels share in {_CHOOSE}", len(places))
    start = data.rindex(b"\n", 0, places[0].start) + 1
    return _changed(data, [_Change(Span(start, start), _FORCED)])


def _missing(path: str, what: str, count: int = 0) -> AnchorError:
    return AnchorError(
        f"the kernel cannot be forced on in a CUDA build: {what} is there {count} times",
        code="NUMERICS_CANNOT_FORCE",
        where=Location(path=path),
        why="the places were read off build 6900; upstream or the patch has changed since",
        hint="compare the file with b6900 and adapt patchkit/gates/numerics/gate.py",
    )


def _tokens(condition: str) -> bytes:
    scopes = parse_scopes(SourceText("<guard>", b"#if " + condition.encode() + b"\n#endif\n"))
    return scopes.directives[0].condition.partition(b" ")[2]


def _changed(data: bytes, changes: Sequence[_Change]) -> bytes:
    return b"".join(_pieces(data, sorted(changes, key=lambda change: change.span)))


def _pieces(data: bytes, changes: Sequence[_Change]) -> Iterator[bytes]:
    at = 0
    for change in changes:
        yield data[at : change.span.start]
        yield change.text
        at = change.span.end
    yield data[at:]


# GPUs whose tables are always measured, beside those of the candidate: one of each kind of matrix unit.
MEASURED = ("gfx1151", "gfx1100", "gfx1201")
_RUN_S = 4 * 3600.0
_AGAIN = "results of an earlier run taken again (same sources, nvcc, GPU, driver)"


class KernelNotPatched(ToolchainError):
    """No patch of the candidate changes the WMMA attention kernel: there are no numbers to measure."""

    code = "NUMERICS_NOTHING_TO_MEASURE"


class NinjaMissing(ToolchainError):
    """There is no ninja to build a bundle with."""

    code = "NINJA_MISSING"


def make_bundle(
    subject: Subject, folder: Path, *, all_legal: bool = False, isolation: bool = True
) -> Manifest:
    """Write the bundle of a candidate to a new folder.

    Args:
        subject: the candidate; no toolchain is needed.
        folder: must not hold anything.
        all_legal: also measure every setting that any table may ever choose.
        isolation: also compare CUDA builds of baseline and candidate.

    Raises:
        KernelNotPatched: the candidate leaves the kernel alone.
        NUMERICS_CANNOT_FORCE, BUNDLE_EXISTS, BUILD_LIST_MISSING, CacheError: as they say.
    """
    patch = wmma_patch(subject)
    if patch is None:
        raise KernelNotPatched(
            f"no patch of the candidate for {', '.join(subject.archs)} changes the WMMA attention kernel",
            where=Location(path=WMMA_UNIT),
            hint="patchkit list shows the patches and where they are on",
        )
    archs = dict.fromkeys((*subject.archs, *(arch for arch in MEASURED if arch in subject.profiles)))
    tables = [_table(subject, arch) for arch in archs]
    first = subject.profiles[subject.archs[0]]
    inputs = BundleInputs(
        candidate_tree=subject.candidate_tree,
        baseline_tree=subject.baseline_tree,
        archs=subject.archs,
        build=subject.build,
        trees={
            "baseline": subject.baseline,
            "candidate": subject.candidate,
            "forced": forced_tree(subject, patch),
        },
        changed_files=subject.changed_files,
        kernel=WMMA_UNIT,
        definitions=forced_definitions(patch),
        rows_file=ROWS_FILE,
        tables=(*(table for table in tables if table.points), ALTERNATIVES),
        extra=(legal_table(limits_of(first)),) if all_legal else (),
        isolation=isolation,
        machine=platform.machine(),
    )
    return write_bundle(inputs, folder)


def run_bundle(folder: Path, subject: Subject, environ: Mapping[str, str]) -> None:
    """Build and run a bundle on this machine; its results lie in it afterwards.

    Raises:
        NotABundle, NUMERICS_FOREIGN: it is none, or of another candidate.
        NvccMissing, CudaHeadersMissing, NvidiaGpuMissing, NinjaMissing: this machine cannot.
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
        "JOBS": str(workers()),
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
        NotABundle, ResultsMissing, OutputGarbled, CacheError: as they say.
    """
    manifest = load_manifest(folder)
    foreign = _foreign(manifest, folder, subject)
    if foreign is not None:
        return GateResult(gate="numerics", verdict="failed", summary=foreign.message, problems=(foreign,))
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
        """``numerics``."""
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
        except (NvidiaGpuMissing, NvccMissing, CudaHeadersMissing, NinjaMissing, KernelNotPatched) as error:
            return GateResult(gate=self.name, verdict="not run", summary=_reason(error))
        return judge_bundle(folder, subject)


def _earlier(folder: Path, subject: Subject, gpu: NvidiaGpu, cuda: Cuda) -> GateResult | None:
    """The results that lie in the bundle, if they passed on the same GPU, driver and nvcc."""
    try:
        results = load_results(folder)
        result = judge_bundle(folder, subject)
    except (ResultsMissing, OutputGarbled, NotABundle):
        return None
    same = (results.gpus[0], results.nvcc) == ((gpu.name, gpu.driver, gpu.capability), cuda.version)
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
        raise NinjaMissing(
            "there is no ninja",
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


def _reason(error: PatchkitError) -> str:
    return f"{error.message}: {error.why}" if error.why else error.message


def _table(subject: Subject, arch: str) -> Table:
    rows = wmma_table(subject.profiles[arch])
    points: Sequence[Point] = [Point(row.variant, row.params.kq_stride, row.params.nwarps) for row in rows]
    return Table(name=arch, points=tuple(points))


def _run_error(status: int, stderr: bytes, folder: Path) -> PatchkitError:
    why = stderr.decode("utf-8", "replace").strip()[-2000:] or "it wrote nothing to stderr"
    hint = f"sh {folder}/run.sh"
    match status:  # as run.sh says in its head
        case 3:
            return NvccMissing("run.sh finds no nvcc", why=why, hint=hint)
        case 4:
            return NvidiaGpuMissing("run.sh finds no NVIDIA GPU", why=why, hint=hint)
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
