"""Logits of a model on both sides, computed by our driver and by upstream's llama-perplexity."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_serializer

from patchkit.base.errors import Location, ToolchainError
from patchkit.base.files import disk_errors
from patchkit.base.upstreams import llama_cpp
from patchkit.gpu.hardware.program import ProgramRun, RunContext, run_program
from patchkit.toolchain.sides import BuiltSide

_UBATCH = 256
_PROMPT = 600  # more than two physical batches, and not a multiple of one
_PAIRED = 300  # tokens of each of two sequences, together more than one physical batch
_STEPS = 8
_STRIDE = 37  # every 37th row of the prompt is kept; coprime to every tile size
_THREADS = 1  # results must not depend on the machine's cores, and small models do not benefit from more
_COMPARE_S = 600.0
_LINE = re.compile(
    r"rows=(?P<rows>\d+) vocabulary=(?P<vocabulary>\d+) nmse=(?P<nmse>\S+) worst=(?P<worst>\S+) "
    r"at=(?P<worst_row>\d+) kl=(?P<kl>\S+) kl_worst=(?P<kl_worst>\S+) same_top=(?P<same_top>\d+) "
    r"finite=(?P<is_finite>[01]) equal=(?P<equal>\d+)\n"
)
_DRAFTED = re.compile(r"single=(?P<single>[\d,]+) drafted=(?P<drafted>[\d,]+)\n")
_WIDTH = re.compile(r"width=(?P<width>\d+) (?P<rest>.*\n)")


class _Model(BaseModel):
    """Base of models parsed from a program's output, or stored with evidence."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    @model_serializer
    def _every_field(self) -> dict[str, object]:
        return dict(self)  # including fields with default values


class Scene(_Model):
    """``tokens`` of prompt and ``steps`` after it, per sequence; ``flash``: with flash attention.

    The prompt is preceded by ``depth`` tokens whose K and V are random numbers. With ``widths`` (for a single
    sequence), the steps are computed again for each width, in batches of so many tokens. With ``draft``,
    tokens are also generated greedily, one at a time and with so many proposed tokens per batch.
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
    widths: Annotated[tuple[int, ...], Field(strict=False)] = ()
    draft: int = 0

    def words(self, device: str) -> list[str]:
        """The driver's arguments."""
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
            *([self.width_word] if self.widths else []),
            *([f"draft={self.draft}"] if self.draft else []),
        ]

    @property
    def width_word(self) -> str:
        """The driver's argument for ``widths``."""
        return f"widths={','.join(map(str, self.widths))}"

    def as_reference(self) -> Scene:
        """The scene without flash attention, if the KV types allow it, as a reference.

        llama.cpp rejects a quantized V cache without flash attention.
        """
        return self if self.type_v.startswith("q") else self.model_copy(update={"flash": False})


class Distance(_Model):
    """Difference of two tables of logits.

    ``same_top`` of ``rows`` have the same most likely token, ``equal`` of them are bit-identical (None:
    evidence of an earlier version).
    """

    rows: int
    vocabulary: int
    nmse: float
    worst: float
    worst_row: int
    kl: float
    kl_worst: float
    same_top: int
    is_finite: bool
    equal: int | None = None


def scenes() -> tuple[Scene, ...]:
    """A prompt longer than a physical batch, and two interleaved sequences; f16 and q8_0 KV cache."""
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
    place: RunContext,
) -> tuple[ProgramRun, Path]:
    """Compute the logits of a scene and write them to the returned file.

    Raises:
        The errors of :func:`run_program`; PROGRAM_FAILED if the model or the device does not exist.
    """
    out = place.folder / f"{name}.logits"
    with disk_errors(out, "removing the logits of an earlier run"):
        out.unlink(missing_ok=True)
    argv = [str(driver), "run", str(side.folder), str(model), str(out), *scene.words(device)]
    ran = run_program(name, argv, place=place, env=side.environment, timeout_s=timeout_s, kept=side.kept)
    return ran, out


def parse_drafted(text: str, *, where: str) -> tuple[int, int]:
    """Of a run with a draft: the tokens, and how many are as without one before the first that is not.

    Raises PROGRAM_FAILED.
    """
    match = _DRAFTED.fullmatch(text)
    if match is None:
        raise ToolchainError(
            "cannot parse the tokens of a run with a draft",
            code="PROGRAM_FAILED",
            where=Location(path=where),
            why=f"it begins with: {text[:160]!r}",
        )
    single, drafted = (match[name].split(",") for name in ("single", "drafted"))
    same = [one == other for one, other in zip(single, drafted, strict=False)]
    return len(single), same.index(False) if False in same else len(same)


def compare_logits(driver: Path, reference: Path, other: Path, *, name: str, place: RunContext) -> Distance:
    """The distance of ``other`` from ``reference``.

    Raises:
        PROGRAM_FAILED: a file is truncated or of another scene.
        PROGRAM_FAILED: the driver's output has another form.
    """
    argv = [str(driver), "compare", str(reference), str(other)]
    ran = run_program(name, argv, place=replace(place, elsewhere=None), timeout_s=_COMPARE_S)
    return parse_distance(ran.text(), where=str(ran.stdout), argv=argv)


def parse_distance(text: str, *, where: str, argv: Sequence[str] = ()) -> Distance:
    """Parse the output line of ``logits compare``. Raises PROGRAM_FAILED."""
    match = _LINE.fullmatch(text)
    if match is None:
        raise ToolchainError(
            "cannot parse the comparison of two sets of logits",
            code="PROGRAM_FAILED",
            where=Location(path=where),
            why=f"it begins with: {text[:160]!r}",
            hint=f"the command was: {' '.join(argv)}" if argv else None,
        )
    return Distance.model_validate_strings(match.groupdict())


def compare_widths(
    driver: Path, logits: Path, scene: Scene, *, name: str, place: RunContext
) -> dict[int, Distance]:
    """For each width of the scene, the distance of its rows from those of batches of one token.

    Raises:
        PROGRAM_FAILED: the file is truncated or of another scene, or the driver's output has another form.
    """
    argv = [str(driver), "spread", str(logits), f"steps={scene.steps}", scene.width_word]
    ran = run_program(name, argv, place=replace(place, elsewhere=None), timeout_s=_COMPARE_S)
    found = {}
    for line in ran.text().splitlines(keepends=True):
        match = _WIDTH.fullmatch(line)
        rest = line if match is None else match["rest"]
        distance = parse_distance(rest, where=str(ran.stdout), argv=argv)
        if match is not None:
            found[int(match["width"])] = distance
    if tuple(found) != scene.widths:
        parse_distance("", where=str(ran.stdout), argv=argv)
    return found


PROGRAM = llama_cpp().programs.perplexity
_MEAN = re.compile(r"^Mean +KLD: +(\S+) ±", re.MULTILINE)
_WORST = re.compile(r"^Maximum KLD: +(\S+)$", re.MULTILINE)
_PERPLEXITY = re.compile(r"^Mean PPL\(Q\) +: +(\S+) ±", re.MULTILINE)
_BASE = re.compile(r"^Mean PPL\(base\) +: +(\S+) ±", re.MULTILINE)
# Contexts of twice the physical batch, so that attention spans two batches.
_CONTEXT, _PERPLEXITY_UBATCH = 512, 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Input of llama-perplexity: ``chunks`` contexts of 512 tokens from ``text`` (-1: all of it)."""

    model: Path
    text: Path
    chunks: int = -1


class Divergence(_Model):
    """KL divergence of a run from the base: mean and maximum in nats, and both perplexities."""

    mean: float
    worst: float
    perplexity: float
    base_perplexity: float


def save_base(
    side: BuiltSide, text: Text, base: Path, *, device: str, name: str, timeout_s: float, place: RunContext
) -> None:
    """Run without flash attention and save the logits to ``base``. Raises as :func:`run_program`."""
    argv = [*_arguments(side, text, device), "-fa", "off", "--save-all-logits", str(base)]
    run_program(name, argv, place=place, env=side.environment, timeout_s=timeout_s)


def diverge(
    side: BuiltSide, text: Text, base: Path, *, device: str, name: str, timeout_s: float, place: RunContext
) -> Divergence:
    """Run with flash attention and compare with ``base``.

    Raises:
        PROGRAM_FAILED: it printed no KL divergence; the base is truncated, or the text is too short.
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
    """Parse the statistics that the program prints at its end. Raises PROGRAM_FAILED."""
    found = [pattern.search(text) for pattern in (_MEAN, _WORST, _PERPLEXITY, _BASE)]
    try:
        mean, worst, perplexity, base = (float(match[1]) for match in found if match is not None)
    except ValueError:
        raise ToolchainError(
            f"{PROGRAM} printed no KL divergence",
            code="PROGRAM_FAILED",
            where=Location(path=where),
            why=f"it ends with: {text[-160:]!r}",
            hint="the text needs at least 1024 tokens; its stderr is next to that file",
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
