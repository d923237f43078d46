"""Which conditions of the patches' host code the gate ``graphs`` needs: a mutation table.

Every condition of a patch's host code is replaced by true or false, one at a time: operands of ``&&`` and
``||``, and whole conditions of ``if``. All of them are in one build, where the environment variable
``GGML_MUTANT`` selects one, so the candidate is compiled once. Each mutant computes the same graphs on the
emulated GPU as the unchanged candidate, and is listed with what happened:

    wrong         results are further from the CPU than the gate allows, the program crashed, or it used a
                  patch that GGML_PATCHES_OFF should turn off
    bits          results have other bits, within the gate's bound
    checks        with --checks: the results are the same, and the checks of the emulated GPU report a fault
                  that the candidate does not have, such as a read past the end of memory
    same          the condition decided otherwise at least once, and the results are the same. Often that is
                  equivalent: without a fusion, upstream's kernels compute the same results
    not reached   with these graphs the condition always decided alone as the mutant does

    patchkit apply --arch gfx1151 --trust modelled
    python benchmarks/condition_mutants.py --only fuse-norm-q8-1 --graphs 40 --out mutants.json

``--list`` prints the mutants without running any, ``--mutants 12,13`` runs these only, and ``--graph FILE``
computes the graph of a JSON file in place of the others.

With ``--reach`` one run of the graphs lists all mutants that would have changed a condition (``reached``),
with the first graph that did, and those that never would (``not reached``). It takes as long as one mutant,
and is the way to see which conditions the graphs do not exercise. Graphs that need HIP graphs or environment
variables are left out.

The candidate is the one that ``patchkit apply`` made for the default build.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import random
import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from device_mutations import operands
from emulated_candidate import emulated_candidate

from patchkit.base.source import SourceText
from patchkit.carry.cpp.lexer import Token
from patchkit.carry.cpp.scopes import parse_scopes
from patchkit.gpu.hardware.driver_build import build_driver
from patchkit.gpu.hardware.graphs.description import Compared, Graph, read_graph
from patchkit.gpu.hardware.graphs.patterns import pattern_graphs
from patchkit.gpu.hardware.graphs.running import DRIVER, Computed, by_environment, differing, run_graphs
from patchkit.gpu.hardware.graphs.usable import is_usable
from patchkit.gpu.hardware.graphs.vary import VARIATIONS, random_graphs, switched_off
from patchkit.gpu.hardware.graphs.vary_nodes import apply
from patchkit.gpu.hardware.program import RunContext
from patchkit.prove.build import Machine
from patchkit.prove.gates.graphs.comparing import used_although_off
from patchkit.prove.gates.graphs.gate import stored_graphs
from patchkit.prove.gates.graphs.judging import Claims, claims_of, compare
from patchkit.prove.gates.operations import Runs
from patchkit.prove.gates.sides import sides_on
from patchkit.prove.subject import Subject
from patchkit.toolchain.tree import overlay_tree

HEADER = "mutants.cuh"
SWITCH = "GGML_MUTANT"
_TIMEOUT_S = 900.0
NOT_OFF = "a patch that is off was used\n"
REACH = -1
"""In place of a mutant's number: no condition changes, and each mutant that would change one is listed."""
_CHANGED = re.compile(r"^mutant (\d+) changed a condition$", re.MULTILINE)
_CODE = """#pragma once
#include <atomic>
#include <cstdio>
#include <cstdlib>
// Whether the mutant is the selected one; says so at the first condition that it changes.
// With {reach} none is selected, and each says so.
inline bool ggml_mutant(int number) {{
    static const int selected = std::getenv("{switch}") != nullptr ? std::atoi(std::getenv("{switch}")) : 0;
    static std::atomic<bool> said[{count} + 1];
    if (number != selected && selected != {reach}) {{
        return false;
    }}
    if (!said[number].exchange(true)) {{
        std::fprintf(stderr, "mutant %d changed a condition\\n", number);
    }}
    return number == selected;
}}
"""
_BEGINS = re.compile(r"^g(\d+) begins$")
_ENDS = frozenset({b";", b",", b"?", b":", b"&&", b"||", b"=", b"|=", b"&=", b"return"})
_DEVICE = re.compile(rb"__global__|__device__|constexpr")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A condition and what replaces it: ``becomes`` is ``true`` or ``false``."""

    number: int
    patch: str
    file: str
    line: int
    condition: str
    becomes: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Condition:
    start: int
    end: int
    becomes: tuple[str, ...]


def conditions(path: str, data: bytes) -> Iterator[_Condition]:
    """The conditions in the bodies of host functions, as spans of bytes."""
    scopes = parse_scopes(SourceText(path, data))
    functions = [one for one in scopes.entities if one.kind == "function"]
    host = [one.body for one in functions if not _DEVICE.search(data[one.span.start : one.body.start])]
    found: dict[tuple[int, int], tuple[str, ...]] = {}
    for position, token in enumerate(scopes.code):
        if not any(body.start <= token.start < body.end for body in host):
            continue
        if token.text in (b"&&", b"||"):
            becomes: tuple[str, ...] = ("true",) if token.text == b"&&" else ("false",)
            for first, end in operands(scopes, position, _ENDS):
                found[_span(scopes.code, first, end)] = becomes
        elif token.text == b"if" and scopes.code[position + 1].text == b"(":
            closing = scopes.match.get(position + 1)
            if closing is not None and closing > position + 2:
                span = _span(scopes.code, position + 2, closing)
                found.setdefault(span, ("true", "false"))
    for (start, end), becomes in sorted(found.items()):
        text = data[start:end]
        is_declaration = re.match(rb"\s*(const|auto)\b.*[^=!<>]=[^=]", text) is not None
        if b"#" not in text and not is_declaration:
            yield _Condition(start=start, end=end, becomes=becomes)


def _span(code: Sequence[Token], first: int, end: int) -> tuple[int, int]:
    return code[first].start, code[end - 1].end


def mutated(subject: Subject, only: Sequence[str]) -> tuple[Subject, tuple[Mutant, ...]]:
    """The candidate with every condition of these patches switchable, and the list of them."""
    mutants: list[Mutant] = []
    changes: dict[str, bytes] = {}
    for path in sorted(subject.authors):
        file = subject.candidate / path
        authors = subject.authors[path]
        if file.suffix not in {".cu", ".cuh"} or not set(only) & set(authors):
            continue
        data = file.read_bytes()
        inserted: list[tuple[int, int, int, bytes]] = []
        for one in conditions(path, data):
            lines = range(data.count(b"\n", 0, one.start), data.count(b"\n", 0, one.end) + 1)
            patches = {authors[line] if line < len(authors) else None for line in lines}
            patch = next(iter(patches))
            if len(patches) != 1 or patch is None or patch not in only:
                continue
            for becomes in one.becomes:
                number = len(mutants) + 1
                mutants.append(
                    Mutant(
                        number=number,
                        patch=patch,
                        file=path,
                        line=lines.start + 1,
                        condition=" ".join(data[one.start : one.end].decode("utf-8", "replace").split()),
                        becomes=becomes,
                    )
                )
                join = "|| " if becomes == "true" else "&& !"
                size = one.end - one.start
                # At one place, inner conditions are closed before outer ones, and opened after them.
                inserted.append((one.start, 1, -size, b"(("))
                inserted.append((one.end, 0, size, f") {join}ggml_mutant({number}))".encode()))
        if inserted:
            changes[path] = _with_header(path, _insert(data, inserted))
    folder = str(Path(next(iter(changes))).parent)
    code = _CODE.format(switch=SWITCH, count=len(mutants), reach=REACH)
    changes[f"{folder}/{HEADER}"] = code.encode()
    root = overlay_tree(subject.candidate, changes, "mutants", below=".")
    name = hashlib.sha1(root.name.encode(), usedforsecurity=False).hexdigest()
    return replace(subject, candidate=root, candidate_tree=name), tuple(mutants)


def _insert(data: bytes, inserted: Sequence[tuple[int, int, int, bytes]]) -> bytes:
    pieces, at = [], 0
    for position, _, _, text in sorted(inserted, key=lambda one: one[:3]):
        pieces += [data[at:position], text]
        at = position
    return b"".join([*pieces, data[at:]])


def _with_header(path: str, data: bytes) -> bytes:
    mark = b"#pragma once\n" if path.endswith("h") else b""
    at = data.index(mark) + len(mark)
    return data[:at] + f'#include "{HEADER}"\n'.encode() + data[at:]


def one_property(patterns: Sequence[Graph], count: int) -> Iterator[Graph]:
    """Each variation of each pattern, ``count`` times with other choices, without duplicates."""
    seen: list[Graph] = list(patterns)
    for pattern, vary, number in itertools.product(patterns, dict.fromkeys(VARIATIONS), range(count)):
        chance = random.Random(f"{pattern.name} {vary.__name__} {number}")  # noqa: S311 - no secret
        graph = apply(vary, pattern, chance)
        if graph is not None and is_usable(graph) and graph not in seen:
            seen.append(graph)
            yield graph.changed(about=f"{pattern.name}: {vary.__name__.strip('_')}")


def table(
    subject: Subject,
    mutants: Sequence[Mutant],
    graphs: Sequence[Graph],
    *,
    machine: Machine,
    is_reach: bool,
    has_checks: bool = False,
) -> list[dict[str, object]]:
    """A row for each of these mutants of the candidate, run on these graphs.

    ``is_reach``: only whether a mutant would change a condition. ``has_checks``: with the checks of the
    emulated GPU.
    """
    claims = claims_of(subject.patches)
    rows: list[dict[str, object]] = []
    with sides_on(machine, subject) as sides:
        driver = build_driver(DRIVER, sides.after, subject.candidate, subject.cache_root, subject.reporter)

        def run(
            number: int, graphs: Sequence[Graph], *, compared: Compared = "results"
        ) -> tuple[list[Computed], str]:
            """The results of a mutant, and what its programs printed to stderr."""
            place = RunContext(
                folder=subject.cache_root / "runs" / "mutants",
                reporter=subject.reporter,
                stop=threading.Event(),
            )
            computed: dict[int, Computed] = {}
            said = ""
            for n, group in enumerate(by_environment(graphs)):
                name = f"mutant-{number}-{n}"
                checks = Runs(folder=place.folder).variables(name) if has_checks else {}
                _, found = run_graphs(
                    driver,
                    replace(sides.after, kept=None),
                    [graphs[each] for each in group],
                    device=machine.device,
                    name=name,
                    timeout_s=_TIMEOUT_S,
                    place=place,
                    variables={SWITCH: str(number), **checks},
                    compared=compared,
                )
                computed.update(zip(group, found, strict=True))
                error = (place.folder / f"{name}.err").read_text("utf-8", "replace")
                if used_although_off(graphs[group[0]], error):
                    said += NOT_OFF
                said += error
            return [computed[each] for each in range(len(graphs))], said

        if is_reach:
            reached: dict[int, str] = {}
            outcomes: Counter[str] = Counter()
            left = [one for one in graphs if not (one.captured or one.environment)]
            while left:
                computed, said = run(REACH, left, compared="nothing")
                for number, by in _reached(said, left):
                    reached.setdefault(number, by)
                ended = next((n for n, one in enumerate(computed) if not one.has_ended), len(left))
                outcomes.update(one.skipped or "computed" for one in computed[:ended])
                if ended < len(left):
                    outcomes["crash"] += 1
                    print(f"{left[ended].name} crashes: {_last_line(said)}", flush=True)
                left = left[ended + 1 :]  # a crash costs its own graph
            print(f"{outcomes.total()} graphs:", ", ".join(f"{n} {what}" for what, n in outcomes.items()))
            return [
                {
                    **asdict(one),
                    "result": "reached" if one.number in reached else "not reached",
                    "by": reached.get(one.number, ""),
                }
                for one in mutants
            ]
        before, _ = run(0, graphs)
        for mutant in mutants:
            after, said = run(mutant.number, graphs)
            rows.append({**asdict(mutant), "result": _result(graphs, before, after, said, claims)})
            print(rows[-1]["result"], mutant.file.rpartition("/")[2], mutant.line, mutant.condition[:80])
    return rows


def _reached(said: str, graphs: Sequence[Graph]) -> Iterator[tuple[int, str]]:
    """The mutants that would have changed a condition, and the graph that was computed then."""
    graph = ""
    for line in said.splitlines():
        if begins := _BEGINS.match(line):
            one = graphs[int(begins[1])]
            graph = one.about or one.name
        elif changed := _CHANGED.match(line):
            yield int(changed[1]), graph


def _last_line(said: str) -> str:
    """Why the program ended: the last line that is neither a mutant's nor a graph's."""
    lines = (line for line in reversed(said.splitlines()) if not line.startswith("mutant "))
    return next((line for line in lines if not _BEGINS.match(line)), "")


def _result(
    graphs: Sequence[Graph], before: Sequence[Computed], after: Sequence[Computed], said: str, claims: Claims
) -> str:
    pairs = list(zip(graphs, before, after, strict=True))
    if any(old.has_ended and not new.has_ended for _, old, new in pairs) or NOT_OFF in said:
        return "wrong"
    if any(compare(graph, old, new, claims) is not None for graph, old, new in pairs):
        return "wrong"
    if not _CHANGED.search(said):
        return "not reached"
    if any(differing(old, new) for _, old, new in pairs):
        return "bits"
    has_fault = any(new.has_findings and not old.has_findings for _, old, new in pairs)
    return "checks" if has_fault else "same"


def summary(rows: Sequence[Mapping[str, object]]) -> Iterator[str]:
    """A line for each patch."""
    for patch in sorted({str(row["patch"]) for row in rows}):
        found = Counter(str(row["result"]) for row in rows if row["patch"] == patch)
        yield f"{patch}: " + ", ".join(f"{count} {result}" for result, count in sorted(found.items()))


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arch", default="gfx1151", help="the emulated GPU")
    parser.add_argument(
        "--only", action="append", required=True, metavar="ID", help="a patch; may be repeated"
    )
    parser.add_argument("--graphs", type=int, default=40, help="random graphs besides the stored ones")
    parser.add_argument(
        "--variations", type=int, default=0, metavar="N", help="also each variation of each pattern, N times"
    )
    parser.add_argument("--pattern", default="*", help="only patterns with such names, and nothing stored")
    parser.add_argument(
        "--graph",
        action="append",
        type=Path,
        default=[],
        metavar="FILE",
        help="only the graphs of these files",
    )
    parser.add_argument("--off", metavar="ID,ID", help="turn patches off (all: every one)")
    parser.add_argument("--mutants", metavar="N,N", help="only these mutants")
    parser.add_argument("--list", action="store_true", help="list the mutants and run nothing")
    parser.add_argument("--checks", action="store_true", help="with the checks of the emulated GPU")
    parser.add_argument("--reach", action="store_true", help="one run: which mutants change a condition")
    parser.add_argument("--out", type=Path, help="a JSON file for the rows")
    options = parser.parse_args()
    subject, mutants = mutated(emulated_candidate(options.arch), options.only)
    if options.mutants:
        chosen = {int(number) for number in options.mutants.split(",")}
        mutants = tuple(one for one in mutants if one.number in chosen)
    if options.list:
        for one in mutants:
            print(f"{one.number} {one.patch} {one.file}:{one.line}: {one.condition} -> {one.becomes}")
        return
    patterns = [one for one in pattern_graphs() if fnmatchcase(one.name, options.pattern)]
    graphs = [
        *(stored_graphs() if options.pattern == "*" else ()),
        *patterns,
        *one_property(patterns, options.variations),
        *itertools.islice(random_graphs(patterns, 1), options.graphs),
    ]
    if options.graph:
        graphs = [read_graph(file.read_bytes(), str(file)) for file in options.graph]
    if options.off:
        graphs = [switched_off(one, options.off) for one in graphs if not one.environment]
    machine = Machine(backend="hip", emulates=options.arch)
    rows = table(subject, mutants, graphs, machine=machine, is_reach=options.reach, has_checks=options.checks)
    if options.out is not None:
        options.out.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")
    for row in rows if options.reach else ():
        if row["result"] == "not reached":
            print(f"not reached {row['file']}:{row['line']}: {row['condition']} -> {row['becomes']}")
    print("\n".join(summary(rows)))


if __name__ == "__main__":
    main()
