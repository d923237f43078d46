"""What the checks of the emulated GPU found, by source line, and what a user knows of already."""

from __future__ import annotations

import contextlib
import posixpath
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from operator import itemgetter
from pathlib import Path
from typing import ClassVar

from elftools.dwarf.compileunit import CompileUnit
from elftools.dwarf.die import DIE
from elftools.dwarf.dwarfinfo import DWARFInfo
from elftools.dwarf.lineprogram import LineProgram
from elftools.dwarf.ranges import RangeEntry
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from patchkit.base.errors import ConfigError, Location
from patchkit.base.files import open_regular
from patchkit.base.text import counted
from patchkit.base.toml import (
    NOWHERE,
    NotInFile,
    Prose,
    Several,
    TomlTable,
    Words,
    load_toml,
    validate,
)
from patchkit.gpu.emulated.checks import CheckName
from patchkit.gpu.emulated.emulator import CodePlace, Found, Frame, Stopped
from patchkit.gpu.emulated.names import read_name

_LEAST_DWARF = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """One instruction of a kernel, or of a function that kernels call.

    Or the call by which the program asked for an operation that has no code: then ``offset`` is None.

    ``file`` and ``line`` are None where the code has no line tables; a file of the program's own tree is
    relative to that. ``offset``: bytes from the start of the function. ``inlined_at``: the calls that the
    compiler put the code in place of, the innermost first.
    """

    function: str
    offset: int | None
    text: str
    file: str | None
    line: int | None
    inlined_at: tuple[tuple[str, int], ...] = ()

    @property
    def place(self) -> str:
        """As file:line, or as a byte of the function."""
        if self.file is None:
            name = str(read_name(self.function)) if self.function else "?"
            return name if self.offset is None else f"{name}, byte {self.offset}"
        return f"{self.file}:{self.line}"

    @property
    def places(self) -> tuple[str, ...]:
        """That one, and those that it was inlined at, the innermost first."""
        return (self.place, *(f"{file}:{line}" for file, line in self.inlined_at))


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call in the program that led to a launch. ``function`` is empty where no table names it."""

    function: str
    file: str | None
    line: int | None
    module: str

    def __str__(self) -> str:
        name = str(read_name(self.function)) if self.function else "?"
        place = f"{posixpath.basename(self.file)}:{self.line}" if self.file is not None else self.module
        return f"{name} ({place})"


_OTHER_KERNEL = re.compile(r"\bkernel (_Z\w+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fault at one place of the source; ``times`` it happened, at so many ``instructions``.

    ``other`` is what it conflicts with. ``what``, ``kernel`` (empty where none did it), ``block`` and
    ``wave`` are of the first wave of the first block, in the first launch that showed it. ``is_note``: it is
    worth knowing, and no fault.
    """

    kind: CheckName
    what: str
    kernel: str
    at: Instruction
    other: Instruction | None
    block: tuple[int, int, int] | None
    wave: int | None
    times: int
    instructions: int
    called_from: tuple[Call, ...]
    other_called_from: tuple[Call, ...] = ()
    is_note: bool = False

    @property
    def title(self) -> str:
        """Who did what: a lane, the wave, a block, or what has no code."""
        is_told = not self.kernel or self.what.startswith(("lane ", "the wave ", "block "))
        what = self.what if is_told else f"wave {self.wave} {self.what}"
        return _OTHER_KERNEL.sub(lambda found: f"kernel {read_name(found[1])}", what)

    @property
    def action(self) -> str:
        """Whether it reads, writes or changes something; empty where it is none of these."""
        return _verb(self.what)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Inlined:
    """Addresses of code that stands in place of the call at ``file`` and ``line``, so ``depth`` in others."""

    begin: int
    end: int
    depth: int
    file: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Object:
    """What is known of an ELF file: its functions (start, size, name) and rows of line tables, by address.

    ``base`` is the address of its first byte in memory, as the file counts.
    """

    base: int = 0
    symbols: tuple[tuple[int, int, str], ...] = ()
    rows: tuple[tuple[int, str, int], ...] = ()
    inlined: tuple[_Inlined, ...] = ()

    def calls_around(self, address: int) -> tuple[tuple[str, int], ...]:
        """The calls that were inlined around an address, the innermost first."""
        around = [one for one in self.inlined if one.begin <= address < one.end]
        return tuple((one.file, one.line) for one in sorted(around, key=lambda one: -one.depth))

    def line_at(self, address: int) -> tuple[str | None, int | None]:
        """The file and line of an address."""
        # Of rows at one address the last counts; line 0 is code that comes from no line.
        for _, file, line in reversed(self.rows[: bisect_right(self.rows, address, key=itemgetter(0))]):
            if not file:
                return None, None
            if line:
                return file, line
        return None, None

    def function_at(self, address: int) -> str:
        """The function that holds an address, or an empty text."""
        place = bisect_right(self.symbols, address, key=itemgetter(0))
        if place:
            start, size, name = self.symbols[place - 1]
            if address < start + size:
                return name
        return ""


class SourceLines:
    """Looks up source lines in the code objects of a folder, and in the program's own files.

    They come from the program that ran: what does not read as ELF with DWARF has no lines.
    """

    def __init__(self, folder: Path, root: Path | None = None) -> None:
        self._folder = folder
        self._root = root
        self._read: dict[Path, _Object] = {}

    def find(self, place: CodePlace) -> Instruction:
        """The instruction with its line."""
        file, line = None, None
        around: tuple[tuple[str, int], ...] = ()
        if place.object and "/" not in place.object:
            code = self._object(self._folder / place.object)
            start = next((start for start, _, name in code.symbols if name == place.function), None)
            if start is not None:
                file, line = code.line_at(start + place.offset)
                around = code.calls_around(start + place.offset)
        return Instruction(
            function=place.function,
            offset=place.offset,
            text=place.text,
            file=None if file is None else self._told(file),
            line=line,
            inlined_at=tuple((self._told(name), number) for name, number in around),
        )

    def _told(self, file: str) -> str:
        if self._root is None:
            return file
        return file.removeprefix(f"{self._root}/").removeprefix("./")

    def calls(self, frames: Iterable[Frame]) -> tuple[Call, ...]:
        """The calls without those that the compiler makes around a launch and around ``main``."""
        result = []
        for frame in frames:
            module = self._object(Path(frame.file))
            address = module.base + frame.offset - 1  # the call lies before what it returns to
            function = module.function_at(address) or frame.name
            is_around = any(mark in function for mark in _NOT_THE_PROGRAMS)
            if not is_around and not _OF_HEADERS.match(function):
                file, line = module.line_at(address)
                name = posixpath.basename(frame.file)
                result.append(Call(function=function, file=file, line=line, module=name))
            if function == "main":
                break
        return tuple(result)

    def _object(self, path: Path) -> _Object:
        if path not in self._read:
            self._read[path] = _read_object(path)
        return self._read[path]


def stopped_lines(stopped: Stopped | None, lines: SourceLines) -> list[str]:
    """Where a kernel was stopped: a text for each source line; none where the code has no lines."""
    waves: dict[tuple[str, str], list[int]] = {}
    for one in stopped.waves if stopped is not None else ():
        at = None if one.at is None else lines.find(one.at)
        if at is not None and at.file is not None:
            places = [place for place in at.places if _OF_HIP not in place] or at.places
            waves.setdefault((", inlined at ".join(places), one.does), []).append(one.wave)
    return [
        f"{place}: {does} ({'wave' if len(numbers) == 1 else 'waves'} {', '.join(map(str, numbers))})"
        for (place, does), numbers in waves.items()
    ]


_OF_HIP = "/hip/amd_detail/"  # headers: what __syncthreads() is made of says nothing to whoever called it
_NOT_THE_PROGRAMS = ("__device_stub__", "__libc_start", "_start")
# As hipMalloc<float>, a static template of HIP's headers: a frame of its own where nothing is optimised.
_OF_HEADERS = re.compile(r"_ZL\d+hip[A-Z]\w*?I")
# Of line tables: what is larger takes longer than anybody waits for a name (40 s measured per 10 MB).
_MOST_LINES = 4 << 20


def _read_object(path: Path) -> _Object:
    try:
        with open_regular(path) as stream:
            elf = ELFFile(stream)
            base = min((part["p_vaddr"] for part in elf.iter_segments("PT_LOAD")), default=0)
            table = elf.get_section_by_name(".symtab")
            symbols = () if not isinstance(table, SymbolTableSection) else tuple(sorted(_functions(table)))
            lines = elf.get_section_by_name(".debug_line")
            is_small = lines is not None and lines.data_size <= _MOST_LINES
            dwarf = elf.get_dwarf_info() if is_small else None
            rows = () if dwarf is None else tuple(sorted(_rows(dwarf)))
            inlined = () if dwarf is None else tuple(_inlined(dwarf))
    except Exception:  # noqa: BLE001  # the library fails on damaged files in more ways than it has errors for
        return _Object()
    return _Object(base=base, symbols=symbols, rows=rows, inlined=inlined)


def _functions(table: SymbolTableSection) -> Iterator[tuple[int, int, str]]:
    for one in table.iter_symbols():
        if one["st_info"]["type"] == "STT_FUNC" and one["st_size"]:
            yield one["st_value"], one["st_size"], str(one.name)


def _rows(dwarf: DWARFInfo) -> Iterator[tuple[int, str, int]]:
    for unit in dwarf.iter_CUs():
        program = dwarf.line_program_for_CU(unit)
        if program is None or program["version"] < _LEAST_DWARF:
            continue
        home = _home(unit)
        for entry in program.get_entries():
            state = entry.state
            if state is None:
                continue
            # The end of a sequence has no line: an address behind it is in no row.
            name = "" if state.end_sequence else _file_name(program, state.file, home)
            yield state.address, name, 0 if state.end_sequence else state.line


def _inlined(dwarf: DWARFInfo) -> Iterator[_Inlined]:
    for unit in dwarf.iter_CUs():
        program = dwarf.line_program_for_CU(unit)
        top, home = unit.get_top_DIE(), _home(unit)
        base = top.attributes["DW_AT_low_pc"].value if "DW_AT_low_pc" in top.attributes else 0
        waiting = [(top, 0)]
        while waiting:
            die, depth = waiting.pop()
            is_inlined = die.tag == "DW_TAG_inlined_subroutine"
            if is_inlined and program is not None and "DW_AT_call_file" in die.attributes:
                file = _file_name(program, die.attributes["DW_AT_call_file"].value, home)
                line = die.attributes["DW_AT_call_line"].value
                for begin, end in _ranges(dwarf, unit, die, base):
                    yield _Inlined(begin=begin, end=end, depth=depth, file=file, line=line)
            waiting += [(child, depth + is_inlined) for child in die.iter_children()]


def _ranges(dwarf: DWARFInfo, unit: CompileUnit, die: DIE, base: int) -> Iterator[tuple[int, int]]:
    known = die.attributes
    if "DW_AT_low_pc" in known and "DW_AT_high_pc" in known:
        begin, end = known["DW_AT_low_pc"].value, known["DW_AT_high_pc"].value
        yield begin, end if known["DW_AT_high_pc"].form == "DW_FORM_addr" else begin + end
    elif "DW_AT_ranges" in known:
        lists = dwarf.range_lists()
        for entry in lists.get_range_list_at_offset(known["DW_AT_ranges"].value, unit) if lists else ():
            if isinstance(entry, RangeEntry):
                start = 0 if entry.is_absolute else base
                yield start + entry.begin_offset, start + entry.end_offset
            else:
                base = entry.base_address


def _home(unit: CompileUnit) -> bytes:
    """The folder that it was compiled in, which DWARF 4 does not repeat in its tables of lines."""
    known = unit.get_top_DIE().attributes.get("DW_AT_comp_dir")
    return b"" if known is None else bytes(known.value)


def _file_name(program: LineProgram, number: int, home: bytes) -> str:
    header = program.header
    is_dwarf_5 = header["version"] >= 5  # noqa: PLR2004 - which counts files and folders from 0
    entry = header["file_entry"][number if is_dwarf_5 else number - 1]
    folders = [one if isinstance(one, bytes) else one.DW_LNCT_path for one in header["include_directory"]]
    folder = b""
    if is_dwarf_5:
        folder = folders[entry.dir_index]
    elif entry.dir_index:
        folder = folders[entry.dir_index - 1]
    parts = [*folders[:1], folder, entry.name] if is_dwarf_5 else [home, folder, entry.name]
    return posixpath.normpath(posixpath.join(*(str(part, "utf-8", "replace") for part in parts)))


def left_behind(folder: Path) -> tuple[list[Found], int]:
    """What processes found that ended without a report, and how many processes these were.

    Each is counted once: how often it happened nobody knows any more.
    """
    found: list[Found] = []
    files = sorted(folder.glob("*.findings"))
    for file in files:
        with contextlib.suppress(OSError, ValueError), open_regular(file) as stream:
            for line in stream.read(_MOST_NOTES).splitlines():
                with contextlib.suppress(ValueError):
                    found.append(Found.model_validate_json(line))
    return found, len(files)


_MOST_NOTES = 64 << 20


def distinct(found: Iterable[Found], lines: SourceLines) -> list[Finding]:
    """Each fault once per place of the source, in the order in which they were found."""
    result: dict[tuple[object, ...], Finding] = {}
    for one in found:
        calls, other_calls = lines.calls(one.called_from), lines.calls(one.other_called_from)
        at = lines.find(one.at) if one.at.function else _asked_for(one.at, calls)
        other = None
        if one.other is not None:
            other = lines.find(one.other) if one.other.function else _asked_for(one.other, other_calls)
        if one.kind == "barriers" and other is not None and _is_one_barrier(at, other):
            continue
        # At one barrier a wave may wait, and come to it with some lanes.
        does = one.what.partition(" ")[0] if one.kind == "barriers" else _verb(one.what)
        key = (one.kind, one.note, does, _key(at), None if other is None else _key(other))
        known = result.get(key)
        times, instructions = (0, 0) if known is None else (known.times, known.instructions)
        first = known or Finding(
            kind=one.kind,
            what=one.what,
            kernel=one.kernel,
            at=at,
            other=other,
            block=one.block if one.kernel else None,
            wave=one.wave if one.kernel else None,
            times=0,
            instructions=0,
            called_from=calls,
            other_called_from=other_calls,
            is_note=one.note,
        )
        result[key] = Finding(
            **{name: getattr(first, name) for name in _OF_FIRST},
            times=times + one.times,
            instructions=instructions + 1,
        )
    return list(result.values())


_OF_FIRST = (
    *("kind", "what", "kernel", "at", "other", "block", "wave", "called_from", "other_called_from"),
    "is_note",
)


def _is_one_barrier(at: Instruction, other: Instruction) -> bool:
    """Whether two barriers are one of the source, which the compiler copied; so they may be without lines."""
    return at.file is None or other.file is None or at.places == other.places


def _asked_for(place: CodePlace, calls: Sequence[Call]) -> Instruction:
    """An operation without code, at the call in the program."""
    if not calls:
        return Instruction(function="", offset=None, text=place.text, file=None, line=None)
    call = calls[0]
    return Instruction(function=call.function, offset=None, text=place.text, file=call.file, line=call.line)


def _verb(what: str) -> str:
    """Whether it reads, writes or changes something: one line of the source may do all of it."""
    return next((word for word in what.split() if word in {"reads", "writes", "changes", "overwrites"}), "")


def _key(at: Instruction) -> tuple[object, ...]:
    if at.file is not None:
        return (at.file, at.line, *at.inlined_at)
    return (at.function, at.offset, at.text if at.offset is None else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppression(TomlTable):
    """Findings that are known: of a ``kind``, in kernels and at places that fit the patterns.

    ``kernel`` and ``place`` are patterns as of a shell, of the kernel's name and of file:line. ``reason``
    says why they are left, ``link`` where that is discussed. ``where``: its place in the file.
    """

    named_by: ClassVar[str] = "reason"

    kind: CheckName
    reason: Prose
    link: Words
    kernel: Words = "*"
    place: Words = "*"
    where: NotInFile[Location] = NOWHERE

    def fits(self, finding: Finding) -> bool:
        """Whether this is one of them."""
        return (
            finding.kind == self.kind
            and fnmatchcase(str(read_name(finding.kernel)), self.kernel)
            and any(fnmatchcase(place, self.place) for place in finding.at.places)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Suppressions(TomlTable):
    suppress: Several[Suppression] = ()


def load_suppressions(path: Path) -> tuple[Suppression, ...]:
    """Read a file of them: an array of tables ``suppress``.

    Raises:
        ConfigError: it cannot be read, or something in it is not what it must be.
    """
    return validate(load_toml(path), _Suppressions, what="file of suppressions").suppress


def suppress(
    findings: Sequence[Finding], known: Sequence[Suppression]
) -> tuple[list[Finding], list[tuple[Finding, Suppression]], ConfigError | None]:
    """What is left, what is known with the suppression that says so, and what is wrong with the suppressions.

    That is SUPPRESSION_UNUSED: some fit nothing that was found.
    """
    left, left_out, unused = [], [], list(known)
    for finding in findings:
        fitting = [one for one in known if one.fits(finding)]
        unused = [one for one in unused if one not in fitting]
        if fitting:
            left_out.append((finding, fitting[0]))
        else:
            left.append(finding)
    wrong = None
    if unused:
        wrong = ConfigError(
            f"{counted(len(unused), 'suppression')} without a finding",
            code="SUPPRESSION_UNUSED",
            where=[replace(one.where, label=f"{one.kind} in {one.kernel} at {one.place}") for one in unused],
            why="what they were for is gone, or this run does not come there",
            hint="delete them, or keep them in a file for the runs that need them",
        )
    return left, left_out, wrong
