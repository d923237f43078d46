// Rotations of rows of many lengths, of each kind, by themselves, behind a norm and into a cache.
//
//   rope_blocks FOLDER [SCENE]
//
// Like shared_activations.cpp.

#include "scene.hpp"

namespace {

constexpr int64_t HEADS = 3, TOKENS = 5;

struct turn {
    int64_t head        = 64;
    int     mode        = GGML_ROPE_TYPE_NORMAL;
    int     dims        = 0; // 0: all of a head
    bool    has_factors = false, has_norm = false, into_cache = false;
};

void rotates(scene & s, const turn & how) {
    s.weight(GGML_TYPE_F32, 1, 32); // a scene has some
    ggml_context * ctx  = s.ctx();
    const int      dims = how.dims > 0 ? how.dims : int(how.head);
    ggml_tensor *  x    = ggml_reshape_3d(ctx, ggml_scale(ctx, s.input(HEADS * TOKENS, how.head), 2.0f), how.head, HEADS, TOKENS);
    if (how.has_norm) {
        x = ggml_mul(ctx, ggml_rms_norm(ctx, x, 1e-5f), s.weight(GGML_TYPE_F32, 1, how.head));
    }
    ggml_tensor * factors = how.has_factors ? s.weight(GGML_TYPE_F32, 1, dims / 2) : nullptr;
    ggml_tensor * made    = nullptr;
    if (how.mode == GGML_ROPE_TYPE_MROPE) {
        std::vector<int64_t> first;
        for (int64_t n = 0; n < 4 * TOKENS; ++n) {
            first.push_back(3 + n % 7);
        }
        int sections[GGML_MROPE_SECTIONS] = {dims / 8, dims / 4, dims / 8, 0};
        made = ggml_rope_multi(ctx, x, s.whole(GGML_TYPE_I32, first), factors, dims, sections, how.mode, 4096, 10000.0f, 1.0f, 0.0f, 1.0f, 32.0f, 1.0f);
    } else {
        ggml_tensor * position = s.whole(GGML_TYPE_I32, {3, 4, 5, 6, 7});
        made = ggml_rope_ext(ctx, x, position, factors, dims, how.mode, 4096, 10000.0f, 0.5f, 0.3f, 1.1f, 32.0f, 1.0f);
    }
    if (!how.into_cache) {
        s.result(made);
        return;
    }
    ggml_tensor * flat = ggml_view_2d(ctx, made, how.head * HEADS, TOKENS, made->nb[2], 0);
    s.compute(ggml_set_rows(ctx, s.cache(how.head * HEADS), flat, s.whole(GGML_TYPE_I64, {1, 2, 3, 4, 5})));
}

const scenes SCENES = {
    {"norm-2", [](scene & s) { rotates(s, {2}); }},
    {"norm-62", [](scene & s) { rotates(s, {62}); }},
    {"norm-64", [](scene & s) { rotates(s, {64}); }},
    {"norm-66", [](scene & s) { rotates(s, {66, GGML_ROPE_TYPE_NORMAL, 0, true}); }},
    {"norm-512", [](scene & s) { rotates(s, {512}); }},
    {"norm-514", [](scene & s) { rotates(s, {514}); }},
    {"norm-into-cache", [](scene & s) { rotates(s, {64, GGML_ROPE_TYPE_NORMAL, 0, true, false, true}); }},
    {"neox-64", [](scene & s) { rotates(s, {64, GGML_ROPE_TYPE_NEOX}); }},
    {"neox-80-part", [](scene & s) { rotates(s, {80, GGML_ROPE_TYPE_NEOX, 32}); }},
    {"neox-256", [](scene & s) { rotates(s, {256, GGML_ROPE_TYPE_NEOX, 0, true}); }},
    {"neox-576", [](scene & s) { rotates(s, {576, GGML_ROPE_TYPE_NEOX}); }},
    {"neox-into-cache", [](scene & s) { rotates(s, {128, GGML_ROPE_TYPE_NEOX, 0, false, false, true}); }},
    {"multi-64", [](scene & s) { rotates(s, {64, GGML_ROPE_TYPE_MROPE}); }},
    {"multi-128", [](scene & s) { rotates(s, {128, GGML_ROPE_TYPE_MROPE, 64}); }},
    {"normed-64", [](scene & s) { rotates(s, {64, GGML_ROPE_TYPE_NORMAL, 0, false, true}); }},
    {"normed-96", [](scene & s) { rotates(s, {96, GGML_ROPE_TYPE_NEOX, 0, true, true}); }},
    {"normed-128", [](scene & s) { rotates(s, {128, GGML_ROPE_TYPE_NEOX, 64, false, true}); }},
    {"normed-130", [](scene & s) { rotates(s, {130, GGML_ROPE_TYPE_NEOX, 0, false, true}); }},
    {"normed-into-cache", [](scene & s) { rotates(s, {128, GGML_ROPE_TYPE_NEOX, 0, false, true, true}); }},
};

}  // namespace

int main(int argc, char ** argv) { return run_scenes(SCENES, argc, argv); }
