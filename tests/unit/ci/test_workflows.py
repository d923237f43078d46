"""The workflows hold to their rules, and the rules can be broken."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
OURS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORK = ROOT / "ci" / "github" / "fork-pull-request.yml"
WEEK = ROOT / "ci" / "github" / "fork-week.yml"
COPIED = [FORK, WEEK]
GITLAB = sorted((ROOT / "ci" / "gitlab").glob("*.yml"))
_PINNED = re.compile(r"[\w.-]+/[\w.-]+(/[\w./-]+)?@[0-9a-f]{40}")
_WRITES = {
    ("canary.yml", "report", "issues"),
    ("fork-week.yml", "tell", "issues"),
}  # every right to write that there is
_SECRETS = {"release.yml"}


class _Loader(yaml.SafeLoader):
    """YAML 1.1 takes the key ``on`` for true; GitHub does not."""


_Loader.yaml_implicit_resolvers = {
    letter: [(tag, regexp) for tag, regexp in rows if tag != "tag:yaml.org,2002:bool"]
    for letter, rows in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _load(path: Path) -> dict[str, Any]:
    return yaml.load(path.read_text("utf-8"), _Loader)


def complaints(name: str, text: str) -> Iterator[str]:
    """What breaks a rule in one workflow."""
    workflow = yaml.load(text, _Loader)
    events = workflow["on"]
    if "pull_request_target" in events:
        yield "pull_request_target runs with secrets on what strangers send"
    if "permissions" not in workflow:
        yield "no permissions: the token may do whatever the repository's default says"
    callable_only = set(events) == {"workflow_call"}
    if not callable_only and "concurrency" not in workflow:
        yield "no concurrency: runs pile up"
    if "secrets." in text and name not in _SECRETS:
        yield "a secret"
    if "secrets: inherit" in text:
        yield "every secret"
    for job_name, job in workflow["jobs"].items():
        rights = {**_rights(workflow.get("permissions")), **_rights(job.get("permissions"))}
        for right, value in rights.items():
            if value == "write" and (name, job_name, right) not in _WRITES:
                yield f"{job_name} may write {right}"
        yield from _of_job(name, job_name, job, events)


def _rights(value: Any) -> dict[str, str]:
    return {"everything": "write"} if value == "write-all" else value if isinstance(value, dict) else {}


def _of_job(name: str, job_name: str, job: dict[str, Any], events: dict[str, Any]) -> Iterator[str]:
    if "uses" in job:
        if not job["uses"].startswith("./") and not _PINNED.fullmatch(job["uses"]):
            yield f"{job_name} calls {job['uses']}, which is not pinned"
        return
    if "timeout-minutes" not in job:
        yield f"{job_name} has no time limit"
    if "self-hosted" in str(job.get("runs-on")) and "pull_request" in events:
        yield f"{job_name} runs a pull request on a machine of ours, whoever sent it"
    for step in job["steps"]:
        uses = step.get("uses", "")
        if uses and not _PINNED.fullmatch(uses):
            yield f"{job_name} uses {uses}, which is not pinned by a full commit"
        if (
            uses.startswith("actions/checkout@")
            and step.get("with", {}).get("persist-credentials") != "false"
        ):
            yield f"{job_name} leaves its token in the clone"
        if "${{" in step.get("run", ""):
            yield f"{job_name} writes a value into a script, where it can be code: hand it over in env"


@pytest.mark.parametrize("path", [*OURS, *COPIED], ids=lambda path: path.name)
def test_a_workflow_keeps_the_rules(path: Path) -> None:
    assert list(complaints(path.name, path.read_text("utf-8"))) == []


_BAD = [
    ("on:\n  pull_request:", "on:\n  pull_request_target:", "pull_request_target"),
    ("permissions:\n  contents: read\n", "", "no permissions"),
    ("permissions:\n  contents: read\n", "permissions: write-all\n", "may write everything"),
    ("permissions:\n  contents: read\n", "permissions:\n  contents: write\n", "may write contents"),
    ("@3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1", "@v7", "not pinned"),
    ("          persist-credentials: false\n", "", "leaves its token"),
    ("- run: .ci/run", "- run: echo ${{ github.head_ref }}", "hand it over in env"),
    ("    timeout-minutes: 60\n", "", "no time limit"),
    ("runs-on: ubuntu-24.04", "runs-on: [self-hosted]", "on a machine of ours"),
    ("concurrency:", "x-concurrency:", "no concurrency"),
    ("- run: .ci/run", "- run: .ci/run\n        env: {TOKEN: '${{ secrets.TOKEN }}'}", "a secret"),
]


@pytest.mark.parametrize(("old", "new", "says"), _BAD, ids=[row[2] for row in _BAD])
def test_a_rule_that_is_broken_is_told(old: str, new: str, says: str) -> None:
    text = (ROOT / ".github" / "workflows" / "pull-request.yml").read_text("utf-8")
    assert old in text
    assert any(says in one for one in complaints("pull-request.yml", text.replace(old, new, 1)))


def test_only_the_tests_of_the_project_run_code_of_the_head() -> None:
    jobs = _load(ROOT / ".github" / "workflows" / "pull-request.yml")["jobs"]
    head = "${{ github.event.pull_request.head.sha }}"
    checked_out = [
        name
        for name, job in jobs.items()
        for step in job.get("steps", ())
        if step.get("with", {}).get("ref") == head
    ]
    assert checked_out == ["own-tests"]
    assert {job["with"]["tool-ref"] for job in jobs.values() if "uses" in job} == {
        "${{ github.event.pull_request.base.sha }}"
    }
    for name in ("ladder-no-gpu.yml", "ladder-gpu.yml"):
        (job,) = _load(ROOT / ".github" / "workflows" / name)["jobs"].values()
        refs = [step["with"]["ref"] for step in job["steps"] if "ref" in step.get("with", {})]
        assert refs == ["${{ inputs.tool-ref }}", "${{ inputs.base }}"]


def test_machines_of_ours_take_branches_of_this_repository_only() -> None:
    gpu = _load(ROOT / ".github" / "workflows" / "pull-request.yml")["jobs"]["gpu"]
    assert "github.event.pull_request.head.repo.full_name == github.repository" in gpu["if"]
    assert gpu["needs"] == ["gate", "own-tests"]


def test_the_right_to_write_issues_is_not_where_upstreams_code_runs() -> None:
    for path, runs, tells in (
        (ROOT / ".github" / "workflows" / "canary.yml", "bump", "report"),
        (WEEK, "week", "tell"),
    ):
        jobs = _load(path)["jobs"]
        assert jobs[runs]["permissions"] == {"contents": "read"}
        steps = [step.get("run", "").replace("canary_issue", "") for step in jobs[tells]["steps"]]
        assert not any("patchkit" in step or "week.sh" in step for step in steps)


def test_every_workflow_here_is_listed_in_the_document() -> None:
    text = (ROOT / "docs" / "reference" / "pull-requests.md").read_text("utf-8")
    for path in (*OURS, *COPIED, *GITLAB, *(ROOT / "ci" / "shell").glob("*.sh")):
        assert path.relative_to(ROOT).as_posix() in text


def test_one_action_has_one_version_everywhere() -> None:
    found: dict[str, set[str]] = {}
    for path in (*OURS, WEEK):
        for uses in re.findall(r"uses: (actions/[\w-]+)(?:/\w+)?@(\S+)", path.read_text("utf-8")):
            found.setdefault(uses[0], set()).add(uses[1])
    assert found
    assert {name: len(versions) for name, versions in found.items()} == dict.fromkeys(found, 1)


def _program(name: str, *args: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).parent / name
    assert program.is_file(), f"{name} is a part of the extra 'dev'"
    return subprocess.run([str(program), *args], capture_output=True, text=True, check=False)


def test_github_takes_them() -> None:
    done = _program(
        "check-jsonschema", "--builtin-schema", "vendor.github-workflows", *map(str, [*OURS, *COPIED])
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", GITLAB, ids=lambda path: path.name)
def test_gitlab_takes_it(path: Path) -> None:
    transform = ("--builtin-schema", "vendor.gitlab-ci", "--data-transform", "gitlab-ci")
    done = _program("check-jsonschema", *transform, str(path))
    assert done.returncode == 0, done.stdout


def test_the_auditor_of_workflows_finds_nothing(tmp_path: Path) -> None:
    args = ["--offline", "--quiet", "--no-progress", "--persona=pedantic", "--min-severity=medium"]
    done = _program("zizmor", *args, *map(str, [*OURS, *COPIED]))
    assert done.returncode == 0, done.stdout
    evil = tmp_path / "evil.yml"
    evil.write_text(
        "on: pull_request_target\njobs:\n  a:\n    runs-on: ubuntu-24.04\n    steps:\n"
        "      - run: echo ${{ github.event.pull_request.title }}\n"
    )
    assert _program("zizmor", *args, str(evil)).returncode != 0


@pytest.mark.extra_tools
@pytest.mark.parametrize("path", sorted((ROOT / "ci" / "shell").glob("*.sh")), ids=lambda path: path.name)
def test_a_script_is_one_that_a_shell_reads(path: Path) -> None:
    assert path.stat().st_mode & 0o111
    done = subprocess.run(["bash", "-n", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
