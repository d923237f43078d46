"""Guards, generated from data so that nobody types one wrong.

Vocabulary: the *macros* of a guard say which build it is about (HIP, rocWMMA on); its *targets* are
the exact gfx ids it is live for. The *device condition* holds in the device pass of a target. The
*region condition* holds there and in every host pass, where the *host expression* decides at run
time by compute capability: one binary for several GPUs has one host pass. In the device pass of
every other GPU both conditions are false, so its code is upstream's, token for token.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Target:
    """One GPU: ``arch`` (gfx1151), its device ``macro`` and upstream's host compute capability.

    ``cc`` is the number without the AMD offset, e.g. 0x1151 (ggml_cuda_parse_id of build 6900).
    """

    arch: str
    macro: str
    cc: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """Host and device conditions under which a patch's code is live."""

    macros: tuple[str, ...]
    targets: tuple[Target, ...]

    @property
    def device(self) -> str:
        """Preprocessor condition: the device pass of a target."""
        archs = " || ".join(f"defined({target.macro})" for target in self.targets)
        return f"{self._macros()} && {archs if len(self.targets) == 1 else f'({archs})'}"

    @property
    def region(self) -> str:
        """Preprocessor condition: the device pass of a target, or any host pass."""
        archs = " || ".join(f"defined({target.macro})" for target in self.targets)
        return f"{self._macros()} && (!defined(__HIP_DEVICE_COMPILE__) || {archs})"

    def host(self, cc: str = "cc") -> str:
        """C++ expression over a compute capability ``cc``: the GPU at hand is a target."""
        tests = [f"{cc} == GGML_CUDA_CC_OFFSET_AMD + 0x{target.cc:x}" for target in self.targets]
        return f"({' || '.join(tests)})"

    def _macros(self) -> str:
        return " && ".join(f"defined({macro})" for macro in self.macros)
