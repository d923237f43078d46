"""Each folder here is one case: what a patch.toml makes of an input, or the full text of its errors.

A case holds ``patch.toml``, ``input.cuh`` (which the patch calls ``ggml/src/ggml-cuda/input.cuh``), the
templates it names, and ``expected.cuh`` or ``expected.txt``. ``archs.txt`` names the GPUs, gfx1151 when
there is none. Everything between the two is the product's own code.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.base.errors import ErrorGroup, Location, PatchkitError
from patchkit.base.toml import parse_toml
from patchkit.carry.placing.place import place_patch
from patchkit.carry.placing.tree import UpstreamFiles
from patchkit.carry.series.patch import parse_patch
from patchkit.carry.series.profile import load_profile
from patchkit.carry.series.selection import Selected

CASES = Path(__file__).parent
INPUT = "ggml/src/ggml-cuda/input.cuh"
NEIGHBOUR = "ggml/src/ggml-cuda/neighbour.cuh"


def case_folders() -> list[Path]:
    return sorted(path.parent for path in CASES.glob("*/patch.toml"))


def run(case: Path, profiles: Path) -> tuple[str, bytes]:
    """Name and bytes of the expected file."""
    archs = case / "archs.txt"
    names = archs.read_text().split() if archs.is_file() else ["gfx1151"]
    files = UpstreamFiles({INPUT: (case / "input.cuh").read_bytes(), NEIGHBOUR: b"int neighbour;\n"})
    try:
        document = parse_toml(f"patches/{case.name}/patch.toml", (case / "patch.toml").read_bytes())
        patch = parse_patch(document, folder=case.name, number=1)
        targets = tuple(load_profile(profiles, name) for name in names)
        selected = Selected(patch=patch, targets=targets, reason="")
        placed = place_patch(selected, files, CASES, CASES / "templates")
    except PatchkitError as error:
        errors = error.errors if isinstance(error, ErrorGroup) else (error,)
        return "expected.txt", "\n".join(_spell(each) for each in errors).encode()
    added = b"".join(b"\n==== " + name.encode() + b"\n" + placed.changes[name] for name in placed.new_files)
    return "expected.cuh", placed.changes[INPUT] + added


def _spell(error: PatchkitError) -> str:
    lines = [f"error[{error.code}]: {error.message}"]
    lines += [f" --> {_place(place)}" for place in error.where]
    lines += [f"why: {error.why}"] if error.why else []
    lines += [f"hint: {error.hint}"] if error.hint else []
    return "\n".join(lines) + "\n"


def _place(place: Location) -> str:
    text = str(place).replace(f"{CASES}/", "patches/")
    return f"{text} ({place.label})" if place.label else text


@pytest.mark.parametrize("case", case_folders(), ids=lambda case: case.name)
def test_case(case: Path, checkout: Path, *, update_golden: bool) -> None:
    name, data = run(case, checkout / "arch_profiles")
    if update_golden:
        for old in ("expected.cuh", "expected.txt"):
            (case / old).unlink(missing_ok=True)
        (case / name).write_bytes(data)
    assert [path.name for path in case.glob("expected.*")] == [name], data.decode("utf-8", "replace")
    assert data == (case / name).read_bytes()
