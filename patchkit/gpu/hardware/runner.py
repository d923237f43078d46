"""Runs programs on this machine, or on another one over SSH, where jobs survive a lost connection."""

from __future__ import annotations

import hashlib
import json
import secrets
import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from patchkit.base.digests import sha256
from patchkit.base.errors import ExitCode, Location, PatchkitError, UsageError
from patchkit.base.files import disk_errors, file_sha256
from patchkit.base.process import Completed, ToolTimeout, run_tool
from patchkit.base.reporter import Reporter


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One program to run.

    ``argv`` contains paths returned by :meth:`Runner.place`. ``env`` is added to a scrubbed environment.
    ``tag`` distinguishes jobs with the same command, such as the third round from the fourth. Jobs with equal
    tag and command are one job: a runner that can resume returns the earlier result.
    """

    argv: tuple[str, ...]
    tag: str
    env: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float | None = None


class Runner(Protocol):
    """A machine that runs programs. A failed program raises no error; it is reported in the status."""

    @property
    def name(self) -> str:
        """The runner's name in reports."""
        ...

    def place(self, path: Path) -> str:
        """Make a file or folder available there and return its path there. Existing content is not copied."""
        ...

    def run(self, job: Job) -> Completed:
        """Run a job until it ends.

        Raises:
            ToolMissing, TOOL_NOT_STARTED: the program does not exist or cannot be started.
            ToolTimeout: it was stopped after ``timeout_s``.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRunner:
    """Runs programs on this machine."""

    reporter: Reporter

    @property
    def name(self) -> str:
        """The runner's name in reports."""
        return "this machine"

    def place(self, path: Path) -> str:
        """The path itself."""
        return str(path)

    def run(self, job: Job) -> Completed:
        """Run a job until it ends; raises as :meth:`Runner.run`."""
        return run_tool(
            job.argv, env=job.env, timeout_s=job.timeout_s, check=False, reporter=self.reporter, work="run"
        )


# Prints the absolute root. Results of jobs that were not used for a month are deleted.
PREPARE = """set -e
root=@root@
[ -n "$root" ] || root="${XDG_CACHE_HOME:-$HOME/.cache}/patchkit-runner"
mkdir -p "$root/jobs" "$root/placed"
for tool in setsid timeout rsync nohup; do
  command -v $tool >/dev/null || { echo "$tool: not found" >&2; exit 127; }
done
find "$root/jobs" -mindepth 1 -maxdepth 1 -mtime +30 -exec rm -rf {} +
cd "$root" && pwd -P"""

# A job that has ended or is running is not started again; one that died without a status is. Prints the
# status and both output sizes on one line, then both outputs; or "lost". Can be interrupted and repeated at
# any point.
RUN = """dir=@folder@
mkdir -p "$dir" && cd "$dir" || exit 1
boot=$(cat /proc/sys/kernel/random/boot_id 2>/dev/null || echo none)
alive() { [ -s pid ] && [ "$(cat boot 2>/dev/null)" = "$boot" ] && kill -0 "$(cat pid)" 2>/dev/null; }
if [ ! -e rc ] && ! alive; then
  rm -f pid
  end='echo $? > rc.partial; mv rc.partial rc'
  printf '%s\\n' 'echo $$ > pid' @job@' > stdout 2> stderr < /dev/null' "$end" > job.sh &&
    echo "$boot" > boot || exit 1
  nohup setsid sh job.sh > /dev/null 2>&1 < /dev/null &
  n=0; while [ ! -s pid ] && [ ! -e rc ] && [ $n -lt 300 ]; do n=$((n + 1)); sleep 0.1; done
fi
while [ ! -e rc ]; do
  alive || { sleep 0.5; [ -e rc ] || { echo lost; exit 0; }; }
  [ -e rc ] || sleep 0.2
done
echo "$(cat rc)" $(wc -c < stdout) $(wc -c < stderr)
cat stdout stderr"""

# Ends all processes of the job's session, because timeout(1) creates its own process group in it.
END = """cd @folder@ || exit 0
[ -e rc ] && exit 0
session=$(cat pid)
for stat in /proc/[0-9]*/stat; do
  line=$(cat "$stat" 2>/dev/null) || continue
  set -- ${line##*) }
  [ "$4" = "$session" ] && kill -TERM "$(basename "$(dirname "$stat")")" 2>/dev/null
done
exit 0"""


def fill(script: str, **values: str) -> str:
    """The script with every ``@name@`` replaced by the quoted value."""
    for name, value in values.items():
        script = script.replace(f"@{name}@", shlex.quote(value))
    return script


def content_key(path: Path) -> str:
    """20 hex digits over names, modes, links and contents. Raises CacheError if a file cannot be read."""
    digest = hashlib.sha256()
    with disk_errors(path, "reading files to copy"):
        for entry in sorted(path.rglob("*")) if path.is_dir() else [path]:
            name = entry.relative_to(path.parent).as_posix()
            if entry.is_symlink():
                digest.update(f"link {name} {entry.readlink()}\n".encode())
            elif entry.is_file():
                mode = entry.stat().st_mode & 0o111
                digest.update(f"file {name} {mode:o} {file_sha256(entry)}\n".encode())
    return digest.hexdigest()[:20]


_SSH_FAILED = 255  # exit status of ssh itself, not of the remote command
# rsync exit statuses for socket and pipe errors, timeouts, and ssh failures.
_RSYNC_LOST = frozenset({10, 12, 30, 35, 255})
_NOT_FOUND = 127


class RunnerError(PatchkitError):
    """A failure between this machine and the remote one. Gates do not attribute it to the candidate."""

    exit_code = ExitCode.TOOLCHAIN


def is_connection_loss(completed: Completed) -> bool:
    """Whether a retry may help: the connection was lost or could not be made, for a transient reason."""
    if completed.argv[0] == "rsync":
        lost = completed.returncode in _RSYNC_LOST
    else:
        lost = completed.returncode == _SSH_FAILED
    return lost and runner_failure(completed, "").code in {
        "RUNNER_UNREACHABLE",
        "RUNNER_LOST",
        "RUNNER_FAILED",
    }


def runner_failure(completed: Completed, name: str) -> RunnerError:
    """The error for a failed ssh or rsync; ``name`` is the runner's."""
    text = completed.stderr.decode("utf-8", "replace").strip()
    where = Location(path=name)
    for failure in _KNOWN:
        if any(word in text for word in failure.words):
            return RunnerError(failure.message, code=failure.code, where=where, why=text, hint=failure.hint)
    if completed.returncode == _NOT_FOUND or "not found" in text:
        return RunnerError(
            "a program is missing on the remote machine",
            code="RUNNER_TOOL_MISSING",
            where=where,
            why=text,
            hint="it needs sh, coreutils, setsid (util-linux) and rsync",
        )
    if completed.returncode == _SSH_FAILED or completed.returncode in _RSYNC_LOST:
        return RunnerError(
            "the SSH connection was lost",
            code="RUNNER_LOST",
            where=where,
            why=text or "ssh printed no error",
            hint="run the command again: remote jobs continue, and their results are picked up",
        )
    return RunnerError(
        f"a command on the remote machine failed with status {completed.returncode}",
        code="RUNNER_FAILED",
        where=where,
        why=text or "it wrote nothing to stderr",
        hint="-v shows the commands, so that you can run them yourself",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failure:
    """A known failure of ssh or rsync, recognised by ``words`` in its output."""

    words: tuple[str, ...]
    code: str
    message: str
    hint: str


_KNOWN = (
    _Failure(
        words=("REMOTE HOST IDENTIFICATION HAS CHANGED",),
        code="RUNNER_KEY_UNKNOWN",
        message="the SSH host key of the remote machine has changed",
        hint="if it was reinstalled: ssh-keygen -R HOST, then ssh HOST to check and accept the new key",
    ),
    _Failure(
        words=("Host key verification failed", "No ED25519 host key is known", "host key is known for"),
        code="RUNNER_KEY_UNKNOWN",
        message="the SSH host key of the remote machine is unknown",
        hint="run ssh HOST once to check and accept its key",
    ),
    _Failure(
        words=("Permission denied (", "Too many authentication failures"),
        code="RUNNER_AUTH_FAILED",
        message="SSH authentication failed",
        hint="set up a key that needs no passphrase prompt (ssh-copy-id HOST, or an agent); "
        "test it with: ssh -oBatchMode=yes HOST",
    ),
    _Failure(
        words=(
            "Could not resolve hostname",
            "Connection refused",
            "No route to host",
            "Network is unreachable",
        ),
        code="RUNNER_UNREACHABLE",
        message="cannot connect to the SSH server",
        hint="check name, port and network with: ssh HOST true",
    ),
    _Failure(
        words=("Connection timed out", "Operation timed out", "timed out during banner exchange"),
        code="RUNNER_UNREACHABLE",
        message="the connection to the remote machine timed out",
        hint="check name, port and network with: ssh HOST true",
    ),
    _Failure(
        words=("No space left on device", "Disk quota exceeded"),
        code="RUNNER_DISK_FULL",
        message="the disk of the remote machine is full",
        hint="free some space there, or use another folder: ssh://host/folder",
    ),
)


_CONNECT_S = 15
_ALIVE_S = 5  # interval of keep-alive messages; three missing ones mean that the connection is lost
_PATIENCE_S = 600.0  # time until a lost connection is given up
_PAUSES_S = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
_TIMED_OUT = 124  # exit status of timeout(1)
_HEAD = 3  # fields of the first line: status and two sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class SshTarget:
    """``ssh://[user@]host[:port][/folder]``: ``destination`` for ssh; ``root`` None: a folder in the home."""

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
            f"'{url}' is not a valid runner",
            code="RUNNER_URL_BAD",
            why="the form is ssh://[user@]host[:port][/folder], without a password",
            hint="for example: --runner ssh://gpu-box",
        )
    user = f"{parts.username}@" if parts.username else ""
    return SshTarget(url=url, destination=f"{user}{host}", port=port, root=parts.path.rstrip("/") or None)


@dataclass(slots=True, kw_only=True)
class SshRunner:
    """Runs programs on a remote machine. ``config`` is an ssh_config(5) file that replaces the user's.

    ``agent`` is the user's SSH_AUTH_SOCK, ``session`` identifies this process's jobs, ``patience_s`` is how
    long to wait for a lost connection.
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
        """The runner's name in reports."""
        return self.target.url

    def connect(self) -> str:
        """Connect, create patchkit's folder there and return its path. Raises the errors of :meth:`run`."""
        if self._root is None:
            out = self._remote(fill(PREPARE, root=self.target.root or ""), patient=False).stdout
            self._root = out.decode("utf-8", "replace").strip().splitlines()[-1]
        return self._root

    def place(self, path: Path) -> str:
        """Copy a file or folder there, unless the same content exists; returns its path there.

        Raises:
            The RUNNER errors of :meth:`run`. An interrupted copy is resumed the next time.
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
        """Run a job until it ends, reconnecting if the connection is lost.

        Raises:
            ToolTimeout: it was stopped there after ``timeout_s``.
            RUNNER_UNREACHABLE, RUNNER_KEY_UNKNOWN and _CHANGED, RUNNER_AUTH_FAILED: cannot connect.
            RUNNER_LOST: the connection was not restored in time; the job continues there.
            RUNNER_JOB_LOST: the job ended without a status.
            RUNNER_TOOL_MISSING, RUNNER_DISK_FULL, RUNNER_FAILED: a command on the machine failed.
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
                f"{Path(job.argv[0]).name} did not finish within {job.timeout_s:g} s and was stopped",
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
        """Copy a file from there, completely or not at all; raises as :meth:`run`, and CacheError."""
        with disk_errors(here, "saving the output of a program"):
            here.parent.mkdir(parents=True, exist_ok=True)
            partial = here.with_name(f".{here.name}.partial")
            source = f"{self.target.destination}:{there}"
            self._patiently(
                ["rsync", "-a", "--timeout=60", "-e", shlex.join(self._ssh()), source, str(partial)],
                patient=True,
            )
            partial.replace(here)

    def _parts(self, answer: bytes, what: str) -> tuple[int, bytes, bytes]:
        """Status and outputs. Their sizes come first, so that truncated output is detected."""
        head, _, data = answer.partition(b"\n")
        numbers = head.split()
        if head.strip() == b"lost":
            raise RunnerError(
                f"{what} ended on {self.name} without an exit status",
                code="RUNNER_JOB_LOST",
                why="the machine was restarted, or the whole session was killed",
                hint="check the remote machine with: last reboot; dmesg | tail; then run the command again",
            )
        if len(numbers) != _HEAD or not all(number.isdigit() for number in numbers):
            raise RunnerError(
                f"the answer of {self.name} cannot be parsed",
                code="RUNNER_FAILED",
                why=repr(answer[:200]),
                hint="its login shell may print text at every login; remove that and run the command again",
            )
        status, size, rest = (int(number) for number in numbers)
        if size + rest != len(data):
            raise RunnerError(
                f"the output of {what} is incomplete: {len(data)} of {size + rest} bytes arrived",
                code="RUNNER_FAILED",
                hint="run the command again: the result is still on the remote machine",
            )
        return status, data[:size], data[size:]

    def _copy(self, path: Path, there: str) -> None:
        source, target = (f"{path}/", f"{there}/") if path.is_dir() else (str(path), there)
        shell = shlex.join(self._ssh())
        argv = ["rsync", "-a", "--partial", "--delete", "--timeout=60", "-e", shell, source]
        self._patiently([*argv, f"{self.target.destination}:{target}"], patient=True)

    def _remote(self, script: str, *, patient: bool = True) -> Completed:
        """Run a line of POSIX shell there, independent of the user's login shell."""
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
                raise RunnerError(
                    f"the connection to {self.name} was lost and not restored within {self.patience_s:g} s",
                    code="RUNNER_LOST",
                    why=lost.why,
                    hint="run the command again: remote jobs continue, and their results are picked up",
                )
            self.reporter.warn(f"lost the connection to {self.name}; retrying in {pause:g} s")
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
    return sha256(text)[:20]


def _script(job: Job) -> str:
    """The job's command as one line of shell."""
    settings = [f"{name}={value}" for name, value in job.env.items()]
    limit = ["timeout", "-k", "5", f"{job.timeout_s:g}"] if job.timeout_s is not None else []
    # The login environment there is not used, as the caller's is not used here.
    return f'env -i PATH="$PATH" HOME="$HOME" LC_ALL=C {shlex.join([*settings, *limit, *job.argv])}'


def choose_runner(
    url: str | None, *, config: Path | None, environ: Mapping[str, str], reporter: Reporter
) -> Runner:
    """This machine if ``url`` is None, else the one of the URL; ``config`` replaces the user's ssh_config(5).

    Raises:
        RUNNER_URL_BAD: the URL is invalid. This makes no connection yet.
    """
    if url is None:
        return LocalRunner(reporter=reporter)
    agent = environ.get("SSH_AUTH_SOCK")
    return SshRunner(target=parse_target(url), reporter=reporter, config=config, agent=agent)
