r"""Run ``pick`` with planted patches on this machine: the experiment of docs/records/pick.md.

    python benchmarks/pick_planted.py --backend cuda --upstream b6900.tar.xz --model SMALL.gguf \
        --model LARGE.gguf --gpus 0,1,2,3 --runs 12 --work WORK --record pick.md --detach
    python benchmarks/pick_planted.py --backend cuda ... --gpus 0 --runs 2 --work WORK --record pick.md
    python benchmarks/pick_planted.py --backend cpu --upstream llama.cpp --runs 2 --minutes 4 --work WORK

It creates the clone and the series (tests/support/planted.py), and builds and checks once what all runs need,
in a cache in WORK. Then each GPU has one run at a time, like ``patchkit pick`` on the command line. A run is
*exactly right* if it picked only ``prompts`` and ``with-prompts``.

**After an interruption, the same command continues**: finished runs are kept, an interrupted run continues
with its journal, and the table shows it. ``--detach`` continues in the background, also after the shell is
gone; the same command then starts nothing and prints the table so far, like ``--show``. ``--record`` writes a
page after each run, and an archive of all journals and results next to it.

On a virtual machine with four H100 and 64 cores, four runs at once disturbed one another, two much less
(docs/records/pick.md). With four threads per run, as now, four at once were quiet on the next machine.
``--apart`` makes them quieter: decode 0.6 to 1.3 % instead of 1.2 to 2.5 %.

Before any run measures, two runs of six seconds do the work that all share: one with all patches, whose
check, search and crossing need 27 builds, and one with the patches that should be picked. On four H100 and 64
cores this took 6.3 and 7.4 minutes, 170 s of it for upstream; then a run took 13.5 to 17.6, with ``--apart``
10 to 14. Copying 417 MB in pieces of 50 took 60 to 80 s, and unpacking an xz archive 26 s.

**On a bare machine without a network** (Linux with git 2.32, g++, Python 3.11 or newer with venv; for CUDA
nvcc on PATH and a matching driver) you need a clone of this repository, the models, and the results of these
commands:

    python3.12 -m pip wheel -w wheels .
    git -C llama.cpp archive b6900 | xz > b6900.tar.xz

There, run ``python3.12 -m venv env && env/bin/pip install --no-index --find-links wheels patchkit``, and the
commands above with ``env/bin/python``. They run the patchkit of the clone, with libraries, cmake and ninja
from the wheels, which are for one version of Python. Nothing is downloaded: the planted clone is declared to
be build 6901.

All runs of one experiment measure the same in the same orders, because pick derives them from what is
measured. What differs is the noise of the machine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import platform
import runpy
import shutil
import signal
import statistics
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from patchkit.base.files import file_sha256, write_whole
from patchkit.base.locks import LockBusy, locked

ROOT = Path(__file__).resolve().parents[1]
PLANTED = runpy.run_path(str(ROOT / "tests/support/planted.py"))
EXPECTED: frozenset[str] = frozenset(PLANTED["EXPECTED"])
PATCHES: tuple[str, ...] = tuple(name.partition("-")[2] for name in PLANTED["_PATCHES"])
TESTS = {"cuda": "pp512,tg64", "cpu": "pp64,tg8"}
# By default llama-bench on a GPU keeps half of all cores in busy waits: two runs on 64 cores had a load of
# 28, and four disturbed one another. With four threads each, four have a load of 6. With six repetitions more
# runs finish in 17 minutes than with three, although a call takes a fifth longer (docs/records/pick.md).
_MORE = {
    "cuda": ("--threads", "4", "--repetitions", "6"),
    "cpu": ("--batch", "128", "--micro-batch", "128", "--threads", "1"),
}
_SHORT = "0.1"  # minutes: one round, in which everything is built and checked and nothing is decided
_KEEPING = "writing the results of the runs"
_FEW = 3  # fewest visits of a build and model for a median
_WANTED = 0.9  # share of runs that must be exactly right, and none with a loser (issue 46)


# -- the results of a run


def judged(picked: Sequence[str], words: Mapping[str, str]) -> str:
    """``yes``, ``open: ...`` if a gain is undecided, or ``no: ...`` if the run was wrong."""
    if wrongly := sorted(set(picked) - EXPECTED):
        return f"no: kept {', '.join(wrongly)}"
    missing = sorted(EXPECTED - set(picked))
    if lost := [name for name in missing if words.get(name) == "leave out"]:
        return f"no: left out {', '.join(lost)}"
    return f"open: {', '.join(missing)}" if missing else "yes"


def entries(journal: Path) -> list[dict[str, Any]]:
    """The entries of a journal, also of one that is being written, without their digests."""
    if not journal.is_file():
        return []
    lines = journal.read_bytes().split(b"\n")[:-1]
    return [json.loads(line.rpartition(b"\t")[0]) for line in lines]


def noise_of_calls(visits: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Noise by test, a fraction per model: 1.48 times the median distance of a call from its build's median.

    A call is its fastest repetition, as in pick.
    """
    times: dict[tuple[str, str, str], list[float]] = {}
    for visit in visits:
        for test, samples in visit["samples_ns"].items():
            key = (test, visit["model"], visit["tree"])
            times.setdefault(key, []).append(math.log(min(samples)))
    away: dict[tuple[str, str], list[float]] = {}
    for (test, model, _), each in times.items():
        if len(each) >= _FEW:
            middle = statistics.median(each)
            away.setdefault((test, model), []).extend(abs(one - middle) for one in each)
    found: dict[str, list[float]] = {}
    for (test, _), each in sorted(away.items()):
        found.setdefault(test, []).append(1.4826 * statistics.median(each))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of pick: its folder ``out``, and next to it the log and the times of start and end."""

    number: int
    folder: Path

    @property
    def out(self) -> Path:
        """The folder that pick writes."""
        return self.folder / "pick"

    @property
    def begun(self) -> list[dict[str, Any]]:
        """Times and GPUs of each start and continuation."""
        path = self.folder / "begun.jsonl"
        return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.is_file() else []

    @property
    def ended(self) -> dict[str, Any] | None:
        """Exit status and minutes since the last start, if it ended by itself."""
        path = self.folder / "ended.json"
        return dict(json.loads(path.read_text("utf-8"))) if path.is_file() else None

    @property
    def result(self) -> dict[str, Any] | None:
        """The result of pick, if it finished."""
        path = self.out / "result.json"
        ended = self.ended
        if ended is None or ended["status"] or not path.is_file():
            return None
        return dict(json.loads(path.read_text("utf-8")))

    @property
    def is_busy(self) -> bool:
        """Whether a pick is measuring into the folder, possibly one left by a killed experiment."""
        return _is_locked(self.out / "lock")


COLUMNS = ("run", "on", "exactly right", *PATCHES, "minutes (measured)", "noise of a call", "interrupted")


def row_of(run: Run) -> tuple[str, ...]:
    """The cells of the table for a run; for each patch its verdict and number of pairs of runs."""
    result, ended = run.result, run.ended
    kept = entries(run.out / "journal.jsonl")
    visits = [entry for entry in kept if entry["kind"] == "visit"]
    measured = sum(visit["seconds"] for visit in visits) / 60
    spread = noise_of_calls(visits)
    noise = ", ".join(f"{test} {' and '.join(f'{one:.1%}' for one in each)}" for test, each in spread.items())
    begun = run.begun
    on = ", ".join(dict.fromkeys(f"GPU {one['gpu']}" if one["gpu"] else "CPU" for one in begun))
    times = len(begun)
    cut = "no" if times <= 1 else f"{times - 1} x, continued"
    if result is None:
        verdict = "running" if run.is_busy else f"failed: {_last_error(run)}" if ended else "interrupted"
        words = dict.fromkeys(PATCHES, "")
        if not run.is_busy and not ended:
            cut = f"yes, started {times} x"
        minutes = f"({measured:.1f})"
    else:
        decided = {one["id"]: one for one in result["patches"]}
        verdict = judged(result["picked"], {name: one["verdict"] for name, one in decided.items()})
        words = {name: _word(decided[name]) for name in PATCHES}
        whole = f"{ended['minutes']:.1f} " if ended is not None and times == 1 else ""
        minutes = f"{whole}({measured:.1f})"
    return (str(run.number), on, verdict, *(words[name] for name in PATCHES), minutes, noise, cut)


def _word(decision: Mapping[str, Any]) -> str:
    if "RMS_NORM(" in decision["why"]:
        return f"{decision['verdict']}: wrong, RMS_NORM"
    return f"{decision['verdict']}, {decision['pairs']}"


def _last_error(run: Run) -> str:
    log = run.folder / "log"
    lines = log.read_text("utf-8", "replace").splitlines() if log.is_file() else []
    return next((line for line in reversed(lines) if line.startswith("error")), "see its log")[:120]


# -- the experiment


class Stopped(Exception):
    """The experiment was interrupted."""


class Experiment:
    """An experiment in the folder ``work``, which also records its settings."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.work: Path = options.work.resolve()
        self.gpus: list[str] = options.gpus.split(",") if options.gpus else [""]
        self.models: list[Path] = [path.resolve() for path in options.model]
        self.planted = self.work / "planted"
        self.runs = [
            Run(number=number, folder=self.work / f"run-{number:02d}")
            for number in range(1, options.runs + 1)
        ]
        self.stop = threading.Event()
        self.measures = threading.Event()
        self.going: set[subprocess.Popen[bytes]] = set()
        self.writing = threading.Lock()

    # -- before any run

    def prepare(self) -> None:
        """Create clone, series and models, if they do not exist."""
        self.work.mkdir(parents=True, exist_ok=True)
        if not self.models:
            self.models = self._own_models()
        _check_widths(self.models)
        if not self.planted.is_dir():
            partial = self.work / "planted.partial"
            shutil.rmtree(partial, ignore_errors=True)
            tree = self._upstream(partial / "upstream")
            made = partial / "made"
            self._patchkit("init", str(made), "--plain", "--upstream", "b6900")
            _, series = PLANTED["plant"](tree, partial, self.options.backend)
            for path in (made / "patches").iterdir():
                path.rename(series / "patches" / path.name)
            shutil.rmtree(partial / "upstream", ignore_errors=True)
            partial.rename(self.planted)
        self._check_setup()
        self._check_stopped()

    def _upstream(self, folder: Path) -> Path:
        source: Path = self.options.upstream
        if source.is_dir():
            return source.resolve()
        with tarfile.open(source) as archive:
            archive.extractall(folder, filter="data")
        inner = [path.parent for path in (folder / "CMakeLists.txt", *folder.glob("*/CMakeLists.txt"))]
        return next(path for path in inner if (path / "ggml" / "src").is_dir())

    def _own_models(self) -> list[Path]:
        from patchkit.gpu.emulated.models import SmallModel  # noqa: PLC0415 - numpy and gguf

        found = []
        for name, heads in (("small", 4), ("large", 12)):
            path = self.work / "models" / f"{name}.gguf"
            path.parent.mkdir(exist_ok=True)
            SmallModel(head_size=64, heads=heads).write(path)
            found.append(path)
        return found

    def _check_setup(self) -> None:
        """Refuse a folder of an experiment with other models, tests or times."""
        path = self.work / "experiment.json"
        now = json.loads(json.dumps(self.setup))
        if not path.is_file():
            write_whole(path, json.dumps(now, indent=1) + "\n", _KEEPING)
        was = json.loads(path.read_text("utf-8"))
        if differing := sorted(name for name in now if was.get(name) != now[name]):
            raise SystemExit(
                f"{path} belongs to another experiment ({', '.join(differing)}); use another --work"
            )

    @property
    def setup(self) -> dict[str, object]:
        """The settings that all runs share."""
        git = ["git", "-C", str(self.planted / "clone"), "rev-parse", "HEAD"]
        return {
            "backend": self.options.backend,
            "clone": subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip(),
            "models": {path.name: file_sha256(path) for path in self.models},
            "tests": self.options.tests,
            "minutes": self.options.minutes,
            "least": self.options.least,
            "apart": self.options.apart,
            "more": list(_MORE[self.options.backend]),
        }

    def share(self) -> None:
        """Build and check what all runs need, once."""
        ready = self.work / "ready.json"
        if ready.is_file():
            return
        print("building and checking what all runs need", file=sys.stderr, flush=True)
        began = time.monotonic()
        alone = [word for name in sorted(EXPECTED) for word in ("--only", name)]
        first, second = self.work / "shared-all", self.work / "shared-picked"
        # The second waits for upstream's build and then checks while the first builds.
        with ThreadPoolExecutor(min(2, len(self.gpus))) as pool:
            jobs = [
                pool.submit(self._pick, first, self.gpus[0], _SHORT, []),
                pool.submit(self._pick, second, self.gpus[-1], _SHORT, alone),
            ]
        for folder, job in zip((first, second), jobs, strict=True):
            if job.result():
                self._check_stopped()
                sys.stderr.write((folder / "log").read_text("utf-8", "replace")[-4000:])
                raise SystemExit(f"could not build what all runs need: see {folder / 'log'}")
        minutes = round((time.monotonic() - began) / 60, 1)
        write_whole(ready, json.dumps({"minutes": minutes}) + "\n", _KEEPING)

    # -- the runs

    def measure(self) -> None:
        """Run the runs of each GPU in turn; with the same --gpus, a run stays on its GPU."""
        self.measures.set()
        with ThreadPoolExecutor(len(self.gpus)) as pool:
            slots = [pool.submit(self._slot, turn) for turn in range(len(self.gpus))]
            for slot in slots:
                slot.result()
        self._check_stopped()

    def _slot(self, turn: int) -> None:
        for run in self.runs[turn :: len(self.gpus)]:
            if self.stop.is_set():
                return
            if run.result is not None:
                continue
            self._go(run, self.gpus[turn])
            self.record()

    def _go(self, run: Run, gpu: str) -> None:
        run.folder.mkdir(exist_ok=True)
        (run.folder / "ended.json").unlink(missing_ok=True)
        with (run.folder / "begun.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"at": _now(), "gpu": gpu}) + "\n")
        began = time.monotonic()
        status = self._pick(run.folder, gpu, str(self.options.minutes), [])
        if self.stop.is_set():
            return
        minutes = round((time.monotonic() - began) / 60, 2)
        ended = json.dumps({"at": _now(), "status": status, "minutes": minutes})
        write_whole(run.folder / "ended.json", ended, _KEEPING)
        verdict = row_of(run)[COLUMNS.index("exactly right")]
        print(f"run {run.number}: {verdict}, {minutes} minutes", file=sys.stderr, flush=True)

    def _pick(self, folder: Path, gpu: str, minutes: str, more: Sequence[str]) -> int:
        """Run pick once, with its output in the folder's log; returns the exit status."""
        folder.mkdir(exist_ok=True)
        while _is_locked(folder / "pick" / "lock") and not self.stop.wait(2.0):
            pass  # left by a killed experiment: it continues to measure and keeps its results
        argv = ["pick", "--series-dir", str(self.planted / "series"), "--onto", "HEAD"]
        argv += ["--repo", str(self.planted / "clone"), "--as-build", str(PLANTED["BUILD"])]
        argv += ["--backend", self.options.backend, "--tests", self.options.tests]
        argv += [word for model in self.models for word in ("--model", str(model))]
        argv += ["--minutes", minutes, "--least", str(self.options.least), "--out", str(folder / "pick")]
        return self._patchkit(*argv, *_MORE[self.options.backend], *more, gpu=gpu, log=folder / "log")

    def _patchkit(self, *words: str, gpu: str = "", log: Path | None = None) -> int:
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        env = {**os.environ, "PATCHKIT_CACHE": str(self.cache), "PYTHONPATH": os.pathsep.join(paths)}
        if gpu:
            env["CUDA_VISIBLE_DEVICES"] = self._name_of(gpu)
        argv = [*(self._apart(gpu) if gpu else ()), sys.executable, "-m", "patchkit", *words]
        if log is None:
            return subprocess.run(argv, env=env, check=True, stdout=sys.stderr).returncode
        with log.open("ab") as file:
            if self.stop.is_set():
                return 1
            process = subprocess.Popen(  # in its own session, so that Ctrl-C reaches it once, through end()
                argv,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
            self.going.add(process)
            status = process.wait()
            self.going.discard(process)
            return status

    def _apart(self, gpu: str) -> list[str]:
        """The prefix that gives a command one GPU alone and, while runs measure, its share of the cores.

        A CUDA program opens every GPU that it can, also those that CUDA_VISIBLE_DEVICES excludes. So the
        device files of the others are mounted so that this command cannot open them.
        """
        if not self.options.apart:
            return []
        others = " ".join(f"/dev/nvidia{other}" for other in self.gpus if other != gpu)
        script = f"""
            for file in {others}; do
                mount --bind $file $file && mount -o remount,bind,nodev $file || exit 3
            done
            exec "$@"
        """
        argv = ["unshare", "--mount", "sh", "-c", script, "apart"]
        if self.measures.is_set():
            cores = sorted(os.sched_getaffinity(0))
            turn, each = self.gpus.index(gpu), len(cores) // len(self.gpus)
            share = cores[turn * each : (turn + 1) * each]
            argv = ["taskset", "--cpu-list", ",".join(map(str, share)), *argv]
        return argv

    def _name_of(self, gpu: str) -> str:
        """The GPU for CUDA_VISIBLE_DEVICES: with --apart its UUID, because every run would see its GPU as 0.

        With the same number, each run waited for the llama-bench of the others (2026-11-28).
        """
        if not self.options.apart:
            return gpu
        return _output_of("nvidia-smi", f"--id={gpu}", "--query-gpu=uuid", "--format=csv,noheader")

    @property
    def cache(self) -> Path:
        """The cache with the builds; in --work by default."""
        return (self.options.cache or self.work / "cache").resolve()

    def end(self) -> None:
        """Interrupt all runs; each keeps what it measured."""
        self.stop.set()
        for process in list(self.going):
            process.send_signal(signal.SIGINT)

    def _check_stopped(self) -> None:
        if self.stop.is_set():
            raise Stopped

    # -- the results

    def rows(self) -> list[tuple[str, ...]]:
        """The rows of all runs that were started."""
        return [row_of(run) for run in self.runs if run.begun]

    def record(self) -> None:
        """Write the page and the archive of its data, each completely or not at all."""
        path: Path | None = self.options.record
        if path is None:
            return
        with self.writing:
            write_whole(path, self.page(), _KEEPING)
            partial = path.with_name(f".{path.name}.partial")
            with tarfile.open(partial, "w:gz") as archive:
                for run in self.runs:
                    for name in (
                        "begun.jsonl",
                        "ended.json",
                        "log",
                        "pick/journal.jsonl",
                        "pick/result.json",
                    ):
                        if (run.folder / name).is_file():
                            archive.add(run.folder / name, f"{run.folder.name}/{name}")
            partial.replace(path.with_suffix(".tar.gz"))

    def page(self) -> str:
        """Markdown: machine, settings, a row per run, and how many were right."""
        ready = self.work / "ready.json"
        shared = json.loads(ready.read_text("utf-8"))["minutes"] if ready.is_file() else "not done"
        facts = {
            "when": _now(),
            "on": _machine(),
            "patchkit": _commit(),
            **{name: str(value) for name, value in self.setup.items()},
            "GPUs": self.options.gpus or "none",
            "builds and checks for all runs, minutes": str(shared),
        }
        lines = ["# pick with planted patches", "", "| | |", "|---|---|"]
        lines += [f"| {name} | {value} |" for name, value in facts.items()]
        return "\n".join([*lines, "", *table(self.rows()), ""])


def table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """A summary and the table of the runs."""
    ended = _judgements(rows)
    wrongly = sum(word.startswith("no: kept") for word in ended)
    yield (
        f"{len(ended)} of {len(rows)} runs finished, {ended.count('yes')} of them exactly right; "
        f"{wrongly} kept a patch that does not pay."
    )
    yield "For each patch: the verdict, and the number of pairs of runs."
    yield ""
    for cells in (COLUMNS, ("---",) * len(COLUMNS), *rows):
        yield f"| {' | '.join(cells)} |"


def is_as_asked(rows: Sequence[tuple[str, ...]], runs: int) -> bool:
    """Whether all runs finished, nine of ten exactly right and none with a patch that does not pay."""
    ended = _judgements(rows)
    kept = any(word.startswith("no: kept") for word in ended)
    return len(ended) == runs and ended.count("yes") >= _WANTED * runs and not kept


def _judgements(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """The verdicts of the runs that finished."""
    verdicts = [row[COLUMNS.index("exactly right")] for row in rows]
    return [word for word in verdicts if word.startswith(("yes", "open", "no"))]


# -- helpers


def _check_widths(models: Sequence[Path]) -> None:
    """Check the models: the patch ``one-model`` recognises the large model by the length of its rows."""
    from patchkit.gpu.gguf import load_gguf  # noqa: PLC0415 - numpy and gguf

    widths = []
    for path in models:
        metadata = load_gguf(path).metadata
        widths.append(metadata.get(f"{metadata.get('general.architecture')}.embedding_length"))
    wide = PLANTED["WIDE"]
    if sorted(isinstance(one, int) and one >= wide for one in widths) != [False, True]:
        raise SystemExit(
            f"two models are needed, one with fewer than {wide} values per token and one with at least that; "
            f"got {widths}"
        )


def _is_locked(path: Path) -> bool:
    if not path.is_file():
        return False
    try:
        with locked(path, timeout_s=0):
            return False
    except LockBusy:
        return True


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _output_of(*argv: str) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def _machine() -> str:
    gpus = _output_of("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader").splitlines()
    nvcc = next((line for line in _output_of("nvcc", "--version").splitlines() if "release" in line), "")
    parts = [f"{os.cpu_count()} cores ({platform.machine()}), {platform.system()} {platform.release()}"]
    parts += [f"{gpus.count(one)} x {one}" for one in dict.fromkeys(gpus)]
    return "; ".join([*parts, *filter(None, [nvcc])])


def _commit() -> str:
    found = _output_of("git", "-C", str(ROOT), "rev-parse", "HEAD")
    changed = _output_of("git", "-C", str(ROOT), "status", "--porcelain")
    return f"{found}{' with local changes' if changed else ''}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backend", choices=sorted(TESTS), required=True)
    parser.add_argument(
        "--upstream", type=Path, required=True, help="source tree of build 6900, or a tar archive of it"
    )
    parser.add_argument(
        "--model",
        type=Path,
        action="append",
        default=[],
        help="give two; default with --backend cpu: two generated models",
    )
    parser.add_argument("--gpus", help="numbers of the GPUs, for example 0,1,2,3; one run at a time on each")
    parser.add_argument(
        "--apart",
        action="store_true",
        help="isolate runs: each has only its GPU and its share of the cores (Linux, as root)",
    )
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--minutes", type=float, default=17.0, help="measuring time per run")
    parser.add_argument("--least", type=float, default=3.0, help="--least of pick, in percent")
    parser.add_argument("--tests", help="--tests of pick (default: pp512,tg64, on the CPU pp64,tg8)")
    parser.add_argument("--work", type=Path, required=True, help="folder for everything")
    parser.add_argument("--cache", type=Path, help="patchkit's cache (default: in --work)")
    parser.add_argument(
        "--record", type=Path, help="write a page about all runs, and a .tar.gz of the journals next to it"
    )
    parser.add_argument("--detach", action="store_true", help="run in the background")
    parser.add_argument("--show", action="store_true", help="only print the table so far")
    options = parser.parse_args()
    options.tests = options.tests or TESTS[options.backend]
    if options.gpus and options.backend == "cpu":
        parser.error("--gpus needs --backend cuda")
    if options.backend == "cuda" and not options.model:
        parser.error("--backend cuda needs two real models: --model SMALL.gguf --model LARGE.gguf")
    if options.runs < 1:
        parser.error("--runs must be at least 1")
    return options


def main() -> int:
    """Run until all runs have ended; return 0 if they meet issue 46."""
    options = _options()
    experiment = Experiment(options)
    experiment.work.mkdir(parents=True, exist_ok=True)
    lock = experiment.work / "lock"
    if options.detach and not options.show and not _is_locked(lock):
        argv = [word for word in sys.argv if word != "--detach"]
        with (experiment.work / "log").open("ab") as log:
            subprocess.Popen(
                [sys.executable, *argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
    if options.show or options.detach:
        print("\n".join(table(experiment.rows())))
        return 0
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(lock, timeout_s=0))
        except LockBusy:
            raise SystemExit("already running; --show prints the table so far") from None
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: experiment.end())
        try:
            experiment.prepare()
            experiment.record()  # fail early if the page cannot be written
            experiment.share()
            experiment.measure()
        except Stopped:
            print("interrupted; run the same command to continue", file=sys.stderr)
            return 130
        finally:
            experiment.end()
        experiment.record()
    rows = experiment.rows()
    print("\n".join(table(rows)))
    return 0 if is_as_asked(rows, options.runs) else 1


if __name__ == "__main__":
    sys.exit(main())
