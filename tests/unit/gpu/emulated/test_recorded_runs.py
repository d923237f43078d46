"""Running programs on the recorder; the programs here are scripts that write what the stub would."""

from __future__ import annotations

import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from launches import compiled_kernel
from refusing import refused
from toolchains import script_compiler

from patchkit.base.process import ToolFailed, ToolStopped
from patchkit.carry.series.profile import load_profile
from patchkit.gpu.emulated.cases import Case, SupportMalformed
from patchkit.gpu.emulated.device import device_of
from patchkit.gpu.emulated.log import RecordingUnreadable, parse_recording
from patchkit.gpu.emulated.runtime import HostLibrary, RecordedBackend, _link_error, build_driver
from patchkit.gpu.emulated.session import (
    RecordedRunFailed,
    RecordedRunHangs,
    RecordingIncomplete,
    Session,
    case_records,
)
from patchkit.toolchain.compiler import Compiler
from patchkit.toolchain.sides import BuiltSide
from patchkit.toolchain.units import SourceTree

_CASES = [
    Case(id="one", head_size=64, head_size_v=64, kv_heads=2, gqa=4, kv=256, tokens=1),
    Case(id="two", head_size=72, head_size_v=72, kv_heads=2, gqa=4, kv=256, tokens=1),
]
_GOOD = r"""
cat "$PATCHKIT_RECORDER_DEVICE" "$PATCHKIT_RECORDER_KERNELS" cases.txt
cat >> "$PATCHKIT_RECORDER_LOG" <<'END'
{"mark":"case one"}
{"kernel":0,"name":"_Z3foov","units":["a.cu"]}
{"launch":0,"grid":[1,1,1],"block":[32,1,1],"lds":0}
{"mark":"done"}
{"mark":"case two"}
{"mark":"unsupported"}
END
echo run >> COUNT
"""


def _compiler(cache: Path, script: str = "exit 1") -> Compiler:
    """One whose clang is a script in the cache."""
    return script_compiler(cache / "sdk", script, cache)


def _programs(folder: Path) -> BuiltSide:
    return BuiltSide(tree="", backend="cpu", folder=folder, module=folder, cpu=folder, parts=())


@pytest.fixture
def session(tmp_path: Path, checkout: Path):
    """A session whose driver is the script that is given."""

    def make(script: str) -> Session:
        driver = tmp_path / "driver" / "fattn_cases"
        driver.parent.mkdir(exist_ok=True)
        text = script.replace("COUNT", str(tmp_path / "count"))
        driver.write_text(f"#!/bin/sh\n{text}\n", "utf-8")
        driver.chmod(0o755)
        backend = RecordedBackend(
            tree=SourceTree(tmp_path),
            arch="gfx1151",
            stub=tmp_path / "stub",
            programs=_programs(tmp_path / "programs"),
            library=HostLibrary(path=tmp_path / "lib.so", key="k", units=1),
            driver=driver,
        )
        return Session(
            backend=backend,
            device=device_of(load_profile(checkout / "arch_profiles", "gfx1151")),
            kernels={"_Z3foov": compiled_kernel("_Z3foov", 32, lds=4096)},
            compiler=_compiler(tmp_path / "cache"),
        )

    return make


def test_a_run_is_made_once_and_then_read(session, tmp_path):
    made = session(_GOOD)
    first = made.run_cases(_CASES)
    assert made.run_cases(_CASES) == first
    assert (tmp_path / "count").read_text("utf-8") == "run\n"
    records = first.records(_CASES)
    assert [(record.case.id, record.is_supported) for record in records] == [("one", True), ("two", False)]
    assert [str(launch.kernel.name) for launch in records[0].section.launches] == ["foo"]


def test_a_run_is_found_again_in_a_copied_cache(session, tmp_path):
    made = session(_GOOD)
    places = [tmp_path / "cache", tmp_path / "copied"]
    moved = []
    for place in places:
        if place == places[1]:
            shutil.copytree(places[0], place)
        driver = place / "objects" / "ab" / "fattn_cases"
        driver.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(made.backend.driver, driver)
        backend = replace(made.backend, driver=driver)
        moved.append(replace(made, backend=backend, compiler=_compiler(place)).run_cases(_CASES))
    assert [run.digest for run in moved] == [moved[0].digest] * 2
    assert moved[1].folder.is_relative_to(places[1])
    assert (tmp_path / "count").read_text("utf-8") == "run\n"


@pytest.fixture
def build_in(tmp_path):
    """Builds the driver in a cache folder; the compiler lies in it and writes down its arguments."""
    script = 'for word; do [ "$last" = -o ] && touch "$word"; last=$word; done; echo "$*" >> TOLD'

    def build(cache: Path) -> Path:
        compiler = _compiler(cache, script.replace("TOLD", str(tmp_path / "told")))
        return build_driver(compiler, tmp_path, _programs(tmp_path), cache / "objects" / "stub")

    return build


def test_the_driver_is_found_again_in_a_copied_cache(build_in, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    made = build_in(first)
    shutil.copytree(first, second)
    assert build_in(second) == second / made.relative_to(first)
    assert len((tmp_path / "told").read_text("utf-8").splitlines()) == 1


def test_names_that_newer_builds_deprecate_are_no_errors(build_in, tmp_path):
    """ggml_flash_attn_ext_set_prec of build 11549, which has no other name at build 6900."""
    build_in(tmp_path / "cache")
    told = (tmp_path / "told").read_text("utf-8").split()
    assert told.index("-Wno-deprecated-declarations") > told.index("-Werror")


def test_the_program_gets_device_figures_and_cases_as_files(session):
    text = session(_GOOD).run_cases(_CASES).stdout()
    assert "arch gfx1151\n" in text
    assert "_Z3foov 100 4096\n" in text
    assert "one hsk=64 hsv=64 nh=2 nr2=4" in text


def test_other_cases_are_another_run(session, tmp_path):
    made = session(_GOOD)
    made.run_cases(_CASES)
    made.run_cases(_CASES[:1])
    assert (tmp_path / "count").read_text("utf-8") == "run\n" * 2


def test_an_abort_names_the_case_it_happened_in_and_is_not_kept(session, tmp_path):
    aborting = (
        """echo '{"mark":"case one"}' >> "$PATCHKIT_RECORDER_LOG"; echo GGML_ASSERT >&2; kill -ABRT $$"""
    )
    with pytest.raises(RecordedRunFailed) as caught:
        session(aborting).run_cases(_CASES)
    assert "crashed on the launch recorder as gfx1151, in case one" in caught.value.message
    assert "GGML_ASSERT" in (caught.value.why or "")
    assert not list((tmp_path / "cache").rglob("log.jsonl"))
    assert session(_GOOD).run_cases(_CASES)


def _ending(said: str, end: str = "kill -ABRT $$") -> str:
    begin = """echo run >> COUNT; echo '{"mark":"case one"}' >> "$PATCHKIT_RECORDER_LOG" """
    return f"{begin}; echo '{said}' >&2; {end}"


@pytest.mark.parametrize(
    ("script", "is_kept"),
    [
        (_ending("ggml/src/ggml-cuda/fattn.cu:7: GGML_ASSERT(gqa % 4 == 0) failed"), True),
        (_ending("/tree/ggml/src/ggml-cuda/fattn.cu:7: fatal error"), True),
        (_ending("ggml/src/ggml-cuda/ggml-cuda.cu:7: ROCm error"), False),  # the machine may be at fault
        (_ending("ggml/src/ggml.c:7: GGML_ASSERT(mem != NULL) failed"), False),
        (_ending("ggml/src/ggml-cuda/fattn.cu:7: fatal error", "kill -KILL $$"), False),
    ],
)
def test_an_assertion_of_the_backend_about_a_case_is_met_once(session, tmp_path, script, is_kept):
    errors = []
    for _ in range(2):
        with pytest.raises(RecordedRunFailed) as caught:
            session(script).run_cases(_CASES)
        errors.append((caught.value.message, caught.value.why, caught.value.hint, caught.value.case))
    assert errors[0] == errors[1]
    assert errors[0][3] == "one"
    assert (tmp_path / "count").read_text("utf-8") == "run\n" * (1 if is_kept else 2)
    with pytest.raises(RecordedRunFailed):
        session(script).run_cases(_CASES[:1])  # another list, another run
    assert (tmp_path / "count").read_text("utf-8") == "run\n" * (2 if is_kept else 3)


def test_another_bad_end_is_a_failed_run(session):
    with pytest.raises(RecordedRunFailed) as caught:
        session("echo unknown type q9 >&2; exit 2").run_cases(_CASES)
    assert "failed on the launch recorder" in caught.value.message
    assert "q9" in (caught.value.why or "")


def test_a_refused_configuration_is_told_apart(session):
    with refused("RECORDER_MISCONFIGURED") as caught:
        session("echo 'launch recorder: no' >&2; exit 86").run_cases(_CASES)
    assert "launch recorder: no" in (caught.value.why or "")


def test_a_program_that_does_not_end_is_stopped_and_the_case_named(session, monkeypatch):
    monkeypatch.setattr("patchkit.gpu.emulated.session._TIMEOUT_S", 1.0)
    script = """echo '{"mark":"case two"}' >> "$PATCHKIT_RECORDER_LOG"; echo stuck >&2; exec sleep 600"""
    with pytest.raises(RecordedRunHangs) as caught:
        session(script).run_cases(_CASES)
    assert "did not finish within 1 s on the launch recorder as gfx1151, in case two" in caught.value.message
    assert "stuck" in (caught.value.why or "")


def test_a_run_that_is_stopped_ends_at_once_and_leaves_nothing(session, tmp_path):
    made = session(f"""touch {tmp_path}/began; exec sleep 600""")

    def stop_when_it_runs() -> None:
        while not (tmp_path / "began").exists():
            time.sleep(0.01)
        made.compiler.stop.set()

    thread = threading.Thread(target=stop_when_it_runs)
    thread.start()
    with pytest.raises(ToolStopped):
        made.run_cases(_CASES)
    thread.join()
    assert not [path for path in (tmp_path / "cache" / "recorder").rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    ("log", "error"),
    [
        ("no json at all", RecordingUnreadable),
        ("[1, 2]", RecordingUnreadable),
        ('{"launch":7,"grid":[1,1,1],"block":[1,1,1],"lds":0}', RecordingUnreadable),
        (r"\377\376", RecordingUnreadable),
        ('{"mark":"case one"}', RecordingIncomplete),
        ("", RecordingUnreadable),
    ],
)
def test_garbage_in_the_log_is_put_aside_and_recorded_anew(session, tmp_path, log, error):
    garbage = session(f"""printf '{log}\\n' >> "$PATCHKIT_RECORDER_LOG" """)
    with pytest.raises(error) as caught:
        garbage.run_cases(_CASES).records(_CASES)
    (place,) = caught.value.where
    assert Path(place.path).is_file()
    assert "run the command again" in (caught.value.hint or "")
    assert session(_GOOD).run_cases(_CASES).records(_CASES)[1].is_supported is False


def test_garbage_instead_of_the_table_of_support_is_put_aside(session, tmp_path):
    program = tmp_path / "programs" / "test-backend-ops"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho what\n", "utf-8")
    program.chmod(0o755)
    made = session(_GOOD)
    with pytest.raises(SupportMalformed) as caught:
        made.support()
    assert (Path(caught.value.where[0].path) / "stdout").read_text("utf-8") == "what\n"
    row = '"FLASH_ATTN_EXT","hsk=40","1"'
    program.write_text(f"#!/bin/sh\nprintf '%s\\n' op_name,op_params,supported '{row}'\n", "utf-8")
    assert [row.is_supported for row in made.support()] == [True]


@pytest.mark.parametrize(
    "lines",
    [
        ['{"mark":"case one"}', '{"mark":"case two"}', '{"mark":"done"}'],
        ['{"mark":"case one"}', '{"mark":"done"}'],
        ['{"mark":"case one"}', '{"mark":"done"}', '{"mark":"case two"}', '{"mark":"what"}'],
        ['{"mark":"case one"}', '{"mark":"done"}', '{"mark":"case three"}', '{"mark":"done"}'],
        [],
    ],
)
def test_a_case_without_an_end_is_an_error(lines):
    with pytest.raises(RecordingIncomplete):
        case_records(_CASES, parse_recording(lines, "log"))


def test_missing_stubs_are_named():
    why = (
        "ld.lld: error: undefined symbol: hipFancyNewCall\n>>> referenced by a.o\n"
        "ld.lld: error: undefined symbol: hipblasOther"
    )
    error = _link_error(ToolFailed("clang ended with status 1", why=why))
    assert error.code == "RECORDER_LACKS_CALLS"
    assert "hipFancyNewCall, hipblasOther" in error.message


def test_another_link_error_stays_what_it_is():
    error = _link_error(ToolFailed("clang ended with status 1", why="undefined symbol: ggml_new_thing"))
    assert error.code == "HOST_LINK_FAILED"
    assert "ggml_new_thing" in (error.why or "")
