"""The ``hipcc`` of an SDK prefix: a relocatable script that runs clang with the options for HIP programs.

It depends only on the record and on this version of patchkit, so it is not part of the record, and can be
added to a prefix that an older patchkit created.
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
    """Write ``bin/hipcc`` if it is missing or of another version of patchkit.

    Raises:
        CacheError: a disk operation failed.
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
    """A path of the record as a shell word: absolute, or relative to the script's ``$prefix``."""
    return shlex.quote(path) if path.startswith("/") else f'"$prefix"/{shlex.quote(path)}'


def _write(path: Path, text: str, mode: int) -> None:
    """Write a file atomically, because the script may be running."""
    if path.is_file() and path.read_bytes() == text.encode("utf-8"):
        return
    new = path.with_name(f".new-{path.name}")
    new.write_text(text, encoding="utf-8")
    new.chmod(mode)
    new.replace(path)
