"""Judges how much memory the GPU may use, and how model files are loaded into it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from patchkit.gpu.hardware.host.facts import Gpu, HostFacts
from patchkit.gpu.hardware.host.finding import Finding, advise
from patchkit.gpu.hardware.host.knowledge import Knowledge

_PAGE = 4096
_GIB = 1024**3


def judge_memory(facts: HostFacts, known: Knowledge) -> Iterator[Finding]:
    """Compare each APU's memory limit with RAM. GPUs with their own memory are not judged."""
    for gpu in facts.gpus:
        name = facts.name_of("gpu memory", gpu)
        if gpu.arch not in known.memory.archs:
            if gpu.vram is not None:
                yield Finding(name=name, state="ok", detail=f"{_gib(gpu.vram)} of VRAM")
            continue
        if gpu.gtt is None or gpu.vram is None or facts.memory is None:
            yield Finding(name=name, state="unknown", detail="the driver does not show the limits")
            continue
        yield _judge(name, gpu, gpu.gtt, gpu.vram, facts, known, ram=facts.memory)


def shared_memory(gpu: Gpu, facts: HostFacts, known: Knowledge) -> int:
    """Bytes of RAM that an integrated GPU may use; 0 if the driver does not show it."""
    return 0 if gpu.gtt is None else _limited(gpu.gtt, facts, known)


def _limited(gtt: int, facts: HostFacts, known: Knowledge) -> int:
    pages = facts.parameters.get(known.memory.page_limit)
    return gtt if pages is None else min(gtt, pages * _PAGE)


def _judge(
    name: str, gpu: Gpu, gtt: int, vram: int, facts: HostFacts, known: Knowledge, *, ram: int
) -> Finding:
    gtt = _limited(gtt, facts, known)
    shown = "".join(f", {key}={value}" for key, value in facts.parameters.items())
    total = ram + vram
    detail = (
        f"{gpu.arch} may use {_gib(max(gtt, vram))} (GTT {_gib(gtt)}, reserved in the BIOS {_gib(vram)}) of "
        f"{_gib(total)}{shown}"
    )
    if max(gtt, vram) < known.memory.least_share * total:
        return advise(name, "costs speed", detail, known.memory.small)
    if gtt > known.memory.most_share * total:
        return advise(name, "unknown", detail, known.memory.above_ram)
    return Finding(name=name, state="ok", detail=detail)


def _gib(number: int) -> str:
    return f"{number / _GIB:.1f} GiB"


def judge_loading(facts: HostFacts, known: Knowledge) -> Iterator[Finding]:
    """Check the environment variables that make llama.cpp map model files into memory."""
    loading = known.loading
    if not any(gpu.arch in loading.archs for gpu in facts.gpus):
        return
    on, off = _set(facts.environ, loading.on), _set(facts.environ, loading.off)
    if on is not None:
        yield advise("model loading", "broken", f"{on} makes llama.cpp use mmap", loading.mapped)
    elif off is not None:
        yield Finding(name="model loading", state="ok", detail=off)
    else:
        detail = "depends on llama.cpp's build and options: mmap must be off"
        yield advise("model loading", "unknown", detail, loading.by_default)


def _set(environ: Mapping[str, str], values: Mapping[str, tuple[str, ...]]) -> str | None:
    for name, known in values.items():
        if environ.get(name, "").lower() in known:
            return f"{name}={environ[name]}"
    return None
