"""What a patch rests on, and which of it upstream no longer has.

Vocabulary: the *premise* of a patch is the files it edits, the functions it names, and the build options
its guard asks for. A function that is defined anywhere in the series' folders is not gone; where
it went is a matter of :mod:`patchkit.classify.retarget`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from patchkit.classify.model import Gone
from patchkit.config.manifest import Patch


def find_gone(
    patch: Patch,
    files: Mapping[str, bytes],
    names: Iterable[str],
    defines: Callable[[str, str], bool],
) -> tuple[Gone, ...]:
    """Every part of the premise that is gone, files first.

    Args:
        patch: of which build does not matter.
        files: the sources of the new upstream that may be edited or included, by path.
        names: every path of the new upstream.
        defines: whether the file of a path defines a function of that name.
    """
    return tuple(dict.fromkeys(_find(patch, files, frozenset(names), defines)))


def asks_for(macro: str, source: bytes) -> bool:
    """Whether a source names ``macro`` anywhere but behind a ``//``: a comment may outlive the option."""
    for found in re.finditer(rb"\b" + re.escape(macro.encode()) + rb"\b", source):
        if b"//" not in source[source.rfind(b"\n", 0, found.start()) + 1 : found.start()]:
            return True
    return False


def _find(
    patch: Patch, files: Mapping[str, bytes], names: frozenset[str], defines: Callable[[str, str], bool]
) -> Iterator[Gone]:
    for macro in patch.guard_macros:
        if not any(asks_for(macro, data) for data in files.values()):
            yield Gone(what="option", name=macro)
    bases = {posixpath.basename(name) for name in names}
    wanted = [(edit.file, edit.function) for edit in patch.edits]
    wanted += [(alias.file, alias.function) for alias in patch.aliases]
    for path, function in wanted:
        if path not in names and posixpath.basename(path) not in bases:
            if function is None or not _anywhere(function, files, defines):
                yield Gone(what="file", name=path)
        elif function is not None and not _anywhere(function, files, defines):
            yield Gone(what="function", name=f"{function} in {path}")


def _anywhere(function: str, files: Mapping[str, bytes], defines: Callable[[str, str], bool]) -> bool:
    last = function.rpartition("::")[2].encode()
    return any(last in data and defines(path, function) for path, data in files.items())
