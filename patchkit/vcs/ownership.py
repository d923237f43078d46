"""Whether a repository is patchkit's own, and still reads as patchkit made it.

Vocabulary: the *mark* is a file that only patchkit writes, and the first thing in a new repository;
what has content and no mark is *foreign* and never touched. *Neutral* settings cannot change a byte
that git reads or writes for patchkit: who commits, and the remotes of a user who works in a checkout.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from patchkit.errors import CacheError, Location
from patchkit.report import Reporter
from patchkit.vcs.disk import disk_errors
from patchkit.vcs.runner import Git

_MARK = "patchkit-cache"
_MARK_TEXT = b"This bare repository belongs to patchkit: it is rewritten and repaired without asking.\n"

# Attributes in an upstream tree could change bytes on their way through git (line ends, keyword
# expansion, filters). info/attributes outranks every .gitattributes, for worktrees too.
ATTRIBUTES = (
    b"* -text -eol -ident -filter -working-tree-encoding -export-ignore -export-subst"
    b" !diff !merge !whitespace\n"
)

# What git init writes, on any system: no process is needed to see that nothing was added.
_AS_MADE = re.compile(
    rb"\[core\]\n"
    rb"(?:\t(?:repositoryformatversion = 0|bare = true"
    rb"|(?:filemode|symlinks|ignorecase|precomposeunicode) = (?:true|false))\n)+"
)
_NEUTRAL = re.compile(
    r"core\.(repositoryformatversion\n0|bare\ntrue|(filemode|symlinks|ignorecase|precomposeunicode)\n.*)"
    r"|(user|author|committer)\.(name|email)\n.*"
    r"|remote\.(.*\.(url|pushurl|fetch|push)|pushdefault)\n.*"
    r"|branch\..*\.(remote|merge|pushremote|rebase)\n.*",
    re.DOTALL,
)


def is_marked(path: Path) -> bool:
    """Whether the folder has the mark; false for one that is absent or empty.

    Raises:
        CACHE_FOREIGN: it has content and no mark.
        CacheError: the disk refused.
    """
    with disk_errors(path, "opening the cache"):
        if not path.is_dir():
            return False
        if (path / _MARK).is_file():
            return True
        content = sorted(entry.name for entry in path.iterdir())
    if not content:
        return False
    raise CacheError(
        f"{path} was not made by patchkit",
        code="CACHE_FOREIGN",
        where=Location(path=str(path / content[0])),
        why=f"patchkit leaves the file {_MARK} in a repository that it makes; nothing was touched",
        hint="name another folder with --cache-dir, or move this one away",
    )


def is_marked_as_ours(path: Path) -> bool:
    """Whether a repository of any content has the mark."""
    return (path / _MARK).is_file()


def mark(path: Path) -> None:
    """Make the folder patchkit's own; the caller has seen that nobody else's content is in it."""
    path.mkdir(exist_ok=True)
    (path / _MARK).write_bytes(_MARK_TEXT)


def check_as_made(path: Path, reporter: Reporter) -> None:
    """Refuse attributes and settings that could change bytes or run programs.

    Raises:
        CACHE_ALTERED: with the settings that must go.
        CacheError: the disk refused.
    """
    with disk_errors(path, "opening the cache"):
        attributes = path / "info" / "attributes"
        if attributes.read_bytes() != ATTRIBUTES:
            raise CacheError(
                f"{attributes} is not as patchkit wrote it",
                code="CACHE_ALTERED",
                where=Location(path=str(attributes)),
                why="attributes can change what git reads and writes, and run programs",
                hint=f"rm {attributes}; the next patchkit apply writes it anew",
            )
        config = path / "config"
        if _AS_MADE.fullmatch(config.read_bytes()):
            return
    # With --file git follows no include: a key that includes is seen, and refused, as a key.
    listed = Git(reporter=reporter).run("config", "--file", str(config), "--null", "--list")
    strange = sorted(set(_strange_keys(listed.decode("utf-8", "replace").split("\0"))))
    if strange:
        raise CacheError(
            f"the settings of {path} were changed",
            code="CACHE_ALTERED",
            where=tuple(Location(path=str(config), label=key) for key in strange),
            why="these settings can change what git reads and writes: " + ", ".join(strange),
            hint=f"git config --file {config} --unset-all {strange[0]}",
        )


def _strange_keys(entries: Iterable[str]) -> Iterable[str]:
    """The keys of ``key newline value`` entries that are not neutral."""
    return (entry.partition("\n")[0] for entry in entries if entry and not _NEUTRAL.fullmatch(entry))
