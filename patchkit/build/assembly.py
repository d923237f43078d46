"""What the assembly of a device pass says about its kernels.

Vocabulary: the *metadata* is the YAML at the end of the text that the runtime reads; a *trap* is a kernel
whose body has no ``s_endpgm``: it cannot end, whoever launches it dies (upstream's ``NO_DEVICE_CODE``
makes such bodies for variants it pruned; so read on gfx906, gfx90a, gfx1030, gfx1151 and gfx1201).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from patchkit.errors import ToolchainError

_KERNEL = re.compile(r"^\s*\.amdhsa_kernel (\S+)$", re.MULTILINE)
_END = re.compile(r"^\s*s_endpgm\b", re.MULTILINE)
_BODY_END = re.compile(r"^\s*\.section\s", re.MULTILINE)
_NAME = re.compile(r"^    \.name:\s+(\S+)$", re.MULTILINE)
_THREADS = re.compile(r"^    \.max_flat_workgroup_size:\s+(\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelText:
    """One kernel: mangled ``name``, most ``threads`` per block (from the launch bounds), a trap or not."""

    name: str
    threads: int
    is_trap: bool


def parse_kernels(assembly: str) -> tuple[KernelText, ...]:
    """Every kernel of a device pass, in order.

    Raises:
        ASSEMBLY_MALFORMED: a kernel has no body, or no metadata.
    """
    threads = _metadata(assembly)
    kernels = []
    for found in _KERNEL.finditer(assembly):
        name = found[1]
        if name not in threads:
            raise _malformed(name, "its metadata has no .max_flat_workgroup_size")
        kernels.append(KernelText(name=name, threads=threads[name], is_trap=_is_trap(assembly, name)))
    return tuple(kernels)


def _is_trap(assembly: str, name: str) -> bool:
    start = assembly.find(f"\n{name}:")
    end = _BODY_END.search(assembly, start + 1)
    if start < 0 or end is None:
        raise _malformed(name, "there is no label of its name, or no section behind it")
    return _END.search(assembly, start, end.start()) is None


def _metadata(assembly: str) -> dict[str, int]:
    start = assembly.find("\namdhsa.kernels:")
    if start < 0:
        return {}
    threads: dict[str, int] = {}
    for entry in assembly[start:].split("\n  - ")[1:]:
        text = "    " + entry
        name, size = _NAME.search(text), _THREADS.search(text)
        if name is not None and size is not None:
            threads[name[1]] = int(size[1])
    return threads


def _malformed(name: str, why: str) -> ToolchainError:
    return ToolchainError(
        f"the assembly of kernel {name} does not read as expected",
        code="ASSEMBLY_MALFORMED",
        why=why,
        hint="patchkit doctor shows the compiler",
    )
