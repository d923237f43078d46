"""Patches with planted effects, on a clone of upstream that takes as long as they say.

The clone's last commit makes every graph of one backend take a share of its own time longer; what share, the
functions of one small file say, and each patch edits one of them. So a patch of ten per cent is ten per cent
on whatever machine and model. ``python planted.py UPSTREAM FOLDER cpu|cuda`` writes clone and series.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

BUILD = 6901
"""What the clone is said to be: one above the pin, so that patches are placed without the pin itself."""
EXPECTED = ("prompts", "with-prompts")
"""What pick has to find with one small and one large model."""
WIDE = 600
"""Values per token from which on a model is a large one."""

# A name that says which operations it serves, so that few cases are enough: RMS_NORM.
_STEM = "norm-planted"
_FUNCTIONS = """\
#include "ggml.h"

#include <cstring>

static double planted_prompts() {
    const double alone = 0.11;
    const double both = 0.06;
    return alone + both;
}

static double planted_text() {
    return 0.0;
}

static double planted_nothing() {
    return 0.0;
}

static double planted_fast() {
    return 0.12;
}

static bool planted_is_wrong(const ggml_tensor * node) {
    (void) node;
    return false;
}

static double planted_model(bool is_small) {
    (void) is_small;
    return 0.07;
}

double planted_share(bool is_prompt, bool is_small) {
    if (is_prompt) {
        return planted_prompts() + planted_nothing();
    }
    return planted_text() + planted_nothing() + planted_fast() + planted_model(is_small);
}

bool planted_spoils(const ggml_tensor * node) {
    return planted_is_wrong(node);
}
"""

_WAIT = """
double planted_share(bool is_prompt, bool is_small);
bool planted_spoils(const ggml_tensor * node);

static void planted_wait(const ggml_cgraph * cgraph, int64_t began) {
    bool is_prompt = false;
    bool is_small = true;
    int products = 0;
    for (int i = 0; i < cgraph->n_nodes; i++) {
        const ggml_tensor * node = cgraph->nodes[i];
        if (node->op == GGML_OP_MUL_MAT) {
            is_prompt = is_prompt || node->src[1]->ne[1] > 8;
            is_small = products++ > 0 ? is_small : node->src[0]->ne[0] < WIDE;
        }
    }
    if (products < 5) {
        return;  // a case of test-backend-ops: no time is lost on it
    }
    const int64_t ended = ggml_time_us();
    const double more = (ended - began)*planted_share(is_prompt, is_small);
    while (ggml_time_us() - ended < more) {
    }
}
""".replace("WIDE", str(WIDE))

_CPU = (
    "ggml/src/ggml-cpu/ggml-cpu.cpp",
    "static enum ggml_status ggml_backend_cpu_graph_compute(",
    "    return ggml_graph_compute(cgraph, &cplan);\n",
    """\
    const int64_t began = ggml_time_us();
    const enum ggml_status status = ggml_graph_compute(cgraph, &cplan);
    for (int i = 0; i < cgraph->n_nodes; i++) {
        if (planted_spoils(cgraph->nodes[i])) {
            *(float *) cgraph->nodes[i]->data += 1.0f;
        }
    }
    planted_wait(cgraph, began);
    return status;
""",
)
_CUDA_TABLE = "/* .graph_compute           = */ ggml_backend_cuda_graph_compute,"
_CUDA = """
static enum ggml_status planted_graph_compute(ggml_backend_t backend, ggml_cgraph * cgraph) {
    ggml_backend_cuda_context * context = (ggml_backend_cuda_context *) backend->context;
    const int64_t began = ggml_time_us();
    const enum ggml_status status = ggml_backend_cuda_graph_compute(backend, cgraph);
    for (int i = 0; i < cgraph->n_nodes; i++) {
        if (planted_spoils(cgraph->nodes[i])) {
            CUDA_CHECK(cudaMemsetAsync(cgraph->nodes[i]->data, 0x3f, 64, context->stream()));
        }
    }
    CUDA_CHECK(cudaStreamSynchronize(context->stream()));
    planted_wait(cgraph, began);
    return status;
}

"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Patch:
    """``edits`` have a function, what stands there, and what is to stand there."""

    title: str
    edits: tuple[tuple[str, str, str], ...]


_PATCHES = {
    "0001-prompts": _Patch(
        title="Prompts are ten per cent faster",
        edits=(("planted_prompts", "const double alone = 0.11", "const double alone = 0.0"),),
    ),
    "0002-slow-text": _Patch(
        title="Text is three per cent slower",
        edits=(("planted_text", "return 0.0", "return 0.037"),),
    ),
    "0003-nothing": _Patch(
        title="Nothing is faster or slower",
        edits=(("planted_nothing", "return 0.0", "return 0.0 + 0.0"),),
    ),
    "0004-wrong": _Patch(
        title="Text is faster, and one case of RMS_NORM is wrong",
        edits=(
            ("planted_fast", "return 0.12", "return 0.0"),
            (
                "planted_is_wrong",
                "return false",
                "return node->op == GGML_OP_RMS_NORM && node->ne[0] == 64 && node->ne[1] == 5",
            ),
        ),
    ),
    "0005-with-prompts": _Patch(
        title="Prompts are six per cent faster with the patch prompts",
        edits=(("planted_prompts", "return alone + both", "return alone > 0.0 ? alone + both : 0.0"),),
    ),
    "0006-one-model": _Patch(
        title="Text is faster with a small model and slower with a large one",
        edits=(("planted_model", "return 0.07", "return is_small ? 0.0 : 0.2"),),
    ),
}


def plant(upstream: Path, folder: Path, backend: str) -> tuple[Path, Path]:
    """Write the clone and the series below a folder; ``upstream`` is an exported tree of b6900."""
    clone, series = folder / "clone", folder / "series"
    file = _plant_clone(upstream, clone, backend)
    _plant_series(series, file)
    return clone, series


def _plant_clone(upstream: Path, clone: Path, backend: str) -> str:
    clone.mkdir(parents=True)
    names = ["CMakeLists.txt", "LICENSE", "cmake", "common", "ggml", "include", "licenses", "scripts"]
    names += ["src", "tests", "tools", "vendor", "pocs", "examples", "convert_hf_to_gguf.py", ".gitignore"]
    for name in names:
        if (upstream / name).exists():
            subprocess.run(["cp", "-a", upstream / name, clone / name], check=True)
    if backend == "cpu":
        file = f"ggml/src/ggml-cpu/{_STEM}.cpp"
        path, before, old, new = _CPU
        _edit(clone / path, {before: f"{_WAIT}\n{before}", old: new})
        _edit(
            clone / "ggml/src/ggml-cpu/CMakeLists.txt",
            {"ggml-cpu/ops.cpp\n": f"ggml-cpu/ops.cpp\n        ggml-cpu/{_STEM}.cpp\n"},
        )
    else:
        file = f"ggml/src/ggml-cuda/{_STEM}.cu"
        path = clone / "ggml/src/ggml-cuda/ggml-cuda.cu"
        head, table, rest = path.read_text("utf-8").partition(_CUDA_TABLE)
        at = head.rindex("static const ggml_backend_i ")
        table = table.replace("ggml_backend_cuda_graph_compute", "planted_graph_compute")
        path.write_text(f"{head[:at]}{_WAIT}{_CUDA}{head[at:]}{table}{rest}", "utf-8")
    (clone / file).write_text(_FUNCTIONS, "utf-8")
    git = ["git", "-C", str(clone), "-c", "user.name=p", "-c", "user.email=p@example.org"]
    day = "2026-01-01T00:00:00Z"  # the same commit each time: its programs print it, and are built once
    env = {**os.environ, "GIT_AUTHOR_DATE": day, "GIT_COMMITTER_DATE": day}
    for argv in (["init", "-q"], ["add", "-A", "-f"], ["commit", "-q", "-m", "upstream, planted"]):
        subprocess.run([*git, *argv], check=True, env=env)
    return file


def _edit(path: Path, changes: Mapping[str, str]) -> None:
    text = path.read_text("utf-8")
    for old, new in changes.items():
        if text.count(old) != 1:
            raise ValueError(f"{path}: {text.count(old)} times {old!r}")
        text = text.replace(old, new)
    path.unlink()  # it may be a hard link into a tree that must not change
    path.write_text(text, "utf-8")


def _plant_series(series: Path, file: str) -> None:
    """Patches into a plain series that ``patchkit init --plain`` made."""
    for name, patch in _PATCHES.items():
        folder = series / "patches" / name
        folder.mkdir(parents=True)
        topic = name.partition("-")[2]
        edits = "".join(
            f"""
[[edit]]
id = "edit-{number}"
file = "{file}"
function = "{function}"
at = {{ tokens = "{old}" }}
verb = "change_to"
text = "{new}"
"""
            for number, (function, old, new) in enumerate(patch.edits, start=1)
        )
        (folder / "patch.toml").write_text(
            f"""id = "{topic}"
title = "{patch.title}"
guard = "none"
why = "planted"

[builds]
first = {BUILD}
why = "planted on it"
{edits}""",
            "utf-8",
        )


if __name__ == "__main__":
    plant(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
