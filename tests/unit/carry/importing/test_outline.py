"""Comparing the heading after the second ``@@`` of a hunk with a place."""

from __future__ import annotations

import pytest

from patchkit.carry.importing.outline import Changed, Outline, named_by

CODE = """\
#define SMALL(x) \\
    do_this(x); \\
    do_that(x)
#define LARGE(x) \\
    do_this(x); \\
    do_that(x)
static const int table_a[] = {
    1,
    2,
};
static const int table_b[] = {
    1,
    2,
};
namespace ns {
template <int n>
__launch_bounds__(64, 1)
static __global__ void kernel(
        const float * x,
        float * y) {
    const auto f = [&](int i) {
        y[i] = x[i];
    };
    f(n);
}
}
struct first {
public:
    int get(int a) { return a; }
    int get(long a) {
        return 1;
    }
};
struct second : public first {
public:
    int get(long a) {
        return 1;
    }
};
void over(int a) {
    use(a);
end:
    done(a);
}
void over(long a) {
    use(a);
}
"""
PYTHON = """\
class ModelA(Model):
    def names(self):
        return 1

    @property
    def sizes(
        self,
    ):
        return 2


class ModelB(Model):
    def names(self):
        return 1
"""
SHADER = """\
float dot(uint i) {
    float a = x(i);
    return a;
}

float sum(uint i) {
    float a = x(i);
    return a;
}
"""
SHELL = "usage() {\n    echo a\n}\n\nif true; then\n    run b\n    run c\nfi\n"


def judged(text: str, path: str, heading: str, line: int) -> str:
    """The verdict on a heading for a hunk that begins with the line that it changes, counted from 1."""
    row = text.split("\n")[line - 1].encode()
    changed = Changed(line - 1, line, (row,))
    return Outline(path, text.encode()).judge(heading.encode(), line - 1, changed)[0]


@pytest.mark.parametrize(
    ("heading", "line", "verdict"),
    [
        ("static __global__ void kernel(", 22, "agrees"),
        ("__launch_bounds__(64, 1)", 22, "agrees"),
        ("template <int n>", 22, "agrees"),
        ("kernel", 22, "agrees"),
        ("ns::kernel", 22, "agrees"),
        ("static __global__ void kernel(const float * x, float * y, int more) {", 22, "agrees"),
        ("static __global__ void kernel_of_old(", 22, "absent"),
        ("__launch_bounds__(128, 1)", 22, "between"),
        ("struct first {", 22, "elsewhere"),
        ("", 22, "agrees"),
        ("struct second : public first {", 37, "agrees"),
        ("public:", 37, "agrees"),
        ("struct first {", 37, "elsewhere"),
        ("first", 37, "elsewhere"),
        ("struct third : public first {", 37, "absent"),
        ("void over(int a) {", 46, "elsewhere"),
        ("void over(long a) {", 41, "elsewhere"),
        ("void over(long a) {", 46, "agrees"),
        ("void over(short a) {", 46, "agrees"),
        ("end:", 43, "agrees"),
        ("void over(int a) {", 43, "agrees"),
        ("static const int table_b[] = {", 13, "agrees"),
        ("static const int table_a[] = {", 13, "elsewhere"),
        ("#define LARGE(x) \\", 6, "agrees"),
        ("#define SMALL(x) \\", 6, "elsewhere"),
        ("void whatever_is_above() {", 6, "between"),
    ],
)
def test_in_code(heading: str, line: int, verdict: str) -> None:
    assert judged(CODE, "a.cu", heading, line) == verdict


@pytest.mark.parametrize(
    ("heading", "line", "verdict"),
    [
        ("class ModelB(Model):", 14, "agrees"),
        ("def names(self):", 14, "agrees"),
        ("class ModelA(Model):", 14, "elsewhere"),
        ("class ModelC(Model):", 14, "absent"),
        ("def sizes(", 9, "agrees"),
        ("def sizes(", 14, "elsewhere"),
    ],
)
def test_in_python(heading: str, line: int, verdict: str) -> None:
    assert judged(PYTHON, "convert.py", heading, line) == verdict


@pytest.mark.parametrize(
    ("text", "path", "heading", "line", "verdict"),
    [
        (SHADER, "a.comp", "float sum(uint i) {", 8, "agrees"),
        (SHADER, "a.comp", "float dot(uint i) {", 8, "elsewhere"),
        (SHADER, "a.comp", "float max(uint i) {", 8, "absent"),
        (SHELL, "a.sh", "usage() {", 7, "between"),  # git's rule for shells names a function that has ended
        (SHELL, "a.sh", "if true; then", 2, "elsewhere"),  # what begins below a place was never above it
        ("Some words.\nMore words.\nThe end.\n", "a.md", "Other words.", 3, "agrees"),
    ],
)
def test_in_other_files(text: str, path: str, heading: str, line: int, verdict: str) -> None:
    assert judged(text, path, heading, line) == verdict


@pytest.mark.parametrize(
    ("heading", "name"),
    [
        ("struct test_conv_3d : public test_case {", "test_conv_3d"),
        ("struct __align__(16) block {", "block"),
        ("static struct ggml_tensor * build(int a, float (*f)(int)) {", "build"),
        ("__launch_bounds__(count(n), 1) static __global__ void kernel(", "kernel"),
        ("void ns::thing::run(", "ns::thing::run"),
        ("enum class kind : int {", "kind"),
        ("class Model(Base):", "Model"),
        ("#define NAME(x)", "NAME"),
        ("__launch_bounds__(count(n), 1)", None),
        ("DECLARE(64, 64);", None),
        ("int x = 3;", None),
    ],
)
def test_the_name_that_a_heading_defines(heading: str, name: str | None) -> None:
    assert named_by(heading.encode()) == name
