// Gate and up projections, of all tokens or of experts.
#pragma once

#include "scene.hpp"

namespace {

struct layer {
    ggml_type   type = GGML_TYPE_Q4_K;
    int64_t     rows = 128, width = WIDTH, tokens = 1;
    ggml_glu_op op       = GGML_GLU_OP_SWIGLU;
    bool        has_bias = false;
    bool        up_first = false;
};

// Each token takes two of four.
ggml_tensor * experts_of(scene & s, int64_t tokens, bool others = false) {
    std::vector<int32_t> taken;
    for (int64_t n = 0; n < tokens; ++n) {
        for (int64_t k = 0; k < 2; ++k) {
            taken.push_back(int32_t(((others ? n : n * n) + 2 * k + 1) % 4));
        }
    }
    return s.numbers_of(taken, 2);
}

// x with a matrix for each token, as products of experts take it; both read this one tensor.
ggml_tensor * by_token(scene & s, ggml_tensor * x) { return ggml_reshape_3d(s.ctx(), x, x->ne[0], 1, x->ne[1]); }

// A product of x, of the experts `ids` where there are some; with its bias.
ggml_tensor * projected(scene & s, const layer & how, ggml_tensor * x, ggml_tensor * ids = nullptr) {
    ggml_context * ctx = s.ctx();
    if (ids == nullptr) {
        ggml_tensor * made = ggml_mul_mat(ctx, s.weight(how.type, how.rows, how.width), x);
        return how.has_bias ? ggml_add(ctx, made, s.weight(GGML_TYPE_F32, 1, how.rows)) : made;
    }
    ggml_tensor * made = ggml_mul_mat_id(ctx, s.weight(how.type, how.rows, how.width, 4), x, ids);
    return how.has_bias ? ggml_add_id(ctx, made, s.weight(GGML_TYPE_F32, 4, how.rows), ids) : made;
}

ggml_tensor * joined(scene & s, const layer & how, ggml_tensor * gate, ggml_tensor * up) {
    s.compute(how.up_first ? up : gate);
    s.compute(how.up_first ? gate : up);
    ggml_tensor * made = how.op == GGML_GLU_OP_SWIGLU_OAI ? ggml_swiglu_oai(s.ctx(), gate, up, 1.702f, 7.0f)
                                                          : ggml_glu_split(s.ctx(), gate, up, how.op);
    s.compute(made);
    return made;
}

ggml_tensor * gate_up(scene & s, const layer & how, ggml_tensor * x, ggml_tensor * ids = nullptr) {
    ggml_tensor * gate = projected(s, how, x, ids);
    return joined(s, how, gate, projected(s, how, x, ids));
}

constexpr int64_t PROMPT = 70;

void prefills(scene & s, const layer & how) { s.result(gate_up(s, how, s.made(how.tokens, how.width))); }

void prefills_experts(scene & s, const layer & how) {
    ggml_tensor * x = by_token(s, s.made(how.tokens, how.width));
    s.result(gate_up(s, how, x, experts_of(s, how.tokens)));
}

const table PREFILL_GATES = {
    {"gated-q4_0", [](scene & s) { prefills(s, {.type = GGML_TYPE_Q4_0, .tokens = PROMPT}); }},
    {"gated-q8_0", [](scene & s) { prefills(s, {.type = GGML_TYPE_Q8_0, .rows = 130, .tokens = PROMPT}); }},
    {"gated-mxfp4", [](scene & s) { prefills(s, {.type = GGML_TYPE_MXFP4, .rows = 64, .tokens = PROMPT}); }},
    {"gated-q4_k", [](scene & s) { prefills(s, {.rows = 256, .tokens = 128}); }},
    {"gated-q5_k", [](scene & s) { prefills(s, {.type = GGML_TYPE_Q5_K, .rows = 65, .tokens = 192}); }},
    {"gated-q6_k", [](scene & s) { prefills(s, {.type = GGML_TYPE_Q6_K, .rows = 191, .tokens = 65}); }},
    {"gated-up-first", [](scene & s) { prefills(s, {.type = GGML_TYPE_Q4_0, .rows = 130, .width = 64, .tokens = PROMPT, .up_first = true}); }},
    {"gated-experts-q4_k", [](scene & s) { prefills_experts(s, {.tokens = PROMPT}); }},
    {"gated-experts-up-first", [](scene & s) {
        prefills_experts(s, {.type = GGML_TYPE_Q8_0, .rows = 66, .width = 96, .tokens = 90, .up_first = true});
    }},
    {"gated-experts-many", [](scene & s) { prefills_experts(s, {.type = GGML_TYPE_Q6_K, .rows = 100, .width = 256, .tokens = 150}); }},
    // The result takes the place of the activations, which are not read again.
    {"gated-in-place", [](scene & s) {
        ggml_tensor * x    = s.made(PROMPT, 128);
        ggml_tensor * made = gate_up(s, {.type = GGML_TYPE_Q8_0, .width = 128, .tokens = PROMPT}, x);
        s.result(ggml_scale(s.ctx(), made, 2.0f));
        s.expect_same_place(x, made);
    }},
    {"gated-not-few-tokens", [](scene & s) { prefills(s, {.tokens = 48}); }},
    {"gated-not-few-rows", [](scene & s) { prefills(s, {.rows = 63, .tokens = PROMPT}); }},
    {"gated-not-f16", [](scene & s) { prefills(s, {.type = GGML_TYPE_F16, .tokens = PROMPT}); }},
    {"gated-not-oai", [](scene & s) { prefills(s, {.tokens = PROMPT, .op = GGML_GLU_OP_SWIGLU_OAI}); }},
    {"gated-not-gelu", [](scene & s) { prefills(s, {.tokens = PROMPT, .op = GGML_GLU_OP_GEGLU}); }},
    {"gated-not-relu", [](scene & s) { prefills(s, {.tokens = PROMPT, .op = GGML_GLU_OP_REGLU}); }},
    {"gated-not-halves", [](scene & s) {
        ggml_tensor * x = s.made(PROMPT);
        s.compute(projected(s, {}, x));
        s.result(ggml_swiglu(s.ctx(), projected(s, {}, x)));
    }},
    {"gated-not-gate-read", [](scene & s) {
        ggml_tensor * x    = s.made(PROMPT);
        ggml_tensor * gate = projected(s, {}, x);
        s.result(joined(s, {}, gate, projected(s, {}, x)));
        s.result(ggml_scale(s.ctx(), gate, 3.0f));
    }},
    {"gated-not-one-input", [](scene & s) {
        ggml_tensor * x = s.made(PROMPT);
        ggml_tensor * y = s.made(PROMPT);
        ggml_tensor * gate = projected(s, {}, x);
        s.result(joined(s, {}, gate, projected(s, {}, y)));
    }},
    {"gated-not-one-type", [](scene & s) {
        ggml_tensor * x    = s.made(PROMPT);
        ggml_tensor * gate = projected(s, {}, x);
        s.result(joined(s, {}, gate, projected(s, {.type = GGML_TYPE_Q5_K}, x)));
    }},
    {"gated-not-of-these", [](scene & s) {
        ggml_tensor * x = s.made(PROMPT);
        ggml_tensor * y = s.made(PROMPT, 128);
        ggml_tensor * z = s.made(PROMPT, 128);
        s.compute(projected(s, {}, x));
        s.compute(projected(s, {}, x));
        s.result(ggml_swiglu_split(s.ctx(), y, z));
    }},
    {"gated-not-f32-wanted", [](scene & s) {
        ggml_tensor * x    = s.made(PROMPT);
        ggml_tensor * gate = projected(s, {}, x);
        ggml_prec_set_acc(gate, GGML_PREC_F32);
        s.result(joined(s, {}, gate, projected(s, {}, x)));
    }},
    {"gated-not-experts-few", [](scene & s) { prefills_experts(s, {.tokens = 60}); }},
    {"gated-not-experts-others", [](scene & s) {
        const layer   how  = {.tokens = PROMPT};
        ggml_tensor * x    = by_token(s, s.made(how.tokens));
        ggml_tensor * gate = projected(s, how, x, experts_of(s, how.tokens));
        s.result(joined(s, how, gate, projected(s, how, x, experts_of(s, how.tokens, true))));
    }},
};

}  // namespace
