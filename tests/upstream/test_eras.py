"""The later eras on their real trees: what the lock records, what a user is told, both sides of each knob.

The trees come from the cache that the corpus uses, so nothing is downloaded twice.
"""

from __future__ import annotations

import json
import re
import subprocess

import pytest
from command_line import run_patchkit
from filelock import FileLock
from shipped import LOCK, ROOT, recorded
from thorough import ordinary

from patchkit.base.reporter import NullReporter
from patchkit.carry.series.catalogue import load_series
from patchkit.carry.upstream.cache import open_cache
from patchkit.carry.upstream.exported import export_tree
from patchkit.toolchain.hip import hip_flags

pytestmark = [pytest.mark.upstream, pytest.mark.network]

SERIES = load_series(ROOT / "patches")
LATER = [result for result in LOCK.results if result.pin != LOCK.default]
LATER_NAMES = [f"b{result.build}-{'+'.join(result.archs)}-{len(result.patches)}" for result in LATER]


@pytest.fixture
def patchkit(test_cache):
    """Runs a command on the corpus's cache; gives its stdout and stderr."""

    def run(*args):
        with FileLock(test_cache / "corpus.lock"):
            done = run_patchkit(*args, "--cache-dir", test_cache / "corpus")
        assert done.returncode == 0, done.stderr
        return done.stdout, done.stderr

    return run


@pytest.fixture
def strix_halo_tree(patchkit, test_cache, tmp_path):
    """The candidate's for gfx1151 at build 11549."""
    out, _ = patchkit("apply", "--json", "--arch", "gfx1151", "--upstream", "b11549")
    repository = open_cache(test_cache / "corpus").peek(NullReporter())
    return export_tree(repository, json.loads(out)["commits"][-1]["commit"], tmp_path).root


def test_each_era_has_a_recorded_result():
    assert recorded("gfx1200", 11549).patches == ("mmvq-decode-warps",)
    assert recorded("gfx1151", 10068).patches == ("patch-switches", "integrated-host-buffers")
    assert set(recorded("gfx1151", 11549).patches) >= {"mmq-batch-limits", "mmq-tile-config"}
    # A series that is empty by default is recorded, too.
    empty = recorded("gfx1100", 10068)
    assert (empty.patches, empty.tree) == ((), LOCK.pin("b10068").tree)


@pytest.mark.parametrize(
    "result", ordinary(LATER, [one for one in LATER if len(one.patches) <= 2]), ids=LATER_NAMES
)
def test_the_result_is_the_one_the_lock_records(patchkit, result):
    asked = [f"--arch={arch}" for arch in result.archs] + [f"--with={name}" for name in result.patches]
    out, _ = patchkit("apply", "--json", "--upstream", str(result.build), *asked)
    applied = json.loads(out)
    assert applied["lock_state"] == "as the lock records"
    assert applied["tree"] == result.tree
    assert [made["id"] for made in applied["commits"]] == list(result.patches)
    # The option exists up to build 10068, and is on for the patches that are about it alone; what upstream
    # does not have is not asked of its CMake.
    about = {patch.id for patch in SERIES.patches if "GGML_HIP_ROCWMMA_FATTN" in patch.macros}
    value = "ON" if about & {*result.patches} else "OFF"
    said = [option for option in applied["cmake"] if "ROCWMMA" in option]
    assert said == ([f"-DGGML_HIP_ROCWMMA_FATTN={value}"] if result.build <= 10068 else [])
    assert "-DGGML_HIP=ON" in applied["cmake"]


@pytest.mark.parametrize("name", ordinary(["B11549", "b11549", "11549"], kept=1))
def test_a_pin_goes_by_its_number_with_and_without_the_letter(patchkit, name):
    out, _ = patchkit("plan", "--json", "--arch", "gfx1151", "--upstream", name)
    assert json.loads(out)["pin"]["build"] == 11549


def test_a_patch_asked_for_outside_its_era_is_said_on_stderr(patchkit):
    asked = ("--with", "wmma-tile-params", "--with", "mmvq-batch-limits")
    out, err = patchkit("plan", "--json", "--arch", "gfx1151", "--upstream", "b11549", *asked)
    states = {patch["id"]: patch["state"] for patch in json.loads(out)["patches"]}
    assert states["wmma-tile-params"] == "skipped"
    assert states["mmvq-batch-limits"] == "apply"
    assert "requested, but not applied: wmma-tile-params, not for this build: b6900 to b9093 only" in err
    assert "mmvq-batch-limits, " not in err


@pytest.mark.thorough
def test_both_sides_of_each_knob_read_the_profile(patchkit):
    asked = [f"--with={name}" for name in ("fattn-tile-config", "mmq-tile-config")]
    out, _ = patchkit("plan", "--json", "--arch", "gfx1151", "--upstream", "b11549", *asked)
    text = {edit["id"]: edit["text"] for patch in json.loads(out)["patches"] for edit in patch["edits"]}
    row = "GGML_CUDA_FATTN_TILE_CONFIG_CASE(256, 256, 32, 256, 3, 64, 64)"
    assert row in text["host-rows"]
    assert row in text["device-rows"]
    tuned = "return ggml_cuda_mmq_tuned_gfx1151(ggml_cuda_mmq_get_config_rdna3_5(type, J, fallback));"
    assert tuned in text["host-config"]
    assert tuned in text["device-config"]
    assert "GGML_CUDA_CC_OFFSET_AMD + 0x1151" in text["host-config"]
    assert "GGML_CUDA_CC" not in text["device-config"]


@pytest.mark.thorough
def test_two_rdna4_gpus_share_one_patch_and_each_has_its_guard(patchkit):
    asked = ("--arch", "gfx1200", "--arch", "gfx1201", "--with", "mmvq-decode-warps")
    out, _ = patchkit("plan", "--json", "--upstream", "b11549", *asked)
    (patch,) = (patch for patch in json.loads(out)["patches"] if patch["state"] == "apply")
    assert patch["targets"] == ["gfx1200", "gfx1201"]
    text = {edit["id"]: edit["text"] for edit in patch["edits"]}
    for arch, id_ in (("gfx1200", "MMVQ_PARAMETERS_GFX1200"), ("gfx1201", "MMVQ_PARAMETERS_GFX1201")):
        number = f"GGML_CUDA_CC_OFFSET_AMD + 0x{arch[3:]}"
        assert f"{id_} = {number}," in text["table-id"]
        assert f"#if defined(__{arch}__)\nreturn {id_};" in text["device-table"]
        assert f"if (cc == {number}) {{\n    return {id_};" in text["host-table"]
        # Each GPU's rows stand once, and are asked for by no other table's name.
        assert text["rows"].count(f"if (table_id == {number})") == 1
    assert text["rows"].count("return 3;") == 2


@pytest.mark.hip
def test_a_generic_target_is_an_error_where_the_host_chooses_by_the_exact_gpu(
    hip_toolchain, strix_halo_tree, tmp_path
):
    unit = strix_halo_tree / "ggml/src/ggml-cuda/template-instances/mmq-instance-q4_k.cu"
    device = ["-x", "hip", "--offload-device-only", "-nogpulib", "-std=c++17", "-E", "-DGGML_USE_HIP"]
    includes = [f"-I{strix_halo_tree / name}" for name in ("ggml/include", "ggml/src", "ggml/src/ggml-cuda")]
    told = {}
    for arch in ("gfx1151", "gfx1100", "gfx11-generic"):
        argv = [hip_toolchain.clang, *device, f"--rocm-path={hip_toolchain.root}", f"--offload-arch={arch}"]
        done = subprocess.run(
            [*argv, *includes, unit, "-o", tmp_path / arch], check=False, capture_output=True, text=True
        )
        told[arch] = (done.returncode, done.stderr)
    assert told["gfx1151"] == told["gfx1100"] == (0, "")
    code, why = told["gfx11-generic"]
    assert code == 1
    assert "the host chooses this by the exact GPU: compile for gfx1151" in why


@pytest.mark.hip
def test_a_unit_whose_kernels_need_rows_that_it_does_not_include_does_not_compile(
    hip_toolchain, strix_halo_tree, tmp_path
):
    includes = [f"-I{strix_halo_tree / name}" for name in ("ggml/include", "ggml/src", "ggml/src/ggml-cuda")]
    said = {}
    for kind in ("Q4_K", "Q4_1"):
        unit = tmp_path / f"{kind}.cu"
        unit.write_text(f'#include "mmq.cuh"\nDECL_MMQ_CASE(GGML_TYPE_{kind});\n')
        for arch in ("gfx1151", "gfx1150"):
            flags = [*hip_flags(hip_toolchain, arch, which="device"), "-DGGML_USE_HIP", "-DGGML_HIP_NO_VMM"]
            argv = [hip_toolchain.clang, *flags, *includes, "-w", "-fsyntax-only", unit]
            done = subprocess.run(argv, check=False, capture_output=True, text=True)
            said[kind, arch] = "ggml_cuda_mmq_rows_not_included" in done.stderr if done.returncode else ""
    # What rows there are by type, and for which GPU.
    assert said == {key: key == ("Q4_K", "gfx1151") or "" for key in said}


@pytest.fixture
def code_of(hip_toolchain, patchkit, test_cache, tmp_path):
    """The assembly of a matrix kernel for a GPU, of the candidate for gfx1151 with these opt-in patches."""

    def compiled(kernel, arch, *with_):
        asked = [word for name in with_ for word in ("--with", name)]
        out, _ = patchkit("apply", "--json", "--arch", "gfx1151", "--upstream", "b11549", *asked)
        repository = open_cache(test_cache / "corpus").peek(NullReporter())
        root = export_tree(repository, json.loads(out)["commits"][-1]["commit"], tmp_path).root
        unit = tmp_path / "one.cu"
        rows = '#include "mmq-config-tuned-all.cuh"\n'  # as mmq.cu has them
        unit.write_text(
            f'{rows}#include "mmq.cuh"\nconst void * one() {{ return (const void *) {kernel}; }}\n'
        )
        includes = [f"-I{root / name}" for name in ("ggml/include", "ggml/src", "ggml/src/ggml-cuda")]
        flags = [*hip_flags(hip_toolchain, arch, which="device"), "-DGGML_USE_HIP", "-DGGML_HIP_NO_VMM", "-w"]
        argv = [hip_toolchain.clang, *flags, *includes, "-S", unit, "-o", tmp_path / arch]
        subprocess.run(argv, check=True)
        return (tmp_path / arch).read_text()

    return compiled


@pytest.mark.hip
def test_products_of_a_matrix_go_four_tiles_at_a_time_on_the_guarded_gpu(code_of):
    longest = {}
    for arch in ("gfx1151", "gfx1150"):
        text = code_of("mul_mat_q<GGML_TYPE_Q8_0, 128, false, GGML_PREC_Q8>", arch, "mmq-wmma-batches")
        # What is multiplied before anything is scaled: a tile of 16 columns takes two instructions.
        runs = re.findall(r"(?:v_wmma )+", " ".join(re.findall(r"v_wmma|v_cvt_f32_i32", text)) + " ")
        longest[arch] = max(run.count("v_wmma") for run in runs)
    assert longest == {"gfx1151": 8, "gfx1150": 2}


@pytest.mark.hip
def test_the_matrix_kernel_keeps_its_loop_over_k_on_the_guarded_gpu(code_of):
    # LLVM 22 unrolls all four turns of the loop; with 16 columns every compiler does.
    products = {}
    for columns in (16, 128):
        kernel = f"mul_mat_q<GGML_TYPE_Q4_0, {columns}, false, GGML_PREC_Q8>"
        for arch in ("gfx1151", "gfx1150"):
            products[columns, arch] = code_of(kernel, arch).count("v_wmma")
    assert products[128, "gfx1151"] * 4 == products[128, "gfx1150"]
    assert products[16, "gfx1151"] == products[16, "gfx1150"]
