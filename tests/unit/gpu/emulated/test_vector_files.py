"""Files of vectors: every expectation in them is looked at, and nothing else reaches the program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from refusing import refused

from patchkit.gpu.emulated.vectors import load_vectors

GOOD = {"name": "good", "lanes": 2, "code": "0000b0bf", "after": {"v": {"0": ["1", "2"]}, "m0": "1"}}


def _written(folder: Path, *lines: str) -> Path:
    path = folder / "vectors.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return path


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"after": {"v": {"v0": "1"}}}, id="a name instead of a number"),
        pytest.param({"after": {"v": {"00": "1"}}}, id="another spelling"),
        pytest.param({"after": {"v": {"16": "1"}}}, id="a VGPR that is not compared"),
        pytest.param({"after": {"s": {"99": "1"}}}, id="an SGPR that is not compared"),
        pytest.param({"after": {"s": {"106": "1"}}, "compares": 256}, id="an SGPR that is none"),
        pytest.param({"after": {"s": {"80": "1"}}, "compares": 100}, id="the address of the buffer"),
        pytest.param({"after": {"v": {"0": ["0", "0", "1"]}}}, id="more values than lanes"),
        pytest.param({"after": {"scc": 2}}, id="a bit of two"),
        pytest.param({"compares": 0}, id="nothing compared"),
        pytest.param({"compares": 257}, id="more than there are"),
        pytest.param({"ulp": 1 << 31}, id="everything is near"),
        pytest.param({"before": {"v": {"256": "1"}}}, id="a VGPR that is none"),
        pytest.param({"before": {"v": {"-1": "1"}}}, id="a negative number"),
        pytest.param({"before": {"s": {"81": "1"}}}, id="overwritten by the address"),
        pytest.param({"before": {"s": {"0 1\ngo\nrun b": "1"}}}, id="lines in a number"),
        pytest.param({"name": "a\ngo"}, id="a line in a name"),
        pytest.param({"name": "a\0b"}, id="NUL in a name"),
        pytest.param({"name": "a\x1cb"}, id="what Python splits lines at"),
    ],
)
def test_what_would_not_be_looked_at_is_refused_with_its_line(
    tmp_path: Path, given: dict[str, object]
) -> None:
    path = _written(tmp_path, json.dumps(GOOD), json.dumps({**GOOD, **given}))
    with refused("VECTORS_BAD") as error:
        load_vectors(path)
    assert [place.line for place in error.value.where] == [2]


def test_an_expectation_that_is_given_twice_is_refused(tmp_path: Path) -> None:
    line = '{"name": "a", "lanes": 1, "code": "", "after": {"v": {"0": "1", "0": "0"}}}'
    with refused("VECTORS_BAD"):
        load_vectors(_written(tmp_path, line))


def test_a_file_without_vectors_is_refused(tmp_path: Path) -> None:
    with refused("VECTORS_BAD"):
        load_vectors(_written(tmp_path, "", " "))


def test_what_is_within_the_limits_is_read(tmp_path: Path) -> None:
    most = {"before": {"v": {"255": "1"}, "s": {"105": "1"}}, "compares": 256, "ulp": 1024}
    most["after"] = {"v": {"255": ["1"]}, "s": {"105": "ffffffff"}}
    (_, vector) = load_vectors(_written(tmp_path, json.dumps(GOOD), json.dumps({**GOOD, **most})))
    assert vector.after.s == {"105": "ffffffff"}
