"""Results by the files that a pass opened: what is not done again, and that nothing stale is ever taken."""

from __future__ import annotations

import random
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from patchkit.base.errors import ToolchainError
from patchkit.base.reporter import NullReporter
from patchkit.prove.verify.timings import Stopwatch
from patchkit.toolchain.compile import Job, compile_unit
from patchkit.toolchain.compiler import open_compiler
from patchkit.toolchain.hip import Toolchain
from patchkit.toolchain.preprocess import Reading, head_digest, reading_digest
from patchkit.toolchain.units import SourceTree

pytestmark = pytest.mark.hip

FOLDER = "ggml/src/ggml-cuda"
FILES = {
    "unit.cu": '#include "head.cuh"\nint unit[ROWS + COLUMNS];\n',
    "head.cuh": """\
#pragma once
/* of all
   GPUs */
#define COLUMNS 2
int before = 7; // and so on
#if defined(TUNED)
#include "rows.cuh"
#else
#define ROWS \\
    4
#endif
#if ROWS > 8
#include "many.cuh"
#endif
""",
    "rows.cuh": "// rows\n#define ROWS 8\nint rows = 64;\n",
    "many.cuh": "int many = 1;\n",
}
TUNED = ("-DTUNED",)
LANGUAGE = ("-x", "c++", "-nostdinc")


@dataclass
class World:
    """One store, and a tree for each set of files."""

    folder: Path
    toolchain: Toolchain
    watch: Stopwatch = field(default_factory=lambda: Stopwatch(NullReporter()))
    count: int = 0

    def tree(self, changed: Mapping[str, str]) -> SourceTree:
        self.count += 1
        root = self.folder / f"tree {self.count}"  # a name that make quotes
        (root / FOLDER).mkdir(parents=True)
        for name, text in {**FILES, **changed}.items():
            (root / FOLDER / name).write_text(text)
        return SourceTree(root)

    def read(self, changed: Mapping[str, str], flags: tuple[str, ...], cache: str = "cache") -> list[str]:
        """The digests of the unit, whole and by its head; what clang refuses is a digest of its own."""
        flags = (*LANGUAGE, *flags) if "-x" not in flags else flags
        reading = Reading(tree=self.tree(changed), unit=f"{FOLDER}/unit.cu", flags=flags, name="test")
        compiler = open_compiler(self.toolchain, self.folder / cache, self.watch)
        found = []
        for read in (reading_digest, head_digest):
            try:
                found.append(str(read(reading, compiler)))
            except ToolchainError:  # also of an include that a macro names
                found.append("refused")
        return found

    def runs(self) -> int:
        """Of the tools since the stage began."""
        return sum(each.tools for each in self.watch.stages[-1].spent if each.work != "patchkit")


@pytest.fixture
def world(tmp_path: Path, hip_toolchain: Toolchain) -> World:
    return World(tmp_path, hip_toolchain)


def _with(name: str, old: str, new: str) -> dict[str, str]:
    assert old in FILES[name]
    return {name: FILES[name].replace(old, new)}


@pytest.mark.parametrize(
    ("changed", "flags", "runs"),
    [
        ({}, (), 0),
        (_with("rows.cuh", "64", "32"), (), 0),
        (_with("rows.cuh", "64", "32"), TUNED, 2),
        (_with("many.cuh", "1", "2"), TUNED, 0),
        (_with("head.cuh", "before = 7", "before = 8"), (), 2),
        (_with("rows.cuh", "ROWS 8", "ROWS 6"), (), 2),  # a directive: who knows what it opens
    ],
)
def test_only_what_a_pass_opened_makes_it_run_again(
    world: World, changed: dict[str, str], flags: tuple[str, ...], runs: int
) -> None:
    first = world.read({}, flags)
    with world.watch.stage("again"):
        again = world.read(changed, flags)
    assert world.runs() == runs
    assert (again == first) is (not runs or changed == _with("rows.cuh", "ROWS 8", "ROWS 6"))


@pytest.mark.parametrize(
    "flags",
    [
        ("-x", "hip", "--offload-arch=gfx1100", "--cuda-device-only", "-nogpuinc", "-nogpulib"),
        ("-x", "hip", "--offload-arch=gfx1100", "--cuda-host-only", "-nogpuinc", "-nogpulib"),
        ("-x", "cuda", "--cuda-gpu-arch=sm_70", "--cuda-device-only", "-nocudainc", "-nocudalib"),
        ("-x", "cuda", "--cuda-gpu-arch=sm_70", "--cuda-host-only", "-nocudainc", "-nocudalib"),
    ],
    ids=["hip device", "hip host", "cuda device", "cuda host"],
)
def test_every_kind_of_pass_says_what_it_opens(world: World, flags: tuple[str, ...]) -> None:
    first = world.read({}, flags)
    with world.watch.stage("again"):
        assert world.read(_with("rows.cuh", "64", "32"), flags) == first
    assert world.runs() == 0


@pytest.mark.parametrize(
    ("changed", "flags"),
    [
        (_with("rows.cuh", "ROWS 8", "ROWS 9"), TUNED),  # many.cuh is opened now
        (_with("head.cuh", "7; //", "7; /*"), ()),  # hides the directives down to the next end of a comment
        (_with("head.cuh", "and so on", "and so on \\"), TUNED),  # hides the next line
        (_with("head.cuh", "GPUs */", "GPUs"), ()),
        (_with("head.cuh", "    4", "    9"), ()),  # the rest of a directive
        (_with("head.cuh", "of all", 'of all */ char *s = R"(/*'), ()),
        (_with("head.cuh", "int before", "??=define ROWS 9\nint before"), TUNED),
        (_with("head.cuh", "int before", "%:define TUNED\nint before"), ()),
        (_with("unit.cu", "int unit", "#define ROWS 1\nint unit"), ()),
    ],
)
def test_a_change_of_what_is_opened_is_never_missed(
    world: World, changed: dict[str, str], flags: tuple[str, ...]
) -> None:
    before = world.read({}, flags)
    after = world.read(changed, flags)
    assert after == world.read(changed, flags, cache="empty")
    assert after[0] != before[0] or after[1] != before[1] or after[0] == "refused"


def test_a_macro_that_changes_outside_of_directives_is_seen(world: World) -> None:
    head = """\
#define PICK
#pragma push_macro("PICK")
#undef PICK
int before;
#ifdef PICK
#include "many.cuh"
#endif
#define ROWS 1
#define COLUMNS 1
"""
    back = head.replace("before;", 'before; _Pragma("pop_macro(\\"PICK\\")")')
    assert world.read({"head.cuh": head}, ())[0] != world.read({"head.cuh": back}, ())[0]


def test_no_change_of_a_character_gives_a_stale_reading(world: World) -> None:
    """All in one store, each against an empty one; the changes are drawn with a fixed seed."""
    draw = random.Random(43)
    for _ in range(60):
        name = draw.choice(sorted(FILES))
        at = draw.randrange(len(FILES[name]))
        new = draw.choice(["", "/*", "*/", "\\\n", "\n", "#", '"', "9", " ", "x", "//"])
        changed = {name: FILES[name][:at] + new + FILES[name][at + draw.randrange(2) :]}
        flags = draw.choice([(), TUNED])
        assert world.read(changed, flags) == world.read(changed, flags, cache="empty"), changed
        shutil.rmtree(world.folder / "empty", ignore_errors=True)


@pytest.mark.parametrize("flags", [(), TUNED])
def test_a_unit_that_includes_from_the_folder_above_goes_by_what_it_opened(
    world: World, flags: tuple[str, ...]
) -> None:
    above = '#include "../head.cuh"\n#undef COLUMNS\nint unit = ROWS;\n'  # a directive: no head is shared

    def read(changed: Mapping[str, str]) -> str:
        tree = world.tree(changed)
        (tree.root / FOLDER / "below").mkdir()
        (tree.root / FOLDER / "below/unit.cu").write_text(above)
        reading = Reading(
            tree=SourceTree(tree.root),
            unit=f"{FOLDER}/below/unit.cu",
            flags=(*LANGUAGE, *flags),
            name="test",
        )
        return reading_digest(reading, open_compiler(world.toolchain, world.folder / "cache", world.watch))

    first = read({})
    for changed, is_seen in (
        (_with("rows.cuh", "64", "32"), bool(flags)),
        (_with("many.cuh", "1", "2"), False),
        (_with("head.cuh", "before = 7", "before = 8"), True),
    ):
        with world.watch.stage("again"):
            assert (read(changed) != first) is is_seen
        assert world.runs() == int(is_seen)


def test_a_file_that_comes_in_between_is_seen(world: World) -> None:
    """The name of a header can mean a nearer file: all that is reachable stands in the key of the list."""
    text = {"unit.cu": '#include "far.h"\nint unit;\n'}

    def read(tree: SourceTree) -> str:
        flags = ("-x", "c++", "-nostdinc")
        reading = Reading(tree=tree, unit=f"{FOLDER}/unit.cu", flags=flags, name="test")
        return reading_digest(reading, open_compiler(world.toolchain, world.folder / "cache", world.watch))

    far, near = world.tree(text), world.tree({**text, "far.h": "int near;\n"})
    for tree in (far, near):
        (tree.root / "ggml/src/far.h").write_text("int far;\n")
    assert read(far) != read(near)


@pytest.mark.parametrize("has_head", [False, True], ids=["by itself", "behind a head"])
def test_the_front_end_goes_by_what_it_opened(world: World, *, has_head: bool) -> None:
    rest = "" if has_head else "#undef COLUMNS\n"
    unit = '#include "head.cuh"\n' + rest + "__global__ void unit(float * x) { *x = ROWS; }\n"
    compiler = open_compiler(world.toolchain, world.folder / "cache", world.watch)

    def compiled(flags: tuple[str, ...], changed: Mapping[str, str]) -> tuple[str, bool]:
        tree = world.tree({"unit.cu": unit, **changed})
        job = Job(tree=tree, unit=f"{FOLDER}/unit.cu", arch="gfx1151", which="device", flags=flags)
        made = compile_unit(job, compiler)
        return made.key, made.cached

    for flags in ((), TUNED):
        compiled(flags, {})
    other = _with("rows.cuh", "64", "32")
    assert compiled((), other) == (compiled((), {})[0], True)
    assert not compiled(TUNED, other)[1]
    more = _with("rows.cuh", "ROWS 8", "ROWS 6")
    assert compiled(TUNED, more)[0] != compiled(TUNED, {})[0]
