// The weighted sum over the experts of each token, in shapes of many kinds: prints each result to the last bit, as a hash.
//
//   expert_sums FOLDER
//
// FOLDER has the backends. Upstream computes such a graph with one kernel, where it has two to fifteen experts.

#include "graphs.hpp"

#include "ggml-alloc.h"

#include <cinttypes>

namespace {

struct sums {
    const char * name;
    int64_t      width; // columns of a token
    int64_t      experts, tokens;
    bool         is_scaled = false; // by a number for each expert and token, besides the weights
    int64_t      offset    = 0;     // floats that the first row lies behind the begin of its memory
};

constexpr sums SCENES[] = {
    {"whole", 2048, 8, 4},
    {"tail", 2880, 4, 3},
    {"short", 260, 2, 5},
    {"scaled", 1028, 15, 9, true},
    {"one-token", 2048, 8, 1},
    {"odd", 63, 12, 33, true},
    {"odd-wide", 2049, 3, 2},
    {"even", 66, 8, 7},
    {"unaligned", 2048, 8, 3, false, 1},
    {"aligned-again", 2048, 8, 3, true, 4},
    {"one-expert", 256, 1, 3},
    {"sixteen-experts", 256, 16, 3},
};

void run(const sums & scene, ggml_backend_t gpu) {
    const ggml_init_params params{size_t(64) * ggml_tensor_overhead() + ggml_graph_overhead(), nullptr, true};
    ggml_context *         ctx = ggml_init(params);

    ggml_tensor * memory  = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, scene.width * scene.experts * scene.tokens + scene.offset);
    ggml_tensor * experts = ggml_view_3d(ctx, memory, scene.width, scene.experts, scene.tokens, size_t(scene.width) * sizeof(float),
                                         size_t(scene.width * scene.experts) * sizeof(float), size_t(scene.offset) * sizeof(float));
    ggml_tensor * weights = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, 1, scene.experts, scene.tokens);
    ggml_tensor * scales  = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, 1, scene.experts, scene.tokens);

    ggml_tensor * weighted = ggml_mul(ctx, scene.is_scaled ? ggml_mul(ctx, experts, scales) : experts, weights);
    ggml_tensor * sum      = nullptr;
    for (int64_t expert = 0; expert < scene.experts; ++expert) {
        ggml_tensor * part =
            ggml_view_2d(ctx, weighted, scene.width, scene.tokens, weighted->nb[2], size_t(expert) * weighted->nb[1]);
        sum = sum == nullptr ? part : ggml_add(ctx, sum, part);
    }
    ggml_tensor * result = scene.experts == 1 ? ggml_cont(ctx, sum) : sum;
    ggml_cgraph * graph  = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, result);

    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(ctx, gpu);
    if (buffer == nullptr) {
        refuse(std::string("no memory for ") + scene.name);
    }
    uint64_t seed = 1;
    for (ggml_tensor * one : {memory, weights, scales}) {
        ggml_backend_tensor_set(one, numbers(seed++).many(size_t(ggml_nelements(one))).data(), 0, ggml_nbytes(one));
    }
    if (ggml_backend_graph_compute(gpu, graph) != GGML_STATUS_SUCCESS) {
        refuse(std::string(scene.name) + " was not computed");
    }
    std::printf("%s %016" PRIx64 "\n", scene.name, hash_of(result));
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
}

}  // namespace

int main(int argc, char ** argv) {
    const backends with(argc, argv);
    for (const sums & scene : SCENES) {
        run(scene, with.gpu);
    }
    return 0;
}
