"""What the code takes for granted about libclang 18.1.1; an upgrade that changes it must fail here."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import files

import pytest
from clang import cindex
from refusing import refused

from patchkit.carry.cpp.libclang import KEEP_GOING, SINGLE_FILE, parse_unit

HIP = [
    "-xhip",
    "-nogpuinc",
    "-nogpulib",
    "--cuda-device-only",
    "-std=c++17",
    "-w",
    "-nostdinc",
    "-nostdinc++",
]


def unit(text, *args, flags=0, **more):
    unsaved = {"/m.cpp": text if isinstance(text, bytes) else text.encode()} | more
    return parse_unit("/m.cpp", list(args) or ["-xc++"], unsaved, flags)


def kinds(parsed, kind):
    return [cursor for cursor in parsed.cursor.walk_preorder() if cursor.kind == kind]


def test_offsets_are_bytes():
    text = "/* größer */ int a;"
    (variable,) = kinds(unit(text), cindex.CursorKind.VAR_DECL)
    assert variable.extent.start.offset == text.encode().index(b"int")


def test_unsaved_files_take_bytes_with_zero_bytes_in_them():
    parsed = unit(b"int a;\x00int b;")
    assert [each.spelling for each in kinds(parsed, cindex.CursorKind.VAR_DECL)] == ["a", "b"]


def test_tokens_have_kind_location_and_length_in_their_raw_words():
    data = b"int abc = 1; // c\n"
    parsed = unit(data, flags=SINGLE_FILE)
    tokens = list(parsed.get_tokens(extent=parsed.get_extent("/m.cpp", (0, len(data)))))
    base = tokens[0].int_data[1] - tokens[0].extent.start.offset
    for token in tokens:
        start, end = token.extent.start.offset, token.extent.end.offset
        assert (token.int_data[1] - base, token.int_data[2]) == (start, end - start)
        assert token.int_data[0] == token.kind.value


def test_a_last_line_without_newline_is_read_whole_when_one_is_added():
    data = b"int a;\n// b\n"
    parsed = unit(data, flags=SINGLE_FILE)
    tokens = list(parsed.get_tokens(extent=parsed.get_extent("/m.cpp", (0, len(data)))))
    assert tokens[-1].spelling == "// b"


def test_single_file_parse_does_not_follow_includes():
    header = {"/h.h": b"int in_header;\n"}
    for flags, names in ((SINGLE_FILE, ["a"]), (0, ["in_header", "a"])):
        parsed = unit('#include "h.h"\nint a;', flags=flags, **header)
        assert [each.spelling for each in kinds(parsed, cindex.CursorKind.VAR_DECL)] == names


def test_a_missing_header_silences_what_follows_unless_told_to_keep_going():
    text = '#include "none.h"\nint a = ;\nint b = ;\n'
    counts = []
    for flags in (0, KEEP_GOING):
        parsed = unit(text, flags=flags)
        counts.append(len(parsed.diagnostics))
    assert counts == [1, 3]


def test_the_wheel_has_no_resource_headers():
    assert not [each for each in files("libclang") or () if each.name in ("stddef.h", "stdbool.h")]
    # The unit is kept in a name: a diagnostic that outlives its unit ends the process.
    parsed = unit("#include <stddef.h>\n", "-xc++", "-nostdinc")
    assert [each.severity for each in parsed.diagnostics] == [cindex.Diagnostic.Fatal]


def test_extents_leave_out_the_semicolon():
    (variable,) = kinds(unit("int a = 1;"), cindex.CursorKind.VAR_DECL)
    assert variable.extent.end.offset == len("int a = 1")


def test_the_ast_sees_one_preprocessor_configuration_only():
    text = "#if 0\nint a;\n#else\nint b;\n#endif\n"
    assert [each.spelling for each in kinds(unit(text), cindex.CursorKind.VAR_DECL)] == ["b"]


def test_categories_tell_syntax_from_names():
    parsed = unit("int f() { return x; }\nint g( {")
    categories = {each.category_name for each in parsed.diagnostics}
    assert {"Semantic Issue", "Parse Issue"} <= categories


def test_a_pragma_that_lost_its_loop_is_no_parse_issue():
    parsed = unit("void f() {\n#pragma unroll\nint a;\n}")
    (lost,) = [each for each in parsed.diagnostics if "to follow '#pragma unroll'" in each.spelling]
    assert lost.category_name != "Parse Issue"


def test_a_definition_begins_at_its_attributes_but_not_at_standard_ones():
    text = "__attribute__((noinline)) void f() { }\n[[maybe_unused]] static void g() { }\n"
    first, second = kinds(unit(text), cindex.CursorKind.FUNCTION_DECL)
    assert first.extent.start.offset == 0
    assert second.extent.start.offset == text.index("static")


def test_names_of_templates_and_operators():
    members = "s() { } bool operator<(int) { return 1; } operator bool() { return 1; }"
    text = f"template <typename T> struct s {{ {members} }};"
    names = [each.spelling for each in unit(text).cursor.walk_preorder()]
    assert {"s<T>", "operator<", "operator bool"} <= set(names)


@pytest.mark.parametrize(
    "arch", ["gfx906", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1150", "gfx1151", "gfx1201"]
)
def test_these_gpus_are_known(arch):
    parsed = unit(f"#ifdef __{arch}__\nint a;\n#endif\n", *HIP, f"--offload-arch={arch}")
    assert [each.spelling for each in kinds(parsed, cindex.CursorKind.VAR_DECL)][-1:] == ["a"]


@pytest.mark.parametrize("arch", ["gfx1152", "gfx1153", "gfx950"])
def test_these_gpus_are_refused_and_need_a_stand_in(arch):
    with refused("LIBCLANG_PARSE"):
        unit("int a;", *HIP, f"--offload-arch={arch}")


def test_a_refused_file_raises_in_this_process_and_does_not_end_it():
    script = "from clang import cindex\ntry:\n    cindex.Index.create().parse('/none.cpp')\n"
    script += "except cindex.TranslationUnitLoadError:\n    print('raised')\n"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "raised\n"
