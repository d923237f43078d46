// Norms that quantize, sums before norms, and the weighted sum over the experts of each token.
#pragma once

#include "scene.hpp"

namespace {

// The norm of x with weights, as models have it.
ggml_tensor * norm(scene & s, ggml_tensor * x, int64_t rows = 1) {
    return ggml_mul(s.ctx(), ggml_rms_norm(s.ctx(), x, 1e-5f), s.weight(GGML_TYPE_F32, rows, x->ne[0]));
}

void norm_of(scene & s, int64_t columns, int64_t width, ggml_type type = GGML_TYPE_Q8_0) {
    ggml_tensor * normed = norm(s, s.input(columns, width));
    s.product(s.weight(type, 64, width), normed);
    s.product(s.weight(type, 48, width), normed);
}

// What follows a sum: its norm, products of that, and somebody who reads the sum itself.
void normed_sum(scene & s, ggml_tensor * sum, bool is_read = true) {
    ggml_tensor * normed = norm(s, sum);
    s.product(s.weight(GGML_TYPE_Q8_0, 64, sum->ne[0]), normed);
    s.product(s.weight(GGML_TYPE_Q8_0, 48, sum->ne[0]), normed);
    if (is_read) {
        s.result(ggml_scale(s.ctx(), sum, 0.5f));
    }
}

struct experts {
    int64_t used = 8, tokens = 1, width = WIDTH;
    bool    has_scales = false; // a number for each expert and token, besides the weights
    int64_t offset     = 0;     // floats that the first row lies behind the begin of its memory
};

// The weighted sum of a token's experts, in the nodes of llama.cpp.
ggml_tensor * of_experts(scene & s, const experts & how) {
    ggml_context * ctx    = s.ctx();
    ggml_tensor *  memory = s.made(1, how.used * how.tokens * how.width + how.offset);
    const size_t   row    = size_t(how.width) * sizeof(float);
    ggml_tensor *  given  = ggml_view_3d(ctx, memory, how.width, how.used, how.tokens, row, row * size_t(how.used), size_t(how.offset) * sizeof(float));
    ggml_tensor *  shares = ggml_reshape_3d(ctx, s.made(how.tokens, how.used), 1, how.used, how.tokens);
    if (how.has_scales) {
        given = ggml_mul(ctx, given, ggml_reshape_3d(ctx, s.made(how.tokens, how.used), 1, how.used, how.tokens));
    }
    ggml_tensor * weighted = ggml_mul(ctx, given, shares);
    std::vector<ggml_tensor *> views;
    for (int64_t i = 0; i < how.used; ++i) {
        views.push_back(ggml_view_2d(ctx, weighted, how.width, how.tokens, weighted->nb[2], size_t(i) * weighted->nb[1]));
        s.compute(views.back());
    }
    ggml_tensor * sum = views[0];
    for (int64_t i = 1; i < how.used; ++i) {
        s.compute(sum = ggml_add(ctx, sum, views[size_t(i)]));
    }
    return sum;
}

void sums_alone(scene & s, const experts & how) {
    ggml_tensor * sum = of_experts(s, how);
    s.result(how.used == 1 ? ggml_cont(s.ctx(), sum) : sum);
}

void sums_experts(scene & s, const experts & how) {
    ggml_tensor * begun = s.made(how.tokens, how.width); // what the layer began with
    normed_sum(s, ggml_add(s.ctx(), of_experts(s, how), begun));
}

const table NORMS = {
    {"norm-544", [](scene & s) { norm_of(s, 1, 544); }},
    {"norm-1024", [](scene & s) { norm_of(s, 1, 1024, GGML_TYPE_Q4_K); }},
    {"norm-2048", [](scene & s) { norm_of(s, 1, 2048, GGML_TYPE_Q6_K); }},
    {"norm-2080", [](scene & s) { norm_of(s, 1, 2080); }},
    {"norm-5120", [](scene & s) { norm_of(s, 1, 5120, GGML_TYPE_Q4_0); }},
    {"norm-8192", [](scene & s) { norm_of(s, 1, 8192); }},
    {"norm-not-8224", [](scene & s) { norm_of(s, 1, 8224); }},
    {"norm-3-tokens", [](scene & s) { norm_of(s, 3, 1056); }},
    {"norm-not-9-tokens", [](scene & s) { norm_of(s, 9, 512); }},
    // Weights for each token.
    {"norm-not-two-rows", [](scene & s) {
        ggml_tensor * normed = norm(s, s.input(2), 2);
        s.product(s.weight(GGML_TYPE_Q4_K), normed);
    }},
    {"norm-not-by-one", [](scene & s) {
        s.product(s.weight(GGML_TYPE_Q4_K), ggml_mul(s.ctx(), ggml_rms_norm(s.ctx(), s.input(1), 1e-5f), s.weight(GGML_TYPE_F32, 1, 1)));
    }},
    // Somebody reads what the norm gave without weights.
    {"norm-not-for-both", [](scene & s) {
        ggml_tensor * bare = ggml_rms_norm(s.ctx(), s.input(1), 1e-5f);
        s.product(s.weight(GGML_TYPE_Q4_K), ggml_mul(s.ctx(), bare, s.weight(GGML_TYPE_F32, 1)));
        s.result(ggml_scale(s.ctx(), bare, 2.0f));
    }},
    {"norm-not-in-channels", [](scene & s) {
        ggml_tensor * normed = norm(s, ggml_reshape_3d(s.ctx(), s.input(4), WIDTH, 2, 2));
        s.product(s.weight(GGML_TYPE_Q4_K), ggml_reshape_2d(s.ctx(), normed, WIDTH, 4));
    }},
    // Two rows of 544 have the places of 1024 in the copy, one of 1088 those of 1536.
    {"norm-not-as-one-row", [](scene & s) {
        ggml_tensor * normed = norm(s, s.input(2, 544));
        s.product(s.weight(GGML_TYPE_Q8_0, 64, 1088), ggml_reshape_2d(s.ctx(), normed, 1088, 1));
    }},
    {"norm-not-first-row", [](scene & s) {
        ggml_tensor * normed = norm(s, s.input(2));
        s.product(s.weight(GGML_TYPE_Q4_K), ggml_view_2d(s.ctx(), normed, WIDTH, 1, normed->nb[1], 0));
        s.result(ggml_scale(s.ctx(), normed, 2.0f));
    }},
    {"norm-not-first-row-twice", [](scene & s) {
        ggml_tensor * normed = norm(s, s.input(2));
        s.product(s.weight(GGML_TYPE_Q4_K), ggml_view_2d(s.ctx(), normed, WIDTH, 2, 0, 0));
        s.result(ggml_scale(s.ctx(), normed, 2.0f));
    }},
    {"norm-not-f16-experts", [](scene & s) {
        ggml_tensor * each = ggml_reshape_3d(s.ctx(), norm(s, s.input(3)), WIDTH, 1, 3);
        s.result(ggml_mul_mat_id(s.ctx(), s.weight(GGML_TYPE_F16, 64, WIDTH, 8), each, s.whole(GGML_TYPE_I32, {0, 1, 2}, 3)));
    }},
    {"norm-not-9-of-experts", [](scene & s) {
        ggml_tensor * each = ggml_reshape_3d(s.ctx(), norm(s, s.input(9)), WIDTH, 1, 9);
        s.result(ggml_mul_mat_id(s.ctx(), s.weight(GGML_TYPE_Q4_K, 64, WIDTH, 16), each, s.whole(GGML_TYPE_I32, {0, 1, 2, 3, 4, 5, 6, 7, 8}, 9)));
    }},
    {"norm-not-unread", [](scene & s) { s.result(ggml_scale(s.ctx(), norm(s, s.input(1)), 2.0f)); }},
    // The norm's output takes the place of its input, which nobody reads behind it.
    {"norm-in-place", [](scene & s) {
        ggml_tensor * x      = ggml_scale(s.ctx(), s.input(1), 2.0f);
        ggml_tensor * normed = norm(s, x);
        s.expect_same_place(x, normed);
        s.product(s.weight(GGML_TYPE_Q4_K), normed);
    }},
    // Written over before the product that was seen.
    {"norm-written-over", [](scene & s) {
        ggml_tensor * normed = norm(s, s.input(1));
        s.compute(ggml_scale_inplace(s.ctx(), ggml_view_1d(s.ctx(), normed, WIDTH / 2, 0), 3.0f));
        s.product(s.weight(GGML_TYPE_Q4_K), normed);
    }},
    // The second norm's copy takes the place of the first one's before that is read.
    {"norm-two", [](scene & s) {
        ggml_tensor * one   = norm(s, s.input(1));
        ggml_tensor * other = norm(s, s.input(1));
        s.compute(one);
        s.compute(other);
        s.product(s.weight(GGML_TYPE_Q4_K), one);
        s.product(s.weight(GGML_TYPE_Q4_K), other);
    }},
    {"norm-half-read", [](scene & s) {
        ggml_tensor * normed = norm(s, s.input(1));
        s.product(s.weight(GGML_TYPE_Q4_K, 64, WIDTH / 2), ggml_view_1d(s.ctx(), normed, WIDTH / 2, WIDTH / 2 * sizeof(float)));
        s.product(s.weight(GGML_TYPE_Q4_K), normed);
    }},
    {"norm-experts", [](scene & s) {
        ggml_tensor * normed = norm(s, s.input(3));
        ggml_tensor * ids    = s.whole(GGML_TYPE_I32, {0, 2, 1, 3, 2, 0}, 3);
        s.compute(ggml_mul_mat(s.ctx(), s.weight(GGML_TYPE_F32, 8), normed)); // a router, which reads f32
        ggml_tensor * each = ggml_reshape_3d(s.ctx(), normed, WIDTH, 1, 3);
        s.result(ggml_mul_mat_id(s.ctx(), s.weight(GGML_TYPE_Q4_K, 64, WIDTH, 8), each, ids));
    }},
    // Upstream forks here with GGML_CUDA_GRAPH_OPT=1: by the name of the tensor, and because three read it.
    {"norm-forked", [](scene & s) {
        ggml_tensor * x = norm(s, s.input(1));
        ggml_set_name(x, "attn_norm-0");
        ggml_tensor * q = ggml_mul_mat(s.ctx(), s.weight(GGML_TYPE_Q4_K), x);
        ggml_tensor * k = ggml_mul_mat(s.ctx(), s.weight(GGML_TYPE_Q4_K), x);
        ggml_tensor * v = ggml_mul_mat(s.ctx(), s.weight(GGML_TYPE_Q4_K), x);
        for (ggml_tensor * one : {q, k, v}) {
            s.compute(one);
        }
        s.result(ggml_add(s.ctx(), ggml_add(s.ctx(), q, k), v));
    }},
    // A second norm on a stream of the fork, where nobody keeps a copy. Upstream would give the last product the place of x, which
    // the other streams still read.
    {"norm-forked-again", [](scene & s) {
        ggml_tensor * x = norm(s, s.input(1));
        ggml_set_output(x);
        ggml_set_name(x, "attn_norm-0");
        ggml_tensor * q = ggml_mul_mat(s.ctx(), s.weight(GGML_TYPE_Q4_K, WIDTH), x);
        ggml_tensor * k = ggml_mul_mat(s.ctx(), s.weight(GGML_TYPE_Q4_K), x);
        ggml_tensor * v = ggml_mul_mat(s.ctx(), s.weight(GGML_TYPE_Q4_K), x);
        q = ggml_mul_mat(s.ctx(), s.weight(GGML_TYPE_Q4_K), norm(s, q));
        for (ggml_tensor * one : {q, k, v}) {
            s.compute(one);
        }
        s.result(ggml_add(s.ctx(), ggml_add(s.ctx(), q, k), v));
    }},
};

const table SUMS = {
    // What the norm is multiplied by is a node of the fusion.
    {"sums-not-norm-squared", [](scene & s) {
        ggml_tensor * sum  = ggml_add(s.ctx(), s.made(), s.made());
        ggml_tensor * bare = ggml_rms_norm(s.ctx(), sum, 1e-5f);
        s.product(s.weight(GGML_TYPE_Q8_0), ggml_mul(s.ctx(), bare, bare));
        s.result(ggml_scale(s.ctx(), sum, 0.5f));
    }},
    {"sums-not-norm-by-sum", [](scene & s) {
        ggml_tensor * sum = ggml_add(s.ctx(), s.made(), s.made());
        s.product(s.weight(GGML_TYPE_Q8_0), ggml_mul(s.ctx(), ggml_rms_norm(s.ctx(), sum, 1e-5f), sum));
    }},
    // The norm is where the sum was, and somebody reads the sum afterwards.
    {"sums-not-norm-in-place", [](scene & s) {
        ggml_tensor * sum  = ggml_add(s.ctx(), s.made(), s.made());
        ggml_tensor * bare = ggml_rms_norm_inplace(s.ctx(), sum, 1e-5f);
        s.product(s.weight(GGML_TYPE_Q8_0), ggml_mul(s.ctx(), bare, s.weight(GGML_TYPE_F32, 1)));
        s.result(ggml_scale(s.ctx(), sum, 0.5f));
    }},
    {"sums-two", [](scene & s) { normed_sum(s, ggml_add(s.ctx(), s.made(), s.made())); }},
    {"sums-two-8192", [](scene & s) { normed_sum(s, ggml_add(s.ctx(), s.made(1, 8192), s.made(1, 8192))); }},
    {"sums-two-3-tokens", [](scene & s) { normed_sum(s, ggml_add(s.ctx(), s.made(3, 1056), s.made(3, 1056))); }},
    {"sums-two-unread", [](scene & s) { normed_sum(s, ggml_add(s.ctx(), s.made(), s.made()), false); }},
    // The sum takes the place of a row that nobody reads again, and the norm that of the sum.
    {"sums-two-in-place", [](scene & s) {
        ggml_tensor * one = s.made();
        ggml_tensor * sum = ggml_add(s.ctx(), one, s.made());
        s.expect_same_place(one, sum);
        normed_sum(s, sum, false);
    }},
    {"sums-three", [](scene & s) { normed_sum(s, ggml_add(s.ctx(), ggml_add(s.ctx(), s.made(1, 544), s.made(1, 544)), s.made(1, 544))); }},
    {"sums-three-turned", [](scene & s) { normed_sum(s, ggml_add(s.ctx(), s.made(2, 2080), ggml_add(s.ctx(), s.made(2, 2080), s.made(2, 2080)))); }},
    {"sums-experts-8", [](scene & s) { sums_experts(s, {}); }},
    // What is added is the sum itself.
    {"sums-in-part-twice", [](scene & s) {
        ggml_tensor * sum = ggml_add(s.ctx(), s.made(), s.made());
        normed_sum(s, ggml_add(s.ctx(), sum, sum));
    }},
    {"sums-experts-3-tokens", [](scene & s) { sums_experts(s, {4, 3, 544}); }},
    {"sums-not-unread", [](scene & s) { s.result(ggml_scale(s.ctx(), norm(s, ggml_add(s.ctx(), s.made(), s.made())), 2.0f)); }},
    {"sums-not-8224", [](scene & s) { normed_sum(s, ggml_add(s.ctx(), s.made(1, 8224), s.made(1, 8224))); }},
    {"sums-not-9-tokens", [](scene & s) { normed_sum(s, ggml_add(s.ctx(), s.made(9), s.made(9))); }},
    {"sums-not-one-row", [](scene & s) { normed_sum(s, ggml_add(s.ctx(), s.made(3), s.made(1))); }},
    {"sums-not-in-channels", [](scene & s) {
        ggml_tensor * both[] = {ggml_reshape_3d(s.ctx(), s.made(4), WIDTH, 2, 2), ggml_reshape_3d(s.ctx(), s.made(4), WIDTH, 2, 2)};
        ggml_tensor * normed = norm(s, ggml_add(s.ctx(), both[0], both[1]));
        s.product(s.weight(GGML_TYPE_Q4_K), ggml_reshape_2d(s.ctx(), normed, WIDTH, 4));
    }},
    // Served from the last addition on.
    {"sums-in-part-first-read", [](scene & s) {
        ggml_tensor * first = ggml_add(s.ctx(), s.made(), s.made());
        normed_sum(s, ggml_add(s.ctx(), first, s.made()));
        s.result(ggml_scale(s.ctx(), first, 3.0f));
    }},
    // A sum that nobody reads stands before it.
    {"sums-in-part-behind-another", [](scene & s) {
        ggml_tensor * rows[] = {s.made(), s.made(), s.made(), s.made()};
        s.compute(ggml_add(s.ctx(), rows[0], rows[1]));
        normed_sum(s, ggml_add(s.ctx(), rows[2], rows[3]));
    }},
    {"sums-not-other-norm", [](scene & s) {
        ggml_tensor * other = s.made();
        ggml_tensor * sum = ggml_add(s.ctx(), s.made(), s.made());
        s.compute(sum);
        ggml_tensor * normed = norm(s, other);
        s.product(s.weight(GGML_TYPE_Q4_K), normed);
        s.result(ggml_scale(s.ctx(), sum, 0.5f));
    }},
    {"sums-not-two-rows-of-weights", [](scene & s) {
        s.product(s.weight(GGML_TYPE_Q4_K), norm(s, ggml_add(s.ctx(), s.made(2), s.made(2)), 2));
    }},
    {"sums-not-rows-apart", [](scene & s) {
        ggml_tensor * wide = s.made(2, 2 * WIDTH);
        ggml_tensor * part = ggml_view_2d(s.ctx(), wide, WIDTH, 2, wide->nb[1], 0);
        normed_sum(s, ggml_add(s.ctx(), s.made(2), part));
    }},
    // Upstream forks here with GGML_CUDA_GRAPH_OPT=1, up to the sum.
    {"sums-forked", [](scene & s) {
        ggml_tensor * begun = s.made();
        ggml_tensor * x     = norm(s, begun);
        ggml_set_name(x, "attn_norm-0");
        ggml_tensor * q = ggml_mul_mat(s.ctx(), s.weight(GGML_TYPE_Q4_K, WIDTH), x);
        ggml_tensor * k = ggml_mul_mat(s.ctx(), s.weight(GGML_TYPE_Q4_K, WIDTH), x);
        ggml_tensor * v = ggml_mul_mat(s.ctx(), s.weight(GGML_TYPE_Q4_K, WIDTH), x);
        for (ggml_tensor * one : {q, k, v}) {
            s.compute(one);
        }
        normed_sum(s, ggml_add(s.ctx(), ggml_add(s.ctx(), q, k), v));
    }},
    // Upstream adds, because the norm lies where other tokens' rows are still read: a row of them in front of the first.
    {"sums-in-part-over-rows", [](scene & s) {
        ggml_tensor * all  = s.made(4);
        ggml_tensor * rows = ggml_view_2d(s.ctx(), all, WIDTH, 3, all->nb[1], all->nb[1]);
        normed_sum(s, ggml_add(s.ctx(), s.made(3), rows));
    }},
};

const table EXPERT_SUMS = {
    {"whole", [](scene & s) { sums_alone(s, {8, 4, 2048}); }},
    {"tail", [](scene & s) { sums_alone(s, {4, 3, 2880}); }},
    {"short", [](scene & s) { sums_alone(s, {2, 5, 260}); }},
    {"scaled", [](scene & s) { sums_alone(s, {15, 9, 1028, true}); }},
    {"one-token", [](scene & s) { sums_alone(s, {8, 1, 2048}); }},
    {"odd", [](scene & s) { sums_alone(s, {12, 33, 63, true}); }},
    {"odd-wide", [](scene & s) { sums_alone(s, {3, 2, 2049}); }},
    {"even", [](scene & s) { sums_alone(s, {8, 7, 66}); }},
    {"unaligned", [](scene & s) { sums_alone(s, {8, 3, 2048, false, 1}); }},
    {"aligned-again", [](scene & s) { sums_alone(s, {8, 3, 2048, true, 4}); }},
    // Upstream has a kernel for two to fifteen.
    {"not-one-expert", [](scene & s) { sums_alone(s, {1, 3, 256}); }},
    {"not-sixteen-experts", [](scene & s) { sums_alone(s, {16, 3, 256}); }},
};

}  // namespace
