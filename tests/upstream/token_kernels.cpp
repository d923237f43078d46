// Upstream's kernels for one token, where a patch changes what a loop does in a step, and which steps it takes.
//
//   token_kernels FOLDER [SCENE]

#include "scene.hpp"

namespace {

// A product of one token with something added.
void sum(scene & s, ggml_type type, int64_t width = 768, int64_t rows = 72) {
    ggml_tensor * made = ggml_mul_mat(s.ctx(), s.weight(type, rows, width), s.made(1, width));
    s.result(ggml_add(s.ctx(), made, s.made(1, rows)));
}

// Two products of one token, one of them a gate.
void gate(scene & s, ggml_type type, int64_t width = 768, bool has_bias = false) {
    ggml_tensor * x = s.made(1, width);
    const auto product = [&] {
        ggml_tensor * made = ggml_mul_mat(s.ctx(), s.weight(type, 96, width), x);
        made = has_bias ? ggml_add(s.ctx(), made, s.weight(GGML_TYPE_F32, 1, 96)) : made;
        s.compute(made);
        return made;
    };
    ggml_tensor * gate = product();
    s.result(ggml_swiglu_split(s.ctx(), gate, product()));
    s.result(ggml_scale(s.ctx(), x, 0.25f)); // else the result lies where x was, and upstream does not join them
}

// The token takes two of four experts, each with a gate, or with a bias alone.
void experts(scene & s, ggml_type type, bool has_gate) {
    ggml_context * ctx  = s.ctx();
    ggml_tensor *  ids  = s.numbers_of({1, 3}, 2);
    ggml_tensor *  flat = s.made(1, 768);
    ggml_tensor *  x    = ggml_reshape_3d(ctx, flat, 768, 1, 1);
    const auto product = [&] {
        ggml_tensor * made = ggml_mul_mat_id(ctx, s.weight(type, 96, 768, 4), x, ids);
        made = ggml_add_id(ctx, made, s.weight(GGML_TYPE_F32, 4, 96), ids);
        s.compute(made);
        return made;
    };
    ggml_tensor * first = product();
    s.result(has_gate ? ggml_swiglu_oai(ctx, first, product(), 1.702f, 7.0f) : ggml_scale(ctx, first, 0.5f));
    s.result(ggml_scale(ctx, flat, 0.25f));
}

void alone(scene & s, ggml_type type, int64_t tokens) { s.product(s.weight(type, 72, 768), s.made(tokens, 768)); }

struct heads {
    int64_t             size = 128, many = 4, of_kv = 4, kv = 256;
    std::vector<ranges> seen = {{{0, 64}}}; // of each sequence; empty: there is no mask
    ggml_type           type = GGML_TYPE_F16; // of the cache
    bool                has_sinks = false;
    float               max_bias = 0.0f, softcap = 0.0f;
};

void attention(scene & s, const heads & how) {
    ggml_context * ctx       = s.ctx();
    const int64_t  sequences = std::max<int64_t>(1, int64_t(how.seen.size()));
    const auto cached = [&] {
        ggml_tensor * rows = s.weight(how.type, how.kv * sequences, how.size * how.of_kv);
        return ggml_permute(ctx, ggml_reshape_4d(ctx, rows, how.size, how.of_kv, how.kv, sequences), 0, 2, 1, 3);
    };
    ggml_tensor * x = s.made(how.many * sequences, how.size);
    ggml_tensor * q = ggml_permute(ctx, ggml_reshape_4d(ctx, x, how.size, how.many, 1, sequences), 0, 2, 1, 3);
    ggml_tensor * k = cached();
    ggml_tensor * mask = how.seen.empty() ? nullptr : s.mask(how.kv, how.seen);
    ggml_tensor * made = ggml_flash_attn_ext(ctx, q, k, cached(), mask, 0.1f, how.max_bias, how.softcap);
    ggml_flash_attn_ext_add_sinks(made, how.has_sinks ? s.weight(GGML_TYPE_F32, 1, how.many) : nullptr);
    s.result(made);
}

const scenes SCENES = {
    {"sum-q4_0", [](scene & s) { sum(s, GGML_TYPE_Q4_0, 544); }},
    {"sum-q4_0-long", [](scene & s) { sum(s, GGML_TYPE_Q4_0, 4096); }},
    {"sum-q4_1", [](scene & s) { sum(s, GGML_TYPE_Q4_1, 544); }},
    {"sum-q5_0", [](scene & s) { sum(s, GGML_TYPE_Q5_0, 544); }},
    {"sum-q5_1", [](scene & s) { sum(s, GGML_TYPE_Q5_1, 544); }},
    {"sum-q8_0", [](scene & s) { sum(s, GGML_TYPE_Q8_0, 544); }},
    {"sum-mxfp4", [](scene & s) { sum(s, GGML_TYPE_MXFP4, 544); }},
    {"sum-q2_k", [](scene & s) { sum(s, GGML_TYPE_Q2_K); }},
    {"sum-q3_k", [](scene & s) { sum(s, GGML_TYPE_Q3_K); }},
    {"sum-q4_k", [](scene & s) { sum(s, GGML_TYPE_Q4_K); }},
    {"sum-q5_k", [](scene & s) { sum(s, GGML_TYPE_Q5_K); }},
    {"sum-q6_k", [](scene & s) { sum(s, GGML_TYPE_Q6_K); }},
    {"sum-iq4_nl", [](scene & s) { sum(s, GGML_TYPE_IQ4_NL, 544); }},
    {"sum-iq4_xs", [](scene & s) { sum(s, GGML_TYPE_IQ4_XS); }},
    {"sum-experts", [](scene & s) { experts(s, GGML_TYPE_Q4_0, false); }},
    {"gate-q4_0", [](scene & s) { gate(s, GGML_TYPE_Q4_0, 544); }},
    {"gate-q4_1", [](scene & s) { gate(s, GGML_TYPE_Q4_1, 544); }},
    {"gate-q5_0", [](scene & s) { gate(s, GGML_TYPE_Q5_0, 544); }},
    {"gate-q8_0", [](scene & s) { gate(s, GGML_TYPE_Q8_0, 544); }},
    {"gate-q2_k", [](scene & s) { gate(s, GGML_TYPE_Q2_K); }},
    {"gate-q4_k", [](scene & s) { gate(s, GGML_TYPE_Q4_K); }},
    {"gate-q6_k", [](scene & s) { gate(s, GGML_TYPE_Q6_K); }},
    {"gate-iq4_nl", [](scene & s) { gate(s, GGML_TYPE_IQ4_NL, 544); }},
    {"gate-biased", [](scene & s) { gate(s, GGML_TYPE_Q4_K, 768, true); }},
    {"gate-experts", [](scene & s) { experts(s, GGML_TYPE_MXFP4, true); }},
    {"alone-q4_0", [](scene & s) { alone(s, GGML_TYPE_Q4_0, 1); }},
    {"alone-q4_0-2-tokens", [](scene & s) { alone(s, GGML_TYPE_Q4_0, 2); }},
    {"alone-q4_k-5-tokens", [](scene & s) { alone(s, GGML_TYPE_Q4_K, 5); }},
    {"alone-q6_k-8-tokens", [](scene & s) { alone(s, GGML_TYPE_Q6_K, 8); }},
    {"attention-1", [](scene & s) { attention(s, {128, 4, 4, 256, {{{0, 1}}}}); }},
    {"attention-64", [](scene & s) { attention(s, {}); }},
    {"attention-65-size-64", [](scene & s) { attention(s, {64, 4, 4, 256, {{{0, 65}}}}); }},
    {"attention-128", [](scene & s) { attention(s, {128, 4, 4, 256, {{{0, 128}}}}); }},
    {"attention-200-size-256", [](scene & s) { attention(s, {256, 2, 2, 256, {{{0, 200}}}}); }}, // two steps of one block
    {"attention-256", [](scene & s) { attention(s, {128, 4, 4, 256, {{{0, 256}}}}); }},
    {"attention-3700-of-32-heads", [](scene & s) { attention(s, {128, 32, 32, 4096, {{{0, 3700}}}}); }}, // more steps than blocks
    {"attention-window", [](scene & s) { attention(s, {128, 4, 4, 1024, {{{300, 340}}}}); }},
    {"attention-holes", [](scene & s) { attention(s, {256, 2, 2, 1024, {{{300, 340}, {900, 910}}}}); }},
    {"attention-last-alone", [](scene & s) { attention(s, {256, 2, 2, 512, {{{511, 512}}}}); }},
    {"attention-nothing", [](scene & s) { attention(s, {128, 4, 4, 256, {ranges{}}}); }},
    {"attention-no-mask", [](scene & s) { attention(s, {128, 4, 4, 256, {}}); }},
    {"attention-2-sequences", [](scene & s) { attention(s, {128, 4, 4, 512, {{{0, 70}}, {{0, 400}}}}); }},
    {"attention-q8_0", [](scene & s) { attention(s, {128, 8, 2, 512, {{{0, 300}}}, GGML_TYPE_Q8_0}); }},
    {"attention-q4_0", [](scene & s) { attention(s, {128, 8, 2, 512, {{{0, 300}}}, GGML_TYPE_Q4_0}); }},
    {"attention-bf16", [](scene & s) { attention(s, {128, 4, 4, 512, {{{0, 300}}}, GGML_TYPE_BF16}); }},
    {"attention-sinks", [](scene & s) { attention(s, {128, 4, 4, 256, {{{0, 33}}}, GGML_TYPE_F16, true}); }},
    {"attention-alibi-softcap", [](scene & s) { attention(s, {128, 4, 4, 256, {{{0, 70}}}, GGML_TYPE_F16, false, 8.0f, 5.0f}); }},
    {"attention-shared", [](scene & s) { attention(s, {128, 8, 2}); }}, // TILE's
};

}  // namespace

int main(int argc, char ** argv) { return run_scenes(SCENES, argc, argv); }
