"""What isolation looks at before any compiler runs: unit lists, reach, configurations, host variants."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from toolchains import toolchain_in

from patchkit.prove.gates.isolation import gate as isolation
from patchkit.prove.gates.isolation.evidence import Compared
from patchkit.prove.gates.isolation.host_branch import HostExpressionForeign, closed_tree, dead_tree
from patchkit.prove.gates.isolation.readings import (
    Configuration,
    ReadUnit,
    cuda_configurations,
    hip_configurations,
    musa_configurations,
    stand_in_headers,
)
from patchkit.prove.gates.touched import touched_units
from patchkit.toolchain.units import SourceTree

UNIT = "ggml/src/ggml-cuda/k.cu"
_REGION = "#if defined(GGML_USE_HIP) && (!defined(__HIP_DEVICE_COMPILE__) || defined(__gfx1151__))"
_LISTS = {
    f"ggml/src/ggml-{name}/CMakeLists.txt": 'file(GLOB SRCS "../ggml-cuda/*.cu")\n'
    for name in ("cuda", "hip", "musa")
}


def test_a_new_unit_is_a_change_of_every_build(make_subject) -> None:
    extra = "ggml/src/ggml-cuda/new.cu"
    subject = make_subject({**_LISTS, UNIT: ""}, {**_LISTS, UNIT: "", extra: ""}, touched=(extra,))
    trees = SourceTree(subject.baseline), SourceTree(subject.candidate)
    problems = list(isolation._lists(subject, trees))
    assert [problem.code for problem in problems] == ["ISOLATION_UNITS"] * 3
    assert problems[0].message.startswith(f"the candidate adds {extra}")
    assert problems[0].where[0].label == "my-patch"


def test_all_gates_read_the_same_trees_and_another_subject_has_its_own(make_subject, tmp_path: Path) -> None:
    subject = make_subject({UNIT: ""}, {UNIT: "int a;\n"})
    assert [tree.root for tree in subject.trees] == [subject.baseline, subject.candidate]
    assert all(one is other for one, other in zip(subject.trees, subject.trees, strict=True))
    moved = replace(subject, candidate=tmp_path)
    assert [tree.root for tree in moved.trees] == [subject.baseline, tmp_path]


def test_of_the_instances_of_one_template_that_patches_edit_one_is_compiled_for_other_gpus(
    make_subject,
) -> None:
    folder = "ggml/src/ggml-cuda"
    before = {f"{folder}/{name}.cu": '#include "k.cuh"\nCASE(1);\n' for name in "ab"}
    before |= {f"{folder}/k.cuh": "", f"{folder}/c.cu": "int c;\n", f"{folder}/d.cu": '#include "k.cuh"\n'}
    touched = tuple(f"{folder}/{name}.cu" for name in "abc")
    after = before | {path: f'#include "own.cuh"\n#if X\n#endif\n{before[path]}' for path in touched}
    subject = make_subject(before, after, touched=touched)
    units = [path for path in sorted(before) if path.endswith(".cu")]
    assert isolation._sampled_units(subject, units) == [f"{folder}/a.cu", f"{folder}/c.cu"]


def test_a_changed_file_that_nothing_includes_is_a_problem(make_subject) -> None:
    files = {**_LISTS, UNIT: '#include "k.cuh"\n', "ggml/src/ggml-cuda/k.cuh": "", "ggml/src/ggml.c": ""}
    subject = make_subject(files, files, touched=("ggml/src/ggml-cuda/k.cuh", "ggml/src/ggml.c"))
    trees = SourceTree(subject.baseline), SourceTree(subject.candidate)
    touched = {"hip": touched_units(subject)}
    assert touched == {"hip": (UNIT,)}
    (problem,) = isolation._unreached(subject, trees, touched)
    assert problem.where[0].path == "ggml/src/ggml.c"


def test_every_configuration_has_a_name_of_its_own(tmp_path: Path, make_subject) -> None:
    hip = list(
        hip_configurations(toolchain_in(tmp_path), ["gfx1100", "gfx1151", "gfx906"], host_arch="gfx1151")
    )
    every = [*cuda_configurations(tmp_path), *musa_configurations(tmp_path), *hip]
    assert len({one.name for one in every}) == len(every) == 4 + 4 + 8
    # The stand-in knows gfx1151 only; the one build has its folder for the others, too.
    on = next(one for one in hip if one.arch == "gfx906" and one.rocwmma)
    assert any(flag.endswith("standin") for flag in on.flags)
    assert "-DGGML_HIP_ROCWMMA_FATTN" in on.flags
    off = next(one for one in hip if one.arch == "gfx906" and not one.rocwmma)
    assert "-DGGML_HIP_ROCWMMA_FATTN" not in off.flags
    # A guard that asks for rocWMMA opens nothing without it; one that does not is live in both.
    with_rocwmma = make_subject(macros=("GGML_USE_HIP", "GGML_HIP_ROCWMMA_FATTN"))

    def opened(subject, configurations, unit="fattn.cu"):
        reached = {patch.id: frozenset({"fattn.cu"}) for patch in subject.patches}
        return [one.name for one in configurations if isolation._is_open(subject, one, unit, reached)]

    open_ = opened(with_rocwmma, hip)
    assert open_ == ["hip gfx1151 device, rocWMMA on", "hip all host, rocWMMA on"]
    both = opened(make_subject(), every)
    assert both == [*open_, "hip gfx1151 device, rocWMMA off", "hip all host, rocWMMA off"]
    # In device code, only for units that read a file of the patch.
    assert opened(with_rocwmma, hip, "norm.cu") == ["hip all host, rocWMMA on"]
    host = [one.name for one in every if one.which == "host" and isolation._live(with_rocwmma, one)]
    assert host == ["hip all host, rocWMMA on"]


def test_readings_that_rocwmma_does_not_change_are_compiled_once() -> None:
    on, off = (
        Configuration(platform="hip", arch="all", which="host", rocwmma=rocwmma, flags=())
        for rocwmma in (True, False)
    )

    def read(configuration: Configuration, before: str, after: str) -> ReadUnit:
        return ReadUnit(configuration=configuration, unit="a.cu", before=before, after=after)

    assert len(isolation._distinct([read(on, "1", "2"), read(off, "1", "2")])) == 1
    assert len(isolation._distinct([read(on, "1", "2"), read(off, "3", "4")])) == 2


def test_stand_ins_are_for_vendor_headers_only(tmp_path: Path) -> None:
    names = ["cuda_runtime.h", "vector", "mma.h", "stdint.h", "musa_fp16.h", "cub/cub.cuh", "hip/hip_fp16.h"]
    folder, made = stand_in_headers(names, tmp_path)
    assert made == ("cub/cub.cuh", "cuda_runtime.h", "mma.h", "musa_fp16.h")
    assert all((folder / name).is_file() for name in made)
    assert stand_in_headers(names, tmp_path) == (folder, made)
    assert stand_in_headers(["mma.h"], tmp_path)[0] != folder


@pytest.fixture
def branch(make_subject):
    def make(expression: str):
        lines = ["int a;", _REGION, f"if ({expression} && x) {{ b(); }}", "#endif", "int c;", ""]
        author = (None, "my-patch", "my-patch", "my-patch", None)
        text = "\n".join(lines)
        return make_subject({UNIT: "int a;\nint c;\n"}, {UNIT: text}, authors={UNIT: author})

    return make


def test_a_closed_region_and_a_dead_branch_change_nothing_else(branch) -> None:
    subject = branch("(cc == GGML_CUDA_CC_OFFSET_AMD + 0x1151)")
    text = (subject.candidate / UNIT).read_text()
    assert (closed_tree(subject) / UNIT).read_text() == text.replace(_REGION, "#if 0")
    dead = (dead_tree(subject) / UNIT).read_text()
    assert dead == text.replace("(cc == GGML_CUDA_CC_OFFSET_AMD + 0x1151)", "(false)")
    assert (subject.candidate / UNIT).read_text() == text


def test_a_gpu_outside_of_the_guards_is_named(branch) -> None:
    with pytest.raises(HostExpressionForeign, match=r"tests for 0x1100 \(gfx1100\)") as caught:
        dead_tree(branch("(cc == GGML_CUDA_CC_OFFSET_AMD + 0x1100)"))
    assert str(caught.value.where[0]) == f"{UNIT}:3"


def test_a_difference_of_assembly_names_the_function() -> None:
    before = "head:\n one\nfirst:\n two\n.LBB0_1:\n three\n"
    compared = Compared.of(UNIT, "gfx1151", before, before.replace("three", "four"))
    assert not compared.equal
    assert compared.difference == "in first: 'three' became 'four'"
    assert Compared.of(UNIT, "gfx1151", before, before).equal
    assert Compared.of(UNIT, "gfx1151", before, before + " more\n").difference == "6 lines became 7"


def test_what_a_plain_patch_removes_was_in_units_of_the_baseline(make_subject) -> None:
    gone = "ggml/src/ggml-cuda/gone.cuh"
    before = {**_LISTS, UNIT: '#include "gone.cuh"\n', gone: ""}
    subject = make_subject(before, {**_LISTS, UNIT: ""}, touched=(gone,))
    declared = isolation._declared(subject.patches[0], subject)
    assert (declared.files, declared.units) == ((gone,), (UNIT,))
