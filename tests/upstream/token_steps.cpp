// What stands before a layer's products and behind them, for one token: norms that quantize, and Q, K and V in two launches.
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
    {"attention-not-512", [](scene & s) { attends(s, with([](attention & how) { how.head_size = 512; })); }},
    {"attention-not-iq4", [](scene & s) { attends(s, with([](attention & how) { how.k = GGML_TYPE_IQ4_XS; })); }},
    // K is turned at another base.
    {"attention-not-alike", [](scene & s) {
        ggml_context * ctx = s.ctx();
        ggml_tensor * x        = ggml_scale(ctx, s.input(1), 2.0f);
        ggml_tensor * position = s.whole(GGML_TYPE_I32, {3});
        ggml_tensor * row      = s.whole(GGML_TYPE_I64, {5});
        ggml_tensor * in_k     = s.cache(128);
        ggml_tensor * in_v     = s.cache(128);
        const auto turned = [&](float base) {
            ggml_tensor * split = ggml_reshape_3d(ctx, ggml_mul_mat(ctx, s.weight(GGML_TYPE_Q4_K, 128), x), 64, 2, 1);
            return ggml_rope_ext(ctx, split, position, nullptr, 64, GGML_ROPE_TYPE_NORMAL, 4096, base, 1.0f, 0.0f, 1.0f, 32.0f, 1.0f);
        };
        s.result(turned(10000.0f));
        ggml_tensor * v = ggml_mul_mat(ctx, s.weight(GGML_TYPE_Q4_K, 128), x);
        s.compute(v);
        ggml_tensor * k = turned(5000.0f);
        s.compute(ggml_set_rows(ctx, in_k, ggml_view_2d(ctx, k, 128, 1, k->nb[2], 0), row));
        s.compute(ggml_set_rows(ctx, in_v, v, row));
    }},
};

}  // namespace

int main(int argc, char ** argv) { return run_scenes(SCENES, argc, argv); }
