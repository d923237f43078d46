"""What came back from a bundle: its folder ``results``."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from patchkit.base.errors import Location, ToolchainError
from patchkit.base.files import disk_errors
from patchkit.kernels.wmma import WmmaVariant

_MARK = "PATCHKIT-LAUNCH "
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# flash_attn_ext_f16<D, ncols, nwarps, VKQ_stride, KQ_acc_t, use_logit_softcap> in the Itanium ABI.
_WMMA = re.compile(r"flash_attn_ext_f16ILi(\d+)ELi(\d+)ELi\d+ELi\d+E(f|6__half)Lb([01])E")
# The figures of a failed comparison stand before the case, on its line.
_CASE = re.compile(r"FLASH_ATTN_EXT\((?P<params>[^()]*)\): ?(?P<rest>.*)$")
_RUNS = re.compile(r"^\s*(?P<runs>\d+) runs -\s*(?P<us>[0-9.]+) us/run")
_TOTAL = re.compile(r"^\s*(\d+)/(\d+) tests passed$")
_SHOWN = 120  # characters of a line in a message

OpsVerdict = Literal["OK", "FAIL", "not supported"]


class OutputGarbled(ToolchainError):
    """The output of a job is not what the program writes."""

    code = "NUMERICS_OUTPUT_GARBLED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One launch. ``threads`` (its bound) and ``static_bytes`` (shared memory) are of the compiled kernel."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    static_bytes: int
    dynamic_bytes: int
    threads: int

    @property
    def variant(self) -> WmmaVariant | None:
        """The variant of the WMMA kernel, or None for another kernel."""
        found = _WMMA.search(self.kernel)
        if found is None:
            return None
        return WmmaVariant(int(found[1]), int(found[2]), "f32" if found[3] == "f" else "f16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One case of ours. ``nmse`` and ``row`` are None where the result is not finite or not supported."""

    case: str
    is_supported: bool
    is_finite: bool
    nmse: float | None
    row: float | None
    launches: tuple[Launch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRun:
    """``is_complete``: the program came to its last line."""

    checks: tuple[Check, ...]
    is_complete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OpsCase:
    """One case of upstream's test-backend-ops."""

    params: str
    verdict: OpsVerdict
    launches: tuple[Launch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpsRun:
    """``passed`` of ``total`` is what the program says itself; None when it did not come that far."""

    cases: tuple[OpsCase, ...]
    passed: int | None
    total: int | None

    @property
    def is_complete(self) -> bool:
        """Whether the program came to its count, and its count is ours."""
        ran = [case for case in self.cases if case.verdict != "not supported"]
        good = sum(case.verdict == "OK" for case in ran)
        return self.total is not None and (self.passed, self.total) == (good, len(ran))


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """One line of test-backend-ops perf: microseconds per run, over ``runs`` runs."""

    params: str
    runs: int
    microseconds: float


def parse_check(text: str, path: str = "output") -> CheckRun:
    """The output of native/attention_check.cpp.

    Raises:
        OutputGarbled: a line that the program does not write. A missing end is no error: see ``is_complete``.
    """
    checks: list[Check] = []
    launches: list[Launch] = []
    done: int | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or _is_talk(line):
            continue
        where = Location(path=path, line=number)
        if line.startswith(_MARK):
            launches.append(_launch(line, where))
            continue
        data = _object(line, where)
        if "done" in data:
            done = _int(data, "done", where)
        else:
            checks.append(_check(data, tuple(launches), where))
            launches = []
    return CheckRun(checks=tuple(checks), is_complete=done == len(checks))


def parse_ops(text: str, path: str = "output") -> OpsRun:
    """The output of ``test-backend-ops test``; what was launched since the last verdict belongs to the next.

    Raises:
        OutputGarbled: a verdict that upstream does not write, or one without a case.
    """
    cases: list[OpsCase] = []
    launches: list[Launch] = []
    waiting: str | None = None
    total: tuple[int, int] | None = None
    for number, raw in enumerate(text.splitlines(), start=1):
        line, where = _COLOUR.sub("", raw), Location(path=path, line=number)
        if found := _CASE.search(line):
            waiting, line = found["params"], found["rest"]
        if _MARK in line:
            before, _, rest = line.partition(_MARK)
            launches.append(_launch(_MARK + rest, where))
            line = before
        verdict = _verdict(line)
        if waiting is not None and verdict is not None:
            cases.append(OpsCase(params=waiting, verdict=verdict, launches=tuple(launches)))
            waiting, launches = None, []
        elif counted := _TOTAL.match(line):
            total = int(counted[1]), int(counted[2])
    passed, of = total or (None, None)
    return OpsRun(cases=tuple(cases), passed=passed, total=of)


def parse_perf(text: str) -> tuple[Timing, ...]:
    """The timings of ``test-backend-ops perf``."""
    found: list[Timing] = []
    waiting: str | None = None
    for raw in text.splitlines():
        line = _COLOUR.sub("", raw)
        if case := _CASE.search(line):
            waiting, line = case["params"], case["rest"]
        if waiting is not None and (figures := _RUNS.match(line)):
            found.append(Timing(params=waiting, runs=int(figures["runs"]), microseconds=float(figures["us"])))
            waiting = None
    return tuple(found)


def _verdict(line: str) -> OpsVerdict | None:
    """A failed comparison writes its figures before the word."""
    word = line.strip()
    if word.startswith("not supported"):
        return "not supported"
    if word == "OK":
        return "OK"
    return "FAIL" if word.endswith("FAIL") else None


def _is_talk(line: str) -> bool:
    return line.startswith(("ggml_", "load_backend", "  Device ", "register_backend"))


def _check(data: Mapping[str, object], launches: tuple[Launch, ...], where: Location) -> Check:
    supported = data.get("supported")
    case = data.get("case")
    if not isinstance(case, str) or not isinstance(supported, bool):
        raise _garbled("a case without its name or its 'supported'", where)
    if not supported:
        return Check(case=case, is_supported=False, is_finite=False, nmse=None, row=None, launches=launches)
    finite, nmse, row = data.get("finite"), data.get("nmse"), data.get("row")
    if not isinstance(finite, bool) or not isinstance(nmse, float) or not isinstance(row, float):
        raise _garbled("a case without its errors", where)
    if finite and not (math.isfinite(nmse) and math.isfinite(row) and nmse >= 0 and row >= 0):
        raise _garbled("an error that is no error", where)
    return Check(
        case=case,
        is_supported=True,
        is_finite=finite,
        nmse=nmse if finite else None,
        row=row if finite else None,
        launches=launches,
    )


def _launch(line: str, where: Location) -> Launch:
    data = _object(line[len(_MARK) :], where)
    kernel = data.get("kernel")
    if not isinstance(kernel, str):
        raise _garbled("a launch without a kernel", where)
    return Launch(
        kernel=kernel,
        grid=_three(data, "grid", where),
        block=_three(data, "block", where),
        static_bytes=_int(data, "static", where),
        dynamic_bytes=_int(data, "dynamic", where),
        threads=_int(data, "threads", where),
    )


def _three(data: Mapping[str, object], name: str, where: Location) -> tuple[int, int, int]:
    value = data.get(name)
    if isinstance(value, list) and len(value) == 3 and all(isinstance(each, int) for each in value):  # noqa: PLR2004 - x, y, z
        return (value[0], value[1], value[2])
    raise _garbled(f"a launch whose {name} is no three numbers", where)


def _int(data: Mapping[str, object], name: str, where: Location) -> int:
    value = data.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise _garbled(f"{name} is no number", where)
    return value


def _object(line: str, where: Location) -> dict[str, object]:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _garbled(f"a line that is no JSON: {line[:_SHOWN]!r}", where) from error
    if not isinstance(data, dict):
        raise _garbled(f"a line that is no object: {line[:_SHOWN]!r}", where)
    return data


def _garbled(what: str, where: Location) -> OutputGarbled:
    return OutputGarbled(
        f"the output of a job has {what}",
        where=where,
        why="nothing is read from an output that is not wholly understood",
        hint="look at the file; run the bundle again with: sh run.sh run",
    )


_RESULTS_SHOWN = 120  # characters of a text in a message


class ResultsMissing(ToolchainError):
    """A bundle was not run, or not to the end: files of its results are not there."""

    code = "NUMERICS_RESULTS_MISSING"


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """How a job ended (``status`` as a shell says it: 124 is a timeout, 134 an abort) and what it wrote."""

    status: int
    seconds: int
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResults:
    """The folder ``results``: ``gpus`` are (name, driver, compute capability).

    ``objects``: path -> sha256 of every build of it; ``programs``: path -> sha256.
    """

    gpus: tuple[tuple[str, str, str], ...]
    nvcc: str
    objects: Mapping[str, frozenset[str]]
    programs: Mapping[str, str]
    outputs: Mapping[str, Output]
    is_gpu_there_after: bool


def load_results(folder: Path) -> RunResults:
    """The results of a bundle; jobs without a status are left out, which whoever judges must notice.

    Raises:
        ResultsMissing: no results, or none of a GPU.
        OutputGarbled: nvidia-smi, nvcc or a status wrote something else than expected.
        CacheError: the disk refused.
    """
    place = folder / "results"
    with disk_errors(place, "reading results"):
        for name in ("gpu.csv", "nvcc.txt", "programs.txt"):
            if not (place / name).is_file():
                raise ResultsMissing(
                    f"{name} is not among the results of {folder}",
                    where=Location(path=str(place / name)),
                    why="the bundle was not run here, or run.sh ended before its end",
                    hint=f"sh {folder}/run.sh",
                )
        outputs = {path.stem: _output(place, path) for path in sorted(place.glob("*.status"))}
        after = place / "gpu-after.csv"
        return RunResults(
            gpus=_gpus(place / "gpu.csv"),
            nvcc=_nvcc(place / "nvcc.txt"),
            objects=_sums_of_builds(place / "objects.txt"),
            programs=dict(_sums(place / "programs.txt")),
            outputs=outputs,
            is_gpu_there_after=after.is_file() and bool(_rows(_read(after))),
        )


def _output(place: Path, status: Path) -> Output:
    words = _read(status).split()
    if len(words) != 2 or not all(word.isdecimal() for word in words):  # noqa: PLR2004 - status and seconds
        raise _results_garbled("no status", status)
    texts = [_read(place / f"{status.stem}.{kind}") for kind in ("out", "err")]
    return Output(status=int(words[0]), seconds=int(words[1]), stdout=texts[0], stderr=texts[1])


def _read(path: Path) -> str:
    return path.read_text("utf-8", "replace") if path.is_file() else ""


def _rows(text: str) -> list[tuple[str, str, str]]:
    rows = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == 3 and re.fullmatch(r"\d+\.\d+", cells[2]):  # noqa: PLR2004 - name, driver, capability
            rows.append((cells[0], cells[1], cells[2]))
    return rows


def _gpus(path: Path) -> tuple[tuple[str, str, str], ...]:
    rows = _rows(_read(path))
    if not rows:
        raise _results_garbled(f"no GPU: {_read(path)[:_RESULTS_SHOWN]!r}", path)
    return tuple(rows)


def _nvcc(path: Path) -> str:
    found = re.search(r"release [\d.]+, V([\d.]+)", _read(path))
    if found is None:
        raise _results_garbled("no version of nvcc", path)
    return found[1]


def _sums_of_builds(path: Path) -> dict[str, frozenset[str]]:
    """A unit whose two objects differ is built more than once, and has a line for each build."""
    sums: dict[str, frozenset[str]] = {}
    for name, digest in _sums(path):
        sums[name] = sums.get(name, frozenset()) | {digest}
    return sums


def _sums(path: Path) -> Iterator[tuple[str, str]]:
    for line in _read(path).splitlines():
        digest, _, name = line.partition("  ")
        if re.fullmatch(r"[0-9a-f]{64}", digest) and name:
            yield name, digest


def _results_garbled(what: str, path: Path) -> OutputGarbled:
    return OutputGarbled(
        f"a result of a bundle has {what}",
        where=Location(path=str(path)),
        why="nothing is read from a result that is not wholly understood",
        hint="look at the file; run the bundle again with: sh run.sh",
    )
