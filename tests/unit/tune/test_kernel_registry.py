"""A tunable kernel needs only its module and one entry of the registry."""

from __future__ import annotations

import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import get_args

import pytest

from patchkit.cli.app import main
from patchkit.tune import registry

ROOT = Path(__file__).resolve().parents[3]
TOY = registry.Kernel(
    name="toy",
    about="how toys are wound",
    note="toy belongs to no build.",
    family="toy_kernel:make_family",
    timed_rows="toy_kernel:timed_rows",
)
MODULE = """
def make_family(site):
    return f"of {site}"


def timed_rows(report, profile, today):
    return [{"type": "toy"}]
"""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The registry with one more kernel."""
    (tmp_path / "toy_kernel.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "KERNELS", (*registry.KERNELS, TOY))
    # As in a new process, before and after: options are made when the command's module is imported.
    sys.modules.pop("patchkit.cli.verbs.tune", None)
    yield
    sys.modules.pop("toy_kernel", None)
    sys.modules.pop("patchkit.cli.verbs.tune", None)


def test_a_kernel_of_one_entry_is_offered_found_and_listed(
    toy: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", "--help"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert f"[{'|'.join(registry.kernel_names())}]" in out
    assert "by modelled time. toy belongs to no build." in out
    assert registry.make_family("toy", "a site") == "of a site"
    assert registry.rows_by_time("toy", None, None, None) == [{"type": "toy"}]
    reference = runpy.run_path(str(ROOT / "ci" / "reference.py"))["reference"]()["gates-and-formats.md"]
    assert "| `toy` | how toys are wound |" in reference


@pytest.mark.parametrize("kernel", registry.KERNELS, ids=lambda kernel: kernel.name)
def test_what_an_entry_references_exists(kernel: registry.Kernel) -> None:
    assert bool(kernel.family) == bool(kernel.timed_rows)
    for reference in filter(None, (kernel.family, kernel.timed_rows)):
        assert callable(resolve_name(reference))


def test_the_type_has_the_names_of_the_table() -> None:
    assert get_args(registry.KernelName) == registry.kernel_names()
    assert registry.DEFAULT in registry.kernel_names()


def test_names_alone_import_nothing_of_the_kernels() -> None:
    shown = "[name for name in sys.modules if name.startswith('patchkit.tune.')]"
    source = f"import sys, patchkit.tune.registry; print({shown})"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['patchkit.tune.registry']"
