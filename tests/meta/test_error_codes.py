"""Every error class has a code of its own and an exit code of its kind."""

from __future__ import annotations

import collections
import importlib
import pkgutil
import re

import patchkit
from patchkit.errors import ErrorGroup, ExitCode, InternalError, PatchkitError


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


def test_each_class_states_a_code_that_no_other_has() -> None:
    classes = _classes()
    assert len(classes) > 12, "the walk found too little to mean anything"
    silent = [one.__name__ for one in classes if "code" not in vars(one)]
    assert not silent
    counts = collections.Counter(one.code for one in classes)
    assert not {code: count for code, count in counts.items() if count > 1}


def test_codes_are_words_a_program_can_match() -> None:
    odd = [one.code for one in _classes() if not re.fullmatch(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*", one.code)]
    assert not odd


def test_only_bugs_exit_as_internal() -> None:
    wrong = [
        one.__name__
        for one in _classes()
        if one.exit_code is ExitCode.INTERNAL
        and not issubclass(one, InternalError)
        and one not in {PatchkitError, ErrorGroup}
    ]
    assert not wrong
