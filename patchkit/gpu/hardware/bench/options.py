"""The command line of llama-bench for a given build.

It is derived from the build's ``--help`` instead of its number, because a fork may be ahead or behind. From
the sources of the 14 builds in tests/upstream/corpus.toml: ``-fa`` takes 0 or 1 up to 9093, on or off from
9538; ``-mmp`` exists up to 10566, ``-lm`` from 10566 on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from patchkit.base.errors import ToolchainError

SWEEP_DEPTHS = (0, 1024, 4096, 16384, 65536)
"""The depths of ``bench run``: those of the published sweeps on gfx1151."""

_FLAG = re.compile(r"^\s+(-{1,2}[A-Za-z][\w-]*)(?:, (-{1,2}[A-Za-z][\w-]*))*", re.MULTILINE)
_FLASH = re.compile(r"--flash-attn\s+<([^>]*)>")


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """Options that differ between builds: ``flash`` for on and off, ``no_mmap`` as arguments."""

    flash: tuple[str, str]
    no_mmap: tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchPlan:
    """What to measure; lengths in tokens. ``device`` None: CPU only.

    The defaults (512 prompt and 128 generated tokens, depths up to 16384, batch 4096, micro-batch 2048, three
    repetitions) are a protocol that settled arguments about this GPU (docs/how-it-works/gpu.md names the
    source).
    """

    prompts: tuple[int, ...] = (512,)
    generated: tuple[int, ...] = (128,)
    depths: tuple[int, ...] = (0, 4096, 16384)
    batch: int = 4096
    micro_batch: int = 2048
    repetitions: int = 3
    cache_type: str = "f16"
    threads: int | None = None
    device: str | None = None

    @property
    def lengths(self) -> tuple[tuple[int, int, int], ...]:
        """Prompt, generated tokens and depth of each test, sorted."""
        kinds = [(prompt, 0) for prompt in self.prompts if prompt]
        kinds += [(0, generated) for generated in self.generated if generated]
        return tuple(sorted((*kind, depth) for kind in kinds for depth in self.depths))


def parse_help(text: str) -> BenchOptions:
    """Parse llama-bench's help. Raises BENCH_FAILED if it is of an unknown version."""
    flags = {flag for line in text.splitlines() for flag in _flags(line)}
    flash = _FLASH.search(text)
    missing = sorted({"-p", "-n", "-d", "-ub", "-ctk", "-r", "-dev", "-o"} - flags)
    if flash is None or missing or not flags & {"-lm", "-mmp"}:
        lacking = ", ".join([*missing, *(["-fa"] if flash is None else [])]) or "-lm or -mmp"
        raise ToolchainError(
            f"the help of llama-bench has no {lacking}",
            code="BENCH_FAILED",
            why="patchkit supports builds 6628 to 11549",
            hint="see: llama-bench --help",
        )
    words = flash[1].split("|")
    return BenchOptions(
        flash=("1", "0") if words[:2] == ["0", "1"] else ("on", "off"),
        no_mmap=("-lm", "none") if "-lm" in flags else ("-mmp", "0"),
    )


def bench_arguments(options: BenchOptions, plan: BenchPlan, model: str) -> list[str]:
    """The arguments of llama-bench."""
    where = ["-dev", plan.device, "-ngl", "99"] if plan.device is not None else ["-dev", "none", "-ngl", "0"]
    threads = ["-t", str(plan.threads)] if plan.threads is not None else []
    return [
        "-m", model,
        "-p", _list(plan.prompts), "-n", _list(plan.generated), "-d", _list(plan.depths),
        "-b", str(plan.batch), "-ub", str(plan.micro_batch),
        "-ctk", plan.cache_type, "-ctv", plan.cache_type,
        "-fa", options.flash[0], *options.no_mmap, *where, *threads,
        "-r", str(plan.repetitions), "-o", "jsonl",
    ]  # fmt: skip


def _flags(line: str) -> list[str]:
    found = _FLAG.match(line)
    return re.findall(r"-{1,2}[A-Za-z][\w-]*", found[0]) if found is not None else []


def _list(values: Sequence[int]) -> str:
    return ",".join(str(value) for value in values) or "0"  # llama-bench skips tests of 0 tokens
