# Read by CMake where upstream's project begins, for what does not decide what is computed.

# Programs whose times nobody looks at: llama-bench and test-backend-ops are linked without what they
# never call (chat templates, grammars of answers, drafts, downloads), half of the compiler's time for
# llama.cpp's programs at build 11549. What a program itself calls must be there, or it does not link, and all
# is built; what the library calls and lacks ends the program with the name of it, at the first call.

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
        # Of an archive a linker takes what is called, and says what is not there. Only the options of
        # llama-server and the like are in this file there.
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

# A backend that is loaded at run time takes ggml-base from the programs, which have it from the same tree: here
# a library of its name, with nothing in it, is enough to link with.
function(patchkit_make_backend_lean)
    if (TARGET ggml-base)
        set(nothing "${CMAKE_BINARY_DIR}/nothing.cpp")
        file(WRITE "${nothing}" "")
        set_target_properties(ggml-base PROPERTIES SOURCES "${nothing}")
        target_link_options(ggml-base INTERFACE LINKER:--no-as-needed LINKER:--unresolved-symbols=ignore-all)
    endif()
endfunction()

if (NOT PATCHKIT_IS_LEAN)  # once: a file that CMAKE_PROJECT_INCLUDE names is read for each project()
    set(PATCHKIT_IS_LEAN TRUE)
    cmake_language(DEFER DIRECTORY ${CMAKE_SOURCE_DIR} CALL patchkit_make_${PATCHKIT_LEAN}_lean)
endif()
