"""The logits of a model on both sides, by our driver and by upstream's llama-perplexity."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import BaseModel, ConfigDict, model_serializer

from patchkit.base.errors import Location, ToolchainError
from patchkit.base.files import disk_errors
from patchkit.base.upstreams import llama_cpp
from patchkit.gpu.hardware.program import Place, Ran, run_program
from patchkit.toolchain.sides import BuiltSide

_UBATCH = 256
_PROMPT = 600  # more than two physical batches, and no multiple of one
_PAIRED = 300  # tokens of each of two sequences: more than one physical batch together
_STEPS = 8
_STRIDE = 37  # every which row of the prompt is kept; prime to every tile
_THREADS = 1  # how work is split must not depend on the machine, and small models gain nothing from more
_COMPARE_S = 600.0
_LINE = re.compile(
    r"rows=(?P<rows>\d+) vocabulary=(?P<vocabulary>\d+) nmse=(?P<nmse>\S+) worst=(?P<worst>\S+) "
    r"at=(?P<worst_row>\d+) kl=(?P<kl>\S+) kl_worst=(?P<kl_worst>\S+) same_top=(?P<same_top>\d+) "
    r"finite=(?P<is_finite>[01])\n"
)


class _Model(BaseModel):
    """Base of what is parsed from a program's output, and of what is written and read back with evidence."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    @model_serializer
    def _every_field(self) -> dict[str, object]:
        return dict(self)  # also those that were left as usual


class Scene(_Model):
    """``tokens`` of the prompt and ``steps`` after it, per sequence; ``flash`` is flash attention.

    Before the prompt stand ``depth`` tokens whose keys and values are random numbers that nobody computed.
    """

    name: str
    tokens: int
    sequences: int = 1
    is_unified: bool = False
    type_k: str = "f16"
    type_v: str = "f16"
    flash: bool = True
    ubatch: int = _UBATCH
    steps: int = _STEPS
    stride: int = _STRIDE
    depth: int = 0

    def words(self, device: str) -> list[str]:
        """The arguments of the driver."""
        return [
            f"device={device}",
            f"flash={self.flash:d}",
            f"type_k={self.type_k}",
            f"type_v={self.type_v}",
            f"tokens={self.tokens}",
            f"steps={self.steps}",
            f"ubatch={self.ubatch}",
            f"sequences={self.sequences}",
            f"unified={self.is_unified:d}",
            f"stride={self.stride}",
            f"threads={_THREADS}",
            f"depth={self.depth}",
        ]

    def as_reference(self) -> Scene:
        """The same by the other path: without flash attention, where the KV types allow it.

        llama.cpp refuses a quantized V cache without flash attention.
        """
        return self if self.type_v.startswith("q") else self.model_copy(update={"flash": False})


class Distance(_Model):
    """How far two tables of logits are apart; ``same_top`` of ``rows`` have the same likeliest token."""

    rows: int
    vocabulary: int
    nmse: float
    worst: float
    worst_row: int
    kl: float
    kl_worst: float
    same_top: int
    is_finite: bool


def scenes() -> tuple[Scene, ...]:
    """A prompt longer than a physical batch, and two interleaved sequences; f16 and q8_0 KV."""
    quantized = {"type_k": "q8_0", "type_v": "q8_0"}
    long = Scene(name="long-f16", tokens=_PROMPT)
    pair = Scene(name="two-f16", tokens=_PAIRED, sequences=2)
    return (
        long,
        long.model_copy(update={"name": "long-q8_0", **quantized}),
        pair,
        pair.model_copy(update={"name": "two-unified-f16", "is_unified": True}),
        pair.model_copy(update={"name": "two-q8_0", **quantized}),
    )


def run_logits(
    driver: Path,
    side: BuiltSide,
    model: Path,
    scene: Scene,
    *,
    device: str,
    name: str,
    timeout_s: float,
    place: Place,
) -> tuple[Ran, Path]:
    """Compute the logits of a scene; they are in the returned file.

    Raises:
        The errors of :func:`run_program`; PROGRAM_FAILED when the model or the device is not there.
    """
    out = place.folder / f"{name}.logits"
    with disk_errors(out, "removing the logits of an earlier run"):
        out.unlink(missing_ok=True)
    argv = [str(driver), "run", str(side.folder), str(model), str(out), *scene.words(device)]
    ran = run_program(name, argv, place=place, env=side.environment, timeout_s=timeout_s, kept=side.kept)
    return ran, out


def compare_logits(driver: Path, reference: Path, other: Path, *, name: str, place: Place) -> Distance:
    """The distance of ``other`` from ``reference``.

    Raises:
        PROGRAM_FAILED: a file is cut off or of another scene.
        PROGRAM_OUTPUT_GARBLED: the driver printed something else.
    """
    argv = [str(driver), "compare", str(reference), str(other)]
    ran = run_program(name, argv, place=replace(place, elsewhere=None), timeout_s=_COMPARE_S)
    return parse_distance(ran.text(), where=str(ran.stdout), argv=argv)


def parse_distance(text: str, *, where: str, argv: Sequence[str] = ()) -> Distance:
    """The one line of ``logits compare``. Raises PROGRAM_OUTPUT_GARBLED."""
    match = _LINE.fullmatch(text)
    if match is None:
        raise ToolchainError(
            "the distance of two sets of logits cannot be read",
            code="PROGRAM_OUTPUT_GARBLED",
            where=Location(path=where),
            why=f"it begins: {text[:160]!r}",
            hint=f"the command was: {' '.join(argv)}" if argv else None,
        )
    return Distance.model_validate_strings(match.groupdict())


PROGRAM = llama_cpp().programs.perplexity
_MEAN = re.compile(r"^Mean +KLD: +(\S+) ±", re.MULTILINE)
_WORST = re.compile(r"^Maximum KLD: +(\S+)$", re.MULTILINE)
_PERPLEXITY = re.compile(r"^Mean PPL\(Q\) +: +(\S+) ±", re.MULTILINE)
_BASE = re.compile(r"^Mean PPL\(base\) +: +(\S+) ±", re.MULTILINE)
# Contexts of twice the physical batch, so that attention looks back over its edge.
_CONTEXT, _PERPLEXITY_UBATCH = 512, 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """What is read: ``chunks`` contexts of 512 tokens of ``text`` (-1: all of it)."""

    model: Path
    text: Path
    chunks: int = -1


class Divergence(_Model):
    """Of one run from the base: mean and largest divergence in nats, and both perplexities."""

    mean: float
    worst: float
    perplexity: float
    base_perplexity: float


def save_base(
    side: BuiltSide, text: Text, base: Path, *, device: str, name: str, timeout_s: float, place: Place
) -> None:
    """Run and save the logits into ``base``, without flash attention. Raises as :func:`run_program`."""
    argv = [*_arguments(side, text, device), "-fa", "off", "--save-all-logits", str(base)]
    run_program(name, argv, place=place, env=side.environment, timeout_s=timeout_s)


def diverge(
    side: BuiltSide, text: Text, base: Path, *, device: str, name: str, timeout_s: float, place: Place
) -> Divergence:
    """Run with flash attention and compare with ``base``.

    Raises:
        PROGRAM_OUTPUT_GARBLED: it printed no divergence: the base is cut off, or the text is too short.
        The errors of :func:`run_program`.
    """
    argv = [
        *_arguments(side, text, device),
        "-fa",
        "on",
        "--kl-divergence",
        "--kl-divergence-base",
        str(base),
    ]
    ran = run_program(name, argv, place=place, env=side.environment, timeout_s=timeout_s)
    return parse_divergence(ran.text(), where=str(ran.stdout))


def parse_divergence(text: str, *, where: str) -> Divergence:
    """The statistics that the program prints at its end. Raises PROGRAM_OUTPUT_GARBLED."""
    found = [pattern.search(text) for pattern in (_MEAN, _WORST, _PERPLEXITY, _BASE)]
    try:
        mean, worst, perplexity, base = (float(match[1]) for match in found if match is not None)
    except ValueError:
        raise ToolchainError(
            f"{PROGRAM} printed no divergence",
            code="PROGRAM_OUTPUT_GARBLED",
            where=Location(path=where),
            why=f"it ends: {text[-160:]!r}",
            hint="a text needs 1024 tokens at least; what it said to stderr lies beside that file",
        ) from None
    return Divergence(mean=mean, worst=worst, perplexity=perplexity, base_perplexity=base)


def _arguments(side: BuiltSide, text: Text, device: str) -> list[str]:
    offload = ["-dev", "none"] if device == "CPU" else ["-dev", device, "-ngl", "999"]
    return [
        str(side.program(PROGRAM)),
        *("-m", str(text.model), "-f", str(text.text), "--chunks", str(text.chunks)),
        *("-c", str(_CONTEXT), "-b", str(2 * _CONTEXT), "-ub", str(_PERPLEXITY_UBATCH)),
        *offload,
    ]
