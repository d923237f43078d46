"""Parses mangled kernel names: function, template arguments, and which attention kernel it is."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

Family = Literal["wmma", "mma", "vec", "tile", "other"]

# The Itanium ABI: _Z [L] <length><identifier>, then I<arguments>E for a template.
_HEAD = re.compile(r"_ZL?(\d+)")
_NESTED = re.compile(r"_ZNK?")
_LENGTH = re.compile(r"(\d+)")
_TYPES = {"f": "float", "b": "bool", "i": "int", "d": "double", "c": "char", "j": "unsigned int"}
_INTEGER = re.compile(r"L([a-z])(n?\d+)E")
_ENUM = re.compile(r"L(\d+)")
_SUBSTITUTED = re.compile(r"LS\d*_(n?\d+)E")
_NUMBER = re.compile(r"(n?\d+)E")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelName:
    """A parsed kernel name. ``arguments``: template arguments as text; None if they could not be parsed."""

    mangled: str
    base: str
    arguments: tuple[str, ...] | None

    def __str__(self) -> str:
        if self.arguments is None:
            return self.base or self.mangled
        return f"{self.base}<{', '.join(self.arguments)}>" if self.arguments else self.base

    def integer(self, index: int) -> int | None:
        """Template argument ``index`` as a number, or None."""
        if self.arguments is None or index >= len(self.arguments):
            return None
        text = self.arguments[index]
        return int(text) if re.fullmatch(r"-?\d+", text) else None


@lru_cache(maxsize=4096)
def read_name(mangled: str) -> KernelName:
    """Parse a mangled name; if it is not a plain function, the base is the mangled name."""
    head = _HEAD.match(mangled)
    if head is None:
        return KernelName(mangled=mangled, base=mangled, arguments=None)
    start = head.end()
    end = start + int(head[1])
    return KernelName(mangled=mangled, base=mangled[start:end], arguments=_arguments(mangled, end))


def host_name(mangled: str) -> str:
    """The name of a host function with its classes and namespaces; others as :func:`read_name` reads them."""
    head = _NESTED.match(mangled)
    parts: list[str] = []
    at = 0 if head is None else head.end()
    while head is not None and (length := _LENGTH.match(mangled, at)) is not None:
        at = length.end() + int(length[1])
        parts.append(mangled[length.end() : at])
    return "::".join(parts) if parts and mangled.startswith("E", at) else str(read_name(mangled))


def family_of(name: KernelName, units: Collection[str]) -> Family:
    """Which attention kernel it is; ``units`` are the compilation units that register it."""
    match name.base:
        case "flash_attn_ext_f16":
            return "wmma" if any("wmma" in unit for unit in units) else "mma"
        case base if base.startswith("flash_attn_mma"):  # a patch's own (docs/reference/patches.md)
            return "mma"
        case base if base.startswith("flash_attn_tile"):
            return "tile"
        case base if base.startswith(("flash_attn_ext_vec", "flash_attn_vec")):
            return "vec"
        case _:
            return "other"


def _arguments(mangled: str, start: int) -> tuple[str, ...] | None:
    if not mangled.startswith("I", start):
        return ()
    position = start + 1
    found: list[str] = []
    while position < len(mangled) and mangled[position] != "E":
        step = _argument(mangled, position)
        if step is None:
            return None
        text, position = step
        found.append(text)
    return tuple(found)


def _argument(mangled: str, at: int) -> tuple[str, int] | None:
    """One template argument and the position of the next; None if it is of an unsupported form."""
    if (plain := _INTEGER.match(mangled, at)) is not None:
        value = plain[2].replace("n", "-")
        return ({"0": "false", "1": "true"}.get(value, value) if plain[1] == "b" else value), plain.end()
    if (again := _SUBSTITUTED.match(mangled, at)) is not None:
        return again[1].replace("n", "-"), again.end()
    if (enum := _ENUM.match(mangled, at)) is not None:
        number = _NUMBER.match(mangled, enum.end() + int(enum[1]))
        return None if number is None else (number[1].replace("n", "-"), number.end())
    if (name := _LENGTH.match(mangled, at)) is not None:
        end = name.end() + int(name[1])
        return mangled[name.end() : end].lstrip("_"), end
    known = _TYPES.get(mangled[at])
    return None if known is None else (known, at + 1)
