"""Adding GPUs to rocWMMA that it does not list."""

from __future__ import annotations

import pytest
from refusing import refused

from patchkit.toolchain.sdk.rocwmma import add_archs

CONFIG = b"""#if defined(__gfx908__) && ROCWMMA_DEVICE_COMPILE
#define ROCWMMA_ARCH_GFX908 __gfx908__
#elif defined(__gfx1102__) && ROCWMMA_DEVICE_COMPILE
#define ROCWMMA_ARCH_GFX1102 __gfx1102__
#else
static_assert(0, "Unsupported architecture");
#endif
"""


def test_an_arch_gets_a_branch_before_the_one_it_is_the_same_as() -> None:
    taught = add_archs(CONFIG, {"gfx1151": "gfx1102", "gfx1103": "gfx1102"}).decode().splitlines()
    at = next(i for i, line in enumerate(taught) if "__gfx1151__)" in line)
    assert taught[at + 1] == "#define ROCWMMA_ARCH_GFX1102 __gfx1151__"
    kept = [line for line in taught if "added by patchkit" not in line]
    assert [line for line in kept if "__gfx1151__" not in line and "__gfx1103__" not in line] == (
        CONFIG.decode().splitlines()
    )


@pytest.mark.parametrize(
    ("config", "same_as"),
    [
        (b"", {"gfx1151": "gfx1102"}),
        (CONFIG + CONFIG, {"gfx1151": "gfx1102"}),
        (CONFIG, {"gfx908": "gfx1102"}),
    ],
)
def test_a_list_that_is_not_as_pinned_is_rejected(config: bytes, same_as: dict[str, str]) -> None:
    with refused("SDK_ROCWMMA_MISMATCH"):
        add_archs(config, same_as)
