"""The output of ``patchkit sanitize`` on hazards in machine code: of ``--code``, and next to a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from patchkit.base.text import counted
from patchkit.gpu.emulated.hazards import ABOUT, CodeLook, Hazard
from patchkit.gpu.emulated.names import read_name


def code_document(seen: CodeLook, arch: str) -> dict[str, object]:
    """Return the document for ``--json`` and ``--report``."""
    others = seen.others(arch)
    return {
        "ok": not seen.hazards and not others and not seen.unread,
        "static": True,
        "arch": arch,
        "code_for": list(seen.gpus),
        "other_gpus": list(others),
        "unread": list(seen.unread),
        "instructions": seen.instructions,
        "dual": seen.pairs,
        "dual_same_parity": seen.same_parity,
        "hazards": list(seen.hazards),
    }


def code_lines(seen: CodeLook, path: Path, arch: str) -> Iterator[str]:
    """Yield the output of ``--code``."""
    yield from hazard_lines(seen)
    for held in seen.others(arch):
        yield (
            f"target: {path.name} has no code for {arch} here, only for {held.replace(',', ', ')}. "
            "The driver "
            "rejects such code; if forced with HSA_OVERRIDE_GFX_VERSION, it runs on a chip that the compiler "
            "did not target"
        )
        yield ""
    yield from (f"not checked: {why}" for why in seen.unread)
    objects = counted(len(seen.gpus), "code object")
    gpus = ", ".join(sorted(set(seen.gpus))) or "no GPU that can be emulated"
    yield (
        f"{counted(len(seen.hazards), 'hazard')} in {seen.instructions} instructions of {objects} for {gpus}"
        " (static analysis; nothing was run)"
    )
    if seen.pairs:
        yield (
            f"{seen.pairs} dual-issue instructions (VOPD), {seen.same_parity} of them of the form "
            "that clang no "
            "longer emits for GFX11 (LLVM pull request 220348)"
        )


def hazard_lines(seen: CodeLook) -> Iterator[str]:
    """Yield the hazards by kind, each kind followed by its explanation."""
    for kind, about in ABOUT.items():
        of_kind = [one for one in seen.hazards if one.kind == kind]
        for one in of_kind:
            yield from _lines(one)
        if of_kind:
            yield f"  {about}"
            yield ""


def _lines(one: Hazard) -> Iterator[str]:
    yield f"static: {read_name(one.at.function)} {one.what}"
    yield f"  {one.at.place}   {one.at.text}"
    yield from (f"    inlined at {place}" for place in one.at.places[1:])
    yield f"  {one.other.place}   {one.other.text}   (the other instruction)"
    yield from (f"    inlined at {place}" for place in one.other.places[1:])
