"""Telling apt's failures apart by what it writes.

apt runs under ``LC_ALL=C``. The words are those of apt 2.6 to 3.0, each seen in a test against a
repository made for it or, for the network, in apt's own sources.
"""

from __future__ import annotations

import re
from pathlib import Path

from patchkit.errors import PatchkitError
from patchkit.proc import Completed, ToolCrashed, tool_failure
from patchkit.sdk.errors import AptFailed, MirrorUnreachable, PackageDamaged, PackageMissing, SignatureBad
from patchkit.sdk.refusal import refusal_in

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
_OTHER_SUITE = "name another suite: patchkit sdk install --suite sid"

# apt tries on after an error, and each of these may bring others with it: the cause comes first.
_ORDER: tuple[tuple[tuple[str, ...], type[PatchkitError], str, str], ...] = (
    (
        _SIGNATURE,
        SignatureBad,
        "{what} is not signed by a key that this machine trusts for it",
        "bring the keys up to date (package debian-archive-keyring), or use a mirror that serves them whole",
    ),
    (_DAMAGED, PackageDamaged, "{what} is not what the signed index says", "try again, or another mirror"),
    (
        _UNREACHABLE,
        MirrorUnreachable,
        "the mirror of {what} cannot be reached",
        "check the network and the proxy, and that apt-get update works",
    ),
    (_MISSING, PackageMissing, "{what} is not there", _OTHER_SUITE),
)


def apt_error(done: Completed, what: str, folder: Path) -> PatchkitError:
    """The error for a failed run of apt.

    Args:
        done: how it ended.
        what: was being fetched, for the message.
        folder: where it wrote.
    """
    failure = tool_failure(done)
    text = done.stderr.decode("utf-8", "replace")
    refused = refusal_in(failure, folder, f"fetching {what}")
    if refused is not None and "/etc/apt" not in text:
        return refused
    if isinstance(failure, ToolCrashed):
        return failure
    lacking = sorted({name for pair in _LACKS.findall(text) for name in pair if name})
    if lacking:
        return PackageMissing(f"{what} lacks {', '.join(lacking)}", hint=_OTHER_SUITE)
    for words, kind, message, hint in _ORDER:
        lines = [line for line in text.splitlines() if any(word in line for word in words)]
        if lines:
            return kind(message.format(what=what), why=_short(lines), hint=hint)
    return AptFailed(f"apt failed over {what}", why=failure.why, hint=failure.hint)


def _short(lines: list[str]) -> str:
    """The lines, each once, without apt's marks."""
    return "\n".join(dict.fromkeys(re.sub(r"^[EW]: ", "", line).strip() for line in lines[:5]))
