"""What compiles device code for a program that runs, when that program ends first."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

from patchkit.gpu.emulated.emulator import DeviceUnits
from patchkit.toolchain.units import SourceTree


class _Late(DeviceUnits):
    """Answers when it is told to, with more than a socket holds."""

    def answer(self, unit: str, folder: Path, kernel: str | None = None) -> str:  # noqa: ARG002 - as the other
        self.was_asked.set()
        self.may_answer.wait(10)
        return unit * 1_000_000


def test_a_program_that_ended_before_its_answer_is_no_news(tmp_path: Path, capfd) -> None:
    units = _Late(SourceTree(tmp_path), "gfx1151", None, tmp_path / "units")
    units.was_asked, units.may_answer = threading.Event(), threading.Event()
    with units.served() as variables:
        before = set(threading.enumerate())
        with socket.socket(socket.AF_UNIX) as program:
            program.connect(variables["PATCHKIT_EMULATOR_SERVER"])
            program.sendall(b"fattn.cu\n")
            assert units.was_asked.wait(10)
            (answering,) = set(threading.enumerate()) - before
        units.may_answer.set()
        answering.join(10)
        assert not answering.is_alive()
    assert capfd.readouterr().err == ""
