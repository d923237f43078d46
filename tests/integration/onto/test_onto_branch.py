"""The one thing that changes in the owner's clone: whose branch it may be, and what may happen meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess

import pytest
from command_line import process_environment, process_start
from demo_world import FOLDER, SOURCE
from killing import killed
from thorough import ordinary

BRANCH = "refs/heads/patchkit/gfx1151"
POINTS = 30


def test_an_older_branch_of_ours_moves_only_with_replace(owner):
    owner.apply()
    first = owner.git("rev-parse", BRANCH)
    owner.commit("README.md", "again\n")
    error = owner.error(code=5)
    assert error["code"] == "ONTO_BRANCH_TAKEN"
    assert "--replace" in error["hint"]
    assert owner.git("rev-parse", BRANCH) == first
    told = json.loads(owner.apply("--replace", "--json").stdout)
    assert told["before"] == first
    assert owner.git("rev-parse", f"{BRANCH}~2") == owner.git("rev-parse", "HEAD")
    assert owner.git("reflog", "show", "--format=%H", BRANCH).splitlines()[1] == first


def test_a_branch_of_the_owners_is_never_replaced(owner):
    owner.git("branch", "patchkit/gfx1151", "b1")
    error = owner.error("--replace", code=5)
    assert (error["code"], "NEW-NAME" in error["hint"]) == ("ONTO_BRANCH_TAKEN", True)
    assert owner.git("rev-parse", BRANCH) == owner.git("rev-parse", "b1")
    owner.apply("--branch", "other")


def test_work_that_only_our_branch_has_is_never_lost(owner):
    owner.git("switch", "-q", "-c", "passing", "mine")
    work = owner.commit("notes.txt", "mine\n")
    owner.apply()
    owner.git("switch", "-q", "mine")
    owner.git("branch", "-q", "-D", "passing")
    error = owner.error("--replace", code=5)
    assert work[:12] in error["why"]
    assert owner.git("rev-parse", f"{BRANCH}~2") == work
    owner.git("branch", "kept", work)
    owner.apply("--replace")


def test_work_on_top_of_our_branch_is_never_lost(owner):
    owner.apply()
    owner.git("switch", "-q", "patchkit/gfx1151")
    owner.commit("notes.txt", "mine\n")
    owner.git("switch", "-q", "mine")
    assert owner.error("--replace", onto="b2", code=5)["code"] == "ONTO_BRANCH_TAKEN"


def test_a_branch_that_is_checked_out_in_any_worktree_does_not_move(owner):
    owner.apply()
    tree = owner.place.root / "tree"
    owner.git("worktree", "add", "-q", str(tree), "patchkit/gfx1151")
    error = owner.error("--replace", onto="b2", code=5)
    assert "checked out" in error["message"]
    assert error["where"][0]["path"] == str(tree)
    owner.git("status", "--porcelain", at=tree)
    owner.apply()  # it is at its commits already, so nothing moves


def test_a_name_that_cannot_be_a_branch_and_one_that_is_a_folder_of_branches(owner):
    for name in ("a..b", "@{-1}", "x.lock", "-x", "a b"):
        assert owner.error(f"--branch={name}", code=2)["code"] == "USAGE_VALUE"
    owner.git("branch", "patchkit", "b1")
    assert owner.error(code=5)["code"] == "REF_IN_THE_WAY"
    owner.apply("--branch", "mine-too")


@pytest.mark.parametrize(
    "words",
    [
        ("--onto", "HEAD", "--upstream", "b1"),
        ("--onto", "HEAD", "--checkout", "x"),
        ("--onto", "HEAD", "--unlocked"),
        ("--onto", "HEAD", "--source", "sdist"),
        ("--repo", ".", "--upstream-url", "x"),
        ("--branch", "x"),
        ("--replace",),
        ("--drop-conflicts",),
        ("--as-build", "b0"),
        ("--as-build", "last"),
    ],
)
def test_options_that_cannot_both_be_meant_are_refused(owner, words):
    done = owner.place.run("apply", "--arch", "gfx1151", *words, "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["code"] in {"OPTIONS_CONTRADICT", "USAGE_VALUE"}


def test_nothing_of_the_clones_own_settings_hooks_and_attributes_takes_part(owner, tmp_path):
    """Each of these would leave a file behind, if it ran; the branch is that of a clone without them."""
    marks = tmp_path / "marks"
    marks.mkdir()

    def trap(name: str) -> str:
        script = tmp_path / f"trap-{name}"
        script.write_text(f"#!/bin/sh\ntouch {marks}/{name}\nexec cat\n")
        script.chmod(0o755)
        return str(script)

    owner.apply()
    expected = owner.git("rev-parse", BRANCH)
    owner.git("update-ref", "-d", BRANCH)
    hooks = owner.clone / ".git" / "hooks"
    hooks.mkdir()
    for name in (
        "reference-transaction",
        "post-commit",
        "pre-commit",
        "post-checkout",
        "post-update",
        "pre-auto-gc",
    ):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {marks}/hook-{name}\nexit 1\n")
        (hooks / name).chmod(0o755)
    include = tmp_path / "included"
    include.write_text(f"[core]\n\tpager = {trap('included-pager')}\n")
    settings = {
        "core.hooksPath": str(hooks),
        "core.fsmonitor": trap("fsmonitor"),
        "core.sshCommand": trap("ssh"),
        "core.pager": trap("pager"),
        "core.editor": trap("editor"),
        "core.askPass": trap("askpass"),
        "core.gitProxy": trap("proxy"),
        "core.attributesFile": str(tmp_path / "attributes"),
        "core.autocrlf": "true",
        "core.alternateRefsCommand": trap("alternates"),
        "filter.x.clean": trap("clean"),
        "filter.x.smudge": trap("smudge"),
        "filter.x.process": trap("process"),
        "diff.x.textconv": trap("textconv"),
        "diff.external": trap("external"),
        "merge.x.driver": trap("driver"),
        "log.showSignature": "true",
        "gpg.program": trap("gpg"),
        "commit.gpgSign": "true",
        "credential.helper": f"!{trap('credential')}",
        "uploadpack.packObjectsHook": trap("packobjects"),
        "remote.origin.uploadpack": trap("uploadpack"),
        "remote.origin.promisor": "true",
        "remote.origin.partialclonefilter": "blob:none",
        "remote.origin.vcs": "x",
        "extensions.partialClone": "origin",
        "gc.auto": "1",
        "include.path": str(include),
        "alias.rev-parse": f"!{trap('alias')}",
        "url.ext::sh.insteadOf": "file",
    }
    for key, value in settings.items():
        owner.git("config", key, value)
    (tmp_path / "attributes").write_text("* filter=x diff=x merge=x\n")
    (owner.clone / ".git" / "info").mkdir(exist_ok=True)
    (owner.clone / ".git" / "info" / "attributes").write_text("* filter=x diff=x merge=x ident\n")
    environment = {
        "GIT_EXTERNAL_DIFF": trap("env-diff"),
        "GIT_SSH_COMMAND": trap("env-ssh"),
        "GIT_DIR": str(tmp_path / "elsewhere"),
        "GIT_INDEX_FILE": str(tmp_path / "index"),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(tmp_path),
        "GIT_OBJECT_DIRECTORY": str(tmp_path),
    }
    for cache in (owner.place.cache, tmp_path / "cold"):
        done = owner.place.run("apply", *owner.here, cache=cache, env=environment)
        assert done.returncode == 0, done.stderr
    assert sorted(marks.iterdir()) == []
    refs = (owner.clone / ".git" / "refs" / "heads" / "patchkit" / "gfx1151").read_text().strip()
    assert refs == expected


def test_a_partial_clone_with_a_hostile_remote_fetches_nothing(owner, tmp_path):
    owner.git("config", "uploadpack.allowFilter", "true")
    partial = owner.place.root / "partial"
    source = f"file://{owner.clone}"
    owner.git("clone", "-q", "--filter=blob:none", "--no-checkout", source, str(partial), at=owner.place.root)
    script = tmp_path / "trap"
    script.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    script.chmod(0o755)
    owner.git("config", "remote.origin.uploadpack", str(script), at=partial)
    owner.git("config", "core.sshCommand", str(script), at=partial)
    assert owner.error("--as-build", "2", at=partial, code=5)["code"] == "CLONE_UNUSABLE"
    assert not (tmp_path / "ran").exists()


@pytest.fixture(scope="module")
def events(grown, tmp_path_factory):
    """How many points a run has, from an empty cache."""
    folder = tmp_path_factory.mktemp("count")
    log = folder / "log"
    clone = folder / "clone"
    subprocess.run(["cp", "-a", str(grown.clone), str(clone)], check=True)
    args = ("apply", "--arch", "gfx1151", "--onto", "HEAD", "--repo", str(clone))
    done = killed(grown.place, -1, *args, group=True, cache=folder / "cache", log=log)
    assert done.returncode == 0, done.stderr
    return int(log.read_text())


@pytest.mark.slow
@pytest.mark.parametrize("point", ordinary(range(POINTS), (0, 12, 21, 29)))
def test_killed_anywhere_leaves_the_clone_as_before_or_complete(owner, events, point):
    at = 1 + point * (events - 3) // (POINTS - 1)  # the last two are the interpreter closing down
    args = ("apply", *owner.here)
    before = owner.git("for-each-ref"), owner.git("status", "--porcelain"), owner.git("rev-parse", "HEAD")
    done = killed(owner.place, at, *args, group=point % 2 == 0, cache=owner.place.cache)
    assert done.returncode == -signal.SIGKILL, f"point {at} of {events} was not reached: {done.stderr}"
    refs = owner.git("for-each-ref")
    kept = [line for line in refs.splitlines() if BRANCH not in line]
    assert "\n".join(kept) == before[0]
    assert (owner.git("status", "--porcelain"), owner.git("rev-parse", "HEAD")) == before[1:]
    owner.git("fsck", "--strict", "--no-dangling")
    left = list((owner.clone / ".git").rglob("*.lock"))
    half = [line.split()[0] for line in refs.splitlines() if BRANCH in line]
    told = json.loads(owner.apply("--json").stdout)
    assert left == []
    assert half in ([], [told["commits"][-1]["commit"]])
    assert owner.git("rev-parse", BRANCH) == told["commits"][-1]["commit"]


def test_two_at_once_make_the_same_branch(owner):
    words = owner.place.words("apply", *owner.here)
    command = [*process_start(), *words]
    running = [
        subprocess.Popen(command, env=process_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(3)
    ]
    for process in running:
        _, stderr = process.communicate(timeout=120)
        assert process.returncode == 0, stderr
    assert owner.git("rev-parse", f"{BRANCH}~2") == owner.git("rev-parse", "HEAD")


def test_a_clone_that_cannot_be_written_is_told_and_stays(owner):
    if os.geteuid() == 0:
        held = owner.clone / ".git" / "refs" / "heads" / "patchkit"
        held.write_text("a file where a folder must be\n")
    else:
        (owner.clone / ".git" / "refs" / "heads").chmod(0o500)
    done = owner.place.run("apply", *owner.here, "--json")
    assert done.returncode in {5, 8}
    assert json.loads(done.stdout)["error"]["hint"]


def test_ctrl_c_says_what_it_left(owner):
    words = owner.place.words("apply", *owner.here)
    process = subprocess.Popen(
        [*process_start(), *words],
        env=process_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert "copying" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "nothing else there was changed" in stderr
    assert owner.git("status", "--porcelain") == ""


@pytest.mark.parametrize(
    ("tags", "version", "as_build", "found"),
    [
        (("b1", "b2"), None, None, (2, 2, "b2 and 1 commit")),
        (("b1",), None, None, (1, 2, "b1 and 2 commits")),
        (("b1",), None, "b7", (7, 7, "b7, given by --as-build")),
        ((), "0.2.0", None, (4, 5, "ggml 0.2.0 in its CMake file")),
        ((), "0.3.0", None, (6, 9, "ggml 0.3.0 in its CMake file")),
        ((), "0.9.0", None, (11, None, "ggml 0.9.0 in its CMake file")),
        ((), "0.1.0", None, None),
        ((), None, None, None),
    ],
)
def test_the_build_is_found_from_tags_and_ggmls_version_or_asked_for(owner, tags, version, as_build, found):
    for tag in ("b1", "b2"):
        if tag not in tags:
            owner.git("tag", "-d", tag)
    rows = {3: "0.1.0", 5: "0.2.0", 6: "0.3.0", 10: "0.4.0"}
    text = 'version = 2\ndefault = "b3"\n'
    for build, ggml in rows.items():
        text += (
            f'\n[[pin]]\nname = "b{build}"\ntree = "{build:040x}"\ncommitted = "2025-01-01T00:00:00+00:00"\n'
            f'ggml = "{ggml}"\n\n[[pin.source]]\nkind = "sdist"\npackage = "x"\nversion = "1"\n'
            f'sha256 = "{build:064x}"\nsubdir = "x"\n'
        )
    (owner.place.series / "patches" / "upstreams.toml").write_text(text)
    if version is not None:
        major, minor, patch = version.split(".")
        owner.commit(
            "ggml/CMakeLists.txt",
            f"set(GGML_VERSION_MAJOR {major})\nset(GGML_VERSION_MINOR {minor})\n"
            f"set(GGML_VERSION_PATCH {patch})\n",
        )
    if not tags:  # the commit of the lock's pin would tell, too
        owner.git("switch", "-q", "--orphan", "alone")
        owner.git("checkout", "-q", "mine", "--", ".")
        owner.commit("README.md", "without history\n")
    args = ("--as-build", as_build) if as_build else ()
    if found is None:
        error = owner.error(*args, code=2)
        assert (error["code"], "--as-build" in error["hint"]) == ("ONTO_BUILD_UNKNOWN", True)
        return
    told = json.loads(owner.apply("--json", *args).stdout)["onto"]["build"]
    assert (told["low"], told["high"], told["known_by"]) == found


def test_the_lines_around_an_edit_that_the_owner_changed_do_not_matter(owner):
    """Where cherry-pick of the same series conflicts: the owner's line is the neighbour of a patched one."""
    done = owner.place.run("apply", "--arch", "gfx1151")
    assert done.returncode == 0, done.stderr
    text = SOURCE.replace(
        "    const int nblocks = 4;\n    launch(demo_kernel<8>, nblocks, 64);",
        "    const int nblocks = 8;\n    launch(demo_kernel<8>, nblocks, 64); // 8 of them",
    )
    owner.commit(f"{FOLDER}/demo.cu", text)
    owner.git("fetch", "-q", str(owner.place.repository), "refs/heads/candidate/gfx1151/b1:theirs")
    picked = subprocess.run(
        ["git", "-C", str(owner.clone), "cherry-pick", "b1..theirs"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert picked.returncode != 0
    owner.git("cherry-pick", "--abort")
    owner.apply()
    assert "8 of them" in owner.git("show", f"{BRANCH}:{FOLDER}/demo.cu")
