"""Upstream's test-backend-ops: its command line, its table, and the two devices that it compares."""

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
from patchkit.gpu.hardware.program import Place, Ran, run_program
from patchkit.toolchain.parts import BACKEND_LIBRARIES, OPERATION_TESTS
from patchkit.toolchain.sides import BuiltSide, RunCache, put_file

Mode = Literal["test", "support"]

PROGRAM = OPERATION_TESTS
# Without -b, CPU devices are skipped; with a name that no device has, everything is, with status 0.
_COLUMNS = frozenset({"op_name", "op_params", "supported", "error_message"})
_HEADER = '"op_name"'
_LOADED = "load_backend: loaded "


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table. ``said`` is what was printed before it, as the size of an error."""

    op: str
    params: str
    is_supported: bool
    error: str
    device: str
    said: str = ""

    @property
    def case(self) -> str:
        """The operation and its variables."""
        return f"{self.op}({self.params})"

    @property
    def has_passed(self) -> bool:
        """Whether it ran and was right."""
        return self.is_supported and not self.error


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which cases: exact names of operations (none: all), and a pattern over their variables or none.

    Or exactly ``cases``, as :attr:`Row.case` has them. Names are understood by every build (since between
    11063 and 11549 ``-o`` takes patterns, too). Names of variables differ between builds (``type_KV``,
    later ``type_K`` and ``type_V``), and so must the pattern.
    """

    ops: tuple[str, ...] = ()
    pattern: str | None = None
    cases: tuple[str, ...] = ()

    @property
    def words(self) -> list[str]:
        """The options for it."""
        ops = ["-o", ",".join(self.cases or self.ops)] if self.cases or self.ops else []
        return [*ops, *(["-p", self.pattern] if self.pattern else [])]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A folder in which test-backend-ops finds the reference first; ``module`` is loaded beside it."""

    program: Path
    module: Path
    reference: Path
    side_environment: Mapping[str, str] = field(default_factory=dict)
    kept: RunCache | None = field(default=None, compare=False, repr=False)

    @property
    def environment(self) -> dict[str, str]:
        """What makes ggml load the module too, and what the side needs."""
        return {**self.side_environment, "GGML_BACKEND_PATH": str(self.module)}


def make_stage(side: BuiltSide, reference: BuiltSide, folder: Path) -> Stage:
    """The programs and libraries of ``side``, with the CPU backend of ``reference``.

    Hard links: ggml looks beside the program's real path. Raises CacheError when the disk refuses.
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
    stage: Stage, mode: Mode, *, name: str, choice: Choice, device: str, timeout_s: float, place: Place
) -> Ran:
    """Run the program in one mode; status 1 of ``test`` says that a case failed, and is no error here.

    ``-j`` of later builds is not used: rows would come in any order.

    Raises:
        PROGRAM_OUTPUT_GARBLED: another library was loaded than asked for.
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
            f"{PROGRAM} did not load the two backends that were to be compared",
            code="PROGRAM_OUTPUT_GARBLED",
            where=Location(path=str(ran.stderr)),
            why=f"loaded: {', '.join(loaded) or 'none'}; wanted: {', '.join(wanted)}",
            hint=f"see what it says with: {' '.join(ran.argv)}",
        )
    return ran


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Some cases of a run, for one process of several; ``name`` is that of its output.

    ``folder`` gets its output. ``is_pinned``: on a core of its own, since ggml's CPU code waits in busy loops
    for as many threads as it may have. ``looked`` is the stage with checks on, where a gate behind this one
    wants the same run with them: what it computes counts if nothing is found.
    """

    stage: Stage
    name: str
    cases: tuple[str, ...]
    device: str
    timeout_s: float
    folder: Path
    is_pinned: bool
    looked: Stage | None = None

    def halves(self) -> tuple[Part, Part]:
        """Both halves of its cases. The first has its name, and so its output is written over."""
        half = len(self.cases) // 2
        return replace(self, cases=self.cases[:half]), replace(
            self, cases=self.cases[half:], name=f"{self.name}.{half}"
        )


# The letters and the number that the first variable of a case begins with: "iq2", "q4" of a type.
_FAMILY = re.compile(r"\([^=,)]*=([a-z]*\d*)")


def parts_of(cases: Sequence[str], size: int = 24) -> Iterator[tuple[str, ...]]:
    """Cut a list of cases into parts of at most ``size``, those of one family of types together.

    Such cases share tables and code. Before a process writes its first tensor of iq1 it sorts a table for
    9.6 s of processor time, of iq2 up to 4.4 (build 11549): over nine parts those were 61 of 89 s of a side.
    A part is what is taken again, or not, so none is large.
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


def run_part(part: Part, *, stop: threading.Event | None = None) -> Ran | ToolchainError:
    """Run its tests; the error when a signal ended the program. Raises as :func:`run_mode` for all else."""
    if part.looked is not None:
        with contextlib.suppress(ToolchainError):  # without the checks it may end otherwise
            ended = run_part(replace(part, stage=part.looked, looked=None), stop=stop)
            report = part.looked.side_environment.get(REPORT)
            if isinstance(ended, Ran) and ended.status == 0 and report and is_clean_report(Path(report)):
                return ended
    with _core_of_its_own() if part.is_pinned else contextlib.nullcontext():
        try:
            return run_mode(
                part.stage,
                "test",
                name=part.name,
                choice=Choice(cases=part.cases),
                device=part.device,
                timeout_s=part.timeout_s,
                place=Place(folder=part.folder, reporter=NullReporter(), stop=stop),
            )
        except ToolchainError as error:
            if error.code != "PROGRAM_CRASHED":
                raise
            return error


def single_out(
    part: Part, ended: Ran | ToolchainError, run: Callable[[Part], Ran | ToolchainError]
) -> Iterator[tuple[Part, Ran | ToolchainError]]:
    """A part that ended well as it is; of another its halves, run again, and theirs, down to single cases.

    A program that crashes loses what it had not written out, so nothing else says which case it was in.
    Raises ``ended`` when both halves of a part end well: then no case by itself ends the program.
    """
    if isinstance(ended, Ran) or len(part.cases) == 1:
        yield part, ended
        return
    is_both_well = True
    for half in part.halves():
        again = run(half)
        is_both_well = is_both_well and isinstance(again, Ran)
        yield from single_out(half, again, run)
    if is_both_well:
        raise ended


_taken: set[int] = set()
_taking = threading.Lock()


@contextlib.contextmanager
def _core_of_its_own() -> Iterator[None]:
    """This thread, and what it starts, on a core that no other thread of these has."""
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
    """Name and file of each backend, in the order of ``load_backend: loaded CPU backend from ...``."""
    found = []
    for line in talk.splitlines():
        if line.startswith(_LOADED):
            name, _, path = line.removeprefix(_LOADED).partition(" backend from ")
            found.append((name, path.strip()))
    return tuple(found)


def parse_rows(text: str, *, where: str) -> tuple[Row, ...]:
    """The rows in order. What the program printed in front of a row belongs to that row.

    Raises:
        PROGRAM_OUTPUT_GARBLED: there is no table, a column is missing, or a line is no row of it.
    """
    lines = text.splitlines()
    begin = next((at for at, line in enumerate(lines) if line.startswith('"') and _HEADER in line), None)
    if begin is None:
        raise _garbled(where, 1, "there is no table", lines[0] if lines else "")
    header = next(csv.reader([lines[begin]]))
    if not set(header) >= _COLUMNS:
        raise _garbled(where, begin + 1, "the table lacks a column", lines[begin])
    rows = []
    said: list[str] = []
    for number, line in enumerate(lines[begin + 1 :], start=begin + 2):
        talk, quote, rest = line.partition('"')
        values = next(csv.reader(io.StringIO(quote + rest)), []) if quote else []
        if not values:
            said.append(line)
            continue
        if len(values) != len(header) or not line.endswith('"'):
            raise _garbled(where, number, "a row is cut off or garbled", line)
        rows.append(_row(dict(zip(header, values, strict=True)), " ".join([*said, talk]).strip(), where))
        said = []
    return tuple(rows)


def _row(values: Mapping[str, str], said: str, where: str) -> Row:
    if values["supported"] not in {"0", "1"}:
        raise _garbled(where, 0, "a row says neither supported nor not", str(values))
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
        f"what {PROGRAM} printed cannot be read: {what}",
        code="PROGRAM_OUTPUT_GARBLED",
        where=Location(path=where, line=line or None),
        why=f"the line: {text[:160]!r}",
        hint="run the command again; its output is kept in that file",
    )
