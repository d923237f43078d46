"""Upstream's tests in CTest's list: their programs, and what each needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.toolchain.ctests import UpstreamTest, read_tests


def listed(folder: Path, *lines: str) -> Path:
    (folder / "tests").mkdir(parents=True, exist_ok=True)
    (folder / "tests" / "CTestTestfile.cmake").write_text("\n".join(lines) + "\n")
    return folder


@pytest.mark.parametrize("name", ["test-a", '"test-a"', "[=[test-a]=]", "[==[test-a]==]"])
def test_a_program_is_known_however_cmake_writes_the_name(tmp_path: Path, name: str) -> None:
    folder = listed(tmp_path, f'add_test({name} "{tmp_path}/bin/test-program" "-x")')
    rows = [{"name": "test-a", "properties": [{"name": "LABELS", "value": ["main"]}]}]
    assert read_tests(folder, rows) == (
        UpstreamTest(name="test-a", program="test-program", labels=("main",), needs=()),
    )


def test_a_script_has_no_program_and_a_download_is_needed(tmp_path: Path) -> None:
    folder = listed(
        tmp_path,
        f'add_test(script "{tmp_path}/source/tests/x.sh")',
        f'add_test(big "{tmp_path}/bin/test-big")',
    )
    rows = [
        {"name": "script"},
        {"name": "big", "properties": [{"name": "FIXTURES_REQUIRED", "value": ["download"]}]},
    ]
    script, big = read_tests(folder, rows)
    assert (script.program, big.program, big.needs) == (None, "test-big", ("download",))


def test_an_unknown_format_is_an_error_and_not_an_empty_list(tmp_path: Path) -> None:
    folder = listed(tmp_path, f"add_test(NAME a COMMAND {tmp_path}/bin/test-a)")
    with pytest.raises(ValueError, match="no test program"):
        read_tests(folder, [{"name": "a"}])
    assert read_tests(folder, []) == ()
