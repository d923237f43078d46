"""The calls of the HIP runtime that a launch needs, with ctypes."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_RUNTIME = "libamdhip64.so.6"
_TO_DEVICE, _TO_HOST = 1, 2  # hipMemcpyKind
_VGPRS, _SPILLED, _MAX_THREADS = 4, 3, 0  # hipFunction_attribute: NUM_REGS, LOCAL_SIZE_BYTES, MAX_THREADS...


class Hip:
    """The runtime of the emulated GPU. Each method raises RuntimeError if the runtime returns an error."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(_RUNTIME)
        self._library.hipGetErrorString.restype = ctypes.c_char_p

    def _call(self, name: str, *arguments: Any) -> None:
        error = getattr(self._library, name)(*arguments)
        if error:
            text = self._library.hipGetErrorString(error)
            raise RuntimeError(f"{name} failed on the emulated GPU: {(text or b'').decode()} ({error})")

    def allocate(self, size: int) -> int:
        """Allocate bytes of device memory; its address."""
        address = ctypes.c_void_p()
        self._call("hipMalloc", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value or 0

    def free(self, address: int) -> None:
        """Free device memory."""
        self._call("hipFree", ctypes.c_void_p(address))

    def upload(self, device: int, host: int, size: int) -> None:
        """Copy bytes from the host."""
        self._copy(device, host, size, _TO_DEVICE)

    def download(self, host: int, device: int, size: int) -> None:
        """Copy bytes to the host."""
        self._copy(host, device, size, _TO_HOST)

    def _copy(self, to: int, source: int, size: int, kind: int) -> None:
        self._call("hipMemcpy", ctypes.c_void_p(to), ctypes.c_void_p(source), ctypes.c_size_t(size), kind)

    def clear(self, device: int, size: int) -> None:
        """Set bytes of device memory to zero."""
        self._call("hipMemset", ctypes.c_void_p(device), 0, ctypes.c_size_t(size))

    def synchronize(self) -> None:
        """Wait for everything that was launched."""
        self._call("hipDeviceSynchronize")

    def load(self, code: bytes, kernel: str) -> tuple[int, int]:
        """Load a code object; the handles of the module and of the kernel."""
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("hipModuleLoadData", ctypes.byref(module), code)
        self._call("hipModuleGetFunction", ctypes.byref(function), module, kernel.encode())
        return module.value or 0, function.value or 0

    def unload(self, module: int) -> None:
        """Unload a module."""
        self._call("hipModuleUnload", ctypes.c_void_p(module))

    def resources(self, function: int) -> tuple[int, int, int]:
        """VGPRs, bytes of scratch, and the maximum number of threads per block of a kernel."""
        found = []
        for attribute in (_VGPRS, _SPILLED, _MAX_THREADS):
            value = ctypes.c_int()
            self._call("hipFuncGetAttribute", ctypes.byref(value), attribute, ctypes.c_void_p(function))
            found.append(value.value)
        return found[0], found[1], found[2]

    def launch(
        self,
        function: int,
        grid: Sequence[int],
        *,
        threads: int,
        lds: int,
        arguments: Sequence[Any],
        cooperative: bool = False,
    ) -> None:
        """Launch a kernel: grid in blocks, threads per block, bytes of LDS, ctypes values as arguments."""
        pointers = (ctypes.c_void_p * len(arguments))(*map(ctypes.addressof, arguments))
        sizes = map(ctypes.c_uint, (*grid, threads, 1, 1, lds))
        rest = () if cooperative else (None,)
        name = "hipModuleLaunchCooperativeKernel" if cooperative else "hipModuleLaunchKernel"
        self._call(name, ctypes.c_void_p(function), *sizes, None, pointers, *rest)

    def called_from(self, places: Sequence[tuple[str, int, str]]) -> None:
        """File, line and function of the program that launches, innermost first, for findings of checks."""
        text = "\n".join("\t".join(map(str, place)) for place in places)
        self._library.patchkit_called_from(text.encode("utf-8", "replace"))

    def record_to(self, folder: Path | None) -> None:
        """Record launches from here on for the timing model, and execute them only in part.

        None: execute launches completely again.
        """
        self._library.patchkit_record_launches(None if folder is None else os.fsencode(folder))
