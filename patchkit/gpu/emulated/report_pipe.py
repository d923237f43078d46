"""Collects the reports of all processes that one command runs on the emulated GPU, through a pipe."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from patchkit.base.files import disk_errors
from patchkit.gpu.emulated.emulator import EmulationReport, parse_report

_END = b"\0"  # does not occur in JSON
_PIECE = 1 << 16


class ReportPipe:
    """The pipe at ``place``. To each process it looks like a report file of its own."""

    def __init__(self, place: Path) -> None:
        self.place = place
        os.mkfifo(place)
        # Opened read-write, so that opening does not block and there is no end of file between two programs.
        self._pipe = os.open(place, os.O_RDWR | os.O_CLOEXEC)
        self._data = bytearray()
        self._is_over = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while not (self._is_over.is_set() and self._data.endswith(_END)):
            self._data += os.read(self._pipe, _PIECE)

    def close(self) -> None:
        """Stop after what was written so far; later writers find no reader."""
        if not self._is_over.is_set():
            self._is_over.set()
            os.write(self._pipe, _END)
            self._reader.join()
            os.close(self._pipe)

    def reports(self) -> list[EmulationReport]:
        """The reports of all processes that wrote one, in the order in which the processes ended.

        Raises:
            EMULATION_UNREPORTED: a report is incomplete, or two written at the same moment are interleaved.
        """
        self.close()
        text, place = self._data.rstrip(_END).decode("utf-8", "replace").strip(), 0
        found = []
        while place < len(text):
            end = place
            with contextlib.suppress(ValueError, RecursionError):
                _, end = json.JSONDecoder().raw_decode(text, place)
            found.append(parse_report(text[place:end], self.place))
            place = end + len(text[end:]) - len(text[end:].lstrip())
        return found


@contextlib.contextmanager
def report_pipe(folder: Path) -> Iterator[ReportPipe]:
    """A pipe in the folder, for the duration of the context. Raises CacheError."""
    with disk_errors(folder, "preparing the report"):
        pipe = ReportPipe(folder / "report")
    try:
        yield pipe
    finally:
        pipe.close()


def merge_reports(reports: list[EmulationReport]) -> EmulationReport | None:
    """Merge the reports of several processes: all kernels and BLAS calls in order, and the first fault."""
    if not reports:
        return None
    ended = next((one for one in reports if one.fault is not None), reports[0])
    return EmulationReport(
        arch=reports[0].arch,
        schedule=reports[0].schedule,
        kernels=[kernel for one in reports for kernel in one.kernels],
        on_cpu=[product for one in reports for product in one.on_cpu],
        fault=ended.fault,
        stopped=ended.stopped,
        refused=[refused for one in reports for refused in one.refused],
        findings=[found for one in reports for found in one.findings],
        processes=len(reports),
    )
