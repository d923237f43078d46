"""Launches on the executing runtime: arguments, variables, modules, limits, printf, faults and the report."""

from __future__ import annotations

import json
import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.hip, pytest.mark.slow]


@pytest.fixture(scope="module")
def program(compile_program):
    # Unoptimised device code takes every hidden argument that there is.
    return compile_program("kernel_launches", "-Xarch_device", "-O0")


def _described(lines: list[str]) -> dict[str, list[bytes]]:
    arguments: dict[str, list[bytes]] = {}
    for line in lines:
        kind, size, *rest = line.split(" ")
        value = bytes.fromhex(rest[0]) if rest[0] else b""
        assert len(value) == int(size)
        arguments.setdefault(kind, []).append(value)
    return arguments


def _number(value: bytes) -> int:
    return int.from_bytes(value, "little")


def test_arguments_lie_where_the_metadata_says_and_hidden_ones_say_what_was_launched(program, execute):
    done = execute(program, "arguments")
    assert (done.returncode, done.stderr) == (0, "")
    pointer, launch, *rest = done.stdout.splitlines()
    assert launch == "launch 2 3 4, 32 2 1, 1000, 0"
    arguments = _described(rest)
    a, b, d, e = arguments.pop("by_value")
    (c,) = arguments.pop("global_buffer")
    assert (a, struct.unpack("<q", d), struct.unpack("<f", e)) == (b"x", (-5,), (0.5,))
    assert (b[:1], struct.unpack("<i", b[4:8]), struct.unpack("<h", b[8:10])) == (b"\1", (-2,), (3,))
    assert f"pointer {_number(c):x}" == pointer
    hidden = {kind: _number(value) for kind, (value,) in arguments.items()}
    wanted = {
        **{f"hidden_block_count_{axis}": count for axis, count in zip("xyz", (2, 3, 4), strict=True)},
        **{f"hidden_group_size_{axis}": count for axis, count in zip("xyz", (32, 2, 1), strict=True)},
        **{f"hidden_remainder_{axis}": 0 for axis in "xyz"},
        **{f"hidden_global_offset_{axis}": 0 for axis in "xyz"},
        "hidden_grid_dims": 3,
        "hidden_multigrid_sync_arg": 0,
    }
    assert {kind: hidden[kind] for kind in wanted} == wanted
    assert hidden["hidden_hostcall_buffer"] != 0
    assert hidden["hidden_heap_v1"] != 0
    assert hidden.get("hidden_dynamic_lds_size", 1000) == 1000


def test_blocks_of_a_cooperative_launch_get_what_they_meet_at_and_have_to_fit(program, execute):
    done = execute(program, "cooperative")
    assert done.returncode == 0
    (said,) = done.stderr.splitlines()
    assert "is rejected with hipErrorCooperativeLaunchTooLarge" in said
    launch, *rest, refused = done.stdout.splitlines()
    assert launch == "launch 5 1 1, 64 1 1, 0, 1"
    (barrier,) = _described(rest)["hidden_multigrid_sync_arg"]
    assert _number(barrier) != 0
    assert refused == "hipErrorCooperativeLaunchTooLarge"


def test_variables_of_the_device_are_read_and_written_by_name(program, emulate):
    done = emulate(program, "variables")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        *("42", "100", "16 2", "9"),
        "hipErrorInvalidValue hipErrorInvalidMemcpyDirection hipErrorInvalidSymbol",
    ]


def test_host_and_device_share_a_managed_variable(program, emulate):
    done = emulate(program, "managed")
    assert (done.returncode, done.stdout, done.stderr) == (0, "18\n", "")


@pytest.fixture(scope="module")
def images(compile_program, tmp_path_factory) -> dict[str, Path]:
    """The device code of the program for two GPUs: for each alone, in a bundle, in a compressed bundle."""
    folder = tmp_path_factory.mktemp("images")
    forms = {
        "elf": ("--offload-arch=gfx1151", "--no-gpu-bundle-output"),
        "bundle": ("--offload-arch=gfx1100", "--offload-arch=gfx1151"),
        "compressed": ("--offload-arch=gfx1100", "--offload-arch=gfx1151", "--offload-compress"),
        "other": ("--no-offload-arch=gfx1151", "--offload-arch=gfx1100"),
    }
    made = {}
    for name, flags in forms.items():
        made[name] = folder / name
        compile_program.device("kernel_launches", made[name], *flags)
    made["broken"] = folder / "broken"
    made["broken"].write_bytes(made["elf"].read_bytes()[:2000])
    made["empty"] = folder / "empty"
    made["empty"].touch()
    return made


def test_modules_are_loaded_from_code_objects_and_bundles(program, emulate, images):
    files = [str(images[name]) for name in ("elf", "bundle", "compressed")]
    done = emulate(program, "modules", *files)
    assert (done.returncode, done.stderr) == (0, "")
    used = ["5", "6", "4 41", "8", "1 1024", "hipErrorNotFound", "hipErrorNotFound hipErrorInvalidHandle"]
    assert done.stdout.splitlines() == used * 6


@pytest.mark.parametrize(
    ("name", "error", "says"),
    [
        ("other", "hipErrorNoBinaryForGpu", "no code for gfx1151, only for gfx1100"),
        ("broken", "hipErrorInvalidImage", "the device code cannot be loaded"),
        ("empty", "hipErrorInvalidImage", "the device code cannot be loaded"),
        ("absent", "hipErrorFileNotFound", ""),
    ],
)
def test_a_module_that_cannot_be_loaded_says_why(program, execute, images, name, error, says):
    done = execute(program, "load", str(images.get(name, "/nowhere")))
    assert (done.returncode, done.stdout) == (0, f"{error}\n")
    assert says in done.stderr


@pytest.mark.parametrize(("flags", "printed"), [((), "0\n"), (("-DWITH_ANOTHER",), "5\n")])
def test_a_kernel_whose_body_the_compiler_dropped_is_refused_when_it_is_launched(
    compile_program, emulate, flags, printed
):
    done = emulate(compile_program("dropped_kernel", *flags))
    assert (done.returncode, done.stdout) == (-signal.SIGABRT, printed)
    assert "has no code: the compiler dropped its body" in done.stderr


def test_launches_beyond_the_limits_are_refused_as_the_runtime_refuses_them(program, emulate):
    done = emulate(program, "limits")
    assert done.returncode == 0
    refused = done.stdout.splitlines()
    told = [line.split(" is rejected with ")[1].split(":")[0] for line in done.stderr.splitlines()]
    assert told == [
        *refused,
        *["hipErrorInvalidValue"] * 2,
    ]  # without arguments, twice: the program says nothing
    assert refused == [
        "hipErrorInvalidValue",  # no blocks
        "hipErrorInvalidValue",  # no threads, which the runtime sees as an empty grid
        "hipErrorInvalidValue",  # 1025 threads
        "hipErrorInvalidValue",  # more dynamic LDS than there is
        "hipErrorLaunchFailure",  # more threads than the kernel was compiled for
        "hipErrorInvalidValue",  # static and dynamic LDS together
        "hipErrorInvalidConfiguration",  # 2^32 threads
    ]


def test_facts_of_a_kernel_come_from_its_code(program, emulate):
    done = emulate(program, "facts")
    assert (done.returncode, done.stderr) == (0, "")
    lds, small, resident, proposed, allowed, limited = done.stdout.splitlines()
    assert allowed.split() == ["hipSuccess", "hipErrorInvalidValue", "hipErrorInvalidValue"]
    assert (lds, small) == (f"{60 * 1024} 1024 {4 * 1024}", "64 1")
    assert resident == "1"  # by LDS
    assert proposed == f"{20 * 2} 1024"  # 64 waves on each of 20 WGPs are two blocks
    assert limited == f"{20 * 8} 256"


def test_events_around_one_launch_have_its_time_and_threads_make_whole_blocks(program, emulate):
    done = emulate(program, "timed")
    assert (done.returncode, done.stdout, done.stderr) == (0, "1 8 hipErrorInvalidValue\n", "")


@pytest.mark.parametrize("integrated", ["0", "1"])
def test_the_device_says_what_its_file_says(program, execute, tmp_path, integrated):
    text = (tmp_path / "device").read_text("utf-8")
    (tmp_path / "other").write_text(text.replace("integrated 1", f"integrated {integrated}"), "utf-8")
    done = execute(program, "device", PATCHKIT_RECORDER_DEVICE=str(tmp_path / "other"))
    assert (done.returncode, done.stdout) == (0, f"gfx1151 {integrated} {integrated} 0 11 0\n1 1 1 1\n")


def test_a_device_that_is_integrated_by_half_is_refused(program, execute, tmp_path):
    text = (tmp_path / "device").read_text("utf-8")
    (tmp_path / "other").write_text(text.replace("integrated 1", "integrated 2"), "utf-8")
    done = execute(program, "device", PATCHKIT_RECORDER_DEVICE=str(tmp_path / "other"))
    assert (done.returncode, done.stdout) == (86, "")
    assert "integrated of the device file must be 0 or 1, but is: 2" in done.stderr


# Printf.


def _call(lanes: int, descriptor: int, *words: int) -> bytes:
    assert len(words) <= 7
    slot = (descriptor | len(words) << 5, *words, *([0] * (7 - len(words))))
    return struct.pack("<9Q", lanes, *slot)


def _string(text: str) -> list[int]:
    data = text.encode() + b"\0"
    data += b"\0" * (-len(data) % 8)
    return list(struct.unpack(f"<{len(data) // 8}Q", data))


def _message(words: list[int], *, lanes: int = 1, to: int = 0) -> bytes:
    """The calls that a message is cut into, as the device library does it: 7 words each, both ends marked."""
    words = [to, *words]
    parts = [words[at : at + 7] for at in range(0, len(words), 7)]
    return b"".join(
        _call(lanes, (at == 0) | (at == len(parts) - 1) << 1, *part) for at, part in enumerate(parts)
    )


def _double(value: float) -> int:
    return struct.unpack("<Q", struct.pack("<d", value))[0]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (_string("plain\n"), "plain\n"),
        ([*_string("%d|%u|%x|%c|%%\n"), 2**64 - 5, 2**64 - 5, 255, 65], "-5|4294967291|ff|A|%\n"),
        ([*_string("%lld %hhd %hu %zu\n"), 2**63, 0x1FF, 0x1FFFF, 2**40], f"{-(2**63)} -1 65535 {2**40}\n"),
        ([*_string("%.3f %e %g\n"), _double(1.5), _double(-2.0), _double(0.1)], "1.500 -2.000000e+00 0.1\n"),
        ([*_string("[%*d] [%-*.*f]\n"), 5, 42, 6, 2, _double(3.14159)], "[   42] [3.14  ]\n"),
        ([*_string("%s and %s!\n"), *_string("a string of more than one word"), *_string("")],
         "a string of more than one word and !\n"),
        ([*_string("%p %d\n"), 0x1234, 7], "0x1234 7\n"),
        ([*_string("too few %d %d\n"), 1], "too few 1 "),
        ([*_string("skipped%n %d\n"), 99, 3], "skipped 3\n"),
        ([*_string("%999999999d"), 1], ""),
    ],
)  # fmt: skip
def test_printf_of_a_kernel_prints_what_it_does_on_the_host(program, execute, tmp_path, words, text):
    (tmp_path / "words").write_bytes(_message(words))
    done = execute(program, "talks", str(tmp_path / "words"))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"before\n{text}after\n"


def test_every_active_lane_has_a_message_of_its_own(program, execute, tmp_path):
    words = _string("a message that takes several calls of the wave %d\n")
    (tmp_path / "words").write_bytes(_message([*words, 6], lanes=0b1000_0000_0000_0000_0000_0000_0000_0101))
    done = execute(program, "talks", str(tmp_path / "words"))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[1:-1] == ["a message that takes several calls of the wave 6"] * 3


def test_what_assert_prints_goes_to_stderr(program, execute, tmp_path):
    (tmp_path / "words").write_bytes(_message(_string("assertion failed\n"), to=1))
    done = execute(program, "talks", str(tmp_path / "words"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "before\nafter\n", "assertion failed\n")


def test_a_message_that_nobody_began_is_a_fault(program, execute, tmp_path):
    (tmp_path / "words").write_bytes(_call(1, 2 | 77 << 8, 1))
    done = execute(program, "talks", str(tmp_path / "words"))
    assert done.returncode == -signal.SIGABRT
    assert "continues a message to the host that it did not start" in done.stderr


# Programs that do to their process what programs may.


@pytest.fixture(scope="module")
def comma(tmp_path_factory) -> tuple[str, str]:
    """A folder of locales, and the one there that writes numbers with a comma."""
    folder = tmp_path_factory.mktemp("locales")
    (folder / "source").write_text(
        'LC_CTYPE\ncopy "POSIX"\nEND LC_CTYPE\n'
        'LC_NUMERIC\ndecimal_point ","\nthousands_sep "."\ngrouping 3;3\nEND LC_NUMERIC\n'
    )
    # It warns, and fails, for each other category.
    argv = ["localedef", "-c", "-i", "source", "./comma"]
    subprocess.run(argv, cwd=folder, capture_output=True, check=False)
    return str(folder), "comma"


def test_a_locale_of_the_program_changes_no_number_of_a_kernel(program, emulate, comma, tmp_path):
    folder, name = comma
    done = emulate(program, "speaks", name, LOCPATH=folder, PATCHKIT_EMULATOR_REPORT=str(tmp_path / "report"))
    assert (done.returncode, done.stdout, done.stderr) == (0, ",\n900\n", "")
    assert len(json.loads((tmp_path / "report").read_text("utf-8"))["kernels"]) == 1  # JSON knows no comma


def test_a_forked_process_runs_kernels_of_its_own(program, emulate):
    done = emulate(program, "forks", PATCHKIT_EMULATOR_THREADS="3")
    assert (done.returncode, done.stdout, done.stderr) == (0, "64\n64 64\n", "")


def test_a_process_forked_in_the_middle_of_something_is_told_so(program, emulate):
    done = emulate(program, "forks_meanwhile")
    assert (done.returncode, done.stdout) == (0, f"7 {-signal.SIGABRT}\n")
    assert "this process was forked while another thread ran a kernel" in done.stderr


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1151", "gfx1201"])
def test_the_clocks_of_a_kernel_go_forward(compile_program, emulate, arch):
    program = compile_program("kernel_launches", "--no-offload-arch=gfx1151", f"--offload-arch={arch}")
    done = emulate(program, "tells_time", arch=arch)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1 1\n", "")


@pytest.mark.parametrize(
    ("kind", "other"),
    [
        ("by_value", "by_valuf"),
        ("global_buffer", "global_buffes"),
        ("hidden_block_count_x", "hidden_block_count_w"),
        ("hidden_block_count_x", "xidden_block_count_x"),
    ],
)
def test_an_argument_of_an_unknown_kind_is_refused_by_its_name(program, execute, tmp_path, kind, other):
    changed = tmp_path / "program"
    changed.write_bytes(program.read_bytes().replace(kind.encode(), other.encode()))
    changed.chmod(0o755)
    done = execute(changed, "counts")
    assert done.returncode == 0
    assert f"takes an argument of the kind {other}, which is not emulated" in done.stderr


def test_an_argument_of_an_unknown_kind_is_refused_in_a_module(program, execute, tmp_path, images):
    (tmp_path / "image").write_bytes(images["elf"].read_bytes().replace(b"by_value", b"by_valuf"))
    done = execute(program, "modules", str(tmp_path / "image"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "takes an argument of the kind by_valuf, which is not emulated" in done.stderr
    assert "hipErrorLaunchFailure" in done.stderr


# Faults and the report.


def test_a_fault_ends_the_process_as_one_of_the_gpu_does(program, execute, tmp_path):
    done = execute(program, "faults", PATCHKIT_EMULATOR_REPORT=str(tmp_path / "report"))
    assert (done.returncode, done.stdout) == (-signal.SIGABRT, "printed before")
    assert done.stderr == "patchkit emulator: nothing is allocated at 0x1000\n"
    report = json.loads((tmp_path / "report").read_text())
    assert report["fault"] == "nothing is allocated at 0x1000"


@pytest.mark.parametrize(
    ("where", "kernel", "says"),
    [
        ("scratch", "_Z14leaves_scratchPii", "of its scratch for 4 bytes, but it has "),
        ("lds", "_Z10leaves_ldsPii", "accesses byte 16384 of LDS for 4 bytes, but the block has 16"),
        ("memory", "_Z3putPii", " for 4 bytes, which are outside of any allocation"),
    ],
)
def test_a_fault_names_what_was_reached_for_and_its_launch_counts(
    program, emulate, tmp_path, where, kernel, says
):
    settings = {"PATCHKIT_EMULATOR_REPORT": str(tmp_path / "report"), "PATCHKIT_EMULATOR_COUNT": "1"}
    done = emulate(program, "leaves", where, **settings)
    assert done.returncode == -signal.SIGABRT
    assert says in done.stderr
    report = json.loads((tmp_path / "report").read_text())
    assert says in report["fault"]
    (count,) = [one for one in report["kernels"] if one["launches"]]
    assert (count["name"], count["launches"], count["waves"]) == (kernel, 1, 1)
    # Also those of functions that it called.
    executed = sum(times for one in report["kernels"] for _, times, _ in one["by_instruction"])
    assert 0 < executed == count["instructions"]


def test_the_report_is_json_whatever_kernels_are_called(program, emulate, tmp_path):
    report = tmp_path / "report"
    assert emulate(program, "has_odd_names", PATCHKIT_EMULATOR_REPORT=str(report)).returncode == 0
    (kernel,) = json.loads(report.read_text("utf-8"))["kernels"]
    assert kernel["name"] == 'ill\ufffd\ufffdnamed "ä"'


def test_the_report_has_what_ran(program, execute, tmp_path):
    settings = {"PATCHKIT_EMULATOR_REPORT": str(tmp_path / "report"), "PATCHKIT_EMULATOR_SCHEDULE": "late"}
    assert execute(program, "counts", **settings).returncode == 0
    report = json.loads((tmp_path / "report").read_text())
    assert (report["arch"], report["schedule"], report["on_cpu"], report["fault"]) == (
        *("gfx1151", "late", [], None),
    )
    assert [(kernel["name"], kernel["launches"], kernel["instructions"]) for kernel in report["kernels"]] == [
        ("_Z3putPii", 3, 9),
        ("_Z8count_upv", 1, 3),
    ]
    assert report["kernels"][0]["by_instruction"] == [["v_nop", 6, False], ["v_exp_f32", 3, True]]


def test_launches_are_logged_when_a_log_is_asked_for(program, execute, tmp_path):
    assert execute(program, "counts", PATCHKIT_RECORDER_LOG=str(tmp_path / "log")).returncode == 0
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [line["launch"] for line in lines if "launch" in line] == [0, 0, 0, 1]


def test_a_kernel_that_the_emulator_cannot_run_is_named(program, execute):
    done = execute(program, "launches_unknown")
    assert done.returncode == -signal.SIGABRT
    assert "kernel _Z14unknown_effectv is not one of those" in done.stderr


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"PATCHKIT_EMULATOR": "/nowhere"}, "cannot load the emulator: /nowhere"),
        (
            {"PATCHKIT_EMULATOR_DISASSEMBLER": "none"},
            "cannot start the emulator: this disassembler cannot be used",
        ),
        ({"PATCHKIT_EMULATOR_THREADS": "many"}, "PATCHKIT_EMULATOR_THREADS is not a number: many"),
        ({"PATCHKIT_RECORDER_DEVICE": None}, "PATCHKIT_RECORDER_DEVICE is not set"),
    ],
)
def test_an_emulator_that_cannot_be_used_ends_the_process_and_says_why(program, execute, settings, says):
    done = execute(program, "counts", **settings)
    assert done.returncode == 86
    assert says in done.stderr


# Units whose code is somewhere else.


@pytest.fixture(scope="module")
def bare_program(compile_program) -> Path:
    """The program with the marker of a unit where its device code would be."""
    return compile_program.bare("kernel_launches", "some/unit.cu")


def test_code_of_a_unit_is_found_in_the_folder_of_units(bare_program, execute, images, tmp_path):
    (tmp_path / "some_unit.cu").write_bytes(images["elf"].read_bytes())
    done = execute(bare_program, "variables", PATCHKIT_EMULATOR_UNITS=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[:2] == ["42", "100"]


class _Server:
    """Answers each unit's path with a line; ``then`` runs before."""

    def __init__(self, path: Path, answer: str, then=lambda: None) -> None:
        self.asked: list[str] = []
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen()
        self._answer, self._then = answer, then
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                talk, _ = self._socket.accept()
            except OSError:
                return
            with talk, talk.makefile("rw") as lines:
                self.asked.append(lines.readline().rstrip("\n"))
                self._then()
                lines.write(self._answer + "\n")

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


@pytest.fixture
def serve(tmp_path) -> Iterator:
    """Starts a server at tmp_path/socket."""
    started = []

    def start(answer: str, then=lambda: None) -> _Server:
        started.append(_Server(tmp_path / "socket", answer, then))
        return started[-1]

    yield start
    for server in started:
        server.close()


def test_code_of_a_unit_is_made_when_it_is_first_asked_for(bare_program, execute, images, tmp_path, serve):
    server = serve(
        "ok some_unit.cu", lambda: (tmp_path / "some_unit.cu").write_bytes(images["elf"].read_bytes())
    )
    settings = {
        "PATCHKIT_EMULATOR_UNITS": str(tmp_path),
        "PATCHKIT_EMULATOR_SERVER": str(tmp_path / "socket"),
    }
    done = execute(bare_program, "counts", **settings)
    assert (done.returncode, done.stdout, done.stderr) == (0, "hipSuccess\n", "")
    assert server.asked == [f"some/unit.cu\t{tmp_path}"]  # of all kernels: it has managed variables, too


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("clang: error: no", "device code of some/unit.cu could not be provided: clang: error: no"),
        ("ok some_unit.cu", "device code of some/unit.cu was provided, but is not at"),
        (None, "device code of some/unit.cu could not be provided: cannot connect to"),
        ("", "could not be provided: no answer"),
    ],
)
def test_code_that_cannot_be_made_is_no_code_for_this_gpu(
    bare_program, execute, tmp_path, serve, answer, says
):
    if answer is not None:
        serve(answer)
    settings = {
        "PATCHKIT_EMULATOR_UNITS": str(tmp_path),
        "PATCHKIT_EMULATOR_SERVER": str(tmp_path / "socket"),
    }
    done = execute(bare_program, "counts", **settings)
    assert (done.returncode, done.stdout) == (0, "hipErrorNoBinaryForGpu\n")
    assert done.stderr.count(says) == 1


def test_without_a_folder_of_units_their_code_is_nowhere(bare_program, execute):
    done = execute(bare_program, "counts")
    assert (done.returncode, done.stdout) == (0, "hipErrorNoBinaryForGpu\n")
    assert "no device code of some/unit.cu in this program" in done.stderr


def test_a_program_for_another_gpu_is_refused(execute, compile_program):
    other = compile_program("kernel_launches", "--no-offload-arch=gfx1151", "--offload-arch=gfx1100")
    done = execute(other, "counts")
    assert (done.returncode, done.stdout) == (0, "hipErrorNoBinaryForGpu\n")
    assert "the binary has no code for gfx1151, only for" in done.stderr
    assert "gfx1100" in done.stderr
