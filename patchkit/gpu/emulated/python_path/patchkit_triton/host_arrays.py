"""Arrays of the program as arguments of kernels: PyTorch's CPU tensors, NumPy's arrays, and DLPack's."""

from __future__ import annotations

import sys
from typing import Any


class HostArray:
    """A NumPy array with the methods that Triton calls on a tensor. Its memory is that of the array.

    Everything else is passed on to the array.
    """

    def __init__(self, array: Any) -> None:
        self.array = array

    def __getattr__(self, name: str) -> Any:
        return getattr(self.array, name)

    def data_ptr(self) -> int:
        """The address of the first element."""
        return int(self.array.__array_interface__["data"][0])

    def stride(self, axis: int | None = None) -> Any:
        """The strides in elements, as a tensor's."""
        strides = tuple(bytes_ // self.array.itemsize for bytes_ in self.array.strides)
        return strides if axis is None else strides[axis]

    def numel(self) -> int:
        """The number of elements."""
        return int(self.array.size)

    def element_size(self) -> int:
        """Bytes per element."""
        return int(self.array.itemsize)

    def zero_(self) -> HostArray:
        """Set all elements to zero, as the autotuner does for ``reset_to_zero``."""
        self.array[...] = 0
        return self

    def clone(self) -> HostArray:
        """A copy, which the autotuner keeps for ``restore_value``."""
        return HostArray(self.array.copy())

    def copy_(self, other: HostArray) -> HostArray:
        """Copy the elements of another array, as the autotuner does for ``restore_value``."""
        self.array[...] = other.array
        return self


def as_argument(value: Any) -> Any:
    """An argument as Triton takes it: arrays get a ``data_ptr``, everything else is unchanged."""
    if isinstance(value, tuple) and type(value) is tuple:
        return tuple(map(as_argument, value))
    if hasattr(value, "data_ptr"):
        return value
    if (numpy := sys.modules.get("numpy")) is not None:
        if isinstance(value, numpy.ndarray):
            return HostArray(value)
        if isinstance(value, numpy.generic):
            return value.item()
        if hasattr(value, "__dlpack__"):
            return HostArray(numpy.from_dlpack(value))
    return value


def memory_of(argument: Any) -> tuple[int, int, bool]:
    """The memory that holds an array, also if the argument is only a part of it.

    Returns its address, its size in bytes, and whether it may be written.

    Raises:
        TypeError: the memory is not on the host, or its size is unknown.
    """
    if isinstance(argument, HostArray):
        return _memory_of_numpy(argument.array)
    device = getattr(argument, "device", None)
    if device is not None and getattr(device, "type", "cpu") != "cpu":
        raise TypeError(
            f"an argument is on the device '{device}', but the emulated GPU takes tensors of the CPU: create "
            "it with device=triton.runtime.driver.active.get_active_torch_device()"
        )
    if hasattr(argument, "untyped_storage"):
        storage = argument.untyped_storage()
        return storage.data_ptr(), storage.nbytes(), True
    if hasattr(argument, "base") and hasattr(argument.base, "data_ptr"):  # triton.reinterpret
        return memory_of(argument.base)
    if hasattr(argument, "numel") and hasattr(argument, "element_size"):
        return argument.data_ptr(), argument.numel() * argument.element_size(), True
    raise TypeError(
        f"the size of an argument of type {type(argument).__name__} is unknown: pass a NumPy array, a CPU "
        "tensor of PyTorch, or an object with data_ptr(), numel() and element_size()"
    )


def _memory_of_numpy(array: Any) -> tuple[int, int, bool]:
    is_writable = bool(array.flags.writeable)
    while type(array.base) is type(array):
        array = array.base
    address = int(array.__array_interface__["data"][0])
    if not array.size:
        return address, 0, is_writable
    spans = [(count - 1) * stride for count, stride in zip(array.shape, array.strides)]  # noqa: B905 - 3.10
    first = address + sum(span for span in spans if span < 0)
    last = address + sum(span for span in spans if span > 0) + array.itemsize
    return first, last - first, is_writable
