"""An evidence file: what one machine measured of a series, with all raw rounds, to be handed on.

It is one JSON text of one form: who writes the same measurement writes the same bytes, and its name has a
part of their digest. Strangers write such files. So one is read no further than its bound, no link is
followed, and no field takes free text. Whether its figures are those of its rounds says
:mod:`patchkit.prove.evidence.check`.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, StringConstraints

from patchkit.base.digests import sha256
from patchkit.base.document import EvidenceUnreadable, parse_model
from patchkit.base.errors import ErrorGroup, Location, PatchkitError, UsageError
from patchkit.base.series_folder import is_editors
from patchkit.base.upstreams import build_name
from patchkit.base.verdict import SpeedVerdict

MOST_BYTES = 8 * 2**20
"""Of a file. Twenty arms in eighty rounds of six tests have 0.3 MB, three arms in ten rounds 15 kB."""
MOST_ARMS, MOST_TESTS, MOST_ROUNDS = 100, 50, 300
MOST_VERDICTS = 500  # each takes a tenth of a second to compute
MOST_TIMES = 300_000  # of all arms, rounds and tests; twenty arms in eighty rounds of six tests have 30,000
_MOST_SAMPLES = 50  # of an arm in one round
_DEEPEST = 12  # brackets within brackets; the form needs seven
_HINT = "patchkit evidence export writes such a file"

_T = TypeVar("_T")
_Many = Annotated[tuple[_T, ...], Field(strict=False)]


def _text(pattern: str) -> StringConstraints:
    return StringConstraints(pattern=rf"^{pattern}$", max_length=120)


# No field can hold a path, an address or a line: what a machine is called by its maker, and versions.
ObjectId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Token = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
_Gpu = Annotated[str, _text(r"[0-9a-z][0-9a-z_-]{1,30}")]
_Name = Annotated[str, _text(r"[A-Za-z0-9][A-Za-z0-9 ()+,.:_-]{0,99}")]
_Version = Annotated[str, _text(r"[0-9]{1,6}(\.[0-9]{1,6}){0,4}")]
_Tool = Annotated[str, _text(r"[A-Za-z]{1,20} [0-9]{1,6}(\.[0-9]{1,6}){0,4}")]
_Handle = Annotated[str, _text(r"[A-Za-z0-9][A-Za-z0-9-]{0,38}")]
_Label = Annotated[str, _text(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")]
_PatchId = Annotated[str, _text(r"[a-z0-9][a-z0-9-]{0,79}")]
_Kind = Annotated[str, _text(r"[A-Za-z0-9?][A-Za-z0-9 ()+,.?_-]{0,99}")]
_Word = Annotated[str, _text(r"[a-z0-9_+]{1,20}")]
_Day = Annotated[str, _text(r"20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])")]
_Count = Annotated[int, Field(ge=0, le=10**15)]
_Small = Annotated[int, Field(ge=-1, le=10**6)]
_Figure = Annotated[float, Field(ge=-(10**9), le=10**9)]
ReadVerdict = Annotated[
    SpeedVerdict, BeforeValidator(lambda word: "unclear" if word == "undecided" else word)
]
"""As written by this version, or with the word of earlier ones."""
_Verdict = Annotated[
    ReadVerdict, PlainSerializer(lambda word: "undecided" if word == "unclear" else word)
]  # format 1 keeps the earlier word: its bytes are what a file is named by
Nanoseconds = Annotated[int, Field(ge=1, le=10**15)]


class _Part(BaseModel):
    """A part of the file, strict: what is not known is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Range(_Part):
    """Lowest and highest over all rounds."""

    low: _Figure
    high: _Figure


class MeasuredMachine(_Part):
    """The machine, as far as it matters to a figure.

    ``token`` is random, made once on the machine: it tells two files of one machine from those of two, and
    says nothing else. ``gpu`` is the maker's name, ``arch`` gfx1151, sm_90 or cpu. What a system does not
    tell is null.
    """

    token: Token
    arch: _Gpu
    gpu: _Name
    backend: Literal["hip", "cuda", "cpu"]
    cpu: _Name | None
    kernel: _Version | None
    driver: _Version | None
    rocm: _Version | None
    compiler: _Tool | None
    clock_mhz: Range | None
    temperature_c: Range | None
    power_w: Range | None


class MeasuredArm(_Part):
    """One build: its tree, and by id the digest of each patch in it, as the lock's ``rendered`` has them."""

    name: _Label
    tree: ObjectId
    patches: Annotated[Mapping[_PatchId, Digest], Field(max_length=200)]


class MeasuredTest(_Part):
    """One test of llama-bench on one model, and its times.

    ``model`` is llama-bench's word for it, not the name of a file; ``model_sha256`` may be unknown. A round
    has the nanoseconds of each repetition by arm; an arm that took no part in it is not there.
    """

    model: _Kind
    model_bytes: _Count
    model_sha256: Digest | None
    head_size: Annotated[int, Field(ge=1, le=2**16)] | None
    prompt: _Count
    generated: _Count
    depth: _Count
    type_k: _Word
    type_v: _Word
    flash: Literal["off", "on", "auto"]
    batch: _Count
    micro_batch: _Count
    threads: _Small
    layers: _Small
    load: _Word
    rounds: Annotated[
        _Many[
            Annotated[
                Mapping[
                    _Label,
                    Annotated[
                        tuple[Nanoseconds, ...], Field(strict=False, min_length=1, max_length=_MOST_SAMPLES)
                    ],
                ],
                Field(min_length=1, max_length=MOST_ARMS),
            ]
        ],
        Field(min_length=1, max_length=MOST_ROUNDS),
    ]

    @property
    def name(self) -> str:
        """As llama-bench's tests are written: ``pp512@d4096``."""
        parts = [f"pp{self.prompt}"] if self.prompt else []
        parts += [f"tg{self.generated}"] if self.generated else []
        text = f"{'+'.join(parts)}@d{self.depth}"
        if (self.type_k, self.type_v) != ("f16", "f16"):
            text += f" {self.type_k if self.type_k == self.type_v else f'{self.type_k}/{self.type_v}'}"
        return text if self.flash == "on" else f"{text} fa-{self.flash}"

    @property
    def tokens(self) -> int:
        """That one repetition takes time for."""
        return self.prompt + self.generated


class MeasuredVerdict(_Part):
    """What the rounds say of arm ``of`` beside arm ``against``, in test number ``test``, counted from 0.

    Changes are fractions, positive is faster, with the ends of their interval; ``noise`` is how far the
    machine differed from itself, null where no build was measured twice: then nothing is decided.
    ``rounds`` counts pairs of runs: where several pairs of arms differ by the same one patch and have too few
    rounds each, all of theirs, and the first of them is named.
    """

    test: _Count
    of: _Label
    against: _Label
    rounds: _Count
    change: _Figure
    low: _Figure
    high: _Figure
    noise: Range | None
    verdict: _Verdict


class EvidenceFile(_Part):
    """The whole file. ``by`` is a name that its owner chose to give, else null; ``day``: of the first round.

    ``codes`` has by id the digest of what a patch's files say to do: where no lock records what it writes,
    that tells whether it is still the same.

    ``verdicts`` are all that the rounds allow, in the order in which they are made: none can be left out.
    """

    format: Annotated[int, Field(ge=1, le=1)]  # Literal[1] would take true for it
    patchkit: _Version
    by: _Handle | None
    day: _Day
    machine: MeasuredMachine
    archs: Annotated[_Many[_Gpu], Field(min_length=1, max_length=20)]
    build: Annotated[int, Field(ge=1, le=10**9)]
    tree: ObjectId
    codes: Annotated[Mapping[_PatchId, Digest], Field(max_length=200)]
    arms: Annotated[_Many[MeasuredArm], Field(min_length=2, max_length=MOST_ARMS)]
    tests: Annotated[_Many[MeasuredTest], Field(min_length=1, max_length=MOST_TESTS)]
    verdicts: Annotated[_Many[MeasuredVerdict], Field(max_length=MOST_VERDICTS)]

    @property
    def text(self) -> bytes:
        """The one form in which it is written."""
        text = json.dumps(self.model_dump(mode="json"), indent=1, sort_keys=True)
        return _NUMBERS.sub(lambda found: re.sub(r"\s+", " ", found[0]), text).encode("ascii") + b"\n"

    @property
    def name(self) -> str:
        """Of the file: the GPU, the build, and the beginning of the sha256 of its bytes."""
        digest = sha256(self.text)
        return f"{self.machine.arch}-{build_name(self.build)}-{digest[:12]}.json"

    def arm(self, name: str) -> MeasuredArm:
        """The arm of that name; raises KeyError."""
        return {arm.name: arm for arm in self.arms}[name]

    @property
    def who(self) -> str:
        """The source that a file is of: who gave a name is one, however many machines; else the machine."""
        return self.by or f"machine {self.machine.token[:8]}"


_NUMBERS = re.compile(r"\[[\s\d,]+\]")


def parse_evidence_file(data: bytes, source: str) -> EvidenceFile:
    """The file, from its bytes; ``source`` names it in errors.

    Raises:
        EVIDENCE_FILE_TOO_LARGE, EVIDENCE_NESTED, EVIDENCE_NOT_CANONICAL: as they say.
        EvidenceUnreadable, EvidenceMalformed: it is no JSON, or not of this form.
    """
    if len(data) > MOST_BYTES:
        raise _too_large(source, len(data))
    if not data.strip():
        raise EvidenceUnreadable(
            f"{source} is empty",
            where=Location(path=source),
            why="a copy that was cut off leaves such a file",
            hint=_HINT,
        )
    if not data.isascii() or b"\\" in data:
        raise EvidenceUnreadable(
            f"{source} has characters that no evidence file has",
            where=Location(path=source),
            why="names and versions are plain ASCII; nothing in it needs a backslash",
            hint=_HINT,
        )
    _refuse_deep(data, source)
    found = parse_model(data, EvidenceFile, source, _HINT)
    if found.text != data:
        raise UsageError(
            f"{source} is not written as patchkit writes it",
            code="EVIDENCE_NOT_CANONICAL",
            where=Location(path=source, line=_first_difference(found.text, data)),
            why="the same content has one form, so that nothing hides in another one; was it edited?",
            hint=_HINT,
        )
    return found


def _first_difference(one: bytes, other: bytes) -> int:
    """The line, from 1, in which two texts begin to differ."""
    lines = zip(one.split(b"\n"), other.split(b"\n"), strict=False)
    return next((number for number, (mine, theirs) in enumerate(lines, 1) if mine != theirs), 1)


def _refuse_deep(data: bytes, source: str) -> None:
    depth = 0
    outside = b"".join(data.split(b'"')[::2])  # there is no backslash, so no quote within a text
    for each in outside.translate(None, bytes(set(range(256)) - set(b"[]{}"))):
        depth += 1 if each in b"[{" else -1
        if depth > _DEEPEST:
            raise EvidenceUnreadable(
                f"{source} is nested more than {_DEEPEST} deep",
                code="EVIDENCE_NESTED",
                where=Location(path=source),
                why="no evidence file is",
                hint=_HINT,
            )


def _too_large(source: str, size: int) -> UsageError:
    return UsageError(
        f"{source} is larger than any evidence file",
        code="EVIDENCE_FILE_TOO_LARGE",
        where=Location(path=source),
        why=f"it has {size} bytes, read are at most {MOST_BYTES}",
        hint=_HINT,
    )


def load_evidence_file(path: Path) -> EvidenceFile:
    """Read a file, no further than its bound, and nothing but a plain file.

    Raises:
        EVIDENCE_FILE_REFUSED: it is a link, a folder, a pipe or a device, or cannot be read.
        As :func:`parse_evidence_file`.
    """
    source = str(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        is_link = isinstance(error, OSError) and error.errno == errno.ELOOP
        told = getattr(error, "strerror", None) or str(error)
        if isinstance(error, FileNotFoundError):
            told = "there is no such file"
        raise _refused(source, "it is a symbolic link" if is_link else told) from error
    try:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode):
            raise _refused(source, "it is a folder, a pipe or a device")
        if state.st_size > MOST_BYTES:
            raise _too_large(source, state.st_size)
        with open(descriptor, "rb", closefd=False) as stream:
            data = stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise _refused(source, error.strerror or str(error)) from error
    finally:
        os.close(descriptor)
    return parse_evidence_file(data, source)


def _refused(source: str, why: str) -> UsageError:
    return UsageError(
        f"{source} is not read",
        code="EVIDENCE_FILE_REFUSED",
        where=Location(path=source),
        why=why,
        hint="name the evidence file itself",
    )


def load_evidence_folder(folder: Path) -> dict[str, EvidenceFile]:
    """Every evidence file of a series by name, sorted; none where there is no such folder.

    Raises:
        EVIDENCE_NAME_WRONG: a file is not called as its content asks for.
        The errors of reading one, or an ErrorGroup of several.
    """
    files: dict[str, EvidenceFile] = {}
    errors: list[PatchkitError] = []
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        if is_editors(Path(path.name)):
            continue
        try:
            file = load_evidence_file(path)
            check_name(file, path.name, str(path))
        except PatchkitError as error:
            errors.append(error)
        else:
            files[path.name] = file
    if errors:
        raise errors[0] if len(errors) == 1 else ErrorGroup("evidence files cannot be read", errors)
    return files


def check_name(file: EvidenceFile, name: str, source: str) -> None:
    """Raise EVIDENCE_NAME_WRONG where a file of a series has another name than its bytes give it."""
    if name != file.name:
        raise UsageError(
            f"{source} is not called as its content asks for",
            code="EVIDENCE_NAME_WRONG",
            where=Location(path=source),
            why=f"its name would be {file.name}: it was changed since it was added, or renamed",
            hint="take it away, and add the file again as it was sent: patchkit evidence add FILE",
        )
