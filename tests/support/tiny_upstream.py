"""An upstream whose program is a few lines of C, and a plain series for it: built by cmake in seconds."""

from __future__ import annotations

from pathlib import Path

from demo_world import make_upstream, pin_text

_CMAKE = """\
cmake_minimum_required(VERSION 3.20)
project(tiny C)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
add_library(ggml-cpu SHARED ggml/cpu.c)
if (NOT DEFINED LLAMA_BUILD_COMMIT)
    set(LLAMA_BUILD_COMMIT unknown)
endif()
configure_file(common/build-info.h.in build-info.h)
foreach (program IN ITEMS llama-cli llama-server)
    add_executable(${program} tools/main.c)
    target_include_directories(${program} PRIVATE ${CMAKE_BINARY_DIR})
endforeach()
"""
_MAIN = """\
#include <stdio.h>

#include "build-info.h"

static int one(void) {{
    return 1;
}}

static int two(void) {{
    return 2;
}}

static int three(void) {{
    return 3;
}}

int main(int argc, char ** argv) {{
    (void) argv;
    if (argc > 1) {{
        puts(LLAMA_COMMIT);
        return 0;
    }}
    printf("%d\\n", one() + two() + three() + {0});
    return 0;
}}
"""
_PATCH = """\
id = "{0}"
title = "{0}"
guard = "none"
why = "planted"

[builds]
first = 1
why = "planted"

[[edit]]
id = "edit"
file = "tools/main.c"
function = "{1}"
at = {{ tokens = "{2}" }}
verb = "change_to"
text = "{3}"
"""


def make_tiny_world(
    root: Path, *, added: dict[int, str], patches: dict[str, tuple[str, str, str]]
) -> list[str]:
    """Builds 101 to 112, the series with its lock at 112, and the options that select them.

    ``added``: what is added in main from that build on; it may be no C at all.
    """
    builds: dict[int, dict[str, str | None]] = {build: {"README.md": str(build)} for build in range(101, 113)}
    builds[101] |= {"CMakeLists.txt": _CMAKE, "include/llama.h": "\n", "ggml/cpu.c": "int cpu;\n"}
    builds[101]["common/build-info.h.in"] = '#define LLAMA_COMMIT "@LLAMA_BUILD_COMMIT@"\n'
    for build, text in {101: "0", **added}.items():
        builds[build]["tools/main.c"] = _MAIN.format(text)
    make_upstream(root / "upstream", builds)
    folder = root / "series" / "patches"
    folder.mkdir(parents=True)
    (folder / "series.toml").write_text("plain = true\n")
    (folder / "upstream.lock").write_text(pin_text(root / "upstream", 112))
    for number, (name, edit) in enumerate(patches.items(), start=1):
        (folder / f"{number:04}-{name}").mkdir()
        (folder / f"{number:04}-{name}" / "patch.toml").write_text(_PATCH.format(name, *edit))
    return ["--series-dir", str(root / "series"), "--cache-dir", str(root / "cache")]
