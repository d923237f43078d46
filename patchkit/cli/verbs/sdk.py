"""``patchkit sdk``."""

from __future__ import annotations

import os
from typing import Literal

import click

from patchkit.base.errors import UsageError
from patchkit.carry.upstream.exported import fetch_folder
from patchkit.cli.settings import Settings, verb
from patchkit.toolchain.sdk.install import InstallRequest, RocWmmaChoice, install, remove
from patchkit.toolchain.sdk.pins import load_pins
from patchkit.toolchain.sdk.prefix import Prefix, current_prefix

Action = Literal["install", "status", "remove"]


@verb("sdk", example=("patchkit sdk install", "patchkit sdk status", "patchkit sdk remove"))
@click.argument("action", type=click.Choice(["install", "status", "remove"]))
@click.option(
    "--suite",
    "suites",
    multiple=True,
    metavar="NAME",
    help="Distribution suite to take the packages from (default: forky, else sid). May be repeated.",
)
@click.option(
    "--rocwmma",
    type=click.Choice(["auto", "git", "stand-in"]),
    default="auto",
    help="Where to get rocWMMA from (auto: git, else patchkit's stand-in header, with a note).",
)
@click.option("--rocwmma-url", metavar="URL", help="Mirror or local clone of rocWMMA.")
@click.option("--again", is_flag=True, help="Install again, with today's packages.")
def command(
    settings: Settings,
    action: Action,
    suites: tuple[str, ...],
    rocwmma: RocWmmaChoice,
    rocwmma_url: str | None,
    again: bool,
) -> None:
    """Install, show or remove a private HIP SDK, to compile GPU code without ROCm and without a GPU.

    The SDK goes into the cache folder, needs no root and changes nothing on the system. Your machine's apt
    downloads and verifies the packages. If ROCm is installed, patchkit uses that instead.
    """
    if action != "install" and (suites or rocwmma_url or again or rocwmma != "auto"):
        raise UsageError(
            f"'patchkit sdk {action}' does not take the options of install",
            code="USAGE_SYNTAX",
            hint="patchkit sdk --help",
        )
    if action == "remove":
        _remove(settings)
        return
    prefix: Prefix | None
    if action == "install":
        request = InstallRequest(
            cache_root=settings.cache_root(),
            pins=load_pins(),
            environ=os.environ,
            fetch=fetch_folder,
            suites=suites,
            rocwmma=rocwmma,
            rocwmma_url=rocwmma_url,
            again=again,
        )
        prefix, made = install(request, settings.reporter())
    else:
        prefix, made = current_prefix(settings.cache_root()), False
    lines = _lines(prefix)
    if action == "install":
        lines.append("installed" if made else "already installed (--again installs it again)")
    settings.show(_document(prefix, made=made), lines)


def _document(prefix: Prefix | None, *, made: bool) -> dict[str, object]:
    if prefix is None:
        return {"installed": False}
    return {
        "installed": True,
        "made": made,
        "prefix": str(prefix.path),
        "root": str(prefix.root),
        "clang": str(prefix.clang),
        "hipcc": str(prefix.hipcc) if prefix.hipcc.exists() else None,
        "record": prefix.record.model_dump(mode="json"),
        "lacks": prefix.lacks,
    }


def _lines(prefix: Prefix | None) -> list[str]:
    if prefix is None:
        return ["no SDK is installed", "to install it: patchkit sdk install"]
    record = prefix.record
    origin = "in the prefix" if record.compiler_packages else "installed on this machine"
    packages = f"{len(record.packages)} from {record.suite}"
    if record.compiler_packages:
        packages += f", and {len(record.compiler_packages)} from this machine's suites for the compiler"
    lines = [
        f"SDK         {prefix.path}",
        f"packages    {packages}; {record.downloaded / 1e6:.1f} MB",
        f"HIP         {record.hip_version}, device libs {record.device_libs_version}",
        f"compiler    clang {record.compiler_version}, {origin}: {prefix.clang}",
        f"hipcc       {prefix.hipcc if prefix.hipcc.exists() else 'missing: patchkit sdk install adds it'}",
        f"rocWMMA     {record.rocwmma_kind} {record.rocwmma_version}",
        f"stubs       {', '.join(record.stubs)}",
    ]
    if prefix.lacks:
        lines.append(f"outdated    it lacks {prefix.lacks}; to update: patchkit sdk install --again")
    return lines


def _remove(settings: Settings) -> None:
    gone = remove(settings.cache_root(), settings.reporter())
    lines = [f"removed {path}" for path in gone] or ["no SDK was installed"]
    settings.show({"removed": [str(path) for path in gone]}, lines)
