"""The interface of a tunable kernel."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar

from patchkit.base.errors import Location, UsageError
from patchkit.base.occupancy import HardwareLimits, limits_of, waves_by_vgprs
from patchkit.base.upstreams import llama_cpp
from patchkit.base.workspace import Workspace
from patchkit.carry.series.lock import Pin
from patchkit.carry.series.profile import ArchProfile, TunedTile
from patchkit.carry.upstream.exported import export_tree
from patchkit.carry.upstream.repository import Repository
from patchkit.gpu.emulated.names import KernelName
from patchkit.gpu.modelled.machine import Kind as TimedKind
from patchkit.gpu.modelled.recording import Timed
from patchkit.toolchain.machine import Source


def numbers_of(variant: str) -> tuple[int, int]:
    """Head size and columns of a variant: ``(256, 32)`` for ``256-32``."""
    head_size, columns = variant.split("-")
    return int(head_size), int(columns)


def instantiations(
    stem: str, heads: Sequence[int], softcaps: Sequence[str]
) -> Iterator[tuple[str, int, str]]:
    """File name, query heads per block and soft cap ("true" or "false") of each template instantiation.

    The file name omits the first number of heads.
    """
    for capped in softcaps:
        for shared in heads:
            named = [f"-{shared}-heads"] if shared != heads[0] else []
            yield "".join([stem, *named, *(["-softcap"] if capped == "true" else []), ".cu"]), shared, capped


_MOST = 8  # asserted by upstream's tables


def binding_bounds(limits: HardwareLimits, base: int) -> tuple[int, ...]:
    """The minimum-waves bounds to try: upstream's ``base``, and those that limit the registers per wave."""
    free = waves_by_vgprs(limits.max_vgprs_per_wave, limits)
    return tuple(sorted({base, *range(free + 1, _MOST + 1)}))


UNIT_FOLDER = llama_cpp().gpu_file("patchkit-tune")  # in the overlay, never in a candidate branch

Setting = tuple[int, ...]


@dataclass(frozen=True, slots=True, order=True)
class Candidate:
    """One setting of one variant; the values are in the order of the family's parameters."""

    variant: str
    setting: Setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """A legal candidate that must not be chosen."""

    variant: str
    setting: Setting
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """Properties of a candidate that are known without compiling it.

    ``threads`` per block; ``rows`` of KV (or of the inner dimension) per iteration of a block's main loop;
    ``columns`` of the result per block (or values, if its rows depend on the setting). ``launch_lds_bytes``
    is the dynamic LDS of a block, set by the host at launch and unknown to the compiler. ``tiles`` is the
    number of blocks for the tail estimate, or None for attention.
    """

    threads: int
    rows: int
    columns: int
    launch_lds_bytes: int = 0
    tiles: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Family(ABC):
    """A tunable kernel. ``rows`` has upstream's setting of each variant, in the order of the table.

    ``name`` is the value for ``--kernel``, ``kernel`` the name of the device function, and ``parameters`` the
    names of a setting's values. ``prelude`` is the path, in the overlay, of a header with the includes of all
    units.
    """

    name: ClassVar[str]
    kernel: ClassVar[str]
    prelude: ClassVar[str | None] = None
    limits: HardwareLimits
    rows: Mapping[str, Setting]
    parameters: tuple[str, ...]

    @property
    def variants(self) -> tuple[str, ...]:
        """All variants, in the order of the table."""
        return tuple(self.rows)

    def baseline(self, variant: str) -> Setting:
        """Upstream's setting of a variant."""
        return self.rows[variant]

    @abstractmethod
    def legal(self, variant: str) -> tuple[Setting, ...]:
        """All legal settings of a variant, sorted."""

    @abstractmethod
    def traits(self, candidate: Candidate) -> Traits:
        """The properties of a candidate."""

    @abstractmethod
    def units(self, candidate: Candidate) -> tuple[str, ...]:
        """The paths, in the overlay, of all instantiations that use the candidate's row."""

    def unit(self, candidate: Candidate) -> str:
        """The unit by which a candidate is ranked."""
        return self.units(candidate)[0]

    def checks(self, candidate: Candidate) -> tuple[str, ...]:
        """The other units, which must not be worse than upstream's."""
        return self.units(candidate)[1:]

    def current(self, profile: ArchProfile) -> Mapping[str, Setting]:
        """The settings in the profile, by variant; variants with upstream's setting may be missing."""
        del profile
        return {}

    def measured(self, profile: ArchProfile) -> Mapping[str, Setting]:
        """Those of the current settings that were measured on hardware."""
        del profile
        return {}

    @abstractmethod
    def shared_sources(self) -> Mapping[str, bytes]:
        """The files of the overlay that units include, whichever units are requested."""

    @abstractmethod
    def instances(self, candidate: Candidate) -> Iterator[tuple[str, bytes]]:
        """The path and content of each of the candidate's :meth:`units`."""

    def sources(self, settings: Mapping[str, Sequence[Setting]]) -> Mapping[str, bytes]:
        """The files of the overlay: the units of these and of upstream's settings, and their includes."""
        files = dict(self.shared_sources())
        for variant, chosen in settings.items():
            for setting in [self.baseline(variant), *chosen]:
                files.update(self.instances(Candidate(variant, setting)))
        return files


class TimedFamily(Family):
    """A kernel whose settings can be timed by the timing model; ``timed_as`` is its kind in the model.

    ``times_all``: time all settings, not only the Pareto front of the compiler's figures.
    """

    timed_as: ClassVar[TimedKind]
    times_all: ClassVar[bool] = False

    @abstractmethod
    def cases(self, variant: str) -> tuple[Timed, ...]:
        """The operations for timing a variant; empty if it cannot be timed."""

    @abstractmethod
    def with_settings(self, settings: Mapping[str, Setting]) -> Mapping[str, bytes]:
        """Upstream's files, changed to have these settings, by variant."""

    @abstractmethod
    def is_kernel(self, name: KernelName, variant: str) -> bool:
        """Whether a kernel, by its demangled name, is an instance of the variant."""


def includes(names: Iterable[str], prefix: str) -> list[str]:
    """The #include lines for headers below ``prefix``."""
    return [f'#include "{prefix}{name}"' for name in names]


def prelude_text(names: Iterable[str], prefix: str, *more: str) -> bytes:
    """The prelude header: includes of ``names``, and the lines ``more``."""
    return "\n".join(["#pragma once", *includes(names, prefix), *more, ""]).encode()


def unit_text(lines: Sequence[str], kernel: str, returned: str = "fattn_kernel_t") -> bytes:
    """A unit of ``lines`` and an instance of ``kernel``; ``returned`` is the type of a pointer to it."""
    function = f"{returned} patchkit_tuned_kernel()"
    return "\n".join([*lines, f"{function};", f"{function} {{ return {kernel}; }}", ""]).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The upstream build and the GPU that a kernel is tuned for.

    ``base`` is the pin's commit.
    """

    workspace: Workspace
    repository: Repository
    base: str
    pin: Pin
    profile: ArchProfile

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
        """Read files of upstream.

        Raises:
            TUNE_KERNEL_UNTUNABLE: the build lacks one of them.
        """
        there = {entry.path for entry in self.repository.list_files(self.base)}
        missing = [path for path in paths if path not in there]
        if missing:
            raise UsageError(
                f"this build has no {missing[0]}",
                code="TUNE_KERNEL_UNTUNABLE",
                where=Location(path=missing[0]),
                why="the parameters of the kernel are in that file in all builds that can be tuned",
                hint="use another build, for example: --upstream b11549",
            )
        return self.repository.read_blobs(self.base, paths)

    def require_matrix(self, *units: str, known: str) -> None:
        """Check that the GPU has one of these matrix units; ``known`` describes them for the message.

        Raises:
            TUNE_KERNEL_UNTUNABLE: it has another one.
        """
        unit = self.limits.matrix
        if unit not in units:
            raise UsageError(
                f"cannot tune this kernel for {self.profile.arch}: its matrix unit is '{unit}'",
                code="TUNE_KERNEL_UNTUNABLE",
                why=f"the rules for legal settings are known for {known} only",
                hint="list the GPUs with: patchkit list",
            )


FRAGMENTS_16X16 = "16x16 fragments in waves of 32 lanes"


Row = dict[str, int | str]  # one ``[[tuning.<table>]]`` of a profile

# Prefix of measured_on for rows that were not measured on hardware.
MODELLED_ONLY = "modelled for "


def row_of(tuned: TunedTile) -> Row:
    """The keys of a profile's row in the order of the file: the setting, then source and measured_on."""
    row = asdict(tuned)
    provenance = {name: row.pop(name) for name in ("source", "measured_on")}
    del row["where"]
    return row | provenance
