"""Seeing in a tool's failure that it was the disk that refused."""

from __future__ import annotations

from pathlib import Path

from patchkit.base.errors import CacheError, PatchkitError, SourceError, ToolchainError
from patchkit.base.files import disk_error_from_git


class AptMissing(ToolchainError):
    """This machine has no apt or no dpkg-deb: its packages come some other way."""

    code = "SDK_APT_MISSING"


class MirrorMissing(ToolchainError):
    """apt's sources name no mirror that can have the packages."""

    code = "SDK_MIRROR_MISSING"


class MirrorUnreachable(SourceError):
    """The mirror did not answer: no network, no such host, or nobody listens."""

    code = "SDK_MIRROR_UNREACHABLE"


class SignatureBad(SourceError):
    """What the mirror serves is not signed by a key that this machine trusts for it."""

    code = "SDK_SIGNATURE_BAD"


class PackageMissing(SourceError):
    """The mirror's suites lack a package, or lack it for this machine."""

    code = "SDK_PACKAGE_MISSING"


class PackageDamaged(SourceError):
    """A package is not what the signed index says, or cannot be unpacked."""

    code = "SDK_PACKAGE_DAMAGED"


class PackagesSlow(SourceError):
    """The mirror serves too slowly; apt was stopped."""

    code = "SDK_PACKAGES_SLOW"


class AptFailed(ToolchainError):
    """apt failed for a reason that patchkit has no name for."""

    code = "SDK_APT_FAILED"


class DownloadTooBig(SourceError):
    """The packages are far larger than they were when the list was made."""

    code = "SDK_DOWNLOAD_TOO_BIG"


class CompilerUnavailable(ToolchainError):
    """No compiler that serves is installed, and the machine's own suites have none."""

    code = "SDK_COMPILER_UNAVAILABLE"


class CompilerTooOld(ToolchainError):
    """The only clang there is is older than what patchkit is tested with."""

    code = "SDK_COMPILER_TOO_OLD"


class VersionsDisagree(ToolchainError):
    """Headers, device libs and libraries are of major versions that are not known to work together."""

    code = "SDK_VERSIONS_DISAGREE"


class RocWmmaMismatch(SourceError):
    """The rocWMMA that was fetched is not the pinned one, or not as it was when it was pinned."""

    code = "SDK_ROCWMMA_MISMATCH"


class SmokeFailed(ToolchainError):
    """The new prefix does not compile ten lines of HIP, so it is not made visible."""

    code = "SDK_SMOKE_FAILED"


class PrefixDamaged(ToolchainError):
    """An installed prefix lacks something that its sdk.json names."""

    code = "SDK_PREFIX_DAMAGED"


# What a tool, or the tool that started it, says when the limit on file sizes ended it.
_LIMIT = ("SIGXFSZ", "File size limit exceeded")


def refusal_in(error: PatchkitError, path: Path, doing: str) -> CacheError | None:
    """The disk's error if the tool failed for it, while ``doing`` something at ``path``; else None."""
    text = f"{error.message}\n{error.why or ''}"
    if any(words in text for words in _LIMIT):
        text += "\nFile too large"
    return disk_error_from_git(text, path, doing)
