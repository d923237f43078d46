"""The import contracts of pyproject.toml hold, and can fail."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


# An editable installation finds patchkit before the path does, and would check the checkout again.
_PROGRAM = """
import sys
sys.meta_path = [one for one in sys.meta_path if not type(one).__module__.startswith("_editable")]
sys.path.insert(0, "")
from importlinter.cli import lint_imports
sys.exit(lint_imports(config_filename="pyproject.toml", no_cache=True))
"""


def _lint(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        cwd=folder,
        env={"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_import_contract_holds() -> None:
    done = _lint(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("patchkit/carry/placing/select.py", "import patchkit.carry.following", "layers"),
        ("patchkit/base/toml.py", "import click", "terminal"),
        ("patchkit/gpu/hardware/gpus.py", "import git", "git"),
    ],
)
def test_a_stray_import_is_caught(tmp_path: Path, module: str, line: str, contract: str) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "patchkit", tmp_path / "patchkit", ignore=shutil.ignore_patterns("__pycache__"))
    target = tmp_path / module
    target.write_text(target.read_text("utf-8") + f"\n{line}\n")
    done = _lint(tmp_path)
    assert done.returncode != 0
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    (name,) = (one["name"] for one in contracts if one["id"] == contract)
    assert re.search(rf"{re.escape(name)}.* BROKEN", done.stdout)


def _layers() -> list[str]:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    (layers,) = (one["layers"] for one in contracts if one["type"] == "layers")
    return layers


def test_the_document_shows_the_layers_and_each_package() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    layers = [layer.replace("patchkit.", "") for layer in _layers()]
    assert f"\n{' -> '.join(layers)}\n" in text
    packages = set(re.findall(r"\w+", " ".join(layers)))
    assert set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)) == packages


def test_each_package_stands_in_the_layers() -> None:
    placed = set(re.findall(r"patchkit\.\w+", " ".join(_layers())))
    present = {f"patchkit.{path.parent.name}" for path in (ROOT / "patchkit").glob("*/__init__.py")}
    present |= {f"patchkit.{path.stem}" for path in (ROOT / "patchkit").glob("[a-z]*.py")}
    assert placed == present
