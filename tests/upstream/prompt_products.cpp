// Products of weights with the activations of prompts, in shapes of many kinds: prints how far each is from the exact one.
//
//   prompt_products FOLDER [SCENE]
//
// FOLDER has the backends. A line of a scene has the sum of squared errors over that of squares, in double precision, against the
// weights as they are stored and the activations as they are. The last line says whether columns depend on what is beside them.

#include "graphs.hpp"

#include "ggml-alloc.h"

#include <cmath>
#include <cstring>

namespace {

struct product {
    const char * name;
    ggml_type    type;
    int64_t      rows, columns, depth; // depth: values that are summed up
    int64_t      batch[2]     = {1, 1}; // of the activations
    int64_t      shared[2]    = {1, 1}; // batches that have one matrix
    bool         is_view      = false;  // rows of the activations are parts of longer ones, and all tensors of larger ones
    float        largest      = 1.0f;   // of the activations; one in each third column is as large, and each seventh is zero
    int64_t      experts      = 0;      // matrices, of which each token takes `used`
    int64_t      used         = 1;
    bool         is_broadcast = false;  // the experts of a token read the same activations
    bool         is_preferred = false;  // many tokens take the first expert, and none the second
    int64_t      offset       = 0;      // floats that the activations lie behind the begin of their memory
    bool         wants_f32    = false;
    float        weight       = 0.03f; // of the weights, the largest
};

// What upstream computes has rows of 512 values, as its kernel reads so many, and the rest of a tensor behind the last row.
const product SCENES[] = {
    {"q4_0", GGML_TYPE_Q4_0, 256, 128, 512},
    {"q8_0", GGML_TYPE_Q8_0, 256, 128, 512},
    {"mxfp4", GGML_TYPE_MXFP4, 256, 128, 512},
    {"q4_k", GGML_TYPE_Q4_K, 256, 128, 512},
    {"q5_k", GGML_TYPE_Q5_K, 256, 128, 512},
    {"q6_k", GGML_TYPE_Q6_K, 256, 128, 512},
    {"f16", GGML_TYPE_F16, 256, 128, 512},
    {"one-block", GGML_TYPE_Q4_0, 128, 128, 32},
    {"three-blocks", GGML_TYPE_Q8_0, 130, 96, 96},
    {"one-more-column", GGML_TYPE_Q4_K, 128, 65, 256},
    {"one-more-row", GGML_TYPE_Q4_K, 129, 129, 256},
    {"one-row-less", GGML_TYPE_Q6_K, 127, 127, 256},
    {"half-the-rows", GGML_TYPE_MXFP4, 64, 66, 2880},
    {"narrow-blocks", GGML_TYPE_Q5_K, 200, 192, 256},
    {"narrow-tail", GGML_TYPE_Q6_K, 300, 150, 512},
    {"deep", GGML_TYPE_Q4_0, 70, 70, 8224},
    {"deeper", GGML_TYPE_Q4_K, 70, 70, 18432},
    {"batches", GGML_TYPE_Q4_0, 130, 70, 64, {3, 2}},
    {"shared", GGML_TYPE_Q4_K, 130, 70, 256, {6, 2}, {3, 2}},
    {"shared-f16", GGML_TYPE_F16, 100, 77, 96, {4, 1}, {4, 1}},
    {"view", GGML_TYPE_Q8_0, 140, 90, 96, {2, 3}, {1, 1}, true},
    {"view-f16", GGML_TYPE_F16, 140, 90, 96, {2, 1}, {2, 1}, true},
    {"large", GGML_TYPE_Q4_0, 128, 80, 256, {1, 1}, {1, 1}, false, 3e6f},
    {"small", GGML_TYPE_Q6_K, 128, 80, 256, {1, 1}, {1, 1}, false, 1e-9f},
    {"large-weights", GGML_TYPE_Q4_K, 128, 80, 256, {1, 1}, {1, 1}, false, 1.0f, 0, 1, false, false, 0, false, 5e4f},
    {"small-weights", GGML_TYPE_Q8_0, 128, 80, 256, {1, 1}, {1, 1}, false, 1.0f, 0, 1, false, false, 0, false, 1e-3f},
    {"few-columns", GGML_TYPE_Q4_K, 256, 48, 512},
    {"few-rows", GGML_TYPE_Q4_K, 63, 128, 512},
    {"unaligned", GGML_TYPE_Q4_K, 128, 80, 512, {1, 1}, {1, 1}, false, 1.0f, 0, 1, false, false, 1},
    {"another-type", GGML_TYPE_Q4_1, 128, 80, 512},
    {"experts", GGML_TYPE_Q4_K, 130, 64, 256, {1, 1}, {1, 1}, false, 1.0f, 4, 2},
    {"experts-broadcast", GGML_TYPE_MXFP4, 128, 100, 96, {1, 1}, {1, 1}, false, 1.0f, 4, 2, true},
    {"experts-many", GGML_TYPE_Q6_K, 64, 81, 256, {1, 1}, {1, 1}, false, 1.0f, 8, 4},
    {"experts-preferred", GGML_TYPE_Q4_0, 130, 260, 64, {1, 1}, {1, 1}, false, 1.0f, 8, 1, false, true},
    {"experts-preferred-wide", GGML_TYPE_Q8_0, 130, 400, 64, {1, 1}, {1, 1}, false, 1.0f, 4, 1, true, true},
    {"experts-few", GGML_TYPE_Q4_0, 128, 60, 512, {1, 1}, {1, 1}, false, 1.0f, 8, 4},
    {"experts-view", GGML_TYPE_Q4_0, 128, 64, 512, {1, 1}, {1, 1}, true, 1.0f, 4, 2},
    {"f32-wanted", GGML_TYPE_F16, 128, 80, 256, {1, 1}, {1, 1}, false, 1.0f, 0, 1, false, false, 0, true},
};

size_t place(const ggml_tensor * t, int64_t i1, int64_t i2, int64_t i3) {
    return size_t(i1) * t->nb[1] + size_t(i2) * t->nb[2] + size_t(i3) * t->nb[3];
}

void run(const product & scene, ggml_backend_t gpu) {
    const ggml_init_params params{size_t(64) * ggml_tensor_overhead() + ggml_graph_overhead(), nullptr, true};
    ggml_context *         ctx = ggml_init(params);

    const int64_t more = scene.is_view ? 1 : 0; // of what a tensor is a part of
    int64_t       ne0[4], ne1[4];
    ne0[0] = ne1[0] = scene.depth;
    ne0[1] = scene.rows;
    ne1[1] = scene.columns;
    for (int n = 0; n < 2; ++n) {
        ne1[2 + n] = scene.batch[n];
        ne0[2 + n] = scene.batch[n] / scene.shared[n];
    }
    if (scene.experts != 0) {
        ne0[2] = scene.experts;
        ne1[1] = scene.is_broadcast ? 1 : scene.used;
        ne1[2] = scene.columns;
    }
    const auto part = [&](ggml_type type, const int64_t * ne, int64_t longer, int64_t offset) {
        ggml_tensor * whole = ggml_new_tensor_1d(ctx, type, (ne[0] + longer) * (ne[1] + more) * (ne[2] + more) * ne[3] + offset);
        const size_t row = ggml_row_size(type, ne[0] + longer), matrix = row * size_t(ne[1] + more);
        return ggml_view_4d(ctx, whole, ne[0], ne[1], ne[2], ne[3], row, matrix, matrix * size_t(ne[2] + more),
                            size_t(offset) * ggml_type_size(type));
    };
    ggml_tensor * weights     = part(scene.type, ne0, 0, 0);
    ggml_tensor * activations = part(GGML_TYPE_F32, ne1, 64 * more, scene.offset);
    ggml_tensor * ids         = ggml_new_tensor_2d(ctx, GGML_TYPE_I32, scene.used, scene.columns);
    ggml_tensor * result =
        scene.experts == 0 ? ggml_mul_mat(ctx, weights, activations) : ggml_mul_mat_id(ctx, weights, activations, ids);
    if (scene.wants_f32) {
        ggml_prec_set_acc(result, GGML_PREC_F32);
    }
    ggml_cgraph * graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, result);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(ctx, gpu);
    if (buffer == nullptr) {
        refuse(std::string("no memory for ") + scene.name);
    }
    ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);

    numbers              from(20261127);
    std::vector<float>   exact(size_t(ne0[0] * ne0[1] * ne0[2] * ne0[3])); // the weights as they are stored
    const size_t         row_bytes = ggml_row_size(scene.type, ne0[0]);
    std::vector<uint8_t> row(row_bytes);
    const auto *         traits = ggml_get_type_traits(scene.type);
    for (int64_t n = 0; n < ne0[1] * ne0[2] * ne0[3]; ++n) {
        float * values = &exact[size_t(n * ne0[0])];
        for (int64_t k = 0; k < ne0[0]; ++k) {
            values[k] = float(scene.weight * (from.next() + 0.07));
        }
        ggml_quantize_chunk(scene.type, values, row.data(), 0, 1, ne0[0], nullptr);
        traits->to_float(row.data(), values, ne0[0]);
        const size_t at = place(weights, n % ne0[1], n / ne0[1] % ne0[2], n / (ne0[1] * ne0[2]));
        ggml_backend_tensor_set(weights, row.data(), at, row_bytes);
    }
    std::vector<float> given(size_t(ne1[0] * ne1[1] * ne1[2] * ne1[3]));
    for (int64_t n = 0; n < ne1[1] * ne1[2] * ne1[3]; ++n) {
        float * values = &given[size_t(n * ne1[0])];
        for (int64_t k = 0; k < ne1[0]; ++k) {
            values[k] = float((n % 3 == 0 && k == n % ne1[0] ? 1.0 : 0.03 * from.next()) * scene.largest * (n % 7 != 5));
        }
        const size_t at = place(activations, n % ne1[1], n / ne1[1] % ne1[2], n / (ne1[1] * ne1[2]));
        ggml_backend_tensor_set(activations, values, at, size_t(ne1[0]) * sizeof(float));
    }
    std::vector<int32_t> taken(size_t(scene.used * scene.columns));
    for (int64_t token = 0; scene.experts != 0 && token < scene.columns; ++token) {
        for (int64_t n = 0; n < scene.used; ++n) {
            int64_t expert = (token * 7 + token / 5 + n) % scene.experts;
            if (scene.is_preferred) { // used is one
                expert = token % 3 != 0 ? 0 : token % 2 == 0 ? 2 : scene.experts - 1;
            }
            taken[size_t(token * scene.used + n)] = int32_t(expert);
        }
    }
    ggml_backend_tensor_set(ids, taken.data(), 0, taken.size() * sizeof(int32_t));

    if (ggml_backend_graph_compute(gpu, graph) != GGML_STATUS_SUCCESS) {
        refuse(std::string(scene.name) + " was not computed");
    }
    std::vector<float> got(size_t(ggml_nelements(result)));
    ggml_backend_tensor_get(result, got.data(), 0, got.size() * sizeof(float));

    double wrong = 0.0, all = 0.0;
    for (int64_t n = 0; n < result->ne[1] * result->ne[2] * result->ne[3]; ++n) {
        const int64_t i2 = n / result->ne[1] % result->ne[2], i3 = n / (result->ne[1] * result->ne[2]);
        int64_t       matrix = i3 / scene.shared[1] * ne0[2] + i2 / scene.shared[0], read = n;
        if (scene.experts != 0) {
            matrix = taken[size_t(n)];
            read   = scene.is_broadcast ? i2 : n;
        }
        const float * y = &given[size_t(read * ne1[0])];
        for (int64_t m = 0; m < ne0[1]; ++m) {
            const float * x   = &exact[size_t((matrix * ne0[1] + m) * ne0[0])];
            double        sum = 0.0;
            for (int64_t k = 0; k < ne0[0]; ++k) {
                sum += double(x[k]) * double(y[k]);
            }
            const double error = double(got[size_t(n * ne0[1] + m)]) - sum;
            wrong += error * error;
            all += sum * sum;
        }
    }
    std::printf("%s %.3e\n", scene.name, wrong / all);
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
}

// Whether the first columns are the same to the last bit beside more and less others, in blocks of other shapes; among the others
// are some that have no numbers.
bool is_same_in_any_batch(ggml_backend_t gpu) {
    constexpr int64_t      rows = 130, depth = 256, counts[] = {60, 150, 200}, most = 200;
    const ggml_init_params params{size_t(64) * ggml_tensor_overhead() + ggml_graph_overhead(), nullptr, true};
    ggml_context *         ctx         = ggml_init(params);
    ggml_tensor *          weights     = ggml_new_tensor_2d(ctx, GGML_TYPE_Q4_K, depth, rows);
    ggml_tensor *          activations = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, depth, most);
    ggml_cgraph *          graph       = ggml_new_graph(ctx);
    ggml_tensor *          results[3];
    for (int n = 0; n < 3; ++n) {
        results[n] = ggml_mul_mat(ctx, weights, ggml_view_2d(ctx, activations, depth, counts[n], activations->nb[1], 0));
        ggml_build_forward_expand(graph, results[n]);
    }
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(ctx, gpu);
    std::vector<float>    values = numbers(7).many(size_t(depth * most));
    std::vector<uint8_t>  stored(ggml_nbytes(weights));
    ggml_quantize_chunk(GGML_TYPE_Q4_K, values.data(), stored.data(), 0, rows, depth, nullptr);
    values[size_t(62 * depth + 3)] = NAN;
    values[size_t(63 * depth + 3)] = INFINITY;
    ggml_backend_tensor_set(activations, values.data(), 0, ggml_nbytes(activations));
    ggml_backend_tensor_set(weights, stored.data(), 0, stored.size());
    if (ggml_backend_graph_compute(gpu, graph) != GGML_STATUS_SUCCESS) {
        refuse("any-batch was not computed");
    }
    std::vector<float> got[3];
    for (int n = 0; n < 3; ++n) {
        got[n].resize(size_t(rows * counts[0]));
        ggml_backend_tensor_get(results[n], got[n].data(), 0, got[n].size() * sizeof(float));
    }
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
    return std::memcmp(got[0].data(), got[1].data(), got[0].size() * sizeof(float)) == 0 &&
           std::memcmp(got[0].data(), got[2].data(), got[0].size() * sizeof(float)) == 0;
}

}  // namespace

int main(int argc, char ** argv) {
    const backends with(argc, argv);
    for (const product & scene : SCENES) {
        if (argc == 2 || std::strcmp(scene.name, argv[2]) == 0) {
            run(scene, with.gpu);
        }
    }
    if (argc == 2) {
        std::printf("any-batch %s\n", is_same_in_any_batch(with.gpu) ? "same" : "differs");
    }
    return 0;
}
