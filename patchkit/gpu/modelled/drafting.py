"""Speculative decoding: a step drafts some tokens, one after the other, and verifies all in one batch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from patchkit.base.errors import UsageError
from patchkit.gpu.gguf import load_gguf_parts
from patchkit.gpu.modelled.shape import ModelShape, draft_shape_of_header, shape_of_file, shape_of_header

# With three drafts of the MTP layer of Qwen3.6 35B-A3B (0.88 with one, 0.82 with two, 0.64 with four):
# measured by GloballyUniquePlaceholder on nine short texts, llama.cpp PR 22673, 2026-05-05.
ACCEPTANCE = 0.71

MOST_DRAFTS = 64
"""Far more drafts per step than anyone uses: the more, the fewer of them are accepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafting:
    """How tokens are drafted: ``drafts`` per step, of which the share ``acceptance`` is accepted.

    ``model`` (GGUF or TOML) drafts them; None: the layers for drafts (MTP) of the model that verifies them,
    if it has any.
    """

    drafts: int
    acceptance: float = ACCEPTANCE
    model: Path | None = None

    def shape(self, verifying: Path | None) -> ModelShape | None:
        """What drafts a token; None: unknown. ``verifying``: the GGUF file of the model that verifies them.

        Raises:
            The errors of reading a shape file or the header of a model.
        """
        path = self.model or verifying
        if path is None:
            return None
        if path.suffix == ".toml":
            return shape_of_file(path)
        read = shape_of_header if self.model is not None else draft_shape_of_header
        return read(load_gguf_parts(path), path)


def make_drafting(drafts: int, draft_model: Path | None, acceptance: float | None) -> Drafting | None:
    """From the options of a command; None without drafts.

    Raises:
        OPTIONS_CONTRADICT: options for drafts, and no drafts.
    """
    if drafts:
        given = ACCEPTANCE if acceptance is None else acceptance
        return Drafting(drafts=drafts, acceptance=given, model=draft_model)
    if draft_model is not None or acceptance is not None:
        raise UsageError(
            "--draft-model and --acceptance require --drafts",
            code="OPTIONS_CONTRADICT",
            why="without a number of drafts, nothing is drafted",
            hint="add --drafts 3, for example",
        )
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftStep:
    """A step of speculative decoding at a depth: it drafts and verifies some tokens and makes one more.

    ``verifying_seconds`` are those of a batch of one token more than there are drafts, ``token_seconds``
    those of a token without drafts, ``draft_seconds`` those of drafting one token. The latter is None if it
    is not known what drafts; then drafting is not counted.
    """

    json_keys: ClassVar = (
        "depth drafts=drafting.drafts acceptance=drafting.acceptance drafting_seconds verifying_seconds "
        "pays_from tokens_per_second_if_all_are_accepted=rate tokens_per_second=expected_rate"
    )

    depth: int
    drafting: Drafting
    verifying_seconds: float
    token_seconds: float
    draft_seconds: float | None

    @property
    def drafting_seconds(self) -> float | None:
        """Of all drafts of a step, one after the other."""
        return None if self.draft_seconds is None else self.drafting.drafts * self.draft_seconds

    @property
    def seconds(self) -> float:
        """Of a step: drafting, as far as it is known, and verifying."""
        return self.verifying_seconds + (self.drafting_seconds or 0)

    @property
    def pays_from(self) -> float:
        """Tokens per step from which it is faster than without drafts; 1: no draft is accepted."""
        return self.seconds / self.token_seconds

    @property
    def rate(self) -> float:
        """Tokens per second if all drafts are accepted."""
        return (1 + self.drafting.drafts) / self.seconds

    @property
    def expected_rate(self) -> float:
        """Tokens per second with the acceptance of ``drafting``."""
        return (1 + self.drafting.acceptance * self.drafting.drafts) / self.seconds
