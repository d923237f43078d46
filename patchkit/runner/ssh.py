"""Running jobs on another machine through the user's ssh and rsync.

Vocabulary: the *root* is a folder of ours there; files are *placed* in it under a digest of their content, so
that they are copied once. A job is a small script there, in a session of its own: it goes on when the
connection is lost, and its status is a file that appears when it has ended. Asking for the same job again,
from this process or a later one, waits for it or takes its result.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from patchkit.errors import UsageError
from patchkit.proc import Completed, ToolTimeout, run_tool
from patchkit.report import Reporter
from patchkit.runner.base import Job
from patchkit.runner.errors import (
    RunnerFailed,
    RunnerJobLost,
    RunnerLost,
    is_connection_loss,
    runner_failure,
)
from patchkit.runner.placing import content_key
from patchkit.runner.scripts import END, PREPARE, RUN, fill
from patchkit.vcs.disk import disk_errors

_CONNECT_S = 15
_ALIVE_S = 5  # between two signs of life; three missing ones are a lost connection
_PATIENCE_S = 600.0  # until a lost connection is given up
_PAUSES_S = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
_TIMED_OUT = 124  # of timeout(1)
_HEAD = 3  # status and two sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class SshTarget:
    """``ssh://[user@]host[:port][/folder]``: ``destination`` as ssh takes it, ``root`` None: in the home."""

    url: str
    destination: str
    port: int | None
    root: str | None


def parse_target(url: str) -> SshTarget:
    """Read a runner's URL. Raises RUNNER_URL_BAD."""
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname
    except ValueError:
        port, host, parts = None, None, urlsplit("")
    strange = parts.password or parts.query or parts.fragment
    if parts.scheme != "ssh" or not host or host.startswith("-") or strange:
        raise UsageError(
            f"'{url}' is no place to run at",
            code="RUNNER_URL_BAD",
            why="it takes ssh://[user@]host[:port][/folder], without a password",
            hint="--runner ssh://gpu-box",
        )
    user = f"{parts.username}@" if parts.username else ""
    return SshTarget(url=url, destination=f"{user}{host}", port=port, root=parts.path.rstrip("/") or None)


@dataclass(slots=True, kw_only=True)
class SshRunner:
    """Another machine. ``config`` is an ssh_config(5) file to use instead of the user's own.

    ``agent`` is the user's SSH_AUTH_SOCK, ``session`` this process's name for its jobs, ``patience_s`` how
    long a lost connection is waited for.
    """

    target: SshTarget
    reporter: Reporter
    config: Path | None = None
    agent: str | None = None
    patience_s: float = _PATIENCE_S
    sleep: Callable[[float], None] = time.sleep
    session: str = field(default_factory=lambda: secrets.token_hex(4))
    _root: str | None = None
    _placed: dict[Path, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What reports call it."""
        return self.target.url

    def connect(self) -> str:
        """Reach the machine and make our folder there; its path. Raises what :meth:`run` raises."""
        if self._root is None:
            out = self._remote(fill(PREPARE, root=self.target.root or ""), patient=False).stdout
            self._root = out.decode("utf-8", "replace").strip().splitlines()[-1]
        return self._root

    def place(self, path: Path) -> str:
        """Copy a file or folder there unless that content is there already; its path there.

        Raises:
            RunnerError classes of :mod:`patchkit.runner.errors`; a copy that was cut short is gone on with.
        """
        known = self._placed.get(path)
        if known is not None:
            return known
        root = self.connect()
        folder = f"{root}/placed/{content_key(path)}"
        there = f"{folder}/{path.name}"
        done = f"{folder}/.complete"
        if (
            self._remote(f"test -e {shlex.quote(done)} && echo yes || mkdir -p {shlex.quote(folder)}").stdout
            == b""
        ):
            self.reporter.step(f"copying {path.name} to {self.name}")
            self._copy(path, there)
            self._remote(f": > {shlex.quote(done)}")
        self._placed[path] = there
        return there

    def run(self, job: Job) -> Completed:
        """Run a job to its end, through lost connections.

        Raises:
            ToolTimeout: it was stopped there after ``timeout_s``.
            RunnerUnreachable, RunnerHostKeyUnknown, RunnerHostKeyChanged, RunnerAuthFailed: no way in.
            RunnerLost: the connection did not come back; the job goes on there.
            RunnerJobLost: the job ended without a status.
            RunnerToolMissing, RunnerDiskFull, RunnerFailed: the machine refused.
        """
        began = time.monotonic()
        folder = f"{self.connect()}/jobs/{_job_id(job)}"
        self.reporter.command(f"on {self.target.destination}: {shlex.join(job.argv)}")
        try:
            answer = self._remote(fill(RUN, folder=folder, job=_script(job))).stdout
        except KeyboardInterrupt:
            self._remote(fill(END, folder=folder), patient=False)
            raise
        status, stdout, stderr = self._parts(answer, Path(job.argv[0]).name)
        if status == _TIMED_OUT and job.timeout_s is not None:
            raise ToolTimeout(
                f"{Path(job.argv[0]).name} did not end within {job.timeout_s:g} s, and was stopped",
                why=f"on {self.name}",
                hint=f"the command was: {shlex.join(job.argv)}",
            )
        return Completed(
            argv=job.argv,
            returncode=status,
            stdout=stdout,
            stderr=stderr,
            seconds=time.monotonic() - began,
        )

    def scratch(self, name: str) -> str:
        """The path of a folder there for the outputs of one job of this process."""
        return f"{self.connect()}/jobs/{self.session}-{name}"

    def fetch(self, there: str, here: Path) -> None:
        """Bring a file here, whole or not at all; raises what :meth:`run` raises, and CacheError."""
        with disk_errors(here, "keeping the output of a program"):
            here.parent.mkdir(parents=True, exist_ok=True)
            partial = here.with_name(f".{here.name}.partial")
            source = f"{self.target.destination}:{there}"
            self._patiently(
                ["rsync", "-a", "--timeout=60", "-e", shlex.join(self._ssh()), source, str(partial)],
                patient=True,
            )
            partial.replace(here)

    def _parts(self, answer: bytes, what: str) -> tuple[int, bytes, bytes]:
        """Status and outputs; their sizes come first, since a connection that is lost may cut them short."""
        head, _, data = answer.partition(b"\n")
        numbers = head.split()
        if head.strip() == b"lost":
            raise RunnerJobLost(
                f"{what} ended on {self.name} without a status",
                why="the machine was restarted, or something killed the whole session",
                hint="look at it with: last reboot; dmesg | tail; then run the command again",
            )
        if len(numbers) != _HEAD or not all(number.isdigit() for number in numbers):
            raise RunnerFailed(
                f"{self.name} answered in a way that cannot be read",
                why=repr(answer[:200]),
                hint="a shell there that prints at every login does that; run the command again",
            )
        status, size, rest = (int(number) for number in numbers)
        if size + rest != len(data):
            raise RunnerFailed(
                f"the output of {what} came with {len(data)} of {size + rest} bytes",
                hint="run the command again: the result is still there",
            )
        return status, data[:size], data[size:]

    def _copy(self, path: Path, there: str) -> None:
        source, target = (f"{path}/", f"{there}/") if path.is_dir() else (str(path), there)
        shell = shlex.join(self._ssh())
        argv = ["rsync", "-a", "--partial", "--delete", "--timeout=60", "-e", shell, source]
        self._patiently([*argv, f"{self.target.destination}:{target}"], patient=True)

    def _remote(self, script: str, *, patient: bool = True) -> Completed:
        """Run a line of POSIX shell there, whatever the login shell of the user is."""
        argv = [*self._ssh(), self.target.destination, "--", f"sh -c {shlex.quote(script)}"]
        return self._patiently(argv, patient=patient)

    def _patiently(self, argv: list[str], *, patient: bool) -> Completed:
        deadline = time.monotonic() + self.patience_s
        pauses = iter(_PAUSES_S)
        while True:
            done = run_tool(argv, env=self._env(), check=False, reporter=self.reporter)
            if done.returncode == 0:
                return done
            if not patient or not is_connection_loss(done):
                raise runner_failure(done, self.name)
            pause = next(pauses, _PAUSES_S[-1])
            if time.monotonic() + pause > deadline:
                lost = runner_failure(done, self.name)
                raise RunnerLost(
                    f"the connection to {self.name} was lost, and did not come back in {self.patience_s:g} s",
                    why=lost.why,
                    hint="run the command again: what runs there goes on, and its result is taken then",
                )
            self.reporter.warn(f"lost the connection to {self.name}; trying again in {pause:g} s")
            self.sleep(pause)

    def _ssh(self) -> list[str]:
        argv = ["ssh", *(["-F", str(self.config)] if self.config is not None else [])]
        argv += ["-oBatchMode=yes", f"-oConnectTimeout={_CONNECT_S}", f"-oServerAliveInterval={_ALIVE_S}"]
        argv += ["-oServerAliveCountMax=3", "-oControlPath=none"]
        return [*argv, *(["-p", str(self.target.port)] if self.target.port is not None else [])]

    def _env(self) -> Mapping[str, str]:
        return {"SSH_AUTH_SOCK": self.agent} if self.agent else {}


def _job_id(job: Job) -> str:
    text = json.dumps([job.tag, job.argv, sorted(job.env.items()), job.timeout_s])
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def _script(job: Job) -> str:
    """What the job runs, as one line of shell."""
    settings = [f"{name}={value}" for name, value in job.env.items()]
    limit = ["timeout", "-k", "5", f"{job.timeout_s:g}"] if job.timeout_s is not None else []
    # Nothing of the login there takes part, as nothing of the caller's does here.
    return f'env -i PATH="$PATH" HOME="$HOME" LC_ALL=C {shlex.join([*settings, *limit, *job.argv])}'
