"""Explain why a change of a queue does not apply, and what to do about it, by trying upstream's trees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from patchkit.base.errors import PatchkitError
from patchkit.base.text import visible
from patchkit.carry.importing.hunks import keep_below, parse_diff, stripped
from patchkit.carry.importing.queue_base import BaseFinder, QueueBase
from patchkit.carry.importing.queue_sources import QueuedChange

_SHOWN = 4  # files of the same name
_MISSING = ("does not exist in index", "No such file or directory", "lacks filename information")


def explain_rejection(
    error: PatchkitError, change: QueuedChange, tree: str, finder: BaseFinder, queue_base: QueueBase
) -> PatchkitError:
    """Explain the error of a change that does not apply: by its paths, line endings, or another build."""
    if error.code != "IMPORT_NOT_APPLYING" or error.hint is not None:
        return error
    if any(words in (error.why or "") for words in _MISSING):
        other = _other_paths(change, tree, finder)
        if other is not None:
            error.message = f"the paths in {change.name} are not those of {queue_base.name}"
            error.why, error.hint = other
            return error
    if b"\r\n" in change.data and _applies(
        replace(change, data=change.data.replace(b"\r\n", b"\n")), tree, finder
    ):
        error.hint = "it has Windows line endings (CRLF), and upstream does not: save it with LF line endings"
        return error
    if finder.trees.apply(tree, change, backwards=True)[0] is not None:
        error.why = "it applies in reverse, so the tree already has this change"
        error.hint = "remove it from the queue"
        return error
    near = finder.nearest(change, queue_base)
    if near is not None:
        error.hint = f"on its own it applies to {near}: use --upstream {near}"
    else:
        tried = [name for name in (queue_base.name, queue_base.also_tried) if name is not None]
        error.hint = (
            f"it applies neither to {' nor to '.join(tried)} nor to any cached build; name the one it was "
            "made for with --upstream"
        )
    return error


def _applies(change: QueuedChange, tree: str, finder: BaseFinder) -> bool:
    try:
        finder.trees.place(tree, change)
    except PatchkitError:
        return False
    return True


def _other_paths(change: QueuedChange, tree: str, finder: BaseFinder) -> tuple[str, str] | None:
    """Whether an option would turn the paths of a change into upstream's: the reason and the hint."""
    out = finder.trees.git.run("ls-tree", "-r", "-z", "--name-only", tree)
    names = frozenset(out.decode("utf-8", "surrogateescape").split("\0"))
    olds = [part.old for part in parse_diff(change.data) if part.old is not None and part.old != "/dev/null"]
    for option, other, name in _ways(change, olds, names):
        present, wanted = stripped(name, change.strip) or name, stripped(name, other.strip)
        was = visible(f"upstream has '{wanted}' instead of '{present}'")
        try:
            finder.trees.place(tree, other)
        except PatchkitError as error:
            return was, f"with {option} its paths match upstream's, but it does not apply: {error.message}"
        return was, f"it applies with {option}: add that to the command, or after its name in a series file"
    lost = [name for name in (stripped(old, change.strip) for old in olds) if name and name not in names]
    same = sorted(
        path for path in names for name in lost if path.rpartition("/")[2] == name.rpartition("/")[2]
    )
    lacking = {_folder_of(stripped(name, change.strip) or "", names) for name in olds}
    if len(lacking) == 1 and (folder := lacking.pop()) is not None:
        return (
            visible(f"upstream has '{stripped(olds[0], change.strip)}' below {folder}/"),
            f"make the diff in llama.cpp's tree, or put {folder}/ before its paths",
        )
    if same:
        return (
            visible(f"upstream has no '{lost[0]}', but {', '.join(same[:_SHOWN])}"),
            "make the diff for that file, or name the upstream that it was made for with --upstream",
        )
    return None


def _ways(
    change: QueuedChange, olds: list[str], names: frozenset[str]
) -> Iterator[tuple[str, QueuedChange, str]]:
    """Options that turn a change's paths into upstream's, with the resulting change and an example path."""
    for strip in range(max((name.count("/") for name in olds), default=0) + 1):
        inside = [name for name in olds if stripped(name, strip) in names]
        if strip == change.strip or not inside:
            continue
        if len(inside) == len(olds):
            yield f"-p{strip}", replace(change, strip=strip), inside[0]
        folders = {"/".join(name.split("/")[change.strip : strip]) for name in inside}
        if len(folders) == 1 and (folder := folders.pop()):
            data, _ = keep_below(change.data, folder, change.strip)
            yield f"--prefix {folder}", replace(change, data=data, strip=strip), inside[0]


def _folder_of(path: str, names: frozenset[str]) -> str | None:
    """The folder below which a tree has this path, if there is exactly one."""
    found = {name.removesuffix(f"/{path}") for name in names if path and name.endswith(f"/{path}")}
    return found.pop() if len(found) == 1 else None
