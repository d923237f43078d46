from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.base.errors import PatchkitError
from patchkit.base.files import DiskFull
from patchkit.base.process import Completed, ToolCrashed
from patchkit.build.sdk.apt import apt_error
from patchkit.build.sdk.errors import (
    AptFailed,
    MirrorUnreachable,
    PackageDamaged,
    PackageMissing,
    SignatureBad,
)


def error(stderr: str, returncode: int = 100) -> PatchkitError:
    done = Completed(
        argv=("apt-get", "update"), returncode=returncode, stdout=b"", stderr=stderr.encode(), seconds=0.1
    )
    return apt_error(done, "the suite forky", Path("/cache"))


@pytest.mark.parametrize(
    ("stderr", "kind"),
    [
        ("W: GPG error: x InRelease: NO_PUBKEY 1\nE: The repository 'x' is not signed.", SignatureBad),
        ("E: Release file for x is expired (invalid since 1d).", SignatureBad),
        ("E: Failed to fetch x  Hash Sum mismatch", PackageDamaged),
        (
            "E: Failed to fetch x  Could not connect to 127.0.0.1:9 - connect (111: Connection refused)",
            MirrorUnreachable,
        ),
        ("E: Failed to fetch x  Temporary failure resolving 'mirror.example'", MirrorUnreachable),
        ("E: The repository 'x nosuch Release' does not have a Release file.", PackageMissing),
        ("E: Unable to locate package libfoo", PackageMissing),
        ("E: Write error - write (28: No space left on device)", DiskFull),
        ("E: something new", AptFailed),
    ],
)
def test_each_failure_has_its_error(stderr: str, kind: type[PatchkitError]) -> None:
    found = error(stderr)
    assert type(found) is kind
    assert found.hint
    assert "forky" in found.message or kind is DiskFull


def test_the_reason_is_apts_own_line_without_its_mark() -> None:
    line = "The repository 'x' is not signed."
    found = error(f"W: Some index files failed\nE: {line}\nE: {line}")
    assert found.why == line


def test_packages_that_are_lacking_are_named_once() -> None:
    found = error(
        "E: Unable to locate package libfoo\nE: Package 'libbar' has no installation candidate\n"
        "E: Unable to locate package libfoo\n"
    )
    assert found.message == "the suite forky lacks libbar, libfoo"


def test_a_crash_stays_a_crash() -> None:
    assert isinstance(error("NO_PUBKEY", returncode=-11), ToolCrashed)
