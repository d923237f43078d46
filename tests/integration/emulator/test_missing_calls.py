"""What a program calls of ROCm and the runtime lacks: told before it runs, all of it in one message."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from patchkit.gpu.emulated.runtime import cxx_of

pytestmark = [pytest.mark.hip, pytest.mark.slow]

# A runtime that has more than ours, to link with.
_MORE = """\
extern "C" int hipMalloc(void **, unsigned long) { return 0; }
extern "C" int hipFrobnicate(int) { return 0; }
extern "C" int hipblasFrobnicate(int) { return 0; }
extern "C" int rocblas_frobnicate(int) { return 0; }
"""

_PROGRAM = """\
#include <cstdio>
#include <dlfcn.h>
extern "C" int hipMalloc(void **, unsigned long);
extern "C" int hipFrobnicate(int);
extern "C" int hipblasFrobnicate(int);
extern "C" __attribute__((weak)) int rocblas_frobnicate(int);
int main(int count, char ** arguments) {
    void * place;
    std::puts(hipMalloc(&place, 4) == 0 ? "ran" : "failed");
    std::fflush(stdout);
#ifdef CALLS
    return count > 1 ? hipFrobnicate(1) + hipblasFrobnicate(2) : 0;
#else
    return count > 1 && dlopen(arguments[1], RTLD_LAZY) != nullptr;
#endif
}
"""

# Registers as what the compiler makes of device code does.
_LIBRARY = """\
extern "C" void ** __hipRegisterFatBinary(const void *);
extern "C" int hipFrobnicate(int);
static const struct { unsigned magic, version; const void * binary; void * unused; } none = {};
static void ** registered = __hipRegisterFatBinary(&none);
#ifdef CALLS
int use() { return hipFrobnicate(1); }
#endif
"""


@pytest.fixture(scope="module")
def built(compiler, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("missing")
    cxx = [*cxx_of(compiler.toolchain), "-fPIC"]

    def compile_one(text: str, output: str, *flags: str) -> None:
        (folder / "one.cpp").write_text(text, "utf-8")
        subprocess.run([*cxx, "one.cpp", *flags, "-o", output], cwd=folder, check=True)

    compile_one(
        _MORE + 'extern "C" void ** __hipRegisterFatBinary(const void *) { return nullptr; }\n',
        "libamdhip64.so",
        "-shared",
        "-Wl,-soname,libamdhip64.so",
    )
    links = (f"-L{folder}", "-lamdhip64", "-Wl,-z,lazy")
    compile_one(_PROGRAM, "program", "-DCALLS", *links)
    compile_one(_PROGRAM, "loads", *links)
    compile_one(_LIBRARY, "library.so", "-DCALLS", "-shared", *links)
    compile_one(_LIBRARY, "complete.so", "-shared", *links)
    whole = ("-Wl,--no-as-needed", f"{folder}/complete.so", f"-Wl,-rpath,{folder}")
    compile_one(_PROGRAM, "linked", *whole, *links)
    return folder


def test_a_program_does_not_start_and_all_are_named(built, execute):
    done = execute(built / "program")
    assert (done.returncode, done.stdout) == (86, "")
    assert "patchkit's HIP runtime lacks functions of ROCm, so the program does not start" in done.stderr
    assert "the program calls hipFrobnicate, hipblasFrobnicate (" in done.stderr
    assert "rocblas_frobnicate" not in done.stderr  # weak: it may be missing


def test_a_library_that_is_loaded_later_is_named_then(built, execute):
    done = execute(built / "loads")
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")
    done = execute(built / "loads", str(built / "library.so"))
    assert (done.returncode, done.stdout) == (86, "ran\n")
    assert f"{built / 'library.so'} calls hipFrobnicate (" in done.stderr


def test_a_library_with_kernels_that_the_program_links_is_initialised_once(built, execute):
    done = execute(built / "linked")
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")
