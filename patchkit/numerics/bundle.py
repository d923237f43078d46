"""The folder that is built and run where the NVIDIA GPU is: sources, build.ninja, cases, jobs and run.sh.

Vocabulary: a *bundle* needs no patchkit where it runs, so that the machine with the GPU can be any machine;
``sh run.sh`` there fills its folder ``results``. A *job* is one program with its arguments and a limit in
seconds. The *manifest* (numerics.json) says what the bundle is about; the same manifest is what results are
judged against, so a bundle of another candidate is never taken for this one.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from patchkit.build.units import platform_units, units_including
from patchkit.errors import Location, UsageError
from patchkit.numerics.build_text import BuildInputs, base_sources, build_text
from patchkit.numerics.cases import CheckCase, cases_for, check_cases, check_line
from patchkit.numerics.manifest import MANIFEST, Job, Manifest
from patchkit.numerics.sets import Program, Table, make_programs, planted_program, rows_text
from patchkit.recorder.cases import CASE_READER
from patchkit.vcs.disk import disk_errors

_NATIVE = ("attention_check.cpp", "launch_log.cpp", "run.sh", "job.sh")
_TOP = frozenset({"run.sh", "job.sh"})
_CHECK_S, _OPS_S, _PERF_S = 1200, 1200, 300  # ten times what an H200 with 16 cores took, at least
_ROUNDS = 3  # interleaved timings per side
_OPS = ("-o", "FLASH_ATTN_EXT", "-b", "CUDA0")
_TOLD = ("env", "PATCHKIT_LAUNCHES=1")  # native/launch_log.cpp
# Upstream's program over planted rows too: it must say FAIL where ours does. One KV size and batch is enough.
_PLANTED_OPS = "hsk=128,.*kv=1024,nb=35,"


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleInputs:
    """What a bundle is made of.

    ``trees`` are the exported trees ``baseline``, ``candidate`` and ``forced``; ``tables`` what must be
    measured, ``extra`` what may be; ``rows_file`` is the name under which the forced tree includes rows.
    """

    candidate_tree: str
    baseline_tree: str
    archs: tuple[str, ...]
    build: int
    trees: Mapping[str, Path]
    changed_files: tuple[str, ...]
    kernel: str
    definitions: tuple[str, ...]
    rows_file: str
    tables: tuple[Table, ...]
    extra: tuple[Table, ...] = ()
    isolation: bool = True
    machine: str = "x86_64"


def write_bundle(inputs: BundleInputs, folder: Path) -> Manifest:
    """Write the bundle; the folder appears whole or not at all.

    Raises:
        BUNDLE_EXISTS: there is something already.
        BUILD_LIST_MISSING: upstream's list of CUDA units is not where it was.
        CacheError: the disk refused.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(
            f"{folder} is there already",
            code="BUNDLE_EXISTS",
            where=Location(path=str(folder)),
            why="a bundle is made anew, so that results of another one cannot be taken for its own",
            hint="name a new folder, or remove that one",
        )
    programs = (*make_programs((*inputs.tables, *inputs.extra)), planted_program())
    with disk_errors(folder, "writing a bundle"):
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.partial-", dir=folder.parent))
        try:
            manifest = _fill(inputs, programs, partial)
            partial.chmod(0o755)
            if folder.is_dir():
                folder.rmdir()
            partial.rename(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return manifest


def _fill(inputs: BundleInputs, programs: Sequence[Program], root: Path) -> Manifest:
    for side, tree in inputs.trees.items():
        _copy(tree, root / side)
    tests = root / "baseline" / "tests"
    tests.mkdir(parents=True)
    shutil.copyfile(
        inputs.trees["baseline"] / "tests" / "test-backend-ops.cpp", tests / "test-backend-ops.cpp"
    )
    native = resources.files("patchkit.numerics").joinpath("native")
    (root / "native").mkdir()
    for name in _NATIVE:
        target = root / name if name in _TOP else root / "native" / name
        target.write_bytes(native.joinpath(name).read_bytes())
    shutil.copyfile(CASE_READER, root / "native" / CASE_READER.name)
    cases = check_cases()
    jobs = [job for program in programs for job in _program(inputs, program, cases, root)]
    attention = tuple(unit for unit in platform_units(inputs.trees["baseline"], "cuda") if "/fattn" in unit)
    touched = frozenset(
        unit
        for side in ("baseline", "candidate")
        for unit in units_including(inputs.trees[side], inputs.changed_files, attention)
    )
    alone: list[Job] = []
    if inputs.isolation:
        jobs += [_ops(side, f"ops-{side}", None) for side in ("baseline", "candidate")]
        alone = list(_timings())
    plan = BuildInputs(
        sources=base_sources(_files(root / "baseline"), inputs.machine),
        attention=attention,
        touched=touched,
        kernel=inputs.kernel,
        programs=programs,
        definitions=inputs.definitions,
        isolation=inputs.isolation,
    )
    (root / "build.ninja").write_text(build_text(plan), "utf-8")
    # The longest first: nothing is left to wait for at the end.
    jobs.sort(key=lambda job: (job.kind != "ops", -job.cases))
    _write_jobs(root / "jobs.txt", jobs)
    if alone:
        _write_jobs(root / "jobs-alone.txt", alone)
    manifest = Manifest(
        candidate_tree=inputs.candidate_tree,
        baseline_tree=inputs.baseline_tree,
        archs=inputs.archs,
        build=inputs.build,
        tables=inputs.tables,
        extra=inputs.extra,
        programs=tuple(programs),
        jobs=(*jobs, *alone),
        touched=tuple(sorted(touched)) if inputs.isolation else (),
    )
    (root / MANIFEST).write_text(json.dumps(manifest.as_json(), indent=1) + "\n", "utf-8")
    return manifest


def _program(inputs: BundleInputs, program: Program, cases: Sequence[CheckCase], root: Path) -> Iterator[Job]:
    folder = root / "rows" / program.name
    folder.mkdir(parents=True)
    (folder / inputs.rows_file).write_text(rows_text(program), "utf-8")
    if program.is_planted:
        # One process each: a wrong setting may take the whole context with it.
        for number, point in enumerate(program.points):
            few = cases_for(frozenset({point.variant}), cases)
            yield _check(program, f"planted-{number}", few, folder / f"cases-{number}.txt", root)
        yield _ops(program.name, "planted-ops", _PLANTED_OPS)
        return
    mine = cases_for(program.variants, cases)
    yield _check(program, f"check-{program.name}", mine, folder / "cases.txt", root)
    needed = {point for table in inputs.tables for point in table.points}
    if needed.intersection(program.points):
        sizes = sorted({point.variant.head_size for point in program.points})
        yield _ops(program.name, f"ops-{program.name}", f"hsk=({'|'.join(map(str, sizes))}),")


def _check(program: Program, name: str, cases: Sequence[CheckCase], file: Path, root: Path) -> Job:
    file.write_text("".join(check_line(check) for check in cases), "utf-8")
    argv = (*_TOLD, f"bin/{program.name}-check", file.relative_to(root).as_posix(), "CUDA0")
    return Job(name=name, kind="check", program=program.name, limit_s=_CHECK_S, argv=argv, cases=len(cases))


def _ops(program: str, name: str, only: str | None) -> Job:
    argv = (*_TOLD, f"bin/{program}-ops", "test", *_OPS, *(() if only is None else ("-p", only)))
    return Job(name=name, kind="ops", program=program, limit_s=_OPS_S, argv=argv)


def _timings() -> Iterator[Job]:
    for number in range(_ROUNDS):
        for side in ("baseline", "candidate") if number % 2 == 0 else ("candidate", "baseline"):
            argv = (f"bin/{side}-ops", "perf", *_OPS)
            yield Job(name=f"perf-{side}-{number}", kind="perf", program=side, limit_s=_PERF_S, argv=argv)


def _write_jobs(path: Path, jobs: Sequence[Job]) -> None:
    path.write_text("".join(f"{job.name} {job.limit_s} {' '.join(job.argv)}\n" for job in jobs), "utf-8")


def _copy(tree: Path, target: Path) -> None:
    for path in _files(tree):
        made = target / path
        made.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(tree / path, made)


def _files(tree: Path) -> Iterator[str]:
    """What compiling ggml with its CPU and CUDA backends reads."""
    source = tree / "ggml" / "src"
    found = [*(tree / "ggml" / "include").glob("*.h"), *source.glob("*.h"), *source.glob("*.c*")]
    found += [path for name in ("ggml-cpu", "ggml-cuda") for path in (source / name).rglob("*")]
    wanted = (".h", ".c", ".cpp", ".cu", ".cuh", ".hpp", ".inc")
    for path in sorted(found):
        if path.suffix in wanted and path.is_file():
            yield path.relative_to(tree).as_posix()
