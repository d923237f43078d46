"""The user's own repository: a commit is read from it, and one branch added. Nothing else of it is written.

It belongs to somebody else, so its settings may say anything. They run no program: hooks are off, no command
talks to a remote, and files are read through patchkit's own repository, which borrows the objects.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.base.errors import GitError, Location, UsageError
from patchkit.base.reporter import Reporter
from patchkit.base.upstreams import llama_cpp
from patchkit.carry.series.git_object import commit_date
from patchkit.carry.upstream.cache import is_ours
from patchkit.carry.upstream.git import IDENTITY_EMAIL, Git, ObjectDamaged, damaged_clone
from patchkit.carry.upstream.refs import read_ref, update_ref
from patchkit.carry.upstream.repository import Repository, verify_objects

_SHA = re.compile(r"[0-9a-f]{40}")
_SHOWN = 5
TAKEN_OUT = "Patchkit-Taken-Out"
"""The trailer of a commit that takes patchkit's commits out, to apply them again above: one for each."""
_STATE_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Clone:
    """``top`` is its work tree, or the folder itself of a bare one; refs and objects lie in ``common``.

    ``git_dir`` differs from ``common`` in a worktree, which has a HEAD of its own.
    """

    top: Path
    git_dir: Path
    common: Path
    objects: Path
    reporter: Reporter

    @property
    def git(self) -> Git:
        """Git in this clone, with its HEAD."""
        return Git(reporter=self.reporter, git_dir=self.git_dir, writes_to=self.common, stranger=True)

    @property
    def refs(self) -> Repository:
        """Where its branches are."""
        return Repository(path=self.common, reporter=self.reporter, stranger=True, writes_to=self.common)

    @property
    def is_partial(self) -> bool:
        """Whether it was cloned with a filter, so that files may be missing on purpose."""
        return any(self.objects.glob("pack/*.promisor"))

    @property
    def is_bare(self) -> bool:
        """Whether it has no files to look at."""
        return self.top == self.git_dir

    @property
    def command(self) -> str:
        """How a person runs git there; for hints."""
        return f"git -C {shlex.quote(str(self.top))}"

    def ask(self, *args: str) -> tuple[str, ...]:
        """The lines of a command that only reads; none when git has no answer."""
        finished = self.git.attempt(*args)
        return tuple(finished.stdout.decode("utf-8", "surrogateescape").splitlines()) * (finished.status == 0)

    def count(self, *revisions: str) -> int:
        """The number of commits in a set of revisions; 0 when git cannot tell."""
        told = self.ask("rev-list", "--count", *revisions)
        return int(told[0]) if told and told[0].isdigit() else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One commit: ``raw`` is the object, ``date`` when it was committed, RFC 3339 with its zone."""

    sha: str
    tree: str
    date: str
    raw: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class OurBranch:
    """What is at the branch to make: ``tip`` is None when nothing is."""

    ref: str
    tip: str | None

    @property
    def name(self) -> str:
        """The short name."""
        return self.ref.removeprefix("refs/heads/")


def open_clone(directory: Path, reporter: Reporter) -> Clone:
    """The repository that a folder is in: its top or any folder below, a worktree, a submodule or a bare one.

    Raises:
        CLONE_UNREADABLE: there is none, or git refuses.
        CLONE_UNSUPPORTED: it names its objects by SHA-256.
    """
    # Whose files they are does not matter: nothing in them can make patchkit run a program.
    there = ("-C", str(directory), "-c", "safe.directory=*", "rev-parse")
    git = Git(reporter=reporter, stranger=True)
    finished = git.attempt(
        *there, "--path-format=absolute", "--git-dir", "--git-common-dir", "--git-path", "objects",
        "--show-object-format", "--is-bare-repository",
    )  # fmt: skip
    lines = finished.stdout.decode("utf-8", "surrogateescape").split("\n")
    if finished.status != 0 or len(lines) != 6:  # noqa: PLR2004 - one line for each question, and an end
        raise GitError(
            f"{directory} is in no git repository that can be read",
            code="CLONE_UNREADABLE",
            where=Location(path=str(directory)),
            why=finished.stderr.strip() or None,
            hint="--repo DIR names your clone of llama.cpp; without it, the current folder is taken",
        )
    git_dir, common, objects, algorithm, bare = lines[:5]
    if algorithm != "sha1":
        raise GitError(
            f"{directory} names its objects by {algorithm}",
            code="CLONE_UNSUPPORTED",
            where=Location(path=git_dir),
            why="llama.cpp's own repository uses SHA-1, and so do the commits that patchkit makes",
            hint=f"use a clone of llama.cpp itself: git clone {llama_cpp().url}",
        )
    if is_ours(Path(common)):
        raise GitError(
            f"{directory} is patchkit's own repository",
            code="CLONE_UNSUPPORTED",
            where=Location(path=common),
            why="the candidates of the lock's pins are kept there",
            hint="--repo DIR names your clone of llama.cpp",
        )
    found = git.attempt(*there, "--show-toplevel")
    top = os.fsdecode(found.stdout.removesuffix(b"\n")) if found.status == 0 and bare != "true" else git_dir
    # core.worktree may name any folder: it counts only if git there finds this very repository.
    seen = git.attempt(
        "-C", top, "-c", "safe.directory=*", "rev-parse", "--path-format=absolute", "--git-dir"
    )
    if os.fsdecode(seen.stdout.removesuffix(b"\n")) != git_dir:
        top = git_dir
    return Clone(
        top=Path(top),
        git_dir=Path(git_dir),
        common=Path(common),
        objects=Path(objects),
        reporter=reporter,
    )


def read_commit(clone: Clone, revision: str) -> Commit:
    """The commit that ``revision`` names in the clone, as git reads revisions.

    Raises:
        ONTO_NO_COMMIT: it names none.
        CLONE_INCOMPLETE: the clone does not have the commit it names.
    """
    sha, said = _find_commit(clone, revision)
    if sha is None:
        unborn = revision == "HEAD"
        raise UsageError(
            f"{clone.top} has no commit '{revision}'",
            code="ONTO_NO_COMMIT",
            where=Location(path=str(clone.common)),
            why=said or ("its HEAD has no commit yet" if unborn else None),
            hint="git fetch origin, or another commit, tag or branch"
            if not unborn
            else "git switch to a branch that has commits, or name a commit: --onto REV",
        )
    return read_object(clone.refs, sha)


def read_object(repository: Repository, sha: str) -> Commit:
    """The commit of this id; raises CLONE_INCOMPLETE."""
    raw = repository.git.attempt("cat-file", "commit", sha)
    date = commit_date(raw.stdout)
    if raw.status != 0 or date is None:
        raise GitError(
            f"the commit {sha[:12]} in {repository.path} cannot be read",
            code="CLONE_INCOMPLETE",
            where=Location(path=str(repository.path)),
            why=raw.stderr.strip() or "it names no committer with a date",
            hint=f"git -C {shlex.quote(str(repository.path))} fsck",
        )
    tree = raw.stdout[5:45].decode("ascii", "replace")
    return Commit(sha=sha, tree=tree, date=date, raw=raw.stdout)


def _find_commit(clone: Clone, revision: str) -> tuple[str | None, str]:
    """The commit that is named, and what git says when there is none."""
    if not revision or revision.startswith(("-", "^")) or not revision.isprintable():
        return None, "that is no revision"
    # A search such as ':/words' would take what follows for more words, so it is asked in two steps.
    first = clone.git.attempt("rev-parse", "--verify", f"{revision}^{{commit}}")
    if first.status != 0:
        named = clone.ask("rev-parse", "--verify", "--quiet", revision)
        if named:
            first = clone.git.attempt("rev-parse", "--verify", f"{named[0]}^{{commit}}")
    sha = first.stdout.decode("ascii", "replace").strip()
    said = first.stderr.strip().removeprefix("fatal: ")
    return (sha, "") if _SHA.fullmatch(sha) else (None, "" if "single revision" in said else said)


def copy_commit(clone: Clone, sha: str, tree: str, cache: Repository) -> None:
    """Put the commit ``sha`` and its whole ``tree`` into the cache, without its history; no ref names it yet.

    Only what the cache lacks is copied, and every object is hashed again on the way.

    Raises:
        CLONE_INCOMPLETE: the clone lacks some of the files.
        GitError, CacheError: git or the disk refused.
    """
    _copy(clone, sha, [tree], [sha], cache)


def copy_trees(clone: Clone, sha: str, trees: Sequence[str], cache: Repository) -> None:
    """Put whole trees of commits below ``sha`` into the cache; no ref names them.

    Raises as :func:`copy_commit`.
    """
    _copy(clone, sha, trees, [], cache)


def _copy(clone: Clone, sha: str, trees: Sequence[str], more: Sequence[str], cache: Repository) -> None:
    borrowing = cache.borrowing(clone.objects)
    known = cache.git.run("for-each-ref", "--format=%(tree)", "refs/patchkit/pin").decode("ascii").split()
    wanted = [*trees, *(f"^{each}" for each in dict.fromkeys(known))]
    listed = borrowing.attempt("rev-list", "--objects", "--no-object-names", *wanted, "--")
    if listed.status != 0:
        if "missing" not in listed.stderr or not clone.is_partial:
            raise borrowing.failure(("rev-list",), listed)
        raise GitError(
            f"{clone.top} does not have all files of {sha[:12]}",
            code="CLONE_INCOMPLETE",
            where=Location(path=str(clone.common)),
            why=f"it is a partial clone; git says: {listed.stderr.strip().splitlines()[-1]}",
            hint=f"let git fetch them: {clone.command} sparse-checkout disable; or for another commit than "
            f"HEAD: {clone.command} worktree add --detach DIR {sha[:12]}",
        )
    # No search for better deltas: those of the clone are taken over, and the cache is read locally.
    ids = listed.stdout + "".join(f"{each}\n" for each in more).encode()
    pack = borrowing.run("pack-objects", "--stdout", "--quiet", "--window=0", stdin=ids)
    cache.git.run("index-pack", "--stdin", stdin=pack)
    # What another content stood for in the clone has another name now: then it is missing.
    whole = cache.git.attempt("rev-list", "--objects", "--quiet", *wanted, "--")
    if whole.status != 0:
        raise damaged_clone(clone.common, (whole.stderr.strip().splitlines() or ["git says nothing"])[-1])


def check_branch_name(name: str, reporter: Reporter) -> None:
    """Whether git allows the name for a branch; raises ONTO_BRANCH_NAME."""
    git = Git(reporter=reporter, stranger=True)
    # --branch also takes @{-1}, which is another branch's name, and what commands take for another ref.
    if (
        "@{" in name
        or name in {"@", "HEAD"}
        or name.startswith("refs/")
        or git.attempt("check-ref-format", "--branch", name).status != 0
    ):
        raise UsageError(
            f"git does not allow '{name}' as the name of a branch",
            code="ONTO_BRANCH_NAME",
            hint="--branch patchkit/gfx1151, for example",
        )


def read_file(clone: Clone, commit: Commit, path: str) -> bytes | None:
    """The bytes of a file of the commit; None when it is not there, or a partial clone lacks it."""
    found = clone.git.attempt("cat-file", "blob", f"{commit.sha}:{path}")
    return found.stdout if found.status == 0 else None


def look_at_branch(clone: Clone, name: str, *, base: str, tip: str, replace: bool) -> OurBranch:
    """What stands where the branch ``name`` is to be made, at ``tip`` on the clone's own commit ``base``.

    Raises:
        ONTO_BRANCH_TAKEN: it would overwrite what is not patchkit's, or move files that are checked out.
    """
    ref = f"refs/heads/{name}"
    _refuse_other_owner(clone)
    if clone.git.attempt("symbolic-ref", "--quiet", ref).status == 0:
        raise GitError(
            f"the branch {name} is another name of a branch",
            code="ONTO_BRANCH_TAKEN",
            where=Location(path=str(clone.common), label=ref),
            why="it is a symbolic ref, and moving it would move that one",
            hint=f"{clone.command} symbolic-ref --delete {ref}; or --branch ANOTHER-NAME",
        )
    old = read_ref(clone.refs, ref)
    if old is not None and old == tip:
        return OurBranch(ref=ref, tip=old)
    used = _where_used(clone, ref)
    if used is not None:
        raise GitError(
            f"the branch {name} is checked out",
            code="ONTO_BRANCH_TAKEN",
            where=Location(path=str(used)),
            why="it would move under your files, or under a rebase or bisection that is not done; "
            "your index and work tree are never touched",
            hint="git switch - there, or --branch ANOTHER-NAME",
        )
    if old is None:
        return OurBranch(ref=ref, tip=None)
    where = Location(path=str(clone.common), label=f"{name} at {old[:12]}")
    # What would be lost: commits that no other branch, tag or HEAD has.
    lost = _makers(clone, old, ["--not", base, f"--exclude={ref}", "--all"])
    foreign = [sha for sha, maker in lost if maker != IDENTITY_EMAIL]
    if foreign:  # what the owner rebased is in the base as another commit with the same change
        args = ("rev-list", "--cherry-pick", "--right-only", f"{base}...{old}", "--")
        only_here = clone.git.run(*args).decode("ascii").split()
        foreign = [sha for sha in foreign if sha in only_here]
    top = _makers(clone, old, ["--max-count=1"])
    if foreign or not top or top[0][1] != IDENTITY_EMAIL:
        raise GitError(
            f"the branch {name} is not only patchkit's",
            code="ONTO_BRANCH_TAKEN",
            where=where,
            why="commits that nothing else has: " + ", ".join(sha[:12] for sha in foreign[:_SHOWN])
            if foreign
            else "its last commit was made by somebody else",
            hint=f"keep it: {clone.command} branch -m {name} NEW-NAME; or --branch ANOTHER-NAME",
        )
    if not replace:
        raise GitError(
            f"there is a branch {name} of another run",
            code="ONTO_BRANCH_TAKEN",
            where=where,
            why="the same command on another commit, or with other patches, made it",
            hint="--replace moves it to the new commits; --branch ANOTHER-NAME keeps both",
        )
    return OurBranch(ref=ref, tip=old)


def put_branch(clone: Clone, branch: OurBranch, cache: Repository, *, base: str, tip: str) -> None:
    """Copy the commits ``base..tip`` into the clone, then make or move the branch, by compare-and-swap.

    Until the branch moves, nothing of the clone is changed but its store of objects.

    Raises:
        REF_MOVED, REF_IN_THE_WAY: somebody else moved or made a branch meanwhile; nothing changed.
        GitError, CacheError: git or the disk refused.
    """
    ids = cache.git.run("rev-list", "--objects", "--no-object-names", tip, f"^{base}", "--")
    pack = cache.git.run("pack-objects", "--stdout", "--quiet", stdin=ids)
    clone.git.run("unpack-objects", "-q", stdin=pack)
    # git does not write what is there by name, whatever its content is.
    try:
        verify_objects(clone.refs, ids.decode("ascii").split())
    except ObjectDamaged as error:
        raise damaged_clone(clone.common, error.why or error.message) from error
    update_ref(clone.refs, branch.ref, tip, branch.tip)


def _where_used(clone: Clone, ref: str) -> Path | None:
    """The work tree that has the branch checked out, also while it is rebased or bisected; None: none has.

    HEAD is read as it stands: it may name a branch that has no commit yet.
    """
    names = {b"ref: " + os.fsencode(ref), os.fsencode(ref), os.fsencode(ref.removeprefix("refs/heads/"))}
    for admin in (clone.common, *sorted(clone.common.glob("worktrees/*"))):
        for state in ("HEAD", "rebase-merge/head-name", "rebase-apply/head-name", "BISECT_START"):
            try:
                with (admin / state).open("rb") as stream:
                    text = stream.read(_STATE_BYTES).strip()
            except OSError:
                continue
            if text in names:
                return _work_tree_of(clone, admin)
    return None


def _work_tree_of(clone: Clone, admin: Path) -> Path:
    try:
        return Path(os.fsdecode((admin / "gitdir").read_bytes().strip())).parent
    except OSError:
        return clone.common.parent if clone.common.name == ".git" else clone.common


def _refuse_other_owner(clone: Clone) -> None:
    """Files that root makes in somebody's repository keep him from writing there himself."""
    owner = clone.objects.stat().st_uid
    if os.geteuid() == 0 and owner != 0:
        raise GitError(
            f"{clone.top} belongs to another user",
            code="CLONE_UNSUPPORTED",
            where=Location(path=str(clone.objects)),
            why="what root writes there its owner could not change any more",
            hint=f"run the same command as its owner: sudo -u '#{owner}' ...",
        )


def _makers(clone: Clone, tip: str, revisions: Sequence[str]) -> list[tuple[str, str]]:
    """Commit and the address of its committer, newest first; no address for one without our trailers."""
    form = f"%H%x09%ce%x09%(trailers:key=Patchkit-Id,key={TAKEN_OUT},valueonly,separator=%x2C)"
    args = ("rev-list", f"--format={form}", "--encoding=UTF-8", tip, *revisions)
    out = clone.git.run(*args).decode("utf-8", "replace")
    rows = (line.split("\t", 2) for line in out.splitlines() if not line.startswith("commit "))
    return [(row[0], row[1] if row[2].strip() else "") for row in rows if len(row) == 3]  # noqa: PLR2004
