"""Runs a built program, locally or on a remote machine, with an error for each kind of failure."""

from __future__ import annotations

import json
import shlex
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Protocol

from patchkit.base.errors import CacheError, Location, PatchkitError, ToolchainError
from patchkit.base.files import disk_errors, full_disk, write_whole
from patchkit.base.process import Completed, ToolTimeout, run_tool, signal_name
from patchkit.base.reporter import Reporter
from patchkit.gpu.hardware.runner import Job, Runner
from patchkit.toolchain.sides import RunCache

_SIGNALLED = 128  # shell convention: the status of a program ended by a signal is 128 plus the signal
_IN_FOLDER = 'mkdir -p "$0" && exec "$@"'


class RemoteRunner(Runner, Protocol):
    """A runner on a remote machine; ``session`` identifies this process's jobs."""

    @property
    def session(self) -> str:
        """Distinguishes the jobs of this process from those of others."""
        ...

    def scratch(self, name: str) -> str:
        """The path of a folder there for outputs; it may not exist yet."""
        ...

    def fetch(self, there: str, here: Path) -> None:
        """Copy a file from there, completely or not at all."""
        ...


@dataclass(slots=True, kw_only=True)
class _Paths:
    """Maps local paths of one run to remote ones. ``libraries`` are remote folders."""

    runner: RemoteRunner
    scratch: str
    counterparts: dict[str, str] = field(default_factory=dict)
    libraries: list[str] = field(default_factory=list)
    outputs: dict[str, Path] = field(default_factory=dict)

    def word(self, word: str) -> str:
        """The argument for the remote machine: paths are replaced, and existing files copied there."""
        path = Path(word)
        if not path.is_absolute():
            return word
        if not path.exists():
            there = f"{self.scratch}/{path.name}"
            self.outputs[there] = path
            self.counterparts[word] = there
            return there
        if path.is_file() and any(path.parent.glob("libggml-base.so*")):
            return f"{self._folder(path.parent)}/{path.name}"
        return self._folder(path) if path.is_dir() else self._placed(path)

    def _folder(self, folder: Path) -> str:
        there = self._placed(folder)
        if there not in self.libraries:
            self.libraries.append(there)
        return there

    def _placed(self, path: Path) -> str:
        there = self.runner.place(path)
        self.counterparts[str(path)] = there
        return there

    def as_here(self, output: bytes) -> bytes:
        """The output with remote paths replaced by local ones."""
        for here, there in sorted(self.counterparts.items(), key=lambda pair: -len(pair[1])):
            output = output.replace(there.encode(), here.encode())
        return output


def run_remotely(
    runner: RemoteRunner,
    name: str,
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    timeout_s: float,
) -> Completed:
    """Run a program remotely; a negative status is a signal, as for a local program.

    Raises:
        ToolTimeout: it was stopped after ``timeout_s``.
        The errors of :mod:`patchkit.gpu.hardware.runner`.
    """
    paths = _Paths(runner=runner, scratch=runner.scratch(name))
    words = tuple(paths.word(word) for word in argv)
    settings = {key: paths.word(value) for key, value in env.items()}
    if paths.libraries:
        settings["LD_LIBRARY_PATH"] = ":".join(paths.libraries)
    job = Job(
        argv=("sh", "-c", _IN_FOLDER, paths.scratch, *words),
        tag=f"{runner.session}-{name}",
        env=settings,
        timeout_s=timeout_s,
    )
    done = runner.run(job)
    if done.returncode == 0:
        for there, here in paths.outputs.items():
            runner.fetch(there, here)
    status = _SIGNALLED - done.returncode if done.returncode > _SIGNALLED else done.returncode
    return replace(
        done,
        argv=tuple(argv),
        returncode=status,
        stdout=paths.as_here(done.stdout),
        stderr=paths.as_here(done.stderr),
    )


_TAIL_LINES, _TAIL_LINE = 20, 400  # for emulated GPU faults: the kernel's name comes before what it did
# Messages of ggml, its backends, the kernel driver, glibc and libstdc++; seen at builds 6900 and 11549.
_NO_MEMORY = (
    "alloc failed",
    "bad_alloc",
    "cannot allocate memory",
    "failed to allocate",
    "insufficient memory",
    "out of memory",
    "unable to allocate",
)
_LOST = (
    "cuda error: an illegal",
    "device is lost",
    "device lost",
    "device not ready",
    "gpu hang",
    "gpu is lost",
    "gpu reset",
    "hiperrorillegaladdress",
    "hiperrornodevice",
    "hsa_status_error",
    "illegal memory access",
    "no cuda-capable device",
    "no rocm-capable device",
    "unspecified launch failure",
)


def has_lost_gpu(stderr: str) -> bool:
    """Whether the program's messages indicate that the GPU was lost or faulted."""
    return any(words in stderr.lower() for words in _LOST)


def has_no_memory(stderr: str) -> bool:
    """Whether the program's messages indicate a failed memory allocation."""
    return any(words in stderr.lower() for words in _NO_MEMORY)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """Where runs keep their files and report progress, and the remote machine they run on (None: local).

    Setting ``stop``, from another thread, ends them.
    """

    folder: Path
    reporter: Reporter
    elsewhere: RemoteRunner | None = None
    stop: threading.Event | None = None

    def write(self, name: str, text: str, doing: str) -> Path:
        """Write a file that a program reads. Raises CacheError."""
        with disk_errors(self.folder, doing):
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text(text, "utf-8")
        return self.folder / name


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramRun:
    """A run with an accepted status. ``command`` can be pasted into a shell.

    ``cpu_s`` is local CPU time; ``is_kept``: an earlier run was reused.
    """

    argv: tuple[str, ...]
    command: str
    status: int
    stdout: Path
    stderr: Path
    seconds: float
    cpu_s: float = 0.0
    is_kept: bool = False

    def text(self) -> str:
        """The program's stdout."""
        return self.stdout.read_text("utf-8", "replace")

    def talk(self) -> str:
        """The program's stderr."""
        return self.stderr.read_text("utf-8", "replace")


def describe_reused(runs: Iterable[ProgramRun]) -> Iterator[str]:
    """A sentence if earlier runs were reused."""
    each = tuple(runs)
    reused = sum(run.is_kept for run in each)
    if reused:
        yield f"{reused} of {len(each)} runs reused from cache: the code that they execute is unchanged"


def run_program(
    name: str,
    argv: Sequence[str],
    *,
    place: RunContext,
    env: Mapping[str, str] | None = None,
    timeout_s: float,
    accept: frozenset[int] = frozenset({0}),
    kept: RunCache | None = None,
) -> ProgramRun:
    """Run a program, with its output in ``place.folder``/<name>.out and .err.

    If ``kept`` has an equal successful run, nothing is executed and the files of that run are restored.

    Raises:
        PROGRAM_FAILED, PROGRAM_CRASHED, PROGRAM_FAILED, PROGRAM_OUT_OF_MEMORY, DEVICE_LOST: as documented.
        DISK_FULL: it could not write its output.
        ToolMissing, TOOL_NOT_STARTED: the program does not exist or cannot be started.
        CacheError: a file cannot be written.
    """
    out, err, record = (place.folder / f"{name}.{ending}" for ending in ("out", "err", "json"))
    settings = [f"{key}={shlex.quote(value)}" for key, value in (env or {}).items()]
    command = " ".join([*settings, shlex.join(argv)])
    state: dict[str, object] = {"command": command, "state": "running"}
    watched = kept.watch(argv, env or {}, place.folder) if kept and place.elsewhere is None else None
    earlier_s = None if watched is None else watched.take(out, err)
    with disk_errors(place.folder, "saving the output of a program"):
        place.folder.mkdir(parents=True, exist_ok=True)
        if earlier_s is not None:
            _write(record, {"command": command, "state": "reused", "status": 0, "seconds": earlier_s})
            return ProgramRun(
                argv=tuple(argv),
                command=command,
                status=0,
                stdout=out,
                stderr=err,
                seconds=earlier_s,
                is_kept=True,
            )
        _write(record, state)
        with (
            out.open("wb") as stdout,
            err.open("wb") as stderr,
            watched.running() if watched is not None else nullcontext({}) as more,
        ):
            try:
                completed = _run(name, argv, place, {**(env or {}), **more}, timeout_s, (stdout, stderr))
                failure = None if completed.returncode in accept else _bad_end(completed, err)
                failure = full_disk(place.folder, "saving the output of a program") or failure
            except PatchkitError as error:
                state |= {"state": error.code, "partial": True}
                _write(record, state)
                if isinstance(error, ToolTimeout):
                    where = Location(path=str(err))
                    raise ToolchainError(
                        error.message, code="PROGRAM_FAILED", where=where, why=_tail(err), hint=error.hint
                    ) from error
                raise
            except BaseException:  # Ctrl-C: the output so far is kept and marked as partial
                state |= {"state": "interrupted", "partial": True}
                _write(record, state)
                raise
        state |= {"status": completed.returncode, "seconds": round(completed.seconds, 2)}
        state |= {"state": "ended"} if failure is None else {"state": failure.code, "partial": True}
        _write(record, state)
    if failure is not None:
        raise failure
    if watched is not None and completed.returncode == 0:
        watched.keep(round(completed.seconds, 2), out, err)
    return ProgramRun(
        argv=tuple(argv),
        command=command,
        status=completed.returncode,
        stdout=out,
        stderr=err,
        seconds=completed.seconds,
        cpu_s=completed.cpu_s,
    )


def _run(
    name: str,
    argv: Sequence[str],
    place: RunContext,
    env: Mapping[str, str],
    timeout_s: float,
    into: tuple[IO[bytes], IO[bytes]],
) -> Completed:
    if place.elsewhere is None:
        return run_tool(
            argv,
            into=into,
            env=env,
            timeout_s=timeout_s,
            check=False,
            reporter=place.reporter,
            stop=place.stop,
            work="run",
        )
    completed = run_remotely(place.elsewhere, name, argv, env=env, timeout_s=timeout_s)
    for stream, data in zip(into, (completed.stdout, completed.stderr), strict=True):
        stream.write(data)
        stream.flush()
    return completed


def _write(path: Path, document: object) -> None:
    write_whole(path, json.dumps(document, indent=1) + "\n", "saving the output of a program")


def _bad_end(completed: Completed, err: Path) -> PatchkitError:
    name = Path(completed.argv[0]).name
    status = completed.returncode
    why = _tail(err)
    where = Location(path=str(err))
    hint = f"the command was: {shlex.join(completed.argv)}"
    if status == -signal.SIGXFSZ:
        return CacheError(
            f"{name} exceeded the file size limit", code="DISK_FULL", where=where, hint="see: ulimit -f"
        )
    end = signal_name(-status) if status < 0 else f"status {status}"
    if status == -signal.SIGKILL:
        return ToolchainError(
            f"{name} was killed",
            code="PROGRAM_OUT_OF_MEMORY",
            where=where,
            why=f"patchkit did not kill it; the system kills programs if memory runs out\n{why}".rstrip(),
            hint=f"check the system log with: dmesg | tail; {hint}",
        )
    text = err.read_text("utf-8", "replace")

    def failure(message: str, *, code: str) -> ToolchainError:
        return ToolchainError(message, code=code, where=where, why=why, hint=hint)

    if has_lost_gpu(text):
        return failure(f"{name} lost the GPU ({end})", code="DEVICE_LOST")
    if has_no_memory(text):
        return failure(f"{name} ran out of memory ({end})", code="PROGRAM_OUT_OF_MEMORY")
    if status < 0:
        return failure(f"{name} was ended by {end}", code="PROGRAM_CRASHED")
    return failure(f"{name} failed with {end}", code="PROGRAM_FAILED")


def _tail(err: Path) -> str:
    lines = err.read_text("utf-8", "replace").strip().splitlines()[-_TAIL_LINES:]
    return "\n".join(line[:_TAIL_LINE] for line in lines) or "it wrote nothing to stderr"
