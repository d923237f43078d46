"""Publishing a candidate of the small upstream: what is written, what is refused, and what a remote gets."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from refusing import refused

from patchkit.base.errors import GitError
from patchkit.base.plain import fields_of
from patchkit.base.reporter import NullReporter
from patchkit.base.series_folder import find_series_dir
from patchkit.base.verdict import EMULATED as EMULATED_PASS
from patchkit.base.verdict import Verdict
from patchkit.base.workspace import Workspace
from patchkit.cli.verbs.verify import published_lines
from patchkit.prove.gates.base import GateResult
from patchkit.prove.gates.registry import gate_names
from patchkit.prove.publish.run import Published, PublishRequest, PushRemoteBad, run_publish
from patchkit.prove.verify.run import Report

GATES = gate_names()
CANDIDATE = "refs/heads/candidate/gfx1151/b1"
PROVEN = "refs/heads/patchkit/gfx1151/b1"
EMULATED = f"{PROVEN}-emulated"
UNPROVEN = f"{PROVEN}-unproven"


@pytest.fixture
def ready(finished_world, tmp_path: Path):
    """A private copy of a world with a candidate."""
    copy = tmp_path / "world"
    shutil.copytree(finished_world.root, copy, symlinks=True)
    world = replace(finished_world, root=copy)
    _policy(world, optional=("resources",))
    return world


def _policy(world, *, optional: Sequence[str], hardware: Sequence[str] = ()) -> None:
    quoted = [json.dumps(list(names)) for names in (sorted({*GATES} - {*optional}), optional)]
    text = f'[gates]\nrequired = {quoted[0]}\noptional = {quoted[1]}\nwhy = "for the test"\n'
    text += f"hardware = {json.dumps(list(hardware))}\n"
    (world.series / "patches" / "series.toml").write_text(f'folders = ["ggml/src/ggml-cuda/"]\n{text}')


@pytest.fixture
def report(ready) -> Callable[..., Report]:
    """A report whose gates passed, except those named otherwise; its evidence lies where verify puts it."""

    def make(build: int = 1, **other: Verdict) -> Report:
        candidate = f"refs/heads/candidate/gfx1151/b{build}"
        tip, tree = ready.git("rev-parse", candidate, f"{candidate}^{{tree}}").split()
        folder = ready.cache / "evidence" / tree
        folder.mkdir(parents=True, exist_ok=True)
        results = []
        for name in GATES:
            verdict = other.get(name.replace("-", "_"), "passed")
            result = GateResult(gate=name, verdict=verdict, summary=f"{name} {verdict}", seconds=1.0)
            if verdict != "not run":
                text = {**fields_of(result), "where": str(ready.cache / "trees")}
                (folder / f"{name}.json").write_text(json.dumps(text))
            results.append(result)
        made = Report(
            branch=candidate.removeprefix("refs/heads/"),
            archs=("gfx1151",),
            base=ready.git("rev-parse", f"refs/patchkit/pin/b{build}"),
            tip=tip,
            tree=tree,
            proven_with=(),
            gates=tuple(results),
            folder=folder,
        )
        (folder / "report.json").write_text(json.dumps(fields_of(made)))
        return made

    return make


@pytest.fixture
def publish(ready) -> Callable[..., Published]:
    def run(report: Report, *, environ: Mapping[str, str] | None = None, **asked: object) -> Published:
        workspace = Workspace(
            series=find_series_dir(ready.series), cache_root=ready.cache, reporter=NullReporter()
        )
        return run_publish(workspace, report, PublishRequest(**asked), environ=environ or os.environ)

    return run


@pytest.fixture
def remote(ready, tmp_path: Path) -> Path:
    """A bare repository that has upstream's history, as a fork has."""
    path = tmp_path / "fork.git"
    subprocess.run(["git", "clone", "-q", "--bare", str(ready.upstream), str(path)], check=True)
    return path


def _message(world, name: str, *, at: Path | None = None) -> str:
    return world.git("log", "-1", "--format=%B", name, at=at)


def test_a_proven_branch_is_the_candidate_and_one_commit_that_changes_nothing(ready, report, publish) -> None:
    made = report()
    published = publish(made)
    refs = ready.refs()
    assert refs[PROVEN] == published.tip
    assert ready.git("rev-parse", f"{PROVEN}^", f"{PROVEN}^{{tree}}").split() == [made.tip, made.tree]
    assert refs[CANDIDATE] == made.tip
    text = _message(ready, PROVEN)
    assert text.count("Gate-Passed: ") == len(GATES)
    assert "Gate-Not-Run" not in text
    assert f"Patchkit-Evidence: {published.evidence_ref} {published.evidence}" in text
    assert refs[published.evidence_ref] == published.evidence
    assert ready.git("rev-list", "--count", published.evidence) == "1"
    ready.git("fsck", "--strict", "--no-dangling")


def test_a_patch_that_does_not_say_everything_is_not_published(ready, report, publish) -> None:
    made = report()
    path = ready.series / "patches/0002-demo-twin/patch.toml"
    path.write_text(path.read_text().replace('why = "The twin needs another scale."\n', ""))
    with refused("PATCH_BAD"):
        publish(made)
    assert PROVEN not in ready.refs()


def test_a_published_branch_is_handed_over_like_a_candidate(ready, report, publish, tmp_path: Path) -> None:
    published = publish(report())
    clone = tmp_path / "clone"
    ready.git("clone", "-q", str(ready.upstream), str(clone), at=tmp_path)
    lines = published_lines(published)
    (line,) = (line for line in lines if "get it with: " in line)
    subprocess.run(["sh", "-c", line.partition(": ")[2]], cwd=clone, check=True)
    assert ready.git("rev-parse", "FETCH_HEAD", at=clone) == published.tip
    assert ready.git("rev-parse", "--is-shallow-repository", at=clone) == "false"
    assert publish(report()).handover == published.handover


def test_a_published_branch_on_a_tree_alone_is_handed_over_without_its_seal(ready, report, publish) -> None:
    lock = ready.series / "patches" / "upstream.lock"
    lock.write_text(re.sub(r"(?m)^commit_object = .*\n", "", lock.read_text()))
    done = ready.run("apply", "--arch", "gfx1151")
    assert done.returncode == 0, done.stderr
    published = publish(report())
    assert published.handover is not None
    assert published.handover.path.read_bytes().count(b"\nSubject: [PATCH] ") == 2
    assert "without the last commit of the branch" in list(published_lines(published))[-1]


def test_the_evidence_is_whole_and_names_no_folder_of_this_machine(ready, report, publish) -> None:
    published = publish(report(resources="not run"))
    names = ready.git("ls-tree", "-r", "--name-only", published.evidence).split()
    assert sorted(names) == sorted([*(f"{n}.json" for n in GATES if n != "resources"), "report.json"])
    assert str(ready.cache) not in ready.git("show", f"{published.evidence}:report.json")
    assert '"where": "$PATCHKIT_CACHE/trees"' in ready.git("show", f"{published.evidence}:bench.json")


def test_the_evidence_of_an_earlier_run_is_not_published(ready, report, publish) -> None:
    report()
    published = publish(report(bench="not run"), accept_not_run=True)
    assert "bench.json" not in ready.git("ls-tree", "-r", "--name-only", published.evidence)


def test_again_says_so_and_moves_nothing(ready, report, publish) -> None:
    first = publish(report())
    before = ready.refs()
    second = publish(report())
    assert (second.unchanged, second.tip, second.evidence) == (True, first.tip, first.evidence)
    assert ready.refs() == before
    third = publish(report(resources="not run"))
    assert (third.unchanged, third.before) == (False, first.tip)
    assert "Gate-Not-Run: resources (resources not run)" in _message(ready, PROVEN)


@pytest.mark.parametrize("gate", ["anchors", "resources", "bench"])
def test_a_failed_gate_is_never_accepted(ready, report, publish, gate: str) -> None:
    before = ready.refs()
    with refused("PUBLISH_GATE_FAILED", match=gate):
        publish(report(**{gate: "failed"}), accept_not_run=True)
    assert ready.refs() == before


def test_a_run_that_ended_in_the_middle_publishes_nothing(ready, report, publish) -> None:
    with refused("PUBLISH_GATE_FAILED", match="TOOL_CRASHED"):
        publish(replace(report(), stopped="TOOL_CRASHED"), accept_not_run=True)
    assert PROVEN not in ready.refs()


def test_what_did_not_run_must_be_accepted_and_is_named(ready, report, publish) -> None:
    made = report(logits="not run", bench="not run")
    with refused("PUBLISH_NOT_PROVEN", match="logits, bench"):
        publish(made)
    assert set(ready.refs()) == {CANDIDATE, "refs/patchkit/made/gfx1151/b1", "refs/patchkit/pin/b1"}
    published = publish(made, accept_not_run=True)
    assert PROVEN not in ready.refs()
    assert ready.refs()[UNPROVEN] == published.tip
    text = _message(ready, UNPROVEN)
    assert "Gate-Not-Run: bench (bench not run)" in text
    assert "Required but not run: logits, bench." in " ".join(text.split())
    assert "unproven" in text.splitlines()[0]


def test_what_passed_on_an_emulated_gpu_is_published_beside_what_hardware_proved(
    ready, report, publish
) -> None:
    first = publish(report())
    published = publish(report(backend_ops=EMULATED_PASS, logits=EMULATED_PASS, bench=EMULATED_PASS))
    assert published.branch == "patchkit/gfx1151/b1-emulated"
    assert (ready.refs()[PROVEN], ready.refs()[EMULATED]) == (first.tip, published.tip)
    text = _message(ready, EMULATED)
    assert (
        text.splitlines()[0]
        == f"patchkit: gfx1151 on b1, {len(GATES) - 3} gates passed, 3 on the emulated GPU"
    )
    assert "No GPU was used for backend-ops, logits, bench" in " ".join(text.split())
    for name in ("backend-ops", "logits", "bench"):
        assert f"Gate-Emulated: {name} (emulated)" in text
        assert f"Gate-Passed: {name}" not in text
    names = ready.git("ls-tree", "-r", "--name-only", published.evidence).split()
    assert {"backend-ops.json", "logits.json", "bench.json"} <= {*names}
    document = fields_of(published)
    assert (document["proven"], document["proof"], set(document["emulated"])) == (
        True,
        "emulated",
        {"backend-ops", "logits", "bench"},
    )
    assert any("EMULATED: backend-ops, logits, bench passed" in line for line in published_lines(published))
    again = publish(report(backend_ops=EMULATED_PASS, logits=EMULATED_PASS, bench=EMULATED_PASS))
    assert again.unchanged


def test_a_policy_that_asks_for_hardware_is_not_met_by_an_emulated_gpu(ready, report, publish) -> None:
    _policy(ready, optional=("resources",), hardware=("bench",))
    made = report(logits=EMULATED_PASS, bench=EMULATED_PASS)
    with refused("PUBLISH_NOT_PROVEN", match="on the required hardware: bench;") as caught:
        publish(made)
    assert "bench: passed on the emulated GPU, but the policy requires hardware" in (caught.value.why or "")
    published = publish(made, accept_not_run=True)
    assert ready.refs()[UNPROVEN] == published.tip
    text = " ".join(_message(ready, UNPROVEN).split())
    assert "Required on hardware but not run there: bench." in text
    assert "Required but not run" not in text
    assert "Gate-Emulated: bench (emulated)" in text
    assert publish(report(logits=EMULATED_PASS)).branch == "patchkit/gfx1151/b1-emulated"


def test_gates_that_need_no_gpu_are_not_accepted_as_missing(report, publish) -> None:
    with refused("PUBLISH_NOT_PROVEN", match="did not run: launch;") as caught:
        publish(report(launch="not run", bench="not run"), accept_not_run=True)
    assert "--no-gpu" in (caught.value.hint or "")


def test_a_report_proves_nothing_by_leaving_a_gate_out(report, publish) -> None:
    made = report()
    short = replace(made, gates=tuple(gate for gate in made.gates if gate.gate != "bench"))
    with refused("PUBLISH_NOT_PROVEN", match="bench"):
        publish(short)


def test_a_gate_without_evidence_did_not_pass(ready, report, publish) -> None:
    made = report()
    (made.folder / "bench.json").unlink()
    with refused("EVIDENCE_MISSING", match="bench"):
        publish(made)
    assert PROVEN not in ready.refs()


def test_a_candidate_that_moved_is_not_published(ready, report, publish) -> None:
    made = report()
    ready.git("update-ref", CANDIDATE, "refs/patchkit/pin/b1")
    with refused("PUBLISH_CANDIDATE_MOVED"):
        publish(made)
    assert PROVEN not in ready.refs()


def test_the_series_says_which_gates_are_required(ready, report, publish) -> None:
    with refused("PUBLISH_NOT_PROVEN"):
        publish(report(bench="not run"))
    _policy(ready, optional=("bench",))
    assert publish(report(bench="not run")).branch == "patchkit/gfx1151/b1"


def test_a_full_disk_publishes_nothing(ready, report, publish) -> None:
    made = report()
    (made.folder / "bench").mkdir()
    (made.folder / "bench" / "big.log").write_bytes(os.urandom(300_000))
    before = ready.refs()
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        with refused("DISK_FULL"):
            publish(made)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert ready.refs() == before
    assert publish(made).branch == "patchkit/gfx1151/b1"


@pytest.mark.parametrize("name", ["_write", "update_refs"])
def test_ctrl_c_publishes_nothing_and_says_so(ready, report, publish, monkeypatch, name: str) -> None:
    made, before = report(), ready.refs()

    def stop(*_args: object, **_named: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"patchkit.prove.publish.run.{name}", stop)
    with pytest.raises(KeyboardInterrupt) as caught:
        publish(made)
    assert ready.refs() == before
    (note,) = caught.value.__notes__
    assert note == "nothing was published" or "is unchanged" in note


def test_somebody_else_moves_the_branch_meanwhile(ready, report, publish, monkeypatch) -> None:
    import patchkit.prove.publish.run as module

    moved = module.write_note_commit

    def meddle(*args: object, **named: object) -> object:
        ready.git("update-ref", PROVEN, "refs/patchkit/pin/b1")
        return moved(*args, **named)

    monkeypatch.setattr(module, "write_note_commit", meddle)
    with refused("REF_MOVED"):
        publish(report())
    assert not [name for name in ready.refs() if "evidence" in name], "all refs move, or none"


def test_a_push_brings_branch_and_evidence(ready, report, publish, remote: Path) -> None:
    published = publish(report(), push=str(remote))
    there = ready.git("for-each-ref", "--format=%(refname) %(objectname)", at=remote)
    assert f"{PROVEN} {published.tip}" in there
    assert f"{published.evidence_ref} {published.evidence}" in there
    assert (published.pushed_to, published.replaced) == (str(remote), ())
    assert publish(report(), push=str(remote)).unchanged


def test_a_push_replaces_only_what_it_was_asked_to(ready, report, publish, remote: Path) -> None:
    first = publish(report(), push=str(remote))
    made = report(resources="not run")
    with refused("PUSH_FAILED") as caught:
        publish(made, push=str(remote))
    assert f"{PROVEN} at {first.tip[:12]}" in (caught.value.why or "")
    assert f"{len(GATES)} gates passed" in (caught.value.why or "")
    assert ready.git("rev-parse", PROVEN, at=remote) == first.tip
    assert ready.refs()[PROVEN] != first.tip, "it is published here"
    second = publish(made, push=str(remote), force_push=True)
    assert ready.git("rev-parse", PROVEN, at=remote) == second.tip
    assert [one.old for one in second.replaced] == [first.tip]


def test_what_somebody_else_pushed_is_shown_and_kept(ready, report, publish, remote: Path) -> None:
    tree = ready.git("rev-parse", "HEAD^{tree}", at=remote)
    who = ("-c", "user.name=x", "-c", "user.email=x@y")
    theirs = ready.git(*who, "commit-tree", "-m", "x", tree, at=remote)
    ready.git("update-ref", PROVEN, theirs, at=remote)
    with refused("PUSH_FAILED") as caught:
        publish(report(), push=str(remote))
    assert "pushed from elsewhere" in (caught.value.why or "")
    assert ready.git("rev-parse", PROVEN, at=remote) == theirs


def test_a_remote_that_refuses_keeps_everything(ready, report, publish, remote: Path) -> None:
    hook = remote / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho not today >&2\nexit 1\n")
    hook.chmod(0o755)
    with refused("PUSH_FAILED") as caught:
        publish(report(), push=str(remote))
    assert "not today" in (caught.value.why or "")
    assert "patchkit" not in ready.git("for-each-ref", at=remote)
    assert PROVEN in ready.refs()


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("/nowhere/at/all.git", "PUSH_FAILED"),
        ("ext::sh -c true", PushRemoteBad.code),
        ("-x", PushRemoteBad.code),
    ],
)
def test_a_remote_that_is_none(ready, report, publish, url: str, kind: str) -> None:
    with refused(kind):
        publish(report(), push=url)
    assert (PROVEN in ready.refs()) == (kind == "PUSH_FAILED")


@pytest.fixture
def ssh_key(tmp_path: Path) -> Path:
    if shutil.which("ssh-keygen") is None:
        pytest.fail("signing is tested with ssh-keygen: apt install openssh-client")
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    return key


def _configure(key: Path) -> None:
    settings = Path(os.environ["HOME"]) / ".gitconfig"
    settings.write_text(f'[user]\n\tsigningkey = "{key}"\n[gpg]\n\tformat = ssh\n')


@pytest.mark.extra_tools
def test_who_has_a_key_signs(ready, report, publish, remote: Path, ssh_key: Path, tmp_path: Path) -> None:
    _configure(ssh_key)
    published = publish(report(), push=str(remote))
    assert published.tag == f"patchkit-gfx1151-b1-{published.tip[:12]}"
    allowed = tmp_path / "allowed"
    allowed.write_text(f"patchkit@localhost {ssh_key.with_suffix('.pub').read_text()}")
    check = ["-c", f"gpg.ssh.allowedSignersFile={allowed}", "-c", "gpg.format=ssh"]
    for place in (ready.repository, remote):
        ready.git(*check, "verify-tag", published.tag, at=place)
    assert ready.git("rev-parse", f"{published.tag}^{{commit}}") == published.tip
    assert publish(report()).tag == published.tag
    assert publish(report(resources="not run"), sign=False).tag is None


@pytest.mark.extra_tools
def test_a_key_that_does_not_work_publishes_nothing(ready, report, publish, ssh_key: Path) -> None:
    _configure(ssh_key)
    ssh_key.unlink()
    before = ready.refs()
    with refused("SIGNING_FAILED"):
        publish(report())
    assert ready.refs() == before


def test_asking_for_a_signature_without_a_key(ready, report, publish) -> None:
    with refused("NO_SIGNING_KEY"):
        publish(report(), sign=True)
    assert PROVEN not in ready.refs()
    assert publish(report()).tag is None


def test_a_push_error_of_another_kind_is_told(report, publish, remote: Path) -> None:
    shutil.rmtree(remote / "objects")
    (remote / "objects").write_text("")
    with pytest.raises(GitError, match="nothing was") as caught:
        publish(report(), push=str(remote))
    assert caught.value.code == "PUSH_FAILED"


def test_the_command_publishes_what_the_policy_lets_it(ready) -> None:
    """Through the command line, with the one gate that needs no compiler required."""
    argv = ("verify", "--no-gpu", "--arch", "gfx1151", "--gate", "anchors")
    ready.run("apply", "--arch", "gfx1151")  # the policy is a file of the series, and it changed
    refused = ready.run(*argv, "--publish")
    assert refused.returncode == 1
    assert "error[PUBLISH_NOT_PROVEN]" in refused.stderr
    assert not [name for name in ready.refs() if "heads/patchkit" in name]
    _policy(ready, optional=GATES[1:])
    ready.run("apply", "--arch", "gfx1151")
    done = ready.run(*argv, "--publish", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["published"]["branch"] == "patchkit/gfx1151/b1"
    assert ready.refs()[PROVEN] == document["published"]["tip"]
    again = ready.run(*argv, "--publish")
    assert "already published: patchkit/gfx1151/b1" in again.stdout
    alone = ready.run(*argv, "--push", "somewhere")
    assert alone.returncode == 2
    assert "error[OPTIONS_CONTRADICT]" in alone.stderr
