"""``patchkit bisect``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import click

from patchkit.base.errors import UsageError
from patchkit.base.reporter import Reporter
from patchkit.base.series_folder import PLAIN
from patchkit.base.upstreams import llama_cpp
from patchkit.base.workspace import Workspace
from patchkit.cli.bench_options import NUMBER, batch_options, make_plan, threads_option
from patchkit.cli.completing import pins
from patchkit.cli.request import DEVICE, ApplyOptions, try_options, with_named
from patchkit.cli.settings import FOLDER, TEXT, Settings, Size, options, packed, verb
from patchkit.gpu.emulated.models import check_model, head_size_of
from patchkit.gpu.hardware.backend_ops import Choice
from patchkit.gpu.hardware.bench.options import BenchPlan
from patchkit.gpu.hardware.runner import LocalRunner
from patchkit.prove.bench.test_list import parse_tests
from patchkit.prove.bisect.checks import Check, CommandCheck, OperationCheck, SpeedCheck, check_command
from patchkit.prove.bisect.command import BisectReport, BisectRequest, format_outcome, run_bisect
from patchkit.prove.build import PROGRAMS, Machine, check_programs, choose_backend
from patchkit.toolchain.parts import GATE_PROGRAMS, BackendName

_NOT_EMULATED = "--emulated requires a GPU, and cannot be combined with --backend"
_NO_GPU = "run it on the machine with the GPU, use --emulated for --op, or --backend cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class TestOptions:
    """The options that say what is tested."""

    ops: tuple[str, ...]
    cases: str | None
    bench: str | None
    model: Path | None
    slower: float
    plan: BenchPlan
    programs: tuple[str, ...]
    timeout: int

    @property
    def needed(self) -> tuple[str, ...]:
        """The programs to build."""
        if self.ops:
            return GATE_PROGRAMS  # builds of the gates are reused
        return (llama_cpp().programs.bench,) if self.bench else self.programs or PROGRAMS

    def make(self, command: tuple[str, ...], machine: Machine, archs: tuple[str, ...], by: Reporter) -> Check:
        """The test, after :meth:`check_options`."""
        seconds = 60.0 * self.timeout
        if command:
            return CommandCheck(argv=command, environ=dict(os.environ), timeout_s=seconds, reporter=by)
        if self.ops or self.model is None:
            choice = Choice(ops=self.ops, pattern=self.cases)
            return OperationCheck(choice=choice, machine=machine, archs=archs, timeout_s=seconds, reporter=by)
        return SpeedCheck(
            model=self.model,
            tests=parse_tests(self.bench or ""),
            plan=self.plan,
            least=self.slower / 100,
            machine=machine,
            archs=archs,
            timeout_s=seconds,
            reporter=by,
        )

    def check_options(
        self, command: tuple[str, ...], archs: tuple[str, ...], backend: BackendName | None, *, emulated: bool
    ) -> None:
        """Check everything about the test that needs no GPU, before one is looked for.

        Raises:
            OPTIONS_CONTRADICT: not exactly one test was named, or options that do not belong to it.
            USAGE_VALUE: the tests of --bench, or the name of a program.
            MODEL_MISSING, GGUF_BAD: the model of --bench.
            BISECT_COMMAND: the command cannot be run.
        """
        if bool(self.ops) + bool(self.bench) + bool(command) != 1:
            raise UsageError(
                "bisect needs exactly one test: --op OP, --bench TESTS, or a command after --",
                code="OPTIONS_CONTRADICT",
                hint=f"patchkit bisect --arch {archs[0] if archs else 'GFX'} --op MUL_MAT",
            )
        if emulated and not self.ops:
            raise UsageError(
                "--emulated requires --op",
                code="OPTIONS_CONTRADICT",
                why="the time that a kernel takes in the emulator says nothing about a GPU"
                if self.bench
                else "a command runs its programs itself",
            )
        if emulated and (backend is not None or archs == (PLAIN,)):
            raise UsageError(_NOT_EMULATED, code="OPTIONS_CONTRADICT")
        unfit = ["--case"] if self.cases is not None and not self.ops else []
        unfit += ["--model"] if self.model is not None and not self.bench else []
        unfit += ["--program"] if self.programs and not command else []
        if unfit:
            raise UsageError(
                f"{' and '.join(unfit)} cannot be combined with this test", code="OPTIONS_CONTRADICT"
            )
        check_programs(self.needed)
        if command:
            check_command(command[0], self.needed, os.environ)
        if self.bench:
            if self.model is None:
                raise UsageError("--bench requires --model", code="OPTIONS_CONTRADICT")
            parse_tests(self.bench)
            check_model(self.model)
            head_size_of(self.model)


def _make_test(
    bench: str | None,
    model: Path | None,
    ops: tuple[str, ...],
    cases: str | None,
    slower: float,
    programs: tuple[str, ...],
    timeout: int,
    **plan: int | None,
) -> TestOptions:
    return TestOptions(
        bench=bench,
        model=model,
        ops=ops,
        cases=cases,
        slower=slower,
        programs=programs,
        timeout=timeout,
        plan=make_plan(**plan),
    )


_test_options = packed(
    "test",
    _make_test,
    click.option(
        "--op",
        "ops",
        type=TEXT,
        multiple=True,
        metavar="OP",
        help="Test this operation with test-backend-ops. May be repeated.",
    ),
    click.option(
        "--case",
        "cases",
        type=TEXT,
        metavar="PATTERN",
        help="Only cases of --op whose parameters match (test-backend-ops -p).",
    ),
    click.option(
        "--bench",
        type=TEXT,
        metavar="TESTS",
        help="Test the speed with llama-bench, for example pp512,tg128. Requires --model.",
    ),
    click.option("--model", type=FOLDER, metavar="GGUF", help="Model for --bench."),
    click.option(
        "--slower",
        type=Size(min=0.5, max=90.0),
        default=5.0,
        show_default=True,
        metavar="PERCENT",
        help="A build is bad if a test of --bench is slower than the first candidate by more than this.",
    ),
    batch_options,
    threads_option,
    click.option(
        "--program",
        "programs",
        type=TEXT,
        multiple=True,
        metavar="NAME",
        help="Build only this program for the command. May be repeated.",
    ),
    click.option(
        "--timeout",
        type=NUMBER,
        default=60,
        show_default=True,
        metavar="MINUTES",
        help="Time limit for one run of the test. A command that runs longer is bad.",
    ),
)


@verb(
    "bisect",
    example=(
        "patchkit bisect --arch gfx1151 --op MUL_MAT",
        "patchkit bisect --arch gfx1151 --bench pp512 --model model.gguf",
        "patchkit bisect --arch gfx1151 --good b10068 --no-patches --bench tg128 --model model.gguf",
        "patchkit bisect --arch gfx1151 --emulated --op ROPE",
        "patchkit bisect --arch gfx1151 --program llama-cli -- ./check.sh",
    ),
)
@try_options
@click.option(
    "--good",
    type=TEXT,
    metavar="PIN",
    shell_complete=pins,
    help="Build or release that was good. The builds from there to --upstream are searched, too.",
)
@options(
    click.option(
        "--no-patches",
        "has_patches",
        flag_value=False,
        default=True,
        help="Search only the builds of --good.",
    ),
    click.option(
        "--no-switches",
        "has_switches",
        flag_value=False,
        default=True,
        help="Build each set of patches, instead of turning patches off when a program starts. "
        "Needs more builds.",
    ),
)
@_test_options
@click.option("--backend", type=DEVICE, help="Backend to test (default: hip, if this machine has the GPU).")
@click.option("--emulated", is_flag=True, help="Test on the emulated GPU. Only for --op.")
@click.option("--out", type=FOLDER, metavar="DIR", help="Folder for the outcomes (default: in the cache).")
@click.option("--fresh", is_flag=True, help="Discard the outcomes of earlier runs.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def command(
    settings: Settings,
    given: ApplyOptions,
    test: TestOptions,
    good: str | None,
    backend: BackendName | None,
    out: Path | None,
    command: tuple[str, ...],
    *,
    has_patches: bool,
    has_switches: bool,
    emulated: bool,
    fresh: bool,
) -> None:
    """Find the build or the patch that made llama.cpp wrong or slow.

    Searches an ordered list: with --good the builds of llama.cpp from there to --upstream, and then the
    patches of that build, one more in each step. Each candidate is built and tested, half of the rest is
    excluded, and so on. The first candidate must be good, the last one bad.

    The test is one of: operations of test-backend-ops (--op), the speed of llama-bench (--bench), or your
    own command, whose exit status decides as in git bisect run (0 good, 125 skip, 126 and 127 an error,
    others bad). The programs of the build are first on its PATH.

    A candidate that does not build is skipped. Every outcome is saved: after an interruption, run the same
    command again.
    """
    workspace = settings.workspace()
    onto = given.clone()
    if good is not None and onto is not None:
        raise UsageError(
            "--good cannot be combined with --onto",
            code="OPTIONS_CONTRADICT",
            why="--onto names a commit of your clone, and --good a build of llama.cpp",
            hint="to search the commits of a clone, use git bisect; for its builds --upstream-url CLONE",
        )
    if not has_patches and good is None:
        raise UsageError(
            "--no-patches requires --good",
            code="OPTIONS_CONTRADICT",
            why="without the patches, only the builds of --good can be searched",
        )
    test.check_options(command, given.wanted.archs, backend, emulated=emulated)
    patches = given.request(workspace)
    if good is not None and test.ops and (backend == "cpu" or patches.archs == (PLAIN,)):
        raise UsageError(
            "--op on the CPU backend cannot be combined with --good",
            code="OPTIONS_CONTRADICT",
            why="test-backend-ops would compare each build's CPU backend with itself",
            hint="test the builds with a command, for example one that compares the text of llama-cli",
        )
    machine = _machine(patches.archs, backend, workspace, emulated=emulated)
    check = test.make(command, machine, patches.archs, workspace.reporter)
    request = BisectRequest(
        patches=replace(with_named(patches), unlocked=True),
        onto=onto,
        good=good,
        upstream_url=patches.upstream_url,
        machine=machine,
        programs=test.needed,
        has_patches=has_patches,
        has_switches=has_switches,
        is_timed=not test.ops or not (machine.is_emulated or machine.is_cpu),
        out=out,
        fresh=fresh,
    )
    report = run_bisect(workspace, request, check, os.environ)
    settings.show(report, _lines(report))


def _machine(
    archs: tuple[str, ...], backend: BackendName | None, workspace: Workspace, *, emulated: bool
) -> Machine:
    if emulated:
        if archs == (PLAIN,):  # of a plain series
            raise UsageError(_NOT_EMULATED, code="OPTIONS_CONTRADICT")
        return Machine(backend="hip", emulates=archs[0])
    if archs == (PLAIN,) and backend is None:
        backend = "cpu"
    return Machine(backend=choose_backend(backend, archs, LocalRunner(reporter=workspace.reporter), _NO_GPU))


def _lines(report: BisectReport) -> Iterator[str]:
    yield f"test: {report.test}"
    for each in report.tested:
        yield f"  {format_outcome(each.outcome):<8}{each.name}: {each.why}"
    yield ""
    if report.skipped:
        yield f"not decided: one of {', '.join((*report.skipped, report.bad))} is the first bad one"
        yield f"last good: {report.good}"
    else:
        commit = f", commit {report.commit}" if report.commit is not None else ""
        yield f"first bad: {report.bad}{commit}"
        yield f"last good: {report.good}"
    if report.without == "good":
        yield f"good without it: leave it out with --without {report.patch} (patchkit apply, patchkit up)"
    elif report.without == "bad":
        yield (
            f"all other patches without {report.patch} are bad as well, so more than this patch is at fault; "
            "leave it out and search again, or repeat this search with --no-switches"
        )
    elif report.without == "skip":
        yield f"not decided whether it is good without {report.patch}; see its test above"
    yield f"outcomes: {report.folder}"
