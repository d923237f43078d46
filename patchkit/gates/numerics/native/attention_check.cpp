// Runs attention cases on a device (CUDA0 unless another is named) and compares each with the same sums in double precision, made here.
//
//   attention_check CASES [DEVICE]
//
// A line of CASES is that of case_line.hpp with one word more, pattern: what the mask hides.
//   free    nothing, causal: what comes later, window: also what is 200 rows back, short: the last third
// Inputs come from a generator seeded by the case's line, so every program gets the same ones. One JSON object
// per case goes to stdout: {"case": id, "supported": true, "nmse": x, "row": y, "finite": true}; "row" is the
// largest error of a single row of the result, so that a wrong tile cannot hide in a large result. A last line
// says {"done": cases}. Limits are not known here.

#include "case_line.hpp"
#include "ggml.h"
#include "ggml-alloc.h"
#include "ggml-backend.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

void refuse(const std::string & what) {
    std::fprintf(stderr, "attention_check: %s\n", what.c_str());
    std::exit(2);
}

namespace {

constexpr int64_t LANES = 8; // every head size is a multiple of it

struct generator { // splitmix64
    uint64_t state;

    uint64_t bits() {
        uint64_t z = (state += 0x9e3779b97f4a7c15ULL);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
        return z ^ (z >> 31);
    }

    float uniform() { // -1 to 1
        return float(int64_t(bits() >> 40) - (1 << 23)) / float(1 << 23);
    }
};

uint64_t seed_of(const std::string & line) { // FNV-1a
    uint64_t hash = 0xcbf29ce484222325ULL;
    for (const unsigned char letter : line) {
        hash = (hash ^ letter) * 0x100000001b3ULL;
    }
    return hash;
}

struct shape {
    int64_t size, rows, heads, batch;
};

struct operand {
    ggml_tensor * base = nullptr;   // what owns the memory
    ggml_tensor * tensor = nullptr; // what the operation reads
    std::vector<float> values;      // as the operation reads them: [batch][head][row][size]
};

operand make(ggml_context * ctx, ggml_type type, const shape & s, const std::array<int, 4> & order, bool view) {
    const std::array<int64_t, 4> ne = {s.size, s.rows, s.heads, s.batch};
    std::array<int64_t, 4> p{};
    for (size_t i = 0; i < 4; ++i) {
        p[size_t(order[i])] = ne[i];
    }
    operand made;
    made.base = ggml_new_tensor_4d(ctx, type, p[0], view ? 2 * p[1] : p[1], p[2], p[3]);
    made.tensor = made.base;
    if (view) {
        ggml_tensor * t = made.base;
        made.tensor = ggml_view_4d(ctx, t, p[0], p[1], p[2], p[3], t->nb[1], t->nb[2], t->nb[3], 0);
    }
    if (order != std::array<int, 4>{0, 1, 2, 3}) {
        made.tensor = ggml_permute(ctx, made.tensor, order[0], order[1], order[2], order[3]);
    }
    return made;
}

// Fills the memory, then reads back what the operation will see, after rounding to the type.
void fill(operand & o, const shape & s, generator & random) {
    ggml_tensor * t = o.base;
    std::vector<float> raw(size_t(ggml_nelements(t)));
    for (float & value : raw) {
        value = random.uniform();
    }
    std::vector<uint8_t> bytes(ggml_nbytes(t));
    if (t->type == GGML_TYPE_F32) {
        std::memcpy(bytes.data(), raw.data(), bytes.size());
    } else {
        ggml_quantize_chunk(t->type, raw.data(), bytes.data(), 0, ggml_nelements(t) / t->ne[0], t->ne[0], nullptr);
    }
    ggml_backend_tensor_set(t, bytes.data(), 0, bytes.size());
    const auto to_float = ggml_get_type_traits(t->type)->to_float;
    o.values.resize(size_t(s.size * s.rows * s.heads * s.batch));
    float * out = o.values.data();
    for (int64_t b = 0; b < s.batch; ++b) {
        for (int64_t h = 0; h < s.heads; ++h) {
            for (int64_t r = 0; r < s.rows; ++r, out += s.size) {
                const uint8_t * row = bytes.data() + r * o.tensor->nb[1] + h * o.tensor->nb[2] + b * o.tensor->nb[3];
                if (t->type == GGML_TYPE_F32) {
                    std::memcpy(out, row, size_t(s.size) * sizeof(float));
                } else {
                    to_float(row, out, s.size);
                }
            }
        }
    }
}

struct problem {
    int64_t d, kv_heads, group, batch, kv, tokens;
    float max_bias, softcap;
    operand q, k, v;
    ggml_tensor * mask = nullptr;
    ggml_tensor * sinks = nullptr;
    std::vector<float> mask_values, sink_values; // mask: [batch][token][kv]
};

bool hidden(const std::string & pattern, const problem & p, int64_t batch, int64_t token, int64_t row) {
    const int64_t now = std::max<int64_t>(0, p.kv - p.tokens + token);
    if (pattern == "causal") {
        return row > now;
    }
    if (pattern == "window") {
        return row > now || row <= now - 200;
    }
    if (pattern == "short") {
        return row >= p.kv - p.kv / 3 - 17 * batch;
    }
    return false;
}

void fill_mask(problem & p, const std::string & pattern, generator & random) {
    const int64_t rows = p.mask->ne[1];
    std::vector<ggml_fp16_t> bytes(size_t(p.kv * rows * p.batch), ggml_fp32_to_fp16(-INFINITY));
    p.mask_values.resize(size_t(p.kv * p.tokens * p.batch));
    for (int64_t b = 0; b < p.batch; ++b) {
        for (int64_t t = 0; t < p.tokens; ++t) {
            for (int64_t k = 0; k < p.kv; ++k) {
                const float value = random.uniform();
                const ggml_fp16_t half = ggml_fp32_to_fp16(hidden(pattern, p, b, t, k) ? -INFINITY : value);
                bytes[size_t((b * rows + t) * p.kv + k)] = half;
                p.mask_values[size_t((b * p.tokens + t) * p.kv + k)] = ggml_fp16_to_fp32(half);
            }
        }
    }
    ggml_backend_tensor_set(p.mask, bytes.data(), 0, bytes.size() * sizeof(ggml_fp16_t));
}

// One row of the result: token t of query head h, in double precision throughout.
void attend(const problem & p, float scale, int64_t b, int64_t h, int64_t t, double * out, std::vector<double> & score) {
    const int64_t heads = p.kv_heads * p.group, kv_head = h / p.group;
    const float * q = &p.q.values[size_t(((b * heads + h) * p.tokens + t) * p.d)];
    const float * k = &p.k.values[size_t((b * p.kv_heads + kv_head) * p.kv * p.d)];
    const float * v = &p.v.values[size_t((b * p.kv_heads + kv_head) * p.kv * p.d)];
    double slope = 1.0;
    if (p.max_bias > 0.0f) { // ALiBi as in the operation's definition
        const double log2 = double(int64_t(1) << int64_t(std::floor(std::log2(double(heads)))));
        slope = double(h) < log2 ? std::pow(std::pow(2.0, -p.max_bias / log2), double(h + 1))
                                 : std::pow(std::pow(2.0, -(p.max_bias / 2.0) / log2), 2.0 * (double(h) - log2) + 1.0);
    }
    double most = -INFINITY;
    for (int64_t i = 0; i < p.kv; ++i) {
        std::array<double, LANES> part{}; // independent sums, so that the compiler may use vectors
        for (int64_t j = 0; j < p.d; j += LANES) {
            for (int64_t lane = 0; lane < LANES; ++lane) {
                part[size_t(lane)] += double(q[j + lane]) * double(k[i * p.d + j + lane]);
            }
        }
        double sum = 0.0;
        for (const double value : part) {
            sum += value;
        }
        sum *= scale;
        if (p.softcap != 0.0f) {
            sum = p.softcap * std::tanh(sum / p.softcap);
        }
        if (p.mask != nullptr) {
            sum += slope * double(p.mask_values[size_t((b * p.tokens + t) * p.kv + i)]);
        }
        score[size_t(i)] = sum;
        most = std::max(most, sum);
    }
    if (p.sinks != nullptr) {
        most = std::max(most, double(p.sink_values[size_t(h)]));
    }
    double total = p.sinks != nullptr ? std::exp(double(p.sink_values[size_t(h)]) - most) : 0.0;
    std::fill(out, out + p.d, 0.0);
    for (int64_t i = 0; i < p.kv; ++i) {
        const double weight = std::exp(score[size_t(i)] - most);
        if (weight == 0.0) {
            continue;
        }
        total += weight;
        for (int64_t j = 0; j < p.d; ++j) {
            out[j] += weight * double(v[i * p.d + j]);
        }
    }
    for (int64_t j = 0; j < p.d; ++j) {
        out[j] /= total;
    }
}

struct judgement {
    double error = 0.0, size = 0.0, row = 0.0;
    bool finite = true;
};

// ``got`` is the result as the operation lays it out: [batch][token][head][d].
judgement judge(const problem & p, float scale, const std::vector<float> & got) {
    const int64_t heads = p.kv_heads * p.group, rows = p.batch * p.tokens * heads;
    const int64_t workers = std::max<int64_t>(1, std::min<int64_t>(rows, std::thread::hardware_concurrency()));
    std::vector<judgement> parts(static_cast<size_t>(workers));
    std::vector<std::thread> threads;
    for (int64_t w = 0; w < workers; ++w) {
        threads.emplace_back([&, w] {
            judgement & mine = parts[size_t(w)];
            std::vector<double> want(size_t(p.d)), score(size_t(p.kv));
            for (int64_t r = w; r < rows; r += workers) {
                const int64_t h = r % heads, t = r / heads % p.tokens, b = r / heads / p.tokens;
                attend(p, scale, b, h, t, want.data(), score);
                double error = 0.0, size = 0.0;
                for (int64_t j = 0; j < p.d; ++j) {
                    const double value = got[size_t(r * p.d + j)];
                    mine.finite = mine.finite && std::isfinite(value);
                    error += (value - want[size_t(j)]) * (value - want[size_t(j)]);
                    size += want[size_t(j)] * want[size_t(j)];
                }
                mine.error += error;
                mine.size += size;
                mine.row = std::max(mine.row, size > 0.0 ? error / size : error);
            }
        });
    }
    judgement all;
    for (int64_t w = 0; w < workers; ++w) {
        threads[size_t(w)].join();
        const judgement & part = parts[size_t(w)];
        all.error += part.error;
        all.size += part.size;
        all.row = std::max(all.row, part.row);
        all.finite = all.finite && part.finite;
    }
    return all;
}

void run(ggml_backend_t backend, const attention_case & c) {
    ggml_context * ctx = ggml_init({ggml_tensor_overhead() * 32 + ggml_graph_overhead(), nullptr, true});
    problem p{};
    p.d = c.integer("hsk");
    p.kv_heads = c.integer("nh");
    p.group = c.integer("nr2");
    p.batch = c.integer("nr3");
    p.kv = c.integer("kv");
    p.tokens = c.integer("nb");
    p.max_bias = float(c.real("max_bias"));
    p.softcap = float(c.real("logit_softcap"));
    if (c.integer("hsv") != p.d || (!c.is("mask") && c.text("pattern") != "free")) {
        refuse("case " + c.id + ": head sizes differ, or a pattern without a mask");
    }
    if (p.d % LANES != 0) {
        refuse("case " + c.id + ": the head size is no multiple of 8");
    }
    const std::array<int, 4> order = c.order();
    const bool view = c.is("view");
    const shape sq = {p.d, p.tokens, p.kv_heads * p.group, p.batch}, sk = {p.d, p.kv, p.kv_heads, p.batch};
    p.q = make(ctx, GGML_TYPE_F32, sq, order, false);
    p.k = make(ctx, c.type("type_k"), sk, order, view);
    p.v = make(ctx, c.type("type_v"), sk, order, view);
    if (c.is("mask")) {
        p.mask = ggml_new_tensor_4d(ctx, GGML_TYPE_F16, p.kv, c.mask_rows(), 1, p.batch);
    }
    if (c.is("sinks")) {
        p.sinks = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, sq.heads);
    }
    const float scale = 1.0f / std::sqrt(float(p.d));
    ggml_tensor * out =
        ggml_flash_attn_ext(ctx, p.q.tensor, p.k.tensor, p.v.tensor, p.mask, scale, p.max_bias, p.softcap);
    ggml_flash_attn_ext_add_sinks(out, p.sinks);
    ggml_flash_attn_ext_set_prec(out, c.precision());
    if (!ggml_backend_supports_op(backend, out)) {
        std::printf("{\"case\": \"%s\", \"supported\": false}\n", c.id.c_str());
        ggml_free(ctx);
        return;
    }
    ggml_cgraph * graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, out);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(ctx, backend);
    if (buffer == nullptr) {
        refuse("case " + c.id + ": no memory on the device");
    }
    generator random = {seed_of(c.line)};
    fill(p.q, sq, random);
    fill(p.k, sk, random);
    fill(p.v, sk, random);
    if (p.mask != nullptr) {
        fill_mask(p, c.text("pattern"), random);
    }
    if (p.sinks != nullptr) {
        p.sink_values.resize(size_t(sq.heads));
        for (float & value : p.sink_values) {
            value = 10.0f * random.uniform();
        }
        ggml_backend_tensor_set(p.sinks, p.sink_values.data(), 0, p.sink_values.size() * sizeof(float));
    }
    std::vector<float> got(size_t(ggml_nelements(out)), NAN); // what is not written stays not a number
    ggml_backend_tensor_set(out, got.data(), 0, got.size() * sizeof(float));
    if (ggml_backend_graph_compute(backend, graph) != GGML_STATUS_SUCCESS) {
        refuse("case " + c.id + ": the device did not compute it");
    }
    ggml_backend_tensor_get(out, got.data(), 0, got.size() * sizeof(float));
    const judgement found = judge(p, scale, got);
    std::printf("{\"case\": \"%s\", \"supported\": true, \"nmse\": %.6e, \"row\": %.6e, \"finite\": %s}\n", c.id.c_str(),
                found.finite ? found.error / found.size : -1.0, found.finite ? found.row : -1.0,
                found.finite ? "true" : "false");
    std::fflush(stdout);
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
}

} // namespace

int main(int argc, char ** argv) {
    if (argc < 2 || argc > 3) {
        refuse("usage: attention_check CASES [DEVICE]");
    }
    ggml_backend_load_all(); // for builds that load their backends at run time
    const char * device = argc == 3 ? argv[2] : "CUDA0";
    ggml_backend_t backend = ggml_backend_init_by_name(device, nullptr);
    if (backend == nullptr) {
        refuse(std::string("no device ") + device);
    }
    int done = 0;
    each_case(argv[1], [&](const attention_case & c) {
        run(backend, c);
        ++done;
    });
    std::printf("{\"done\": %d}\n", done);
    ggml_backend_free(backend);
    return 0;
}
