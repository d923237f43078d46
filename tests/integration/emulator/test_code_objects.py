"""The emulator's loader on real code objects, on bundles of them, and on files that lie.

``load_code.cpp`` is the program under test, built with the sanitizers; LLVM's own readers say what is right.
"""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from patchkit.base.reporter import NullReporter
from patchkit.toolchain.hip import Toolchain, hip_flags, llvm_tool

pytestmark = [pytest.mark.hip, pytest.mark.slow]

_HERE = Path(__file__).parent
_EMULATOR = Path(__file__).resolve().parents[3] / "patchkit" / "gpu" / "emulated" / "native" / "emulator"
_SOURCES = [_EMULATOR / f"{name}.cpp" for name in ("bytes", "elf_file", "metadata", "code_object", "bundle")]
_KERNELS = _HERE / "code_kernels.hip"

# A kernel that needs no header, where only the kind of file matters.
_SMALL = '__attribute__((global)) extern "C" void one(int * out) { *out = 1; }\n'

_SANITIZED = {
    "PATH": os.environ["PATH"],
    "ASAN_OPTIONS": "quarantine_size_mb=8:allocator_may_return_null=0:detect_leaks=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}
# Far below what a lie in a header could ask for, with what the sanitizers need themselves.
_MOST_KILOBYTES = 300_000


@pytest.fixture(scope="module")
def program(hip_toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that loads files."""
    out = tmp_path_factory.mktemp("loader") / "load_code"
    argv = [str(hip_toolchain.clang), "--driver-mode=g++", "-std=c++20", "-O1", "-g", "-Wall", "-Wextra"]
    checks = ["-Werror", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    files = [str(path) for path in (*_SOURCES, _HERE / "load_code.cpp")]
    subprocess.run([*argv, *checks, "-I", str(_EMULATOR), *files, "-ldl", "-o", str(out)], check=True)
    return out


Load = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="module")
def load(program: Path) -> Load:
    """Runs it; no sanitizer may have anything to say."""

    def run(*args: object, env: dict[str, str] | None = None) -> list[dict[str, Any]]:
        argv = [str(program), *map(str, args)]
        done = subprocess.run(argv, env=_SANITIZED | (env or {}), capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), argv
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


Compile = Callable[..., Path]


@pytest.fixture(scope="module")
def compile_bundle(hip_toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Compile:
    """What ``clang -x hip --cuda-device-only -c`` writes for some GPUs."""

    def compile_for(*archs: str, source: Path = _KERNELS, extra: Sequence[str] = ()) -> Path:
        out = tmp_path_factory.mktemp("bundle") / f"{archs[0].replace(':', '_')}.hipfb"
        flags = hip_flags(hip_toolchain, archs[0], which="device")
        more = [f"--offload-arch={arch}" for arch in archs[1:]]
        argv = [str(hip_toolchain.clang), *flags, *more, *extra, "-c", str(source), "-o", str(out)]
        subprocess.run(argv, check=True)
        return out

    return compile_for


@pytest.fixture(scope="module")
def llvm(hip_toolchain: Toolchain) -> Callable[..., str]:
    """Runs a tool of the toolchain's LLVM and gives what it prints."""

    def run(name: str, *args: object) -> str:
        tool = llvm_tool(hip_toolchain, name, NullReporter())
        assert tool is not None, name
        argv = [str(tool), *map(str, args)]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout

    return run


@pytest.fixture(scope="module")
def unbundled(llvm: Callable[..., str]) -> Callable[[Path, str], Path]:
    """The code for one GPU in a bundle, as clang's own tool takes it out."""

    def take(bundle: Path, arch: str) -> Path:
        out = bundle.with_name(f"{arch.replace(':', '_')}.co")
        target = f"--targets=hipv4-amdgcn-amd-amdhsa--{arch}"
        llvm(
            "clang-offload-bundler", "--unbundle", "--type=o", f"--input={bundle}", target, f"--output={out}"
        )
        return out

    return take


@pytest.fixture(scope="module")
def real(compile_bundle: Compile, unbundled: Callable[[Path, str], Path]) -> Path:
    """The kernels for gfx1151, a bare ELF file."""
    return unbundled(compile_bundle("gfx1151"), "gfx1151")


def _of(lines: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    return {line[kind]: line for line in lines if kind in line}


def _metadata(readelf: str) -> dict[str, dict[str, Any]]:
    """The kernels of ``llvm-readelf --notes`` by name."""
    found = re.search(r"^ *---\n(.*?)^\.\.\.$", readelf, re.MULTILINE | re.DOTALL)
    assert found is not None
    return {kernel[".name"]: kernel for kernel in yaml.safe_load(found[1])["amdhsa.kernels"]}


def _symbols(readelf: str, kind: str) -> dict[str, tuple[int, int]]:
    """Address and size of the symbols of one kind in what ``llvm-readelf --symbols`` prints."""
    rows = re.findall(rf"^ *\d+: (\w+) +(\w+) {kind} .* (\S+)$", readelf, re.MULTILINE)
    return {name: (int(address, 16), int(size, 0)) for address, size, name in rows}


@pytest.mark.parametrize("arch", ["gfx1151", "gfx1100", "gfx1201"])
def test_everything_in_real_code_is_what_llvm_reads(arch, load, compile_bundle, unbundled, llvm):
    bundle = compile_bundle(arch)
    lines = load("show", bundle, arch)
    file = unbundled(bundle, arch)
    assert lines[0] == {"held": [arch], "size": file.stat().st_size}
    assert lines[1]["arch"] == arch

    expected = _metadata(llvm("llvm-readelf", "--notes", file))
    kernels = _of(lines, "kernel")
    assert len(kernels) == 5
    symbols = llvm("llvm-readelf", "--symbols", file)
    functions, objects = _symbols(symbols, "FUNC"), _symbols(symbols, "OBJECT")
    for name, said in expected.items():
        read = kernels.pop(name)
        assert read["args"] == [[arg[".value_kind"], arg[".offset"], arg[".size"]] for arg in said[".args"]]
        assert read["kernarg_size"] == said[".kernarg_segment_size"]
        assert read["kernarg_alignment"] == said[".kernarg_segment_align"]
        assert read["max_threads"] == said[".max_flat_workgroup_size"]
        assert read["lds"] == said[".group_segment_fixed_size"]
        assert read["scratch"] == said[".private_segment_fixed_size"]
        assert read["vgprs_used"] == said[".vgpr_count"]
        assert read["vgprs"] == max(8, -(-said[".vgpr_count"] // 8) * 8)
        assert read["sgprs"] == said[".sgpr_count"]
        assert read["wave_size"] == said[".wavefront_size"] == 32
        assert read["dynamic_stack"] == said[".uses_dynamic_stack"]
        assert read["entry"] == functions[name][0]
        assert read["rsrc1"] & 0xF0000 == 0xF0000  # denormals of all types are kept
    assert kernels == {}

    found = {
        name: (line["address"], line["size"], line["whole"]) for name, line in _of(lines, "function").items()
    }
    assert found == {name: (*place, 1) for name, place in functions.items()}
    assert {"_Z7doubledf", "_ZL9local_sumPKfi"} <= set(found)
    variables = _of(lines, "variable")
    assert {name: (line["address"], line["size"]) for name, line in variables.items()} == {
        name: place for name, place in objects.items() if not name.endswith(".kd")
    }


def test_variables_hold_what_they_were_initialised_with(load, real):
    lines = load("show", real, "gfx1151")
    variables, functions = _of(lines, "variable"), _of(lines, "function")
    assert variables["numbers"]["bytes"] == struct.pack("<4i", 1, 2, 3, 5).hex()
    assert variables["scale"]["bytes"] == struct.pack("<f", 0.5).hex()
    assert variables["counter"]["bytes"] == "00" * 8
    assert bytes.fromhex(variables["aligned_widely"]["bytes"]).rstrip(b"\0") == b"sixteen kilobytes"
    base = next(line["base"] for line in lines if "base" in line)
    assert (base + variables["aligned_widely"]["address"]) % 16384 == 0
    # Relocated: these are addresses of this process.
    assert variables["third"]["points_to"] == [variables["numbers"]["address"] + 8]
    assert variables["steps"]["points_to"] == [
        functions[name]["address"] for name in ("_Z7doubledf", "_Z6halvedf")
    ]


def test_kernels_of_64_lanes_are_told_apart(load, compile_bundle, tmp_path):
    source = tmp_path / "small.hip"
    source.write_text(_SMALL, "utf-8")
    bare = ("-nogpuinc", "-nogpulib")
    cases = {
        "gfx1151": (32, 8, bare),
        "gfx1100": (64, 4, (*bare, "-mwavefrontsize64")),
        "gfx906": (64, 4, bare),
        "gfx90a": (64, 8, bare),
        "gfx1250": (32, 16, bare),
    }
    for arch, (lanes, granule, extra) in cases.items():
        lines = load("show", compile_bundle(arch, source=source, extra=extra), arch)
        kernel = _of(lines, "kernel")["one"]
        assert (arch, kernel["wave_size"], kernel["vgprs"]) == (arch, lanes, granule)
        assert kernel["vgprs_used"] <= granule


@pytest.mark.parametrize("version", [4, 5, 6])
def test_all_versions_that_clang_writes_are_read(version, load, compile_bundle):
    extra = (f"-mcode-object-version={version}",)
    lines = load("show", compile_bundle("gfx1151", extra=extra), "gfx1151")
    arguments = [kind for kind, _, _ in _of(lines, "kernel")["_Z7has_ldsPf"]["args"]]
    # Since version 5 the sizes of the grid are arguments; before, they were read from the dispatch packet.
    assert ("hidden_block_count_x" in arguments) == (version > 4)


def test_a_stripped_file_lacks_only_the_names_of_local_functions(load, real, llvm, tmp_path):
    whole = load("show", real, "gfx1151")
    local = {"_Z7doubledf", "_Z6halvedf", "_ZL9local_sumPKfi"}
    for option in ("--strip-all", "--strip-sections"):
        out = tmp_path / "stripped.co"
        llvm("llvm-objcopy", option, real, out)
        stripped = load("show", out, "gfx1151")
        assert _of(stripped, "kernel") == _of(whole, "kernel")
        assert set(_of(stripped, "variable")) == set(_of(whole, "variable"))
        assert set(_of(stripped, "function")) == set(_of(whole, "function")) - local


_ASSEMBLY = """
.amdgcn_target "amdgcn-amd-amdhsa--gfx1151"
.data
.p2align 3
.macro variable name, value
.globl \\name
.type \\name, @object
\\name: .quad \\value
.size \\name, 8
.endm
variable exported, 7
variable pointer, exported+4
.weak absent
variable weak_pointer, absent
{more}
.amdgpu_metadata
amdhsa.version: [1, 2]
amdhsa.kernels: []
.end_amdgpu_metadata
"""


@pytest.fixture
def assembled(hip_toolchain: Toolchain, llvm: Callable[..., str], tmp_path: Path) -> Callable[[str], Path]:
    """Assembled and linked as a shared object, where symbols may be left for a loader."""

    def build(more: str) -> Path:
        source, linked = tmp_path / "data.s", tmp_path / "data.co"
        source.write_text(_ASSEMBLY.format(more=more), "utf-8")
        target = ["-target", "amdgcn-amd-amdhsa", "-mcpu=gfx1151", "-x", "assembler"]
        argv = [str(hip_toolchain.clang), *target, "-c", str(source), "-o", str(tmp_path / "data.o")]
        subprocess.run(argv, check=True)
        llvm("ld.lld", "-shared", tmp_path / "data.o", "-o", linked)
        return linked

    return build


def test_symbols_are_resolved_within_the_file(load, assembled):
    variables = _of(load("show", assembled(""), "gfx1151"), "variable")
    assert variables["pointer"]["points_to"] == [variables["exported"]["address"] + 4]
    assert variables["weak_pointer"]["bytes"] == "00" * 8
    refused = load("show", assembled("variable lost, missing"), "gfx1151")[-1]
    assert re.fullmatch(r"dynamic symbol \d+: missing is not defined", refused["bad"])


# -- Bundles


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("source") / "small.hip"
    source.write_text(_SMALL, "utf-8")
    return source


_FOUR = ("gfx90a:xnack-", "gfx1100", "gfx1151", "gfx90a:xnack+")


@pytest.fixture(scope="module")
def four(compile_bundle: Compile, small: Path) -> Path:
    """A bundle with code for four targets."""
    return compile_bundle(*_FOUR, source=small, extra=["-nogpuinc"])


def _compressed(bundle: bytes, version: int) -> bytes:
    """With zlib, as a clang without zstd writes it."""
    packed = zlib.compress(bundle)
    sizes = {
        1: struct.pack("<I", len(bundle)),
        2: struct.pack("<II", 24 + len(packed), len(bundle)),
        3: struct.pack("<QQ", 32 + len(packed), len(bundle)),
    }
    return b"CCOB" + struct.pack("<HH", version, 0) + sizes[version] + b"unlooked" + packed


def test_each_gpu_finds_its_own_code(load, four, unbundled, tmp_path):
    out = tmp_path / "found.co"
    for arch, entry in {arch: arch for arch in _FOUR}.items() | {("gfx90a:sramecc+:xnack-", "gfx90a:xnack-")}:
        load("extract", four, arch, out)
        assert out.read_bytes() == unbundled(four, entry).read_bytes() != b"", arch


@pytest.mark.parametrize("arch", ["gfx1150", "gfx115", "gfx11511", "gfx90a", "gfx90a:sramecc+", "xnack-", ""])
def test_a_gpu_without_code_learns_what_there_is(arch, load, four):
    (line,) = load("show", four, arch)
    assert line["size"] == 0
    assert sorted(line["held"]) == sorted(_FOUR)


def test_a_bare_file_is_for_its_own_gpu(load, real):
    assert load("show", real, "gfx1151:any+")[0]["size"] == real.stat().st_size
    assert load("show", real, "gfx1150") == [{"held": ["gfx1151"], "size": 0}]


@pytest.mark.parametrize("version", [2, 3])
def test_what_clang_compresses_is_read(
    version, load, compile_bundle, small, unbundled, monkeypatch, tmp_path
):
    monkeypatch.setenv("COMPRESSED_BUNDLE_FORMAT_VERSION", str(version))
    packed = compile_bundle(*_FOUR, source=small, extra=["-nogpuinc", "--offload-compress"])
    assert packed.read_bytes()[:8] == b"CCOB" + struct.pack("<HH", version, 1)
    out = tmp_path / "found.co"
    for arch in _FOUR:
        load("extract", packed, arch, out)
        assert out.read_bytes() == unbundled(packed, arch).read_bytes() != b""
    assert load("size", packed) == [{"size": packed.stat().st_size, "file": packed.stat().st_size}]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_zlib_and_older_headers_are_read(version, load, four, tmp_path):
    packed = tmp_path / "packed"
    packed.write_bytes(_compressed(four.read_bytes(), version))
    assert load("show", packed, "gfx1151")[1]["arch"] == "gfx1151"
    (answer,) = load("size", packed)
    if version == 1:
        assert "does not contain its length" in answer["bad"]
    else:
        assert answer["size"] == packed.stat().st_size


def test_a_missing_library_is_named(load, compile_bundle, small, tmp_path):
    packed = compile_bundle("gfx1151", source=small, extra=["-nogpuinc", "--offload-compress"])
    (tmp_path / "libzstd.so.1").write_text("no library", "utf-8")
    (answer,) = load("show", packed, "gfx1151", env={"LD_LIBRARY_PATH": str(tmp_path)})
    assert answer["bad"].startswith("the bundle is compressed with zstd, and its library cannot be loaded: ")
    assert "libzstd.so.1" in answer["bad"]


def test_the_size_of_a_bundle_is_found_in_it(load, four, real):
    for file in (four, real):
        assert load("size", file) == [{"size": file.stat().st_size, "file": file.stat().st_size}]


def test_a_header_is_not_believed_without_end(load, tmp_path):
    file = tmp_path / "bundle"
    for content, why in (
        (_bundle(count=5000), "has 5000 entries"),
        (_bundle((0, 1, _ENTRY), length=5000), "has a name of 5000 bytes"),
        (_bundle((2**31, 2**32, _ENTRY)), "bundle entry 0: 0x100000000 bytes at 0x80000000"),
        (b"CCOB\3\0\1\0" + struct.pack("<QQ", 2**40, 100), "0x10000000000 bytes"),
        (b"neither of them, and long enough", "neither an offload bundle nor an ELF file"),
    ):
        file.write_bytes(content)
        assert why in load("size", file)[0]["bad"]


def _bundle(*entries: tuple[int, int, bytes], count: int | None = None, length: int | None = None) -> bytes:
    table = b"".join(
        struct.pack("<3Q", offset, size, len(name) if length is None else length) + name
        for offset, size, name in entries
    )
    number = struct.pack("<Q", len(entries) if count is None else count)
    return b"__CLANG_OFFLOAD_BUNDLE__" + number + table


_ENTRY = b"hipv4-amdgcn-amd-amdhsa--gfx1151"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "neither an offload bundle nor an ELF file"),
        (b"__CLANG_OFFLOAD_BUNDLE_", "neither an offload bundle nor an ELF file"),
        (_bundle(count=2**60), "has 1152921504606846976 entries"),
        (_bundle((0, 0, b""), count=2), "bundle entry 1"),
        (
            _bundle((0, 10, _ENTRY), length=2**64 - 1),
            "bundle entry 0 has a name of 18446744073709551615 bytes",
        ),
        (
            _bundle((2**64 - 1, 2, _ENTRY)),
            "bundle entry 0: 0x2 bytes at 0xffffffffffffffff are not within",
        ),
        (_bundle((0, 2**63, _ENTRY)), "bundle entry 0: 0x8000000000000000 bytes at 0x0"),
        (_bundle((0, 24, _ENTRY)), "it does not begin with an ELF header"),
        (b"CCOB\4\0\0\0" + bytes(40), "version 4, but only 1 to 3 are supported"),
        (b"CCOB\3\0\7\0" + bytes(40), "method 7, neither zlib nor zstd"),
        (b"CCOB\2\0\0\0" + struct.pack("<II", 24, 2**31) + bytes(40), "has 2147483648 bytes"),
        (b"CCOB\2\0\0\0" + struct.pack("<II", 24, 2**29) + bytes(40), "0 bytes hold 536870912"),
        (b"CCOB\2\0\0\0" + struct.pack("<II", 5, 100) + bytes(40), "has 5 bytes in all"),
        (b"CCOB\3\0\1\0" + struct.pack("<QQ", 72, 100) + bytes(48), "holds 18446744073709551614 bytes"),
        (b"CCOB\1\0\0\0" + struct.pack("<I", 100) + bytes(40), "is not a zlib stream of 100 bytes"),
        (_compressed(b"not a bundle", 2), "neither an offload bundle nor an ELF file"),
        (_compressed(_compressed(_bundle(), 2), 2), "neither an offload bundle nor an ELF file"),
    ],
)
def test_a_bundle_that_lies_is_refused(content, why, load, tmp_path):
    file = tmp_path / "bundle"
    file.write_bytes(content)
    assert why in load("show", file, "gfx1151")[-1]["bad"]


# -- Files that lie


class _Changed:
    """A code object with some of its bytes changed, found by the names of sections."""

    def __init__(self, file: Path) -> None:
        self.content = bytearray(file.read_bytes())
        at, count, names = self.read("<Q", 40)[0], *self.read("<2H", 60)
        headers = [self.read("<IIQQQQ", at + 64 * number) for number in range(count)]
        text = headers[names][4]
        self.sections = {self.name(text + header[0]): header[4:] for header in headers}

    def name(self, at: int) -> str:
        return bytes(self.content[at : self.content.index(0, at)]).decode()

    def read(self, form: str, at: int) -> tuple[Any, ...]:
        return struct.unpack_from(form, self.content, at)

    def write(self, form: str, at: int, *values: int) -> None:
        struct.pack_into(form, self.content, at, *values)

    def section(self, name: str) -> int:
        """Where the header of a section is."""
        return self.read("<Q", 40)[0] + 64 * list(self.sections).index(name)

    def header(self, kind: int, number: int = 0) -> int:
        """Where the nth program header of one kind is."""
        headers = range(64, 64 + 56 * self.read("<H", 56)[0], 56)
        return [at for at in headers if self.read("<I", at)[0] == kind][number]

    def segment(self, number: int) -> int:
        """Where the program header of the nth segment is that is loaded."""
        return self.header(1, number)

    def symbol(self, name: str) -> tuple[int, int]:
        """The number of a dynamic symbol, and where it is."""
        (at, size), (names, _) = self.sections[".dynsym"], self.sections[".dynstr"]
        for number in range(size // 24):
            if self.name(names + self.read("<I", at + 24 * number)[0]) == name:
                return number, at + 24 * number
        raise KeyError(name)

    def descriptor(self, name: str) -> int:
        """Where the descriptor of a kernel is: read-only data lies at its own address."""
        return self.read("<Q", self.symbol(name + ".kd")[1] + 8)[0]

    def relocation(self, address: int) -> int:
        """Where the relocation of an address is."""
        at, size = self.sections[".rela.dyn"]
        return next(each for each in range(at, at + size, 24) if self.read("<Q", each)[0] == address)

    def metadata(self) -> int:
        """Where the metadata begins: behind the note's header and owner."""
        return self.sections[".note"][0] + 20


_LDS = "_Z7has_ldsPf"


def _third(file: _Changed) -> int:
    """The relocation of ``third``, which points to an element of ``numbers``."""
    return file.relocation(file.read("<Q", file.symbol("third")[1] + 8)[0])


def _swap(file: _Changed, old: bytes, new: bytes) -> None:
    """Writes over the first of these bytes in the note."""
    at = file.content.index(old, file.sections[".note"][0])
    file.content[at : at + len(new)] = new


_LIES: dict[str, tuple[Callable[[_Changed], object], str]] = {
    "another machine": (lambda f: f.write("<H", 18, 62), "the ELF header is for machine 62"),
    "32 bits": (lambda f: f.write("B", 4, 1), "not that of a 64-bit little-endian file"),
    "big-endian": (lambda f: f.write("B", 5, 2), "not that of a 64-bit little-endian file"),
    "not linked": (lambda f: f.write("<H", 16, 1), "type 1, not that of linked code"),
    "another system": (lambda f: f.write("B", 7, 65), "its OS ABI is 65"),
    "version 3": (lambda f: f.write("B", 8, 1), "a code object of version 3, but only 4 to 6 are supported"),
    "version 7": (lambda f: f.write("B", 8, 5), "a code object of version 7, but only 4 to 6 are supported"),
    "gfx8": (lambda f: f.write("<I", 48, 0x2A), "names processor 0x2a, which is not one of gfx9 to gfx12"),
    "too many program headers": (lambda f: f.write("<H", 56, 65535), "has 65535 program headers"),
    "program headers outside": (
        lambda f: f.write("<Q", 32, 2**63),
        "program headers: 0x1f8 bytes at 0x8000000000000000",
    ),
    "section headers outside": (lambda f: f.write("<Q", 40, 2**40), "section headers: "),
    "a huge segment": (
        lambda f: f.write("<Q", f.segment(3) + 40, 2**40),
        "segment 3: 0x10000000000 bytes at address",
    ),
    "segments far apart": (lambda f: f.write("<Q", f.segment(3) + 16, 2**40), "is too much memory"),
    "segments around the end": (lambda f: f.write("<Q", f.segment(3) + 16, 2**64 - 4096), "segment 3: "),
    "overlapping segments": (
        lambda f: f.write("<Q", f.segment(1) + 16, 4096),
        "not past the previous segment",
    ),
    "more in the file": (
        lambda f: f.write("<Q", f.segment(1) + 40, 8),
        "bytes in the file and 0x8 in memory",
    ),
    "bytes outside": (lambda f: f.write("<Q", f.segment(1) + 8, 2**50), "segment 1: "),
    "an odd alignment": (lambda f: f.write("<Q", f.segment(0) + 48, 4097), "segment 0: aligned to 0x1001"),
    "nothing to load": (
        lambda f: [f.write("<I", f.segment(0), 0) for _ in range(4)],
        "nothing to load",
    ),
    "an undefined symbol": (
        lambda f: f.write("<H", f.symbol("counter")[1] + 6, 0),
        ": counter is not defined",
    ),
    "a variable outside": (
        lambda f: f.write("<Q", f.symbol("counter")[1] + 8, 2**40),
        "are not in a segment",
    ),
    "a variable too long": (
        lambda f: f.write("<Q", f.symbol("counter")[1] + 16, 2**63),
        "are not in a segment",
    ),
    "a variable between": (
        lambda f: f.write("<Q", f.symbol("counter")[1] + 8, 0x7FFF),
        "address 0x7fff are not in a segment",
    ),
    "a function in data": (
        lambda f: f.write("<Q", f.symbol(_LDS)[1] + 8, 0x8000),
        "address 0x8000 are not in a segment of code",
    ),
    "a name outside": (lambda f: f.write("<I", f.symbol("counter")[1], 2**31), "dynamic symbol"),
    "memory of no file": (
        lambda f: f.write("<H", f.symbol("counter")[1] + 6, 0xFF00),
        "it is in section 0xff00",
    ),
    "a relocation outside": (lambda f: f.write("<Q", _third(f), 2**40), "relocation 0: 0x8 bytes at address"),
    "a relocation at the end": (
        lambda f: f.write("<Q", _third(f), 0xC059 - 7),
        "relocation 0: 0x8 bytes at address 0xc052",
    ),
    "an unknown relocation": (
        lambda f: f.write("<Q", _third(f) + 8, 7),
        "relocation 0: kind 7 is not one that a loader applies",
    ),
    "a relocation of nothing": (lambda f: f.write("<Q", _third(f) + 8, 99 << 32 | 3), "no dynamic symbol 99"),
    "a large value in 32 bits": (
        lambda f: f.write("<Q", _third(f) + 8, f.symbol("numbers")[0] << 32 | 6),
        "does not fit into 32 bits",
    ),
    "no dynamic section": (lambda f: f.write("<I", f.header(2), 0), "there is no dynamic section"),
    "no notes": (lambda f: f.write("<I", f.header(4), 0), "there is no note with the metadata"),
    "a note too long": (
        lambda f: f.write("<I", f.metadata() - 16, 2**32 - 1),
        "note 0: 0xffffffff bytes at 0x14",
    ),
    "a note of another": (lambda f: _swap(f, b"AMDGPU", b"AMDCPU"), "there is no note with the metadata"),
    "no MessagePack": (
        lambda f: f.write("B", f.metadata(), 0xC1),
        "metadata: the whole is not a map, at byte 0x0",
    ),
    "nested for ever": (
        lambda f: _swap(f, b"amdhsa.kernels", b"amdhsa.unknown" + b"\x91" * 4000),
        "metadata: nested deeper than 32 levels at byte 0x30",
    ),
    "an endless text": (
        lambda f: _swap(f, b"amdhsa.kernels", b"amdhsa.unknown" + b"\xdb\xff\xff\xff\xff"),
        "metadata: 0xffffffff bytes at 0x15 are not within",
    ),
    "a count that lies": (
        lambda f: _swap(f, b"amdhsa.kernels", b"amdhsa.kernels\xdd\xff\xff\xff\xff"),
        "metadata: ",
    ),
    "a key that is missing": (
        lambda f: _swap(f, b".value_kind", b".value_king"),
        "without .offset, .size or .value_kind",
    ),
    "no descriptor": (
        lambda f: _swap(f, _LDS.encode() + b".kd", _LDS.encode() + b".kx"),
        f"kernel {_LDS} has no descriptor: there is no symbol {_LDS}.kx",
    ),
    "two of one name": (
        lambda f: _swap(f, b"_Z5callsPfii", _LDS.encode()),
        f"there are two kernels {_LDS}",
    ),
    "an argument outside": (
        lambda f: _swap(f, b".offset\x00", b".offset\x7f"),
        "an argument of",
    ),
    "waves of 64 lanes": (
        lambda f: f.write("<H", f.descriptor(_LDS) + 56, 8),
        f"the descriptor of kernel {_LDS} has waves of 64 lanes, its metadata of 32",
    ),
    "too many VGPRs": (
        lambda f: f.write("B", f.descriptor(_LDS) + 48, 0x3F),
        f"the descriptor of kernel {_LDS} requests 512 VGPRs, but gfx1151 has 256",
    ),
    "an entry outside": (
        lambda f: f.write("<q", f.descriptor(_LDS) + 16, -(2**62)),
        f"the descriptor of kernel {_LDS} has its code at",
    ),
    "an entry in data": (
        lambda f: f.write("<q", f.descriptor(_LDS) + 16, 0x8000 - f.descriptor(_LDS)),
        "bytes at address 0x8000 are not in a segment of code",
    ),
    "a short descriptor": (
        lambda f: f.write("<Q", f.symbol(_LDS + ".kd")[1] + 16, 60),
        f"the descriptor of kernel {_LDS} has 60 bytes",
    ),
}


@pytest.mark.parametrize("lie", _LIES)
def test_a_file_that_lies_is_refused_with_what_and_where(lie, load, real, tmp_path):
    change, why = _LIES[lie]
    file = _Changed(real)
    change(file)
    (tmp_path / "liar.co").write_bytes(file.content)
    assert why in load("show", tmp_path / "liar.co", "gfx1151")[-1].get("bad", "loaded")


def test_names_that_share_their_letters_do_not_fill_the_memory(load, real, tmp_path):
    file = _Changed(real)
    code, size = file.sections[".text"]
    address = code + 0x1000  # as it is linked
    # A function at each byte of the code, each name a piece of one text of a megabyte.
    functions = [struct.pack("<IBBHQQ", each, 2, 0, 8, address + each, 1) for each in range(size)]
    table = b"".join([bytes(24), *functions])
    for name, offset, length in ((".symtab", 0, len(table)), (".strtab", len(table), 2**20 + 1)):
        file.write("<QQ", file.section(name) + 24, len(file.content) + offset, length)
    (tmp_path / "liar.co").write_bytes(file.content + table + b"a" * 2**20 + b"\0")
    (answer,) = load("show", tmp_path / "liar.co", "gfx1151")[1:]
    assert "all names together are longer than 0x4000000 bytes" in answer["bad"]


def test_relocations_of_all_kinds_give_what_the_manual_says(load, real, tmp_path):
    numbers = _of(load("show", real, "gfx1151"), "variable")["numbers"]["address"]
    third = _of(load("show", real, "gfx1151"), "variable")["third"]["address"]
    distance = (numbers + 8 - third) % 2**64
    kinds: dict[int, Callable[[int], bytes]] = {
        1: lambda value: struct.pack("<I", value % 2**32) + bytes(4),
        2: lambda value: struct.pack("<I", value >> 32) + bytes(4),
        3: lambda value: struct.pack("<Q", value),
        4: lambda _: struct.pack("<I", distance % 2**32) + bytes(4),
        5: lambda _: struct.pack("<Q", distance),
        10: lambda _: struct.pack("<I", distance % 2**32) + bytes(4),
        11: lambda _: struct.pack("<I", distance >> 32) + bytes(4),
    }
    for kind, expected in kinds.items():
        file = _Changed(real)
        file.write("<QQ", _third(file) + 8, file.symbol("numbers")[0] << 32 | kind, 8)
        (tmp_path / "other.co").write_bytes(file.content)
        lines = load("show", tmp_path / "other.co", "gfx1151")
        base = next(line["base"] for line in lines if "base" in line)
        assert bytes.fromhex(_of(lines, "variable")["third"]["bytes"]) == expected(base + numbers + 8), kind


def _check(lines: list[dict[str, Any]], times: int) -> dict[str, int]:
    """The outcomes of many loads, none of which may have taken much memory."""
    outcomes = {line["outcome"]: line["times"] for line in lines if "outcome" in line}
    assert sum(outcomes.values()) == times
    assert 0 < next(line["kilobytes"] for line in lines if "kilobytes" in line) < _MOST_KILOBYTES
    return outcomes


def test_no_beginning_of_a_file_is_taken_for_the_whole(load, real):
    size = real.stat().st_size
    assert _check(load("truncate", real, "gfx1151"), size) == {"refused": size}


def test_no_beginning_of_a_bundle_is_taken_for_the_whole(load, four, compile_bundle, small, tmp_path):
    packed = compile_bundle(*_FOUR, source=small, extra=["-nogpuinc", "--offload-compress"])
    old = tmp_path / "old"
    old.write_bytes(_compressed(four.read_bytes(), 1))
    for file in (four, packed, old):
        size = file.stat().st_size
        assert _check(load("truncate", file, "gfx1100"), size) == {"refused": size}


@pytest.mark.parametrize("seed", [1, 2])
def test_changed_bytes_are_refused_or_loaded_but_never_followed(seed, load, real):
    outcomes = _check(load("flip", real, "gfx1151", seed, 10_000), 10_000)
    assert outcomes["refused"] > 2_000
    assert outcomes["loaded"] > 500  # or the changes were so many that nothing behind the first was reached


def test_changed_bytes_of_bundles_are_refused_or_loaded(load, four, compile_bundle, small, tmp_path):
    packed = compile_bundle(*_FOUR, source=small, extra=["-nogpuinc", "--offload-compress"])
    old = tmp_path / "old"
    old.write_bytes(_compressed(four.read_bytes(), 1))
    for file in (four, packed, old):
        outcomes = _check(load("flip", file, "gfx1100", 3, 3_000), 3_000)
        assert outcomes["refused"] > 500, file
