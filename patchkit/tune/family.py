"""What the tuner asks of a kernel that it can tune."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar

from patchkit.base.errors import Location, UsageError
from patchkit.base.occupancy import HardwareLimits, limits_of, waves_by_vgprs
from patchkit.base.upstreams import llama_cpp
from patchkit.base.workspace import Workspace
from patchkit.carry.series.lock import Pin
from patchkit.carry.series.profile import ArchProfile, TunedTile, TunedWmma
from patchkit.carry.upstream.exported import export_tree
from patchkit.carry.upstream.repository import Repository
from patchkit.gpu.emulated.names import KernelName
from patchkit.gpu.modelled.machine import Kind as TimedKind
from patchkit.gpu.modelled.recording import Timed
from patchkit.toolchain.machine import Source


def numbers_of(variant: str) -> tuple[int, int]:
    """Head size and columns of a variant, as ``(256, 32)`` of ``256-32``."""
    head_size, columns = variant.split("-")
    return int(head_size), int(columns)


def ways_of(stem: str, heads: Sequence[int], softcaps: Sequence[str]) -> Iterator[tuple[str, int, str]]:
    """File name, query heads per block, soft cap as C++ says it; the name leaves the first heads out."""
    for capped in softcaps:
        for shared in heads:
            named = [f"-{shared}-heads"] if shared != heads[0] else []
            yield "".join([stem, *named, *(["-softcap"] if capped == "true" else []), ".cu"]), shared, capped


_MOST = 8  # upstream's tables assert it


def binding_bounds(limits: HardwareLimits, base: int) -> tuple[int, ...]:
    """Upstream's ``base``, and the bounds that a kernel of the most registers does not meet."""
    free = waves_by_vgprs(limits.max_vgprs_per_wave, limits)
    return tuple(sorted({base, *range(free + 1, _MOST + 1)}))


UNIT_FOLDER = llama_cpp().gpu_file("patchkit-tune")  # of the overlay; never part of a candidate branch

Setting = tuple[int, ...]


@dataclass(frozen=True, slots=True, order=True)
class Candidate:
    """One setting of one variant, the values in the order of the family's parameters."""

    variant: str
    setting: Setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What follows from a candidate without compiling it.

    ``threads`` per block; ``rows`` of KV (or of the inner dimension) that one turn of the main loop of
    a block covers; ``columns`` of the result that one block computes (or values, where its rows depend
    on the setting). ``launch_lds_bytes`` is LDS of a block that the host asks for at launch and the compiler
    does not see. ``tiles`` are the blocks of the problem that the tail is counted for; None: attention's.
    """

    threads: int
    rows: int
    columns: int
    launch_lds_bytes: int = 0
    tiles: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Family(ABC):
    """One kernel. ``rows`` has upstream's setting of each variant, in the order of the table.

    ``name`` is the word for ``--kernel``, ``kernel`` the device function's, ``parameters`` are the names of a
    setting's values, and ``rocwmma`` says whether it is compiled with GGML_HIP_ROCWMMA_FATTN. ``prelude`` is
    the path of a header in the overlay with what every unit includes.
    """

    name: ClassVar[str]
    kernel: ClassVar[str]
    rocwmma: ClassVar[bool] = False
    prelude: ClassVar[str | None] = None
    limits: HardwareLimits
    rows: Mapping[str, Setting]
    parameters: tuple[str, ...]

    @property
    def variants(self) -> tuple[str, ...]:
        """Every variant, in the order of the table."""
        return tuple(self.rows)

    def baseline(self, variant: str) -> Setting:
        """Upstream's setting."""
        return self.rows[variant]

    @abstractmethod
    def legal(self, variant: str) -> tuple[Setting, ...]:
        """Every legal setting of a variant, sorted."""

    @abstractmethod
    def traits(self, candidate: Candidate) -> Traits:
        """What follows from the candidate alone."""

    @abstractmethod
    def units(self, candidate: Candidate) -> tuple[str, ...]:
        """The paths, in the overlay, of every instantiation that reads the candidate's row."""

    def unit(self, candidate: Candidate) -> str:
        """The unit that a candidate is ranked by."""
        return self.units(candidate)[0]

    def checks(self, candidate: Candidate) -> tuple[str, ...]:
        """The other units; they must not be worse than upstream's."""
        return self.units(candidate)[1:]

    def current(self, profile: ArchProfile) -> Mapping[str, Setting]:
        """The settings that the profile has now, by variant; none where a patch leaves upstream's."""
        del profile
        return {}

    def measured(self, profile: ArchProfile) -> Mapping[str, Setting]:
        """Those of them that hardware chose, where a compiler's figures may have chosen others."""
        del profile
        return {}

    @abstractmethod
    def shared_sources(self) -> Mapping[str, bytes]:
        """The files of the overlay that units include; they do not depend on which units are asked for."""

    @abstractmethod
    def instances(self, candidate: Candidate) -> Iterator[tuple[str, bytes]]:
        """The path and bytes of each of the candidate's :meth:`units`."""

    def sources(self, settings: Mapping[str, Sequence[Setting]]) -> Mapping[str, bytes]:
        """The files of the overlay: units of these settings and of upstream's, and what they include."""
        files = dict(self.shared_sources())
        for variant, chosen in settings.items():
            for setting in [self.baseline(variant), *chosen]:
                files.update(self.instances(Candidate(variant, setting)))
        return files


class TimedFamily(Family):
    """A kernel whose settings can be timed; ``timed_as`` is the kind of kernel it is for the timing model.

    ``times_all``: every setting is timed, not only those that no other beats in everything by the compiler's
    figures.
    """

    timed_as: ClassVar[TimedKind]
    times_all: ClassVar[bool] = False

    @abstractmethod
    def cases(self, variant: str) -> tuple[Timed, ...]:
        """The operations that a variant is timed with; none where it cannot be."""

    @abstractmethod
    def with_settings(self, settings: Mapping[str, Setting]) -> Mapping[str, bytes]:
        """Upstream's files with these settings in the rows of their variants."""

    @abstractmethod
    def is_kernel(self, name: KernelName, variant: str) -> bool:
        """Whether that kernel is the variant's."""


def includes(names: Iterable[str], prefix: str) -> list[str]:
    """A line for each header, taken from ``prefix``."""
    return [f'#include "{prefix}{name}"' for name in names]


def prelude_text(names: Iterable[str], prefix: str, *more: str) -> bytes:
    """The header that every unit includes: these ones, and the lines ``more``."""
    return "\n".join(["#pragma once", *includes(names, prefix), *more, ""]).encode()


def unit_text(lines: Sequence[str], kernel: str, returned: str = "fattn_kernel_t") -> bytes:
    """A unit that instantiates ``kernel``, behind ``lines``; ``returned`` is the type of a pointer to it."""
    function = f"{returned} patchkit_tuned_kernel()"
    return "\n".join([*lines, f"{function};", f"{function} {{ return {kernel}; }}", ""]).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The upstream and the GPU that a kernel is tuned for.

    ``base`` is the pin's commit. With ``bounds`` a least number of waves is a value of wmma's settings.
    """

    workspace: Workspace
    repository: Repository
    base: str
    pin: Pin
    profile: ArchProfile
    bounds: bool = False

    @property
    def limits(self) -> HardwareLimits:
        """The limits of the GPU."""
        return limits_of(self.profile)

    @property
    def source(self) -> Source:
        """The pin's tree, exported. Raises TREE_ENTRY_REFUSED and CacheError."""
        exported = export_tree(self.repository, self.base, self.workspace.cache_root / "trees")
        return Source(root=exported.root, tree=exported.tree, build=self.pin.build, commit=self.base[:9])

    def read(self, *paths: str) -> Mapping[str, bytes]:
        """Upstream's files.

        Raises:
            TUNE_KERNEL_UNTUNABLE: the build lacks one.
        """
        there = {entry.path for entry in self.repository.list_files(self.base)}
        missing = [path for path in paths if path not in there]
        if missing:
            raise UsageError(
                f"this build has no {missing[0]}",
                code="TUNE_KERNEL_UNTUNABLE",
                where=Location(path=missing[0]),
                why="the kernel keeps its parameters there, in the builds that can be tuned",
                hint="name another build, as --upstream b11549",
            )
        return self.repository.read_blobs(self.base, paths)

    def require_matrix(self, *units: str, known: str) -> None:
        """Refuse a GPU whose matrix unit is none of ``units``; ``known`` is what the rules are known for.

        Raises:
            TUNE_KERNEL_UNTUNABLE: it is another one.
        """
        unit = self.limits.matrix
        if unit not in units:
            raise UsageError(
                f"the settings of {self.profile.arch} cannot be tuned: its matrix unit is '{unit}'",
                code="TUNE_KERNEL_UNTUNABLE",
                why=f"the rules of the kernel are known for {known} only",
                hint="patchkit list names the GPUs",
            )


FRAGMENTS_16X16 = "16x16 fragments in waves of 32 lanes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tunable:
    """A kernel that can be tuned, as its module offers it in ``TUNABLE``.

    ``make`` gives its family on a site. ``rows_with`` gives the rows of the profile's ``table`` with one
    variant's setting replaced and where that was measured; None where a profile has no such table.
    """

    make: Callable[[Site], Family]
    table: str | None = None
    rows_with: Callable[[ArchProfile, str, Setting, str], list[Row]] | None = None


Row = dict[str, int | str]  # one ``[[tuning.<table>]]`` of a profile

# How measured_on begins where no hardware was.
COMPILER_ONLY = "compiler for "
MODELLED_ONLY = "modelled for "


def row_of(tuned: TunedWmma | TunedTile) -> Row:
    """A row of a profile as it is written there: the setting, its source and where it was measured."""
    row = asdict(tuned)
    told = {name: row.pop(name) for name in ("source", "measured_on")}
    del row["where"]
    return row | told
