"""Hostile and doctored evidence files, each refused with its reason; and clean ones, which are not."""

from __future__ import annotations

import datetime as dt
import json
import math
import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from measured_files import BOTH, FIRST, UPSTREAM, edited, measured
from refusing import refused

from patchkit.base.errors import PatchkitError, members_of
from patchkit.base.evidence import (
    MOST_ARMS,
    MOST_BYTES,
    MOST_ROUNDS,
    EvidenceFile,
    load_evidence_file,
    parse_evidence_file,
)
from patchkit.prove.evidence import plausibility
from patchkit.prove.evidence.check import Checker

Change = Callable[[Any], object]


def scaled(document: Any, arm: str, factor: float) -> None:
    for test in document["tests"]:
        for one in test["rounds"]:
            one[arm] = [int(each * factor) for each in one[arm]]


def faster(factor: float) -> Change:
    """Every arm, as of a machine that does not exist."""

    def change(document: Any) -> None:
        for arm in document["arms"]:
            scaled(document, arm["name"], factor)

    return change


def jittered(document: Any, arm: str, factor: float) -> None:
    draw = random.Random("by hand")
    for test in document["tests"]:
        for one in test["rounds"]:
            one[arm] = [int(each * factor * (1 + draw.gauss(0, 0.003))) for each in one[arm]]


def put(*path: str | int, to: object) -> Change:
    def change(document: Any) -> None:
        for step in path[:-1]:
            document = document[step]
        document[path[-1]] = to

    return change


def take(*path: str | int) -> Change:
    def change(document: Any) -> None:
        for step in path[:-1]:
            document = document[step]
        del document[path[-1]]

    return change


def test_what_a_machine_measured_is_taken(good: EvidenceFile, checker: Checker) -> None:
    checker.check(parse_evidence_file(good.text, "good.json"), "good.json")


# -- by who does not know the form, or edits a line

TEXT_EDITS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "cut off": (lambda data: data[:-40], "EVIDENCE_UNREADABLE"),
    "empty": (lambda _: b"", "EVIDENCE_UNREADABLE"),
    "two documents": (lambda data: data + data, "EVIDENCE_UNREADABLE"),
    "UTF-16": (lambda data: data.decode().encode("utf-16"), "EVIDENCE_UNREADABLE"),
    "a key twice": (
        lambda data: data.replace(b'"format"', b'"format": 1,\n "format"'),
        "EVIDENCE_UNREADABLE",
    ),
    "deep": (lambda _: b"[" * 1_000_000, "EVIDENCE_REFUSED"),
    "deep in a field": (
        lambda data: data.replace(b'"by": null', b'"by": ' + b'{"a":' * 50 + b"1" + b"}" * 50),
        "EVIDENCE_REFUSED",
    ),
    "a number without end": (
        lambda data: data.replace(b'"build": 11549', b'"build": ' + b"9" * 100_000),
        "EVIDENCE_UNREADABLE",
    ),
    "not a number": (lambda data: data.replace(b'"low": 1800.0', b'"low": NaN'), "EVIDENCE_MALFORMED"),
    "infinite": (lambda data: data.replace(b'"low": 1800.0', b'"low": 1e999'), "EVIDENCE_MALFORMED"),
    "an escape": (
        lambda data: data.replace(b"Radeon 8060S G", rb"Radeon\u001b8060S G"),
        "EVIDENCE_UNREADABLE",
    ),
    "a line break in a name": (
        lambda data: data.replace(b"Radeon 8060S G", rb"Radeon\n8060S G"),
        "EVIDENCE_UNREADABLE",
    ),
    "a tab": (lambda data: data.replace(b'\n "by"', b'\n\t"by"'), "EVIDENCE_REFUSED"),
    "another order": (
        lambda data: json.dumps(dict(reversed(json.loads(data).items())), indent=1).encode() + b"\n",
        "EVIDENCE_REFUSED",
    ),
    "CRLF": (lambda data: data.replace(b"\n", b"\r\n"), "EVIDENCE_REFUSED"),
    "no last line end": (lambda data: data.rstrip(), "EVIDENCE_REFUSED"),
    "a number written otherwise": (lambda data: data.replace(b"1800.0", b"1.8e3"), "EVIDENCE_REFUSED"),
    "too large": (lambda data: data + b" " * MOST_BYTES, "EVIDENCE_REFUSED"),
    "a list": (lambda data: b"[" + data + b"]\n", "EVIDENCE_MALFORMED"),
}


@pytest.mark.parametrize("name", TEXT_EDITS)
def test_a_text_that_is_not_of_the_form_is_refused(good: EvidenceFile, name: str) -> None:
    change, code = TEXT_EDITS[name]
    data = change(good.text)
    assert data != good.text
    with refused(code) as caught:
        parse_evidence_file(data, "bad.json")
    assert "bad.json" in caught.value.message
    assert caught.value.why


# -- values that no field takes

FIELDS: dict[str, Change] = {
    "another format": put("format", to=2),
    "truth for a number": put("format", to=True),
    "a field more": put("comment", to="hello"),
    "a field less": take("tree"),
    "a path as the GPU": put("machine", "gpu", to="/opt/gpu"),
    "an address as the owner": put("by", to="me@example.org"),
    "a host name behind the kernel": put("machine", "kernel", to="6.17.4-alices-box"),
    "a short tree": put("tree", to="abc"),
    "negative times": put("tests", 0, "rounds", 0, "none", 0, to=-5),
    "no time": put("tests", 0, "rounds", 0, "none", to=[]),
    "a fraction of a nanosecond": put("tests", 0, "rounds", 0, "none", 0, to=1.5),
    "no rounds": put("tests", 0, "rounds", to=[]),
    "a verdict of one's own": put("verdicts", 0, "verdict", to="wonderful"),
    "a day that is none": put("day", to="2026-13-01"),
    "an arm as a path": put("arms", 0, "name", to="../none"),
}


@pytest.mark.parametrize("name", FIELDS)
def test_a_value_out_of_range_is_refused_with_its_place(good: EvidenceFile, name: str) -> None:
    with refused("EVIDENCE_MALFORMED") as caught:
        parse_evidence_file(edited(good, FIELDS[name]), "bad.json")
    assert (caught.value.where[0].label or "").startswith("$")


# -- by who knows the form, and computes all figures anew where that helps

DOCTORED: dict[str, tuple[Change, bool, str]] = {
    "a verdict is turned": (put("verdicts", 0, "verdict", to="slower"), False, "EVIDENCE_REFUSED"),
    "a change is embellished": (put("verdicts", 0, "change", to=0.2), False, "EVIDENCE_REFUSED"),
    "an interval is narrowed": (put("verdicts", 0, "low", to=0.099), False, "EVIDENCE_REFUSED"),
    "noise is hidden": (
        put("verdicts", 0, "noise", to={"low": 0.0, "high": 0.0}), False, "EVIDENCE_REFUSED",
    ),
    "an unwelcome verdict is left out": (
        lambda all_: all_["verdicts"].pop(), False, "EVIDENCE_REFUSED",
    ),
    "a round is edited": (
        put("tests", 0, "rounds", 3, "all", to=[300_000_000] * 3), False, "EVIDENCE_REFUSED",
    ),
    "a round is left out": (lambda all_: all_["tests"][0]["rounds"].pop(), False, "EVIDENCE_REFUSED"),
    "arms are swapped": (
        lambda all_: [
            one.update({"all": one["none"], "none": one["all"]}) for one in all_["tests"][0]["rounds"]
        ],
        False,
        "EVIDENCE_REFUSED",
    ),
    "a slow repetition is taken out": (
        lambda all_: all_["tests"][0]["rounds"][0]["all"].pop(), True, "EVIDENCE_REFUSED",
    ),
    "a test twice": (
        lambda all_: all_["tests"].append(all_["tests"][0]), True, "EVIDENCE_REFUSED",
    ),
    "a test of nothing": (put("tests", 0, "prompt", to=0), True, "EVIDENCE_REFUSED"),
    "two arms of one name": (put("arms", 1, "name", to="none"), True, "EVIDENCE_REFUSED"),
    "an arm that was not measured": (
        lambda all_: all_["arms"].append(all_["arms"][0] | {"name": "more"}), True, "EVIDENCE_REFUSED",
    ),
    "times of no arm": (
        lambda all_: all_["tests"][0]["rounds"][0].update(ghost=[1, 2, 3]), True, "EVIDENCE_REFUSED",
    ),
    "a foreign upstream": (put("tree", to="9" * 40), True, "EVIDENCE_REFUSED"),
    "a foreign tree": (put("arms", 2, "tree", to="9" * 40), True, "EVIDENCE_REFUSED"),
    "a foreign tree of a set that is not recorded": (
        put("arms", 3, "tree", to="9" * 40), True, "EVIDENCE_REFUSED",
    ),
    "trees are swapped": (
        lambda all_: (put("arms", 3, "tree", to=FIRST)(all_), put("arms", 4, "tree", to="d" * 40)(all_)),
        True,
        "EVIDENCE_REFUSED",
    ),
    "upstream's tree for a patched one": (put("arms", 2, "tree", to=UPSTREAM), True, "EVIDENCE_REFUSED"),
    "a patched tree for upstream's": (put("arms", 1, "tree", to=BOTH), True, "EVIDENCE_REFUSED"),
    "a swapped hash of a patch": (
        put("arms", 2, "patches", "first", to="8" * 64), True, "EVIDENCE_REFUSED",
    ),
    "an unknown patch": (
        put("arms", 3, "patches", to={"third": "8" * 64}), True, "EVIDENCE_REFUSED",
    ),
    "a build that nobody follows": (put("build", to=12000), False, "EVIDENCE_REFUSED"),
    "another GPU than the builds are for": (
        put("machine", "arch", to="gfx1100"), False, "EVIDENCE_REFUSED",
    ),
    "an NVIDIA card with HIP": (
        put("machine", "gpu", to="NVIDIA GeForce RTX 5090"), False, "EVIDENCE_REFUSED",
    ),
    "CUDA on gfx1151": (put("machine", "backend", to="cuda"), False, "EVIDENCE_REFUSED"),
    "29 GHz": (put("machine", "clock_mhz", "high", to=29000.0), False, "EVIDENCE_REFUSED"),
    "a range upside down": (
        put("machine", "clock_mhz", to={"low": 2900.0, "high": 1800.0}), False, "EVIDENCE_REFUSED",
    ),
    "hotter than silicon": (
        put("machine", "temperature_c", "high", to=400.0), False, "EVIDENCE_REFUSED",
    ),
    "of tomorrow": (put("day", to="2026-12-24"), False, "EVIDENCE_REFUSED"),
    "before its build": (put("day", to="2026-01-01"), False, "EVIDENCE_REFUSED"),
    "a day that the month lacks": (put("day", to="2026-02-31"), False, "EVIDENCE_REFUSED"),
    "faster than the memory": (
        faster(0.3), True, "EVIDENCE_REFUSED",
    ),
    "faster than the peak": (
        faster(0.005), True, "EVIDENCE_REFUSED",
    ),
    "one number everywhere": (
        lambda all_: [one.update(all=[380_000_000] * 3) for one in all_["tests"][0]["rounds"]],
        True,
        "EVIDENCE_REFUSED",
    ),
    "the candidate is the baseline times a number": (
        lambda all_: [
            one.update(all=[int(each * 0.8) for each in one["none"]]) for one in all_["tests"][0]["rounds"]
        ],
        True,
        "EVIDENCE_REFUSED",
    ),
    "the second baseline is the first": (
        lambda all_: [one.update({"none-again": one["none"]}) for one in all_["tests"][0]["rounds"]],
        True,
        "EVIDENCE_REFUSED",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DOCTORED)
def test_a_doctored_file_is_refused_with_the_reason(good: EvidenceFile, checker: Checker, name: str) -> None:
    change, again, code = DOCTORED[name]
    file = parse_evidence_file(edited(good, change, again=again), "bad.json")
    with pytest.raises(PatchkitError) as caught:
        checker.check(file, "bad.json")
    found = list(members_of(caught.value))
    assert {one.code for one in found} == {code}
    for one in found:
        assert one.message.startswith("bad.json: ")
        assert one.where[0].label
        assert one.hint
        assert one.exit_code == 1


def test_more_comparisons_than_anybody_wants_to_wait_for_are_refused(
    good: EvidenceFile, checker: Checker
) -> None:
    def many(document: Any) -> None:
        test = document["tests"][0]
        document["tests"] = [test | {"depth": depth} for depth in range(50)]
        document["arms"] += [
            {"name": f"x{number}", "tree": f"{number:040x}", "patches": {f"p{number}": "7" * 64}}
            for number in range(20)
        ]
        document["verdicts"] = []
        for one in test["rounds"]:
            one.update({f"x{number}": one["all"] for number in range(20)})

    with pytest.raises(PatchkitError) as caught:
        checker.check(parse_evidence_file(edited(good, many), "bad.json"), "bad.json")
    assert {one.code for one in members_of(caught.value)} == {"EVIDENCE_REFUSED"}


def test_more_times_than_any_measurement_has_are_refused(good: EvidenceFile, checker: Checker) -> None:
    def crowd(document: Any) -> None:
        """Upstream a hundred times over, in all rounds that a file can have."""
        upstream = next(arm for arm in document["arms"] if not arm["patches"])
        document["arms"] = [upstream | {"name": f"u{number}"} for number in range(MOST_ARMS)]
        names = [arm["name"] for arm in document["arms"]]
        document["tests"] = document["tests"][:1]
        document["tests"][0]["rounds"] = [dict.fromkeys(names, [10**6] * 11) for _ in range(MOST_ROUNDS)]
        document["verdicts"] = []

    with refused("EVIDENCE_REFUSED", "more than 300000 times"):
        checker.check(parse_evidence_file(edited(good, crowd), "crowded.json"), "crowded.json")


def test_of_two_measurements_a_few_times_are_looked_at() -> None:
    """A file of a hundred arms in 300 rounds took 25 s to be held against another one (2026-11-27)."""
    draw = random.Random(1)
    pairs = iter([(round(draw.gauss(1e6, 3e3)), 10**6) for _ in range(30_000)])
    assert not plausibility._is_multiple(pairs, 30_000)
    assert sum(1 for _ in pairs) > 29_990


@pytest.mark.parametrize("scatter", [2e-6, 8e-6, 1.2e-5, 4e-5])
@pytest.mark.parametrize("count", [6, 300])
def test_looking_at_a_few_times_tells_the_same_as_all(count: int, scatter: float) -> None:
    draw = random.Random(count)
    for _ in range(50):
        one = [round(draw.gauss(1e9, 3e6)) for _ in range(count)]
        other = [round(each * 1.07 * (1 + draw.gauss(0, scatter))) for each in one]
        ratios = [math.log(mine / theirs) for mine, theirs in zip(one, other, strict=True)]
        assert plausibility.is_multiple(one, other) == (plausibility.spread(ratios) < 1e-5)


# -- one measurement under two names


def test_a_copy_under_another_machine_is_refused(good: EvidenceFile, checker: Checker) -> None:
    with_other = replace(checker, others={"there.json": good})
    copy = parse_evidence_file(edited(good, put("machine", "token", to="7" * 32)), "copy.json")
    with refused("EVIDENCE_REFUSED", "there.json"):
        with_other.check(copy, "copy.json")


def test_a_copy_times_a_number_is_refused(good: EvidenceFile, checker: Checker) -> None:
    def slower(document: Any) -> None:
        document["machine"]["token"] = "7" * 32
        for arm in document["arms"]:
            scaled(document, arm["name"], 1.07)

    copy = parse_evidence_file(edited(good, slower, again=True), "copy.json")
    with refused("EVIDENCE_REFUSED"):
        replace(checker, others={"there.json": good}).check(copy, "copy.json")


def test_a_copy_with_half_of_its_rounds_made_up_is_refused(good: EvidenceFile, checker: Checker) -> None:
    def half(document: Any) -> None:
        document["machine"]["token"] = "7" * 32
        jittered(document, "all", 1.0)

    copy = parse_evidence_file(edited(good, half, again=True), "copy.json")
    with refused("EVIDENCE_REFUSED"):
        replace(checker, others={"there.json": good}).check(copy, "copy.json")


def test_two_machines_are_no_copies_of_each_other(good: EvidenceFile, checker: Checker) -> None:
    replace(checker, others={"there.json": good}).check(measured(number=1), "second.json")


def test_the_same_file_again_is_no_copy(good: EvidenceFile, checker: Checker) -> None:
    replace(checker, others={good.name: good}).check(good, "again.json")


# -- what is not a file


def test_a_link_is_not_followed(good: EvidenceFile, tmp_path: Path) -> None:
    (tmp_path / "good.json").write_bytes(good.text)
    (tmp_path / "link.json").symlink_to("good.json")
    with refused("EVIDENCE_REFUSED") as caught:
        load_evidence_file(tmp_path / "link.json")
    assert caught.value.why == "it is a symbolic link"


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    with refused("EVIDENCE_REFUSED"):
        load_evidence_file(tmp_path / "pipe.json")


@pytest.mark.parametrize("name", ["", "none.json", "a\0b"], ids=["folder", "absent", "zero byte"])
def test_what_cannot_be_read_is_refused(tmp_path: Path, name: str) -> None:
    with refused("EVIDENCE_REFUSED"):
        load_evidence_file(tmp_path / name)


def test_a_hundred_megabytes_are_refused_before_they_are_read(tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    with path.open("wb") as stream:
        stream.truncate(100 * 2**20)
    with refused("EVIDENCE_REFUSED") as caught:
        load_evidence_file(path)
    assert "104857600 bytes" in (caught.value.why or "")


# -- what is no fault


def test_a_set_that_is_recorded_nowhere_needs_to_be_placed_anew(good: EvidenceFile, checker: Checker) -> None:
    with pytest.raises(PatchkitError) as caught:
        replace(checker, place=None).check(good, "good.json")
    assert {one.code for one in members_of(caught.value)} == {"EVIDENCE_REFUSED"}


def test_a_gpu_without_a_profile_has_no_bound(good: EvidenceFile, checker: Checker) -> None:
    def fast(document: Any) -> None:
        for arm in document["arms"]:
            jittered(document, arm["name"], 0.9)

    file = parse_evidence_file(edited(good, fast, again=True), "fast.json")
    replace(checker, profiles={}).check(file, "fast.json")


def test_a_mixture_of_experts_may_be_faster_than_its_size_allows(
    good: EvidenceFile, checker: Checker
) -> None:
    def mixture(document: Any) -> None:
        for test in document["tests"]:
            test.update(model="qwen3moe 30B.A3B Q4_K - Medium", model_bytes=18_556_689_568)

    file = parse_evidence_file(edited(good, mixture, again=True), "moe.json")
    checker.check(file, "moe.json")


def test_the_day_may_be_that_of_the_other_side_of_the_earth(good: EvidenceFile, checker: Checker) -> None:
    replace(checker, today=dt.date(2026, 11, 19)).check(good, "good.json")


def test_the_last_digit_of_another_mathematical_library_is_no_fault(
    good: EvidenceFile, checker: Checker
) -> None:
    change = good.verdicts[0].change
    near = edited(good, put("verdicts", 0, "change", to=round(change + 1e-5, 5)))
    checker.check(parse_evidence_file(near, "near.json"), "near.json")


def test_placing_that_fails_is_told_as_the_reason(good: EvidenceFile, checker: Checker) -> None:
    def fails(*_: object) -> Any:
        raise PatchkitError("no edit fits", code="ANCHOR_NOT_FOUND", why="upstream changed")

    with pytest.raises(PatchkitError) as caught:
        replace(checker, place=fails).check(good, "good.json")
    assert all("no edit fits" in one.message for one in members_of(caught.value))
