// Scenes for the patches of kernels, each a small graph.
//
//   scenes FOLDER PATCH [SCENE]...
//
// FOLDER has the backends. Computes the scenes of a patch, or those that are named; a name may end with "*". A scene whose results are
// to be upstream's bits has a line for each round and result, the others have one with "right" or "wrong" and the error. A name with
// "not-" in it is of a scene that the patch leaves to upstream's kernels, "in-part" of one that it leaves to them in part.

#include "activations.hpp"
#include "attention.hpp"
#include "attention_inputs.hpp"
#include "norms.hpp"
#include "prefill_matmuls.hpp"
#include "ropes.hpp"

namespace {

// Each runs with the patch and with what the patch needs: the table of patches in test_kernel_patches.py has both.
const std::pair<const char *, const table &> PATCHES[] = {
    {"reuse-q8-1-activations", ACTIVATIONS},
    {"moe-sum-coalesce", EXPERT_SUMS},
    {"fattn-wmma-prefill", PREFILL_ATTENTION},
    {"mul-mat-wmma-prefill", PREFILL_MATMULS},
    {"fuse-norm-q8-1", NORMS},
    {"fuse-norm-q8-1", SUMS},
    {"fuse-norm-q8-1", ATTENTION_INPUTS},
    {"rope-block-size", ROPES},
    {"fattn-vec-heads-first", DECODE_ATTENTION},
    {"fattn-vec-gqa-heads", DECODE_GQA},
};

bool is_named(const std::string & name, int argc, char ** argv) {
    return argc == 3 || std::any_of(argv + 3, argv + argc, [&](const std::string & word) {
        return word.back() == '*' ? name.compare(0, word.size() - 1, word, 0, word.size() - 1) == 0 : name == word;
    });
}

double error_of(const std::vector<float> & got, const std::vector<float> & right) {
    double wrong = got.size() == right.size() ? 0.0 : INFINITY, all = 0.0;
    for (size_t i = 0; i < std::min(got.size(), right.size()); ++i) {
        wrong += (double(got[i]) - double(right[i])) * (double(got[i]) - double(right[i]));
        all += double(right[i]) * double(right[i]);
    }
    return wrong / all;
}

void run(const row & one, const backends & with) {
    scene on_gpu(with.gpu, with.cpu);
    one.build(on_gpu);
    if (one.largest_error == 0.0) {
        on_gpu.print_bits(one.name);
        return;
    }
    scene exact(nullptr, with.cpu);
    one.build(exact);
    const double error = error_of(on_gpu.values(one.name), exact.values(one.name));
    std::printf("%s %s %.1e\n", one.name, error < one.largest_error ? "right" : "wrong", error);
}

}  // namespace

int main(int argc, char ** argv) {
    const backends with(argc, argv);
    int            ran = 0;
    for (const auto & [patch, rows] : PATCHES) {
        for (const row & one : rows) {
            if (argc > 2 && std::string(argv[2]) == patch && is_named(one.name, argc, argv)) {
                run(one, with);
                ++ran;
            }
        }
    }
    if (ran == 0) {
        refuse("there is no such scene");
    }
    return 0;
}
