// Runs single operations on the HIP backend, one graph per case, with a mark in the launch log before each.
//
//   op_cases CASES
//
// A line of CASES is an id and "name=value" words: op (see make below), type (ggml type name of the weights, or of the
// cache that rows are written to), rows and columns (of the weights: outputs and inputs), tokens, experts and used
// (experts per token). Marks: "case ID", then "unsupported" if this ggml does not know the type or the backend does not
// support the operation, or "done" when it ran. Tensors are not initialised (their memory reads as zero), except for
// the selected experts.

#include "case_line.hpp"
#include "ggml.h"
#include "ggml-alloc.h"
#include "ggml-backend.h"

#include <cstdio>
#include <cstdlib>
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
    if (op == "RMS_NORM") {
        return ggml_rms_norm(ctx, in, 1e-5f);
    }
    if (op == "ADD") {
        return ggml_add(ctx, in, ggml_new_tensor_2d(ctx, GGML_TYPE_F32, columns, tokens));
    }
    if (op == "SWIGLU") {
        return ggml_swiglu_split(ctx, in, ggml_new_tensor_2d(ctx, GGML_TYPE_F32, columns, tokens));
    }
    if (op == "SOFT_MAX") {
        return ggml_soft_max(ctx, in);
    }
    if (op == "ROPE") {
        ggml_tensor * heads = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, 128, columns / 128, tokens);
        ggml_tensor * positions = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, tokens);
        return ggml_rope_ext(ctx, heads, positions, nullptr, 128, 0, 4096, 10000.0f, 1.0f, 0.0f, 1.0f, 32.0f, 1.0f);
    }
    refuse("unknown operation " + op);
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
    if (!ggml_backend_supports_op(backend, out)) {
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
