"""The rocWMMA versions to tune with: those of the record, folders from the user, or the toolchain's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from patchkit.base.digests import sha256
from patchkit.base.errors import ConfigError, Location, UsageError
from patchkit.toolchain.hip import RocWmma, Toolchain, contents, knows_arch, rocwmma_for
from patchkit.toolchain.sdk.prefix import STANDIN
from patchkit.toolchain.sdk.versions import rocwmma_version
from patchkit.tune.record import Record, RecordedHeaders
from patchkit.tune.request import TuneRequest

STANDIN_NAME = "stand-in"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderSets:
    """The rocWMMA headers that the ranking depends on, in order.

    ``toolchains`` compile with the headers at the indices ``here``. ``played`` is the index of the toolchain
    for the timing model. The model's error was measured only with patchkit's stand-in, so ``played`` is
    None if that is not among them.
    """

    headers: tuple[RecordedHeaders, ...]
    toolchains: tuple[Toolchain, ...]
    here: tuple[int, ...]
    played: int | None

    @classmethod
    def none(cls, toolchain: Toolchain) -> HeaderSets:
        """For a kernel that does not use rocWMMA."""
        without = RecordedHeaders(name="without rocWMMA", sha256="")
        return cls(headers=(without,), toolchains=(toolchain,), here=(0,), played=0)


def choose_headers(toolchain: Toolchain, request: TuneRequest, record: Record | None) -> HeaderSets:
    """The headers of the record if there is one, else those of the request.

    Raises:
        TUNE_KERNEL_UNTUNABLE: a folder has no rocWMMA, or one that does not support the GPU.
        TUNE_RECORD_BAD: this machine has none of the record's headers to compile with.
    """
    if record is None:
        chains = tuple(with_headers(toolchain, request.arch, request.headers))
        return HeaderSets(
            headers=tuple(RecordedHeaders(name=headers_name(each), sha256=_digest(each)) for each in chains),
            toolchains=chains,
            here=tuple(range(len(chains))),
            played=_standin_of(chains),
        )
    own = {_digest(chain): chain for chain in _at_hand(toolchain, request.arch)}
    here = tuple(index for index, each in enumerate(record.headers) if each.sha256 in own)
    if not here:
        raise ConfigError(
            f"this machine has none of the rocWMMA headers that the table of {request.arch} was created with",
            code="TUNE_RECORD_BAD",
            why="patchkit's stand-in has changed since, and this machine's rocWMMA is another version",
            hint=f"tune with the stand-in: patchkit tune --arch {request.arch} --rocwmma stand-in",
        )
    chains = tuple(own[record.headers[index].sha256] for index in here)
    return HeaderSets(headers=record.headers, toolchains=chains, here=here, played=_standin_of(chains))


def _standin_of(chains: Sequence[Toolchain]) -> int | None:
    kinds = [None if chain.rocwmma is None else chain.rocwmma.kind for chain in chains]
    return kinds.index(STANDIN_NAME) if STANDIN_NAME in kinds else None


def own_headers(toolchain: Toolchain, arch: str, sets: HeaderSets) -> tuple[str, Toolchain] | None:
    """This machine's rocWMMA with its name, if it is not among the headers of ``sets``."""
    for chain in _at_hand(toolchain, arch):
        if chain.rocwmma is not None and chain.rocwmma.kind != STANDIN_NAME:
            known = {each.sha256 for each in sets.headers}
            return None if _digest(chain) in known else (headers_name(chain), chain)
    return None


def _at_hand(toolchain: Toolchain, arch: str) -> list[Toolchain]:
    """The toolchain with each rocWMMA of this machine that supports the GPU."""
    own = replace(toolchain, rocwmma=rocwmma_for(toolchain, arch))
    return [own, *with_headers(toolchain, arch, [STANDIN_NAME])]


def _digest(toolchain: Toolchain) -> str:
    """sha256 over the names and bytes of rocWMMA's files."""
    if toolchain.rocwmma is None:
        return ""
    return sha256(contents(toolchain.rocwmma.include / "rocwmma"))


def with_headers(toolchain: Toolchain, arch: str, names: Sequence[str]) -> list[Toolchain]:
    """The toolchain with each rocWMMA in ``names`` (a folder, or ``stand-in``); its own if there are none.

    Raises:
        TUNE_KERNEL_UNTUNABLE: a folder has no rocWMMA, or one that does not support the GPU.
    """
    if not names:
        return [replace(toolchain, rocwmma=rocwmma_for(toolchain, arch))]
    return [replace(toolchain, rocwmma=_headers(name, arch)) for name in dict.fromkeys(names)]


def _headers(name: str, arch: str) -> RocWmma:
    if name == STANDIN_NAME:
        found = RocWmma(kind="stand-in", include=STANDIN, version=rocwmma_version(STANDIN))
    else:
        folder = Path(name).resolve()
        if not (folder / "rocwmma" / "rocwmma.hpp").is_file():
            raise UsageError(
                f"{name} does not contain rocwmma/rocwmma.hpp",
                code="TUNE_KERNEL_UNTUNABLE",
                where=Location(path=name),
                hint=f"pass rocWMMA's include folder, or use: --rocwmma {STANDIN_NAME}",
            )
        found = RocWmma(kind="git", include=folder, version=rocwmma_version(folder))
    if not knows_arch(found, arch):
        raise UsageError(
            f"the rocWMMA in {name} does not support {arch}",
            code="TUNE_KERNEL_UNTUNABLE",
            where=Location(path=name),
            why=f"its internal/config.hpp does not list {arch}, and would not compile",
            hint=f"use a newer version, or: --rocwmma {STANDIN_NAME}",
        )
    return found


def headers_name(toolchain: Toolchain) -> str:
    """The name of a toolchain's rocWMMA in reports."""
    one = toolchain.rocwmma
    return (
        "none" if one is None else f"rocWMMA {one.version}{' stand-in' if one.kind == STANDIN_NAME else ''}"
    )
