"""Records what the tests of the interpreter need of the SDK, into recorded.zip.

By hand, after a change of the programs or of the pseudocode's cases, with the extra ``dev`` and an SDK in a
folder (``patchkit sdk install --cache-dir FOLDER``):
``PYTHONPATH=tests/support python tests/integration/interpreter/record.py FOLDER``. The archive has

- GFX.txt: instructions, a line each: their bytes in hexadecimal, and what LLVM's disassembler writes;
- rdna3.jsonl, rdna4.jsonl: for most instructions one case with what AMD's pseudocode says that it leaves
  (tests/support/pseudocode).
"""

from __future__ import annotations

import io
import json
import sys
import zipfile
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from elftools.elf.elffile import ELFFile
from pseudocode.assembly import Assembler, Disassembler
from pseudocode.cases import FAMILIES, Case, generate
from pseudocode.drafts import State

from patchkit.base.arch import architecture_of
from patchkit.base.reporter import NullReporter
from patchkit.gpu.emulated.emulator import find_disassembler
from patchkit.toolchain.hip import find_toolchain

HERE = Path(__file__).parent
PROGRAMS = HERE.parent / "emulator" / "triton" / "kernels.zip"
GPUS = ("gfx1100", "gfx1151", "gfx1201")  # of each architecture the last has the cases
WHOLE_WAVE = {"lanes", "dpp", "matrix", "lds", "lds_atomics", "memory", "memory_atomics"}
DISTINCT = 8  # lanes


def repeat_lanes(state: State) -> None:
    """A few lanes again and again, which compresses."""
    for lanes in state.v.values():
        lanes[:] = lanes[:DISTINCT] * (len(lanes) // DISTINCT)


def cases_of(assembler: Assembler) -> Iterator[Case]:
    """One per instruction, of dual instructions and of accesses to memory a part."""
    for name in FAMILIES:
        change = None if name in WHOLE_WAVE else repeat_lanes
        made = generate(name, seed=6, count=1, assembler=assembler, change=change)
        step = 8 if name == "dual" else 3 if name.startswith(("lds", "memory")) else 1
        yield from [case for case in made if case["name"].endswith(".0")][::step]


def code_of_programs(gpu: str) -> Iterator[bytes]:
    """The functions of all programs for a GPU."""
    with zipfile.ZipFile(PROGRAMS) as programs:
        for name in programs.namelist():
            if not name.endswith(f"-{gpu}.hsaco"):
                continue
            elf = ELFFile(io.BytesIO(programs.read(name)))
            for symbol in elf.get_section_by_name(".symtab").iter_symbols():
                if symbol["st_info"]["type"] == "STT_FUNC":
                    text = elf.get_section(symbol["st_shndx"])
                    begin = symbol["st_value"] - text["sh_addr"]
                    yield text.data()[begin : begin + symbol["st_size"]]


def read_back(disassembler: Disassembler, code: bytes) -> Iterator[tuple[str, str]]:
    """Bytes and text of each instruction."""
    read = disassembler.disassemble(code)
    for (at, text), (end, _) in zip(read, [*read[1:], (len(code), "")], strict=True):
        yield code[at:end].hex(), " ".join(text.split())


def main(cache: Path) -> None:
    toolchain = find_toolchain(cache, {}, NullReporter())
    library = find_disassembler(toolchain)
    llvm_mc = next(library.parent.parent.glob("llvm-*/bin/llvm-mc"))
    with zipfile.ZipFile(HERE / "recorded.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for architecture, of_it in groupby(GPUS, lambda gpu: architecture_of(gpu).name):
            gpus = list(of_it)
            cases = list(cases_of(Assembler(llvm_mc, library, gpus[-1])))
            lines = "".join(json.dumps(case, separators=(",", ":")) + "\n" for case in cases)
            add(archive, f"{architecture}.jsonl", lines)
            for gpu in gpus:
                disassembler = Disassembler(library, gpu)
                known: dict[str, str] = {}
                for code in (*code_of_programs(gpu), *(bytes.fromhex(case["code"]) for case in cases)):
                    try:
                        known.update(read_back(disassembler, code))
                    except ValueError:  # no instruction of this GPU of the architecture
                        continue
                add(archive, f"{gpu}.txt", "".join(f"{key} {text}\n" for key, text in sorted(known.items())))


def add(archive: zipfile.ZipFile, name: str, content: str) -> None:
    archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)  # of 1980, on any day


if __name__ == "__main__":
    main(Path(sys.argv[1]))
