"""The import contracts of pyproject.toml hold, and can fail."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

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


def _contract(name: str) -> dict[str, Any]:
    told = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    (found,) = (one for one in told["contracts"] if one["id"] == name)
    return found


def test_every_import_contract_holds() -> None:
    done = _lint(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("patchkit/gpu/emulated/device.py", "import patchkit.carry.series.patch", "packages"),
        ("patchkit/carry/candidate/record.py", "import patchkit.toolchain.sides", "carry-compiles-nothing"),
        ("patchkit/carry/placing/select.py", "import patchkit.carry.judging", "inside-carry"),
        ("patchkit/base/errors.py", "import patchkit.base.series_folder", "no-circles"),
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
    assert re.search(rf"{re.escape(_contract(contract)['name'])}.* BROKEN", done.stdout)


def test_imports_allowed_in_the_document_match_the_contract() -> None:
    """The table of packages in architecture.md, compared with the layers of the contract."""
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)` \|[^|]*\| ([^|]*) \|", text, re.MULTILINE)
    documented = {package: set(re.findall(r"\w+", may.replace("nothing", ""))) for package, may in rows}
    layers = _contract("packages")["layers"]
    packages = [set(re.findall(r"patchkit\.(\w+)", layer)) for layer in layers]
    below = {
        package: {name for lower in packages[level + 1 :] for name in lower}
        for level, several in enumerate(packages)
        for package in several
    }
    below["carry"].discard("toolchain")  # the contract carry-compiles-nothing
    documented["cli"] = below["cli"] if documented["cli"] == {"all"} else documented["cli"]
    assert documented == below
    assert set(documented) == {path.parent.name for path in (ROOT / "patchkit").glob("*/__init__.py")}
