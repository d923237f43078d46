"""The part of the gate ``logits`` that reads a text of the user's with a model of the user's.

Vocabulary: as in :mod:`patchkit.programs.perplexity`; the base is the baseline on the CPU, without flash
attention.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from patchkit.errors import GateError, PatchkitError, ToolchainError
from patchkit.gates.hardware import Machine, Sides
from patchkit.gates.logits_errors import LogitsBroken
from patchkit.programs.perplexity import Divergence, Text, diverge, save_base
from patchkit.programs.run import Place

# Ours, as in patchkit.gates.logits; llama-perplexity keeps the base's logits in 16 bits.
_FACTOR, _FLOOR = 3.0, 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPair:
    """How far each side's reading of the text is from the base."""

    before: Divergence
    after: Divergence

    @property
    def line(self) -> str:
        """For a person."""
        return (
            f"text: KL {self.after.mean:.6f} nats per token (baseline {self.before.mean:.6f}), perplexity "
            f"{self.after.perplexity:.4f} (CPU {self.after.base_perplexity:.4f})"
        )

    def as_json(self) -> dict[str, object]:
        """Plain data."""
        return {"baseline": asdict(self.before), "candidate": asdict(self.after), "floor": _FLOOR}


def run_text(machine: Machine, sides: Sides, text: Text, *, timeout_s: float, place: Place) -> TextPair:
    """Three runs: the base, the baseline, the candidate.

    Raises:
        LogitsBroken: only the candidate's run ended badly.
        The errors of :func:`patchkit.programs.run.run_program` for the others.
    """
    base = place.folder / "text.base"
    save_base(sides.before, text, base, device="CPU", name="text-reference", timeout_s=timeout_s, place=place)
    before = diverge(
        sides.before,
        text,
        base,
        device=machine.device,
        name="text-baseline",
        timeout_s=timeout_s,
        place=place,
    )
    try:
        after = diverge(
            sides.after,
            text,
            base,
            device=machine.device,
            name="text-candidate",
            timeout_s=timeout_s,
            place=place,
        )
    except ToolchainError as error:
        raise LogitsBroken(
            f"only on the candidate, reading the text: {error.message}",
            where=error.where,
            why=error.why,
            hint=error.hint,
        ) from error
    finally:
        base.unlink(missing_ok=True)  # a vocabulary times the tokens of the text: gigabytes
    return TextPair(before=before, after=after)


def judge_text(pair: TextPair) -> Iterator[PatchkitError]:
    """The divergence may be three times the baseline's, at least the floor."""
    allowed = max(_FACTOR * pair.before.mean, _FLOOR)
    if not pair.after.mean <= allowed:
        yield GateError(
            f"the candidate reads the text {pair.after.mean:.6f} nats per token from the CPU",
            code="LOGITS_FAR",
            why=(
                f"allowed are {allowed:.6f}; the baseline has {pair.before.mean:.6f}; perplexity "
                f"{pair.after.perplexity:.4f}, the CPU's is {pair.after.base_perplexity:.4f}"
            ),
            hint="patchkit verify --gate backend-ops shows which shapes are wrong",
        )
