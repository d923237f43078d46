"""Cost of the emulated GPU's checks, by kernel and by check.

Cases of upstream's test-backend-ops, built from the unpatched pin, run without checks, with each check alone,
and with all of them, in turn. Only the launches are timed, by CPU time of the process with one thread of the
emulator: not the CPU reference or the decoding. A figure is the median over the rounds of the time over the
plain run of the same round. Kernels that take less than five milliseconds without checks are not listed; the
last line is the geometric mean of the others. No case has a fault, so the cost of a finding is not included.

    python benchmarks/sanitize_cost.py --rounds 3 --record

``--record`` writes docs/records/data/sanitize-cost.json, from which benchmarks/records.py makes a table.
"""

from __future__ import annotations

import re
import shlex
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from emulator_speed import Bench, make_parser, prepared, show
from records import cpu_name, write_record

from patchkit.gpu.emulated.checks import CheckName, usual_checks
from patchkit.gpu.emulated.emulator import EmulationOptions
from patchkit.gpu.emulated.names import read_name
from patchkit.gpu.hardware.backend_ops import Choice, parse_rows

# Required by issue 15.
LIMIT = 3.0

_ALL = "all"
_LEAST_S = 0.005
_TIMEOUT_S = 1800.0
# The first case that matches each, by the names of build 6900.
_CASES = (
    r"FLASH_ATTN_EXT\(hsk=128,.*nr23=\[4,1\],kv=512,nb=1,mask=1,sinks=0,.*prec=f32,type_KV=f16",  # VEC
    r"FLASH_ATTN_EXT\(hsk=128,.*nr23=\[4,1\],kv=512,nb=1,mask=1,sinks=0,.*prec=f32,type_KV=q8_0",
    r"FLASH_ATTN_EXT\(hsk=128,.*nr23=\[1,1\],kv=512,nb=35,mask=1,sinks=0,.*prec=f32,type_KV=f16",  # rocWMMA
    r"FLASH_ATTN_EXT\(hsk=40,.*nr23=\[1,1\],kv=113,nb=35,mask=1,sinks=0,.*prec=f32,type_KV=f16",  # TILE
    *(rf"MUL_MAT\(type_a={kind},type_b=f32,m=16,n=(1|16),k=256" for kind in ("q4_0", "q4_K", "f16")),
    *(
        rf"MUL_MAT_ID\(type_a={kind},type_b=f32,n_mats=4,n_used=2,b=0,m=512,n={columns},k=256"
        for kind in ("q4_K", "q8_0", "f16")
        for columns in (1, 17)
    ),
    r"SOFT_MAX\(type=f32,ne=\[1024,1024,1,1\],mask=1",
    r"ARGSORT\(type=f32,ne=\[60,10,10,10\]",
    r"ROPE\(type=f32,ne_a=\[128,64,2,1\]",
    r"RWKV_WKV6\(.*n_seq_tokens=32,n_seqs=4",
    r"GROUP_NORM\(type=f32,ne=\[64,64,320,1\]",
    r"GATED_LINEAR_ATTN\(.*n_seq_tokens=32,n_seqs=4",
    r"GET_ROWS\(type=f32,n=76800",
    r"IM2COL\(type_input=f32,type_kernel=f32,dst_type=f32,ne_input=\[20,20,2,2\]",
    r"CONV_2D\(ne_input=\[141,133,25,2\],ne_kernel=\[1,1,25,1\],type_kernel=f32,stride0=3,stride1=5",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """A kernel: seconds without checks, and the factor of each check alone and of all."""

    kernel: str
    plain_s: float
    times: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The figures, and the machine and settings."""

    costs: list[Cost]
    mean: Mapping[str, float]
    rounds: int
    build: int
    arch: str
    cpu: str


def main() -> int:
    """Measure; return 1 if the mean with all checks exceeds the limit."""
    parser = make_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--cases", default="", metavar="PATTERN", help="regular expression: only the cases that match"
    )
    parser.add_argument("--only-all", action="store_true", help="no check alone, only all of them")
    parser.add_argument("--record", action="store_true", help="write the data of docs/records")
    options = parser.parse_args()
    modes: dict[str, tuple[CheckName, ...]] = {_ALL: usual_checks()}
    if not options.only_all:
        modes = {**{one: (one,) for one in usual_checks()}, **modes}
    with prepared(options) as bench:
        rounds = measure(bench, modes, options.rounds, options.cases)
    costs = list(costs_of(rounds, modes))
    result = Result(
        costs=costs,
        mean={mode: round(statistics.geometric_mean(one.times[mode] for one in costs), 2) for mode in modes},
        rounds=options.rounds,
        build=options.build,
        arch=options.arch,
        cpu=cpu_name(),
    )
    show(table(result), asdict(result), options)
    if options.record:
        words = ["--arch", options.arch, "--build", str(options.build), "--rounds", str(options.rounds)]
        if options.cases:
            words += ["--cases", shlex.quote(options.cases)]
        command = f"python benchmarks/sanitize_cost.py {' '.join(words)}"
        write_record("sanitize-cost", command, asdict(result))
    return int(result.mean[_ALL] > LIMIT)


def run(bench: Bench, mode: str, choice: Choice, checks: tuple[CheckName, ...] = ()) -> str:
    """The output of test-backend-ops; launches are written to ``bench.seconds``."""
    bench.seconds.unlink(missing_ok=True)
    options = EmulationOptions(threads=1, checks=checks, report=bench.scratch / "report.json")
    program = str(bench.built.program("test-backend-ops"))
    return subprocess.run(
        [program, mode, *choice.words, "-b", "ROCm0", "--output", "csv"],
        env={**bench.environment, **options.variables()},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,  # 1: a case was wrong, as some of upstream's are
    ).stdout


def by_kernel(bench: Bench) -> dict[str, float]:
    """Seconds of all launches of the last run."""
    found: dict[str, float] = {}
    for line in bench.seconds.read_text("utf-8").splitlines():
        seconds, _, name = line.partition(" ")
        base = read_name(name).base
        found[base] = found.get(base, 0.0) + float(seconds)
    return found


def measure(
    bench: Bench, modes: Mapping[str, tuple[CheckName, ...]], rounds: int, pattern: str
) -> list[dict[str, dict[str, float]]]:
    """Seconds by kernel and mode, of each round; "" is the plain mode."""
    listed = parse_rows(run(bench, "support", Choice()), where="support")
    cases = tuple(dict.fromkeys(_first(one, [row.case for row in listed]) for one in _CASES))
    choice = Choice(cases=tuple(case for case in cases if re.search(pattern, case)))
    run(bench, "test", choice)  # compiles the kernels
    found = []
    for _ in range(rounds):
        seconds = {}
        for mode, checks in {"": (), **modes}.items():
            run(bench, "test", choice, checks)
            seconds[mode] = by_kernel(bench)
        found.append(seconds)
    return found


def _first(pattern: str, cases: Sequence[str]) -> str:
    for case in cases:
        if re.match(pattern, case):
            return case
    raise SystemExit(f"no case of this build matches {pattern}")


def costs_of(
    rounds: Sequence[Mapping[str, Mapping[str, float]]], modes: Mapping[str, object]
) -> Iterator[Cost]:
    """The kernels that take long enough to be listed."""
    plain = {name: statistics.median(one[""][name] for one in rounds) for name in rounds[0][""]}
    for name, seconds in sorted(plain.items(), key=lambda one: -one[1]):
        if seconds >= _LEAST_S:
            times = {
                mode: statistics.median(one[mode][name] / one[""][name] for one in rounds) for mode in modes
            }
            yield Cost(
                kernel=name,
                plain_s=round(seconds, 3),
                times={mode: round(one, 2) for mode, one in times.items()},
            )


def table(result: Result) -> str:
    """The figures as a text table."""
    modes = list(result.mean)
    rows = [
        f"build {result.build}, {result.arch}; {result.cpu}; median of {result.rounds} rounds",
        f"{'':<32} {'plain, s':>9} " + " ".join(f"{mode:>13}" for mode in modes),
    ]
    rows += [
        f"{one.kernel:<32} {one.plain_s:>9.3f} " + " ".join(f"{one.times[mode]:>13.2f}" for mode in modes)
        for one in result.costs
    ]
    rows.append(f"{'mean':<42} " + " ".join(f"{result.mean[mode]:>13.2f}" for mode in modes))
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main())
