"""Patches of kernels, and the program of scenes that runs on trees with them."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from command_line import run_patchkit
from emulated_trees import ARCH, CORPUS, ROOT, EmulatedTrees
from filelock import FileLock

from patchkit.base.reporter import NullReporter
from patchkit.carry.upstream.cache import open_cache
from patchkit.carry.upstream.exported import export_tree
from patchkit.gpu.emulated.checks import usual_checks
from patchkit.gpu.emulated.emulator import EmulationOptions, load_report
from patchkit.gpu.emulated.names import read_name
from patchkit.toolchain.compiler import open_compiler
from patchkit.toolchain.hip import Toolchain
from patchkit.toolchain.sides import BuiltSide
from patchkit.toolchain.tree import overlay_tree

BUILD = 11549
KERNELS = "ggml/src/ggml-cuda"
UNFUSED = {"GGML_CUDA_DISABLE_FUSION": "1"}
_PROGRAM = ROOT / "tests" / "upstream" / "scenes" / "scenes.cpp"


@dataclass(frozen=True)
class Ran:
    """Lines that the program printed, by scene; launches by kernel; kernels with findings."""

    scenes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    launched: Mapping[str, int] = field(default_factory=dict)
    blamed: frozenset[str] = frozenset()
    captured: int = 0  # HIP graphs
    ended: int = 0

    def wrong(self, right: Callable[[], Ran]) -> list[str]:
        """Scenes whose error is too large, or whose bits are not those of ``right``."""
        bits = {
            name: lines for name, lines in self.scenes.items() if not lines[0].startswith(("right", "wrong"))
        }
        others = [name for name in self.scenes.keys() - bits if not self.scenes[name][0].startswith("right")]
        expected = right().scenes if bits else {}
        return sorted([*others, *(name for name in bits if bits[name] != expected[name])])


@dataclass(frozen=True)
class Rule:
    """Text of a patched file, what replaces it where the rule is left out, and the scenes that then differ.

    Of a text with ``=``, only what is assigned is replaced. ``by``: what differs, ``numbers``, ``launches``,
    findings of the ``checks``, or how the program ``end``s.
    """

    name: str
    text: str
    without: str
    scenes: tuple[str, ...]
    by: str = "numbers"

    def is_noticed(self, with_all: Ran, after: Ran) -> bool:
        """Whether a scene came out otherwise without the rule, by what it names."""
        ended = after.ended != 0
        noticed = {
            "end": ended,
            "numbers": not ended and after.scenes != with_all.scenes,
            "checks": bool(after.blamed),
            "launches": not ended and after.launched != with_all.launched,
        }
        return noticed[self.by]


@dataclass(frozen=True, kw_only=True, eq=False)
class KernelPatch:
    """A row of the table: a patch, how its scenes are to come out, and which rules they hold it to."""

    name: str
    needs: tuple[str, ...] = ()
    rounds: int = 5  # in which a scene is computed: 1 where its results are compared with exact ones
    # A kernel is launched once a round in each scene whose name begins as the pattern says, and `more` times.
    kernels: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, int] = field(default_factory=dict)
    has_upstreams_launches: bool = False
    # Launches of quantization that a round of a scene has less than upstream's.
    spared: Mapping[str, int] = field(default_factory=dict)
    rules: Mapping[str, Sequence[Rule]] = field(default_factory=dict)  # of host code, by file
    together: Sequence[tuple[str, str]] = ()  # rules that protect a scene together, and the scene
    is_replayed: bool = False  # as HIP graphs
    not_captured: int = 0  # scenes that wait for the host
    stale: frozenset[str] = frozenset()  # upstream replays these although other nodes are to be computed
    is_quick: bool = False  # CI runs it

    def expected(self, scenes: Collection[str]) -> dict[str, int]:
        """Launches of the kernels that the patch is about."""
        return {
            kernel: self.rounds
            * (sum(re.match(pattern, name) is not None for name in scenes) + self.more.get(kernel, 0))
            for kernel, pattern in self.kernels.items()
        }


class SceneTrees:
    """Trees with patches of kernels, made once, and the program of scenes, which is compiled once."""

    def __init__(self, toolchain: Toolchain, *, test_cache: Path, gates_cache: Path, folder: Path) -> None:
        self._trees = EmulatedTrees(gates_cache, open_compiler(toolchain, gates_cache, NullReporter()))
        self._test_cache = test_cache
        self._gates_cache = gates_cache
        self._folder = folder
        self.tree_with = functools.cache(self._tree_with)
        self.with_switches = functools.cache(self._with_switches)
        self.before = functools.cache(self._before)

    def run(
        self,
        tree: Path | None,
        patch: str,
        *scenes: str,
        has_graphs: bool = False,
        is_checked: bool = True,
        may_fail: bool = False,
        **variables: str,
    ) -> Ran:
        """Computes scenes of a patch with the HIP backend of a tree (None: upstream's).

        ``may_fail``: the program may end with an error.
        ``has_graphs``: HIP graphs are not switched off. Without them, upstream forks no streams.
        """
        report = self._folder / "report.json"
        options = EmulationOptions(report=report, checks=usual_checks() if is_checked else ())
        built = self._trees.running(BUILD, options, programs=("llama-bench",), candidate=tree, whole=())
        with built as side:
            environment = {**environment_with_ggml(side), **variables}
            if has_graphs:
                del environment["GGML_CUDA_DISABLE_GRAPHS"]
            program = compile_with_ggml(_PROGRAM, side, self._trees.root(BUILD), self._folder)
            done = subprocess.run(
                [program, side.folder, patch, *scenes],
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=3600,
            )
        if may_fail and done.returncode != 0:
            return Ran(ended=done.returncode)
        assert done.returncode == 0, done.stderr
        found = load_report(report)
        printed: dict[str, tuple[str, ...]] = {}
        for line in done.stdout.splitlines():
            name, rest = line.split(" ", 1)
            printed[name] = (*printed.get(name, ()), rest)
        launched = Counter[str]()
        for one in found.kernels:
            launched[read_name(one.name).base] += one.launches
        return Ran(
            scenes=printed,
            launched=launched,
            blamed=frozenset(read_name(one.kernel).base for one in found.findings if not one.note),
            captured=done.stderr.count("CUDA graph warmup complete"),
        )

    def _before(self, patch: KernelPatch) -> Ran:
        """The scenes of a patch with the results that they are to have."""
        return self.run(None, patch.name)

    def _tree_with(self, *patches: str, build: int = BUILD) -> Path:
        """The tree with these patches alone; without any, with all that ``--trust modelled`` has."""
        series = self._folder / "-".join(("series", str(build), *patches))
        for name in ("patches", "templates", "arch_profiles"):
            shutil.copytree(ROOT / name, series / name)
        shutil.copy(CORPUS, series / "patches" / "upstream.lock")
        cache = self._test_cache / "corpus"
        where = ("--series-dir", series, "--cache-dir", cache, "--upstream", f"b{build}", "--arch", ARCH)
        named = [part for name in patches for part in ("--with", name, "--only", name)]
        with FileLock(self._test_cache / "corpus.lock"):
            done = run_patchkit("apply", *where, *(named or ("--trust", "modelled")), "--unlocked", "--json")
            assert done.returncode == 0, done.stderr
            commits = json.loads(done.stdout)["commits"]
            # The switches come with any patch that has one.
            made = {commit["id"] for commit in commits} - {"patch-switches"}
            assert not patches or made == set(patches)
            repository = open_cache(cache).peek(NullReporter())
            assert repository is not None
            return export_tree(repository, commits[-1]["commit"], self._gates_cache / "trees").root

    def tree(self, patch: KernelPatch) -> Path:
        """The tree with a patch and what it needs."""
        return self.tree_with(*patch.needs, patch.name)

    def _with_switches(self, patch: KernelPatch) -> Path:
        """The same, in which the variable LEFT_OUT names rules of the patch that do not hold."""
        tree = self.tree(patch)
        changed = {
            f"{KERNELS}/{name}": _with_switches((tree / KERNELS / name).read_text("utf-8"), rules)
            for name, rules in patch.rules.items()
        }
        return overlay_tree(tree, changed, "left-out", below=".")


def compile_with_ggml(program: Path, side: BuiltSide, tree: Path, folder: Path) -> Path:
    """The program, for the ggml that all sides of a tree have; made once in ``folder``."""
    made = folder / f"{program.stem}-{tree.name}"
    if not made.is_file():
        includes = [f"-I{tree / name}" for name in ("include", "ggml/include")]
        libraries = [f"-L{side.folder}", "-lggml", "-lggml-base"]
        argv = ["c++", "-std=c++20", "-O1", *includes, str(program), *libraries, "-o", str(made)]
        subprocess.run(argv, check=True, timeout=600)
    return made


def environment_with_ggml(side: BuiltSide) -> dict[str, str]:
    """Variables with which such a program runs with the libraries of a side."""
    paths = (side.environment["LD_LIBRARY_PATH"], str(side.folder))
    return {"PATH": os.environ["PATH"], **side.environment, "LD_LIBRARY_PATH": ":".join(paths)}


def _with_switches(text: str, rules: Sequence[Rule]) -> bytes:
    """Host code in which the variable LEFT_OUT names rules that do not hold, by commas: one build for all."""
    for rule in rules:
        assert text.count(rule.text) == 1, rule
        assigned, equals, condition = rule.text.rpartition(" = ")
        text = text.replace(
            rule.text, f'{assigned}{equals}(is_left_out("{rule.name}") ? {rule.without} : {condition})'
        )
    question = (
        "#include <cstdlib>\n#include <cstring>\n#ifndef IS_LEFT_OUT\n#define IS_LEFT_OUT\n"
        "inline bool is_left_out(const char * rule) {\n"
        '    const char * named = std::getenv("LEFT_OUT");\n'
        "    const size_t length = std::strlen(rule);\n"
        "    for (const char * at = named; at != nullptr; at = std::strchr(at, ',')) {\n"
        "        at += *at == ',';\n"
        "        if (std::strncmp(at, rule, length) == 0 && (at[length] == ',' || at[length] == 0)) {\n"
        "            return true;\n        }\n    }\n    return false;\n}\n#endif\n"
    )
    included = text.rfind("#include <")
    if included < 0:  # a header of ours alone
        included = text.rindex('#include "')
    return f"{text[:included]}{question}{text[included:]}".encode()
