"""Runs apt with its own state folder; it uses the machine's settings and does not modify the system."""

from __future__ import annotations

import os
import re
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from patchkit.base.errors import PatchkitError, SourceError, ToolchainError
from patchkit.base.files import disk_error_from_tool, disk_errors
from patchkit.base.process import Completed, ToolCrashed, ToolMissing, ToolTimeout, run_tool, tool_failure
from patchkit.base.reporter import Reporter

_SIGNATURE = (
    "is not signed",
    "NO_PUBKEY",
    "BADSIG",
    "EXPKEYSIG",
    "REVKEYSIG",
    "EXPSIG",
    "signatures were invalid",
    "couldn't be verified",
    "Clearsigned file isn't valid",
    "No valid signature",
    "Missing key",
    "Sub-process /usr/bin/sqv returned",
    "is not valid yet",
    "Release file for",  # ... is expired
)
_DAMAGED = ("Hash Sum mismatch", "unexpected size", "Hashes of received file")
_UNREACHABLE = (
    "Could not resolve",
    "Temporary failure resolving",
    "Could not connect",
    "Connection failed",
    "Connection refused",
    "Connection timed out",
    "Unable to connect",
    "Cannot initiate the connection",
    "Network is unreachable",
    "Something wicked happened",
)
_LACKS = re.compile(r"Unable to locate package (\S+)|Package '?([^\s']+)'? has no installation candidate")
_MISSING = (
    "does not have a Release file",
    "404",
    "File not found",
    "Can't find a source to download",
    "doesn't have the component",
)
_OTHER_SUITE = "try another suite: patchkit sdk install --suite sid"


class _Cause(NamedTuple):
    """One cause of failure: the messages of apt that indicate it, and patchkit's error."""

    words: tuple[str, ...]
    code: str
    message: str
    hint: str


# In this order, because apt continues after an error: the first ones can cause the others.
_CAUSES = (
    _Cause(
        words=_SIGNATURE,
        code="SDK_PACKAGE_DAMAGED",
        message="{what} is not signed by a key that this machine trusts",
        hint="update the keys (package debian-archive-keyring), or use another mirror",
    ),
    _Cause(
        words=_DAMAGED,
        code="SDK_PACKAGE_DAMAGED",
        message="{what} does not match the signed package index",
        hint="try again, or use another mirror",
    ),
    _Cause(
        words=_UNREACHABLE,
        code="SDK_PACKAGES_UNAVAILABLE",
        message="cannot reach the mirror of {what}",
        hint="check the network, the proxy, and that apt-get update works",
    ),
    _Cause(words=_MISSING, code="SDK_PACKAGE_MISSING", message="{what} was not found", hint=_OTHER_SUITE),
)


def apt_error(done: Completed, what: str, folder: Path) -> PatchkitError:
    """The error for a failed run of apt.

    Args:
        done: the completed command.
        what: what was being fetched, for the message.
        folder: the folder that apt wrote to.
    """
    failure = tool_failure(done)
    text = done.stderr.decode("utf-8", "replace")
    refused = disk_error_from_tool(failure, folder, f"fetching {what}")
    if refused is not None and "/etc/apt" not in text:
        return refused
    if isinstance(failure, ToolCrashed):
        return failure
    lacking = sorted({name for pair in _LACKS.findall(text) for name in pair if name})
    if lacking:
        return SourceError(
            f"{what} lacks {', '.join(lacking)}", code="SDK_PACKAGE_MISSING", hint=_OTHER_SUITE
        )
    for cause in _CAUSES:
        lines = [line for line in text.splitlines() if any(word in line for word in cause.words)]
        if lines:
            return SourceError(
                cause.message.format(what=what), code=cause.code, why=_short(lines), hint=cause.hint
            )
    return ToolchainError(
        f"apt failed while fetching {what}",
        code="SDK_PACKAGES_UNAVAILABLE",
        why=failure.why,
        hint=failure.hint,
    )


def _short(lines: list[str]) -> str:
    """The first five lines, without duplicates and apt's prefixes."""
    return "\n".join(dict.fromkeys(re.sub(r"^[EW]: ", "", line).strip() for line in lines[:5]))


_UPDATE_S = 180.0
_DOWNLOAD_S = 600.0
_ANSWER_S = 60.0
_BATCH_BYTES = 10_000_000

# The machine's settings that are needed to reach its mirror; hooks and other settings are not used.
_KEPT = re.compile(
    r"Acquire::(?:https?|ftp|tor|mirror|ForceIPv[46]|Check-Valid-Until|Check-Date|Max-ValidTime|Min-ValidTime)"
    r"\b.*"
)
_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "all_proxy")


@dataclass(frozen=True, slots=True, kw_only=True)
class AvailablePackage:
    """A package in the index, with the ``size`` of its file in bytes."""

    name: str
    version: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """An apt client with its state in ``folder``; ``proxies`` are environment variables of the caller."""

    folder: Path
    proxies: Mapping[str, str]
    reporter: Reporter

    def update(self, what: str) -> None:
        """Fetch and verify the package index; ``what`` is its name in messages.

        Raises:
            SDK_PACKAGE_DAMAGED, SDK_PACKAGES_UNAVAILABLE, SDK_PACKAGE_MISSING: apt failed.
            CacheError: a disk operation failed.
        """
        self._run(["apt-get", "update"], what, _UPDATE_S)

    def names(self, prefix: str) -> tuple[str, ...]:
        """The names in the index that start with ``prefix``, sorted."""
        done = self._run(["apt-cache", "pkgnames", prefix], "the package index", _ANSWER_S)
        return tuple(sorted(done.stdout.decode("utf-8", "replace").split()))

    def find(self, names: Sequence[str], what: str) -> tuple[AvailablePackage, ...]:
        """The candidate versions of exactly these packages, without dependencies.

        Raises:
            SDK_PACKAGE_MISSING: a package is not in the index.
        """
        done = self._run(["apt-get", "download", "--print-uris", *names], what, _ANSWER_S)
        found = _parse_uris(done.stdout)
        missing = sorted(set(names) - {one.name for one in found})
        if missing:
            raise SourceError(
                f"{what} lacks {', '.join(missing)}",
                code="SDK_PACKAGE_MISSING",
                hint=_OTHER_SUITE,
            )
        return found

    def closure(self, names: Sequence[str], what: str) -> tuple[AvailablePackage, ...]:
        """The candidate versions of these packages and of all their dependencies."""
        argv = ["apt-get", "install", "--print-uris", "--no-install-recommends", "-y", *names]
        return _parse_uris(self._run(argv, what, _ANSWER_S).stdout)

    def download(self, wanted: Sequence[AvailablePackage], into: Path, what: str) -> None:
        """Download packages into a folder; apt verifies them by the index."""
        with disk_errors(into, "creating a folder for packages"):
            into.mkdir(parents=True, exist_ok=True)
        done, total = 0, sum(one.size for one in wanted)
        with self.reporter.progress(f"downloading {what}", "bytes") as advance:
            advance(0, total)
            for batch in _batches(wanted):
                names = [f"{one.name}={one.version}" for one in batch]
                self._run(["apt-get", "download", *names], what, _DOWNLOAD_S, cwd=into)
                done += sum(one.size for one in batch)
                advance(done, total)

    def _run(self, argv: list[str], what: str, timeout_s: float, cwd: Path | None = None) -> Completed:
        env = {**self.proxies, "APT_CONFIG": str(self.folder / "apt.conf")}
        try:
            done = run_tool(
                argv,
                cwd=cwd or self.folder,
                env=env,
                timeout_s=timeout_s,
                check=False,
                reporter=self.reporter,
            )
        except ToolMissing as error:
            raise _no_apt(argv[0]) from error
        except ToolTimeout as error:
            raise SourceError(
                f"timed out fetching {what} after {timeout_s:g} s",
                code="SDK_PACKAGES_UNAVAILABLE",
                why=error.why,
                hint="try again later",
            ) from error
        if done.returncode != 0:
            raise apt_error(done, what, self.folder)
        return done


def make_client(folder: Path, sources: str, *, environ: Mapping[str, str], reporter: Reporter) -> Client:
    """An apt client that keeps all its files below ``folder``.

    Args:
        folder: created if it is missing.
        sources: content of its ``.sources`` file.
        environ: for the proxy settings.
        reporter: receives the commands.

    Raises:
        SDK_PACKAGES_UNAVAILABLE: apt is not installed.
    """
    settings = [line for line in read_apt_config(["dump"], reporter).splitlines() if _KEPT.fullmatch(line)]
    own = {
        "Dir::State": folder / "state",
        "Dir::State::lists": folder / "lists",
        "Dir::State::status": os.devnull,  # no installed packages
        "Dir::Cache": folder / "cache",
        "Dir::Cache::archives": folder / "archives",
        "Dir::Log": folder / "log",
        "Dir::Etc::main": os.devnull,
        "Dir::Etc::parts": os.devnull,
        "Dir::Etc::preferences": os.devnull,
        "Dir::Etc::preferencesparts": os.devnull,
        "Dir::Etc::sourcelist": folder / "patchkit.sources",
        "Dir::Etc::sourceparts": os.devnull,
        "Acquire::Languages": "none",
        "Acquire::PDiffs": "false",
        "Acquire::Retries": "2",
        "Acquire::AllowInsecureRepositories": "false",
        "Acquire::AllowDowngradeToInsecureRepositories": "false",
        "Acquire::AllowWeakRepositories": "false",
        "APT::Get::AllowUnauthenticated": "false",
        "APT::Update::Error-Mode": "any",
        "APT::Sandbox::User": "root",  # run as root, apt would switch to a user without write access here
        "Debug::NoLocking": "true",  # the folder is private, and dpkg's lock is not needed
        "quiet": "2",
    }
    text = "\n".join([*settings, *(f'{name} "{value}";' for name, value in own.items())]) + "\n"
    with disk_errors(folder, "preparing apt"):
        for name in ("state", "lists/partial", "cache", "archives/partial", "log"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / "apt.conf").write_text(text, encoding="utf-8")
        (folder / "patchkit.sources").write_text(sources, encoding="utf-8")
    proxies = {name: value for name, value in environ.items() if name.lower() in _PROXIES}
    return Client(folder=folder, proxies=proxies, reporter=reporter)


def read_apt_config(arguments: list[str], reporter: Reporter) -> str:
    """The output of ``apt-config``: the machine's own settings.

    Raises:
        SDK_PACKAGES_UNAVAILABLE: apt is not installed.
    """
    try:
        done = run_tool(["apt-config", *arguments], timeout_s=_ANSWER_S, reporter=reporter)
    except ToolMissing as error:
        raise _no_apt("apt-config") from error
    return done.stdout.decode("utf-8", "replace")


def _no_apt(program: str) -> ToolchainError:
    return ToolchainError(
        f"{program} is not installed on this machine",
        code="SDK_PACKAGES_UNAVAILABLE",
        why="the SDK consists of Debian packages, which are downloaded and verified by apt",
        hint="use a Debian machine or container, or install ROCm and set ROCM_PATH",
    )


def _batches(wanted: Sequence[AvailablePackage]) -> Iterator[tuple[AvailablePackage, ...]]:
    """Groups of packages for one run of apt: a compromise between its startup time and progress updates."""
    batch: list[AvailablePackage] = []
    for one in wanted:
        batch.append(one)
        if sum(each.size for each in batch) >= _BATCH_BYTES:
            yield tuple(batch)
            batch = []
    if batch:
        yield tuple(batch)


def _parse_uris(output: bytes) -> tuple[AvailablePackage, ...]:
    r"""Parse lines of ``'URI' name_version_arch.deb size digest``; colons in versions are written as %3a."""
    wanted = []
    for line in output.decode("utf-8", "replace").splitlines():
        found = re.fullmatch(r"'[^']*' ([^_\s]+)_([^_\s]+)_\S+\.deb (\d+)(?: \S+)?\s*", line)
        if found is not None:
            version = urllib.parse.unquote(found[2])
            wanted.append(AvailablePackage(name=found[1], version=version, size=int(found[3])))
    return tuple(wanted)
