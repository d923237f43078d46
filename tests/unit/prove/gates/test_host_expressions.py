"""Host expressions in rendered code: found whole, whatever stands around them."""

from __future__ import annotations

import pytest

from patchkit.carry.placing.guard import Guard, GuardedGpu
from patchkit.prove.gates.isolation.host_branch import host_expressions

_ONE = GuardedGpu(arch="gfx1151", macro="__gfx1151__", cc=0x1151)
_TWO = GuardedGpu(arch="gfx1100", macro="__gfx1100__", cc=0x1100)


@pytest.mark.parametrize("targets", [(_ONE,), (_TWO, _ONE)], ids=["one", "two"])
@pytest.mark.parametrize("cc", ["cc", "ggml_cuda_info().devices[ctx.device].cc", "f(a, (b))"])
@pytest.mark.parametrize("around", ["if (@ && x)", "&& !(@ && Q->ne[1] == 1)", "a(@ ? f(1) : 2, c)"])
def test_the_expression_that_guards_generate_is_found_whole(targets, cc: str, around: str) -> None:
    expression = Guard(macros=("M",), targets=targets).host(cc)
    data = ("int x;\n" + around.replace("@", expression) + "\n").encode()
    assert [data[start:end].decode() for start, end in host_expressions(data)] == [expression]


def test_two_in_one_text_and_none_outside_of_parentheses() -> None:
    expression = Guard(macros=("M",), targets=(_ONE,)).host("cc")
    data = f"if ({expression}) {{ }} if ({expression}) {{ }}".encode()
    assert len(list(host_expressions(data))) == 2
    assert list(host_expressions(b"x = cc == GGML_CUDA_CC_OFFSET_AMD + 0x1151;")) == []
