"""Device memory that mirrors memory of the host while a kernel runs."""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from .hip import Hip

# Kept so that a program that launches repeatedly with the same arrays does not allocate each time.
_MOST_KEPT = 64
# A vector access of this many bytes may require that the address is a multiple of it.
_ALIGNMENT = 16


@dataclass(frozen=True)
class Mirror:
    """``size`` bytes at ``host`` and their copy at ``device``."""

    host: int
    size: int
    device: int
    is_writable: bool


class Mirrored:
    """The mirrors of one launch."""

    def __init__(self, mirrors: Iterable[Mirror]) -> None:
        self.mirrors = sorted(mirrors, key=lambda mirror: mirror.host)
        self._starts = [mirror.host for mirror in self.mirrors]

    def device_address(self, address: int) -> int:
        """The device's address for one of the host; the same address if there is no mirror."""
        place = bisect_right(self._starts, address) - 1
        if place < 0:
            return address
        mirror = self.mirrors[place]
        offset = address - mirror.host
        return mirror.device + offset if offset <= mirror.size else address


class Mirrors:
    """Makes and keeps mirrors."""

    def __init__(self, hip: Hip) -> None:
        self._hip = hip
        self._kept: OrderedDict[tuple[int, int], tuple[int, int]] = OrderedDict()

    def upload(self, memory: Iterable[tuple[int, int, bool]]) -> Mirrored:
        """Copy memory of the host, given by address, size and whether it may be written, to the device."""
        mirrors = [self._mirror(*one) for one in _merged(memory)]
        for mirror in mirrors:
            self._hip.upload(mirror.device, mirror.host, mirror.size)
        return Mirrored(mirrors)

    def download(self, mirrored: Mirrored, kernel: str) -> None:
        """Copy everything back that a kernel may have written.

        Raises:
            ValueError: the kernel changed an array that is read-only.
        """
        for mirror in mirrored.mirrors:
            if mirror.is_writable:
                self._hip.download(mirror.host, mirror.device, mirror.size)
            elif ctypes.string_at(mirror.host, mirror.size) != self._bytes(mirror):
                raise ValueError(f"kernel {kernel} changed an array that is read-only")

    def _bytes(self, mirror: Mirror) -> bytes:
        found = ctypes.create_string_buffer(mirror.size)
        self._hip.download(ctypes.addressof(found), mirror.device, mirror.size)
        return found.raw

    def _mirror(self, host: int, size: int, is_writable: bool) -> Mirror:  # noqa: FBT001 - unpacked from a row
        key = host, size
        if key not in self._kept:
            if len(self._kept) >= _MOST_KEPT:
                self._hip.free(self._kept.popitem(last=False)[1][0])
            # Code compiled for an aligned address of the host needs a device address that is, too.
            shift = host % _ALIGNMENT
            self._kept[key] = self._hip.allocate(size + shift), shift
        self._kept.move_to_end(key)
        block, shift = self._kept[key]
        return Mirror(host, size, block + shift, is_writable)


def _merged(memory: Iterable[tuple[int, int, bool]]) -> list[tuple[int, int, bool]]:
    """Memory without overlaps: arrays that share memory share their mirror."""
    merged: list[tuple[int, int, bool]] = []
    for host, size, is_writable in sorted(set(memory)):
        if not size:
            continue
        if merged and host < merged[-1][0] + merged[-1][1]:
            first, length, was_writable = merged.pop()
            end = max(first + length, host + size)
            merged.append((first, end - first, is_writable or was_writable))
        else:
            merged.append((host, size, is_writable))
    return merged
