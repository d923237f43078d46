"""8-bit floats by HIP's own header: the device makes of a float what the host does (HeCBench's f8cast)."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.hip, pytest.mark.slow]


# What becomes of -inf where it is to saturate: the header's own arithmetic (gfx1151, and every host) makes
# the least number of it, where f8cast expects NaN (issue 44); the instructions of gfx1201, which have no FNUZ
# types, NaN or -inf.
_LEAST = {"e4m3fnuz": "ff", "e5m2fnuz": "ff", "e4m3": "fe", "e5m2": "fb"}
_BY_INSTRUCTION = {"e4m3": "ff", "e5m2": "fc"}


@pytest.mark.parametrize(("arch", "infinity"), [("gfx1151", _LEAST), ("gfx1201", _BY_INSTRUCTION)])
def test_a_float_becomes_the_same_on_the_device_and_on_the_host(compile_program, emulate, arch, infinity):
    done = emulate(compile_program("small_floats", "-std=c++17", arch=arch), arch=arch)
    assert done.returncode == 0, done.stderr
    told = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert set(told) == set(_LEAST)
    for name, code in infinity.items():
        assert told[name].startswith("0 of "), told
        assert told[name].endswith(f"differ; -inf is {code}, on the host {_LEAST[name]}")
