"""The types of tensor data that a GGUF file may hold, and how many bytes they take.

Vocabulary: a *block* is the least number of values that a type stores together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One type: ``block`` values are stored in ``bytes`` bytes."""

    name: str
    block: int
    bytes: int

    def size(self, values: int) -> int:
        """Bytes that whole blocks for ``values`` values take."""
        return -(-values // self.block) * self.bytes


# Number in the file -> type. The gguf package has the same table (a contract test compares them).
_TABLE = (
    (0, "F32", 1, 4),
    (1, "F16", 1, 2),
    (2, "Q4_0", 32, 18),
    (3, "Q4_1", 32, 20),
    (6, "Q5_0", 32, 22),
    (7, "Q5_1", 32, 24),
    (8, "Q8_0", 32, 34),
    (9, "Q8_1", 32, 40),
    (10, "Q2_K", 256, 84),
    (11, "Q3_K", 256, 110),
    (12, "Q4_K", 256, 144),
    (13, "Q5_K", 256, 176),
    (14, "Q6_K", 256, 210),
    (15, "Q8_K", 256, 292),
    (16, "IQ2_XXS", 256, 66),
    (17, "IQ2_XS", 256, 74),
    (18, "IQ3_XXS", 256, 98),
    (19, "IQ1_S", 256, 50),
    (20, "IQ4_NL", 32, 18),
    (21, "IQ3_S", 256, 110),
    (22, "IQ2_S", 256, 82),
    (23, "IQ4_XS", 256, 136),
    (24, "I8", 1, 1),
    (25, "I16", 1, 2),
    (26, "I32", 1, 4),
    (27, "I64", 1, 8),
    (28, "F64", 1, 8),
    (29, "IQ1_M", 256, 56),
    (30, "BF16", 1, 2),
    (34, "TQ1_0", 256, 54),
    (35, "TQ2_0", 256, 66),
    (39, "MXFP4", 32, 17),
    (40, "NVFP4", 64, 36),
)

KINDS: Mapping[int, Kind] = MappingProxyType(
    {number: Kind(name=name, block=block, bytes=size) for number, name, block, size in _TABLE}
)
KINDS_BY_NAME: Mapping[str, Kind] = MappingProxyType({kind.name: kind for kind in KINDS.values()})
