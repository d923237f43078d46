"""Programs with graphs of ours, run with trees that have some patches of the series and no others."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
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

KERNELS = "ggml/src/ggml-cuda"
_COMMON = f"{KERNELS}/common.cuh"
_FIRST_LINES = b"#pragma once\n\n"


@dataclass(frozen=True)
class GraphsRan:
    """What a program printed, by the first word of each line; launches by kernel; kernels with findings."""

    scenes: Mapping[str, tuple[str, ...]]
    launched: Mapping[str, int]
    blamed: frozenset[str]
    captured: int  # HIP graphs
    ended: int = 0


@dataclass(frozen=True)
class Rule:
    """Where a rule stands, what is there without it, and the scenes that then differ, by what."""

    name: str
    text: str
    without: str
    scenes: tuple[str, ...]
    by: str = "numbers"

    @property
    def switch(self) -> tuple[str, str]:
        """For :func:`with_switches`."""
        return self.text, self.without

    def is_noticed(self, with_all: GraphsRan, after: GraphsRan) -> bool:
        """Whether a scene came out otherwise without it, by what it says."""
        ended = after.ended != 0
        noticed = {
            "end": ended,
            "numbers": not ended and after.scenes != with_all.scenes,
            "checks": bool(after.blamed),
            "launches": not ended and after.launched != with_all.launched,
        }
        return noticed[self.by]

    def assert_noticed(self, run: Callable[..., GraphsRan]) -> None:
        """That it is noticed when it is left out, in what ``run`` runs, and with it nothing is."""
        with_all = run()
        assert with_all.blamed == frozenset()
        after = run(may_fail=True, LEFT_OUT=self.name)
        assert self.is_noticed(with_all, after), after


def assert_right_when_replayed(
    program: Program,
    upstream: GraphsRan,
    tree: Path,
    fork: str,
    *,
    direct: int = 0,
    stale: Collection[str] = (),
) -> None:
    """Every scene as a HIP graph, with upstream's fork of streams or without (``"1"``, ``"0"``).

    ``direct``: how many scenes upstream does not capture. ``stale``: scenes that upstream replays although
    another part of their graph is to be computed.
    """
    after = program.run(tree, has_graphs=True, GGML_CUDA_GRAPH_OPT=fork)
    assert after.captured == len(after.scenes) - direct
    assert {**after.scenes, **dict.fromkeys(stale)} == {**upstream.scenes, **dict.fromkeys(stale)}
    assert after.blamed == frozenset()


def every_scene(rules: Mapping[str, Sequence[Rule]]) -> list[Any]:
    """Each rule of each file with each of its scenes, as parameters of a test."""
    return [
        pytest.param(rule, scene, id=f"{rule.name}-{scene}")
        for of_file in rules.values()
        for rule in of_file
        for scene in rule.scenes
    ]


class Program:
    """A program of graphs on an emulated GPU, with a build of the corpus; it is compiled in ``folder``."""

    def __init__(
        self, source: Path, build: int, *, toolchain: Toolchain, gates_cache: Path, folder: Path
    ) -> None:
        self._source = source
        self._build = build
        self._trees = EmulatedTrees(gates_cache, open_compiler(toolchain, gates_cache, NullReporter()))
        self._folder = folder

    def run(
        self,
        tree: Path | None,
        *scene: str,
        has_graphs: bool = False,
        is_checked: bool = True,
        may_fail: bool = False,
        **variables: str,
    ) -> GraphsRan:
        """Runs it with the HIP backend of a tree (None: upstream's), to a good end unless it ``may_fail``.

        ``has_graphs``: HIP graphs are not switched off, for a tree of :func:`with_hip_graphs`.
        """
        report = self._folder / "report.json"
        options = EmulationOptions(report=report, checks=usual_checks() if is_checked else ())
        built = self._trees.running(self._build, options, programs=("llama-bench",), candidate=tree, whole=())
        with built as side:
            environment = {"PATH": os.environ["PATH"], **side.environment, **variables}
            if has_graphs:
                del environment["GGML_CUDA_DISABLE_GRAPHS"]
            program = compile_with_ggml(self._source, side, self._trees.root(self._build), self._folder)
            done = subprocess.run(
                [program, side.folder, *scene],
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=1800,
            )
        if may_fail and done.returncode != 0:
            return GraphsRan(scenes={}, launched={}, blamed=frozenset(), captured=0, ended=done.returncode)
        assert done.returncode == 0, done.stderr
        found = load_report(report)
        scenes: dict[str, tuple[str, ...]] = {}
        for line in done.stdout.splitlines():
            name, told = line.split(" ", 1)
            scenes[name] = (*scenes.get(name, ()), told)
        launched = Counter[str]()
        for one in found.kernels:
            launched[read_name(one.name).base] += one.launches
        return GraphsRan(
            scenes=scenes,
            launched=launched,
            blamed=frozenset(read_name(one.kernel).base for one in found.findings if not one.note),
            captured=done.stderr.count("CUDA graph warmup complete"),
        )


def compile_with_ggml(program: Path, side: BuiltSide, tree: Path, folder: Path) -> Path:
    """The program, linked with the ggml of a side; made once in ``folder``."""
    made = folder / f"{program.stem}-{side.identity}"
    if not made.is_file():
        includes = [f"-I{tree / name}" for name in ("include", "ggml/include")]
        libraries = [f"-L{side.folder}", "-lggml", "-lggml-base", f"-Wl,-rpath,{side.folder}"]
        argv = ["c++", "-std=c++17", "-O1", *includes, str(program), *libraries, "-o", str(made)]
        subprocess.run(argv, check=True, timeout=600)
    return made


def tree_with(
    patch: str | None,
    build: int,
    *,
    needs: Sequence[str] = (),
    test_cache: Path,
    gates_cache: Path,
    folder: Path,
) -> Path:
    """The tree of a build with this patch and those it ``needs``; the series is copied to ``folder``.

    Without a patch: with all that ``--trust modelled`` has for the GPU.
    """
    series = folder / "series"
    for name in ("patches", "templates", "arch_profiles"):
        shutil.copytree(ROOT / name, series / name)
    shutil.copy(CORPUS, series / "patches" / "upstream.lock")
    cache = test_cache / "corpus"
    where = ("--series-dir", series, "--cache-dir", cache, "--upstream", f"b{build}", "--arch", ARCH)
    with FileLock(test_cache / "corpus.lock"):
        asked = () if patch is None else (*needs, patch)
        named = [part for name in asked for part in ("--with", name, "--only", name)] or [
            "--trust",
            "modelled",
        ]
        done = run_patchkit("apply", *where, *named, "--unlocked", "--json")
        assert done.returncode == 0, done.stderr
        repository = open_cache(cache).peek(NullReporter())
        assert repository is not None
        tip = json.loads(done.stdout)["commits"][-1]["commit"]
        return export_tree(repository, tip, gates_cache / "trees").root


def with_hip_graphs(tree: Path, changed: Mapping[str, bytes] | None = None) -> Path:
    """The tree with HIP graphs, without which upstream forks nothing, and ``changed`` files; all compiled."""
    common = (tree / _COMMON).read_bytes()
    # On an empty line: code objects of kernels have line numbers, and are those that are there already.
    assert common.startswith(_FIRST_LINES)
    common = common.replace(_FIRST_LINES, b"#pragma once\n#define GGML_HIP_GRAPHS\n", 1)
    return overlay_tree(tree, {**(changed or {}), _COMMON: common}, "graphs", below=".")


def with_switches(text: str, rules: Mapping[str, tuple[str, str]]) -> bytes:
    """Host code in which the variable LEFT_OUT names rules that do not hold, by commas: one build for all.

    ``rules``: where each stands, once, and what is there without it, by name.
    """
    for name, (rule, without) in rules.items():
        assert text.count(rule) == 1, rule
        text = text.replace(rule, f'(is_left_out("{name}") ? {without} : {rule})')
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
    included = text.rindex("#include <")
    return f"{text[:included]}{question}{text[included:]}".encode()
