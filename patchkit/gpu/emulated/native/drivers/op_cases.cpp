// Runs single operations on the HIP backend, one graph per case, with a mark in the launch log before each.
//
//   op_cases CASES
//
// A line of CASES is an id and "name=value" words: op (see make below), type (ggml type name of the weights, or of the
// cache that rows are written to or read from), rows and columns (of the weights: outputs and inputs; of operations on
// heads: heads and head size), tokens, experts and used (experts per token). Marks: "case ID", then "unsupported" if
// this ggml does not know the type or the operation or the backend does not support it, or "done" when it ran. Tensors
// are not initialised (their memory reads as zero), except for the selected experts.

#include "case_line.hpp"
#include "ggml.h"
#include "ggml-alloc.h"
#include "ggml-backend.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

extern "C" void patchkit_recorder_mark(const char * text);

void refuse(const std::string & what) {
    std::fprintf(stderr, "op_cases: %s\n", what.c_str());
    std::exit(2);
}

namespace {

// Older builds lack newer types.
bool is_type(const std::string & name) {
    for (int i = 0; i < GGML_TYPE_COUNT; ++i) {
        const char * known = ggml_type_name(ggml_type(i));
        if (known != nullptr && name == known) {
            return true;
        }
    }
    return false;
}

using unary = ggml_tensor * (*)(ggml_context *, ggml_tensor *);
using binary = ggml_tensor * (*)(ggml_context *, ggml_tensor *, ggml_tensor *);

constexpr int64_t CONVOLVED = 4;   // tokens that a convolution of a delta net reads
constexpr int64_t STREAMS   = 4;   // of hyper-connections
constexpr int64_t INDEXED   = 4096; // rows of the indexer's cache

const std::map<std::string, unary> UNARY = {
    {"ABS", ggml_abs},
    {"ARGSORT", [](ggml_context * ctx, ggml_tensor * in) { return ggml_argsort(ctx, in, GGML_SORT_ORDER_DESC); }},
    {"CLAMP", [](ggml_context * ctx, ggml_tensor * in) { return ggml_clamp(ctx, in, -7.0f, 7.0f); }},
    {"CONT", [](ggml_context * ctx, ggml_tensor * in) { return ggml_cont(ctx, ggml_transpose(ctx, in)); }},
    {"CPY", [](ggml_context * ctx, ggml_tensor * in) { return ggml_cast(ctx, in, GGML_TYPE_F16); }},
    {"DUP", ggml_dup},
    {"EXP", ggml_exp},
    {"L2_NORM", [](ggml_context * ctx, ggml_tensor * in) { return ggml_l2_norm(ctx, in, 1e-5f); }},
    {"RELU", ggml_relu},
    {"RMS_NORM", [](ggml_context * ctx, ggml_tensor * in) { return ggml_rms_norm(ctx, in, 1e-5f); }},
    {"REPEAT",
     [](ggml_context * ctx, ggml_tensor * in) { return ggml_repeat_4d(ctx, in, in->ne[0], in->ne[1], STREAMS, 1); }},
    {"SCALE", [](ggml_context * ctx, ggml_tensor * in) { return ggml_scale(ctx, in, 2.0f); }},
    {"SGN", ggml_sgn},
    {"SIGMOID", ggml_sigmoid},
    {"SILU", ggml_silu},
    {"SOFT_MAX", ggml_soft_max},
    {"SQRT", ggml_sqrt},
    {"SUM_ROWS", ggml_sum_rows},
    {"TANH", ggml_tanh},
};

const std::map<std::string, binary> BINARY = {
    {"ADD", ggml_add},
    {"CONCAT", [](ggml_context * ctx, ggml_tensor * a, ggml_tensor * b) { return ggml_concat(ctx, a, b, 0); }},
    {"DIV", ggml_div},
    {"GEGLU", ggml_geglu_split},
    {"MUL", ggml_mul},
    {"SUB", ggml_sub},
    {"SWIGLU", ggml_swiglu_split},
    {"SWIGLU_OAI",
     [](ggml_context * ctx, ggml_tensor * a, ggml_tensor * b) { return ggml_swiglu_oai(ctx, a, b, 1.7f, 7.0f); }},
};

// Operations that older builds lack; nullptr there. A call that depends on C may name an undeclared function.
template <typename C> ggml_tensor * make_newer(C * ctx, const attention_case & c, ggml_type type) {
    const std::string & op = c.text("op");
    const int64_t rows = c.integer("rows"), columns = c.integer("columns"), tokens = c.integer("tokens");
    const auto floats = [ctx](int64_t a, int64_t b, int64_t d = 1) {
        return ggml_new_tensor_3d(ctx, GGML_TYPE_F32, a, b, d);
    };
    if (op == "SOFTPLUS") {
        if constexpr (requires { ggml_softplus(ctx, floats(1, 1)); }) {
            return ggml_softplus(ctx, floats(columns, tokens));
        }
    } else if (op == "CUMSUM") {
        if constexpr (requires { ggml_cumsum(ctx, floats(1, 1)); }) {
            return ggml_cumsum(ctx, floats(columns, tokens));
        }
    } else if (op == "FILL") {
        if constexpr (requires { ggml_fill(ctx, floats(1, 1), 0.0f); }) {
            return ggml_fill(ctx, floats(columns, tokens), 0.0f);
        }
    } else if (op == "SWIGLU_CLAMP") {
        if constexpr (requires { ggml_swiglu_clamp(ctx, floats(1, 1), floats(1, 1), 10.0f); }) {
            return ggml_swiglu_clamp(ctx, floats(columns, tokens), floats(columns, tokens), 10.0f);
        }
    } else if (op == "TOP_K") {
        if constexpr (requires { ggml_argsort_top_k(ctx, floats(1, 1), 1); }) { // before, top_k was an argsort
            return ggml_top_k(ctx, floats(columns, tokens), int(c.integer("used")));
        }
    } else if (op == "GATED_DELTA_NET") {
        ggml_tensor * q = floats(columns, rows / 3, tokens), * k = floats(columns, rows / 3, tokens);
        ggml_tensor * v = floats(columns, rows, tokens);
        ggml_tensor * g = floats(1, rows, tokens), * beta = floats(1, rows, tokens);
        ggml_tensor * state = floats(columns, columns, rows);
        if constexpr (requires { ggml_gated_delta_net(ctx, q, k, v, g, beta, state, 1); }) {
            return ggml_gated_delta_net(ctx, q, k, v, g, beta, state, 1);
        } else if constexpr (requires { ggml_gated_delta_net(ctx, q, k, v, g, beta, state); }) {
            return ggml_gated_delta_net(ctx, q, k, v, g, beta, state);
        }
    } else if (op == "LIGHTNING_INDEXER") {
        ggml_tensor * q = floats(columns, rows, tokens), * weights = floats(rows, tokens);
        ggml_tensor * k = ggml_new_tensor_3d(ctx, type, columns, 1, INDEXED);
        ggml_tensor * mask = ggml_new_tensor_2d(ctx, GGML_TYPE_F16, INDEXED, tokens);
        if constexpr (requires { ggml_lightning_indexer(ctx, q, k, weights, mask); }) {
            return ggml_lightning_indexer(ctx, q, k, weights, mask);
        }
    } else if (op == "DSV4_HC_COMB") {
        constexpr int64_t mixed = (2 + STREAMS) * STREAMS;
        if constexpr (requires { ggml_dsv4_hc_comb(ctx, floats(1, 1), floats(1, 1), floats(1, 1), 1e-6f, 20); }) {
            return ggml_dsv4_hc_comb(ctx, floats(mixed, tokens), floats(3, 1), floats(mixed, 1), 1e-6f, 20);
        }
    } else if (op == "DSV4_HC_PRE") {
        ggml_tensor * x = floats(columns, STREAMS, tokens);
        if constexpr (requires { ggml_dsv4_hc_pre(ctx, x, x); }) {
            return ggml_dsv4_hc_pre(ctx, x, floats(STREAMS, tokens));
        }
    } else if (op == "DSV4_HC_PRE_GATED") {
        ggml_tensor * x = floats(columns, STREAMS, tokens);
        if constexpr (requires { ggml_dsv4_hc_pre_gated(ctx, x, x, 1.0f); }) {
            return ggml_dsv4_hc_pre_gated(ctx, x, floats(columns, STREAMS, tokens), 1.0f / STREAMS);
        }
    } else if (op == "DSV4_HC_POST") {
        ggml_tensor * residual = floats(columns, STREAMS, tokens);
        ggml_tensor * comb = floats(STREAMS, STREAMS, tokens);
        if constexpr (requires { ggml_dsv4_hc_post(ctx, residual, residual, residual, comb); }) {
            return ggml_dsv4_hc_post(ctx, floats(columns, tokens), residual, floats(STREAMS, tokens), comb);
        }
    } else {
        refuse("unknown operation " + op);
    }
    return nullptr;
}

ggml_tensor * make(ggml_context * ctx, const attention_case & c, ggml_type type) {
    const std::string & op = c.text("op");
    const int64_t rows = c.integer("rows"), columns = c.integer("columns"), tokens = c.integer("tokens");
    ggml_tensor * in = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, columns, tokens);
    if (op == "MUL_MAT") {
        return ggml_mul_mat(ctx, ggml_new_tensor_2d(ctx, type, columns, rows), in);
    }
    if (op == "MUL_MAT_ID") {
        ggml_tensor * experts = ggml_new_tensor_3d(ctx, type, columns, rows, c.integer("experts"));
        ggml_tensor * ids = ggml_new_tensor_2d(ctx, GGML_TYPE_I32, c.integer("used"), tokens);
        return ggml_mul_mat_id(ctx, experts, ggml_new_tensor_3d(ctx, GGML_TYPE_F32, columns, 1, tokens), ids);
    }
    if (op == "GET_ROWS") {
        ggml_tensor * ids = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, tokens);
        return ggml_get_rows(ctx, ggml_new_tensor_2d(ctx, type, columns, rows), ids);
    }
    if (op == "SET_ROWS") {
        ggml_tensor * ids = ggml_new_tensor_1d(ctx, GGML_TYPE_I64, tokens);
        return ggml_set_rows(ctx, ggml_new_tensor_2d(ctx, type, columns, rows), in, ids);
    }
    if (const auto found = UNARY.find(op); found != UNARY.end()) {
        return found->second(ctx, in);
    }
    if (const auto found = BINARY.find(op); found != BINARY.end()) {
        return found->second(ctx, in, ggml_new_tensor_2d(ctx, GGML_TYPE_F32, columns, tokens));
    }
    if (op == "ADD_ID") {
        ggml_tensor * ids = ggml_new_tensor_2d(ctx, GGML_TYPE_I32, c.integer("used"), tokens);
        ggml_tensor * outs = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, columns, c.integer("used"), tokens);
        return ggml_add_id(ctx, outs, ggml_new_tensor_2d(ctx, GGML_TYPE_F32, columns, c.integer("experts")), ids);
    }
    if (op == "SSM_CONV") {
        ggml_tensor * sequence = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, CONVOLVED - 1 + tokens, columns, 1);
        return ggml_ssm_conv(ctx, sequence, ggml_new_tensor_2d(ctx, GGML_TYPE_F32, CONVOLVED, columns));
    }
    if (op == "ROPE" || op == "ROPE_BACK") {
        ggml_tensor * heads = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, 128, columns / 128, tokens);
        ggml_tensor * positions = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, tokens);
        const auto rope = op == "ROPE" ? ggml_rope_ext : ggml_rope_ext_back;
        return rope(ctx, heads, positions, nullptr, 128, 0, 4096, 10000.0f, 1.0f, 0.0f, 1.0f, 32.0f, 1.0f);
    }
    return make_newer(ctx, c, type);
}

// Host code reads the selected experts of a token and requires them to differ: each token uses the next ones.
void spread(ggml_tensor * ids, int64_t experts) {
    std::vector<int32_t> chosen(size_t(ggml_nelements(ids)));
    for (size_t i = 0; i < chosen.size(); ++i) {
        chosen[i] = int32_t(int64_t(i) % experts);
    }
    ggml_backend_tensor_set(ids, chosen.data(), 0, chosen.size() * sizeof(chosen[0]));
}

void run(ggml_backend_t backend, const attention_case & c) {
    patchkit_recorder_mark(("case " + c.id).c_str());
    if (!is_type(c.text("type"))) {
        patchkit_recorder_mark("unsupported");
        return;
    }
    ggml_context * ctx = ggml_init({ggml_tensor_overhead() * 16 + ggml_graph_overhead(), nullptr, true});
    ggml_tensor * out = make(ctx, c, c.type("type"));
    if (out == nullptr || !ggml_backend_supports_op(backend, out)) {
        patchkit_recorder_mark("unsupported");
        ggml_free(ctx);
        return;
    }
    ggml_cgraph * graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, out);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(ctx, backend);
    if (buffer != nullptr && out->op == GGML_OP_MUL_MAT_ID) {
        spread(out->src[2], c.integer("experts"));
    }
    if (buffer == nullptr || ggml_backend_graph_compute(backend, graph) != GGML_STATUS_SUCCESS) {
        refuse("case " + c.id + " could not be allocated or computed");
    }
    patchkit_recorder_mark("done");
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
}

ggml_backend_t gpu() {
    ggml_backend_load_all();
    for (size_t i = 0; i < ggml_backend_dev_count(); ++i) {
        ggml_backend_dev_t dev = ggml_backend_dev_get(i);
        if (ggml_backend_dev_type(dev) != GGML_BACKEND_DEVICE_TYPE_CPU) {
            return ggml_backend_dev_init(dev, nullptr);
        }
    }
    refuse("no GPU backend was loaded; GGML_BACKEND_PATH must name libggml-hip.so");
}

} // namespace

int main(int argc, char ** argv) {
    if (argc != 2) {
        refuse("usage: op_cases CASES");
    }
    ggml_backend_t backend = gpu();
    each_case(argv[1], [&](const attention_case & c) { run(backend, c); });
    ggml_backend_free(backend);
    return 0;
}
