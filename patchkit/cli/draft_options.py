"""Speculative decoding in ``estimate`` and ``model``: its options, and the table of its steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from patchkit.base.text import counted
from patchkit.cli.settings import FOLDER, packed
from patchkit.gpu.modelled.drafting import ACCEPTANCE, MOST_DRAFTS, DraftStep, make_drafting

draft_options = packed(
    "drafting",
    make_drafting,
    click.option(
        "--drafts",
        type=click.IntRange(min=0, max=MOST_DRAFTS),
        default=0,
        metavar="N",
        help="Also the cost of a step of speculative decoding that drafts and verifies N tokens.",
    ),
    click.option(
        "--draft-model",
        type=FOLDER,
        metavar="FILE",
        help="GGUF model or shape that drafts (default: the model's own layers for drafts, MTP).",
    ),
    click.option(
        "--acceptance",
        type=click.FloatRange(min=0, max=1),
        metavar="SHARE",
        help=f"Share of the drafts that are accepted. llama-server prints it (default: {ACCEPTANCE}).",
    ),
)


def draft_lines(steps: Sequence[tuple[str, DraftStep]], label: str = "") -> Iterator[str]:
    """Yield the table of steps at several depths; each has a name, such as a side, in the column ``label``.

    The steps are of one model with the same drafts.
    """
    if not steps:
        return
    first = steps[0][1]
    width = max(map(len, (label, *(name for name, _ in steps))))
    lead = f" {label:<{width}}" if width else ""
    yield ""
    drafts = counted(first.drafting.drafts, "draft")
    yield f"Speculative decoding: a step verifies {drafts} and makes one more token"
    yield f"{'depth':<10}{lead} {'draft ms':>9} {'verify ms':>9} {'max t/s':>9} {'expected':>9}  pays from"
    for name, step in steps:
        drafting = "-" if step.drafting_seconds is None else f"{step.drafting_seconds * 1e3:.2f}"
        named = f" {name:<{width}}" if width else ""
        yield (
            f"{step.depth:<10}{named} {drafting:>9} {step.verifying_seconds * 1e3:>9.2f} {step.rate:>9.2f} "
            f"{step.expected_rate:>9.2f}  {step.pays_from:.2f} tokens per step"
        )
    share = f"{100 * first.drafting.acceptance:.0f} %"
    yield f"max t/s: if all drafts are accepted; expected: if {share} are (--acceptance)."
    yield "pays from: tokens per step (1 plus the accepted drafts) from which drafting is faster than none."
    if first.draft_seconds is None:
        yield "Drafting is not counted: the model has no layers for it. --draft-model FILE adds it."
