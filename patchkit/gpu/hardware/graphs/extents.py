"""The extents of a graph's tensors as expressions, as far as they follow from the description."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from patchkit.gpu.hardware.graphs.description import Extent, Graph, Tensor

Extents = tuple[Extent, Extent, Extent, Extent]


def extents_of(graph: Graph) -> dict[str, Extents]:
    """The extents of each tensor; a node whose extents are not known here is absent.

    Equal expressions mean equal extents also when dimensions change; equal numbers may not.
    """
    known: dict[str, Extents] = {}
    for one in graph.tensors:
        of = [known.get(name) for name in one.of if name != "-"]
        found = four(one.ne) if one.leaf is not None or one.ne else _of_node(one, of)
        if found is not None:
            known[one.name] = found
    return known


def four(ne: tuple[Extent, ...]) -> Extents:
    """The extents with all four dimensions."""
    every: list[Extent] = [*ne, 1, 1, 1, 1]
    return every[0], every[1], every[2], every[3]


def _of_node(node: Tensor, of: list[Extents | None]) -> Extents | None:
    known = [one for one in of if one is not None]
    if len(known) < len(of) or not known or node.op in {"ssm_conv", "gated_delta_net", "glu"}:
        return None
    if node.op == "permute":
        axes = [int(each) for each in node.i]
        return four(tuple(known[0][axes.index(n)] for n in range(len(axes))))
    if node.op == "concat":
        along = int(node.i[0])
        ne = [
            f"{a}+{b}" if n == along else a for n, (a, b) in enumerate(zip(known[0], known[1], strict=True))
        ]
        return four(tuple(ne))
    rule = _RULES.get(node.op)
    return known[0] if rule is None else rule(known)


_RULES: Mapping[str, Callable[[list[Extents]], Extents]] = {
    "transpose": lambda of: (of[0][1], of[0][0], of[0][2], of[0][3]),
    "mul_mat": lambda of: (of[0][1], *of[1][1:]),
    "mul_mat_id": lambda of: (of[0][1], of[2][0], of[1][2], 1),
    "get_rows": lambda of: (of[0][0], *of[1][:3]),
    "sum_rows": lambda of: (1, *of[0][1:]),
    "attention": lambda of: (of[2][0], of[0][2], of[0][1], of[0][3]),
    "repeat": lambda of: of[1],
    "cpy": lambda of: of[1],
}
