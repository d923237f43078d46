"""Read diffs from files: a plain diff, one below a text, or in mails. The text is untrusted; git parses it.

The result of a diff is found by comparing two trees, so that paths, modes and links are those that git made.
"""

from __future__ import annotations

import datetime as dt
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from email.utils import parsedate_to_datetime
from pathlib import Path

from patchkit.base.errors import AnchorError, Location, UsageError
from patchkit.base.files import disk_errors, open_regular
from patchkit.base.text import visible
from patchkit.carry.lifting.change import Authorship
from patchkit.carry.upstream.git import Git

MAX_BYTES = 8 * 1024 * 1024
"""Size of a diff. The largest pull requests for ggml-cuda have some hundred kB, with template instances."""
MOST_CHANGES = 500
"""Patch files, mails or commits of a queue. The longest queue seen so far has 37."""
_HEAD = 64 * 1024  # bytes in which the fields of a mail end
_FIELD = re.compile(rb"[A-Za-z][A-Za-z0-9-]*:[ \t\r\n]")
_DIFF = re.compile(rb"(?m)^(?:diff --git |@@ -[0-9]|Index: )")
_HEADS = re.compile(rb"(?m)^(?:diff --git |--- |\+\+\+ |@@ -)[^\n]*")
_SHOWN = 6  # lines of git's output


def read_diff(path: Path) -> bytes:
    """The bytes of a diff.

    Raises IMPORT_NOTHING, IMPORT_TOO_LARGE.
    """
    try:
        with open_regular(path) as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(
            f"cannot read {path}",
            code="IMPORT_NOTHING",
            where=Location(path=str(path)),
            why=error.strerror,
            hint="name a file with a diff, a range of commits REV..REV, or --pr N --url REMOTE",
        ) from error
    if len(data) > MAX_BYTES:
        raise UsageError(
            f"{path} is larger than {MAX_BYTES // 2**20} MiB",
            code="IMPORT_TOO_LARGE",
            where=Location(path=str(path)),
            why="no hand-written patch is that large",
            hint="split it, or remove generated files and binaries from it",
        )
    return data


def not_placed(name: str, stderr: str, where: Location) -> AnchorError | UsageError:
    """The error for a diff that git apply refused, depending on its output."""
    lines = [visible(line) for line in stderr.splitlines() if line.startswith(("error:", "fatal:"))]
    why = "\n".join(lines[:_SHOWN]) or None
    if any(words in stderr for words in ("invalid path", "beyond a symbolic link", "wrong type")):
        return UsageError(
            f"{name} has a path outside of the tree, or through a symbolic link",
            code="IMPORT_UNSUPPORTED",
            where=where,
            why=why,
        )
    if any(words in stderr for words in ("No valid patches", "corrupt", "unrecognized", "without filename")):
        return no_diff(name, why, where)
    return AnchorError(
        f"{name} does not apply exactly",
        code="IMPORT_NOT_APPLYING",
        where=where,
        why=why,
    )


def no_diff(name: str, why: str | None, where: Location) -> UsageError:
    """The error for a file that is not a diff."""
    return UsageError(
        f"git cannot read {name} as a diff",
        code="IMPORT_NOTHING",
        where=where,
        why=why,
        hint="make one with git diff, git format-patch or git show; save it unchanged, with LF line endings",
    )


def is_mail(data: bytes) -> bool:
    """Whether a file starts like a mail (or several) of git format-patch or a mail client."""
    if data.startswith(b"From "):
        return True
    head = re.split(rb"\r?\n\r?\n", data[:_HEAD], maxsplit=1)[0]
    return _FIELD.match(head) is not None and all(
        re.search(rb"(?mi)^" + field + rb":", head) for field in (b"from", b"subject")
    )


def has_diff(data: bytes) -> bool:
    """Whether a text contains a diff; a cover letter, for example, does not."""
    return _DIFF.search(data) is not None


def split_mails(data: bytes, name: str, folder: Path, git: Git) -> Iterator[tuple[bytes, Authorship]]:
    """The diff and authorship of each mail, decoded by git mailinfo; the diff is empty if there is none.

    If a mail client has converted all lines to CRLF, including those of the diff, they are converted back to
    LF.
    """
    mails = folder / "mails"
    with disk_errors(mails, "writing temporary files"):
        shutil.rmtree(mails, ignore_errors=True)
        mails.mkdir()
        (folder / "mbox").write_bytes(data)
    keeps_cr = [] if data.partition(b"\n")[0].endswith(b"\r") else ["--keep-cr"]
    git.run("mailsplit", "-b", *keeps_cr, f"-o{mails}", str(folder / "mbox"))
    paths = sorted(mails.iterdir(), key=lambda path: int(path.name))
    if len(paths) > MOST_CHANGES:
        raise too_many(name, len(paths), "mails")
    for path in paths:
        message, diff = path.with_suffix(".msg"), path.with_suffix(".diff")
        with path.open("rb") as stream:
            done = git.attempt("mailinfo", str(message), str(diff), stdin=stream)
        if done.status != 0:  # a NUL byte, or an unterminated part: use nothing of it
            yield b"", Authorship(subject=f"mail {path.name}")
            continue
        rows = done.stdout.decode("utf-8", "replace").splitlines()
        fields = dict(row.split(": ", 1) for row in rows if ": " in row)
        text = message.read_text("utf-8", "replace")
        author = f"{fields.get('Author', '')} <{fields.get('Email', '')}>"
        found = diff.read_bytes()
        heads = _HEADS.findall(found)
        if heads and all(line.endswith(b"\r") for line in heads):
            found = found.replace(b"\r\n", b"\n")
        yield (
            found if has_diff(found) else b"",
            Authorship.parse(fields.get("Subject", ""), text, author, _date(fields.get("Date", ""))),
        )


def _date(text: str) -> dt.datetime | None:
    """The date of a mail, or as git show prints it."""
    with suppress(ValueError, TypeError, IndexError, OverflowError):
        return parsedate_to_datetime(text)
    with suppress(ValueError):
        return dt.datetime.strptime(text.strip(), "%a %b %d %H:%M:%S %Y %z")
    return None


def too_many(name: str, count: int, what: str) -> UsageError:
    """The error for a queue with too many changes."""
    return UsageError(
        f"{name} has {count} {what}; the limit is {MOST_CHANGES}",
        code="IMPORT_TOO_LARGE",
        where=Location(path=name),
        hint="import it in several parts; if a range of commits contains upstream's own, it starts too early",
    )


def text_authorship(data: bytes) -> Authorship:
    """Authorship from the text above a diff: plain text, or a commit header of git show."""
    head = re.split(rb"(?m)^(?:diff |--- |Index: )", data, maxsplit=1)[0].decode("utf-8", "replace")
    author = re.search(r"(?m)^Author: +(.+ <.+>)$", head)
    if author is not None:
        lines = [line.strip() for line in head.splitlines() if line.startswith("    ")]
    else:
        lines = [line.strip() for line in head.splitlines()]
    subject, _, message = "\n".join(lines).strip().partition("\n")
    date = re.search(r"(?m)^(?:Author)?Date: +(.+)$", head)
    return Authorship.parse(
        subject,
        message,
        author[1] if author is not None else "",
        _date(date[1]) if date is not None else None,
    )
