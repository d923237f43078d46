"""The product as a user gets it: a wheel in a clean environment, far from the checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from shipped import SEED

pytestmark = [
    *(pytest.mark.wheel, pytest.mark.network, pytest.mark.slow, pytest.mark.thorough),
    pytest.mark.xdist_group("wheel"),
]

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, test_cache: Path) -> Path:
    """The folder of the programs of an environment that holds the wheel and nothing of the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    env = {**os.environ, "PIP_CACHE_DIR": str(test_cache / "pip"), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    env.pop("PYTHONPATH", None)
    pip = [sys.executable, "-m", "pip"]
    subprocess.run([*pip, "wheel", "--quiet", "--no-deps", "-w", str(folder), str(ROOT)], env=env, check=True)
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "env", with_pip=True)
    programs = folder / "env" / "bin"
    subprocess.run([programs / "python", "-m", "pip", "install", "--quiet", str(wheel)], env=env, check=True)
    return programs


def _run(program: Path, *argv: str, folder: Path) -> bytes:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([program, *argv], cwd=folder, env=env, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def test_the_installed_package_is_the_one_that_runs(installed: Path, tmp_path: Path) -> None:
    code = "import patchkit; print(patchkit.__file__)"
    where = Path(_run(installed / "python", "-c", code, folder=tmp_path).decode().strip())
    assert where.is_relative_to(installed.parent)


def test_apply_from_the_wheel_makes_what_the_checkout_makes(
    installed: Path, pin_cache: Path, tmp_path: Path
) -> None:
    argv = ["apply", *SEED, "--json", "--cache-dir", str(pin_cache)]
    from_wheel = json.loads(_run(installed / "patchkit", *argv, folder=tmp_path))
    assert from_wheel["base"] == "c22473b580807929fd9e3a3344a48e8cfbe6c88f"
    assert from_wheel["commits"]
    checkout = subprocess.run(
        [sys.executable, "-m", "patchkit", *argv],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=True,
    )
    again = json.loads(checkout.stdout)
    assert again["unchanged"] is True
    assert again["commits"] == from_wheel["commits"]


def test_the_wheel_has_what_import_and_new_write(installed: Path, tmp_path: Path) -> None:
    code = "import os, patchkit.base.series_folder as s; print(*sorted(os.listdir(s.find_texts())))"
    shipped = sorted(path.name for path in (ROOT / "templates" / "patchkit").iterdir())
    assert _run(installed / "python", "-c", code, folder=tmp_path).decode().split() == shipped


def test_doctor_finds_the_installed_series(installed: Path, tmp_path: Path) -> None:
    found = json.loads(_run(installed / "patchkit", "doctor", "--json", folder=tmp_path))
    (series,) = (check for check in found["checks"] if check["name"] == "series")
    assert series["detail"].endswith("(installed)")
