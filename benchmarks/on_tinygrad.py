"""Run one block of a launch, as written by watched_emulator.cpp, on tinygrad's emulator.

Used by emulator_speed.py. The first run compiles each instruction and counts; the others are timed.

    PYTHONPATH=CHECKOUT python benchmarks/on_tinygrad.py FOLDER
"""

from __future__ import annotations

import ctypes
import importlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

# Its decoder lacks buffer_gl0_inv, which invalidates a cache. There is no cache, so two s_nop 0 replace it.
_FORGET, _NOTHING = bytes.fromhex("0000ace000000000"), bytes.fromhex("000080bf000080bf")
_RUNS = 5
_LDS_GRANULE, _LDS_SHIFT = 512, 15  # granulated LDS size in COMPUTE_PGM_RSRC2
_KERNARG_POINTER = 1 << 3  # bit of kernel_code_properties; other lower bits would put arguments before it


def main() -> None:
    """Print instructions and CPU seconds of each run as JSON."""
    folder = Path(sys.argv[1])
    launch = json.loads((folder / "launch.json").read_text())
    if launch["properties"] & 0x7F != _KERNARG_POINTER:
        raise SystemExit("the kernel needs more than a pointer to its arguments")
    kernarg = bytearray((folder / "kernarg").read_bytes())
    kept = []
    for at, offset in launch["pointers"]:
        memory = _buffer((folder / f"memory-{at}").read_bytes())
        kept.append(memory)
        kernarg[at : at + 8] = (ctypes.addressof(memory) + offset).to_bytes(8, "little")
    code = _buffer((folder / "code").read_bytes().replace(_FORGET, _NOTHING))
    arguments = _buffer(bytes(kernarg))
    granules = -(-launch["lds"] // _LDS_GRANULE)
    emulator = importlib.import_module("test.mockgpu.amd.emu")

    def run() -> None:
        emulator.run_asm(
            ctypes.addressof(code) + launch["entry"],
            len(code) - launch["entry"],
            *(1, 1, 1),
            *launch["block"],
            ctypes.addressof(arguments),
            rsrc2=launch["rsrc2"] | granules << _LDS_SHIFT,
            scratch_size=launch["scratch"],
        )

    executed = _counted(emulator, run)
    for _ in range(_RUNS):
        began = time.process_time()
        run()
        print(json.dumps({"instructions": executed, "seconds": time.process_time() - began}))


def _buffer(content: bytes) -> ctypes.Array[ctypes.c_char]:
    """A copy at an address that is a multiple of 64, as kernels expect; the view keeps the buffer alive."""
    whole = ctypes.create_string_buffer(len(content) + 64)
    start = -ctypes.addressof(whole) % 64
    view = (ctypes.c_char * len(content)).from_buffer(whole, start)
    view.raw = content
    return view


def _counted(emulator: ModuleType, run: Callable[[], None]) -> int:
    executed, name = 0, "_decode_at"
    decode = getattr(emulator, name)

    def decode_for_counting(pc: int, arch: str) -> tuple[tuple[object, SimpleNamespace], object]:
        (program, runtime), instruction = decode(pc, arch)

        def execute(*arguments: object) -> None:
            nonlocal executed
            executed += 1
            runtime.fxn(*arguments)

        return (program, SimpleNamespace(fxn=execute)), instruction

    setattr(emulator, name, decode_for_counting)
    run()
    setattr(emulator, name, decode)
    return executed


if __name__ == "__main__":
    main()
