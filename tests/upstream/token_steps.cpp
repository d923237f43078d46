// What stands before a layer's products and behind them, for one token: norms that quantize, sums before them, and Q, K and V in
// two launches.
//
//   token_steps FOLDER [SCENE]
//
// Like shared_activations.cpp. Names begin with the patch that a scene is about; those with "-not" in them are left to upstream.

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
    bool    has_scales = false;
};

// The weighted sum of a token's experts, in the nodes of llama.cpp.
ggml_tensor * of_experts(scene & s, const experts & how) {
    ggml_context * ctx    = s.ctx();
    ggml_tensor *  given  = ggml_reshape_3d(ctx, s.made(how.used * how.tokens, how.width), how.width, how.used, how.tokens);
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

void sums_experts(scene & s, const experts & how) {
    ggml_tensor * begun = s.made(how.tokens, how.width); // what the layer began with
    normed_sum(s, ggml_add(s.ctx(), of_experts(s, how), begun));
}

// An expert that all tokens share, with a gate of its own, and what the others gave.
ggml_tensor * with_shared(scene & s, int64_t tokens, int64_t width, ggml_unary_op gate = GGML_UNARY_OP_SIGMOID, bool is_gate_read = false) {
    ggml_context * ctx    = s.ctx();
    ggml_tensor *  given  = s.made(tokens, width);
    ggml_tensor *  shared = s.made(tokens, width);
    ggml_tensor *  opened = ggml_unary(ctx, ggml_mul_mat(ctx, s.weight(GGML_TYPE_F32, 1, width), s.made(tokens, width)), gate);
    if (is_gate_read) {
        s.result(ggml_scale(ctx, opened, 2.0f));
    }
    return ggml_add(ctx, given, ggml_mul(ctx, shared, opened));
}

void sums_norm(scene & s, int64_t tokens, int64_t width) {
    ggml_tensor * begun = s.made(tokens, width);
    normed_sum(s, ggml_add(s.ctx(), norm(s, s.made(tokens, width)), begun));
}

struct rotation {
    int   mode       = GGML_ROPE_TYPE_NORMAL;
    int   dims       = 0; // 0: all of a head
    bool  has_factors = false;
    float ext_factor = 0.0f;
};

struct attention {
    int64_t   head_size = 64;
    int64_t   heads     = 4;
    int64_t   kv_heads  = 2;
    ggml_type q = GGML_TYPE_Q4_K, k = GGML_TYPE_Q4_K, v = GGML_TYPE_Q4_K;
    rotation  turn      = {};
    bool      has_norms = false, has_bias = false, has_scale = false, k_before_v = false, keeps_product = false;
    int64_t   tokens    = 1;
    int64_t   width     = WIDTH;
};

ggml_tensor * rotated(scene & s, ggml_tensor * x, ggml_tensor * position, ggml_tensor * factors, const rotation & turn) {
    const int dims = turn.dims > 0 ? turn.dims : int(x->ne[0]);
    return ggml_rope_ext(s.ctx(), x, position, factors, dims, turn.mode, 4096, 10000.0f, 0.5f, turn.ext_factor, 1.1f, 32.0f, 1.0f);
}

// The nodes of llama.cpp's models, in their order: Q with its rotation, V, K (or K, V), then both into the cache.
void attends(scene & s, const attention & how) {
    ggml_context * ctx = s.ctx();
    ggml_tensor * x        = ggml_scale(ctx, s.input(how.tokens, how.width), 2.0f);
    std::vector<int64_t> first;
    for (int64_t i = 0; i < how.tokens; ++i) {
        first.push_back(3 + i);
    }
    ggml_tensor * position = s.whole(GGML_TYPE_I32, first);
    ggml_tensor * row_k    = s.whole(GGML_TYPE_I64, first);
    ggml_tensor * row_v    = s.whole(GGML_TYPE_I64, first);
    ggml_tensor * factors  = how.turn.has_factors ? s.weight(GGML_TYPE_F32, 1, how.head_size / 2) : nullptr;
    ggml_tensor * in_k     = s.cache(how.head_size * how.kv_heads);
    ggml_tensor * in_v     = s.cache(how.head_size * how.kv_heads);

    const auto made = [&](ggml_type type, int64_t heads) {
        ggml_tensor * product = ggml_mul_mat(ctx, s.weight(type, how.head_size * heads, how.width), x);
        return how.has_bias ? ggml_add(ctx, product, s.weight(GGML_TYPE_F32, 1, how.head_size * heads)) : product;
    };
    const auto turned = [&](ggml_tensor * product, int64_t heads) {
        ggml_tensor * split = ggml_reshape_3d(ctx, product, how.head_size, heads, how.tokens);
        return rotated(s, how.has_norms ? norm(s, split) : split, position, factors, how.turn);
    };
    ggml_tensor * product = made(how.q, how.heads);
    ggml_tensor * q       = turned(product, how.heads);
    if (how.has_scale) {
        q = ggml_scale(ctx, q, 0.25f);
    }
    s.result(q);
    if (how.keeps_product) {
        s.result(product);
    }
    ggml_tensor * v = nullptr;
    if (!how.k_before_v) {
        s.compute(v = made(how.v, how.kv_heads));
        s.expect_same_place(product, v);
    }
    ggml_tensor * k = turned(made(how.k, how.kv_heads), how.kv_heads);
    s.compute(k);
    if (how.k_before_v) {
        s.compute(v = made(how.v, how.kv_heads));
    }
    ggml_tensor * flat = ggml_view_2d(ctx, k, how.head_size * how.kv_heads, how.tokens, k->nb[2], 0);
    s.compute(ggml_set_rows(ctx, in_k, flat, row_k));
    s.compute(ggml_set_rows(ctx, in_v, ggml_view_2d(ctx, v, v->ne[0], how.tokens, v->nb[1], 0), row_v));
    s.product(s.weight(GGML_TYPE_Q8_0, 64, how.width), x); // x and its quantized copy are of use behind them
}

attention with(void (*change)(attention &)) {
    attention how;
    change(how);
    return how;
}

constexpr int64_t WIDE = 544, HEAD = 64, BOTH = 2 * HEAD; // both heads

// The same with two heads each, for scenes that put a part of it together in another way.
struct parts {
    scene &       s;
    ggml_tensor * x;
    ggml_tensor * position;
    ggml_tensor * row_k;
    ggml_tensor * row_v;
    ggml_tensor * in_k;
    ggml_tensor * in_v;
    ggml_tensor * factors = nullptr;
    ggml_tensor * v       = nullptr;
    int64_t       head = HEAD, dims = HEAD;

    explicit parts(scene & s, int64_t tokens = 1) : s(s) {
        x        = ggml_scale(s.ctx(), s.input(tokens, WIDE), 2.0f);
        position = s.whole(GGML_TYPE_I32, tokens == 1 ? std::vector<int64_t>{3} : std::vector<int64_t>{3, 4});
        row_k    = s.whole(GGML_TYPE_I64, {5});
        row_v    = s.whole(GGML_TYPE_I64, {6});
        in_k     = s.cache(BOTH);
        in_v     = s.cache(BOTH);
    }

    ggml_tensor * weight(int64_t rows = BOTH) { return s.weight(GGML_TYPE_Q8_0, rows, WIDE); }
    ggml_tensor * product(int64_t rows = BOTH) { return ggml_mul_mat(s.ctx(), weight(rows), x); }
    ggml_tensor * split(ggml_tensor * one) {
        return ggml_reshape_3d(s.ctx(), one, head, ggml_nelements(one) / (head * x->ne[1]), x->ne[1]);
    }
    ggml_tensor * normed(ggml_tensor * one) { return norm(s, one); }
    ggml_tensor * turned(ggml_tensor * one) {
        return ggml_rope_ext(s.ctx(), split(one), position, factors, int(dims), GGML_ROPE_TYPE_NORMAL, 4096, 10000.0f, 1.0f, 0.0f, 1.0f, 32.0f, 1.0f);
    }
    ggml_tensor * put(ggml_tensor * into, ggml_tensor * one, ggml_tensor * row) {
        ggml_tensor * flat = ggml_reshape_2d(s.ctx(), one, into->ne[0], ggml_nelements(one) / into->ne[0]);
        ggml_tensor * made = ggml_set_rows(s.ctx(), into, flat, row);
        s.compute(made);
        return made;
    }
};

using part = std::function<ggml_tensor *(parts &)>;

void put_together(scene & s, const part & q = {}, const part & k = {}, const part & v = {}, const std::function<void(parts &)> & before = {}) {
    parts of(s);
    if (before) {
        before(of);
    }
    const auto turned = [](parts & p) { return p.turned(p.product()); };
    s.result(q ? q(of) : turned(of));
    of.v = v ? v(of) : of.product();
    s.compute(of.v);
    ggml_tensor * in_cache = k ? k(of) : turned(of);
    s.compute(in_cache);
    of.put(of.in_k, in_cache, of.row_k);
    of.put(of.in_v, of.v, of.row_v);
    s.product(of.weight(), of.x);
}

const scenes SCENES = {
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
    {"sums-in-part-norm-before-squared", [](scene & s) {
        ggml_tensor * begun = s.made();
        ggml_tensor * bare  = ggml_rms_norm(s.ctx(), s.made(), 1e-5f);
        normed_sum(s, ggml_add(s.ctx(), ggml_mul(s.ctx(), bare, bare), begun));
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
    {"sums-experts-2048", [](scene & s) { sums_experts(s, {8, 1, 2048}); }},
    {"sums-experts-2", [](scene & s) { sums_experts(s, {2, 1, 2880}); }},
    {"sums-experts-10", [](scene & s) { sums_experts(s, {10, 1, 544}); }},
    {"sums-experts-15-scaled", [](scene & s) { sums_experts(s, {15, 1, 1056, true}); }},
    {"sums-experts-5120", [](scene & s) { sums_experts(s, {4, 1, 5120}); }},
    {"sums-experts-shared", [](scene & s) {
        ggml_tensor * begun = s.made();
        ggml_tensor * own = s.made();
        normed_sum(s, ggml_add(s.ctx(), ggml_add(s.ctx(), of_experts(s, {}), own), begun));
    }},
    {"sums-gated", [](scene & s) { normed_sum(s, with_shared(s, 1, 2048)); }},
    {"sums-gated-and-another", [](scene & s) { normed_sum(s, ggml_add(s.ctx(), with_shared(s, 1, 544), s.made(1, 544))); }},
    {"sums-gated-3-tokens", [](scene & s) { normed_sum(s, ggml_add(s.ctx(), with_shared(s, 3, 1056), s.made(3, 1056))); }},
    {"sums-in-part-gated-by-silu", [](scene & s) { normed_sum(s, with_shared(s, 1, WIDTH, GGML_UNARY_OP_SILU)); }},
    // What is added is the sum itself, or what the gate made, which nobody would write.
    {"sums-in-part-twice", [](scene & s) {
        ggml_tensor * sum = ggml_add(s.ctx(), s.made(), s.made());
        normed_sum(s, ggml_add(s.ctx(), sum, sum));
    }},
    {"sums-in-part-gated-twice", [](scene & s) {
        ggml_tensor * opened = ggml_sigmoid(s.ctx(), ggml_mul_mat(s.ctx(), s.weight(GGML_TYPE_F32, 1), s.made()));
        ggml_tensor * shared = ggml_mul(s.ctx(), s.made(), opened);
        normed_sum(s, ggml_add(s.ctx(), shared, shared));
    }},
    {"sums-in-part-gate-read", [](scene & s) { normed_sum(s, with_shared(s, 1, WIDTH, GGML_UNARY_OP_SIGMOID, true)); }},
    {"sums-experts-3-tokens", [](scene & s) { sums_experts(s, {4, 3, 544}); }},
    {"sums-norm", [](scene & s) { sums_norm(s, 1, WIDTH); }},
    {"sums-norm-2560", [](scene & s) { sums_norm(s, 1, 2560); }},
    {"sums-norm-4-tokens", [](scene & s) { sums_norm(s, 4, 1056); }},
    {"sums-not-unread", [](scene & s) { s.result(ggml_scale(s.ctx(), norm(s, ggml_add(s.ctx(), s.made(), s.made())), 2.0f)); }},
    {"sums-not-8224", [](scene & s) { normed_sum(s, ggml_add(s.ctx(), s.made(1, 8224), s.made(1, 8224))); }},
    {"sums-not-9-tokens", [](scene & s) { normed_sum(s, ggml_add(s.ctx(), s.made(9), s.made(9))); }},
    {"sums-not-one-row", [](scene & s) { normed_sum(s, ggml_add(s.ctx(), s.made(3), s.made(1))); }},
    {"sums-not-in-channels", [](scene & s) {
        ggml_tensor * both[] = {ggml_reshape_3d(s.ctx(), s.made(4), WIDTH, 2, 2), ggml_reshape_3d(s.ctx(), s.made(4), WIDTH, 2, 2)};
        ggml_tensor * normed = norm(s, ggml_add(s.ctx(), both[0], both[1]));
        s.product(s.weight(GGML_TYPE_Q4_K), ggml_reshape_2d(s.ctx(), normed, WIDTH, 4));
    }},
    // Served from the addition on: somebody reads what comes before it, or one launch cannot have all of it.
    {"sums-in-part-norm-and-two", [](scene & s) {
        ggml_tensor * begun = s.made();
        normed_sum(s, ggml_add(s.ctx(), ggml_add(s.ctx(), norm(s, s.made()), begun), s.made()));
    }},
    {"sums-in-part-first-read", [](scene & s) {
        ggml_tensor * first = ggml_add(s.ctx(), s.made(), s.made());
        normed_sum(s, ggml_add(s.ctx(), first, s.made()));
        s.result(ggml_scale(s.ctx(), first, 3.0f));
    }},
    {"sums-in-part-norm-read", [](scene & s) {
        ggml_tensor * begun  = s.made();
        ggml_tensor * normed = norm(s, s.made());
        normed_sum(s, ggml_add(s.ctx(), normed, begun));
        s.result(ggml_scale(s.ctx(), normed, 3.0f));
    }},
    {"sums-in-part-experts-read", [](scene & s) {
        ggml_tensor * begun = s.made();
        ggml_tensor * given = of_experts(s, {});
        normed_sum(s, ggml_add(s.ctx(), given, begun));
        s.result(ggml_scale(s.ctx(), given, 3.0f));
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
    {"sums-not-rows-apart-normed", [](scene & s) {
        ggml_tensor * begun = s.made(2);
        ggml_tensor * wide  = s.made(2, 2 * WIDTH);
        normed_sum(s, ggml_add(s.ctx(), norm(s, ggml_view_2d(s.ctx(), wide, WIDTH, 2, wide->nb[1], 0)), begun));
    }},
    {"sums-not-without-a-sum", [](scene & s) { s.product(s.weight(GGML_TYPE_Q4_K), norm(s, norm(s, s.made()))); }},
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
    // The sum lies where other tokens' experts are still read.
    {"sums-in-part-over-experts", [](scene & s) {
        const experts how = {4, 3, 544};
        ggml_tensor * begun = s.made(how.tokens, how.width);
        s.result(begun);
        normed_sum(s, ggml_add(s.ctx(), of_experts(s, how), begun));
    }},
    {"attention-llama", [](scene & s) {
        attends(s, with([](attention & how) { how.turn.has_factors = true; how.v = GGML_TYPE_Q6_K; }));
    }},
    {"attention-qwen3", [](scene & s) {
        attends(s, with([](attention & how) { how.head_size = 128; how.turn.mode = GGML_ROPE_TYPE_NEOX; how.has_norms = true; }));
    }},
    {"attention-gemma3", [](scene & s) {
        attends(s, with([](attention & how) {
            how.head_size = 256;
            how.turn.mode = GGML_ROPE_TYPE_NEOX;
            how.has_norms = how.has_scale = how.k_before_v = true;
            how.q = how.k = GGML_TYPE_Q5_K;
        }));
    }},
    {"attention-gpt-oss", [](scene & s) {
        attends(s, with([](attention & how) {
            how.turn = {GGML_ROPE_TYPE_NEOX, 0, false, 1.0f};
            how.has_bias = true;
            how.q = how.k = how.v = GGML_TYPE_Q8_0;
            how.width = 2880;
        }));
    }},
    {"attention-96", [](scene & s) {
        attends(s, with([](attention & how) { how.head_size = 96; how.has_norms = true; how.q = how.k = how.v = GGML_TYPE_Q4_0; }));
    }},
    {"attention-part-turned", [](scene & s) {
        attends(s, with([](attention & how) { how.head_size = 80; how.turn = {GGML_ROPE_TYPE_NEOX, 32, true, 0.0f}; }));
    }},
    {"attention-part-turned-norm", [](scene & s) {
        attends(s, with([](attention & how) { how.head_size = 128; how.turn = {GGML_ROPE_TYPE_NORMAL, 64, false, 0.5f}; how.has_norms = true; }));
    }},
    {"attention-own-heads", [](scene & s) { attends(s, with([](attention & how) { how.heads = how.kv_heads = 3; })); }},
    {"attention-not-2-tokens", [](scene & s) { attends(s, with([](attention & how) { how.tokens = 2; })); }},
    // Somebody reads what Q's product gave.
    {"attention-not-kept", [](scene & s) { attends(s, with([](attention & how) { how.keeps_product = true; })); }},
    {"attention-not-512", [](scene & s) { attends(s, with([](attention & how) { how.head_size = 512; how.has_norms = true; })); }},
    {"attention-not-iq4", [](scene & s) { attends(s, with([](attention & how) { how.k = GGML_TYPE_IQ4_XS; })); }},
    // K is turned at another base.
    {"attention-not-alike", [](scene & s) {
        put_together(s, {}, [](parts & of) {
            return ggml_rope_ext(of.s.ctx(), of.split(of.product()), of.position, nullptr, HEAD, GGML_ROPE_TYPE_NORMAL, 4096, 5000.0f, 1.0f, 0.0f, 1.0f, 32.0f, 1.0f);
        });
    }},
    {"attention-by-parts", [](scene & s) { put_together(s); }},
    {"attention-by-many-views", [](scene & s) {
        put_together(s, {}, [](parts & of) {
            ggml_tensor * k = of.product();
            for (int n = 0; n < 40; ++n) {
                k = ggml_reshape_1d(of.s.ctx(), k, BOTH);
            }
            return of.turned(k);
        });
    }},
    // Upstream could fork here, too, up to what reads both rows, but for memory that two branches share.
    {"attention-forked", [](scene & s) {
        parts of(s);
        of.x = norm(s, of.x);
        ggml_set_name(of.x, "attn_norm-0");
        s.result(of.turned(of.product()));
        ggml_tensor * v = of.product();
        s.compute(v);
        ggml_tensor * k = of.turned(of.product());
        s.compute(k);
        ggml_tensor * rows[2] = {of.put(of.in_k, k, of.row_k), of.put(of.in_v, v, of.row_v)};
        ggml_tensor * number  = s.whole(GGML_TYPE_I32, {5});
        s.result(ggml_add(s.ctx(), ggml_get_rows(s.ctx(), rows[0], number), ggml_get_rows(s.ctx(), rows[1], number)));
    }},
    // Of the first launch.
    {"attention-not-four-products", [](scene & s) {
        put_together(s, {}, {}, [](parts & of) { return of.s.result(of.product()), of.product(); });
    }},
    {"attention-not-one-input", [](scene & s) {
        put_together(s, {}, {}, [](parts & of) { return ggml_mul_mat(of.s.ctx(), of.weight(), of.s.input(1, WIDE)); });
    }},
    {"attention-not-rows-apart", [](scene & s) {
        put_together(s, [](parts & of) {
            ggml_tensor * more = of.s.weight(GGML_TYPE_Q8_0, BOTH, 2 * WIDE);
            return of.turned(ggml_mul_mat(of.s.ctx(), ggml_view_2d(of.s.ctx(), more, WIDE, BOTH, more->nb[1], 0), of.x));
        });
    }},
    // Weights that the graph computes: upstream takes BLAS, as their rows have no padding behind them.
    {"attention-not-weights-made-here", [](scene & s) {
        put_together(s, [](parts & of) {
            ggml_tensor * made = ggml_new_tensor_2d(of.s.ctx(), GGML_TYPE_Q8_0, WIDE, BOTH);
            return of.turned(ggml_mul_mat(of.s.ctx(), ggml_cpy(of.s.ctx(), of.s.weight(GGML_TYPE_F32, BOTH, WIDE), made), of.x));
        });
    }},
    {"attention-not-2-in-a-row", [](scene & s) {
        parts of(s, 2);
        s.result(of.turned(of.product()));
        ggml_tensor * v = of.product();
        s.compute(v);
        ggml_tensor * k = of.turned(of.product());
        s.compute(k);
        of.put(s.cache(2 * BOTH), k, of.row_k);
        of.put(s.cache(2 * BOTH), v, of.row_v);
    }},
    // Of what becomes of a product.
    {"attention-not-part", [](scene & s) {
        put_together(s, {}, [](parts & of) { return of.turned(ggml_view_1d(of.s.ctx(), of.product(2 * BOTH), BOTH, 0)); });
    }},
    {"attention-not-repeated", [](scene & s) {
        put_together(s, {}, [](parts & of) {
            return of.turned(of.normed(ggml_view_3d(of.s.ctx(), of.product(), HEAD, 2, 1, 0, 0, 0)));
        });
    }},
    {"attention-not-between", [](scene & s) {
        put_together(s, {}, [](parts & of) {
            of.s.result(ggml_scale(of.s.ctx(), of.s.input(1), 3.0f));
            return of.turned(of.product());
        });
    }},
    {"attention-not-from-nothing", [](scene & s) {
        put_together(s, {}, [](parts & of) {
            of.s.result(ggml_arange(of.s.ctx(), 0.0f, 64.0f, 1.0f));
            return of.turned(of.product());
        });
    }},
    {"attention-not-v-added", [](scene & s) {
        put_together(s, {}, [](parts & of) { return of.turned(ggml_add(of.s.ctx(), of.product(), of.v)); });
    }},
    {"attention-not-one-bias", [](scene & s) {
        put_together(s, {}, [](parts & of) { return of.turned(ggml_add(of.s.ctx(), of.product(), of.s.weight(GGML_TYPE_F32, 1, 1))); });
    }},
    {"attention-not-two-biases", [](scene & s) {
        put_together(s, {}, [](parts & of) {
            ggml_tensor * one = ggml_add(of.s.ctx(), of.product(), of.s.weight(GGML_TYPE_F32, 1, BOTH));
            return of.turned(ggml_add(of.s.ctx(), one, of.s.weight(GGML_TYPE_F32, 1, BOTH)));
        });
    }},
    {"attention-not-norm-behind", [](scene & s) {
        put_together(s, {}, [](parts & of) { return ggml_rms_norm(of.s.ctx(), of.turned(of.product()), 1e-5f); });
    }},
    {"attention-not-two-norms", [](scene & s) {
        put_together(s, {}, [](parts & of) { return of.turned(of.normed(of.normed(of.split(of.product())))); });
    }},
    {"attention-not-norm-alone", [](scene & s) {
        put_together(s, {}, [](parts & of) { return of.turned(ggml_rms_norm(of.s.ctx(), of.split(of.product()), 1e-5f)); });
    }},
    {"attention-not-norm-of-all", [](scene & s) {
        put_together(s, {}, [](parts & of) { return of.turned(of.normed(of.product())); });
    }},
    {"attention-not-norm-by-head", [](scene & s) {
        put_together(s, {}, [](parts & of) { return of.turned(norm(of.s, of.split(of.product()), 2)); });
    }},
    {"attention-not-norm-by-one", [](scene & s) {
        put_together(s, {}, [](parts & of) {
            ggml_tensor * bare = ggml_rms_norm(of.s.ctx(), of.split(of.product()), 1e-5f);
            return of.turned(ggml_mul(of.s.ctx(), bare, of.s.weight(GGML_TYPE_F32, 1, 1)));
        });
    }},
    {"attention-not-multiplied", [](scene & s) {
        put_together(s, {}, [](parts & of) { return of.turned(ggml_mul(of.s.ctx(), of.split(of.product()), of.s.weight(GGML_TYPE_F32, 1, HEAD))); });
    }},
    {"attention-not-turned-twice", [](scene & s) {
        put_together(s, {}, [](parts & of) { return of.turned(of.turned(of.product())); });
    }},
    {"attention-not-scaled-before", [](scene & s) {
        put_together(s, [](parts & of) { return of.turned(ggml_scale_bias(of.s.ctx(), of.product(), 0.3f, 1.0f)); });
    }},
    {"attention-not-f32-cache", [](scene & s) {
        put_together(s, {}, {}, {}, [](parts & of) { of.in_k = of.s.cache(BOTH, 16, GGML_TYPE_F32); });
    }},
    {"attention-not-i32-rows", [](scene & s) {
        put_together(s, {}, {}, {}, [](parts & of) { of.row_v = of.s.whole(GGML_TYPE_I32, {5}); });
    }},
    {"attention-not-heads-in-rows", [](scene & s) {
        put_together(s, {}, [](parts & of) { return ggml_reshape_2d(of.s.ctx(), of.turned(of.product()), HEAD, 2); }, {}, [](parts & of) {
            of.in_k  = of.s.cache(HEAD, 32);
            of.row_k = of.s.whole(GGML_TYPE_I64, {3, 9});
        });
    }},
    // Of which is which, and of what both have to have.
    {"attention-not-v-turned", [](scene & s) {
        put_together(s, {}, {}, [](parts & of) { return of.turned(of.product()); });
    }},
    {"attention-not-q-as-it-is", [](scene & s) { put_together(s, [](parts & of) { return of.product(); }); }},
    {"attention-not-v-normed", [](scene & s) {
        put_together(s, {}, {}, [](parts & of) { return of.normed(of.split(of.product())); });
    }},
    {"attention-not-k-scaled", [](scene & s) {
        put_together(s, {}, [](parts & of) { return ggml_scale(of.s.ctx(), of.turned(of.product()), 0.3f); });
    }},
    {"attention-not-own-position", [](scene & s) {
        put_together(s, {}, [](parts & of) { of.position = of.s.whole(GGML_TYPE_I32, {11}); return of.turned(of.product()); });
    }},
    // The heads of Q and K as positions of one head: each row has a position of its own.
    {"attention-not-heads-as-positions", [](scene & s) {
        const auto turned = [](parts & of) {
            ggml_tensor * rows = ggml_reshape_3d(of.s.ctx(), of.product(), HEAD, 1, BOTH / HEAD);
            return ggml_rope_ext(of.s.ctx(), rows, of.position, nullptr, HEAD, GGML_ROPE_TYPE_NORMAL, 4096, 10000.0f, 1.0f, 0.0f, 1.0f, 32.0f, 1.0f);
        };
        put_together(s, turned, turned, {}, [](parts & of) {
            std::vector<int64_t> positions;
            for (int64_t i = 0; i < BOTH / HEAD; ++i) {
                positions.push_back(3 + i);
            }
            of.position = of.s.whole(GGML_TYPE_I32, positions);
        });
    }},
    // The factors are V's product, which one launch would make together with what reads them.
    {"attention-not-factors-of-v", [](scene & s) {
        parts of(s);
        of.v = of.product();
        s.compute(of.v);
        of.factors = of.v;
        s.result(of.turned(of.product()));
        ggml_tensor * k = of.turned(of.product());
        s.compute(k);
        of.put(of.in_k, k, of.row_k);
        of.put(of.in_v, of.v, of.row_v);
        s.product(of.weight(), of.x);
    }},
    // The second row that is set wins.
    {"attention-not-one-row-of-one-cache", [](scene & s) {
        put_together(s, {}, {}, {}, [](parts & of) { of.in_v = of.in_k; of.row_v = of.row_k; });
    }},
    {"attention-not-own-factors", [](scene & s) {
        put_together(s, {}, [](parts & of) { of.factors = of.s.weight(GGML_TYPE_F32, 1, HEAD / 2); return of.turned(of.product()); });
    }},
    {"attention-not-own-head", [](scene & s) {
        put_together(s, {}, [](parts & of) { of.head = HEAD / 2; return of.turned(of.product()); }, {}, [](parts & of) { of.dims = HEAD / 2; });
    }},
    {"attention-not-many-positions", [](scene & s) {
        const auto turned = [](parts & of) {
            int sections[GGML_MROPE_SECTIONS] = {8, 12, 12, 0};
            return ggml_rope_multi(of.s.ctx(), of.split(of.product()), of.position, nullptr, HEAD, sections, GGML_ROPE_TYPE_MROPE, 4096, 10000.0f, 1.0f, 0.0f, 1.0f, 32.0f, 1.0f);
        };
        put_together(s, turned, turned, {}, [](parts & of) { of.position = of.s.whole(GGML_TYPE_I32, {3, 4, 5, 6}); });
    }},
    {"attention-not-from-the-first", [](scene & s) {
        const auto turned = [](parts & of) { return ggml_rope_set_offset(of.turned(of.product()), HEAD / 2); };
        put_together(s, turned, turned, {}, [](parts & of) { of.dims = HEAD / 2; });
    }},
    // K's row is set before, so its number is no longer of use where Q is computed. The allocator has two places for 32 values
    // then: Q's product takes the one of a number that nobody reads again, and Q when it was turned that of K's row.
    {"attention-not-over-a-row-number", [](scene & s) {
        parts of(s);
        of.head = of.dims = 32;
        of.put(s.cache(WIDE), of.x, of.row_k);
        s.result(ggml_get_rows(s.ctx(), of.in_v, of.position));
        s.result(ggml_get_rows(s.ctx(), of.in_v, s.whole(GGML_TYPE_I32, {1})));
        ggml_tensor * k = of.turned(of.product());
        s.compute(k);
        of.put(of.in_k, k, of.row_k);
        ggml_tensor * q = of.turned(of.product(32));
        s.result(q);
        s.expect_same_place(of.row_k, q);
        of.put(of.in_v, of.product(), of.row_v);
        s.product(of.weight(), of.x);
    }},
};

}  // namespace

int main(int argc, char ** argv) { return run_scenes(SCENES, argc, argv); }
