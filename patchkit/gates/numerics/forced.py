"""The candidate's tree with its WMMA kernel forced on in a CUDA build, where its interface exists too."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from patchkit.base.errors import AnchorError, Location
from patchkit.base.source import SourceText, Span
from patchkit.build.tree import overlay_tree
from patchkit.build.units import GPU_SOURCES
from patchkit.candidate.subject import PatchPart, Subject
from patchkit.cpp.scopes import parse_scopes
from patchkit.edits.resolve import find_entity
from patchkit.edits.select import select
from patchkit.gates.isolation.host_branch import host_expressions
from patchkit.series.selector import Selector

ROWS_FILE = "patchkit-rows.inc"
WMMA_UNIT = "ggml/src/ggml-cuda/fattn-wmma-f16.cu"
SELECTION = "ggml/src/ggml-cuda/fattn.cu"
_TABLE = "ggml_cuda_fattn_wmma_get_config_"
_CHOOSE = "ggml_cuda_get_best_fattn_kernel"
_DISPATCH = "ggml_cuda_flash_attn_ext_wmma_f16"
# Head sizes of the switches of ggml_cuda_flash_attn_ext_wmma_f16; 40 and 576 have no WMMA kernel. A soft cap
# compiles to a trap unless the head size is 128 or 256 ("Skip unused kernel variants").
_FORCED = b"""\
    {
        float patchkit_cap;
        memcpy(&patchkit_cap, (const float *) KQV->op_params + 2, sizeof(float));
        const int64_t patchkit_D   = Q->ne[0];
        const bool    patchkit_has = patchkit_D == 64 || patchkit_D == 80 || patchkit_D == 96 ||
                                     patchkit_D == 112 || patchkit_D == 128 || patchkit_D == 256;
        return patchkit_has && K->ne[1] % FATTN_KQ_STRIDE == 0 &&
               (patchkit_cap == 0.0f || patchkit_D == 128 || patchkit_D == 256) ?
               BEST_FATTN_KERNEL_WMMA_F16 : BEST_FATTN_KERNEL_NONE;
    }
"""


def wmma_patch(subject: Subject) -> PatchPart | None:
    """The patch that changes the WMMA kernel and brings its table, or None when the candidate has none."""
    return next((patch for patch in subject.patches if WMMA_UNIT in patch.touched and patch.new_files), None)


def forced_definitions(patch: PatchPart) -> tuple[str, ...]:
    """Compiler definitions that belong to :func:`forced_tree`."""
    return ("GGML_HIP_ROCWMMA_FATTN", patch.guard.targets[0].macro)


def forced_tree(subject: Subject, patch: PatchPart) -> Path:
    """The forced tree of ``patch``, made once beside the candidate's exported tree.

    Raises:
        NUMERICS_CANNOT_FORCE: a place is not there, or not once.
        CacheError: the disk refused.
    """
    arch = patch.guard.targets[0].arch
    changes: dict[str, bytes] = {}
    for path in (*patch.touched, *patch.new_files):
        changes[path] = _opened(subject.candidate, path, patch)
    table = next((path for path in patch.new_files if (_TABLE + arch).encode() in changes[path]), None)
    if table is None:
        raise _missing(patch.new_files[0], f"the table function {_TABLE}{arch}")
    changes[table] = _rows_outside(table, changes[table], _TABLE + arch)
    changes[WMMA_UNIT] = _without_cuda_variant(changes[WMMA_UNIT])
    changes[SELECTION] = _selection_forced((subject.candidate / SELECTION).read_bytes())
    return overlay_tree(subject.candidate, changes, "forced", below=GPU_SOURCES)


def _opened(root: Path, path: str, patch: PatchPart) -> bytes:
    """One file with the guard's conditions as they hold in a CUDA build; the same where it has none."""
    guard = patch.guard
    reading = {
        _tokens(guard.device): b"defined(__CUDA_ARCH__)",
        _tokens(f"!({guard.device})"): b"!defined(__CUDA_ARCH__)",
        _tokens(guard.region): b"1",
        _tokens(f"!({guard.region})"): b"0",
    }
    data = (root / path).read_bytes()
    scopes = parse_scopes(SourceText(path, data))
    changes = [
        (line.span, b"#" + line.keyword + b" " + reading[line.condition.partition(b" ")[2]])
        for line in scopes.directives
        if line.keyword in {b"if", b"elif"} and line.condition.partition(b" ")[2] in reading
    ]
    changes += [(Span(start, end), b"(true)") for start, end in host_expressions(data)]
    return _changed(data, changes)


def _rows_outside(path: str, data: bytes, name: str) -> bytes:
    scopes = parse_scopes(SourceText(path, data))
    entity = find_entity(scopes, name, None, Location(path=path))
    text = b'\n#include "' + ROWS_FILE.encode() + b'"\n    return 0;\n'
    return _changed(data, [(entity.body, text)])


def _without_cuda_variant(data: bytes) -> bytes:
    scopes = parse_scopes(SourceText(WMMA_UNIT, data))
    body = find_entity(scopes, _DISPATCH, None, Location(path=WMMA_UNIT)).body
    wanted = b"if " + _tokens("!defined(GGML_USE_HIP)")
    openings = [group.branches[0].directive for group in scopes.groups if body.contains(group.span)]
    found = [line for line in openings if line.condition == wanted]
    if len(found) != 1:
        raise _missing(WMMA_UNIT, f"the variant with 8 columns in {_DISPATCH}", len(found))
    return _changed(data, [(found[0].span, b"#if 0")])


def _selection_forced(data: bytes) -> bytes:
    scopes = parse_scopes(SourceText(SELECTION, data))
    function = find_entity(scopes, _CHOOSE, None, Location(path=SELECTION))
    places = select(scopes, function, Selector(statement="const bool can_use_vector_kernel ="))
    if len(places) != 1:
        raise _missing(SELECTION, f"the end of the checks that all kernels share in {_CHOOSE}", len(places))
    start = data.rindex(b"\n", 0, places[0].start) + 1
    return _changed(data, [(Span(start, start), _FORCED)])


def _missing(path: str, what: str, count: int = 0) -> AnchorError:
    return AnchorError(
        f"the kernel cannot be forced on in a CUDA build: {what} is there {count} times",
        code="NUMERICS_CANNOT_FORCE",
        where=Location(path=path),
        why="the places were read off build 6900; upstream or the patch has changed since",
        hint="compare the file with b6900 and adapt patchkit/gates/numerics/forced.py",
    )


def _tokens(condition: str) -> bytes:
    scopes = parse_scopes(SourceText("<guard>", b"#if " + condition.encode() + b"\n#endif\n"))
    return scopes.directives[0].condition.partition(b" ")[2]


def _changed(data: bytes, changes: Iterable[tuple[Span, bytes]]) -> bytes:
    pieces = []
    at = 0
    for span, text in sorted(changes):
        pieces += [data[at : span.start], text]
        at = span.end
    return b"".join([*pieces, data[at:]])
