"""Reading what the programs of a bundle wrote into its folder ``results``."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from patchkit.base.errors import Location, ToolchainError
from patchkit.base.files import disk_errors
from patchkit.gates.numerics.cuda import NvidiaGpu, parse_gpus, parse_nvcc_version
from patchkit.kernels.wmma import WmmaVariant

_MARK = "PATCHKIT-LAUNCH "
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# flash_attn_ext_f16<D, ncols, nwarps, VKQ_stride, KQ_acc_t, use_logit_softcap> in the Itanium ABI.
_WMMA = re.compile(r"flash_attn_ext_f16ILi(\d+)ELi(\d+)ELi\d+ELi\d+E(f|6__half)Lb([01])E")
# The figures of a failed comparison stand before the case, on its line.
_CASE = re.compile(r"FLASH_ATTN_EXT\((?P<params>[^()]*)\): ?(?P<rest>.*)$")
_RUNS = re.compile(r"^\s*\d+ runs -\s*(?P<us>[0-9.]+) us/run")
_TOTAL = re.compile(r"^\s*(\d+)/(\d+) tests passed$")
_SHOWN = 120  # characters of a line in a message

OpsVerdict = Literal["OK", "FAIL", "not supported"]


class ResultsUnreadable(ToolchainError):
    """Results of a bundle are not there, or are not what its programs write."""


class _Line(BaseModel):
    """What a program writes as one line of JSON."""

    model_config = ConfigDict(frozen=True, strict=True)


_Three = tuple[int, int, int]


class Launch(_Line):
    """One launch. ``threads`` (its bound) and ``static_bytes`` (shared memory) are of the compiled kernel."""

    kernel: str
    grid: _Three
    block: _Three
    static_bytes: int = Field(validation_alias="static")
    dynamic_bytes: int = Field(validation_alias="dynamic")
    threads: int

    @property
    def variant(self) -> WmmaVariant | None:
        """The variant of the WMMA kernel, or None for another kernel."""
        return _variant_of(self.kernel)


@cache
def _variant_of(kernel: str) -> WmmaVariant | None:
    found = _WMMA.search(kernel)  # thousands of launches are of some dozen kernels
    if found is None:
        return None
    return WmmaVariant(int(found[1]), int(found[2]), "f32" if found[3] == "f" else "f16")


class Check(_Line):
    """One case of ours; ``nmse`` and ``row`` count where it is finite. ``launches`` came before it."""

    case: str
    supported: bool
    finite: bool = False
    nmse: float | None = None
    row: float | None = None
    launches: tuple[Launch, ...] = ()

    @model_validator(mode="after")
    def _errors_are_errors(self) -> Check:
        errors = (self.nmse, self.row)
        if self.supported and (None in errors or "finite" not in self.model_fields_set):
            raise ValueError("a case without its errors")
        if self.finite and not all(error is not None and 0 <= error < math.inf for error in errors):
            raise ValueError("an error that is no error")
        return self


class _Done(_Line):
    """The last line: how many cases there were."""

    done: int


_L = TypeVar("_L", bound=_Line)


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


def parse_check(text: str, path: str = "output") -> CheckRun:
    """The output of native/attention_check.cpp.

    Raises:
        ResultsUnreadable: a line that the program does not write. A missing end is none: see ``is_complete``.
    """
    checks: list[Check] = []
    launches: list[Launch] = []
    done: int | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or _is_talk(line):
            continue
        where = Location(path=path, line=number)
        if line.startswith(_MARK):
            launches.append(_parsed(line[len(_MARK) :], Launch, where))
        elif '"done"' in line:
            done = _parsed(line, _Done, where).done
        else:
            check = _parsed(line, Check, where)
            checks.append(check.model_copy(update={"launches": tuple(launches)}))
            launches = []
    return CheckRun(checks=tuple(checks), is_complete=done == len(checks))


def parse_ops(text: str, path: str = "output") -> OpsRun:
    """The output of ``test-backend-ops test``; what was launched since the last verdict belongs to the next.

    Raises:
        ResultsUnreadable: a verdict that upstream does not write, or one without a case.
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
            launches.append(_parsed(rest, Launch, where))
            line = before
        verdict = _verdict(line)
        if waiting is not None and verdict is not None:
            cases.append(OpsCase(params=waiting, verdict=verdict, launches=tuple(launches)))
            waiting, launches = None, []
        elif counted := _TOTAL.match(line):
            total = int(counted[1]), int(counted[2])
    passed, of = total or (None, None)
    return OpsRun(cases=tuple(cases), passed=passed, total=of)


def parse_perf(text: str) -> dict[str, float]:
    """What ``test-backend-ops perf`` timed: microseconds per run, by the case's variables."""
    found: dict[str, float] = {}
    waiting: str | None = None
    for raw in text.splitlines():
        line = _COLOUR.sub("", raw)
        if case := _CASE.search(line):
            waiting, line = case["params"], case["rest"]
        if waiting is not None and (figures := _RUNS.match(line)):
            found[waiting] = float(figures["us"])
            waiting = None
    return found


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


def _parsed(line: str, model: type[_L], where: Location) -> _L:
    try:
        return model.model_validate_json(line.encode("utf-8", "replace"))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        told = ".".join(map(str, first["loc"]))
        raise ResultsUnreadable(
            f"the output of a job has a line that cannot be read: {line[:_SHOWN]!r}",
            code="NUMERICS_OUTPUT_GARBLED",
            where=where,
            why=f"{told}: {first['msg']}" if told else first["msg"],
            hint="look at the file; run the bundle again with: sh run.sh run",
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """How a job ended (``status`` as a shell says it: 124 is a timeout, 134 an abort) and what it wrote."""

    status: int
    seconds: int
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResults:
    """The folder ``results``. ``objects``: path -> sha256s of its builds; ``programs``: path -> sha256."""

    gpus: tuple[NvidiaGpu, ...]
    nvcc: str
    objects: Mapping[str, frozenset[str]]
    programs: Mapping[str, str]
    outputs: Mapping[str, Output]
    is_gpu_there_after: bool


def load_results(folder: Path) -> RunResults:
    """The results of a bundle; jobs without a status are left out, which whoever judges must notice.

    Raises:
        ResultsUnreadable: no results, or none of a GPU; nvidia-smi, nvcc or a status wrote something else.
        CacheError: the disk refused.
    """
    place = folder / "results"
    with disk_errors(place, "reading results"):
        for name in ("gpu.csv", "nvcc.txt", "programs.txt"):
            if not (place / name).is_file():
                raise ResultsUnreadable(
                    f"{name} is not among the results of {folder}",
                    code="NUMERICS_RESULTS_MISSING",
                    where=Location(path=str(place / name)),
                    why="the bundle was not run here, or run.sh ended before its end",
                    hint=f"sh {folder}/run.sh",
                )
        seen = _read(place / "gpu.csv")
        gpus = parse_gpus(seen)
        if not gpus:
            raise _garbled(f"no GPU: {seen[:_SHOWN]!r}", place / "gpu.csv")
        nvcc = parse_nvcc_version(_read(place / "nvcc.txt"))
        if nvcc is None:
            raise _garbled("no version of nvcc", place / "nvcc.txt")
        objects: dict[str, frozenset[str]] = {}
        for name, digest in _sums(place / "objects.txt"):
            # A unit whose two objects differ is built more than once, and has a line for each build.
            objects[name] = objects.get(name, frozenset()) | {digest}
        return RunResults(
            gpus=gpus,
            nvcc=nvcc,
            objects=objects,
            programs=dict(_sums(place / "programs.txt")),
            outputs={path.stem: _output(path) for path in sorted(place.glob("*.status"))},
            is_gpu_there_after=bool(parse_gpus(_read(place / "gpu-after.csv"))),
        )


def _output(status: Path) -> Output:
    words = _read(status).split()
    if len(words) != 2 or not all(word.isdecimal() for word in words):  # noqa: PLR2004 - status and seconds
        raise _garbled("no status", status)
    stdout, stderr = (_read(status.with_suffix(ending)) for ending in (".out", ".err"))
    return Output(status=int(words[0]), seconds=int(words[1]), stdout=stdout, stderr=stderr)


def _read(path: Path) -> str:
    return path.read_text("utf-8", "replace") if path.is_file() else ""


def _sums(path: Path) -> Iterator[tuple[str, str]]:
    for line in _read(path).splitlines():
        digest, _, name = line.partition("  ")
        if re.fullmatch(r"[0-9a-f]{64}", digest) and name:
            yield name, digest


def _garbled(what: str, path: Path) -> ResultsUnreadable:
    return ResultsUnreadable(
        f"a result of a bundle has {what}",
        code="NUMERICS_OUTPUT_GARBLED",
        where=Location(path=str(path)),
        why="nothing is read from a result that is not wholly understood",
        hint="look at the file; run the bundle again with: sh run.sh",
    )
