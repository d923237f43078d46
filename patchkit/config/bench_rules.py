"""The ``[bench]`` table of patch.toml: what a patch may cost, and what it must bring, on the GPU it is for.

Without the table a patch promises nothing, and no test may get slower. A figure of a patch is a claim of
somebody: it names who measured it, and how.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field

from patchkit.config.toml import TomlModel


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedGain:
    """Tests whose name fits the shell pattern ``test`` must be faster by ``gain``, a fraction, on ``archs``.

    ``head_sizes`` are those of the models it was measured with: it is asked of no other model.
    """

    test: str
    gain: float
    archs: tuple[str, ...]
    head_sizes: tuple[int, ...]
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRules:
    """``allowed_loss`` is the fraction that any test may lose.

    ``control`` are patterns of tests that the patch does not touch: when one of them gains, the machine
    changed, and no gain is believed.
    """

    allowed_loss: float = 0.0
    control: tuple[str, ...] = ()
    expected: tuple[ExpectedGain, ...] = ()
    why: str = ""


class _ExpectedGain(TomlModel):
    test: str = Field(min_length=1)
    gain: float = Field(gt=0, lt=10)
    archs: list[str] = Field(min_length=1)
    head_sizes: list[int] = Field(default_factory=list)
    source: str = Field(min_length=1)


class BenchRulesModel(TomlModel):
    """What the table must be."""

    allowed_loss: float = Field(default=0.0, ge=0, lt=0.5)
    control: list[str] = Field(default_factory=list)
    expected: list[_ExpectedGain] = Field(default_factory=list)
    why: str = Field(min_length=1)

    def build(self) -> BenchRules:
        """The table as data."""
        return BenchRules(
            allowed_loss=self.allowed_loss,
            control=tuple(self.control),
            expected=tuple(
                ExpectedGain(
                    test=row.test,
                    gain=row.gain,
                    archs=tuple(row.archs),
                    head_sizes=tuple(row.head_sizes),
                    source=row.source,
                )
                for row in self.expected
            ),
            why=self.why.strip(),
        )
