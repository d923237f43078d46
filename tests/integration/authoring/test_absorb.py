"""``patchkit absorb``: a branch of the series, edited with git, becomes the series again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from demo_world import git
from queued import CMAKE, TOOL, contents, errors, queue, result, tables, toml_of

FIRST = ("first", TOOL, "wanted > 256 ? 256", "wanted > 512 ? 512")
SECOND = ("second", TOOL, "wanted > 512 ? 512", "wanted > 1024 ? 1024")
NAME = ("name", TOOL, "a@{b}", "another")
FAST = ("fast", CMAKE, "OFF)", "ON)")
CHAIN = (FIRST, SECOND, NAME, FAST)


@pytest.fixture
def branch(desk) -> Any:
    """The desk with four plain patches, its clone on their branch."""
    take_branch(desk, "plain")
    assert [line.partition(":")[0] for line in subjects(desk)] == ["first", "second", "name", "fast"]
    return desk


def take_branch(desk, arch: str) -> None:
    """Give the desk four plain patches, and put its clone on the branch of all patches for a GPU."""
    queue(desk, *CHAIN)
    done = desk.run("apply", "--arch", arch, "--unlocked")
    assert done.returncode == 0, done.stderr
    git(desk.clone, "fetch", "-q", str(desk.repository), f"candidate/{arch}/b1")
    git(desk.clone, "switch", "-q", "-c", f"patchkit/{arch}", "FETCH_HEAD")


def subjects(desk) -> list[str]:
    return git(desk.clone, "log", "--reverse", "--format=%s", "b1..HEAD").splitlines()


def commit_of(desk, name: str) -> str:
    return git(desk.clone, "log", "--format=%H", f"--grep=^Patchkit-Id: {name}$", "b1..HEAD")


def edit(desk, name: str, *changes: tuple[str, str, str], message: str | None = None) -> None:
    """Change the commit of a patch, as a rebase that stops there does; the later commits follow."""
    at, tip = commit_of(desk, name), git(desk.clone, "rev-parse", "HEAD")
    git(desk.clone, "reset", "-q", "--hard", at)
    for path, old, new in changes:
        desk.change(path, old, new)
    words = ["--no-edit"] if message is None else ["-m", message]
    git(desk.clone, "commit", "-q", "-a", "--amend", *words)
    if at != tip:
        git(desk.clone, "cherry-pick", f"{at}..{tip}")


def absorbed(desk, *args: str, code: int = 0) -> dict[str, Any]:
    done = desk.run("absorb", "--repo", str(desk.clone), *args, "--json")
    assert done.returncode == code, done.stderr + done.stdout
    return json.loads(done.stdout)


def states(told: dict[str, Any]) -> dict[str, str]:
    return {each["patch"]: each["state"] for each in told["patches"]}


def order(desk) -> list[str]:
    folders = sorted(path.name for path in (desk.series / "patches").glob("0*"))
    return [name[5:] for name in folders if "demo" not in name]


def tree(desk, arch: str = "plain") -> str:
    done = desk.run("apply", "--arch", arch, "--unlocked")
    assert done.returncode == 0, done.stderr
    return git(desk.repository, "rev-parse", f"candidate/{arch}/b1^{{tree}}")


def test_a_branch_that_nobody_changed_changes_nothing(branch) -> None:
    before = contents(branch)
    told = absorbed(branch)
    assert states(told) == dict.fromkeys(("first", "second", "name", "fast"), "same")
    assert told["written"] is False
    assert contents(branch) == before


def test_an_amended_commit_is_the_new_version_of_its_patch_alone(branch) -> None:
    others = {name: toml_of(branch, name).read_bytes() for name in ("first", "second", "fast")}
    edit(branch, "name", (TOOL, "another", "a third"))
    told = absorbed(branch)
    assert states(told) == {"first": "same", "second": "same", "name": "replaced", "fast": "same"}
    assert {name: toml_of(branch, name).read_bytes() for name in others} == others
    assert b"a third" in result(branch)
    assert tree(branch) == git(branch.clone, "rev-parse", "HEAD^{tree}")


def test_status_calls_the_branch_outdated_until_it_is_made_again(branch) -> None:
    assert branch.run("lock", "--arch", "plain").returncode == 0
    assert branch.run("apply", "--arch", "plain").returncode == 0

    def standing() -> str:
        told = json.loads(branch.run("status", "--json").stdout)
        return next(each["lock"] for each in told["candidates"] if "/plain/" in each["branch"])

    assert standing() == "recorded"
    edit(branch, "name", (TOOL, "another", "a third"))
    absorbed(branch)
    assert standing() == "series changed"
    assert "patchkit lock --all" in branch.run("status").stdout
    assert branch.run("lock", "--all").returncode == 0
    assert standing() == "differs"
    assert branch.run("apply", "--arch", "plain").returncode == 0
    assert standing() == "recorded"
    branch.change(CMAKE, "ON)", "OFF)")
    git(branch.clone, "commit", "-q", "-a", "-m", "slow again")
    absorbed(branch)
    assert standing() == "series changed"  # by a new patch


def test_commits_that_build_on_each_other_change_together(branch) -> None:
    tip = git(branch.clone, "rev-parse", "HEAD")
    git(branch.clone, "reset", "-q", "--hard", commit_of(branch, "first"))
    branch.change(TOOL, "wanted > 512 ? 512", "wanted > 600 ? 600")
    git(branch.clone, "commit", "-q", "-a", "--amend", "--no-edit")
    branch.change(TOOL, "wanted > 600 ? 600", "wanted > 1024 ? 1024")
    git(branch.clone, "commit", "-q", "-a", "-C", f"{tip}~2")
    git(branch.clone, "cherry-pick", f"{tip}~2..{tip}")
    told = absorbed(branch)
    assert states(told) == {"first": "replaced", "second": "replaced", "name": "same", "fast": "same"}
    assert tree(branch) == git(branch.clone, "rev-parse", "HEAD^{tree}")


def test_a_commit_without_an_id_is_a_new_patch_in_its_place(branch) -> None:
    fast = commit_of(branch, "fast")
    git(branch.clone, "reset", "-q", "--hard", f"{fast}^")
    (branch.clone / "common" / "more.cpp").write_text("int more() {\n    return 1;\n}\n")
    git(branch.clone, "add", "-A")
    git(branch.clone, "commit", "-q", "-m", "one more file\n\nIt is needed.")
    git(branch.clone, "cherry-pick", fast)
    branch.change(TOOL, "another", "yet another")
    git(branch.clone, "commit", "-q", "-a", "-m", "yet another name")
    told = absorbed(branch)
    assert [each["state"] for each in told["patches"]] == ["same", "same", "same", "new", "same", "new"]
    assert order(branch) == ["first", "second", "name", "one-more-file", "fast", "yet-another-name"]
    assert "It is needed." in tables(branch, "one-more-file")["why"]
    # The second new patch changes a line that another patch of the branch wrote, the first does not.
    assert [list(each["requires"]) for each in told["patches"]] == [[], [], [], [], [], ["name"]]
    assert "requires" not in tables(branch, "one-more-file")
    assert [each["patch"] for each in tables(branch, "yet-another-name")["requires"]] == ["name"]


def test_a_patch_after_a_new_one_requires_it_if_it_uses_its_names(branch) -> None:
    name = commit_of(branch, "name")
    rest = git(branch.clone, "rev-parse", "HEAD")
    git(branch.clone, "reset", "-q", "--hard", f"{name}^")
    branch.change(
        TOOL, "// how much at most\n", "static int least() {\n    return 1;\n}\n\n// how much at most\n"
    )
    git(branch.clone, "commit", "-q", "-a", "-m", "a new helper")
    git(branch.clone, "cherry-pick", f"{name}^..{rest}")
    edit(branch, "name", (TOOL, 'return "', 'least();\n    return "'))
    told = absorbed(branch)
    needed = {each["patch"]: list(each["requires"]) for each in told["patches"] if each["requires"]}
    assert needed == {"name": ["a-new-helper"]}
    assert [each["patch"] for each in tables(branch, "name")["requires"]] == ["a-new-helper"]


def test_commits_in_another_order_are_patches_in_that_order(branch) -> None:
    picks = [commit_of(branch, name) for name in ("fast", "first", "second", "name")]
    git(branch.clone, "reset", "-q", "--hard", "b1")
    git(branch.clone, "cherry-pick", *picks)
    told = absorbed(branch)
    assert order(branch) == ["fast", "first", "second", "name"]
    assert told["moved"] != {}
    assert tree(branch) == git(branch.clone, "rev-parse", "HEAD^{tree}")


def test_squashed_commits_are_one_patch(branch) -> None:
    tip = git(branch.clone, "rev-parse", "HEAD")
    second = commit_of(branch, "second")
    both = [git(branch.clone, "log", "-1", "--format=%B", each) for each in (f"{second}^", second)]
    git(branch.clone, "reset", "-q", "--hard", second)
    git(branch.clone, "reset", "-q", "--soft", "b1")
    git(branch.clone, "commit", "-q", "-m", "\n\n".join(both))  # as git rebase joins them
    git(branch.clone, "cherry-pick", f"{second}..{tip}")
    told = absorbed(branch)
    assert told["patches"][0]["combined"] == ["second"]
    assert order(branch) == ["first", "name", "fast"]
    assert tree(branch) == git(branch.clone, "rev-parse", "HEAD^{tree}")
    # The commit still has the ids of both.
    assert absorbed(branch)["written"] is False


def test_a_patch_whose_change_is_in_another_one_now_is_not_forgotten(branch) -> None:
    tip, second = git(branch.clone, "rev-parse", "HEAD"), commit_of(branch, "second")
    git(branch.clone, "reset", "-q", "--hard", f"{second}^")
    git(branch.clone, "cherry-pick", "-n", second)
    git(branch.clone, "commit", "-q", "--amend", "--no-edit")  # a fixup, which keeps the first message only
    git(branch.clone, "cherry-pick", f"{second}..{tip}")
    before = contents(branch)
    found = errors(absorbed(branch, code=3))
    assert found[0]["code"] == "AMEND_BREAKS"
    assert found[0]["message"] == "second cannot be placed at b1 plain after absorbing the branch"
    assert "keep both lines Patchkit-Id" in found[0]["hint"]
    assert contents(branch) == before
    told = absorbed(branch, "--drop")
    assert (told["dropped"], states(told)["first"]) == (["second"], "replaced")
    assert tree(branch) == git(branch.clone, "rev-parse", "HEAD^{tree}")


def test_a_dropped_commit_is_removed_only_if_asked(branch) -> None:
    git(branch.clone, "reset", "-q", "--hard", "HEAD^")
    before = contents(branch)
    told = absorbed(branch)
    assert (told["missing"], told["dropped"], told["written"]) == (["fast"], [], False)
    assert contents(branch) == before
    told = absorbed(branch, "--drop")
    assert (told["missing"], told["dropped"], told["written"]) == ([], ["fast"], True)
    assert order(branch) == ["first", "second", "name"]


def test_a_dry_run_writes_nothing(branch) -> None:
    edit(branch, "name", (TOOL, "another", "a third"))
    before = contents(branch)
    told = absorbed(branch, "--dry-run")
    assert (states(told)["name"], told["written"]) == ("replaced", False)
    assert contents(branch) == before


def test_what_cannot_be_taken_back_is_refused(branch) -> None:
    before = contents(branch)
    tip = git(branch.clone, "rev-parse", "HEAD")
    git(branch.clone, "commit", "-q", "--amend", "-m", "x\n\nPatchkit-Id: nobody")
    (error,) = errors(absorbed(branch, code=2))
    assert error["code"] == "AMEND_REFUSED"
    assert "Patchkit-Id: nobody" in error["message"]
    git(branch.clone, "commit", "-q", "--amend", "-m", "x\n\nPatchkit-Id: name")
    (error,) = errors(absorbed(branch, code=2))
    assert error["message"].startswith("2 commits have the trailer Patchkit-Id: name")
    (error,) = errors(absorbed(branch, "b1", code=2))
    assert "no commits after" in error["message"]
    git(branch.clone, "reset", "-q", "--hard", f"{tip}^")
    git(branch.clone, "merge", "-q", "--no-ff", "--no-edit", tip)
    (error,) = errors(absorbed(branch, code=2))
    assert error["message"].endswith("is a merge")
    assert contents(branch) == before


def test_guarded_patches_may_be_on_the_branch_and_stay_as_they_are(desk) -> None:
    take_branch(desk, "gfx1151")
    edit(desk, "name", (TOOL, "another", "a third"))
    told = absorbed(desk)
    guarded = [name for name in states(told) if name.startswith("demo")]
    assert guarded
    assert {states(told)[name] for name in guarded} == {"same"}
    assert states(told)["name"] == "replaced"
    (path,) = git(desk.clone, "diff", "--name-only", f"{commit_of(desk, guarded[0])}^!").splitlines()[:1]
    before = contents(desk)
    edit(desk, guarded[0], (path, "? 128 : 64", "? 256 : 64"))
    (error,) = errors(absorbed(desk, code=2))
    assert error["code"] == "AMEND_REFUSED"
    assert error["message"] == f"the commit of '{guarded[0]}' was changed, and this patch has a guard"
    assert contents(desk) == before


def test_a_rebase_that_is_not_finished_is_refused(branch) -> None:
    tip = git(branch.clone, "rev-parse", "HEAD")
    git(branch.clone, "-c", "sequence.editor=sed -i 1s/pick/edit/", "rebase", "-i", "b1")
    (error,) = errors(absorbed(branch, code=2))
    assert error["code"] == "AMEND_REFUSED"
    assert error["message"] == f"git is in the middle of a rebase in {branch.clone}"
    assert set(states(absorbed(branch, tip)).values()) == {"same"}


def _commit_file(desk, name: str, message: str) -> None:
    (desk.clone / "common" / name).write_text("int more() {\n    return 1;\n}\n")
    git(desk.clone, "add", "-A")
    git(desk.clone, "commit", "-q", "-m", message)


def test_a_branch_that_was_absorbed_can_be_absorbed_again(branch) -> None:
    _commit_file(branch, "more.cpp", "one more file")
    assert absorbed(branch)["lock_stale"] == []
    written = toml_of(branch, "one-more-file").read_text() + "\n# by hand\n"
    toml_of(branch, "one-more-file").write_text(written)
    assert absorbed(branch)["written"] is False
    assert absorbed(branch, "--drop")["written"] is False
    assert toml_of(branch, "one-more-file").read_text() == written
    (branch.clone / "common" / "more.cpp").write_text("int more() {\n    return 2;\n}\n")
    git(branch.clone, "commit", "-q", "-a", "--amend", "--no-edit")
    assert states(absorbed(branch))["one-more-file"] == "replaced"
    assert tree(branch) == git(branch.clone, "rev-parse", "HEAD^{tree}")


def test_a_commit_that_lost_its_trailer_is_still_of_its_patch(branch) -> None:
    git(branch.clone, "commit", "-q", "--amend", "-m", subjects(branch)[-1])
    assert set(states(absorbed(branch)).values()) == {"same"}


def test_guarded_patches_stay_as_they_are_among_other_commits(desk) -> None:
    take_branch(desk, "gfx1151")
    commits = git(desk.clone, "log", "--reverse", "--format=%H", "b1..HEAD").splitlines()
    git(desk.clone, "reset", "-q", "--hard", "b1")
    _commit_file(desk, "more.cpp", "one more file")
    git(desk.clone, "cherry-pick", *commits)
    told = absorbed(desk)
    assert [each["state"] for each in told["patches"]] == ["new", *["same"] * len(commits)]
    assert tree(desk, "gfx1151") == git(desk.clone, "rev-parse", "HEAD^{tree}")


def test_an_error_of_a_new_commit_names_the_commit(branch) -> None:
    git(branch.clone, "commit", "-q", "--allow-empty", "-m", "nothing")
    (error,) = errors(absorbed(branch, code=2))
    assert git(branch.clone, "rev-parse", "HEAD") in [place["path"] for place in error["where"]]


def test_a_new_patch_makes_the_results_of_the_lock_out_of_date(branch) -> None:
    for name in ("first", "second", "name", "fast"):
        keys = (
            'why = "because"\nlinks = ["https://example.org/1"]\nwithout = "it is slow"\n'
            'expected = { effect = "faster", source = "nobody" }\n'
        )
        toml_of(branch, name).write_text(keys + toml_of(branch, name).read_text())
    done = branch.run("lock", "--arch", "plain")
    assert done.returncode == 0, done.stderr
    _commit_file(branch, "more.cpp", "one more file")
    assert absorbed(branch)["lock_stale"] == ["b1 plain"]


def test_a_new_message_and_author_are_those_of_the_patch(branch) -> None:
    subject = (
        'first: raise the "limit", with a subject that is longer than the seventy-two characters of a title'
    )
    body = "Because it is low.\n\n    indented\n\nSigned-off-by: x <x@y>"
    trailers = f"Patchkit-Id: first\nUpstream-Commit: {'0' * 40}"
    edit(branch, "first", message=f"{subject}\n\n{body}\n\n{trailers}")
    told = absorbed(branch)
    assert set(states(told).values()) == {"same"}
    assert [each["patch"] for each in told["patches"] if each["reworded"]] == ["first"]
    patch = tables(branch, "first")
    assert (patch["commit"]["subject"], patch["why"]) == (subject, body)
    tree(branch)
    message = git(branch.repository, "log", "-1", "--format=%B", "candidate/plain/b1~3")
    assert message.startswith(f"{subject}\n\n{body}\n\nPatchkit-Id: first\n")
    assert absorbed(branch)["written"] is False
    at = commit_of(branch, "fast")
    git(branch.clone, "commit", "-q", "--amend", "--no-edit", "--author=Another One <one@example.org>")
    assert at != commit_of(branch, "fast")
    assert absorbed(branch)["written"] is True
    assert tables(branch, "fast")["commit"]["author"] == "Another One <one@example.org>"


def test_new_commits_with_one_subject_are_two_patches(branch) -> None:
    _commit_file(branch, "more.cpp", "one more file")
    _commit_file(branch, "other.cpp", "one more file")
    assert order(branch) == ["first", "second", "name", "fast"]
    absorbed(branch)
    assert order(branch) == ["first", "second", "name", "fast", "one-more-file", "one-more-file-2"]
    assert absorbed(branch)["written"] is False


def test_a_new_patch_comes_after_the_missing_ones_before_it(branch) -> None:
    fast = commit_of(branch, "fast")
    for number, name in ((29, "fast"), (27, "name")):  # room between 'second' and 'name'
        folder = toml_of(branch, name).parent
        folder.rename(folder.with_name(f"{number:04d}-{name}"))
    git(branch.clone, "reset", "-q", "--hard", commit_of(branch, "second"))  # without the patch 'name'
    _commit_file(branch, "more.cpp", "one more file")
    git(branch.clone, "cherry-pick", fast)
    assert absorbed(branch)["missing"] == ["name"]
    assert order(branch) == ["first", "second", "name", "one-more-file", "fast"]


def test_what_is_not_committed_is_named(branch) -> None:
    path = branch.clone / TOOL
    path.touch()
    assert absorbed(branch)["warnings"] == []
    path.write_text(path.read_text() + "// mine\n")
    (warning,) = absorbed(branch)["warnings"]
    assert warning == f"not absorbed, because it is not committed: {TOOL}"
    git(branch.clone, "add", "-A")
    assert absorbed(branch)["warnings"] == [warning]
    assert absorbed(branch, "HEAD~1")["warnings"] == []
