// A scene: a small graph, computed on the GPU. Its results are printed to the last bit, or compared with exact ones.
#pragma once

#include "graphs.hpp"

#include "ggml-alloc.h"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

inline constexpr int64_t WIDTH  = 512;
inline constexpr int     ROUNDS = 5;

using ranges = std::vector<std::pair<int64_t, int64_t>>;

// The tensors of a scene while it is built: weights and masks have memory from the start, all else gets it from the scheduler.
class scene {
  public:
    // Without a GPU the CPU computes everything, and from weights that are f32 with the values that are stored.
    scene(ggml_backend_t gpu, ggml_backend_t cpu) : gpu(gpu), cpu(cpu) {
        const ggml_init_params params{size_t(96) * ggml_tensor_overhead() + ggml_graph_overhead(), nullptr, true};
        of_weights = ggml_init(params);
        of_masks   = ggml_init(params);
        of_graph   = ggml_init(params);
        graph      = ggml_new_graph(of_graph);
    }

    ~scene() {
        ggml_backend_sched_free(sched);
        for (ggml_backend_buffer_t buffer : buffers) {
            ggml_backend_buffer_free(buffer);
        }
        ggml_free(of_weights);
        ggml_free(of_masks);
        ggml_free(of_graph);
    }

    scene(const scene &) = delete;
    scene & operator=(const scene &) = delete;

    ggml_tensor * weight(ggml_type type, int64_t rows = 64, int64_t width = WIDTH, int64_t many = 1) {
        return constant(type, {width, rows, many, 1}, {});
    }

    // Weights of these values; without any they are random.
    ggml_tensor * constant(ggml_type type, std::array<int64_t, 4> ne, std::vector<float> values) {
        ggml_tensor * made = ggml_new_tensor(of_weights, is_exact() ? GGML_TYPE_F32 : type, 4, ne.data());
        weights.push_back({made, type, std::move(values)});
        return made;
    }

    // Rows that graphs write to; nothing but zeros in the beginning, printed as one number after each round.
    ggml_tensor * cache(int64_t width, int64_t rows = 16, ggml_type type = GGML_TYPE_F16) {
        caches.push_back(ggml_new_tensor_2d(of_weights, type, width, rows));
        return caches.back();
    }

    // Whole numbers, i32 or i64, each one more in every round.
    ggml_tensor * whole(ggml_type type, std::vector<int64_t> first, int64_t columns = 1) {
        ggml_tensor * made = ggml_new_tensor_2d(of_graph, type, int64_t(first.size()) / columns, columns);
        ggml_set_input(made);
        wholes.emplace_back(made, std::move(first));
        return made;
    }

    // Whole numbers that stay as they are.
    ggml_tensor * numbers_of(std::vector<int32_t> given, int64_t rows_of) {
        ggml_tensor * made = ggml_new_tensor_2d(of_weights, GGML_TYPE_I32, rows_of, int64_t(given.size()) / rows_of);
        fixed.emplace_back(made, std::move(given));
        return made;
    }

    // Which rows of the KV cache each token of each sequence sees, from the first of a range to before the second. It has a buffer of its
    // own, so that the checks see a kernel that reads past its end; test-backend-ops puts all tensors of a case into one buffer.
    ggml_tensor * mask(int64_t rows, int64_t tokens, std::vector<ranges> seen) {
        ggml_tensor * made = ggml_new_tensor_4d(of_masks, GGML_TYPE_F16, rows, tokens, 1, int64_t(seen.size()) / tokens);
        masks.emplace_back(made, std::move(seen));
        return made;
    }

    ggml_tensor * input(int64_t columns, int64_t width = WIDTH) {
        inputs.push_back(ggml_new_tensor_2d(of_graph, GGML_TYPE_F32, width, columns));
        ggml_set_input(inputs.back());
        return inputs.back();
    }

    // What the graph computes where this is called, so that its memory can be used again.
    ggml_tensor * made(int64_t columns = 1, int64_t width = WIDTH) {
        ggml_tensor * one = ggml_scale(of_graph, input(columns, width), 2.0f);
        compute(one);
        return one;
    }

    // The next product of the graph: in the order of these calls, whatever it depends on.
    ggml_tensor * product(ggml_tensor * by, ggml_tensor * of) {
        ggml_tensor * made = ggml_mul_mat(of_graph, by, of);
        result(made);
        return made;
    }

    void result(ggml_tensor * one) {
        ggml_set_output(one);
        compute(one);
        results.push_back(one);
    }

    // Only one of these results is computed in a round, and another one in the next.
    void take_turns(std::vector<ggml_tensor *> nodes) { turns = std::move(nodes); }

    // The node again, so many times more.
    void repeat(ggml_tensor * node, int times) {
        for (int i = 0; i < times; ++i) {
            ggml_graph_add_node(graph, node);
        }
    }

    void compute(ggml_tensor * one) { ggml_build_forward_expand(graph, one); }

    // The scene is about two tensors at one address; the program fails where they are not.
    void expect_same_place(ggml_tensor * one, ggml_tensor * other) { places.emplace_back(one, other); }

    // All results have the same bits; the program prints "wrong" where they have not.
    void expect_same_results() { has_same_results = true; }

    ggml_context * ctx() { return of_graph; }

    // Each round from other numbers. With HIP graphs the first two run directly, the third is captured, the others are replayed.
    void print_bits(const std::string & name) {
        allocate(name);
        for (int round = 0; round < ROUNDS; ++round) {
            compute_round(name, round);
            for (size_t i = 0; i < results.size(); ++i) {
                print(name, round, i);
            }
            for (ggml_tensor * one : caches) {
                std::printf("%s round %d cache %016" PRIx64 "\n", name.c_str(), round, hash_of(one));
            }
        }
    }

    // The values of one round, all results in a row.
    std::vector<float> values(const std::string & name) {
        allocate(name);
        compute_round(name, 0);
        std::vector<float> all;
        for (ggml_tensor * one : results) {
            std::vector<float> got(size_t(ggml_nelements(one)));
            ggml_backend_tensor_get(one, got.data(), 0, ggml_nbytes(one));
            if (has_same_results && !all.empty() && std::memcmp(all.data(), got.data(), ggml_nbytes(one)) != 0) {
                return {};
            }
            all.insert(all.end(), got.begin(), got.end());
        }
        return all;
    }

  private:
    struct weight_of {
        ggml_tensor *      tensor;
        ggml_type          stored_as;
        std::vector<float> values;
    };

    bool is_exact() const { return gpu == nullptr; }

    void allocate(const std::string & name) {
        ggml_backend_t main = is_exact() ? cpu : gpu;
        for (ggml_context * with : {of_weights, of_masks}) {
            if (ggml_get_first_tensor(with) != nullptr) {
                buffers.push_back(ggml_backend_alloc_ctx_tensors(with, main));
                ggml_backend_buffer_set_usage(buffers.back(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
            }
        }
        for (weight_of & one : weights) {
            fill(one);
        }
        for (ggml_tensor * one : caches) {
            ggml_backend_tensor_memset(one, 0, 0, ggml_nbytes(one));
        }
        for (const auto & [one, seen] : masks) {
            std::vector<ggml_fp16_t> shown(size_t(ggml_nelements(one)), ggml_fp32_to_fp16(-INFINITY));
            for (size_t i = 0; i < seen.size(); ++i) {
                for (const auto & [from, to] : seen[i]) {
                    std::fill(shown.begin() + i * one->ne[0] + from, shown.begin() + i * one->ne[0] + to, ggml_fp32_to_fp16(0.0f));
                }
            }
            ggml_backend_tensor_set(one, shown.data(), 0, ggml_nbytes(one));
        }
        for (const auto & [one, given] : fixed) {
            ggml_backend_tensor_set(one, given.data(), 0, ggml_nbytes(one));
        }
        ggml_backend_t both[] = {gpu, cpu};
        sched = ggml_backend_sched_new(is_exact() ? &cpu : both, nullptr, is_exact() ? 1 : 2, 256, false, true);
        for (ggml_tensor * one : inputs) {
            ggml_backend_sched_set_tensor_backend(sched, one, main);
        }
        for (const auto & one : wholes) {
            ggml_backend_sched_set_tensor_backend(sched, one.first, main);
        }
        if (!ggml_backend_sched_alloc_graph(sched, graph)) {
            refuse("no memory for " + name);
        }
        for (const auto & [one, other] : places) {
            if (one->data != other->data) {
                refuse(name + " is about two tensors at one address, and they are at two");
            }
        }
    }

    void fill(weight_of & one) {
        if (one.values.empty()) {
            one.values = numbers(seed++).many(size_t(ggml_nelements(one.tensor)));
        }
        const int64_t        width = one.tensor->ne[0], rows = ggml_nrows(one.tensor);
        std::vector<uint8_t> packed(ggml_row_size(one.stored_as, width) * size_t(rows));
        ggml_quantize_chunk(one.stored_as, one.values.data(), packed.data(), 0, rows, width, nullptr);
        if (one.tensor->type == one.stored_as) {
            ggml_backend_tensor_set(one.tensor, packed.data(), 0, packed.size());
        } else {
            ggml_get_type_traits(one.stored_as)->to_float(packed.data(), one.values.data(), ggml_nelements(one.tensor));
            ggml_backend_tensor_set(one.tensor, one.values.data(), 0, ggml_nbytes(one.tensor));
        }
    }

    void compute_round(const std::string & name, int round) {
        for (ggml_tensor * one : inputs) {
            const std::vector<float> wanted = numbers(1000 * seed++).many(size_t(ggml_nelements(one)));
            ggml_backend_tensor_set(one, wanted.data(), 0, ggml_nbytes(one));
        }
        for (const auto & [one, first] : wholes) {
            if (one->buffer != nullptr) { // else nobody reads it
                put(one, first, round);
            }
        }
        for (size_t i = 0; i < turns.size(); ++i) {
            const bool is_next = i == size_t(round) % turns.size();
            turns[i]->flags    = is_next ? turns[i]->flags | GGML_TENSOR_FLAG_COMPUTE : turns[i]->flags & ~GGML_TENSOR_FLAG_COMPUTE;
        }
        if (ggml_backend_sched_graph_compute(sched, graph) != GGML_STATUS_SUCCESS) {
            refuse(name + " was not computed");
        }
    }

    static void put(ggml_tensor * tensor, const std::vector<int64_t> & first, int round) {
        for (size_t i = 0; i < first.size(); ++i) {
            const int64_t wide   = first[i] + round;
            const int32_t narrow = int32_t(wide);
            const bool    is_wide = tensor->type == GGML_TYPE_I64;
            const size_t  size    = is_wide ? sizeof(wide) : sizeof(narrow);
            ggml_backend_tensor_set(tensor, is_wide ? (const void *) &wide : (const void *) &narrow, i * size, size);
        }
    }

    void print(const std::string & name, int round, size_t i) {
        std::vector<float> got(size_t(ggml_nelements(results[i])));
        ggml_backend_tensor_get(results[i], got.data(), 0, got.size() * sizeof(float));
        std::printf("%s round %d result %zu:", name.c_str(), round, i);
        for (size_t k = 0; k < got.size(); k += (got.size() + 15) / 16) {
            std::printf(" %a", double(got[k]));
        }
        std::printf(" of %016" PRIx64 "\n", hash_of(results[i]));
    }

    ggml_backend_t             gpu, cpu;
    ggml_context *             of_weights       = nullptr;
    ggml_context *             of_masks         = nullptr;
    ggml_context *             of_graph         = nullptr;
    ggml_cgraph *              graph            = nullptr;
    ggml_backend_sched_t       sched            = nullptr;
    uint64_t                   seed             = 1;
    bool                       has_same_results = false;
    std::vector<ggml_backend_buffer_t> buffers;
    std::vector<weight_of>     weights;
    std::vector<ggml_tensor *> inputs, results, caches, turns;
    std::vector<std::pair<ggml_tensor *, std::vector<int64_t>>> wholes;
    std::vector<std::pair<ggml_tensor *, std::vector<int32_t>>> fixed;
    std::vector<std::pair<ggml_tensor *, ggml_tensor *>> places;
    std::vector<std::pair<ggml_tensor *, std::vector<ranges>>> masks;
};

// A row of the tables: a scene's results are upstream's to the last bit, or as near to the exact ones as `largest_error` says
// (the sum of squared errors over that of squares).
struct row {
    const char * name;
    void (*build)(scene &);
    double largest_error = 0.0;
};

using table = std::vector<row>;
