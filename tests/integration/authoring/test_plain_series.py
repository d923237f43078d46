"""A plain series: made, filled, applied, carried and recorded without the name of a GPU anywhere."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from command_line import run_patchkit
from demo_world import FOLDER, git

from patchkit.carry.series.lock import load_lock

_GPU = re.compile(r"gfx\d|\bGPUs?\b|--arch|hardware", re.IGNORECASE)
_MORE = (
    'why = "It is too low."\nlinks = ["https://example.invalid/1"]\nwithout = "it is too low"\n'
    'expected = { effect = "none", source = "nobody measured it" }\n'
)


class Queue:
    """A plain series beside the desk's own, and patchkit run in it."""

    def __init__(self, desk, *more: str) -> None:
        self.desk, self.folder = desk, desk.root / "queue"
        done = desk.run("init", str(self.folder), "--plain", *more)
        assert done.returncode == 0, done.stderr
        self.made = done.stdout

    def run(
        self, *args: str, cwd: Path | None = None, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        words = [args[0], "--series-dir", str(self.folder), "--cache-dir", str(self.desk.cache), *args[1:]]
        return run_patchkit(*words, cwd=cwd or self.desk.root, env=env)

    def told(self, *args: str, code: int = 0, env: dict[str, str] | None = None) -> str:
        """What a command says; no word of it is about a GPU."""
        done = self.run(*args, env=env)
        assert done.returncode == code, done.stderr
        said = done.stdout + done.stderr
        assert not _GPU.search(said), said
        return said

    def patch(
        self, old: str = "wanted > 256", new: str = "wanted > 512", path: str = "common/tool.cpp"
    ) -> str:
        """Import a change of one line; the id of the patch."""
        self.desk.change(path, old, new)
        said = self.told("import", str(self.desk.diff()), "--id", "higher")
        assert "for every backend" in said
        return "higher"

    def refused(self, *args: str) -> dict[str, Any]:
        """The error of a command."""
        done = self.run(*args, "--json")
        assert done.returncode == 2, done.stdout + done.stderr
        error = json.loads(done.stdout)["error"]
        (one,) = error.get("errors") or [error]
        return one

    def rules(self, text: str) -> None:
        """Other rules."""
        (self.folder / "patches/series.toml").write_text(text)


@pytest.fixture
def queue(desk) -> Queue:
    return Queue(desk, "--upstream", "b1")


def _place(error: dict[str, Any]) -> tuple[str, int]:
    return error["where"][0]["path"], error["where"][0]["line"]


def _shown(queue: Queue, branch: str, path: str, at: Path | None = None) -> str:
    return git(at or queue.desk.repository, "show", f"{branch}:{path}")


def test_a_queue_is_made_applied_carried_and_recorded(queue: Queue) -> None:
    desk = queue.desk
    assert not _GPU.search(queue.made)
    assert "patchkit import FOLDER-OR-FILE" in queue.made
    assert not (queue.folder / "arch_profiles").exists()
    queue.patch()
    said = queue.told("plan", "--upstream", "b1")
    assert "for every backend" in said
    said = queue.told("apply")
    assert "candidate/plain/b1: created, llama.cpp b1 with 1 patch" in said
    assert "  patchkit verify --upstream b1\n" in said
    assert "wanted > 512" in _shown(queue, "candidate/plain/b1", "common/tool.cpp")
    message = desk.git("log", "-1", "--format=%B", "candidate/plain/b1")
    assert re.findall("^Patchkit-(?:Id|Profile):.*", message, re.MULTILINE) == ["Patchkit-Id: higher"]
    for words in (("list",), ("show", "higher"), ("status",), ("diff",), ("export", str(desk.root / "out"))):
        assert queue.told(*words), words
    # Its result is not recorded yet: a bump takes it along all the same.
    said = queue.told("bump", "--to", "b2", "--no-verify", "--no-fetch")
    assert "for every backend:\n  b2 higher: clean" in said
    assert "next: patchkit verify --upstream b2" in said
    lock = load_lock(queue.folder / "patches/upstream.lock")
    assert (lock.default, [(each.pin, each.archs) for each in lock.results]) == ("b2", [("b2", ("plain",))])
    assert "candidate/plain/b2: unchanged" in queue.told("apply")
    assert "wanted > 512" in _shown(queue, "candidate/plain/b2", "common/tool.cpp")
    assert "Carried patches on b2: " in queue.told("status")
    # What is recorded or published says why, here as elsewhere.
    file = queue.folder / "patches/0001-higher/patch.toml"
    file.write_text(_MORE + file.read_text())
    assert queue.run("apply").returncode == 2
    assert "1 of 1 results changed" in queue.told("lock", "--all")
    assert "unchanged" in queue.told("lock")


def test_a_sweep_and_a_clone_need_no_gpu_either(queue: Queue) -> None:
    desk = queue.desk
    queue.patch()
    (queue.folder / "patches/upstreams.toml").write_text((queue.folder / "patches/upstream.lock").read_text())
    assert "b1   clean" in queue.told("sweep")
    done = queue.run("apply", "--onto", "HEAD", "--as-build", "b2", cwd=desk.clone)
    assert done.returncode == 0, done.stderr
    assert not _GPU.search(done.stdout + done.stderr)
    assert "patchkit/plain: created, 1 patch" in done.stdout
    assert "wanted > 512" in _shown(queue, "patchkit/plain", "common/tool.cpp", at=desk.clone)


def test_what_is_not_built_for_want_of_a_compiler_has_not_passed(queue: Queue, tmp_path: Path) -> None:
    """What the rules require is published without having run only where somebody accepts that."""
    desk = queue.desk
    queue.patch()
    (tmp_path / "git").symlink_to(shutil.which("git") or "git")
    env = {"PATH": str(tmp_path)}
    queue.told("apply")
    said = queue.told("verify", env=env)
    assert "passed   anchors" in said
    assert re.findall(r"^  not run  (\S+)\s+(\S+)", said, re.MULTILINE) == [
        ("cpu-build", "building"),
        ("cpu-tests", "building"),
        ("isolation", "has"),
    ]
    assert "does it fit?    1 patch applies; not checked: cpu-build" in said
    file = queue.folder / "patches/0001-higher/patch.toml"
    file.write_text(_MORE + file.read_text())
    queue.told("apply")
    said = queue.told("verify", "--publish", code=1, env=env)
    assert "error[PUBLISH_NOT_PROVEN]: required gates did not run: cpu-build;" in said
    said = queue.told("verify", "--publish", "--accept-not-run", env=env)
    assert "published: patchkit/plain/b1-unproven" in said
    seal = desk.git("log", "-1", "--format=%B", "patchkit/plain/b1-unproven")
    assert seal.startswith("patchkit: plain on b1, unproven\n")
    assert re.findall("^Gate-.*?: [a-z-]+", seal, re.MULTILINE) == [
        "Gate-Passed: anchors",
        "Gate-Not-Run: isolation",
        "Gate-Not-Run: cpu-build",
        "Gate-Not-Run: cpu-tests",
    ]
    # On the next build, too.
    queue.told("bump", "--to", "b2", "--no-verify", "--no-fetch")
    queue.told("apply")
    words = ("verify", "--publish", "--accept-not-run", "--json")
    published = json.loads(queue.run(*words, env=env).stdout)["published"]
    assert (published["branch"], published["proof"]) == ("patchkit/plain/b2-unproven", "unproven")
    # Where nothing that is required is open, the name says no more than that.
    queue.rules('plain = true\n[gates]\nrequired = ["anchors"]\noptional = ["cpu-build"]\nwhy = "w"\n')
    published = json.loads(queue.run("verify", "--publish", "--json", env=env).stdout)["published"]
    assert (published["branch"], published["proof"]) == ("patchkit/plain/b2", "plain")


def test_a_device_is_nothing_to_run_a_plain_candidate_on(queue: Queue) -> None:
    queue.patch()
    queue.told("apply")
    for words in (
        ("verify", "--emulated"),
        ("verify", "--backend", "hip"),
        ("verify", "--runner", "ssh://box"),
        ("build", "--backend", "hip"),
        ("package", "--backend", "cuda"),
    ):
        assert queue.refused(*words)["code"] == "OPTIONS_CONTRADICT", words
    assert queue.refused("explain", "--path")["code"] == "ARCH_IN_PLAIN_SERIES"


def test_it_may_begin_at_any_build_of_a_remote(desk) -> None:
    queue = Queue(desk, "--upstream", "b2", "--upstream-url", str(desk.upstream))
    lock = load_lock(queue.folder / "patches/upstream.lock")
    assert (lock.default, [pin.build for pin in lock.pins], lock.results) == ("b2", [2], ())


def test_a_series_made_of_a_plain_one_is_plain(queue: Queue) -> None:
    """With its patches, or without them and with the builds that it knows."""
    queue.patch()
    for name, words, patches in (("copy", (), 1), ("new", ("--plain",), 0)):
        folder = queue.desk.root / name
        done = queue.run("init", str(folder), *words, "--json")
        assert (done.returncode, len(json.loads(done.stdout)["patches"])) == (0, patches), done.stderr
        done = run_patchkit("list", "--series-dir", str(folder), "--json", cwd=queue.desk.root)
        assert (len(json.loads(done.stdout)["patches"]), json.loads(done.stdout)["archs"]) == (patches, [])


def test_a_plain_patch_may_edit_the_backend_too(queue: Queue) -> None:
    desk = queue.desk
    desk.change(f"{FOLDER}/choice.cu", "limit = 256", "limit = 512")
    queue.told("import", str(desk.diff()), "--id", "more")
    place = ("--file", f"{FOLDER}/choice.cu", "--function", "demo_should_use")
    queue.told("new", "most", *place, "--at", "type > 99", "--change-to", "type > 98")
    queue.told("apply")
    made = _shown(queue, "candidate/plain/b1", f"{FOLDER}/choice.cu")
    assert re.findall("limit = 512|type > 98", made) == ["limit = 512", "type > 98"]
    file = queue.folder / "patches/0002-most/patch.toml"
    file.write_text(file.read_text().replace("> 98", "> > 98"))
    said = queue.told("plan", code=3)
    assert "EDIT_UNPARSABLE" in said


def test_what_names_a_gpu_is_refused_with_its_place(queue: Queue) -> None:
    rules = str(queue.folder / "patches/series.toml")
    place = ("--file", f"{FOLDER}/choice.cu", "--at", "limit = 256", "--change-to", "limit = 512")
    for words in (
        ("apply", "--arch", "gfx1151"),
        ("plan", "--arch", "gfx1151"),
        ("lock", "--arch", "gfx1151"),
        ("bump", "--to", "b1", "--arch", "gfx1151"),
        ("sweep", "--arch", "gfx1151"),
        ("new", "mine", "--guard", "gfx1151", *place),
        ("tune", "--arch", "gfx1151", "--kernel", "mmq"),
        ("model", "--arch", "gfx1151", "--type", "q4_K", "--rows", "64", "--columns", "256", "--tokens", "1"),
        ("estimate", "--arch", "gfx1151", "--model", __file__),
        ("emulate", "--arch", "gfx1151", "--", "true"),
        ("init", str(queue.desk.root / "other"), "--arch", "gfx1151"),
    ):
        error = queue.refused(*words)
        assert error["code"] == "ARCH_IN_PLAIN_SERIES", words
        assert _place(error) == (rules, 2), words
    assert queue.refused("plan", "--arch", "plain", "--arch", "gfx1151")["code"] == "ARCH_PLAIN_ALONE"


def test_a_patch_with_a_guard_is_told_with_its_line(queue: Queue) -> None:
    queue.patch()
    file = queue.folder / "patches/0001-higher/patch.toml"
    text = (
        file.read_text().replace('guard = "none"\n', "").replace("id = ", 'side = "host"\nid = ').split("\n")
    )
    text.remove('side = "host"')  # the patch's own id
    file.write_text("\n".join(text) + '\n[guard]\nmacros = ["GGML_USE_HIP"]\n')
    error = queue.refused("list")
    assert error["code"] == "PATCH_BAD"
    line = file.read_text().split("\n").index("[guard]") + 1
    assert _place(error) == (str(file), line)


def test_profiles_in_a_plain_series_contradict_it(queue: Queue) -> None:
    (queue.folder / "arch_profiles").mkdir()
    assert queue.refused("plan")["code"] == "SERIES_PLAIN_PROFILES"


@pytest.mark.parametrize(
    ("rules", "code"),
    [
        ('plain = true\nfolders = ["ggml/"]\n', "CONFIG_VALUE"),
        ("plain = false\n", "SERIES_DIR_MISSING"),
        ("plain = 1\n", "SERIES_DIR_MISSING"),
        ("plain = \n", "TOML_BAD"),
    ],
)
def test_rules_that_say_something_else(queue: Queue, rules: str, code: str) -> None:
    queue.rules(rules)
    assert queue.refused("plan")["code"] == code


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("own", "--plain", "--arch", "gfx1151"), "OPTIONS_CONTRADICT"),
        (("own", "--upstream-url", "x"), "OPTIONS_CONTRADICT"),
        (("own", "--plain", "--upstream", "b77"), "BUMP_TARGET_UNKNOWN"),
        (("taken", "--plain"), "SERIES_FOLDER_TAKEN"),
    ],
)
def test_what_cannot_be_made_plain_is_told_and_leaves_nothing(desk, args: tuple[str, ...], code: str) -> None:
    (desk.root / "taken").mkdir()
    (desk.root / "taken/notes.txt").write_text("mine\n")
    done = desk.run("init", *args, "--json")
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (2, code)
    assert not (desk.root / "own").exists()
    assert not list(desk.root.glob(".*.patchkit-*"))


def test_the_plain_patches_of_a_series_with_gpus_are_a_candidate_of_their_own(desk) -> None:
    """No fault of a GPU is in their way (issue 42), whichever way they are asked for alone."""
    place = ("--file", "common/tool.cpp", "--at", "wanted > 256", "--change-to", "wanted > 512")
    done = desk.run("new", "higher", "--guard", "none", *place)
    assert done.returncode == 0, done.stderr
    assert "next:  patchkit plan --arch plain --upstream b1" in done.stdout
    rules = desk.series / "patches/series.toml"
    rules.write_text(
        rules.read_text() + '\n[[fault]]\nid = "bad"\ntitle = "bad"\narchs = ["gfx1151"]\n'
        'builds = { first = 1, why = "it is" }\nsymptom = "wrong"\ndoes = "wrong results"\n'
        'seen_on = "hardware"\nlinks = ["https://example.invalid/2"]\n'
    )

    def apply(*words: str) -> tuple[int, str]:
        done = desk.run("apply", *words)
        return done.returncode, done.stdout + done.stderr

    code, said = apply("--arch", "plain")
    assert (code, "bad" in said) == (0, False), said
    assert "candidate/plain/b1: created, llama.cpp b1 with 1 patch" in said
    assert "  patchkit verify --arch plain --upstream b1\n" in said
    done = desk.run("verify", "--arch", "plain", "--gate", "anchors")
    assert done.returncode == 0, done.stderr
    assert "passed   anchors" in done.stdout
    code, said = apply("--arch", "gfx1151", "--only", "higher")
    assert (code, "warning: known fault of b1" in said) == (0, True), said
    assert apply("--arch", "gfx1151")[0] == 1
    assert apply("--arch", "gfx1151", "--only", "higher", "--only", "demo-twin")[0] == 1
    code, said = apply("--arch", "plain", "--only", "demo-twin")
    assert code == 2
    assert "demo-twin: it has a guard, so it is only for GPUs" in said
    # It is recorded and carried as any other candidate is.
    file = desk.series / "patches/0003-higher/patch.toml"
    file.write_text(_MORE + file.read_text())
    for words in (("lock", "--arch", "plain"), ("lock", "--all"), ("bump", "--to", "b2", "--no-verify")):
        done = desk.run(*words)
        assert done.returncode == 0, done.stderr
    assert "for every backend:" in done.stdout
    assert "b2 higher: clean" in done.stdout
    assert "candidate/plain/b2" in done.stdout
    assert [each.name for each in load_lock(desk.lock).results] == ["b1 plain", "b2 plain"]
