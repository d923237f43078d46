"""Releases in the owner's clone: what a commit above one stands on, and ``--as-build v0.5.0``."""

from __future__ import annotations

import json

import pytest

VERSION = "set(LLAMA_VERSION_MAJOR 0)\nset(LLAMA_VERSION_MINOR 5)\nset(LLAMA_VERSION_PATCH 0)\n"
GGML = "set(GGML_VERSION_MAJOR 0)\nset(GGML_VERSION_MINOR 3)\nset(GGML_VERSION_PATCH 0)\n"


@pytest.fixture
def released(owner):
    """Upstream has a third commit, the release v0.5.0, without a build's tag; ``mine`` stands above it."""
    owner.git("remote", "set-url", "origin", str(owner.place.upstream))
    upstream = owner.place.upstream
    (upstream / "CMakeLists.txt").write_text(VERSION)
    (upstream / "ggml" / "CMakeLists.txt").write_text(GGML)
    owner.git("add", "-A", at=upstream)
    owner.git("commit", "-q", "-m", "bump version to 0.5.0", at=upstream)
    owner.git("tag", "-a", "-m", "Release v0.5.0", "v0.5.0", at=upstream)
    owner.git("fetch", "-q", "--tags", "origin")
    owner.git("rebase", "-q", "v0.5.0")
    know_versions(owner)
    return owner


def know_versions(owner):
    """The series knows that builds 3 to 5 have ggml 0.3.0."""
    text = 'version = 2\ndefault = "b2"\n'
    for build, ggml in ((2, "0.2.0"), (3, "0.3.0"), (6, "0.4.0")):
        text += (
            f'\n[[pin]]\nname = "b{build}"\ntree = "{build:040x}"\ncommitted = "2025-01-01T00:00:00+00:00"\n'
            f'ggml = "{ggml}"\n\n[[pin.source]]\nkind = "sdist"\npackage = "x"\nversion = "1"\n'
            f'sha256 = "{build:064x}"\nsubdir = "x"\n'
        )
    (owner.place.series / "patches" / "upstreams.toml").write_text(text)


def found(owner, *args):
    build = json.loads(owner.apply("--json", *args).stdout)["onto"]["build"]
    return build["low"], build["high"], build["known_by"]


def without_builds(owner):
    owner.git("tag", "-d", "b1", "b2")
    lock = owner.place.lock  # the commit of its pin would tell, too
    lock.write_text("\n".join(line for line in lock.read_text().splitlines() if "commit_object" not in line))


def test_a_build_that_is_a_release_is_told_as_both(owner):
    owner.git("tag", "-a", "-m", "x", "v0.4.0", "b2")
    owner.git("tag", "v0.4.1-rc1", "b2")
    assert found(owner) == (2, 2, "v0.4.0 (b2) and 1 commit")


def test_a_release_without_a_builds_tag_is_counted_from_the_build_below(released):
    assert found(released) == (3, 3, "v0.5.0 (b3) and 1 commit")
    assert found(released, "--as-build", "v0.5.0") == (3, 3, "v0.5.0 (b3), given by --as-build")


def test_where_only_releases_are_tagged_all_commits_are_counted(released):
    without_builds(released)
    assert found(released) == (3, 3, "v0.5.0 (b3) and 1 commit")


def test_a_release_beside_the_main_line_is_commits_above_a_build(released):
    upstream = released.place.upstream
    released.git("switch", "-q", "-c", "release-0.5", at=upstream)
    released.git("branch", "-q", "-f", "master", "b2", at=upstream)
    released.git("switch", "-q", "master", at=upstream)
    released.git(
        "fetch", "-q", "origin", "+master:refs/remotes/origin/master", "release-0.5:refs/remotes/origin/r"
    )
    assert found(released) == (2, 3, "b2 and 2 commits")
    assert found(released, "--as-build", "v0.5.0") == (2, 2, "v0.5.0 (b2), given by --as-build")


def test_a_forks_own_release_is_told_and_says_nothing_of_the_build(released):
    released.git("tag", "v9.0.0", "mine")
    assert found(released) == (3, 3, "v0.5.0 (b3) and 1 commit, tagged v9.0.0")


def test_a_squashed_history_is_not_counted_but_a_pins_release_is_known(released):
    without_builds(released)
    tree = released.git("rev-parse", "v0.5.0^{tree}")
    root = released.git("commit-tree", "-m", "squashed", tree)
    released.git("tag", "-f", "v0.5.0", root)
    released.git("reset", "-q", "--hard", root)
    assert found(released) == (3, 5, "ggml 0.3.0 in its CMake file, tagged v0.5.0")
    error = released.error("--as-build", "v0.5.0", code=2)
    assert error["code"] == "ONTO_BUILD_UNKNOWN"
    assert "v0.5.0" in error["message"]
    assert "--as-build bNUMBER" in error["hint"]
    catalogue = released.place.series / "patches" / "upstreams.toml"
    catalogue.write_text(
        catalogue.read_text().replace('name = "b3"\n', 'name = "b3"\nreleases = ["v0.5.0"]\n')
    )
    assert found(released) == (3, 3, "v0.5.0 (b3)")
    assert found(released, "--as-build", "v0.5.0") == (3, 3, "v0.5.0 (b3), given by --as-build")


def test_what_is_no_build_and_no_release_is_refused(owner):
    done = owner.apply("--as-build", "v0.5", code=2)
    assert "a release such as v0.5.0" in done.stderr


@pytest.fixture
def project(owner):
    """Another project on ggml, as whisper.cpp is: its own commits, builds and releases, a folder ggml."""
    owner.git("switch", "-q", "--orphan", "project")
    owner.git("checkout", "-q", "mine", "--", ".")
    owner.git("mv", "include/llama.h", "include/whisper.h")
    owner.commit("ggml/CMakeLists.txt", GGML, "one")
    for number in (2, 3):
        owner.commit("README.md", f"{number}\n", f"{number}")
    owner.git("tag", "v1.9.3")
    owner.git("tag", "b7")
    owner.commit("README.md", "above\n")
    series = owner.place.series / "patches" / "series.toml"
    fault = (
        '\n[[fault]]\nid = "{id}"\ntitle = "it adds one"\nbuilds = {{ first = {first}, why = "the test" }}\n'
        'archs = ["gfx1151"]\nsymptom = "Off by one."\ndoes = "aborts"\nseen_on = "hardware"\n'
        'links = ["https://example.invalid/2"]\n'
    )
    faults = [fault.format(id=name, first=first) for name, first in (("in-all", 3), ("in-some", 4))]
    series.write_text(series.read_text() + "".join(faults))
    return owner


def test_tags_and_commits_of_another_project_are_no_builds(project):
    error = project.error(code=2)
    assert error["code"] == "ONTO_BUILD_UNKNOWN"
    assert error["hint"].startswith("name the newest llama.cpp build whose changes to ggml it has")
    assert "not llama.cpp (no include/llama.h)" in error["why"]
    error = project.error("--as-build", "v1.9.3", code=2)
    assert "tag v1.9.3 there is of another project" in error["why"]
    assert "fetch" not in error["hint"]
    assert found(project, "--as-build", "b2") == (2, 2, "b2, given by --as-build")


def test_of_another_project_the_version_of_ggml_tells_the_build_and_the_faults(project):
    know_versions(project)
    assert found(project) == (3, 5, "ggml 0.3.0 in its CMake file")
    for number, name in ((1, "demo-launch-bounds"), (2, "demo-twin")):
        manifest = project.place.series / "patches" / f"000{number}-{name}" / "patch.toml"
        manifest.write_text(manifest.read_text().replace("first = 1,", "first = 4,"))
    done = project.apply("--replace", code=2)
    assert (
        "it may be b3 to b5 (from ggml 0.3.0 in its CMake file), but 'demo-launch-bounds' is" in done.stderr
    )
    assert "warning: known fault of b3 to b5: in-all on gfx1151 (aborts)" in done.stderr
    assert "in-some" not in done.stderr


def test_a_tag_below_of_another_project_is_no_build(project):
    """Two histories in one, as a fork of llama.cpp that merged another project."""
    project.git("switch", "-q", "mine")
    project.git(
        "-c",
        "user.name=owner",
        "merge",
        "-q",
        "-s",
        "ours",
        "--allow-unrelated-histories",
        "-m",
        "both",
        "project",
    )
    assert found(project)[0] == 2
