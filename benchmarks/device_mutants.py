"""Which gate finds each fault that is planted in the device code of patches: a mutation score.

Every barrier, fence, condition, bound, loop and start value in device code of the patches is removed or
weakened, one at a time (``device_mutations.py`` lists how). All mutants are in one build: a number in the
compiled code selects one, so a mutant costs a run and no compiling. Each is run on inputs of the gates that
launch its kernel, first few and cheap ones:

    1. two and then four graphs of the gate ``graphs``; barriers, fences and atomics with checks
    2. more of these graphs, with these checks
    3. with ``--cases``, those of ``backend-ops`` and ``sanitize`` that launch it: of test-backend-ops, and
       patchkit's attention cases

A mutant is found if a gate would fail: other bits than the baseline's where the patches claim equal bits,
results too far from the CPU's, a crash, a kernel that does not end, or a finding of a check that the
unchanged candidate does not have. Others survive.

    patchkit apply --arch gfx1151 --trust modelled
    python benchmarks/device_mutants.py --only fuse-norm-q8-1 --out device-mutants.json

A second run with the same file continues it. The candidate is the one that ``patchkit apply`` made for the
default build.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import shutil
import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from device_mutations import CODE, HEADER, MAGIC, Site, kernels_of, mutated_text
from emulated_candidate import emulated_candidate
from records import DATA, write_record

from patchkit.base.errors import PatchkitError, ToolchainError
from patchkit.base.files import temporary_folder
from patchkit.gpu.emulated.cases import Case
from patchkit.gpu.emulated.emulator import OF_A_RUN, UNITS, DeviceUnits
from patchkit.gpu.emulated.log import parse_recording
from patchkit.gpu.hardware.attention import gate_cases, run_attention
from patchkit.gpu.hardware.backend_ops import Part, make_stage, parse_rows, parts_of, run_part
from patchkit.gpu.hardware.driver_build import build_driver
from patchkit.gpu.hardware.graphs.description import Compared, Graph
from patchkit.gpu.hardware.graphs.patterns import pattern_graphs
from patchkit.gpu.hardware.graphs.running import DRIVER, LOG, Computed, differing, run_graphs
from patchkit.gpu.hardware.graphs.vary import random_graphs
from patchkit.gpu.hardware.program import ProgramRun, RunContext
from patchkit.prove.build import Machine, Sides
from patchkit.prove.gates.graphs.gate import stored_graphs
from patchkit.prove.gates.graphs.judging import claims_of, compare
from patchkit.prove.gates.operations import ATTENTION, Runs, Tools, list_cases, ops_of, sample_of
from patchkit.prove.gates.sanitize import LineMap, read_findings
from patchkit.prove.gates.sides import sides_on
from patchkit.prove.gates.touched import touched_units
from patchkit.prove.subject import Subject
from patchkit.toolchain.compile import LINE_TABLES
from patchkit.toolchain.compiler import open_compiler
from patchkit.toolchain.sides import BuiltSide
from patchkit.toolchain.tree import overlay_tree
from patchkit.toolchain.units import SourceTree

_JUDGEMENTS = DATA / "device-judgements.json"
_FOLDER = "ggml/src/ggml-cuda"
_TIMEOUT_S = 120.0
_LIMIT = 1 << 24
"""Instructions of a wave after which a kernel counts as one that does not end."""
_FEW, _SOME, _CASES = 2, 4, 24
_AT_FIRST = {"barrier", "fence", "atomic"}
"""Kinds that the checks find first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A mutant, and the kernels that its code is in."""

    number: int
    patch: str
    file: str
    site: Site
    kernels: frozenset[str]

    @property
    def key(self) -> str:
        """Identifies it across runs, in which numbers may differ."""
        of = self.site
        return f"{self.file}:{of.line} {of.kind} {of.code} -> {of.becomes}"


def mutated(subject: Subject, only: Sequence[str]) -> tuple[Path, tuple[Mutant, ...]]:
    """The candidate's tree with all mutants of these patches, and the list of them."""
    mutants: list[Mutant] = []
    changes: dict[str, bytes] = {f"{_FOLDER}/{HEADER}": CODE.encode()}
    files = {
        path: (subject.candidate / path).read_bytes()
        for path in sorted(subject.authors)
        if path.endswith((".cu", ".cuh"))
    }
    kernels = kernels_of(files)
    for path, data in files.items():
        lines = {n: patch for n, patch in enumerate(subject.authors[path], 1) if patch and patch in only}
        text, found = mutated_text(path, data, lines, len(mutants) + 1)
        for site, patch in found:
            name = site.function.rpartition("::")[2]
            mutants.append(
                Mutant(
                    number=len(mutants) + 1,
                    patch=patch,
                    file=path.rpartition("/")[2],
                    site=site,
                    kernels=kernels.get(name, frozenset()),
                )
            )
        if found:
            changes[path] = text
    return overlay_tree(subject.candidate, changes, "device-mutants", below="."), tuple(mutants)


_NOTHING = Computed()


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """An input of a gate: a graph, cases of test-backend-ops, or attention cases of patchkit."""

    what: Graph | tuple[str, ...] | tuple[Case, ...]
    kernels: frozenset[str]
    before: Computed = _NOTHING
    after: Computed = _NOTHING
    """Of a graph: the results of the baseline and of the unchanged candidate."""


@dataclass(slots=True, kw_only=True)
class Bench:
    """Both sides and the inputs. ``side`` is the candidate with the kernels of ``tree``, which has mutants.

    ``code`` is the folder of its compiled code in which a mutant is selected.
    """

    subject: Subject
    machine: Machine
    sides: Sides
    side: BuiltSide
    tree: Path
    code: Path
    folder: Path
    graphs: list[Input] = field(default_factory=list)
    cases: dict[str, list[Input]] = field(default_factory=dict)
    findings: set[object] = field(default_factory=set)
    """Findings of the unchanged candidate."""

    def select(self, number: int) -> None:
        """Select a mutant in the compiled code; 0: none."""
        copies = self.code.parent / "copies"
        copies.mkdir(exist_ok=True)
        for place in self.code.iterdir():
            data = place.read_bytes()
            at = data.find(MAGIC)
            if at < 0:
                continue
            copy = copies / place.name
            if place.resolve() != copy.resolve():  # it is in the store
                copy.write_bytes(data)
                place.unlink()
                place.symlink_to(copy)
            with copy.open("r+b") as stream:
                while at >= 0:
                    stream.seek(at + len(MAGIC))
                    stream.write(number.to_bytes(4, "little"))
                    at = data.find(MAGIC, at + 1)

    # ---- Graphs

    def load_graphs(self, graphs: Sequence[Graph], *, most: int) -> None:
        """Compute graphs on the baseline and on the candidate without a mutant, and keep those that run.

        Raises ToolchainError if the candidate has other bits where it may not: then no mutant can be judged.
        """
        before = self._computed("baseline", graphs, compared="nothing")
        after = self._computed("unchanged", graphs, compared="nothing")
        claims = claims_of(self.subject.patches)
        kept: Counter[str] = Counter()
        for graph, old, new in zip(graphs, before, after, strict=True):
            if not old.results or not old.has_ended:
                continue
            if claims.wants_equal_bits(old.kernels | new.kernels) and differing(old, new):
                raise ToolchainError(f"{graph.name}: other bits", code="PROGRAM_FAILED", where=())
            if any(kept[name] < most for name in new.kernels):
                kept.update(new.kernels)
                self.graphs.append(Input(what=graph, kernels=new.kernels, before=old, after=new))

    def _computed(
        self,
        which: str,
        graphs: Sequence[Graph],
        runs: Runs | None = None,
        *,
        compared: Compared = "results",
    ) -> list[Computed]:
        """Results of graphs; a graph in which the program ends does not end those after it."""
        is_before = which == "baseline"
        side = self.sides.before if is_before else self.side
        tree = self.subject.baseline if is_before else self.subject.candidate
        driver = build_driver(DRIVER, side, tree, self.subject.cache_root, self.subject.reporter)
        done: list[Computed] = []
        while len(done) < len(graphs):
            name = f"test-candidate-{len(done)}"
            ran, results = run_graphs(
                driver,
                replace(side, kept=None),
                graphs[len(done) :],
                device=self.machine.device,
                name=name,
                timeout_s=_TIMEOUT_S * (10 if which != "mutant" else 1),
                place=self._place(which),
                variables=_LIMITED if runs is None else {**runs.variables(name), **_LIMITED},
                compared=compared,
            )
            ended = next((n for n, one in enumerate(results) if not one.has_ended), len(results))
            if ran is not None and ended < len(results):
                raise ToolchainError(
                    "the driver graph_check skipped a graph", code="PROGRAM_FAILED", where=()
                )
            done += results[: ended + 1]
            if which == "mutant" and ended < len(results):
                break
        return done

    def found_by_graphs(
        self, inputs: Sequence[Input], *, is_checked: bool, rounds: int | None = None
    ) -> str | None:
        """How the gate ``graphs`` finds the selected mutant with these inputs, perhaps with fewer rounds."""
        graphs = [one.what for one in inputs if isinstance(one.what, Graph)]
        if rounds is not None:
            graphs = [one.changed(rounds=rounds) for one in graphs]
        runs = Runs(folder=self.folder / "checks") if is_checked else None
        if runs is not None:
            shutil.rmtree(runs.looked, ignore_errors=True)
        try:
            after = self._computed("mutant", graphs, runs, compared="nothing")
        except PatchkitError as error:
            return f"graphs: {error.code}"
        claims = claims_of(self.subject.patches)
        for one, new in zip(inputs, after, strict=False):
            if not isinstance(one.what, Graph):
                continue
            if not new.has_ended:
                return "graphs: the program ends"
            if not differing(one.after, new):
                continue
            if claims.wants_equal_bits(one.before.kernels | new.kernels):
                return "graphs: other bits"
            (old,), (again,) = self._computed("baseline", [one.what]), self._computed("mutant", [one.what])
            if (difference := compare(one.what, old, again, claims)) is not None:
                return f"graphs: {difference.kind}"
        return None if runs is None else self._finding("graphs", runs, inputs)

    # ---- Cases of single operations

    def load_cases(self, patch: str) -> list[Input]:
        """Cases of backend-ops for a patch, and what each launches."""
        if patch in self.cases:
            return self.cases[patch]
        tools = self._tools()
        part = next(one for one in self.subject.patches if one.id == patch)
        listed = list_cases(tools)
        files = [path for path in (*part.touched, *part.new_files) if path.startswith(_FOLDER)]
        ops = ops_of(
            [path for path in files if not path.endswith("ggml-cuda.cu")], [row.op for row in listed]
        )
        rows = [row for row in listed if row.op in ops]
        whats: list[tuple[str, ...] | tuple[Case, ...]] = [*parts_of(sample_of(rows))]
        if ATTENTION in ops:
            own = gate_cases(is_sample=True)
            whats += [own[start : start + _CASES] for start in range(0, len(own), _CASES)]
        self.cases[patch] = []
        for what in whats:
            log = self.folder / "cases.log"
            log.write_bytes(b"")
            if self._failed_case(what, {LOG: str(log)}) is not None:
                continue
            recording = parse_recording(log.read_text("utf-8", "replace").splitlines(), str(log))
            launched = {one.kernel.name.base for section in recording.sections for one in section.launches}
            self.cases[patch].append(Input(what=what, kernels=frozenset(launched)))
        return self.cases[patch]

    def found_by_cases(self, inputs: Sequence[Input]) -> str | None:
        """How ``backend-ops`` or ``sanitize`` finds the selected mutant with these inputs."""
        runs = Runs(folder=self.folder / "checks")
        for one in inputs:
            if isinstance(one.what, Graph):
                continue
            shutil.rmtree(runs.looked, ignore_errors=True)
            failed = self._failed_case(one.what, {**runs.variables("test-candidate"), **_LIMITED})
            if failed is not None:
                return f"backend-ops: {failed}"
            if (found := self._finding("sanitize", runs, [one])) is not None:
                return found
        return None

    def _failed_case(
        self, whats: tuple[str, ...] | tuple[Case, ...], variables: Mapping[str, str]
    ) -> str | None:
        """How cases of one kind fail; None if all pass."""
        cases = [one for one in whats if isinstance(one, Case)]
        try:
            if cases:
                side = replace(self.side, environment={**self.side.environment, **variables}, kept=None)
                driver = build_driver(
                    "attention_check",
                    side,
                    self.subject.candidate,
                    self.subject.cache_root,
                    self.subject.reporter,
                )
                _, found = run_attention(
                    driver,
                    side,
                    device=self.machine.device,
                    cases=cases,
                    name="own-candidate",
                    timeout_s=_TIMEOUT_S,
                    place=self._place("mutant"),
                )
                far = [one for one in found if one.is_supported and not (one.is_finite and one.nmse <= _NMSE)]
                return f"attention {far[0].case}" if far else None
            stage = make_stage(self.side, self.sides.before, self.folder / "stage")
            ran = run_part(
                Part(
                    stage=replace(stage, side_environment={**stage.side_environment, **variables}, kept=None),
                    name="test-candidate",
                    cases=tuple(one for one in whats if isinstance(one, str)),
                    device=self.machine.device,
                    timeout_s=_TIMEOUT_S,
                    folder=self._place("mutant").folder,
                )
            )
        except PatchkitError as error:
            return str(error.code)
        if not isinstance(ran, ProgramRun):
            return str(ran.code)
        rows = parse_rows(ran.text(), where=str(ran.stdout))
        failed = [row for row in rows if row.is_supported and not row.has_passed]
        return failed[0].op if failed else None

    # ---- Common

    def _finding(self, gate: str, runs: Runs, inputs: Sequence[Input]) -> str | None:
        """A finding that the unchanged candidate does not have with these inputs."""
        found = self._keys(runs)
        if not found.keys() - self.findings:
            return None
        self.select(0)
        known = Runs(folder=self.folder / "known")
        graphs = [one.what for one in inputs if isinstance(one.what, Graph)]
        if graphs:
            self._computed("unchanged", graphs, known, compared="nothing")
        for one in inputs:
            if not isinstance(one.what, Graph):
                self._failed_case(one.what, known.variables("test-candidate"))
        self.findings |= self._keys(known).keys()
        new = [kind for key, kind in found.items() if key not in self.findings]
        return f"{gate}: check {new[0]}" if new else None

    def _keys(self, runs: Runs) -> dict[object, str]:
        read = read_findings(runs, "candidate", self.tree, LineMap.same, may_be_short=True)
        return {key: one.kind for key, (one, _) in read.found.items()}

    def _place(self, name: str) -> RunContext:
        return RunContext(folder=self.folder / name, reporter=self.subject.reporter, stop=threading.Event())

    def _tools(self) -> Tools:
        return Tools(
            subject=self.subject,
            machine=self.machine,
            sides=self.sides,
            place=self._place("cases"),
            timeout_s=_TIMEOUT_S,
        )


_LIMITED = {"PATCHKIT_EMULATOR_LIMIT": str(_LIMIT)}
_NMSE = 5e-4
_NOT_FOUND = ("survives", "not launched")


def judged(bench: Bench, mutant: Mutant, most: int, *, has_cases: bool) -> str:
    """How the selected mutant is found; "survives" or "not launched" if it is not."""
    launching = [one for one in bench.graphs if one.kernels & mutant.kernels][:most]
    is_checked = mutant.site.kind in _AT_FIRST
    found = None
    if launching:
        found = (
            bench.found_by_graphs(launching[:_FEW], is_checked=is_checked, rounds=1)
            or bench.found_by_graphs(launching[:_SOME], is_checked=is_checked)
            or bench.found_by_graphs(launching, is_checked=True)
        )
    cases: list[Input] = []
    if found is None and has_cases:
        bench.select(0)
        cases = [one for one in bench.load_cases(mutant.patch) if one.kernels & mutant.kernels]
        bench.select(mutant.number)
        found = bench.found_by_cases(cases)
    if not cases and not launching:
        return "not launched"
    return found or "survives"


def table(options: argparse.Namespace) -> list[dict[str, object]]:
    """A row for each mutant; those that the file has are not run again."""
    arch, only, out, most = options.arch, options.only, options.out, options.inputs
    begun = time.monotonic()
    machine = Machine(backend="hip", emulates=arch)
    subject = emulated_candidate(arch)
    root, mutants = mutated(subject, only)
    rows: list[dict[str, object]] = json.loads(out.read_text("utf-8")) if out.exists() else []
    if options.again:
        judged_ones = json.loads(_JUDGEMENTS.read_text("utf-8"))
        rows = [row for row in rows if row["found"] not in _NOT_FOUND or row["key"] in judged_ones]
    done = {row["key"] for row in rows}
    left = [one for one in mutants if one.key not in done]
    print(f"{len(mutants)} mutants, {len(left)} to run")
    with sides_on(machine, subject) as sides, temporary_folder("device-mutants") as folder:
        units = _units(subject, root, arch, folder / "units", () if options.alone else touched_units(subject))
        with units.served() as served:
            code = units.folder / f"{OF_A_RUN}mutants"
            code.mkdir(parents=True, exist_ok=True)
            environment = {**sides.after.environment, **served, UNITS: str(code)}
            bench = Bench(
                subject=subject,
                machine=machine,
                sides=sides,
                side=replace(sides.after, environment=environment, kept=None),
                tree=root,
                code=code,
                folder=folder,
            )
            patterns = pattern_graphs()
            graphs = [
                *stored_graphs(),
                *patterns,
                *itertools.islice(random_graphs(patterns, 1), options.graphs),
            ]
            wanted = [one for one in graphs if not one.environment and re.search(options.named, one.name)]
            bench.load_graphs(wanted, most=most)
            print(f"{len(bench.graphs)} graphs, ready after {time.monotonic() - begun:.0f} s", flush=True)
            for mutant in left:
                at = time.monotonic()
                bench.select(mutant.number)
                found = judged(bench, mutant, most, has_cases=options.cases)
                rows.append(
                    {
                        "key": mutant.key,
                        "patch": mutant.patch,
                        "file": mutant.file,
                        **asdict(mutant.site),
                        "found": found,
                        "seconds": round(time.monotonic() - at, 2),
                    }
                )
                out.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")
                print(f"{rows[-1]['seconds']:6.1f} s  {found:32} {mutant.key[:110]}", flush=True)
    return rows


def _units(subject: Subject, root: Path, arch: str, folder: Path, whole: Sequence[str]) -> DeviceUnits:
    """The kernels of the tree with mutants, compiled when they are launched."""
    if subject.toolchain is None:
        raise ToolchainError("the emulated GPU needs a HIP toolchain", code="COMPILER_MISSING", where=())
    compiler = open_compiler(subject.toolchain, subject.cache_root, subject.reporter, stop=subject.stop)
    return DeviceUnits(SourceTree(root), arch, compiler, folder, LINE_TABLES, rocwmma=False, whole=whole)


def summary(rows: Sequence[Mapping[str, object]]) -> Iterator[str]:
    """A line for each patch."""
    for patch in dict.fromkeys(str(row["patch"]) for row in rows):
        found = Counter(str(row["found"]).partition(":")[0] for row in rows if row["patch"] == patch)
        yield f"{patch}: {found.total()} mutants, " + ", ".join(
            f"{n} {name}" for name, n in found.most_common()
        )


def _shown(found: str) -> str:
    """How a mutant was found, as a column of the table."""
    gate, _, how = found.partition(": ")
    if gate != "graphs":
        return gate
    known = {"other bits": "bits", "far": "far", "not finite": "far"}
    return "check" if how.startswith("check") else known.get(how, "ends")


def record(files: Sequence[Path]) -> None:
    """Write the data of docs/records from the rows of runs, with the judgements of survivors."""
    rows = [row for file in files for row in json.loads(file.read_text("utf-8"))]
    judgements = json.loads(_JUDGEMENTS.read_text("utf-8"))
    counts: dict[str, dict[str, Counter[str]]] = {}
    for row in rows:
        of_patch = counts.setdefault(row["patch"], {})
        judgement = judgements.get(row["key"], ("not judged", ""))[0]
        how = judgement if row["found"] in _NOT_FOUND else _shown(row["found"])
        of_patch.setdefault(row["kind"], Counter())[how] += 1
    survivors = []
    for row in rows:
        if row["found"] in _NOT_FOUND:
            judgement, why = judgements.get(row["key"], ("not judged", ""))
            place = f"{row['file']}:{row['line']}"
            given = {"place": place, "code": row["code"], "becomes": row["becomes"]}
            survivors.append({"patch": row["patch"], **given, "judgement": judgement, "why": why})
    found = len(rows) - len(survivors)
    equivalent = sum(one["judgement"] == "equivalent" for one in survivors)
    write_record(
        "device-mutants",
        "python benchmarks/device_mutants.py --record",
        {
            "mutants": len(rows),
            "found": found,
            "equivalent": equivalent,
            "seconds": round(statistics.fmean(row["seconds"] for row in rows), 1),
            "counts": counts,
            "survivors": survivors,
        },
    )
    print(f"{len(rows)} mutants, {found} found ({found / len(rows):.1%}), {equivalent} equivalent")
    print(f"without equivalent mutants: {found / (len(rows) - equivalent):.1%}")


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arch", default="gfx1151", help="the emulated GPU")
    parser.add_argument("--only", action="append", default=[], metavar="ID", help="a patch; may be repeated")
    parser.add_argument("--graphs", type=int, default=100, help="random graphs besides those of the gate")
    parser.add_argument("--out", type=Path, help="a JSON file for the rows")
    parser.add_argument("--inputs", type=int, default=28, help="the most graphs for each kernel")
    parser.add_argument("--cases", action="store_true", help="also run cases of backend-ops and sanitize")
    parser.add_argument("--named", default="", metavar="REGEX", help="only graphs with such names")
    parser.add_argument(
        "--again", action="store_true", help="run mutants again that survived without a judgement"
    )
    parser.add_argument("--alone", action="store_true", help="compile single kernels, if few are launched")
    parser.add_argument(
        "--record", type=Path, nargs="+", metavar="FILE", help="write docs/records/data from rows"
    )
    options = parser.parse_args()
    if options.record:
        record(options.record)
        return
    if not options.only or options.out is None:
        parser.error("--only and --out are required")
    rows = table(options)
    print("\n".join(summary(rows)))


if __name__ == "__main__":
    main()
