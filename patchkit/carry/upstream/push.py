"""Push refs to a remote atomically, after checking what they would replace there; sign tags."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.base.errors import GitError, Location
from patchkit.base.files import disk_errors
from patchkit.base.process import run_tool
from patchkit.base.text import counted
from patchkit.carry.upstream.git import Finished, Git, redacted
from patchkit.carry.upstream.repository import Repository

_KEY = "user.signingkey"
_SETTINGS = (_KEY, "gpg.format", "gpg.program", "gpg.ssh.program", "gpg.x509.program")
_ANSWER_S = 10.0


def find_key(repository: Repository, environ: Mapping[str, str]) -> dict[str, str]:
    """Git's settings for signing with the user's key, by name; none if the user has no key."""
    found = {name: value for name in _SETTINGS if (value := user_setting(repository, name, environ))}
    return found if _KEY in found else {}


def user_setting(repository: Repository, name: str, environ: Mapping[str, str]) -> str | None:
    """One setting of the user's own git configuration, which all other calls of git ignore."""
    kept = {key: environ[key] for key in ("HOME", "XDG_CONFIG_HOME") if key in environ}
    done = run_tool(
        ["git", "config", "--global", "--includes", "--get", name],
        env=kept,
        timeout_s=_ANSWER_S,
        check=False,
        reporter=repository.reporter,
    )
    text = done.stdout.decode("utf-8", "replace").strip()
    return text if done.returncode == 0 and text else None


def write_signed_tag(
    repository: Repository, key: Mapping[str, str], *, name: str, commit: str, message: str
) -> str:
    """Store a tag object signed with ``key``, from :func:`find_key`, and return its id. No ref moves.

    Raises:
        SIGNING_FAILED: the key is missing, or its agent refused.
        CacheError: the disk reported an error.
    """
    with tempfile.TemporaryDirectory(prefix="patchkit-tag-") as folder:
        scratch = Path(folder) / "tag.git"
        Git(reporter=repository.reporter).init(scratch)
        with disk_errors(scratch, "signing"):
            info = scratch / "objects" / "info"
            info.mkdir(parents=True, exist_ok=True)
            (info / "alternates").write_text(f"{repository.path / 'objects'}\n", "utf-8")
        git = Git(reporter=repository.reporter, git_dir=scratch)
        settings = [part for item in key.items() for part in ("-c", "=".join(item))]
        finished = git.attempt(*settings, "tag", "--sign", "-m", message, name, commit)
        data = git.attempt("cat-file", "tag", f"refs/tags/{name}").stdout
        # If ssh-keygen does not sign, git 2.39 exits with 0 and makes a tag without a signature.
        if finished.status != 0 or b"\n-----BEGIN " not in data:
            raise GitError(
                f"git could not sign with the key {key[_KEY]}",
                code="SIGNING_FAILED",
                why=finished.stderr.strip() or "git wrote nothing to stderr",
                hint="unlock the key or its agent and run the command again, or add --no-sign",
            )
    return repository.write_object("tag", data)


_SHOWN = 10  # replaced commits listed in a message


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """A ref of the remote that points, or pointed, elsewhere: ``old``, and the commits lost with it."""

    ref: str
    old: str
    lost: tuple[str, ...]

    def __str__(self) -> str:
        listed = "".join(f"\n  {line}" for line in self.lost)
        return f"{self.ref} at {self.old[:12]}{listed}"


def push_refs(
    repository: Repository,
    url: str,
    refs: Mapping[str, str],
    *,
    force: bool,
    credential_helper: str | None,
) -> tuple[Replaced, ...]:
    """Point the refs of the remote to these objects; returns what was replaced (only with ``force``).

    Args:
        repository: has the objects.
        url: of the remote, or an absolute path.
        refs: object id by full name, the same locally and on the remote.
        force: whether refs may be replaced.
        credential_helper: the user's; the rest of their configuration is ignored.

    Raises:
        PUSH_FAILED: nothing was sent.
        PUSH_FAILED: nothing was sent; the message lists what would be lost.
        PUSH_FAILED, PUSH_SHALLOW, PUSH_FAILED: nothing changed on the remote, as the push is atomic.
    """
    shown = redacted(url)
    settings = ("-c", f"credential.helper={credential_helper}") if credential_helper else ()
    there = _read(repository, url, tuple(refs), settings)
    replaced = tuple(
        Replaced(ref=name, old=old, lost=_lost(repository, old, refs[name]))
        for name, old in there.items()
        if old != refs[name] and not _contains(repository, refs[name], old)
    )
    if replaced and not force:
        raise GitError(
            f"the push would replace {counted(len(replaced), 'ref')} of {shown}; nothing was pushed",
            code="PUSH_FAILED",
            where=Location(path=shown),
            why="\n".join(str(one) for one in replaced),
            hint="check the list; --force-push replaces exactly these commits, and no newer ones",
        )
    leases = [f"--force-with-lease={name}:{there.get(name, '')}" for name in refs]
    args = [*settings, "push", "--porcelain", "--atomic", "--no-verify", *leases, url]
    args += [f"{sha}:{name}" for name, sha in refs.items()]
    finished = repository.git.attempt(*args)
    if finished.status != 0:
        error = _why(finished, shown)
        if error.code == "PUSH_SHALLOW":
            _take_back(repository, url, refs, there, settings)
        raise error
    return replaced


def _take_back(
    repository: Repository,
    url: str,
    refs: Mapping[str, str],
    there: Mapping[str, str],
    settings: Sequence[str],
) -> None:
    """Restore the refs that were updated by a failed push, as far as the remote allows.

    A remote that rejects commits of a shallow history still updates the other refs of an atomic push (git
    2.39): the evidence, which is a root commit, was there without its branch.
    """
    now = _read(repository, url, tuple(refs), settings)
    went = [name for name, sha in now.items() if sha == refs[name] != there.get(name)]
    if went:
        leases = [f"--force-with-lease={name}:{refs[name]}" for name in went]
        back = [f"{there.get(name, '')}:{name}" for name in went]
        repository.git.attempt(*settings, "push", "--porcelain", "--no-verify", *leases, url, *back)


def _read(repository: Repository, url: str, names: Sequence[str], settings: Sequence[str]) -> dict[str, str]:
    finished = repository.git.attempt(*settings, "ls-remote", "--refs", url, *names)
    if finished.status != 0:
        raise GitError(
            f"could not read the refs of {redacted(url)}; nothing was pushed",
            code="PUSH_FAILED",
            where=Location(path=redacted(url)),
            why=finished.stderr.strip() or "git wrote nothing to stderr",
            hint="check the URL and your permission to push; ssh must work without asking for a password",
        )
    rows = (line.partition("\t") for line in finished.stdout.decode("utf-8", "replace").splitlines())
    return {name: sha for sha, _, name in rows if name in names}


def _contains(repository: Repository, new: str, old: str) -> bool:
    if not repository.has_object(old):
        return False
    return repository.git.is_ancestor(old, new)


def _lost(repository: Repository, old: str, new: str) -> tuple[str, ...]:
    if not repository.has_object(old):
        return ("commits that this cache does not have, pushed from elsewhere",)
    finished = repository.git.attempt("log", "--oneline", f"--max-count={_SHOWN}", f"{new}..{old}", "--")
    return tuple(finished.stdout.decode("utf-8", "replace").splitlines())


def _why(finished: Finished, shown: str) -> GitError:
    text = "\n".join([finished.stdout.decode("utf-8", "replace"), finished.stderr]).strip()
    where = Location(path=shown)
    if "shallow update not allowed" in text:
        return GitError(
            f"{shown} lacks upstream's history; nothing was pushed",
            code="PUSH_SHALLOW",
            where=where,
            why="the cache has the pinned commit without its history, so the remote must already have it",
            hint="push to a fork of llama.cpp, or push upstream's own branch there first",
        )
    if "[rejected]" in text or "[remote rejected]" in text:
        return GitError(
            f"{shown} rejected the push; nothing was changed there",
            code="PUSH_FAILED",
            where=where,
            why=text,
            hint="the local result is kept; run the command again when the remote accepts it",
        )
    return GitError(
        f"the push to {shown} failed; nothing was changed there",
        code="PUSH_FAILED",
        where=where,
        why=text or "git wrote nothing",
        hint="the local result is kept; run the command again",
    )
