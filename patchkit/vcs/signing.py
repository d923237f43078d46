"""Signed tags, with the key that the user's own git configuration names.

git makes the signature, in a scratch repository that borrows our objects: so OpenPGP, SSH and X.509 keys work
as the user set them up, and a signature that fails leaves nothing behind. Nothing else of the user's
configuration takes part.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from patchkit.errors import GitError
from patchkit.proc import run_tool
from patchkit.vcs.disk import disk_errors
from patchkit.vcs.repository import Repository
from patchkit.vcs.runner import Git

_SETTINGS = ("user.signingkey", "gpg.format", "gpg.program", "gpg.ssh.program", "gpg.x509.program")
_ANSWER_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKey:
    """The settings of git that signing needs, by name."""

    settings: Mapping[str, str]

    @property
    def name(self) -> str:
        """The key, as the user names it."""
        return self.settings["user.signingkey"]


def find_key(repository: Repository, environ: Mapping[str, str]) -> SigningKey | None:
    """The user's signing key; None when their configuration names none."""
    found = {name: value for name in _SETTINGS if (value := user_setting(repository, name, environ))}
    return SigningKey(settings=found) if "user.signingkey" in found else None


def user_setting(repository: Repository, name: str, environ: Mapping[str, str]) -> str | None:
    """One setting of the user's own git configuration; every other run of git here ignores it."""
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


def write_signed_tag(repository: Repository, key: SigningKey, *, name: str, commit: str, message: str) -> str:
    """Store a signed tag object and return its id. No ref moves.

    Raises:
        SIGNING_FAILED: the key is not there, or its agent refused.
        CacheError: the disk refused.
    """
    with tempfile.TemporaryDirectory(prefix="patchkit-tag-") as folder:
        scratch = Path(folder) / "tag.git"
        Git(reporter=repository.reporter).run(
            "init", "--quiet", "--bare", "--template=", "--object-format=sha1", os.fspath(scratch)
        )
        with disk_errors(scratch, "signing"):
            info = scratch / "objects" / "info"
            info.mkdir(parents=True, exist_ok=True)
            (info / "alternates").write_text(f"{repository.path / 'objects'}\n", "utf-8")
        git = Git(reporter=repository.reporter, git_dir=scratch)
        settings = [part for item in key.settings.items() for part in ("-c", "=".join(item))]
        finished = git.attempt(*settings, "tag", "--sign", "-m", message, name, commit)
        data = git.attempt("cat-file", "tag", f"refs/tags/{name}").stdout
        # git 2.39 ends with 0 when ssh-keygen did not sign, and makes a tag without a signature.
        if finished.status != 0 or b"\n-----BEGIN " not in data:
            raise GitError(
                f"git could not sign with the key {key.name}",
                code="SIGNING_FAILED",
                why=finished.stderr.strip() or "it wrote nothing to stderr",
                hint="unlock the key or its agent and run the command again, or add --no-sign",
            )
    return repository.write_object("tag", data)
