// Computes logits of a model on one device, and compares two sets of logits.
//
//   logits run BACKENDS MODEL OUT name=value ...
//   logits compare REFERENCE OTHER
//   logits spread FILE steps=N widths=N,N,...
//
// BACKENDS is the folder from which ggml loads its backends. Values: device (its name; CPU offloads nothing), flash
// (0/1: flash attention), type_k type_v (ggml type names), tokens (of the prompt, per sequence), steps (tokens
// generated after it, one at a time), ubatch (tokens per physical batch), sequences (interleaved in the batch), unified
// (0/1: one KV buffer for all sequences), stride (every stride-th row of the prompt is kept, and always the last and
// all generated ones), threads, depth (tokens before the prompt, for a single sequence, that are not computed: random K
// and V are written into the KV cache).
//
// For a single sequence, optionally widths (numbers of tokens per batch) and draft (proposed tokens per batch). With
// widths, the generated tokens are computed again for each width, from the state after the prompt, in as many batches of
// that width as fit into steps. Their rows follow those of the tokens that were generated one at a time. With draft, as
// many tokens are also generated greedily, one at a time and by verifying proposed tokens in one batch with the current
// one. Both results are printed: "single=TOKEN,... drafted=TOKEN,...".
//
// The tokens are the same in every run with the same vocabulary. OUT gets "PKLG", two uint32 (rows, vocabulary) and the
// rows as float32. compare prints one line:
//   rows=N vocabulary=V nmse=X worst=Y at=ROW kl=K kl_worst=L same_top=N finite=0/1 equal=N
// equal is the number of rows that are equal to the bit. spread prints such a line for each width, which begins with
// width=W: it compares their rows with those of the same tokens one at a time.

#include "ggml-backend.h"
#include "llama.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace {

[[noreturn]] void refuse(const std::string & what, int status = 2) {
    std::fprintf(stderr, "logits: %s\n", what.c_str());
    std::exit(status);
}

constexpr char magic[] = {'P', 'K', 'L', 'G'};

struct table {
    uint32_t           rows = 0, vocabulary = 0;
    std::vector<float> values;

    void add(const float * row) {
        values.insert(values.end(), row, row + vocabulary);
        ++rows;
    }

    void write(const std::string & path) const {
        std::ofstream file(path, std::ios::binary);
        file.write(magic, sizeof magic);
        file.write(reinterpret_cast<const char *>(&rows), sizeof rows);
        file.write(reinterpret_cast<const char *>(&vocabulary), sizeof vocabulary);
        file.write(reinterpret_cast<const char *>(values.data()), std::streamsize(values.size() * sizeof(float)));
        file.close();
        if (!file) {
            refuse("cannot write " + path + ": " + std::strerror(errno));
        }
    }

    static table read(const std::string & path) {
        std::ifstream file(path, std::ios::binary);
        char          begin[sizeof magic] = {};
        table         t;
        file.read(begin, sizeof begin);
        file.read(reinterpret_cast<char *>(&t.rows), sizeof t.rows);
        file.read(reinterpret_cast<char *>(&t.vocabulary), sizeof t.vocabulary);
        if (!file || std::memcmp(begin, magic, sizeof magic) != 0 || t.rows == 0 || t.vocabulary == 0) {
            refuse(path + " contains no logits");
        }
        t.values.resize(size_t(t.rows) * t.vocabulary);
        file.read(reinterpret_cast<char *>(t.values.data()), std::streamsize(t.values.size() * sizeof(float)));
        if (!file || file.peek() != std::ifstream::traits_type::eof()) {
            refuse(path + " is truncated or too long");
        }
        return t;
    }
};

class settings {
  public:
    settings(int argc, char ** argv) {
        for (int i = 0; i < argc; ++i) {
            const std::string word   = argv[i];
            const size_t      equals = word.find('=');
            values[word.substr(0, equals)] = equals == std::string::npos ? "" : word.substr(equals + 1);
        }
    }

    const std::string & text(const char * name) const {
        const auto found = values.find(name);
        if (found == values.end()) {
            refuse(std::string("no value for ") + name);
        }
        return found->second;
    }

    int number(const char * name) const { return int(std::strtol(text(name).c_str(), nullptr, 10)); }

    // 0 if there is no such value.
    int optional(const char * name) const { return values.count(name) != 0 ? number(name) : 0; }

    // Numbers with commas between them; none if there is no such value.
    std::vector<int> numbers(const char * name) const {
        std::vector<int>   list;
        std::istringstream parts(values.count(name) != 0 ? text(name) : "");
        for (std::string part; std::getline(parts, part, ',');) {
            list.push_back(int(std::strtol(part.c_str(), nullptr, 10)));
        }
        return list;
    }

    ggml_type type(const char * name) const {
        for (int i = 0; i < GGML_TYPE_COUNT; ++i) {
            const char * known = ggml_type_name(ggml_type(i));
            if (known != nullptr && text(name) == known) {
                return ggml_type(i);
            }
        }
        refuse("unknown type " + text(name));
    }

  private:
    std::map<std::string, std::string> values;
};

void quiet(ggml_log_level level, const char * text, void *) {
    if (level == GGML_LOG_LEVEL_ERROR || level == GGML_LOG_LEVEL_WARN) {
        std::fputs(text, stderr);
    }
}

// The devices to offload to: empty for the CPU.
std::vector<ggml_backend_dev_t> offload_to(const std::string & name) {
    std::vector<ggml_backend_dev_t> list;
    std::string                     known;
    bool                            found = false;
    for (size_t i = 0; i < ggml_backend_dev_count(); ++i) {
        ggml_backend_dev_t dev = ggml_backend_dev_get(i);
        known += std::string(" ") + ggml_backend_dev_name(dev);
        if (name == ggml_backend_dev_name(dev)) {
            found = true;
            if (ggml_backend_dev_type(dev) != GGML_BACKEND_DEVICE_TYPE_CPU) {
                list.push_back(dev);
            }
            std::fprintf(stderr, "device: %s: %s\n", ggml_backend_dev_name(dev), ggml_backend_dev_description(dev));
            break;
        }
    }
    if (!found) {
        refuse("there is no device " + name + "; devices:" + (known.empty() ? " none" : known));
    }
    list.push_back(nullptr);
    return list;
}

// Token at "position" of a sequence, from a simple generator that is the same everywhere.
llama_token token_at(uint32_t vocabulary, int sequence, int position) {
    uint64_t x = uint64_t(sequence) * 0x9E3779B97F4A7C15ull + uint64_t(position) * 0xBF58476D1CE4E5B9ull + 6900;
    x ^= x >> 30;
    x *= 0xBF58476D1CE4E5B9ull;
    x ^= x >> 27;
    x *= 0x94D049BB133111EBull;
    x ^= x >> 31;
    return llama_token(x % vocabulary);
}

void decode(llama_context * ctx, const llama_batch & batch) {
    const int status = llama_decode(ctx, batch);
    if (status != 0) {
        refuse("llama_decode returned " + std::to_string(status), 3);
    }
}

void decode(llama_context * ctx, const llama_batch & batch, table & kept) {
    decode(ctx, batch);
    for (int i = 0; i < batch.n_tokens; ++i) {
        if (batch.logits[i] != 0) {
            const float * row = llama_get_logits_ith(ctx, i);
            if (row == nullptr) {
                refuse("there are no logits for token " + std::to_string(i), 3);
            }
            kept.add(row);
        }
    }
}

void add_token(llama_batch & batch, llama_token token, int sequence, int position, bool keep) {
    const int i            = batch.n_tokens++;
    batch.token[i]         = token;
    batch.pos[i]           = position;
    batch.n_seq_id[i]      = 1;
    batch.seq_id[i][0]     = sequence;
    batch.logits[i]        = keep ? 1 : 0;
}

void add(llama_batch & batch, uint32_t vocabulary, int sequence, int position, bool keep) {
    add_token(batch, token_at(vocabulary, sequence, position), sequence, position, keep);
}

// The state of the first sequence: its KV cache, or what a recurrent model keeps.
std::vector<uint8_t> state_of(llama_context * ctx) {
    std::vector<uint8_t> state(llama_state_seq_get_size(ctx, 0));
    if (state.empty() || llama_state_seq_get_data(ctx, state.data(), state.size(), 0) == 0) {
        refuse("the state of a sequence cannot be read", 3);
    }
    return state;
}

// Makes it the only sequence, in the first cells, so that it is the same each time.
void restore(llama_context * ctx, const std::vector<uint8_t> & state) {
    llama_memory_clear(llama_get_memory(ctx), true);
    if (llama_state_seq_set_data(ctx, state.data(), state.size(), 0) == 0) {
        refuse("the state of a sequence cannot be restored", 3);
    }
}

// ---- Greedy generation, one token at a time and with a draft.

llama_token likeliest(llama_context * ctx, int output, uint32_t vocabulary) {
    const float * row = llama_get_logits_ith(ctx, output);
    if (row == nullptr) {
        refuse("there are no logits for token " + std::to_string(output), 3);
    }
    return llama_token(std::max_element(row, row + vocabulary) - row);
}

std::vector<llama_token> generate(llama_context * ctx, llama_batch & batch, uint32_t vocabulary, int position, int count) {
    std::vector<llama_token> made;
    llama_token              current = token_at(vocabulary, 0, position);
    for (; int(made.size()) < count; ++position) {
        batch.n_tokens = 0;
        add_token(batch, current, 0, position, true);
        decode(ctx, batch);
        current = likeliest(ctx, 0, vocabulary);
        made.push_back(current);
    }
    return made;
}

// The draft proposes the tokens of "expected", but every third one is wrong. So batches are accepted in part.
std::vector<llama_token> speculate(llama_context * ctx, llama_batch & batch, uint32_t vocabulary, int position,
                                   const std::vector<llama_token> & expected, int draft) {
    std::vector<llama_token> made;
    llama_token              current = token_at(vocabulary, 0, position);
    while (made.size() < expected.size()) {
        const std::vector<uint8_t> before = state_of(ctx);
        batch.n_tokens                    = 0;
        add_token(batch, current, 0, position, true);
        const int proposed = std::min(draft, int(expected.size() - made.size()) - 1);
        for (int i = 0; i < proposed; ++i) {
            const size_t at    = made.size() + size_t(i);
            const bool   wrong = at % 3 == 2;
            add_token(batch, wrong ? (expected[at] + 1) % llama_token(vocabulary) : expected[at], 0, position + 1 + i, true);
        }
        decode(ctx, batch);
        int taken = 0;  // tokens of the batch that stay in the cache
        do {
            current = likeliest(ctx, taken, vocabulary);
            made.push_back(current);
            ++taken;
        } while (taken <= proposed && batch.token[taken] == current);
        if (taken <= proposed && !llama_memory_seq_rm(llama_get_memory(ctx), 0, position + taken, -1)) {
            restore(ctx, before);  // the state of a recurrent model cannot be shortened
            batch.n_tokens = taken;
            decode(ctx, batch);
        }
        position += taken;
    }
    return made;
}

std::string list_of(const std::vector<llama_token> & tokens) {
    std::string text;
    for (const llama_token token : tokens) {
        text += (text.empty() ? "" : ",") + std::to_string(token);
    }
    return text;
}

// ---- A KV cache that was not computed.

// Fills a KV cache directly. llama.cpp tracks used cells in a form that differs between builds. So a few cells are
// computed, copied as a state, moved to later positions and assigned to the first sequence until there are enough. Then
// their contents are overwritten, in the tensors that the graph reads.

constexpr int   chunk = 64;     // cells that are computed once and copied
constexpr float spread = 1.5f;  // of K and V: with the queries of these models, few keys dominate

bool is_cache(const ggml_tensor * tensor) {
    return tensor != nullptr && tensor->op == GGML_OP_NONE &&
           (std::strncmp(tensor->name, "cache_k", 7) == 0 || std::strncmp(tensor->name, "cache_v", 7) == 0);
}

bool see(ggml_tensor * node, bool ask, void * seen) {
    for (ggml_tensor * source : node->src) {
        ggml_tensor * base = source != nullptr && source->view_src != nullptr ? source->view_src : source;
        if (is_cache(base)) {
            (*static_cast<std::map<std::string, ggml_tensor *> *>(seen))[base->name] = base;
        }
    }
    return !ask;  // no values of nodes are needed
}

// Approximately normally distributed; the same for an element of a tensor regardless of its storage.
float random_value(uint64_t tensor, uint64_t cell, uint64_t column) {
    uint64_t x = (tensor * 0x9E3779B97F4A7C15ull + cell) * 0xBF58476D1CE4E5B9ull + column;
    x ^= x >> 30;
    x *= 0xBF58476D1CE4E5B9ull;
    x ^= x >> 27;
    x *= 0x94D049BB133111EBull;
    x ^= x >> 31;
    const int sum = int(x & 0xFFFF) + int(x >> 16 & 0xFFFF) + int(x >> 32 & 0xFFFF) + int(x >> 48) - 2 * 0xFFFF;
    return float(sum) * (spread * 1.7320508f / 0xFFFF);
}

// Without flash attention, the V cache is transposed: one row per column, with adjacent cells.
void fill(ggml_tensor * tensor, uint64_t number, bool is_transposed) {
    const int64_t      width = tensor->ne[0], cells = ggml_nelements(tensor) / width;
    std::vector<float> values(size_t(width * cells));
    for (int64_t cell = 0; cell < cells; ++cell) {
        for (int64_t column = 0; column < width; ++column) {
            values[size_t(is_transposed ? column * cells + cell : cell * width + column)] =
                random_value(number, uint64_t(cell), uint64_t(column));
        }
    }
    std::vector<uint8_t> bytes(ggml_nbytes(tensor));
    ggml_quantize_chunk(tensor->type, values.data(), bytes.data(), 0, cells, width, nullptr);
    ggml_backend_tensor_set(tensor, bytes.data(), 0, bytes.size());
}

void fill_cache(llama_context * ctx, const settings & s, uint32_t vocabulary, int depth,
                const std::map<std::string, ggml_tensor *> & seen) {
    llama_memory_t memory = llama_get_memory(ctx);
    llama_batch    batch  = llama_batch_init(chunk, 0, 1);
    for (int position = 0; position < chunk; ++position) {
        add(batch, vocabulary, 0, position, false);
    }
    decode(ctx, batch);
    const std::vector<uint8_t> state = state_of(ctx);
    for (int first = chunk; first < depth; first += chunk) {
        if (llama_state_seq_set_data(ctx, state.data(), state.size(), 1) == 0) {
            refuse("the state of a sequence cannot be copied", 3);
        }
        llama_memory_seq_add(memory, 1, 0, -1, first);
        llama_memory_seq_cp(memory, 1, 0, -1, -1);
        llama_memory_seq_rm(memory, 1, -1, -1);
    }
    batch.n_tokens = 0;
    add(batch, vocabulary, 0, depth, false);  // applies RoPE to the moved keys now, not after they are filled
    decode(ctx, batch);
    llama_memory_seq_rm(memory, 0, depth, -1);
    llama_batch_free(batch);
    if (seen.empty() || llama_memory_seq_pos_max(memory, 0) != depth - 1) {
        refuse("the model has no KV cache that can be filled", 3);
    }
    uint64_t number = 0;
    for (const auto & [name, tensor] : seen) {
        fill(tensor, ++number, s.number("flash") == 0 && name.compare(0, 7, "cache_v") == 0);
    }
}

void run(const char * backends, const char * path, const char * out, const settings & s) {
    ggml_backend_load_all_from_path(backends);  // also prints which GPUs there are, which the caller parses
    llama_log_set(quiet, nullptr);
    auto devices = offload_to(s.text("device"));
    llama_backend_init();
    llama_model_params of_model = llama_model_default_params();
    of_model.devices            = devices.data();
    of_model.n_gpu_layers       = devices.size() > 1 ? 999 : 0;
    llama_model * model         = llama_model_load_from_file(path, of_model);
    if (model == nullptr) {
        refuse(std::string("cannot load the model ") + path, 3);
    }
    const int sequences = s.number("sequences"), tokens = s.number("tokens"), steps = s.number("steps");
    const int depth     = s.number("depth");
    const std::vector<int> widths = s.numbers("widths");
    const int widest    = widths.empty() ? 1 : *std::max_element(widths.begin(), widths.end());
    if (!widths.empty() && (sequences > 1 || *std::min_element(widths.begin(), widths.end()) < 1 || widest > steps)) {
        refuse("widths require a single sequence and at most as many tokens as are generated");
    }
    if (depth % chunk != 0 || (depth > 0 && sequences > 1)) {
        refuse("depth requires a single sequence and a multiple of " + std::to_string(chunk));
    }
    std::map<std::string, ggml_tensor *> caches;
    llama_context_params of_context = llama_context_default_params();
    of_context.n_ctx                = uint32_t((depth + tokens + steps + 255) / 256 * 256 * sequences);
    of_context.n_batch              = uint32_t(std::max({tokens * sequences, chunk, widest}));
    of_context.n_ubatch             = uint32_t(s.number("ubatch"));
    of_context.n_seq_max            = uint32_t(depth > 0 ? 2 : sequences);  // the second one is for copies
    of_context.n_threads            = s.number("threads");
    of_context.n_threads_batch      = s.number("threads");
    of_context.type_k               = s.type("type_k");
    of_context.type_v               = s.type("type_v");
    of_context.kv_unified           = depth > 0 || s.number("unified") != 0;
    of_context.flash_attn_type      = s.number("flash") != 0 ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    if (depth > 0) {
        of_context.cb_eval           = see;
        of_context.cb_eval_user_data = &caches;
    }
    llama_context * ctx = llama_init_from_model(model, of_context);
    if (ctx == nullptr) {
        refuse("cannot create a context with these settings", 3);
    }
    table kept;
    kept.vocabulary   = uint32_t(llama_vocab_n_tokens(llama_model_get_vocab(model)));
    if (depth > 0) {
        fill_cache(ctx, s, kept.vocabulary, depth, caches);
    }
    llama_batch batch = llama_batch_init(std::max(tokens * sequences, widest), 0, 1);
    const int   step  = std::max(1, s.number("stride")), last = depth + tokens - 1;
    for (int position = depth; position <= last; ++position) {
        for (int sequence = 0; sequence < sequences; ++sequence) {
            add(batch, kept.vocabulary, sequence, position,
                (position - depth) % step == step - 1 || position == last);
        }
    }
    decode(ctx, batch, kept);
    std::vector<uint8_t> state;
    if (!widths.empty()) {
        state = state_of(ctx);
        restore(ctx, state);
    }
    for (int position = last + 1; position <= last + steps; ++position) {
        batch.n_tokens = 0;
        for (int sequence = 0; sequence < sequences; ++sequence) {
            add(batch, kept.vocabulary, sequence, position, true);
        }
        decode(ctx, batch, kept);
    }
    for (const int width : widths) {
        restore(ctx, state);
        for (int first = last + 1; first + width <= last + 1 + steps; first += width) {
            batch.n_tokens = 0;
            for (int position = first; position < first + width; ++position) {
                add(batch, kept.vocabulary, 0, position, true);
            }
            decode(ctx, batch, kept);
        }
    }
    if (const int draft = s.optional("draft"); draft > 0) {
        restore(ctx, state);
        const auto single = generate(ctx, batch, kept.vocabulary, last + 1, steps);
        restore(ctx, state);
        const auto drafted = speculate(ctx, batch, kept.vocabulary, last + 1, single, draft);
        std::printf("single=%s drafted=%s\n", list_of(single).c_str(), list_of(drafted).c_str());
    }
    kept.write(out);
    llama_batch_free(batch);
    llama_free(ctx);
    llama_model_free(model);
    llama_backend_free();
}

std::vector<double> log_softmax(const float * row, size_t count) {
    const double        highest = *std::max_element(row, row + count);
    double              sum     = 0.0;
    std::vector<double> result(count);
    for (size_t i = 0; i < count; ++i) {
        sum += std::exp(row[i] - highest);
    }
    for (size_t i = 0; i < count; ++i) {
        result[i] = row[i] - highest - std::log(sum);
    }
    return result;
}

// Compares "count" rows of both, from these on, and prints the values of a line.
void compare(const table & reference, size_t left, const table & other, size_t right, size_t count) {
    const size_t width = reference.vocabulary;
    double       error = 0.0, norm = 0.0, worst = -1.0, kl_sum = 0.0, kl_worst = 0.0;
    size_t       worst_at = 0, same_top = 0, equal = 0;
    bool         finite   = true;
    for (size_t r = 0; r < count; ++r) {
        const float * a = &reference.values[(left + r) * width];
        const float * b = &other.values[(right + r) * width];
        double        row_error = 0.0, row_norm = 0.0, kl = 0.0;
        for (size_t i = 0; i < width; ++i) {
            finite = finite && std::isfinite(a[i]) && std::isfinite(b[i]);
            row_error += (double(a[i]) - b[i]) * (double(a[i]) - b[i]);
            row_norm += double(a[i]) * a[i];
        }
        const auto p = log_softmax(a, width), q = log_softmax(b, width);
        for (size_t i = 0; i < width; ++i) {
            kl += std::exp(p[i]) * (p[i] - q[i]);
        }
        error += row_error;
        norm += row_norm;
        kl_sum += kl;
        kl_worst = std::max(kl_worst, kl);
        same_top += std::max_element(a, a + width) - a == std::max_element(b, b + width) - b;
        equal += std::memcmp(a, b, width * sizeof(float)) == 0;
        if (!(row_error / row_norm <= worst)) {
            worst    = row_error / row_norm;
            worst_at = r;
        }
    }
    std::printf("rows=%zu vocabulary=%zu nmse=%.6e worst=%.6e at=%zu kl=%.6e kl_worst=%.6e same_top=%zu finite=%d equal=%zu\n",
                count, width, error / norm, worst, worst_at, kl_sum / double(count), kl_worst, same_top, finite ? 1 : 0,
                equal);
}

void compare(const char * left, const char * right) {
    const table reference = table::read(left), other = table::read(right);
    if (reference.rows != other.rows || reference.vocabulary != other.vocabulary) {
        refuse(std::string(left) + " and " + right + " are not comparable");
    }
    compare(reference, 0, other, 0, reference.rows);
}

void compare_widths(const char * path, const settings & s) {
    const table            all    = table::read(path);
    const std::vector<int> widths = s.numbers("widths");
    const auto             steps  = size_t(s.number("steps"));
    size_t                 count  = steps;
    for (const int width : widths) {
        count += steps / size_t(width) * size_t(width);
    }
    if (count > all.rows) {
        refuse(std::string(path) + " has no rows of these widths");
    }
    const size_t one  = all.rows - count;
    size_t       next = one + steps;
    for (const int width : widths) {
        const size_t rows = steps / size_t(width) * size_t(width);
        std::printf("width=%d ", width);
        compare(all, one, all, next, rows);
        next += rows;
    }
}

}  // namespace

int main(int argc, char ** argv) {
    const std::string mode = argc > 1 ? argv[1] : "";
    if (mode == "run" && argc > 4) {
        run(argv[2], argv[3], argv[4], settings(argc - 5, argv + 5));
    } else if (mode == "compare" && argc == 4) {
        compare(argv[2], argv[3]);
    } else if (mode == "spread" && argc > 3) {
        compare_widths(argv[2], settings(argc - 3, argv + 3));
    } else {
        refuse("usage: logits run BACKENDS MODEL OUT name=value ... | compare REFERENCE OTHER | spread FILE name=value ...");
    }
    return 0;
}
