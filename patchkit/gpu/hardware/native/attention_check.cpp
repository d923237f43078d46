// Computes attention cases on one device and compares them with a double-precision reference.
//
//   attention_check MODULE DEVICE CASES
//
// MODULE is a backend library, DEVICE the name of one of its devices, CASES a file parsed by case_line.hpp.
//
// Prints one line per case: "ID unsupported", or "ID done rows=N nmse=X worst=Y at=token,head,sequence finite=0/1". A
// row is the output of one head for one token; some rows of each case are compared: first and last tokens, those at
// tile boundaries, and random ones. nmse is over all compared rows, worst is the largest of a single row; finite is
// whether all values of the output are finite.

#include "apart.hpp"
#include "case_line.hpp"
#include "ggml.h"
#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "open_device.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <vector>

[[noreturn]] void refuse(const std::string & why) {
    end_driver("attention_check", why);
}

namespace {

// A simple generator, so that the numbers are the same with every C++ library.
class dice {
  public:
    explicit dice(uint64_t seed) : state(seed * 0x9E3779B97F4A7C15ull + 0xD1B54A32D192ED03ull) {}

    uint64_t next() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return state;
    }

    float between(float low, float high) { return low + (high - low) * float(double(next() >> 11) * 0x1p-53); }

  private:
    uint64_t state;
};

// One operand: the device's tensor, and the same values in f32.
struct operand {
    ggml_tensor *          seen    = nullptr;  // as seen by attention: [head size, rows, heads, sequences]
    ggml_tensor *          storage = nullptr;  // as stored in memory
    std::array<int64_t, 4> stride{};           // for each dimension of "seen", in elements of the storage
    std::vector<float>     values;             // in storage order

    double at(int64_t i, int64_t row, int64_t head, int64_t sequence) const {
        return values[size_t(i * stride[0] + row * stride[1] + head * stride[2] + sequence * stride[3])];
    }
};

operand make_operand(ggml_context * ctx, ggml_type type, const std::array<int64_t, 4> & wanted,
                     const std::array<int, 4> & order, bool view) {
    operand                made;
    std::array<int64_t, 4> ne{};
    for (size_t i = 0; i < 4; ++i) {
        ne[size_t(order[i])] = wanted[i];  // dimension i of attention's tensor is dimension order[i] in memory
    }
    const int64_t rows = ne[1];
    if (view) {
        ne[1] *= 2;
    }
    const std::array<int64_t, 4> in_memory{1, ne[0], ne[0] * ne[1], ne[0] * ne[1] * ne[2]};
    for (size_t i = 0; i < 4; ++i) {
        made.stride[i] = in_memory[size_t(order[i])];
    }
    made.storage       = ggml_new_tensor_4d(ctx, type, ne[0], ne[1], ne[2], ne[3]);
    ggml_tensor * seen = made.storage;
    if (view) {
        seen = ggml_view_4d(ctx, seen, ne[0], rows, ne[2], ne[3], seen->nb[1], seen->nb[2], seen->nb[3], 0);
    }
    made.seen = ggml_permute(ctx, seen, order[0], order[1], order[2], order[3]);
    return made;
}

// Fills the storage and keeps the values it really contains, because quantized values differ from the originals.
void fill(operand & one, dice & random, float spread) {
    const int64_t      count = ggml_nelements(one.storage);
    std::vector<float> wanted(static_cast<size_t>(count));
    for (float & value : wanted) {
        value = random.between(-spread, spread);
    }
    const ggml_type type = one.storage->type;
    if (type == GGML_TYPE_F32) {
        ggml_backend_tensor_set(one.storage, wanted.data(), 0, ggml_nbytes(one.storage));
        one.values = std::move(wanted);
        return;
    }
    std::vector<uint8_t> packed(ggml_nbytes(one.storage));
    ggml_quantize_chunk(type, wanted.data(), packed.data(), 0, count / one.storage->ne[0], one.storage->ne[0], nullptr);
    ggml_backend_tensor_set(one.storage, packed.data(), 0, packed.size());
    one.values.resize(wanted.size());
    ggml_get_type_traits(type)->to_float(packed.data(), one.values.data(), count);
}

struct problem {
    int64_t hsk, hsv, nh, gqa, kv, nb, sequences;
    double  scale, max_bias, softcap;
    operand q, k, v;
    std::vector<float> mask;   // [kv, mask_rows, sequences], empty without a mask
    int64_t            mask_rows = 0;
    std::vector<float> sinks;  // per query head, empty without sinks
    ggml_tensor *      mask_tensor  = nullptr;
    ggml_tensor *      sinks_tensor = nullptr;
    ggml_tensor *      out          = nullptr;
};

problem build(ggml_context * ctx, const attention_case & c) {
    problem p{};
    p.hsk       = c.integer("hsk");
    p.hsv       = c.integer("hsv");
    p.nh        = c.integer("nh");
    p.gqa       = c.integer("nr2");
    p.sequences = c.integer("nr3");
    p.kv        = c.integer("kv");
    p.nb        = c.integer("nb");
    p.scale     = 1.0 / std::sqrt(double(p.hsk));
    p.max_bias  = c.real("max_bias");
    p.softcap   = c.real("logit_softcap");
    const auto order = c.order();
    const bool view  = c.is("view");
    p.q = make_operand(ctx, GGML_TYPE_F32, {p.hsk, p.nb, p.nh * p.gqa, p.sequences}, order, false);
    p.k = make_operand(ctx, c.type("type_k"), {p.hsk, p.kv, p.nh, p.sequences}, order, view);
    p.v = make_operand(ctx, c.type("type_v"), {p.hsv, p.kv, p.nh, p.sequences}, order, view);
    if (c.is("mask")) {
        p.mask_rows   = c.mask_rows();
        p.mask_tensor = ggml_new_tensor_4d(ctx, GGML_TYPE_F16, p.kv, p.mask_rows, 1, p.sequences);
    }
    if (c.is("sinks")) {
        p.sinks_tensor = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, p.nh * p.gqa);
    }
    p.out = ggml_flash_attn_ext(ctx, p.q.seen, p.k.seen, p.v.seen, p.mask_tensor, float(p.scale), float(p.max_bias),
                                float(p.softcap));
    ggml_flash_attn_ext_add_sinks(p.out, p.sinks_tensor);
    ggml_flash_attn_ext_set_prec(p.out, c.precision());
    return p;
}

void set_inputs(problem & p, dice & random) {
    // Queries are large, so that few keys dominate: with even weights, an error in one key would be invisible.
    fill(p.q, random, 3.0f);
    fill(p.k, random, 1.0f);
    fill(p.v, random, 1.0f);
    if (p.mask_tensor != nullptr) {
        p.mask.resize(size_t(p.kv * p.mask_rows * p.sequences));
        std::vector<ggml_fp16_t> half(p.mask.size());
        for (int64_t s = 0; s < p.sequences; ++s) {
            for (int64_t row = 0; row < p.mask_rows; ++row) {
                // Causal: the last token sees every key, each earlier one sees one key less.
                const int64_t visible = std::max<int64_t>(1, p.kv - p.nb + row + 1);
                for (int64_t key = 0; key < p.kv; ++key) {
                    const size_t at    = size_t((s * p.mask_rows + row) * p.kv + key);
                    const bool   sees  = row < p.nb && key < visible;
                    const float  value = sees ? random.between(-1.0f, 0.5f) : -INFINITY;
                    half[at]           = ggml_fp32_to_fp16(value);
                    p.mask[at]         = ggml_fp16_to_fp32(half[at]);
                }
            }
        }
        ggml_backend_tensor_set(p.mask_tensor, half.data(), 0, ggml_nbytes(p.mask_tensor));
    }
    if (p.sinks_tensor != nullptr) {
        p.sinks.resize(size_t(p.nh * p.gqa));
        for (float & value : p.sinks) {
            value = random.between(-2.0f, 2.0f);
        }
        ggml_backend_tensor_set(p.sinks_tensor, p.sinks.data(), 0, ggml_nbytes(p.sinks_tensor));
    }
}

// ALiBi slopes: a geometric series; for a number of heads that is no power of two, interleaved with that of the next
// power.
double slope(const problem & p, int64_t head) {
    if (p.max_bias <= 0.0) {
        return 1.0;
    }
    int64_t power = 1;
    while (power * 2 <= p.nh * p.gqa) {
        power *= 2;
    }
    if (head < power) {
        return std::exp2(-p.max_bias * double(head + 1) / double(power));
    }
    return std::exp2(-p.max_bias * double(2 * (head - power) + 1) / double(2 * power));
}

std::vector<double> expected(const problem & p, int64_t token, int64_t head, int64_t sequence) {
    const int64_t       kv_head = head / p.gqa;
    std::vector<double> query(static_cast<size_t>(p.hsk));
    for (int64_t i = 0; i < p.hsk; ++i) {
        query[size_t(i)] = p.q.at(i, token, head, sequence);
    }
    std::vector<double> score(static_cast<size_t>(p.kv));
    double              highest = p.sinks.empty() ? -INFINITY : double(p.sinks[size_t(head)]);
    for (int64_t key = 0; key < p.kv; ++key) {
        double bias = 0.0;
        if (!p.mask.empty()) {
            bias = p.mask[size_t((sequence * p.mask_rows + token) * p.kv + key)];
        }
        double & s = score[size_t(key)];
        if (std::isinf(bias)) {
            s = -INFINITY;
            continue;
        }
        double dot = 0.0;
        for (int64_t i = 0; i < p.hsk; ++i) {
            dot += query[size_t(i)] * p.k.at(i, key, kv_head, sequence);
        }
        s = dot * p.scale;
        if (p.softcap != 0.0) {
            s = p.softcap * std::tanh(s / p.softcap);
        }
        s += slope(p, head) * bias;
        highest = std::max(highest, s);
    }
    double              sum = p.sinks.empty() ? 0.0 : std::exp(double(p.sinks[size_t(head)]) - highest);
    std::vector<double> result(static_cast<size_t>(p.hsv));
    for (int64_t key = 0; key < p.kv; ++key) {
        if (std::isinf(score[size_t(key)])) {
            continue;
        }
        const double weight = std::exp(score[size_t(key)] - highest);
        sum += weight;
        for (int64_t i = 0; i < p.hsv; ++i) {
            result[size_t(i)] += weight * p.v.at(i, key, kv_head, sequence);
        }
    }
    for (double & value : result) {
        value /= sum;
    }
    return result;
}

std::vector<std::array<int64_t, 3>> chosen_rows(const problem & p, dice & random) {
    std::set<int64_t> tokens;
    for (const int64_t at : {0, 1, 2, 7, 8, 15, 16, 31, 32, 63, 64, 127, 128, 255, 256, 511, 512}) {
        tokens.insert(at);
    }
    tokens.insert(p.nb - 1);
    tokens.insert(p.nb - 2);
    for (int i = 0; i < 4; ++i) {
        tokens.insert(int64_t(random.next() % uint64_t(p.nb)));
    }
    const int64_t                       heads = p.nh * p.gqa;
    std::vector<std::array<int64_t, 3>> rows;
    for (const int64_t token : tokens) {
        if (token < 0 || token >= p.nb) {
            continue;
        }
        // Every head for few tokens; first, last and a random one for many.
        std::set<int64_t> some{0, heads - 1, int64_t(random.next() % uint64_t(heads))};
        for (int64_t head = 0; head < heads; ++head) {
            if (p.nb > 4 && some.count(head) == 0) {
                continue;
            }
            rows.push_back({token, head, int64_t(random.next() % uint64_t(p.sequences))});
        }
    }
    return rows;
}

void report(const attention_case & c, const problem & p, dice & random) {
    std::vector<float> out(static_cast<size_t>(ggml_nelements(p.out)));
    ggml_backend_tensor_get(p.out, out.data(), 0, ggml_nbytes(p.out));
    const bool finite = std::all_of(out.begin(), out.end(), [](float value) { return std::isfinite(value); });
    double     error = 0.0, norm = 0.0, worst = -1.0;
    std::array<int64_t, 3> worst_at{};
    const auto             rows = chosen_rows(p, random);
    for (const auto & [token, head, sequence] : rows) {
        const std::vector<double> wanted    = expected(p, token, head, sequence);
        double                    row_error = 0.0, row_norm = 0.0;
        for (int64_t i = 0; i < p.hsv; ++i) {
            const size_t at   = size_t(((sequence * p.nb + token) * p.nh * p.gqa + head) * p.hsv + i);
            const double diff = double(out[at]) - wanted[size_t(i)];
            row_error += diff * diff;
            row_norm += wanted[size_t(i)] * wanted[size_t(i)];
        }
        error += row_error;
        norm += row_norm;
        if (!(row_error / row_norm <= worst)) {  // also true for NaN
            worst    = row_error / row_norm;
            worst_at = {token, head, sequence};
        }
    }
    std::printf("%s done rows=%zu nmse=%.6e worst=%.6e at=%lld,%lld,%lld finite=%d\n", c.id.c_str(), rows.size(),
                error / norm, worst, static_cast<long long>(worst_at[0]), static_cast<long long>(worst_at[1]),
                static_cast<long long>(worst_at[2]), finite ? 1 : 0);
    std::fflush(stdout);
}

void run(ggml_backend_t backend, const attention_case & c, uint64_t number) {
    const size_t   room = ggml_tensor_overhead() * 32 + ggml_graph_overhead();
    ggml_context * ctx  = ggml_init({room, nullptr, true});
    problem        p    = build(ctx, c);
    if (!ggml_backend_supports_op(backend, p.out)) {
        std::printf("%s unsupported\n", c.id.c_str());
        ggml_free(ctx);
        return;
    }
    ggml_cgraph * graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, p.out);
    std::vector<ggml_backend_buffer_t> buffers;
    if (!place_all_apart(ctx, backend, buffers)) {
        refuse("case " + c.id + ": failed to allocate its tensors");
    }
    for (ggml_backend_buffer_t buffer : buffers) {
        ggml_backend_buffer_clear(buffer, 0);
    }
    dice random(number + 1);
    set_inputs(p, random);
    if (ggml_backend_graph_compute(backend, graph) != GGML_STATUS_SUCCESS) {
        refuse("case " + c.id + " could not be computed");
    }
    report(c, p, random);
    for (ggml_backend_buffer_t buffer : buffers) {
        ggml_backend_buffer_free(buffer);
    }
    ggml_free(ctx);
}

}  // namespace

int main(int argc, char ** argv) {
    if (argc != 4) {
        refuse("usage: attention_check MODULE DEVICE CASES");
    }
    ggml_backend_t backend = open_device("attention_check", argv[1], argv[2]);
    uint64_t       number  = 0;
    each_case(argv[3], [&](const attention_case & c) { run(backend, c, number++); });
    ggml_backend_free(backend);
    return 0;
}
