// Runs attention cases on the HIP backend, one graph per case, with a mark in the launch log before each.
//
//   fattn_cases CASES
//
// CASES is parsed by case_line.hpp. The graph is the same as in upstream's test-backend-ops for these parameters.
// Marks: "case ID", then "unsupported" if the backend does not support the operation, or "done" when it ran.

#include "case_line.hpp"
#include "ggml.h"
#include "ggml-alloc.h"
#include "ggml-backend.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

extern "C" void patchkit_recorder_mark(const char * text);

void refuse(const std::string & what) {
    std::fprintf(stderr, "fattn_cases: %s\n", what.c_str());
    std::exit(2);
}

namespace {

struct shape {
    std::array<int, 4> permute;

    ggml_tensor * make(ggml_context * ctx, ggml_type type, const std::array<int64_t, 4> & ne, bool view) const {
        std::array<int64_t, 4> p{};
        for (size_t i = 0; i < 4; ++i) {
            p[size_t(permute[i])] = ne[i];
        }
        ggml_tensor * t = ggml_new_tensor_4d(ctx, type, p[0], view ? 2 * p[1] : p[1], p[2], p[3]);
        if (view) {
            t = ggml_view_4d(ctx, t, p[0], p[1], p[2], p[3], t->nb[1], t->nb[2], t->nb[3], 0);
        }
        if (permute == std::array<int, 4>{0, 1, 2, 3}) {
            return t;
        }
        return ggml_permute(ctx, t, permute[0], permute[1], permute[2], permute[3]);
    }
};

int64_t padded(int64_t value, int64_t step) {
    return (value + step - 1) / step * step;
}

ggml_tensor * attention(ggml_context * ctx, const attention_case & c) {
    const ggml_type type_k = c.type("type_k");
    const ggml_type type_v = c.type("type_v");
    const int64_t hsk = c.integer("hsk");
    const int64_t hsk_padded = padded(hsk, ggml_blck_size(type_k));
    const int64_t hsv_padded = padded(c.integer("hsv"), ggml_blck_size(type_v));
    const int64_t nh = c.integer("nh"), nr2 = c.integer("nr2"), nr3 = c.integer("nr3");
    const int64_t kv = c.integer("kv"), nb = c.integer("nb");
    const bool view = c.is("view");
    const shape order{c.order()};
    ggml_tensor * q = order.make(ctx, GGML_TYPE_F32, {hsk_padded, nb, nh * nr2, nr3}, false);
    ggml_tensor * k = order.make(ctx, type_k, {hsk_padded, kv, nh, nr3}, view);
    ggml_tensor * v = order.make(ctx, type_v, {hsv_padded, kv, nh, nr3}, view);
    ggml_tensor * m = c.is("mask") ? ggml_new_tensor_4d(ctx, GGML_TYPE_F16, kv, c.mask_rows(), 1, nr3) : nullptr;
    ggml_tensor * s = c.is("sinks") ? ggml_new_tensor_1d(ctx, GGML_TYPE_F32, q->ne[2]) : nullptr;
    ggml_tensor * out = ggml_flash_attn_ext(ctx, q, k, v, m, 1.0f / std::sqrt(float(hsk)), float(c.real("max_bias")),
                                            float(c.real("logit_softcap")));
    ggml_flash_attn_ext_add_sinks(out, s);
    ggml_flash_attn_ext_set_prec(out, c.precision());
    return out;
}

void run(ggml_backend_t backend, const attention_case & c) {
    patchkit_recorder_mark(("case " + c.id).c_str());
    const size_t room = ggml_tensor_overhead() * 32 + ggml_graph_overhead();
    ggml_context * ctx = ggml_init({room, nullptr, true});
    ggml_tensor * out = attention(ctx, c);
    if (!ggml_backend_supports_op(backend, out)) {
        patchkit_recorder_mark("unsupported");
        ggml_free(ctx);
        return;
    }
    ggml_cgraph * graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, out);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(ctx, backend);
    if (buffer == nullptr || ggml_backend_graph_compute(backend, graph) != GGML_STATUS_SUCCESS) {
        refuse("case " + c.id + " could not be allocated or computed");
    }
    patchkit_recorder_mark("done");
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
}

ggml_backend_t gpu() {
    ggml_backend_load_all();
    ggml_backend_dev_t found = nullptr;
    for (size_t i = 0; i < ggml_backend_dev_count(); ++i) {
        ggml_backend_dev_t dev = ggml_backend_dev_get(i);
        if (ggml_backend_dev_type(dev) != GGML_BACKEND_DEVICE_TYPE_CPU) {
            found = dev;
            break;
        }
    }
    if (found == nullptr) {
        refuse("no GPU backend was loaded; GGML_BACKEND_PATH must name libggml-hip.so");
    }
    return ggml_backend_dev_init(found, nullptr);
}

} // namespace

int main(int argc, char ** argv) {
    if (argc != 2) {
        refuse("usage: fattn_cases CASES");
    }
    ggml_backend_t backend = gpu();
    each_case(argv[1], [&](const attention_case & c) { run(backend, c); });
    ggml_backend_free(backend);
    return 0;
}
