"""Only a bug exits with the code of an internal error."""

from __future__ import annotations

import importlib
import pkgutil

import patchkit
from patchkit.base.errors import ErrorGroup, ExitCode, InternalError, PatchkitError


def _classes() -> list[type[PatchkitError]]:
    for module in pkgutil.walk_packages(patchkit.__path__, "patchkit."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    found: list[type[PatchkitError]] = []
    waiting = [PatchkitError]
    while waiting:
        one = waiting.pop()
        found.append(one)
        waiting += one.__subclasses__()
    return [one for one in found if one.__module__.startswith("patchkit.")]


def test_only_bugs_exit_as_internal() -> None:
    wrong = [
        one.__name__
        for one in _classes()
        if one.exit_code is ExitCode.INTERNAL
        and not issubclass(one, InternalError)
        and one not in {PatchkitError, ErrorGroup}
    ]
    assert not wrong
