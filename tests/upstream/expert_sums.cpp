// The weighted sum over the experts of each token, in shapes of many kinds: prints each result to the last bit, as a hash.
//
//   expert_sums FOLDER
//
// FOLDER has the backends. Upstream computes such a graph with one kernel, where it has two to fifteen experts.

#include "ggml.h"
#include "ggml-alloc.h"
#include "ggml-backend.h"

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

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

[[noreturn]] void refuse(const char * what, const char * scene) {
    std::fprintf(stderr, "expert_sums: %s: %s\n", scene, what);
    std::exit(2);
}

void fill(ggml_tensor * one, uint64_t seed) {
    std::vector<float> made(size_t(ggml_nelements(one)));
    uint64_t           state = seed * 0x9E3779B97F4A7C15ull + 1;
    for (float & each : made) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        each  = float(double(state >> 11) * 0x1p-53 * 2.0 - 1.0);
    }
    ggml_backend_tensor_set(one, made.data(), 0, made.size() * sizeof(float));
}

uint64_t hash_of(const ggml_tensor * one) {
    std::vector<uint8_t> bytes(ggml_nbytes(one));
    ggml_backend_tensor_get(one, bytes.data(), 0, bytes.size());
    uint64_t hash = 0xCBF29CE484222325ull;
    for (const uint8_t byte : bytes) {
        hash = (hash ^ byte) * 0x100000001B3ull;
    }
    return hash;
}

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
        refuse("no memory", scene.name);
    }
    fill(memory, 1);
    fill(weights, 2);
    fill(scales, 3);
    if (ggml_backend_graph_compute(gpu, graph) != GGML_STATUS_SUCCESS) {
        refuse("it was not computed", scene.name);
    }
    std::printf("%s %016" PRIx64 "\n", scene.name, hash_of(result));
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
}

}  // namespace

int main(int argc, char ** argv) {
    if (argc < 2) {
        refuse("a folder with the backends is missing", "usage");
    }
    ggml_backend_load_all_from_path(argv[1]);
    ggml_backend_t gpu = ggml_backend_init_by_name("ROCm0", nullptr);
    if (gpu == nullptr) {
        refuse("there is no ROCm0", "start");
    }
    for (const sums & scene : SCENES) {
        run(scene, gpu);
    }
    ggml_backend_free(gpu);
    return 0;
}
