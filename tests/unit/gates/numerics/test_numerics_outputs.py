"""Reading what programs of a bundle wrote: recorded, cut off anywhere, and hostile."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusing import refused

from patchkit.base.errors import PatchkitError
from patchkit.gates.numerics.manifest import MANIFEST, NotABundle, load_manifest
from patchkit.gates.numerics.outputs import (
    load_results,
    parse_check,
    parse_ops,
    parse_perf,
)
from patchkit.kernels.wmma import WmmaVariant

_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def test_a_check_has_its_launch_and_its_errors(recorded: Path) -> None:
    run = parse_check((recorded / "results" / "check-stride256-warps8.out").read_text())
    assert run.is_complete
    assert len(run.checks) == 936
    first = run.checks[0]
    assert first.nmse is not None
    assert 0 < first.nmse < 1e-5
    (launch,) = first.launches
    assert launch.variant == WmmaVariant(64, 16, "f32")
    assert launch.block == (32, 8, 1)
    assert launch.threads == 256
    assert launch.static_bytes == 19200


def test_what_is_not_finite_has_no_error(recorded: Path) -> None:
    run = parse_check((recorded / "results" / "planted-1.out").read_text())
    assert {(check.finite, check.nmse) for check in run.checks} == {(False, -1.0)}


def test_upstreams_cases_with_their_launches(recorded: Path) -> None:
    run = parse_ops((recorded / "results" / "ops-stride128-warps8.out").read_text())
    assert (run.passed, run.total, run.is_complete) == (3488, 3488, True)
    ran = [case for case in run.cases if case.verdict != "not supported"]
    assert {len(case.launches) for case in ran} == {1}
    assert {len(case.launches) for case in run.cases if case.verdict == "not supported"} == {0}
    case = next(each for each in ran if each.params.startswith("hsk=128,") and "prec=def" in each.params)
    assert case.launches[0].variant is not None
    assert case.launches[0].variant.acc == "f16"


def test_upstreams_failures_stand_behind_their_figures(recorded: Path) -> None:
    run = parse_ops((recorded / "results" / "planted-ops.out").read_text())
    assert sum(case.verdict == "FAIL" for case in run.cases) == 48
    assert sum(case.verdict == "OK" for case in run.cases) == 48
    assert run.is_complete


def test_timings(recorded: Path) -> None:
    timings = parse_perf((recorded / "results" / "perf-baseline-0.out").read_text())
    assert len(timings) == 12
    assert next(iter(timings.values())) == 8.48


@pytest.mark.parametrize(
    "line",
    [
        "Segmentation fault",
        "[1, 2]",
        '{"case": "a"}',
        '{"case": "a", "supported": true}',
        '{"case": "a", "supported": true, "nmse": 1e-6, "row": 1e-6, "finite": "yes"}',
        '{"case": "a", "supported": true, "nmse": -1.0, "row": 1e-6, "finite": true}',
        '{"case": "a", "supported": true, "nmse": NaN, "row": 1e-6, "finite": true}',
        '{"done": "all"}',
        "PATCHKIT-LAUNCH {}",
        'PATCHKIT-LAUNCH {"kernel": "k", "grid": [1, 1], "block": [1, 1, 1]}',
        "[" * 100_000,
    ],
)
def test_a_line_that_the_program_does_not_write(line: str) -> None:
    with refused("NUMERICS_OUTPUT_GARBLED") as caught:
        parse_check(f'{{"done": 0}}\n{line}\n', "results/x.out")
    assert str(caught.value.where[0]) == "results/x.out:2"


def test_a_check_is_complete_only_with_its_last_line(recorded: Path) -> None:
    text = (recorded / "results" / "check-stride256-warps8.out").read_text()
    assert not parse_check(text[: text.rindex('{"done"')]).is_complete
    assert not parse_check(text.replace('{"done": 936}', '{"done": 937}')).is_complete


def test_upstreams_count_must_be_ours(recorded: Path) -> None:
    text = (recorded / "results" / "planted-ops.out").read_text()
    assert not parse_ops(text.replace("48/96 tests passed", "96/96 tests passed")).is_complete
    assert not parse_ops(text[: text.index("tests passed")]).is_complete


@given(st.text())
def test_no_text_crashes_a_parser(text: str) -> None:
    for parse in (parse_check, parse_ops, parse_perf):
        with contextlib.suppress(PatchkitError):
            parse(text)


@given(_ANYTHING)
def test_no_json_crashes_a_parser(data: object) -> None:
    line = json.dumps(data)
    for text in (line, f"PATCHKIT-LAUNCH {line}", f"FLASH_ATTN_EXT(a): PATCHKIT-LAUNCH {line}"):
        for parse in (parse_check, parse_ops):
            with contextlib.suppress(PatchkitError):
                parse(text)


def test_the_manifest_comes_back_as_it_was(recorded: Path, tmp_path: Path) -> None:
    manifest = load_manifest(recorded)
    (tmp_path / MANIFEST).write_text(manifest.model_dump_json())
    assert load_manifest(tmp_path) == manifest


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("format",), 2),
        (("candidate_tree",), None),
        (("build",), True),
        (("tables",), {}),
        (("tables", 0), []),
        (("tables", 0, "points", 0), [64, 16]),
        (("tables", 0, "points", 0, 2), "f64"),
        (("jobs", 0, "kind"), "guess"),
        (("jobs", 0, "argv"), "rm"),
    ],
)
def test_a_manifest_that_is_none(bundle: Path, path: tuple[str | int, ...], value: object) -> None:
    data = json.loads((bundle / MANIFEST).read_text())
    place = data
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    (bundle / MANIFEST).write_text(json.dumps(data))
    with pytest.raises(NotABundle):
        load_manifest(bundle)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\udcff", "[" * 100_000])
def test_a_manifest_that_is_no_json(tmp_path: Path, text: str) -> None:
    (tmp_path / MANIFEST).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(NotABundle):
        load_manifest(tmp_path)


def test_a_folder_without_a_manifest(tmp_path: Path) -> None:
    with pytest.raises(NotABundle, match="holds no bundle"):
        load_manifest(tmp_path)


@pytest.mark.parametrize("name", ["gpu.csv", "nvcc.txt", "programs.txt"])
def test_a_bundle_that_was_not_run(bundle: Path, name: str) -> None:
    (bundle / "results" / name).unlink()
    with refused("NUMERICS_RESULTS_MISSING") as caught:
        load_results(bundle)
    assert "run.sh" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("gpu.csv", "NVIDIA-SMI has failed because it couldn't communicate with the driver\n"),
        ("nvcc.txt", "command not found\n"),
        ("ops-baseline.status", "zero\n"),
        ("ops-baseline.status", ""),
    ],
)
def test_results_that_are_garbled(bundle: Path, name: str, text: str) -> None:
    (bundle / "results" / name).write_text(text)
    with refused("NUMERICS_OUTPUT_GARBLED"):
        load_results(bundle)
