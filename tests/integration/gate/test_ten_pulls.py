"""Ten pull requests against this project, judged from the command line: the table of docs/records/gates.md.

The five that compile GPU code carry the mark ``hip``; what they compile is kept in the test cache by content.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from thorough import ordinary

from patchkit.carry.placing.wmma import UPSTREAM, WmmaRow, wmma_table
from patchkit.carry.series.profile import load_profile
from patchkit.prove.gates.registry import gate_names

if TYPE_CHECKING:
    from conftest import Project

ROOT = Path(__file__).resolve().parents[3]
PROFILE = "arch_profiles/gfx1151.toml"
DECODE = "patches/0003-fattn-decode-tile/patch.toml"
TUNED = "patches/0001-wmma-tile-params"
GATES = tuple(
    gate for gate in gate_names("anywhere") if not gate.startswith("cpu-")
)  # none has a plain patch
UP_TO_ISOLATION = GATES[: GATES.index("isolation") + 1]
UP_TO_RESOURCES = GATES[: GATES.index("resources") + 1]

Changes = Mapping[str, "str | None"]


@dataclass(frozen=True, kw_only=True)
class PullRequest:
    """One pull request. ``ran`` are exactly the gates that must have run; ``relock`` as its author would."""

    name: str
    make: Callable[[Project], Changes]
    verdict: str
    exit_code: int
    code: str = ""
    ran: tuple[str, ...] = ()
    relock: bool = False
    candidate: str = "gfx1151 on b6900"


def _with_row(project: Project, row: WmmaRow, values: tuple[int, int, int]) -> Changes:
    """The profile with other parameters for one variant."""
    variant = row.variant
    head = f'head_size = {variant.head_size}\nncols = {variant.ncols}\nacc = "{variant.acc}"\n'
    pattern = re.compile(re.escape(head) + r"kq_stride = \d+\nnwarps = \d+\nmin_waves = \d+")
    text = project.git("show", f"main:{PROFILE}") + "\n"
    assert len(pattern.findall(text)) == 1
    new = "kq_stride = {}\nnwarps = {}\nmin_waves = {}".format(*values)
    return {PROFILE: pattern.sub(head + new, text)}


def profile_value(project: Project) -> Changes:
    """A tuned variant goes back to what upstream has: other bytes, and nothing can be worse than it was."""
    rows = wmma_table(load_profile(ROOT / "arch_profiles", "gfx1151"))
    row = next(row for row in rows if row.origin == "tuned" and row.params != UPSTREAM)
    return _with_row(project, row, (UPSTREAM.kq_stride, UPSTREAM.nwarps, UPSTREAM.min_waves))


def slower_parameter(project: Project) -> Changes:
    """A legal setting that no GPU of this size can keep in its registers."""
    rows = wmma_table(load_profile(ROOT / "arch_profiles", "gfx1151"))
    row = next(row for row in rows if row.origin == "tuned")
    return _with_row(project, row, (row.params.kq_stride, row.params.nwarps, 12))


NEW_PATCH = """\
id = "acc-unused"
title = "name what acc does not use"
why = "An example of a new patch."
links = ["https://example.invalid/1"]
status = "not-submitted"
without = "nothing: it is an example"

[builds]
first = 6900
why = "the kernel exists"

[expected]
effect = "none"
source = "nobody measured it"

[guard]
macros = ["GGML_USE_HIP"]

[[edit]]
id = "name-it"
file = "ggml/src/ggml-cuda/acc.cu"
function = "acc_f32"
at = { statement = "float val = x[i]" }
verb = "insert_before"
side = "device"
text = "GGML_UNUSED(src1_idx);"
"""


def new_patch(project: Project) -> Changes:
    on = '[patches]\nacc-unused = { default = "on", why = "an example", source = "the test" }\n'
    changes = project.edited(PROFILE, "[patches]\n", on)
    return {"patches/0091-acc-unused/patch.toml": NEW_PATCH, **changes}


def broken_guard(project: Project) -> Changes:
    return project.edited(DECODE, "}@ && Q->ne[1] == 1", "}@ || Q->ne[1] == 1")


def cuda_visible(project: Project) -> Changes:
    path = f"{TUNED}/extra.cu.jinja"
    added = '[[file]]\npath = "ggml/src/ggml-cuda/fattn-extra.cu"\ntemplate = "extra.cu.jinja"\n\n[[edit]]'
    return {path: '#include "common.cuh"\n', **project.edited(f"{TUNED}/patch.toml", "[[edit]]", added)}


def malicious(project: Project) -> Changes:
    evil = "}@ && @{ ''.__class__.__mro__[1].__subclasses__() }@ && Q->ne[1] == 1"
    return project.edited(DECODE, "}@ && Q->ne[1] == 1", evil)


PLAIN = (
    PullRequest(
        name="docs only",
        make=lambda _: {"docs/how.md": "So.\n", "README.md": "# Other\n"},
        verdict="nothing to prove",
        exit_code=0,
    ),
    PullRequest(
        name="template syntax error",
        make=lambda _: {f"{TUNED}/fattn-wmma-config.cuh.jinja": "//% for x in\n"},
        verdict="blocked",
        exit_code=4,
        code="TEMPLATE_BAD",
    ),
    PullRequest(
        name="malicious template",
        make=malicious,
        verdict="blocked",
        exit_code=4,
        code="TEMPLATE_BAD",
    ),
    PullRequest(
        name="unrelated code",
        make=lambda _: {"patchkit/thing.py": "raise SystemExit\n"},
        verdict="not proven",
        exit_code=1,
        code="GATE_OWN_TESTS_NEEDED",
    ),
)

COMPILED = (
    PullRequest(
        name="profile value",
        make=profile_value,
        verdict="passed",
        exit_code=0,
        ran=GATES,
        relock=True,
    ),
    PullRequest(
        name="new patch",
        make=new_patch,
        verdict="passed",
        exit_code=0,
        ran=GATES,
        relock=True,
    ),
    PullRequest(
        name="broken guard",
        make=broken_guard,
        verdict="blocked",
        exit_code=1,
        code="ISOLATION_HOST",
        ran=UP_TO_ISOLATION,
        relock=True,
    ),
    PullRequest(
        name="lock bump",
        make=lambda project: project.bumped(),
        verdict="passed",
        exit_code=0,
        ran=GATES,
        relock=True,
        candidate="gfx1151 on b6901",
    ),
    PullRequest(
        name="CUDA-visible edit",
        make=cuda_visible,
        verdict="blocked",
        exit_code=1,
        code="ISOLATION_UNITS",
        ran=UP_TO_ISOLATION,
        relock=True,
    ),
    PullRequest(
        name="slower parameter",
        make=slower_parameter,
        verdict="blocked",
        exit_code=1,
        code="RESOURCES_WORSE",
        ran=UP_TO_RESOURCES,
        relock=True,
    ),
)


def _judge(project: Project, one: PullRequest, *args: str):
    name = one.name.replace(" ", "-")
    project.pull(name, one.make(project), relock=one.relock)
    found = project.gate(name, *args)
    assert (found.document["verdict"], found.code) == (one.verdict, one.exit_code), found.document["findings"]
    assert tuple(found.document["ran"]) == one.ran
    assert found.codes[:1] == ([one.code] if one.code else [])
    return found


@pytest.mark.parametrize("one", PLAIN, ids=lambda one: one.name)
def test_a_pull_request_that_needs_no_compiler(project: Project, one: PullRequest) -> None:
    found = _judge(project, one)
    assert found.document["needed"] == []
    assert not any(found.states(each["name"]) for each in found.document["candidates"])


@pytest.mark.parametrize("one", ordinary(COMPILED, kept=2), ids=lambda one: one.name)
def test_a_plan_needs_no_compiler_and_holds_what_runs(project: Project, one: PullRequest) -> None:
    name = one.name.replace(" ", "-")
    project.pull(name, one.make(project), relock=one.relock)
    found = project.gate(name, "--explain")
    assert (found.document["verdict"], found.code, found.codes) == ("explained", 0, [])
    assert set(one.ran) <= set(found.document["needed"])


# 440 s of processor time with compiled units kept (2026-11-25): a profile value goes through as many gates.
LONGEST = ("new patch", "lock bump")


@pytest.mark.hip
@pytest.mark.slow
@pytest.mark.parametrize(
    "one",
    ordinary(COMPILED, [one for one in COMPILED if one.name not in LONGEST], pytest.mark.hours),
    ids=lambda one: one.name,
)
def test_a_pull_request_that_goes_through_the_gates(
    compiling_project: Project, one: PullRequest, tmp_path: Path
) -> None:
    found = _judge(compiling_project, one, "--reports", str(tmp_path / "reports"))
    states = found.states(one.candidate)
    assert {name for name, state in states.items() if state in ("passed", "failed")} == set(one.ran)
    assert {states[name] for name in ("backend-ops", "logits", "bench")} == {"not run"}
    written = {path.suffix for path in (tmp_path / "reports").iterdir()}
    assert {".json", ".md", ".sarif", ".xml"} <= written
    if one.name == "broken guard":
        _expect_the_line_and_whom_it_reaches(compiling_project, found, tmp_path / "reports")


def _expect_the_line_and_whom_it_reaches(project: Project, found, reports: Path) -> None:
    (finding,) = found.document["findings"]
    text = project.git("show", f"broken-guard:{DECODE}").splitlines()
    line = text.index('id = "skip-wmma-for-decode"') + 1
    assert finding["patch"] == [f"{DECODE}:{line}:1"]
    assert finding["leaks_into"] == ["hip gfx1030 host"]
    (result,) = json.loads((reports / "findings.sarif").read_text())["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == DECODE
    assert place["region"]["startLine"] == line
    assert "hip gfx1030 host" in result["message"]["text"]


@pytest.mark.hip
@pytest.mark.slow
def test_a_fork_that_carries_the_candidate_goes_through_the_gates(
    compiling_project: Project, tmp_path: Path
) -> None:
    project = compiling_project
    project.git("checkout", "-q", "-f", "main")
    where = ("--series-dir", str(project.root), "--cache-dir", str(project.cache))
    done = project.patchkit("apply", *where, "--arch", "gfx1151", "--json")
    assert done.returncode == 0, done.stderr
    applied = json.loads(done.stdout)
    fork = tmp_path / "fork.git"
    project.git("init", "-q", "--bare", str(fork))
    (fork / "objects" / "info" / "alternates").write_text(f"{project.cache / 'upstream.git' / 'objects'}\n")
    (fork / "shallow").write_text(f"{applied['base']}\n")
    project.git("update-ref", "refs/heads/main", applied["base"], at=fork)
    project.git("update-ref", "refs/heads/pr", applied["commits"][-1]["commit"], at=fork)
    found = project.gate("pr", "--repo", str(fork), *where[:2])
    assert (found.document["repository"], found.document["verdict"], found.code) == ("fork", "passed", 0)
    assert tuple(found.document["ran"]) == GATES
