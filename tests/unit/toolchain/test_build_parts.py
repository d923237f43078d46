"""Which files determine which part of a build, and how parts are assembled."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pytest

from patchkit.base.reporter import NullReporter
from patchkit.toolchain.cmake import follow, last_status
from patchkit.toolchain.parts import cpu_part, gpu_part, programs_part
from patchkit.toolchain.sides import (
    BuiltPart,
    Workshop,
    _collect_libraries,
    assemble,
    build_part,
    put_file,
)

FILES = (
    "CMakeLists.txt",
    "cmake/build-info.cmake",
    "src/llama.cpp",
    "tests/test-backend-ops.cpp",
    "ggml/CMakeLists.txt",
    "ggml/src/ggml.c",
    "ggml/src/ggml-backend.cpp",
    "ggml/src/ggml-cpu/ops.cpp",
    "ggml/src/ggml-cuda/fattn.cu",
    "ggml/src/ggml-hip/CMakeLists.txt",
    "ggml/src/ggml-vulkan/vk.cpp",
    "docs/build.md",
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    for name in FILES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    return root


def keys(tree: Path) -> dict[str, str]:
    return {
        "programs": programs_part(tree, build=6900, commit="c22473b58", compiler="c").key,
        "with tests": programs_part(tree, build=6900, commit="c22473b58", compiler="c", has_cpu=True).key,
        "cpu": cpu_part(tree, compiler="c").key,
        "hip": gpu_part(tree, "hip", entries={}, environment={}, compiler="c").key,
        "cuda": gpu_part(tree, "cuda", entries={}, environment={}, compiler="c").key,
    }


@pytest.mark.parametrize(
    ("changed", "parts"),
    [
        ("src/llama.cpp", {"programs", "with tests"}),
        ("tests/test-backend-ops.cpp", {"programs", "with tests"}),
        ("ggml/src/ggml.c", {"programs", "with tests", "cpu", "hip", "cuda"}),
        ("ggml/src/ggml-backend.cpp", {"programs", "with tests", "cpu", "hip", "cuda"}),
        ("CMakeLists.txt", {"programs", "with tests", "cpu", "hip", "cuda"}),
        ("ggml/src/ggml-cpu/ops.cpp", {"with tests", "cpu"}),
        ("ggml/src/ggml-cuda/fattn.cu", {"hip", "cuda"}),
        ("ggml/src/ggml-hip/CMakeLists.txt", {"hip"}),
        ("ggml/src/ggml-vulkan/vk.cpp", set()),
        ("docs/build.md", set()),
    ],
)
def test_a_file_changes_the_parts_that_read_it(tree: Path, changed: str, parts: set[str]) -> None:
    before = keys(tree)
    (tree / changed).write_text("changed")
    after = keys(tree)
    assert {name for name in before if before[name] != after[name]} == parts


def test_a_new_file_changes_a_part_too(tree: Path) -> None:
    before = keys(tree)
    (tree / "ggml/src/ggml-cuda/new.cuh").write_text("")
    after = keys(tree)
    assert {name for name in before if before[name] != after[name]} == {"hip", "cuda"}


def test_compiler_and_options_are_part_of_the_key(tree: Path) -> None:
    plain = gpu_part(tree, "hip", entries={}, environment={}, compiler="c")
    assert plain.key != gpu_part(tree, "hip", entries={}, environment={}, compiler="d").key
    assert plain.key != gpu_part(tree, "hip", entries={"X": True}, environment={}, compiler="c").key
    assert plain.key != gpu_part(tree, "hip", entries={}, environment={"X": "1"}, compiler="c").key
    assert plain.library == "ggml-hip"


def built(tmp_path: Path, name: str, files: dict[str, str], library: str | None) -> BuiltPart:
    folder = tmp_path / name
    (folder / "build/bin").mkdir(parents=True)
    for file, text in files.items():
        (folder / "build/bin" / file).write_text(text)
    tree = tmp_path / "empty"
    tree.mkdir(exist_ok=True)
    part = cpu_part(tree, compiler=name)
    if library is None:
        part = programs_part(tree, build=1, commit="c", compiler=name)
    return BuiltPart(part=part, folder=folder, seconds=0.0, uses_ccache=False)


def test_a_side_has_the_programs_the_libraries_and_its_own_backend(tmp_path: Path) -> None:
    programs = built(
        tmp_path,
        "programs",
        {"llama-bench": "b", "llama-cli": "c", "libllama.so": "l", "libggml-cpu.so": "of another part"},
        None,
    )
    cpu = built(tmp_path, "cpu", {"libggml-cpu.so": "cpu", "libggml-base.so": "not this one"}, "ggml-cpu")
    workshop = Workshop(cache_root=tmp_path, reporter=NullReporter())
    side = assemble("t", "cpu", [programs, cpu], ["llama-bench"], workshop)
    assert {path.name for path in side.folder.iterdir()} == {"llama-bench", "libllama.so", "libggml-cpu.so"}
    assert side.cpu.read_text() == "cpu"
    assert side.module == side.cpu
    more = assemble("t", "cpu", [programs, cpu], ["llama-bench", "llama-cli"], workshop)
    assert more.folder == side.folder
    assert more.program("llama-cli").read_text() == "c"


def test_files_are_linked_and_follow_a_new_build(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_text("one")
    put_file(source, target)
    assert target.samefile(source)
    source.unlink()
    source.write_text("two")
    put_file(source, target)
    assert target.read_text() == "two"
    link = tmp_path / "lib.so"
    link.symlink_to("lib.so.0")
    put_file(link, tmp_path / "there")
    assert (tmp_path / "there").readlink() == Path("lib.so.0")


def test_a_file_put_by_two_runs_is_always_complete(tmp_path: Path) -> None:
    target = tmp_path / "there" / "lib.so"
    target.parent.mkdir()
    sources = [tmp_path / name for name in ("one", "two")]
    for source in sources:
        source.write_text(source.name * 100_000)
    put_file(sources[0], target)
    whole = {source.read_text() for source in sources}
    with ThreadPoolExecutor(2) as pool:
        runs = [
            pool.submit(lambda each: [put_file(each, target) for _ in range(300)], each) for each in sources
        ]
        while not all(run.done() for run in runs):
            assert target.read_text() in whole
    for run in runs:
        run.result()
    assert [path.name for path in target.parent.iterdir()] == ["lib.so"]


def test_what_is_built_is_not_built_again(tmp_path: Path, tree: Path) -> None:
    part = cpu_part(tree, compiler="c")
    workshop = Workshop(cache_root=tmp_path, reporter=NullReporter())
    folder = workshop.root / part.folder_name
    folder.mkdir(parents=True)
    (folder / "built.json").write_text('["ggml-cpu"]')
    made = build_part(part, tree, ["ggml-cpu"], workshop)
    assert (made.seconds, made.folder) == (0.0, folder)
    assert not (folder / "build").exists()


def test_status_lines_of_ninja() -> None:
    assert last_status(b"[1/75] a\nfoo [9/9] x\n[12/75] b\nmore") == (12, 75)
    assert last_status(b"no status [1/2] here") is None


def test_progress_ignores_earlier_content_of_the_log(tmp_path: Path) -> None:
    log = tmp_path / "build.log"
    log.write_bytes(b"[75/75] of an earlier run\n")
    steps: list[tuple[int, int | None]] = []

    class Reporter(NullReporter):
        def progress(self, *_):
            return nullcontext(lambda done, total=None: steps.append((done, total)))

    with follow(log, Reporter(), "building"), log.open("ab") as file:
        file.write(b"[1/3] a\n[3/3] b\n")
    assert steps[-1] == (3, 3)
    assert (75, 75) not in steps


def test_libraries_of_other_folders_are_put_next_to_the_programs(tmp_path: Path) -> None:
    """ggml and whisper.cpp build only their programs in bin; a program finds its libraries by $ORIGIN."""
    for name in ("bin/test", "bin/libggml-cpu.so", "src/libggml.so.0.21.0", "ggml/src/libggml-base.so"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "src" / "libggml.so").symlink_to("libggml.so.0.21.0")
    _collect_libraries(tmp_path)
    found = {path.name: path.read_text() for path in (tmp_path / "bin").iterdir()}
    assert found == {
        "test": "bin/test",
        "libggml-cpu.so": "bin/libggml-cpu.so",
        "libggml.so": "src/libggml.so.0.21.0",
        "libggml.so.0.21.0": "src/libggml.so.0.21.0",
        "libggml-base.so": "ggml/src/libggml-base.so",
    }
    assert (tmp_path / "bin" / "libggml.so").is_symlink()
