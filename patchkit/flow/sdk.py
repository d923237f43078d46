"""Installing, showing and removing the SDK prefix.

Vocabulary: as in :mod:`patchkit.sdk.prefix`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from patchkit.report import Reporter
from patchkit.sdk.install import install, remove
from patchkit.sdk.make import Request, RocWmmaChoice
from patchkit.sdk.pins import load_pins
from patchkit.sdk.prefix import Prefix, current_prefix


@dataclass(frozen=True, slots=True, kw_only=True)
class SdkState:
    """The prefix, if there is one, and whether it was made just now."""

    prefix: Prefix | None
    made: bool = False

    def as_json(self) -> dict[str, object]:
        """Plain data."""
        if self.prefix is None:
            return {"installed": False}
        return {
            "installed": True,
            "made": self.made,
            "prefix": str(self.prefix.path),
            "root": str(self.prefix.root),
            "clang": str(self.prefix.clang),
            "record": self.prefix.record.as_json(),
        }

    def lines(self) -> tuple[str, ...]:
        """For a person."""
        if self.prefix is None:
            return ("no SDK is installed", "get it with: patchkit sdk install")
        record = self.prefix.record
        origin = "in the prefix" if record.compiler_packages else "installed on this machine"
        packages = f"{len(record.packages)} of {record.suite}"
        if record.compiler_packages:
            packages += f", and {len(record.compiler_packages)} of this machine's suites for the compiler"
        return (
            f"SDK         {self.prefix.path}",
            f"packages    {packages}; {record.downloaded / 1e6:.1f} MB",
            f"HIP         {record.hip_version}, device libs {record.device_libs_version}",
            f"compiler    clang {record.compiler_version}, {origin}: {self.prefix.clang}",
            f"rocWMMA     {record.rocwmma_kind} {record.rocwmma_version}",
            f"stubs       {', '.join(record.stubs)}",
        )


def run_sdk_install(
    cache_root: Path,
    *,
    environ: Mapping[str, str],
    suites: tuple[str, ...],
    rocwmma: RocWmmaChoice,
    rocwmma_url: str | None,
    again: bool,
    reporter: Reporter,
) -> SdkState:
    """Install the SDK unless it is there; raises the errors of :func:`patchkit.sdk.install.install`."""
    request = Request(
        cache_root=cache_root,
        pins=load_pins(),
        environ=environ,
        suites=suites,
        rocwmma=rocwmma,
        rocwmma_url=rocwmma_url,
        again=again,
    )
    prefix, made = install(request, reporter)
    return SdkState(prefix=prefix, made=made)


def sdk_status(cache_root: Path) -> SdkState:
    """What is installed; raises PrefixDamaged."""
    return SdkState(prefix=current_prefix(cache_root))


def run_sdk_remove(cache_root: Path, reporter: Reporter) -> tuple[Path, ...]:
    """Remove every prefix; the folders that went."""
    return remove(cache_root, reporter)
