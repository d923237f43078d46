"""Why a change of a queue is not placed, as far as upstream's trees tell, and what to do then."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from patchkit.base.errors import PatchkitError
from patchkit.base.text import visible
from patchkit.carry.importing.ground import Ground, Grounds
from patchkit.carry.importing.hunks import keep_below, parse_diff, stripped
from patchkit.carry.importing.queue_sources import QueuedChange

_SHOWN = 4  # files of the same name
_MISSING = ("does not exist in index", "No such file or directory", "lacks filename information")


def explain(
    error: PatchkitError, change: QueuedChange, tree: str, grounds: Grounds, ground: Ground
) -> PatchkitError:
    """The error of placing a change on a tree, with what else is known: of its paths, and of other builds."""
    if error.code != "IMPORT_NOT_APPLYING" or error.hint is not None:
        return error
    if any(words in (error.why or "") for words in _MISSING):
        other = _other_paths(change, tree, grounds)
        if other is not None:
            error.message = f"{change.name} has other paths than {ground.name}"
            error.why, error.hint = other
            return error
    if b"\r\n" in change.data and _applies(
        replace(change, data=change.data.replace(b"\r\n", b"\n")), tree, grounds
    ):
        error.hint = "its lines end as on Windows (CRLF), and upstream's do not: save it with LF line ends"
        return error
    if grounds.trees.apply(tree, change, backwards=True)[0] is not None:
        error.why = "taken back it applies: the tree has this change already"
        error.hint = "leave it out"
        return error
    near = grounds.nearest(change, ground)
    if near is not None:
        error.hint = f"by itself it applies to {near}: --upstream {near}"
    else:
        error.hint = (
            f"tried on {ground.name} and every cached build; --upstream names the one it was made for"
        )
    return error


def _applies(change: QueuedChange, tree: str, grounds: Grounds) -> bool:
    try:
        grounds.trees.place(tree, change)
    except PatchkitError:
        return False
    return True


def _other_paths(change: QueuedChange, tree: str, grounds: Grounds) -> tuple[str, str] | None:
    """How the paths of a change would be upstream's: why they are not, and the option that says so."""
    out = grounds.trees.git.run("ls-tree", "-r", "-z", "--name-only", tree)
    names = frozenset(out.decode("utf-8", "surrogateescape").split("\0"))
    olds = [part.old for part in parse_diff(change.data) if part.old is not None and part.old != "/dev/null"]
    for option, other, name in _ways(change, olds, names):
        was = visible(f"'{stripped(name, change.strip) or name}' is '{stripped(name, other.strip)}' there")
        try:
            grounds.trees.place(tree, other)
        except PatchkitError as error:
            return was, f"with {option} its paths are upstream's, but it does not apply: {error.message}"
        return was, f"with {option} it applies: add that to the command, or behind its name in a series"
    lost = [name for name in (stripped(old, change.strip) for old in olds) if name and name not in names]
    same = sorted(
        path for path in names for name in lost if path.rpartition("/")[2] == name.rpartition("/")[2]
    )
    lacking = {_folder_of(stripped(name, change.strip) or "", names) for name in olds}
    if len(lacking) == 1 and (folder := lacking.pop()) is not None:
        return (
            visible(f"upstream has '{stripped(olds[0], change.strip)}' below {folder}/"),
            f"make the diff in llama.cpp's tree, or write {folder}/ in front of its paths",
        )
    if same:
        return (
            visible(f"it has no '{lost[0]}', but {', '.join(same[:_SHOWN])}"),
            "make the diff for that file; or name the upstream that it was made for: --upstream",
        )
    return None


def _ways(
    change: QueuedChange, olds: list[str], names: frozenset[str]
) -> Iterator[tuple[str, QueuedChange, str]]:
    """Options that make upstream's paths of those of a change, the change with them, and a path."""
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
    """The one folder below which a tree has a path."""
    found = {name.removesuffix(f"/{path}") for name in names if path and name.endswith(f"/{path}")}
    return found.pop() if len(found) == 1 else None
