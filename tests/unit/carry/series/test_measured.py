"""What evidence files of a series come to: claims, votes, and how long they count."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from measured_files import BUILD, CODES, lock, measured, of_patch, result
from refusing import refused

from patchkit.base.errors import ErrorGroup
from patchkit.base.evidence import EvidenceFile, load_evidence_folder
from patchkit.carry.series.catalogue import load_series
from patchkit.carry.series.lock import Lock, Result, load_lock
from patchkit.carry.series.measured import (
    claims_of,
    code_digest,
    measured_of,
    validity_of,
)
from patchkit.carry.series.trust import Claim, assess_claims

LOSING = {"first": -0.06, "second": 0.0}


@pytest.fixture(scope="module")
def gaining() -> EvidenceFile:
    return measured()


@pytest.fixture(scope="module")
def losing() -> dict[int, EvidenceFile]:
    return {number: measured(number=number, gains=LOSING) for number in (3, 4)}


def claims(
    *files: EvidenceFile,
    of: str = "first",
    known: Lock | None = None,
    codes: Mapping[str, str] = CODES,
) -> tuple[Claim, ...]:
    return claims_of({file.name: file for file in files}, known or lock(), codes).get(of, ())


def with_results(*results: Result) -> Lock:
    return replace(lock(), results=results)


def changed(build: int, *, same: bool) -> Result:
    whole = result(("first", "second"), "b" * 40)
    rendered: Mapping[str, str] = whole.rendered if same else {**whole.rendered, "first/edit": "9" * 64}
    return replace(whole, build=build, rendered=rendered)


def test_a_verdict_is_of_a_patch_where_two_builds_differ_in_it_alone(gaining: EvidenceFile) -> None:
    found = {(one.patch, one.verdict.of, one.verdict.against) for one in measured_of(gaining)}
    assert found == {
        ("first", "all", "all-without-first"),
        ("first", "all-without-second", "none"),
        ("second", "all", "all-without-second"),
        ("second", "all-without-first", "none"),
    }


def test_a_machine_makes_a_claim(gaining: EvidenceFile) -> None:
    (claim,) = claims(gaining)
    assert (claim.says, claim.kind, claim.archs, claim.build) == ("gain", "hardware", ("gfx1151",), BUILD)
    assert claim.link == f"evidence/{gaining.name}"
    assert claim.figure.startswith("pp512@d0 +")
    assert [one.says for one in claims(gaining, of="second")] == ["same"]


def test_two_machines_that_agree_make_it_measured(gaining: EvidenceFile) -> None:
    one = assess_claims(claims(gaining), "gfx1151", BUILD)
    two = assess_claims(claims(gaining, measured(number=1)), "gfx1151", BUILD)
    assert (one.level, two.level) == ("published", "measured")


def test_a_machine_has_one_vote_however_many_files(gaining: EvidenceFile) -> None:
    again = measured(rounds=12)
    assert again.machine.token == gaining.machine.token
    assert again.name != gaining.name
    assert assess_claims(claims(gaining, again), "gfx1151", BUILD).level == "published"


def test_a_loss_on_two_machines_ends_a_default(losing: dict[int, EvidenceFile]) -> None:
    one = assess_claims(claims(losing[3]), "gfx1151", BUILD)
    two = assess_claims(claims(*losing.values()), "gfx1151", BUILD)
    assert (one.loses, two.loses) == (False, True)


def test_a_gain_beside_what_is_likely_a_loss_is_neither(gaining: EvidenceFile) -> None:
    """As on an NVIDIA GPU with a planted patch that is faster on one model and slower on another."""
    verdicts = tuple(
        one.model_copy(update={"verdict": "unclear", "change": -0.03, "low": -0.08, "high": -0.007})
        if one.test == 1
        else one
        for one in gaining.verdicts
    )
    leaning = gaining.model_copy(update={"verdicts": verdicts})
    assert [one.says for one in claims(leaning)] == ["mixed"]


def test_another_gpu_says_nothing(gaining: EvidenceFile) -> None:
    assert assess_claims(claims(gaining, measured(number=1)), "gfx1150", BUILD).level is None


def test_a_patch_that_was_changed_since_is_another_one(gaining: EvidenceFile) -> None:
    known = with_results(changed(BUILD, same=False))
    assert claims(gaining, known=known) == ()
    assert "writes different code" in validity_of(gaining, "first", known, CODES).why


def test_prose_and_neighbours_may_change(gaining: EvidenceFile) -> None:
    other = replace(changed(BUILD, same=True), tree="9" * 40, inputs={"patches/series.toml": "8" * 64})
    assert len(claims(gaining, known=with_results(other))) == 1


def test_it_counts_up_to_the_build_where_the_patch_writes_something_else(gaining: EvidenceFile) -> None:
    followed = with_results(changed(BUILD, same=True), changed(BUILD + 50, same=True))
    (claim,) = claims(gaining, known=followed)
    assert claim.last_build is None
    then = with_results(*followed.results, changed(BUILD + 90, same=False))
    (claim,) = claims(gaining, known=then)
    assert claim.last_build == BUILD + 50


def test_it_counts_after_its_pin_has_left_the_lock(gaining: EvidenceFile) -> None:
    assert len(claims(gaining, known=with_results(changed(BUILD + 50, same=True)))) == 1


def test_of_what_the_lock_does_not_record_the_files_decide(gaining: EvidenceFile) -> None:
    """A patch that is off because it lost leaves the lock: that must not turn it on again."""
    assert len(claims(gaining, known=with_results())) == 1
    assert claims(gaining, known=with_results(), codes={"first": "0" * 64}) == ()
    assert claims(gaining, known=with_results(), codes={}) == ()


def test_the_code_of_a_patch_is_what_it_does_and_not_its_prose(checkout: Path, tmp_path: Path) -> None:
    folder = tmp_path / "0008-mmq-tile-config"
    shutil.copytree(checkout / "patches" / folder.name, folder)
    before = code_digest(folder)
    text = (folder / "patch.toml").read_text()
    (folder / "patch.toml").write_text(re.sub(r'(?m)^title = ".*"$', 'title = "another title"', text))
    (folder / ".patch.toml.swp").write_text("an editor's")
    assert code_digest(folder) == before
    (folder / "more.jinja").write_text("a template")
    assert code_digest(folder) != before
    (folder / "more.jinja").unlink()
    (folder / "patch.toml").write_text(text.replace("[[edit]]", "[[edit]]\ncount = 2", 1))
    assert code_digest(folder) != before


def test_a_file_that_was_edited_after_it_was_added_is_refused(gaining: EvidenceFile, tmp_path: Path) -> None:
    (tmp_path / gaining.name).write_bytes(measured(number=1).text)
    with refused("EVIDENCE_REFUSED"):
        load_evidence_folder(tmp_path)


def test_readmes_and_backups_are_no_evidence(gaining: EvidenceFile, tmp_path: Path) -> None:
    (tmp_path / gaining.name).write_bytes(gaining.text)
    (tmp_path / "README.md").write_text("what this is")
    (tmp_path / ".#left.json").write_text("{")
    assert list(load_evidence_folder(tmp_path)) == [gaining.name]
    assert load_evidence_folder(tmp_path / "none") == {}


def test_a_series_has_the_claims_of_its_files(gaining: EvidenceFile, checkout: Path, tmp_path: Path) -> None:
    for part in ("patches", "arch_profiles"):
        shutil.copytree(checkout / part, tmp_path / part)
    (tmp_path / "evidence").mkdir()
    (tmp_path / "evidence" / "wrong.json").write_bytes(gaining.text)
    with pytest.raises(ErrorGroup) as caught:
        load_series(tmp_path / "patches")
    assert [one.code for one in caught.value.errors] == ["EVIDENCE_REFUSED"]
    of_shipped = of_patch(gaining, "mmq-tile-config", load_lock(checkout / "patches" / "upstream.lock"))
    (tmp_path / "evidence" / "wrong.json").unlink()
    (tmp_path / "evidence" / of_shipped.name).write_bytes(of_shipped.text)
    patch = load_series(tmp_path / "patches").patch("mmq-tile-config")
    assert patch is not None
    assert [one.link for one in patch.claims if one.link.endswith(".json")] == [f"evidence/{of_shipped.name}"]
