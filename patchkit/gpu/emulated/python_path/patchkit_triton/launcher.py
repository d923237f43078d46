"""Turns a launch by Triton into one by HIP: flattens and packs the arguments as the kernel reads them."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from typing import Any

from . import host_arrays
from .mirrors import Mirrored

WAVE = 32  # lanes
_INTEGERS = {
    "i1": ctypes.c_int8,
    "i8": ctypes.c_int8,
    "i16": ctypes.c_int16,
    "i32": ctypes.c_int32,
    "i64": ctypes.c_int64,
    "u1": ctypes.c_uint8,
    "u8": ctypes.c_uint8,
    "u16": ctypes.c_uint16,
    "u32": ctypes.c_uint32,
    "u64": ctypes.c_uint64,
}
_FLOATS = {"fp32": ctypes.c_float, "f32": ctypes.c_float, "fp64": ctypes.c_double}


class Launcher:
    """Launches one compiled kernel; Triton makes it and calls it with the grid and the arguments.

    Raises RuntimeError if the kernel needs waves of 64 lanes.
    """

    def __init__(self, source: Any, metadata: Any) -> None:
        if metadata.warp_size != WAVE:
            raise RuntimeError(
                f"kernel {metadata.name} is compiled for waves of {metadata.warp_size} lanes, but only waves "
                f"of {WAVE} lanes are emulated: compile it for gfx11 or gfx12 (see TRITON_OVERRIDE_ARCH)"
            )
        self._types = tuple(source.signature.values())
        self._metadata = metadata

    def __call__(self, x: int, y: int, z: int, stream: Any, function: int, *given: Any) -> None:
        """Launch. ``given``: packed and launch metadata, the hooks, and the arguments of the kernel."""
        from triton.runtime.driver import driver  # noqa: PLC0415 - Triton imports this package first

        del stream
        _, launch_metadata, enter_hook, exit_hook, *arguments = given
        if x * y * z <= 0:
            return
        if enter_hook is not None:
            enter_hook(launch_metadata)
        driver.active.launch(function, (x, y, z), self._metadata, list(_flat(self._types, arguments)))
        if exit_hook is not None:
            exit_hook(launch_metadata)


def _flat(types: Any, arguments: Any) -> Iterator[tuple[str, Any]]:
    """Type and value of each argument that the kernel gets, in its order."""
    for type_, value in zip(types, arguments):  # noqa: B905 - Python 3.10, and Triton checked the lengths
        if isinstance(type_, tuple):
            yield from _flat(type_, value)
        elif type_.startswith("tensordesc"):
            yield from _descriptor(type_, value)
        elif type_ != "constexpr":
            yield type_, value


def _descriptor(type_: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The parts of a tensor descriptor. Shape and strides are passed twice, as Triton's lowering expects."""
    yield "*" + type_.partition("<")[2].partition("[")[0], value.base
    for number in (*value.shape, *value.strides):
        yield "i64", number
    if hasattr(value, "padding"):
        yield "i1", value.padding == "nan"
    if hasattr(value, "round_f32_to_tf32"):
        yield "i1", value.round_f32_to_tf32
    for number in value.shape:
        yield "i32", number
    for number in value.strides:
        yield "i64", number


def memory_of(arguments: list[tuple[str, Any]]) -> Iterator[tuple[int, int, bool]]:
    """The memory of each array among the arguments."""
    for type_, value in arguments:
        if type_.startswith("*") and hasattr(value, "data_ptr"):
            yield host_arrays.memory_of(value)


def packed(type_: str, value: Any, mirrored: Mirrored) -> Any:
    """An argument as the kernel reads it. Raises TypeError if its type is unknown."""
    if type_.startswith("*"):
        address = value.data_ptr() if hasattr(value, "data_ptr") else int(value or 0)
        return ctypes.c_void_p(mirrored.device_address(address))
    if type_ in _INTEGERS:
        return _INTEGERS[type_](int(value))
    if type_ in _FLOATS:
        return _FLOATS[type_](float(value))
    if type_ == "fp16":
        return ctypes.c_uint16.from_buffer_copy(struct.pack("<e", value))
    if type_ == "bf16":  # the upper half of a float, as Triton's own launcher passes it
        return ctypes.c_uint16.from_buffer_copy(struct.pack("<f", value), 2)
    raise TypeError(f"arguments of type {type_} are not supported on the emulated GPU")
