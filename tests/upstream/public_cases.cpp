// Single operations in the shapes and with the numbers that public reports name: the GPU's result against the CPU's.
//
//   public_cases FOLDER [CASE]...
//
// FOLDER has the backends. A CASE is one argument of words:
//   attention HSK HSV KV_HEADS RATIO ROWS TOKENS   F16 cache, with a mask; RATIO query heads for each head of K and V
//   topk COLUMNS ROWS K NUMBERS                    NUMBERS: random ties equal inf minus-inf nan some-nan some-inf masked
//   product TYPE ROWS COLUMNS TOKENS
//   experts TYPE ROWS COLUMNS TOKENS               of 4 experts each token takes 2
// For each a line with the case and "right", "unsupported" or "wrong: ...".

#include "scenes/graphs.hpp"

#include "ggml-alloc.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <set>
#include <sstream>

namespace {

// Of the squared difference to the CPU, for each squared number of the CPU's: what test-backend-ops asks for.
constexpr double MOST_PRODUCT = 5e-4;

using values = std::vector<float>;
using bytes  = std::vector<uint8_t>;

// A graph of one operation; what its inputs hold, by name, is the same on every backend.
struct scene {
    ggml_context *                   ctx = ggml_init({64 * ggml_tensor_overhead() + ggml_graph_overhead(), nullptr, true});
    ggml_tensor *                    out = nullptr;
    std::map<ggml_tensor *, bytes>   inputs;

    ~scene() { ggml_free(ctx); }

    ggml_tensor * input(ggml_tensor * one, const values & made) {
        bytes written(ggml_nbytes(one));
        if (one->type == GGML_TYPE_F32) {
            std::memcpy(written.data(), made.data(), written.size());
        } else if (one->type == GGML_TYPE_F16) {
            ggml_fp32_to_fp16_row(made.data(), reinterpret_cast<ggml_fp16_t *>(written.data()), int64_t(made.size()));
        } else {
            // The search for good scales takes long: a few rows, again and again. Some types refuse to be made without weights.
            const int64_t width = one->ne[0], rows = ggml_nrows(one), different = std::min<int64_t>(rows, 8);
            const values  weights(size_t(width), 1.0f);
            ggml_quantize_init(one->type);
            ggml_quantize_chunk(one->type, made.data(), written.data(), 0, different, width, weights.data());
            for (int64_t row = different; row < rows; ++row) {
                std::memcpy(&written[size_t(row) * one->nb[1]], &written[size_t(row % different) * one->nb[1]], one->nb[1]);
            }
        }
        inputs[one] = written;
        return one;
    }

    ggml_tensor * random(ggml_tensor * one, uint64_t seed) {
        numbers drawn(seed);
        values  made(size_t(ggml_nelements(one)));
        for (float & each : made) {
            each = float(drawn.next());
        }
        return input(one, made);
    }
};

void attention(scene & made, std::istringstream & words) {
    int64_t hsk = 0, hsv = 0, heads = 0, ratio = 0, rows = 0, tokens = 0;
    words >> hsk >> hsv >> heads >> ratio >> rows >> tokens;
    ggml_tensor * q = made.random(ggml_new_tensor_4d(made.ctx, GGML_TYPE_F32, hsk, tokens, heads * ratio, 1), 1);
    ggml_tensor * k = made.random(ggml_new_tensor_4d(made.ctx, GGML_TYPE_F16, hsk, rows, heads, 1), 2);
    // Deepseek's V is the front of its K, and upstream has kernels that count on it.
    ggml_tensor * v = hsk == 576 ? ggml_view_4d(made.ctx, k, hsv, rows, heads, 1, k->nb[1], k->nb[2], k->nb[3], 0)
                                 : made.random(ggml_new_tensor_4d(made.ctx, GGML_TYPE_F16, hsv, rows, heads, 1), 3);
#ifdef GGML_KQ_MASK_PAD
    const int64_t mask_rows = GGML_PAD(tokens, GGML_KQ_MASK_PAD);
#else
    const int64_t mask_rows = tokens;
#endif
    ggml_tensor * mask = ggml_new_tensor_4d(made.ctx, GGML_TYPE_F16, rows, mask_rows, 1, 1);
    values        seen(size_t(rows * mask_rows), 0.0f);
    for (int64_t token = 0; token < mask_rows; ++token) {
        for (int64_t row = rows - tokens + token + 1; row < rows; ++row) {
            seen[size_t(token * rows + row)] = -std::numeric_limits<float>::infinity();
        }
    }
    made.input(mask, seen);
    made.out = ggml_flash_attn_ext(made.ctx, q, k, v, mask, 1.0f / std::sqrt(float(hsk)), 0.0f, 0.0f);
    ggml_flash_attn_ext_set_prec(made.out, GGML_PREC_F32);
}

void top_k(scene & made, std::istringstream & words) {
    int64_t     columns = 0, rows = 0, k = 0;
    std::string kind;
    words >> columns >> rows >> k >> kind;
    const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    numbers     drawn(7);
    values      held(size_t(columns * rows));
    for (size_t at = 0; at < held.size(); ++at) {
        const float one   = float(drawn.next());
        const bool  often = drawn.next() > 0.5f;
        held[at]          = kind == "random"      ? one
                            : kind == "ties"      ? std::floor(one * 3.0f)
                            : kind == "equal"     ? 0.25f
                            : kind == "inf"       ? inf
                            : kind == "minus-inf" ? -inf
                            : kind == "nan"       ? nan
                            : kind == "some-nan"  ? (often ? nan : one)
                            : kind == "some-inf"  ? (often ? inf : one)
                            : kind == "masked"    ? (int64_t(at) % columns < k / 2 ? one : -inf)
                                                  : (refuse("unknown numbers " + kind), 0.0f);
    }
    ggml_tensor * in = made.input(ggml_new_tensor_2d(made.ctx, GGML_TYPE_F32, columns, rows), held);
    made.out         = ggml_top_k(made.ctx, in, int(k));
}

ggml_type type_of(const std::string & name) {
    for (int at = 0; at < GGML_TYPE_COUNT; ++at) {
        const char * known = ggml_type_name(ggml_type(at));
        if (known != nullptr && name == known) {
            return ggml_type(at);
        }
    }
    refuse("unknown type " + name);
}

void product(scene & made, std::istringstream & words, bool of_experts) {
    std::string type;
    int64_t     rows = 0, columns = 0, tokens = 0;
    words >> type >> rows >> columns >> tokens;
    if (!of_experts) {
        ggml_tensor * weights = made.random(ggml_new_tensor_2d(made.ctx, type_of(type), columns, rows), 1);
        made.out = ggml_mul_mat(made.ctx, weights, made.random(ggml_new_tensor_2d(made.ctx, GGML_TYPE_F32, columns, tokens), 2));
        return;
    }
    ggml_tensor * weights = made.random(ggml_new_tensor_3d(made.ctx, type_of(type), columns, rows, 4), 1);
    ggml_tensor * in      = made.random(ggml_new_tensor_3d(made.ctx, GGML_TYPE_F32, columns, 1, tokens), 2);
    ggml_tensor * ids     = ggml_new_tensor_2d(made.ctx, GGML_TYPE_I32, 2, tokens);
    std::vector<int32_t> chosen(size_t(2 * tokens));
    for (size_t at = 0; at < chosen.size(); ++at) {
        chosen[at] = int32_t(at % 2 == 0 ? at / 2 % 4 : (at / 2 + 1 + at / 8) % 4 == at / 2 % 4 ? (at / 2 + 2) % 4 : (at / 2 + 1 + at / 8) % 4);
    }
    bytes & written = made.inputs[ids];
    written.resize(chosen.size() * sizeof(int32_t));
    std::memcpy(written.data(), chosen.data(), written.size());
    made.out = ggml_mul_mat_id(made.ctx, weights, in, ids);
}

void make(scene & made, const std::string & asked) {
    std::istringstream words(asked);
    std::string        what;
    words >> what;
    if (what == "attention") {
        attention(made, words);
    } else if (what == "topk") {
        top_k(made, words);
    } else if (what == "product" || what == "experts") {
        product(made, words, what == "experts");
    } else {
        refuse("unknown case " + asked);
    }
    if (!words) {
        refuse("words are missing in: " + asked);
    }
}

// Empty where the backend does not have the operation.
bytes result_of(const std::string & asked, ggml_backend_t backend) {
    scene made;
    make(made, asked);
    if (!ggml_backend_supports_op(backend, made.out)) {
        return {};
    }
    ggml_cgraph * graph = ggml_new_graph(made.ctx);
    ggml_build_forward_expand(graph, made.out);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(made.ctx, backend);
    if (buffer == nullptr) {
        refuse("no memory for " + asked);
    }
    for (const auto & [tensor, held] : made.inputs) {
        ggml_backend_tensor_set(tensor, held.data(), 0, held.size());
    }
    if (ggml_backend_graph_compute(backend, graph) != GGML_STATUS_SUCCESS) {
        refuse("not computed: " + asked);
    }
    bytes got(ggml_nbytes(made.out));
    ggml_backend_tensor_get(made.out, got.data(), 0, got.size());
    ggml_backend_buffer_free(buffer);
    return got;
}

std::string compare_floats(const bytes & gpu, const bytes & cpu) {
    double off = 0.0, size = 0.0;
    for (size_t at = 0; at < gpu.size(); at += sizeof(float)) {
        float mine = 0.0f, theirs = 0.0f;
        std::memcpy(&mine, &gpu[at], sizeof(float));
        std::memcpy(&theirs, &cpu[at], sizeof(float));
        off += (double(mine) - theirs) * (double(mine) - theirs);
        size += double(theirs) * theirs;
    }
    const double nmse = off / size;
    return nmse <= MOST_PRODUCT ? "right" : "wrong: error " + std::to_string(nmse);
}

// Each row names K columns of it, none twice, and no number that was left is larger than one that was taken.
// How NaN compares is nowhere said; its columns may be taken or left.
std::string look_at_top_k(const std::string & asked, const bytes & gpu) {
    scene made;
    make(made, asked);
    const bytes & held    = made.inputs.at(made.out->src[0]);
    const int64_t columns = made.out->src[0]->ne[0], rows = made.out->src[0]->ne[1], k = made.out->ne[0];
    const auto *  all     = reinterpret_cast<const float *>(held.data());
    const auto *  taken   = reinterpret_cast<const int32_t *>(gpu.data());
    for (int64_t row = 0; row < rows; ++row) {
        const std::set<int32_t> chosen(taken + row * k, taken + (row + 1) * k);
        if (*chosen.begin() < 0 || *chosen.rbegin() >= columns) {
            return "wrong: column " + std::to_string(*chosen.begin() < 0 ? *chosen.begin() : *chosen.rbegin()) + " in row " + std::to_string(row);
        }
        if (int64_t(chosen.size()) != k) {
            return "wrong: " + std::to_string(chosen.size()) + " different columns in row " + std::to_string(row);
        }
        float least = std::numeric_limits<float>::infinity(), most = -std::numeric_limits<float>::infinity();
        for (int32_t column = 0; column < columns; ++column) {
            const float one = all[row * columns + column];
            if (chosen.count(column) != 0) {
                least = std::fmin(least, one);
            } else {
                most = std::fmax(most, one);
            }
        }
        if (most > least) {
            return "wrong: a larger number was left in row " + std::to_string(row);
        }
    }
    return "right";
}

}  // namespace

int main(int argc, char ** argv) {
    const backends with(argc, argv);
    for (int at = 2; at < argc; ++at) {
        const std::string asked = argv[at];
        const bytes       got   = result_of(asked, with.gpu);
        const std::string said  = got.empty()               ? "unsupported"
                                  : asked.rfind("topk", 0) == 0 ? look_at_top_k(asked, got)
                                                                : compare_floats(got, result_of(asked, with.cpu));
        std::printf("%s: %s\n", asked.c_str(), said.c_str());
        std::fflush(stdout);
    }
    return 0;
}
