// What gate and up of a token give, and attention, with its quantized copy.
//
//   quantized_results FOLDER [SCENE]
//
// Like shared_activations.cpp. Those with "-not" in their names are left to upstream.

#include "scene.hpp"

namespace {

struct layer {
    ggml_type   type = GGML_TYPE_Q4_K;
    int64_t     rows = 128, width = WIDTH, tokens = 1;
    ggml_glu_op op   = GGML_GLU_OP_SWIGLU;
    ggml_type   down = GGML_TYPE_Q8_0;
    int64_t     read = 0; // columns of what the product behind reads, 0: all of a row
};

ggml_tensor * joined(scene & s, ggml_glu_op op, ggml_tensor * gate, ggml_tensor * up) {
    return op == GGML_GLU_OP_SWIGLU_OAI ? ggml_swiglu_oai(s.ctx(), gate, up, 1.702f, 7.0f) : ggml_glu_split(s.ctx(), gate, up, op);
}

// Somebody reads the result itself, and a product reads it.
void down(scene & s, const layer & how, ggml_tensor * made) {
    s.result(ggml_scale(s.ctx(), made, 0.5f));
    const int64_t columns = how.read > 0 ? how.read : made->ne[0];
    s.product(s.weight(how.down, 64, columns), ggml_reshape_2d(s.ctx(), made, columns, ggml_nelements(made) / columns));
}

void matrix(scene & s, const layer & how, bool has_bias = false) {
    ggml_context * ctx = s.ctx();
    ggml_tensor *  x   = s.made(how.tokens, how.width);
    const auto product = [&] {
        ggml_tensor * made = ggml_mul_mat(ctx, s.weight(how.type, how.rows, how.width), x);
        made = has_bias ? ggml_add(ctx, made, s.weight(GGML_TYPE_F32, 1, how.rows)) : made;
        s.compute(made);
        return made;
    };
    ggml_tensor * gate = product();
    down(s, how, joined(s, how.op, gate, product()));
    s.result(ggml_scale(ctx, x, 0.25f)); // else the result lies where x was, and upstream does not join them
}

struct of_experts {
    bool has_bias = false, has_shared = false;
};

// Each token takes two of four experts.
void experts(scene & s, const layer & how, const of_experts & more = {}) {
    ggml_context * ctx = s.ctx();
    std::vector<int32_t> taken;
    for (int64_t n = 0; n < how.tokens; ++n) {
        taken.push_back(int32_t(1 + n));
        taken.push_back(int32_t((3 + 2 * n) % 4));
    }
    ggml_tensor * ids  = s.numbers_of(taken, 2);
    ggml_tensor * flat = s.made(how.tokens, how.width);
    ggml_tensor * x    = ggml_reshape_3d(ctx, flat, how.width, 1, how.tokens);
    const auto product = [&] {
        ggml_tensor * made = ggml_mul_mat_id(ctx, s.weight(how.type, how.rows, how.width, 4), x, ids);
        made = more.has_bias ? ggml_add_id(ctx, made, s.weight(GGML_TYPE_F32, 4, how.rows), ids) : made;
        s.compute(made);
        return made;
    };
    ggml_tensor * gate = product();
    ggml_tensor * made = joined(s, how.op, gate, product());
    s.compute(made);
    ggml_tensor * shared = nullptr;
    if (more.has_shared) {
        ggml_tensor * of_all = ggml_mul_mat(ctx, s.weight(how.type, how.rows, how.width), flat);
        s.compute(of_all);
        shared = joined(s, how.op, of_all, ggml_mul_mat(ctx, s.weight(how.type, how.rows, how.width), flat));
        s.compute(shared);
    }
    s.result(ggml_mul_mat_id(ctx, s.weight(how.down, 64, how.rows, 4), made, ids));
    if (shared != nullptr) {
        s.product(s.weight(how.down, 64, how.rows), shared);
    }
    s.result(ggml_scale(ctx, made, 0.5f));
    s.result(ggml_scale(ctx, flat, 0.25f));
}

struct heads {
    int64_t   size = 128, many = 4, of_kv = 2, tokens = 1, kv = 1024;
    ggml_type down = GGML_TYPE_Q8_0;
    int64_t   read = 0; // as of a layer
};

void attention(scene & s, const heads & how) {
    ggml_context * ctx = s.ctx();
    ggml_tensor * q = ggml_permute(ctx, ggml_reshape_3d(ctx, s.made(how.tokens * how.many, how.size), how.size, how.many, how.tokens), 0, 2, 1, 3);
    const auto cached = [&] {
        ggml_tensor * rows = s.weight(GGML_TYPE_F16, how.kv, how.size * how.of_kv);
        return ggml_permute(ctx, ggml_reshape_3d(ctx, rows, how.size, how.of_kv, how.kv), 0, 2, 1, 3);
    };
    ggml_tensor * k = cached();
    ggml_tensor * made = ggml_flash_attn_ext(ctx, q, k, cached(), nullptr, 0.1f, 0.0f, 0.0f);
    const int64_t columns = how.read > 0 ? how.read : how.size * how.many;
    s.product(s.weight(how.down, 64, columns), ggml_reshape_2d(ctx, made, columns, ggml_nelements(made) / columns));
    s.result(ggml_scale(ctx, made, 0.5f));
}

const scenes SCENES = {
    {"gate-q4_0", [](scene & s) { matrix(s, {GGML_TYPE_Q4_0, 544}); }},
    {"gate-q8_0", [](scene & s) { matrix(s, {GGML_TYPE_Q8_0, 96, 96}); }},
    {"gate-mxfp4", [](scene & s) { matrix(s, {GGML_TYPE_MXFP4, 1024}); }},
    {"gate-q4_k", [](scene & s) { matrix(s, {GGML_TYPE_Q4_K, 512}); }},
    {"gate-q5_k", [](scene & s) { matrix(s, {GGML_TYPE_Q5_K, 160, 256}); }},
    {"gate-q6_k", [](scene & s) { matrix(s, {GGML_TYPE_Q6_K, 32, 768}); }},
    {"gate-gelu", [](scene & s) { matrix(s, {GGML_TYPE_Q4_K, 256, 512, 1, GGML_GLU_OP_GEGLU}); }},
    // Nothing makes x, so upstream joins them although the result lies where x was: its copy is read while that of the result is made.
    {"gate-over-input", [](scene & s) {
        ggml_tensor * x    = s.input(1, 1024);
        ggml_tensor * gate = ggml_mul_mat(s.ctx(), s.weight(GGML_TYPE_Q8_0, 1024, 1024), x);
        ggml_tensor * up   = ggml_mul_mat(s.ctx(), s.weight(GGML_TYPE_Q8_0, 1024, 1024), x);
        s.compute(gate);
        s.compute(up);
        ggml_tensor * made = ggml_swiglu_split(s.ctx(), gate, up);
        s.product(s.weight(GGML_TYPE_Q8_0, 64, 1024), made);
        s.expect_same_place(x, made);
    }},
    {"gate-biased", [](scene & s) { matrix(s, {GGML_TYPE_Q8_0, 128, 512}, true); }},
    {"gate-experts", [](scene & s) { experts(s, {GGML_TYPE_Q4_K, 544}); }},
    {"gate-experts-oai", [](scene & s) { experts(s, {GGML_TYPE_MXFP4, 96, 96, 1, GGML_GLU_OP_SWIGLU_OAI}, {true, false}); }},
    {"gate-experts-shared", [](scene & s) { experts(s, {GGML_TYPE_Q4_K, 256}, {false, true}); }},
    {"gate-not-iq4", [](scene & s) { matrix(s, {GGML_TYPE_IQ4_NL}); }},
    {"gate-not-2-tokens", [](scene & s) { matrix(s, {GGML_TYPE_Q4_K, 128, 512, 2}); }},
    {"gate-not-2-of-experts", [](scene & s) { experts(s, {GGML_TYPE_Q4_K, 128, 512, 2}); }},
    {"gate-not-read-by-quantized", [](scene & s) { matrix(s, {GGML_TYPE_Q4_K, 128, 512, 1, GGML_GLU_OP_SWIGLU, GGML_TYPE_F16}); }},
    {"gate-not-in-halves", [](scene & s) { matrix(s, {GGML_TYPE_Q4_K, 128, 512, 1, GGML_GLU_OP_SWIGLU, GGML_TYPE_Q8_0, 64}); }},
    {"gate-not-large", [](scene & s) { matrix(s, {GGML_TYPE_Q8_0, 4096, 4096}); }},
    {"gate-not-bias-alone", [](scene & s) {
        ggml_tensor * x    = s.made();
        ggml_tensor * made = ggml_mul_mat(s.ctx(), s.weight(GGML_TYPE_Q8_0, 128), x);
        down(s, {}, ggml_add(s.ctx(), made, s.weight(GGML_TYPE_F32, 1, 128)));
    }},
    {"attention-64", [](scene & s) { attention(s, {64, 8, 2}); }},
    {"attention-128", [](scene & s) { attention(s, {}); }},
    {"attention-256", [](scene & s) { attention(s, {256, 2, 1}); }},
    {"attention-own-kv", [](scene & s) { attention(s, {128, 4, 4}); }},
    {"attention-2-tokens", [](scene & s) { attention(s, {128, 4, 2, 2}); }},
    {"attention-not-2-of-384", [](scene & s) { attention(s, {128, 3, 3, 2}); }},
    {"attention-not-80", [](scene & s) { attention(s, {80, 32, 8}); }},
    {"attention-not-read-by-quantized", [](scene & s) { attention(s, {128, 4, 2, 1, 1024, GGML_TYPE_F16}); }},
    {"attention-not-in-halves", [](scene & s) { attention(s, {128, 4, 2, 1, 1024, GGML_TYPE_Q8_0, 256}); }},
};

}  // namespace

int main(int argc, char ** argv) { return run_scenes(SCENES, argc, argv); }
