"""``patchkit sanitize``: what it shows of a fault, what it leaves out, and when it cannot say anything."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from patchkit.gpu.emulated.checks import usual_checks

pytestmark = [pytest.mark.hip, pytest.mark.slow]

_SOURCE = Path(__file__).with_name("checked_kernels.hip")
_FAULT = "written again without barrier"


@pytest.fixture(scope="module")
def program(compile_program) -> Path:
    return compile_program("checked_kernels", "-gline-tables-only")


@pytest.fixture(scope="module")
def sanitize(gates_cache: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the command in a process of its own."""

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "patchkit", "--cache-dir", gates_cache, "sanitize", "--arch", "gfx1151"]
        return subprocess.run(
            [*map(str, argv), *map(str, arguments)], capture_output=True, text=True, check=False, timeout=600
        )

    return run


@pytest.fixture
def known(tmp_path: Path) -> Callable[..., Path]:
    """A file of one suppression."""

    def write(**keys: str) -> Path:
        given = {"kind": "races", "reason": "known", "link": "https://example.org/1", **keys}
        lines = ["[[suppress]]", *(f'{key} = "{value}"' for key, value in given.items())]
        file = tmp_path / "known.toml"
        file.write_text("\n".join(lines) + "\n", "utf-8")
        return file

    return write


def _line(text: str) -> int:
    (number,) = (n for n, line in enumerate(_SOURCE.read_text("utf-8").splitlines(), 1) if text in line)
    return number


def test_a_fault_is_shown_at_its_source_lines_in_every_format(sanitize, program, tmp_path):
    report, sarif = tmp_path / "found.json", tmp_path / "found.sarif"
    done = sanitize("--report", report, "--sarif", sarif, "--", program, _FAULT)
    assert done.returncode == 1, done.stderr
    read, written = _line("sum += lds[threadIdx.x ^ 63]"), _line("lds[threadIdx.x] = from[threadIdx.x] + n")
    assert f"--> {_SOURCE}:{read}: ds_load_b32" in done.stdout
    assert f"--> {_SOURCE}:{written}: ds_store_b32" in done.stdout
    assert "2 findings in 1 launch of 1 kernel on an emulated gfx1151" in done.stdout
    document = json.loads(report.read_text("utf-8"))
    assert {(one["at"]["line"], one["other"]["line"]) for one in document["findings"]} == {
        (read, written),
        (written, read),
    }
    assert all(one["at"]["file"] == str(_SOURCE) for one in document["findings"])
    calls = document["findings"][0]["called_from"]
    assert (calls[-1]["function"], calls[-1]["file"]) == ("main", str(_SOURCE))
    assert calls[0]["line"] == _line(f'CASE("{_FAULT}"')
    (run,) = json.loads(sarif.read_text("utf-8"))["runs"]
    places = [one["locations"][0]["physicalLocation"] for one in run["results"]]
    assert {place["region"]["startLine"] for place in places} == {read, written}
    assert {one["ruleId"] for one in run["results"]} == {"races"}
    assert json.loads(sanitize("--json", "--", program, _FAULT).stdout)["findings"][0]["kind"] == "races"


@pytest.mark.parametrize("version", ["-gdwarf-4", "-gdwarf-5"])
def test_code_that_was_inlined_is_shown_with_its_call(sanitize, compile_program, version):
    done = sanitize("--", compile_program("checked_kernels", "-g", version), "read inlined past end")
    assert done.returncode == 1, done.stderr
    assert f"{_SOURCE}:{_line('return from[place]')}: global_load_b32" in done.stdout
    assert f"{_SOURCE}:{_line('number_at(from, int(threadIdx.x) + 60)')}: inlined at" in done.stdout


def test_a_clean_program_has_no_findings(sanitize, program):
    done = sanitize("--", program, "clean: again")
    looked_for = ", ".join(usual_checks())
    assert (done.returncode, done.stdout) == (
        0,
        f"0 findings in 1 launch of 1 kernel on an emulated gfx1151; checks: {looked_for}\n",
    )
    done = sanitize("--check", "memory", "--", program, _FAULT)
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith("checks: memory\n")


def test_what_is_known_is_left_out(sanitize, program, known):
    file = known(kernel="uses_*", place="*/checked_kernels.hip:*")
    done = sanitize("--suppressions", file, "--", program, _FAULT)
    assert done.returncode == 0, done.stdout
    assert "0 findings" in done.stdout
    assert "suppressed as known: 2 findings: https://example.org/1" in done.stdout


@pytest.mark.parametrize(
    ("keys", "code", "place"),
    [
        ({"kernel": "other_*"}, "SUPPRESSION_UNUSED", "known.toml:3:"),
        ({"kind": "memory"}, "SUPPRESSION_UNUSED", "known.toml:3:"),
        ({"kind": "rases"}, "CONFIG", "known.toml:2:"),
        ({"reason": ""}, "CONFIG", "known.toml:3:"),
        ({"kernels": "x"}, "CONFIG", "known.toml:5:"),
    ],
)
def test_a_suppression_that_means_nothing_is_refused(sanitize, program, known, keys, code, place):
    done = sanitize("--suppressions", known(**keys), "--", program, "clean: again")
    assert done.returncode == 2, done.stderr
    assert place in done.stderr
    assert code in {"CONFIG", *re.findall(r"error\[(\w+)\]", done.stderr)}


def test_a_suppression_without_a_finding_hides_no_other(sanitize, program, known):
    done = sanitize("--suppressions", known(kernel="other_*"), "--", program, _FAULT)
    assert done.returncode == 1, done.stderr
    assert "2 findings" in done.stdout
    assert "1 suppression matched no finding" in done.stderr
    done = sanitize("--json", "--suppressions", known(kind="memory"), "--", program, "clean: again")
    assert done.returncode == 2, done.stderr
    document = json.loads(done.stdout)
    assert (document["ok"], len(document["unused_suppressions"])) == (False, 1)


def test_findings_outlive_a_program_that_ends_badly(sanitize, program):
    done = sanitize("--", program, _FAULT, "and abort")
    assert done.returncode == 1, done.stderr
    assert "2 findings until the program ended" in done.stdout
    assert "ended before its report was complete" in done.stderr
    both = sanitize("--", "sh", "-c", f"'{program}' 'clean: again'; '{program}' '{_FAULT}' abort; true")
    assert both.returncode == 1, both.stderr
    assert "2 findings" in both.stdout


def test_a_process_that_told_nothing_is_no_clean_one(sanitize, program):
    for json_flag in ((), ("--json",)):
        done = sanitize(
            *json_flag, "--", "sh", "-c", f"'{program}' 'clean: again' abort; '{program}' 'clean: sum'"
        )
        assert done.returncode == 6, done.stderr
        assert "EMULATION_UNREPORTED" in done.stdout + done.stderr


def test_a_program_without_a_launch_learns_what_it_did(sanitize, program):
    unused = sanitize("--", "/bin/true").stderr
    assert "the program exited with status 0 and made no HIP call" in unused
    assert "only if it loads HIP's runtime" in unused
    nothing = sanitize("--", program).stderr
    assert "it made HIP calls, and exited with status 0 without a launch" in nothing


def test_a_fault_is_survived_whatever_is_looked_for(sanitize, program):
    for case in ("write past lds", "read null", "write freed"):
        done = sanitize("--check", "races", "--", program, case)
        assert (done.returncode, done.stderr) == (0, ""), case


@pytest.mark.parametrize(
    ("arguments", "status", "code"),
    [
        (("--", "/bin/true"), 6, "EMULATION_UNREPORTED"),
        (("--", "PROGRAM"), 6, "NOTHING_LAUNCHED"),
        (("--", "PROGRAM", "no such case"), 6, "SANITIZED_FAILED"),
        (("--", "./no-such-program"), 2, "PROGRAM_MISSING"),
        (("--upstream", "b6900", "--", "PROGRAM"), 2, "USAGE_SYNTAX"),
        (("--sarif", "same", "--report", "same", "--", "PROGRAM"), 2, "USAGE_SYNTAX"),
        (("--check", "everything", "--", "PROGRAM"), 2, "USAGE"),
        (("--suppressions", "/no/such/file", "--", "PROGRAM"), 2, "TOML_MISSING"),
        (("--sarif", "/no/such/folder/file", "--", "PROGRAM", _FAULT), 8, "DISK_REFUSED"),
    ],
)
def test_where_nothing_can_be_said_it_says_so(sanitize, program, arguments, status, code):
    done = sanitize(*(program if word == "PROGRAM" else word for word in arguments))
    assert done.returncode == status, done.stderr
    assert code in done.stderr


def test_what_a_killed_run_left_goes_with_the_next_one(gates_cache, program, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    argv = [
        sys.executable,
        "-m",
        "patchkit",
        "--cache-dir",
        gates_cache,
        "sanitize",
        "--arch",
        "gfx1151",
        "--",
    ]
    started = tmp_path / "started"
    killed = subprocess.Popen([*map(str, argv), "sh", "-c", f"touch '{started}'; sleep 600"])
    limit = time.monotonic() + 300
    while not started.exists():
        assert time.monotonic() < limit
        time.sleep(0.05)
    killed.kill()
    killed.wait()
    left = {path.name.split("-")[1] for path in tmp_path.glob("patchkit-*")}
    assert left == {"emulate", "sanitize"}
    done = subprocess.run([*map(str, argv), str(program), "clean: again"], check=False, timeout=600)
    assert done.returncode == 0
    assert not list(tmp_path.glob("patchkit-*"))


def test_an_operation_without_code_is_shown_at_its_call(sanitize, compile_program, known, tmp_path):
    source = _SOURCE.with_name("checked_streams.hip")
    streams = compile_program("checked_streams", "-gline-tables-only")
    text = "NEED(hipMemcpyAsync(to, from, bytes, hipMemcpyHostToDevice, stream))"
    (line,) = (n for n, one in enumerate(source.read_text("utf-8").splitlines(), 1) if text in one)
    report, sarif = tmp_path / "found.json", tmp_path / "found.sarif"
    done = sanitize("--report", report, "--sarif", sarif, "--", streams, "copy over what is read")
    assert done.returncode == 1, done.stderr
    copied = "the copy of 4096 bytes from pinned host memory to device memory"
    assert f"asynchrony: {copied} writes what kernel take read: the two are not ordered" in done.stdout
    assert f"{source}:{line}: {copied}" in done.stdout
    assert re.search(rf"\n  why: requested in \w+ \({source.name}:{line}\)", done.stdout)
    assert "the other was requested in copy (" in done.stdout
    (found,) = json.loads(report.read_text("utf-8"))["findings"]
    assert (found["kernel"], found["at"]["line"], found["at"]["offset"]) == ("", line, None)
    assert found["other"]["function"] == "_Z4takePiPKi"
    (result,) = json.loads(sarif.read_text("utf-8"))["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == line
    left_out = known(kind="asynchrony", place=f"*/{source.name}:{line}")
    assert sanitize("--suppressions", left_out, "--", streams, "copy over what is read").returncode == 0


def test_a_note_is_shown_and_leaves_the_exit_status(sanitize, compile_program):
    program = compile_program("checked_barriers", "-std=c++20", "-gline-tables-only")
    done = sanitize("--", program, "note: waves return")
    assert done.returncode == 0, done.stderr
    assert "note, barriers: wave 0 waits at a barrier that wave 3 does not reach" in done.stdout
    assert "0 findings and 1 note in 1 launch of 1 kernel" in done.stdout


@pytest.fixture(scope="module")
def calls(compile_program) -> Path:
    return compile_program("checked_calls", "-gline-tables-only", "-O0")


def _line_of_calls(text: str) -> int:
    source = _SOURCE.with_name("checked_calls.hip").read_text("utf-8")
    (number,) = (n for n, line in enumerate(source.splitlines(), 1) if text in line)
    return number


def test_memory_that_is_never_freed_is_told_at_its_call_if_asked_for(sanitize, calls):
    done = sanitize("--leaks", "--", calls, "leak: device memory")
    assert done.returncode == 1, done.stderr
    place = f"checked_calls.hip:{_line_of_calls('leak: device memory')}"
    assert "leaks: 256 bytes of device memory are never freed" in done.stdout
    assert f"{place}: hipMalloc\n  why: 1 time" in done.stdout
    assert done.stdout.endswith("asynchrony, calls, leaks\n")
    assert sanitize("--", calls, "leak: device memory").returncode == 0


def test_a_second_free_is_told_with_the_first(sanitize, calls):
    done = sanitize("--", calls, "free: twice")
    assert done.returncode == 1, done.stderr
    line = _line_of_calls('CASE("free: twice", {')
    place = f"checked_calls.hip:{line}"
    said = "hipFree returns hipErrorInvalidDevicePointer: 256 bytes of device memory were already freed"
    assert f"calls: {said}\n" in done.stdout
    assert done.stdout.count(f"{place}: hipFree") == 2
    assert "hipFree (the other)" in done.stdout


def test_a_program_whose_launches_were_refused_has_a_finding(sanitize, calls):
    done = sanitize("--", calls, "launch: the only one")
    assert done.returncode == 1, done.stderr
    refused = "the launch of kernel put is rejected with hipErrorInvalidValue: a block of [2048,1,1] has"
    assert f"calls: {refused} 2048 threads, but may have at most 1024" in done.stdout
    assert "1 finding in 0 launches" in done.stdout
    done = sanitize("--check", "races", "--", calls, "launch: the only one")
    assert done.returncode == 6, done.stdout
    assert "NOTHING_LAUNCHED" in done.stderr
    assert (
        "launches were rejected: put: a block of [2048,1,1] has 2048 threads, but may have at most 1024"
        in done.stderr
    )
