"""Modules and functions stay small enough to be read in one go."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULE_LINES = 350
FUNCTION_LINES = 60

_MODULES = sorted(path for top in ("patchkit", "benchmarks", "ci") for path in (ROOT / top).rglob("*.py"))


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", _MODULES, ids=_name)
def test_module_and_functions_are_within_budget(path: Path) -> None:
    text = path.read_text("utf-8")
    assert text.count("\n") <= MODULE_LINES
    long = {
        node.name: size
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (size := (node.end_lineno or 0) - node.lineno + 1) > FUNCTION_LINES
    }
    assert not long


@pytest.mark.parametrize("path", _MODULES, ids=_name)
def test_module_says_what_it_offers(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    assert ast.get_docstring(tree)
    offered = [node for node in tree.body[1:] if not isinstance(node, ast.ImportFrom)]
    if path.name == "__init__.py" and not offered:
        return
    names = [target.id for node in tree.body for target in _targets(node) if isinstance(target, ast.Name)]
    assert "__all__" in names


def _targets(node: ast.stmt) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return node.targets
    if isinstance(node, ast.AnnAssign):
        return [node.target]
    return []
