// Small graphs of ggml's, put together by hand, computed on the GPU and printed to the last bit.
#pragma once

#include "graphs.hpp"

#include "ggml-alloc.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

inline constexpr int64_t WIDTH  = 512;
inline constexpr int     ROUNDS = 5;

using ranges = std::vector<std::pair<int64_t, int64_t>>;

// A scene's tensors while it is put together: weights lie in the GPU's memory before, all else is the scheduler's.
class scene {
  public:
    scene(ggml_backend_t gpu, ggml_backend_t cpu) : gpu(gpu), cpu(cpu) {
        const ggml_init_params params{size_t(96) * ggml_tensor_overhead() + ggml_graph_overhead(), nullptr, true};
        of_weights = ggml_init(params);
        of_graph   = ggml_init(params);
        graph      = ggml_new_graph(of_graph);
    }

    ~scene() {
        ggml_backend_buffer_free(buffer);
        ggml_free(of_weights);
        ggml_free(of_graph);
    }

    scene(const scene &) = delete;
    scene & operator=(const scene &) = delete;

    ggml_tensor * weight(ggml_type type, int64_t rows = 64, int64_t width = WIDTH, int64_t many = 1) {
        weights.push_back(ggml_new_tensor_3d(of_weights, type, width, rows, many));
        return weights.back();
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

    // For attention of one token of each sequence: which of so many rows it sees, from the first to before the second.
    ggml_tensor * mask(int64_t rows, std::vector<ranges> seen) {
        ggml_tensor * made = ggml_new_tensor_4d(of_weights, GGML_TYPE_F16, rows, 1, 1, int64_t(seen.size()));
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

    // Says in the output whether both lie at one address.
    void expect_same_place(ggml_tensor * one, ggml_tensor * other) { places.emplace_back(one, other); }

    ggml_context * ctx() { return of_graph; }

    void run(const std::string & name) {
        buffer = ggml_backend_alloc_ctx_tensors(of_weights, gpu);
        ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
        uint64_t seed = 1;
        for (ggml_tensor * one : weights) {
            const std::vector<float> wanted = numbers(seed++).many(size_t(ggml_nelements(one)));
            std::vector<uint8_t>     packed(ggml_nbytes(one));
            ggml_quantize_chunk(one->type, wanted.data(), packed.data(), 0, ggml_nrows(one), one->ne[0], nullptr);
            ggml_backend_tensor_set(one, packed.data(), 0, packed.size());
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
        ggml_backend_t       backends[] = {gpu, cpu};
        ggml_backend_sched_t sched      = ggml_backend_sched_new(backends, nullptr, 2, 256, false, true);
        for (ggml_tensor * one : inputs) {
            ggml_backend_sched_set_tensor_backend(sched, one, gpu);
        }
        for (const auto & one : wholes) {
            ggml_backend_sched_set_tensor_backend(sched, one.first, gpu);
        }
        if (!ggml_backend_sched_alloc_graph(sched, graph)) {
            refuse("no memory for " + name);
        }
        for (const auto & [one, other] : places) {
            std::printf("%s same-place %d\n", name.c_str(), one->data == other->data);
        }
        for (int round = 0; round < ROUNDS; ++round) {
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
            for (size_t i = 0; i < results.size(); ++i) {
                print(name, round, i);
            }
            for (ggml_tensor * one : caches) {
                std::printf("%s round %d cache %016" PRIx64 "\n", name.c_str(), round, hash_of(one));
            }
        }
        ggml_backend_sched_free(sched);
    }

  private:
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

    ggml_backend_t            gpu, cpu;
    ggml_context *            of_weights = nullptr;
    ggml_context *            of_graph   = nullptr;
    ggml_cgraph *             graph      = nullptr;
    ggml_backend_buffer_t     buffer     = nullptr;
    std::vector<ggml_tensor *> weights, inputs, results, caches, turns;
    std::vector<std::pair<ggml_tensor *, std::vector<int64_t>>> wholes;
    std::vector<std::pair<ggml_tensor *, std::vector<int32_t>>> fixed;
    std::vector<std::pair<ggml_tensor *, ggml_tensor *>> places;
    std::vector<std::pair<ggml_tensor *, std::vector<ranges>>> masks;
};

using scenes = std::map<std::string, std::function<void(scene &)>>;

// The main function of a program of scenes: PROGRAM FOLDER [SCENE], where FOLDER has the backends.
inline int run_scenes(const scenes & all, int argc, char ** argv) {
    const backends with(argc, argv);
    for (const auto & [name, put_together] : all) {
        if (argc > 2 && name != argv[2]) {
            continue;
        }
        scene made(with.gpu, with.cpu);
        put_together(made);
        made.run(name);
    }
    return 0;
}
