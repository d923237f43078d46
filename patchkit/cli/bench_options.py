"""Options of the commands that run llama-bench: ``bench run`` and ``pick``."""

from __future__ import annotations

from typing import Any

import click

from patchkit.cli.request import DEVICE
from patchkit.cli.settings import options
from patchkit.gpu.hardware.bench.options import BenchPlan

NUMBER = click.IntRange(min=1)

# The defaults are llama-bench's.
batch_options = options(
    click.option(
        "--batch",
        type=NUMBER,
        default=2048,
        show_default=True,
        metavar="N",
        help="Batch size (llama-bench -b).",
    ),
    click.option(
        "--micro-batch",
        type=NUMBER,
        default=512,
        show_default=True,
        metavar="N",
        help="Micro-batch size (llama-bench -ub).",
    ),
)
threads_option = click.option(
    "--threads", type=NUMBER, metavar="N", help="CPU threads (default: llama-bench's)."
)
backend_option = click.option(
    "--backend", type=DEVICE, help="Backend to measure (default: hip, if this machine has the GPU)."
)
timeout_option = click.option(
    "--timeout",
    type=NUMBER,
    default=60,
    show_default=True,
    metavar="MINUTES",
    help="Time limit for one call of llama-bench.",
)


def make_plan(**values: Any) -> BenchPlan:
    """A plan from the values of its options, which have the names of its fields."""
    return BenchPlan(**values)
