"""Variants of the attention kernels that have a table: ``<head size>-<columns>``, and how each is compiled.

Vocabulary: a *way* is one instantiation that reads the variant's row: query heads per block, with or without
soft cap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def numbers_of(variant: str) -> tuple[int, int]:
    """Head size and columns."""
    head_size, columns = variant.split("-")
    return int(head_size), int(columns)


def ways_of(stem: str, heads: Sequence[int], softcaps: Sequence[str]) -> Iterator[tuple[str, int, str]]:
    """File name, query heads per block, soft cap as C++ says it; the name leaves the first heads out."""
    for capped in softcaps:
        for shared in heads:
            named = [f"-{shared}-heads"] if shared != heads[0] else []
            yield "".join([stem, *named, *(["-softcap"] if capped == "true" else []), ".cu"]), shared, capped
