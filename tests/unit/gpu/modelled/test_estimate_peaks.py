"""Which figures of a profile an estimate rests on."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from refusing import refused

from patchkit.base.arch import Fact
from patchkit.base.errors import Location
from patchkit.carry.series.profile import load_profile
from patchkit.gpu.modelled.roofline import peaks_of


def _with(checkout, **values):
    profile = load_profile(checkout / "arch_profiles", "gfx1151")
    facts = {
        name: Fact(value=value, source="test", confidence="low", where=Location(path="p"))
        for name, value in values.items()
    }
    return replace(profile, facts=replace(profile.facts, by_name=MappingProxyType(facts)))


def test_what_was_measured_goes_before_what_was_specified(checkout):
    values = {"bandwidth_gb_s": 256.0, "fp16_tflops": 60.0}
    specified = peaks_of(_with(checkout, **values)).bandwidth
    measured = peaks_of(_with(checkout, **values, bandwidth_measured_gb_s=212.0)).bandwidth
    assert (specified.value, specified.kind) == (256, "specified")
    assert (measured.value, measured.kind, measured.per_second) == (212, "measured", 212e9)
    assert "low confidence: test" in str(measured)


def test_of_a_range_the_higher_end_bounds(checkout):
    peaks = peaks_of(_with(checkout, bandwidth_gb_s=(90.0, 120.0), fp16_tflops=16.6))
    assert (peaks.bandwidth.value, peaks.compute.value) == (120, 16.6)


def test_a_figure_that_nobody_states_can_be_given(checkout):
    profile = _with(checkout, fp16_tflops=16.6)
    with refused("FIGURE_MISSING", match="bandwidth_measured_gb_s or bandwidth_gb_s"):
        peaks_of(profile)
    assert str(peaks_of(profile, bandwidth=100).bandwidth) == "100 GB/s (given)"
