"""What a queue of patches is made of, in order: patch files, a quilt series, mails or commits."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from patchkit.base.errors import Location, UsageError
from patchkit.base.files import disk_errors
from patchkit.base.text import visible
from patchkit.carry.importing.commits import commit_authorship
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
from patchkit.carry.upstream.clone import Clone, Commit, copy_commit, read_commit
from patchkit.carry.upstream.git import Git
from patchkit.carry.upstream.repository import Repository

MAX_QUEUE_BYTES = 64 * 1024 * 1024
"""Of all changes together. The largest queue that was seen has 0.9 MB."""
_ENDINGS = (".patch", ".diff")
_SERIES = "series"
_PINNED = "upstream.txt"
_NUMBER = re.compile(r"^(?:v[0-9]+-)?[0-9]+[-_.]+")
_SHOWN = 4  # files that are left out
_OPTION = re.compile(r"-p(?:ab|[0-9]{1,2})")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedChange:
    """One diff of a queue. ``name`` is how it is told apart, ``words`` what its id is made of.

    ``strip`` is the number of folders that its paths have in front, ``where`` its place in the queue.
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

    ``strip`` folders are taken off the front, as ``patch -p`` does; None: one, where a series says nothing
    else. Then what is not below ``folder`` is left out, and that folder is taken off, too.
    """

    strip: int | None = None
    folder: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A queue as it was read. ``left_out`` are names, each with why; ``pinned`` is what upstream.txt says."""

    changes: tuple[QueuedChange, ...]
    left_out: tuple[tuple[str, str], ...] = ()
    pinned: str | None = None
    base: Commit | None = None


@dataclass(slots=True)
class _Collected:
    """What was found so far."""

    folder: Path
    git: Git
    way: Paths
    changes: list[QueuedChange] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)
    size: int = 0

    def add(self, change: QueuedChange) -> None:
        """One more; raises IMPORT_TOO_LARGE."""
        if self.way.folder is not None:
            data, others = keep_below(change.data, self.way.folder, change.strip)
            shown = f"{', '.join(others[:_SHOWN])}{', ...' if len(others) > _SHOWN else ''}"
            if others:
                self.left_out.append((change.name, f"not below {self.way.folder}: {shown}"))
            if not has_diff(data):
                return
            change = replace(change, data=data, strip=change.strip + len(self.way.folder.split("/")))
        self.size += len(change.data)
        self.changes.append(change)
        if len(self.changes) > MOST_CHANGES:
            raise too_many(change.where.path, len(self.changes), "changes")
        if self.size > MAX_QUEUE_BYTES:
            raise UsageError(
                f"the queue has more than {MAX_QUEUE_BYTES // 2**20} MiB",
                code="IMPORT_TOO_LARGE",
                where=change.where,
                hint="import it in several parts, or leave generated files and binaries out of it",
            )

    def read(self, path: Path, strip: int = 1, where: Location | None = None) -> None:
        """The changes of one file."""
        data = read_diff(path)
        strip = self.way.strip if self.way.strip is not None else strip
        place = where or Location(path=str(path))
        if not is_mail(data):
            if has_diff(data):
                by = text_authorship(data)
                self.add(
                    QueuedChange(
                        name=path.name, words=_stem(path), data=data, by=by, where=place, strip=strip
                    )
                )
            else:
                self.left_out.append((path.name, "there is no diff in it"))
            return
        mails = list(split_mails(data, str(path), self.folder, self.git))
        alone = sum(bool(diff) for diff, _ in mails) == 1
        for number, (diff, by) in enumerate(mails, 1):
            name = path.name if len(mails) == 1 else f"{path.name}, mail {number}"
            if not diff:
                self.left_out.append((name, f"a mail without a diff: {by.subject or 'no subject'}"))
                continue
            words = _stem(path) if alone else by.subject or f"{_stem(path)} {number}"
            self.add(QueuedChange(name=name, words=words, data=diff, by=by, where=place, strip=strip))


def folder_of(prefix: str | None) -> str | None:
    """The folder that ``--prefix`` names, as paths have it. Raises USAGE_VALUE."""
    if prefix is None:
        return None
    folder = prefix.removeprefix("./").strip("/")
    if not folder or any(part in ("", ".", "..") for part in folder.split("/")):
        raise UsageError(
            f"--prefix '{visible(prefix)}' is no folder that a diff can have",
            code="USAGE_VALUE",
            hint="the folder of llama.cpp in the paths of the diff: --prefix vendor/llama.cpp",
        )
    return folder


def is_queue(sources: Sequence[str]) -> bool:
    """Whether these are several patches by their names alone: a folder, a series file, more than one."""
    return len(sources) > 1 or any(Path(each).is_dir() or _is_series(Path(each)) for each in sources)


def is_range(source: str) -> bool:
    """Whether this is ``FIRST..LAST`` and no path."""
    return not Path(source).exists() and re.search(r"(?:^|[^/.])\.{2,3}(?:[^/.]|$)", source) is not None


def read_files(sources: Sequence[str], way: Paths, folder: Path, git: Git) -> Reading:
    """The changes of files and folders, in the order that they are named, or their ``series`` names them.

    Raises:
        IMPORT_UNREADABLE, IMPORT_TOO_LARGE: as of one diff.
        IMPORT_SERIES_BAD: a ``series`` names what no queue may, or asks for what git cannot do.
        IMPORT_NO_DIFF: the one file that is named is none.
        IMPORT_QUEUE_EMPTY: nothing in it is a patch.
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
                f"'{visible(source)}' is a range of commits among files",
                code="IMPORT_NO_RANGE",
                hint="import commits by themselves: patchkit import FIRST..LAST",
            )
        else:
            found.read(path)
    if not found.changes and way.folder is not None:
        raise UsageError(
            f"nothing in {visible(', '.join(sources))} is below {way.folder}/",
            code="IMPORT_QUEUE_EMPTY",
            where=Location(path=sources[0]),
            why="\n".join(f"{name}: {why}" for name, why in found.left_out[:8]),
            hint="--prefix names the folder that llama.cpp has in the paths of the diff, after its a/ and b/",
        )
    if not found.changes and not is_queue(sources):
        why = "\n".join(why for _, why in found.left_out) or None
        raise no_diff(visible(sources[0]), why, Location(path=sources[0]))
    if not found.changes:
        raise UsageError(
            f"there is no patch in {visible(', '.join(sources))}",
            code="IMPORT_QUEUE_EMPTY",
            where=Location(path=sources[0]),
            why="\n".join(f"{name}: {why}" for name, why in found.left_out[:8]) or None,
            hint="name a folder with *.patch or *.diff files, a quilt series, an mbox, or a range of commits",
        )
    return Reading(changes=tuple(found.changes), left_out=tuple(found.left_out), pinned=pinned)


def read_commits(clone: Clone, revisions: str, cache: Repository) -> Reading:
    """The commits of ``FIRST..LAST``, each as its diff, on the one where LAST's history leaves that of FIRST.

    Merges are left out: what they bring is upstream's, or is among the commits already.

    Raises IMPORT_NO_RANGE, ONTO_NO_COMMIT, CLONE_INCOMPLETE, IMPORT_TOO_LARGE, IMPORT_EMPTY, GitError.
    """
    first, _, last = revisions.partition("..")
    if not first or last.startswith("."):
        raise UsageError(
            f"'{visible(revisions)}' is no range of commits",
            code="IMPORT_NO_RANGE",
            hint="FIRST..LAST, as in master..my-branch, or one commit",
        )
    tip = read_commit(clone, last or "HEAD")
    start = read_commit(clone, first)
    fork = clone.ask("merge-base", start.sha, tip.sha)
    base = read_commit(clone, fork[0]) if fork else start
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
    changes, left_out = [], []
    for line in lines:
        sha, *parents = line.split()
        by = commit_authorship(commits[sha])
        name = f"{sha[:12]} {by.subject}".rstrip()
        if len(parents) != 1:
            left_out.append((name, "a merge" if parents else "it has no parent"))
            continue
        args = ("-r", "-p", "--binary", "--full-index", "--no-renames", "--no-ext-diff", "--no-textconv")
        data = git.run("diff-tree", *args, parents[0], sha)
        if not data:
            left_out.append((name, "it changes nothing"))
        elif len(data) > MAX_BYTES:
            left_out.append((name, f"its diff has more than {MAX_BYTES // 2**20} MiB"))
        else:
            where = Location(path=sha)
            words = by.subject or sha[:12]
            changes.append(QueuedChange(name=name, words=words, data=data, by=by, where=where))
    return Reading(changes=tuple(changes), left_out=tuple(left_out), base=base)


def _is_series(path: Path) -> bool:
    return path.name == _SERIES and path.is_file()


def _stem(path: Path) -> str:
    """The words of a file's name: without its number and its ending."""
    name = path.name
    for ending in (*_ENDINGS, ".mbox", ".eml", ".mail", ".txt"):
        name = name.removesuffix(ending)
    return _NUMBER.sub("", name) or name


def _read_folder(folder: Path, found: _Collected) -> Path:
    """The queue of a folder, or of ``patches`` in it, as quilt has it; the folder it was found in."""
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
    """``2-b`` before ``10-a``."""
    return [(int(word), "") if word.isdecimal() else (-1, word) for word in re.split(r"([0-9]+)", name)]


def _read_series(path: Path, found: _Collected) -> None:
    """The patches that a quilt ``series`` names, in its order."""
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
                    f"the series asks for '{visible(option)}', which an import does not do",
                    code="IMPORT_SERIES_BAD",
                    where=where,
                    why="a patch that is taken back is none to carry" if option == "-R" else None,
                    hint="leave the line out of the series; -p0 and -p1 are understood",
                )
            strip = 1 if option == "-pab" else int(option[2:])
        patch = _below(path.parent, name, where)
        if patch in listed:
            raise UsageError(f"the series names {visible(name)} twice", code="IMPORT_SERIES_BAD", where=where)
        listed.add(patch)
        found.read(patch, strip, where)
    beside = sorted(each.name for each in path.parent.iterdir() if each.name.endswith(_ENDINGS))
    found.left_out += [
        (name, f"{path.name} does not name it") for name in beside if path.parent / name not in listed
    ]


def _below(folder: Path, name: str, where: Location) -> Path:
    """A file of the queue's folder; raises IMPORT_SERIES_BAD for one outside of it."""
    path = folder / name
    try:
        inside = path.resolve().is_relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError):  # a NUL byte; a link that leads to itself
        inside = False
    if not inside or not name.isprintable():
        raise UsageError(
            f"'{visible(name)}' does not name a file of the queue's folder",
            code="IMPORT_SERIES_BAD",
            where=where,
            why="a patch lies in the folder of its series, or below it; links do not lead out of it",
            hint="copy the patch into the folder, and name it there",
        )
    return path


def _read_pinned(folder: Path) -> str | None:
    """The first word of ``upstream.txt``: the commit or build that the queue is for."""
    path = folder / _PINNED
    if not path.is_file():
        return None
    with disk_errors(path, "reading the queue"), path.open("rb") as stream:
        words = stream.read(4096).decode("utf-8", "replace").split()
    return words[0] if words else None
