"""Addresses of tensors in arrays, as in grouped matmuls: the kernel gets those of the device."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakValueDictionary

from .hip import Hip
from .launcher import memory_of
from .mirrors import Mirrored

_WORD = 8  # bytes
_TYPES = ("*i64", "*u64")
_storages: WeakValueDictionary[int, Any] = WeakValueDictionary()  # of existing tensors, by address


def watch(tensor_type: Any, is_called_by_program: Callable[[], bool]) -> None:
    """Note each address that PyTorch's ``Tensor.data_ptr()`` returns to the program."""
    read = tensor_type.data_ptr

    def data_ptr(tensor: Any) -> int:
        address = int(read(tensor))
        if is_called_by_program():
            _storages[address] = tensor.untyped_storage()
        return address

    tensor_type.data_ptr = data_ptr


class Pointers:
    """Finds and translates the addresses that ``watch`` has noted."""

    def __init__(self, hip: Hip) -> None:
        self._hip = hip

    def entries(self, arguments: list[tuple[str, Any]]) -> list[tuple[int, int, Any]]:
        """The known addresses in arrays of 64-bit integers: where each is, the address, and its storage."""
        return list(self._find(arguments)) if _storages else []

    def _find(self, arguments: list[tuple[str, Any]]) -> Iterator[tuple[int, int, Any]]:
        arrays = [argument for argument in arguments if argument[0] in _TYPES]
        for host, size, _ in set(memory_of(arrays)):
            for place, value in enumerate((ctypes.c_uint64 * (size // _WORD)).from_address(host)):
                storage = _storages.get(value)
                if storage is not None:
                    yield host + _WORD * place, value, storage

    def translate(self, entries: list[tuple[int, int, Any]], mirrored: Mirrored) -> None:
        """Replace the addresses in the device's copies of the arrays."""
        for place, value, _ in entries:
            self._write(mirrored.device_address(place), mirrored.device_address(value))

    def restore(self, entries: list[tuple[int, int, Any]], mirrored: Mirrored) -> None:
        """Undo ``translate``, except where the kernel has stored something else."""
        for place, value, _ in entries:
            word = ctypes.c_uint64()
            self._hip.download(ctypes.addressof(word), mirrored.device_address(place), _WORD)
            if word.value == mirrored.device_address(value):
                self._write(mirrored.device_address(place), value)

    def _write(self, device: int, value: int) -> None:
        word = ctypes.c_uint64(value)
        self._hip.upload(device, ctypes.addressof(word), _WORD)
