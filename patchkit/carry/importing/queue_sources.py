"""Read a queue of changes in order: patch files, a quilt series, mails or commits."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from patchkit.base.errors import Location, UsageError
from patchkit.base.files import disk_errors
from patchkit.base.text import visible
from patchkit.carry.importing.commits import commit_authorship, ends_of_range
from patchkit.carry.importing.diffs import (
    MAX_BYTES,
    MOST_CHANGES,
    has_diff,
    is_mail,
    no_diff,
    read_diff,
    split_mails,
    text_authorship,
    too_many,
)
from patchkit.carry.importing.hunks import keep_below
from patchkit.carry.lifting.change import Authorship
from patchkit.carry.upstream.clone import Clone, Commit, copy_commit
from patchkit.carry.upstream.git import Git
from patchkit.carry.upstream.repository import Repository

MAX_QUEUE_BYTES = 64 * 1024 * 1024
"""Size of all changes together. The largest queue seen so far has 0.9 MB."""
_ENDINGS = (".patch", ".diff")
_SERIES = "series"
_PINNED = "upstream.txt"
_NUMBER = re.compile(r"^(?:v[0-9]+-)?[0-9]+[-_.]+")
_LONGEST_NAME = 200  # characters, as in patch.toml
_SHOWN = 4  # skipped files
_OPTION = re.compile(r"-p(?:ab|[0-9]{1,2})")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedChange:
    """One diff of a queue. ``name`` identifies it; the patch id is made from ``words``.

    ``strip``: number of leading folders to remove from its paths. ``where``: its place in the queue.
    """

    name: str
    words: str
    data: bytes
    by: Authorship
    where: Location
    strip: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """How the paths of a diff become upstream's paths.

    ``strip``: number of leading folders to remove, as in ``patch -p``; None for one, unless a series gives a
    number. Then paths that are not below ``folder`` are skipped, and that folder is removed from the others.
    """

    strip: int | None = None
    folder: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueContents:
    """The contents of a queue. ``skipped``: names with reasons. ``pinned``: first word of upstream.txt."""

    changes: tuple[QueuedChange, ...]
    skipped: tuple[tuple[str, str], ...] = ()
    pinned: str | None = None
    base: Commit | None = None


@dataclass(slots=True)
class _Collected:
    """The changes read so far."""

    folder: Path
    git: Git
    way: Paths
    changes: list[QueuedChange] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    size: int = 0

    def add(self, change: QueuedChange) -> None:
        """Add a change; raises IMPORT_TOO_LARGE."""
        if self.way.folder is not None:
            data, others = keep_below(change.data, self.way.folder, change.strip)
            shown = f"{', '.join(others[:_SHOWN])}{', ...' if len(others) > _SHOWN else ''}"
            if others:
                self.skipped.append((change.name, f"not below {self.way.folder}: {shown}"))
            if not has_diff(data):
                return
            change = replace(change, data=data, strip=change.strip + len(self.way.folder.split("/")))
        self.size += len(change.data)
        self.changes.append(change)
        if len(self.changes) > MOST_CHANGES:
            raise too_many(change.where.path, len(self.changes), "changes")
        if self.size > MAX_QUEUE_BYTES:
            raise UsageError(
                f"the queue is larger than {MAX_QUEUE_BYTES // 2**20} MiB",
                code="IMPORT_TOO_LARGE",
                where=change.where,
                hint="import it in several parts, or remove generated files and binaries from it",
            )

    def read(self, path: Path, strip: int = 1, where: Location | None = None) -> None:
        """Add the changes of one file."""
        data = read_diff(path)
        strip = self.way.strip if self.way.strip is not None else strip
        place = where or Location(path=str(path))
        if not is_mail(data):
            if has_diff(data):
                by = replace(text_authorship(data), file=_file_name(path))
                self.add(
                    QueuedChange(
                        name=path.name, words=_stem(path), data=data, by=by, where=place, strip=strip
                    )
                )
            else:
                self.skipped.append((path.name, "it contains no diff"))
            return
        mails = list(split_mails(data, str(path), self.folder, self.git))
        alone = sum(bool(diff) for diff, _ in mails) == 1
        for number, (diff, by) in enumerate(mails, 1):
            name = path.name if len(mails) == 1 else f"{path.name}, mail {number}"
            if not diff:
                self.skipped.append((name, f"a mail without a diff: {by.subject or 'no subject'}"))
                continue
            words = _stem(path) if alone else by.subject or f"{_stem(path)} {number}"
            named = replace(by, file=_file_name(path)) if len(mails) == 1 else by
            self.add(QueuedChange(name=name, words=words, data=diff, by=named, where=place, strip=strip))


def folder_of(prefix: str | None) -> str | None:
    """The folder of ``--prefix``, normalized. Raises USAGE_VALUE."""
    if prefix is None:
        return None
    folder = prefix.removeprefix("./").strip("/")
    if not folder or any(part in ("", ".", "..") for part in folder.split("/")):
        raise UsageError(
            f"--prefix '{visible(prefix)}' is not a valid folder",
            code="USAGE_VALUE",
            hint="give the folder of llama.cpp in the paths of the diff, such as --prefix vendor/llama.cpp",
        )
    return folder


def is_queue(sources: Sequence[str]) -> bool:
    """Whether the sources are several patches: more than one source, a folder or a series file."""
    return len(sources) > 1 or any(Path(each).is_dir() or _is_series(Path(each)) for each in sources)


def is_range(source: str) -> bool:
    """Whether this is ``FIRST..LAST`` and not an existing path."""
    return not Path(source).exists() and re.search(r"(?:^|[^/.])\.{2,3}(?:[^/.]|$)", source) is not None


def read_files(sources: Sequence[str], way: Paths, folder: Path, git: Git) -> QueueContents:
    """The changes of files and folders, in the order given, or that of their ``series`` file.

    Raises:
        IMPORT_NOTHING, IMPORT_TOO_LARGE: a file cannot be read, or is too large.
        IMPORT_NOTHING: a ``series`` file names a file outside of its folder, or has an unsupported option.
        IMPORT_NOTHING: the only file is not a diff.
        IMPORT_NOTHING: there is no patch in the queue.
    """
    found = _Collected(folder=folder, git=git, way=way)
    pinned = None
    for source in sources:
        path = Path(source)
        if _is_series(path):
            _read_series(path, found)
            pinned = pinned or _read_pinned(path.parent)
        elif path.is_dir():
            there = _read_folder(path, found)
            pinned = pinned or _read_pinned(there) or _read_pinned(there.parent)
        elif is_range(source):
            raise UsageError(
                f"a range of commits ('{visible(source)}') cannot be combined with files",
                code="IMPORT_NOTHING",
                hint="import the commits separately: patchkit import FIRST..LAST",
            )
        else:
            found.read(path)
    if not found.changes and way.folder is not None:
        raise UsageError(
            f"no path in {visible(', '.join(sources))} is below {way.folder}/",
            code="IMPORT_NOTHING",
            where=Location(path=sources[0]),
            why="\n".join(f"{name}: {why}" for name, why in found.skipped[:8]),
            hint="--prefix is the folder of llama.cpp in the paths of the diff, without a/ and b/",
        )
    if not found.changes and not is_queue(sources):
        why = "\n".join(why for _, why in found.skipped) or None
        raise no_diff(visible(sources[0]), why, Location(path=sources[0]))
    if not found.changes:
        raise UsageError(
            f"there is no patch in {visible(', '.join(sources))}",
            code="IMPORT_NOTHING",
            where=Location(path=sources[0]),
            why="\n".join(f"{name}: {why}" for name, why in found.skipped[:8]) or None,
            hint="give a folder with *.patch or *.diff files, a quilt series, an mbox, or a range of commits",
        )
    return QueueContents(changes=tuple(found.changes), skipped=tuple(found.skipped), pinned=pinned)


def read_commits(clone: Clone, revisions: str, cache: Repository) -> QueueContents:
    """The commits of ``FIRST..LAST``, each as a diff, with the merge base of FIRST and LAST as their base.

    Merges are skipped: their changes are upstream's, or are among the other commits.

    Raises IMPORT_NOTHING, ONTO_NO_COMMIT, CLONE_UNUSABLE, IMPORT_TOO_LARGE, IMPORT_NOTHING, GitError.
    """
    base, tip = ends_of_range(clone, revisions)
    lines = clone.ask(
        "rev-list", "--reverse", "--topo-order", "--parents", f"--max-count={MOST_CHANGES + 1}",
        f"{base.sha}..{tip.sha}", "--",
    )  # fmt: skip
    if len(lines) > MOST_CHANGES:
        raise too_many(revisions, clone.count(f"{base.sha}..{tip.sha}"), "commits")
    copy_commit(clone, base.sha, base.tree, cache)
    git = cache.borrowing(clone.objects)
    shas = [line.split()[0] for line in lines]
    commits = {each.id: each.data for each in clone.git.objects(map(str.encode, shas)) if each is not None}
    changes, skipped = [], []
    for line in lines:
        sha, *parents = line.split()
        by = commit_authorship(commits[sha])
        name = f"{sha[:12]} {by.subject}".rstrip()
        if len(parents) != 1:
            skipped.append((name, "a merge" if parents else "a root commit, without a parent"))
            continue
        data = git.diff(parents[0], sha)
        if not data:
            skipped.append((name, "it changes nothing"))
        elif len(data) > MAX_BYTES:
            skipped.append((name, f"its diff is larger than {MAX_BYTES // 2**20} MiB"))
        else:
            where = Location(path=sha)
            words = by.subject or sha[:12]
            changes.append(QueuedChange(name=name, words=words, data=data, by=by, where=where))
    return QueueContents(changes=tuple(changes), skipped=tuple(skipped), base=base)


def _is_series(path: Path) -> bool:
    return path.name == _SERIES and path.is_file()


def _file_name(path: Path) -> str | None:
    """The name of a patch file, if patch.toml can store it."""
    name = path.name
    ok = name.isprintable() and name == " ".join(name.split()) and not name.startswith((".", "\\"))
    return name if ok and len(name) <= _LONGEST_NAME and "\\" not in name else None


def _stem(path: Path) -> str:
    """A file's name without its leading number and its extension."""
    name = path.name
    for ending in (*_ENDINGS, ".mbox", ".eml", ".mail", ".txt"):
        name = name.removesuffix(ending)
    return _NUMBER.sub("", name) or name


def _read_folder(folder: Path, found: _Collected) -> Path:
    """Read the queue of a folder, or of ``patches`` in it as in quilt; return the folder of the queue."""
    with disk_errors(folder, "reading the queue"):
        names = {path.name: path for path in folder.iterdir()}
    if _SERIES in names and names[_SERIES].is_file():
        _read_series(names[_SERIES], found)
        return folder
    patches = sorted((name for name in names if name.endswith(_ENDINGS)), key=_natural)
    if not patches and "patches" in names and names["patches"].is_dir():
        return _read_folder(names["patches"], found)
    for name in patches:
        found.read(_below(folder, name, Location(path=str(folder / name))))
    return folder


def _natural(name: str) -> list[tuple[int, str]]:
    """Sort key by numbers: ``2-b`` before ``10-a``."""
    return [(int(word), "") if word.isdecimal() else (-1, word) for word in re.split(r"([0-9]+)", name)]


def _read_series(path: Path, found: _Collected) -> None:
    """Read the patches that a quilt ``series`` file lists, in its order."""
    text = read_diff(path).decode("utf-8", "replace")
    listed = set()
    for number, line in enumerate(text.split("\n"), 1):
        words = re.sub(r"(?:^|\s)#.*", "", line).split()
        if not words:
            continue
        where = Location(path=str(path), line=number)
        name, *given = words
        strip = 1
        for option in given:
            if _OPTION.fullmatch(option) is None:
                raise UsageError(
                    f"unsupported option '{visible(option)}' in the series file",
                    code="IMPORT_NOTHING",
                    where=where,
                    why="a patch that is applied in reverse cannot be carried" if option == "-R" else None,
                    hint="remove the line from the series; only -p options such as -p0 and -p1 are supported",
                )
            strip = 1 if option == "-pab" else int(option[2:])
        patch = _below(path.parent, name, where)
        if patch in listed:
            raise UsageError(
                f"the series file lists {visible(name)} twice", code="IMPORT_NOTHING", where=where
            )
        listed.add(patch)
        found.read(patch, strip, where)
    present = sorted(each.name for each in path.parent.iterdir() if each.name.endswith(_ENDINGS))
    found.skipped += [
        (name, f"not listed in {path.name}") for name in present if path.parent / name not in listed
    ]


def _below(folder: Path, name: str, where: Location) -> Path:
    """The path of a file in the queue's folder; raises IMPORT_NOTHING if it is outside of the folder."""
    path = folder / name
    try:
        inside = path.resolve().is_relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError):  # a NUL byte; a link that leads to itself
        inside = False
    if not inside or not name.isprintable():
        raise UsageError(
            f"'{visible(name)}' is not a file in the queue's folder",
            code="IMPORT_NOTHING",
            where=where,
            why="patches must be in the folder of their series file or below it, also after following links",
            hint="copy the patch into that folder",
        )
    return path


def _read_pinned(folder: Path) -> str | None:
    """The first word of ``upstream.txt``: the commit or build that the queue was made for."""
    path = folder / _PINNED
    if not path.is_file():
        return None
    with disk_errors(path, "reading the queue"), path.open("rb") as stream:
        words = stream.read(4096).decode("utf-8", "replace").split()
    return words[0] if words else None
