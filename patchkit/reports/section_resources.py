"""Tables of the resources gate: what the compiler counted for each kernel variant, on both sides.

Units: registers per lane, spills in registers, scratch in bytes per lane, LDS in bytes per block, waves per
SIMD.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from patchkit.reports.document import Node
from patchkit.reports.tables import Order, Row, Table, columns, was_is

STATES = ("worse", "mixed", "pruned", "gone", "better", "new", "same", "trap")
"""What may have happened to a variant, in the order a reader wants them."""
_QUIET = ("same", "trap")
_FIGURES = (
    ("VGPRs #", "vgprs"),
    ("spilled #", "vgpr_spills"),
    ("waves #", "waves"),
    ("in whole blocks #", "resident_waves"),
    ("LDS #", "lds_bytes"),
    ("threads #", "threads"),
    ("scratch #", "scratch_bytes"),
    ("SGPRs #", "sgprs"),
    ("model says #", "model_waves"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kernel:
    """One variant; a side is None where it does not exist or can only trap."""

    variant: str
    arch: str
    unit: str
    state: str
    before: dict[str, int] | None
    after: dict[str, int] | None

    def change(self, name: str) -> int:
        """How much more than before; a new kernel is compared with nothing."""
        return self.after[name] - self.before[name] if self.before and self.after else 0

    def value(self, name: str) -> int:
        """The figure now, else as it was."""
        return (self.after or self.before or {}).get(name, 0)

    def row(self) -> Row:
        """As texts."""
        figures = [self._cell(name) for _, name in _FIGURES]
        return Row(
            cells=(self.state, self.variant, self.arch, *figures, self.unit.rpartition("/")[2]),
            state=self.state,
        )

    def _cell(self, name: str) -> str:
        if self.before and self.after:
            return was_is(self.before[name], self.after[name])
        if self.after:
            return str(self.after[name])
        return f"{self.before[name]} -> none" if self.before else "-"


def resources_tables(evidence: Node) -> Iterator[Table]:
    """Changed variants with their orders, then the others."""
    kernels = [_kernel(node) for node in evidence.get("rows").items()]
    changed = [one for one in kernels if one.state not in _QUIET]
    quiet = [one for one in kernels if one.state in _QUIET]
    yield _table("kernels", "Kernel variants that changed, baseline -> candidate", changed)
    if quiet:
        yield _table(
            "kernels-unchanged", "Kernel variants that did not change, and traps", quiet, is_detail=True
        )


def _table(name: str, caption: str, kernels: Sequence[_Kernel], *, is_detail: bool = False) -> Table:
    ordered = sorted(kernels, key=_importance)
    return Table(
        name=name,
        caption=caption,
        columns=columns("state", "variant", "GPU", *(title for title, _ in _FIGURES), "unit"),
        rows=tuple(one.row() for one in ordered),
        note=(
            "Registers per lane, LDS in bytes per block, scratch in bytes per lane, waves per SIMD: counted "
            "by the compiler; 'in whole blocks' and 'model says' by patchkit. A new variant was a trap."
        ),
        orders=() if is_detail else tuple(_orders(ordered)),
        is_detail=is_detail,
    )


def _importance(one: _Kernel) -> tuple[int, int, int, str]:
    spills, waves = one.change("vgpr_spills"), one.change("waves")
    size = abs(spills) or one.value("vgpr_spills")
    return STATES.index(one.state), -size, -abs(waves), one.variant


def _orders(kernels: Sequence[_Kernel]) -> Iterator[Order]:
    keys: tuple[tuple[str, Callable[[_Kernel], tuple[object, ...]] | None], ...] = (
        ("what matters most", None),
        ("name of the variant", lambda one: (one.variant, one.arch)),
        ("spilled registers", lambda one: (-one.value("vgpr_spills"), one.variant)),
        ("VGPRs", lambda one: (-one.value("vgprs"), one.variant)),
        ("fewest waves", lambda one: (one.value("waves"), one.variant)),
    )
    numbers = range(len(kernels))
    for label, key in keys:
        rows = numbers if key is None else sorted(numbers, key=lambda at, key=key: key(kernels[at]))  # type: ignore[misc]
        yield Order(label=label, rows=tuple(rows))


def _kernel(node: Node) -> _Kernel:
    return _Kernel(
        variant=node.get("variant").text(),
        arch=node.get("arch").text(),
        unit=node.get("unit").text(),
        state=node.get("state").word(*STATES),
        before=_figures(node.find("before")),
        after=_figures(node.find("after")),
    )


def _figures(node: Node | None) -> dict[str, int] | None:
    if node is None or node.get("is_trap").flag():
        return None
    return {name: node.get(name).integer() for _, name in _FIGURES}
