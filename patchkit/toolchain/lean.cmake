# Included by CMake at upstream's project(), to reduce builds without changing what is computed.

# For gates that do not measure speed, llama-bench and test-backend-ops are built without code that they never
# call (chat templates, grammars, speculative decoding, downloads). That is half of the compile time of llama.cpp's
# programs at build 11549. If a program itself calls excluded code, it does not link, and everything is built
# instead. If the library calls it, the program ends at the first call, with the name of the missing symbol.

set(PATCHKIT_NEVER_CALLED
    "(^|/)(jinja|parsers)/[^/]*[.]cpp$"
    "(^|/)(chat|peg-parser|json-schema|json-partial|regex-partial|preset|imatrix)[^/]*[.]cpp$"
    "(^|/)(ngram|speculative|sampling|llguidance|reasoning|debug|subproc|download|hf-cache)[^/]*[.]cpp$"
)

function(patchkit_make_lean library)
    get_target_property(kind ${library} TYPE)
    get_target_property(sources ${library} SOURCES)
    foreach (pattern IN LISTS PATCHKIT_NEVER_CALLED)
        list(FILTER sources EXCLUDE REGEX "${pattern}")
    endforeach()
    if (kind STREQUAL STATIC_LIBRARY)
        # From an archive the linker takes only what is called, and reports missing symbols. In these builds
        # arg.cpp has only the options of llama-server and similar programs.
        list(FILTER sources EXCLUDE REGEX "(^|/)arg[.]cpp$")
    else()
        target_link_options(${library}
            PRIVATE LINKER:-z,lazy LINKER:--unresolved-symbols=ignore-all
            INTERFACE LINKER:-z,lazy LINKER:-z,defs LINKER:--allow-shlib-undefined)
    endif()
    foreach (property IN ITEMS LINK_LIBRARIES INTERFACE_LINK_LIBRARIES)
        get_target_property(linked ${library} ${property})
        if (linked)
            list(FILTER linked EXCLUDE REGEX "cpp-httplib")
            set_target_properties(${library} PROPERTIES ${property} "${linked}")
        endif()
    endforeach()
    set_target_properties(${library} PROPERTIES SOURCES "${sources}")
endfunction()

function(patchkit_make_programs_lean)
    foreach (library IN ITEMS llama-common common)
        if (TARGET ${library})
            patchkit_make_lean(${library})
        endif()
    endforeach()
endfunction()

# A backend that is loaded at run time uses the ggml-base of the programs, which is built from the same tree. So
# an empty library of that name is enough to link with.
function(patchkit_make_backend_lean)
    if (TARGET ggml-base)
        set(nothing "${CMAKE_BINARY_DIR}/nothing.cpp")
        file(WRITE "${nothing}" "")
        set_target_properties(ggml-base PROPERTIES SOURCES "${nothing}")
        target_link_options(ggml-base INTERFACE LINKER:--no-as-needed LINKER:--unresolved-symbols=ignore-all)
    endif()
endfunction()

if (NOT PATCHKIT_IS_LEAN)  # once: CMAKE_PROJECT_INCLUDE includes this file for each project()
    set(PATCHKIT_IS_LEAN TRUE)
    cmake_language(DEFER DIRECTORY ${CMAKE_SOURCE_DIR} CALL patchkit_make_${PATCHKIT_LEAN}_lean)
endif()
