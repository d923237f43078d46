"""Write a patch as files: the text of its patch.toml, and its folder, into a series all or nothing."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import ClassVar, Protocol

import tomlkit

from patchkit.base.errors import ConfigError, Location, UsageError
from patchkit.base.files import disk_errors, write_whole
from patchkit.base.series_folder import SeriesDir
from patchkit.base.text import free_name
from patchkit.carry.lifting.whole import NO_FILES, Blob, WholeFiles, named_blobs, sibling_name
from patchkit.carry.placing.templates import written_text
from patchkit.carry.series.body import BODY_TABLES, NOTE, body_digest, named_files, named_templates
from patchkit.carry.series.catalogue import Series
from patchkit.carry.series.selector import Selector

_LONG = 60  # lines above which a text gets its own file
_TITLE = 72  # characters, as patch.toml allows
_ID = 40
_MOST = 9999


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEdit:
    """One ``[[edit]]`` to write; ``text`` is the source of its template, None for an include."""

    json_keys: ClassVar = "id file function side"

    id: str
    file: str
    selector: Selector | None
    verb: str
    function: str | None = None
    parameters: str | None = None
    side: str | None = None
    text: str | None = None
    header: str | None = None
    digest: str | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """What a patch does: its edits, templates of new files by their path in upstream, and whole files.

    ``limits``: the builds that the edits and files are for, by their keys in patch.toml; empty for all
    builds.
    """

    edits: tuple[NewEdit, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    whole: WholeFiles = NO_FILES
    limits: Mapping[str, int] = field(default_factory=dict)

    @property
    def new_files(self) -> list[str]:
        """The files that it adds."""
        return [*self.files, *self.whole.added]

    @property
    def context(self) -> list[str]:
        """The context names that its templates use."""
        texts = "".join([*(edit.text or "" for edit in self.edits), *self.files.values()])
        # After a brace it is escaped text: see escape_template.
        return [name for name in ("guard", "values") if re.search(rf"(?<!}})@{{ {name}\b", texts)]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPatch:
    """A patch to write, as a new folder of the series or in place of an existing patch's edits.

    ``archs`` is None for a plain patch. ``upstream_url``: the pull request that it comes from, and
    ``upstream_ends`` its base and head at that time. ``requires``: other patches, each with the reason.
    ``original``: the table ``[commit]``.
    """

    id: str
    title: str
    first_build: int
    builds_why: str
    archs: tuple[str, ...] | None
    body: Body
    why: str = ""
    links: tuple[str, ...] = ()
    authors: tuple[str, ...] = ()
    original: Mapping[str, str] = field(default_factory=dict)
    upstream_url: str | None = None
    upstream_ends: tuple[str, str] | None = None
    macros: tuple[str, ...] = ()
    requires: tuple[tuple[str, str], ...] = ()

    @property
    def guard_macros(self) -> tuple[str, ...]:
        """The macros of the guard: HIP's own and ``macros``."""
        return ("GGML_USE_HIP", *self.macros)


class Writing(Protocol):
    """A way to write a patch into a series, or into a copy of it."""

    def put(self, series: SeriesDir) -> Path:
        """Write it all or nothing, also on Ctrl-C, and return the patch's folder. Raises CacheError."""


def free_id(title: str, series: Series) -> str:
    """An id made from the title that no patch of the series has, with a number if needed."""
    return free_name(_id_of(title), {patch.id for patch in series.patches})


def _id_of(title: str) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", title.casefold()).strip("-") or "imported"
    if len(name) > _ID:  # cut between words if possible
        name = (name[: _ID + 1].rpartition("-")[0] or name[:_ID]).strip("-")
    return name


def patch_id(wanted: str | None, title: str, series: Series) -> str:
    """The wanted id, or one made from the title; raises PATCH_ID_TAKEN."""
    from_title = _id_of(title)
    name = wanted if wanted is not None else from_title
    if re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name) is None:
        raise UsageError(
            f"'{name}' is not a valid patch id",
            code="PATCH_ID_TAKEN",
            why="an id consists of words of lower-case letters and digits, joined by '-'",
            hint=f"for example {from_title}",
        )
    existing = series.patch(name)
    if existing is not None:
        raise UsageError(
            f"the series already has a patch '{name}'",
            code="PATCH_ID_TAKEN",
            where=existing.where,
            hint=f"to give it a new version: patchkit import --replace {name} FILE; or choose another id, "
            f"for example {name}-2",
        )
    return name


def short_title(text: str) -> str:
    """One line of at most 72 characters, cut between words."""
    line = " ".join(text.split()) or "imported"
    return line if len(line) <= _TITLE else line[: _TITLE + 1].rpartition(" ")[0] or line[:_TITLE]


def folder_files(patch: NewPatch) -> dict[str, str]:
    """The files of the patch's folder by name: patch.toml, and templates for long texts."""
    body, found, _ = body_files(patch.body, {})
    digest = body_digest(body, found) if patch.upstream_ends is not None else None
    head = written_text(
        "patch.toml.jinja",
        patch=patch,
        body=body,
        digest=digest,
        word=toml_word,
        words=_words,
        text=toml_text,
    )
    return {"patch.toml": head, **found}


def body_files(body: Body, existing: Mapping[str, bytes]) -> tuple[str, dict[str, str], dict[str, bytes]]:
    """The tables of files and edits as text, and the templates and blobs that they name.

    ``beside``: files that already exist in the folder; a new file with other content gets another name.
    """
    found: dict[str, str] = {}

    def named(name: str, text: str) -> str:
        while found.get(name, text) != text or existing.get(name, text.encode()) != text.encode():
            name = f"_{name}"
        found[name] = text
        return name

    tables = []
    limits = {key: str(build) for key, build in body.limits.items()}
    for path, text in body.files.items():
        name = f"{sibling_name(path)}.jinja"
        while name in found:
            name = f"_{name}"
        keys = {"path": toml_word(path), "template": toml_word(named(name, text)), **limits}
        tables.append(("file", keys | ({"executable": "true"} if path in body.whole.programs else {})))
    edits = []
    for edit in body.edits:
        template = None
        if edit.text is not None and edit.text.count("\n") > _LONG:
            template = named(f"{edit.id}.jinja", edit.text)
        edits.append((edit, template))
    blobs = named_blobs(body.whole.blobs, found, existing)
    tables += _whole_tables(body.whole, blobs)
    text = written_text(
        "edits.toml.jinja",
        tables=tables,
        edits=edits,
        limits=body.limits,
        note=NOTE,
        word=toml_word,
        text=toml_text,
        selector=_selector,
    )
    return text, found, {name: blob.data for name, blob in blobs.items()}


def _whole_tables(whole: WholeFiles, blobs: Mapping[str, Blob]) -> Iterator[tuple[str, dict[str, str]]]:
    """The tables for whole files: their names, and TOML values by key."""
    for name, blob in blobs.items():
        keys = {"path": toml_word(blob.path), "blob": toml_word(name), "sha256": toml_word(blob.sha256)}
        keys |= {"replaces": toml_word(blob.replaces)} if blob.replaces is not None else {}
        yield "file", keys | ({"executable": "true"} if blob.executable else {})
    for path, sha256 in whole.removes:
        yield "remove", {"path": toml_word(path), "sha256": toml_word(sha256)}
    for old, new in whole.renames:
        yield "rename", {"from": toml_word(old), "to": toml_word(new)}
    for path, executable in whole.modes:
        yield "mode", {"path": toml_word(path), "executable": str(executable).lower()}


def _selector(selector: Selector) -> str:
    parts = []
    for each in fields(selector):
        value = getattr(selector, each.name)
        if value is not None:
            parts.append(f"{each.name} = {_selected(value)}")
    return f"{{ {', '.join(parts)} }}"


def _selected(value: object) -> str:
    match value:
        case bool():
            return "true"
        case Selector():
            return _selector(value)
        case tuple():
            return f"[{', '.join(map(_selected, value))}]"
        case _:
            return toml_text(str(value))


def toml_word(text: str) -> str:
    """A TOML string on one line, without escapes if possible."""
    literal = "'" not in text and ('"' in text or "\\" in text) and text.isprintable()
    return tomlkit.string(text, literal=literal).as_string()


def _words(words: Sequence[str]) -> str:
    return f"[{', '.join(map(toml_word, words))}]"


def toml_text(text: str) -> str:
    """A TOML string, over several lines if needed; with escapes only if there is no other way."""
    if "\n" not in text:
        return toml_word(text)
    if "'''" not in text and not text.endswith("'") and not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", text):
        return f"'''\n{text}'''"
    return tomlkit.string(text).as_string()


def profile_line(patch: NewPatch, source: str) -> str:
    """The line below ``[patches]`` that makes the patch available in a GPU's profile."""
    return written_text("profile-line.toml.jinja", patch=patch, source=source, word=toml_word)


def with_profile_line(path: Path, line: str) -> str:
    """The text of a profile with one more line below ``[patches]``; raises PROFILE_NOT_WRITTEN."""
    with disk_errors(path, "reading the profile"):
        text = path.read_text("utf-8")
    head, table, tail = text.partition("\n[patches]\n")
    changed = f"{head}{table}{line}{tail}" if table else f"{text.rstrip()}\n\n[patches]\n{line}"
    try:
        ok = line.partition(" ")[0] in tomlkit.parse(changed)["patches"]
    except Exception as error:
        raise _not_written(path, line) from error
    if not ok:
        raise _not_written(path, line)
    return changed


def _not_written(path: Path, line: str) -> ConfigError:
    return ConfigError(
        f"cannot add a line below [patches] in {path}",
        code="PROFILE_NOT_WRITTEN",
        where=Location(path=str(path)),
        hint=f"add this line by hand:\n{line.strip()}",
    )


def next_number(series: Series) -> int:
    """The number after that of the last patch; raises PATCH_BAD."""
    number = max((patch.number for patch in series.patches), default=0) + 1
    if number > _MOST:
        raise UsageError(
            f"the last patch of the series has the highest possible number, {_MOST}",
            code="PATCH_BAD",
            hint="renumber the last folders",
        )
    return number


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFolder:
    """A new patch as a numbered folder; the profiles of its GPUs get a line for it that names ``source``."""

    patch: NewPatch
    number: int
    source: str

    @property
    def name(self) -> str:
        """Name of the folder."""
        return f"{self.number:04d}-{self.patch.id}"

    def put(self, series: SeriesDir) -> Path:
        """As in :class:`Writing`; also raises PROFILE_NOT_WRITTEN."""
        return put_all([self], series)[0]

    def take_back(self, series: SeriesDir) -> None:
        """Remove the folder and the lines in the profiles again."""
        shutil.rmtree(series.patches / self.name, ignore_errors=True)
        for path in self.profiles(series):
            with disk_errors(path, "writing the profile"):
                text = path.read_text("utf-8").replace(profile_line(self.patch, self.source), "", 1)
                path.write_text(text, "utf-8", newline="\n")

    def profiles(self, series: SeriesDir) -> list[Path]:
        """The profile files of its GPUs."""
        return [series.profiles / f"{arch}.toml" for arch in self.patch.archs or ()]

    def write(self, series: SeriesDir) -> None:
        """Write the folder in one step."""
        # Outside of patches/, where a reader could see the unfinished folder.
        partial = series.root / f".{self.name}.{os.getpid()}.partial"
        try:
            with disk_errors(series.patches / self.name, "writing the patch"):
                partial.mkdir()
                for name, text in folder_files(self.patch).items():
                    (partial / name).write_text(text, encoding="utf-8", newline="\n")
                for name, data in body_files(self.patch.body, {})[2].items():
                    (partial / name).write_bytes(data)
                partial.rename(series.patches / self.name)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def put_all(new: Sequence[NewFolder], series: SeriesDir) -> tuple[Path, ...]:
    """Put new patches into a series, each its folder and then its lines in the profiles; return the folders.

    If one fails, all are removed again. Raises PROFILE_NOT_WRITTEN, CacheError.
    """
    folders: list[Path] = []
    profiles: dict[Path, bytes] = {}
    try:
        for each in new:
            line = profile_line(each.patch, each.source)
            texts = {path: with_profile_line(path, line) for path in each.profiles(series)}
            profiles = {path: path.read_bytes() for path in texts} | profiles
            folders.append(series.patches / each.name)
            each.write(series)
            for path, text in texts.items():
                write_whole(path, text, "writing the profile")
    except BaseException:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        for path, data in profiles.items():
            if path.read_bytes() != data:
                write_whole(path, data, "writing the profile")
        raise
    return tuple(folders)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """New edits and files for an existing patch; everything else in its patch.toml is kept.

    ``text``: the content of patch.toml when the work began.
    """

    patch: NewPatch
    folder: str
    text: str

    def put(self, series: SeriesDir) -> Path:
        """As in :class:`Writing`; also raises PATCH_CHANGED.

        The new templates are written first, under unused names; replacing patch.toml is the step that makes
        the change take effect.
        """
        folder = series.patches / self.folder
        existing = read_existing(folder, self.text)
        body, templates, blobs = body_files(self.patch.body, existing)
        old = {*named_templates(self.text, folder), *named_files(self.text, folder, "blob")}
        head = _rewritten_head(self.text, self.patch, body, templates)
        replace_text(folder, self.text, f"{head}\n\n{body}", {**templates, **blobs}, existing)
        with disk_errors(folder, "writing the patch"):
            for name in old - {*templates, *blobs}:
                (folder / name).unlink(missing_ok=True)
        return folder


def read_text(folder: Path) -> str:
    """The content of a folder's patch.toml; raises CacheError."""
    path = folder / "patch.toml"
    with disk_errors(path, "reading the patch"):
        return path.read_text("utf-8")


def read_existing(folder: Path, text: str) -> dict[str, bytes]:
    """The files in a patch's folder; raises PATCH_CHANGED if its patch.toml no longer has that text."""
    if read_text(folder) != text:
        raise ConfigError(
            f"{folder.name}/patch.toml was changed while patchkit was working on it",
            code="PATCH_CHANGED",
            where=Location(path=str(folder / "patch.toml")),
            why="the new edits were made from its previous content",
            hint="run the command again",
        )
    with disk_errors(folder, "reading the patch"):
        for remains in folder.glob(".*.partial"):
            remains.unlink(
                missing_ok=True
            )  # left by a killed run; no other run is active, since the caller holds the cache
        return {each.name: each.read_bytes() for each in folder.iterdir() if each.is_file()}


def replace_text(
    folder: Path, before: str, text: str, files: Mapping[str, str | bytes], existing: Collection[str]
) -> None:
    """Put new ``files`` into the folder of a patch, then replace the content of its patch.toml by ``text``.

    ``before``: the present content. ``beside``: names of the existing files. Raises CacheError; after that
    and after Ctrl-C the patch is unchanged.
    """
    path = folder / "patch.toml"
    try:
        for name, content in files.items():
            write_whole(folder / name, content, "writing the patch")
        write_whole(path, text, "writing the patch")
    except BaseException:
        if path.read_bytes() == before.encode():
            for name in files.keys() - set(existing):
                (folder / name).unlink(missing_ok=True)
        raise


def _rewritten_head(text: str, patch: NewPatch, body: str, templates: Mapping[str, str]) -> str:
    """A patch.toml without its edits and files, with the fields that an update changes."""
    document = tomlkit.parse(text)
    for key in (*BODY_TABLES, "context"):
        document.pop(key, None)
    several = {"context": patch.body.context, "links": list(patch.links), "authors": list(patch.authors)}
    document.update({key: words for key, words in several.items() if words})
    if patch.upstream_ends is not None:
        base, head = patch.upstream_ends
        document["upstream"] |= {"head": head, "base": base, "digest": body_digest(body, templates)}
    lines = tomlkit.dumps(document).rstrip().split("\n")
    while lines[-1].startswith(
        NOTE
    ):  # the first edit's comment, which TOML attributes to the table before it
        lines.pop()
    return "\n".join(lines).rstrip()
