"""Runs upstream's programs and our drivers on the launch recorder as one GPU, and keeps the recordings."""

from __future__ import annotations

import json
import re
import shutil
import signal
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from patchkit.base.digests import key_of, sha256
from patchkit.base.errors import Location, ToolchainError
from patchkit.base.files import disk_errors
from patchkit.base.process import Completed, ToolCrashed, ToolTimeout, run_tool, tool_failure
from patchkit.base.upstreams import GPU_FOLDER, llama_cpp
from patchkit.gpu.emulated.cases import Case, CaseAborted, OpRow, SupportMalformed, case_line, parse_support
from patchkit.gpu.emulated.device import EmulatedDevice, device_text
from patchkit.gpu.emulated.log import Launch, Recording, RecordingUnreadable, Section, parse_recording
from patchkit.gpu.emulated.models import SmallModel, model_file
from patchkit.gpu.emulated.runtime import RecordedBackend
from patchkit.toolchain.compile import CompiledKernel
from patchkit.toolchain.compiler import Compiler
from patchkit.toolchain.parts import OPERATION_TESTS

# Marks of a case and of its end, written by native/drivers/fattn_cases.cpp.
_CASE = "case "
_ENDS = ("done", "unsupported")


class RecordingIncomplete(ToolchainError):
    """A program on the recorder exited successfully, but its log lacks cases or their ends."""

    code = "RECORDING_INCOMPLETE"


class HasId(Protocol):
    """A case with an id for the log; its ``str`` is used in messages."""

    @property
    def id(self) -> str:
        """The case's name in the log."""
        ...


C = TypeVar("C", bound=HasId)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRecord(Generic[C]):
    """The recorded result of one case."""

    case: C
    is_supported: bool
    section: Section

    @property
    def attention(self) -> tuple[Launch, ...]:
        """The attention kernels it launched, without conversions and the kernels that combine results."""
        return tuple(launch for launch in self.section.launches if launch.kernel.family != "other")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRun:
    """A finished run on disk. ``digest`` is the sha256 of its log, so that equal runs need not be read."""

    folder: Path
    digest: str

    @property
    def log(self) -> Path:
        """The launch log."""
        return self.folder / "log.jsonl"

    def stdout(self) -> str:
        """What the program printed."""
        return (self.folder / "stdout").read_text("utf-8", "replace")

    def recording(self) -> Recording:
        """The launches. Raises RecordingUnreadable, and then moves the run out of the store."""
        with self._put_aside_when_unreadable():
            return self._parsed()

    def records(self, cases: Sequence[C]) -> tuple[CaseRecord[C], ...]:
        """The results of ``cases``, the cases that this run was made for.

        Raises:
            RecordingUnreadable, RecordingIncomplete: the log is damaged; the run is moved out of the store.
        """
        with self._put_aside_when_unreadable():
            return case_records(cases, self._parsed())

    def support(self) -> tuple[OpRow, ...]:
        """The table that it printed. Raises SupportMalformed, and then moves the run out of the store."""
        with self._put_aside_when_unreadable():
            return parse_support(self.stdout())

    def _parsed(self) -> Recording:
        with self.log.open(encoding="utf-8", errors="replace") as lines:
            return parse_recording(lines, str(self.log))

    @contextmanager
    def _put_aside_when_unreadable(self) -> Iterator[None]:
        """Keep an unreadable run as evidence, but under a name that is not found as a result again."""
        try:
            yield
        except (RecordingUnreadable, RecordingIncomplete, SupportMalformed) as error:
            aside = self.folder.with_name(f".unreadable-{self.folder.name[:16]}")
            with disk_errors(aside, "moving an unreadable recording away"):
                shutil.rmtree(aside, ignore_errors=True)
                self.folder.rename(aside)
            place = aside if isinstance(error, SupportMalformed) else aside / self.log.name
            error.where = (Location(path=str(place), line=error.where[0].line if error.where else None),)
            error.hint = "run the command again to repeat it; the unreadable files are kept in that folder"
            raise


def case_records(cases: Sequence[C], recording: Recording) -> tuple[CaseRecord[C], ...]:
    """Match a run's log to its cases.

    Raises:
        RecordingIncomplete: a case has no end, is missing from the log, or was not requested.
    """
    by_id = {case.id: case for case in cases}
    groups: list[list[Section]] = []  # per case: its launches, then its end
    for section in recording.sections:
        if section.mark.startswith(_CASE):
            groups.append([section])
        elif groups:
            groups[-1].append(section)
    records = []
    for group in groups:
        name, marks = group[0].mark.removeprefix(_CASE), [section.mark for section in group]
        if name not in by_id:
            raise RecordingIncomplete(f"the launch log contains case '{name}', which was not requested")
        if len(marks) != 2 or marks[1] not in _ENDS:  # noqa: PLR2004  the case and how it ended
            raise RecordingIncomplete(f"case {by_id[name]} did not end", why=f"marks: {', '.join(marks)}")
        records.append(CaseRecord(case=by_id[name], is_supported=marks[1] == "done", section=group[0]))
    if len(records) != len(cases):
        raise RecordingIncomplete(f"{len(cases)} cases were requested, but the log has {len(records)}")
    return tuple(records)


_FORMAT = 1  # of an entry; raise it to invalidate all kept runs
_TIMEOUT_S = 1200.0  # a hundred times the slowest run measured (11 s, llama-bench at depth 65536)
# A failed assertion in the backend, which is about a shape. Runtime errors, out of memory among them, end
# with
# "ROCm error" instead.
_ASSERTED = re.compile(
    rb"^(?:\S*/)?%s/\S+:\d+: (?:GGML_ASSERT\(.*\) failed|fatal error)$" % GPU_FOLDER.encode(), re.MULTILINE
)
_OF_REFUSAL = ("message", "why", "hint", "case")
_MISCONFIGURED = 86  # exit status: exit_misconfigured in native/runtime/settings.hpp


class RecordedRunFailed(CaseAborted):
    """A program on the recorder aborted in upstream's code, in ``case`` if that is known.

    ``is_refusal``: it failed an assertion in the backend's host code about that case, so every run of the
    case fails the same way.
    """

    code = "RECORDED_RUN_FAILED"
    is_refusal = False


class RecordedRunHangs(ToolchainError):
    """A program on the recorder exceeded its time limit."""

    code = "RECORDED_RUN_HANGS"


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRun:
    """One llama-bench test: ``prompt`` or ``generated`` tokens (the other is 0) at a context depth."""

    model: SmallModel
    prompt: int
    generated: int
    depth: int

    @property
    def test(self) -> str:
        """Its name in llama-bench's tables, such as pp512 or tg4."""
        return f"pp{self.prompt}" if self.prompt else f"tg{self.generated}"

    def __str__(self) -> str:
        return f"{self.model.name} {self.test} @ d{self.depth}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One side (tree) on one GPU. ``kernels`` by mangled name; kernels not in it are assumed to be large.

    Running programs are terminated when the compiler's ``stop`` is set.
    """

    backend: RecordedBackend
    device: EmulatedDevice
    kernels: Mapping[str, CompiledKernel]
    compiler: Compiler

    def support(self) -> tuple[OpRow, ...]:
        """Which of upstream's FLASH_ATTN_EXT cases the backend supports.

        Raises:
            RecordedRunFailed, RecordedRunHangs, RECORDER_MISCONFIGURED: the program failed.
            SupportMalformed: its output is not the expected table.
        """
        program = str(self.backend.programs.folder / OPERATION_TESTS)
        return self._run([program, "support", "-o", "FLASH_ATTN_EXT", "--output", "csv"], {}).support()

    def run_cases(self, cases: Sequence[Case]) -> RecordedRun:
        """Run each case as a separate graph; :meth:`RecordedRun.records` reads the result.

        Raises:
            RecordedRunFailed: upstream's code aborted; the message names the case.
            RecordedRunHangs: the time limit was exceeded; the message names the case.
            RECORDER_MISCONFIGURED: the recorder rejected its configuration.
        """
        return self.run_lines(self.backend.driver, "".join(map(case_line, cases)))

    def run_lines(self, driver: Path, text: str) -> RecordedRun:
        """Run a driver on ``text``, one case per line. Raises as :meth:`run_cases`."""
        return self._run([str(driver), "cases.txt"], {"cases.txt": text})

    def run_bench(self, run: BenchRun) -> RecordedRun:
        """Run one llama-bench test. The log includes the prefill up to the test's depth.

        Raises:
            RecordedRunFailed, RecordedRunHangs, RECORDER_MISCONFIGURED: the program failed.
        """
        path = model_file(run.model, self.compiler.cache_root, self.compiler.reporter)
        argv = [
            str(self.backend.programs.folder / llama_cpp().programs.bench),
            *("-m", str(path), "-ngl", "99", "-fa", "1", "-r", "1", "-t", "1", "--no-warmup", "-o", "jsonl"),
            *("-p", str(run.prompt), "-n", str(run.generated), "-d", str(run.depth)),
        ]
        return self._run(argv, {})

    def _run(self, argv: Sequence[str], files: Mapping[str, str]) -> RecordedRun:
        backend = self.backend
        store = self.compiler.store.sibling("recorder", "runs")
        key = key_of(
            {
                "format": _FORMAT,
                "library": backend.library.key,
                "programs": backend.programs.identity,
                "stub": backend.stub.name,
                "driver": backend.driver.parent.name,
                "device": asdict(self.device),
                "figures": sha256(self._figures_text()),
                "argv": [word.replace(str(self.compiler.cache_root), "{cache}") for word in argv],
                "files": {name: sha256(text) for name, text in files.items()},
            }
        )

        refused = key_of({"refused": key})

        def fill(folder: Path) -> None:
            self._raise_kept(store.find(refused))
            log = folder / "log.jsonl"
            with tempfile.TemporaryDirectory(dir=folder.parent) as work:
                try:
                    completed = self._spawn(argv, files, Path(work), log)
                except RecordedRunFailed as error:
                    if error.is_refusal:
                        # Kept, or each of 16 GPUs would run the list of cases up to this one (issue 43).
                        store.obtain(refused, partial(self._keep_refusal, error))
                    raise
            (folder / "stdout").write_bytes(completed.stdout)
            (folder / "digest").write_text(sha256(log.read_bytes()), "ascii")

        found = store.obtain(key, fill)
        return RecordedRun(folder=found, digest=(found / "digest").read_text("ascii"))

    def _keep_refusal(self, error: RecordedRunFailed, folder: Path) -> None:
        fields = {name: getattr(error, name) for name in _OF_REFUSAL}
        text = json.dumps(fields).replace(str(self.compiler.cache_root), "{cache}")
        (folder / "refusal.json").write_text(text, "utf-8")

    def _raise_kept(self, refusal: Path | None) -> None:
        """Raise the kept error of an earlier run, if there is one."""
        if refusal is None:
            return
        text = (refusal / "refusal.json").read_text("utf-8")
        fields = json.loads(text.replace("{cache}", str(self.compiler.cache_root)))
        failed = RecordedRunFailed(fields["message"], why=fields["why"], hint=fields["hint"])
        failed.case = fields["case"]
        raise failed

    def _spawn(self, argv: Sequence[str], files: Mapping[str, str], work: Path, log: Path) -> Completed:
        (work / "device").write_text(device_text(self.device), "utf-8")
        (work / "kernels").write_text(self._figures_text(), "utf-8")
        for name, text in files.items():
            (work / name).write_text(text, "utf-8")
        log.touch()
        variables = {
            "LD_LIBRARY_PATH": f"{self.backend.stub}:{self.backend.programs.folder}",
            "GGML_BACKEND_PATH": str(self.backend.library.path),
            "GGML_CUDA_DISABLE_GRAPHS": "1",
            "PATCHKIT_RECORDER_DEVICE": str(work / "device"),
            "PATCHKIT_RECORDER_KERNELS": str(work / "kernels"),
            "PATCHKIT_RECORDER_LOG": str(log),
        }
        try:
            completed = run_tool(
                argv,
                cwd=work,
                env=variables,
                timeout_s=_TIMEOUT_S,
                check=False,
                reporter=self.compiler.reporter,
                stop=self.compiler.stop,
                work="run",
            )
        except ToolTimeout as error:
            raise RecordedRunHangs(
                f"{Path(argv[0]).name} did not finish within {_TIMEOUT_S:g} s "
                f"on the launch recorder as {self.device.arch}{_in_case(log)}",
                why=error.why,
                hint=error.hint,
            ) from error
        if completed.returncode == 0:
            return completed
        failure = tool_failure(completed)
        if completed.returncode == _MISCONFIGURED:
            raise ToolchainError(
                "the launch recorder rejected its configuration",
                code="RECORDER_MISCONFIGURED",
                why=failure.why,
                hint=failure.hint,
            )
        failed = RecordedRunFailed(
            f"{Path(argv[0]).name} {'crashed' if isinstance(failure, ToolCrashed) else 'failed'} "
            f"on the launch recorder as {self.device.arch}{_in_case(log)}",
            why=failure.why,
            hint=failure.hint,
        )
        failed.case = _last_case(log)
        is_abort = completed.returncode == -signal.SIGABRT and failed.case is not None
        failed.is_refusal = is_abort and _ASSERTED.search(completed.stderr) is not None
        raise failed

    def _figures_text(self) -> str:
        used = sorted((name, kernel.figures) for name, kernel in self.kernels.items())
        return "".join(f"{name} {figures.vgprs} {figures.lds_bytes}\n" for name, figures in used)


def _in_case(log: Path) -> str:
    case = _last_case(log)
    return f", in case {case}" if case is not None else ""


def _last_case(log: Path) -> str | None:
    """The last case marked in the log; upstream's abort messages do not name the shape."""
    begin = '{"mark":"case '
    lines = log.read_text("utf-8", "replace").splitlines()
    marks = [line.removeprefix(begin).removesuffix('"}') for line in lines if line.startswith(begin)]
    return marks[-1] if marks else None
