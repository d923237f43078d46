"""An evidence file as a machine would give it, and the lock that its hashes stand in."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Mapping
from typing import Any

from patchkit.base.errors import ConfigError, UsageError
from patchkit.base.evidence import EvidenceFile, MeasuredArm, MeasuredTest
from patchkit.carry.series.lock import GitSource, Lock, Pin, Result
from patchkit.carry.series.measured import digest_of_rendered
from patchkit.prove.evidence.figures import verdicts_of

BUILD = 11549
UPSTREAM, BOTH, FIRST, SECOND = "a" * 40, "b" * 40, "c" * 40, "d" * 40
"""Trees: of upstream, of both patches, of either alone."""
RENDERED = {"first/edit": "1" * 64, "second/edit": "2" * 64, "second/other": "3" * 64}


CODES = {"first": "4" * 64, "second": "5" * 64}


def result(patches: tuple[str, ...], tree: str) -> Result:
    """What a lock records of a set."""
    return Result(
        pin=f"b{BUILD}",
        build=BUILD,
        archs=("gfx1151",),
        patches=patches,
        tree=tree,
        commit="e" * 40,
        inputs={},
        rendered={name: sha for name, sha in RENDERED.items() if name.split("/")[0] in patches},
        entities={},
    )


def lock() -> Lock:
    """A pin, and both patches together; each alone is recorded nowhere."""
    pin = Pin(
        name=f"b{BUILD}",
        build=BUILD,
        commit="f" * 40,
        tree=UPSTREAM,
        committed="2026-10-01T10:00:00+00:00",
        sources=(GitSource(url="https://example.invalid/llama.cpp.git"),),
    )
    return Lock(version=2, default=f"b{BUILD}", pins=(pin,), results=(result(("first", "second"), BOTH),))


def made(pin: Pin, archs: tuple[str, ...], patches: tuple[str, ...]) -> Result:
    """Placing a set that the lock does not record."""
    assert pin.build == BUILD
    if archs != ("gfx1151",):
        raise ConfigError(f"there is no profile of {archs}", code="ARCH_UNKNOWN")
    trees = {("first",): FIRST, ("second",): SECOND}
    if patches not in trees:
        raise UsageError(f"there is no patch '{patches[0]}'", code="UNKNOWN_PATCH")
    return result(patches, trees[patches])


def machine(number: int = 0, **changes: object) -> dict[str, Any]:
    """A Strix Halo; two numbers are two machines."""
    return {
        "token": f"{number:08x}" * 4,
        "arch": "gfx1151",
        "gpu": "Radeon 8060S Graphics",
        "backend": "hip",
        "cpu": "AMD RYZEN AI MAX+ 395 w/ Radeon 8060S".replace("/", " "),
        "kernel": "6.17.4",
        "driver": None,
        "rocm": "7.2.1",
        "compiler": "clang 20.0.0",
        "clock_mhz": {"low": 1800.0, "high": 2900.0},
        "temperature_c": {"low": 45.0, "high": 81.5},
        "power_w": None,
        **changes,
    }


def measured(
    *, number: int = 0, gains: Mapping[str, float] | None = None, rounds: int = 10, noise: float = 0.004
) -> EvidenceFile:
    """A file of machine ``number``; ``gains`` by patch are fractions of speed, in prompts alone."""
    gains = {"first": 0.10, "second": 0.0} if gains is None else gains
    draw = random.Random(f"machine {number}")
    arms = [
        ("none", UPSTREAM, ()),
        ("none-again", UPSTREAM, ()),
        ("all", BOTH, ("first", "second")),
        ("all-without-first", SECOND, ("second",)),
        ("all-without-second", FIRST, ("first",)),
    ]
    whole = {"first": result(("first",), FIRST), "second": result(("second",), SECOND)}
    made_arms = tuple(
        MeasuredArm(
            name=name,
            tree=tree,
            patches={patch: digest_of_rendered(whole[patch], patch) for patch in patches},
        )
        for name, tree, patches in arms
    )
    tests = []
    for prompt, generated, speed in ((512, 0, 1300.0), (0, 128, 50.0)):
        several = []
        for _ in range(rounds):
            drift = draw.gauss(0, noise)
            times = {}
            for name, _tree, patches in arms:
                gain = math.prod([1 + gains[patch] for patch in patches]) if prompt else 1.0
                base = (prompt + generated) * 1e9 / speed / gain
                times[name] = tuple(int(base * (1 + drift + draw.gauss(0, noise))) for _ in range(3))
            several.append(times)
        tests.append(
            MeasuredTest(
                model="llama 7B Q4_0",
                model_bytes=3_825_065_984,
                model_sha256=None,
                head_size=128,
                prompt=prompt,
                generated=generated,
                depth=0,
                type_k="f16",
                type_v="f16",
                flash="on",
                batch=4096,
                micro_batch=2048,
                threads=16,
                layers=99,
                load="none",
                rounds=tuple(several),
            )
        )
    return EvidenceFile.model_validate(
        {
            "format": 1,
            "patchkit": "0.9",
            "by": None,
            "day": "2026-11-20",
            "machine": machine(number),
            "archs": ["gfx1151"],
            "build": BUILD,
            "tree": UPSTREAM,
            "codes": CODES,
            "arms": [arm.model_dump() for arm in made_arms],
            "tests": [test.model_dump() for test in tests],
            "verdicts": [one.model_dump() for one in verdicts_of(made_arms, tests)],
        }
    )


def edited(file: EvidenceFile, change: Callable[[Any], object], *, again: bool = False) -> bytes:
    """The file with something changed by who knows its form; ``again``: and all figures computed anew."""
    document = json.loads(file.text)
    change(document)
    if again:
        now = EvidenceFile.model_validate(document | {"verdicts": []})
        document["verdicts"] = [one.model_dump(mode="json") for one in verdicts_of(now.arms, now.tests)]
    try:
        return EvidenceFile.model_validate(document).text
    except ValueError:  # it is not of the form any more: as a text editor leaves it
        return json.dumps(document, indent=1, sort_keys=True).encode() + b"\n"


def of_patch(file: EvidenceFile, patch: str, known: Lock) -> EvidenceFile:
    """The file as of another patch of gfx1151, which a lock records, in the place of the first."""
    digest = next(
        digest_of_rendered(each, patch)
        for each in known.results
        if patch in each.patches and "gfx1151" in each.archs
    )
    arms = tuple(
        arm.model_copy(update={"patches": {patch: digest} if "first" in arm.patches else {}})
        for arm in file.arms
    )
    return file.model_copy(update={"arms": arms, "build": known.pin().build, "codes": {patch: "6" * 64}})
