"""When the earlier result of a gate is reused, and when it is not."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from patchkit.base.errors import GateError
from patchkit.base.reporter import NullReporter
from patchkit.base.series_folder import SeriesDir
from patchkit.base.store import Store
from patchkit.base.workspace import Workspace
from patchkit.prove.gates.base import GateResult
from patchkit.prove.gates.compile import CompileEvidence
from patchkit.prove.verify.kept import Kept, key_of_run

ROOT = Path(__file__).resolve().parents[4]


@dataclass
class Gate:
    """Counts how often it ran."""

    verdict: str = "passed"
    name: str = "compile"
    runs: list[object] = field(default_factory=list)

    def run(self, subject: object) -> GateResult:
        self.runs.append(subject)
        problems = (GateError("wrong", hint="look"),) if self.verdict == "failed" else ()
        return GateResult(
            gate=self.name,
            verdict=self.verdict,  # type: ignore[arg-type]
            summary="all of them",
            problems=problems,
            evidence=CompileEvidence(passes=()),
            not_run=("linking",),
            lines=("a line",),
        )


class World:
    """Runs a gate as verify does."""

    def __init__(self, folder: Path) -> None:
        self.store, self.gate = Store(root=folder), Gate()

    def run(self, key: str = "k", *, fresh: bool = False) -> GateResult:
        kept = Kept(inner=self.gate, key=key, store=self.store, fresh=fresh)  # type: ignore[arg-type]
        return kept.run(SimpleNamespace())  # type: ignore[arg-type]

    @property
    def count(self) -> int:
        return len(self.gate.runs)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_pass_is_taken_again_and_says_so_once(world: World) -> None:
    first, second, third = (world.run() for _ in range(3))
    assert world.count == 1
    assert (
        second
        == third
        == replace(first, summary=f"{first.summary}; reused: nothing that it checks has changed")
    )


@pytest.mark.parametrize("verdict", ["failed", "not run"])
def test_only_a_pass_is_taken_again(world: World, verdict: str) -> None:
    world.gate.verdict = verdict
    world.run()
    world.run()
    assert world.count == 2


def test_another_key_or_a_fresh_run_runs_it(world: World) -> None:
    world.run("k")
    world.run("other")
    world.run("other", fresh=True)
    assert world.count == 3


def test_a_fresh_run_that_fails_takes_the_earlier_pass_away(world: World) -> None:
    world.run()
    world.gate.verdict = "failed"
    world.run(fresh=True)
    world.gate.verdict = "passed"
    world.run()
    assert world.count == 3


def test_a_text_that_is_no_result_is_made_anew(world: World) -> None:
    world.run()
    (entry,) = world.store.root.glob("??/*")
    world.store.write(entry.name, b"{}")
    world.run()
    assert world.count == 2


@pytest.fixture
def key(tmp_path: Path):
    """The key of a run in which one thing is another."""
    series = tmp_path / "series"
    for name in ("patches", "templates", "arch_profiles"):
        (series / name).mkdir(parents=True)
        (series / name / "file.toml").write_text("x = 1\n")
    subject = SimpleNamespace(
        reporter=NullReporter(),
        baseline_tree="b" * 40,
        candidate_tree="c" * 40,
        build=6900,
        archs=("gfx1151",),
        patches=(SimpleNamespace(commit="d" * 40),),
        toolchain=None,
    )

    def of(*, full: bool = False, text: tuple[str, str] | None = None, **other: object) -> str:
        if text is not None:
            (series / text[0] / "file.toml").write_text(text[1])
        changed = SimpleNamespace(**{**vars(subject), **other})
        workspace = Workspace(
            series=SeriesDir(root=series, origin="checkout"), cache_root=tmp_path, reporter=NullReporter()
        )
        return key_of_run(changed, workspace, full=full)  # type: ignore[arg-type]

    return of


@pytest.mark.parametrize(
    "change",
    [
        {"full": True},
        {"baseline_tree": "e" * 40},
        {"candidate_tree": "e" * 40},
        {"archs": ("gfx1151", "gfx1100")},
        {"patches": ()},
        *({"text": (name, "x = 2\n")} for name in ("patches", "templates", "arch_profiles")),
    ],
    ids=["full", "baseline", "candidate", "archs", "commits", "patches", "templates", "profiles"],
)
def test_whatever_a_gate_can_see_is_in_the_key(key, change: dict[str, Any]) -> None:
    before = key()
    assert key() == before
    assert key(**change) != before
