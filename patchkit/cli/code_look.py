"""``patchkit sanitize --code``: what is shown of code that did not run, and of hazards beside a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from patchkit.base.text import counted
from patchkit.gpu.emulated.hazards import ABOUT, CodeLook, Hazard
from patchkit.gpu.emulated.names import read_name


def code_document(seen: CodeLook, arch: str) -> dict[str, object]:
    """As ``--json`` and ``--report`` have it."""
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
    """What ``--code`` shows."""
    yield from hazard_lines(seen)
    for held in seen.others(arch):
        yield (
            f"target: {path.name} has no code for {arch} here, only for {held.replace(',', ', ')}: a driver "
            "refuses it, and where it is forced on (HSA_OVERRIDE_GFX_VERSION) the compiler knew another chip"
        )
        yield ""
    yield from (f"not looked at: {why}" for why in seen.unread)
    objects = counted(len(seen.gpus), "code object")
    gpus = ", ".join(sorted(set(seen.gpus))) or "no GPU that is emulated"
    yield (
        f"{counted(len(seen.hazards), 'hazard')} in {seen.instructions} instructions of {objects} for {gpus}"
        "; static: looked at, not run"
    )
    if seen.pairs:
        yield (
            f"{seen.pairs} dual instructions, {seen.same_parity} of them of the form that clang no longer "
            "makes for GFX11 (LLVM pull request 220348)"
        )


def hazard_lines(seen: CodeLook) -> Iterator[str]:
    """Each hazard, and what its kind is behind the last of it."""
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
    yield f"  {one.other.place}   {one.other.text}   (the other)"
    yield from (f"    inlined at {place}" for place in one.other.places[1:])
