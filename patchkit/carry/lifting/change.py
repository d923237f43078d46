"""A change to upstream: files before and after, the commit they belong to, and the authors."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import dataclass

from patchkit.base.text import counted, visible
from patchkit.carry.placing.tree import REGULAR
from patchkit.carry.series.patch import is_git_date

_URL = re.compile(r"https?://[^\s<>\"'`)\]]*[^\s<>\"'`)\].,;:]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Authorship:
    """Authors and message of a change; ``subject`` is the first line of the message, ``message`` the rest.

    ``date`` (RFC 3339): when its author wrote it, if it is one commit or mail. ``file``: its patch file.
    """

    subject: str = ""
    message: str = ""
    authors: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    date: str | None = None
    file: str | None = None

    @classmethod
    def parse(cls, subject: str, message: str, author: str, date: dt.datetime | None = None) -> Authorship:
        """From a mail or a commit. ``author`` is used only if it is a name with an address."""
        message = visible(message.replace("\r\n", "\n")).strip()
        links = tuple(dict.fromkeys(_URL.findall(f"{subject}\n{message}")))
        author = " ".join(visible(author).split())
        known = re.fullmatch(r"[^<>\n]+ <[^<>\s]+>", author) is not None
        return cls(
            subject=" ".join(visible(subject).split()),
            message=message,
            authors=(author,) if known else (),
            links=links,
            date=date.isoformat() if date is not None and is_git_date(date) else None,
        )

    @property
    def original(self) -> dict[str, str]:
        """The table ``[commit]`` of a patch.toml; empty if no author or patch file is known."""
        author = self.authors[0] if len(self.authors) == 1 else None
        known = {"author": author, "date": self.date, "subject": self.subject, "file": self.file}
        if self.file is None and (author is None or self.date is None):
            return {}
        return {key: text for key, text in known.items() if text}

    @classmethod
    def joined(cls, found: Sequence[Authorship]) -> Authorship:
        """Combine several commits: the first one's subject, and all messages, authors and links."""
        if not found:
            return cls()
        if len(found) == 1:
            return found[0]
        rest = [f"{each.subject}\n\n{each.message}".strip() for each in found[1:]]
        return cls(
            subject=found[0].subject,
            message="\n\n".join(text for text in (found[0].message, *rest) if text),
            authors=tuple(dict.fromkeys(author for each in found for author in each.authors)),
            links=tuple(dict.fromkeys(link for each in found for link in each.links)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """One file before and after; ``before`` is None if the change adds it, ``after`` if it removes it.

    ``source``: the old path of a renamed file. ``modes``: git's file modes before and after.
    """

    path: str
    before: bytes | None
    after: bytes | None
    source: str | None = None
    modes: tuple[str, str] = (REGULAR, REGULAR)


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedHunk:
    """A hunk applied at ``line``, which is ``offset`` lines below the line in its header (negative: above).

    ``inside``: the definition at that place. ``heading``: what its ``@@`` line names, if the place is not
    inside of that. ``others``: number of other places with the same lines, so that only the line number
    decided.
    """

    path: str
    number: int
    line: int
    offset: int
    inside: str
    heading: str = ""
    others: int = 0

    def __str__(self) -> str:
        inside = f" in {self.inside}" if self.inside else ""
        text = f"hunk {self.number} of {self.path}: at line {self.line}{inside}"
        if self.offset:
            side = "below" if self.offset > 0 else "above"
            text += f", {counted(abs(self.offset), 'line')} {side} the line in its header"
        if self.others:
            others = counted(self.others, "other place")
            text += f"; {others} with the same lines, chosen by line number alone"
        if self.heading:
            text += f"; its @@ line names '{self.heading}', but the place is not inside it"
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Changeset:
    """A change to files of the commit ``base`` in the cache. ``build``: the build of that commit.

    ``name``: what the change is called. ``because``: why this base was chosen. ``moved``: hunks of its diff
    that were applied at other lines than their header's. ``url`` and ``head``: those of a pull request.
    """

    build: int
    base: str
    name: str
    files: tuple[FileChange, ...]
    by: Authorship = Authorship()
    url: str | None = None
    head: str | None = None
    how: str = "imported from"
    because: str = ""
    moved: tuple[MovedHunk, ...] = ()

    @property
    def source(self) -> str:
        """The origin, as written into the files of a patch."""
        return f"{self.how} {self.name}"

    @property
    def ends(self) -> tuple[str, str] | None:
        """Base and head of a pull request."""
        return (self.base, self.head) if self.head is not None else None
