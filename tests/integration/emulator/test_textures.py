"""Textures, surfaces and arrays on the emulated GPU."""

from __future__ import annotations

import signal

import pytest

pytestmark = [pytest.mark.hip, pytest.mark.slow]

_ARCHS = ["gfx1151", "gfx1201"]
# Elements have x + 10 y + 100 z.
_ANSWERS = {
    "reads": """\
nearest: 0 1 23
outside: 0 13 21
level: 0 1 23
slopes: 0 1 23
border: -7 -7 -7
linear: 1.25 6.5 0
wrap: 10 13 10
mirror: 13 10 10
gather: 11 12 2 1
bytes: 1.6
""",
    "rows": """\
fetch: 0 1 2 3 0
fetch bytes: 3003 3003
pitch: 21 13
too high: hipCreateTextureObject: hipErrorInvalidValue
""",
    "volumes": """\
volume: 0 102 101
back: 1
beyond: hipErrorInvalidValue
layers: 0 102 101
back: 1
beyond: hipErrorInvalidValue
row: 0.5 3
""",
    "surfaces": "surface: 12\n",
    "limits": "limits: 1 16384 8192 256\ntoo wide: hipErrorInvalidValue\n",
    "refusals": """\
three channels: hipErrorInvalidValue
no array: hipErrorInvalidHandle
no texture: hipErrorInvalidValue
filtered integers: hipCreateTextureObject: hipErrorNotSupported
beyond: hipErrorInvalidValue
""",
}


@pytest.fixture(scope="module")
def programs(compile_program):
    return {arch: compile_program("textures", "-std=c++20", arch=arch) for arch in _ARCHS}


@pytest.fixture
def every_kind() -> str:
    """What is looked for unless a test says it."""
    return "memory,waits,races,hidden,barriers,uninitialised,asynchrony"


@pytest.mark.parametrize("arch", _ARCHS)
@pytest.mark.parametrize("case", _ANSWERS)
def test_kernels_read_what_the_description_says(programs, emulate, case, arch):
    done = emulate(programs[arch], case, arch=arch)
    assert (done.returncode, done.stdout) == (0, _ANSWERS[case])


@pytest.mark.parametrize("case", ["reads", "rows", "volumes", "surfaces"])
def test_checks_find_nothing_in_them(programs, found, case):
    assert found(programs["gfx1151"], case) == []


@pytest.mark.parametrize(
    ("case", "says"),
    [
        ("freed", "the memory of the texture or surface was freed"),
        ("forged", "its descriptor does not match a texture or surface of the program"),
    ],
)
def test_a_description_is_not_followed_where_it_leads_to_nothing(programs, emulate, case, says):
    done = emulate(programs["gfx1151"], case)
    assert done.returncode == -signal.SIGABRT
    assert says in done.stderr
