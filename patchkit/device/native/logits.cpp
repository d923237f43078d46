// The logits of a model on one device, and the distance between two sets of logits.
//
//   logits run BACKENDS MODEL OUT name=value ...
//   logits compare REFERENCE OTHER
//
// BACKENDS is the folder that ggml loads its backends from. Values: device (its name; CPU offloads nothing),
// flash (0/1: flash attention), type_k type_v (ggml type names), tokens (of the prompt, per sequence), steps
// (tokens generated after it, one at a time), ubatch (tokens per physical batch), sequences (their tokens
// alternate in the batch), unified (0/1: one KV buffer for all sequences), stride (every which row of the prompt
// is kept; the last and all generated ones always are), threads.
// The tokens are the same for every run of a vocabulary. OUT gets "PKLG", two uint32 (rows, vocabulary) and the
// rows as float32. compare prints one line:
//   rows=N vocabulary=V nmse=X worst=Y at=ROW kl=K kl_worst=L same_top=N finite=0/1

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
            refuse(path + " holds no logits");
        }
        t.values.resize(size_t(t.rows) * t.vocabulary);
        file.read(reinterpret_cast<char *>(t.values.data()), std::streamsize(t.values.size() * sizeof(float)));
        if (!file || file.peek() != std::ifstream::traits_type::eof()) {
            refuse(path + " is cut off or too long");
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

// Which device computes: none of the list for the CPU.
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

// Token "position" of a sequence; the generator is our own, so that it is the same everywhere.
llama_token token_at(uint32_t vocabulary, int sequence, int position) {
    uint64_t x = uint64_t(sequence) * 0x9E3779B97F4A7C15ull + uint64_t(position) * 0xBF58476D1CE4E5B9ull + 6900;
    x ^= x >> 30;
    x *= 0xBF58476D1CE4E5B9ull;
    x ^= x >> 27;
    x *= 0x94D049BB133111EBull;
    x ^= x >> 31;
    return llama_token(x % vocabulary);
}

void decode(llama_context * ctx, const llama_batch & batch, table & kept) {
    const int status = llama_decode(ctx, batch);
    if (status != 0) {
        refuse("llama_decode gave " + std::to_string(status), 3);
    }
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

void add(llama_batch & batch, uint32_t vocabulary, int sequence, int position, bool keep) {
    const int i            = batch.n_tokens++;
    batch.token[i]         = token_at(vocabulary, sequence, position);
    batch.pos[i]           = position;
    batch.n_seq_id[i]      = 1;
    batch.seq_id[i][0]     = sequence;
    batch.logits[i]        = keep ? 1 : 0;
}

void run(const char * backends, const char * path, const char * out, const settings & s) {
    ggml_backend_load_all_from_path(backends);  // says which GPUs there are: the caller looks for that
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
    llama_context_params of_context = llama_context_default_params();
    of_context.n_ctx                = uint32_t((tokens + steps + 255) / 256 * 256 * sequences);
    of_context.n_batch              = uint32_t(tokens * sequences);
    of_context.n_ubatch             = uint32_t(s.number("ubatch"));
    of_context.n_seq_max            = uint32_t(sequences);
    of_context.n_threads            = s.number("threads");
    of_context.n_threads_batch      = s.number("threads");
    of_context.type_k               = s.type("type_k");
    of_context.type_v               = s.type("type_v");
    of_context.kv_unified           = s.number("unified") != 0;
    of_context.flash_attn_type      = s.number("flash") != 0 ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    llama_context * ctx             = llama_init_from_model(model, of_context);
    if (ctx == nullptr) {
        refuse("the model gives no context with these settings", 3);
    }
    table kept;
    kept.vocabulary   = uint32_t(llama_vocab_n_tokens(llama_model_get_vocab(model)));
    llama_batch batch = llama_batch_init(tokens * sequences, 0, 1);
    const int   step  = std::max(1, s.number("stride"));
    for (int position = 0; position < tokens; ++position) {
        for (int sequence = 0; sequence < sequences; ++sequence) {
            add(batch, kept.vocabulary, sequence, position, position % step == step - 1 || position == tokens - 1);
        }
    }
    decode(ctx, batch, kept);
    for (int position = tokens; position < tokens + steps; ++position) {
        batch.n_tokens = 0;
        for (int sequence = 0; sequence < sequences; ++sequence) {
            add(batch, kept.vocabulary, sequence, position, true);
        }
        decode(ctx, batch, kept);
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

void compare(const char * left, const char * right) {
    const table reference = table::read(left), other = table::read(right);
    if (reference.rows != other.rows || reference.vocabulary != other.vocabulary) {
        refuse(std::string(left) + " and " + right + " do not belong together");
    }
    const size_t width = reference.vocabulary;
    double       error = 0.0, norm = 0.0, worst = -1.0, kl_sum = 0.0, kl_worst = 0.0;
    size_t       worst_at = 0, same_top = 0;
    bool         finite   = true;
    for (size_t r = 0; r < reference.rows; ++r) {
        const float * a = &reference.values[r * width];
        const float * b = &other.values[r * width];
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
        if (!(row_error / row_norm <= worst)) {
            worst    = row_error / row_norm;
            worst_at = r;
        }
    }
    std::printf("rows=%u vocabulary=%u nmse=%.6e worst=%.6e at=%zu kl=%.6e kl_worst=%.6e same_top=%zu finite=%d\n",
                reference.rows, reference.vocabulary, error / norm, worst, worst_at, kl_sum / double(reference.rows),
                kl_worst, same_top, finite ? 1 : 0);
}

}  // namespace

int main(int argc, char ** argv) {
    const std::string mode = argc > 1 ? argv[1] : "";
    if (mode == "run" && argc > 4) {
        run(argv[2], argv[3], argv[4], settings(argc - 5, argv + 5));
    } else if (mode == "compare" && argc == 4) {
        compare(argv[2], argv[3]);
    } else {
        refuse("usage: logits run BACKENDS MODEL OUT name=value ... | logits compare REFERENCE OTHER");
    }
    return 0;
}
