"""The HIP host pass, which all GPUs share, so that a guard which is live there is a run-time branch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from patchkit.base.errors import GateError, Location
from patchkit.prove.subject import Subject
from patchkit.toolchain.tree import overlay_tree
from patchkit.toolchain.units import library_folder

_DEAD = b"(false)"
_TEST = re.compile(rb" == GGML_CUDA_CC_OFFSET_AMD \+ 0x([0-9a-f]+)")


class HostBranchLeaks(GateError):
    """The HIP host pass changes by more than the run-time branch."""

    code = "ISOLATION_HOST"


class HostExpressionForeign(GateError):
    """Generated host code tests for a GPU outside of the guards, which the patch would then change."""

    code = "ISOLATION_FOREIGN_GPU"


def closed_tree(subject: Subject) -> Path:
    """The candidate with every generated region closed."""
    conditions = {b"#if " + patch.guard.region.encode() for patch in subject.patches}

    changes = {}
    for path in subject.changed_files:
        lines = (subject.candidate / path).read_bytes().split(b"\n")
        closed = [b"#if 0" if line.rstrip(b"\r") in conditions else line for line in lines]
        changes[path] = b"\n".join(closed)
    return overlay_tree(subject.candidate, changes, "closed", below=library_folder(subject.candidate))


def dead_tree(subject: Subject) -> Path:
    """The candidate with every generated host expression false.

    Raises:
        HostExpressionForeign: an expression names a GPU outside of every guard.
    """
    allowed = _guarded(subject)
    changes: dict[str, bytes] = {}
    for path in subject.changed_files:
        data = (subject.candidate / path).read_bytes()
        pieces, at = [], 0
        for start, end in host_expressions(data):
            if not _is_ours(subject, path, data, start):
                continue
            for found in _TEST.finditer(data, start, end):
                if int(found[1], 16) not in allowed:
                    raise _foreign(subject, path, data, found.start(), int(found[1], 16))
            pieces += [data[at:start], _DEAD]
            at = end
        changes[path] = b"".join([*pieces, data[at:]])
    return overlay_tree(subject.candidate, changes, "dead", below=library_folder(subject.candidate))


def host_expressions(data: bytes) -> Iterator[tuple[int, int]]:
    """Spans of ``(cc == GGML_CUDA_CC_OFFSET_AMD + 0x..., || ...)``, parentheses included."""
    end = -1
    for found in _TEST.finditer(data):
        if found.start() < end:
            continue
        start = _open_before(data, found.start())
        if start is not None:
            end = _close_after(data, start)
            yield start, end


def _guarded(subject: Subject) -> Mapping[int, str]:
    """The GPUs that patches are for, by upstream's number."""
    return {target.cc: target.arch for patch in subject.patches for target in patch.guard.targets}


def _is_ours(subject: Subject, path: str, data: bytes, offset: int) -> bool:
    lines = subject.authors.get(path, ())
    line = data.count(b"\n", 0, offset)
    return line < len(lines) and lines[line] is not None


def _open_before(data: bytes, offset: int) -> int | None:
    """The parenthesis that is open at ``offset``."""
    depth = 0
    for at in range(offset - 1, -1, -1):
        letter = data[at : at + 1]
        if letter in b")]":
            depth += 1
        elif letter in b"([":
            if depth == 0:
                return at
            depth -= 1
        elif letter in b";{}":
            return None
    return None


def _close_after(data: bytes, start: int) -> int:
    depth = 0
    for at in range(start, len(data)):
        letter = data[at : at + 1]
        depth += letter in (b"(", b"[")
        depth -= letter in (b")", b"]")
        if depth == 0:
            return at + 1
    return len(data)


def _foreign(subject: Subject, path: str, data: bytes, offset: int, cc: int) -> HostExpressionForeign:
    line = data.count(b"\n", 0, offset) + 1
    patches = ", ".join(subject.patches_of(path, line))
    named = next((p.arch for p in subject.profiles.values() if p.compute_capability == cc), "no known GPU")
    return HostExpressionForeign(
        f"generated host code tests for 0x{cc:x} ({named}), which is not guarded",
        where=Location(path=path, line=line, label=patches),
        why=f"the guards name {', '.join(sorted(_guarded(subject).values()))}",
        hint="use @{ guard.host('cc') }@ in the patch's text",
    )
