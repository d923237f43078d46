"""The cases of our own that every point is measured with, and which variant of the kernel a case runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from patchkit.gpu.cases import SOFTCAP_SIZES, Case, case_line
from patchkit.kernels.wmma import VARIANTS, WmmaVariant

_HEAD_SIZES = tuple(sorted({variant.head_size for variant in VARIANTS}))
# 1 is decode; 16 and 17, 32 and 33 are edges of a block of columns; 1024 is where the mask scan begins.
_TOKENS = (1, 2, 3, 16, 17, 32, 33, 64)
_WIDE = (512, 1024)
_KV = (256, 768, 4096, 8192)
_WIDE_KV = 4096
_BLOCK = {"q4_0": 32, "q8_0": 32}  # values per block (ggml-quants)
_MANY_COLUMNS, _WIDE_HEAD = 32, 128


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckCase:
    """One case with the pattern of its mask."""

    case: Case
    pattern: str = "causal"


def variant_of(case: Case) -> WmmaVariant:
    """The variant that ggml_cuda_flash_attn_ext_wmma_f16 (build 6900, as on HIP) picks for a case."""
    narrow = case.tokens <= _MANY_COLUMNS or (case.precise and case.head_size > _WIDE_HEAD)
    return WmmaVariant(case.head_size, 16 if narrow else 32, "f32" if case.precise else "f16")


def check_line(check: CheckCase) -> str:
    """The line of the case file of native/attention_check.cpp."""
    return f"{case_line(check.case).rstrip()} pattern={check.pattern}\n"


def check_cases() -> tuple[CheckCase, ...]:
    """Every shape plain, and every option on a few of them; ids are ``check-0``, ``check-1``, and so on."""
    found = [
        check for size in _HEAD_SIZES for precise in (True, False) for check in _of(size, precise=precise)
    ]
    return tuple(
        replace(check, case=replace(check.case, id=f"check-{number}")) for number, check in enumerate(found)
    )


def cases_for(variants: frozenset[WmmaVariant], cases: Sequence[CheckCase]) -> tuple[CheckCase, ...]:
    """The cases that run one of the variants."""
    return tuple(check for check in cases if variant_of(check.case) in variants)


def _of(size: int, *, precise: bool) -> Iterator[CheckCase]:
    plain = Case(
        id="",
        head_size=size,
        head_size_v=size,
        kv_heads=2,
        gqa=1,
        kv=256,
        tokens=1,
        precise=precise,
        type_k="f16",
    )
    for tokens in _TOKENS:
        for kv in _KV:
            yield CheckCase(case=replace(plain, tokens=tokens, kv=kv, gqa=4))
    for tokens in _WIDE:
        yield CheckCase(case=replace(plain, tokens=tokens, kv=_WIDE_KV))
        yield CheckCase(case=replace(plain, tokens=tokens, kv=_WIDE_KV), pattern="window")
    for tokens in (3, 33, 512):
        for kv in (768, 4096):
            if tokens not in _WIDE or kv == _WIDE_KV:
                yield from _varied(replace(plain, tokens=tokens, kv=kv))


def _varied(plain: Case) -> Iterator[CheckCase]:
    yield CheckCase(case=replace(plain, mask=False), pattern="free")
    yield CheckCase(case=plain, pattern="free")
    yield CheckCase(case=plain, pattern="window")
    yield CheckCase(case=replace(plain, sequences=3), pattern="short")
    yield CheckCase(case=replace(plain, sinks=True))
    yield CheckCase(case=replace(plain, sinks=True, gqa=8))
    yield CheckCase(case=replace(plain, max_bias=8.0, kv_heads=3))
    yield CheckCase(case=replace(plain, permute="0123", view=False))
    for kind in ("f32", "q8_0", "q4_0"):
        if plain.head_size % _BLOCK.get(kind, 1) == 0:
            yield CheckCase(case=replace(plain, type_k=kind, type_v=kind))
    if plain.head_size in SOFTCAP_SIZES:
        yield CheckCase(case=replace(plain, softcap=10.0))
        yield CheckCase(case=replace(plain, softcap=10.0, sinks=True, max_bias=8.0))
