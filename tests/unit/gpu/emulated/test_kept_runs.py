"""Runs that are taken again: when they are, and every change that forbids it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from patchkit.base.reporter import NullReporter
from patchkit.base.store import Store
from patchkit.gpu.emulated.emulator import UNITS, DeviceUnits
from patchkit.gpu.emulated.kept_runs import KeptRuns, obtain_by_units
from patchkit.gpu.hardware.program import ProgramRun, RunContext, run_program
from patchkit.toolchain.units import SourceTree

# Asks for the units that its arguments name, as the runtime does, and says how often it ran.
PROGRAM = """\
import os, socket, sys
from pathlib import Path
with open(os.environ["RAN"], "a") as ran:
    ran.write("x")
for unit in sys.argv[2].split(","):
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(os.environ["PATCHKIT_EMULATOR_SERVER"])
        server.sendall(f"{unit}\\t{os.environ['PATCHKIT_EMULATOR_UNITS']}\\n".encode())
        assert server.makefile().readline() == f"ok {unit}\\n"
    print(unit, (Path(os.environ["PATCHKIT_EMULATOR_UNITS"]) / unit).read_text(), __file__)
Path(sys.argv[1]).write_bytes(b"\\x00output")
if "PATCHKIT_EMULATOR_REPORT" in os.environ:
    Path(os.environ["PATCHKIT_EMULATOR_REPORT"]).write_text(os.environ["SAYS"])
print("said", file=sys.stderr)
sys.exit(int(os.environ.get("STATUS", "0")))
"""
CLEAN = {"kernels": [], "fault": None}  # as the runtime writes it where nothing was found


class _Units(DeviceUnits):
    """Code of units is a text, which a test may change."""

    def __init__(self, tree: Path, folder: Path) -> None:
        super().__init__(SourceTree(tree), "gfx1151", None, folder)

    def key(self, unit: str) -> str:
        return self._keys.setdefault(unit, f"key of {(self.tree / unit).read_text()}")

    def _unit(self, unit: str) -> Path:
        return self.tree / unit


@dataclass
class World:
    """A cache with a program, a tree with two units, and a place for runs."""

    root: Path
    code: dict[str, str] = field(default_factory=lambda: {"a": "code of a", "b": "code of b"})
    identity: str = "side on gpu"
    status: str = "0"
    says: Mapping[str, object] | None = None
    fresh: bool = False

    @property
    def ran(self) -> int:
        """How often the program ran."""
        file = self.root / "ran"
        return len(file.read_text()) if file.exists() else 0

    @property
    def place(self) -> Path:
        return self.root / "cache" / "evidence" / "run"

    def run(self, units: str = "a", *words: str, name: str = "one") -> ProgramRun:
        for unit, code in self.code.items():
            (self.root / "tree" / unit).write_text(code)
        cache = self.root / "cache"
        (self.place / f"{name}.bin").unlink(missing_ok=True)
        found = _Units(self.root / "tree", self.root / "units")
        store = Store(root=cache / "recorder" / "kept")
        kept = KeptRuns(identity=self.identity, units=found, store=store, is_fresh=self.fresh)
        env = {"RAN": str(self.root / "ran"), "STATUS": self.status}
        if self.says is not None:
            report = self.root / "report"
            env |= {"PATCHKIT_EMULATOR_REPORT": str(report), "SAYS": json.dumps(self.says)}
        with found.served() as variables:
            return run_program(
                name,
                ["python3", str(cache / "program.py"), str(self.place / f"{name}.bin"), units, *words],
                place=RunContext(folder=self.place, reporter=NullReporter()),
                env={**env, **variables},
                timeout_s=60.0,
                accept=frozenset({0, 1}),
                kept=kept,
            )


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "program.py").write_text(PROGRAM)
    (tmp_path / "tree").mkdir()
    return World(tmp_path)


def test_a_run_is_taken_again_with_all_that_it_left(world: World) -> None:
    world.says = CLEAN
    first = world.run()
    left = (first.text(), first.talk(), (world.place / "one.bin").read_bytes())
    (world.root / "report").unlink()
    again = world.run()
    assert (world.ran, first.is_kept, again.is_kept) == (1, False, True)
    assert (again.text(), again.talk(), (world.place / "one.bin").read_bytes()) == left
    assert json.loads((world.root / "report").read_text()) == CLEAN
    assert json.loads((world.place / "one.json").read_text())["state"] == "reused"


def test_another_name_and_another_cache_folder_take_it_too(world: World, tmp_path: Path) -> None:
    world.run()
    (tmp_path / "cache").rename(tmp_path / "moved")
    (tmp_path / "cache").symlink_to(tmp_path / "moved")
    assert world.run().is_kept
    assert str(tmp_path / "cache" / "program.py") in world.run().text()


def test_code_that_it_never_asks_for_may_change(world: World) -> None:
    world.run("a")
    world.code["b"] = "other code"
    assert world.run("a").is_kept


@pytest.mark.parametrize(
    "change",
    [
        lambda world: world.code.update(a="other code"),
        lambda world: setattr(world, "identity", "another side"),
        lambda world: setattr(world, "fresh", True),
    ],
    ids=["its code", "its side", "fresh"],
)
def test_what_it_executes_runs_again_when_it_changed(world: World, change) -> None:
    world.run("a,b")
    change(world)
    again = world.run("a,b")
    assert (world.ran, again.is_kept) == (2, False)
    assert world.code["a"] in again.text()


def test_code_that_comes_back_is_known(world: World) -> None:
    world.run()
    world.code["a"] = "other code"
    world.run()
    world.code["a"] = "code of a"
    again = world.run()
    assert (world.ran, again.is_kept) == (2, True)
    assert "code of a" in again.text()


@pytest.mark.parametrize("words", [("more",), ("/etc/hostname",)], ids=["arguments", "a file elsewhere"])
def test_another_command_runs(world: World, words: Sequence[str]) -> None:
    world.run()
    assert not world.run("a", *words).is_kept
    assert world.run("a", *words).is_kept == (words == ("more",))


def test_an_input_that_changed_makes_another_run(world: World) -> None:
    world.place.mkdir(parents=True)
    cases = world.place / "cases"
    cases.write_text("one")
    world.run("a", str(cases))
    assert world.run("a", str(cases)).is_kept
    cases.write_text("two")
    assert not world.run("a", str(cases)).is_kept


@pytest.mark.parametrize(
    "says",
    [
        {**CLEAN, "findings": [{"kind": "race"}]},
        {**CLEAN, "fault": "a wave never ends"},
        {**CLEAN, "processes": 2},
        {},
    ],
    ids=["a finding", "a fault", "more processes", "no report"],
)
def test_what_did_not_end_well_is_not_kept(world: World, says: Mapping[str, object]) -> None:
    world.says = says
    world.run()
    assert not world.run().is_kept


def test_a_failed_case_is_not_kept(world: World) -> None:
    world.status = "1"
    assert world.run().status == 1
    assert not world.run().is_kept


def test_a_damaged_entry_is_none(world: World) -> None:
    world.run()
    for path in (world.root / "cache" / "recorder").rglob("err"):
        path.unlink()
    assert not world.run().is_kept
    assert world.ran == 2


def test_a_program_may_not_name_a_folder_elsewhere(world: World, tmp_path: Path) -> None:
    (tmp_path / "tree" / "a").write_text("code")
    units = _Units(tmp_path / "tree", tmp_path / "units")
    for folder in (tmp_path, tmp_path / "units" / "..", tmp_path / "units" / "other"):
        assert units.answer("a", folder) == f"{folder} is not a folder for device code"
    assert UNITS == "PATCHKIT_EMULATOR_UNITS"


def test_what_a_run_leaves_is_found_by_the_code_it_asked_for(world: World, tmp_path: Path) -> None:
    ran = []

    def obtain() -> Path:
        for unit, code in world.code.items():
            (tmp_path / "tree" / unit).write_text(code)
        units = _Units(tmp_path / "tree", tmp_path / "units")

        def run(folder: Path, variables: Mapping[str, str]) -> None:
            assert units.answer("a", Path(variables[UNITS])) == "ok a"
            (folder / "trace").write_text(world.code["a"])
            ran.append(folder)

        with units.served():
            return obtain_by_units(Store(root=tmp_path / "store"), "00key", units, run)

    first = obtain()
    world.code["b"] = "other code"
    assert obtain() == first
    world.code["a"] = "other code"
    second = obtain()
    assert (len(ran), (first / "trace").read_text()) == (2, "code of a")
    assert (second / "trace").read_text() == "other code"
    assert not any(folder.exists() for folder in ran)
