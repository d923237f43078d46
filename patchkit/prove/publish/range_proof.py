"""Proves at two pins that the patches change nothing outside of the entities that they declare."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from patchkit.base.errors import ExitCode, Location, PatchkitError
from patchkit.base.source import SourceText
from patchkit.base.upstreams import build_name
from patchkit.carry.candidate.find import read_candidate
from patchkit.carry.candidate.record import Candidate, candidate_ref
from patchkit.carry.cpp.scopes import parse_scopes
from patchkit.carry.series.catalogue import Series
from patchkit.carry.series.patch import Patch
from patchkit.carry.upstream.refs import list_refs
from patchkit.carry.upstream.repository import Repository

_SHOWN = 5  # lines of a difference in a message
_WHOLE = "the whole file"


class RangeProofFailed(PatchkitError):
    """A candidate differs from its base outside of what its patches declare."""

    code = "RANGE_PROOF_FAILED"
    exit_code = ExitCode.GATE_FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class FileProof:
    """One changed file: its declared entities, and the differing lines outside of them (``+`` and ``-``)."""

    json_keys: ClassVar = "path declared"

    path: str
    declared: tuple[str, ...]
    stray: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SideProof:
    """One candidate compared with its base."""

    build: int
    base: str
    tip: str
    files: tuple[FileProof, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeProof:
    """Both sides, and git's own comparison of the two series of commits as text."""

    json_keys: ClassVar = "old new"

    old: SideProof
    new: SideProof
    range_diff: str


_PUBLISHED = re.compile(r"refs/heads/patchkit/(?P<archs>[^/]+)/b(?P<build>[0-9]+)(?:-emulated|-unproven)?")


def carry_range(
    repository: Repository, series: Series, *, archs: tuple[str, ...], build: int, tip: str
) -> RangeProof | None:
    """Prove the step from the previously published pin: the nearest older one, else the nearest newer one.

    None without another pin. Raises RangeProofFailed: one side differs outside of what is declared.
    """
    refs = list_refs(repository, "refs")
    found: dict[int, str] = {}
    for ref in refs:
        name = _PUBLISHED.fullmatch(ref)
        if name is not None and name["archs"] == "+".join(archs) and int(name["build"]) != build:
            # The shortest name sorts first and has the best proof.
            found.setdefault(int(name["build"]), ref)
    older = [one for one in found if one < build]
    nearest = max(older) if older else min(found, default=None)
    if nearest is None or f"refs/patchkit/pin/{build_name(nearest)}" not in refs:
        return None
    (sealed,) = repository.resolve(f"{found[nearest]}^")  # the candidate is the parent of the seal
    if sealed is None:
        return None

    def candidate(pin: int, commit: str) -> Candidate:
        ref = candidate_ref(archs, build_name(pin))
        return read_candidate(repository, ref, {**refs, ref: commit})

    return prove_range(repository, series, candidate(nearest, sealed), candidate(build, tip))


def prove_range(repository: Repository, series: Series, old: Candidate, new: Candidate) -> RangeProof:
    """The proof for two candidates of one series.

    Raises:
        RangeProofFailed: one of them has differences outside; its message has the lines.
        GitError: an object is missing.
    """
    sides = tuple(_side(repository, series, one) for one in (old, new))
    for side in sides:
        for one in side.files:
            if one.stray:
                raise RangeProofFailed(
                    f"{one.path} differs from build {side.build} outside of what its patches declare",
                    where=Location(path=one.path),
                    why="\n".join(one.stray[:_SHOWN]),
                    hint=f"declared: {', '.join(one.declared) or 'nothing'}; name the function in the edit",
                )
    ranges = [f"{one.base}..{one.tip}" for one in (old, new)]
    text = repository.git.run("range-diff", "--no-color", *ranges).decode("utf-8", "replace")
    return RangeProof(old=sides[0], new=sides[1], range_diff=text)


def stray_lines(path: str, base: bytes, tip: bytes, functions: Iterable[str]) -> tuple[str, ...]:
    """Differing lines outside of the functions, except for added preprocessor lines."""
    before, after = (_outside(path, data, tuple(functions)) for data in (base, tip))
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    found: list[str] = []
    for how, start, end, first, last in matcher.get_opcodes():
        if how == "equal":
            continue
        found += [f"- {_shown(line)}" for line in before[start:end]]
        found += [f"+ {_shown(line)}" for line in _not_preprocessor(after[first:last])]
    return tuple(found)


def _side(repository: Repository, series: Series, candidate: Candidate) -> SideProof:
    found = [patch for commit in candidate.commits if (patch := series.patch(commit.id)) is not None]
    patches = [patch.for_build(candidate.build) for patch in found]
    changes = repository.git.changes(candidate.base, candidate.tip)
    changed = {each.path: each.letter for each in changes}
    declared = _declared(patches)
    renamed = {file.to: file.source for patch in patches for file in patch.renames}
    there = repository.find_entries(candidate.base, sorted(renamed.values()))
    # A renamed file that an earlier patch added counts as new.
    renamed = {new: old for new, old in renamed.items() if old in there and changed.get(new) == "A"}
    kept = [path for path, state in changed.items() if state == "M"]
    before = repository.read_blobs(candidate.base, [*kept, *renamed.values()])
    after = repository.read_blobs(candidate.tip, [*kept, *renamed])
    before |= {new: before[old] for new, old in renamed.items()}
    whole = _whole(patches, renamed)
    modes = {mode.path for patch in patches for mode in patch.modes}
    stray_modes = {
        each.path: f"mode {' becomes '.join(each.modes)}"
        for each in changes
        if each.letter == "M" and each.modes[0] != each.modes[1] and each.path not in modes
    }
    return SideProof(
        build=candidate.build,
        base=candidate.base,
        tip=candidate.tip,
        files=tuple(
            _with_mode(
                _file(path, state, declared.get(renamed.get(path, path), ()), whole, before, after),
                stray_modes.get(path),
            )
            for path, state in sorted(changed.items())
        ),
    )


def _file(
    path: str,
    state: str,
    names: tuple[str, ...],
    whole: Mapping[tuple[str, str], str],
    before: Mapping[str, bytes],
    after: Mapping[str, bytes],
) -> FileProof:
    note = whole.get((state, path))
    if note is not None:
        return FileProof(path=path, declared=(note,), stray=())
    if path not in before or path not in after:
        return FileProof(path=path, declared=names, stray=(f"{state} {path}",))
    if _WHOLE in names:
        return FileProof(path=path, declared=names, stray=())
    return FileProof(path=path, declared=names, stray=stray_lines(path, before[path], after[path], names))


def _declared(patches: Sequence[Patch]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for patch in patches:
        for edit in patch.edits:
            if edit.verb != "add_include":  # a preprocessor line
                found.setdefault(edit.file, []).append(edit.function or _WHOLE)
        for alias in patch.aliases:
            found.setdefault(alias.file, []).append(alias.function)
    return {path: tuple(sorted(set(names))) for path, names in found.items()}


def _outside(path: str, data: bytes, functions: Sequence[str]) -> list[bytes]:
    """The lines of a file with each declared function replaced by one line."""
    scopes = parse_scopes(SourceText(path, data))
    pieces, at = [], 0
    for entity in scopes.entities:
        if entity.span.start >= at and any(entity.answers_to(name) for name in functions):
            pieces += [data[at : entity.span.start], b"\n<" + entity.name.encode() + b">\n"]
            at = entity.span.end
    return b"".join([*pieces, data[at:]]).split(b"\n")


def _not_preprocessor(lines: Sequence[bytes]) -> Iterator[bytes]:
    continued = False
    for line in lines:
        text = line.strip()
        if not continued and text and not text.startswith((b"#", b"//")):
            yield line
        continued = text.endswith(b"\\") and (continued or text.startswith(b"#"))


def _shown(line: bytes) -> str:
    return line.decode("utf-8", "replace").strip()[:120]


def _whole(patches: Sequence[Patch], renamed: Mapping[str, str]) -> dict[tuple[str, str], str]:
    """Declarations about whole files, by git's letter and path; ``renamed`` ones are compared instead."""
    found: dict[tuple[str, str], str] = {}
    for patch in patches:
        for file in patch.files:
            found["A", file.path] = "a new file"
            if file.replaces is not None:
                found["M", file.path] = "another file in its place"
        for removed in patch.removes:
            found["D", removed.path] = "removed"
        for old in patch.renames:
            found["D", old.source] = f"renamed to {old.to}"
            if old.to not in renamed:
                found["A", old.to] = "a new file"
    return found


def _with_mode(proof: FileProof, stray: str | None) -> FileProof:
    return proof if stray is None else replace(proof, stray=(*proof.stray, stray))
