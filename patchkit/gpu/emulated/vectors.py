"""Test vectors: short GPU programs with the register values that they must leave in the emulator."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from patchkit.base.errors import Location, ToolchainError, UsageError
from patchkit.base.process import run_tool
from patchkit.base.reporter import Reporter

_LANES = 32
_MOST_LANES = 1024
_VGPRS, _SGPRS = 256, 106
_KERNARG = (80, 81)  # s[80:81] hold the buffer's address, which differs from run to run
_MOST_ULP = 1024
_TIMEOUT_S = 600.0

# A 32-bit value in hexadecimal, one for all lanes or one per lane.
_Word = Annotated[str, Field(pattern=r"^[0-9a-fA-F]{1,8}$")]
_Values = _Word | list[_Word]
_Number = Annotated[str, Field(pattern=r"^(0|[1-9][0-9]{0,2})$")]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Registers(_Part):
    """Registers by number; those not named are 0.

    ``exec`` None: before, one bit set per lane; after, not compared. ``m0`` None: 0 before, not compared
    after.
    """

    v: dict[_Number, _Values] = {}
    s: dict[_Number, _Word] = {}
    vcc: _Word = "0"
    scc: Annotated[int, Field(ge=0, le=1)] = 0
    exec: _Word | None = None
    m0: _Word | None = None


class Vector(_Part):
    """A program of ``lanes`` lanes: machine code in hexadecimal, registers before and expected ones after.

    VGPRs and SGPRs with numbers below ``compares`` are compared; a program can use those above for
    temporaries. Expectations for registers above are rejected, because they would not be checked.
    """

    # ASCII without blanks: the name is a word in a line of the other program's input.
    name: Annotated[str, Field(pattern=r"^[!-~]+$", max_length=200)]
    lanes: Annotated[int, Field(ge=1, le=_MOST_LANES)]
    code: Annotated[str, Field(pattern=r"^([0-9a-fA-F]{8})*$")]
    before: Registers = Registers()
    after: Registers
    mode: _Word = "c0"
    compares: Annotated[int, Field(ge=1, le=_VGPRS)] = 16
    ulp: Annotated[int, Field(ge=0, le=_MOST_ULP)] = 0

    @model_validator(mode="after")
    def _all_is_used(self) -> Vector:
        """Check that all given registers reach the program, and that all expected ones are compared."""
        for part, most in (("before", _VGPRS), ("after", self.compares)):
            registers: Registers = getattr(self, part)
            for number, values in registers.v.items():
                if int(number) >= most:
                    raise ValueError(f"{part}: v{number} is out of range (below {most})")
                if isinstance(values, list) and len(values) > self.lanes:
                    raise ValueError(f"{part}: v{number} has {len(values)} values for {self.lanes} lanes")
            for number in registers.s:
                if int(number) >= min(most, _SGPRS):
                    raise ValueError(f"{part}: s{number} is out of range (below {min(most, _SGPRS)})")
                if int(number) in _KERNARG:
                    raise ValueError(f"{part}: s{number} is reserved for the buffer's address")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one vector: its ``differences`` in words, none if it passed."""

    json_keys: ClassVar = "name differences"

    name: str
    differences: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether all registers match."""
        return not self.differences


def load_vectors(path: Path) -> tuple[Vector, ...]:
    """Read a file of JSON lines.

    Raises:
        VECTORS_BAD: a line is not a vector, there is none, or the file cannot be read.
    """
    vectors: list[Vector] = []
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    vectors.append(_parse(line, path, number))
    except OSError as error:
        raise UsageError(
            "the vectors cannot be read",
            code="VECTORS_BAD",
            where=Location(path=str(path)),
            why=error.strerror,
            hint="--vectors takes a file of JSON lines, described in docs/reference/emulator-files.md",
        ) from error
    if not vectors:
        raise UsageError(
            "the file contains no vectors",
            code="VECTORS_BAD",
            where=Location(path=str(path)),
            why="it is empty",
            hint="--vectors takes a file of JSON lines, described in docs/reference/emulator-files.md",
        )
    return tuple(vectors)


def _parse(line: bytes, path: Path, number: int) -> Vector:
    try:
        vector = Vector.model_validate_json(line)
        json.loads(line, object_pairs_hook=_each_once)
    except ValidationError as error:
        first = error.errors()[0]
        raise _no_vector(
            f"{'.'.join(map(str, first['loc'])) or 'the line'}: {first['msg']}", path, number
        ) from error
    except ValueError as error:
        raise _no_vector(str(error), path, number) from error
    return vector


def _each_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Reject duplicate names: a JSON parser keeps only the last value, so an expectation would be lost."""
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{name} is given twice")
    return dict(pairs)


def _no_vector(why: str, path: Path, number: int) -> UsageError:
    return UsageError(
        "a line is not a valid vector",
        code="VECTORS_BAD",
        where=Location(path=str(path), line=number),
        why=why,
        hint="docs/reference/emulator-files.md describes the format",
    )


def run_vectors(
    vectors: Sequence[Vector], *, program: Path, disassembler: Path, arch: str, reporter: Reporter
) -> tuple[Outcome, ...]:
    """Run the vectors on the emulated GPU ``arch``; ``program`` is built by :func:`.emulator.build_alone`.

    Raises:
        VECTORS_BAD: the program did not return a result for each of them.
        ToolFailed, ToolCrashed, ToolTimeout: the program failed.
    """
    done = run_tool(
        [str(program), str(disassembler), arch],
        stdin="".join(f"{line}\n" for vector in vectors for line in _piece(vector)).encode(),
        env={"LD_LIBRARY_PATH": str(disassembler.parent)},
        timeout_s=_TIMEOUT_S,
        reporter=reporter,
    )
    answers = list(_answers(done.stdout.decode("utf-8", "replace").splitlines()))
    if [name for name, _ in answers] != [vector.name for vector in vectors]:
        raise ToolchainError(
            f"the program returned {len(answers)} results for {len(vectors)} vectors",
            code="VECTORS_BAD",
            where=Location(path=str(program)),
            why=done.stderr.decode("utf-8", "replace")[-400:] or "it printed nothing",
        )
    return tuple(
        Outcome(name=vector.name, differences=tuple(_differences(vector, answer)))
        for vector, (_, answer) in zip(vectors, answers, strict=True)
    )


def _waves(vector: Vector) -> int:
    return -(-vector.lanes // _LANES)


def _lanes_of(values: _Values, vector: Vector) -> list[str]:
    spread = [values] * vector.lanes if isinstance(values, str) else values
    return [*spread, *["0"] * (_waves(vector) * _LANES - len(spread))]


def _piece(vector: Vector) -> Iterator[str]:
    """The input lines of native/emulator/alone.cpp for a vector."""
    yield f"run {vector.name}"
    yield f"code {vector.code}"
    yield f"mode {vector.mode}"
    yield f"buffer {max(64 * vector.lanes, 2048) + 76}"
    for wave in range(_waves(vector)):
        if wave:
            yield "wave"
        before = vector.before
        active = min(vector.lanes - wave * _LANES, _LANES)
        yield f"exec {before.exec or format((1 << active) - 1, 'x')}"
        yield f"vcc {before.vcc}"
        yield f"m0 {before.m0 or 0}"
        yield f"scc {before.scc}"
        yield "v 255 " + " ".join(f"{wave * _LANES + lane:x}" for lane in range(_LANES))
        for number, values in before.v.items():
            lanes = _lanes_of(values, vector)[wave * _LANES : (wave + 1) * _LANES]
            yield f"v {number} {' '.join(lanes)}"
        for number, value in before.s.items():
            yield f"s {number} {value}"
    yield "go"


@dataclass(slots=True)
class _Answer:
    """Registers of all waves, or the fault that ended them."""

    fault: str
    waves: list[dict[str, list[int]]]


def _answers(lines: Iterable[str]) -> Iterator[tuple[str, _Answer]]:
    name, answer, is_fault = "", _Answer("", []), False
    for line in lines:
        word, _, rest = line.partition(" ")
        if not name:
            name, answer = rest, _Answer("", [])
            is_fault = word == "fault"
        elif line == "end":
            yield name, answer
            name = ""
        elif is_fault:
            answer.fault += line
        elif word == "wave":
            answer.waves.append({})
        else:
            key, values = word, rest.split()
            if word in {"s", "v"}:
                key, values = f"{word}{values[0]}", values[1:]
            answer.waves[-1][key] = [int(value, 16) for value in values]


def _differences(vector: Vector, answer: _Answer) -> Iterator[str]:
    if answer.fault:
        yield answer.fault
        return
    first = answer.waves[0]
    after = vector.after
    zeros = [0] * _LANES
    for number in range(vector.compares):
        wanted = [int(value, 16) for value in _lanes_of(after.v.get(str(number), "0"), vector)]
        found = [value for wave in answer.waves for value in wave.get(f"v{number}", zeros)]
        for lane in range(vector.lanes):
            if not _is_near(wanted[lane], found[lane], vector.ulp):
                yield f"v{number} of lane {lane} is {found[lane]:08x}, expected {wanted[lane]:08x}"
        if number not in _KERNARG:
            scalar, left = int(after.s.get(str(number), "0"), 16), first.get(f"s{number}", [0])[0]
            if not _is_near(scalar, left, vector.ulp):
                yield f"s{number} is {left:08x}, expected {scalar:08x}"
    for name, text in (("vcc", after.vcc), ("exec", after.exec), ("m0", after.m0)):
        if text is not None and int(text, 16) != first[name][0]:
            yield f"{name} is {first[name][0]:08x}, expected {int(text, 16):08x}"
    if after.scc != first["scc"][0]:
        yield f"scc is {first['scc'][0]}, expected {after.scc}"


def _is_near(wanted: int, found: int, ulp: int) -> bool:
    """Equal, or both NaN, or f32 values of the same sign within ``ulp`` units in the last place."""
    if wanted == found or (_is_nan(wanted) and _is_nan(found)):
        return True
    if _is_nan(wanted) or _is_nan(found):
        return False
    return ulp > 0 and wanted >> 31 == found >> 31 and abs(wanted - found) <= ulp


def _is_nan(bits: int) -> bool:
    return math.isnan(struct.unpack("<f", struct.pack("<I", bits))[0])
