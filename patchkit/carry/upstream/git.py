"""Run git with exact bytes in and out, in an environment that is the same for every user.

GitPython only starts the process; it is ended like any other (base/process.py), and its output is read here.
GitPython merges ``env`` into the caller's environment, so every ``GIT_*`` variable is unset with ``env -u``.
"""

from __future__ import annotations

import os
import re
import selectors
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from patchkit.base.errors import GitError, Location, PatchkitError
from patchkit.base.files import disk_error_from_text, is_full
from patchkit.base.process import running, signal_name, stderr_tail
from patchkit.base.reporter import Reporter
from patchkit.carry.series.git_object import object_id
from patchkit.carry.upstream import gitpython

IDENTITY_NAME = "patchkit"
IDENTITY_EMAIL = "patchkit@localhost"

# Which certificates to trust depends on the machine (company proxies). It cannot change which source is
# accepted, because the tree hash is checked.
_KEPT = frozenset({"GIT_SSL_CAINFO", "GIT_SSL_CAPATH"})

# In the order of git's manual. A null device disables a file; an empty helper clears the list of helpers.
_CONFIG = {
    "advice.detachedHead": "false",
    "commit.gpgSign": "false",
    "core.askPass": "",
    "core.attributesFile": "/dev/null",
    "core.autocrlf": "false",
    "core.compression": "1",  # the cache is written once and read locally: speed matters more than size
    "core.eol": "lf",
    "core.excludesFile": "/dev/null",
    "core.fsmonitor": "false",
    "core.hooksPath": "/dev/null",
    "core.safecrlf": "false",
    "core.untrackedCache": "false",
    "credential.helper": "",
    "gc.auto": "0",
    "http.lowSpeedLimit": "1000",  # bytes per second, over lowSpeedTime seconds
    "http.lowSpeedTime": "30",
    "init.defaultBranch": "main",
    "init.defaultRefFormat": "files",
    "maintenance.auto": "false",
    "protocol.version": "2",
}

_VARIABLES = {
    "GIT_ALLOW_PROTOCOL": "https:http:ssh:git:file",
    "GIT_ASKPASS": "",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_AUTHOR_EMAIL": IDENTITY_EMAIL,
    "GIT_AUTHOR_NAME": IDENTITY_NAME,
    "GIT_COMMITTER_EMAIL": IDENTITY_EMAIL,
    "GIT_COMMITTER_NAME": IDENTITY_NAME,
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_GRAFT_FILE": "/dev/null/none",  # an existing file, even if empty, makes git warn
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_PAGER": "cat",
    # A shared connection would leave behind a process that outlives the command.
    "GIT_SSH_COMMAND": "ssh -oBatchMode=yes -oControlPath=none",
    "GIT_TERMINAL_PROMPT": "0",
    "LANGUAGE": "C",
    "LC_ALL": "C",
    "TZ": "UTC",
}


def fixed_environment() -> dict[str, str]:
    """The variables to set. Configuration is passed in them too, so that child processes inherit it."""
    environment = dict(_VARIABLES)
    environment["GIT_CONFIG_COUNT"] = str(len(_CONFIG))
    for number, (key, value) in enumerate(_CONFIG.items()):
        environment[f"GIT_CONFIG_KEY_{number}"] = key
        environment[f"GIT_CONFIG_VALUE_{number}"] = value
    return environment


def leaking_names(environ: Mapping[str, str], ours: Mapping[str, str]) -> list[str]:
    """The names to unset: all of git's variables that ``ours`` does not overwrite."""
    return sorted(
        name for name in environ if name.startswith("GIT_") and name not in ours and name not in _KEPT
    )


# The user name may be a token, too; only in ssh URLs it is not a secret.
_SECRET = re.compile(r"(?P<scheme>\b[A-Za-z][A-Za-z0-9+.-]*)://(?P<who>[^/\s]*)@")


def redacted(text: str) -> str:
    """The text with secrets in its URLs replaced by ``***``."""
    return _SECRET.sub(_hide, text)


def _hide(found: re.Match[str]) -> str:
    name, colon, _ = found["who"].partition(":")
    is_ssh = found["scheme"].lower() in ("ssh", "git+ssh")
    shown = f"{name}{':***' if colon else ''}" if is_ssh else "***"
    return f"{found['scheme']}://{shown}@"


# GIT_CONFIG_GLOBAL was added in git 2.32 (2021-06); without it, a user's configuration has effect.
MINIMUM_GIT = (2, 32)

_ELSEWHERE = "name a folder on another disk"
# git's messages (LC_ALL=C, git 2.32 to 2.50) about damaged objects and files of its own.
_DAMAGE = re.compile(
    r".*(is corrupt|inflate: data|garbage at end of loose object|object file .* is empty"
    r"|unable to (unpack|parse) .*|hash mismatch|missing (blob|tree|commit|object)|packfile .* (cannot|does)"
    r"|unexpected line in .*packed-refs|bad (tree object|object)|index file (corrupt|smaller)).*"
)
_ALTERNATES = "GIT_ALTERNATE_OBJECT_DIRECTORIES"


class ObjectDamaged(GitError):
    """The content of objects does not match their ids, or objects are missing."""

    code = "GIT_OBJECT_DAMAGED"


class GitTimeout(GitError):
    """A git command that talks to a remote produced no output for too long, and was stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The result of a process: its exit status (negative: killed by that signal) and output."""

    status: int
    stdout: bytes
    stderr: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """An object as git returned it; git does not check whether ``id`` matches the content."""

    id: str
    kind: str
    data: bytes

    @property
    def is_whole(self) -> bool:
        """Whether the content matches the id."""
        return object_id(self.kind, self.data) == self.id


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One path that differs between two trees: git's status letter (A, D, M, R, T), modes and object ids.

    ``source`` is the old path of a renamed file.
    """

    path: str
    letter: str
    modes: tuple[str, str]
    ids: tuple[str, str]
    source: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Git:
    """git, bound to one repository: ``git_dir`` always, ``work_tree`` if files are involved.

    The repository is always given explicitly, never discovered. So a ``.git`` above the current folder has no
    effect, and git's ownership check of discovered repositories does not apply.

    ``keep_open`` are file descriptors that every process inherits. A lock on one of them lasts until the last
    process has ended, even if patchkit itself was killed.

    ``writes_to`` is a folder of the user's that the command fills; disk errors name it.

    ``borrows`` is a folder of objects that are read as if they were in the repository. ``untrusted`` is for a
    repository that patchkit did not make. No command may contact a remote there, because the settings of a
    remote can name programs to run, and git by itself fetches objects that a partial clone lacks.
    """

    reporter: Reporter
    git_dir: Path | None = None
    work_tree: Path | None = None
    keep_open: tuple[int, ...] = ()
    writes_to: Path | None = None
    borrows: Path | None = None
    untrusted: bool = False

    def run(self, *args: str, stdin: bytes | BinaryIO | None = None) -> bytes:
        """The standard output of a git command that must succeed.

        Raises:
            GIT_MISSING: no git on PATH.
            GIT_FAILED: the exit status is not 0.
            CacheError: it failed because of a disk error.
        """
        finished = self.attempt(*args, stdin=stdin)
        if finished.status != 0:
            raise self.failure(args, finished)
        return finished.stdout

    def init(self, folder: Path | None = None) -> None:
        """Make a bare repository in a folder, by default ``git_dir``, if there is none."""
        where = (os.fspath(folder),) if folder is not None else ()
        # The format is explicit, because later versions of git may have another default.
        self.run("init", "--quiet", "--bare", "--template=", "--object-format=sha1", *where)

    def objects(self, names: Iterable[bytes]) -> Iterator[StoredObject | None]:
        """The objects with these names (without newlines), read by one process; None for missing ones."""
        lines = [name + b"\n" for name in names]
        out = self.run("cat-file", "--batch", stdin=b"".join(lines)) if lines else b""
        at = 0
        while at < len(out):
            end = out.index(b"\n", at)
            match out[at:end].split(b" "):
                case [sha, kind, size]:
                    start, at = end + 1, end + 1 + int(size) + 1
                    yield StoredObject(id=sha.decode(), kind=kind.decode(), data=out[start : at - 1])
                case _:
                    at = end + 1
                    yield None

    def changes(self, before: str, after: str) -> tuple[Change, ...]:
        """The differences between two commits, by path; a moved file is one removed and one added.

        Raises the errors of :meth:`run`.
        """
        return self._compare("--no-renames", before, after)

    def renames(self, before: str, after: str) -> tuple[Change, ...]:
        """The same, but a removed and an added file with half of their lines in common are one renamed file.

        Raises the errors of :meth:`run`.
        """
        return self._compare("--find-renames=50%", "-l1000", before, after)

    def _compare(self, *args: str) -> tuple[Change, ...]:
        out = self.run("diff-tree", "-r", "-z", "--raw", *args)
        fields = iter(out.decode("utf-8", "surrogateescape").split("\0")[:-1])
        found = []
        for head in fields:
            old_mode, new_mode, old, new, letter = head.removeprefix(":").split(" ")
            path = next(fields)
            source, path = (path, next(fields)) if letter.startswith("R") else (None, path)
            found.append(
                Change(path=path, letter=letter[0], modes=(old_mode, new_mode), ids=(old, new), source=source)
            )
        return tuple(sorted(found, key=lambda change: change.path))

    def diff(self, before: str, after: str) -> bytes:
        """The diff between two trees, for git apply. Raises the errors of :meth:`run`."""
        options = ("--binary", "--full-index", "--no-renames", "--no-ext-diff", "--no-textconv")
        return self.run("diff-tree", "-r", "-p", *options, before, after)

    def is_ancestor(self, one: str, other: str) -> bool:
        """Whether the history of ``other`` contains ``one``."""
        return self.attempt("merge-base", "--is-ancestor", one, other).status == 0

    def sizes(self, ids: Sequence[str]) -> dict[str, int]:
        """The size of each existing object, without reading it."""
        asked = "".join(f"{sha}\n" for sha in ids).encode()
        out = self.run("cat-file", "--batch-check=%(objectname) %(objectsize)", stdin=asked) if ids else b""
        rows = [line.split() for line in out.decode("ascii", "replace").splitlines()]
        return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}  # noqa: PLR2004 - name, size

    def attempt(self, *args: str, stdin: bytes | BinaryIO | None = None) -> Finished:
        """Run a git command and return its result, whatever its exit status."""
        fed, source = (stdin, subprocess.PIPE) if isinstance(stdin, bytes) else (None, stdin)
        with running(self._starting(args, stdin=source)) as process:
            stdout, stderr = process.communicate(fed)
        return Finished(status=process.returncode, stdout=stdout, stderr=redacted(_text(stderr)))

    def watch(
        self, *args: str, on_text: Callable[[bytes], None], answer_s: float, silence_s: float
    ) -> Finished:
        """Run a git command that talks to a remote, and pass on its stderr.

        Args:
            args: the command; its stdout is discarded.
            on_text: called with each piece of stderr as it arrives.
            answer_s: seconds to wait for the first piece.
            silence_s: seconds to wait for each later piece.

        Raises:
            GitTimeout: no output for longer than that; the process and its children were killed.
        """
        with running(self._starting(args, with_stdout=False)) as process:
            text = _listen(process, on_text, answer_s, silence_s)
            try:
                status = process.wait(timeout=silence_s)
            except subprocess.TimeoutExpired as error:
                raise GitTimeout(f"git produced no output for {silence_s:g} s") from error
        return Finished(status=status, stdout=b"", stderr=redacted(_text(text)))

    def _starting(
        self, args: tuple[str, ...], *, stdin: int | BinaryIO | None = None, with_stdout: bool = True
    ) -> Callable[[], subprocess.Popen[bytes]]:
        runner = gitpython.runner_in(self._cwd())  # here, where Ctrl-C is handled immediately
        return partial(
            gitpython.spawn,
            runner,
            self._argv(args),
            env=self._environment(),
            stdin=stdin,
            with_stdout=with_stdout,
            keep_open=self.keep_open,
        )

    def failure(self, args: tuple[str, ...], finished: Finished) -> PatchkitError:
        """The error for a failed command: a disk error if that is the cause, else :class:`GIT_FAILED`."""
        where = self.git_dir or self._cwd()
        refused = self._refusal(args[0], finished)
        if refused is not None:
            return refused
        # With a work tree it is the user's repository, so it is not reported as a damaged cache.
        if self.git_dir is not None and self.work_tree is None and (found := _DAMAGE.search(finished.stderr)):
            if self.untrusted or self.borrows is not None:
                return damaged_clone(self.borrows.parent if self.borrows else self.git_dir, found[0].strip())
            return damaged(self.git_dir, found[0].strip())
        if finished.status < 0:
            ended = f"was killed by {signal_name(-finished.status)}"
        else:
            ended = f"ended with status {finished.status}"
        return GitError(
            f"git {args[0]} {ended}",
            code="GIT_FAILED",
            where=Location(path=str(where)),
            why=stderr_tail(finished.stderr),
            hint=f"the command was: {redacted(shlex.join(self._shown(args)))}",
        )

    def _refusal(self, name: str, finished: Finished) -> PatchkitError | None:
        text = "File too large" if finished.status == -signal.SIGXFSZ else finished.stderr
        if self.writes_to is None:
            return disk_error_from_text(text, self.git_dir or self._cwd(), f"git {name}")
        if "unable to write file" in text and is_full(self.writes_to):
            text = f"No space left on device\n{text}"  # git itself gives no reason
        elsewhere = "use a clone on another disk with --repo" if self.untrusted else _ELSEWHERE
        return disk_error_from_text(text, self.writes_to, f"git {name}", elsewhere)

    def _shown(self, args: tuple[str, ...]) -> list[str]:
        shown = ["git"]
        if self.git_dir is not None:
            shown.append(f"--git-dir={self.git_dir}")
        if self.work_tree is not None:
            shown.append(f"--work-tree={self.work_tree}")
        return [*shown, *args]

    def _argv(self, args: tuple[str, ...]) -> list[str]:
        shown = self._shown(args)
        self.reporter.command(redacted(shlex.join(shown)))
        return [*_unsetting(os.environ, self._environment()), _git_program(), *shown[1:]]

    def _environment(self) -> dict[str, str]:
        environment = fixed_environment()
        if self.untrusted:
            environment["GIT_ALLOW_PROTOCOL"] = "none"  # no protocol has this name, so all are disabled
        if self.borrows is not None:
            environment[_ALTERNATES] = _quoted(self.borrows)
        return environment

    def _cwd(self) -> Path:
        if self.untrusted:
            return Path("/")  # so that relative entries of PATH do not find programs in the clone
        return self.work_tree or self.git_dir or Path("/")


def damaged(git_dir: Path, why: str) -> ObjectDamaged:
    """The error for a damaged repository of the cache, which must be deleted and made again."""
    return ObjectDamaged(
        "the cache is damaged",
        where=Location(path=str(git_dir)),
        why=why,
        hint=f"delete {git_dir} and run the command again",
    )


def damaged_clone(git_dir: Path, why: str) -> ObjectDamaged:
    """The error for a damaged repository of the user, which patchkit must not delete."""
    return ObjectDamaged(
        "your repository is damaged",
        where=Location(path=str(git_dir)),
        why=why,
        hint=f"for details: git --git-dir={shlex.quote(str(git_dir))} fsck --full; nothing was changed",
    )


# Cached by path, time and size of the program, as each command and each imported patch checks the version.
_VERSIONS: dict[tuple[str, int, int], str] = {}


def check_git(reporter: Reporter) -> tuple[int, int]:
    """The version of git, at least :data:`MINIMUM_GIT`.

    Raises:
        GIT_MISSING: no git on PATH.
        GIT_TOO_OLD: an older one.
    """
    program = Path(_git_program())
    state = program.stat()
    asked = (str(program), state.st_mtime_ns, state.st_size)
    if (text := _VERSIONS.get(asked)) is None:
        text = Git(reporter=reporter).run("version").decode("ascii", "replace").strip()
        _VERSIONS[asked] = text
    found = re.search(r"(\d+)\.(\d+)", text)
    version = (int(found[1]), int(found[2])) if found else (0, 0)
    if version < MINIMUM_GIT:
        raise GitError(
            f"'{text}' is too old: patchkit needs git {MINIMUM_GIT[0]}.{MINIMUM_GIT[1]} or newer",
            code="GIT_TOO_OLD",
            why="older versions cannot be prevented from reading the user's configuration",
            hint="install a newer git and run the command again",
        )
    return version


def _git_program() -> str:
    program = shutil.which("git")
    if program is None:
        raise GitError(
            "there is no git on PATH",
            code="GIT_MISSING",
            why=f"PATH is {os.environ.get('PATH', 'not set')}",
            hint="install git (Debian, Ubuntu: apt install git) and run the command again",
        )
    return os.path.abspath(program)  # noqa: PTH100  # in another folder a relative PATH finds another program


def _quoted(folder: Path) -> str:
    """A path in a colon-separated list: git accepts it in quotes, with the escapes of a C string."""
    text = os.fspath(folder)
    if ":" not in text and not text.startswith('"'):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _unsetting(environ: Mapping[str, str], ours: Mapping[str, str]) -> list[str]:
    names = leaking_names(environ, ours)
    if not names:
        return []
    env = os.path.abspath(shutil.which("env") or "/usr/bin/env")  # noqa: PTH100  # as above
    return [env, *(f"-u{name}" for name in names)]


def _text(stderr: bytes) -> str:
    return stderr.decode("utf-8", "replace")


def _listen(
    process: subprocess.Popen[bytes], on_text: Callable[[bytes], None], answer_s: float, silence_s: float
) -> bytes:
    if process.stderr is None:
        raise AssertionError("spawned without a pipe for stderr")
    text = bytearray()
    allowed_s = answer_s
    with process.stderr, selectors.DefaultSelector() as selector:
        selector.register(process.stderr, selectors.EVENT_READ)
        while True:
            if not selector.select(allowed_s):
                raise GitTimeout(f"git produced no output for {allowed_s:g} s")
            piece = os.read(process.stderr.fileno(), 65536)
            if not piece:
                return bytes(text)
            allowed_s = silence_s
            text += piece
            del text[:-65536]
            on_text(piece)
