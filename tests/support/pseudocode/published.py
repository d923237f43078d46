"""AMD's pseudocode as the package tinygrad carries it, without importing that package.

``tinygrad.runtime.autogen.amd.rdna3.str_pcode`` is one dictionary from members of enumerations
(``VOP1Op.V_MOV_B32_E32``) to text. Importing it would run all of tinygrad, so its source is read.
"""

from __future__ import annotations

import ast
import importlib.util
from functools import cache
from pathlib import Path


@cache
def load_pseudocode(architecture: str) -> dict[str, dict[str, str]]:
    """The texts of ``rdna3`` or ``rdna4``: by encoding (VOP1Op), by name (V_MOV_B32_E32)."""
    found = importlib.util.find_spec("tinygrad")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("tinygrad is not installed; it is in the extra dev")
    source = Path(found.origin).parent / f"runtime/autogen/amd/{architecture}/str_pcode.py"
    assigned = next(
        node for node in ast.parse(source.read_text("utf-8")).body if isinstance(node, ast.Assign)
    )
    if not isinstance(assigned.value, ast.Dict):
        raise TypeError(f"{source}: PCODE is no dictionary")
    texts: dict[str, dict[str, str]] = {}
    for key, value in zip(assigned.value.keys, assigned.value.values, strict=True):
        if not (isinstance(key, ast.Attribute) and isinstance(key.value, ast.Name)):
            raise TypeError(f"{source}: {ast.dump(value)} is not keyed by an enumeration")
        texts.setdefault(key.value.id, {})[key.attr] = ast.literal_eval(value)
    return texts
