"""The error for each way in which apt fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.base.errors import PatchkitError
from patchkit.base.process import Completed, ToolCrashed
from patchkit.toolchain.sdk.apt import apt_error


def error(stderr: str, returncode: int = 100) -> PatchkitError:
    done = Completed(
        argv=("apt-get", "update"), returncode=returncode, stdout=b"", stderr=stderr.encode(), seconds=0.1
    )
    return apt_error(done, "the suite forky", Path("/cache"))


@pytest.mark.parametrize(
    ("stderr", "code"),
    [
        (
            "W: GPG error: x InRelease: NO_PUBKEY 1\nE: The repository 'x' is not signed.",
            "SDK_PACKAGE_DAMAGED",
        ),
        ("E: Release file for x is expired (invalid since 1d).", "SDK_PACKAGE_DAMAGED"),
        ("E: Failed to fetch x  Hash Sum mismatch", "SDK_PACKAGE_DAMAGED"),
        (
            "E: Failed to fetch x  Could not connect to 127.0.0.1:9 - connect (111: Connection refused)",
            "SDK_PACKAGES_UNAVAILABLE",
        ),
        ("E: Failed to fetch x  Temporary failure resolving 'mirror.example'", "SDK_PACKAGES_UNAVAILABLE"),
        ("E: The repository 'x nosuch Release' does not have a Release file.", "SDK_PACKAGE_MISSING"),
        ("E: Unable to locate package libfoo", "SDK_PACKAGE_MISSING"),
        ("E: Write error - write (28: No space left on device)", "DISK_FULL"),
        ("E: Method copy has died unexpectedly!\nE: Sub-process copy received signal 25.", "DISK_FULL"),
        ("E: something new", "SDK_PACKAGES_UNAVAILABLE"),
    ],
)
def test_each_failure_has_its_error(stderr: str, code: str) -> None:
    found = error(stderr)
    assert found.code == code
    assert found.hint
    assert "forky" in found.message or code == "DISK_FULL"


def test_the_reason_is_apts_own_line_without_its_prefix() -> None:
    line = "The repository 'x' is not signed."
    found = error(f"W: Some index files failed\nE: {line}\nE: {line}")
    assert found.why == line


def test_missing_packages_are_named_once() -> None:
    found = error(
        "E: Unable to locate package libfoo\nE: Package 'libbar' has no installation candidate\n"
        "E: Unable to locate package libfoo\n"
    )
    assert found.message == "the suite forky lacks libbar, libfoo"


def test_a_crash_stays_a_crash() -> None:
    assert isinstance(error("NO_PUBKEY", returncode=-11), ToolCrashed)
