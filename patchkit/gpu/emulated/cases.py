"""Attention cases: upstream's, parsed from the output of test-backend-ops, and our own for gaps in those."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from patchkit.base.errors import ToolchainError

# The C++ header that parses the lines of :func:`case_line`, for all of our programs that run attention.
CASE_READER = Path(__file__).parent / "native" / "drivers" / "case_line.hpp"

# Head sizes of K and V: the switch in ggml_cuda_get_best_fattn_kernel (build 6900). 576/512 is DeepSeek's
# MLA.
HEAD_SIZES = ((40, 40), (64, 64), (80, 80), (96, 96), (112, 112), (128, 128), (256, 256), (576, 512))
_GQA = (1, 2, 4, 8, 16)
_KV = (256, 1024, 4096, 16384, 65536, 131072)
# 1 is decode. 2 and 3 are at the limit of the vector kernel, 33 at that of 16 columns, 1024 at that of the
# mask scan.
_TOKENS = (1, 2, 3, 8, 16, 32, 33, 512, 1024, 2048)
# Only these head sizes have kernels with logit softcap. For others the backend reports support, but every
# kernel traps ("Skip unused kernel variants" in fattn-tile.cuh, fattn-vec.cuh, fattn-wmma-f16.cu, build
# 6900).
SOFTCAP_SIZES = frozenset({128, 256})
_KV_HEADS = 2
_OWN = "own-"  # prefix of our cases' ids
_MOST_ABORTING = 16  # kinds of cases, out of more than a hundred
_BLOCK = {"f16": 1, "q8_0": 32, "q4_0": 32}  # values per quantization block (ggml-quants)

_KNOWN = frozenset(
    {
        *("hsk", "hsv", "nh", "nr23", "kv", "nb", "mask", "sinks", "max_bias", "logit_softcap", "prec"),
        *("type_KV", "type_K", "type_V", "permute"),
    }
)
# Variables of later builds, with the values that match what our driver builds.
_NEUTRAL = {"kv_view": {"1", "true"}, "v_is_view_of_k": {"0", "false"}, "n_kv_max": {"0", "-1"}}
_VARIABLE = re.compile(r"(\w+)=(\[[^\]]*\]|[^,]*)(?:,|$)")


class CaseNotUnderstood(ToolchainError):
    """Upstream printed a case with variables that this version of patchkit does not know."""


class CaseAborted(ToolchainError):
    """A program that runs cases failed, in the case with the id ``case`` if that is known."""

    case: str | None = None

    @classmethod
    def of(cls, error: ToolchainError, case: str | None, message: str) -> CaseAborted:
        """The error of a run, with the case that it was in."""
        found = cls(message, code=error.code, where=error.where, why=error.why, hint=error.hint)
        found.case = case
        return found


class SupportMalformed(ToolchainError):
    """The output of ``test-backend-ops support`` is not the expected CSV table."""

    code = "SUPPORT_MALFORMED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One attention case. It has ``kv_heads * gqa`` query heads; ``permute`` is the order for ggml_permute.

    ``kv`` is the number of KV rows, ``tokens`` the batch size. ``view``: K and V are views of a cache twice
    as long.
    """

    id: str
    head_size: int
    head_size_v: int
    kv_heads: int
    gqa: int
    kv: int
    tokens: int
    sequences: int = 1
    mask: bool = True
    sinks: bool = False
    max_bias: float = 0.0
    softcap: float = 0.0
    precise: bool = True
    type_k: str = "f16"
    type_v: str = "f16"
    permute: str = "0213"
    view: bool = True

    @property
    def is_decode(self) -> bool:
        """Whether it has a batch of one token."""
        return self.tokens == 1

    @property
    def is_own(self) -> bool:
        """Whether it is one of :func:`own_cases`."""
        return self.id.startswith(_OWN)

    @property
    def is_quantized(self) -> bool:
        """Whether K or V is quantized."""
        return self.type_k.startswith("q") or self.type_v.startswith("q")

    @property
    def bytes(self) -> int:
        """Device memory of its tensors, an upper bound: 4 bytes per f32 value, 2 per value of other types."""
        heads = self.kv_heads * self.gqa
        cache = self.kv * self.kv_heads * (1 + self.view)
        kept = cache * (self.head_size * _bytes(self.type_k) + self.head_size_v * _bytes(self.type_v))
        batch = self.tokens * heads * (self.head_size + self.head_size_v) * _bytes("f32")
        mask = self.kv * self.tokens * _bytes("f16") if self.mask else 0
        return self.sequences * (kept + batch + mask)

    @property
    def sizes(self) -> str:
        """The head size; that of K and V if they differ."""
        same = self.head_size == self.head_size_v
        return f"{self.head_size}" if same else f"{self.head_size}/{self.head_size_v}"

    def __str__(self) -> str:
        types = self.type_k if self.type_k == self.type_v else f"{self.type_k}/{self.type_v}"
        extras = [
            name
            for name, is_on in {
                "no mask": not self.mask,
                "sinks": self.sinks,
                "ALiBi": self.max_bias != 0.0,
                "soft cap": self.softcap != 0.0,
                "f16 accumulators": not self.precise,
                f"{self.sequences} sequences": self.sequences != 1,
            }.items()
            if is_on
        ]
        words = [
            f"D={self.sizes}",
            f"gqa={self.gqa}",
            f"kv={self.kv}",
            f"tokens={self.tokens}",
            types,
            *extras,
        ]
        return " ".join(words)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpRow:
    """A row of ``test-backend-ops support``: the operation's variables, and whether it is supported."""

    params: str
    is_supported: bool


def case_line(case: Case) -> str:
    """The case's line in a case file, parsed by native/drivers/case_line.hpp."""
    return (
        f"{case.id} hsk={case.head_size} hsv={case.head_size_v} nh={case.kv_heads} nr2={case.gqa} "
        f"nr3={case.sequences} kv={case.kv} nb={case.tokens} mask={case.mask:d} sinks={case.sinks:d} "
        f"max_bias={case.max_bias:g} logit_softcap={case.softcap:g} "
        f"prec={'f32' if case.precise else 'default'} "
        f"type_k={case.type_k} type_v={case.type_v} permute={case.permute} view={case.view:d}\n"
    )


@lru_cache(maxsize=1)
def own_cases() -> tuple[Case, ...]:
    """Our cases: every shape without options, and each option on a few shapes."""
    plain = list(_shapes())
    varied = _variations(plain)
    return (*plain, *(replace(case, id=f"{_OWN}{len(plain) + number}") for number, case in enumerate(varied)))


def _shapes() -> Iterator[Case]:
    number = 0
    for size, size_v in HEAD_SIZES:
        for gqa in _GQA:
            for kv in _KV:
                for tokens in _TOKENS:
                    for kind, block in _BLOCK.items():
                        if size % block or size_v % block:
                            continue
                        yield Case(
                            id=f"{_OWN}{number}",
                            head_size=size,
                            head_size_v=size_v,
                            kv_heads=_KV_HEADS,
                            gqa=gqa,
                            kv=kv,
                            tokens=tokens,
                            type_k=kind,
                            type_v=kind,
                        )
                        number += 1


def _variations(plain: Sequence[Case]) -> Iterator[Case]:
    """Each option where it matters: two depths, limits of batch sizes, all head sizes and GQA ratios."""
    for case in plain:
        if case.kv not in {256, 4096} or case.tokens not in {1, 3, 33, 512}:
            continue
        yield replace(case, mask=False)
        yield replace(case, sinks=True)
        yield replace(case, max_bias=8.0)
        if case.head_size in SOFTCAP_SIZES:
            yield replace(case, softcap=10.0)
        yield replace(case, precise=False)
        yield replace(case, sequences=3)


@lru_cache(maxsize=8)  # most GPUs and both sides print the same
def parse_support(text: str) -> tuple[OpRow, ...]:
    """The rows for FLASH_ATTN_EXT in the output of ``test-backend-ops support --output csv``, in order.

    Raises:
        SupportMalformed: a column is missing, or there are no rows.
    """
    rows = list(csv.DictReader(io.StringIO(text)))
    columns = {"op_name", "op_params", "supported"}
    if not rows or not columns <= set(rows[0]):
        raise SupportMalformed(
            "the output of test-backend-ops support is not a table",
            why=f"expected the columns {', '.join(sorted(columns))}, but it begins with: {text[:80]!r}",
            hint="'patchkit doctor' shows the tools; the recorder's log is in the cache folder",
        )
    return tuple(
        OpRow(params=row["op_params"], is_supported=row["supported"] == "1")
        for row in rows
        if row["op_name"] == "FLASH_ATTN_EXT"
    )


_Run = TypeVar("_Run")


def without_aborts(
    run: Callable[[Sequence[Case]], _Run], cases: Sequence[Case]
) -> tuple[tuple[Case, ...], _Run, tuple[str, ...]]:
    """Run the cases that the baseline can run; returns them, their run, and a note for each kind that aborts.

    Upstream reports some shapes as supported and then aborts. For example, build 10068 with rocWMMA selects
    that kernel for head size 320, which it does not implement. Such kinds of cases are excluded on both
    sides. Many aborting kinds mean that the backend does not work at all.

    Raises CaseAborted if the error names no case, or if too many kinds abort.
    """
    left = tuple(cases)
    aborting: list[str] = []
    while True:
        try:
            return left, run(left), tuple(aborting)
        except CaseAborted as error:
            culprit = next((case for case in left if case.id == error.case), None)
            if culprit is None or len(aborting) == _MOST_ABORTING:
                raise
            kind = _kind(culprit)
            before = len(left)
            left = tuple(case for case in left if _kind(case) != kind)
            shape = f"head size {kind[0]}/{kind[1]}, {kind[2]} query heads per KV head"
            aborting.append(
                f"{shape} ({before - len(left)} cases excluded): the baseline aborts in case {culprit.id}"
            )


def _kind(case: Case) -> tuple[int, int, int]:
    """What upstream's kernel selection depends on first."""
    return (case.head_size, case.head_size_v, case.gqa)


@lru_cache(maxsize=32768)  # the same rows for every GPU
def upstream_case(params: str, number: int) -> Case:
    """The case for parameters printed by upstream (``hsk=64,hsv=64,nh=4,nr23=[1,1],...``).

    Upstream rounds head sizes up to whole blocks of a quantized type; the case has the rounded ones.

    Raises:
        CaseNotUnderstood: a variable is missing, unknown, or has an unsupported value.
    """
    values = dict(_VARIABLE.findall(params))
    unknown = {
        name
        for name, value in values.items()
        if name not in _KNOWN and value not in _NEUTRAL.get(name, set())
    }
    if unknown:
        raise _not_understood(params, f"unknown: {', '.join(sorted(unknown))}")
    try:
        nr2, nr3 = _list(values["nr23"])
        type_k = values["type_K"] if "type_K" in values else values["type_KV"]
        type_v = values["type_V"] if "type_V" in values else values["type_KV"]
        return Case(
            id=f"upstream-{number}",
            head_size=whole_blocks(int(values["hsk"]), type_k),
            head_size_v=whole_blocks(int(values["hsv"]), type_v),
            kv_heads=int(values["nh"]),
            gqa=int(nr2),
            sequences=int(nr3),
            kv=int(values["kv"]),
            tokens=int(values["nb"]),
            mask=values["mask"] == "1",
            sinks=values["sinks"] == "1",
            max_bias=float(values["max_bias"]),
            softcap=float(values["logit_softcap"]),
            precise=values["prec"] == "f32",
            type_k=type_k,
            type_v=type_v,
            permute="".join(_list(values["permute"])),
        )
    except (KeyError, ValueError) as error:
        raise _not_understood(params, f"missing or unreadable: {error}") from error


def _bytes(kind: str) -> int:
    return 4 if kind == "f32" else 2


def whole_blocks(size: int, kind: str) -> int:
    """A head size rounded up to whole blocks of a ggml type (32 values if quantized, else 1)."""
    block = _BLOCK.get(kind, _BLOCK["q8_0"] if kind.startswith("q") else 1)
    return -(-size // block) * block


def _not_understood(params: str, why: str) -> CaseNotUnderstood:
    return CaseNotUnderstood(
        f"patchkit cannot build upstream's attention case {params}",
        why=why,
        hint="compare test_flash_attn_ext in tests/test-backend-ops.cpp with patchkit/gpu/emulated/cases.py",
    )


def _list(text: str) -> list[str]:
    return [part.strip() for part in text.strip("[]").split(",")]
