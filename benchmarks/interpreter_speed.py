"""Wave instructions per second and core of the emulated GPU, by kind of kernel.

Cases of upstream's test-backend-ops, built from the unpatched pin, one for each kind of kernel: attention
(TILE), quantized matmul with several columns (mul_mat_q) and with one (mul_mat_vec_q), and an elementwise
operation. They run without checks, with counts, and with all checks, in turn. A figure is that of the best
launch, by CPU time of one thread, so other work on the machine matters little. The first launch of a kernel
includes decoding and is not used if there is another one.

    python benchmarks/interpreter_speed.py --rounds 3 --json interpreter_speed.json

To see where the time goes, run ``perf record`` on the same program with PATCHKIT_EMULATOR_THREADS=1.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from emulator_speed import Bench, make_parser, prepared, show
from records import cpu_name
from sanitize_cost import run

from patchkit.gpu.emulated.checks import usual_checks
from patchkit.gpu.emulated.emulator import EmulationOptions
from patchkit.gpu.emulated.names import read_name
from patchkit.gpu.hardware.backend_ops import Choice, parse_rows

# By kernel, the cases whose launches count: several, so that one does not include decoding.
_CASES: Mapping[str, str] = {
    "flash_attn_tile": r"FLASH_ATTN_EXT\(hsk=40,.*nr23=\[1,1\],kv=113,nb=35,mask=1,sinks=0,.*type_KV=f16",
    "mul_mat_q": r"MUL_MAT_ID\(type_a=q4_K,type_b=f32,n_mats=4,n_used=[12],b=[01],m=512,n=17,k=256",
    "mul_mat_vec_q": r"MUL_MAT_ID\(type_a=q4_K,type_b=f32,n_mats=4,n_used=[12],b=[01],m=512,n=1,k=256",
    "k_bin_bcast": r"ADD\(type=f32,ne=\[(1280|640|320),",
}
_MODES: Mapping[str, EmulationOptions] = {
    "plain": EmulationOptions(threads=1),
    "counted": EmulationOptions(threads=1, counts=True),
    "checked": EmulationOptions(threads=1, checks=usual_checks()),
}
_TIMEOUT_S = 1800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """A kernel: million wave instructions per second of one core, by mode."""

    kernel: str
    per_core: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The figures, and the machine and settings."""

    speeds: list[Speed]
    rounds: int
    build: int
    arch: str
    cpu: str


def main() -> None:
    """Measure and print."""
    parser = make_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with prepared(options) as bench:
        best = measure(bench, options.rounds)
    result = Result(
        speeds=[Speed(kernel=kernel, per_core=of_modes) for kernel, of_modes in best.items()],
        rounds=options.rounds,
        build=options.build,
        arch=options.arch,
        cpu=cpu_name(),
    )
    show(table(result), asdict(result), options)


def measure(bench: Bench, rounds: int) -> dict[str, dict[str, float]]:
    """The best of all launches by kernel and mode."""
    listed = [row.case for row in parse_rows(run(bench, "support", Choice()), where="support")]
    choice = Choice(
        cases=tuple(
            dict.fromkeys(case for pattern in _CASES.values() for case in listed if re.match(pattern, case))
        )
    )
    best: dict[str, dict[str, float]] = {kernel: dict.fromkeys(_MODES, 0.0) for kernel in _CASES}
    for _ in range(rounds):
        for mode, options in _MODES.items():
            for kernel, rate in launches(bench, choice, options):
                if kernel in best:
                    best[kernel][mode] = max(best[kernel][mode], round(rate / 1e6, 1))
    return best


def launches(bench: Bench, choice: Choice, options: EmulationOptions) -> list[tuple[str, float]]:
    """Kernel and instructions per second of each launch."""
    rates = bench.scratch / "rates"
    rates.unlink(missing_ok=True)
    subprocess.run(
        [str(bench.built.program("test-backend-ops")), "test", *choice.words, "-b", "ROCm0"],
        env={**bench.environment, **options.variables(), "PATCHKIT_WATCH_RATES": str(rates)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=_TIMEOUT_S,
        check=False,  # 1: a case was wrong, as some of upstream's are
    )
    found = []
    for line in rates.read_text("utf-8").splitlines():
        seconds, instructions, name = line.split(" ", 2)
        found.append((read_name(name).base, int(instructions) / float(seconds)))
    return found


def table(result: Result) -> str:
    """The figures as a text table."""
    rows = [
        f"build {result.build}, {result.arch}; {result.cpu}; best launch of {result.rounds} rounds",
        f"{'million per second and core':<28} " + " ".join(f"{mode:>8}" for mode in _MODES),
    ]
    rows += [
        f"{one.kernel:<28} " + " ".join(f"{one.per_core[mode]:>8.1f}" for mode in _MODES)
        for one in result.speeds
    ]
    return "\n".join(rows)


if __name__ == "__main__":
    main()
