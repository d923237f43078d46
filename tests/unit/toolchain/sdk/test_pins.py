"""The pins of the SDK: complete as shipped, and errors for broken files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from refusing import refused

from patchkit.toolchain.sdk.pins import PINS_FILE, load_pins


def test_the_pins_are_whole() -> None:
    pins = load_pins()
    assert pins.suites
    assert pins.download_limit <= 60_000_000
    assert pins.packages == tuple(sorted(set(pins.packages)))
    for sha in (pins.rocwmma.commit, pins.rocwmma.tree):
        assert re.fullmatch(r"[0-9a-f]{40}", sha)
    assert pins.rocwmma.same_as["gfx1151"] == "gfx1102"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda text: text + "[", "key part"),
        (lambda text: text.replace("download-limit", "upload-limit"), "download-limit"),
        (lambda text: text.replace("= 40_000_000", '= "much"'), "much"),
        (lambda text: "rocwmma = 1\n" + re.sub(r"(?s)\[rocwmma\].*", "", text), "valid dictionary"),
    ],
)
def test_broken_pins_are_named(tmp_path: Path, change, expected: str) -> None:
    path = tmp_path / "pins.toml"
    path.write_text(change(PINS_FILE.read_text("utf-8")))
    with refused("SDK_UNUSABLE") as caught:
        load_pins(path)
    assert caught.value.where[0].path == str(path)
    assert expected in (caught.value.why or "")


def test_missing_pins_are_named(tmp_path: Path) -> None:
    with refused("SDK_UNUSABLE"):
        load_pins(tmp_path / "none.toml")
