"""What came back from a bundle: its folder ``results``.

Vocabulary: an *output* is what one job wrote and how it ended; what the text means is read in
:mod:`patchkit.numerics.outputs`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from patchkit.errors import Location, ToolchainError
from patchkit.numerics.outputs import OutputGarbled
from patchkit.vcs.disk import disk_errors

_SHOWN = 120  # characters of a text in a message


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
        raise _garbled("no status", status)
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
        raise _garbled(f"no GPU: {_read(path)[:_SHOWN]!r}", path)
    return tuple(rows)


def _nvcc(path: Path) -> str:
    found = re.search(r"release [\d.]+, V([\d.]+)", _read(path))
    if found is None:
        raise _garbled("no version of nvcc", path)
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


def _garbled(what: str, path: Path) -> OutputGarbled:
    return OutputGarbled(
        f"a result of a bundle has {what}",
        where=Location(path=str(path)),
        why="nothing is read from a result that is not wholly understood",
        hint="look at the file; run the bundle again with: sh run.sh",
    )
