"""What a diff, commits or a pull request change, and whose they are: read by git, checked, never run.

What comes of a diff is compared with the tree below as two trees, so nothing of its text is believed: a path,
a mode or a link is what git made.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.base.errors import AnchorError, ErrorGroup, Location, SourceError, UsageError
from patchkit.base.files import disk_errors, open_regular, working_folder
from patchkit.base.text import visible
from patchkit.carry.placing.files import MAX_BLOB
from patchkit.carry.placing.tree import REGULAR
from patchkit.carry.series.treepath import fault_of_path
from patchkit.carry.upstream.clone import Clone, Commit, copy_commit, read_commit
from patchkit.carry.upstream.git import Change as TreeChange
from patchkit.carry.upstream.git import Git, GitSilent, redacted
from patchkit.carry.upstream.remote import checked_url, complaint, fetch_commit
from patchkit.carry.upstream.repository import ATTRIBUTES, Repository
from patchkit.carry.upstream.tags import list_tags

MAX_BYTES = 8 * 1024 * 1024
"""Of a diff. The largest pull requests for ggml-cuda have some hundred kB, templates' instances included."""
MOST_CHANGES = 500
"""Of a queue: patch files, mails or commits. The longest queue that was seen has 37."""
_MOST_COMMITS = 200
_HEAD = 64 * 1024  # bytes in which the fields of a mail end
_FIELD = re.compile(rb"[A-Za-z][A-Za-z0-9-]*:[ \t\r\n]")
_DIFF = re.compile(rb"(?m)^(?:diff --git |@@ -[0-9]|Index: )")
_HEADS = re.compile(rb"(?m)^(?:diff --git |--- |\+\+\+ |@@ -)[^\n]*")
_SHOWN = 6  # lines of what git says
_NOTHING = "000000"
_MOST_BEFORE = 64 * 1024 * 1024  # of a file that goes: only its digest is kept
_URL = re.compile(r"https?://[^\s<>\"'`)\]]*[^\s<>\"'`)\].,;:]")
_ANSWER_S = 30.0
_SILENCE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Authorship:
    """Whose a change is: ``message`` without its first line, which is ``subject``."""

    subject: str = ""
    message: str = ""
    authors: tuple[str, ...] = ()
    links: tuple[str, ...] = ()


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


def read_range(clone: Clone, revisions: str, cache: Repository) -> tuple[Commit, Commit, Authorship]:
    """The commits at both ends of ``FIRST..LAST`` (or of one commit alone), now in the cache, too.

    The first end is where the last one's history leaves that of FIRST.

    Raises IMPORT_NO_RANGE, ONTO_NO_COMMIT, CLONE_INCOMPLETE, GitError.
    """
    first, dots, last = revisions.partition("..")
    if dots and (not first or last.startswith(".")):
        raise UsageError(
            f"'{revisions}' is no range of commits",
            code="IMPORT_NO_RANGE",
            hint="FIRST..LAST, as in master..my-branch, or one commit",
        )
    tip = read_commit(clone, (last or "HEAD") if dots else first)
    fork = clone.ask("merge-base", read_commit(clone, first).sha, tip.sha) if dots else ()
    base = read_commit(clone, fork[0] if fork else first if dots else f"{tip.sha}^")
    shas = clone.ask("rev-list", "--reverse", f"--max-count={_MOST_COMMITS}", f"{base.sha}..{tip.sha}", "--")
    for commit in (base, tip):
        copy_commit(clone, commit.sha, commit.tree, cache)
    found = clone.git.objects(sha.encode() for sha in shas)
    return base, tip, joined_authorship([commit_authorship(each.data) for each in found if each is not None])


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRequest:
    """``refs/pull/N/head`` of a remote, the commit where it left the main line, and that one's build."""

    head: str
    base: str
    build: int | None
    by: Authorship


def read_pull(url: str, number: int, cache: Repository, root: Path) -> PullRequest:
    """A pull request's head and base, both fetched into the cache.

    Args:
        url: of a git remote that keeps ``refs/pull/<number>/head``, as GitHub does.
        number: of the pull request.
        cache: held by the caller.
        root: the cache folder: the history is kept there while it is asked.

    Raises:
        RemoteUrlBad: no such kind of address.
        IMPORT_NO_PULL: the remote does not answer, or has no such pull request.
        GitError, CacheError, SourceError: git, the disk or the remote refused.
    """
    where = checked_url(url)
    name = f"refs/pull/{number}/head"
    with working_folder(root, "pull-", "making room for the history") as folder:
        git = Git(reporter=cache.reporter, git_dir=folder)
        git.run("init", "--quiet", "--bare", "--template=", "--object-format=sha1")
        git.run("config", "remote.upstream.url", where)
        args = (
            "fetch", "--progress", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance",
            "--filter=tree:0", "upstream", f"+{name}:refs/import/head", "+HEAD:refs/import/main",
        )  # fmt: skip
        try:
            done = git.watch(*args, on_text=lambda _: None, answer_s=_ANSWER_S, silence_s=_SILENCE_S)
            failed = complaint(done.stderr) if done.status else None
        except GitSilent as error:
            failed = error.message
        if failed is not None:
            raise SourceError(
                f"{redacted(url)} gives no pull request {number}",
                code="IMPORT_NO_PULL",
                why=failed or None,
                hint=f"git ls-remote {redacted(url)} '{name}' shows whether it is there",
            )
        for key in ("remote.upstream.promisor", "remote.upstream.partialclonefilter"):
            git.attempt("config", "--unset", key)  # from here on nothing is fetched that nobody asked for
        head = git.run("rev-parse", "refs/import/head").decode("ascii").strip()
        base = git.run("merge-base", "refs/import/head", "refs/import/main").decode("ascii").split()[0]
        if base == head:  # merged as it is: its own commits are those behind the main line's last
            base = git.run("rev-parse", f"{head}^").decode("ascii").strip()
        span = git.run("rev-list", "--reverse", f"--max-count={_MOST_COMMITS}", f"{base}..{head}")
        found = git.objects(sha.encode() for sha in span.decode("ascii").split())
        by = joined_authorship([commit_authorship(each.data) for each in found if each is not None])
        below = set(git.run("rev-list", base).decode("ascii").split())
    try:
        tags = list_tags(url, cache.reporter).builds
    except SourceError:
        tags = {}
    for commit in (base, head):
        fetch_commit(cache, url, commit)
    build = max((build for build, sha in tags.items() if sha in below), default=None)
    return PullRequest(head=head, base=base, build=build, by=by)


def compare_commits(base: str, tip: str, name: str, cache: Repository) -> tuple[FileChange, ...]:
    """The files that differ between two commits of the cache; raises as :func:`check_changes`."""
    return check_changes(cache.git.renames(base, tip), name, cache.git)


def check_changes(changes: Sequence[TreeChange], name: str, git: Git) -> tuple[FileChange, ...]:
    """The files of a change, with their bytes, if patches can carry all of it.

    Raises one ErrorGroup of IMPORT_UNSUPPORTED, one for each file that no patch can carry, and IMPORT_EMPTY.
    """
    ids = [sha for change in changes for sha in change.ids if sha.strip("0")]
    sizes = git.sizes(ids)
    wrong = [(change.path, why) for change in changes if (why := _unsupported(change, sizes)) is not None]
    wanted = [change for change in changes if _unsupported(change, sizes) is None]
    ids = [sha for change in wanted for sha in change.ids if sha.strip("0")]
    blobs = {
        sha: found.data for sha, found in zip(ids, git.objects(map(str.encode, ids)), strict=True) if found
    }
    wrong += [
        (change.path, "its bytes are not in the repository: a clone that lacks some, or a broken one")
        for change in wanted
        if any(
            mode != _NOTHING and sha not in blobs for mode, sha in zip(change.modes, change.ids, strict=True)
        )
    ]
    files = []
    for change in wanted:
        if any(change.path == path for path, _ in wrong):
            continue
        before, after = (
            None if mode == _NOTHING else blobs[sha]
            for mode, sha in zip(change.modes, change.ids, strict=True)
        )
        old, new = (REGULAR if mode == _NOTHING else mode for mode in change.modes)
        files.append(
            FileChange(path=change.path, before=before, after=after, source=change.source, modes=(old, new))
        )
    if wrong:
        errors = [
            UsageError(
                f"{visible(path)}: {why}",
                code="IMPORT_UNSUPPORTED",
                where=Location(path=name),
                hint="leave it out of the diff; what a patch can say is in docs/reference/patches.md",
            )
            for path, why in sorted(wrong)
        ]
        raise errors[0] if len(errors) == 1 else ErrorGroup(f"{name} cannot become a patch", errors)
    if not files:
        raise UsageError(f"{name} changes nothing", code="IMPORT_EMPTY", where=Location(path=name))
    return tuple(files)


def _unsupported(change: TreeChange, sizes: Mapping[str, int]) -> str | None:
    """Why no patch can carry a change of this kind."""
    modes = {*change.modes}
    if "120000" in modes:
        return "a symbolic link: patches carry files, and what a link points to need not be one"
    if "160000" in modes:
        return "a submodule: its files are another repository's"
    for path in (change.path, change.source):
        fault = fault_of_path(path) if path is not None else None
        if fault is not None:
            return fault
    before, after = (sizes.get(sha, 0) for sha in change.ids)
    if after > MAX_BLOB or before > _MOST_BEFORE:
        return f"it has {max(before, after) // 2**20} MiB; a patch carries files of {MAX_BLOB // 2**20}"
    return None


def own_repository(folder: Path, cache: Repository) -> Git:
    """A bare repository in ``folder`` with an index of its own, which reads the cache's objects."""
    path = folder / "index.git"
    Git(reporter=cache.reporter).run(
        "init", "--quiet", "--bare", "--template=", "--object-format=sha1", str(path)
    )
    with disk_errors(path, "writing a temporary file"):
        (path / "info").mkdir(exist_ok=True)
        (path / "info" / "attributes").write_bytes(ATTRIBUTES)
    return Git(reporter=cache.reporter, git_dir=path, borrows=cache.path / "objects")


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
        told = done.stdout.decode("utf-8", "replace")
        fields = dict(line.split(": ", 1) for line in told.splitlines() if ": " in line)
        text = message.read_text("utf-8", "replace")
        author = f"{fields.get('Author', '')} <{fields.get('Email', '')}>"
        found = diff.read_bytes()
        heads = _HEADS.findall(found)
        if heads and all(line.endswith(b"\r") for line in heads):
            found = found.replace(b"\r\n", b"\n")
        yield found if has_diff(found) else b"", _authorship(fields.get("Subject", ""), text, author)


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
    return _authorship(subject, message, author[1] if author is not None else "")


def commit_authorship(raw: bytes) -> Authorship:
    """Whose a commit is, by its object."""
    head, _, text = raw.partition(b"\n\n")
    author = next((line[7:] for line in head.split(b"\n") if line.startswith(b"author ")), b"")
    subject, _, message = text.decode("utf-8", "replace").partition("\n")
    who = author.decode("utf-8", "replace")
    return _authorship(subject, message, who[: who.find(">") + 1])


def _authorship(subject: str, message: str, author: str) -> Authorship:
    message = visible(message.replace("\r\n", "\n")).strip()
    links = tuple(dict.fromkeys(_URL.findall(f"{subject}\n{message}")))
    author = " ".join(visible(author).split())
    known = re.fullmatch(r"[^<>\n]+ <[^<>\s]+>", author) is not None
    return Authorship(
        subject=" ".join(visible(subject).split()),
        message=message,
        authors=(author,) if known else (),
        links=links,
    )


def joined_authorship(found: Sequence[Authorship]) -> Authorship:
    """Of several commits: the first one's subject, all messages, authors and links."""
    if not found:
        return Authorship()
    rest = [f"{each.subject}\n\n{each.message}".strip() for each in found[1:]]
    return Authorship(
        subject=found[0].subject,
        message="\n\n".join(text for text in (found[0].message, *rest) if text),
        authors=tuple(dict.fromkeys(author for each in found for author in each.authors)),
        links=tuple(dict.fromkeys(link for each in found for link in each.links)),
    )
