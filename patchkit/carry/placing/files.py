"""Changes of whole files by a patch: adding, replacing, removing and renaming them, and setting modes.

All tables use upstream's paths, and all changes happen at once: files are removed before any are added.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from patchkit.base.errors import AnchorError, ConfigError, Location, PatchkitError
from patchkit.base.files import open_regular
from patchkit.base.series_folder import is_no_template
from patchkit.carry.placing.tree import EXECUTABLE, REGULAR, UpstreamFiles
from patchkit.carry.series.patch import FileMode, NewFile, Patch, RemovedFile, RenamedFile

MAX_BLOB = 8 * 1024 * 1024
"""Bytes of a blob. The largest file of llama.cpp's source, a vocabulary, has 11 MB; the next one 4.6."""
_RENAME = "rename the patch's file, or drop the patch if upstream took it"
_KINDS = {"120000": "a symbolic link", "160000": "a submodule"}


@dataclass(slots=True, kw_only=True)
class FileChanges:
    """The changes of whole files.

    ``added`` and ``replaced`` have the new bytes; ``renamed`` maps each new path to its old one. ``gone``:
    every path that no longer exists. ``modes``: git's mode of files that are new, renamed or change their
    mode.
    """

    added: dict[str, bytes] = field(default_factory=dict)
    replaced: dict[str, bytes] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    modes: dict[str, str] = field(default_factory=dict)


def change_files(
    patch: Patch,
    files: UpstreamFiles,
    folder: Path,
    render: Callable[[str, Location], str],
    errors: list[PatchkitError],
) -> FileChanges:
    """Apply a patch's changes of whole files; each one that fails adds to ``errors``.

    Args:
        patch: its ``[[file]]``, ``[[remove]]``, ``[[rename]]`` and ``[[mode]]`` tables are applied.
        files: as the preceding patches left them.
        folder: the patch's own, which contains its blobs.
        render: returns the text of a template, given its place in patch.toml.
        errors: receives every AnchorError, ConfigError and RenderError.
    """
    work = _Work(files, folder, render)
    new = [file for file in patch.files if file.replaces is None]
    work.do(work.remove, patch.removes, errors)
    work.do(work.take, patch.renames, errors)
    work.do(work.replace, [file for file in patch.files if file.replaces is not None], errors)
    if new or patch.renames:
        work.taken = taken_names(files.names - work.done.gone)
    work.do(work.add, new, errors)
    work.do(work.put, patch.renames, errors)
    work.do(work.set_mode, patch.modes, errors)
    return work.done


One = TypeVar("One")


class _Work:
    """Applies one table of a patch at a time; each method raises what is wrong with its table."""

    def __init__(self, files: UpstreamFiles, folder: Path, render: Callable[[str, Location], str]) -> None:
        self.files, self.folder, self.render = files, folder, render
        self.done = FileChanges()
        self.taken: dict[str, str] = {}

    def do(self, act: Callable[[One], None], tables: Iterable[One], errors: list[PatchkitError]) -> None:
        for table in tables:
            try:
                act(table)
            except PatchkitError as error:
                errors.append(error)

    def remove(self, table: RemovedFile) -> None:
        _require_content(table.path, table.sha256, table.where, self.files, "removed")
        self.done.gone.add(table.path)

    def take(self, table: RenamedFile) -> None:
        _read(table.source, table.where, self.files, "renamed")
        self.done.gone.add(table.source)
        self.done.renamed[table.to] = table.source
        if self.files.mode(table.source) != REGULAR:
            self.done.modes[table.to] = self.files.mode(table.source)

    def put(self, table: RenamedFile) -> None:
        hint = "choose another name, or drop the patch if upstream renamed it itself"
        _require_free(table.to, table.where, self.taken, hint)

    def replace(self, table: NewFile) -> None:
        _require_content(table.path, table.replaces or "", table.where, self.files, "replaced")
        self.done.replaced[table.path] = self.content(table)

    def add(self, table: NewFile) -> None:
        _require_free(table.path, table.where, self.taken, _RENAME)
        self.done.added[table.path] = self.content(table)
        if table.executable:
            self.done.modes[table.path] = EXECUTABLE

    def content(self, table: NewFile) -> bytes:
        if table.template is not None:
            return self.render(table.template, table.where).encode()
        return read_blob(table, self.folder)

    def set_mode(self, table: FileMode) -> None:
        state = "executable" if table.executable else "not executable"
        _read(table.path, table.where, self.files, f"made {state}")
        wanted = EXECUTABLE if table.executable else REGULAR
        if self.files.mode(table.path) == wanted:
            raise AnchorError(
                f"{table.path} is already {state}",
                code="FILE_MODE_ALREADY",
                where=[table.where, Location(path=table.path)],
                why=f"its mode is {wanted} on this upstream",
                hint="remove the [[mode]] from the patch, or end its build range",
            )
        renamed = {old: new for new, old in self.done.renamed.items()}
        self.done.modes[renamed.get(table.path, table.path)] = wanted


def _read(path: str, where: Location, files: UpstreamFiles, fate: str) -> bytes:
    """The content of a file that is to be ``fate``; raises FILE_IS_LINK, UPSTREAM_FILE_MISSING."""
    kind = _KINDS.get(files.mode(path))
    if kind is not None:
        raise AnchorError(
            f"{path} cannot be {fate}: it is {kind}",
            code="FILE_IS_LINK",
            where=[where, Location(path=path)],
            why="a patch can only change regular files",
            hint="name the file that the link points to",
        )
    data = files.read(path)
    if data is None:
        raise _missing(path, where, files, fate)
    return data


def _require_content(path: str, sha256: str, where: Location, files: UpstreamFiles, fate: str) -> None:
    found = hashlib.sha256(_read(path, where, files, fate)).hexdigest()
    if found != sha256:
        raise AnchorError(
            f"{path}, which is to be {fate}, has changed upstream",
            code="FILE_CHANGED",
            where=[where, Location(path=path)],
            why=f"its sha256 is {found}, but the patch is for {sha256}",
            hint="check what upstream changed; if the patch still applies to it, update the sha256",
        )


def _missing(path: str, where: Location, files: UpstreamFiles, fate: str) -> AnchorError:
    close = difflib.get_close_matches(path, files.paths, n=3)
    name = path.rpartition("/")[2]
    close += [each for each in sorted(files.names) if each.rpartition("/")[2] == name and each not in close][
        :3
    ]
    return AnchorError(
        f"upstream has no {path}, which is to be {fate}",
        code="UPSTREAM_FILE_MISSING",
        where=[where, *(Location(path=each, label="a similar name") for each in close[:3])],
        why="upstream moved or removed it itself, or the patch is not for this build",
        hint="if upstream did the same, remove the table from the patch, or end its build range",
    )


def check_place(file: NewFile, names: Iterable[str]) -> PatchkitError | None:
    """The error for a new file whose path is taken; ``names`` are the paths of all existing files."""
    try:
        _require_free(file.path, file.where, taken_names(names), _RENAME)
    except AnchorError as error:
        return error
    return None


def _require_free(path: str, where: Location, taken: dict[str, str], hint: str) -> None:
    """Check that a path is free and mark it as taken; raises NEW_FILE_BAD."""
    parts = path.split("/")
    for count in range(1, len(parts) + 1):
        prefix = "/".join(parts[:count])
        found = taken.get(prefix.casefold())
        if found is None:
            break
        if found == path:
            raise AnchorError(
                f"upstream already has {path}",
                code="NEW_FILE_BAD",
                where=[where, Location(path=path)],
                hint=hint,
            )
        if found != f"{prefix}/" or count == len(parts):
            raise AnchorError(
                f"{path} cannot be added: {found} is in the way",
                code="NEW_FILE_BAD",
                where=[where, Location(path=found)],
                why="a path is either a file or a folder, and must not differ from another only in case",
                hint="rename the patch's file",
            )
    _add_name(path, taken)


def taken_names(names: Iterable[str]) -> dict[str, str]:
    """Every file, and every folder with a final slash, by its name in lower case."""
    taken: dict[str, str] = {}
    for name in names:
        _add_name(name, taken)
    return taken


def _add_name(name: str, taken: dict[str, str]) -> None:
    taken.setdefault(name.casefold(), name)
    folder = name.rpartition("/")[0]
    while folder and folder.casefold() not in taken:
        taken[folder.casefold()] = f"{folder}/"
        folder = folder.rpartition("/")[0]


def read_blob(file: NewFile, folder: Path) -> bytes:
    """The bytes of a blob in the patch's own folder; raises BLOB_BAD."""
    path = (folder / (file.blob or "")).resolve()
    place = [file.where, Location(path=str(path))]
    if not path.is_relative_to(folder.resolve()) or is_no_template(path, folder.resolve()):
        raise ConfigError(
            f"the blob '{file.blob}' is not a file of the patch's folder",
            code="BLOB_BAD",
            where=place,
            why="it is a link to outside, or has a name that editors use, so the lock has no digest of it",
            hint="put the file itself next to patch.toml",
        )
    try:
        with open_regular(path) as stream:
            data = stream.read(MAX_BLOB + 1)
    except OSError as error:
        raise ConfigError(
            f"the blob '{file.blob}' cannot be read",
            code="BLOB_BAD",
            where=place,
            why=error.strerror,
            hint="put the file next to patch.toml, or correct its name",
        ) from error
    if len(data) > MAX_BLOB:
        raise ConfigError(
            f"the blob '{file.blob}' is larger than {MAX_BLOB // 2**20} MiB",
            code="BLOB_BAD",
            where=place,
            why="every candidate, checkout and export would contain it",
            hint="let the code download it, or keep it outside upstream's tree",
        )
    found = hashlib.sha256(data).hexdigest()
    if found != file.sha256:
        raise ConfigError(
            f"the blob '{file.blob}' does not have the sha256 in patch.toml",
            code="BLOB_BAD",
            where=place,
            why=f"its sha256 is {found}, patch.toml has {file.sha256}",
            hint="if the file is right, update the sha256 in patch.toml; git may have changed line endings",
        )
    return data
