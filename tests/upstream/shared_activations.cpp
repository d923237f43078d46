// Products that read one activation, and what may come between them: prints every result to the last bit.
//
//   shared_activations FOLDER [SCENE]
//
// FOLDER has the backends. Each scene is a small graph, allocated once and computed five times, each time from other numbers:
// with HIP graphs the first two run directly, the third is captured, the others are replayed. Per scene, round and result one
// line; "same-place 1" says that two tensors of the scene share an address, where the scene is about that.

#include "ggml.h"
#include "ggml-alloc.h"
#include "ggml-backend.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr int64_t WIDTH  = 512;
constexpr int     ROUNDS = 5;

[[noreturn]] void refuse(const std::string & what) {
    std::fprintf(stderr, "shared_activations: %s\n", what.c_str());
    std::exit(2);
}

std::vector<float> numbers(size_t count, uint64_t seed) {
    std::vector<float> made(count);
    uint64_t state = seed * 0x9E3779B97F4A7C15ull + 1;
    for (float & one : made) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        one = float(double(state >> 11) * 0x1p-53 * 2.0 - 1.0);
    }
    return made;
}

// A scene's tensors while it is put together: weights lie in the GPU's memory before, all else is the scheduler's.
class scene {
  public:
    scene(ggml_backend_t gpu, ggml_backend_t cpu) : gpu(gpu), cpu(cpu) {
        const ggml_init_params params{size_t(64) * ggml_tensor_overhead() + ggml_graph_overhead(), nullptr, true};
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

    ggml_tensor * weight(ggml_type type, int64_t rows = 64, int64_t width = WIDTH) {
        weights.push_back(ggml_new_tensor_2d(of_weights, type, width, rows));
        return weights.back();
    }

    ggml_tensor * input(int64_t columns, int64_t width = WIDTH) {
        inputs.push_back(ggml_new_tensor_2d(of_graph, GGML_TYPE_F32, width, columns));
        ggml_set_input(inputs.back());
        return inputs.back();
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

    void compute(ggml_tensor * one) { ggml_build_forward_expand(graph, one); }

    // Says in the output whether both lie at one address.
    void expect_same_place(ggml_tensor * one, ggml_tensor * other) { places.emplace_back(one, other); }

    ggml_context * ctx() { return of_graph; }

    void run(const std::string & name) {
        buffer = ggml_backend_alloc_ctx_tensors(of_weights, gpu);
        ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
        uint64_t seed = 1;
        for (ggml_tensor * one : weights) {
            const std::vector<float> wanted = numbers(size_t(ggml_nelements(one)), seed++);
            std::vector<uint8_t>     packed(ggml_nbytes(one));
            ggml_quantize_chunk(one->type, wanted.data(), packed.data(), 0, one->ne[1], one->ne[0], nullptr);
            ggml_backend_tensor_set(one, packed.data(), 0, packed.size());
        }
        ggml_backend_t       backends[] = {gpu, cpu};
        ggml_backend_sched_t sched      = ggml_backend_sched_new(backends, nullptr, 2, 256, false, true);
        for (ggml_tensor * one : inputs) {
            ggml_backend_sched_set_tensor_backend(sched, one, gpu);
        }
        if (!ggml_backend_sched_alloc_graph(sched, graph)) {
            refuse("no memory for " + name);
        }
        for (const auto & [one, other] : places) {
            std::printf("%s same-place %d\n", name.c_str(), one->data == other->data);
        }
        for (int round = 0; round < ROUNDS; ++round) {
            for (ggml_tensor * one : inputs) {
                const std::vector<float> wanted = numbers(size_t(ggml_nelements(one)), 1000 * seed++);
                ggml_backend_tensor_set(one, wanted.data(), 0, ggml_nbytes(one));
            }
            if (ggml_backend_sched_graph_compute(sched, graph) != GGML_STATUS_SUCCESS) {
                refuse(name + " was not computed");
            }
            for (size_t i = 0; i < results.size(); ++i) {
                print(name, round, i);
            }
        }
        ggml_backend_sched_free(sched);
    }

  private:
    void print(const std::string & name, int round, size_t i) {
        std::vector<float> got(size_t(ggml_nelements(results[i])));
        ggml_backend_tensor_get(results[i], got.data(), 0, got.size() * sizeof(float));
        std::printf("%s round %d result %zu:", name.c_str(), round, i);
        for (size_t k = 0; k < got.size(); k += (got.size() + 15) / 16) {
            std::printf(" %a", double(got[k]));
        }
        std::printf("\n");
    }

    ggml_backend_t            gpu, cpu;
    ggml_context *            of_weights = nullptr;
    ggml_context *            of_graph   = nullptr;
    ggml_cgraph *             graph      = nullptr;
    ggml_backend_buffer_t     buffer     = nullptr;
    std::vector<ggml_tensor *> weights, inputs, results;
    std::vector<std::pair<ggml_tensor *, ggml_tensor *>> places;
};

// What each scene puts together. One column is the vector kernel's, 64 are the matrix kernel's.
const std::map<std::string, std::function<void(scene &)>> SCENES = {
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
    // The last product of a round reads what the first one of the next round reads.
    {"rounds", [](scene & s) { s.product(s.weight(GGML_TYPE_Q4_K), s.input(1)); }},
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

int main(int argc, char ** argv) {
    if (argc < 2) {
        refuse("shared_activations FOLDER [SCENE]");
    }
    ggml_backend_load_all_from_path(argv[1]);
    ggml_backend_t gpu = ggml_backend_init_by_name("ROCm0", nullptr);
    ggml_backend_t cpu = ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, nullptr);
    if (gpu == nullptr || cpu == nullptr) {
        refuse("there is no ROCm0, or no CPU");
    }
    for (const auto & [name, put_together] : SCENES) {
        if (argc > 2 && name != argv[2]) {
            continue;
        }
        scene made(gpu, cpu);
        put_together(made);
        made.run(name);
    }
    ggml_backend_free(gpu);
    ggml_backend_free(cpu);
    return 0;
}
