"""What ``pick`` refuses before it does anything."""

from __future__ import annotations

import subprocess

import pytest
from command_line import run_patchkit

from patchkit.base.errors import PatchkitError
from patchkit.cli.app import main
from patchkit.gpu.emulated.models import SmallModel


@pytest.mark.parametrize(
    ("more", "code"),
    [
        (("--emulated",), "OPTIONS_CONTRADICT"),
        (("--modelled",), "OPTIONS_CONTRADICT"),
        (("--emulated", "--modelled", "--backend", "hip"), "OPTIONS_CONTRADICT"),
        (("--emulated", "--modelled", "--runner", "ssh://x"), "OPTIONS_CONTRADICT"),
        (("--tests", "pp"), "USAGE_VALUE"),
        (("--model", "none.gguf"), "OPTIONS_CONTRADICT"),
        (("--backend", "cpu"), "MODEL_MISSING"),
        (("--minutes", "0"), "USAGE_VALUE"),
        (("--minutes", "nan"), "USAGE_VALUE"),
        (("--minutes", "inf"), "USAGE_VALUE"),
        (("--least", "nan"), "USAGE_VALUE"),
        (("--builds", "0"), "USAGE_VALUE"),
    ],
)
def test_what_cannot_be_meant_is_refused_at_once(more, code, tmp_path):
    argv = ["pick", "--arch", "gfx1151", "--model", "none.gguf", *more]
    done = run_patchkit(*argv, cwd=tmp_path, env={"PATCHKIT_CACHE": str(tmp_path / "cache")})
    assert done.returncode == 2
    assert f"error[{code}]" in done.stderr


@pytest.mark.parametrize(
    ("options", "with_opt_in", "with_"),
    [
        ((), True, ()),
        (("--only", "a", "--only", "b"), False, ("a", "b")),
        (("--trust", "modelled", "--with", "a"), False, ("a",)),
    ],
)
def test_only_and_trust_restrict_the_patches_that_are_tried(
    options, with_opt_in, with_, tmp_path, monkeypatch
):
    """Without them all optional patches are tried; one named with --only is tried even if it is optional."""
    found = []

    def run(workspace, request, runner, environ):
        found.append(request.patches)
        raise PatchkitError("stop", code="STOP")

    monkeypatch.setattr("patchkit.cli.verbs.pick.run_pick", run)
    argv = ["pick", "--arch", "gfx1151", "--model", "a.gguf", *options, "--cache-dir", str(tmp_path)]
    assert main(argv) != 0
    (patches,) = found
    assert (patches.with_opt_in, patches.with_) == (with_opt_in, with_)


def test_an_unreachable_machine_is_told_before_a_patch_is_placed(tmp_path):
    SmallModel(head_size=64).write(tmp_path / "m.gguf")
    argv = ["pick", "--arch", "gfx1151", "--model", "m.gguf", "--runner", "ssh://127.0.0.1:1"]
    done = run_patchkit(*argv, cwd=tmp_path, env={"PATCHKIT_CACHE": str(tmp_path / "cache")})
    assert done.returncode == 6, done.stderr
    assert "error[RUNNER_" in done.stderr or "program 'ssh' not found" in done.stderr
    assert "* reading the models" not in done.stderr
    assert not list(tmp_path.rglob("journal.jsonl"))


def test_a_model_whose_name_cannot_be_written_down_is_refused(tmp_path):
    (tmp_path / "bad\udcff.gguf").write_bytes(b"GGUF")
    argv = ["pick", "--arch", "gfx1151", "--backend", "cpu", "--model", "bad\udcff.gguf"]
    done = run_patchkit(*argv, cwd=tmp_path, env={"PATCHKIT_CACHE": str(tmp_path / "cache")})
    assert done.returncode == 2
    assert "error[GGUF_BAD]: the file name of a model is not UTF-8" in done.stderr
    assert not list(tmp_path.rglob("journal.jsonl"))


def test_a_plain_series_is_asked_for_its_backend(tmp_path):
    env = {"PATCHKIT_CACHE": str(tmp_path / "cache")}
    assert run_patchkit("init", "mine", "--plain", cwd=tmp_path, env=env).returncode == 0
    SmallModel(head_size=64).write(tmp_path / "m.gguf")
    argv = ["pick", "--series-dir", "mine", "--model", "m.gguf"]
    done = run_patchkit(*argv, cwd=tmp_path, env=env)
    assert done.returncode == 2
    assert "error[OPTIONS_CONTRADICT]: a plain series has no GPU to measure on" in done.stderr
    assert "hint: --backend cpu or --backend cuda" in done.stderr


def test_a_series_without_a_patch_for_the_build_builds_nothing(tmp_path):
    env = {"PATCHKIT_CACHE": str(tmp_path / "cache")}
    assert (
        run_patchkit("init", "mine", "--plain", "--upstream", "b6900", cwd=tmp_path, env=env).returncode == 0
    )
    SmallModel(head_size=64).write(tmp_path / "m.gguf")
    git = ["git", "-C", str(tmp_path / "clone"), "-c", "user.name=u", "-c", "user.email=u@example.org"]
    subprocess.run(["git", "init", "-q", tmp_path / "clone"], check=True)
    (tmp_path / "clone" / "ggml").mkdir()
    (tmp_path / "clone" / "ggml" / "CMakeLists.txt").write_text("")
    subprocess.run([*git, "add", "ggml"], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "upstream"], check=True)
    argv = ["pick", "--series-dir", "mine", "--backend", "cpu", "--model", "m.gguf", "--out", "out"]
    argv += ["--onto", "HEAD", "--repo", "clone", "--as-build", "6901"]
    done = run_patchkit(*argv, cwd=tmp_path, env=env)
    assert done.returncode == 2
    assert "error[NOTHING_SELECTED]: no patch of the series is for " in done.stderr
    assert "why: the series has no patch" in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_model_that_is_named_twice_by_way_of_a_link_is_refused(tmp_path):
    env = {"PATCHKIT_CACHE": str(tmp_path / "cache")}
    assert run_patchkit("init", "mine", "--plain", cwd=tmp_path, env=env).returncode == 0
    SmallModel(head_size=64).write(tmp_path / "m.gguf")
    (tmp_path / "link.gguf").symlink_to("m.gguf")
    argv = ["pick", "--series-dir", "mine", "--backend", "cpu", "--model", "m.gguf", "--model", "link.gguf"]
    done = run_patchkit(*argv, cwd=tmp_path, env=env)
    assert done.returncode == 2
    assert "error[OPTIONS_CONTRADICT]: the models m and link have the same content" in done.stderr


def test_a_place_for_the_result_that_cannot_be_written_is_told_before_anything_is_read(tmp_path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "result.json").write_text("mine")
    (tmp_path / "taken" / "journal.jsonl").mkdir(parents=True)
    argv = ["pick", "--arch", "gfx1151", "--backend", "cpu", "--model", "none.gguf", "--out"]
    for out, code, status in (
        ("file", "DISK_REFUSED", 8),
        ("file/below", "DISK_REFUSED", 8),
        ("taken", "DISK_REFUSED", 8),
        (".", "BENCH_FOLDER_UNUSABLE", 2),
    ):
        done = run_patchkit(*argv, out, cwd=tmp_path, env={"PATCHKIT_CACHE": str(tmp_path / "cache")})
        assert done.returncode == status, done.stderr
        assert f"error[{code}" in done.stderr
        assert f"--> {tmp_path}" in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"file", "result.json", "taken"}
