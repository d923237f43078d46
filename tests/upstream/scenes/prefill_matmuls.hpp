// Products of weights with the activations of prompts, in shapes of many kinds, against the exact ones.
#pragma once

#include "scene.hpp"

namespace {

struct matmul {
    ggml_type type;
    int64_t   rows, columns, depth; // depth: values that are summed up
    int64_t   batch[2]     = {1, 1}; // of the activations
    int64_t   shared[2]    = {1, 1}; // batches that have one matrix
    bool      is_view      = false;  // rows of the activations are parts of longer ones, and all tensors of larger ones
    float     largest      = 1.0f;   // of the activations; one in each third column is as large, and each seventh is zero
    int64_t   experts      = 0;      // matrices, of which each token takes `used`
    int64_t   used         = 1;
    bool      is_broadcast = false;  // the experts of a token read the same activations
    bool      is_preferred = false;  // many tokens take the first expert, and none the second
    int64_t   offset       = 0;      // floats that the activations lie behind the begin of their memory
    bool      wants_f32    = false;
    float     weight       = 0.03f;  // of the weights, the largest
};

using shape = std::array<int64_t, 4>;

// A part of a constant that has so many more values in a row, and so many more rows and matrices; it begins after `offset` values.
ggml_tensor * part_of(scene & s, ggml_tensor * whole, const shape & ne, int64_t offset) {
    return ggml_view_4d(s.ctx(), whole, ne[0], ne[1], ne[2], ne[3], whole->nb[1], whole->nb[2], whole->nb[3], size_t(offset) * whole->nb[0]);
}

int64_t count(const shape & ne) { return ne[0] * ne[1] * ne[2] * ne[3]; }

void multiplies(scene & s, const matmul & how) {
    shape of_weights     = {how.depth, how.rows, how.batch[0] / how.shared[0], how.batch[1] / how.shared[1]};
    shape of_activations = {how.depth, how.columns, how.batch[0], how.batch[1]};
    if (how.experts != 0) {
        of_weights[2]     = how.experts;
        of_activations[1] = how.is_broadcast ? 1 : how.used;
        of_activations[2] = how.columns;
    }
    const int64_t more = how.is_view ? 1 : 0;
    const shape   all_weights     = {of_weights[0], of_weights[1] + more, of_weights[2] + more, of_weights[3]};
    const shape   all_activations = {of_activations[0] + 64 * more, of_activations[1] + std::max(more, how.offset), of_activations[2] + more,
                                     of_activations[3]};
    numbers            from(20261127);
    std::vector<float> weights(size_t(count(all_weights))), activations(size_t(count(all_activations)));
    for (float & one : weights) {
        one = float(how.weight * (from.next() + 0.07));
    }
    for (size_t i = 0; i < activations.size(); ++i) {
        const int64_t row = int64_t(i) / all_activations[0], k = int64_t(i) % all_activations[0];
        activations[i] = float((row % 3 == 0 && k == row % how.depth ? 1.0 : 0.03 * from.next()) * how.largest * (row % 7 != 5));
    }
    ggml_tensor * by = part_of(s, s.constant(how.type, all_weights, std::move(weights)), of_weights, 0);
    ggml_tensor * of = part_of(s, s.constant(GGML_TYPE_F32, all_activations, std::move(activations)), of_activations, how.offset);
    ggml_tensor * ids = nullptr;
    if (how.experts != 0) {
        std::vector<int32_t> taken;
        for (int64_t token = 0; token < how.columns; ++token) {
            for (int64_t n = 0; n < how.used; ++n) {
                const int64_t preferred = token % 3 != 0 ? 0 : token % 2 == 0 ? 2 : how.experts - 1;
                taken.push_back(int32_t(how.is_preferred ? preferred : (token * 7 + token / 5 + n) % how.experts));
            }
        }
        ids = s.numbers_of(taken, how.used);
    }
    ggml_tensor * made = ids == nullptr ? ggml_mul_mat(s.ctx(), by, of) : ggml_mul_mat_id(s.ctx(), by, of, ids);
    if (how.wants_f32) {
        ggml_prec_set_acc(made, GGML_PREC_F32);
    }
    s.result(made);
}

// The first columns are the same to the last bit next to more and fewer others, in blocks of other shapes; among the others are some that
// are no numbers.
void multiplies_any_batch(scene & s) {
    constexpr int64_t  depth = 256, most = 200, counts[] = {60, 150, most};
    std::vector<float> given = numbers(7).many(size_t(depth * most));
    given[size_t(62 * depth + 3)] = NAN;
    given[size_t(63 * depth + 3)] = INFINITY;
    ggml_tensor * weights     = s.weight(GGML_TYPE_Q4_K, 130, depth);
    ggml_tensor * activations = s.constant(GGML_TYPE_F32, {depth, most, 1, 1}, std::move(given));
    for (const int64_t columns : counts) {
        ggml_tensor * made = ggml_mul_mat(s.ctx(), weights, ggml_view_2d(s.ctx(), activations, depth, columns, activations->nb[1], 0));
        s.result(ggml_cont(s.ctx(), ggml_view_2d(s.ctx(), made, made->ne[0], counts[0], made->nb[1], 0)));
    }
    s.expect_same_results();
}

// With weights and activations of f16; upstream, with activations of 8 bits, has 4e-4 of such numbers.
constexpr double NEAR = 5e-7, UPSTREAMS_ERROR = 1e-3;

// What upstream computes has rows of 512 values, as its kernel reads so many, and the rest of a tensor behind the last row.
const table PREFILL_MATMULS = {
    {"product-q4_0", [](scene & s) { multiplies(s, {.type = GGML_TYPE_Q4_0, .rows = 256, .columns = 128, .depth = 512}); }, NEAR},
    {"product-q8_0", [](scene & s) { multiplies(s, {.type = GGML_TYPE_Q8_0, .rows = 256, .columns = 128, .depth = 512}); }, NEAR},
    {"product-mxfp4", [](scene & s) { multiplies(s, {.type = GGML_TYPE_MXFP4, .rows = 256, .columns = 128, .depth = 512}); }, NEAR},
    {"product-q4_k", [](scene & s) { multiplies(s, {.type = GGML_TYPE_Q4_K, .rows = 256, .columns = 128, .depth = 512}); }, NEAR},
    {"product-q5_k", [](scene & s) { multiplies(s, {.type = GGML_TYPE_Q5_K, .rows = 256, .columns = 128, .depth = 512}); }, NEAR},
    {"product-q6_k", [](scene & s) { multiplies(s, {.type = GGML_TYPE_Q6_K, .rows = 256, .columns = 272, .depth = 512}); }, NEAR},
    {"product-one-block", [](scene & s) { multiplies(s, {.type = GGML_TYPE_Q4_0, .rows = 128, .columns = 128, .depth = 32}); }, NEAR},
    {"product-three-blocks", [](scene & s) { multiplies(s, {.type = GGML_TYPE_Q8_0, .rows = 130, .columns = 96, .depth = 96}); }, NEAR},
    {"product-one-more-column", [](scene & s) { multiplies(s, {.type = GGML_TYPE_Q4_K, .rows = 128, .columns = 65, .depth = 256}); }, NEAR},
    {"product-one-more-row", [](scene & s) { multiplies(s, {.type = GGML_TYPE_Q4_K, .rows = 129, .columns = 129, .depth = 256}); }, NEAR},
    {"product-one-row-less", [](scene & s) { multiplies(s, {.type = GGML_TYPE_Q6_K, .rows = 127, .columns = 127, .depth = 256}); }, NEAR},
    {"product-half-the-rows", [](scene & s) { multiplies(s, {.type = GGML_TYPE_MXFP4, .rows = 64, .columns = 66, .depth = 2880}); }, NEAR},
    {"product-narrow-blocks", [](scene & s) { multiplies(s, {.type = GGML_TYPE_Q5_K, .rows = 200, .columns = 192, .depth = 256}); }, NEAR},
    {"product-narrow-tail", [](scene & s) { multiplies(s, {.type = GGML_TYPE_Q6_K, .rows = 300, .columns = 150, .depth = 512}); }, NEAR},
    {"product-deep", [](scene & s) { multiplies(s, {.type = GGML_TYPE_Q4_0, .rows = 70, .columns = 70, .depth = 8224}); }, NEAR},
    {"product-deeper", [](scene & s) { multiplies(s, {.type = GGML_TYPE_Q4_K, .rows = 70, .columns = 70, .depth = 18432}); }, NEAR},
    {"product-view", [](scene & s) { multiplies(s, {.type = GGML_TYPE_Q8_0, .rows = 140, .columns = 90, .depth = 96, .is_view = true}); }, NEAR},
    {"product-large", [](scene & s) { multiplies(s, {.type = GGML_TYPE_Q4_0, .rows = 128, .columns = 80, .depth = 256, .largest = 3e6f}); }, NEAR},
    {"product-small", [](scene & s) { multiplies(s, {.type = GGML_TYPE_Q6_K, .rows = 128, .columns = 80, .depth = 256, .largest = 1e-9f}); }, NEAR},
    {"product-large-weights", [](scene & s) { multiplies(s, {.type = GGML_TYPE_Q4_K, .rows = 128, .columns = 80, .depth = 256, .weight = 5e4f}); }, NEAR},
    {"product-small-weights", [](scene & s) { multiplies(s, {.type = GGML_TYPE_Q8_0, .rows = 128, .columns = 80, .depth = 256, .weight = 1e-3f}); }, NEAR},
    {"product-not-few-columns", [](scene & s) { multiplies(s, {.type = GGML_TYPE_Q4_K, .rows = 256, .columns = 48, .depth = 512}); }, UPSTREAMS_ERROR},
    {"product-not-batches", [](scene & s) { multiplies(s, {.type = GGML_TYPE_Q4_0, .rows = 130, .columns = 70, .depth = 512, .batch = {3, 2}}); }, UPSTREAMS_ERROR},
    {"product-not-f16", [](scene & s) { multiplies(s, {.type = GGML_TYPE_F16, .rows = 256, .columns = 128, .depth = 512}); }, UPSTREAMS_ERROR},
    {"product-not-few-rows", [](scene & s) { multiplies(s, {.type = GGML_TYPE_Q4_K, .rows = 63, .columns = 128, .depth = 512}); }, UPSTREAMS_ERROR},
    {"product-not-unaligned", [](scene & s) { multiplies(s, {.type = GGML_TYPE_Q4_K, .rows = 128, .columns = 80, .depth = 512, .offset = 1}); }, UPSTREAMS_ERROR},
    {"product-not-another-type", [](scene & s) { multiplies(s, {.type = GGML_TYPE_Q4_1, .rows = 128, .columns = 80, .depth = 512}); }, UPSTREAMS_ERROR},
    {"product-experts", [](scene & s) { multiplies(s, {.type = GGML_TYPE_Q4_K, .rows = 130, .columns = 64, .depth = 256, .experts = 4, .used = 2}); }, NEAR},
    {"product-experts-broadcast", [](scene & s) { multiplies(s, {.type = GGML_TYPE_MXFP4, .rows = 128, .columns = 100, .depth = 96, .experts = 4, .used = 2, .is_broadcast = true}); }, NEAR},
    {"product-experts-many", [](scene & s) { multiplies(s, {.type = GGML_TYPE_Q6_K, .rows = 64, .columns = 81, .depth = 256, .experts = 8, .used = 4}); }, NEAR},
    {"product-experts-preferred", [](scene & s) { multiplies(s, {.type = GGML_TYPE_Q4_0, .rows = 130, .columns = 260, .depth = 64, .experts = 8, .is_preferred = true}); }, NEAR},
    {"product-experts-preferred-wide", [](scene & s) { multiplies(s, {.type = GGML_TYPE_Q8_0, .rows = 130, .columns = 400, .depth = 64, .experts = 4, .is_broadcast = true, .is_preferred = true}); }, NEAR},
    {"product-not-experts-few", [](scene & s) { multiplies(s, {.type = GGML_TYPE_Q4_0, .rows = 128, .columns = 60, .depth = 512, .experts = 8, .used = 4}); }, UPSTREAMS_ERROR},
    {"product-not-experts-view", [](scene & s) { multiplies(s, {.type = GGML_TYPE_Q4_0, .rows = 128, .columns = 64, .depth = 512, .is_view = true, .experts = 4, .used = 2}); }, UPSTREAMS_ERROR},
    {"product-not-f32-wanted", [](scene & s) { multiplies(s, {.type = GGML_TYPE_Q6_K, .rows = 128, .columns = 272, .depth = 512, .wants_f32 = true}); }, UPSTREAMS_ERROR},
    {"product-any-batch", multiplies_any_batch, NEAR},
};

}  // namespace
