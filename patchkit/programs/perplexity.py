"""Upstream's llama-perplexity: the Kullback-Leibler divergence of a text's tokens from those of a base run.

Vocabulary: the *base* is a file of logits that one run saves and others are compared with. Divergences are in
nats per token, as the program prints them, with six digits after the point.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from patchkit.build.sides import BuiltSide
from patchkit.errors import Location
from patchkit.programs.run import OutputGarbled, Place, run_program

PROGRAM = "llama-perplexity"
_MEAN = re.compile(r"^Mean +KLD: +(\S+) ±", re.MULTILINE)
_WORST = re.compile(r"^Maximum KLD: +(\S+)$", re.MULTILINE)
_PERPLEXITY = re.compile(r"^Mean PPL\(Q\) +: +(\S+) ±", re.MULTILINE)
_BASE = re.compile(r"^Mean PPL\(base\) +: +(\S+) ±", re.MULTILINE)
# Contexts of twice the physical batch, so that attention looks back over its edge.
_CONTEXT, _UBATCH = 512, 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """What is read: ``chunks`` contexts of 512 tokens of ``text`` (-1: all of it)."""

    model: Path
    text: Path
    chunks: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
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
    run_program(name, argv, place=place, timeout_s=timeout_s)


def diverge(
    side: BuiltSide, text: Text, base: Path, *, device: str, name: str, timeout_s: float, place: Place
) -> Divergence:
    """Run with flash attention and compare with ``base``.

    Raises:
        OutputGarbled: it printed no divergence: the base is cut off, or the text is too short.
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
    ran = run_program(name, argv, place=place, timeout_s=timeout_s)
    return parse_divergence(ran.text(), where=str(ran.stdout))


def parse_divergence(text: str, *, where: str) -> Divergence:
    """The statistics that the program prints at its end. Raises OutputGarbled."""
    found = [pattern.search(text) for pattern in (_MEAN, _WORST, _PERPLEXITY, _BASE)]
    try:
        mean, worst, perplexity, base = (float(match[1]) for match in found if match is not None)
    except ValueError:
        raise OutputGarbled(
            f"{PROGRAM} printed no divergence",
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
        *("-c", str(_CONTEXT), "-b", str(2 * _CONTEXT), "-ub", str(_UBATCH)),
        *offload,
    ]
