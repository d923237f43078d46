"""``patchkit emulate``: kernels of our own on the emulated GPU, and what it says of those that fail."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from gate_subject import subject_for
from right_kernels import RIGHT_KERNELS

from patchkit.base.series_folder import SeriesDir
from patchkit.toolchain.hip import Toolchain

pytestmark = [pytest.mark.hip, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[3]
Emulate = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def hipcc(gates_cache: Path) -> Path:
    """The SDK's compiler driver."""
    return gates_cache / "sdk" / "current" / "bin" / "hipcc"


@pytest.fixture(scope="module")
def program(hipcc: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kernels, for gfx1151."""
    made = tmp_path_factory.mktemp("emulated") / "kernels"
    source = Path(__file__).with_name("emulated_kernels.hip")
    subprocess.run([hipcc, "--offload-arch=gfx1151", source, "-o", made], check=True, capture_output=True)
    return made


@pytest.fixture(scope="module")
def shipped_candidate(gates_cache: Path, hip_toolchain: Toolchain) -> None:
    """The candidate of the series for gfx1151, made."""
    subject_for(SeriesDir(root=ROOT, origin="checkout"), gates_cache, hip_toolchain, ["gfx1151"])


@pytest.fixture(scope="module")
def emulate(gates_cache: Path) -> Emulate:
    """Runs the command in a process of its own: the program writes to its stdout."""

    def run(*arguments: str | Path, arch: str = "gfx1151") -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "patchkit", "--cache-dir", gates_cache, "emulate", "--arch", arch]
        return subprocess.run(
            [*map(str, argv), *map(str, arguments)], capture_output=True, text=True, check=False, timeout=600
        )

    return run


@pytest.mark.parametrize("name", [*RIGHT_KERNELS, "nearby"])
def test_kernels_compute_what_the_host_does(emulate: Emulate, program: Path, name: str) -> None:
    done = emulate("--", program, name)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "right"


def test_a_program_of_a_side_runs_by_its_name(emulate: Emulate, shipped_candidate: None) -> None:
    for side in ("baseline", "candidate"):
        done = emulate(
            "--upstream",
            "b6900",
            "--side",
            side,
            "--",
            "test-backend-ops",
            "test",
            "-o",
            "SOFTCAP",
            "-b",
            "ROCm0",
        )
        assert done.returncode == 0, done.stderr
        assert "1/1 tests passed" in done.stdout
        assert "emulated gfx1151: 1 launch of 1 kernel," in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--side", "candidate", "--", "../test-backend-ops"), "USAGE_VALUE"),
        (("--side", "candidate", "--upstream", "b1", "--", "llama-bench"), "PIN_UNKNOWN"),
        (("--upstream", "b6900", "--", "test-backend-ops"), "USAGE_SYNTAX"),
        (("--onto", "HEAD", "--", "test-backend-ops"), "USAGE_SYNTAX"),
        (("--side", "baseline", "--upstream", "b1", "--onto", "--", "test-opt"), "OPTIONS_CONTRADICT"),
    ],
)
def test_a_side_that_cannot_be_run_is_refused(
    emulate: Emulate, arguments: tuple[str, ...], code: str
) -> None:
    done = emulate(*arguments)
    assert done.returncode == 2, done.stderr
    assert f"error[{code}]" in done.stderr


@pytest.mark.parametrize("schedule", ["late", "shuffle:1", "shuffle:99"])
def test_another_schedule_gives_the_same(emulate: Emulate, program: Path, schedule: str) -> None:
    done = emulate("--schedule", schedule, "--", program, "atomics")
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr


def test_what_ran_is_counted(emulate: Emulate, program: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    done = emulate("--count", "--report", report, "--", program, "wmma")
    assert re.search(r"launch(es)? of [0-9]+ kernels?, [0-9]+ wave instructions", done.stderr)
    (kernel,) = json.loads(report.read_text())["kernels"]
    assert (kernel["launches"], kernel["waves"]) == (1, 1)
    counted = {text.split()[0]: (executed, is_open) for text, executed, is_open in kernel["by_instruction"]}
    assert counted["v_wmma_f32_16x16x16_f16"] == (1, True)
    assert counted["s_endpgm"] == (1, False)
    assert sum(executed for _, executed, _ in kernel["by_instruction"]) == kernel["instructions"]


def test_the_report_is_the_output_of_json(emulate: Emulate, program: Path) -> None:
    done = emulate("--json", "--", program, "places")
    document = json.loads(done.stdout)
    assert (document["status"], document["report"]["arch"]) == (0, "gfx1151")
    assert "right" in done.stderr


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("beyond", (), "outside of any allocation"),
        ("far away", (), "outside of any allocation"),
        ("endless", ("--limit", "1000000"), "it does not end"),
        ("endless", (), "it makes no progress"),
        ("trap", (), "the kernel trapped"),
    ],
)
def test_what_a_gpu_does_not_survive_is_named(
    emulate: Emulate, program: Path, name: str, options: tuple[str, ...], said: str
) -> None:
    done = emulate(*options, "--", program, name)
    assert done.returncode == 128 + signal.SIGABRT
    assert said in done.stderr
    assert "block (0, 0, 0)" in done.stderr
    assert "wave 0" in done.stderr


@pytest.mark.parametrize(
    ("name", "options", "kernel", "code"),
    [
        ("trap", (), "gives_up", "__builtin_trap();"),
        ("endless", ("--limit", "1000000"), "endless", "while (*flag == 0)"),
        ("beyond", (), "beyond", "to[threadIdx.x + 100000000] = 1;"),
    ],
)
def test_a_fault_is_told_with_the_source_line_where_the_code_has_lines(
    emulate: Emulate, hipcc: Path, tmp_path: Path, name: str, options: tuple[str, ...], kernel: str, code: str
) -> None:
    source, made = Path(__file__).with_name("emulated_kernels.hip"), tmp_path / "kernels"
    argv = [hipcc, "-g", "--offload-arch=gfx1151", source, "-o", made]
    subprocess.run(argv, check=True, capture_output=True)
    lines = source.read_text().splitlines()
    line = next(number for number, text in enumerate(lines, start=1) if code in text)
    done = emulate("--json", *options, "--", made, name)
    assert f"kernel {kernel}, block (0, 0, 0)" in done.stderr
    assert f"warning: kernel {kernel} was stopped\n  {source}:{line}: " in done.stderr
    assert f"{source}:{line}: " in json.loads(done.stdout)["report"]["fault"]


def test_an_endless_kernel_is_stopped_with_where_each_wave_stands(emulate: Emulate, program: Path) -> None:
    done = emulate("--limit", "1000000", "--", program, "endless")
    for wave in (0, 1):
        assert re.search(rf"^  wave {wave} (spins|runs) in endless at byte \d+, ", done.stderr, re.MULTILINE)


def test_code_for_another_gpu_is_refused_as_by_the_real_runtime(emulate: Emulate, program: Path) -> None:
    done = emulate("--", program, "places", arch="gfx1100")
    assert "has no code for gfx1100" in done.stderr
    assert "right" not in done.stdout


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1150", "gfx1201"])
def test_each_gpu_runs_its_own_code(emulate: Emulate, hipcc: Path, tmp_path: Path, arch: str) -> None:
    source, made = Path(__file__).with_name("emulated_kernels.hip"), tmp_path / "kernels"
    subprocess.run([hipcc, f"--offload-arch={arch}", source, "-o", made], check=True, capture_output=True)
    for name in ("places", "lds", "lanes", "calls", "atomics", "division", "wmma"):
        done = emulate("--", made, name, arch=arch)
        assert (done.returncode, done.stdout) == (0, "right\n"), (name, done.stderr)


@pytest.mark.parametrize(
    ("arguments", "arch", "code"),
    [
        ((), "gfx1151", "USAGE_SYNTAX"),
        (("--vectors", "none.jsonl", "--", "true"), "gfx1151", "USAGE_SYNTAX"),
        (("--", "./no-such-program"), "gfx1151", "PROGRAM_MISSING"),
        (("--", __file__), "gfx1151", "PROGRAM_MISSING"),
        (("--", "true"), "gfx906", "ARCH_NOT_EMULATED"),
        (("--", "true"), "gfx9999", "ARCH_UNKNOWN"),
        (("--vectors", "none.jsonl"), "gfx1151", "VECTORS_BAD"),
        (("--schedule", "shuffle:0", "--", "true"), "gfx1151", "USAGE_VALUE"),
        (("--schedule", f"shuffle:{'9' * 5000}", "--", "true"), "gfx1151", "USAGE_VALUE"),
        (("--limit", "9" * 5000, "--", "true"), "gfx1151", "USAGE_VALUE"),
        (("--vectors", __file__, "--limit", "9"), "gfx1151", "USAGE_SYNTAX"),
        (("--vectors", __file__, "--count"), "gfx1151", "USAGE_SYNTAX"),
        (("--vectors", __file__, "--schedule", "in-order"), "gfx1151", "USAGE_SYNTAX"),
        (("--vectors", __file__, "--report", "none.json"), "gfx1151", "USAGE_SYNTAX"),
    ],
)
def test_wrong_input_is_refused(
    emulate: Emulate, arguments: tuple[str, ...], arch: str, code: str, tmp_path: Path
) -> None:
    done = emulate("--json", *arguments, arch=arch)
    assert done.returncode == 2, done.stderr
    assert json.loads(done.stdout)["error"]["code"] == code


def test_the_status_is_the_programs(emulate: Emulate) -> None:
    assert emulate("--", "sh", "-c", "exit 7").returncode == 7


def test_what_each_process_ran_is_reported(emulate: Emulate, program: Path, tmp_path: Path) -> None:
    report = tmp_path / "report"
    script = f"'{program}' trap; '{program}' places && '{program}' wmma"
    done = emulate("--report", report, "--count", "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    document = json.loads(report.read_text())
    assert document["processes"] == 3
    assert "the kernel trapped" in document["fault"]
    ran = [instruction for kernel in document["kernels"] for instruction, _, _ in kernel["by_instruction"]]
    assert any(text.startswith("v_wmma") for text in ran)
    assert "in 3 processes" in done.stderr


def test_a_report_that_was_written_over_is_none(emulate: Emulate) -> None:
    done = emulate("--", "sh", "-c", 'echo \'{"arch": [\' > "$PATCHKIT_EMULATOR_REPORT"')
    assert done.returncode == 6, done.stderr
    assert "error[EMULATION_UNREPORTED]" in done.stderr


def test_a_program_that_a_signal_ended_is_said_to_be(emulate: Emulate) -> None:
    done = emulate("--", "sh", "-c", "kill -SEGV $$")
    assert done.returncode == 128 + signal.SIGSEGV
    assert "the program was ended by SIGSEGV" in done.stderr


def test_a_report_that_cannot_be_written_is_told_before_the_program_runs(
    emulate: Emulate, tmp_path: Path
) -> None:
    done = emulate("--report", tmp_path / "none" / "report", "--", "touch", tmp_path / "ran")
    assert (done.returncode, list(tmp_path.iterdir())) == (8, []), done.stderr


def test_an_earlier_report_is_not_taken_for_this_ones(emulate: Emulate, tmp_path: Path) -> None:
    report = tmp_path / "report"
    report.write_text("of another program")
    done = emulate("--report", report, "--", "true")
    assert done.returncode == 0
    assert f"no report was written to {report}" in done.stderr
    assert not report.exists()


def test_the_programs_status_comes_before_a_report_that_fails(
    emulate: Emulate, program: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for status, told in ((3, 3), (0, 8)):
        folder.mkdir(exist_ok=True)
        script = f"'{program}' places && rm -r '{folder}'; exit {status}"
        done = emulate("--report", folder / "report", "--", "sh", "-c", script)
        assert done.returncode == told, done.stderr
        assert "writing the report failed" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_program_does_not_outlive_the_command(
    gates_cache: Path, tmp_path: Path, number: signal.Signals
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    argv = [sys.executable, "-m", "patchkit", "--cache-dir", str(gates_cache), "emulate", "--arch", "gfx1151"]
    script = f"exec sleep 600 > '{pipe}'"
    # In a session without a terminal, so that the signal is sent to the command only.
    command = subprocess.Popen([*argv, "--", "sh", "-c", script], start_new_session=True)
    with pipe.open("rb") as alive:  # waits until the program runs
        command.send_signal(number)
        assert command.wait(timeout=60) in {-number, 130}
        assert alive.read() == b""  # waits until it ended


def test_vectors_hold_or_are_named(emulate: Emulate, tmp_path: Path) -> None:
    # v_mov_b32 v1, 5 and v_add_f32 v2, v0, v0 as hex; the second vector expects another value.
    code = "8502027e" + "00010406"
    good = {"name": "good", "lanes": 1, "code": code, "before": {"v": {"0": "3f800000"}}}
    after = {"v": {"0": "3f800000", "1": "00000005", "2": "40000000"}, "exec": "1"}
    lines = [{**good, "after": after}, {**good, "name": "bad", "after": {**after, "scc": 1}}]
    file = tmp_path / "vectors.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = emulate("--json", "--vectors", file)
    assert done.returncode == 1
    document = json.loads(done.stdout)
    assert (document["vectors"], document["hold"]) == (2, 1), document
    assert document["differ"] == [{"name": "bad", "differences": ["scc is 0, expected 1"]}]


def test_a_malformed_vector_is_named_with_its_line(emulate: Emulate, tmp_path: Path) -> None:
    file = tmp_path / "vectors.jsonl"
    file.write_text('{"name": "a", "lanes": 1, "code": "8002007e", "after": {}}\n{"name": "b"}\n')
    done = emulate("--json", "--vectors", file)
    error = json.loads(done.stdout)["error"]
    assert (error["code"], error["where"][0]["line"]) == ("VECTORS_BAD", 2)
