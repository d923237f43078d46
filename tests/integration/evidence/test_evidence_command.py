"""``patchkit evidence``: from what gate bench measured to another machine's series, or to a pull request."""

from __future__ import annotations

import hashlib
import json
import random
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import run_patchkit
from demo_world import FOLDER, SOURCE, World, git, make_series, make_upstream
from measured_files import machine

from patchkit.base.evidence import MeasuredMachine, load_evidence_file, parse_evidence_file
from patchkit.base.plain import fields_of
from patchkit.carry.series.lock import load_lock
from patchkit.prove.gates.base import GateResult, Identity
from patchkit.prove.gates.bench import ArmSamples, BenchEvidence, SampledTest, Samples
from patchkit.prove.gates.sides import BuiltSides

_SIDES: BuiltSides = {}


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, checkout: Path) -> World:
    """A world in which apply made a candidate of the first patch alone, and the lock records it."""
    world = World(tmp_path_factory.mktemp("measured"), checkout)
    make_upstream(
        world.upstream, {1: {f"{FOLDER}/demo.cu": SOURCE, f"{FOLDER}/common.cuh": "#pragma once\n"}}
    )
    make_series(world, 1, ("gfx1151",), config=False, last=None)
    done = world.run("apply", "--arch", "gfx1151", "--only", "demo-launch-bounds")
    assert done.returncode == 0, done.stderr
    return world


@pytest.fixture
def world(finished: World, tmp_path: Path) -> World:
    """A copy to write to: its upstream stays where it was."""
    for part in ("series", "cache"):
        shutil.copytree(finished.root / part, tmp_path / part, symlinks=True)
    return replace(finished, root=tmp_path)


def tree_of(world: World) -> str:
    return git(world.repository, "rev-parse", "candidate/gfx1151/b1^{tree}")


def measure(world: World, number: int, gain: float, *, tree: str | None = None) -> None:
    """What gate bench leaves in the cache, on a machine of that number."""
    draw = random.Random(number)
    upstream = load_lock(world.lock).pin(None).tree
    rounds: dict[str, list[tuple[int, ...]]] = {"baseline": [], "candidate": [], "again": []}
    for _ in range(10):
        for arm, several in rounds.items():
            factor = 1 / (1 + gain) if arm == "candidate" else 1.0
            several.append(tuple(int(4e8 * factor * (1 + draw.gauss(0, 0.002))) for _ in range(3)))
    candidate = tree or tree_of(world)
    evidence = BenchEvidence(
        runner="this machine",
        model="secret-name-of-a-model.gguf",
        head_size=128,
        tests=(),
        samples=Samples(
            format=1,
            tests=(
                SampledTest(
                    prompt=512,
                    generated=0,
                    depth=0,
                    type_k="f16",
                    type_v="f16",
                    flash="on",
                    setting="llama 7B Q4_0, 3825065984 bytes, b4096, ub2048, t16, ngl99, load none",
                    samples_ns=ArmSamples.model_validate(rounds),
                ),
            ),
        ),
        conditions=({"clock_Hz:amdgpu": "2890000000", "governor": "performance"},),
        rounds_taken_from_an_interrupted_run=0,
        backend="hip",
        sides=_SIDES,
        machine=MeasuredMachine.model_validate(machine(number)),
        identity=Identity(
            format="2",
            baseline_tree=upstream,
            candidate_tree=candidate,
            toolchain="t",
            runner="this machine",
            machine="kernel Linux 6.17.4 x86_64 on alices-box",
            settings="s",
        ),
        run_at="2026-11-20T20:00:00+00:00",
    )
    result = GateResult(gate="bench", verdict="passed", summary="measured", evidence=evidence)
    folder = world.cache / "evidence" / candidate
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bench.json").write_text(json.dumps(fields_of(result)))


def evidence(world: World, *args: str | Path) -> subprocess.CompletedProcess[str]:
    where = ["--series-dir", world.series, "--cache-dir", world.cache]
    return run_patchkit("evidence", args[0], *where, *args[1:], cwd=world.root)


def exported(world: World, number: int, gain: float) -> Path:
    measure(world, number, gain)
    done = evidence(world, "export", "--arch", "gfx1151", "--json")
    assert done.returncode == 0, done.stderr
    return world.root / json.loads(done.stdout)["file"]


def test_the_file_says_what_was_measured_and_nothing_of_its_user(world: World) -> None:
    path = exported(world, 1, 0.1)
    text = path.read_text()
    for private in ("alices-box", "secret-name", "this machine", str(world.root), "performance"):
        assert private not in text
    file = load_evidence_file(path)
    assert path.name == file.name
    assert [arm.name for arm in file.arms] == ["upstream", "upstream-again", "candidate"]
    assert list(file.arm("candidate").patches) == ["demo-launch-bounds"]
    assert file.machine.clock_mhz is not None
    assert file.machine.clock_mhz.high == 2890.0
    assert [one.verdict for one in file.verdicts] == ["faster"]


def test_another_machine_finds_the_same(world: World, finished: World, tmp_path: Path) -> None:
    """Another series folder, a cache that has nothing: what the lock lacks is placed there anew."""
    path = exported(world, 1, 0.1)
    there = replace(finished, root=tmp_path / "there")
    shutil.copytree(finished.series, there.series)
    done = evidence(there, "check", path, "--json")
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["files"]
    here = load_evidence_file(path)
    assert found["verdicts"] == [one.model_dump(mode="json") for one in here.verdicts]
    assert not (there.series / "evidence").exists()


def test_two_machines_make_it_measured_and_show_says_so(world: World) -> None:
    assert world.run("lock", "--arch", "gfx1151").returncode == 0
    for number, before in ((1, "nothing -> published"), (2, "published -> measured")):
        path = exported(world, number, 0.1)
        done = evidence(world, "add", path)
        assert done.returncode == 0, done.stderr
        assert f"demo-launch-bounds: {before}" in done.stdout
        assert (world.series / "evidence" / path.name).read_bytes() == path.read_bytes()
    shown = world.run("show", "demo-launch-bounds").stdout
    assert re.search(r"measured by machine 0000000[12] and machine 0000000[12]", shown)
    assert f"evidence/{path.name}" in shown
    assert "ROCm 7.2.1, clang 20.0.0" in shown


def test_a_loss_on_two_machines_is_told(world: World) -> None:
    assert world.run("lock", "--arch", "gfx1151").returncode == 0
    for number in (1, 2):
        done = evidence(world, "add", exported(world, number, -0.1))
        assert done.returncode == 0, done.stderr
    assert "two machines measured a loss, so it is off by default" in done.stdout
    shown = world.run("show", "demo-launch-bounds").stdout
    assert re.search(r"optional, slower, measured by machine 0000000[12] and machine 0000000[12]", shown)
    for _ in range(2):  # recording what is on now must not turn it on again
        assert world.run("lock", "--arch", "gfx1151").returncode == 0
        assert "optional, slower" in world.run("show", "demo-launch-bounds").stdout
    assert ("demo-twin",) in {result.patches for result in load_lock(world.lock).results}


def test_the_same_file_again_changes_nothing(world: World) -> None:
    path = exported(world, 1, 0.1)
    assert evidence(world, "add", path).returncode == 0
    done = evidence(world, "add", path)
    assert done.returncode == 0, done.stderr
    assert "already in the series" in done.stdout


def test_another_file_is_not_written_over(world: World) -> None:
    path = exported(world, 1, 0.1)
    own = path.read_bytes()
    again = evidence(world, "export", "--arch", "gfx1151", "--out", path)
    assert again.returncode == 0, again.stderr  # the same bytes: nothing is lost
    (world.root / "other.json").write_text("what was measured last year")
    done = evidence(world, "export", "--arch", "gfx1151", "--out", world.root / "other.json")
    assert done.returncode == 2, done.stderr
    assert "EVIDENCE_FILE_THERE" in done.stderr
    assert (world.root / "other.json").read_text() == "what was measured last year"
    assert path.read_bytes() == own


def test_nothing_is_added_through_a_link_for_a_folder(world: World) -> None:
    path = exported(world, 1, 0.1)
    elsewhere = world.root / "elsewhere"
    elsewhere.mkdir()
    folder = world.series / "evidence"
    if folder.is_dir():
        folder.rmdir()
    folder.symlink_to(elsewhere, target_is_directory=True)
    done = evidence(world, "add", path)
    assert done.returncode == 2, done.stderr
    assert "EVIDENCE_REFUSED" in done.stdout + done.stderr
    assert list(elsewhere.iterdir()) == []


def test_the_same_rounds_as_of_another_machine_are_refused_and_nothing_is_written(world: World) -> None:
    path = exported(world, 1, 0.1)
    assert evidence(world, "add", path).returncode == 0
    copy = world.root / "copy.json"
    copy.write_bytes(path.read_bytes().replace(b"00000001" * 4, b"00000009" * 4))
    done = evidence(world, "add", copy)
    assert done.returncode == 1
    assert "EVIDENCE_REFUSED" in done.stderr
    assert [each.name for each in (world.series / "evidence").iterdir()] == [path.name]


def test_a_foreign_tree_is_no_evidence_of_this_series(world: World) -> None:
    path = exported(world, 1, 0.1)
    foreign = world.root / "foreign.json"
    foreign.write_bytes(path.read_bytes().replace(tree_of(world).encode(), b"9" * 40))
    done = evidence(world, "check", foreign)
    assert done.returncode == 1
    assert "EVIDENCE_REFUSED" in done.stderr
    assert "foreign.json" in done.stderr


def test_of_several_files_those_in_order_are_told_beside_the_others(world: World) -> None:
    path = exported(world, 1, 0.1)
    (world.root / "empty.json").write_text("")
    done = evidence(world, "check", path, world.root / "empty.json", world.root / "gone.json", "--json")
    assert done.returncode == 2, done.stderr
    document = json.loads(done.stdout)
    assert document["ok"] is False
    assert [one["name"] for one in document["files"]] == [path.name]
    told = [(one["code"], one["message"], one["why"]) for one in document["error"]["errors"]]
    assert told[0][0] == "EVIDENCE_UNREADABLE"
    assert told[0][1].endswith("empty.json is empty")
    assert told[1][0] == "EVIDENCE_REFUSED"
    assert told[1][2] == "the file does not exist"


def test_a_time_that_was_changed_within_what_the_verdicts_allow_shows_in_the_name(world: World) -> None:
    path = exported(world, 1, 0.1)
    file = load_evidence_file(path)
    time = str(next(iter(file.tests[0].rounds[0].values()))[0])
    path.write_bytes(path.read_bytes().replace(time.encode(), f"{int(time) + 1}".encode(), 1))
    done = evidence(world, "check", path)
    assert done.returncode == 0, done.stderr
    assert f"its content belongs to {load_evidence_file(path).name}" in done.stdout
    path = path.rename(world.root / "mine.json")  # a name of the user's says nothing
    assert "its content belongs" not in evidence(world, "check", path).stdout


def test_what_nobody_measured_is_not_exported(world: World) -> None:
    done = evidence(world, "export", "--arch", "gfx1151")
    assert done.returncode == 2
    assert "EVIDENCE_MISSING" in done.stderr
    assert "patchkit verify --gate bench" in done.stderr


def test_a_folder_of_something_else_is_not_exported(world: World, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    done = evidence(world, "export", "--from", tmp_path / "photos")
    assert done.returncode == 2
    assert "EVIDENCE_NOT_EXPORTED" in done.stderr


def test_a_folder_and_a_candidate_are_two_things_to_export(world: World, tmp_path: Path) -> None:
    done = evidence(world, "export", "--from", tmp_path, "--trust", "measured")
    assert done.returncode == 2
    assert "OPTIONS_CONTRADICT" in done.stderr


@pytest.mark.parametrize("name", ["me@example.org", "two words", "-dash", "x" * 40])
def test_a_name_that_says_too_much_is_refused(world: World, name: str) -> None:
    measure(world, 1, 0.1)
    done = evidence(world, "export", "--arch", "gfx1151", f"--by={name}")
    assert done.returncode == 2
    assert "USAGE_SYNTAX" in done.stderr


def test_one_bad_file_of_two_is_told_and_the_other_one_is_added(world: World) -> None:
    path = exported(world, 1, 0.1)
    bad = world.root / "bad.json"
    bad.write_bytes(path.read_bytes()[:-5])
    done = evidence(world, "add", bad, path)
    assert done.returncode == 2
    assert "EVIDENCE_UNREADABLE" in done.stderr
    assert f"{path}: added" in done.stdout


# -- of what pick measured


def journal(world: World, trees: dict[tuple[str, ...], str], gain: float, *, device: str = "hip") -> Path:
    """The folder of a run of pick, by its form: each patch left out of both, ten rounds."""
    draw = random.Random("pick")
    both = ("demo-launch-bounds", "demo-twin")
    setup = {
        "format": 1,
        "upstream": trees[()],
        "patches": list(both),
        "archs": ["gfx1151"],
        "device": device,
        "runner": "this machine",
        "models": {"my-own-model": "5" * 64},
        "tests": ["pp512", "tg128@d4096"],
        "batch": [2048, 512],
        "cache_type": "f16",
        "threads": None,
    }
    entries: list[dict[str, object]] = [{"kind": "begun", "setup": setup}]
    for number in range(10):
        for arm, again in ((both, False), ((), False), ((), True), (both[1:], False)):
            speed = 1 + gain if both[0] in arm else 1.0
            samples = {
                test: [int(base / speed * (1 + draw.gauss(0, 0.002))) for _ in range(2)]
                for test, base in (("pp512", 4e8), ("tg128@d4096", 3e9))
            }
            entries.append(
                {
                    "kind": "visit",
                    "number": len(entries) - 1,
                    "stage": "each",
                    "round": number,
                    "again": again,
                    "arm": list(arm),
                    "tree": trees[arm],
                    "model": "my-own-model",
                    "model_hash": "5" * 64,
                    "samples_ns": samples,
                    "seconds": 1.5,
                    "conditions": {},
                }
            )
    folder = world.root / "picked"
    folder.mkdir()
    bodies = [json.dumps(entry) for entry in entries]
    lines = [f"{body}\t{hashlib.sha256(body.encode()).hexdigest()[:16]}\n" for body in bodies]
    (folder / "journal.jsonl").write_text("".join(lines) + '{"kind": "vis')
    (folder / "machine.json").write_text(json.dumps(machine(7)))
    return folder


@pytest.fixture(scope="session")
def trees(finished: World, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, ...], str]:
    """The trees of the sets that pick builds."""
    found: dict[tuple[str, ...], str] = {(): load_lock(finished.lock).pin(None).tree}
    for ids in (("demo-launch-bounds", "demo-twin"), ("demo-twin",)):
        there = replace(finished, root=tmp_path_factory.mktemp("set"))
        shutil.copytree(finished.series, there.series)
        only = [word for name in ids for word in ("--only", name)]
        done = there.run("apply", "--arch", "gfx1151", *only)
        assert done.returncode == 0, done.stderr
        found[ids] = tree_of(there)
    return found


def test_what_pick_measured_speaks_of_one_patch(world: World, trees: dict[tuple[str, ...], str]) -> None:
    """No set of it is in the lock: each is placed anew, here and by whoever checks it."""
    folder = journal(world, trees, 0.08)
    done = evidence(world, "export", "--from", folder, "--out", "mine.json")
    assert done.returncode == 0, done.stderr
    path = world.root / "mine.json"
    assert "my-own-model" not in path.read_text()
    assert "faster: pp512@d0" in done.stdout
    checked = evidence(world, "check", path, "--json")
    assert checked.returncode == 0, checked.stderr
    (found,) = json.loads(checked.stdout)["files"]
    said = {one["patch"]: {each["test"] for each in one["measured"]} for one in found["patches"]}
    assert said["demo-launch-bounds"] == {"pp512@d0", "tg128@d4096"}


def test_a_journal_that_was_edited_is_not_exported(world: World, trees: dict[tuple[str, ...], str]) -> None:
    folder = journal(world, trees, 0.08)
    path = folder / "journal.jsonl"
    path.write_text(path.read_text().replace('"round": 3', '"round": 4', 1))
    done = evidence(world, "export", "--from", folder)
    assert done.returncode == 2
    assert "EVIDENCE_NOT_EXPORTED" in done.stderr
    assert "expected '" in done.stderr


def test_a_damaged_machine_is_not_exported_and_how_to_go_on_is_said(
    world: World, trees: dict[tuple[str, ...], str]
) -> None:
    folder = journal(world, trees, 0.08)
    (folder / "machine.json").write_text('{"token":')
    done = evidence(world, "export", "--from", folder)
    assert done.returncode == 2
    assert "EVIDENCE_NOT_EXPORTED" in done.stderr
    assert "run the same command on the measured machine" in done.stderr


def test_what_was_modelled_is_no_measurement(world: World, trees: dict[tuple[str, ...], str]) -> None:
    folder = journal(world, trees, 0.08, device="emulated")
    done = evidence(world, "export", "--from", folder)
    assert done.returncode == 2
    assert "modelled times are not a measurement" in done.stderr


# -- as a pull request that adds one file


def pull(world: World, files: dict[str, bytes | None], *, link: str | None = None) -> str:
    """A branch with one commit: content by name in evidence/, None removes; ``link``: a symbolic link."""
    folder = world.series
    git(folder, "checkout", "-q", "-f", "-B", "head", "main")
    (folder / "evidence").mkdir(exist_ok=True)
    for name, content in files.items():
        place = folder / "evidence" / name
        place.unlink() if content is None else place.write_bytes(content)
    if link is not None:
        (folder / "evidence" / link).symlink_to("../patches/series.toml")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "evidence")
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def repository(world: World) -> World:
    """The same world, its series a git repository with a recorded lock."""
    assert world.run("lock", "--arch", "gfx1151").returncode == 0
    git(world.series, "init", "-q", "--template=", "-b", "main")
    git(world.series, "add", "-A")
    git(world.series, "commit", "-q", "-m", "the series")
    return world


def judged(world: World, head: str, *more: str) -> tuple[int, dict[str, Any]]:
    where = ["--repo", world.series, "--cache-dir", world.cache, "--no-gpu", "--json"]
    done = run_patchkit("gate", "--base", "main", "--head", head, *where, *more, cwd=world.root)
    return done.returncode, json.loads(done.stdout)


def test_a_pull_request_with_one_good_file_passes_and_is_told(repository: World) -> None:
    path = exported(repository, 1, 0.1)
    code, verdict = judged(repository, pull(repository, {path.name: path.read_bytes()}))
    assert (code, verdict["findings"]) == (0, [])
    assert [one["part"] for one in verdict["changes"]] == ["evidence"]
    (told,) = [one for one in verdict["attention"] if one.startswith("evidence/")]
    assert "is valid (machine 00000001, Radeon 8060S Graphics, b1)" in told
    assert "demo-launch-bounds nothing -> published" in told


def test_a_pull_request_with_a_doctored_file_is_blocked(repository: World) -> None:
    path = exported(repository, 1, 0.1)
    bad = path.read_bytes().replace(b'"verdict": "faster"', b'"verdict": "slower"')
    name = parse_evidence_file(bad, "bad").name
    code, verdict = judged(repository, pull(repository, {name: bad}))
    assert code == 1
    assert [one["code"] for one in verdict["findings"]] == ["EVIDENCE_REFUSED"]
    assert verdict["findings"][0]["where"] == [f"evidence/{name}"]


def test_a_pull_request_that_edits_a_file_is_blocked(repository: World) -> None:
    path = exported(repository, 1, 0.1)
    git(repository.series, "merge", "-q", "--ff-only", pull(repository, {path.name: path.read_bytes()}))
    git(repository.series, "branch", "-f", "main", "head")
    edited = path.read_bytes().replace(b'"by": null', b'"by": "somebody"')
    code, verdict = judged(repository, pull(repository, {path.name: edited}))
    assert code == 2
    assert "EVIDENCE_REFUSED" in {one["code"] for one in verdict["findings"]}


def test_a_pull_request_with_a_link_is_blocked(repository: World) -> None:
    code, verdict = judged(repository, pull(repository, {}, link="link.json"))
    assert code == 2
    assert [one["code"] for one in verdict["findings"]] == ["GATE_ENTRY_REFUSED"]


def test_explain_computes_nothing_and_says_what_would_be(repository: World) -> None:
    path = exported(repository, 1, 0.1)
    head = pull(repository, {path.name: path.read_bytes()})
    code, verdict = judged(repository, head, "--explain")
    assert code == 0
    assert f"evidence/{path.name} would be checked: each figure against its rounds" in verdict["attention"]
