r"""``pick`` with planted patches on this machine: the experiment of docs/records/pick.md as one command.

    python benchmarks/pick_planted.py --backend cuda --upstream b6900.tar.xz --model SMALL.gguf \
        --model LARGE.gguf --gpus 0,1,2,3 --runs 12 --work WORK --record pick.md --detach
    python benchmarks/pick_planted.py --backend cuda ... --gpus 0 --runs 2 --work WORK --record pick.md
    python benchmarks/pick_planted.py --backend cpu --upstream llama.cpp --runs 2 --minutes 4 --work WORK

The clone and the series (tests/support/planted.py) are made, everything that any run needs is built and what
is right is checked once, in a cache in WORK; then each GPU has a run at a time, as whoever types ``patchkit
pick`` has it. A run is *exactly right* when it picked ``prompts`` and ``with-prompts`` alone.

**Cut at any time, the same command goes on**: what ended is kept, a run that was cut goes on with its
journal, and the table says so. ``--detach`` goes on in the background, also after the shell that began it is
killed; the same command again then begins nothing and prints the table so far, as ``--show`` does.
``--record`` is written anew after each run: a page, and beside it an archive of all journals and results.

On one virtual machine with four H100 and 64 cores four runs at once disturbed one another, two far less
(docs/records/pick.md); with the four threads that a run has since, four at once were quiet on the next. With
``--apart`` they are quieter still: text 0.6 to 1.3 % for 1.2 to 2.5 %.

Before any run measures, two runs of six seconds do the work that all share: one with all patches, whose
check, search and crossing need 27 builds, and one with what is to be picked. On four H100 and 64 cores that
took 6.3 and 7.4 minutes, 170 s of it upstream; then a run 13.5 to 17.6, with ``--apart`` 10 to 14. Carrying
417 MB in pieces of 50 took 60 to 80 s, and unpacking an archive of xz 26.

**On a bare machine without a network** (Linux with git 2.32, g++, Python 3.11 or newer with venv; for CUDA
nvcc on PATH and a driver that fits it) carry a clone of this repository, the models, and what these make:

    python3.12 -m pip wheel -w wheels .
    git -C llama.cpp archive b6900 | xz > b6900.tar.xz

There ``python3.12 -m venv env && env/bin/pip install --no-index --find-links wheels patchkit``, and the
commands above with ``env/bin/python``: they run the patchkit of the clone, and have its libraries, cmake and
ninja from the wheels, which are for one version of Python. Nothing is downloaded: the planted clone is said
to be build 6901.

All runs of one experiment measure the same in the same orders, as pick draws them from what is measured; what
differs is the machine's noise.
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
# A llama-bench on a GPU by default keeps half of all cores waiting busily: two runs on 64 cores made a load
# of 28, and four disturbed one another. With four threads each, four make a load of 6. With six repetitions
# more runs end in 17 minutes than with three, although a call takes a fifth longer (docs/records/pick.md).
_MORE = {
    "cuda": ("--threads", "4", "--repetitions", "6"),
    "cpu": ("--batch", "128", "--micro-batch", "128", "--threads", "1"),
}
_SHORT = "0.1"  # minutes: enough for one round, so that all is built and checked, and nothing decided
_KEEPING = "keeping what came of the runs"
_FEW = 3  # visits of a build and model from which its median says how far one call is off
_WANTED = 0.9  # of the runs exactly right, and none with a loser: what issue 46 asks


# -- what a run says


def judged(picked: Sequence[str], words: Mapping[str, str]) -> str:
    """``yes``, ``open: ...`` where it could not tell of a gain, or ``no: ...`` where it was wrong."""
    if wrongly := sorted(set(picked) - EXPECTED):
        return f"no: kept {', '.join(wrongly)}"
    missing = sorted(EXPECTED - set(picked))
    if lost := [name for name in missing if words.get(name) == "leave out"]:
        return f"no: left out {', '.join(lost)}"
    return f"open: {', '.join(missing)}" if missing else "yes"


def entries(journal: Path) -> list[dict[str, Any]]:
    """What stands in a journal, one that is being written, too; without its digests."""
    if not journal.is_file():
        return []
    lines = journal.read_bytes().split(b"\n")[:-1]
    return [json.loads(line.rpartition(b"\t")[0]) for line in lines]


def noise_of_calls(visits: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """By test a fraction per model: how far a call is from the median of its build, 1.48 times the median.

    Of each call its fastest repetition, as pick has it.
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
    """One run of pick. Beside its own folder ``out`` lie what it said, and when it was begun and ended."""

    number: int
    folder: Path

    @property
    def out(self) -> Path:
        """The folder that pick keeps."""
        return self.folder / "pick"

    @property
    def begun(self) -> list[dict[str, Any]]:
        """When and on which GPU it was begun, and gone on with."""
        path = self.folder / "begun.jsonl"
        return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.is_file() else []

    @property
    def ended(self) -> dict[str, Any] | None:
        """Its exit status and minutes since it was begun or gone on with, once it ended by itself."""
        path = self.folder / "ended.json"
        return dict(json.loads(path.read_text("utf-8"))) if path.is_file() else None

    @property
    def result(self) -> dict[str, Any] | None:
        """What pick found, if it came to its end."""
        path = self.out / "result.json"
        ended = self.ended
        if ended is None or ended["status"] or not path.is_file():
            return None
        return dict(json.loads(path.read_text("utf-8")))

    @property
    def is_busy(self) -> bool:
        """Whether a pick measures into its folder, be it one that an experiment which was killed left."""
        return _is_locked(self.out / "lock")


COLUMNS = ("run", "on", "exactly right", *PATCHES, "minutes (measured)", "noise of a call", "cut")


def row_of(run: Run) -> tuple[str, ...]:
    """The run in words, by the columns above; of each patch its word and after how many pairs of runs."""
    result, ended = run.result, run.ended
    kept = entries(run.out / "journal.jsonl")
    visits = [entry for entry in kept if entry["kind"] == "visit"]
    measured = sum(visit["seconds"] for visit in visits) / 60
    spread = noise_of_calls(visits)
    noise = ", ".join(f"{test} {' and '.join(f'{one:.1%}' for one in each)}" for test, each in spread.items())
    begun = run.begun
    on = ", ".join(dict.fromkeys(f"GPU {one['gpu']}" if one["gpu"] else "CPU" for one in begun))
    times = len(begun)
    cut = "no" if times <= 1 else f"{times - 1} x, gone on"
    if result is None:
        told = "runs" if run.is_busy else f"failed: {_last_words(run)}" if ended else "cut"
        words = dict.fromkeys(PATCHES, "")
        if not run.is_busy and not ended:
            cut = f"yes, begun {times} x"
        minutes = f"({measured:.1f})"
    else:
        decided = {one["id"]: one for one in result["patches"]}
        told = judged(result["picked"], {name: one["verdict"] for name, one in decided.items()})
        words = {name: _word(decided[name]) for name in PATCHES}
        whole = f"{ended['minutes']:.1f} " if ended is not None and times == 1 else ""
        minutes = f"{whole}({measured:.1f})"
    return (str(run.number), on, told, *(words[name] for name in PATCHES), minutes, noise, cut)


def _word(decision: Mapping[str, Any]) -> str:
    if "RMS_NORM(" in decision["why"]:
        return f"{decision['verdict']}: wrong, RMS_NORM"
    return f"{decision['verdict']}, {decision['pairs']}"


def _last_words(run: Run) -> str:
    log = run.folder / "log"
    lines = log.read_text("utf-8", "replace").splitlines() if log.is_file() else []
    return next((line for line in reversed(lines) if line.startswith("error")), "see its log")[:120]


# -- the experiment


class Stopped(Exception):
    """Somebody ends the experiment."""


class Experiment:
    """``work`` has everything, and says what it belongs to."""

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
        """Clone, series and models; what was made before stays."""
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
        """One folder, one experiment: other models, tests or times would be another one's runs."""
        path = self.work / "experiment.json"
        now = json.loads(json.dumps(self.setup))
        if not path.is_file():
            write_whole(path, json.dumps(now, indent=1) + "\n", _KEEPING)
        was = json.loads(path.read_text("utf-8"))
        if differing := sorted(name for name in now if was.get(name) != now[name]):
            raise SystemExit(f"{path} is of another experiment ({', '.join(differing)}): name another --work")

    @property
    def setup(self) -> dict[str, object]:
        """What all runs share."""
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
        print("building and checking what all runs share", file=sys.stderr, flush=True)
        began = time.monotonic()
        alone = [word for name in sorted(EXPECTED) for word in ("--only", name)]
        first, second = self.work / "shared-all", self.work / "shared-picked"
        # The other one waits for upstream's build and then checks, while the first one builds.
        with ThreadPoolExecutor(min(2, len(self.gpus))) as pool:
            jobs = [
                pool.submit(self._pick, first, self.gpus[0], _SHORT, []),
                pool.submit(self._pick, second, self.gpus[-1], _SHORT, alone),
            ]
        for folder, job in zip((first, second), jobs, strict=True):
            if job.result():
                self._check_stopped()
                sys.stderr.write((folder / "log").read_text("utf-8", "replace")[-4000:])
                raise SystemExit(f"what all runs share could not be made: see {folder / 'log'}")
        minutes = round((time.monotonic() - began) / 60, 1)
        write_whole(ready, json.dumps({"minutes": minutes}) + "\n", _KEEPING)

    # -- the runs

    def measure(self) -> None:
        """Each GPU has its runs in turn; a run stays on its GPU, as far as the same ones are named."""
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
        told = row_of(run)[COLUMNS.index("exactly right")]
        print(f"run {run.number}: {told}, {minutes} minutes", file=sys.stderr, flush=True)

    def _pick(self, folder: Path, gpu: str, minutes: str, more: Sequence[str]) -> int:
        """One pick, its words in the folder's log; the exit status."""
        folder.mkdir(exist_ok=True)
        while _is_locked(folder / "pick" / "lock") and not self.stop.wait(2.0):
            pass  # one that an experiment left that was killed: it measures on, and keeps what it finds
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
            process = subprocess.Popen(  # not in our session: a Ctrl-C reaches it once, by way of end()
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
        """What gives a command one GPU alone and, once runs measure, its share of the cores.

        A CUDA program opens every GPU that it may, also those that CUDA_VISIBLE_DEVICES leaves out. The files
        of the others are mounted so that they cannot be opened, for this command alone.
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
        """As CUDA_VISIBLE_DEVICES takes it; where a program can open one GPU alone, each of them is number 0.

        A number that all runs share had each of them wait for the llama-bench of the others (2026-11-28).
        """
        if not self.options.apart:
            return gpu
        return _said("nvidia-smi", f"--id={gpu}", "--query-gpu=uuid", "--format=csv,noheader")

    @property
    def cache(self) -> Path:
        """Where the builds are: in the folder of the work, unless another one is named."""
        return (self.options.cache or self.work / "cache").resolve()

    def end(self) -> None:
        """Have all runs end where they are; each keeps what it measured."""
        self.stop.set()
        for process in list(self.going):
            process.send_signal(signal.SIGINT)

    def _check_stopped(self) -> None:
        if self.stop.is_set():
            raise Stopped

    # -- what came of it

    def rows(self) -> list[tuple[str, ...]]:
        """Of every run that was begun."""
        return [row_of(run) for run in self.runs if run.begun]

    def record(self) -> None:
        """Write the page, and the archive of what it was made of; both whole or not at all."""
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
        """Markdown: on what, how, a row per run, and how many were right."""
        ready = self.work / "ready.json"
        shared = json.loads(ready.read_text("utf-8"))["minutes"] if ready.is_file() else "not done"
        facts = {
            "when": _now(),
            "on": _machine(),
            "patchkit": _commit(),
            **{name: str(value) for name, value in self.setup.items()},
            "GPUs": self.options.gpus or "none",
            "builds and checks that all runs share, minutes": str(shared),
        }
        lines = ["# pick with planted patches", "", "| | |", "|---|---|"]
        lines += [f"| {name} | {value} |" for name, value in facts.items()]
        return "\n".join([*lines, "", *table(self.rows()), ""])


def table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """The rows, and a sentence of how many were right."""
    ended = _judgements(rows)
    wrongly = sum(word.startswith("no: kept") for word in ended)
    yield (
        f"Of {len(rows)} runs {len(ended)} came to their end, {ended.count('yes')} of them exactly right; "
        f"{wrongly} kept what does not pay."
    )
    yield "Of each patch: the word, and after how many pairs of runs."
    yield ""
    for cells in (COLUMNS, ("---",) * len(COLUMNS), *rows):
        yield f"| {' | '.join(cells)} |"


def is_as_asked(rows: Sequence[tuple[str, ...]], runs: int) -> bool:
    """Whether all runs came to their end, nine of ten exactly right and none with what does not pay."""
    ended = _judgements(rows)
    kept = any(word.startswith("no: kept") for word in ended)
    return len(ended) == runs and ended.count("yes") >= _WANTED * runs and not kept


def _judgements(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """What is said of the runs that came to their end."""
    told = [row[COLUMNS.index("exactly right")] for row in rows]
    return [word for word in told if word.startswith(("yes", "open", "no"))]


# -- helpers


def _check_widths(models: Sequence[Path]) -> None:
    """The patch ``one-model`` tells a small model from a large one by the length of its rows."""
    from patchkit.gpu.gguf import load_gguf  # noqa: PLC0415 - numpy and gguf

    widths = []
    for path in models:
        metadata = load_gguf(path).metadata
        widths.append(metadata.get(f"{metadata.get('general.architecture')}.embedding_length"))
    wide = PLANTED["WIDE"]
    if sorted(isinstance(one, int) and one >= wide for one in widths) != [False, True]:
        raise SystemExit(
            f"two models are needed, one below {wide} values per token and one not; got {widths}"
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


def _said(*argv: str) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def _machine() -> str:
    gpus = _said("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader").splitlines()
    nvcc = next((line for line in _said("nvcc", "--version").splitlines() if "release" in line), "")
    told = [f"{os.cpu_count()} cores ({platform.machine()}), {platform.system()} {platform.release()}"]
    told += [f"{gpus.count(one)} x {one}" for one in dict.fromkeys(gpus)]
    return "; ".join([*told, *filter(None, [nvcc])])


def _commit() -> str:
    found = _said("git", "-C", str(ROOT), "rev-parse", "HEAD")
    return f"{found}{' and changes' if _said('git', '-C', str(ROOT), 'status', '--porcelain') else ''}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backend", choices=sorted(TESTS), required=True)
    parser.add_argument("--upstream", type=Path, required=True, help="a tree of build 6900, or a tar of one")
    parser.add_argument("--model", type=Path, action="append", default=[], help="twice; cpu: two of our own")
    parser.add_argument("--gpus", help="by their numbers: 0,1,2,3; a run on each at a time")
    parser.add_argument(
        "--apart",
        action="store_true",
        help="root on Linux: each run has its GPU alone and its share of the cores, as in a container",
    )
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--minutes", type=float, default=17.0, help="for measuring, of each run")
    parser.add_argument("--least", type=float, default=3.0, help="per cent, as of pick")
    parser.add_argument("--tests", help="as of pick (default: pp512,tg64, on the CPU pp64,tg8)")
    parser.add_argument("--work", type=Path, required=True, help="everything is kept there")
    parser.add_argument("--cache", type=Path, help="patchkit's cache (default: in --work)")
    parser.add_argument("--record", type=Path, help="a page of all runs; beside it .tar.gz with the journals")
    parser.add_argument("--detach", action="store_true", help="go on in the background")
    parser.add_argument("--show", action="store_true", help="only print the table so far")
    options = parser.parse_args()
    options.tests = options.tests or TESTS[options.backend]
    if options.gpus and options.backend == "cpu":
        parser.error("--gpus goes with --backend cuda")
    if options.backend == "cuda" and not options.model:
        parser.error("--backend cuda needs two real models: --model SMALL.gguf --model LARGE.gguf")
    if options.runs < 1:
        parser.error("--runs is at least 1")
    return options


def main() -> int:
    """Go on until all runs ended; 0 when they found what issue 46 asks."""
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
            raise SystemExit("it runs already: --show has the table so far") from None
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: experiment.end())
        try:
            experiment.prepare()
            experiment.record()  # a place that cannot be written is better known now
            experiment.share()
            experiment.measure()
        except Stopped:
            print("ended before its end; the same command goes on", file=sys.stderr)
            return 130
        finally:
            experiment.end()
        experiment.record()
    rows = experiment.rows()
    print("\n".join(table(rows)))
    return 0 if is_as_asked(rows, options.runs) else 1


if __name__ == "__main__":
    sys.exit(main())
