"""Whether an emulator left what a case says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pseudocode import floats
from pseudocode.floats import BY_TYPE, Format

COMPARED = 16
Result = Mapping[str, Any]


def compare(expected: Result, got: Result) -> list[str]:
    """The differences, each as a line; none when the case holds."""
    name, text = expected["name"], expected.get("text", "")
    if "fault" in got:
        return [f"{name}: {text}: {got['fault']}"]
    found = [
        f"{register}[{lane}] should be {wanted:08x} and is {actual:08x}"
        for letter in "vs"
        for register, lane, wanted, actual in _registers(expected, got, letter)
    ]
    for special in ("vcc", "scc", "exec"):
        wanted, actual = expected["after"][special], got["after"][special]
        if wanted != actual:
            found.append(f"{special} should be {wanted} and is {actual}")
    return [f"{name}: {text}: {difference}" for difference in found]


def _registers(expected: Result, got: Result, letter: str) -> list[tuple[str, int, int, int]]:
    lanes = expected["lanes"] if letter == "v" else 1
    wanted = [_lanes(expected["after"][letter].get(str(n), "0"), lanes) for n in range(COMPARED + 1)]
    actual = [_lanes(got["after"][letter].get(str(n), "0"), lanes) for n in range(COMPARED + 1)]
    accepted = _accepted(expected, wanted, actual, letter)
    found = []
    for number in range(COMPARED):
        mask = _ignored(expected, f"{letter}{number}")
        for lane in range(lanes):
            differing = (
                (wanted[number][lane] ^ actual[number][lane]) & ~mask & ~accepted.get((number, lane), 0)
            )
            if differing:
                found.append((f"{letter}{number}", lane, wanted[number][lane], actual[number][lane]))
    return found


def _lanes(value: str | list[str], count: int) -> list[int]:
    return [int(bits, 16) for bits in value] if isinstance(value, list) else [int(value, 16)] * count


def _ignored(expected: Result, register: str) -> int:
    return sum(
        int(entry["mask"], 16) for entry in expected.get("ignored", []) if entry["register"] == register
    )


def _accepted(
    expected: Result, wanted: list[list[int]], actual: list[list[int]], letter: str
) -> dict[tuple[int, int], int]:
    """Bits, by register and lane, that hold a float as near as it must be."""
    found: dict[tuple[int, int], int] = {}
    for entry in expected.get("numbers", []):
        if entry["register"][0] != letter:
            continue
        number, shift, form = int(entry["register"][1:]), entry["shift"], BY_TYPE[entry["type"]]
        for lane in range(len(wanted[number])):
            want, have = (_float(registers, number, lane, shift, form) for registers in (wanted, actual))
            others = [
                int(lanes[lane], 16) >> shift & ((1 << form.width) - 1) for lanes in entry.get("or", [])
            ]
            if any(_is_near(value, have, form, entry, lane) for value in (want, *others)):
                for place in range(max(1, form.width // 32)):
                    bits = ((1 << form.width) - 1) << shift if form.width < 32 else 0xFFFFFFFF
                    found[number + place, lane] = found.get((number + place, lane), 0) | bits
    return found


def _float(registers: list[list[int]], number: int, lane: int, shift: int, form: Format) -> int:
    bits = registers[number][lane]
    if form.width > 32:
        bits |= registers[number + 1][lane] << 32
    return bits >> shift & ((1 << form.width) - 1)


def _is_near(want: int, have: int, form: Format, entry: Result, lane: int) -> bool:
    if floats.is_nan(want, form) or floats.is_nan(have, form):
        return floats.is_nan(want, form) and floats.is_nan(have, form)
    if want == have:
        return True
    if "units" in entry:
        is_same_sign = floats.is_negative(want, form) == floats.is_negative(have, form)
        return is_same_sign and floats.steps_between(want, have, form) <= entry["units"]
    if "within" in entry and not (floats.is_infinite(want, form) or floats.is_infinite(have, form)):
        bound = entry["within"][lane] if isinstance(entry["within"], list) else entry["within"]
        return abs(floats.to_float(want, form) - floats.to_float(have, form)) <= bound
    return False
