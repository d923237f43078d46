"""Which definitions a file has, in every #if branch and in every shape this code base writes them."""

from __future__ import annotations

import pytest
from sources import read

from patchkit.base.source import Span


def functions(text):
    scopes = read(text)
    return [
        (entity.name, scopes.source.text(entity.parameters).decode())
        for entity in scopes.entities
        if entity.kind == "function"
    ]


@pytest.mark.parametrize(
    ("text", "name", "parameters"),
    [
        ("void f() { }", "f", "()"),
        ("static void f(int a)\n{\n}", "f", "(int a)"),
        ("template <int D, int E = 2>\n__launch_bounds__(256, 1)\nvoid f(int a) { }", "f", "(int a)"),
        ("static __global__ void __launch_bounds__(g(1), 1) f(int a) { }", "f", "(int a)"),
        ("__launch_bounds__(256) __global__ void f(int a) { }", "f", "(int a)"),
        ("__attribute__((noinline)) void f(int a) { }", "f", "(int a)"),
        ("void f(int a) __attribute__((cold)) { }", "f", "(int a)"),
        ("static void f(int a) SOME_LOCK(mutex) { }", "f", "(int a)"),
        ("API_EXPORT(1) void F_UPPER(int a) { }", "F_UPPER", "(int a)"),
        ("static int __vsub4(const int a) { }", "__vsub4", "(const int a)"),
        ("auto f(int a) -> decltype(g(a)) { }", "f", "(int a)"),
        ("void f() noexcept(sizeof(int) == 4) { }", "f", "()"),
        ("void f() const & { }", "f", "()"),
        ("[[nodiscard]] int f(void) { }", "f", "(void)"),
        ("struct foo f(int a) { }", "f", "(int a)"),
        ("struct foo f(int a) const { }", "f", "(int a)"),
        ("auto f(int a) -> struct foo { }", "f", "(int a)"),
        ("enum kind f(int a) { }", "f", "(int a)"),
        ("template <> void f<4>(int a) { }", "f", "(int a)"),
        ("template <> void f<vec<vec<int>>>(int a) { }", "f", "(int a)"),
        ("template <bool b = (1 > 0), typename T = v<v<int>>> void f(T a) { }", "f", "(T a)"),
        ("template <typename T> requires ok<T> void f(T a) { }", "f", "(T a)"),
        ("template struct x; void f(int a) { }", "f", "(int a)"),
        ("a > f(int a) { }", "f", "(int a)"),
        ("void > ::f(int a) { }", "f", "(int a)"),
        ("void ns::S::f(int a) { }", "ns::S::f", "(int a)"),
        ("template <typename T> void S<T, v<int>>::f(int a) { }", "S::f", "(int a)"),
        ("int ::ns::f(int a) { }", "ns::f", "(int a)"),
        ('extern "C" void f(int a) { }', "f", "(int a)"),
        ("S::~S() { }", "S::~S", "()"),
        ("bool operator<(const S & a) { }", "operator<", "(const S & a)"),
        ("int S::operator()(int a) const { }", "S::operator()", "(int a)"),
        ("int operator[](int a) { }", "operator[]", "(int a)"),
        ("S & operator=(const S & a) { }", "operator=", "(const S & a)"),
        ("operator bool() const { }", "operator bool", "()"),
        ("bool operator==(const S & a) const NO_THROW(1) { }", "operator==", "(const S & a)"),
        ("S::S(int a) : x(a), y(g({1})) { }", "S::S", "(int a)"),
        ("S::S(int a) : x{a}, y{b} { }", "S::S", "(int a)"),
        ("S::S(int a) : base<int>{a}, y(b) { }", "S::S", "(int a)"),
        ("DEFINE_KERNEL(foo) { }", "DEFINE_KERNEL", "(foo)"),
        ("DEFINE_KERNEL(foo)(int a) { }", "DEFINE_KERNEL", "(foo)"),
    ],
)
def test_a_function_is_named_by_its_own_parameters(text, name, parameters):
    assert functions(f"int before;\n{text}\nint after;\n") == [(name, parameters)]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("struct foo { int a; };", ["foo"]),
        ("struct alignas(16) foo { int a; };", ["foo"]),
        ("struct __align__(16) foo { int a; };", ["foo"]),
        ("struct MY_API foo final : bar<decltype(x)>, baz { int a; };", ["foo"]),
        ("template <int n> struct foo<n, half> { int a; };", ["foo"]),
        ("class foo { };", ["foo"]),
        ("union { int a; } x;", ["(anonymous)"]),
        ("typedef struct { int a; } foo;", ["(anonymous)"]),
        ("enum class foo : int { a, b };", []),
        ("static const int foo[] = { 1, 2 };", []),
        ("static const struct foo bar[] = { { 1 }, { 2 } };", []),
        ("static const auto f = [](int a) { return a; };", []),
        ("int a{1};", []),
        ("{ }", []),
    ],
)
def test_records_are_told_from_functions_and_values(text, names):
    scopes = read(text + "\nvoid last() { }\n")
    assert [entity.name for entity in scopes.entities if entity.kind == "record"] == names
    assert [entity.name for entity in scopes.entities if entity.kind == "function"] == ["last"]


def test_names_are_qualified_by_namespaces_and_records():
    text = """
namespace a::b { namespace { inline namespace v1 {
struct s {
public:
    s(int x) : x{x} { }
    ~s() { }
    int get() const { return x; }
private:
    int x;
};
} } }
extern "C" { int c() { return 1; } }
"""
    assert [name for name, _ in functions(text)] == [
        "a::b::v1::s::s",
        "a::b::v1::s::~s",
        "a::b::v1::s::get",
        "c",
    ]


def test_a_member_behind_an_access_label_starts_at_its_own_tokens():
    scopes = read("struct s {\npublic:\n    int f() { }\n};\n")
    method = next(entity for entity in scopes.entities if entity.name == "s::f")
    assert scopes.source.text(method.span) == b"int f() { }"


def test_a_name_answers_to_its_last_components_only():
    (entity,) = read("namespace a { void bf() { } }").entities
    assert [entity.answers_to(name) for name in ("a::bf", "bf", "f", "a")] == [True, True, False, False]


def test_twins_in_two_branches_are_two_entities():
    assert functions("#ifdef A\nvoid f(int a) { }\n#else\nvoid f(float a) { }\n#endif\n") == [
        ("f", "(int a)"),
        ("f", "(float a)"),
    ]


def test_one_body_with_two_headers_is_one_entity():
    text = "#ifdef A\nvoid f(int a) {\n#else\nvoid f(float a) {\n#endif\n  g();\n}\nvoid h() { }\n"
    assert [name for name, _ in functions(text)] == ["f", "h"]


def test_macros_are_entities_with_a_body():
    scopes = read("#define A(x) \\\n  ((x) + 1)\n#define B\n#define\n")
    first, second = scopes.entities
    assert (first.kind, first.name, scopes.source.text(first.body)) == ("macro", "A", b"(x) \\\n  ((x) + 1)")
    assert (second.name, len(second.body)) == ("B", 0)


def test_the_digest_sees_tokens_and_directives_but_no_layout():
    def digest(text):
        return read(text).entities[0].digest

    plain = digest("void f() { a(); }")
    assert digest("void f()\n{\n\ta( ); // note\n}") == plain
    assert digest("void f() { b(); }") != plain
    assert digest("void f() {\n#if A\n a();\n#endif\n}") != plain


def test_the_innermost_entity_encloses():
    scopes = read("struct s { void f() { x; } };\nint y;\n")
    inside = scopes.source.data.index(b"x;")
    holder = scopes.enclosing(Span(inside, inside + 1))
    assert holder is not None
    assert holder.name == "s::f"
    assert scopes.enclosing(Span(len(scopes.source.data) - 2, len(scopes.source.data))) is None


def test_parents_point_at_the_bracket_around():
    scopes = read("f(a[1]);")
    around = [None if p is None else scopes.code[p].text for p in scopes.parents]
    assert around == [None, None, b"(", b"(", b"[", b"(", None, None]


def test_code_in_counts_only_whole_tokens():
    scopes = read("abc def ghi")
    assert scopes.code_in(Span(1, 10)) == range(1, 2)
    assert scopes.code_in(Span(0, 11)) == range(3)
    assert scopes.first_from(4) == 1
    assert scopes.first_from(99) == 3


@pytest.mark.parametrize(
    "text",
    [
        "> ( { }",
        ">>( { }",
        "template <int a",
        "template <(1) { }",
        "template int > ( {}",
        "void f() {",
        "void f( {",
        "struct",
        "template <",
        "template <class T",
        "operator (",
        "~ ( {}",
        "a::( { }",
    ],
)
def test_broken_declarations_declare_nothing(text):
    assert functions(text) == []


@pytest.mark.parametrize("text", ["int f(int x { return 1; }\n", "int f((int x) { return 1; }\n"])
def test_a_parenthesis_without_a_partner_leaves_a_function_without_parameters(text):
    assert functions(text) == [("f", "")]
