"""Versions of rocWMMA to tune with: the record's, folders that the user names, or the toolchain's own."""

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
    """The headers that decide, in order; ``toolchains`` compile with those at the places ``here``.

    ``played`` is which of the toolchains the timing model is asked with. How far off it is was measured with
    patchkit's stand-in, so with another rocWMMA nobody knows: None where the stand-in is none of them.
    """

    headers: tuple[RecordedHeaders, ...]
    toolchains: tuple[Toolchain, ...]
    here: tuple[int, ...]
    played: int | None

    @classmethod
    def none(cls, toolchain: Toolchain) -> HeaderSets:
        """For a kernel that includes no rocWMMA."""
        without = RecordedHeaders(name="without rocWMMA", sha256="")
        return cls(headers=(without,), toolchains=(toolchain,), here=(0,), played=0)


def choose_headers(toolchain: Toolchain, request: TuneRequest, record: Record | None) -> HeaderSets:
    """The record's headers where there is a record, else what the request says.

    Raises:
        TUNE_HEADERS_UNUSABLE: a folder holds no rocWMMA, or one that does not know the GPU.
        TUNE_RECORD_STALE: none of the record's headers is here, so nothing could be held against it.
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
            f"none of the headers that the table of {request.arch} was made with is here",
            code="TUNE_RECORD_STALE",
            why="patchkit's stand-in changed since, and this machine's rocWMMA is none of them",
            hint=f"patchkit tune --arch {request.arch} --rocwmma stand-in",
        )
    chains = tuple(own[record.headers[index].sha256] for index in here)
    return HeaderSets(headers=record.headers, toolchains=chains, here=here, played=_standin_of(chains))


def _standin_of(chains: Sequence[Toolchain]) -> int | None:
    kinds = [None if chain.rocwmma is None else chain.rocwmma.kind for chain in chains]
    return kinds.index(STANDIN_NAME) if STANDIN_NAME in kinds else None


def own_headers(toolchain: Toolchain, arch: str, sets: HeaderSets) -> tuple[str, Toolchain] | None:
    """This machine's rocWMMA with its name, where it is none of the headers that decide."""
    for chain in _at_hand(toolchain, arch):
        if chain.rocwmma is not None and chain.rocwmma.kind != STANDIN_NAME:
            known = {each.sha256 for each in sets.headers}
            return None if _digest(chain) in known else (headers_name(chain), chain)
    return None


def _at_hand(toolchain: Toolchain, arch: str) -> list[Toolchain]:
    """The toolchain with each rocWMMA that is here and knows the GPU."""
    own = replace(toolchain, rocwmma=rocwmma_for(toolchain, arch))
    return [own, *with_headers(toolchain, arch, [STANDIN_NAME])]


def _digest(toolchain: Toolchain) -> str:
    """sha256 over the names and bytes of rocWMMA's files."""
    if toolchain.rocwmma is None:
        return ""
    return sha256(contents(toolchain.rocwmma.include / "rocwmma"))


def with_headers(toolchain: Toolchain, arch: str, names: Sequence[str]) -> list[Toolchain]:
    """The toolchain once for each of ``names`` (a folder, or ``stand-in``); with its own when there is none.

    Raises:
        TUNE_HEADERS_UNUSABLE: a folder holds no rocWMMA, or one that does not know the GPU.
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
                f"there is no rocwmma/rocwmma.hpp in {name}",
                code="TUNE_HEADERS_UNUSABLE",
                where=Location(path=name),
                hint=f"name its include folder, or: --rocwmma {STANDIN_NAME}",
            )
        found = RocWmma(kind="git", include=folder, version=rocwmma_version(folder))
    if not knows_arch(found, arch):
        raise UsageError(
            f"the rocWMMA in {name} does not know {arch}",
            code="TUNE_HEADERS_UNUSABLE",
            where=Location(path=name),
            why="its internal/config.hpp does not name it, and would refuse to compile",
            hint=f"take a newer one, or: --rocwmma {STANDIN_NAME}",
        )
    return found


def headers_name(toolchain: Toolchain) -> str:
    """How reports name the headers."""
    one = toolchain.rocwmma
    return (
        "none" if one is None else f"rocWMMA {one.version}{' stand-in' if one.kind == STANDIN_NAME else ''}"
    )
