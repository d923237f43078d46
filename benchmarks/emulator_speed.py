"""Wave instructions per second of the emulated GPU, on upstream's attention kernels.

One case of attention each for the TILE and the rocWMMA kernel (D = 128; the KV cache of TILE's case is not a
multiple of 256 rows long, because upstream would otherwise use the other kernel), built from the unpatched
pin and launched by ggml through the HIP runtime. Every result is compared with double precision. Only the
kernels are counted and timed, by the emulator's report: not the start of the program, the decoding or the
comparison. "Per core" is by CPU time, so other work on the machine matters little; "per second" is by wall
time. Each run is a process; the best and the median are shown. Peak is the largest resident set of a run.

With --tinygrad FOLDER (a checkout of its sources, which have an emulator of RDNA3 in test/mockgpu) the first
block of the same launch of TILE, machine code and arguments, is timed there too, after a run that compiles.

    python benchmarks/emulator_speed.py --runs 5 --json emulator_speed.json
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from records import cpu_name

from patchkit.base.reporter import NullReporter
from patchkit.base.series_folder import find_series_dir
from patchkit.base.workspace import default_cache_root
from patchkit.carry.series.lock import load_lock
from patchkit.carry.series.profile import load_profile
from patchkit.carry.upstream.cache import open_cache
from patchkit.carry.upstream.exported import export_tree
from patchkit.carry.upstream.pin import obtain
from patchkit.carry.upstream.repository import Repository
from patchkit.gpu.emulated.cases import Case, case_line
from patchkit.gpu.emulated.checks import native_checks
from patchkit.gpu.emulated.device import device_of
from patchkit.gpu.emulated.emulated_sides import emulated_side
from patchkit.gpu.emulated.emulator import EmulatedGpu, EmulationOptions, emulated_gpu, load_report
from patchkit.gpu.emulated.runtime import cxx_of
from patchkit.gpu.hardware.driver_build import build_driver
from patchkit.toolchain.compiler import Compiler, open_compiler
from patchkit.toolchain.hip import find_toolchain
from patchkit.toolchain.machine import Source, build_side
from patchkit.toolchain.sides import BuiltSide, Workshop
from patchkit.toolchain.units import SourceTree

# Required by issue 14: TILE at D = 128, per second and core.
LIMIT_PER_SECOND = 60e6

_HERE = Path(__file__).parent
_EMULATOR = _HERE.parent / "patchkit" / "gpu" / "emulated" / "native" / "emulator"
_SHAPE = Case(id="tile", head_size=128, head_size_v=128, kv_heads=2, gqa=4, kv=4160, tokens=256)
_CASES = {
    "flash_attn_tile": ("TILE", _SHAPE),
    "flash_attn_ext_f16": ("rocWMMA", Case(**{**asdict(_SHAPE), "id": "rocwmma", "kv": 4096})),
}
_LARGEST_NMSE = 5e-4  # upstream's own limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """One kernel and number of threads: million wave instructions, best and median of all runs."""

    kernel: str
    threads: int
    instructions: int
    best_per_core: float
    median_per_core: float
    best_per_second: float
    median_per_second: float
    peak_mb: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    """One block of a launch on another emulator, on one core, in million instructions per second."""

    kernel: str
    emulator: str
    best: float
    median: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The figures, and the machine and settings."""

    speeds: list[Speed]
    others: list[Other]
    runs: int
    build: int
    arch: str
    level: str
    cpu: str
    cores: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """An unpatched build on the emulated GPU, which ``environment`` makes time each launch.

    ``seconds`` gets a line for each launch: CPU seconds and kernel.
    """

    built: BuiltSide
    tree: SourceTree
    gpu: EmulatedGpu
    compiler: Compiler
    environment: Mapping[str, str]
    scratch: Path
    seconds: Path


def main() -> int:
    """Measure; return 1 if the best run on one core is below the limit."""
    parser = make_parser(__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, os.cpu_count() or 1])
    parser.add_argument(
        "--tinygrad", type=Path, metavar="FOLDER", help="checkout of tinygrad, to compare with its emulator"
    )
    options = parser.parse_args()
    with prepared(options) as bench:
        speeds = list(measure(bench, options.runs, list(dict.fromkeys(options.threads))))
        others = list(compare(bench, options.tinygrad)) if options.tinygrad else []
        level = bench.gpu.level
    result = Result(
        speeds=speeds,
        others=others,
        runs=options.runs,
        build=options.build,
        arch=options.arch,
        level=level,
        cpu=cpu_name(),
        cores=os.cpu_count() or 0,
    )
    show(table(result), asdict(result), options)
    return int(any(one.best_per_core * 1e6 < LIMIT_PER_SECOND for one in speeds if _is_limited(one)))


def _is_limited(one: Speed) -> bool:
    return one.kernel == "TILE" and one.threads == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpatched:
    """A pin's tree and its test-backend-ops, and the emulated GPU to run it on."""

    tree: SourceTree
    side: BuiltSide
    gpu: EmulatedGpu
    compiler: Compiler


def unpatched(arch: str, build: int, cache_root: Path) -> Unpatched:
    """Build the unpatched pin."""
    reporter = NullReporter()
    series = find_series_dir(None)
    commit = obtain(load_lock(series.lock).pin(str(build)), cache=open_cache(cache_root), reporter=reporter)
    repository = Repository(path=cache_root / "upstream.git", reporter=reporter)
    exported = export_tree(repository, commit, cache_root / "trees")
    compiler = open_compiler(find_toolchain(cache_root, os.environ, reporter), cache_root, reporter)
    side = build_side(
        Source(root=exported.root, tree=exported.tree, build=build, commit=commit[:9]),
        "cpu",
        archs=(arch,),
        toolchain=compiler.toolchain,
        programs=("test-backend-ops",),
        workshop=Workshop(cache_root=cache_root, reporter=reporter),
        with_rocwmma=True,
    )
    return Unpatched(
        tree=SourceTree(exported.root),
        side=side,
        gpu=emulated_gpu(device_of(load_profile(series.profiles, arch), guess_units=True), compiler),
        compiler=compiler,
    )


def make_parser(about: str | None) -> argparse.ArgumentParser:
    """The options that benchmarks on the emulated GPU share."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default="gfx1151")
    parser.add_argument("--build", type=int, default=6900, help="a pin of patches/upstream.lock")
    parser.add_argument(
        "--cache-dir", type=Path, default=default_cache_root(), help="cache folder with the SDK"
    )
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    return parser


def show(text: str, figures: Mapping[str, object], options: argparse.Namespace) -> None:
    """Print the figures, and write them to the file of ``--json``."""
    print(text)
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


@contextlib.contextmanager
def prepared(options: argparse.Namespace) -> Iterator[Bench]:
    """The pin, unpatched, on the emulated GPU."""
    pin = unpatched(options.arch, options.build, options.cache_dir)
    with (
        tempfile.TemporaryDirectory(prefix="patchkit-bench-") as folder,
        emulated_side(pin.side, pin.tree, pin.gpu, pin.compiler, EmulationOptions()) as ready,
    ):
        scratch = Path(folder)
        environment = {
            "PATH": os.environ["PATH"],
            **ready.built.environment,
            "PATCHKIT_EMULATOR": str(watched(pin.gpu, pin.compiler, scratch)),
            "PATCHKIT_WATCH_SECONDS": str(scratch / "seconds"),
        }
        yield Bench(
            built=ready.built,
            tree=pin.tree,
            gpu=pin.gpu,
            compiler=pin.compiler,
            environment=environment,
            scratch=scratch,
            seconds=scratch / "seconds",
        )


def watched(gpu: EmulatedGpu, compiler: Compiler, scratch: Path) -> Path:
    """Build the library that wraps the emulator and times it."""
    library = scratch / "watched.so"
    argv = [*cxx_of(compiler.toolchain), "-std=c++20", "-O1", "-fPIC", "-shared", f"-I{_EMULATOR}"]
    argv += [native_checks()]
    argv += [
        str(_HERE / "watched_emulator.cpp"),
        str(gpu.library),
        f"-Wl,-rpath,{gpu.library.parent}",
        "-ldl",
    ]
    subprocess.run([*argv, "-o", str(library)], check=True)
    return library


def measure(bench: Bench, runs: int, threads: Iterable[int]) -> Iterator[Speed]:
    """Every kernel with each number of threads, in rounds, so that a busy moment affects all of them."""
    found: dict[tuple[str, int], list[_Once]] = {}
    for number in range(runs + 1):
        for family, (_, case) in _CASES.items():
            for count in threads:
                one = _run_once(bench, family, case, count)
                if number:  # the first may compile the kernels
                    found.setdefault((family, count), []).append(one)
    for (family, count), rows in found.items():
        per_core = [one.instructions / one.processor_s / 1e6 for one in rows]
        per_second = [one.instructions / one.wall_s / 1e6 for one in rows]
        yield Speed(
            kernel=_CASES[family][0],
            threads=count,
            instructions=rows[0].instructions,
            best_per_core=round(max(per_core), 1),
            median_per_core=round(statistics.median(per_core), 1),
            best_per_second=round(max(per_second), 1),
            median_per_second=round(statistics.median(per_second), 1),
            peak_mb=round(max(one.peak_mb for one in rows), 1),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Once:
    """One run of a kernel."""

    instructions: int
    wall_s: float
    processor_s: float
    peak_mb: float


def _run_once(bench: Bench, family: str, case: Case, threads: int) -> _Once:
    place = bench.scratch / "report.json"
    bench.seconds.unlink(missing_ok=True)
    printed, peak = _run(bench, case, EmulationOptions(report=place, threads=threads), {})
    nmse = float(printed.partition("nmse=")[2].split()[0])
    if not nmse <= _LARGEST_NMSE:
        raise SystemExit(f"{case} is wrong on the emulated GPU: {printed}")
    kernels = [one for one in load_report(place).kernels if family in one.name]
    lines = [line.partition(" ") for line in bench.seconds.read_text("utf-8").splitlines()]
    return _Once(
        instructions=sum(one.instructions for one in kernels),
        wall_s=sum(one.seconds for one in kernels),
        processor_s=sum(float(seconds) for seconds, _, name in lines if family in name),
        peak_mb=peak,
    )


def _run(bench: Bench, case: Case, options: EmulationOptions, more: Mapping[str, str]) -> tuple[str, float]:
    """The driver's output, and its peak memory in megabytes (10**6 bytes)."""
    cache_root = bench.compiler.cache_root
    driver = build_driver("attention_check", bench.built, bench.tree.root, cache_root, NullReporter())
    file, output, errors = (bench.scratch / name for name in ("cases", "output", "stderr"))
    file.write_text(case_line(case), "ascii")
    argv = [str(driver), str(bench.built.module), "ROCm0", str(file)]
    with output.open("wb") as stdout, errors.open("wb") as stderr:
        env = {**bench.environment, **options.variables(), **more}
        process = subprocess.Popen(argv, env=env, stdout=stdout, stderr=stderr)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.stderr.write(errors.read_text("utf-8", "replace")[-2000:])
        raise subprocess.CalledProcessError(process.returncode, argv)
    return output.read_text("utf-8", "replace"), usage.ru_maxrss * 1024 / 1e6


def compare(bench: Bench, checkout: Path) -> Iterator[Other]:
    """TILE's first block on tinygrad's emulator, which lacks the swizzles of the other kernel."""
    family, (kernel, case) = next(iter(_CASES.items()))
    folder = bench.scratch / "launch"
    folder.mkdir()
    _run(bench, case, EmulationOptions(), {"PATCHKIT_WATCH_LAUNCH": f"{family} {folder}"})
    # It compiles with a program named clang.
    path = f"{bench.compiler.toolchain.clang.parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, str(_HERE / "on_tinygrad.py"), str(folder)],
        env={**os.environ, "PATH": path, "PYTHONPATH": str(checkout.absolute())},
        stdout=subprocess.PIPE,
        check=True,
    )
    rates = [one["instructions"] / one["seconds"] / 1e6 for one in map(json.loads, done.stdout.splitlines())]
    yield Other(
        kernel=kernel,
        emulator="tinygrad",
        best=round(max(rates), 2),
        median=round(statistics.median(rates), 2),
    )


def table(result: Result) -> str:
    """The figures as a text table."""
    rows = [
        f"build {result.build}, {result.arch}; {result.cpu}, {result.cores} cores, {result.level}",
        f"million wave instructions, best and median of {result.runs} runs",
        f"{'':<10} {'threads':>8} {'per core':>16} {'per second':>16} {'instructions':>14} {'peak':>10}",
    ]
    rows += [
        f"{one.kernel:<10} {one.threads:>8} {one.best_per_core:>8.1f} {one.median_per_core:>7.1f} "
        f"{one.best_per_second:>8.1f} {one.median_per_second:>7.1f} "
        f"{one.instructions:>14} {one.peak_mb:>7.1f} MB"
        for one in result.speeds
    ]
    rows += [
        f"{one.kernel:<10} {one.emulator:>8} {one.best:>8.2f} {one.median:>7.2f}" for one in result.others
    ]
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main())
