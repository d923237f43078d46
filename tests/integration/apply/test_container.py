"""The Containerfile of an export: its commands get the sources that the patches were made for."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest


@pytest.fixture
def image(finished_world, tmp_path: Path) -> Path:
    folder = tmp_path / "image"
    done = finished_world.run("export", "--arch", "gfx1151", "--containerfile", "7.2", str(folder))
    assert done.returncode == 0, done.stderr
    return folder


def build_sources(image: Path, upstream: Path, place: Path) -> subprocess.CompletedProcess[str]:
    """Run the file's RUN instructions about git in a new folder, as an image build does."""
    text = (image / "Containerfile").read_text().replace("\\\n", " ")
    steps = [line.removeprefix("RUN ") for line in text.splitlines() if line.startswith("RUN git")]
    assert len(steps) == 2
    script = "\n".join(steps).replace("/patches/", f"{image}/")
    place.mkdir()
    return subprocess.run(
        ["sh", "-euc", script],
        cwd=place,
        env={"PATH": "/usr/bin:/bin", "HOME": str(place), "UPSTREAM": str(upstream)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_its_commands_give_the_files_of_the_candidate(finished_world, image, tmp_path):
    done = build_sources(image, finished_world.upstream, tmp_path / "sources")
    assert done.returncode == 0, done.stderr
    config = tmp_path / "sources/ggml/src/ggml-cuda/demo-config.cuh"
    assert config.read_text().endswith("// gfx1151\n")


def test_a_changed_patch_ends_the_build(finished_world, image, tmp_path):
    (patch,) = image.glob("0002-*.patch")
    changed = re.sub(r"^(\+.*)\bscale\b", r"\1scale_of", patch.read_text(), count=1, flags=re.MULTILINE)
    assert changed != patch.read_text()
    patch.write_text(changed)
    assert build_sources(image, finished_world.upstream, tmp_path / "sources").returncode != 0


def test_an_export_with_it_is_replaced_by_one_without(finished_world, image):
    done = finished_world.run("export", "--arch", "gfx1151", str(image))
    assert done.returncode == 0, done.stderr
    assert not (image / "Containerfile").exists()


def test_an_unknown_version_lists_the_known_ones(finished_world, tmp_path):
    done = finished_world.run(
        "export", "--arch", "gfx1151", "--containerfile", "5.7", str(tmp_path / "image")
    )
    assert done.returncode == 2
    assert "'6.4', '7.2', '7.14', '10.0'" in done.stderr
    assert not (tmp_path / "image").exists()


def test_a_candidate_for_no_gpu_has_no_image(world, tmp_path):
    assert world.run("apply", "--arch", "plain").returncode == 0
    done = world.run("export", "--arch", "plain", "--containerfile", "7.2", str(tmp_path / "image"))
    assert done.returncode == 2
    assert "is for no GPU" in done.stderr
    assert not (tmp_path / "image").exists()
