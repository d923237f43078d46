"""Findings of the emulated GPU's checks by source line, and suppressions of known ones."""

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
from patchkit.gpu.emulated.names import host_name, read_name

_LEAST_DWARF = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """One instruction of a kernel, or of a function that kernels call.

    An operation without device code (such as a copy) is represented by the host call that requested it; then
    ``offset`` is None.

    ``file`` and ``line`` are None if the code has no line tables. A file in the program's own tree is
    relative to that tree. ``offset``: bytes from the start of the function. ``inlined_at``: call sites that
    the code was inlined at, innermost first.
    """

    function: str
    offset: int | None
    text: str
    file: str | None
    line: int | None
    inlined_at: tuple[tuple[str, int], ...] = ()

    @property
    def place(self) -> str:
        """As file:line, or as function and byte offset if the line is unknown."""
        if self.file is None:
            name = str(read_name(self.function)) if self.function else "?"
            return name if self.offset is None else f"{name}, byte {self.offset}"
        return f"{self.file}:{self.line}"

    @property
    def places(self) -> tuple[str, ...]:
        """:attr:`place` followed by the call sites it was inlined at, innermost first."""
        return (self.place, *(f"{file}:{line}" for file, line in self.inlined_at))


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A host call on the stack of a launch. ``function`` is empty if no symbol table names it."""

    function: str
    file: str | None
    line: int | None
    module: str

    def __str__(self) -> str:
        name = host_name(self.function) if self.function else "?"
        place = f"{posixpath.basename(self.file)}:{self.line}" if self.file is not None else self.module
        return f"{name} ({place})"


_OTHER_KERNEL = re.compile(r"\bkernel (_Z\w+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fault at one source location: how many ``times`` and at how many ``instructions`` it happened.

    ``other`` is the instruction it conflicts with. ``what``, ``kernel`` (empty if no kernel was involved),
    ``block`` and ``wave`` are those of the first wave of the first block, in the first launch that showed it.
    ``is_note``: worth knowing, but not a fault.
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
        """The finding as a sentence with its subject: a lane, a wave, a block or a host operation."""
        has_subject = not self.kernel or self.what.startswith(("lane ", "the wave ", "block "))
        what = self.what if has_subject else f"wave {self.wave} {self.what}"
        return _OTHER_KERNEL.sub(lambda found: f"kernel {read_name(found[1])}", what)

    @property
    def is_of_program(self) -> bool:
        """Whether the program itself accessed memory too early; ``other_called_from`` is then its access."""
        return self.what.startswith("the program ")

    @property
    def action(self) -> str:
        """The verb: reads, writes, changes or overwrites; empty for other findings."""
        return _verb(self.what)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Inlined:
    """Address range of code inlined at ``file`` and ``line``; ``depth`` is the inlining depth."""

    begin: int
    end: int
    depth: int
    file: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Object:
    """An ELF file's functions (start, size, name) and line table rows, by address.

    ``base`` is the lowest virtual address of its loaded segments.
    """

    base: int = 0
    symbols: tuple[tuple[int, int, str], ...] = ()
    rows: tuple[tuple[int, str, int], ...] = ()
    inlined: tuple[_Inlined, ...] = ()

    def calls_around(self, address: int) -> tuple[tuple[str, int], ...]:
        """The call sites inlined around an address, innermost first."""
        around = [one for one in self.inlined if one.begin <= address < one.end]
        return tuple((one.file, one.line) for one in sorted(around, key=lambda one: -one.depth))

    def line_at(self, address: int) -> tuple[str | None, int | None]:
        """The file and line of an address."""
        # Of several rows at one address the last is valid; line 0 is code without a source line.
        for _, file, line in reversed(self.rows[: bisect_right(self.rows, address, key=itemgetter(0))]):
            if not file:
                return None, None
            if line:
                return file, line
        return None, None

    def function_at(self, address: int) -> str:
        """The function that contains an address, or an empty string."""
        place = bisect_right(self.symbols, address, key=itemgetter(0))
        if place:
            start, size, name = self.symbols[place - 1]
            if address < start + size:
                return name
        return ""


class SourceLines:
    """Looks up source lines in the code objects of a folder, and in the program's own files.

    The files come from the program that ran, so they may be damaged: anything that does not parse as ELF with
    DWARF has no lines.
    """

    def __init__(self, folder: Path, root: Path | None = None) -> None:
        self._folder = folder
        self._root = root
        self._read: dict[Path, _Object] = {}

    def find(self, place: CodePlace) -> Instruction:
        """The instruction with its source line."""
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
            file=None if file is None else self._relative(file),
            line=line,
            inlined_at=tuple((self._relative(name), number) for name, number in around),
        )

    def _relative(self, file: str) -> str:
        if self._root is None:
            return file
        return file.removeprefix(f"{self._root}/").removeprefix("./")

    def calls(self, frames: Iterable[Frame]) -> tuple[Call, ...]:
        """The calls, without those that the compiler generates around a launch and around ``main``."""
        result = []
        for frame in frames:
            if frame.file.endswith(".py"):  # named by the driver for Triton: the offset is a line
                script, name = self._relative(frame.file), posixpath.basename(frame.file)
                result.append(Call(function=frame.name, file=script, line=frame.offset, module=name))
                continue
            module = self._object(Path(frame.file))
            address = module.base + frame.offset - 1  # a return address is one past its call
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
    """Where a kernel was stopped, one line of text per source line; empty if the code has no line tables."""
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


_OF_HIP = "/hip/amd_detail/"  # HIP headers: what __syncthreads() expands to does not help its caller
_NOT_THE_PROGRAMS = ("__device_stub__", "__libc_start", "_start")
# For example hipMalloc<float>, a static template in HIP's headers: it has its own frame in unoptimised code.
_OF_HEADERS = re.compile(r"_ZL\d+hip[A-Z]\w*?I")
# Bytes of .debug_line. pyelftools needs 40 s per 10 MB (measured), too long to wait for a name.
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
            # An end_sequence row marks the first address past the code: it belongs to no line.
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
    """The compilation folder, which DWARF 4 line tables do not repeat."""
    known = unit.get_top_DIE().attributes.get("DW_AT_comp_dir")
    return b"" if known is None else bytes(known.value)


def _file_name(program: LineProgram, number: int, home: bytes) -> str:
    header = program.header
    is_dwarf_5 = header["version"] >= 5  # noqa: PLR2004 - from 5 on, files and folders count from 0
    entry = header["file_entry"][number if is_dwarf_5 else number - 1]
    folders = [one if isinstance(one, bytes) else one.DW_LNCT_path for one in header["include_directory"]]
    folder = b""
    if is_dwarf_5:
        folder = folders[entry.dir_index]
    elif entry.dir_index:
        folder = folders[entry.dir_index - 1]
    parts = [*folders[:1], folder, entry.name] if is_dwarf_5 else [home, folder, entry.name]
    return posixpath.normpath(posixpath.join(*(str(part, "utf-8", "replace") for part in parts)))


def load_unreported_findings(folder: Path) -> tuple[list[Found], int]:
    """Findings of processes that ended without a report, and the number of these processes.

    Each finding counts once, because the real number of times was lost with the report.
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
    """Merge findings into one per fault and source location, in the order in which they were found."""
    result: dict[tuple[object, ...], Finding] = {}
    for one in found:
        calls, other_calls = lines.calls(one.called_from), lines.calls(one.other_called_from)
        at = lines.find(one.at) if one.at.function else _asked_for(one.at, calls)
        other = None
        if one.other is not None:
            other = lines.find(one.other) if one.other.function else _asked_for(one.other, other_calls)
        if one.kind == "barriers" and other is not None and _is_one_barrier(at, other):
            continue
        # At one barrier a wave may wait, or arrive with only some of its lanes: different faults.
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
    """Whether the compiler duplicated one source barrier; without line tables this cannot be excluded."""
    return at.file is None or other.file is None or at.places == other.places


def _asked_for(place: CodePlace, calls: Sequence[Call]) -> Instruction:
    """An operation without device code, located at the host call that requested it."""
    if not calls:
        return Instruction(function="", offset=None, text=place.text, file=None, line=None)
    call = calls[0]
    return Instruction(function=call.function, offset=None, text=place.text, file=call.file, line=call.line)


def _verb(what: str) -> str:
    """The verb in ``what``; a single source line may both read and write."""
    return next((word for word in what.split() if word in {"reads", "writes", "changes", "overwrites"}), "")


def _key(at: Instruction) -> tuple[object, ...]:
    if at.file is not None:
        return (at.file, at.line, *at.inlined_at)
    return (at.function, at.offset, at.text if at.offset is None else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppression(TomlTable):
    """Known findings of one ``kind``, in kernels and at places that match the patterns.

    ``kernel`` and ``place`` are shell patterns for the kernel's name and for file:line. ``reason`` says why
    the findings are accepted, ``link`` where that is discussed. ``where``: location in the suppression file.
    """

    named_by: ClassVar[str] = "reason"

    kind: CheckName
    reason: Prose
    link: Words
    kernel: Words = "*"
    place: Words = "*"
    where: NotInFile[Location] = NOWHERE

    def fits(self, finding: Finding) -> bool:
        """Whether it matches a finding."""
        return (
            finding.kind == self.kind
            and fnmatchcase(str(read_name(finding.kernel)), self.kernel)
            and any(fnmatchcase(place, self.place) for place in finding.at.places)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Suppressions(TomlTable):
    suppress: Several[Suppression] = ()


def load_suppressions(path: Path) -> tuple[Suppression, ...]:
    """Read a suppression file: an array of tables named ``suppress``.

    Raises:
        ConfigError: it cannot be read, or has an invalid value.
    """
    return validate(load_toml(path), _Suppressions, what="file of suppressions").suppress


def suppress(
    findings: Sequence[Finding], known: Sequence[Suppression]
) -> tuple[list[Finding], list[tuple[Finding, Suppression]], ConfigError | None]:
    """Split findings into remaining ones and suppressed ones (each with its suppression).

    The third result is the error SUPPRESSION_UNUSED if some suppressions matched nothing, else None.
    """
    left, suppressed, unused = [], [], list(known)
    for finding in findings:
        fitting = [one for one in known if one.fits(finding)]
        unused = [one for one in unused if one not in fitting]
        if fitting:
            suppressed.append((finding, fitting[0]))
        else:
            left.append(finding)
    wrong = None
    if unused:
        wrong = ConfigError(
            f"{counted(len(unused), 'suppression')} matched no finding",
            code="SUPPRESSION_UNUSED",
            where=[replace(one.where, label=f"{one.kind} in {one.kernel} at {one.place}") for one in unused],
            why="the faults no longer occur, or this run does not execute that code",
            hint="delete the entries, or keep them in a separate file for the runs that need them",
        )
    return left, suppressed, wrong
