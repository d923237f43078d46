"""The architecture of a gfx id."""

from __future__ import annotations

import pytest

from patchkit.base.arch import architecture_of


@pytest.mark.parametrize(
    ("gfx", "name", "lanes"),
    [
        ("gfx803", "gcn", 64),
        ("gfx906", "gcn", 64),
        ("gfx90a", "gcn", 64),
        ("gfx942", "gcn", 64),
        ("gfx1030", "rdna", 32),
        ("gfx1100", "rdna3", 32),
        ("gfx1151", "rdna3", 32),
        ("gfx1201", "rdna4", 32),
        ("gfx1300", "later", 32),
        ("gfx9-4-generic", "gcn", 64),
        ("gfx11-generic", "rdna3", 32),
    ],
)
def test_a_name_has_an_architecture(gfx: str, name: str, lanes: int) -> None:
    found = architecture_of(gfx)
    assert (found.name, found.wave_size) == (name, lanes)
    assert found.is_emulated == found.has_wmma == (name in {"rdna3", "rdna4"})
