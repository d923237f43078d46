"""pytest plug-in: run a project's tests on the emulated GPU, with or without checks of the kernels.

pytest finds it by its entry point. ``pytest --emulated-gpu gfx1151`` is ``patchkit emulate --arch
gfx1151 -- pytest``, so a project can put the option into its configuration.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator

import pytest

_DEVICE = "PATCHKIT_RECORDER_DEVICE"  # set in a program that patchkit started


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("patchkit")
    group.addoption("--emulated-gpu", metavar="GFX", help="run the tests on this emulated GPU, e.g. gfx1151")
    group.addoption(
        "--emulated-gpu-checks",
        action="store_true",
        help="also check the kernels for faults (patchkit sanitize); with findings, the exit status is 1",
    )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, object, object]:
    """Start pytest again under patchkit, before anything is captured or collected."""
    arch = early_config.known_args_namespace.emulated_gpu
    if arch and _DEVICE not in os.environ:
        command = "sanitize" if early_config.known_args_namespace.emulated_gpu_checks else "emulate"
        tests = (sys.executable, "-m", "pytest", *map(str, early_config.invocation_params.args))
        argv = [sys.executable, "-m", "patchkit", command, "--arch", arch, "--", *tests]
        os.execv(sys.executable, argv)  # noqa: S606 - no shell
    return (yield)


@pytest.fixture(scope="session")
def emulated_gpu() -> str:
    """The name of the emulated GPU, for example gfx1151; skips the test without one."""
    if _DEVICE not in os.environ:
        pytest.skip("no emulated GPU: run pytest --emulated-gpu gfx1151")
    with open(os.environ[_DEVICE], encoding="utf-8") as lines:  # noqa: PTH123 - a file of "name value" lines
        return dict(line.rstrip("\n").split(" ", 1) for line in lines)["arch"]
