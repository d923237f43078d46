"""The second derivation: the last rendering carried to the new upstream as text, by ``git merge-file``.

Vocabulary: *base* is a file as it was before the patch, *theirs* with the patch, *ours* on the new
upstream. The merge knows nothing about C++; that it gives the same tokens as placing by structure is
worth something because both were found in different ways.
"""

from __future__ import annotations

import difflib
import tempfile
from collections.abc import Mapping
from pathlib import Path

from patchkit.classify.model import Agreement
from patchkit.cxx.scopes import parse_scopes
from patchkit.report import Reporter
from patchkit.source import SourceText, Span
from patchkit.vcs.disk import disk_errors
from patchkit.vcs.runner import Git

_MOST_CONFLICTS = 127  # git merge-file: more than that, and errors, are statuses above
_SHOWN = 40  # lines of a difference


def merge_file(ours: bytes, base: bytes, theirs: bytes, reporter: Reporter) -> tuple[bytes, int]:
    """The merged bytes and the number of conflicts.

    Raises GIT_FAILED for what is no conflict, CacheError when there is no room for temporary files.
    """
    if base in (ours, theirs):
        return (theirs if ours == base else ours), 0
    with (
        disk_errors(Path(tempfile.gettempdir()), "writing temporary files"),
        tempfile.TemporaryDirectory(prefix="patchkit-merge-") as folder,
    ):
        names = []
        for name, data in (("ours", ours), ("base", base), ("theirs", theirs)):
            (Path(folder) / name).write_bytes(data)
            names.append(str(Path(folder) / name))
        git = Git(reporter=reporter)
        args = ("merge-file", "-p", "-q", *names)
        done = git.attempt(*args)
        if not 0 <= done.status <= _MOST_CONFLICTS:
            raise git.failure(args, done)
        return done.stdout, done.status


def compare_derivations(
    before: Mapping[str, bytes],
    after: Mapping[str, bytes],
    current: Mapping[str, bytes],
    structural: Mapping[str, bytes],
    reporter: Reporter,
) -> Agreement:
    """Hold the structural result against the merge of the last rendering.

    Args:
        before: edited files of the old upstream, without the patch; a file the patch adds is not there.
        after: the same files with it, and those it adds.
        current: edited files of the new upstream, without the patch.
        structural: what placing by structure made of them.
        reporter: hears about git.
    """
    lines: list[str] = []
    verdict = "agree"
    for path in sorted({*after, *structural}):
        base, ours = before.get(path), current.get(path)
        if path not in after or path not in structural or (base is None) != (ours is None):
            verdict = "does not apply" if verdict == "agree" else verdict
            lines.append(f"{path}: only one of the two changes it")
            continue
        if base is None or ours is None:
            merged, conflicts = after[path], 0  # a file of ours alone
        else:
            merged, conflicts = merge_file(ours, base, after[path], reporter)
        if conflicts:
            verdict = "does not apply" if verdict == "agree" else verdict
            lines.append(f"{path}: the textual merge has {conflicts} conflicts")
        elif not same_tokens(path, merged, structural[path]):
            verdict = "differ"
            lines += _difference(path, merged, structural[path])
    if verdict == "agree":
        return Agreement(verdict="agree")
    return Agreement(verdict="differ" if verdict == "differ" else "does not apply", lines=tuple(lines))


def same_tokens(path: str, one: bytes, other: bytes) -> bool:
    """Whether two versions of a file are the same code: layout and comments do not count."""
    if one == other:
        return True
    texts = (SourceText(path, one), SourceText(path, other))
    digests = {parse_scopes(text).digest(Span(0, len(text.data))) for text in texts}
    return len(digests) == 1


def _difference(path: str, textual: bytes, structural: bytes) -> list[str]:
    rows = list(
        difflib.unified_diff(
            textual.decode("utf-8", "replace").splitlines(),
            structural.decode("utf-8", "replace").splitlines(),
            f"{path} (textual merge)",
            f"{path} (by structure)",
            lineterm="",
            n=2,
        )
    )
    return rows[:_SHOWN] + ([f"... and {len(rows) - _SHOWN} lines more"] if len(rows) > _SHOWN else [])
