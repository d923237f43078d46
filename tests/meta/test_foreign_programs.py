"""The judge of benchmarks/foreign_programs.py: what a program that nobody here wrote ended with."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]
CRASH = """\
PLEASE submit a bug report to its authors
3. Running pass 'All' on module 'a'.
4. Running pass 'Late' on function 'f'
clang++: error: unable to execute command
"""


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("foreign_programs")


@pytest.mark.parametrize(
    ("status", "output", "more", "verdict", "why"),
    [
        (0, "sum is 5\n", {}, "right", "checks nothing itself"),
        (0, "PASS\n", {}, "right", ""),
        (0, "step 1: PASS\nstep 2: FAIL\n", {}, "wrong", "step 2: FAIL"),
        (0, "failures: 0, PASS\n", {}, "right", ""),
        (0, "no mismatch: PASS\n", {}, "right", ""),
        (0, "Number of incorrect matches: 0\nPASS\n", {}, "right", ""),
        (0, "PASS\n", {"launches": 0}, "wrong", "it launched no kernel"),
        (1, "Usage: sum N\n", {}, "wrong", "status 1: Usage: sum N"),
        (1, "cannot open /data/points.txt\n", {"launches": 0}, "lacks data", "cannot open points.txt"),
        (
            134,
            "assertion failed\n",
            {"launches": 0, "lacks": ("../data/points.txt",)},
            "lacks data",
            "points.txt",
        ),
        (1, "No module named 'torch'\n", {}, "needs another library", "Python's torch"),
        (2, "there is no program 'mpirun'\n", {}, "needs another library", "MPI"),
        (2, "sh: can't cd to data\n", {"launches": 0}, "lacks data", "sh: can't cd to data"),
        (1, "cannot open out.txt\n", {}, "wrong", "status 1: cannot open out.txt"),
        (127, "./sum: undefined symbol: hipblasX\n", {}, "refused", "./sum: undefined symbol: hipblasX"),
        (134, "", {"fault": "kernel sum: malloc in kernels"}, "refused", "kernel sum: malloc in kernels"),
        (1, "HIP error: out of memory\n", {}, "refused", "it needs more memory than 12 GB"),
        (152, "", {}, "time limit", ""),
    ],
)
def test_one_run_has_one_verdict(bench, status, output, more, verdict, why):
    ran = bench.Ran(
        **{"line": "./sum", "status": status, "output": output, "seconds": 1.0, "launches": 1, **more}
    )
    assert bench.judge(ran) == bench.Judged(verdict=verdict, why=why)


def test_a_program_without_kernels_in_its_source_may_launch_none(bench):
    ran = bench.Ran(line="./query", status=0, output="1 device\n", seconds=1.0)
    assert bench.judge(ran, launches=False).verdict == "right"


def test_what_is_built_of_the_same_is_not_built_again_and_a_run_finds_only_that(bench, tmp_path):
    folder, note = tmp_path / "sum-hip", tmp_path / "sum.json"
    (folder / "data").mkdir(parents=True)
    for name in ("main", "data/in.txt", "data/out.txt"):
        (folder / name).touch()
    note.write_text(json.dumps({"made_of": ["1", "sdk"], "files": ["data/in.txt", "main"]}), "utf-8")
    assert bench.files_left_by_build(note, ["2", "sdk"]) == frozenset()
    assert bench.files_left_by_build(tmp_path / "none.json", ["1", "sdk"]) == frozenset()
    kept = bench.files_left_by_build(note, ["1", "sdk"])
    bench.remove_others(folder, kept)
    assert sorted(path.name for path in folder.rglob("*") if path.is_file()) == ["in.txt", "main"]


def test_the_worst_of_several_runs_counts(bench):
    rans = [
        bench.Ran(line="./sum", status=0, output=told, seconds=1.0, launches=1)
        for told in ("PASS\n", "FAIL\n", "PASS\n")
    ]
    assert bench.judge_all(rans) == bench.Judged(verdict="wrong", why="FAIL (1 of 3 runs)")


def test_runs_that_lack_data_say_nothing_of_those_that_have_theirs(bench):
    def ran(status, told, launches):
        return bench.Ran(line="./sum", status=status, output=told, seconds=1.0, launches=launches)

    lacking, right, slow = ran(1, "cannot open in.txt\n", 0), ran(0, "PASS\n", 1), ran(152, "", 0)
    assert bench.judge_all([lacking, right]) == bench.Judged(verdict="right", why="1 of 2 runs lack data")
    assert bench.judge_all([lacking, slow]) == bench.Judged(
        verdict="time limit", why="(1 of 2 runs; 1 of 2 runs lack data)"
    )
    assert bench.judge_all([lacking, lacking]).verdict == "lacks data"


@pytest.mark.parametrize(
    ("output", "verdict", "why"),
    [
        ("a.cu:1:10: fatal error: 'boost/sort.hpp' file not found\n", "needs another library", "Boost"),
        (
            "a.cu:1:10: fatal error: 'thrust/sort.h' file not found\n",
            "does not build",
            "no header thrust/sort.h",
        ),
        ("ld.lld: error: unable to find library -lomp\n", "does not build", "no library for -lomp"),
        (CRASH, "does not build", "clang crashed in Late"),
        ("note: here\n/src/a.cu:3:1: error: no type\n", "does not build", "a.cu:3:1: error: no type"),
    ],
)
def test_a_failed_build_says_what_is_missing(bench, output, verdict, why):
    assert bench.judge_build(output) == bench.Judged(verdict=verdict, why=why)


def test_repetitions_are_found_where_they_are_read_or_explained(bench):
    read = "int n = atoi(argv[1]); const int repeat = std::stoi(argv[3]);"
    explained = 'printf("Usage: %s <number of rows> "\n  "<iterations>\\n", argv[0]);'
    assert bench.repeats_of([read]) == {3}
    assert bench.repeats_of([explained]) == {2}
    streamed = 'std::cout << "Usage: " << argv[0] << " <repeat> <length>\\n";'
    assert bench.repeats_of([streamed]) == {1}
    optional = 'printf("Usage: %s -s <size> -i <iterations>\\n", argv[0]);'
    assert bench.repeats_of([optional]) == {"-i"}


def test_only_repetitions_become_one(bench):
    def shortened(arguments, repeats=frozenset()):
        return bench.fewer_repeats(f"LAUNCH_THIS ./sum {arguments}", repeats)

    assert shortened("1000 500", frozenset({2})) == "LAUNCH_THIS ./sum 1000 1"
    assert shortened("-n 1000 --repeat 500") == "LAUNCH_THIS ./sum -n 1000 --repeat 1"
    assert shortened("-s 1000 -i 500", frozenset({2, "-i"})) == "LAUNCH_THIS ./sum -s 1000 -i 1"
    assert shortened("1000 500") == "LAUNCH_THIS ./sum 1000 500"
    assert shortened("data.txt", frozenset({1})) == "LAUNCH_THIS ./sum data.txt"


@pytest.mark.parametrize(
    ("once", "own", "verdict"),
    [
        ("echo FAIL", "echo PASS", "right"),
        ("exit 3", "echo FAIL", "wrong"),
        ("echo PASS", "echo FAIL", "right"),
    ],
)
def test_its_own_arguments_decide_where_one_repetition_shows_a_fault(bench, tmp_path, once, own, verdict):
    (tmp_path / "logs").mkdir()
    setting = bench.Setting(
        root=tmp_path,
        work=tmp_path,
        prefix=SimpleNamespace(hipcc=tmp_path / "hipcc"),
        cache_root=tmp_path,
        arch="gfx1151",
        limit_s=5,
        sanitize=False,
        code="",
    )
    program = bench.Program(name="sum", folder=".", command=(), runs=lambda _: ())
    lines = bench.Lines(own=(own,), once=(once,), launches=False)
    assert bench.try_lines(lines, program, setting, "w")[0].verdict == verdict


def test_sizes_become_smaller_and_other_arguments_stay(bench):
    line = "cd data && LAUNCH_THIS ./sum -n 4096 1000 3 0.5 in512.txt 128"
    assert bench.smaller(line, 64, 100, 16) == "cd data && LAUNCH_THIS ./sum -n 64 16 3 0.5 in512.txt 16"
    assert bench.smaller("LAUNCH_THIS ./sum 3 32", 8, 8, 2) == "LAUNCH_THIS ./sum 3 4"
    assert bench.smaller("LAUNCH_THIS ./sum 3", 64, 100, 16) == "LAUNCH_THIS ./sum 3"


def test_smaller_arguments_are_told_beside_a_time_limit_and_change_no_verdict(bench):
    def line(verdict, why):
        return {"name": "sum", "verdict": verdict, "why": why, "runs": []}

    told = "right with smaller arguments: sizes divided by 8"
    assert bench.ends_right_when_smaller(line("time limit", told))
    assert not bench.ends_right_when_smaller(line("time limit", ""))
    summary = bench.summary([line("right", ""), line("time limit", told), line("time limit", "")])
    assert "1 of 3 whose data is there and that need no other library (33.3%)" in summary
    assert "    1 more with smaller arguments" in summary


def test_what_ran_smaller_is_not_run_smaller_again(bench):
    old = {"files": "1", "verdict": "time limit", "why": ""}
    assert not bench.has_no_smaller(old, "1")
    assert bench.has_no_smaller({**old, "why": "right with smaller arguments: sizes divided by 8"}, "1")
    assert bench.has_no_smaller(old, "2")
    assert bench.has_no_smaller({**old, "verdict": "wrong"}, "1")
    assert bench.has_no_smaller(None, "1")


def test_benchmarks_and_examples_are_found_by_their_makefiles(bench, tmp_path):
    for name in ("sum-hip", "sum-cuda", "scan-hip"):
        (tmp_path / "bench" / "src" / name).mkdir(parents=True)
        (tmp_path / "bench" / "src" / name / "Makefile").write_text("run:\n")
    collection, programs = bench.programs_of(tmp_path / "bench")
    assert (collection, [one.name for one in programs]) == ("hecbench", ["scan", "sum"])
    (tmp_path / "examples" / "HIP-Basic" / "sum").mkdir(parents=True)
    (tmp_path / "examples" / "HIP-Basic" / "Makefile").write_text("all: sum\n")
    (tmp_path / "examples" / "HIP-Basic" / "sum" / "Makefile").write_text("EXAMPLE := hip_sum\n")
    collection, programs = bench.programs_of(tmp_path / "examples")
    assert (collection, [one.name for one in programs]) == ("rocm-examples", ["HIP-Basic/sum"])


def test_a_program_is_started_where_its_makefile_starts_it(bench):
    told = "hipcc main.o -o main\ncd data && LAUNCH_THIS ./main 10 \\\n    20\n"
    assert [line.split() for line in bench.launching_lines(told)] == [
        ["cd", "data", "&&", "LAUNCH_THIS", "./main", "10", "20"]
    ]
    told = "LAUNCH_THIS rm -rf out;\nmkdir out\n./main 10\n"
    assert bench.launching_lines(told) == ["rm -rf out; mkdir out; LAUNCH_THIS ./main 10"]
    assert bench.launching_lines("LAUNCH_THIS ./main 1\n#LAUNCH_THIS ./main 2\n") == ["LAUNCH_THIS ./main 1"]
    assert bench.launching_lines("LAUNCH_THIS SEED=1 ./main\n") == ["SEED=1 LAUNCH_THIS ./main"]
    assert bench.launching_lines("LAUNCH_THIS python run.py\n") == ["LAUNCH_THIS python run.py"]
    assert bench.launching_lines("hipcc main.o\ncd src && ./main 10\n") == ["cd src && LAUNCH_THIS ./main 10"]


def test_a_library_counts_only_in_what_the_makefile_builds(bench, tmp_path):
    (tmp_path / "Makefile").write_text("main: main.o\n\thipcc main.o -o main\n")
    (tmp_path / "main.cu").write_text("#include <hipblas/hipblas.h>\n")
    (tmp_path / "other-main.cu").write_text("#include <rocblas/rocblas.h>\n")
    assert [path.name for path in bench.built_files(tmp_path)] == ["main.cu"]
    assert bench.other_library(path.read_bytes() for path in bench.built_files(tmp_path)) is None
    (tmp_path / "sum.h").write_text('#include "sum.h"\n  #  include <boost/sort.hpp>\n')
    assert bench.other_library(path.read_bytes() for path in bench.built_files(tmp_path)) == "Boost"


def test_files_among_the_arguments_that_are_not_there_are_named(bench, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "here.txt").touch()
    (tmp_path / "sum").mkdir()
    line = "LAUNCH_THIS ./main ../data/here.txt ../data/gone.txt ../none/far.txt out.txt 10"
    missing = bench.missing_files(line, tmp_path / "sum")
    assert missing == ("../data/gone.txt", "../none/far.txt")
    near, far = (tmp_path / "sum" / path for path in missing)
    assert not bench.is_to_be_fetched(near)
    assert bench.is_to_be_fetched(far)
    (tmp_path / "data" / "gone.tar.dvc").touch()
    assert bench.is_to_be_fetched(near)


def test_a_verdict_is_of_the_files_beside_the_program_too(bench, tmp_path):
    source = tmp_path / "src" / "sum-hip"
    source.mkdir(parents=True)
    (source / "Makefile").write_text("CFLAGS = -I../sum-cuda\n")
    (tmp_path / "src" / "sum-cuda").mkdir()
    (program,) = bench.programs_of(tmp_path)[1]
    before = bench.files_digest(program, tmp_path)
    (tmp_path / "src" / "other-cuda").mkdir()
    (tmp_path / "src" / "other-cuda" / "a.h").write_text("1")
    assert bench.files_digest(program, tmp_path) == before
    (tmp_path / "src" / "sum-cuda" / "a.h").write_text("1")
    assert bench.files_digest(program, tmp_path) != before


def test_the_newest_whole_line_of_a_program_is_its_verdict(bench, tmp_path):
    lines = [json.dumps({"name": "sum", "verdict": verdict}) for verdict in ("wrong", "right")]
    (tmp_path / "verdicts.jsonl").write_text("\n".join([*lines, '{"name": "sum", "verd']))
    assert bench.load_verdicts(tmp_path / "verdicts.jsonl")["sum"]["verdict"] == "right"


def test_what_a_person_found_out_names_a_reason(bench):
    for collection in ("hecbench", "rocm-examples"):
        for (_, instead_of), judged in bench.load_known(collection).verdicts.items():
            assert judged.why
            assert judged.verdict in {*bench.GOOD, *bench.OUTSIDE, "refused"}
            assert instead_of not in {*bench.GOOD, *bench.OUTSIDE}


def test_what_a_person_found_out_counts_only_instead_of_that_verdict(bench):
    known = {("sum", "wrong"): bench.Judged(verdict="own fault", why="issue 1")}
    line = {"name": "sum", "why": "", "runs": []}
    assert bench.with_known({**line, "verdict": "wrong"}, known)["why"] == "issue 1"
    assert bench.with_known({**line, "verdict": "refused"}, known)["verdict"] == "refused"
