"""``list``, ``show``, ``status`` and ``doctor`` on the series of this checkout, and the choice of a GPU."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from patchkit.cli.app import main


@pytest.fixture
def patchkit(tmp_path: Path, capsys):
    """Runs a command line; gives its exit code, stdout and stderr."""

    def run(*argv: str) -> tuple[int, str, str]:
        code = main([*argv, "--cache-dir", str(tmp_path / "cache")])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_list_has_the_patches_in_order_and_every_gpu(patchkit) -> None:
    code, out, _ = patchkit("list", "--json")
    document = json.loads(out)
    assert code == 0
    numbers = [patch["number"] for patch in document["patches"]]
    assert numbers == sorted(numbers)
    standing = {row["arch"]: row["patches"] for row in document["archs"]}
    assert len(standing) == 16
    assert standing["gfx1151"]["wmma-tile-params"] == "on"
    assert standing["gfx1151"]["mmq-tile-config"] == "on"
    assert standing["gfx1151"]["fattn-tile-config"] == "opt-in"
    assert standing["gfx1100"]["wmma-tile-params"] == "opt-in"
    assert standing["gfx1201"]["mmvq-decode-warps"] == "opt-in"
    assert set(standing["gfx942"].values()) == {"off"}
    _, text, _ = patchkit("list")
    for row in document["patches"]:
        assert f"{row['id']} " in text
        assert f"b{row['builds']['first']}-" in text
    assert "\ngfx1151  5 on, 12 optional  Radeon 8060S\n" in text
    assert "\ngfx942   none               MI300X\n" in text


def test_list_of_one_gpu_groups_the_patches_by_their_state(patchkit) -> None:
    code, out, _ = patchkit("list", "--arch", "gfx1151")
    assert code == 0
    assert out.startswith("gfx1151 (Radeon 8060S), llama.cpp b11549: 5 patches on, 12 optional\n")
    on, _, rest = out.partition("\nOptional: ")
    optional, _, rest = rest.partition("\nOptional, gain modelled: ")
    modelled, _, others = rest.partition("\nNot for this build or GPU\n")
    assert "  mmq-batch-limits   per-GPU batch limits" in on
    assert "measured by Nyovelt and dzannotti: prefill +8" in on
    assert "  mmq-wmma-batches " in optional
    assert "decode unchanged; the timing model predicts a loss\n" in optional
    assert "no gain known on this GPU and build: from build 11063 on (PR 28102)" in optional
    assert optional.count("speed not measured") == 1
    assert "Qwen3 30B-A3B 806 to 1095; ...\n" in modelled  # cut after a whole clause
    assert "  fuse-norm-q8-1 " in modelled
    assert "  wmma-tile-params         b6900-b9093 " in others
    assert "  mmvq-decode-warps        other GPUs " in others
    old = patchkit("list", "--arch", "gfx1151", "--upstream", "b6900")[1]
    assert "wmma-tile-params" in old.partition("\nOptional")[0]
    document = json.loads(patchkit("list", "--arch", "gfx1151", "--json")[1])
    assert [row["arch"] for row in document["archs"]] == ["gfx1151"]


def test_list_separates_measured_optional_patches_from_modelled_ones(patchkit) -> None:
    out = patchkit("list", "--arch", "gfx1201")[1]
    assert "measured by Shardss: tg128" in out
    assert "predicted by the timing model" not in out


def test_list_needs_a_gpu_for_a_build(patchkit) -> None:
    code, _, err = patchkit("list", "--upstream", "b6900")
    assert (code, "--upstream requires --arch" in err) == (2, True)


@pytest.mark.parametrize("name", ["wmma-tile-params", "0001", "0001-wmma-tile-params"])
def test_show_finds_a_patch_by_each_of_its_names(patchkit, name: str) -> None:
    code, out, _ = patchkit("show", name, "--json")
    document = json.loads(out)
    assert code == 0
    assert document["id"] == "wmma-tile-params"
    assert document["archs"]["gfx1151"] == "on"
    assert document["why"]
    assert document["expected"]["source"]


def test_show_a_patch_to_a_person(patchkit) -> None:
    _, out, _ = patchkit("show", "fattn-keep-gqa-tiles")
    headings = ("What it does", "What it gains, and who measured it", "Risks", "How to try it", "Details")
    for heading in (*headings, "Edits", "Links"):
        assert f"\n{heading}\n" in out
    assert "patchkit apply --arch gfx1151 --upstream b10068 --without fattn-decode-tile " in out
    assert "It needs the patch fattn-decode-tile" in out


def test_show_names_the_patches_that_an_optional_one_needs(patchkit) -> None:
    _, out, _ = patchkit("show", "fuse-norm-q8-1")
    assert "patchkit apply --arch gfx1151 --with fuse-norm-q8-1\n" in out
    assert "This also adds reuse-q8-1-activations, which it requires." in out
    assert "no one has measured this patch on a GPU" in out
    assert "- It needs the patch reuse-q8-1-activations: the code of that patch" in out


def test_show_gives_each_figure_and_source_once(patchkit) -> None:
    out = patchkit("show", "mmq-rolled-loops")[1]
    assert "gfx1151, b11549: enabled by default, a similar change measured by kyuz0" in out
    assert "Source:" not in out
    assert out.count("https://github.com/ROCm/rocm-systems/issues/2865") == 2  # the claim and the links
    assert "insert_before (device) in ggml_cuda_mmq_vec_dot_q8_0_q8_1_mma, ggml" in out
    assert "\n  include  add_include (host) in ggml/" in patchkit("show", "fuse-norm-q8-1")[1]


def test_show_has_no_heading_over_nothing(patchkit) -> None:
    """Nobody discussed this patch anywhere."""
    _, out, _ = patchkit("show", "fattn-vec-heads-first")
    assert "\nEdits\n" in out
    assert "Links" not in out


def test_show_a_gpu_gives_each_fact_its_source(patchkit) -> None:
    code, out, _ = patchkit("show", "gfx1151", "--json")
    document = json.loads(out)
    assert code == 0
    assert document["facts"]["vgprs_per_simd"]["value"] == 1536
    assert all(fact["source"] and fact["confidence"] for fact in document["facts"].values())
    assert document["cmake"]["GPU_TARGETS"] == "gfx1151"
    _, text, _ = patchkit("show", "gfx1151")
    assert "vgprs_per_simd           1536 " in text
    assert "(confidence: medium)" in text
    assert "(confidence: high)" not in text
    assert "with wmma-tile-params or fattn-keep-gqa-tiles or fattn-decode-tile:" in text
    assert "\nCMake options\n  -DGGML_HIP=ON" in text


def test_show_a_gpu_without_patches(patchkit) -> None:
    _, out, _ = patchkit("show", "gfx942")
    assert "\nPatches on llama.cpp b11549, the default build\n  none\n\nCMake options" in out


def test_show_a_gpu_says_which_patches_are_on_at_the_default_build(patchkit) -> None:
    """As ``list`` counts them: what is on for another build only is not on here."""
    _, text, _ = patchkit("show", "gfx1151")
    here, _, others = text.partition("\nPatches for other builds only\n")
    here = here.partition("\nPatches on llama.cpp b11549, the default build\n")[2]
    words = [line.split()[1] for line in here.splitlines() if line.startswith("  ")]
    assert (words.count("on"), words.count("optional")) == (5, 12)
    assert "wmma-tile-params" not in here
    assert "\n  wmma-tile-params         b6900-b9093    on        " in f"\n{others}"
    document = json.loads(patchkit("show", "gfx1151", "--json")[1])
    assert document["build"] == 11549
    row = document["patches"]["wmma-tile-params"]
    builds = row["builds"]
    assert (builds["first"], builds["last"], row["build_label"]) == (6900, 9093, 9093)


def test_show_something_that_is_not_there(patchkit) -> None:
    code, _, err = patchkit("show", "fattn-keep-gqa-tile")
    assert code == 2
    assert "error[SHOW_UNKNOWN]" in err
    assert "did you mean 'fattn-keep-gqa-tiles'" in err


def test_status_of_an_empty_cache_makes_nothing(patchkit, tmp_path: Path) -> None:
    code, out, _ = patchkit("status")
    assert code == 0
    assert re.search(
        r"b11549  tree ee320e359dbb  2026-10-10 \([0-9]+ days old\) +not downloaded  default", out
    )
    assert "Your branches\n  none yet\n" in out
    assert "  patchkit apply --arch gfx1151  creates a branch\n" in out
    assert not (tmp_path / "cache").exists()


def test_status_warns_of_no_build_that_is_not_here(patchkit) -> None:
    """The lock has results for older builds with known faults; without a candidate they are nobody's."""
    _, _, err = patchkit("status")
    assert "warning" not in err
    assert json.loads(patchkit("status", "--json")[1])["faults"] == []


def test_doctor_exits_as_the_first_check_that_failed(patchkit, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    code, out, err = patchkit("doctor", "--series-dir", str(tmp_path / "none"))
    assert code == 8
    assert "\nfailed  cache " in out
    assert "\nfailed  series " in out
    assert err.count("error[") == 2
    code, out, _ = patchkit("doctor", "--json")
    assert code == 8
    assert json.loads(out)["ok"] is False


def test_doctor_reports_findings_about_the_host_that_do_not_fail_it(patchkit, monkeypatch) -> None:
    monkeypatch.setenv("HSA_OVERRIDE_GFX_VERSION", "9.0.6")
    code, out, _ = patchkit("doctor", "--json")
    assert code == 0
    (found,) = (each for each in json.loads(out)["findings"] if each["name"] == "gpu override")
    assert found.keys() == {"name", "state", "detail", "cost", "sources", "change", "check"}
    assert found["state"] == "broken"
    _, out, _ = patchkit("doctor")
    assert "\nHost\n" in out
    assert "\ngpu override: broken\n  cost: " in out
    assert "\n  change: unset HSA_OVERRIDE_GFX_VERSION" in out


def _pretend_gpus(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    monkeypatch.setattr("patchkit.cli.request.detect_gpus", lambda: names)


@pytest.mark.parametrize(
    ("gpus", "hint"),
    [((), "hint: --arch gfx1151"), (("gfx1100", "gfx1151"), "hint: --arch gfx1100 or --arch gfx1151")],
)
def test_without_exactly_one_gpu_here_one_must_be_named(patchkit, monkeypatch, gpus, hint: str) -> None:
    _pretend_gpus(monkeypatch, *gpus)
    code, _, err = patchkit("diff")
    assert code == 2
    assert "error[ARCH_MISSING]" in err
    assert hint in err


def test_the_only_gpu_is_taken_and_named(patchkit, monkeypatch: pytest.MonkeyPatch) -> None:
    _pretend_gpus(monkeypatch, "gfx1101")
    code, _, err = patchkit("diff")
    assert code == 5
    assert "using the GPU of this machine: gfx1101" in err
    assert "there is no candidate/gfx1101/b11549 yet" in err
