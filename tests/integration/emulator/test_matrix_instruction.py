"""The matrix instruction takes and leaves elements where AMD's guides put them."""

from __future__ import annotations

import hashlib
from collections import defaultdict

import pytest

pytestmark = [pytest.mark.hip, pytest.mark.slow]

# sha256 (first 16 digits) of what AMD's matrix instruction calculator prints with --register-layout --csv
# (ROCm/amd_matrix_instruction_calculator, commit 2ef91896bcdc), one line for each element, as the program
# writes them.
CALCULATOR = {
    "gfx11": {
        "half A": "f0bbcddb989ca2f3",
        "half B": "ffbd478d0f5a6240",
        "half C": "ea2b2219fbc56688",
        "half D": "d8efae04b3dda881",
        "float A": "f0bbcddb989ca2f3",
        "float B": "ffbd478d0f5a6240",
        "float C": "14e80382610f13fb",
        "float D": "15a9fa99d106c767",
    },
    "gfx12": {
        "half A": "2cf02f5073b2bce7",
        "half B": "d2180d736b004a4f",
        "half C": "9b9eb37ca7eca70b",
        "half D": "719701744b460b49",
        "float A": "2cf02f5073b2bce7",
        "float B": "d2180d736b004a4f",
        "float C": "84c8fa0e4438af80",
        "float D": "45df8440ea6ac69a",
    },
}


@pytest.mark.parametrize("arch", ["gfx1151", "gfx1100", "gfx1201"])
def test_it_multiplies_what_lies_where_amds_calculator_says(compile_program, emulate, arch: str) -> None:
    done = emulate(compile_program("matrix_instruction", arch=arch), "guide", arch=arch)
    assert done.returncode == 0, done.stdout + done.stderr
    listed = defaultdict(list)
    for line in done.stdout.splitlines()[:-1]:
        kind, element = line.split(" ", 1)
        listed[f"{kind} {element[0]}"].append(element)
    digests = {
        matrix: hashlib.sha256("\n".join(elements).encode()).hexdigest()[:16]
        for matrix, elements in listed.items()
    }
    assert digests == CALCULATOR[arch[:5]]
