// Computes single operations for the same tokens in batches of several widths, and compares the results with those of
// batches of one.
//
//   operation_widths MODULE DEVICE CASES WIDTHS
//
// MODULE is a backend library, DEVICE the name of one of its devices, WIDTHS numbers of tokens with commas between them.
// A line of CASES is an id and "name=value" words: op (see `graph` below), type (ggml type name of the weights, or of K
// and V), rows and columns (of the weights: outputs and inputs), experts and used (experts per token), size and size_v
// (head sizes of K and V), heads, kv_heads, kv (KV rows), sinks (0/1), softcap.
//
// There are as many tokens as the largest width. Each width processes them in order, in as many batches as fit, so a
// token is in another place of the batch with each width. Prints one line per case and width: "ID width=W rows=N
// equal=N nmse=X worst=Y at=TOKEN finite=0/1", where equal counts the tokens whose results are equal to the bit; or "ID
// unsupported".

#include "case_line.hpp"
#include "ggml.h"
#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "open_device.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

[[noreturn]] void refuse(const std::string & why) {
    end_driver("operation_widths", why);
}

namespace {

// Number "index" of a stream, between -1 and 1; the same on every machine.
float random_value(uint64_t stream, uint64_t index) {
    uint64_t x = stream * 0x9E3779B97F4A7C15ull + index * 0xD1B54A32D192ED03ull + 0x2545F4914F6CDD1Dull;
    x ^= x >> 30;
    x *= 0xBF58476D1CE4E5B9ull;
    x ^= x >> 27;
    x *= 0x94D049BB133111EBull;
    x ^= x >> 31;
    return float(double(x >> 11) * 0x1p-52 - 1.0);
}

// Older builds lack newer types.
bool is_type(const std::string & name) {
    for (int i = 0; i < GGML_TYPE_COUNT; ++i) {
        const char * known = ggml_type_name(ggml_type(i));
        if (known != nullptr && name == known) {
            return true;
        }
    }
    return false;
}

using kept_weights = std::map<uint64_t, std::vector<uint8_t>>;

// Blocks of codebook types: random bits after the block's scale, because quantizing to a codebook takes seconds.
std::vector<uint8_t> make_blocks(const ggml_tensor & t, uint64_t stream) {
    std::vector<uint8_t> packed(ggml_nbytes(&t));
    const size_t         each = ggml_type_size(t.type);
    for (size_t i = 0; i < packed.size(); ++i) {
        packed[i] = uint8_t(128.0f * (random_value(stream, i) + 1.0f));
    }
    for (size_t at = 0; at < packed.size(); at += each) {
        const ggml_fp16_t scale = ggml_fp32_to_fp16(0.01f * (1.5f + random_value(stream + 1, at)));
        std::memcpy(&packed[at], &scale, sizeof scale);
    }
    return packed;
}

std::vector<uint8_t> make_weights(const ggml_tensor & t, uint64_t stream, float spread) {
    if (std::strncmp(ggml_type_name(t.type), "iq", 2) == 0) {
        return make_blocks(t, stream);
    }
    std::vector<float> values(static_cast<size_t>(ggml_nelements(&t)));
    for (size_t i = 0; i < values.size(); ++i) {
        values[i] = spread * random_value(stream, i);
    }
    std::vector<uint8_t> packed(ggml_nbytes(&t));
    ggml_quantize_chunk(t.type, values.data(), packed.data(), 0, ggml_nrows(&t), t.ne[0], nullptr);
    return packed;
}

// Tensors that are filled before a graph is computed, and what the graph computes.
class graph {
  public:
    graph(const attention_case & described, int64_t first_token, int64_t tokens, kept_weights & kept) :
        c(described), first(first_token), count(tokens), packed_before(kept) {
        ctx = ggml_init({ggml_tensor_overhead() * 64 + ggml_graph_overhead(), nullptr, true});
        make();
    }

    ~graph() {
        ggml_backend_buffer_free(buffer);
        ggml_free(ctx);
    }

    graph(const graph &)             = delete;
    graph & operator=(const graph &) = delete;

    bool is_supported(ggml_backend_t backend) const {
        for (ggml_tensor * t = ggml_get_first_tensor(ctx); t != nullptr; t = ggml_get_next_tensor(ctx, t)) {
            if (t->op != GGML_OP_NONE && !ggml_backend_supports_op(backend, t)) {
                return false;
            }
        }
        return true;
    }

    // The results of each token.
    std::vector<std::vector<float>> compute(ggml_backend_t backend) {
        ggml_cgraph * nodes = ggml_new_graph(ctx);
        for (ggml_tensor * out : outs) {
            ggml_build_forward_expand(nodes, out);
        }
        buffer = ggml_backend_alloc_ctx_tensors(ctx, backend);
        if (buffer == nullptr) {
            refuse("case " + c.id + ": failed to allocate its tensors");
        }
        ggml_backend_buffer_clear(buffer, 0);
        for (const auto & fill : fills) {
            fill();
        }
        if (ggml_backend_graph_compute(backend, nodes) != GGML_STATUS_SUCCESS) {
            refuse("case " + c.id + " could not be computed");
        }
        std::vector<std::vector<float>> results(static_cast<size_t>(count));
        for (ggml_tensor * out : outs) {
            std::vector<float> values(static_cast<size_t>(ggml_nelements(out)));
            ggml_backend_tensor_get(out, values.data(), 0, ggml_nbytes(out));
            const auto each = std::ptrdiff_t(values.size() / size_t(count));
            for (int64_t t = 0; t < count; ++t) {
                results[size_t(t)].insert(results[size_t(t)].end(), values.begin() + t * each, values.begin() + (t + 1) * each);
            }
        }
        return results;
    }

  private:
    // The same for every batch, so they are quantized only once.
    ggml_tensor * weights(ggml_type type, int64_t columns, int64_t rows, int64_t many = 1, float spread = 1.0f) {
        ggml_tensor *  t      = ggml_new_tensor_3d(ctx, type, columns, rows, many);
        const uint64_t stream = ++streams;
        fills.emplace_back([this, t, stream, spread] {
            std::vector<uint8_t> & packed = packed_before[stream];
            if (packed.empty()) {
                packed = make_weights(*t, stream, spread);
            }
            ggml_backend_tensor_set(t, packed.data(), 0, packed.size());
        });
        return t;
    }

    // One slice of the last dimension for each token of the batch.
    ggml_tensor * inputs(int64_t columns, int64_t rows = 1, float spread = 1.0f) {
        ggml_tensor *  t      = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, columns, rows, count);
        const uint64_t stream = ++streams, from = uint64_t(first);
        fills.emplace_back([t, stream, from, spread] {
            const auto         each = uint64_t(t->ne[0] * t->ne[1]);
            std::vector<float> values(static_cast<size_t>(ggml_nelements(t)));
            for (size_t i = 0; i < values.size(); ++i) {
                values[i] = spread * random_value(stream, from * each + i);
            }
            ggml_backend_tensor_set(t, values.data(), 0, ggml_nbytes(t));
        });
        return t;
    }

    // One column for each token.
    ggml_tensor * columns_of_tokens(int64_t columns) { return ggml_reshape_2d(ctx, inputs(columns), columns, count); }

    void make() {
        const std::string & op = c.text("op");
        if (op == "FLASH_ATTN_EXT") {
            attention();
            return;
        }
        const ggml_type type    = c.type("type");
        const int64_t   columns = c.integer("columns"), rows = c.integer("rows");
        if (op == "MUL_MAT") {
            outs.push_back(ggml_mul_mat(ctx, weights(type, columns, rows), columns_of_tokens(columns)));
        } else if (op == "MUL_MAT_ID") {
            experts(type, columns, rows);
        } else if (op == "GLU") {
            // A gated feed-forward layer.
            ggml_tensor * in   = columns_of_tokens(columns);
            ggml_tensor * gate = ggml_mul_mat(ctx, weights(type, columns, rows), in);
            ggml_tensor * up   = ggml_mul_mat(ctx, weights(type, columns, rows), in);
            ggml_tensor * both = ggml_swiglu_split(ctx, gate, up);
            outs.push_back(ggml_mul_mat(ctx, weights(type, rows, columns), both));
        } else if (op == "NORM") {
            // Residual add and norm before two matmuls, such as those of Q and K.
            ggml_tensor * sum = ggml_add(ctx, columns_of_tokens(columns), columns_of_tokens(columns));
            ggml_tensor * out = normed(sum, columns);
            outs = {sum, ggml_mul_mat(ctx, weights(type, columns, rows), out),
                    ggml_mul_mat(ctx, weights(type, columns, rows), out)};
        } else if (op == "NORM_ADD_NORM") {
            // The norms after attention and before the feed-forward layer of Gemma.
            ggml_tensor * sum = ggml_add(ctx, normed(columns_of_tokens(columns), columns), columns_of_tokens(columns));
            outs = {sum, ggml_mul_mat(ctx, weights(type, columns, rows), normed(sum, columns))};
        } else {
            refuse("unknown operation " + op);
        }
    }

    ggml_tensor * normed(ggml_tensor * in, int64_t columns) {
        return ggml_mul(ctx, ggml_rms_norm(ctx, in, 1e-5f), ggml_reshape_1d(ctx, weights(GGML_TYPE_F32, columns, 1), columns));
    }

    void experts(ggml_type type, int64_t columns, int64_t rows) {
        const int64_t number = c.integer("experts"), used = c.integer("used");
        ggml_tensor * ids   = ggml_new_tensor_2d(ctx, GGML_TYPE_I32, used, count);
        const int64_t start = first;
        fills.emplace_back([ids, number, used, start] {
            std::vector<int32_t> chosen(size_t(ggml_nelements(ids)));
            for (size_t i = 0; i < chosen.size(); ++i) {
                const int64_t token = start + int64_t(i) / used, place = int64_t(i) % used;
                // A token's experts differ, and neighbours share some of them.
                chosen[i] = int32_t((token * token + place * (1 + token % (number - 1) / used)) % number);
            }
            for (size_t i = 0; i < chosen.size(); i += size_t(used)) {
                for (size_t j = i; j < i + size_t(used); ++j) {
                    while (std::count(&chosen[i], &chosen[j], chosen[j]) != 0) {
                        chosen[j] = int32_t((chosen[j] + 1) % number);
                    }
                }
            }
            ggml_backend_tensor_set(ids, chosen.data(), 0, ggml_nbytes(ids));
        });
        outs.push_back(ggml_mul_mat_id(ctx, weights(type, columns, rows, number), inputs(columns), ids));
    }

    // Each token sees the KV rows up to its own.
    void attention() {
        const int64_t size = c.integer("size"), size_v = c.integer("size_v"), kv = c.integer("kv");
        const int64_t heads = c.integer("heads"), kv_heads = c.integer("kv_heads");
        const ggml_type type = c.type("type");
        // Queries are large, so that few keys dominate: with even weights, an error in one key would be invisible.
        ggml_tensor * q = ggml_permute(ctx, inputs(size, heads, 3.0f), 0, 2, 1, 3);
        ggml_tensor * k = ggml_permute(ctx, weights(type, size, kv_heads, kv), 0, 2, 1, 3);
        // In MLA, the values are the first columns of the keys.
        ggml_tensor * v = size == size_v ? ggml_permute(ctx, weights(type, size_v, kv_heads, kv), 0, 2, 1, 3)
                                         : ggml_view_4d(ctx, k, size_v, kv, kv_heads, 1, k->nb[1], k->nb[2], k->nb[3], 0);
#ifdef GGML_KQ_MASK_PAD
        const int64_t padded = (count + GGML_KQ_MASK_PAD - 1) / GGML_KQ_MASK_PAD * GGML_KQ_MASK_PAD;
#else
        const int64_t padded = count;
#endif
        ggml_tensor * mask  = ggml_new_tensor_2d(ctx, GGML_TYPE_F16, kv, padded);
        const int64_t start = first, tokens = count;
        fills.emplace_back([mask, kv, padded, start, tokens] {
            std::vector<ggml_fp16_t> values(static_cast<size_t>(kv * padded), ggml_fp32_to_fp16(-INFINITY));
            for (int64_t token = 0; token < tokens; ++token) {
                const int64_t visible = kv - hidden + start + token;
                std::fill_n(values.begin() + token * kv, visible, ggml_fp32_to_fp16(0.0f));
            }
            ggml_backend_tensor_set(mask, values.data(), 0, ggml_nbytes(mask));
        });
        ggml_tensor * out = ggml_flash_attn_ext(ctx, q, k, v, mask, 1.0f / std::sqrt(float(size)), 0.0f, float(c.real("softcap")));
        if (c.is("sinks")) {
            ggml_flash_attn_ext_add_sinks(out, ggml_reshape_1d(ctx, weights(GGML_TYPE_F32, heads, 1, 1, 2.0f), heads));
        }
        ggml_flash_attn_ext_set_prec(out, GGML_PREC_F32);
        outs.push_back(out);
    }

    static constexpr int64_t hidden = 24;  // KV rows that the first token does not see; more than there are tokens

    const attention_case &             c;
    const int64_t                      first, count;
    ggml_context *                     ctx    = nullptr;
    ggml_backend_buffer_t              buffer = nullptr;
    std::vector<ggml_tensor *>         outs;
    std::vector<std::function<void()>> fills;
    uint64_t                           streams = 0;
    kept_weights &                     packed_before;
};

void compare(const std::string & id, int64_t width, const std::vector<std::vector<float>> & single,
             const std::vector<std::vector<float>> & found) {
    double error = 0.0, norm = 0.0, worst = -1.0;
    size_t equal = 0, worst_at = 0;
    bool   finite = true;
    for (size_t t = 0; t < found.size(); ++t) {
        const std::vector<float> &a = single[t], &b = found[t];
        double                    token_error = 0.0, token_norm = 0.0;
        for (size_t i = 0; i < a.size(); ++i) {
            finite = finite && std::isfinite(a[i]) && std::isfinite(b[i]);
            token_error += (double(a[i]) - b[i]) * (double(a[i]) - b[i]);
            token_norm += double(a[i]) * a[i];
        }
        error += token_error;
        norm += token_norm;
        equal += std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
        if (!(token_error / token_norm <= worst)) {  // also true for NaN
            worst    = token_error / token_norm;
            worst_at = t;
        }
    }
    std::printf("%s width=%lld rows=%zu equal=%zu nmse=%.6e worst=%.6e at=%zu finite=%d\n", id.c_str(),
                static_cast<long long>(width), found.size(), equal, error / norm, worst, worst_at, finite ? 1 : 0);
}

void run(ggml_backend_t backend, const attention_case & c, const std::vector<int64_t> & widths) {
    const int64_t tokens = *std::max_element(widths.begin(), widths.end());
    kept_weights  kept;
    if (!is_type(c.text("type")) || !graph(c, 0, 1, kept).is_supported(backend) ||
        !graph(c, 0, tokens, kept).is_supported(backend)) {
        std::printf("%s unsupported\n", c.id.c_str());
        std::fflush(stdout);
        return;
    }
    const auto in_batches_of = [&](int64_t width) {
        std::vector<std::vector<float>> results;
        for (int64_t first = 0; first + width <= tokens; first += width) {
            for (std::vector<float> & one : graph(c, first, width, kept).compute(backend)) {
                results.push_back(std::move(one));
            }
        }
        return results;
    };
    const auto single = in_batches_of(1);
    for (const int64_t width : widths) {
        compare(c.id, width, single, in_batches_of(width));
    }
    std::fflush(stdout);
}

std::vector<int64_t> parse_widths(const std::string & text) {
    std::vector<int64_t> widths;
    std::istringstream   parts(text);
    for (std::string part; std::getline(parts, part, ',');) {
        widths.push_back(std::strtoll(part.c_str(), nullptr, 10));
    }
    if (widths.empty() || *std::min_element(widths.begin(), widths.end()) < 1) {
        refuse("these are no widths: " + text);
    }
    return widths;
}

}  // namespace

int main(int argc, char ** argv) {
    if (argc != 5) {
        refuse("usage: operation_widths MODULE DEVICE CASES WIDTHS");
    }
    ggml_backend_t             backend = open_device("operation_widths", argv[1], argv[2]);
    const std::vector<int64_t> widths  = parse_widths(argv[4]);
    each_case(argv[3], [&](const attention_case & c) { run(backend, c, widths); });
    ggml_backend_free(backend);
    return 0;
}
