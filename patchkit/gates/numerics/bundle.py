"""The folder that is built and run where the NVIDIA GPU is: sources, build.ninja, cases, jobs and run.sh."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from patchkit.base.errors import Location, UsageError
from patchkit.base.files import disk_errors
from patchkit.build.units import platform_units, units_including
from patchkit.gates.numerics.cases import CheckCase, cases_for, check_cases, check_line
from patchkit.gates.numerics.manifest import MANIFEST, Job, Manifest
from patchkit.gates.numerics.sets import Program, Table, make_programs, planted_program, rows_text
from patchkit.gpu.cases import CASE_READER

SELECTION = "ggml/src/ggml-cuda/fattn.cu"
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
    ``touched`` those of them that a patch can change, ``kernel`` the one that a program is about.
    ``definitions`` belong to the forced side.
    """

    sources: Sequence[str]
    attention: Sequence[str]
    touched: frozenset[str]
    kernel: str
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
        source = f"forced/{inputs.kernel}"
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


_NATIVE = ("attention_check.cpp", "launch_log.cpp", "run.sh", "job.sh")
_TOP = frozenset({"run.sh", "job.sh"})
_CHECK_S, _OPS_S, _PERF_S = 1200, 1200, 300  # ten times what an H200 with 16 cores took, at least
_ROUNDS = 3  # interleaved timings per side
_OPS = ("-o", "FLASH_ATTN_EXT", "-b", "CUDA0")
_TOLD = ("env", "PATCHKIT_LAUNCHES=1")  # native/launch_log.cpp
# Upstream's program over planted rows too: it must say FAIL where ours does. One KV size and batch is enough.
_PLANTED_OPS = "hsk=128,.*kv=1024,nb=35,"


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleInputs:
    """What a bundle is made of.

    ``trees`` are the exported trees ``baseline``, ``candidate`` and ``forced``; ``tables`` what must be
    measured, ``extra`` what may be; ``rows_file`` is the name under which the forced tree includes rows.
    """

    candidate_tree: str
    baseline_tree: str
    archs: tuple[str, ...]
    build: int
    trees: Mapping[str, Path]
    changed_files: tuple[str, ...]
    kernel: str
    definitions: tuple[str, ...]
    rows_file: str
    tables: tuple[Table, ...]
    extra: tuple[Table, ...] = ()
    isolation: bool = True
    machine: str = "x86_64"


def write_bundle(inputs: BundleInputs, folder: Path) -> Manifest:
    """Write the bundle; the folder appears whole or not at all.

    Raises:
        BUNDLE_EXISTS: there is something already.
        BUILD_LIST_MISSING: upstream's list of CUDA units is not where it was.
        CacheError: the disk refused.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(
            f"{folder} is there already",
            code="BUNDLE_EXISTS",
            where=Location(path=str(folder)),
            why="a bundle is made anew, so that results of another one cannot be taken for its own",
            hint="name a new folder, or remove that one",
        )
    programs = (*make_programs((*inputs.tables, *inputs.extra)), planted_program())
    with disk_errors(folder, "writing a bundle"):
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.partial-", dir=folder.parent))
        try:
            manifest = _fill(inputs, programs, partial)
            partial.chmod(0o755)
            if folder.is_dir():
                folder.rmdir()
            partial.rename(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return manifest


def _fill(inputs: BundleInputs, programs: Sequence[Program], root: Path) -> Manifest:
    for side, tree in inputs.trees.items():
        _copy(tree, root / side)
    tests = root / "baseline" / "tests"
    tests.mkdir(parents=True)
    shutil.copyfile(
        inputs.trees["baseline"] / "tests" / "test-backend-ops.cpp", tests / "test-backend-ops.cpp"
    )
    native = resources.files("patchkit.gates.numerics").joinpath("native")
    (root / "native").mkdir()
    for name in _NATIVE:
        target = root / name if name in _TOP else root / "native" / name
        target.write_bytes(native.joinpath(name).read_bytes())
    shutil.copyfile(CASE_READER, root / "native" / CASE_READER.name)
    cases = check_cases()
    jobs = [job for program in programs for job in _program(inputs, program, cases, root)]
    attention = tuple(unit for unit in platform_units(inputs.trees["baseline"], "cuda") if "/fattn" in unit)
    touched = frozenset(
        unit
        for side in ("baseline", "candidate")
        for unit in units_including(inputs.trees[side], inputs.changed_files, attention)
    )
    alone: list[Job] = []
    if inputs.isolation:
        jobs += [_ops(side, f"ops-{side}", None) for side in ("baseline", "candidate")]
        alone = list(_timings())
    plan = BuildInputs(
        sources=base_sources(_files(root / "baseline"), inputs.machine),
        attention=attention,
        touched=touched,
        kernel=inputs.kernel,
        programs=programs,
        definitions=inputs.definitions,
        isolation=inputs.isolation,
    )
    (root / "build.ninja").write_text(build_text(plan), "utf-8")
    # The longest first: nothing is left to wait for at the end.
    jobs.sort(key=lambda job: (job.kind != "ops", -job.cases))
    _write_jobs(root / "jobs.txt", jobs)
    if alone:
        _write_jobs(root / "jobs-alone.txt", alone)
    manifest = Manifest(
        candidate_tree=inputs.candidate_tree,
        baseline_tree=inputs.baseline_tree,
        archs=inputs.archs,
        build=inputs.build,
        tables=inputs.tables,
        extra=inputs.extra,
        programs=tuple(programs),
        jobs=(*jobs, *alone),
        touched=tuple(sorted(touched)) if inputs.isolation else (),
    )
    (root / MANIFEST).write_text(json.dumps(manifest.as_json(), indent=1) + "\n", "utf-8")
    return manifest


def _program(inputs: BundleInputs, program: Program, cases: Sequence[CheckCase], root: Path) -> Iterator[Job]:
    folder = root / "rows" / program.name
    folder.mkdir(parents=True)
    (folder / inputs.rows_file).write_text(rows_text(program), "utf-8")
    if program.is_planted:
        # One process each: a wrong setting may take the whole context with it.
        for number, point in enumerate(program.points):
            few = cases_for(frozenset({point.variant}), cases)
            yield _check(program, f"planted-{number}", few, folder / f"cases-{number}.txt", root)
        yield _ops(program.name, "planted-ops", _PLANTED_OPS)
        return
    mine = cases_for(program.variants, cases)
    yield _check(program, f"check-{program.name}", mine, folder / "cases.txt", root)
    needed = {point for table in inputs.tables for point in table.points}
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
