"""What is measured, with which cases, and what is compiled for it."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from patchkit.gates.numerics.bundle import BASE_UNITS, BuildInputs, base_sources, build_text
from patchkit.gates.numerics.cases import cases_for, check_cases, check_line, variant_of
from patchkit.gates.numerics.forced import SELECTION
from patchkit.gates.numerics.forced import WMMA_UNIT as KERNEL
from patchkit.gates.numerics.manifest import load_manifest
from patchkit.gates.numerics.outputs import parse_check
from patchkit.gates.numerics.sets import (
    ALTERNATIVES,
    PLANTED,
    STATIC_LIMIT,
    Point,
    Table,
    legal_table,
    make_programs,
    planted_program,
    rows_text,
)
from patchkit.gpu.cases import CASE_READER
from patchkit.kernels.occupancy import limits_of
from patchkit.kernels.wmma import VARIANTS, WmmaVariant, violations
from patchkit.series.profile import load_profile

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture(scope="module")
def limits():
    return limits_of(load_profile(ROOT / "arch_profiles", "gfx1151"))


def test_tables_that_share_a_setting_share_a_program() -> None:
    a, b = WmmaVariant(64, 16, "f16"), WmmaVariant(64, 32, "f32")
    tables = (
        Table(name="one", points=(Point(a, 128, 8), Point(b, 256, 4))),
        Table(name="two", points=(Point(a, 128, 8), Point(b, 128, 8))),
    )
    programs = {program.name: program.points for program in make_programs(tables)}
    assert programs == {
        "stride128-warps8": (Point(a, 128, 8), Point(b, 128, 8)),
        "stride256-warps4": (Point(b, 256, 4),),
    }


def test_what_cuda_cannot_run_is_in_no_program() -> None:
    point = Point(WmmaVariant(80, 32, "f32"), 256, 8)
    assert point.static_bytes == 50688 > STATIC_LIMIT
    assert make_programs((Table(name="t", points=(point,)),)) == ()


def test_all_legal_settings_are_twelve_programs(limits) -> None:
    table = legal_table(limits)
    programs = make_programs((table,))
    assert len(table.points) == 268
    assert sum(len(program.points) for program in programs) == 260
    assert len(programs) == 12


def test_the_alternatives_break_no_rule_and_the_planted_settings_do(limits) -> None:
    assert all(not violations(point.variant, point.params, limits) for point in ALTERNATIVES.points)
    for point in PLANTED:
        broken = set(violations(point.variant, point.params, limits))
        assert broken & {"C1", "C3"}, point


def test_the_rows_of_a_program() -> None:
    point = Point(WmmaVariant(112, 32, "f32"), 64, 4)
    rows = rows_text(make_programs((Table(name="t", points=(point,)),))[0])
    assert rows.count("GGML_CUDA_FATTN_WMMA_CONFIG_CASE(") == len(VARIANTS)
    assert "CASE(112, 32, 4,  64,  4, 1, 32, 49152)" in rows
    assert "CASE(112, 32, 2, 256,  4, 1, 32, 49152)" in rows


def test_planted_rows_go_around_the_assertions() -> None:
    rows = rows_text(planted_program())
    assert rows.count("GGML_CUDA_FATTN_WMMA_CONFIG_CASE(") == len(VARIANTS) - len(PLANTED)
    assert (
        "if (D == 64 && ncols == 32 && acc_bytes == 4) { return (64 << 0) | (8 << 9) | (1 << 14); }" in rows
    )


def test_the_cases_cover_what_upstreams_do_not() -> None:
    cases = check_cases()
    assert len({check.case.id for check in cases}) == len(cases)
    assert {variant_of(check.case) for check in cases} == set(VARIANTS)
    for size in (64, 80, 96, 112, 128, 256):
        mine = [check for check in cases if check.case.head_size == size]
        long = [check.case for check in mine if check.case.kv >= 4096]
        assert {1, 2, 3, 33, 512, 1024} <= {case.tokens for case in long}
        assert {case.precise for case in long} == {True, False}
        assert {"free", "causal", "window", "short"} == {check.pattern for check in mine}
        assert {"f16", "f32"} <= {check.case.type_k for check in mine}


def test_a_case_line_has_every_word_the_program_asks_for() -> None:
    source = (ROOT / "patchkit" / "gates" / "numerics" / "native" / "attention_check.cpp").read_text()
    source += CASE_READER.read_text()
    asked = set(re.findall(r'\b(?:integer|real|text|type|is)\("(\w+)"\)', source))
    assert {"hsk", "type_k", "permute", "pattern"} <= asked
    written = set(re.findall(r"(\w+)=", check_line(check_cases()[0])))
    assert asked <= written


def test_the_variant_of_a_case_is_what_the_gpu_launched(recorded: Path) -> None:
    cases = {check.case.id: check.case for check in check_cases()}
    run = parse_check((recorded / "results" / "check-stride256-warps4.out").read_text())
    assert len(run.checks) == len(cases)
    for check in run.checks:
        assert check.launches[0].variant == variant_of(cases[check.case]), check.case


def test_a_program_gets_the_cases_of_its_variants(recorded: Path) -> None:
    manifest = load_manifest(recorded)
    cases = check_cases()
    counted = {job.name: job.cases for job in manifest.jobs}
    for program in manifest.programs:
        if not program.planted:
            assert counted[f"check-{program.name}"] == len(cases_for(program.variants, cases))


def _inputs(*, isolation: bool = True) -> BuildInputs:
    touched = frozenset({SELECTION, KERNEL})
    return BuildInputs(
        sources=("ggml/src/ggml.c", "ggml/src/ggml-backend.cpp"),
        attention=(SELECTION, KERNEL, "ggml/src/ggml-cuda/fattn-other.cu"),
        touched=touched,
        programs=(*make_programs((ALTERNATIVES,)), planted_program()),
        definitions=("FORCED",),
        isolation=isolation,
    )


def _built(text: str) -> dict[str, list[str]]:
    rows = re.findall(r"^build (\S+): (\w+) (.*)$", text, re.MULTILINE)
    assert not [name for name, count in Counter(row[0] for row in rows).items() if count > 1]
    return {made: [rule, *rest.split()] for made, rule, rest in rows}


def test_every_object_that_is_linked_is_built() -> None:
    built = _built(build_text(_inputs()))
    linked = {part for rule, *parts in built.values() if rule == "link" for part in parts}
    assert linked <= set(built)
    assert set(built) - linked == {made for made, (rule, *_) in built.items() if rule == "link"}


def test_both_sides_share_what_no_patch_reaches() -> None:
    built = _built(build_text(_inputs()))
    before, after = set(built["bin/baseline-ops"]), set(built["bin/candidate-ops"])
    assert before - after == {"equal/baseline/fattn.cu.o", "equal/baseline/fattn-wmma-f16.cu.o"}
    assert after - before == {"equal/candidate/fattn.cu.o", "equal/candidate/fattn-wmma-f16.cu.o"}
    assert "equal/shared/fattn-other.cu.o" in before & after


def test_without_isolation_nothing_of_the_sides_is_linked() -> None:
    assert not [made for made in _built(build_text(_inputs(isolation=False))) if made.startswith("equal/")]


def test_each_program_is_compiled_with_its_own_rows() -> None:
    text = build_text(_inputs())
    for program in _inputs().programs:
        assert f"-DFORCED -Irows/{program.name}\n" in text


def test_the_sources_of_the_cpu_backend_follow_the_processor() -> None:
    paths = [
        "ggml/src/ggml.c",
        "ggml/src/ggml-cpu/ops.cpp",
        "ggml/src/ggml-cpu/amx/amx.cpp",
        "ggml/src/ggml-cpu/arch/x86/quants.c",
        "ggml/src/ggml-cpu/arch/x86/cpu-feats.cpp",
        "ggml/src/ggml-cpu/arch/arm/quants.c",
        "ggml/src/ggml-cpu/kleidiai/kernels.cpp",
        "ggml/src/ggml.h",
        BASE_UNITS[0],
    ]
    common = {"ggml/src/ggml.c", "ggml/src/ggml-cpu/ops.cpp", "ggml/src/ggml-cpu/amx/amx.cpp"}
    assert set(base_sources(paths, "x86_64")) == common | {"ggml/src/ggml-cpu/arch/x86/quants.c"}
    assert set(base_sources(paths, "aarch64")) == common | {"ggml/src/ggml-cpu/arch/arm/quants.c"}
