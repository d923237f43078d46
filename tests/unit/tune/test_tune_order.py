"""The order of candidates: what is ranked first, what is not eligible, and the Pareto front."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import pytest
from refusing import refused
from strix_halo import CUS, LIMITS, LOOP

from patchkit.base.occupancy import HardwareLimits, resident_waves
from patchkit.tune.cost import estimate, front, margin, rank, rank_key, tail_share, why_worse
from patchkit.tune.family import Candidate, Family, Traits
from patchkit.tune.outcome import OUTCOME, Failure, Figures, with_launch_lds
from patchkit.tune.search import choose


def _figures(vgprs=200, spills=0, waves=7, lds=16000, threads=128, loop=LOOP, latency=4000) -> Figures:
    return Figures(
        vgprs=vgprs,
        spills=spills,
        sgpr_spills=0,
        scratch_bytes=4 * spills,
        lds_bytes=lds,
        waves=waves,
        resident=resident_waves(vgprs, lds, threads, LIMITS),
        threads=threads,
        loop=loop,
        latency=latency,
        seconds=1.0,
    )


@dataclass(frozen=True, kw_only=True)
class Synthetic(Family):
    """A family of one variant whose setting is a number; the figures are the test's."""

    limits: HardwareLimits = LIMITS
    parameters: tuple[str, ...] = ("n",)
    shared: bool

    def legal(self, _variant):
        return ()  # the test names the settings itself, and compiles nothing

    def shared_sources(self):
        return {}

    def instances(self, _candidate):
        return iter(())

    def traits(self, _candidate):
        return Traits(threads=128, rows=128, columns=16)

    def units(self, candidate):
        stem = str(candidate.setting[0])
        return (f"{stem}.cu", f"{stem}-shared.cu") if self.shared else (f"{stem}.cu",)


def _choose(outcomes, *, measured=None, checks=None):
    compiled = {f"{n}.cu": one for n, one in outcomes.items()}
    return choose(
        Synthetic(rows={"v": (0,)}, shared=checks is not None),
        "v",
        [(n,) for n in outcomes],
        compiled,
        lambda _units: checks or {},
        limits=LIMITS,
        compute_units=CUS,
        measured=measured,
    )


def test_a_known_best_is_found_among_a_hundred() -> None:
    chance = random.Random(7)
    outcomes = {0: _figures(vgprs=256, spills=60, waves=5)}
    for n in range(1, 100):
        spills = chance.choice([0, 0, 5, 30, 70])
        loop = replace(LOOP, instructions=chance.randrange(700, 2000))
        outcomes[n] = _figures(
            vgprs=256 if spills else chance.choice([140, 190, 230]), spills=spills, loop=loop
        )
    outcomes[57] = _figures(vgprs=230, waves=6, loop=replace(LOOP, instructions=500))
    assert _choose(outcomes).best.candidate.setting == (57,)


def test_fewer_spills_come_before_everything_else() -> None:
    quick = _figures(vgprs=256, spills=3, waves=8, loop=replace(LOOP, instructions=10), latency=10)
    slow = _figures(vgprs=250, spills=2, waves=5, loop=replace(LOOP, instructions=9000), latency=90000)
    verdict = _choose({0: _figures(vgprs=256, spills=9, waves=5), 1: quick, 2: slow})
    assert [each.candidate.setting for each in verdict.order] == [(2,), (1,), (0,)]
    assert "spills" in verdict.margin


def test_more_spills_at_equal_waves_are_never_better() -> None:
    chance = random.Random(11)
    upstream = _figures(vgprs=256, spills=99, waves=1, threads=128)
    outcomes = {0: upstream}
    for n in range(1, 200):
        outcomes[n] = _figures(
            vgprs=256,
            spills=chance.randrange(0, 50),
            waves=5,
            loop=replace(LOOP, instructions=chance.randrange(100, 3000)),
        )
    order = [each.figures.spills for each in _choose(outcomes).order]
    assert order == sorted(order)


def test_the_estimate_decides_between_settings_that_have_enough_waves() -> None:
    many = _figures(vgprs=100, waves=14, loop=replace(LOOP, instructions=900))
    some = _figures(vgprs=240, waves=6, loop=replace(LOOP, instructions=500))
    verdict = _choose({0: _figures(vgprs=256, waves=5), 1: many, 2: some})
    assert verdict.best.candidate.setting == (2,)
    assert verdict.margin.startswith("estimate")


@pytest.mark.parametrize(
    ("worse", "expected"),
    [
        ({"spills": 10}, "spills 10"),
        ({"waves": 4}, "4 waves"),
        ({"lds": 65536}, "resident"),
    ],
)
def test_a_setting_worse_than_upstreams_is_not_eligible(worse, expected) -> None:
    good, base = _figures(vgprs=192), _figures(vgprs=256, spills=9, waves=5)
    refused = replace(good, **{key: value for key, value in worse.items() if key != "lds"})
    if "lds" in worse:
        refused = replace(refused, lds_bytes=65536, resident=resident_waves(192, 65536, 128, LIMITS))
    verdict = _choose({0: base, 1: refused})
    assert verdict.best is verdict.upstream
    (other,) = verdict.others
    assert expected in str(other.refused)


def test_a_setting_from_hardware_is_kept_while_it_is_eligible() -> None:
    base, fast = _figures(vgprs=256, waves=5), _figures(loop=replace(LOOP, instructions=300))
    outcomes = {0: base, 1: fast, 2: _figures()}
    assert _choose(outcomes, measured=(2,)).best.candidate.setting == (2,)
    assert _choose(outcomes, measured=(2,)).kept is not None
    spilling = {**outcomes, 2: _figures(spills=1)}
    verdict = _choose(spilling, measured=(2,))
    assert verdict.best.candidate.setting == (1,)
    assert verdict.kept is None


def test_a_winner_whose_sibling_is_worse_is_skipped() -> None:
    base, fast, second = _figures(vgprs=256, waves=5), _figures(latency=100), _figures()
    checks = {f"{n}-shared.cu": _figures(vgprs=256, waves=5) for n in (0, 2)}
    checks["1-shared.cu"] = _figures(spills=1)
    loops = {1: replace(fast, loop=replace(LOOP, instructions=300))}
    verdict = _choose({0: base, **loops, 2: second}, checks=checks)
    assert verdict.order[0].candidate.setting == (1,)
    assert verdict.best.candidate.setting == (2,)
    assert verdict.kept is not None
    assert verdict.kept.startswith("1 would be better")
    assert not verdict.measured


def test_a_failed_candidate_is_reported_and_not_ranked() -> None:
    crash = Failure(code="COMPILER_CRASHED", message="clang crashed")
    verdict = _choose({0: _figures(vgprs=256, waves=5), 1: crash})
    assert verdict.failures == ((Candidate("v", (1,)), crash),)
    assert verdict.best is verdict.upstream
    assert why_worse(crash, _figures()) == "does not compile: clang crashed"


def test_upstream_that_does_not_compile_is_an_error() -> None:
    with refused("TUNE_KERNEL_UNTUNABLE", match="upstream's own"):
        _choose({0: Failure(code="COMPILE_FAILED", message="no"), 1: _figures()})


def test_the_front_has_exactly_the_settings_that_are_not_dominated() -> None:
    outcomes = {
        0: _figures(vgprs=256, spills=9, waves=5),
        1: _figures(vgprs=256, spills=0, waves=5, loop=replace(LOOP, instructions=5000)),
        2: _figures(vgprs=190, spills=0, waves=8, loop=replace(LOOP, instructions=6000)),
        3: _figures(vgprs=190, spills=4, waves=8, loop=replace(LOOP, instructions=7000)),
    }
    verdict = _choose(outcomes)
    settings = {each.candidate.setting for each in verdict.front}
    assert (3,) not in settings
    assert {(0,), (1,), (2,)} <= settings
    assert front([]) == []


def test_the_order_is_total_and_names_the_deciding_criterion() -> None:
    verdict = _choose({0: _figures(vgprs=256, waves=5), 1: _figures(), 2: _figures()})
    first, second, _ = verdict.order
    assert first.candidate < second.candidate
    assert rank_key(first, verdict.upstream) < rank_key(second, verdict.upstream)
    assert margin(first, second, verdict.upstream) == "equal to 2"
    assert margin(first, None, verdict.upstream) == "nothing else is eligible"
    assert rank([], verdict.upstream) == []


def test_an_estimate_alone_must_be_a_tenth_ahead_of_upstreams() -> None:
    base = _figures()
    near, far = (_figures(loop=replace(LOOP, instructions=number)) for number in (540, 440))
    assert _choose({0: base, 1: near}).best.candidate.setting == (0,)
    assert _choose({0: base, 2: far}).best.candidate.setting == (2,)


def test_more_resident_waves_hide_latency_until_issue_bounds() -> None:
    traits = Traits(threads=128, rows=128, columns=16)
    few = estimate(_figures(vgprs=256, latency=40000), traits, LIMITS, CUS)
    many = estimate(_figures(vgprs=128, latency=40000), traits, LIMITS, CUS)
    none = estimate(_figures(latency=None), traits, LIMITS, CUS)
    assert (few.bound, many.bound, none.bound) == ("latency", "latency", "issue")
    assert few.cycles > many.cycles > none.cycles
    # 600 instructions, 8 of them 32 cycles, a wave per SIMD, 128 rows, 16 columns
    assert none.cycles == pytest.approx((600 + 31 * 8) / 128 / 16)


def test_the_tail_is_full_when_the_blocks_fill_the_slots() -> None:
    # 512 tokens in blocks of 16 columns on 32 heads are 1024 blocks
    assert tail_share(Traits(threads=128, rows=4096, columns=16), 1024) == 1.0
    assert tail_share(Traits(threads=128, rows=4096, columns=16), 1000) == pytest.approx(0.512)
    assert tail_share(Traits(threads=128, rows=256, columns=16), 1000) > 0.9  # KV is split


@pytest.mark.parametrize("outcome", [_figures(), Failure(code="X", message="y")])
def test_outcomes_survive_the_disk(outcome) -> None:
    assert OUTCOME.validate_json(OUTCOME.dump_json(outcome)) == outcome


def test_unknown_compute_units_decide_nothing() -> None:
    found = estimate(_figures(), Traits(threads=128, rows=256, columns=16), LIMITS, None)
    assert (found.tail, found.cost) == (1.0, found.cycles)


def test_launch_lds_counts_for_waves() -> None:
    figures = _figures(vgprs=100, waves=15, lds=0)
    launched = with_launch_lds(figures, 32768, LIMITS)
    # Four blocks of 32 KiB fit into the 128 KiB of a pool, one wave of each on each of the four SIMDs.
    assert (launched.lds_bytes, launched.waves, launched.resident) == (32768, 4, 4)
    assert with_launch_lds(figures, 0, LIMITS) is figures
    failure = Failure(code="X", message="x")
    assert with_launch_lds(failure, 32768, LIMITS) is failure


def test_the_tail_of_a_kernel_without_split() -> None:
    traits = Traits(threads=128, rows=256, columns=8192, tiles=100)
    assert tail_share(traits, 80) == pytest.approx(100 / 160)
    assert tail_share(replace(traits, tiles=160), 80) == 1.0
