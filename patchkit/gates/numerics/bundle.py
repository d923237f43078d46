"""The folder that is built and run where the NVIDIA GPU is: sources, build.ninja, cases, jobs and run.sh."""

from __future__ import annotations

import platform
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from patchkit.base.errors import Location, UsageError
from patchkit.base.files import disk_errors
from patchkit.build.units import platform_units, units_including
from patchkit.candidate.subject import Subject
from patchkit.gates.numerics.cases import CheckCase, cases_for, check_cases, check_line
from patchkit.gates.numerics.cuda import CannotMeasure
from patchkit.gates.numerics.forced import (
    ROWS_FILE,
    SELECTION,
    WMMA_UNIT,
    forced_definitions,
    forced_tree,
    wmma_patch,
)
from patchkit.gates.numerics.manifest import MANIFEST, Job, Manifest
from patchkit.gates.numerics.sets import (
    ALTERNATIVES,
    Point,
    Program,
    Table,
    legal_table,
    make_programs,
    planted_program,
    rows_text,
)
from patchkit.gpu.cases import CASE_READER
from patchkit.kernels.occupancy import limits_of
from patchkit.kernels.wmma import wmma_table

# Beside the attention units: the backend itself and what its graph runner asks (build 6900).
BASE_UNITS = tuple(f"ggml/src/ggml-cuda/{name}.cu" for name in ("ggml-cuda", "convert", "topk-moe"))

_COMMON = (
    "-DGGML_USE_CPU",
    "-DGGML_USE_CUDA",
    "-DGGML_SCHED_MAX_COPIES=4",
    "-DNDEBUG",
    "-D_GNU_SOURCE",
    "-D_XOPEN_SOURCE=600",
    '-DGGML_VERSION=\\"0\\"',
    '-DGGML_COMMIT=\\"0\\"',
)
# Without VMM and CUDA graphs libcuda is not needed at link time, and one graph is one launch after the other.
_CUDA = ("-DGGML_CUDA_NO_VMM", "-DGGML_CUDA_PEER_MAX_BATCH_SIZE=128")
# Flags of upstream's CMakeLists.txt for CUDA in a Release build.
_NVCC = "-std=c++17 -O3 -use_fast_math -extended-lambda -w"
_WRAPPED = ("__cudaRegisterFunction", "__cudaGetKernel", "__cudaLaunchKernel", "cudaLaunchKernel")
_FOLDERS = ("ggml/include", "ggml/src", "ggml/src/ggml-cpu")
_LOG = "o/launch_log.o"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildInputs:
    """What one bundle compiles.

    ``sources`` are the C and C++ files of ggml and its CPU backend; ``attention`` the units of attention,
    ``touched`` those of them that a patch can change. ``definitions`` belong to the forced side.
    """

    sources: Sequence[str]
    attention: Sequence[str]
    touched: frozenset[str]
    programs: Sequence[Program]
    definitions: Sequence[str]
    isolation: bool


def base_sources(paths: Iterable[str], machine: str) -> tuple[str, ...]:
    """Of a tree's files, the C and C++ sources of ggml and of its CPU backend for ``machine``.

    ``machine`` is ``x86_64`` or ``aarch64``: upstream keeps the parts for a processor in ``arch/``.
    """
    arch = "arm" if machine in {"aarch64", "arm64"} else "x86"
    found = []
    for path in paths:
        folder, _, name = path.rpartition("/")
        if not name.endswith((".c", ".cpp")) or name == "cpu-feats.cpp":
            continue
        if folder in {
            "ggml/src",
            "ggml/src/ggml-cpu",
            "ggml/src/ggml-cpu/amx",
            f"ggml/src/ggml-cpu/arch/{arch}",
        }:
            found.append(path)
    return tuple(sorted(path for path in found if not path.endswith("ggml-backend-dl.cpp")))


def build_text(inputs: BuildInputs) -> str:
    """The text of ``build.ninja``; paths are relative to the bundle."""
    lines = [*_rules(), *_base(inputs), *_forced(inputs)]
    if inputs.isolation:
        lines += _isolation(inputs)
    return "\n".join(lines) + "\n"


def _rules() -> list[str]:
    includes = " ".join(f"-I$side/{folder}" for folder in _FOLDERS)
    wraps = " ".join(f"-Xlinker --wrap={name}" for name in _WRAPPED)
    tail = ["  depfile = $out.d", "  deps = gcc"]
    end = f"$common {includes} $more -MMD -MF $out.d -c $in -o $out"
    return [
        "# Made by patchkit. settings.ninja, of run.sh: nvcc, cc, cxx, cuda_arch, cuda_flags, cpu_flags.",
        "include settings.ninja",
        f"common = {' '.join(_COMMON)}",
        f"cuda = {_NVCC} {' '.join(_CUDA)} $cuda_flags $cuda_arch",
        "rule c",
        f"  command = $cc -O3 $cpu_flags -std=gnu11 -w {end}",
        *tail,
        "rule cxx",
        f"  command = $cxx -O3 $cpu_flags -std=gnu++17 -w {end}",
        *tail,
        "rule cuda",
        f"  command = $nvcc $cuda {end}",
        *tail,
        # In the tree's own folder, so that __FILE__ is the same word on both sides.
        "rule equal",
        (
            "  command = mkdir -p $out.keep && cd $side && $nvcc $cuda $common -Iggml/include -Iggml/src "
            "-D__LINE__=0 --keep --keep-dir ../$out.keep -c $unit -o ../$out && rm -rf ../$out.keep"
        ),
        "rule link",
        (
            "  command = $nvcc $cuda_arch $in -o $out -Xcompiler -no-pie -Xlinker -z -Xlinker lazy "
            f"-Xlinker --unresolved-symbols=ignore-all {wraps} -lpthread -ldl -lrt"
        ),
        "",
    ]


def _base(inputs: BuildInputs) -> list[str]:
    """What all programs share; no patch reaches it, so the baseline's files serve."""
    lines = []
    for path in inputs.sources:
        lines += _compile("c" if path.endswith(".c") else "cxx", f"baseline/{path}", _object(path))
    for path in BASE_UNITS:
        lines += _compile("cuda", f"baseline/{path}", _object(path))
    lines += _compile("cuda", "native/launch_log.cpp", _LOG)
    lines += _compile("cxx", "native/attention_check.cpp", "o/attention_check.o")
    lines += _compile("cxx", "baseline/tests/test-backend-ops.cpp", "o/test-backend-ops.o")
    return [*lines, ""]


def _forced(inputs: BuildInputs) -> list[str]:
    more = " ".join(f"-D{name}" for name in inputs.definitions)
    shared = _shared(inputs)
    choice = "o/forced_selection.o"
    lines = _compile("cuda", f"forced/{SELECTION}", choice, side="forced", more=more)
    for program in inputs.programs:
        kernel = f"o/{program.name}.o"
        source = f"forced/{WMMA_UNIT}"
        lines += _compile("cuda", source, kernel, side="forced", more=f"{more} -Irows/{program.name}")
        for main in ("attention_check", "test-backend-ops"):
            name = f"bin/{program.name}-{'check' if main == 'attention_check' else 'ops'}"
            lines.append(f"build {name}: link o/{main}.o {_LOG} {choice} {kernel} {shared}")
    return [*lines, ""]


def _isolation(inputs: BuildInputs) -> list[str]:
    lines = []
    objects: dict[str, list[str]] = {"baseline": [], "candidate": []}
    for unit in inputs.attention:
        for side in ("baseline", "candidate") if unit in inputs.touched else ("baseline",):
            folder = side if unit in inputs.touched else "shared"
            made = f"equal/{folder}/{unit.rpartition('/')[2]}.o"
            lines += [f"build {made}: equal {side}/{unit}", f"  side = {side}", f"  unit = {unit}"]
            for name in (side,) if unit in inputs.touched else objects:
                objects[name].append(made)
    shared = _shared(inputs)
    for side, made_of in objects.items():
        names = " ".join(made_of)
        lines.append(f"build bin/{side}-ops: link o/test-backend-ops.o {_LOG} {names} {shared}")
    return lines


def _compile(rule: str, source: str, made: str, *, side: str = "baseline", more: str = "") -> list[str]:
    return [f"build {made}: {rule} {source}", f"  side = {side}", *([f"  more = {more}"] if more else [])]


def _shared(inputs: BuildInputs) -> str:
    return " ".join(_object(path) for path in (*inputs.sources, *BASE_UNITS))


def _object(path: str) -> str:
    return f"o/{path.replace('/', '_')}.o"


# GPUs whose tables are always measured, beside those of the candidate: one of each kind of matrix unit.
MEASURED = ("gfx1151", "gfx1100", "gfx1201")
_NATIVE = ("attention_check.cpp", "launch_log.cpp", "run.sh", "job.sh")
_TOP = frozenset({"run.sh", "job.sh"})
_CHECK_S, _OPS_S, _PERF_S = 1200, 1200, 300  # ten times what an H200 with 16 cores took, at least
_ROUNDS = 3  # interleaved timings per side
_OPS = ("-o", "FLASH_ATTN_EXT", "-b", "CUDA0")
_TOLD = ("env", "PATCHKIT_LAUNCHES=1")  # native/launch_log.cpp
# Upstream's program over planted rows too: it must say FAIL where ours does. One KV size and batch is enough.
_PLANTED_OPS = "hsk=128,.*kv=1024,nb=35,"


def make_bundle(
    subject: Subject, folder: Path, *, all_legal: bool = False, isolation: bool = True
) -> Manifest:
    """Write the bundle of a candidate to a new folder, which appears whole or not at all.

    Args:
        subject: the candidate; no toolchain is needed.
        folder: must not hold anything.
        all_legal: also measure every setting that any table may ever choose.
        isolation: also compare CUDA builds of baseline and candidate.

    Raises:
        CannotMeasure: the candidate leaves the kernel alone.
        NUMERICS_CANNOT_FORCE, BUNDLE_EXISTS, CacheError: as they say.
        BUILD_LIST_MISSING: upstream's list of CUDA units is not where it was.
    """
    patch = wmma_patch(subject)
    if patch is None:
        raise CannotMeasure(
            f"no patch of the candidate for {', '.join(subject.archs)} changes the WMMA attention kernel",
            code="NUMERICS_NOTHING_TO_MEASURE",
            where=Location(path=WMMA_UNIT),
            hint="patchkit list shows the patches and where they are on",
        )
    forced = forced_tree(subject, patch)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(
            f"{folder} is there already",
            code="BUNDLE_EXISTS",
            where=Location(path=str(folder)),
            why="a bundle is made anew, so that results of another one cannot be taken for its own",
            hint="name a new folder, or remove that one",
        )
    tables = (*_tables(subject), ALTERNATIVES)
    extra = (legal_table(limits_of(subject.profiles[subject.archs[0]])),) if all_legal else ()
    with disk_errors(folder, "writing a bundle"):
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.partial-", dir=folder.parent))
        try:
            _copy_sources(subject, forced, partial)
            programs = (*make_programs((*tables, *extra)), planted_program())
            jobs = [job for program in programs for job in _program(program, tables, partial)]
            touched = _write_build(subject, programs, forced_definitions(patch), partial, isolation=isolation)
            alone: list[Job] = []
            if isolation:
                jobs += [_ops(side, f"ops-{side}", None) for side in ("baseline", "candidate")]
                alone = list(_timings())
                _write_jobs(partial / "jobs-alone.txt", alone)
            # The longest first: nothing is left to wait for at the end.
            jobs.sort(key=lambda job: (job.kind != "ops", -job.cases))
            _write_jobs(partial / "jobs.txt", jobs)
            manifest = Manifest(
                candidate_tree=subject.candidate_tree,
                baseline_tree=subject.baseline_tree,
                archs=subject.archs,
                build=subject.build,
                tables=tables,
                extra=extra,
                programs=programs,
                jobs=(*jobs, *alone),
                touched=touched,
            )
            (partial / MANIFEST).write_text(manifest.model_dump_json(indent=1) + "\n", "utf-8")
            partial.chmod(0o755)
            if folder.is_dir():
                folder.rmdir()
            partial.rename(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return manifest


def _tables(subject: Subject) -> Iterator[Table]:
    """The settings of the candidate's GPUs, and of those that are always measured."""
    for arch in dict.fromkeys((*subject.archs, *(arch for arch in MEASURED if arch in subject.profiles))):
        rows = wmma_table(subject.profiles[arch])
        if rows:
            points = tuple(Point(row.variant, row.params.kq_stride, row.params.nwarps) for row in rows)
            yield Table(name=arch, points=points)


def _copy_sources(subject: Subject, forced: Path, root: Path) -> None:
    for side, tree in (
        ("baseline", subject.baseline),
        ("candidate", subject.candidate),
        ("forced", forced),
    ):
        _copy(tree, root / side)
    tests = root / "baseline" / "tests"
    tests.mkdir(parents=True)
    shutil.copyfile(subject.baseline / "tests" / "test-backend-ops.cpp", tests / "test-backend-ops.cpp")
    native = resources.files("patchkit.gates.numerics").joinpath("native")
    (root / "native").mkdir()
    for name in _NATIVE:
        target = root / name if name in _TOP else root / "native" / name
        target.write_bytes(native.joinpath(name).read_bytes())
    shutil.copyfile(CASE_READER, root / "native" / CASE_READER.name)


def _write_build(
    subject: Subject, programs: Sequence[Program], definitions: Sequence[str], root: Path, *, isolation: bool
) -> tuple[str, ...]:
    """Write ``build.ninja``; the units whose objects are compared, none without ``isolation``."""
    attention = tuple(unit for unit in platform_units(subject.baseline, "cuda") if "/fattn" in unit)
    touched = frozenset(
        unit
        for tree in (subject.baseline, subject.candidate)
        for unit in units_including(tree, subject.changed_files, attention)
    )
    plan = BuildInputs(
        sources=base_sources(_files(root / "baseline"), platform.machine()),
        attention=attention,
        touched=touched,
        programs=programs,
        definitions=definitions,
        isolation=isolation,
    )
    (root / "build.ninja").write_text(build_text(plan), "utf-8")
    return tuple(sorted(touched)) if isolation else ()


def _program(program: Program, tables: Sequence[Table], root: Path) -> Iterator[Job]:
    """Write what one program is compiled with and run over; its jobs."""
    cases = check_cases()
    folder = root / "rows" / program.name
    folder.mkdir(parents=True)
    (folder / ROWS_FILE).write_text(rows_text(program), "utf-8")
    if program.planted:
        # One process each: a wrong setting may take the whole context with it.
        for number, point in enumerate(program.points):
            few = cases_for(frozenset({point.variant}), cases)
            yield _check(program, f"planted-{number}", few, folder / f"cases-{number}.txt", root)
        yield _ops(program.name, "planted-ops", _PLANTED_OPS)
        return
    mine = cases_for(program.variants, cases)
    yield _check(program, f"check-{program.name}", mine, folder / "cases.txt", root)
    needed = {point for table in tables for point in table.points}
    if needed.intersection(program.points):
        sizes = sorted({point.variant.head_size for point in program.points})
        yield _ops(program.name, f"ops-{program.name}", f"hsk=({'|'.join(map(str, sizes))}),")


def _check(program: Program, name: str, cases: Sequence[CheckCase], file: Path, root: Path) -> Job:
    file.write_text("".join(check_line(check) for check in cases), "utf-8")
    argv = (*_TOLD, f"bin/{program.name}-check", file.relative_to(root).as_posix(), "CUDA0")
    return Job(name=name, kind="check", program=program.name, limit_s=_CHECK_S, argv=argv, cases=len(cases))


def _ops(program: str, name: str, only: str | None) -> Job:
    argv = (*_TOLD, f"bin/{program}-ops", "test", *_OPS, *(() if only is None else ("-p", only)))
    return Job(name=name, kind="ops", program=program, limit_s=_OPS_S, argv=argv)


def _timings() -> Iterator[Job]:
    for number in range(_ROUNDS):
        for side in ("baseline", "candidate") if number % 2 == 0 else ("candidate", "baseline"):
            argv = (f"bin/{side}-ops", "perf", *_OPS)
            yield Job(name=f"perf-{side}-{number}", kind="perf", program=side, limit_s=_PERF_S, argv=argv)


def _write_jobs(path: Path, jobs: Sequence[Job]) -> None:
    path.write_text("".join(f"{job.name} {job.limit_s} {' '.join(job.argv)}\n" for job in jobs), "utf-8")


def _copy(tree: Path, target: Path) -> None:
    for path in _files(tree):
        made = target / path
        made.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(tree / path, made)


def _files(tree: Path) -> Iterator[str]:
    """What compiling ggml with its CPU and CUDA backends reads."""
    source = tree / "ggml" / "src"
    found = [*(tree / "ggml" / "include").glob("*.h"), *source.glob("*.h"), *source.glob("*.c*")]
    found += [path for name in ("ggml-cpu", "ggml-cuda") for path in (source / name).rglob("*")]
    wanted = (".h", ".c", ".cpp", ".cu", ".cuh", ".hpp", ".inc")
    for path in sorted(found):
        if path.suffix in wanted and path.is_file():
            yield path.relative_to(tree).as_posix()
