"""Evidence files: one machine's measurements of a series, with all raw rounds, to share with others.

The JSON is canonical: the same measurement always gives the same bytes, and the file name has a part of
their digest. Such files come from untrusted sources. So reading stops at a size limit, links are not
followed, and no field takes free text. :mod:`patchkit.prove.evidence.check` recomputes the figures from
the rounds.
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
from patchkit.base.errors import Location, PatchkitError, UsageError, raise_all
from patchkit.base.series_folder import is_editor_file
from patchkit.base.upstreams import build_name
from patchkit.base.verdict import SpeedVerdict

MOST_BYTES = 8 * 2**20
"""Size limit of a file. 20 arms, 80 rounds and 6 tests take 0.3 MB; 3 arms and 10 rounds take 15 kB."""
MOST_ARMS, MOST_TESTS, MOST_ROUNDS = 100, 50, 300
MOST_VERDICTS = 500  # each takes a tenth of a second to compute
MOST_TIMES = 300_000  # samples in all arms, rounds and tests; 20 arms, 80 rounds and 6 tests have 30,000
_MOST_SAMPLES = 50  # per arm and round
_DEEPEST = 12  # nesting of brackets; the format needs seven
_HINT = "create an evidence file with: patchkit evidence export"

_T = TypeVar("_T")
_Many = Annotated[tuple[_T, ...], Field(strict=False)]


def _text(pattern: str) -> StringConstraints:
    return StringConstraints(pattern=rf"^{pattern}$", max_length=120)


# The patterns leave no room for a path, an address or a sentence: only product names and versions fit.
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
"""A verdict; ``undecided``, the word of earlier versions, is read as ``unclear``."""
_Verdict = Annotated[
    ReadVerdict, PlainSerializer(lambda word: "undecided" if word == "unclear" else word)
]  # format 1 keeps the earlier word, because the name of a file has the digest of its bytes
Nanoseconds = Annotated[int, Field(ge=1, le=10**15)]


class _Part(BaseModel):
    """Base of the parts of the file; unknown fields are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Range(_Part):
    """Lowest and highest value over all rounds."""

    low: _Figure
    high: _Figure


class MeasuredMachine(_Part):
    """The hardware and software that affect the figures; null for what the system does not report.

    ``token`` is random and created once per machine, so that files of the same machine can be recognised;
    it carries no other information. ``gpu`` is the vendor's product name, ``arch`` is gfx1151, sm_90 or cpu.
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
    """One build: its tree, and the digest of each of its patches by id, as in ``rendered`` of the lock."""

    name: _Label
    tree: ObjectId
    patches: Annotated[Mapping[_PatchId, Digest], Field(max_length=200)]


class MeasuredTest(_Part):
    """One test of llama-bench on one model, and its times.

    ``model`` is llama-bench's name for the model type, not a file name; ``model_sha256`` may be unknown.
    A round maps each arm that was measured in it to the nanoseconds of its repetitions.
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
        """The test in llama-bench's notation: ``pp512@d4096``."""
        parts = [f"pp{self.prompt}"] if self.prompt else []
        parts += [f"tg{self.generated}"] if self.generated else []
        text = f"{'+'.join(parts)}@d{self.depth}"
        if (self.type_k, self.type_v) != ("f16", "f16"):
            text += f" {self.type_k if self.type_k == self.type_v else f'{self.type_k}/{self.type_v}'}"
        return text if self.flash == "on" else f"{text} fa-{self.flash}"

    @property
    def tokens(self) -> int:
        """Number of tokens that one repetition processes or generates."""
        return self.prompt + self.generated


class MeasuredVerdict(_Part):
    """The verdict on arm ``of`` compared with arm ``against``, in test number ``test``, counted from 0.

    ``change`` is a fraction, positive if ``of`` is faster, with the ends of its interval in ``low`` and
    ``high``. ``noise`` is the difference that the machine showed between two runs of the same build; it is
    null if no build was measured twice, and then nothing is decided. ``rounds`` counts pairs of runs. If
    several pairs of arms differ by the same single patch and each has too few rounds, their rounds are
    pooled and the first pair is named.
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
    """The whole file. ``by`` is the name that the contributor chose, or null; ``day`` is the first round's.

    ``codes`` has the digest of each patch's instructions by patch id. It shows whether a patch is unchanged
    where no lock records its rendered text.

    ``verdicts`` has every verdict that the rounds allow, in the order of computation; a file that omits one
    is rejected.
    """

    format: Annotated[int, Field(ge=1, le=1)]  # Literal[1] would accept true
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
        """The canonical bytes of the file."""
        text = json.dumps(self.model_dump(mode="json"), indent=1, sort_keys=True)
        return _NUMBERS.sub(lambda found: re.sub(r"\s+", " ", found[0]), text).encode("ascii") + b"\n"

    @property
    def name(self) -> str:
        """The file name: GPU, build, and the first digits of the sha256 of the bytes."""
        digest = sha256(self.text)
        return f"{self.machine.arch}-{build_name(self.build)}-{digest[:12]}.json"

    def arm(self, name: str) -> MeasuredArm:
        """The arm called ``name``; raises KeyError."""
        return {arm.name: arm for arm in self.arms}[name]

    @property
    def who(self) -> str:
        """The contributor: a named one, which may have several machines, otherwise the machine."""
        return self.by or f"machine {self.machine.token[:8]}"


_NUMBERS = re.compile(r"\[[\s\d,]+\]")


def parse_evidence_file(data: bytes, source: str) -> EvidenceFile:
    """Parse the bytes of an evidence file; ``source`` names it in errors.

    Raises:
        EVIDENCE_REFUSED: it exceeds a limit.
        EVIDENCE_REFUSED: the bytes differ from the canonical form.
        EvidenceUnreadable, EvidenceMalformed: it is not JSON, or does not match the format.
    """
    if len(data) > MOST_BYTES:
        raise _too_large(source, len(data))
    if not data.strip():
        raise EvidenceUnreadable(
            f"{source} is empty",
            where=Location(path=source),
            why="an interrupted copy can leave an empty file",
            hint=_HINT,
        )
    if not data.isascii() or b"\\" in data:
        raise EvidenceUnreadable(
            f"{source} has characters that are not allowed in an evidence file",
            where=Location(path=source),
            why="an evidence file is ASCII without backslashes",
            hint=_HINT,
        )
    _refuse_deep(data, source)
    found = parse_model(data, EvidenceFile, source, _HINT)
    if found.text != data:
        raise UsageError(
            f"{source} is not in the canonical form that patchkit writes",
            code="EVIDENCE_REFUSED",
            where=Location(path=source, line=_first_difference(found.text, data)),
            why="only the canonical form is accepted, so that nothing can be hidden; was the file edited?",
            hint=_HINT,
        )
    return found


def _first_difference(one: bytes, other: bytes) -> int:
    """The first line, from 1, in which two texts differ."""
    lines = zip(one.split(b"\n"), other.split(b"\n"), strict=False)
    return next((number for number, (mine, theirs) in enumerate(lines, 1) if mine != theirs), 1)


def _refuse_deep(data: bytes, source: str) -> None:
    depth = 0
    outside = b"".join(data.split(b'"')[::2])  # backslashes are rejected, so no string contains a quote
    for each in outside.translate(None, bytes(set(range(256)) - set(b"[]{}"))):
        depth += 1 if each in b"[{" else -1
        if depth > _DEEPEST:
            raise EvidenceUnreadable(
                f"{source} is nested too deeply for an evidence file",
                code="EVIDENCE_REFUSED",
                where=Location(path=source),
                why=f"the limit is {_DEEPEST} levels",
                hint=_HINT,
            )


def _too_large(source: str, size: int) -> UsageError:
    return UsageError(
        f"{source} is too large for an evidence file",
        code="EVIDENCE_REFUSED",
        where=Location(path=source),
        why=f"it has {size} bytes; the limit is {MOST_BYTES}",
        hint=_HINT,
    )


def load_evidence_file(path: Path) -> EvidenceFile:
    """Read an evidence file: a regular file, up to the size limit.

    Raises:
        EVIDENCE_REFUSED: it is a link, a folder, a pipe or a device, or cannot be read.
        The errors of :func:`parse_evidence_file`.
    """
    source = str(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        is_link = isinstance(error, OSError) and error.errno == errno.ELOOP
        reason = getattr(error, "strerror", None) or str(error)
        if isinstance(error, FileNotFoundError):
            reason = "the file does not exist"
        raise _refused(source, "it is a symbolic link" if is_link else reason) from error
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
        f"cannot read evidence file {source}",
        code="EVIDENCE_REFUSED",
        where=Location(path=source),
        why=why,
        hint="pass the path of a regular file",
    )


def load_evidence_folder(folder: Path) -> dict[str, EvidenceFile]:
    """The evidence files of a series by name, sorted; none if the folder does not exist.

    Raises:
        EVIDENCE_REFUSED: the name of a file does not match its content.
        The errors of :func:`load_evidence_file`; an ErrorGroup if several files have errors.
    """
    files: dict[str, EvidenceFile] = {}
    errors: list[PatchkitError] = []
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        if is_editor_file(Path(path.name)):
            continue
        try:
            file = load_evidence_file(path)
            check_name(file, path.name, str(path))
        except PatchkitError as error:
            errors.append(error)
        else:
            files[path.name] = file
    raise_all(errors, "several evidence files cannot be read")
    return files


def check_name(file: EvidenceFile, name: str, source: str) -> None:
    """Raise EVIDENCE_REFUSED if ``name`` is not the name that the content gives."""
    if name != file.name:
        raise UsageError(
            f"the file name of {source} does not match its content",
            code="EVIDENCE_REFUSED",
            where=Location(path=source),
            why=f"the content gives the name {file.name}: the file was edited or renamed",
            hint="remove it, and add the original file again: patchkit evidence add FILE",
        )
