"""The order by modelled time: what is timed, what decides, and the resulting rows."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path
from types import SimpleNamespace

import pytest
from recorder import Recorder
from strix_halo import CUS, LOOP

from patchkit.base.occupancy import limits_of
from patchkit.base.reporter import NullReporter
from patchkit.carry.series.profile import load_profile
from patchkit.gpu.emulated.device import device_of
from patchkit.gpu.emulated.names import read_name
from patchkit.gpu.modelled.machine import ModelError, load_machine
from patchkit.gpu.modelled.shape import load_models
from patchkit.toolchain.compile import CompileFailed
from patchkit.tune import mmq
from patchkit.tune.cost import Modelled
from patchkit.tune.family import Candidate
from patchkit.tune.outcome import Figures
from patchkit.tune.report import TuneReport, timed_rows
from patchkit.tune.search import choose, settings_to_time
from patchkit.tune.timed import (
    Timing,
    expert_cases,
    matrices_of,
    product_cases,
    time_settings,
    why_not_timed,
)

# Half of such ratios within 5 %.
ERROR = ModelError(
    kind="mmq", points=9, median=0.2, p90=0.3, ratios=9, ratio_median=0.05, ratio_p90=0.1, source="a test"
)
ROOT = Path(__file__).resolve().parents[3]
ARCH = "gfx1151"
# In upstream's form, with rows of our own.
TABLE = b"".join(
    [
        b"static constexpr config ggml_cuda_mmq_get_config_rdna3_5(ggml_type type, int J, bool fallback) {\n",
        *(
            f"    CASE(GGML_TYPE_{kind}, 256, 2, 128, {columns:>3}, GGML_CUDA_MMQ_SRAM_LAYOUT_{layout}, "
            f"MMQ_ITER_K, false, {fallback});\n".encode()
            for kind, layout in (("Q4_K", "Q8_1"), ("IQ4_NL", "Q8_0"))
            for columns in (48, 128)
            for fallback in ("false", "true")
        ),
        b"}\n",
    ]
)
KERNEL = b"template <int J> static __global__ void mul_mat_q(int x) {\n    x = J;\n}\n"


@pytest.fixture
def models():
    return load_models(ROOT / "arch_profiles")


@pytest.fixture
def figures_of():
    """Figures of a compiler that differ in spilled registers."""

    def make(spills: int) -> Figures:
        return Figures(
            vgprs=200,
            spills=spills,
            sgpr_spills=0,
            scratch_bytes=4 * spills,
            lds_bytes=0,
            waves=7,
            resident=7,
            threads=128,
            loop=LOOP,
            latency=4000,
            seconds=1.0,
        )

    return make


@pytest.fixture
def family(models):
    limits = limits_of(load_profile(ROOT / "arch_profiles", ARCH))
    files = {mmq.MMQ_FILE: KERNEL, mmq.config_file("rdna3_5"): TABLE, **dict.fromkeys(mmq.MMQ_PARTS, b"")}
    return mmq.make_mmq_family(limits, files, "rdna3_5", models)


def test_each_model_gives_its_largest_dense_matrix_of_a_type(models) -> None:
    found = matrices_of(models, "Q4_K", whole=128)
    assert {(8192, 2048), (12288, 4096), (14336, 4096), (28672, 8192)} <= set(found)
    assert all(rows % 128 == 0 for rows, _ in found)
    assert (4096, 2880) in matrices_of(models, "Q8_0", whole=128)  # gpt-oss-120b, dense part
    assert matrices_of(models, "IQ3_S", whole=128) == found  # no model has it
    assert all(columns % 32 == 0 for _, columns in matrices_of(models, "IQ4_NL", whole=128))


def test_a_type_newer_than_the_gguf_package_is_not_timed(models) -> None:
    # Build 11549 has Q2_0, which gguf 0.19 does not know.
    assert matrices_of(models, "Q9_0", whole=128) == ()
    assert expert_cases(models, "Q9_0", 512, whole=128) == product_cases("Q9_0", (), 512) == ()


def _dense(cases):
    return [case for case in cases if case.experts == 1]


def test_a_variant_is_timed_with_as_many_tokens_as_its_columns(family) -> None:
    assert {case.tokens for case in _dense(family.cases("Q4_K-48"))} == {48}
    assert {case.tokens for case in _dense(family.cases("Q4_K-128"))} == {512, 2048}
    assert {case.type for case in family.cases("IQ4_NL-48")} == {"iq4_nl"}
    assert family.cases("Q4_K-48-fallback") == ()


def test_experts_are_timed_with_a_prompt_whichever_columns_upstream_takes(family, models) -> None:
    found = [case for case in family.cases("Q4_K-48") if case.experts > 1]
    assert found == [case for case in family.cases("Q4_K-128") if case.experts > 1]
    assert {(case.rows, case.columns, case.experts, case.used, case.tokens) for case in found} == {
        (*shape, tokens)
        for tokens in (512, 2048)
        for shape in ((768, 2048, 128, 8), (512, 2048, 256, 8))  # Qwen3-30B-A3B, Qwen3.6-35B-A3B
    }
    assert all(case.experts == 1 for case in family.cases("IQ4_NL-128"))  # no model has such experts


def test_the_setting_is_put_into_the_rows_of_the_variants_and_no_other(family) -> None:
    (table,) = family.with_settings(dict.fromkeys(family.variants, (128, 2))).values()
    rows = [line for line in table.decode().splitlines() if "CASE" in line]
    assert len(rows) == 8
    assert all(", 128, 2, 64, " in row for row in rows)
    assert rows[0].endswith("64, 48, GGML_CUDA_MMQ_SRAM_LAYOUT_Q8_1, MMQ_ITER_K, false, false);")
    (one,) = family.with_settings({"Q4_K-128": (128, 2)}).values()
    changed = [
        line
        for before, line in zip(TABLE.decode().splitlines(), one.decode().splitlines(), strict=True)
        if line != before
    ]
    assert [("Q4_K, 128, 2," in line, ", 128, GGML" in line) for line in changed] == [(True, True)]


def test_a_kernel_is_the_variants_by_its_columns_and_fallback(family) -> None:
    def name(columns: int, fallback: int):
        return read_name(f"_Z9mul_mat_qIL9ggml_type12ELi{columns}ELb{fallback}EL9ggml_prec10EEvPKc")

    assert family.is_kernel(name(128, 0), "Q4_K-128")
    assert not family.is_kernel(name(48, 0), "Q4_K-128")
    assert not family.is_kernel(name(128, 1), "Q4_K-128")
    assert not family.is_kernel(read_name("_Z13mul_mat_vec_qIL9ggml_type12ELi128ELb0EEv"), "Q4_K-128")


class _Site:
    def __init__(self, arch: str) -> None:
        self.profile = load_profile(ROOT / "arch_profiles", arch)


def test_the_reason_for_not_timing_is_reported(family) -> None:
    machine = load_machine(ROOT / "arch_profiles", device_of(_Site(ARCH).profile))
    variants = ["Q4_K-48", "Q4_K-128"]
    assert why_not_timed(family, _Site(ARCH), machine, variants) is None
    why = why_not_timed(family, _Site("gfx1201"), None, variants)
    assert why == "the timing model has no data for gfx1201"
    unknown = replace(machine, file=replace(machine.file, error=()))
    why = why_not_timed(family, _Site(ARCH), unknown, variants) or ""
    assert "not validated against measurements" in why
    why = why_not_timed(replace(family, models=()), _Site(ARCH), machine, variants) or ""
    assert why.startswith("no listed model uses them")
    assert why.endswith(": Q4_K-48, Q4_K-128")


def _compiled(family, variant: str, spills: dict[tuple[int, int], int], figures_of):
    return {
        family.unit(Candidate(variant, setting)): figures_of(spills=count)
        for setting, count in spills.items()
    }


def _verdict(family, figures_of, variant: str, ratios: dict[tuple[int, int], float]):
    spills = {(256, 2): 0, (128, 2): 16, (64, 2): 300}
    return choose(
        family,
        variant,
        list(spills),
        _compiled(family, variant, spills, figures_of),
        lambda _units: {},
        limits=family.limits,
        compute_units=CUS,
        modelled={
            setting: Modelled(us=(100 * ratio,), ratio=ratio, error=ERROR)
            for setting, ratio in ratios.items()
        },
    )


@pytest.mark.parametrize(
    ("ratios", "best"),
    [
        ({(256, 2): 1.0, (128, 2): 0.8}, (128, 2)),  # it spills more, which the played code has, too
        ({(256, 2): 1.0, (128, 2): 0.97}, (256, 2)),  # ahead by less than the model's error
        ({(256, 2): 1.0, (128, 2): 0.94}, (128, 2)),
        ({(256, 2): 1.0, (128, 2): 1.2}, (256, 2)),
    ],
)
def test_modelled_time_decides_beyond_the_models_error(family, figures_of, ratios, best) -> None:
    verdict = _verdict(family, figures_of, "Q4_K-128", ratios)
    assert verdict.best.candidate.setting == best
    assert [each.candidate.setting for each in verdict.others] == [(64, 2)]  # compiled, and not timed
    assert verdict.margin.startswith("modelled time: ")


def test_without_times_the_compilers_figures_decide_as_before(family, figures_of) -> None:
    verdict = _verdict(family, figures_of, "Q4_K-128", {})
    assert verdict.best.candidate.setting == (256, 2)
    assert verdict.best.modelled is None
    assert verdict.others[0].refused == "spills 300 registers, upstream's 0"


def test_only_the_pareto_front_is_timed(family, figures_of) -> None:
    spills = {(256, 2): 0, (128, 2): 16, (128, 8): 400}
    found = settings_to_time(
        family,
        "Q4_K-128",
        list(spills),
        _compiled(family, "Q4_K-128", spills, figures_of),
        limits=family.limits,
        compute_units=CUS,
        exhaustive=False,
    )
    assert (256, 2) in found
    assert (128, 8) not in found


def test_a_setting_measured_on_hardware_is_timed_after_the_front(family, figures_of) -> None:
    spills = {(256, 2): 0, (128, 2): 16, (128, 8): 400}
    compiled = _compiled(family, "Q4_K-128", spills, figures_of)
    how = {"limits": family.limits, "compute_units": CUS, "exhaustive": False}
    assert settings_to_time(family, "Q4_K-128", list(spills), compiled, measured=(128, 8), **how)[-1] == (
        128,
        8,
    )


def test_rows_that_no_operation_runs_keep_upstreams_setting(family, figures_of) -> None:
    faster = {(256, 2): 1.0, (128, 2): 0.8}
    verdicts = (
        _verdict(family, figures_of, "Q4_K-128", faster),
        replace(_verdict(family, figures_of, "Q4_K-48", {}), variant="Q4_K-64"),
        _verdict(family, figures_of, "Q4_K-48", faster),
    )
    profile = load_profile(ROOT / "arch_profiles", ARCH)
    none = replace(profile, tuning=replace(profile.tuning, mmq=()))
    rows = timed_rows(_report(verdicts), none, date(2026, 11, 23))
    assert [(row["min_j"], row["nthreads"]) for row in rows] == [(128, 128), (64, 256), (48, 128)]
    assert rows[1]["source"] == (
        "upstream's own setting (patchkit tune of 2026-11-23, clang 22): no modelled operation uses it"
    )


def _report(verdicts) -> TuneReport:
    return TuneReport(
        arch=ARCH,
        kernel="mmq",
        build=11549,
        compiler="clang 22",
        excluded=(),
        parameters=("nthreads", "occupancy"),
        mca=False,
        complete=True,
        verdicts=verdicts,
        current={},
    )


def test_rows_of_the_profile_by_type_keep_those_from_hardware(family, figures_of) -> None:
    faster = {(256, 2): 1.0, (128, 2): 0.8}
    same = {(256, 2): 1.0, (128, 2): 1.0}
    report = _report(
        (
            _verdict(family, figures_of, "Q4_K-48", faster),
            _verdict(family, figures_of, "Q4_K-128", faster),
            _verdict(family, figures_of, "IQ4_NL-48", faster),
            _verdict(family, figures_of, "IQ4_NL-128", same),
        )
    )
    profile = load_profile(ROOT / "arch_profiles", ARCH)
    measured = tuple(row for row in profile.tuning.mmq if row.type == "Q4_K")
    assert measured  # the shipped row is from hardware
    tuned = replace(profile, tuning=replace(profile.tuning, mmq=measured))
    rows = timed_rows(report, tuned, date(2026, 11, 23))
    assert [(row["type"], row["min_j"], row["nthreads"], row["i"]) for row in rows] == [
        ("Q4_K", 48, 128, 64),
        ("IQ4_NL", 128, 256, 128),
        ("IQ4_NL", 48, 128, 64),
    ]
    assert rows[0]["source"] == measured[0].source
    assert str(rows[2]["source"]).startswith("modelled (patchkit tune of 2026-11-23, clang 22): 1.25 to 1.25")
    assert rows[2]["measured_on"] == (
        "modelled for gfx1151, no hardware; median error 5.0% over 9 measured ratios of such kernels (mmq)"
    )
    none = replace(tuned, tuning=replace(tuned.tuning, mmq=()))
    assert [(row["type"], row["min_j"]) for row in timed_rows(report, none, date(2026, 11, 23))] == [
        ("IQ4_NL", 128),
        ("IQ4_NL", 48),
        ("Q4_K", 48),
    ]


class _Played:
    """A stand-in for the timing model: records the requests; a setting halves the time."""

    def __init__(self, machine, columns: int) -> None:
        self.machine = machine
        self.asked: list[tuple[str, int]] = []
        self.known: list[str] = []
        self.refuses = b"no tree has this"
        self._name = f"_Z9mul_mat_qIL9ggml_type12ELi{columns}ELb0EL9ggml_prec10EEvPKc"

    def record(self, _source, _stack, changes=None, _what="", *, known_as=None):
        if known_as is not None:
            self.known.append(known_as)
        if changes is not None and self.refuses in changes[mmq.config_file("rdna3_5")]:
            raise CompileFailed("a static assertion fails")
        return "upstream's" if changes is None else changes[mmq.config_file("rdna3_5")]

    def time(self, case, recorder, *, repeated):
        assert not repeated
        self.asked.append((recorder, case.tokens))
        kernel = SimpleNamespace(played=SimpleNamespace(kernel=self._name))
        us = 100.0 if recorder == "upstream's" else 50.0
        return SimpleNamespace(us=us, products=(), kernels=(kernel,))


def _clock(reporter=None):
    machine = load_machine(ROOT / "arch_profiles", device_of(_Site(ARCH).profile))
    site = SimpleNamespace(workspace=SimpleNamespace(reporter=reporter or NullReporter()), source=None)
    return _Played(machine, columns=48), Timing(site=site, compiler=SimpleNamespace(stop=None), jobs=1)


def test_settings_are_timed_only_with_operations_that_upstream_runs_so(family) -> None:
    played, timing = _clock()
    settings = [(256, 2), (128, 2)]
    found = time_settings(timing, played, family, {"IQ4_NL-48": settings, "IQ4_NL-128": settings})
    # Upstream runs 48 columns for all of them, so 128 has no times, and no setting is tried for it.
    assert found["IQ4_NL-128"] == {}
    assert {setting: one.ratio for setting, one in found["IQ4_NL-48"].items()} == {
        (256, 2): 1.0,
        (128, 2): 0.5,
    }
    assert {tokens for recorder, tokens in played.asked if recorder == "upstream's"} == {48, 512, 2048}
    assert {tokens for recorder, tokens in played.asked if recorder != "upstream's"} == {48}


def test_one_tree_tries_a_setting_of_each_variant(family) -> None:
    played, timing = _clock()
    wanted = {"IQ4_NL-48": [(256, 2), (128, 2), (64, 2)], "Q4_K-48": [(128, 8), (256, 2)]}
    found = time_settings(timing, played, family, wanted)
    assert {variant: set(times) for variant, times in found.items()} == {
        variant: set(settings) for variant, settings in wanted.items()
    }
    trees = dict.fromkeys(recorder for recorder, _ in played.asked if recorder != "upstream's")
    both, one = (
        {
            (kind, line.split(", ")[1])
            for kind in ("Q4_K", "IQ4_NL")
            for line in tree.decode().splitlines()
            if f"_{kind}, " in line and " 48, " in line and "false, false" in line
        }
        for tree in trees
    )
    assert both == {("Q4_K", "128"), ("IQ4_NL", "128")}
    assert one == {("Q4_K", "256"), ("IQ4_NL", "64")}


def test_recordings_of_a_variant_are_keyed_by_its_own_setting(family) -> None:
    def known(wanted) -> set[str]:
        played, timing = _clock()
        time_settings(timing, played, family, wanted)
        return {name for name in played.known if name.startswith("mmq IQ4_NL-48 ")}

    alone = known({"IQ4_NL-48": [(128, 2)]})
    assert len(alone) == 1
    assert known({"IQ4_NL-48": [(128, 2)], "Q4_K-48": [(64, 2), (128, 8)]}) == alone
    assert known({"IQ4_NL-48": [(64, 2)]}).isdisjoint(alone)


def test_a_setting_that_does_not_compile_has_no_time_and_others_are_timed(family) -> None:
    warned = Recorder()
    played, timing = _clock(warned)
    played.refuses = b"CASE(GGML_TYPE_Q4_K, 64, 8, "
    wanted = {"IQ4_NL-48": [(256, 2), (128, 2)], "Q4_K-48": [(256, 2), (64, 8), (128, 2)]}
    found = time_settings(timing, played, family, wanted)
    assert {variant: set(times) for variant, times in found.items()} == {
        "IQ4_NL-48": {(256, 2), (128, 2)},
        "Q4_K-48": {(256, 2), (128, 2)},
    }
    assert warned.said("warn") == ["cannot time Q4_K-48 64/8: a static assertion fails"]


def test_a_type_that_keeps_upstreams_rows_gets_no_rows(family, figures_of) -> None:
    same = _verdict(family, figures_of, "Q4_K-128", {(256, 2): 1.0, (128, 2): 1.0})
    # Upstream's own settings differ from columns to columns.
    narrow = replace(same.upstream, candidate=Candidate("Q4_K-48", (128, 2)))
    verdicts = (same, replace(same, variant="Q4_K-48", upstream=narrow, best=narrow))
    profile = load_profile(ROOT / "arch_profiles", ARCH)
    none = replace(profile, tuning=replace(profile.tuning, mmq=()))
    assert timed_rows(_report(verdicts), none, date(2026, 11, 23)) == []
