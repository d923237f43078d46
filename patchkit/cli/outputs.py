"""Where files that a command writes beside its result may not go."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from patchkit.cli.settings import Settings
from patchkit.errors import Location, UsageError

_STDOUT = 1


def check_beside_document(settings: Settings, *files: Path | None) -> None:
    """Raise STDOUT_TAKEN when stdout gets a JSON document and one of the files is stdout, by any name."""
    for path in files:
        if settings.json and path is not None and _is_stdout(path):
            raise UsageError(
                f"{path} is stdout, and there the JSON document goes",
                code="STDOUT_TAKEN",
                where=Location(path=str(path)),
                hint="name a file, or leave --json out",
            )


def _is_stdout(path: Path) -> bool:
    with contextlib.suppress(OSError):  # no such file yet, or stdout is closed
        return os.path.samestat(path.stat(), os.fstat(_STDOUT)) and not path.samefile(os.devnull)
    return False
