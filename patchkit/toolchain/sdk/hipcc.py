"""The prefix's own ``hipcc``: clang with all that a plain HIP program needs, as a script that moves with it.

It is written from the record and this version of patchkit alone and so is no part of the record: a prefix
that an older patchkit made gets it without being made anew.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from patchkit.base.files import disk_errors
from patchkit.toolchain.sdk.flags import needs_wave_macro
from patchkit.toolchain.sdk.pins import load_pins
from patchkit.toolchain.sdk.prefix import Prefix

_SCRIPTS = Path(__file__).resolve().parent / "scripts"
_HEADER = "hipcc-wave-size.h"


def write_hipcc(prefix: Prefix) -> None:
    """Write ``bin/hipcc`` where it is not there, or is another version of patchkit's.

    Raises:
        CacheError: the disk refused.
    """
    record = prefix.record
    text = (_SCRIPTS / "hipcc.sh").read_text("utf-8")
    wave = needs_wave_macro(clang_version=record.compiler_version, hip_version=record.hip_version)
    for mark, value in {
        "@HIP_VERSION@": record.hip_version,
        "@CLANG@": _word(record.compiler),
        "@DEVICE_LIBS@": _word(record.device_libs),
        "@ARCH@": load_pins().smoke_arch,
        "@WAVE_SIZE@": f"-imacros {_word(f'bin/{_HEADER}')}" if wave else "",
    }.items():
        text = text.replace(mark, value)
    with disk_errors(prefix.hipcc, "writing hipcc"):
        prefix.hipcc.parent.mkdir(exist_ok=True)
        _write(prefix.hipcc.with_name(_HEADER), (_SCRIPTS / _HEADER).read_text("utf-8"), 0o644)
        _write(prefix.hipcc, text, 0o755)


def _word(path: str) -> str:
    """A path of the record as the script has it: absolute, or from the prefix wherever that is."""
    return shlex.quote(path) if path.startswith("/") else f'"$prefix"/{shlex.quote(path)}'


def _write(path: Path, text: str, mode: int) -> None:
    """In one step: somebody may be running it."""
    if path.is_file() and path.read_bytes() == text.encode("utf-8"):
        return
    new = path.with_name(f".new-{path.name}")
    new.write_text(text, encoding="utf-8")
    new.chmod(mode)
    new.replace(path)
