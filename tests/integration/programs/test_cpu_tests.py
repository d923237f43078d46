"""Gates cpu-build and cpu-tests on the real pin: plain patches that break a test, the build, or nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from patchkit.carry.placing.context import make_guard
from patchkit.prove.gates.cpu_build import CpuBuildGate
from patchkit.prove.gates.cpu_tests import CpuTestsGate
from patchkit.prove.subject import PatchPart, Subject

pytestmark = [pytest.mark.cpu_build, pytest.mark.slow]

FILE = "common/regex-partial.cpp"
PARTIAL = "res.type = COMMON_REGEX_MATCH_TYPE_PARTIAL;"


@pytest.fixture
def plain(plant):
    """A candidate of one plain patch, ``planted``, in the matcher of incomplete texts."""

    def make(old: str, new: str, file: str = FILE) -> Subject:
        subject = plant(old, new, file)
        (*_, part) = subject.patches
        free = tuple(replace(edit, side=None, pairs=()) for edit in part.patch.edits if edit.text)
        patch = replace(part.patch, id="planted", guard="none", edits=free, aliases=())
        only = PatchPart(
            patch=patch, commit=part.commit, guard=make_guard("none", []), touched=(file,), new_files=()
        )
        return replace(subject, patches=(only,))

    return make


def test_what_breaks_a_test_of_upstreams_is_blamed_and_only_this_gate_sees_it(plain) -> None:
    subject = plain(PARTIAL, PARTIAL.replace("PARTIAL;", "FULL;"))
    result = CpuTestsGate().run(subject)
    assert result.verdict == "failed"
    codes = {(problem.code, problem.where[0].path, problem.where[0].label) for problem in result.problems}
    assert codes == {("CPU_TESTS_WORSE", FILE, "planted")}
    assert "upstream's test-regex-partial fails" in "\n".join(each.message for each in result.problems)
    (row,) = (one for one in result.evidence.tests if one.name == "test-regex-partial")
    assert (row.passed, row.baseline_passed, row.about) == (False, True, (FILE,))


def test_what_breaks_nothing_passes(plain) -> None:
    subject = plain(PARTIAL, f"{PARTIAL} // as ever")
    built = CpuBuildGate().run(subject)
    assert (built.verdict, built.evidence.targets, built.not_run) == ("passed", ("common",), ())
    result = CpuTestsGate().run(subject)
    assert result.verdict == "passed"
    assert "test-regex-partial" in {one.name for one in result.evidence.tests}


def test_what_no_compiler_reads_has_not_been_built(plain) -> None:
    """A header of a backend that no CPU build has: its library builds, and says nothing of it."""
    subject = plain(PARTIAL, f"{PARTIAL} // as ever")
    (part,) = subject.patches
    header = "ggml/include/ggml-rpc.h"
    result = CpuBuildGate().run(replace(subject, patches=(replace(part, touched=(header,)),)))
    assert (result.verdict, result.not_run) == ("not run", (f"{header}: no compiler read it",))


def test_what_does_not_build_is_told_with_its_patch(plain) -> None:
    result = CpuBuildGate().run(plain(PARTIAL, f"{PARTIAL} nothing_like_that();"))
    assert result.verdict == "failed"
    (problem,) = result.problems
    assert (problem.code, problem.where[0].path) == ("CANDIDATE_BUILD_FAILED", FILE)
    assert problem.where[0].label == "planted"


def test_what_cmake_refuses_of_the_candidate_alone_is_told_with_its_patch(plain) -> None:
    manifest = "ggml/src/CMakeLists.txt"
    subject = plain("include(CheckCXXCompilerFlag)", "include(NothingLikeThat)", manifest)
    result = CpuBuildGate().run(subject)
    assert result.verdict == "failed"
    (problem,) = result.problems
    assert (problem.code, problem.where[0].path) == ("CANDIDATE_BUILD_FAILED", manifest)
    assert problem.where[0].label == "planted"
    assert "NothingLikeThat" in problem.why
