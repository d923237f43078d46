"""Upstream's test-backend-ops: its command line, its output table, and the two devices it compares."""

from __future__ import annotations

import contextlib
import csv
import io
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from patchkit.base.errors import Location, ToolchainError
from patchkit.base.files import disk_errors
from patchkit.base.reporter import NullReporter
from patchkit.gpu.emulated.kept_runs import REPORT, is_clean_report
from patchkit.gpu.hardware.program import ProgramRun, RunContext, run_program
from patchkit.toolchain.parts import BACKEND_LIBRARIES, OPERATION_TESTS
from patchkit.toolchain.sides import BuiltSide, RunCache, put_file

Mode = Literal["test", "support"]

PROGRAM = OPERATION_TESTS
# Without -b, CPU devices are skipped. With an unknown name, all devices are skipped, with status 0.
_COLUMNS = frozenset({"op_name", "op_params", "supported", "error_message"})
_HEADER = '"op_name"'
_LOADED = "load_backend: loaded "


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of the table. ``said`` is the text printed before it, such as the size of an error."""

    op: str
    params: str
    is_supported: bool
    error: str
    device: str
    said: str = ""

    @property
    def case(self) -> str:
        """The operation and its parameters."""
        return f"{self.op}({self.params})"

    @property
    def has_passed(self) -> bool:
        """Whether it ran and the result was right."""
        return self.is_supported and not self.error


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Selected cases: exact operation names (empty: all), optionally with a pattern for their parameters.

    Alternatively exactly ``cases`` (:attr:`Row.case`). All builds accept exact names; from some build between
    11063 and 11549 on, ``-o`` accepts patterns, too. Parameter names differ between builds (``type_KV``,
    later ``type_K`` and ``type_V``), so patterns have to as well.
    """

    ops: tuple[str, ...] = ()
    pattern: str | None = None
    cases: tuple[str, ...] = ()

    @property
    def words(self) -> list[str]:
        """The command-line options."""
        ops = ["-o", ",".join(self.cases or self.ops)] if self.cases or self.ops else []
        return [*ops, *(["-p", self.pattern] if self.pattern else [])]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A folder in which test-backend-ops loads the reference backend first, and ``module`` second."""

    program: Path
    module: Path
    reference: Path
    side_environment: Mapping[str, str] = field(default_factory=dict)
    kept: RunCache | None = field(default=None, compare=False, repr=False)

    @property
    def environment(self) -> dict[str, str]:
        """The environment for ggml to load the module, and of the side."""
        return {**self.side_environment, "GGML_BACKEND_PATH": str(self.module)}


def make_stage(side: BuiltSide, reference: BuiltSide, folder: Path) -> Stage:
    """Collect the programs and libraries of ``side`` with the CPU backend of ``reference``.

    Uses hard links, because ggml searches next to the program's real path. Raises CacheError.
    """
    with disk_errors(folder, "preparing test-backend-ops"):
        folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(side.folder.iterdir()):
            is_backend = path.name.startswith(BACKEND_LIBRARIES)
            if path.name == PROGRAM or (path.name.startswith("lib") and not is_backend):
                put_file(path, folder / path.name)
        put_file(reference.cpu, folder / reference.cpu.name)
    return Stage(
        program=folder / PROGRAM,
        module=side.module,
        reference=folder / reference.cpu.name,
        side_environment=side.environment,
        kept=side.kept,
    )


def run_mode(
    stage: Stage, mode: Mode, *, name: str, choice: Choice, device: str, timeout_s: float, place: RunContext
) -> ProgramRun:
    """Run the program in one mode. Status 1 of ``test`` means that a case failed, and raises no error.

    ``-j`` of later builds is not used, because it outputs rows in random order.

    Raises:
        PROGRAM_FAILED: it loaded other libraries than requested.
        The errors of :func:`run_program`.
    """
    ran = run_program(
        name,
        [str(stage.program), mode, *choice.words, "-b", device, "--output", "csv"],
        place=place,
        env=stage.environment,
        timeout_s=timeout_s,
        accept=frozenset({0, 1}) if mode == "test" else frozenset({0}),
        kept=stage.kept,
    )
    loaded = [path for _, path in loaded_backends(ran.talk())]
    wanted = [str(stage.reference), str(stage.module)]
    if sorted(loaded) != sorted(wanted) or loaded[0] != wanted[0]:
        raise ToolchainError(
            f"{PROGRAM} did not load the two backends to compare",
            code="PROGRAM_FAILED",
            where=Location(path=str(ran.stderr)),
            why=f"loaded: {', '.join(loaded) or 'none'}; wanted: {', '.join(wanted)}",
            hint=f"run it yourself to see its messages: {' '.join(ran.argv)}",
        )
    return ran


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Some cases of a run, executed by one of several processes; its output is named ``name``.

    The output goes to ``folder``. ``looked``: the stage with checks enabled, if a later gate needs the
    same run with checks; its results count if it has no findings.
    """

    stage: Stage
    name: str
    cases: tuple[str, ...]
    device: str
    timeout_s: float
    folder: Path
    looked: Stage | None = None

    def halves(self) -> tuple[Part, Part]:
        """Both halves of its cases. The first half keeps the name, so its output overwrites this one's."""
        half = len(self.cases) // 2
        return replace(self, cases=self.cases[:half]), replace(
            self, cases=self.cases[half:], name=f"{self.name}.{half}"
        )


# Letters and number at the start of a case's first parameter, such as the types' "iq2" and "q4".
_FAMILY = re.compile(r"\([^=,)]*=([a-z]*\d*)")


def parts_of(cases: Sequence[str], size: int = 24) -> Iterator[tuple[str, ...]]:
    """Split a list of cases into parts of at most ``size``, keeping type families together.

    Cases of a family share tables and code. Before a process writes its first iq1 tensor it sorts a table for
    9.6 s of CPU time, for iq2 up to 4.4 s (build 11549): spread over nine parts this was 61 of 89 s of a
    side. Parts are small because they are reused from cache as a whole.
    """
    families: dict[str, list[str]] = {}
    for case in cases:
        found = _FAMILY.search(case)
        families.setdefault(found[1] if found else "", []).append(case)
    part: list[str] = []
    for family in families.values():
        if part and len(part) + len(family) > size:
            yield tuple(part)
            part = []
        part += family
        while len(part) > size:
            yield tuple(part[:size])
            part = part[size:]
    if part:
        yield tuple(part)


def run_part(part: Part, *, stop: threading.Event | None = None) -> ProgramRun | ToolchainError:
    """Run a part; returns the error if a signal ended the program. Raises all others of :func:`run_mode`."""
    if part.looked is not None:
        with contextlib.suppress(ToolchainError):  # without checks it may end differently
            ended = run_part(replace(part, stage=part.looked, looked=None), stop=stop)
            report = part.looked.side_environment.get(REPORT)
            if (
                isinstance(ended, ProgramRun)
                and ended.status == 0
                and report
                and is_clean_report(Path(report))
            ):
                return ended
    with _core_of_its_own():
        try:
            return run_mode(
                part.stage,
                "test",
                name=part.name,
                choice=Choice(cases=part.cases),
                device=part.device,
                timeout_s=part.timeout_s,
                place=RunContext(folder=part.folder, reporter=NullReporter(), stop=stop),
            )
        except ToolchainError as error:
            if error.code != "PROGRAM_CRASHED":
                raise
            return error


def single_out(
    part: Part, ended: ProgramRun | ToolchainError, run: Callable[[Part], ProgramRun | ToolchainError]
) -> Iterator[tuple[Part, ProgramRun | ToolchainError]]:
    """Return a successful part; of a crashed one, rerun halves recursively, down to single cases.

    A crashed program loses its buffered output, so nothing else shows which case it was in.
    Raises ``ended`` if both halves of a part succeed: then no single case causes the crash.
    """
    if isinstance(ended, ProgramRun) or len(part.cases) == 1:
        yield part, ended
        return
    is_both_well = True
    for half in part.halves():
        again = run(half)
        is_both_well = is_both_well and isinstance(again, ProgramRun)
        yield from single_out(half, again, run)
    if is_both_well:
        raise ended


_taken: set[int] = set()
_taking = threading.Lock()


@contextlib.contextmanager
def _core_of_its_own() -> Iterator[None]:
    """Pin this thread, and processes it starts, to a core that no other such thread uses.

    ggml's CPU code busy-waits for as many threads as it may have.
    """
    allowed = os.sched_getaffinity(0)
    with _taking:
        core = min(allowed - _taken or allowed)
        _taken.add(core)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)
        with _taking:
            _taken.discard(core)


def loaded_backends(talk: str) -> tuple[tuple[str, str], ...]:
    """Name and file of each backend, in order, from lines ``load_backend: loaded CPU backend from ...``."""
    found = []
    for line in talk.splitlines():
        if line.startswith(_LOADED):
            name, _, path = line.removeprefix(_LOADED).partition(" backend from ")
            found.append((name, path.strip()))
    return tuple(found)


def parse_rows(text: str, *, where: str) -> tuple[Row, ...]:
    """The rows in order. Text printed before a row belongs to that row.

    Raises:
        PROGRAM_FAILED: there is no table, a column is missing, or a line is not a row.
    """
    lines = text.splitlines()
    begin = next((at for at, line in enumerate(lines) if line.startswith('"') and _HEADER in line), None)
    if begin is None:
        raise _garbled(where, 1, "no table found", lines[0] if lines else "")
    header = next(csv.reader([lines[begin]]))
    if not set(header) >= _COLUMNS:
        raise _garbled(where, begin + 1, "a column is missing", lines[begin])
    rows = []
    said: list[str] = []
    for number, line in enumerate(lines[begin + 1 :], start=begin + 2):
        talk, quote, rest = line.partition('"')
        values = next(csv.reader(io.StringIO(quote + rest)), []) if quote else []
        if not values:
            said.append(line)
            continue
        if len(values) != len(header) or not line.endswith('"'):
            raise _garbled(where, number, "a row is truncated or garbled", line)
        rows.append(_row(dict(zip(header, values, strict=True)), " ".join([*said, talk]).strip(), where))
        said = []
    return tuple(rows)


def _row(values: Mapping[str, str], said: str, where: str) -> Row:
    if values["supported"] not in {"0", "1"}:
        raise _garbled(where, 0, "a row has an invalid value in column 'supported'", str(values))
    is_supported = values["supported"] == "1"
    return Row(
        op=values["op_name"],
        params=values["op_params"],
        is_supported=is_supported,
        error=values["error_message"] if is_supported else "",
        device=values.get("backend_name", ""),
        said=said,
    )


def _garbled(where: str, line: int, what: str, text: str) -> ToolchainError:
    return ToolchainError(
        f"cannot parse the output of {PROGRAM}: {what}",
        code="PROGRAM_FAILED",
        where=Location(path=where, line=line or None),
        why=f"the line: {text[:160]!r}",
        hint="run the command again; its output is kept in that file",
    )
