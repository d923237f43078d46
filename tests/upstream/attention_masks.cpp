// Attention of prompts whose mask ends where its memory ends: prints the error against the CPU, and ends with 1 if it is too large.
//
//   attention_masks FOLDER
//
// An input has a buffer of its own here, as an application may give it one. test-backend-ops puts all tensors of a case into one buffer,
// where what lies behind a mask is another tensor, so no check sees a kernel that reads past the mask's end.
#include "graphs.hpp"

#include "ggml-alloc.h"

#include <cmath>

namespace {

struct shape {
    const char * name;
    int64_t head_size, heads, kv_heads, tokens, rows; // rows of the KV cache
    int64_t sequences, masks;                         // one mask for all sequences, or one for each
};

// Normalized mean squared error, as test-backend-ops has it; upstream's limit for attention.
constexpr double LIMIT = 5e-4;

std::vector<float> attend(ggml_backend_t on, const shape & of) {
    const ggml_init_params params{size_t(16) * ggml_tensor_overhead() + ggml_graph_overhead(), nullptr, true};
    ggml_context * ctx     = ggml_init(params);
    ggml_context * of_mask = ggml_init(params);

    ggml_tensor * q = ggml_new_tensor_4d(ctx, GGML_TYPE_F32, of.head_size, of.tokens, of.heads, of.sequences);
    ggml_tensor * k = ggml_new_tensor_4d(ctx, GGML_TYPE_F16, of.head_size, of.rows, of.kv_heads, of.sequences);
    ggml_tensor * v = ggml_new_tensor_4d(ctx, GGML_TYPE_F16, of.head_size, of.rows, of.kv_heads, of.sequences);
    ggml_tensor * mask = ggml_new_tensor_4d(of_mask, GGML_TYPE_F16, of.rows, of.tokens, 1, of.masks);
    ggml_tensor * made = ggml_flash_attn_ext(ctx, q, k, v, mask, 1.0f / std::sqrt(float(of.head_size)), 0.0f, 0.0f);
    ggml_cgraph * graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, made);
    ggml_backend_buffer_t buffers[] = {ggml_backend_alloc_ctx_tensors(of_mask, on), ggml_backend_alloc_ctx_tensors(ctx, on)};

    uint64_t seed = 1;
    for (ggml_tensor * one : {q, k, v}) {
        const std::vector<float> given = numbers(seed++).many(size_t(ggml_nelements(one)));
        if (one->type == GGML_TYPE_F32) {
            ggml_backend_tensor_set(one, given.data(), 0, ggml_nbytes(one));
        } else {
            std::vector<ggml_fp16_t> halves(given.size());
            ggml_fp32_to_fp16_row(given.data(), halves.data(), int64_t(given.size()));
            ggml_backend_tensor_set(one, halves.data(), 0, ggml_nbytes(one));
        }
    }
    // Token i sees all rows but the last tokens - 1 - i; a second sequence has one step of 256 rows less.
    std::vector<ggml_fp16_t> shown;
    for (int64_t s = 0; s < of.masks; ++s) {
        for (int64_t i = 0; i < of.tokens; ++i) {
            for (int64_t row = 0; row < of.rows; ++row) {
                const bool is_seen = row <= of.rows - (s > 0 ? 256 : 0) - of.tokens + i;
                shown.push_back(ggml_fp32_to_fp16(is_seen ? 0.0f : -INFINITY));
            }
        }
    }
    ggml_backend_tensor_set(mask, shown.data(), 0, ggml_nbytes(mask));

    if (ggml_backend_graph_compute(on, graph) != GGML_STATUS_SUCCESS) {
        refuse(std::string(of.name) + " was not computed");
    }
    std::vector<float> got(size_t(ggml_nelements(made)));
    ggml_backend_tensor_get(made, got.data(), 0, ggml_nbytes(made));
    for (ggml_backend_buffer_t buffer : buffers) {
        ggml_backend_buffer_free(buffer);
    }
    ggml_free(ctx);
    ggml_free(of_mask);
    return got;
}

double error_of(const std::vector<float> & got, const std::vector<float> & right) {
    double wrong = 0.0, all = 0.0;
    for (size_t i = 0; i < got.size(); ++i) {
        wrong += double(got[i] - right[i]) * double(got[i] - right[i]);
        all += double(right[i]) * double(right[i]);
    }
    return wrong / all;
}

} // namespace

int main(int argc, char ** argv) {
    const backends with(argc, argv);
    const shape shapes[] = {
        {"half-a-tile", 64, 2, 2, 64, 512, 2, 2},      // 128 columns, of which 64 are tokens
        {"some-over", 64, 4, 2, 100, 512, 2, 2},       // a full tile of 64 tokens and 36 more
        {"whole-tiles", 128, 8, 2, 64, 512, 2, 2},     // two full tiles of 32 tokens
    };
    bool is_right = true;
    for (const shape & one : shapes) {
        const double error = error_of(attend(with.gpu, one), attend(with.cpu, one));
        std::printf("%s %s %.1e\n", one.name, error < LIMIT ? "right" : "wrong", error);
        is_right &= error < LIMIT;
    }
    return is_right ? 0 : 1;
}
