"""The user's own repository: patchkit reads a commit from it and adds one branch, and writes nothing else.

Its settings are not trusted. They cannot run programs: hooks are off, no command contacts a remote, and
files are read through patchkit's own repository, which uses the clone's objects as alternates.
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
"""The trailer, one per removed commit, of a commit that removes patchkit's commits to reapply them on top."""
_STATE_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Clone:
    """``top`` is the work tree, or the folder itself of a bare clone; refs and objects are in ``common``.

    ``git_dir`` differs from ``common`` in a worktree, which has its own HEAD.
    """

    top: Path
    git_dir: Path
    common: Path
    objects: Path
    reporter: Reporter

    @property
    def git(self) -> Git:
        """Git in this clone, with its HEAD."""
        return Git(reporter=self.reporter, git_dir=self.git_dir, writes_to=self.common, untrusted=True)

    @property
    def refs(self) -> Repository:
        """The repository with its branches."""
        return Repository(path=self.common, reporter=self.reporter, untrusted=True, writes_to=self.common)

    @property
    def is_partial(self) -> bool:
        """Whether it was cloned with a filter, so that files may be missing."""
        return any(self.objects.glob("pack/*.promisor"))

    @property
    def is_bare(self) -> bool:
        """Whether it has no work tree."""
        return self.top == self.git_dir

    @property
    def command(self) -> str:
        """The git command for this clone, for hints."""
        return f"git -C {shlex.quote(str(self.top))}"

    def ask(self, *args: str) -> tuple[str, ...]:
        """The output lines of a read-only command; none if git fails."""
        finished = self.git.attempt(*args)
        return tuple(finished.stdout.decode("utf-8", "surrogateescape").splitlines()) * (finished.status == 0)

    def count(self, *revisions: str) -> int:
        """The number of commits in a set of revisions; 0 if git fails."""
        lines = self.ask("rev-list", "--count", *revisions)
        return int(lines[0]) if lines and lines[0].isdigit() else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One commit: ``raw`` is the object, ``date`` the committer date, RFC 3339 with its zone."""

    sha: str
    tree: str
    date: str
    raw: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class OurBranch:
    """The branch to create or move; ``tip`` is its current commit, None if it does not exist."""

    ref: str
    tip: str | None

    @property
    def name(self) -> str:
        """The short name."""
        return self.ref.removeprefix("refs/heads/")


def open_clone(directory: Path, reporter: Reporter) -> Clone:
    """The repository that contains a folder; it may be a worktree, a submodule or bare.

    Raises:
        CLONE_UNUSABLE: there is none, or git refuses to use it.
        CLONE_UNUSABLE: it uses SHA-256 object ids.
    """
    # Ownership of the files does not matter, as nothing in them can make patchkit run a program.
    there = ("-C", str(directory), "-c", "safe.directory=*", "rev-parse")
    git = Git(reporter=reporter, untrusted=True)
    finished = git.attempt(
        *there, "--path-format=absolute", "--git-dir", "--git-common-dir", "--git-path", "objects",
        "--show-object-format", "--is-bare-repository",
    )  # fmt: skip
    lines = finished.stdout.decode("utf-8", "surrogateescape").split("\n")
    if finished.status != 0 or len(lines) != 6:  # noqa: PLR2004 - one line for each question, and an end
        raise GitError(
            f"{directory} is not in a git repository that can be read",
            code="CLONE_UNUSABLE",
            where=Location(path=str(directory)),
            why=finished.stderr.strip() or None,
            hint="name your clone of llama.cpp with --repo DIR; the default is the current folder",
        )
    git_dir, common, objects, algorithm, bare = lines[:5]
    if algorithm != "sha1":
        raise GitError(
            f"{directory} uses {algorithm} object ids",
            code="CLONE_UNUSABLE",
            where=Location(path=git_dir),
            why="llama.cpp's own repository and the commits that patchkit makes use SHA-1",
            hint=f"use a clone of llama.cpp itself: git clone {llama_cpp().url}",
        )
    if is_ours(Path(common)):
        raise GitError(
            f"{directory} is patchkit's own repository",
            code="CLONE_UNUSABLE",
            where=Location(path=common),
            why="it contains the candidates of the lock's pins",
            hint="name your clone of llama.cpp with --repo DIR",
        )
    found = git.attempt(*there, "--show-toplevel")
    top = os.fsdecode(found.stdout.removesuffix(b"\n")) if found.status == 0 and bare != "true" else git_dir
    # core.worktree may name any folder, so it is used only if git finds this same repository from there.
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
    """The commit that ``revision`` names in the clone, in git's syntax for revisions.

    Raises:
        ONTO_NO_COMMIT: it names none.
        CLONE_UNUSABLE: the clone lacks the commit.
    """
    sha, message = _find_commit(clone, revision)
    if sha is None:
        unborn = revision == "HEAD"
        raise UsageError(
            f"{clone.top} has no commit '{revision}'",
            code="ONTO_NO_COMMIT",
            where=Location(path=str(clone.common)),
            why=message or ("its HEAD has no commit yet" if unborn else None),
            hint="run git fetch origin, or name another commit, tag or branch"
            if not unborn
            else "switch to a branch that has commits, or name a commit: --onto REV",
        )
    return read_object(clone.refs, sha)


def read_object(repository: Repository, sha: str) -> Commit:
    """The commit of this id; raises CLONE_UNUSABLE."""
    raw = repository.git.attempt("cat-file", "commit", sha)
    date = commit_date(raw.stdout)
    if raw.status != 0 or date is None:
        raise GitError(
            f"the commit {sha[:12]} in {repository.path} cannot be read",
            code="CLONE_UNUSABLE",
            where=Location(path=str(repository.path)),
            why=raw.stderr.strip() or "it has no committer with a date",
            hint=f"git -C {shlex.quote(str(repository.path))} fsck",
        )
    tree = raw.stdout[5:45].decode("ascii", "replace")
    return Commit(sha=sha, tree=tree, date=date, raw=raw.stdout)


def _find_commit(clone: Clone, revision: str) -> tuple[str | None, str]:
    """The named commit, or git's message if there is none."""
    if not revision or revision.startswith(("-", "^")) or not revision.isprintable():
        return None, "that is not a revision"
    # In two steps, because a search such as ':/words' would include the suffix in its search text.
    first = clone.git.attempt("rev-parse", "--verify", f"{revision}^{{commit}}")
    if first.status != 0:
        named = clone.ask("rev-parse", "--verify", "--quiet", revision)
        if named:
            first = clone.git.attempt("rev-parse", "--verify", f"{named[0]}^{{commit}}")
    sha = first.stdout.decode("ascii", "replace").strip()
    message = first.stderr.strip().removeprefix("fatal: ")
    return (sha, "") if _SHA.fullmatch(sha) else (None, "" if "single revision" in message else message)


def copy_commit(clone: Clone, sha: str, tree: str, cache: Repository) -> None:
    """Copy the commit ``sha`` and its whole ``tree`` into the cache, without its history; no ref is created.

    Only objects that the cache lacks are copied, and each is hashed again on the way.

    Raises:
        CLONE_UNUSABLE: the clone lacks some of the files.
        GitError, CacheError: git or the disk reported an error.
    """
    _copy(clone, sha, [tree], [sha], cache)


def copy_trees(clone: Clone, sha: str, trees: Sequence[str], cache: Repository) -> None:
    """Copy whole trees of commits below ``sha`` into the cache; no ref is created.

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
            f"{clone.top} lacks files of {sha[:12]}",
            code="CLONE_UNUSABLE",
            where=Location(path=str(clone.common)),
            why=f"it is a partial clone; git reports: {listed.stderr.strip().splitlines()[-1]}",
            hint=f"let git fetch them: {clone.command} sparse-checkout disable; or, for a commit other than "
            f"HEAD: {clone.command} worktree add --detach DIR {sha[:12]}",
        )
    # Reuse the clone's deltas without searching for better ones, because the cache is only read locally.
    ids = listed.stdout + "".join(f"{each}\n" for each in more).encode()
    pack = borrowing.run("pack-objects", "--stdout", "--quiet", "--window=0", stdin=ids)
    cache.git.run("index-pack", "--stdin", stdin=pack)
    # If an object's content did not match its id, it now has another id, and the expected one is missing.
    whole = cache.git.attempt("rev-list", "--objects", "--quiet", *wanted, "--")
    if whole.status != 0:
        raise damaged_clone(clone.common, (whole.stderr.strip().splitlines() or ["git gives no reason"])[-1])


def check_branch_name(name: str, reporter: Reporter) -> None:
    """Check that git allows the name for a branch; raises USAGE_VALUE."""
    git = Git(reporter=reporter, untrusted=True)
    # --branch also accepts @{-1}, another branch, and names that commands would take for other refs.
    if (
        "@{" in name
        or name in {"@", "HEAD"}
        or name.startswith("refs/")
        or git.attempt("check-ref-format", "--branch", name).status != 0
    ):
        raise UsageError(
            f"git does not allow '{name}' as the name of a branch",
            code="USAGE_VALUE",
            hint="use a name like patchkit/gfx1151: --branch patchkit/gfx1151",
        )


def read_file(clone: Clone, commit: Commit, path: str) -> bytes | None:
    """The bytes of a file of the commit; None if it does not exist, or if a partial clone lacks it."""
    found = clone.git.attempt("cat-file", "blob", f"{commit.sha}:{path}")
    return found.stdout if found.status == 0 else None


def look_at_branch(clone: Clone, name: str, *, base: str, tip: str, replace: bool) -> OurBranch:
    """The current state of the branch ``name``, which is to be at ``tip``, on the clone's commit ``base``.

    Raises:
        ONTO_BRANCH_TAKEN: this would lose commits that are not patchkit's, or move a checked-out branch.
    """
    ref = f"refs/heads/{name}"
    _refuse_other_owner(clone)
    if clone.git.attempt("symbolic-ref", "--quiet", ref).status == 0:
        raise GitError(
            f"the branch {name} is a symbolic ref to another branch",
            code="ONTO_BRANCH_TAKEN",
            where=Location(path=str(clone.common), label=ref),
            why="moving it would move the other branch",
            hint="choose another name with --branch, or delete the symbolic ref (the other branch stays): "
            f"{clone.command} symbolic-ref --delete {ref}",
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
            why="moving it would change it under your files, or under an unfinished rebase or bisection; "
            "patchkit never touches your index and work tree",
            hint="run git switch - there, or use --branch ANOTHER-NAME",
        )
    if old is None:
        return OurBranch(ref=ref, tip=None)
    where = Location(path=str(clone.common), label=f"{name} at {old[:12]}")
    # The commits that would be lost: those that no other branch, tag or HEAD contains.
    lost = _makers(clone, old, ["--not", base, f"--exclude={ref}", "--all"])
    foreign = [sha for sha, maker in lost if maker != IDENTITY_EMAIL]
    if foreign:  # ignore commits that were rebased: the base contains the same change
        args = ("rev-list", "--cherry-pick", "--right-only", f"{base}...{old}", "--")
        only_here = clone.git.run(*args).decode("ascii").split()
        foreign = [sha for sha in foreign if sha in only_here]
    top = _makers(clone, old, ["--max-count=1"])
    if foreign or not top or top[0][1] != IDENTITY_EMAIL:
        raise GitError(
            f"the branch {name} has commits that patchkit did not make",
            code="ONTO_BRANCH_TAKEN",
            where=where,
            why="commits that exist nowhere else: " + ", ".join(sha[:12] for sha in foreign[:_SHOWN])
            if foreign
            else "patchkit did not make its last commit",
            hint=f"keep it: {clone.command} branch -m {name} NEW-NAME; or use --branch ANOTHER-NAME",
        )
    if not replace:
        raise GitError(
            f"the branch {name} exists already, from another run",
            code="ONTO_BRANCH_TAKEN",
            where=where,
            why="it was made by the same command on another commit, or with other patches",
            hint="move it to the new commits with --replace, or keep both with --branch ANOTHER-NAME",
        )
    return OurBranch(ref=ref, tip=old)


def put_branch(clone: Clone, branch: OurBranch, cache: Repository, *, base: str, tip: str) -> None:
    """Copy the commits ``base..tip`` into the clone, then create or move the branch by compare-and-swap.

    Until the branch moves, only objects are added to the clone.

    Raises:
        REF_MOVED, REF_IN_THE_WAY: another process created or moved a branch meanwhile; nothing changed.
        GitError, CacheError: git or the disk reported an error.
    """
    ids = cache.git.run("rev-list", "--objects", "--no-object-names", tip, f"^{base}", "--")
    pack = cache.git.run("pack-objects", "--stdout", "--quiet", stdin=ids)
    clone.git.run("unpack-objects", "-q", stdin=pack)
    # git does not write objects whose id exists already, so check the content of those, too.
    try:
        verify_objects(clone.refs, ids.decode("ascii").split())
    except ObjectDamaged as error:
        raise damaged_clone(clone.common, error.why or error.message) from error
    update_ref(clone.refs, branch.ref, tip, branch.tip)


def _where_used(clone: Clone, ref: str) -> Path | None:
    """The work tree that has the branch checked out, also during a rebase or bisection; None without one.

    HEAD is read as text, because it may name a branch that has no commit yet.
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
    """Refuse to write as root into another user's repository: the owner could not change those files."""
    owner = clone.objects.stat().st_uid
    if os.geteuid() == 0 and owner != 0:
        raise GitError(
            f"{clone.top} belongs to another user",
            code="CLONE_UNUSABLE",
            where=Location(path=str(clone.objects)),
            why="its owner could not change files that root writes there",
            hint=f"run the command as the owner: sudo -u '#{owner}' ...",
        )


def _makers(clone: Clone, tip: str, revisions: Sequence[str]) -> list[tuple[str, str]]:
    """Commit and committer address, newest first; the address is empty for commits without our trailers."""
    form = f"%H%x09%ce%x09%(trailers:key=Patchkit-Id,key={TAKEN_OUT},valueonly,separator=%x2C)"
    args = ("rev-list", f"--format={form}", "--encoding=UTF-8", tip, *revisions)
    out = clone.git.run(*args).decode("utf-8", "replace")
    rows = (line.split("\t", 2) for line in out.splitlines() if not line.startswith("commit "))
    return [(row[0], row[1] if row[2].strip() else "") for row in rows if len(row) == 3]  # noqa: PLR2004
