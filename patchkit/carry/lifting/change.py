"""A change to upstream: files before and after, the commit that they are of, and whose it is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from patchkit.base.text import counted, visible
from patchkit.carry.placing.tree import REGULAR

_URL = re.compile(r"https?://[^\s<>\"'`)\]]*[^\s<>\"'`)\].,;:]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Authorship:
    """Whose a change is: ``message`` without its first line, which is ``subject``."""

    subject: str = ""
    message: str = ""
    authors: tuple[str, ...] = ()
    links: tuple[str, ...] = ()

    @classmethod
    def parse(cls, subject: str, message: str, author: str) -> Authorship:
        """As a mail or a commit has it; ``author`` counts where it is a name with an address."""
        message = visible(message.replace("\r\n", "\n")).strip()
        links = tuple(dict.fromkeys(_URL.findall(f"{subject}\n{message}")))
        author = " ".join(visible(author).split())
        known = re.fullmatch(r"[^<>\n]+ <[^<>\s]+>", author) is not None
        return cls(
            subject=" ".join(visible(subject).split()),
            message=message,
            authors=(author,) if known else (),
            links=links,
        )

    @classmethod
    def joined(cls, found: Sequence[Authorship]) -> Authorship:
        """Of several commits: the first one's subject, all messages, authors and links."""
        if not found:
            return cls()
        rest = [f"{each.subject}\n\n{each.message}".strip() for each in found[1:]]
        return cls(
            subject=found[0].subject,
            message="\n\n".join(text for text in (found[0].message, *rest) if text),
            authors=tuple(dict.fromkeys(author for each in found for author in each.authors)),
            links=tuple(dict.fromkeys(link for each in found for link in each.links)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """One file before and after; ``before`` None: the change adds it; ``after`` None: it takes it away.

    ``source`` is the old path of one that is renamed; ``modes`` are git's, before and after.
    """

    path: str
    before: bytes | None
    after: bytes | None
    source: str | None = None
    modes: tuple[str, str] = (REGULAR, REGULAR)


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedHunk:
    """A hunk whose first change is at ``line``, ``offset`` lines below its own number (above, if negative).

    ``inside`` is the definition that is there. ``heading``: what its ``@@`` line names, if that is not around
    the place. ``others``: how many other places have its lines, where only its number tells them apart.
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
            text += f", {counted(abs(self.offset), 'line')} {side} its number"
        if self.others:
            others = counted(self.others, "other place")
            text += f"; {others} with the same lines, only its number tells which"
        if self.heading:
            text += f"; its @@ line names '{self.heading}', which is not around it"
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Changeset:
    """What becomes of files of the commit ``base`` of the cache, which is of ``build`` and called ``name``.

    ``because``: why it is placed there; ``moved``: the hunks of its diff that are not at their own lines.
    ``url`` and ``head`` are those of a pull request.
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
        """Where it is from, as a patch's files have it."""
        return f"{self.how} {self.name}"

    @property
    def ends(self) -> tuple[str, str] | None:
        """Base and head of a pull request."""
        return (self.base, self.head) if self.head is not None else None
