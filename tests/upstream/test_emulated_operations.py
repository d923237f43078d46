"""Upstream's kernels, unpatched, on the emulated gfx1151: docs/records says which operations are right."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from emulated_trees import EmulatedTrees
from thorough import ordinary

from patchkit.base.reporter import NullReporter
from patchkit.gpu.emulated.emulator import EmulationOptions
from patchkit.gpu.hardware.backend_ops import Choice, Row, parse_rows, parts_of
from patchkit.prove.gates.operations import sample_of
from patchkit.toolchain.compiler import open_compiler
from patchkit.toolchain.hip import Toolchain

ROOT = Path(__file__).resolve().parents[2]
_CASES = 8  # of an operation, here
_EXCEPTION = re.compile(r"([A-Z0-9_]+)\((.*)\)")


@dataclass(frozen=True)
class Operation:
    """A row of the record: how many cases the backend supports, were run and were right.

    ``wrong`` are patterns over the variables of those that are not.
    """

    name: str
    supported: int
    run: int
    right: int
    wrong: tuple[str, ...]


@cache
def operations() -> dict[int, tuple[Operation, ...]]:
    """What the record says, by build."""
    path = ROOT / "docs" / "records" / "data" / "emulated-operations.json"
    record = json.loads(path.read_text("utf-8"))
    return {
        int(build): tuple(_read(rows, record["wrong"][build])) for build, rows in record["builds"].items()
    }


def _read(rows: list[dict[str, Any]], wrong: list[dict[str, Any]]) -> Iterator[Operation]:
    named = [found for each in wrong if (found := _EXCEPTION.fullmatch(each["cases"]))]
    assert len(named) == len(wrong)
    for row in rows:
        yield Operation(**row, wrong=tuple(found[2] for found in named if found[1] == row["name"]))


ROWS = [(build, operation) for build, found in operations().items() for operation in found]


@dataclass(frozen=True)
class Upstream:
    """A build of upstream's test-backend-ops whose kernels run on the emulated GPU."""

    program: Path
    environment: dict[str, str]

    def listed(self, choice: Choice) -> tuple[Row, ...]:
        """What it says of the cases."""
        return parse_rows(self._run("support", choice).stdout, where="support")

    def wrong(self, cases: tuple[str, ...]) -> list[str]:
        """Those of the cases that do not come out right; what the CPU backend does not have is not run."""
        done = self._run("test", Choice(cases=cases))
        rows = parse_rows(done.stdout, where="test") if done.returncode in {0, 1} else ()
        right = {row.case for row in rows if row.has_passed or not row.is_supported}
        return [f"{case}\n{done.stderr[-600:]}" for case in cases if case not in right]

    def _run(self, mode: str, choice: Choice) -> subprocess.CompletedProcess[str]:
        argv = [str(self.program), mode, *choice.words, "-b", "ROCm0", "--output", "csv"]
        return subprocess.run(
            argv, env=self.environment, capture_output=True, text=True, check=False, timeout=3600
        )


@pytest.fixture(scope="module")
def upstream(hip_toolchain: Toolchain, gates_cache: Path) -> Iterator[Callable[[int], Upstream]]:
    """A tree of upstream's on the emulated GPU."""
    trees = EmulatedTrees(gates_cache, open_compiler(hip_toolchain, gates_cache, NullReporter()))

    @cache
    def make(build: int) -> Upstream:
        side = running.enter_context(trees.running(build, EmulationOptions()))
        return Upstream(
            program=side.program("test-backend-ops"),
            environment={"PATH": os.environ["PATH"], **side.environment},
        )

    with contextlib.ExitStack() as running:
        yield make


def test_the_record_adds_up() -> None:
    assert set(operations()) == {6900, 9538, 11549}
    for build, operation in ROWS:
        assert operation.right <= operation.run <= operation.supported, (build, operation.name)
        assert bool(operation.wrong) == (operation.right < operation.run), (build, operation.name)


@pytest.mark.hip
@pytest.mark.slow
@pytest.mark.parametrize("build", ordinary(list(operations()), [6900], pytest.mark.hours))
def test_the_record_names_every_operation(build: int, upstream: Callable[[int], Upstream]) -> None:
    cases: dict[str, set[str]] = {}
    for row in upstream(build).listed(Choice()):
        cases.setdefault(row.op, set()).update([row.case] if row.is_supported else [])
    expected = {name: len(found) for name, found in cases.items() if found}
    assert {one.name: one.supported for one in operations()[build]} == expected


@pytest.mark.hip
@pytest.mark.slow
@pytest.mark.hours
@pytest.mark.parametrize(
    ("build", "operation"), ROWS, ids=[f"b{build}-{operation.name}" for build, operation in ROWS]
)
def test_operations_are_right_but_for_those_it_names(
    build: int, operation: Operation, upstream: Callable[[int], Upstream], request: pytest.FixtureRequest
) -> None:
    """Some cases of each; all of them with ``--every-case``, which is how the record was made."""
    program = upstream(build)
    rows = [row for row in program.listed(Choice(ops=(operation.name,))) if row.is_supported]
    named = [row.case for row in rows if any(re.search(one, row.params) for one in operation.wrong)]
    others = [row for row in rows if row.case not in set(named)]
    if request.config.getoption("--every-case"):
        chosen = list(dict.fromkeys(row.case for row in others))
    else:
        chosen = list(sample_of(others))
        chosen = chosen[:: max(1, len(chosen) // _CASES)]
    wrong = [found for part in parts_of(chosen) for found in program.wrong(part)]
    assert not wrong, "\n".join(wrong)
    for pattern in operation.wrong:  # one of each: it may end the program
        case = next(row.case for row in rows if re.search(pattern, row.params))
        assert program.wrong((case,)), f"{case} is right now: the record says it is not"
