"""Proposals to upstream: git am takes them, and their cases of test-backend-ops are right with the change.

Without the change, cases of a fix are wrong. All of it on the emulated GPU.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import run_patchkit
from demo_world import git
from emulated_trees import EmulatedTrees
from kernel_scenes import compile_with_ggml, environment_with_ggml

from patchkit.base.errors import UsageError
from patchkit.base.reporter import NullReporter
from patchkit.base.series_folder import find_series_dir
from patchkit.base.workspace import Workspace
from patchkit.gpu.emulated.checks import usual_checks
from patchkit.gpu.emulated.emulator import EmulationOptions, load_report
from patchkit.gpu.emulated.names import read_name
from patchkit.prove.propose.run import ProposeRequest, make_patches
from patchkit.toolchain.compiler import open_compiler
from patchkit.toolchain.hip import Toolchain

pytestmark = [pytest.mark.upstream, pytest.mark.network, pytest.mark.slow]

BUILD = 11549
WHO = ("-c", "user.name=a", "-c", "user.email=a@localhost")
# By proposal: the operations and the variables of its cases, and how many there are.
CASES = {
    "fattn-mask-scan": ("FLASH_ATTN_EXT", "shared_mask=1", 6),
    "rope-block-size": ("ROPE", r"ne_a=\[(66|510|514),3", 9),
    "moe-sum-coalesce": ("MOE_REDUCE", "n_embd=(2880|1026|1028)", 3),
    "mmq-batch-limits": ("MUL_MAT", "type_a=q6_K,type_b=f32,m=64,n=(256|257|1024|1025),k=256", 4),
    "ssm-conv-tail": ("SSM_CONV", r"ne_a=\[(35|36|41|97|98|103),", 18),
}
FIXES = {"fattn-mask-scan"}
MERGED = ("ssm-scan-barrier", "softmax-norm-barriers")
_PASSED = re.compile(r"(\d+)/(\d+) tests passed")


def patches_of(cache: Path, name: str) -> dict[str, bytes]:
    workspace = Workspace(series=find_series_dir(None), cache_root=cache, reporter=NullReporter())
    return make_patches(workspace, ProposeRequest(patch=name, arch="gfx1151", directory=Path("unused")))


class Trees:
    """Working trees of the build with commits of proposals, made by git am."""

    def __init__(self, cache: Path, folder: Path) -> None:
        self._folder = folder
        self._clone = folder / "clone"
        git(
            folder,
            "clone",
            "--quiet",
            "--shared",
            "--no-checkout",
            str(cache / "upstream.git"),
            str(self._clone),
        )
        git(self._clone, "fetch", "--quiet", "origin", f"refs/patchkit/pin/b{BUILD}:refs/heads/base")

    def make(self, title: str, *patches: bytes) -> Path:
        tree = self._folder / title
        if not tree.is_dir():
            git(self._clone, "worktree", "add", "--quiet", "--detach", str(tree), "base")
            for number, patch in enumerate(patches):
                file = self._folder / f"{title}-{number}.patch"
                file.write_bytes(patch)
                git(tree, *WHO, "am", "--quiet", str(file))
        return tree


@pytest.fixture(scope="module")
def trees(gates_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Trees:
    return Trees(gates_cache, tmp_path_factory.mktemp("proposals"))


@pytest.mark.parametrize("name", CASES)
def test_git_am_takes_a_change_that_reads_like_upstreams(gates_cache: Path, trees: Trees, name: str) -> None:
    patches = patches_of(gates_cache, name)
    assert list(patches) == ["0001-change.patch", "0002-tests.patch"]
    tree = trees.make(f"{name}-both", *patches.values())
    added = [line[1:] for line in git(tree, "diff", "base", "HEAD").splitlines() if line.startswith("+")]
    code = "\n".join(added)
    for ours in (
        "patchkit",
        "GGML_PATCHES",
        "gfx1151",
        "0x1151",
        "GGML_CUDA_CC_OFFSET_AMD",
        "__HIP_DEVICE_COMPILE__",
    ):
        assert ours not in code
    assert code.isascii()
    assert subprocess.run(["git", "diff", "--check", "base", "HEAD"], cwd=tree, check=False).returncode == 0
    messages = git(tree, "log", "--format=%B", "base..HEAD")
    assert messages.count("TODO: write the title") == 2
    assert "Patchkit-" not in messages


def test_a_limit_is_for_the_family(gates_cache: Path) -> None:
    change = patches_of(gates_cache, "mmq-batch-limits")["0001-change.patch"].decode()
    assert "+                    return ne11 <= (GGML_CUDA_CC_IS_RDNA3_0(cc) ? 128 : 1024);\n" in change
    change = patches_of(gates_cache, "mmvq-batch-limits")["0001-change.patch"].decode()
    assert "+    if (GGML_CUDA_CC_IS_RDNA3_5(cc)) {\n" in change


def test_a_part_of_a_line_returns_to_its_line(gates_cache: Path) -> None:
    change = patches_of(gates_cache, "rope-block-size")["0001-change.patch"].decode()
    assert change.count("+    const dim3 block_dims(1, MIN(ne00/2, CUDA_ROPE_BLOCK_SIZE), 1);\n") == 2
    assert "#if" not in change
    change = patches_of(gates_cache, "ssm-conv-tail")["0001-change.patch"].decode()
    assert "+        if (row < (int)split_d_inner && col < n_inputs) {\n" in change


def test_the_switches_are_no_proposal(gates_cache: Path) -> None:
    with pytest.raises(UsageError, match="only for patched builds") as caught:
        patches_of(gates_cache, "patch-switches")
    assert caught.value.code == "PROPOSE_REFUSED"


@pytest.mark.parametrize("name", MERGED)
def test_what_upstream_has_is_not_proposed(gates_cache: Path, name: str) -> None:
    with pytest.raises(UsageError, match="there is nothing to propose: upstream has") as caught:
        patches_of(gates_cache, name)
    assert caught.value.code == "PROPOSE_REFUSED"


@pytest.mark.parametrize(
    ("name", "why"),
    [("ssm-group-barrier", "for b6900 to b7551"), ("fuse-norm-q8-1", "has one change")],
    ids=["other build", "other patches"],
)
def test_what_cannot_be_proposed_is_refused_with_the_reason(gates_cache: Path, name: str, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        patches_of(gates_cache, name)
    assert caught.value.code == "PROPOSE_REFUSED"
    assert why in (caught.value.why or "")


def test_a_folder_with_content_is_left_alone(gates_cache: Path, tmp_path: Path) -> None:
    out = tmp_path / "mine"
    out.mkdir()
    (out / "pull-request.md").write_text("what I wrote")
    given = ("propose", "mmq-batch-limits", out, "--arch", "gfx1151", "--cache-dir", gates_cache)
    done = run_patchkit(*given)
    assert done.returncode == 2
    assert "PLACE_UNUSABLE" in done.stderr
    assert [path.name for path in out.iterdir()] == ["pull-request.md"]


def test_an_unknown_patch_is_an_error(gates_cache: Path, tmp_path: Path) -> None:
    given = ("propose", "no-such-patch", tmp_path / "out", "--arch", "gfx1151", "--cache-dir", gates_cache)
    done = run_patchkit(*given)
    assert done.returncode == 2
    assert "UNKNOWN_PATCH" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def folder(gates_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a patch that changes one source file, of which only host code."""
    out = tmp_path_factory.mktemp("proposed") / "out"
    given = ("propose", "mmq-batch-limits", out, "--arch", "gfx1151", "--gpu", "gfx1150", "--json")
    done = run_patchkit(*given, "--cache-dir", gates_cache)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["files"] == sorted(path.name for path in out.iterdir())
    assert document["gpus"] == ["gfx1150", "gfx1151", "gfx1152", "gfx1153"]
    assert (document["compiled_for"], document["rules_changed"]) == (["gfx1151", "gfx1150"], [])
    return out


@pytest.mark.hip
def test_the_words_are_left_to_the_person(folder: Path, trees: Trees) -> None:
    upstreams = (trees.make("plain") / ".github" / "pull_request_template.md").read_text("utf-8")
    mine = (folder / "pull-request.md").read_text("utf-8")
    differing = [
        new for old, new in zip(upstreams.splitlines(), mine.splitlines(), strict=True) if old != new
    ]
    assert differing == ["- AI usage disclosure: <!-- YES: describe how AI was used, in your own words -->"]


@pytest.mark.hip
def test_the_facts_are_in_the_folder(folder: Path) -> None:
    gpus = (folder / "gpus.md").read_text("utf-8")
    assert "| gfx1151 | Radeon 8060S | measured |" in gpus
    assert "| gfx1150 | Radeon 890M | none |" in gpus
    assert "No kernel's code changed" in (folder / "spills.md").read_text("utf-8")
    measured = (folder / "measurements.md").read_text("utf-8")
    assert "| measured | gfx1151 | dzannotti |" in measured
    assert "There are no measurements" not in measured


@pytest.mark.hip
def test_changed_kernels_are_listed_with_their_figures(gates_cache: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    given = ("propose", "moe-sum-coalesce", out, "--arch", "gfx1151", "--cache-dir", gates_cache)
    done = run_patchkit(*given)
    assert done.returncode == 0, done.stderr
    assert "all of the CUDA backend" in done.stdout
    rows = [line for line in (out / "spills.md").read_text("utf-8").splitlines() if "moe" in line]
    assert len(rows) == 1
    assert re.search(r"\| \d+( -> \d+)? \| 0 \| 0 \| 16 \|", rows[0]), rows
    assert "There are no measurements" in (out / "measurements.md").read_text("utf-8")


@pytest.mark.hip
def test_the_check_finds_what_the_person_has_to_write(folder: Path, trees: Trees) -> None:
    patches = [path.read_bytes() for path in sorted(folder.glob("*.patch"))]
    tree = trees.make("checked", *patches)

    def check() -> subprocess.CompletedProcess[str]:
        given = ["sh", str(folder / "check.sh"), "base"]
        return subprocess.run(given, cwd=tree, capture_output=True, text=True, check=False)

    first = check()
    assert first.returncode == 1
    assert "placeholder" in first.stderr
    assert "author" in first.stderr
    git(tree, "reset", "--quiet", "--soft", "base")
    git(tree, *WHO, "commit", "--quiet", "--message", "CUDA : my own words")
    assert check().returncode == 0
    (tree / "README.md").write_text("caf\u00e9 \n", encoding="utf-8")
    git(tree, *WHO, "commit", "--quiet", "--all", "--message", "docs : more")
    last = check()
    assert last.returncode == 1
    assert "ASCII" in last.stderr
    assert "whitespace" in last.stderr


_PROGRAM = """#!/bin/sh
echo "$(basename "$(dirname "$0")")/$(basename "$0") $*" >> "$LOG"
case $0 in
*quantize) for each; do last=$kept kept=$each; done; : > "$last"; [ "$kept" != IQ4_XS ] ;;
*) echo '{}' ;;
esac
"""


@pytest.mark.hip
@pytest.mark.parametrize("imatrix", [None, "some.imatrix"])
def test_the_sweep_measures_both_sides_by_turns(folder: Path, tmp_path: Path, imatrix: str | None) -> None:
    log = tmp_path / "log"
    for side in ("before", "after"):
        for name in ("llama-bench", "llama-quantize"):
            program = tmp_path / side / name
            program.parent.mkdir(exist_ok=True)
            program.write_text(_PROGRAM)
            program.chmod(0o755)
    given = ["sh", str(folder / "sweep.sh"), str(tmp_path / "before"), str(tmp_path / "after"), "model.gguf"]
    more = {} if imatrix is None else {"IMATRIX": imatrix}
    environment = {**os.environ, "LOG": str(log), "OUT": str(tmp_path), "ROUNDS": "2", **more}
    done = subprocess.run(given, env=environment, capture_output=True, text=True, check=True)
    calls = log.read_text().splitlines()
    types = [call.split()[-1] for call in calls if "llama-quantize" in call]
    assert len(types) == (20 if imatrix is not None else 15)
    assert ("IQ1_S" in done.stderr) == (imatrix is None)
    assert "skipped IQ4_XS" in done.stderr
    benched = [call for call in calls if "llama-bench" in call]
    assert [call.split("/")[0] for call in benched] == ["before", "after"] * 2 * (len(types) - 1)
    assert all(" -ub 1-8 " in call for call in benched)
    assert len((tmp_path / "after.jsonl").read_text().splitlines()) == 2 * (len(types) - 1)


@pytest.fixture(scope="module")
def run(
    hip_toolchain: Toolchain, gates_cache: Path, trees: Trees, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., tuple[int, int, set[str]]]:
    """Runs the cases of a proposal on a HIP backend: how many passed, how many ran, kernels with findings."""
    emulated = EmulatedTrees(gates_cache, open_compiler(hip_toolchain, gates_cache, NullReporter()))
    tests = [patches_of(gates_cache, name)["0002-tests.patch"] for name in CASES]
    # It needs nothing but ggml, so not all of upstream's programs are built again for it.
    cases = trees.make("tests", *tests) / "tests" / "test-backend-ops.cpp"
    made = tmp_path_factory.mktemp("made")
    report = made / "report.json"
    options = EmulationOptions(report=report, checks=usual_checks())

    def start(name: str, candidate: Path | None) -> tuple[int, int, set[str]]:
        operations, variables, _ = CASES[name]
        built = emulated.running(BUILD, options, candidate=candidate, whole=())
        with built as side:
            program = compile_with_ggml(cases, side, emulated.root(BUILD), made)
            done = subprocess.run(
                [program, "test", "-b", "ROCm0", "-o", operations, "-p", variables],
                cwd=side.folder,  # where backends are looked for
                env=environment_with_ggml(side),
                capture_output=True,
                text=True,
                check=False,
                timeout=3600,
            )
        found = _PASSED.search(done.stdout)
        assert found is not None, done.stdout + done.stderr
        blamed = {read_name(one.kernel).base for one in load_report(report).findings if not one.note}
        return int(found[1]), int(found[2]), blamed

    return start


@pytest.mark.hip
@pytest.mark.hours
@pytest.mark.parametrize("name", CASES)
def test_cases_are_right_with_the_change(
    run: Callable[..., tuple[int, int, set[str]]], gates_cache: Path, trees: Trees, name: str
) -> None:
    change = trees.make(name, patches_of(gates_cache, name)["0001-change.patch"])
    passed, ran, blamed = run(name, change)
    assert (passed, ran, blamed) == (CASES[name][2], CASES[name][2], set())


@pytest.mark.hip
@pytest.mark.hours
@pytest.mark.parametrize("name", CASES)
def test_cases_of_a_fix_are_wrong_without_it(
    run: Callable[..., tuple[int, int, set[str]]], name: str
) -> None:
    passed, ran, blamed = run(name, None)
    assert ran == CASES[name][2]
    assert (passed < ran) == (name in FIXES)
    assert blamed == set()
