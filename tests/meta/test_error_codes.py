"""Every error has a code that docs/reference/errors.md explains, and the exit code of its kind."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from pathlib import Path

import patchkit
from patchkit.base.errors import ErrorGroup, ExitCode, InternalError, PatchkitError
from patchkit.carry.series.catalogue import load_series


def _raised(checkout: Path) -> list[str]:
    """The codes: of each error class, given where an error is made, and of what patches promise."""
    patches = load_series(checkout / "patches").patches
    classes, given = [], {promise.code for patch in patches for promise in patch.launches.cases}
    for path in sorted((checkout / "patchkit").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                classes += [
                    one.value.value
                    for one in node.body
                    if isinstance(one, ast.Assign)
                    and ast.unparse(one.targets[0]) == "code"
                    and isinstance(one.value, ast.Constant)
                ]
            elif (
                isinstance(node, ast.keyword) and node.arg == "code" and isinstance(node.value, ast.Constant)
            ):
                given.add(node.value.value)
    return sorted([*classes, *(code for code in given if isinstance(code, str) and code.isupper())])


def test_each_code_is_one_errors_and_explained(checkout: Path) -> None:
    rows = re.findall(
        r"^\| `([A-Z0-9_]+)` \| (.+) \|$",
        (checkout / "docs" / "reference" / "errors.md").read_text(),
        re.MULTILINE,
    )
    assert [code for code, _ in rows] == _raised(checkout)


def test_codes_are_words_a_program_can_match(checkout: Path) -> None:
    odd = [one for one in _raised(checkout) if not re.fullmatch(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*", one)]
    assert not odd


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
