// Runs attention cases on the HIP backend, one graph per case, with a mark in the launch log before each.
//
//   fattn_cases CASES
//
// A line of CASES is an id and "name=value" words: hsk hsv (head sizes of K and V), nh (KV heads), nr2 (query
// heads per KV head), nr3 (sequences), kv (KV rows), nb (tokens), mask sinks (0/1), max_bias logit_softcap,
// prec (f32/default), type_k type_v (ggml type names), permute (four digits), view (0/1: K and V are views of
// a cache twice as long). The graph is the one that upstream's test-backend-ops builds for the same values.
// Marks: "case ID", then "unsupported" when the backend refuses the operation, "done" when it ran.

#include "ggml.h"
#include "ggml-alloc.h"
#include "ggml-backend.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

extern "C" void patchkit_recorder_mark(const char * text);

namespace {

using words = std::map<std::string, std::string>;

[[noreturn]] void refuse(const std::string & what) {
    std::fprintf(stderr, "fattn_cases: %s\n", what.c_str());
    std::exit(2);
}

const std::string & text(const words & values, const char * name) {
    const auto found = values.find(name);
    if (found == values.end()) {
        refuse(std::string("a case does not state ") + name);
    }
    return found->second;
}

int64_t integer(const words & values, const char * name) {
    return std::strtoll(text(values, name).c_str(), nullptr, 10);
}

float real(const words & values, const char * name) {
    return std::strtof(text(values, name).c_str(), nullptr);
}

ggml_type type_named(const std::string & name) {
    for (int i = 0; i < GGML_TYPE_COUNT; ++i) {
        const char * known = ggml_type_name(ggml_type(i));
        if (known != nullptr && name == known) {
            return ggml_type(i);
        }
    }
    refuse("unknown type " + name);
}

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

ggml_tensor * attention(ggml_context * ctx, const words & c) {
    const ggml_type type_k = type_named(text(c, "type_k"));
    const ggml_type type_v = type_named(text(c, "type_v"));
    const int64_t hsk = integer(c, "hsk");
    const int64_t hsk_padded = padded(hsk, ggml_blck_size(type_k));
    const int64_t hsv_padded = padded(integer(c, "hsv"), ggml_blck_size(type_v));
    const int64_t nh = integer(c, "nh"), nr2 = integer(c, "nr2"), nr3 = integer(c, "nr3");
    const int64_t kv = integer(c, "kv"), nb = integer(c, "nb");
    const bool view = integer(c, "view") != 0;
    shape order{};
    for (size_t i = 0; i < 4; ++i) {
        order.permute[i] = text(c, "permute").at(i) - '0';
    }
    ggml_tensor * q = order.make(ctx, GGML_TYPE_F32, {hsk_padded, nb, nh * nr2, nr3}, false);
    ggml_tensor * k = order.make(ctx, type_k, {hsk_padded, kv, nh, nr3}, view);
    ggml_tensor * v = order.make(ctx, type_v, {hsv_padded, kv, nh, nr3}, view);
    ggml_tensor * m = nullptr;
    if (integer(c, "mask") != 0) {
#ifdef GGML_KQ_MASK_PAD
        const int64_t rows = padded(nb, GGML_KQ_MASK_PAD);
#else
        const int64_t rows = nb;
#endif
        m = ggml_new_tensor_4d(ctx, GGML_TYPE_F16, kv, rows, 1, nr3);
    }
    ggml_tensor * s = integer(c, "sinks") != 0 ? ggml_new_tensor_1d(ctx, GGML_TYPE_F32, q->ne[2]) : nullptr;
    ggml_tensor * out = ggml_flash_attn_ext(ctx, q, k, v, m, 1.0f / std::sqrt(float(hsk)), real(c, "max_bias"),
                                            real(c, "logit_softcap"));
    ggml_flash_attn_ext_add_sinks(out, s);
    ggml_flash_attn_ext_set_prec(out, text(c, "prec") == "f32" ? GGML_PREC_F32 : GGML_PREC_DEFAULT);
    return out;
}

void run(ggml_backend_t backend, const std::string & id, const words & values) {
    patchkit_recorder_mark(("case " + id).c_str());
    const size_t room = ggml_tensor_overhead() * 32 + ggml_graph_overhead();
    ggml_context * ctx = ggml_init({room, nullptr, true});
    ggml_tensor * out = attention(ctx, values);
    if (!ggml_backend_supports_op(backend, out)) {
        patchkit_recorder_mark("unsupported");
        ggml_free(ctx);
        return;
    }
    ggml_cgraph * graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, out);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(ctx, backend);
    if (buffer == nullptr || ggml_backend_graph_compute(backend, graph) != GGML_STATUS_SUCCESS) {
        refuse("case " + id + " could not be allocated or computed");
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
    std::ifstream file(argv[1]);
    if (!file) {
        refuse(std::string("cannot read ") + argv[1]);
    }
    ggml_backend_t backend = gpu();
    for (std::string line; std::getline(file, line);) {
        std::istringstream parts(line);
        std::string id, word;
        parts >> id;
        words values;
        while (parts >> word) {
            const size_t equals = word.find('=');
            values[word.substr(0, equals)] = word.substr(equals + 1);
        }
        if (!id.empty()) {
            run(backend, id, values);
        }
    }
    ggml_backend_free(backend);
    return 0;
}
