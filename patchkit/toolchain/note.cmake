# Included by CMake at upstream's project(), for builds that are installed: llama-server prints the build, the commit
# and its patches (PATCHKIT_NOTE) as the first line of its log. Upstream prints its commit only with --version and -lv 4.

function(patchkit_add_note)
    if (NOT TARGET llama-server)
        return()
    endif()
    set(note "${CMAKE_BINARY_DIR}/patchkit-note.c")
    file(CONFIGURE OUTPUT "${note}" @ONLY CONTENT [[
#include <stdio.h>

__attribute__((constructor)) static void patchkit_note(void) {
    fputs("llama-server of patchkit: @PATCHKIT_NOTE@\n", stderr);
}
]])
    target_sources(llama-server PRIVATE "${note}")
endfunction()

if (NOT PATCHKIT_HAS_NOTE)  # once: CMAKE_PROJECT_INCLUDE includes this file for each project()
    set(PATCHKIT_HAS_NOTE TRUE)
    cmake_language(DEFER DIRECTORY ${CMAKE_SOURCE_DIR} CALL patchkit_add_note)
endif()
