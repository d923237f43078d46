// Attention: of one token by the vector kernel, of one token with a quantized copy of its result, and of prompts.
#pragma once

#include "scene.hpp"

namespace {

struct heads {
    int64_t             size = 128, many = 4, of_kv = 4, kv = 256, tokens = 1, sequences = 1;
    std::vector<ranges> seen      = {{{0, 64}}}; // of each token of each sequence; empty: there is no mask
    ggml_type           type      = GGML_TYPE_F16; // of the cache
    bool                has_sinks = false;
    float               max_bias = 0.0f, softcap = 0.0f;
};

ggml_tensor * attention(scene & s, const heads & how) {
    ggml_context * ctx = s.ctx();
    const auto cached = [&] {
        ggml_tensor * rows = s.weight(how.type, how.kv * how.sequences, how.size * how.of_kv);
        return ggml_permute(ctx, ggml_reshape_4d(ctx, rows, how.size, how.of_kv, how.kv, how.sequences), 0, 2, 1, 3);
    };
    ggml_tensor * x    = s.made(how.many * how.tokens * how.sequences, how.size);
    ggml_tensor * q    = ggml_permute(ctx, ggml_reshape_4d(ctx, x, how.size, how.many, how.tokens, how.sequences), 0, 2, 1, 3);
    ggml_tensor * k    = cached();
    ggml_tensor * mask = how.seen.empty() ? nullptr : s.mask(how.kv, how.tokens, how.seen);
    ggml_tensor * made = ggml_flash_attn_ext(ctx, q, k, cached(), mask, 0.1f, how.max_bias, how.softcap);
    ggml_flash_attn_ext_add_sinks(made, how.has_sinks ? s.weight(GGML_TYPE_F32, 1, how.many) : nullptr);
    return made;
}

const table DECODE_ATTENTION = {
    {"attention-1", [](scene & s) { s.result(attention(s, {.seen = {{{0, 1}}}})); }},
    {"attention-64", [](scene & s) { s.result(attention(s, {})); }},
    {"attention-65-size-64", [](scene & s) { s.result(attention(s, {.size = 64, .seen = {{{0, 65}}}})); }},
    {"attention-128", [](scene & s) { s.result(attention(s, {.seen = {{{0, 128}}}})); }},
    {"attention-200-size-256", [](scene & s) { s.result(attention(s, {.size = 256, .many = 2, .of_kv = 2, .seen = {{{0, 200}}}})); }}, // two steps of one block
    {"attention-256", [](scene & s) { s.result(attention(s, {.seen = {{{0, 256}}}})); }},
    {"attention-3700-of-32-heads", [](scene & s) { s.result(attention(s, {.many = 32, .of_kv = 32, .kv = 4096, .seen = {{{0, 3700}}}})); }}, // more steps than blocks
    {"attention-window", [](scene & s) { s.result(attention(s, {.kv = 1024, .seen = {{{300, 340}}}})); }},
    {"attention-holes", [](scene & s) { s.result(attention(s, {.size = 256, .many = 2, .of_kv = 2, .kv = 1024, .seen = {{{300, 340}, {900, 910}}}})); }},
    {"attention-last-alone", [](scene & s) { s.result(attention(s, {.size = 256, .many = 2, .of_kv = 2, .kv = 512, .seen = {{{511, 512}}}})); }},
    {"attention-nothing", [](scene & s) { s.result(attention(s, {.seen = {ranges{}}})); }},
    {"attention-no-mask", [](scene & s) { s.result(attention(s, {.seen = {}})); }},
    {"attention-2-sequences", [](scene & s) { s.result(attention(s, {.kv = 512, .sequences = 2, .seen = {{{0, 70}}, {{0, 400}}}})); }},
    {"attention-q8_0", [](scene & s) { s.result(attention(s, {.many = 8, .of_kv = 2, .kv = 512, .seen = {{{0, 300}}}, .type = GGML_TYPE_Q8_0})); }},
    {"attention-q4_0", [](scene & s) { s.result(attention(s, {.many = 8, .of_kv = 2, .kv = 512, .seen = {{{0, 300}}}, .type = GGML_TYPE_Q4_0})); }},
    {"attention-bf16", [](scene & s) { s.result(attention(s, {.kv = 512, .seen = {{{0, 300}}}, .type = GGML_TYPE_BF16})); }},
    {"attention-sinks", [](scene & s) { s.result(attention(s, {.seen = {{{0, 33}}}, .has_sinks = true})); }},
    {"attention-alibi-softcap", [](scene & s) { s.result(attention(s, {.seen = {{{0, 70}}}, .max_bias = 8.0f, .softcap = 5.0f})); }},
    {"attention-shared", [](scene & s) { s.result(attention(s, {.many = 8, .of_kv = 2})); }}, // TILE's
};

// One token with a quantized cache and heads that share it. Compared with the CPU, because the cache is split into other parts than upstream's.
const double QUANTIZED_CACHE = 5e-4; // as in test-backend-ops
const table DECODE_GQA = {
    {"gqa-4-q8_0", [](scene & s) { s.result(attention(s, {.many = 8, .of_kv = 2, .kv = 512, .seen = {{{0, 300}}}, .type = GGML_TYPE_Q8_0})); }, QUANTIZED_CACHE},
    {"gqa-8-size-64", [](scene & s) { s.result(attention(s, {.size = 64, .many = 16, .of_kv = 2, .kv = 1024, .seen = {{{100, 900}}}, .type = GGML_TYPE_Q8_0})); }, QUANTIZED_CACHE},
    {"gqa-6-q4_0", [](scene & s) { s.result(attention(s, {.many = 6, .of_kv = 1, .kv = 512, .seen = {{{0, 400}}}, .type = GGML_TYPE_Q4_0})); }, QUANTIZED_CACHE},
    {"gqa-4-size-256", [](scene & s) { s.result(attention(s, {.size = 256, .many = 4, .of_kv = 1, .kv = 512, .seen = {{{0, 400}}}, .type = GGML_TYPE_Q8_0})); }, QUANTIZED_CACHE}, // upstream's
    {"gqa-3", [](scene & s) { s.result(attention(s, {.many = 6, .of_kv = 2, .kv = 512, .seen = {{{0, 300}}}, .type = GGML_TYPE_Q8_0})); }, QUANTIZED_CACHE}, // one head per block
    {"gqa-2-sequences", [](scene & s) { s.result(attention(s, {.many = 8, .of_kv = 2, .kv = 512, .sequences = 2, .seen = {{{0, 70}}, {{0, 400}}}, .type = GGML_TYPE_Q8_0})); }, QUANTIZED_CACHE},
    {"gqa-no-mask", [](scene & s) { s.result(attention(s, {.many = 8, .of_kv = 2, .kv = 512, .seen = {}, .type = GGML_TYPE_Q8_0})); }, QUANTIZED_CACHE},
    {"gqa-sinks", [](scene & s) { s.result(attention(s, {.size = 64, .many = 8, .of_kv = 2, .seen = {{{0, 33}}}, .type = GGML_TYPE_Q8_0, .has_sinks = true})); }, QUANTIZED_CACHE},
    {"gqa-alibi", [](scene & s) { s.result(attention(s, {.many = 8, .of_kv = 2, .seen = {{{0, 70}}}, .type = GGML_TYPE_Q8_0, .max_bias = 8.0f})); }, QUANTIZED_CACHE}, // upstream's
    {"gqa-softcap", [](scene & s) { s.result(attention(s, {.many = 8, .of_kv = 2, .seen = {{{0, 70}}}, .type = GGML_TYPE_Q8_0, .softcap = 5.0f})); }, QUANTIZED_CACHE}, // upstream's
    {"gqa-2-tokens", [](scene & s) { s.result(attention(s, {.many = 8, .of_kv = 2, .tokens = 2, .seen = {{{0, 70}}, {{0, 71}}}, .type = GGML_TYPE_Q8_0})); }, QUANTIZED_CACHE}, // the columns are tokens
};

// Token i of a prompt sees all rows but the last tokens - 1 - i. With masks of their own, each sequence has 256 rows less than the one before.
void prefills_attention(scene & s, heads how, int64_t masks = 1) {
    how.seen = {};
    for (int64_t n = 0; n < masks * how.tokens; ++n) {
        how.seen.push_back({{0, how.kv - 256 * (n / how.tokens) - how.tokens + n % how.tokens + 1}});
    }
    s.result(attention(s, how));
}

// As test-backend-ops has it for attention, but against keys and values as they are stored.
constexpr double ATTENTION_ERROR = 5e-4;

const table PREFILL_ATTENTION = {
    // 128 columns, of which 64 are tokens; a full tile of 64 tokens and 36 more; two full tiles of 32 tokens.
    {"mask-half-a-tile", [](scene & s) { prefills_attention(s, {.size = 64, .many = 2, .of_kv = 2, .kv = 512, .tokens = 64, .sequences = 2}, 2); }, ATTENTION_ERROR},
    {"mask-some-over", [](scene & s) { prefills_attention(s, {.size = 64, .many = 4, .of_kv = 2, .kv = 512, .tokens = 100, .sequences = 2}, 2); }, ATTENTION_ERROR},
    {"mask-whole-tiles", [](scene & s) { prefills_attention(s, {.many = 8, .of_kv = 2, .kv = 512, .tokens = 64, .sequences = 2}, 2); }, ATTENTION_ERROR},
    // 32 and 75 tokens fill no block, 512 and 1024 rows are few and many steps.
    {"shared-by-4", [](scene & s) { prefills_attention(s, {.size = 64, .many = 16, .kv = 512, .tokens = 75}); }, ATTENTION_ERROR},
    {"shared-by-4-sinks", [](scene & s) { prefills_attention(s, {.size = 64, .many = 16, .kv = 512, .tokens = 75, .has_sinks = true}); }, ATTENTION_ERROR},
    {"3-sequences", [](scene & s) { prefills_attention(s, {.size = 64, .many = 16, .kv = 512, .tokens = 75, .sequences = 3}); }, ATTENTION_ERROR},
    {"3-sequences-sinks", [](scene & s) { prefills_attention(s, {.size = 64, .many = 16, .kv = 1024, .tokens = 75, .sequences = 3, .has_sinks = true}, 3); }, ATTENTION_ERROR},
    {"shared-by-12", [](scene & s) { prefills_attention(s, {.many = 48, .kv = 512, .tokens = 32, .has_sinks = true}); }, ATTENTION_ERROR},
    {"shared-by-12-75-tokens", [](scene & s) { prefills_attention(s, {.many = 48, .kv = 512, .tokens = 75, .has_sinks = true}); }, ATTENTION_ERROR},
    // The cache is made f16 first.
    {"q8_0", [](scene & s) { prefills_attention(s, {.size = 64, .kv = 1024, .tokens = 75, .type = GGML_TYPE_Q8_0}); }, ATTENTION_ERROR},
    {"not-padded", [](scene & s) { prefills_attention(s, {.size = 64, .kv = 113, .tokens = 75}); }, ATTENTION_ERROR},
    {"not-without-mask", [](scene & s) { s.result(attention(s, {.size = 64, .kv = 512, .tokens = 75, .seen = {}})); }, ATTENTION_ERROR},
    {"not-alibi", [](scene & s) { prefills_attention(s, {.size = 64, .kv = 512, .tokens = 75, .max_bias = 8.0f}); }, ATTENTION_ERROR},
    {"not-few-tokens", [](scene & s) { prefills_attention(s, {.size = 64, .many = 16, .kv = 512, .tokens = 3}); }, ATTENTION_ERROR},
};

}  // namespace
