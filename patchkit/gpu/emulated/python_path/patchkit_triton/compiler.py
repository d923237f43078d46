"""The compiler that Triton requires of a backend. Triton's AMD backend compiles for the emulated GPU."""

from __future__ import annotations

from typing import Any

from triton.backends.compiler import BaseBackend, GPUTarget


class NoCompiler(BaseBackend):  # type: ignore[misc] # Triton is not installed where this is checked
    """Compiles for no target, so Triton's AMD backend remains the only compiler for AMD GPUs."""

    @staticmethod
    def supports_target(target: GPUTarget) -> bool:
        """False for each target."""
        del target
        return False

    def hash(self) -> str:
        """Never called, as there is no target."""
        raise NotImplementedError

    def parse_options(self, opts: Any) -> object:
        """Never called, as there is no target."""
        raise NotImplementedError

    def add_stages(self, *given: Any) -> None:
        """Never called, as there is no target."""
        raise NotImplementedError

    def load_dialects(self, ctx: Any) -> None:
        """Never called, as there is no target."""
        raise NotImplementedError

    def get_module_map(self) -> dict[str, Any]:
        """Never called, as there is no target."""
        raise NotImplementedError
