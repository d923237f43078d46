"""The product as a user gets it: the sdist, and the wheel that comes of it, each in a clean environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from shipped import SEED

pytestmark = [
    *(pytest.mark.wheel, pytest.mark.network, pytest.mark.slow, pytest.mark.thorough),
    pytest.mark.xdist_group("wheel"),
]

ROOT = Path(__file__).resolve().parents[3]
_BUILD_SDIST = "import sys, scikit_build_core.build as backend; print(backend.build_sdist(sys.argv[1]))"


@pytest.fixture(scope="module")
def pip_env(test_cache: Path) -> dict[str, str]:
    """The environment of pip, which knows nothing of the checkout."""
    env = {**os.environ, "PIP_CACHE_DIR": str(test_cache / "pip"), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    env.pop("PYTHONPATH", None)
    return env


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory, pip_env: dict[str, str]) -> Path:
    """The archive of sources."""
    folder = tmp_path_factory.mktemp("sdist")
    argv = [sys.executable, "-c", _BUILD_SDIST, str(folder)]
    subprocess.run(argv, cwd=ROOT, env=pip_env, check=True, capture_output=True)
    (archive,) = folder.glob("*.tar.gz")
    return archive


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory, pip_env: dict[str, str], sdist: Path) -> Path:
    """The wheel that the archive of sources makes."""
    folder = tmp_path_factory.mktemp("wheel")
    argv = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder), str(sdist)]
    subprocess.run(argv, cwd=folder, env=pip_env, check=True)
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module", params=["sdist", "wheel"])
def installed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, pip_env: dict[str, str]
) -> Path:
    """The folder of the programs of an environment that holds one of the two and nothing of the checkout."""
    package = request.getfixturevalue(request.param)
    folder = tmp_path_factory.mktemp("env")
    venv.create(folder, with_pip=True)
    argv = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", str(package)]
    subprocess.run(argv, cwd=folder, env=pip_env, check=True)
    return folder / "bin"


def test_both_hold_the_licence_and_the_series_and_say_so(sdist: Path, wheel: Path) -> None:
    with tarfile.open(sdist) as archive:
        top = sdist.name.removesuffix(".tar.gz")
        sources = {name.removeprefix(f"{top}/") for name in archive.getnames()}
    assert {"LICENSE", "README.md", "CHANGELOG.md", "docs/index.md"} <= sources
    assert not [name for name in sources if name.startswith((".venv", "ci/", "tests/"))]
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
        info = wheel.name.partition("-py3-")[0] + ".dist-info"
        licence = packed.read(f"{info}/licenses/LICENSE")
        metadata = Parser().parsestr(packed.read(f"{info}/METADATA").decode())
    assert licence == (ROOT / "LICENSE").read_bytes()
    assert (metadata["License-Expression"], metadata["Requires-Python"]) == ("MIT", ">=3.11")
    in_place = {
        str(path.relative_to(ROOT))
        for folder in ("patches", "templates", "arch_profiles", "upstreams", "evidence", "proposals")
        for path in (ROOT / folder).rglob("*")
        if path.is_file()
    }
    packed_series = {name.removeprefix("patchkit/data/") for name in names if "/data/" in name}
    assert packed_series == in_place
    assert in_place <= sources
    assert {name.split("/")[0] for name in names} == {"patchkit", info}


def _run(program: Path, *argv: str, folder: Path) -> bytes:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([program, *argv], cwd=folder, env=env, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def test_the_installed_package_is_the_one_that_runs(installed: Path, tmp_path: Path) -> None:
    code = "import patchkit; print(patchkit.__file__)"
    where = Path(_run(installed / "python", "-c", code, folder=tmp_path).decode().strip())
    assert where.is_relative_to(installed.parent)


def test_apply_far_from_the_checkout_makes_what_the_checkout_makes(
    installed: Path, pin_cache: Path, tmp_path: Path
) -> None:
    argv = ["apply", *SEED, "--json", "--cache-dir", str(pin_cache)]
    made = json.loads(_run(installed / "patchkit", *argv, folder=tmp_path))
    assert made["base"] == "c22473b580807929fd9e3a3344a48e8cfbe6c88f"
    assert made["commits"]
    checkout = subprocess.run(
        [sys.executable, "-m", "patchkit", *argv],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=True,
    )
    again = json.loads(checkout.stdout)
    assert again["unchanged"] is True
    assert again["commits"] == made["commits"]


def test_the_wheel_has_what_import_and_new_write(installed: Path, tmp_path: Path) -> None:
    code = "import os, patchkit.base.series_folder as s; print(*sorted(os.listdir(s.find_texts())))"
    shipped = sorted(path.name for path in (ROOT / "templates" / "patchkit").iterdir())
    assert _run(installed / "python", "-c", code, folder=tmp_path).decode().split() == shipped


def test_doctor_finds_the_installed_series(installed: Path, tmp_path: Path) -> None:
    found = json.loads(_run(installed / "patchkit", "doctor", "--json", folder=tmp_path))
    (series,) = (check for check in found["checks"] if check["name"] == "series")
    assert series["detail"].endswith("(installed)")
