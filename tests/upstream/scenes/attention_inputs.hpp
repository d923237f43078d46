// Q, K and V of a token: their products, rotated, and stored in the KV cache.
#pragma once

#include "norms.hpp"

namespace {

struct rotation {
    int   mode        = GGML_ROPE_TYPE_NORMAL;
    int   dims        = 0; // 0: all of a head
    bool  has_factors = false;
    float ext_factor  = 0.0f;
};

struct projections {
    int64_t   head_size = 64;
    int64_t   heads     = 4;
    int64_t   kv_heads  = 2;
    ggml_type q = GGML_TYPE_Q4_K, k = GGML_TYPE_Q4_K, v = GGML_TYPE_Q4_K;
    rotation  turn      = {};
    bool      has_norms = false, has_bias = false, has_scale = false, k_before_v = false, keeps_product = false, is_v_over_q = false;
    int64_t   tokens    = 1;
    int64_t   width     = WIDTH;
};

ggml_tensor * rotated(scene & s, ggml_tensor * x, ggml_tensor * position, ggml_tensor * factors, const rotation & turn) {
    const int dims = turn.dims > 0 ? turn.dims : int(x->ne[0]);
    return ggml_rope_ext(s.ctx(), x, position, factors, dims, turn.mode, 4096, 10000.0f, 0.5f, turn.ext_factor, 1.1f, 32.0f, 1.0f);
}

// The nodes of llama.cpp's models, in their order: Q with its rotation, V, K (or K, V), then both into the cache.
void projects(scene & s, const projections & how) {
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
        if (how.is_v_over_q) {
            s.expect_same_place(product, v);
        }
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

using part = ggml_tensor * (*)(parts &);

void put_together(scene & s, part q = nullptr, part k = nullptr, part v = nullptr, void (*before)(parts &) = nullptr) {
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

const table ATTENTION_INPUTS = {
    {"attention-llama", [](scene & s) { projects(s, {.v = GGML_TYPE_Q6_K, .turn = {.has_factors = true}, .is_v_over_q = true}); }},
    {"attention-qwen3", [](scene & s) { projects(s, {.head_size = 128, .turn = {.mode = GGML_ROPE_TYPE_NEOX}, .has_norms = true}); }},
    {"attention-gemma3", [](scene & s) { projects(s, {.head_size = 256, .q = GGML_TYPE_Q5_K, .k = GGML_TYPE_Q5_K, .turn = {.mode = GGML_ROPE_TYPE_NEOX}, .has_norms = true, .has_scale = true, .k_before_v = true}); }},
    {"attention-gpt-oss", [](scene & s) { projects(s, {.q = GGML_TYPE_Q8_0, .k = GGML_TYPE_Q8_0, .v = GGML_TYPE_Q8_0, .turn = {GGML_ROPE_TYPE_NEOX, 0, false, 1.0f}, .has_bias = true, .width = 2880}); }},
    {"attention-96", [](scene & s) { projects(s, {.head_size = 96, .q = GGML_TYPE_Q4_0, .k = GGML_TYPE_Q4_0, .v = GGML_TYPE_Q4_0, .has_norms = true}); }},
    {"attention-part-turned", [](scene & s) { projects(s, {.head_size = 80, .turn = {GGML_ROPE_TYPE_NEOX, 32, true, 0.0f}}); }},
    {"attention-part-turned-norm", [](scene & s) { projects(s, {.head_size = 128, .turn = {GGML_ROPE_TYPE_NORMAL, 64, false, 0.5f}, .has_norms = true}); }},
    {"attention-own-heads", [](scene & s) { projects(s, {.heads = 3, .kv_heads = 3}); }},
    {"attention-not-2-tokens", [](scene & s) { projects(s, {.tokens = 2}); }},
    // Somebody reads what Q's product gave.
    {"attention-not-kept", [](scene & s) { projects(s, {.keeps_product = true}); }},
    {"attention-not-512", [](scene & s) { projects(s, {.head_size = 512, .has_norms = true}); }},
    {"attention-not-iq4", [](scene & s) { projects(s, {.k = GGML_TYPE_IQ4_XS}); }},
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
