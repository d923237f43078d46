// Runs batches of a model through upstream's libllama and HIP backend, and logs what each of them launches and copies.
//
//   model_batches MODEL PLAN BACKENDS
//
// BACKENDS is the folder of the backends. Lines of PLAN: "context ROWS SEQUENCES TYPE" creates a context with a KV
// cache of this size and type, and "test NAME DEPTH TOKENS SEQUENCES" runs one batch at context depth DEPTH: TOKENS
// tokens of one sequence, or one token for each of several sequences with a shared prefix.
//
// The preceding tokens are never computed: their batches go through upstream's host code, so that the KV cache contains
// them, but their launches and copies are dropped. In a test, each distinct launch runs once on the emulated GPU;
// launches with equal kernel, grid, block and arguments (except memory addresses) are only counted. The recorder's log
// gets a line for each launch (see `started` below), each copy, and each operation of the graph with its tensors.
//
// Weights are neither read nor copied (the file has holes in their place), so matrices of any size need no memory. So
// values are meaningless, except for the experts that a token is routed to: kernels that select them get tokens that
// use the experts in turn, and run at every launch, because their results determine what others do.

#include "ggml.h"
#include "ggml-backend.h"
#include "llama.h"

#include "../runtime/allocations.hpp"
#include "../runtime/arguments.hpp"
#include "../runtime/recorder.hpp"
#include "../runtime/registry.hpp"

#include <dlfcn.h>
#include <hip/hip_runtime_api.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace {

[[noreturn]] void refuse(const std::string & what) {
    std::fprintf(stderr, "model_batches: %s\n", what.c_str());
    std::exit(2);
}

constexpr size_t small = 64 << 10; // bytes: norms and biases are copied, weights are not

bool is_watching = false;

template <typename function> function real(const char * name) {
    static_assert(sizeof(function) == sizeof(void *));
    void * found = dlsym(RTLD_NEXT, name);
    if (found == nullptr) {
        refuse(std::string("the runtime has no ") + name);
    }
    return reinterpret_cast<function>(found);
}

std::string list_of(const std::vector<uint64_t> & numbers) {
    std::string result;
    for (const uint64_t one : numbers) {
        result += (result.empty() ? "" : ",") + std::to_string(one);
    }
    return "[" + result + "]";
}

std::string triple(const dim3 & d) { return list_of({d.x, d.y, d.z}); }

// ---- Operations of the graph.

struct seen_tensor {
    uintptr_t at;
    int64_t columns, rows;
    ggml_type type;
};

std::vector<seen_tensor> results; // of the next graph
int64_t experts = 0, used = 0;    // of its MoE matmuls

std::string as_json(const ggml_tensor & t) {
    std::vector<uint64_t> extents(t.ne, t.ne + GGML_MAX_DIMS);
    return "{\"name\":" + patchkit::quoted(t.name) + ",\"at\":" + std::to_string(uintptr_t(t.data)) + ",\"bytes\":" +
           std::to_string(ggml_nbytes(&t)) + ",\"type\":" + patchkit::quoted(ggml_type_name(t.type)) + ",\"shape\":" +
           list_of(extents) + ",\"leaf\":" + (t.op == GGML_OP_NONE ? "true" : "false") + "}";
}

bool is_view(const ggml_tensor & t) {
    return t.op == GGML_OP_NONE || t.op == GGML_OP_VIEW || t.op == GGML_OP_RESHAPE || t.op == GGML_OP_PERMUTE ||
           t.op == GGML_OP_TRANSPOSE;
}

// The scheduler asks before computing a graph whether a callback needs a node's value. The answer is always no, so the
// graph is not split and upstream's fusions stay active.
bool note_node(ggml_tensor * t, bool /*ask*/, void * /*data*/) {
    if (!is_watching) {
        return false;
    }
    results.push_back({uintptr_t(t->data), t->ne[0], ggml_nrows(t), t->type});
    if (t->op == GGML_OP_MUL_MAT_ID) {
        experts = t->src[0]->ne[2];
        used    = t->src[2]->ne[0];
    }
    if (is_view(*t)) {
        return false;
    }
    std::string from;
    for (int n = 0; n < GGML_MAX_SRC; ++n) {
        if (t->src[n] != nullptr) {
            from += (from.empty() ? "" : ",") + as_json(*t->src[n]);
        }
    }
    patchkit::log_line("{\"node\":" + patchkit::quoted(ggml_op_name(t->op)) + ",\"result\":" + as_json(*t) +
                       ",\"from\":[" + from + "]}");
    return false;
}

// ---- Launches.

bool has(const std::string & name, std::initializer_list<const char *> parts) {
    return std::any_of(parts.begin(), parts.end(), [&](const char * part) { return name.find(part) != std::string::npos; });
}

// Kernels whose results are read by host code, or determine which blocks of others have work.
bool decides(const std::string & name) { return has(name, {"topk_moe", "argsort", "mm_ids_helper", "mask_to_KV_max"}); }

// Replaces what was not computed: token t uses the experts from t * used on. Returns the number of tokens.
int64_t choose_experts(void ** values) {
    const auto logits = *static_cast<const uintptr_t *>(values[0]);
    const auto found  = std::find_if(results.rbegin(), results.rend(), [&](const seen_tensor & one) {
        return one.at == logits && one.columns == experts && one.type == GGML_TYPE_F32;
    });
    if (experts == 0 || found == results.rend() || patchkit::allocation_of(logits).size == 0) {
        return 0;
    }
    auto * const to = reinterpret_cast<float *>(logits); // NOLINT(performance-no-int-to-ptr)
    for (int64_t row = 0; row < found->rows; ++row) {
        for (int64_t one = 0; one < experts; ++one) {
            const int64_t place = (one - row * used % experts + experts) % experts;
            to[row * experts + one] = -float(place) / 8;
        }
    }
    return found->rows;
}

// A block sorts the experts of one token, but not all blocks of a launch run: writes what the others would have.
void write_order(void ** values, int64_t rows) {
    auto * const order = *static_cast<int32_t **>(values[1]);
    for (int64_t row = 0; row < rows; ++row) {
        for (int64_t place = 0; place < experts; ++place) {
            order[row * experts + place] = int32_t((row * used + place) % experts);
        }
    }
}

std::map<std::string, int> known; // launch numbers, by all properties of the launch
int traces = 0;                   // number of traces written by the emulated GPU

using launch_call = hipError_t (*)(const void *, dim3, dim3, void **, size_t, hipStream_t);

hipError_t start(launch_call run, const void * function, dim3 grid, dim3 block, void ** values, size_t lds,
                 hipStream_t stream) {
    patchkit::loaded_kernel kernel;
    const hipError_t error = patchkit::find_kernel(function, kernel);
    if (error != hipSuccess) {
        return error;
    }
    const std::string name = patchkit::name_of_kernel(function);
    std::vector<std::byte> arguments = patchkit::pack_arguments(*kernel.kernel, {grid, block, uint32_t(lds), false}, values);
    std::vector<uint64_t> pointers;
    for (size_t at = 0; at + sizeof(uint64_t) <= arguments.size(); at += sizeof(uint64_t)) {
        uint64_t word = 0;
        std::memcpy(&word, &arguments[at], sizeof(word));
        const patchkit::allocation in = patchkit::allocation_of(uintptr_t(word));
        if (in.size != 0 && in.whose == patchkit::owner::program) {
            pointers.push_back(word);
            word = 1; // placeholder for a pointer
            std::memcpy(&arguments[at], &word, sizeof(word));
        }
    }
    const std::string what = name + triple(grid) + triple(block) + std::to_string(lds) +
                             std::string(reinterpret_cast<const char *>(arguments.data()), arguments.size());
    const auto [entry, is_new] = known.try_emplace(what, int(known.size()));
    const bool runs  = is_new || decides(name);
    const int  trace = is_new ? traces + 1 : -1; // numbered like those of the emulated GPU
    patchkit::log_line("{\"started\":" + patchkit::quoted(name) + ",\"grid\":" + triple(grid) + ",\"block\":" +
                       triple(block) + ",\"lds\":" + std::to_string(lds) + ",\"number\":" + std::to_string(entry->second) +
                       ",\"trace\":" + std::to_string(trace) + ",\"pointers\":" + list_of(pointers) + "}");
    if (!runs) {
        return hipSuccess;
    }
    const int64_t chosen = has(name, {"topk_moe", "argsort"}) ? choose_experts(values) : 0;
    ++traces;
    const hipError_t done = run(function, grid, block, values, lds, stream);
    if (done == hipSuccess && has(name, {"argsort"})) {
        write_order(values, chosen);
    }
    return done;
}

// ---- Copies.

const char * name_of(hipMemcpyKind kind) {
    switch (kind) {
        case hipMemcpyHostToDevice: return "to the GPU";
        case hipMemcpyDeviceToHost: return "from the GPU";
        case hipMemcpyDeviceToDevice: return "on the GPU";
        default: return "";
    }
}

// Whether the copy should be executed.
bool note_copy(const char * what, const void * to, size_t bytes) {
    if (is_watching) {
        patchkit::log_line("{\"moved\":" + patchkit::quoted(what) + ",\"bytes\":" + std::to_string(bytes) + ",\"to\":" +
                           std::to_string(uintptr_t(to)) + "}");
        return true;
    }
    return bytes <= small;
}

} // namespace

// These take precedence over the runtime's functions for the HIP backend, which is loaded later.
extern "C" {

hipError_t hipLaunchKernel(const void * function, dim3 grid, dim3 block, void ** values, size_t lds, hipStream_t stream) {
    static const auto run = real<launch_call>("hipLaunchKernel");
    return is_watching ? start(run, function, grid, block, values, lds, stream) : hipSuccess;
}

hipError_t hipMemcpy(void * to, const void * from, size_t bytes, hipMemcpyKind kind) {
    static const auto run = real<decltype(&hipMemcpy)>("hipMemcpy");
    return note_copy(name_of(kind), to, bytes) ? run(to, from, bytes, kind) : hipSuccess;
}

hipError_t hipMemcpyAsync(void * to, const void * from, size_t bytes, hipMemcpyKind kind, hipStream_t stream) {
    static const auto run = real<decltype(&hipMemcpyAsync)>("hipMemcpyAsync");
    return note_copy(name_of(kind), to, bytes) ? run(to, from, bytes, kind, stream) : hipSuccess;
}

hipError_t hipMemcpy2DAsync(void * to, size_t to_pitch, const void * from, size_t from_pitch, size_t width, size_t height,
                            hipMemcpyKind kind, hipStream_t stream) {
    static const auto run = real<decltype(&hipMemcpy2DAsync)>("hipMemcpy2DAsync");
    return note_copy(name_of(kind), to, width * height) ? run(to, to_pitch, from, from_pitch, width, height, kind, stream)
                                                        : hipSuccess;
}

hipError_t hipMemset(void * to, int value, size_t bytes) {
    static const auto run = real<decltype(&hipMemset)>("hipMemset");
    return note_copy("filled", to, bytes) ? run(to, value, bytes) : hipSuccess;
}

hipError_t hipMemsetAsync(void * to, int value, size_t bytes, hipStream_t stream) {
    static const auto run = real<decltype(&hipMemsetAsync)>("hipMemsetAsync");
    return note_copy("filled", to, bytes) ? run(to, value, bytes, stream) : hipSuccess;
}

// Pages of the model file are read on demand: it consists mostly of holes, which would become zero pages.
void * mmap(void * place, size_t size, int protection, int flags, int file, off_t at) {
    return reinterpret_cast<void *>( // NOLINT(performance-no-int-to-ptr)
        syscall(SYS_mmap, place, size, protection, flags & ~MAP_POPULATE, file, at));
}

int posix_madvise(void * /*place*/, size_t /*size*/, int /*advice*/) { return 0; }

} // extern "C"

namespace {

constexpr int micro_batch = 512, batch_size = 2048; // llama-bench's defaults

// Builds before the enumeration of load modes have a flag.
template <typename params> void map_file(params & p) {
    if constexpr (requires { p.use_mmap; }) {
        p.use_mmap = true;
    } else {
        p.load_mode = decltype(p.load_mode)(1); // mmap
    }
}

// A model with a context, and the number of tokens of its first sequence.
class session {
  public:
    explicit session(llama_model * model) : model(model) {}
    ~session() { close(); }
    session(const session &) = delete;
    session & operator=(const session &) = delete;

    void open(int rows, int sequences, const std::string & type) {
        close();
        llama_context_params p = llama_context_default_params();
        p.n_ctx           = uint32_t(rows);
        p.n_batch         = batch_size;
        p.n_ubatch        = micro_batch;
        p.n_seq_max       = uint32_t(sequences);
        p.kv_unified      = sequences > 1;
        p.swa_full        = false;
        p.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
        p.type_k = p.type_v = type_of(type);
        p.n_threads = p.n_threads_batch = 1;
        p.no_perf = true;
        p.cb_eval = note_node;
        context = llama_init_from_model(model, p);
        if (context == nullptr) {
            refuse("llama.cpp cannot create a context for this model");
        }
        there = 0;
    }

    void run(const std::string & name, int depth, int tokens, int sequences) {
        if (context == nullptr) {
            refuse("a test without a context");
        }
        fill(depth);
        if (sequences > 1) {
            make_room(depth, sequences);
        }
        llama_memory_t memory = llama_get_memory(context);
        for (int n = 1; n < sequences; ++n) {
            llama_memory_seq_cp(memory, 0, n, -1, -1);
        }
        patchkit::log_line("{\"test\":" + patchkit::quoted(name) + "}");
        results.clear();
        is_watching = true;
        decode(depth, tokens, sequences, name);
        is_watching = false;
        patchkit::log_line("{\"test\":\"\"}");
        for (int n = 1; n < sequences; ++n) {
            llama_memory_seq_rm(memory, n, -1, -1);
        }
        take_back(depth);
    }

  private:
    llama_model * model;
    llama_context * context = nullptr;
    int there               = 0;

    void close() {
        if (context != nullptr) {
            llama_free(context);
            context = nullptr;
        }
    }

    static ggml_type type_of(const std::string & name) {
        for (int n = 0; n < GGML_TYPE_COUNT; ++n) {
            const char * is = ggml_type_name(ggml_type(n));
            if (is != nullptr && name == is) {
                return ggml_type(n);
            }
        }
        refuse("unknown type " + name);
    }

    // Layers with a window have rows for it and one batch, and reuse rows of tokens outside of all windows, but only
    // rows that belong to a single sequence. So before sequences share rows, as many of the oldest are removed as
    // tokens will follow.
    void make_room(int depth, int sequences) {
        llama_memory_t memory  = llama_get_memory(context);
        const llama_pos oldest = llama_memory_seq_pos_min(memory, 0);
        const int window       = llama_model_n_swa(model);
        if (window > 0 && oldest >= 0 && oldest + sequences + window <= depth) {
            llama_memory_seq_rm(memory, 0, oldest, oldest + sequences);
        }
    }

    // Recurrent layers cannot remove only the last tokens.
    void take_back(int depth) {
        llama_memory_t memory = llama_get_memory(context);
        there = depth;
        if (!llama_memory_seq_rm(memory, 0, depth, -1)) {
            llama_memory_clear(memory, false);
            there = 0;
        }
    }

    void fill(int depth) {
        if (depth < there) {
            take_back(depth);
        }
        while (there < depth) {
            const int count = std::min(batch_size, depth - there);
            decode(there, count, 1, "the preceding tokens");
            there += count;
        }
    }

    void decode(int depth, int tokens, int sequences, const std::string & what) {
        llama_batch batch = llama_batch_init(std::max(tokens, sequences), 0, 1);
        batch.n_tokens = sequences > 1 ? sequences : tokens;
        for (int n = 0; n < batch.n_tokens; ++n) {
            batch.token[n]     = n % 256;
            batch.pos[n]       = sequences > 1 ? depth : depth + n;
            batch.n_seq_id[n]  = 1;
            batch.seq_id[n][0] = sequences > 1 ? n : 0;
            batch.logits[n]    = sequences > 1 || n + 1 == tokens;
        }
        if (llama_decode(context, batch) != 0) {
            refuse("llama_decode failed for " + what);
        }
        llama_synchronize(context);
        llama_batch_free(batch);
    }
};

void quiet(ggml_log_level level, const char * text, void * /*data*/) {
    if (level == GGML_LOG_LEVEL_ERROR) {
        std::fputs(text, stderr);
    }
}

void run_plan(session & all, const char * path) {
    std::ifstream plan(path);
    std::string line;
    while (std::getline(plan, line)) {
        std::istringstream words(line);
        std::string word, name, type;
        int rows = 0, sequences = 0, depth = 0, tokens = 0;
        words >> word;
        if (word == "context" && words >> rows >> sequences >> type) {
            all.open(rows, sequences, type);
        } else if (word == "test" && words >> name >> depth >> tokens >> sequences) {
            all.run(name, depth, tokens, sequences);
        } else {
            refuse("invalid line of the plan: " + line);
        }
    }
}

} // namespace

int main(int argc, char ** argv) {
    if (argc != 4) {
        refuse("usage: model_batches MODEL PLAN BACKENDS");
    }
    llama_log_set(quiet, nullptr);
    ggml_backend_load_all_from_path(argv[3]);
    llama_model_params params = llama_model_default_params();
    params.n_gpu_layers = 1024;
    map_file(params);
    llama_model * model = llama_model_load_from_file(argv[1], params);
    if (model == nullptr) {
        refuse("llama.cpp cannot load the model");
    }
    {
        session all(model);
        run_plan(all, argv[2]);
    }
    llama_model_free(model);
    return 0;
}
