"""Gates cpu-build and cpu-tests: which targets and tests are about a plain patch.

tests/integration/programs builds and runs them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from patchkit.carry.series.patch import GuardMacros
from patchkit.prove.gates.cpu_build import CpuBuildGate, find_unread, host_files, targets_of
from patchkit.prove.gates.cpu_tests import CpuTestsGate, choose_tests
from patchkit.toolchain.ctests import UpstreamTest

TREE = {
    "tests/test-grammar.cpp": '#include "../src/llama-grammar.h"\n#include <vector>\n',
    "tests/test-chat.cpp": '#include "chat.h"\n',
    "tests/test-model.cpp": '#include "llama-grammar.h"\n',
    "common/CMakeLists.txt": "set(TARGET build-info)\nset(TARGET llama-common)\n",
    "tools/server/CMakeLists.txt": "set(TARGET llama-server)\n",
    "tools/odd/CMakeLists.txt": "add_subdirectory(more)\n",
}
TESTS = [
    UpstreamTest(name="test-grammar", program="test-grammar", labels=("main",), needs=()),
    UpstreamTest(name="test-chat", program="test-chat", labels=("main",), needs=()),
    UpstreamTest(name="test-model", program="test-model", labels=("model",), needs=()),
    UpstreamTest(name="test-chat-big", program="test-chat", labels=("main",), needs=("download",)),
    UpstreamTest(name="test-script", program=None, labels=("main",), needs=()),
]


@pytest.fixture
def plain(make_subject):
    """A subject of one plain patch that changes the files asked for."""

    def make(*files: str):
        subject = make_subject(after=TREE, touched=files)
        (part,) = subject.patches
        free = tuple(replace(edit, side=None, pairs=()) for edit in part.patch.edits if edit.text)
        patch = replace(part.patch, guard="none", edits=free, aliases=())
        return replace(subject, patches=(replace(part, patch=patch),))

    return make


def test_a_guarded_patch_is_no_matter_of_it(make_subject) -> None:
    subject = make_subject(after=TREE, touched=("ggml/src/ggml-cuda/k.cu",))
    assert isinstance(subject.patches[0].patch.guard, GuardMacros)
    for gate in (CpuBuildGate(), CpuTestsGate()):
        result = gate.run(subject)
        assert (result.gate, result.verdict, result.summary) == (
            gate.name,
            "not run",
            "no unguarded patch changes what is built for the CPU",
        )


def test_without_a_compiler_nothing_has_passed(
    plain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for gate in (CpuBuildGate(), CpuTestsGate()):
        result = gate.run(plain("src/llama-grammar.cpp"))
        assert (result.verdict, result.not_run) == ("not run", ("all of it",))
        assert "requires a C and C++ compiler (install" in result.summary


def test_what_no_compiler_read_is_told_but_not_what_is_gone_or_read_by_cmake(plain) -> None:
    files = ("common/CMakeLists.txt", "src/gone.cpp", "tests/test-chat.cpp", "tests/test-grammar.cpp")
    subject = plain(*files)
    assert find_unread(files, {"tests/test-grammar.cpp"}, subject) == ("tests/test-chat.cpp",)


def test_tests_alone_are_nothing_to_build_without_them(plain) -> None:
    result = CpuBuildGate().run(plain("tests/test-chat.cpp"))
    assert (result.verdict, result.summary) == (
        "not run",
        "only upstream's tests change: gate cpu-tests builds them",
    )


def test_what_no_cpu_build_reads_is_left_to_others(plain) -> None:
    files = ("README.md", "scripts/x.py", "ggml/src/ggml-cuda/k.cu", "src/llama-grammar.cpp")
    assert host_files(plain(*files)) == ("src/llama-grammar.cpp",)
    assert CpuTestsGate().run(plain(*files[:3])).verdict == "not run"


def test_each_file_is_of_a_target(plain) -> None:
    files = {
        "common/log.cpp": "llama-common",
        "src/llama.cpp": "llama",
        "ggml/src/ggml-cpu/ops.cpp": "ggml-cpu",
        "ggml/src/ggml.c": "ggml",
        "CMakeLists.txt": "llama-common",
        "tools/server/server.cpp": "llama-server",
        "tools/odd/odd.cpp": "llama-common",
        "tests/test-chat.cpp": None,
    }
    subject = plain(*files)
    for path, target in files.items():
        assert targets_of(subject, [path]) == ((target,) if target else ())


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("src/llama-grammar.cpp", ["test-grammar"]),
        ("src/llama-grammar.h", ["test-grammar"]),
        ("common/chat.cpp", ["test-chat"]),
        ("tests/test-chat.cpp", ["test-chat"]),
        ("common/log.cpp", []),
    ],
)
def test_a_test_is_about_what_its_source_names(plain, path: str, names: list[str]) -> None:
    chosen, left = choose_tests(TESTS, [path], plain(path), every_test=False)
    assert [test.name for test in chosen] == names
    # What is not run is said, with the reason: a model, a download, or that no test is about the file.
    told = "\n".join(left)
    assert ("test-model: it needs a model" in told) is ("grammar" in path)
    assert ("test-chat-big: it needs download" in told) is ("chat" in path)
    assert (f"{path}: no test of upstream includes it" in told) is (not names)


def test_every_test_is_each_that_needs_neither_model_nor_network(plain) -> None:
    chosen, left = choose_tests(TESTS, ["common/log.cpp"], plain("common/log.cpp"), every_test=True)
    assert [test.name for test in chosen] == ["test-grammar", "test-chat"]
    assert len(left) == 2
