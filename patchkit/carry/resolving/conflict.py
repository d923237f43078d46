"""The conflict folder: write files for the user to edit, and read back the result.

``state.json`` in the folder records what it was made from. The folder is not trusted: everything is computed
again, and refused if a digest differs. Only the text between two marker lines of a file is read back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from patchkit.base.digests import sha256
from patchkit.base.errors import AnchorError, ConfigError, Location, PatchkitError, UsageError
from patchkit.base.files import disk_errors, open_regular, whole_folder
from patchkit.base.source import SourceText
from patchkit.base.text import counted, visible
from patchkit.base.toml import find_places
from patchkit.base.upstreams import build_name
from patchkit.carry.cpp.scopes import is_code, parse_scopes
from patchkit.carry.judging.conflict_markers import Labels, conflict_markers, list_conflicts
from patchkit.carry.judging.line_diff import compare_lines
from patchkit.carry.judging.merge import MergedFile
from patchkit.carry.lifting.change import FileChange
from patchkit.carry.lifting.pipeline import Pipeline
from patchkit.carry.lifting.write import Body, body_files, read_text
from patchkit.carry.resolving.case import Case

STATE = "state.json"
_MOST_BYTES = 64 << 20  # of an edited file
_MOST_STATE = 1 << 20
_WHOLE = 300  # lines up to which a function is shown as a whole
_AROUND = 40  # lines around a conflict in a longer function
_OUTSIDE = 15  # lines around a conflict outside of functions

_SLASHES = re.compile(
    r"(c|cc|cpp|cxx|cu|cuh|h|hh|hpp|m|mm|metal|cl|comp|glsl|vert|frag|wgsl|js|mjs|ts|tsx|jsx|java|kt|swift|go|rs"
    r"|zig|scss|proto|gradle|inc|ipp)"
)
_ANGLES = re.compile(r"(md|html?|xml|svg|vue|svelte)")


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


_Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
_ObjectId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
_Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.:+-]+$", max_length=200)]


class FileState(_Strict):
    """One file: its path in upstream, its name in the folder, and digests of what it was made from."""

    path: Annotated[str, StringConstraints(min_length=1, max_length=4096)]
    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_+-][A-Za-z0-9_.+-]*$", max_length=255)]
    upstream: _Sha256
    merged: _Sha256


class FolderState(_Strict):
    """What a folder was made from; ``tree``: of the new build; ``patch_toml``: digest of that file.

    ``pending``: earlier patches that are left out, as in :class:`patchkit.carry.resolving.case.Case`.
    """

    version: Literal[1] = 1
    patch: _Word
    build: Annotated[int, Field(gt=0, lt=10**9)]
    tree: _ObjectId
    archs: Annotated[list[_Word], Field(max_length=100)]
    with_: Annotated[list[_Word], Field(max_length=1000)]
    patch_toml: _Sha256
    pending: Annotated[list[_Word], Field(max_length=1000)] = []
    files: Annotated[list[FileState], Field(min_length=1, max_length=1000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """Lines ``[first, last)`` of a merged file, from 0; ``inside``: the definition around them."""

    first: int
    last: int
    inside: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConflictFile:
    """One file of the folder: its path in upstream, why it is there, and the functions shown in it."""

    path: str
    name: str
    conflicts: int
    why: str
    inside: tuple[str, ...]


def find_regions(file: MergedFile, labels: Labels) -> list[Region]:
    """The parts of a merged file to show: the functions with its conflicts, or with its changes."""
    rows = file.merged.split(b"\n")
    conflicts, kept = _conflicts(rows, labels)
    text = SourceText(file.path, b"\n".join(rows[at] for at in kept))
    places = [(low, high, at) for low, high, at in conflicts]
    if not places:
        blocks = compare_lines((file.upstream or b"").split(b"\n"), text.rows)
        places = [
            (kept[min(b.new, len(kept) - 1)], kept[min(b.new_end, len(kept)) - 1] + 1, b.new) for b in blocks
        ]
    regions: list[Region] = []
    for low, high, at in places:
        first, last, inside = _around(text, at)
        region = Region(
            first=min(low, kept[min(first, len(kept) - 1)]),
            last=max(high, kept[min(last, len(kept) - 1)] + 1),
            inside=inside,
        )
        before = regions[-1] if regions else None
        if before is not None and region.first <= before.last:
            names = (*before.inside.split(", "), region.inside)
            name = ", ".join(dict.fromkeys(each for each in names if each))
            regions[-1] = Region(first=before.first, last=max(before.last, region.last), inside=name)
        else:
            regions.append(region)
    return regions


def _conflicts(rows: Sequence[bytes], labels: Labels) -> tuple[list[tuple[int, int, int]], list[int]]:
    """Each conflict: its lines, and its place in the text with upstream's side; and that text's lines."""
    found: list[tuple[int, int, int]] = []
    kept: list[int] = []
    at = 0
    for each in list_conflicts(rows, labels):
        kept += range(at, each.first)
        found.append((each.first, each.stop, len(kept)))
        at = each.stop
        kept += range(at - 1 - len(each.upstream), at - 1)
    kept += range(at, len(rows))
    return found, kept or [0]


def _around(text: SourceText, at: int) -> tuple[int, int, str]:
    """First and last line to show around a place, and the name of its definition."""
    stop = max(0, len(text.rows) - 1 - text.data.endswith(b"\n"))
    if is_code(text.path):
        scopes = parse_scopes(text)
        around = [each for each in scopes.definitions if at in text.lines_of(each.span)]
        if around:
            inside = max(around, key=lambda each: each.span)
            lines = text.lines_of(inside.span)
            if len(lines) <= _WHOLE + 1:
                return lines[0], lines[-1], inside.name
            return max(lines[0], at - _AROUND), min(lines[-1], at + _AROUND), inside.name
    return max(0, at - _OUTSIDE), min(stop, at + _OUTSIDE), ""


def file_names(paths: Sequence[str]) -> dict[str, str]:
    """A name in the folder for each path: the file's own name, so that editors recognise the language."""
    names: dict[str, str] = {}
    for path in paths:
        base = path.rpartition("/")[2].lstrip(".") or "file"
        name, number = base, 1
        while name.casefold() in {each.casefold() for each in (*names.values(), STATE)}:
            number += 1
            name = f"{number}-{base}"
        names[path] = name
    return names


def comment(path: str, text: str) -> str:
    """A comment line in the language of a file."""
    suffix = path.rpartition(".")[2].lower()
    shown = visible(text)
    if _SLASHES.fullmatch(suffix):
        return f"// {shown}".rstrip()
    if _ANGLES.fullmatch(suffix):
        return f"<!-- {shown.replace('--', '- -')} -->"
    return f"# {shown}".rstrip()


def _limits(path: str, number: int, count: int, region: Region) -> tuple[str, str]:
    """The two marker lines between which the user edits."""
    of = f" {number} of {count}" if count > 1 else ""
    inside = f", {region.inside}" if region.inside else ""
    begin = f"==== edit below{of}: {path}, line {region.first + 1}{inside} ===="
    return comment(path, begin), comment(path, f"==== edit above{of} ====")


def shown_files(case: Case, doubts: Mapping[str, str]) -> list[MergedFile]:
    """The files of a case that the user has to look at. Raises RESOLVE_FILE_GONE."""
    for each in case.merged:
        if each.upstream is None and each.base is not None:
            raise AnchorError(
                f"upstream has no {each.path} at {case.new.pin.title}, and no file with that content",
                code="RESOLVE_FILE_GONE",
                where=[case.patch.where, Location(path=each.path)],
                why="there is no file to merge the patch into",
                hint=f"end its build range with [builds] last = {case.new.pin.build - 1}, or write edits for "
                "another file, with first_build",
            )
    found = [each for each in case.merged if each.path in doubts]
    return found or [each for each in case.merged if not each.is_new and each.is_left]


def write_folder(
    case: Case,
    doubts: Mapping[str, str],
    problems: Sequence[PatchkitError],
    folder: Path,
    state: Mapping[str, object],
    pipeline: Pipeline,
    command: str,
) -> tuple[ConflictFile, ...]:
    """Write the files of a case and ``state.json``, all or nothing; ``state``: the fields from the request.

    ``command``: the one that continues, for the header of each file.

    Raises RESOLVE_UNFINISHED if the folder exists, RESOLVE_FILE_GONE, and CacheError.
    """
    if folder.exists() or folder.is_symlink():
        raise UsageError(
            f"{folder} already exists",
            code="RESOLVE_UNFINISHED",
            where=Location(path=str(folder)),
            why="it may contain unfinished work",
            hint=f"run patchkit resolve {case.patch.id} --continue or --abort, or give another --into folder",
        )
    files = shown_files(case, doubts)
    names = file_names([each.path for each in files])
    written: list[ConflictFile] = []
    with (
        disk_errors(folder, "writing the conflict", "use another folder with --into"),
        whole_folder(folder) as new,
    ):
        for file in files:
            regions = find_regions(file, case.labels(file.path))
            name, why = names[file.path], doubts.get(file.path, "")
            toml = f"{name}.edits.toml"
            lines = _header(case, file, why, problems, toml, command)
            rows = file.merged.split(b"\n")
            pieces = [line.encode() for line in lines]
            for number, region in enumerate(regions, 1):
                begin, end = _limits(file.path, number, len(regions), region)
                pieces += [b"", begin.encode(), *rows[region.first : region.last], end.encode()]
            (new / name).write_bytes(b"\n".join(pieces) + b"\n")
            (new / toml).write_text(_edits(case, file, pipeline), "utf-8", newline="\n")
            written.append(
                ConflictFile(
                    path=file.path,
                    name=name,
                    conflicts=file.conflicts,
                    why=why,
                    inside=tuple(each.inside for each in regions if each.inside),
                )
            )
        found = FolderState.model_validate({**state, "files": [_state_of(each, names) for each in files]})
        (new / STATE).write_text(found.model_dump_json(indent=1) + "\n", "utf-8")
    return tuple(written)


def _state_of(file: MergedFile, names: Mapping[str, str]) -> FileState:
    return FileState(
        path=file.path,
        name=names[file.path],
        upstream=sha256(file.upstream or b""),
        merged=sha256(file.merged),
    )


def _header(
    case: Case, file: MergedFile, why: str, problems: Sequence[PatchkitError], toml: str, command: str
) -> Iterator[str]:
    patch, old, new = case.patch, case.old, case.new.pin
    moved = f" ({file.was} at {old.name})" if file.was != file.path else ""
    rows = [
        f"patchkit resolve: '{patch.id}' from {old.title} to {new.title}, {file.path}{moved}",
        f"{patch.title}",
        "",
    ]
    if file.path in case.differing:
        rows += [
            f"{counted(file.conflicts, 'difference')}, each with two parts: git's merge of the patch;",
            f"after =======, what its present edits give on {new.name}.",
            "Edit them into the final text, and remove the marker lines.",
        ]
    elif file.conflicts:
        rows += [
            f"{counted(file.conflicts, 'conflict')}, each with three parts: {old.name} with the patch;",
            f"after |||||||, {old.name} without it; after =======, {new.name}.",
            "Edit them into the final text, and remove the marker lines.",
        ]
    else:
        rows += [f"No conflict of lines, but please check: {why or 'the merge'}.", "Change it or leave it."]
    if patch.is_plain:
        rows.append(f"Only the text between the ==== lines is used. Then run: {command}")
    else:
        rows.append(
            "This patch has a guard, so change its edits by hand in patch.toml; this file shows where."
        )
    rows.append(f"Its present edits, and a draft of new ones: {toml}")
    changed = [each for each in case.verdict.drift if each.file in (file.was, file.path)]
    for drift in changed:
        rows += ["", f"upstream changed {drift.entity}:"]
        rows += [f"  by {commit}" for commit in drift.commits]
        rows += [f"  - {text}" for text in drift.removed] + [f"  + {text}" for text in drift.added]
    for problem in problems:
        if problem.code == "DERIVATIONS_DIFFER":
            continue  # the text shows both versions
        if not problem.where or any(place.path in (file.was, file.path) for place in problem.where):
            rows += ["", f"{problem.code}: {problem.message}"]
            rows += [f"  {place.with_label}" for place in problem.where]
            rows += [
                f"  {line}" for text in (problem.why, problem.hint) for line in (text or "").splitlines()
            ]
    for row in rows:
        yield comment(file.path, row)


def _edits(case: Case, file: MergedFile, pipeline: Pipeline) -> str:
    """The present edits of a file, and a draft of new ones, lifted from the patch's side of the merge."""
    text = read_text(pipeline.workspace.series.patches / case.patch.folder)
    pieces = [f"# The present edits of {file.was} in patch.toml of '{case.patch.id}':", ""]
    pieces += list(_tables(text, case, file.was))
    pieces += [
        "",
        f"# A draft of the edits from {case.new.pin.name} on, with the patch's side of each conflict.",
        "# They were not tried, and show only the form.",
        "",
    ]
    ours = _with_side(file, case.labels(file.path))
    changed = [FileChange(path=file.path, before=file.upstream, after=ours)] if ours != file.upstream else []
    body = ""
    try:
        lifted = pipeline.lift(case.changeset(changed), is_guarded=False).body
        limits = {"first_build": case.new.pin.build}
        body, _, _ = body_files(Body(edits=lifted.edits, files=lifted.files, limits=limits), {})
        gone = [each for each in case.verdict.declarations if each.is_gone]
        words = {*re.findall(r"\w+", body)}
        why = next((f"the patch {each}" for each in gone if each.name.rpartition("::")[2] in words), "")
    except PatchkitError as error:
        why = visible(error.message)
    if why:
        body = f"# No draft is available: {why}"
    return "\n".join([*pieces, body.rstrip(), ""])


def _tables(text: str, case: Case, path: str) -> Iterator[str]:
    data = text.encode()
    places = find_places(data)
    heads = sorted({at for key, at in places.items() if data.startswith(b"[", at)} | {len(data)})
    wanted = {each.where.line for each in case.selected.patch.edits if each.file == path}
    for number, edit in enumerate(case.patch.edits):
        start = places.get(("edit", number))
        if edit.where.line in wanted and start is not None:
            end = next((at for at in heads if at > start), len(data))
            yield data[start:end].decode("utf-8", "replace").rstrip() + "\n"


def _with_side(file: MergedFile, labels: Labels) -> bytes:
    """A merged file with the patch's side of each conflict."""
    rows = file.merged.split(b"\n")
    kept: list[bytes] = []
    at = 0
    for each in list_conflicts(rows, labels):
        kept += [*rows[at : each.first], *each.patch]
        at = each.stop
    kept += rows[at:]
    return b"\n".join(kept)


def read_state(folder: Path, patch: str) -> FolderState:
    """The state of a conflict folder. Raises UsageError, RESOLVE_FILES_BAD."""
    path = folder / STATE
    try:
        with open_regular(path) as stream:
            data = stream.read(_MOST_STATE + 1)
    except OSError as error:
        raise UsageError(
            f"{folder} is not a conflict folder of '{patch}'",
            where=Location(path=str(path)),
            why=error.strerror,
            hint=f"make one with patchkit resolve {patch} --to bN, or name its folder with --into",
        ) from error
    try:
        state = FolderState.model_validate_json(data[: _MOST_STATE + 1])
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise _bad_state(
            path, f"{'.'.join(map(str, first['loc'])) or 'it'}: {first['msg']}", patch
        ) from error
    if state.patch != patch:
        raise _bad_state(path, f"it belongs to the patch '{state.patch}'", state.patch)
    names = [each.name.casefold() for each in state.files]
    if len(set(names)) != len(names) or STATE in names:
        raise _bad_state(path, "two of its files have the same name", patch)
    return state


def _bad_state(path: Path, why: str, patch: str) -> ConfigError:
    return ConfigError(
        f"{path} is not as patchkit wrote it",
        code="RESOLVE_FILES_BAD",
        where=Location(path=str(path)),
        why=why,
        hint=f"save your text elsewhere and start again: patchkit resolve {patch} --abort",
    )


def check_state(case: Case, state: FolderState, folder: Path, text: str) -> list[MergedFile]:
    """The files of a case that the folder has, in its order; raises RESOLVE_FILES_BAD."""
    known = {each.path: each for each in case.merged}
    stale = "" if sha256(text) == state.patch_toml else f"the patch.toml of '{case.patch.id}'"
    files = []
    for each in state.files:
        file = known.get(each.path)
        if (
            file is None
            or sha256(file.upstream or b"") != each.upstream
            or sha256(file.merged) != each.merged
        ):
            stale = stale or each.path
            continue
        files.append(file)
    if stale:
        raise _stale(folder, stale, case.patch.id)
    return files


def _stale(folder: Path, what: str, patch: str) -> ConfigError:
    return ConfigError(
        f"{folder} was made from another version of {visible(what)}",
        code="RESOLVE_FILES_BAD",
        where=Location(path=str(folder / STATE)),
        why="the patch, an earlier patch or the pin has changed since",
        hint=f"save your text elsewhere and start again: patchkit resolve {patch} --abort",
    )


def check_folder(state: FolderState, folder: Path, text: str) -> None:
    """Check a folder as far as possible without placing anything; ``text``: the present patch.toml.

    Raises RESOLVE_FILES_BAD and CacheError.
    """
    if sha256(text) != state.patch_toml:
        raise _stale(folder, f"the patch.toml of '{state.patch}'", state.patch)
    begin, end = f"<<<<<<< {state.patch} on ".encode(), f">>>>>>> upstream {build_name(state.build)}".encode()
    for each in state.files:
        path = folder / each.name
        with disk_errors(path, "reading the conflict"), open_regular(path) as stream:
            rows = stream.read(_MOST_BYTES).replace(b"\r", b"").split(b"\n")
        left = next((at for at, row in enumerate(rows) if row.startswith(begin) or row == end), None)
        if left is not None:
            raise _marks_left(path, left, rows[left])


def read_result(file: MergedFile, path: Path, labels: Labels) -> bytes:
    """A merged file with the user's text in its regions.

    Raises RESOLVE_FILES_BAD if marker lines are missing or moved, RESOLVE_FILES_BAD, CacheError.
    """
    with disk_errors(path, "reading the conflict"), open_regular(path) as stream:
        data = stream.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise _damaged(path, 1, f"it is larger than {_MOST_BYTES >> 20} MiB")
    rows = file.merged.split(b"\n")
    regions = find_regions(file, labels)
    written = [row.removesuffix(b"\r") for row in data.split(b"\n")]
    tail = b"\r" if SourceText(file.path, file.upstream or b"").newline == b"\r\n" else b""
    result: list[bytes] = []
    at, line = 0, 0
    for number, region in enumerate(regions, 1):
        limits = _limits(file.path, number, len(regions), region)
        first, last = (_line(written, limit.encode(), line, path) for limit in limits)
        if last < first:
            raise _damaged(path, last + 1, "its ==== lines are in the wrong order")
        text = written[first + 1 : last]
        left = next((k for k, row in enumerate(text) if _is_mark(row, file, labels)), None)
        if left is not None:
            raise _marks_left(path, first + 1 + left, text[left])
        is_end = region.last == len(rows)
        result += rows[at : region.first]
        result += [row + tail if not (is_end and k == len(text) - 1) else row for k, row in enumerate(text)]
        at, line = region.last, last
    return b"\n".join([*result, *rows[at:]])


def _marks_left(path: Path, at: int, row: bytes) -> AnchorError:
    return AnchorError(
        f"{path.name} still has a conflict marker",
        code="RESOLVE_FILES_BAD",
        where=Location(path=str(path), line=at + 1, label=visible(row.decode("utf-8", "replace"))),
        hint="keep the final text, and remove the lines <<<<<<<, |||||||, ======= and >>>>>>>",
    )


def _is_mark(row: bytes, file: MergedFile, labels: Labels) -> bool:
    if row in conflict_markers(labels):
        return True
    known = (file.upstream or b"").replace(b"\r", b"").split(b"\n")
    return row == b"=======" and bool(file.conflicts) and b"=======" not in known


def _line(rows: Sequence[bytes], wanted: bytes, start: int, path: Path) -> int:
    found = [at for at, row in enumerate(rows) if row.rstrip() == wanted]
    if len(found) != 1 or found[0] < start:
        wrong = "is missing" if not found else "occurs twice" if len(found) > 1 else "was moved"
        raise _damaged(path, (found[0] + 1) if found else 1, f"the line '{wanted.decode()}' {wrong}")
    return found[0]


def _damaged(path: Path, line: int, why: str) -> AnchorError:
    return AnchorError(
        f"{path.name} cannot be read back",
        code="RESOLVE_FILES_BAD",
        where=Location(path=str(path), line=line),
        why=why,
        hint="restore the ==== lines; text outside of them is ignored",
    )


def remove_folder(folder: Path, state: FolderState) -> tuple[str, ...]:
    """Remove what patchkit wrote there, and the folder if then empty; return the names of what is left."""
    with disk_errors(folder, "removing the conflict"):
        for each in state.files:
            (folder / each.name).unlink(missing_ok=True)
            (folder / f"{each.name}.edits.toml").unlink(missing_ok=True)
        (folder / STATE).unlink(missing_ok=True)
        left = tuple(sorted(path.name for path in folder.iterdir()))
        if not left and not folder.is_symlink():
            folder.rmdir()
    return left
