"""Build foreign HIP programs unchanged, run them on the emulated GPU, and record a verdict for each.

The programs are those of a checkout of HeCBench (every folder `src/NAME-hip`) or of ROCm/rocm-examples. Each
is built by its own Makefile in a copy of the checkout, with the SDK's hipcc on PATH as in
docs/guide/no-rocm.md, and run by `patchkit emulate` (with --sanitize by `patchkit sanitize`) with the
arguments of its Makefile. Only the number of repetitions is set to one, because times on an emulated GPU mean
nothing. If the result is then wrong or refused, the program runs with its own arguments, because what looks
like a number of repetitions may be something else. The verdicts:

    right                   it ended with 0 and printed no word of failure
    own fault               it has a known fault of its own: see foreign_programs.toml for the reason
    lacks data              it reads a file that is not in the checkout
    needs another library   beyond HIP, hipBLAS, hiprtc, thrust, rocPRIM and hipCUB
    does not build, refused, time limit, wrong      with the reason

`--smaller` runs the programs at the time limit with smaller sizes. If one is right then, this is noted and
the verdict stays. A wrong result proves nothing, because the sizes are not the program's.

    python benchmarks/foreign_programs.py ~/HeCBench --work programs --jobs 2 --limit-s 60

Verdicts go to WORK/verdicts-NAME.jsonl, one per line. A program is not run again while its files, patchkit's
code and the SDK are those of its verdict, so an interrupted run continues. The order is random, the same for
the same --seed, so that a part of the programs represents all. Built programs stay built for the same files
and SDK; `--build-only` builds all others, and shows in a fraction of the time what does not build. `--record`
writes docs/records/data, from which benchmarks/records.py makes tables.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import hashlib
import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from records import write_record

import patchkit
from patchkit.base.workspace import default_cache_root
from patchkit.toolchain.parts import sources_digest
from patchkit.toolchain.sdk.prefix import Prefix, current_prefix

GOOD = ("right", "own fault")
OUTSIDE = ("lacks data", "needs another library")
_MAYBE_OURS = ("wrong", "refused")  # may be caused by arguments that are not the program's own

_HERE = Path(__file__).parent
_BUILD_S = 900.0
# Wall seconds per CPU second: the machine may be busy, and a program that sleeps has to end too.
_PATIENCE = 20.0
_LARGE = 1 << 20  # bytes; of a larger file only the size goes into the digest
_MEMORY_GB = 12  # per process: two of them fit a machine with 24 GB
# Divisor of sizes, smallest argument that counts as a size, smallest result. First what is surely a size,
# last what may also be a width, a depth or a mode. After a time limit no larger sizes are tried.
_DIVISORS = ((64, 100, 16), (8, 100, 16), (512, 100, 16), (8, 8, 2))
_SURELY_A_SIZE = 100
_SMALLER_IS_RIGHT = "right with smaller arguments"
_SHOWN = 160
_SIGNALLED = 128  # a shell's status if a signal ended the program
_LAUNCHER = "LAUNCH_THIS"  # replaces LAUNCHER in a Makefile
_SETTINGS = re.compile(rf"{_LAUNCHER}((?: +\w+=\S+)+) +")  # environment variables after it
_HEADERS = frozenset((".h", ".hpp", ".cuh"))
_SOURCES = _HEADERS | {".cu", ".cpp", ".cc", ".c", ".hip"}

# Unsupported libraries, by the first part of an included path.
_OTHER_LIBRARIES = {
    "GL": "OpenGL",
    "GLFW": "GLFW",
    "benchmark": "Google Benchmark",
    "boost": "Boost",
    "fmt": "fmt",
    "gdal": "GDAL",
    "glad": "glad",
    "gsl": "GSL",
    "gtest": "GoogleTest",
    "hipblaslt": "hipBLASLt",
    "hipfft": "hipFFT",
    "hiprand": "hipRAND",
    "hiprand.h": "hipRAND",
    "hipsolver": "hipSOLVER",
    "hipsparse": "hipSPARSE",
    "miopen": "MIOpen",
    "mpi.h": "MPI",
    "rccl": "RCCL",
    "rocblas": "rocBLAS",
    "rocfft": "rocFFT",
    "rocrand": "rocRAND",
    "rocsolver": "rocSOLVER",
    "rocsparse": "rocSPARSE",
    "rocwmma": "rocWMMA",
    "tbb": "TBB",
    "vulkan": "Vulkan",
}
_INCLUDED = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*[<"]([\w.]+)', re.MULTILINE)
_NEIGHBOUR = re.compile(rb"\.\./([\w+-][\w.+-]*)")
_NO_HEADER = re.compile(r"fatal error: '([^']+)' file not found")
_NO_LIBRARY = re.compile(r"(?:unable to find library|cannot find) (-l\w+)")
_CRASHED = re.compile(r"PLEASE submit a bug report.*?Running pass '([^']+)' on function", re.DOTALL)
_USAGE = re.compile(r"[Uu]sage[^;]{0,800}")
_JOINT = re.compile(r'"\s*"')  # between adjacent string literals
_NAMED_ARGUMENT = re.compile(r"(?:(?P<option>--?\w[\w-]*)[ =])?[<\[](?P<name>[^<>\[\]\"\n]+)[>\]]")
_READ_ARGUMENT = re.compile(r"(\w+)\s*=\s*(?:\(\w+\)\s*)?(?:std::)?(?:ato|sto|strto)\w+\s*\(\s*argv\[(\d+)\]")
_LAUNCHES = re.compile(r"<<<|Launch\w*Kernel|hipcub|thrust|rocprim|hipblas|hipGraphLaunch")
_REPEATS = re.compile(
    r"repeat|repetition|iteration|n_?iters?\b|\biters?\b|\btimes\b|trials|\bn?_?runs\b|\bloops?\b|passes|_?steps\b",
    re.IGNORECASE,
)
# Words of failure, and what looks like one: a count of zero, a name of an option.
_FAILED = re.compile(
    r"\bFAIL(?:S|ED|URE)?\b|\bmis-?match(?:es)?\b|\bincorrect\b|\bnot correct\b|\bwrong\b"
    r"|\btests? did not pass\b|\bINVALID\b|\bnot equal\b|verification: ?fail|error encountered",
    re.IGNORECASE,
)
_NO_FAILURE = re.compile(
    r"\b(?:no|0|zero)\s+\w*\s*(?:fail|mis-?match|error|wrong)|(?:fail\w*|mis-?match\w*|wrong)\w*\s*[:=]\s*0\b"
    r"|\bincorrect \w+: 0$",
    re.IGNORECASE,
)
_CHECKED = re.compile(
    r"\bPASS(?:ED|ES)?\b|\bsucce(?:ss|eded)\w*\b|\bcorrect\b|validat|verif|\bok\b|\bmatch", re.IGNORECASE
)
_NO_FILE = re.compile(
    r"^.*(?:(?:can(?:not|'t)|could(?: not|n't)|unable to|failed to|fail(?:ed|s)?|error)[^\n]*"
    r"(?:open|read|load|find|cd to)|no such file|(?:open|read)\w*[^\n]*(?:fail|error)|file not found).*$",
    re.IGNORECASE | re.MULTILINE,
)
_NO_MODULE = re.compile(r"No module named '(\w+)'|there is no program 'mpi(?:run|exec)'")
_NO_MEMORY = re.compile(r"out of memory|bad_alloc|hipErrorOutOfMemory|hipErrorMemoryAllocation")
_OURS = re.compile(
    r"^.*(?:patchkit emulator: |patchkit: |undefined symbol: |error while loading shared).*$", re.MULTILINE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program: a folder of a collection, relative to the checkout's root."""

    name: str
    folder: str
    command: tuple[str, ...]  # that builds it, in its folder
    runs: Callable[[Path], Sequence[str]] = field(repr=False)
    """Lines of a shell that run it, by its folder; `_LAUNCHER` is before the program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A line that was run: status, output, CPU seconds, and figures of patchkit's report."""

    line: str
    status: int
    output: str
    seconds: float
    launches: int = 0
    instructions: int = 0
    fault: str | None = None
    findings: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()  # files among its arguments that are not there
    memory_gb: int = _MEMORY_GB  # that it was allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """A program's command lines: the Makefile's, and with one repetition; whether it launches kernels."""

    own: tuple[str, ...]
    once: tuple[str, ...]
    launches: bool

    def changed(self, change: Callable[[str], str]) -> Lines:
        """The same with each line changed."""
        return replace(self, own=tuple(map(change, self.own)), once=tuple(map(change, self.once)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A verdict and its reason."""

    verdict: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Settings for building and running programs."""

    root: Path  # of the copy
    work: Path
    prefix: Prefix
    cache_root: Path
    arch: str
    limit_s: float
    sanitize: bool
    code: str
    memory_gb: int = _MEMORY_GB

    @property
    def environment(self) -> dict[str, str]:
        """The environment for running programs: patchkit and make on PATH."""
        bin_folders = [self.work / "bin" / self.arch, self.prefix.hipcc.parent, Path(sys.executable).parent]
        return {
            **os.environ,
            "PATH": os.pathsep.join([*map(str, bin_folders), os.environ["PATH"]]),
            "PATCHKIT_CACHE": str(self.cache_root),
            "LC_ALL": "C",
        }

    @property
    def building(self) -> dict[str, str]:
        """The environment for building with the SDK; without it Makefiles use /opt/rocm."""
        usr = str(self.prefix.hipcc.parent.parent / "usr")
        return {
            **self.environment,
            "ROCM_PATH": usr,
            "HIP_PATH": usr,
            "HIP_ARCHITECTURES": self.arch,
            "CLANG": "clang",
            "CLANG_OFFLOAD_BUNDLER": "clang-offload-bundler",
            "HIPCXX": "hipcc",
            "LLVM_DIS": "llvm-dis",
            "LLVM_MC": "llvm-mc",
        }


# The list of programs.


def programs_of(checkout: Path) -> tuple[str, list[Program]]:
    """The name of the checkout's collection, and its programs."""
    if (checkout / "HIP-Basic").is_dir():
        return "rocm-examples", list(_examples(checkout))
    if (checkout / "src").is_dir() and any((checkout / "src").glob("*-hip")):
        return "hecbench", list(_benchmarks(checkout))
    raise SystemExit(f"{checkout} is neither a checkout of HeCBench nor of rocm-examples")


def _benchmarks(checkout: Path) -> Iterable[Program]:
    for makefile in sorted(checkout.glob("src/*-hip/Makefile")):
        folder = makefile.parent
        yield Program(
            name=folder.name.removesuffix("-hip"),
            folder=folder.relative_to(checkout).as_posix(),
            command=("make",),
            runs=_lines_of_make_run,
        )


def _examples(checkout: Path) -> Iterable[Program]:
    """Folders with a Makefile that names an EXAMPLE; other Makefiles only call those below."""
    for makefile in sorted(checkout.rglob("Makefile")):
        named = re.search(r"^EXAMPLE *:?= *(\S+)", makefile.read_text("utf-8", "replace"), re.MULTILINE)
        if named:
            folder = makefile.parent.relative_to(checkout)
            yield Program(
                name=folder.as_posix(),
                folder=folder.as_posix(),
                command=("make", "ROCM_INSTALL_DIR={usr}"),
                runs=_programs_in,
            )


def _programs_in(folder: Path) -> list[str]:
    """Every new executable file that the Makefile built, without arguments."""
    made = [
        path
        for path in sorted(folder.iterdir())
        if path.is_file() and os.access(path, os.X_OK) and path.read_bytes()[:4] == b"\x7fELF"
    ]
    return [f"{_LAUNCHER} ./{path.name}" for path in made if not path.name.endswith((".o", ".so", ".hsaco"))]


def _lines_of_make_run(folder: Path) -> list[str]:
    argv = ["make", "--dry-run", "run", f"LAUNCHER={_LAUNCHER}"]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, errors="replace", check=False)
    return launching_lines(done.stdout)


def launching_lines(output: str) -> list[str]:
    """The lines of `make --dry-run` that run the program."""
    lines = [line.strip() for line in output.replace("\\\n", " ").splitlines()]
    lines = [line for line in lines if not line.startswith("#")]
    lines = [_SETTINGS.sub(rf"\1 {_LAUNCHER} ", line).strip() for line in lines]
    runs = [line for line in lines if _LAUNCHER in line]
    if runs and not any(re.search(rf"{_LAUNCHER} +[\w.]*/", line) for line in runs):
        # The launcher is before a shell command; the program is in one of the next lines.
        rest = [line.replace(_LAUNCHER, "").strip("; \t") for line in lines[lines.index(runs[0]) :]]
        joined = re.sub(r"(^|&& *|; *)(?=\./)", rf"\1{_LAUNCHER} ", "; ".join(rest), count=1)
        return [joined] if _LAUNCHER in joined else runs
    if not runs:  # no LAUNCHER in the Makefile: the last line that starts a local program
        started = [line for line in lines if re.search(r"(?:^|&& *)\./\w+", line)]
        runs = [re.sub(r"(^|&& *)(?=\./)", rf"\1{_LAUNCHER} ", line) for line in started[-1:]]
    return list(dict.fromkeys(runs))


# Arguments, building and running.


def fewer_repeats(line: str, repeats: frozenset[int | str]) -> str:
    """The line with 1 for these arguments, by number or option, and after options whose name implies it."""
    head, _, rest = line.partition(_LAUNCHER)
    words = rest.split()
    for index, word in enumerate(words):
        before = words[index - 1] if index > 1 else ""
        if before.startswith("-"):
            is_repeats = before in repeats or _REPEATS.search(before) is not None
        else:
            is_repeats = index in repeats
        if word.isdigit() and is_repeats:
            words[index] = "1"
    return f"{head}{_LAUNCHER} {' '.join(words)}"


def smaller(line: str, divisor: int, size: int, least: int) -> str:
    """The line with numbers from ``size`` on divided, to ``least`` or more; the same without any."""
    head, _, rest = line.partition(_LAUNCHER)
    words = rest.split()
    sizes = [word.isdigit() and int(word) >= size for word in words]
    divided = [
        str(max(int(word) // divisor, least)) if is_size else word
        for word, is_size in zip(words, sizes, strict=True)
    ]
    return f"{head}{_LAUNCHER} {' '.join(divided)}"


def repeats_of(sources: Iterable[str]) -> frozenset[int | str]:
    """The arguments that are a number of repetitions, by number from 1 or by the option before them.

    Found by their names where the program reads or explains them.
    """
    found: set[int | str] = set()
    for text in sources:
        found.update(int(index) for name, index in _READ_ARGUMENT.findall(text) if _REPEATS.search(name))
        for usage in _USAGE.findall(text):
            named = [
                one for one in _NAMED_ARGUMENT.finditer(_JOINT.sub("", usage)) if not one["name"].isdigit()
            ]
            found.update(
                one["option"] or index for index, one in enumerate(named, 1) if _REPEATS.search(one["name"])
            )
    return frozenset(found)


def _texts(folder: Path, suffixes: frozenset[str] = _SOURCES) -> Iterable[str]:
    for path in sorted(folder.rglob("*")):
        if path.suffix in suffixes and path.is_file():
            yield path.read_text("utf-8", "replace")


def build(program: Program, setting: Setting) -> str | None:
    """Build the program in the copy; None, or the compiler's output if it fails."""
    usr = str(setting.prefix.hipcc.parent.parent / "usr")
    argv = [word.format(usr=usr) for word in program.command]
    try:
        done = subprocess.run(
            argv,
            cwd=setting.root / program.folder,
            env=setting.building,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=_BUILD_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"error: not built within {_BUILD_S:.0f} s"
    return done.stdout if done.returncode else None


def run(line: str, program: Program, setting: Setting, seconds: float) -> Ran:
    """Run a line with a limit of CPU seconds for each process."""
    report = setting.work / "reports" / f"{program.name.replace('/', '_')}.json"
    report.unlink(missing_ok=True)
    lacks = missing_files(line, setting.root / program.folder)
    verb = "sanitize" if setting.sanitize else "emulate"
    launcher = ["patchkit", verb, "--arch", setting.arch, "--threads", "1", "--report", str(report), "--"]
    limit = int(seconds) + 2  # patchkit's own start
    started = line.replace(_LAUNCHER, shlex.join(launcher))
    limited = f"ulimit -S -t {limit}; ulimit -v {setting.memory_gb << 20}; {started}"
    with subprocess.Popen(
        ["/bin/sh", "-c", limited],
        cwd=setting.root / program.folder,
        env=setting.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        killer = threading.Timer(limit * _PATIENCE, os.killpg, (process.pid, 9))
        killer.start()
        if process.stdout is None:
            raise AssertionError("asked for a pipe")
        output = process.stdout.read()
        _, waited, used = os.wait4(process.pid, 0)
        killer.cancel()
        process.returncode = os.waitstatus_to_exitcode(waited)
    ran = Ran(
        lacks=lacks,
        memory_gb=setting.memory_gb,
        line=line.replace(f"{_LAUNCHER} ", ""),
        status=process.returncode if process.returncode >= 0 else _SIGNALLED - process.returncode,
        output=output.decode("utf-8", "replace"),
        seconds=round(used.ru_utime + used.ru_stime, 1),
    )
    return _with_report(ran, report, sanitized=setting.sanitize)


def missing_files(line: str, folder: Path) -> tuple[str, ...]:
    """Missing files in other folders among the arguments of a program in ``folder``."""
    words = line.partition(_LAUNCHER)[2].split()[1:]
    paths = [word for word in words if "/" in word and not word.startswith("-")]
    return tuple(path for path in paths if not (folder / path).exists())


def is_to_be_fetched(path: Path) -> bool:
    """Whether a missing file is an input: its folder is missing too, or explains where to fetch it."""
    return not path.parent.exists() or any(path.parent.glob("*.dvc"))


def _with_report(ran: Ran, path: Path, *, sanitized: bool) -> Ran:
    try:
        report: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return ran
    if sanitized:
        return replace(
            ran,
            status=report["status"],
            launches=report["launches"],
            instructions=report["instructions"],
            fault=report["fault"],
            findings=tuple(f"{one['kind']}: {one['title']}" for one in report["findings"]),
        )
    return replace(
        ran,
        launches=sum(one["launches"] for one in report["kernels"]) + len(report["on_cpu"]),
        instructions=sum(one["instructions"] for one in report["kernels"]),
        fault=report["fault"],
    )


# The verdict.


def judge_build(output: str) -> Judged:
    """The verdict on a failed build."""
    if missing := _NO_HEADER.search(output):
        other = _OTHER_LIBRARIES.get(missing[1].split("/")[0])
        if other:
            return Judged(verdict="needs another library", why=other)
        return Judged(verdict="does not build", why=f"no header {missing[1]}")
    if missing := _NO_LIBRARY.search(output):
        return Judged(verdict="does not build", why=f"no library for {missing[1]}")
    if crashed := _CRASHED.search(output):
        return Judged(verdict="does not build", why=f"clang crashed in {crashed[1]}")
    errors = [
        line for line in output.splitlines() if re.search(r"\berror\b|undefined symbol|Error 127", line)
    ]
    first = errors[0] if errors else (output.strip().splitlines() or ["no output"])[-1]
    return Judged(verdict="does not build", why=_without_places(first))


def judge(ran: Ran, *, launches: bool = True) -> Judged:
    """The verdict on one run; ``launches``: the program's source launches kernels."""
    if ran.status in (_SIGNALLED + signal.SIGKILL, _SIGNALLED + signal.SIGXCPU):
        return Judged(verdict="time limit", why="")
    if ran.status or ran.fault is not None:
        return _judge_failed(ran)
    lines = ran.output.splitlines()
    if failed := [line for line in lines if _FAILED.search(line) and not _NO_FAILURE.search(line)]:
        return Judged(verdict="wrong", why=_without_places(failed[0]))
    if launches and not ran.launches:
        return _lacks_something(ran) or Judged(verdict="wrong", why="it launched no kernel")
    return Judged(verdict="right", why="" if _CHECKED.search(ran.output) else "checks nothing itself")


def _judge_failed(ran: Ran) -> Judged:
    if ran.fault is not None:
        return Judged(verdict="refused", why=_without_places(ran.fault))
    if ours := _OURS.search(ran.output):
        return Judged(verdict="refused", why=_without_places(ours[0]))
    if _NO_MEMORY.search(ran.output):
        return Judged(verdict="refused", why=f"it needs more memory than {ran.memory_gb} GB")
    if outside := _lacks_something(ran):
        return outside
    # The program's last line, without patchkit's explanation, which is indented.
    last = [line for line in ran.output.splitlines() if line.strip() and not line.startswith("  ")]
    return Judged(verdict="wrong", why=f"status {ran.status}: {_without_places(last[-1] if last else '')}")


def _lacks_something(ran: Ran) -> Judged | None:
    if missing := _NO_MODULE.search(ran.output):
        other = f"Python's {missing[1]}" if missing[1] else "MPI"
        return Judged(verdict="needs another library", why=other)
    if ran.launches:
        return None
    if ran.lacks:
        return Judged(verdict="lacks data", why=_names(ran.lacks))
    if lacks := _NO_FILE.search(ran.output):
        return Judged(verdict="lacks data", why=_without_places(lacks[0]))
    return None


def judge_all(rans: Sequence[Ran], *, launches: bool = True) -> Judged:
    """The worst verdict of the runs that have their data; "lacks data" if none has."""
    every = [judge(ran, launches=launches) for ran in rans]
    judged = [one for one in every if one.verdict != "lacks data"] or every
    lacking = len(every) - len(judged)
    without = f"{lacking} of {len(every)} runs lack data" if lacking else ""
    for verdict in ("wrong", "refused", "time limit"):
        bad = [one for one in judged if one.verdict == verdict]
        if bad:
            some = f"{len(bad)} of {len(every)} runs" if len(bad) < len(every) else ""
            noted = "; ".join(filter(None, (some, without)))
            return replace(bad[0], why=(bad[0].why + f" ({noted})" * bool(noted)).strip())
    best = next((one for one in judged if not one.why), judged[0])
    return replace(best, why="; ".join(filter(None, (best.why, without))))


def _names(paths: Iterable[str]) -> str:
    return ", ".join(Path(path).name for path in paths)


def _without_places(text: str) -> str:
    """The text without this machine's folders and addresses, shortened."""
    text = re.sub(r"(?:/[\w.+-]+)+/", "", text.strip())
    text = re.sub(r"0x[0-9a-f]{6,}", "0x...", text)
    return text[:_SHOWN]


def built_files(folder: Path) -> Iterable[Path]:
    """Headers, and the sources that the Makefile names: some have variants for another library."""
    makefile = (folder / "Makefile").read_text("utf-8", "replace")
    for path in sorted(folder.rglob("*")):
        if path.suffix in _SOURCES and path.is_file():
            names = (path.name, f"{path.stem}.o", "wildcard")
            if path.suffix in _HEADERS or any(name in makefile for name in names):
                yield path


def other_library(texts: Iterable[bytes]) -> str | None:
    """The first unsupported library that is included."""
    for text in texts:
        for name in _INCLUDED.findall(text):
            if other := _OTHER_LIBRARIES.get(name.decode()):
                return other
    return None


# All programs.


def verdict_of(
    program: Program, setting: Setting, checkout: Path, known: Known, *, build_only: bool = False
) -> dict[str, object]:
    """Build and run one program; returns its line of the verdicts' file."""
    setting = replace(setting, arch=known.archs.get(program.name, setting.arch))
    rans: list[Ran] = []
    if build_only:
        judged = built_or_why(program, setting, checkout) or Judged(verdict="builds", why="")
    else:
        judged, rans = _seen(program, setting, checkout)
    return {
        **asdict(judged),
        "arch": setting.arch,
        "runs": [{key: value for key, value in asdict(ran).items() if key != "output"} for ran in rans],
    }


def built_or_why(program: Program, setting: Setting, checkout: Path) -> Judged | None:
    """Build the program in the copy if necessary; a verdict if there is nothing to run."""
    source, folder = checkout / program.folder, setting.root / program.folder
    if other := other_library(path.read_bytes() for path in built_files(source)):
        return Judged(verdict="needs another library", why=other)
    name = program.name.replace("/", "_")
    note = setting.work / "built" / f"{name}-{setting.arch}.json"
    made_of = [files_digest(program, checkout), str(setting.prefix.hipcc.resolve())]
    if left := files_left_by_build(note, made_of):
        remove_others(folder, left)
        return None
    shutil.rmtree(folder)
    shutil.copytree(source, folder, symlinks=True)
    gone = [path for line in program.runs(folder)[:1] for path in missing_files(line, folder)]
    if any(is_to_be_fetched(folder / path) for path in gone):  # it need not be built
        return Judged(verdict="lacks data", why=_names(gone))
    if (failed := build(program, setting)) is not None:
        (setting.work / "logs" / f"{name}.log").write_text(failed, "utf-8")
        return judge_build(failed)
    note.parent.mkdir(exist_ok=True)
    note.write_text(json.dumps({"made_of": made_of, "files": _files_below(folder)}), "utf-8")
    return None


def files_left_by_build(note: Path, made_of: Sequence[str]) -> frozenset[str]:
    """The contents of a program's folder after it was built from the same files; empty if it was not."""
    try:
        document = json.loads(note.read_text("utf-8"))
    except (OSError, ValueError):
        return frozenset()
    return frozenset(document["files"]) if document["made_of"] == list(made_of) else frozenset()


def remove_others(folder: Path, kept: frozenset[str]) -> None:
    """Remove files of earlier runs, so that a run starts from the built folder."""
    for path in _files_below(folder):
        if path not in kept:
            (folder / path).unlink()


def _files_below(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())


def _seen(program: Program, setting: Setting, checkout: Path) -> tuple[Judged, list[Ran]]:
    if (unbuilt := built_or_why(program, setting, checkout)) is not None:
        return unbuilt, []
    lines = _lines_of(program, setting, checkout)
    if not lines.own:
        return Judged(verdict="wrong", why="nothing says how it is run"), []
    return try_lines(lines, program, setting, "w")


def smaller_verdict_of(
    old: Mapping[str, Any], program: Program, setting: Setting, checkout: Path
) -> str | None:
    """The note for a time limit: the smaller arguments with which the program is right; None if none."""
    setting = replace(setting, arch=old["arch"])
    if built_or_why(program, setting, checkout) is not None:
        return None
    lines = _lines_of(program, setting, checkout)
    too_large = 0
    for divisor, size, least in _DIVISORS:
        shorter = lines.changed(partial(smaller, divisor=divisor, size=size, least=least))
        if shorter == lines or (divisor < too_large and size >= _SURELY_A_SIZE):
            continue
        found, _ = try_lines(shorter, program, setting, "a")
        if found.verdict == "time limit":
            too_large = divisor
        elif found.verdict == "right":
            small = f", from {size} on" if size < _SURELY_A_SIZE else ""
            note = f"{_SMALLER_IS_RIGHT}: sizes divided by {divisor}{small}"
            return f"{note}; {found.why}" if found.why else note
    return None


def _lines_of(program: Program, setting: Setting, checkout: Path) -> Lines:
    """The command lines of a built program."""
    texts = list(_texts(checkout / program.folder))
    repeats = repeats_of(texts)
    own = tuple(program.runs(setting.root / program.folder))
    return Lines(
        own=own,
        once=tuple(fewer_repeats(line, repeats) for line in own),
        launches=any(_LAUNCHES.search(text) for text in texts),
    )


def try_lines(lines: Lines, program: Program, setting: Setting, mode: str) -> tuple[Judged, list[Ran]]:
    """The verdict with one repetition, or with the program's own arguments if that is wrong or refused."""
    rans = _run_lines(lines.once, program, setting)
    write_log(rans, program, setting, mode)
    judged = judge_all(rans, launches=lines.launches)
    if judged.verdict in _MAYBE_OURS and lines.own != lines.once:
        rans = _run_lines(lines.own, program, setting)
        write_log(rans, program, setting, "a")
        judged = judge_all(rans, launches=lines.launches)
    return judged, rans


def write_log(rans: Sequence[Ran], program: Program, setting: Setting, mode: str) -> None:
    """Write the output of a program to its log."""
    path = setting.work / "logs" / f"{program.name.replace('/', '_')}.log"
    with path.open(mode, encoding="utf-8") as file:
        file.write("".join(f"$ {ran.line}\n{ran.output}\n" for ran in rans))


def _run_lines(lines: Sequence[str], program: Program, setting: Setting) -> list[Ran]:
    """Run the lines one after the other, within one time limit."""
    rans: list[Ran] = []
    left = setting.limit_s
    for line in lines:
        rans.append(run(line, program, setting, left))
        left -= rans[-1].seconds
        if left <= 0:
            break
    return rans


def files_digest(program: Program, checkout: Path) -> str:
    """Digest of the program's files, and of neighbouring folders that it names."""
    folder = checkout / program.folder
    names = {folder.name}
    for path in folder.rglob("*"):
        if path.is_file() and (path.suffix in _SOURCES or path.name == "Makefile"):
            names.update(name.decode() for name in _NEIGHBOUR.findall(path.read_bytes()))
    digest = hashlib.sha256()
    for name in sorted(names):
        top = folder.parent / name
        for path in [top] if top.is_file() else sorted(top.rglob("*")):
            if path.is_file():
                content = (
                    path.read_bytes() if path.stat().st_size <= _LARGE else str(path.stat().st_size).encode()
                )
                digest.update(path.relative_to(folder.parent).as_posix().encode() + b"\0")
                digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()[:16]


def code_digest(prefix: Prefix) -> str:
    """Digest of patchkit's code that influences a verdict, and of the SDK."""
    package = Path(patchkit.__file__).parent
    sources = sources_digest(package, ("gpu", "toolchain"), lambda path: "__pycache__" in path.parts)
    return hashlib.sha256(f"{sources} {prefix.hipcc.resolve()}".encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Facts from foreign_programs.toml, by name: verdicts, and the GPU that a program has code for."""

    verdicts: Mapping[tuple[str, str], Judged]
    """By name and the script's own verdict; not used if the script's verdict differs."""
    archs: Mapping[str, str]


def load_known(collection: str) -> Known:
    """Load the facts about one collection."""
    document = tomllib.loads((_HERE / "foreign_programs.toml").read_text("utf-8"))
    chosen = [one for one in document["program"] if one["collection"] == collection]
    return Known(
        verdicts={
            (one["name"], one["instead_of"]): Judged(verdict=one["verdict"], why=one["why"])
            for one in chosen
            if "verdict" in one
        },
        archs={one["name"]: one["arch"] for one in chosen if "arch" in one},
    )


def with_known(verdict: Mapping[str, Any], known: Mapping[tuple[str, str], Judged]) -> Mapping[str, Any]:
    """The verdict of a program, replaced by the known one if there is one."""
    found = known.get((verdict["name"], verdict["verdict"]))
    return verdict if found is None else {**verdict, **asdict(found)}


def load_verdicts(path: Path) -> dict[str, dict[str, Any]]:
    """The newest of each program. A line that was cut off when the script was stopped is none."""
    found: dict[str, dict[str, Any]] = {}
    if path.is_file():
        for line in path.read_text("utf-8").splitlines():
            try:
                one = json.loads(line)
            except ValueError:
                continue
            found[one["name"]] = one
    return found


def main() -> int:
    """Run the programs without a verdict; return 1 if fewer than --least are right."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--work", type=Path, required=True, help="a folder for the copy, logs and verdicts")
    parser.add_argument("--arch", default="gfx1151")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="only this program; may be repeated"
    )
    parser.add_argument(
        "--again",
        action="append",
        default=[],
        metavar="VERDICT",
        help="run programs with this verdict again; may be repeated",
    )
    parser.add_argument(
        "--older",
        action="store_true",
        help="keep verdicts of older code of patchkit, except those of --again",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--build-only", action="store_true", help="only build; keep no verdict")
    what.add_argument(
        "--smaller",
        action="store_true",
        help="only run the programs at the time limit, with smaller arguments",
    )
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--limit-s", type=float, default=60.0, help="CPU seconds per program")
    parser.add_argument("--memory-gb", type=int, default=_MEMORY_GB, help="memory limit per program")
    parser.add_argument(
        "--total-s", type=float, default=float("inf"), help="start no program after this time"
    )
    parser.add_argument("--seed", type=int, default=44, help="seed of the order")
    parser.add_argument("--sanitize", action="store_true", help="with all default checks")
    parser.add_argument("--least", type=float, default=0.9, help="required share of right programs")
    parser.add_argument(
        "--cache-dir", type=Path, default=default_cache_root(), help="cache folder with the SDK"
    )
    parser.add_argument("--record", action="store_true", help="only write the data of docs/records")
    options = parser.parse_args()
    checkout: Path = options.checkout.resolve()
    collection, programs = programs_of(checkout)
    setting = _prepared(options, checkout, collection)
    place = options.work / f"verdicts-{collection}{'-sanitize' if options.sanitize else ''}.jsonl"
    verdicts = load_verdicts(place)
    if options.build_only:
        place = options.work / f"builds-{collection}.jsonl"
        verdicts = {}
        place.unlink(missing_ok=True)
    random.Random(options.seed).shuffle(programs)  # noqa: S311  # not a secret
    if options.only:
        programs = [one for one in programs if one.name in options.only]
    if not options.record:
        _run_all(programs, verdicts, place, setting, checkout, options)
    known = load_known(collection).verdicts
    chosen = {one.name: with_known(verdicts[one.name], known) for one in programs if one.name in verdicts}
    print("\n".join(summary(chosen.values())))
    if options.record:
        _record(collection, chosen, len(programs), checkout, setting, options)
    counts = Counter(str(one["verdict"]) for one in chosen.values())
    within = sum(counts[verdict] for verdict in counts if verdict not in OUTSIDE)
    return int(sum(counts[verdict] for verdict in GOOD) < options.least * within)


def _prepared(options: argparse.Namespace, checkout: Path, collection: str) -> Setting:
    """Copy the checkout, and create a hipcc for each GPU."""
    prefix = current_prefix(options.cache_dir)
    if prefix is None:
        raise SystemExit("no SDK; install it with patchkit sdk install")
    work: Path = options.work.resolve()
    root = work / collection
    for folder in (work / "logs", work / "reports"):
        folder.mkdir(parents=True, exist_ok=True)
    if not root.exists():
        shutil.copytree(checkout, root, symlinks=True, ignore=shutil.ignore_patterns(".git"))
    # Like HIPCC_COMPILE_FLAGS_APPEND for AMD's hipcc: the Makefiles use the GPU of the machine.
    for arch in {options.arch, *load_known(collection).archs.values()}:
        compiler = work / "bin" / arch / "hipcc"
        compiler.parent.mkdir(parents=True, exist_ok=True)
        compiler.write_text(f'#!/bin/sh\nexec {prefix.hipcc} --offload-arch={arch} "$@"\n', "utf-8")
        compiler.chmod(0o755)
    return Setting(
        root=root,
        work=work,
        prefix=prefix,
        cache_root=options.cache_dir.resolve(),
        arch=options.arch,
        limit_s=options.limit_s,
        sanitize=options.sanitize,
        code=code_digest(prefix),
        memory_gb=options.memory_gb,
    )


def _run_all(
    programs: Sequence[Program],
    verdicts: dict[str, dict[str, Any]],
    place: Path,
    setting: Setting,
    checkout: Path,
    options: argparse.Namespace,
) -> None:
    known = load_known(programs_of(checkout)[0])
    began = time.monotonic()
    lock = threading.Lock()

    def take(program: Program) -> None:
        files = files_digest(program, checkout)
        old = verdicts.get(program.name)
        is_skipped = (
            has_no_smaller(old, files) if options.smaller else _still_holds(old, files, setting, options)
        )
        if is_skipped or time.monotonic() - began > options.total_s:
            return
        if options.smaller and old is not None:
            note = smaller_verdict_of(old, program, setting, checkout)
            found = {**old, "why": note or old["why"]}
        else:
            found = verdict_of(program, setting, checkout, known, build_only=options.build_only)
        # The note about smaller arguments is stored with the code that produced it.
        line = {"name": program.name, "files": files, "code": setting.code, **found}
        with lock:
            verdicts[program.name] = line
            with place.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            print(f"{program.name}: {line['verdict']}: {line['why']}", file=sys.stderr, flush=True)

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for _ in pool.map(take, programs):
            pass


def _still_holds(
    old: Mapping[str, Any] | None, files: str, setting: Setting, options: argparse.Namespace
) -> bool:
    if old is None or old["files"] != files or old["verdict"] in options.again:
        return False
    return bool(options.older) or old["code"] == setting.code


def has_no_smaller(old: Mapping[str, Any] | None, files: str) -> bool:
    """Whether the program is not to be tried with smaller arguments."""
    if old is None or old["files"] != files or old["verdict"] != "time limit":
        return True
    return ends_right_when_smaller(old)


def ends_right_when_smaller(verdict: Mapping[str, Any]) -> bool:
    """Whether a program at the time limit is right with smaller arguments."""
    return verdict["verdict"] == "time limit" and str(verdict["why"]).startswith(_SMALLER_IS_RIGHT)


def summary(verdicts: Iterable[Mapping[str, Any]]) -> list[str]:
    """Counts, and the reasons of the others, the most frequent first."""
    found = list(verdicts)
    counts = Counter(str(one["verdict"]) for one in found)
    within = sum(number for verdict, number in counts.items() if verdict not in OUTSIDE)
    good = sum(counts[verdict] for verdict in GOOD)
    lines = [f"{len(found)} programs", *(f"{number:5} {verdict}" for verdict, number in counts.most_common())]
    share = f" ({good / within:.1%})" if within else ""
    lines.append(f"{good} of {within} that have their data and need no other library{share}")
    lines.append(f"{sum(map(ends_right_when_smaller, found)):5} more with smaller arguments")
    why = Counter((one["verdict"], one["why"]) for one in found if one["verdict"] not in (*GOOD, *OUTSIDE))
    for (verdict, reason), number in why.most_common():
        names = [one["name"] for one in found if (one["verdict"], one["why"]) == (verdict, reason)]
        lines.append(f"{number:5} {verdict}: {reason}   [{', '.join(names[:8])}]")
    return lines


def _record(
    collection: str,
    chosen: Mapping[str, Mapping[str, Any]],
    programs: int,
    checkout: Path,
    setting: Setting,
    options: argparse.Namespace,
) -> None:
    argv = ["git", "-C", str(checkout), "rev-parse", "--short=12", "HEAD"]
    commit = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()
    rows = {
        name: {
            "verdict": one["verdict"],
            "why": one["why"],
            "findings": _kinds(one),
            **({"smaller": True} if ends_right_when_smaller(one) else {}),
        }
        for name, one in sorted(chosen.items())
    }
    words = ["--arch", options.arch, "--limit-s", f"{options.limit_s:g}", "--seed", str(options.seed)]
    if options.memory_gb != _MEMORY_GB:
        words += ["--memory-gb", str(options.memory_gb)]
    if options.sanitize:
        words.append("--sanitize")
    write_record(
        f"foreign-programs-{collection}{'-sanitize' if options.sanitize else ''}",
        f"python benchmarks/foreign_programs.py CHECKOUT {' '.join(words)}",
        {
            "collection": collection,
            "checkout": commit,
            "programs": programs,
            "arch": options.arch,
            "of_older_code": sum(one["code"] != setting.code for one in chosen.values()),
            "verdicts": rows,
        },
    )


def _kinds(verdict: Mapping[str, Any]) -> dict[str, int]:
    found = Counter(str(one).partition(":")[0] for ran in verdict["runs"] for one in ran["findings"])
    return dict(sorted(found.items()))


if __name__ == "__main__":
    sys.exit(main())
