// Products that read one activation, and what may come between them. One column is the vector kernel's, 64 are the matrix kernel's.
#pragma once

#include "scene.hpp"

namespace {

const table ACTIVATIONS = {
    {"shared", [](scene & s) {
        ggml_tensor * x = s.input(1);
        s.product(s.weight(GGML_TYPE_Q4_K), x);
        s.product(s.weight(GGML_TYPE_Q6_K), x);
        s.product(s.weight(GGML_TYPE_Q8_0), x);
    }},
    {"shared-prompt", [](scene & s) {
        ggml_tensor * x = s.input(64);
        s.product(s.weight(GGML_TYPE_Q4_K), x);
        s.product(s.weight(GGML_TYPE_Q4_K), x);
        s.product(s.weight(GGML_TYPE_Q5_K), x);
    }},
    // Two kinds of weights that want the same numbers in two layouts.
    {"layouts", [](scene & s) {
        ggml_tensor * x = s.input(64);
        s.product(s.weight(GGML_TYPE_Q4_K), x);
        s.product(s.weight(GGML_TYPE_Q6_K), x);
        s.product(s.weight(GGML_TYPE_Q4_K), x);
    }},
    // An operation in place: another tensor at the same address, of the same shape.
    {"in-place", [](scene & s) {
        ggml_tensor * x = s.input(1);
        s.product(s.weight(GGML_TYPE_Q4_K), x);
        s.product(s.weight(GGML_TYPE_Q4_K), ggml_scale_inplace(s.ctx(), x, 3.0f));
    }},
    {"in-place-prompt", [](scene & s) {
        ggml_tensor * x = s.input(64);
        s.product(s.weight(GGML_TYPE_Q4_K), x);
        s.product(s.weight(GGML_TYPE_Q4_K), ggml_scale_inplace(s.ctx(), x, 3.0f));
    }},
    // The second half of the tensor is written, through a view; the products read all of it, by the same tensor.
    {"half", [](scene & s) {
        ggml_tensor * x = s.input(1);
        s.product(s.weight(GGML_TYPE_Q4_K), x);
        s.compute(ggml_scale_inplace(s.ctx(), ggml_view_1d(s.ctx(), x, WIDTH / 2, WIDTH / 2 * sizeof(float)), 3.0f));
        s.product(s.weight(GGML_TYPE_Q4_K), x);
    }},
    {"copied-over", [](scene & s) {
        ggml_tensor * x = s.input(1);
        ggml_tensor * y = s.input(1);
        s.product(s.weight(GGML_TYPE_Q4_K), x);
        s.compute(ggml_cpy(s.ctx(), y, x));
        s.product(s.weight(GGML_TYPE_Q4_K), x);
    }},
    {"set-over", [](scene & s) {
        ggml_tensor * x = s.input(1);
        ggml_tensor * y = s.input(1);
        s.product(s.weight(GGML_TYPE_Q4_K), x);
        s.compute(ggml_set_1d_inplace(s.ctx(), x, ggml_view_1d(s.ctx(), y, WIDTH / 2, 0), 0));
        s.product(s.weight(GGML_TYPE_Q4_K), x);
    }},
    // An operation that writes more than its output: the mean of the gradients.
    {"optimizer", [](scene & s) {
        ggml_tensor * parameters = s.input(1);
        ggml_set_param(parameters);
        ggml_tensor * gradient = s.input(1);
        ggml_tensor * mean     = s.input(1);
        ggml_tensor * settings = s.input(1, 7);
        s.product(s.weight(GGML_TYPE_Q4_K), mean);
        s.compute(ggml_opt_step_adamw(s.ctx(), parameters, gradient, mean, s.input(1), settings));
        s.product(s.weight(GGML_TYPE_Q4_K), mean);
    }},
    // The allocator puts one tensor where another one was.
    {"reused-memory", [](scene & s) {
        ggml_tensor * x      = s.input(1);
        ggml_tensor * before = ggml_scale(s.ctx(), x, 2.0f);
        s.product(s.weight(GGML_TYPE_Q4_K), before);
        ggml_tensor * behind = ggml_scale(s.ctx(), x, 3.0f);
        s.product(s.weight(GGML_TYPE_Q4_K), behind);
        s.product(s.weight(GGML_TYPE_Q4_K), x); // so that neither takes the place of x
        s.expect_same_place(before, behind);
    }},
    // A fused gate writes its result, which the next product reads.
    {"gate", [](scene & s) {
        ggml_tensor * x    = ggml_scale(s.ctx(), s.input(1), 2.0f);
        ggml_tensor * gate = ggml_mul_mat(s.ctx(), s.weight(GGML_TYPE_Q4_K, WIDTH), x);
        ggml_tensor * up   = ggml_mul_mat(s.ctx(), s.weight(GGML_TYPE_Q4_K, WIDTH), x);
        s.product(s.weight(GGML_TYPE_Q4_K), ggml_swiglu_split(s.ctx(), gate, up));
    }},
    // The last matmul of a graph reads what the first one of the next graph reads, and by then there are other numbers.
    {"rounds", [](scene & s) {
        ggml_tensor * x = s.input(1);
        s.take_turns({s.product(s.weight(GGML_TYPE_Q4_K), x), s.product(s.weight(GGML_TYPE_Q4_K), x)});
    }},
    // The same address and strides, and half of each column.
    {"shapes", [](scene & s) {
        ggml_tensor * x = s.input(2);
        s.product(s.weight(GGML_TYPE_Q4_K, 64, WIDTH / 2), ggml_view_2d(s.ctx(), x, WIDTH / 2, 2, x->nb[1], 0));
        s.product(s.weight(GGML_TYPE_Q4_K), x);
    }},
    {"strides", [](scene & s) {
        ggml_tensor * x = s.input(4);
        s.product(s.weight(GGML_TYPE_Q4_K), ggml_view_2d(s.ctx(), x, WIDTH, 2, x->nb[1], 0));
        s.product(s.weight(GGML_TYPE_Q4_K), ggml_view_2d(s.ctx(), x, WIDTH, 2, 2 * x->nb[1], 0));
    }},
    // More than 128 tokens of such experts: upstream sorts the activations by expert into pool memory, which no node writes, and multiplies
    // slices of them. The second MUL_MAT_ID has other activations at the same place.
    {"routed-fallback", [](scene & s) {
        constexpr int64_t few = 64, many = 136, experts = 4;
        std::vector<int32_t> chosen(few, 0);
        chosen.insert(chosen.end(), many, 1);
        ggml_tensor * ids = s.numbers_of(chosen, 1);
        for (int i = 0; i < 2; ++i) {
            ggml_tensor * x = ggml_reshape_3d(s.ctx(), s.input(few + many), WIDTH, 1, few + many);
            s.result(ggml_mul_mat_id(s.ctx(), s.weight(GGML_TYPE_Q2_K, 64, WIDTH, experts), x, ids));
        }
    }},
    // As test-backend-ops perf has it: one node many times, each of which has to do all of its work.
    {"repeated-node", [](scene & s) { s.repeat(s.product(s.weight(GGML_TYPE_Q4_K), s.input(1)), 7); }},
    {"repeated-node-prompt", [](scene & s) { s.repeat(s.product(s.weight(GGML_TYPE_Q4_K), s.input(64)), 7); }},
    // Upstream forks here with GGML_CUDA_GRAPH_OPT=1: by the name of the tensor, and because three read it.
    {"forked", [](scene & s) {
        ggml_tensor * x = ggml_scale(s.ctx(), s.input(1), 2.0f);
        ggml_set_name(x, "attn_norm-0");
        ggml_tensor * q = ggml_mul_mat(s.ctx(), s.weight(GGML_TYPE_Q4_K), x);
        ggml_tensor * k = ggml_mul_mat(s.ctx(), s.weight(GGML_TYPE_Q4_K), x);
        ggml_tensor * v = ggml_mul_mat(s.ctx(), s.weight(GGML_TYPE_Q4_K), x);
        for (ggml_tensor * one : {q, k, v}) {
            s.compute(one);
        }
        s.result(ggml_add(s.ctx(), ggml_add(s.ctx(), q, k), v));
    }},
};

}  // namespace
