// RoPE of rows of many lengths, of the two usual kinds, alone and into a cache.
#pragma once

#include "scene.hpp"

namespace {

constexpr int64_t HEADS = 3, TOKENS = 5;

struct turn {
    int64_t head = 64;
    int     mode        = GGML_ROPE_TYPE_NORMAL;
    int     dims        = 0; // 0: all of a head
    bool    has_factors = false, into_cache = false;
};

void rotates(scene & s, const turn & how) {
    s.weight(GGML_TYPE_F32, 1, 32); // a scene has some
    ggml_context * ctx  = s.ctx();
    const int      dims = how.dims > 0 ? how.dims : int(how.head);
    ggml_tensor *  x    = ggml_reshape_3d(ctx, ggml_scale(ctx, s.input(HEADS * TOKENS, how.head), 2.0f), how.head, HEADS, TOKENS);
    ggml_tensor * factors = how.has_factors ? s.weight(GGML_TYPE_F32, 1, dims / 2) : nullptr;
    ggml_tensor * position = s.whole(GGML_TYPE_I32, {3, 4, 5, 6, 7});
    ggml_tensor * made     = ggml_rope_ext(ctx, x, position, factors, dims, how.mode, 4096, 10000.0f, 0.5f, 0.3f, 1.1f, 32.0f, 1.0f);
    if (!how.into_cache) {
        s.result(made);
        return;
    }
    ggml_tensor * flat = ggml_view_2d(ctx, made, how.head * HEADS, TOKENS, made->nb[2], 0);
    s.compute(ggml_set_rows(ctx, s.cache(how.head * HEADS), flat, s.whole(GGML_TYPE_I64, {1, 2, 3, 4, 5})));
}

const table ROPES = {
    {"norm-2", [](scene & s) { rotates(s, {.head = 2}); }},
    {"norm-62", [](scene & s) { rotates(s, {.head = 62}); }},
    {"norm-64", [](scene & s) { rotates(s, {.head = 64}); }},
    {"norm-66", [](scene & s) { rotates(s, {.head = 66, .has_factors = true}); }},
    {"norm-512", [](scene & s) { rotates(s, {.head = 512}); }},
    {"norm-514", [](scene & s) { rotates(s, {.head = 514}); }},
    {"norm-into-cache", [](scene & s) { rotates(s, {.head = 64, .has_factors = true, .into_cache = true}); }},
    {"neox-64", [](scene & s) { rotates(s, {.head = 64, .mode = GGML_ROPE_TYPE_NEOX}); }},
    {"neox-80-part", [](scene & s) { rotates(s, {.head = 80, .mode = GGML_ROPE_TYPE_NEOX, .dims = 32}); }},
    {"neox-256", [](scene & s) { rotates(s, {.head = 256, .mode = GGML_ROPE_TYPE_NEOX, .has_factors = true}); }},
    {"neox-576", [](scene & s) { rotates(s, {.head = 576, .mode = GGML_ROPE_TYPE_NEOX}); }},
    {"neox-into-cache", [](scene & s) { rotates(s, {.head = 128, .mode = GGML_ROPE_TYPE_NEOX, .into_cache = true}); }},
};

}  // namespace
