"""Diffs as files have them: alone, below a text, or in mails. Their text is read by git, and never believed.

What comes of a diff is compared with the tree below as two trees: a path, a mode or a link is what git made.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from patchkit.base.errors import AnchorError, Location, UsageError
from patchkit.base.files import disk_errors, open_regular
from patchkit.base.text import visible
from patchkit.carry.lifting.change import Authorship
from patchkit.carry.upstream.git import Git

MAX_BYTES = 8 * 1024 * 1024
"""Of a diff. The largest pull requests for ggml-cuda have some hundred kB, templates' instances included."""
MOST_CHANGES = 500
"""Of a queue: patch files, mails or commits. The longest queue that was seen has 37."""
_HEAD = 64 * 1024  # bytes in which the fields of a mail end
_FIELD = re.compile(rb"[A-Za-z][A-Za-z0-9-]*:[ \t\r\n]")
_DIFF = re.compile(rb"(?m)^(?:diff --git |@@ -[0-9]|Index: )")
_HEADS = re.compile(rb"(?m)^(?:diff --git |--- |\+\+\+ |@@ -)[^\n]*")
_SHOWN = 6  # lines of what git says


def read_diff(path: Path) -> bytes:
    """The bytes of a diff.

    Raises IMPORT_UNREADABLE, IMPORT_TOO_LARGE.
    """
    try:
        with open_regular(path) as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(
            f"cannot read {path}",
            code="IMPORT_UNREADABLE",
            where=Location(path=str(path)),
            why=error.strerror,
            hint="name a file with a diff, a range of commits REV..REV, or --pr N --url REMOTE",
        ) from error
    if len(data) > MAX_BYTES:
        raise UsageError(
            f"{path} has more than {MAX_BYTES // 2**20} MiB",
            code="IMPORT_TOO_LARGE",
            where=Location(path=str(path)),
            why="no patch of a person's is that large",
            hint="split it, or leave generated files and binaries out of it",
        )
    return data


def not_placed(name: str, stderr: str, where: Location) -> AnchorError | UsageError:
    """The error for a diff that git apply refused, by what it said."""
    lines = [visible(line) for line in stderr.splitlines() if line.startswith(("error:", "fatal:"))]
    why = "\n".join(lines[:_SHOWN]) or None
    if any(words in stderr for words in ("invalid path", "beyond a symbolic link", "wrong type")):
        return UsageError(
            f"{name} has a path that leads out of the tree, or through a link",
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
    """The error for a file that is no diff."""
    return UsageError(
        f"git does not read {name} as a diff",
        code="IMPORT_NO_DIFF",
        where=where,
        why=why,
        hint="git diff, git format-patch or 'git show' make one; save it as it comes, with LF line ends",
    )


def is_mail(data: bytes) -> bool:
    """Whether a file is a mail, or several of them: it begins as git format-patch or a mail client has it."""
    if data.startswith(b"From "):
        return True
    head = re.split(rb"\r?\n\r?\n", data[:_HEAD], maxsplit=1)[0]
    return _FIELD.match(head) is not None and all(
        re.search(rb"(?mi)^" + field + rb":", head) for field in (b"from", b"subject")
    )


def has_diff(data: bytes) -> bool:
    """Whether there is a change in a text: a cover letter has none."""
    return _DIFF.search(data) is not None


def split_mails(data: bytes, name: str, folder: Path, git: Git) -> Iterator[tuple[bytes, Authorship]]:
    """The diff of each mail, with whose it is; what git mailinfo decodes is decoded, no diff is empty.

    Where a mail client ended all lines as Windows does, those of the diff too, they end with LF again.
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
        if done.status != 0:  # it has a NUL byte, or no end of a part: nothing of it is believed
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
        yield found if has_diff(found) else b"", Authorship.parse(fields.get("Subject", ""), text, author)


def too_many(name: str, count: int, what: str) -> UsageError:
    """The error for more changes than anybody carries."""
    return UsageError(
        f"{name} has {count} {what}; the limit is {MOST_CHANGES}",
        code="IMPORT_TOO_LARGE",
        where=Location(path=name),
        hint="import it in several parts; a range of commits that holds upstream's own begins too early",
    )


def text_authorship(data: bytes) -> Authorship:
    """What stands above a diff: words, or a commit as git show writes it."""
    head = re.split(rb"(?m)^(?:diff |--- |Index: )", data, maxsplit=1)[0].decode("utf-8", "replace")
    author = re.search(r"(?m)^Author: +(.+ <.+>)$", head)
    if author is not None:
        lines = [line.strip() for line in head.splitlines() if line.startswith("    ")]
    else:
        lines = [line.strip() for line in head.splitlines()]
    subject, _, message = "\n".join(lines).strip().partition("\n")
    return Authorship.parse(subject, message, author[1] if author is not None else "")
