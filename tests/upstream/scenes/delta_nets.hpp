// A gated delta net as llama.cpp's models have it, from its products to its output, in their order of nodes. What begins with
// "net-inputs-not" is left to upstream in what the net reads, "net-convolution-not" in the convolution, "net-not" in both.
#pragma once

#include "scene.hpp"

namespace {

constexpr int64_t NET_HEAD = 128, TAPS = 4;

// What there is of a net so far; what is not there yet is nullptr.
struct nodes {
    scene &       s;
    ggml_tensor * cache     = nullptr;
    ggml_tensor * given     = nullptr;
    ggml_tensor * states    = nullptr;
    ggml_tensor * joined    = nullptr;
    ggml_tensor * convolved = nullptr;
    ggml_tensor * made      = nullptr; // SiLU of it
    ggml_tensor * alpha     = nullptr;
    ggml_tensor * biased    = nullptr;
    ggml_tensor * q         = nullptr;
    ggml_tensor * q_norm    = nullptr;
    ggml_tensor * gate      = nullptr;
};

using step = void (*)(nodes &);

struct net {
    int64_t  tokens = 1, sequences = 1, k_heads = 2, v_heads = 4, head = NET_HEAD, taps = TAPS, kept_from = -1, kept_row = 3;
    int64_t  width = WIDTH;
    bool     is_gelu = false, is_sigmoid = false, has_bare_alpha = false, keeps_late = false, is_gate_squared = false, adds_in_place = false;
    float    q_bias = 0.0f, kept_part = 0.0f; // of a row of the cache, beside kept_row
    // done behind a part of it
    step behind_states = nullptr, behind_joined = nullptr, behind_kept = nullptr, behind_q = nullptr, behind_net = nullptr;
};

void then(step next, nodes & of) {
    if (next != nullptr) {
        next(of);
    }
}

void computes(scene & s, const net & how) {
    ggml_context * ctx      = s.ctx();
    const int64_t  n        = how.tokens;
    const int64_t  m        = how.sequences;
    const int64_t  head     = how.head;
    const int64_t  channels = head * (2 * how.k_heads + how.v_heads);
    const int64_t  of_state = head * head * how.v_heads;
    nodes          of{s};

    ggml_tensor * x        = ggml_scale(ctx, s.input(n * m, how.width), 2.0f);
    of.cache               = s.cache((how.taps - 1) * channels, 8, GGML_TYPE_F32);
    ggml_tensor * state_of = s.cache(of_state, 4, GGML_TYPE_F32);
    ggml_tensor * row      = s.whole(GGML_TYPE_I32, m == 1 ? std::vector<int64_t>{1} : std::vector<int64_t>{1, 2});
    ggml_tensor * before   = s.numbers_of(m == 1 ? std::vector<int32_t>{0} : std::vector<int32_t>{0, 1}, m);

    of.states = ggml_get_rows(ctx, of.cache, row);
    s.compute(of.states);
    then(how.behind_states, of);
    ggml_tensor * states = ggml_view_2d(ctx, of.states, (how.taps - 1) * channels, m, of.states->nb[1], 0);
    states    = ggml_reshape_3d(ctx, states, how.taps - 1, channels, m);
    of.given  = ggml_mul_mat(ctx, s.weight(GGML_TYPE_Q8_0, channels, how.width), x);
    of.joined = ggml_concat(ctx, states, ggml_transpose(ctx, ggml_reshape_3d(ctx, of.given, channels, n, m)), 0);
    s.compute(of.joined);
    then(how.behind_joined, of);
    const int64_t from = how.kept_from < 0 ? n : how.kept_from;
    ggml_tensor * last = ggml_view_3d(ctx, of.joined, how.taps - 1, channels, m, of.joined->nb[1], of.joined->nb[2], size_t(from) * sizeof(float));
    ggml_tensor * kept = ggml_view_2d(ctx, of.cache, (how.taps - 1) * channels, m, of.cache->nb[1], size_t((float(how.kept_row) + how.kept_part) * float(of.cache->nb[1])));
    if (!how.keeps_late) {
        s.compute(ggml_cpy(ctx, last, kept));
    }
    then(how.behind_kept, of);

    ggml_tensor * state = ggml_get_rows(ctx, state_of, before);
    s.compute(state = ggml_view_2d(ctx, state, of_state, m, state->nb[1], 0));
    state        = ggml_reshape_4d(ctx, state, head, head, how.v_heads, m);
    of.convolved = ggml_ssm_conv(ctx, of.joined, s.weight(GGML_TYPE_F32, channels, how.taps));
    of.made      = how.is_gelu ? ggml_gelu(ctx, of.convolved) : ggml_silu(ctx, of.convolved);

    if (how.keeps_late) {
        s.result(ggml_scale(ctx, of.made, 2.0f));
        s.compute(ggml_cpy(ctx, last, kept));
    }

    const size_t token = ggml_row_size(GGML_TYPE_F32, channels);
    const auto   part  = [&](int64_t heads, int64_t first) {
        return ggml_view_4d(ctx, of.made, head, heads, n, m, size_t(head) * sizeof(float), token, token * size_t(n), size_t(first * head) * sizeof(float));
    };
    const auto normed = [&](ggml_tensor * one, float bias) {
        return ggml_scale_bias(ctx, one, 0.25f, bias);
    };
    of.q_norm       = ggml_rms_norm(ctx, part(how.k_heads, 0), 1e-6f);
    of.q            = normed(of.q_norm, how.q_bias);
    s.compute(of.q);
    then(how.behind_q, of);
    ggml_tensor * k = normed(ggml_rms_norm(ctx, part(how.k_heads, how.k_heads), 1e-6f), 0.0f);
    s.compute(k);
    ggml_tensor * v = part(how.v_heads, 2 * how.k_heads);

    of.alpha = ggml_mul_mat(ctx, s.weight(GGML_TYPE_Q8_0, how.v_heads, how.width), x);
    if (!how.has_bare_alpha) {
        of.alpha = ggml_reshape_3d(ctx, of.alpha, how.v_heads, n, m);
    }
    of.biased = (how.adds_in_place ? ggml_add_inplace : ggml_add)(ctx, of.alpha, s.weight(GGML_TYPE_F32, 1, how.v_heads));
    ggml_tensor * softplus = ggml_softplus(ctx, of.biased);
    of.gate                = ggml_mul(ctx, softplus, how.is_gate_squared ? softplus : s.weight(GGML_TYPE_F32, 1, how.v_heads));
    ggml_tensor * gate = ggml_reshape_4d(ctx, of.gate, 1, how.v_heads, n, m);
    s.compute(gate);
    ggml_tensor * beta = ggml_mul_mat(ctx, s.weight(GGML_TYPE_Q8_0, how.v_heads, how.width), x);
    beta               = ggml_sigmoid(ctx, ggml_reshape_4d(ctx, beta, 1, how.v_heads, n, m));

    ggml_tensor * net_made = ggml_gated_delta_net(ctx, of.q, k, v, gate, beta, state, 1);
    ggml_tensor * next     = ggml_view_2d(ctx, net_made, of_state, m, size_t(of_state) * sizeof(float), size_t(head * how.v_heads * n * m) * sizeof(float));
    s.compute(ggml_cpy(ctx, next, ggml_view_2d(ctx, state_of, of_state, m, state_of->nb[1], 0)));
    then(how.behind_net, of);

    ggml_tensor * output = ggml_view_4d(ctx, net_made, head, how.v_heads, n, m, size_t(head) * sizeof(float),
        size_t(head * how.v_heads) * sizeof(float), size_t(head * how.v_heads * n) * sizeof(float), 0);
    ggml_tensor * normal = ggml_mul(ctx, ggml_rms_norm(ctx, output, 1e-6f), s.weight(GGML_TYPE_F32, 1, head));
    ggml_tensor * z      = ggml_reshape_4d(ctx, ggml_mul_mat(ctx, s.weight(GGML_TYPE_Q8_0, head * how.v_heads, how.width), x), head, how.v_heads, n, m);
    ggml_tensor * gated  = ggml_mul(ctx, normal, how.is_sigmoid ? ggml_sigmoid(ctx, z) : ggml_silu(ctx, z));
    s.product(s.weight(GGML_TYPE_Q4_K, 64, head * how.v_heads), ggml_reshape_2d(ctx, gated, head * how.v_heads, n * m));
}

// What is given times SiLU of a gate.
ggml_tensor * gated(scene & s, ggml_tensor * by, ggml_tensor * x) { return ggml_mul(s.ctx(), x, ggml_silu(s.ctx(), by)); }

const table DELTA_NETS = {
    {"net-token", [](scene & s) { computes(s, {}); }},
    {"net-token-of-many-heads", [](scene & s) { computes(s, {.k_heads = 4, .v_heads = 6}); }},
    {"net-token-sigmoid", [](scene & s) { computes(s, {.is_sigmoid = true}); }},
    {"net-inputs-not-2-tokens", [](scene & s) { computes(s, {.tokens = 2}); }},
    {"net-inputs-not-3-tokens", [](scene & s) { computes(s, {.tokens = 3}); }},
    {"net-inputs-not-20-tokens", [](scene & s) {
        // what was given is read, so that nothing lies over it
        computes(s, {.tokens = 20, .behind_net = [](nodes & of) { of.s.result(ggml_scale(of.s.ctx(), of.given, 2.0f)); }});
    }},
    // What was given is of no use behind the convolution, and SiLU writes over a part of it.
    {"net-not-over-part-of-20-tokens", [](scene & s) { computes(s, {.tokens = 20}); }},
    {"net-inputs-not-64", [](scene & s) { computes(s, {.k_heads = 4, .head = 64}); }},
    {"net-not-2-sequences", [](scene & s) { computes(s, {.sequences = 2}); }},
    {"net-convolution-not-3-taps", [](scene & s) { computes(s, {.taps = 3}); }},
    {"net-convolution-not-gelu", [](scene & s) { computes(s, {.is_gelu = true}); }},
    // the oldest are kept
    {"net-convolution-not-kept-first", [](scene & s) { computes(s, {.kept_from = 0}); }},
    {"net-convolution-not-states-read", [](scene & s) {
        computes(s, {.behind_states = [](nodes & of) { of.s.result(ggml_scale(of.s.ctx(), of.states, 2.0f)); }});
    }},
    {"net-convolution-not-joined-read", [](scene & s) {
        computes(s, {.behind_net = [](nodes & of) { of.s.result(ggml_scale(of.s.ctx(), of.joined, 2.0f)); }});
    }},
    {"net-convolution-not-given-changed", [](scene & s) {
        computes(s, {.behind_joined = [](nodes & of) { of.s.compute(ggml_scale_inplace(of.s.ctx(), of.given, 2.0f)); }});
    }},
    {"net-convolution-not-cache-changed", [](scene & s) {
        computes(s, {.behind_states = [](nodes & of) { of.s.compute(ggml_scale_inplace(of.s.ctx(), of.cache, 2.0f)); }});
    }},
    {"net-convolution-not-kept-read", [](scene & s) {
        computes(s, {.behind_kept = [](nodes & of) {
            // from the newest on: those before it are zeros in the first rounds
            ggml_tensor * kept = ggml_view_1d(of.s.ctx(), of.cache, of.cache->ne[0] - 2, 3 * of.cache->nb[1] + 2 * sizeof(float));
            of.s.result(ggml_scale(of.s.ctx(), kept, 2.0f));
        }});
    }},
    {"net-inputs-not-read", [](scene & s) {
        computes(s, {.behind_q = [](nodes & of) { of.s.result(ggml_scale(of.s.ctx(), of.q, 2.0f)); }});
    }},
    {"net-inputs-not-norm-read", [](scene & s) {
        computes(s, {.behind_q = [](nodes & of) { of.s.result(ggml_scale(of.s.ctx(), of.q_norm, 2.0f)); }});
    }},
    {"net-inputs-not-with-bias", [](scene & s) { computes(s, {.q_bias = 0.5f}); }},
    {"net-inputs-not-convolved-changed", [](scene & s) {
        computes(s, {.behind_q = [](nodes & of) { of.s.compute(ggml_scale_bias_inplace(of.s.ctx(), ggml_view_1d(of.s.ctx(), of.made, NET_HEAD, 0), 2.0f, 1.0f)); }});
    }},
    {"net-inputs-not-biased-read", [](scene & s) {
        computes(s, {.behind_net = [](nodes & of) { of.s.result(ggml_scale(of.s.ctx(), of.biased, 2.0f)); }});
    }},
    // The factor of the gate is a node that waits.
    {"net-inputs-not-gate-squared", [](scene & s) { computes(s, {.is_gate_squared = true}); }},
    // The biased values are where alpha was, and somebody reads alpha afterwards.
    {"net-inputs-not-biased-in-place", [](scene & s) {
        computes(s, {.adds_in_place = true, .behind_net = [](nodes & of) { of.s.result(ggml_scale(of.s.ctx(), of.alpha, 0.5f)); }});
    }},
    {"net-inputs-not-behind-its-product", [](scene & s) { computes(s, {.has_bare_alpha = true}); }},
    {"net-token-read-late", [](scene & s) {
        computes(s, {.behind_net = [](nodes & of) {
            for (ggml_tensor * one : {of.made, of.q, of.gate}) {
                of.s.result(ggml_scale(of.s.ctx(), one, 0.5f));
            }
        }});
    }},
    // Rows of the cache that are read in one place and written half a row behind it: channels would meet.
    {"net-convolution-not-between-rows", [](scene & s) { computes(s, {.kept_row = 1, .kept_part = 0.5f}); }},
    {"net-convolution-not-kept-late", [](scene & s) { computes(s, {.keeps_late = true}); }},
    {"net-convolution-not-read", [](scene & s) {
        computes(s, {.behind_q = [](nodes & of) { of.s.result(ggml_scale(of.s.ctx(), of.convolved, 2.0f)); }});
    }},
};

}  // namespace
