"""Writes a graph as a C++ program that builds against ggml alone, for a report to its authors."""

from __future__ import annotations

from collections.abc import Mapping

from patchkit.gpu.hardware.graphs.description import Graph, Tensor, first_numbers, stride_of

# Expressions by operation: {a}, {b} ... are what it reads, {i0} and {f0} its parameters.
_CALLS: Mapping[str, str] = {
    **{
        name: f"ggml_{name}(ctx, {{a}}, {{b}})"
        for name in ("add", "add_inplace", "sub", "mul", "mul_inplace", "div", "get_rows", "cpy", "repeat")
    },
    **{
        name: f"ggml_{name}(ctx, {{a}})"
        for name in (
            *("cont", "sum_rows", "transpose", "silu", "silu_inplace", "sigmoid", "gelu", "relu", "tanh"),
            *("exp", "softplus"),
        )
    },
    **{
        name: f"ggml_{name}(ctx, {{a}}, {{f0}})"
        for name in ("rms_norm", "rms_norm_inplace", "norm", "l2_norm")
    },
    **{
        name: f"ggml_glu_split(ctx, {{a}}, {{b}}, GGML_GLU_OP_{name.upper()})"
        for name in ("swiglu", "geglu", "reglu", "geglu_erf", "geglu_quick")
    },
    "mul_mat": "ggml_mul_mat(ctx, {a}, {b})",
    "mul_mat_id": "ggml_mul_mat_id(ctx, {a}, {b}, {c})",
    "add_id": "ggml_add_id(ctx, {a}, {b}, {c})",
    "scale": "ggml_scale_bias(ctx, {a}, {f0}, {f1})",
    "scale_inplace": "ggml_scale_inplace(ctx, {a}, {f0})",
    "clamp": "ggml_clamp(ctx, {a}, {f0}, {f1})",
    "set_rows": "ggml_set_rows(ctx, {a}, {b}, {c})",
    "concat": "ggml_concat(ctx, {a}, {b}, {i0})",
    "argsort": "ggml_argsort(ctx, {a}, GGML_SORT_ORDER_DESC)",
    "soft_max": "ggml_soft_max_ext(ctx, {a}, {b}, {f0}, {f1})",
    "attention": "ggml_flash_attn_ext(ctx, {a}, {b}, {c}, {d}, {f0}, {f1}, {f2})",
    "ssm_conv": "ggml_ssm_conv(ctx, {a}, {b})",
    "gated_delta_net": "ggml_gated_delta_net(ctx, {a}, {b}, {c}, {d}, {e}, {g}, 1)",
    "glu_oai": "ggml_swiglu_oai(ctx, {a}, {b}, {f0}, {f1})",
    "glu_clamp": "ggml_swiglu_clamp(ctx, {a}, {b}, {f0})",
    "glu": "ggml_glu(ctx, {a}, GGML_GLU_OP_SWIGLU, {i0})",
    "permute": "ggml_permute(ctx, {a}, {i0}, {i1}, {i2}, {i3})",
}
_LETTERS = "abcdeg"

_PROGRAM = """\
// {title}
//
// {about}
// Build with ggml's headers and libraries: c++ -std=c++17 FILE -Iggml/include -lggml -lggml-base
// Run: ./a.out FOLDER_OF_BACKENDS DEVICE (for example ROCm0). Prints how far the device is from the CPU.
{environment}
#include "ggml.h"
#include "ggml-backend.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <thread>
#include <utility>
#include <vector>

struct tensors {{
    ggml_tensor * {leaves};
    std::vector<ggml_tensor *> all, compared;
    // By nodes that lie in the memory of another tensor: that tensor, and how many bytes after its start.
    std::map<ggml_tensor *, std::pair<ggml_tensor *, int64_t>> over;
    ggml_cgraph * graph;
}};

static ggml_tensor * leaf(ggml_context * ctx, ggml_type type, int64_t a, int64_t b, int64_t c, int64_t d) {{
    return ggml_new_tensor_4d(ctx, type, a, b, c, d);
}}

static tensors build(ggml_context * ctx) {{
    tensors t;
    t.graph = ggml_new_graph(ctx);
    const auto node = [&](const char * name, ggml_tensor * one, bool is_output, bool is_idle = false) {{
        ggml_set_name(one, name); // backends read some names
        t.all.push_back(one);
        if (is_output) {{
            ggml_set_output(one);
            t.compared.push_back(one);
        }}
        if (is_idle) {{
            ggml_build_forward_order(t.graph, one);
        }} else {{
            ggml_build_forward_expand(t.graph, one);
        }}
        return one;
    }};
{body}
    return t;
}}

// From -1 to 1.
static float number(uint64_t & state) {{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return float(double(state >> 11) * 0x1p-53 * 2.0 - 1.0);
}}

static void put(ggml_tensor * one, const std::vector<float> & values) {{
    std::vector<uint8_t> bytes(ggml_nbytes(one));
    const std::vector<float> same(one->ne[0], 1.0f);
    if (one->type == GGML_TYPE_F32) {{
        std::memcpy(bytes.data(), values.data(), bytes.size());
    }} else {{
        const int64_t rows = ggml_nrows(one);
        ggml_quantize_chunk(one->type, values.data(), bytes.data(), 0, rows, one->ne[0], same.data());
    }}
    ggml_backend_tensor_set(one, bytes.data(), 0, bytes.size());
}}

static void put_random(ggml_tensor * one, uint64_t seed, bool is_negative = false, float shift = 0.0f) {{
    std::vector<float> values(ggml_nelements(one));
    for (float & value : values) {{
        value = number(seed);
        value = shift + (is_negative ? -std::abs(value) : value);
    }}
    put(one, values);
}}

// Token t sees the KV rows up to `used` - tokens + t.
static void put_mask(ggml_tensor * one, int64_t used) {{
    std::vector<float> values(ggml_nelements(one), 0.0f);
    for (int64_t i = 0; i < (int64_t) values.size(); ++i) {{
        const int64_t token = i / one->ne[0] % one->ne[1];
        values[i] = i % one->ne[0] <= used - one->ne[1] + token ? 0.0f : -INFINITY;
    }}
    put(one, values);
}}

static void put_numbers(ggml_tensor * one, const std::vector<int64_t> & values) {{
    for (size_t i = 0; i < values.size(); ++i) {{
        const int32_t narrow = int32_t(values[i]);
        const bool    is_wide = one->type == GGML_TYPE_I64;
        ggml_backend_tensor_set(one, is_wide ? (const void *) &values[i] : (const void *) &narrow,
                                i * ggml_type_size(one->type), ggml_type_size(one->type));
    }}
}}

// `more`: another number gives other inputs.
static std::vector<std::vector<float>> run(ggml_backend_t backend, [[maybe_unused]] uint64_t more = 0) {{
    const size_t   size = ggml_tensor_overhead() * 1024 + ggml_graph_overhead();
    ggml_context * ctx  = ggml_init({{size, nullptr, true}});
    tensors t = build(ctx);
    // Each tensor has a buffer of its own, so that tools see accesses past its end. If nodes lie in the
    // memory of others, it has room for them before and after.
    const ggml_backend_buffer_type_t kind = ggml_backend_get_default_buffer_type(backend);
    size_t room = 0;
    for (const auto & [one, place] : t.over) {{
        room += GGML_PAD(ggml_backend_buft_get_alloc_size(kind, one) + std::abs(place.second), 128);
    }}
    for (ggml_tensor * one = ggml_get_first_tensor(ctx); one != nullptr;
         one = ggml_get_next_tensor(ctx, one)) {{
        const auto place = t.over.find(one);
        if (one->view_src != nullptr) {{
            ggml_backend_view_init(one);
        }} else if (place != t.over.end()) {{
            const auto [other, at] = place->second;
            ggml_backend_tensor_alloc(other->buffer, one, (char *) other->data + at);
        }} else {{
            const size_t          size   = ggml_backend_buft_get_alloc_size(kind, one) + 2 * room;
            ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(kind, size);
            ggml_backend_tensor_alloc(buffer, one, (char *) ggml_backend_buffer_get_base(buffer) + room);
        }}
    }}
{scheduler}    for (int round = 0; round < {rounds}; ++round) {{
{values}
        if ({compute}, t.graph) != GGML_STATUS_SUCCESS) {{
            std::exit(2);
        }}
    }}
    std::vector<std::vector<float>> results;
    for (ggml_tensor * one : t.compared) {{
        std::vector<uint8_t> bytes(ggml_nbytes(one));
        ggml_backend_tensor_get(one, bytes.data(), 0, bytes.size());
        results.emplace_back(ggml_nelements(one));
        if (one->type == GGML_TYPE_F32) {{
            std::memcpy(results.back().data(), bytes.data(), bytes.size());
        }} else if (ggml_get_type_traits(one->type)->to_float != nullptr) {{
            const ggml_to_float_t convert = ggml_get_type_traits(one->type)->to_float;
            convert(bytes.data(), results.back().data(), ggml_nelements(one));
        }}
    }}
    return results;
}}

int main(int argc, char ** argv) {{
    if (argc != 3) {{
        return 2;
    }}
    ggml_backend_load_all_from_path(argv[1]);
{got}
    const auto right = run(ggml_backend_init_by_name("CPU", nullptr));
    for (size_t i = 0; i < got.size(); ++i) {{
        double wrong = 0.0, all = 0.0;
        for (size_t k = 0; k < got[i].size(); ++k) {{
            wrong += (double(got[i][k]) - right[i][k]) * (double(got[i][k]) - right[i][k]);
            all += double(right[i][k]) * right[i][k];
        }}
        std::printf("result %zu: NMSE %.3g\\n", i, wrong / all);
    }}
}}
"""

_ONE_CONTEXT = "    const auto got   = run(ggml_backend_init_by_name(argv[2], nullptr));"
_TWO_CONTEXTS = """\
    // The fault may need two contexts that compute at the same time: run it several times.
    ggml_backend_t first = ggml_backend_init_by_name(argv[2], nullptr);
    ggml_backend_t other = ggml_backend_init_by_name(argv[2], nullptr);
    std::thread    second([&] { run(other, 1000003); });
    const auto     got = run(first);
    second.join();"""

_SCHEDULER = """\
    // The scheduler lets the backend reorder the graph, as in llama.cpp.
    ggml_backend_t both[] = {backend, ggml_backend_init_by_name("CPU", nullptr)};
    const bool     is_cpu = std::strcmp(ggml_backend_name(backend), "CPU") == 0;
    const auto     scheduler = ggml_backend_sched_new(both, nullptr, is_cpu ? 1 : 2, 2048, false, false);
"""
_COMPUTE = {
    True: "ggml_backend_sched_graph_compute(scheduler",
    False: "ggml_backend_graph_compute(backend",
}


def reproducer(graph: Graph, why: str) -> str:
    """The program; ``why`` is a line on what is wrong. Raises ValueError for an invalid extent."""
    leaves = [one for one in graph.tensors if one.leaf is not None]
    set_by = [f"{name}={value}" for name, value in graph.environment.items()]
    return _PROGRAM.format(
        title=_one_line(f"{graph.name}: {why}"),
        about=_one_line(graph.about or "a small graph"),
        environment=f"// Set in the environment: {_one_line(' '.join(set_by))}" if set_by else "",
        leaves=", * ".join(one.name for one in leaves),
        body="\n".join(f"    {_built(graph, one)}" for one in graph.tensors),
        rounds=graph.rounds,
        scheduler=_SCHEDULER if graph.memory == "scheduled" else "",
        compute=_COMPUTE[graph.memory == "scheduled"],
        got=_TWO_CONTEXTS if graph.contexts > 1 else _ONE_CONTEXT,
        values="\n".join(
            f"        {line}" for n, one in enumerate(leaves) for line in [_value(graph, one, n)]
        ),
    )


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("\\", "/")


def _type(name: str) -> str:
    return f"GGML_TYPE_{name.upper()}"


def _four(graph: Graph, one: Tensor) -> str:
    ne = [str(graph.number(each)) for each in one.ne]
    return ", ".join([*ne, *(["1"] * (4 - len(ne)))])


def _read(graph: Graph, name: str) -> str:
    if name == "-":
        return "nullptr"
    return f"t.{name}" if graph.named[name].leaf is not None else name


def _built(graph: Graph, one: Tensor) -> str:
    if one.leaf is not None:
        made = f"t.{one.name} = leaf(ctx, {_type(one.type)}, {_four(graph, one)});"
        return made + (f" t.compared.push_back(t.{one.name});" if one.leaf == "cache" else "")
    flags = ("true" if one.output else "false") + (", true" if one.idle else "")
    call = f'ggml_tensor * {one.name} = node("{one.name}", {_call(graph, one)}, {flags});'
    if one.op in {"mul_mat", "attention"} and one.i == (1,):
        function = "ggml_mul_mat_set_prec" if one.op == "mul_mat" else "ggml_flash_attn_ext_set_prec"
        call += f" {function}({one.name}, GGML_PREC_F32);"
    if one.op == "attention" and len(one.of) > 4:  # noqa: PLR2004 - sinks are the fifth
        call += f" ggml_flash_attn_ext_add_sinks({one.name}, {_read(graph, one.of[4])});"
    if one.over:
        other = _read(graph, one.over)
        call += f" t.over[{one.name}] = {{{other}, {_stride(graph, one.at or '0.0', other)}}};"
    return call


def _stride(graph: Graph, text: str, of: str) -> str:
    times, dimension = stride_of(graph, text)
    return f"{times} * {of}->nb[{dimension}]"


def _call(graph: Graph, one: Tensor) -> str:
    of = [_read(graph, name) for name in one.of]
    if one.op == "view":
        nb = [_stride(graph, text, of[0]) for text in one.nb]
        nb += [f"{of[0]}->nb[{n}]" for n in range(len(nb) + 1, 4)]
        at = _stride(graph, one.at or "0.0", of[0])
        return f"ggml_view_4d(ctx, {of[0]}, {_four(graph, one)}, {', '.join(nb)}, {at})"
    if one.op == "reshape":
        return f"ggml_reshape_4d(ctx, {of[0]}, {_four(graph, one)})"
    if one.op in {"rope", "rope_inplace"}:
        return _rope(graph, one, of)
    numbers = {f"i{n}": str(graph.number(each)) for n, each in enumerate(one.i)}
    floats = {f"f{n}": f"float({each!r})" for n, each in enumerate(one.f)}
    names = {letter: of[n] if n < len(of) else "nullptr" for n, letter in enumerate(_LETTERS)}
    defaults = {"f0": "0.0f", "f1": "0.0f", "f2": "0.0f", "i0": "0", "i1": "0"}
    return _CALLS[one.op].format(**{**defaults, **names, **numbers, **floats})


def _rope(graph: Graph, one: Tensor, of: list[str]) -> str:
    dims, mode, offset = (*(graph.number(each) for each in one.i), 0, 0)[:3]
    is_multi = mode & 8
    sections = f"std::array<int, 4>{{{dims // 4}, {dims // 8}, {dims // 8}, 0}}.data(), " if is_multi else ""
    name = f"ggml_rope_{'multi' if is_multi else 'ext'}{one.op.removeprefix('rope')}"
    usual = (10000.0, 1.0, 0.0, 1.0, 32.0, 1.0)
    floats = ", ".join(f"float({each!r})" for each in (*one.f, *usual[len(one.f) :]))
    factors = of[2] if len(of) > 2 else "nullptr"  # noqa: PLR2004 - the third operand
    call = f"{name}(ctx, {of[0]}, {of[1]}, {factors}, {dims}, {sections}{mode}, 4096, {floats})"
    return f"ggml_rope_set_offset({call}, {offset})" if offset else call


def _value(graph: Graph, one: Tensor, number: int) -> str:
    name = f"t.{one.name}"
    if one.leaf == "numbers":
        values = ", ".join(
            f"{each} + {one.step} * round" if one.step else str(each) for each in first_numbers(graph, one)
        )
        return f"put_numbers({name}, {{{values}}});"
    once = "if (round == 0) "
    if one.leaf == "mask":
        used = {"all": f"2 * {name}->ne[0] + {name}->ne[1]", "padded": f"{name}->ne[0] - {name}->ne[0] / 4"}
        return f"put_mask({name}, {used.get(one.seen, f'{name}->ne[0]')});"
    if one.leaf == "cache" and not one.filled:
        return f"{once}put({name}, std::vector<float>(ggml_nelements({name}), 0.0f));"
    seed = graph.seed * 1000 + number
    if one.leaf == "input":
        return f"put_random({name}, {seed} + 7919 * round + more);"
    more = f", {str(one.negative).lower()}, float({one.shift!r})" if one.negative or one.shift else ""
    return f"{once}put_random({name}, {seed}{more});"
