// Gate and up of prompts in one launch. Names with "-not" in them are left to two launches and the gate's own.
//
//   gated_products FOLDER [SCENE]
//
// Like shared_activations.cpp.

#include "scene.hpp"

namespace {

constexpr int64_t TOKENS = 70;

struct layer {
    ggml_type   type   = GGML_TYPE_Q4_K;
    int64_t     rows   = 128, tokens = TOKENS, width = WIDTH;
    ggml_glu_op op     = GGML_GLU_OP_SWIGLU;
    bool        up_first = false;
};

ggml_tensor * gated(scene & s, ggml_tensor * gate, ggml_tensor * up, ggml_glu_op op = GGML_GLU_OP_SWIGLU) {
    ggml_tensor * made = ggml_glu_split(s.ctx(), gate, up, op);
    s.result(made);
    return made;
}

void whole(scene & s, const layer & how) {
    ggml_tensor * x    = s.made(how.tokens, how.width);
    ggml_tensor * gate = ggml_mul_mat(s.ctx(), s.weight(how.type, how.rows, how.width), x);
    ggml_tensor * up   = ggml_mul_mat(s.ctx(), s.weight(how.type, how.rows, how.width), x);
    s.compute(how.up_first ? up : gate);
    gated(s, gate, up, how.op);
}

// Each token takes two of four.
void experts(scene & s, const layer & how, bool other_experts = false) {
    ggml_tensor * x = ggml_reshape_3d(s.ctx(), s.made(how.tokens, how.width), how.width, 1, how.tokens);
    std::vector<int32_t> taken[2];
    for (int64_t n = 0; n < how.tokens; ++n) {
        for (int64_t k = 0; k < 2; ++k) {
            taken[0].push_back(int32_t((n * n + 2 * k) % 4));
            taken[1].push_back(int32_t((n + 2 * k) % 4));
        }
    }
    ggml_tensor * ids   = s.numbers_of(taken[0], 2);
    ggml_tensor * other = other_experts ? s.numbers_of(taken[1], 2) : ids;
    ggml_tensor * gate  = ggml_mul_mat_id(s.ctx(), s.weight(how.type, how.rows, how.width, 4), x, ids);
    ggml_tensor * up    = ggml_mul_mat_id(s.ctx(), s.weight(how.type, how.rows, how.width, 4), x, other);
    s.compute(how.up_first ? up : gate);
    gated(s, gate, up, how.op);
}

ggml_tensor * of(scene & s, ggml_tensor * x, ggml_type type = GGML_TYPE_Q4_K, int64_t rows = 128) {
    return ggml_mul_mat(s.ctx(), s.weight(type, rows, x->ne[0]), x);
}

const scenes SCENES = {
    {"q4_0", [](scene & s) { whole(s, {GGML_TYPE_Q4_0}); }},
    {"q8_0", [](scene & s) { whole(s, {GGML_TYPE_Q8_0, 130}); }},
    {"mxfp4", [](scene & s) { whole(s, {GGML_TYPE_MXFP4, 64}); }},
    {"q4_k", [](scene & s) { whole(s, {GGML_TYPE_Q4_K, 256, 128}); }},
    {"q5_k", [](scene & s) { whole(s, {GGML_TYPE_Q5_K, 65, 192}); }},
    {"q6_k", [](scene & s) { whole(s, {GGML_TYPE_Q6_K, 191, 65}); }},
    {"gelu", [](scene & s) { whole(s, {GGML_TYPE_Q8_0, 128, 96, 96, GGML_GLU_OP_GEGLU}); }},
    {"up-first", [](scene & s) { whole(s, {GGML_TYPE_Q4_0, 130, TOKENS, 64, GGML_GLU_OP_SWIGLU, true}); }},
    {"experts-q4_k", [](scene & s) { experts(s, {}); }},
    {"experts-gelu", [](scene & s) { experts(s, {GGML_TYPE_Q8_0, 66, 90, 96, GGML_GLU_OP_GEGLU, true}); }},
    {"experts-many", [](scene & s) { experts(s, {GGML_TYPE_Q6_K, 100, 150, 256}); }},
    // The result takes the place of the activations, which nobody reads again.
    {"in-place", [](scene & s) {
        ggml_tensor * x    = s.made(TOKENS, 128);
        ggml_tensor * gate = of(s, x, GGML_TYPE_Q8_0);
        ggml_tensor * up   = of(s, x, GGML_TYPE_Q8_0);
        s.compute(gate);
        s.compute(up);
        ggml_tensor * made = ggml_glu_split(s.ctx(), gate, up, GGML_GLU_OP_SWIGLU);
        s.result(ggml_scale(s.ctx(), made, 2.0f));
        s.expect_same_place(x, made);
    }},
    {"not-few-tokens", [](scene & s) { whole(s, {GGML_TYPE_Q4_K, 128, 48}); }},
    {"not-few-rows", [](scene & s) { whole(s, {GGML_TYPE_Q4_K, 63}); }},
    {"not-f16", [](scene & s) { whole(s, {GGML_TYPE_F16}); }},
    {"not-oai", [](scene & s) {
        ggml_tensor * x = s.made(TOKENS);
        s.result(ggml_swiglu_oai(s.ctx(), of(s, x), of(s, x), 1.702f, 7.0f));
    }},
    {"not-relu", [](scene & s) { whole(s, {GGML_TYPE_Q4_K, 128, TOKENS, WIDTH, GGML_GLU_OP_REGLU}); }},
    {"not-halves", [](scene & s) {
        ggml_tensor * x = s.made(TOKENS);
        s.compute(of(s, x));
        s.result(ggml_swiglu(s.ctx(), of(s, x)));
    }},
    {"not-gate-read", [](scene & s) {
        ggml_tensor * x    = s.made(TOKENS);
        ggml_tensor * gate = of(s, x);
        s.compute(gate);
        gated(s, gate, of(s, x));
        s.result(ggml_scale(s.ctx(), gate, 3.0f));
    }},
    {"not-one-input", [](scene & s) {
        ggml_tensor * x = s.made(TOKENS);
        ggml_tensor * y = s.made(TOKENS);
        gated(s, of(s, x), of(s, y));
    }},
    {"not-one-type", [](scene & s) {
        ggml_tensor * x = s.made(TOKENS);
        gated(s, of(s, x, GGML_TYPE_Q4_K), of(s, x, GGML_TYPE_Q5_K));
    }},
    {"not-of-these", [](scene & s) {
        ggml_tensor * x = s.made(TOKENS);
        ggml_tensor * y = s.made(TOKENS, 128);
        ggml_tensor * z = s.made(TOKENS, 128);
        s.compute(of(s, x));
        s.compute(of(s, x));
        gated(s, y, z);
    }},
    {"not-f32-wanted", [](scene & s) {
        ggml_tensor * x    = s.made(TOKENS);
        ggml_tensor * gate = of(s, x);
        ggml_prec_set_acc(gate, GGML_PREC_F32);
        gated(s, gate, of(s, x));
    }},
    {"not-experts-few", [](scene & s) { experts(s, {GGML_TYPE_Q4_K, 128, 60}); }},
    {"not-experts-others", [](scene & s) { experts(s, {}, true); }},
};

}  // namespace

int main(int argc, char ** argv) { return run_scenes(SCENES, argc, argv); }
