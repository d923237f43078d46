"""Cache of runs on the emulated GPU, reused while nothing that they execute has changed.

A run depends on the program, on its side's host code, on the emulator, and on the code of the kernels that it
launches. Only the run itself shows which compilation units these kernels come from. So a run is kept under
the
content of each unit that it requested: a patch to one unit invalidates only the runs that use that unit. Only
runs that succeed without any finding are kept.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from patchkit.base.digests import key_of, sha256
from patchkit.base.errors import PatchkitError
from patchkit.base.files import disk_errors, working_folder
from patchkit.base.store import STORES, Store
from patchkit.gpu.emulated.emulator import OF_A_RUN, UNITS, DeviceUnits

_FORMAT = 1
_STORE = STORES["kept"]
REPORT = "PATCHKIT_EMULATOR_REPORT"
"""Environment variable with the path of the report that is written when the process ends."""
# Variables that hold paths. What is at these paths is part of the identity of the side and the emulated GPU.
_PLACES = frozenset(
    {
        "LD_LIBRARY_PATH",
        "PATCHKIT_EMULATOR",
        "PATCHKIT_EMULATOR_COMPILER",
        "PATCHKIT_EMULATOR_DISASSEMBLER",
        "PATCHKIT_EMULATOR_OBJECTS",
        "PATCHKIT_EMULATOR_SERVER",
        "PATCHKIT_RECORDER_DEVICE",
        UNITS,
        REPORT,
    }
)
_OUT, _ERR, _END, _UNITS = "out", "err", "end.json", "units.json"
_CACHE, _PLACE = b"{patchkit cache}", b"{place of the run}"


def obtain_by_units(
    store: Store, key: str, units: DeviceUnits, run: Callable[[Path, Mapping[str, str]], None]
) -> Path:
    """The folder with the results of a run, kept by ``key`` and the code of the units that the run requests.

    ``key`` covers all other inputs. ``run`` fills a folder; its second argument is additional environment.
    Raises what ``run`` raises, and CacheError if the cache cannot be written.
    """
    entry = _entry(store, key, units)
    if entry is not None:
        return entry
    with working_folder(store.root, ".partial-run-", "saving a run") as folder:
        with _noting(units) as (variables, requested):
            run(folder, variables)

        def take(kept: Path) -> None:
            for path in folder.iterdir():
                path.rename(kept / path.name)

        return _keep(store, key, requested(), take)


def is_clean_report(report: Path) -> bool:
    """Whether a run wrote a report without findings, in a single process that ended normally."""
    try:
        content = json.loads(report.read_bytes())
        is_well = isinstance(content["kernels"], list) and content["fault"] is None
        is_well = is_well and not content.get("findings") and content.get("processes", 1) == 1
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return False
    return is_well and not any(report.parent.glob("*.findings"))


def _entry(store: Store, key: str, units: DeviceUnits) -> Path | None:
    """The kept run whose requested units still have the same code."""
    listed = store.find(key)
    if listed is None:
        return None
    try:
        names = json.loads((listed / _UNITS).read_text("utf-8"))
        requested = {str(unit): units.key(str(unit)) for unit in names}
    except (OSError, ValueError, TypeError, PatchkitError):
        return None  # a unit is missing or does not compile; the run itself will report that
    return store.find(_with(key, requested))


def _keep(store: Store, key: str, requested: Mapping[str, str], fill: Callable[[Path], None]) -> Path:
    def fill_list(folder: Path) -> None:
        (folder / _UNITS).write_text(json.dumps(sorted(requested)), "utf-8")

    store.obtain(key, fill_list)
    return store.obtain(_with(key, requested), fill)


def _with(key: str, requested: Mapping[str, str]) -> str:
    return key_of({"run": key, "units": dict(requested)})


@contextlib.contextmanager
def _noting(units: DeviceUnits) -> Iterator[tuple[Mapping[str, str], Callable[[], Mapping[str, str]]]]:
    """For the duration of a run: its additional environment, and a function for the units it requested."""
    with disk_errors(units.folder, "providing device code"):
        own = Path(tempfile.mkdtemp(prefix=OF_A_RUN, dir=units.folder))
    try:
        yield {UNITS: str(own)}, lambda: units.requested(own)
    finally:
        shutil.rmtree(own, ignore_errors=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRuns:
    """The kept runs of one side. ``identity`` covers its programs, its host code and the GPU.

    If ``is_fresh``, no kept run is reused; new ones are still kept.
    """

    identity: str
    units: DeviceUnits
    store: Store
    is_fresh: bool = False

    def watch(self, argv: Sequence[str], env: Mapping[str, str], folder: Path) -> Watched | None:
        """Prepare a run for reuse or keeping; None if it depends on files elsewhere.

        A path in ``folder`` on the command line is an input if the file exists, else an output.

        Raises CacheError if the cache cannot be read.
        """
        inputs: dict[str, str] = {}
        outputs: list[Path] = []
        cache = self.store.root.parents[len(Path(_STORE).parts) - 1]
        for word in argv:
            path = Path(word)
            if not path.is_absolute():
                continue
            if path.is_relative_to(folder):
                if path.is_file():
                    inputs[path.name] = sha256(path.read_bytes())
                else:
                    outputs.append(path)
            elif not path.is_relative_to(cache):
                return None
        report = env.get(REPORT)
        settings = {name: value for name, value in env.items() if name not in _PLACES}
        places = _Places(cache=cache, folder=folder)
        what = {
            "format": _FORMAT,
            "side": self.identity,
            "argv": [places.hidden(word.encode()).decode() for word in argv],
            "env": {name: places.hidden(value.encode()).decode() for name, value in settings.items()},
            "inputs": inputs,
        }
        return Watched(
            kept=self,
            key=key_of(what),
            outputs=tuple(outputs),
            report=None if report is None else Path(report),
            places=places,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Places:
    """Folders of this machine that may appear in a program's output."""

    cache: Path
    folder: Path

    def hidden(self, data: bytes) -> bytes:
        """The text with placeholders instead of the folders."""
        return data.replace(os.fsencode(self.folder), _PLACE).replace(os.fsencode(self.cache), _CACHE)

    def shown(self, data: bytes) -> bytes:
        """The text with the folders instead of placeholders."""
        return data.replace(_PLACE, os.fsencode(self.folder)).replace(_CACHE, os.fsencode(self.cache))


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """One run. ``key`` covers its inputs except for the code of its kernels."""

    kept: KeptRuns
    key: str
    outputs: tuple[Path, ...]
    report: Path | None
    places: _Places
    _requested: dict[str, str] = field(default_factory=dict)

    def take(self, out: Path, err: Path) -> float | None:
        """Restore the files of a kept run; the seconds that it took, or None if no run is kept.

        Raises CacheError if a file cannot be written.
        """
        kept = self.kept
        entry = None if kept.is_fresh else _entry(kept.store, self.key, kept.units)
        if entry is None:
            return None
        try:
            seconds = float(json.loads((entry / _END).read_text("utf-8"))["seconds"])
            found = {place: (entry / name).read_bytes() for name, place in self._files()}
            for name, place in self._texts(out, err):
                found[place] = self.places.shown((entry / name).read_bytes())
        except (OSError, ValueError, TypeError, KeyError):
            return None
        for place, data in found.items():
            with disk_errors(place, "restoring a kept run"):
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(data)
        return seconds

    @contextlib.contextmanager
    def running(self) -> Iterator[Mapping[str, str]]:
        """For the duration of the run: environment variables that make its requested units known."""
        with _noting(self.kept.units) as (variables, requested):
            yield variables
            self._requested.update(requested())

    def keep(self, seconds: float, out: Path, err: Path) -> None:
        """Keep a run that succeeded, unless it has findings. Raises CacheError if it cannot be written."""
        is_clean = self.report is None or is_clean_report(self.report)
        if not is_clean or not all(path.is_file() for path in (out, err, *self.outputs)):
            return

        def fill(folder: Path) -> None:
            for name, place in self._texts(out, err):
                (folder / name).write_bytes(self.places.hidden(place.read_bytes()))
            for name, place in self._files():
                shutil.copyfile(place, folder / name)
            (folder / _END).write_text(json.dumps({"seconds": seconds}), "utf-8")

        _keep(self.kept.store, self.key, self._requested, fill)

    def _texts(self, out: Path, err: Path) -> Iterator[tuple[str, Path]]:
        yield from ((_OUT, out), (_ERR, err))
        if self.report is not None:
            yield "report.json", self.report

    def _files(self) -> Iterator[tuple[str, Path]]:
        yield from ((f"output-{number}", path) for number, path in enumerate(self.outputs))
