// Computes small graphs on one device, several times with other inputs, and compares the results with the CPU's.
//
//   graph_check MODULE CPU DEVICE GRAPHS
//   graph_check shapes GRAPHS
//
// MODULE and CPU are backend libraries, DEVICE the name of a device of the first. The second form computes nothing and
// prints "ID shape NAME TYPE N,N,N,N" for each node. GRAPHS is a file of lines of "name=value" words:
//
//   graph ID seed=N rounds=N memory=apart|reused|scheduled steps=0/1 compared=0/1 contexts=1/2
//   leaf NAME is=weight|input|cache|mask|numbers type=TYPE ne=N,N,N,N [seen=causal|padded|window|all] [first=N,...] [step=N] [negative=0/1] [shift=X]
//   node NAME op=OP of=NAME,... [ne=N,...] [nb=C.D,... at=C.D] [i=N,...] [f=X,...] [output=1] [idle=1] [over=NAME [at=C.D]]
//   end
//
// A stride C.D is C times the source's stride of dimension D, and so is the offset "at" of a view. With memory=apart each
// tensor has a buffer of its own, of exactly the size that the backend asks for: an access past the end of a tensor is
// an access outside of any allocation. With memory=reused ggml's allocator places what the graph computes. With
// memory=scheduled ggml's scheduler does that, and computes the graph, as in llama.cpp: the backend may then reorder it and
// compute parts of it in other streams. A node with "over" lies in the memory of another tensor with any of them, "at" bytes
// (written like a stride, may be negative) after its start; both then have one buffer. With steps=1 each node is computed by a
// call of its own, as with an eval callback. With compared=0 the CPU computes nothing. With compared=2 each node is computed
// from the CPU's values by a call of its own, and each has a result: the distance that the operation itself adds. A node with
// "idle" is in the graph and is only computed if a computed node reads it.
//
// With contexts=2 a second backend context of the device computes the graph at the same time in another thread, with
// other inputs and the same weights in memory. In each round the two threads exchange the contexts. Results of the second
// one have names with "/2", and are compared with those of the second one alone.
//
// Prints for each graph "ID invalid" (ggml or the CPU backend does not accept it, or its results on the CPU change
// if each tensor has a buffer of its own with other bytes in it), "ID unsupported NAME" (the device does
// not have the operation), or lines "ID result NAME round=N hash=H [nmse=X worst=Y finite=0/1]" for each output and cache, and "ID done
// findings=N" (to stderr "ID begins"): lines of the findings so far if checks of the emulated GPU run, else 0. nmse is the squared error over
// the sum of squares of the CPU's values; worst is the largest error of a value over the root mean square of those.

#include "apart.hpp"
#include "ggml.h"
#include "ggml-alloc.h"
#include "ggml-backend.h"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cinttypes>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

[[noreturn]] void refuse(const std::string & what) {
    std::fprintf(stderr, "graph_check: %s\n", what.c_str());
    std::exit(2);
}

// ---- The file.

class words {
  public:
    std::string name;

    explicit words(std::istringstream & line) {
        line >> name;
        for (std::string word; line >> word;) {
            const size_t equals = word.find('=');
            values[word.substr(0, equals)] = equals == std::string::npos ? "" : word.substr(equals + 1);
        }
    }

    std::string text(const char * key, const char * otherwise = "") const {
        const auto found = values.find(key);
        return found == values.end() ? otherwise : found->second;
    }

    std::vector<std::string> list(const char * key) const {
        std::vector<std::string> found;
        std::istringstream       all(text(key));
        for (std::string one; std::getline(all, one, ',');) {
            found.push_back(one);
        }
        return found;
    }

    int64_t integer(const char * key, int64_t otherwise = 0) const {
        const std::string found = text(key);
        return found.empty() ? otherwise : std::strtoll(found.c_str(), nullptr, 10);
    }

    std::vector<int64_t> integers(const char * key) const {
        std::vector<int64_t> found;
        for (const std::string & one : list(key)) {
            found.push_back(std::strtoll(one.c_str(), nullptr, 10));
        }
        return found;
    }

    std::array<int64_t, 4> extents() const {
        std::array<int64_t, 4>     ne{1, 1, 1, 1};
        const std::vector<int64_t> given = integers("ne");
        std::copy_n(given.begin(), std::min<size_t>(given.size(), 4), ne.begin());
        return ne;
    }

    // Parameters of an operation.
    int   i(size_t n, int otherwise = 0) const { const auto all = integers("i"); return n < all.size() ? int(all[n]) : otherwise; }
    float f(size_t n, float otherwise = 0.0f) const {
        const auto all = list("f");
        return n < all.size() ? std::strtof(all[n].c_str(), nullptr) : otherwise;
    }

  private:
    std::map<std::string, std::string> values;
};

struct description {
    words              graph;
    std::vector<words> leaves, nodes;
};

ggml_type type_of(const std::string & name) {
    for (int i = 0; i < GGML_TYPE_COUNT; ++i) {
        const char * known = ggml_type_name(ggml_type(i));
        if (known != nullptr && name == known) {
            return ggml_type(i);
        }
    }
    refuse("unknown type " + name);
}

std::vector<description> read_graphs(const char * path) {
    std::ifstream file(path);
    if (!file) {
        refuse(std::string("cannot read ") + path);
    }
    std::vector<description> found;
    for (std::string text; std::getline(file, text);) {
        std::istringstream line(text);
        std::string        kind;
        line >> kind;
        if (kind == "graph") {
            found.push_back({words(line), {}, {}});
        } else if ((kind == "leaf" || kind == "node") && !found.empty()) {
            (kind == "leaf" ? found.back().leaves : found.back().nodes).emplace_back(line);
        } else if (kind != "end") {
            refuse("invalid line: " + text);
        }
    }
    return found;
}

// ---- Operations.

using tensors = std::vector<ggml_tensor *>;

ggml_tensor * optional(const tensors & of, size_t n) { return n < of.size() ? of[n] : nullptr; }

// Functions that older versions of ggml lack.
template <typename function> function find(const char * name) {
    void * found = dlsym(RTLD_DEFAULT, name);
    if (found == nullptr) {
        refuse(std::string("this ggml has no ") + name);
    }
    return reinterpret_cast<function>(found);
}

size_t stride(const std::string & text, const ggml_tensor * of) {
    const size_t dot = text.find('.');
    return size_t(std::strtoll(text.c_str(), nullptr, 10)) * of->nb[dot == std::string::npos ? 0 : size_t(text[dot + 1] - '0')];
}

ggml_tensor * view(ggml_context * ctx, const words & w, ggml_tensor * of) {
    const auto   ne = w.extents();
    const auto   nb = w.list("nb");
    const size_t at = w.text("at").empty() ? 0 : stride(w.text("at"), of);
    const auto   of_dimension = [&](size_t n) { return n < nb.size() ? stride(nb[n], of) : of->nb[n + 1]; };
    return ggml_view_4d(ctx, of, ne[0], ne[1], ne[2], ne[3], of_dimension(0), of_dimension(1), of_dimension(2), at);
}

ggml_tensor * rope(ggml_context * ctx, const words & w, const tensors & of, bool is_in_place) {
    const int   dims = w.i(0), mode = w.i(1), offset = w.i(2);
    const float base = w.f(0, 10000.0f), scale = w.f(1, 1.0f), ext = w.f(2), attention = w.f(3, 1.0f);
    const float fast = w.f(4, 32.0f), slow = w.f(5, 1.0f);
    ggml_tensor * made = nullptr;
    if (mode & GGML_ROPE_TYPE_MROPE) {
        int        sections[GGML_MROPE_SECTIONS] = {dims / 4, dims / 8, dims / 8, 0};
        const auto make = is_in_place ? ggml_rope_multi_inplace : ggml_rope_multi;
        made = make(ctx, of[0], of[1], optional(of, 2), dims, sections, mode, 4096, base, scale, ext, attention, fast, slow);
    } else {
        const auto make = is_in_place ? ggml_rope_ext_inplace : ggml_rope_ext;
        made = make(ctx, of[0], of[1], optional(of, 2), dims, mode, 4096, base, scale, ext, attention, fast, slow);
    }
    using setting = ggml_tensor * (*)(ggml_tensor *, int);
    return offset == 0 ? made : find<setting>("ggml_rope_set_offset")(made, offset);
}

ggml_tensor * attention(ggml_context * ctx, const words & w, const tensors & of) {
    ggml_tensor * made = ggml_flash_attn_ext(ctx, of[0], of[1], of[2], optional(of, 3), w.f(0), w.f(1), w.f(2));
    if (w.i(0) != 0) {
        ggml_flash_attn_ext_set_prec(made, GGML_PREC_F32);
    }
    if (ggml_tensor * sinks = optional(of, 4)) {
        ggml_flash_attn_ext_add_sinks(made, sinks);
    }
    return made;
}

ggml_tensor * product(const words & w, ggml_tensor * made) {
    if (w.i(0) != 0) {
        ggml_mul_mat_set_prec(made, GGML_PREC_F32);
    }
    return made;
}

ggml_unary_op unary_of(const std::string & name) {
    const std::map<std::string, ggml_unary_op> known = {
        {"silu", GGML_UNARY_OP_SILU}, {"sigmoid", GGML_UNARY_OP_SIGMOID}, {"gelu", GGML_UNARY_OP_GELU},
        {"relu", GGML_UNARY_OP_RELU}, {"tanh", GGML_UNARY_OP_TANH}, {"exp", GGML_UNARY_OP_EXP},
    };
    const auto found = known.find(name);
    if (found == known.end()) {
        refuse("unknown operation " + name);
    }
    return found->second;
}

ggml_tensor * make(ggml_context * ctx, const words & w, const tensors & of) {
    using clamped = ggml_tensor * (*)(ggml_context *, ggml_tensor *, ggml_tensor *, float);
    using three = ggml_tensor * (*)(ggml_context *, ggml_tensor *);
    // Versions without the number of snapshots ignore the last argument.
    using net = ggml_tensor * (*)(ggml_context *, ggml_tensor *, ggml_tensor *, ggml_tensor *, ggml_tensor *, ggml_tensor *,
                                  ggml_tensor *, int64_t);
    const std::map<std::string, std::function<ggml_tensor *()>> known = {
        {"mul_mat", [&] { return product(w, ggml_mul_mat(ctx, of[0], of[1])); }},
        {"mul_mat_id", [&] { return ggml_mul_mat_id(ctx, of[0], of[1], of[2]); }},
        {"add", [&] { return ggml_add(ctx, of[0], of[1]); }},
        {"add_inplace", [&] { return ggml_add_inplace(ctx, of[0], of[1]); }},
        {"add_id", [&] { return ggml_add_id(ctx, of[0], of[1], of[2]); }},
        {"sub", [&] { return ggml_sub(ctx, of[0], of[1]); }},
        {"mul", [&] { return ggml_mul(ctx, of[0], of[1]); }},
        {"mul_inplace", [&] { return ggml_mul_inplace(ctx, of[0], of[1]); }},
        {"div", [&] { return ggml_div(ctx, of[0], of[1]); }},
        {"scale", [&] { return ggml_scale_bias(ctx, of[0], w.f(0), w.f(1)); }},
        {"scale_inplace", [&] { return ggml_scale_inplace(ctx, of[0], w.f(0)); }},
        {"clamp", [&] { return ggml_clamp(ctx, of[0], w.f(0), w.f(1)); }},
        {"rms_norm", [&] { return ggml_rms_norm(ctx, of[0], w.f(0)); }},
        {"rms_norm_inplace", [&] { return ggml_rms_norm_inplace(ctx, of[0], w.f(0)); }},
        {"norm", [&] { return ggml_norm(ctx, of[0], w.f(0)); }},
        {"l2_norm", [&] { return ggml_l2_norm(ctx, of[0], w.f(0)); }},
        {"rope", [&] { return rope(ctx, w, of, false); }},
        {"rope_inplace", [&] { return rope(ctx, w, of, true); }},
        {"get_rows", [&] { return ggml_get_rows(ctx, of[0], of[1]); }},
        {"set_rows", [&] { return ggml_set_rows(ctx, of[0], of[1], of[2]); }},
        {"cpy", [&] { return ggml_cpy(ctx, of[0], of[1]); }},
        {"cont", [&] { return ggml_cont(ctx, of[0]); }},
        {"repeat", [&] { return ggml_repeat(ctx, of[0], of[1]); }},
        {"concat", [&] { return ggml_concat(ctx, of[0], of[1], w.i(0)); }},
        {"sum_rows", [&] { return ggml_sum_rows(ctx, of[0]); }},
        {"argsort", [&] { return ggml_argsort(ctx, of[0], GGML_SORT_ORDER_DESC); }},
        {"soft_max", [&] { return ggml_soft_max_ext(ctx, of[0], optional(of, 1), w.f(0, 1.0f), w.f(1)); }},
        {"attention", [&] { return attention(ctx, w, of); }},
        {"ssm_conv", [&] { return ggml_ssm_conv(ctx, of[0], of[1]); }},
        {"softplus", [&] { return find<three>("ggml_softplus")(ctx, of[0]); }},
        {"gated_delta_net", [&] { return find<net>("ggml_gated_delta_net")(ctx, of[0], of[1], of[2], of[3], of[4], of[5], w.i(0, 1)); }},
        {"glu_oai", [&] { return ggml_swiglu_oai(ctx, of[0], of[1], w.f(0), w.f(1)); }},
        {"glu_clamp", [&] { return find<clamped>("ggml_swiglu_clamp")(ctx, of[0], of[1], w.f(0)); }},
        {"geglu_erf", [&] { return ggml_glu_split(ctx, of[0], of[1], GGML_GLU_OP_GEGLU_ERF); }},
        {"geglu_quick", [&] { return ggml_glu_split(ctx, of[0], of[1], GGML_GLU_OP_GEGLU_QUICK); }},
        {"swiglu", [&] { return ggml_glu_split(ctx, of[0], of[1], GGML_GLU_OP_SWIGLU); }},
        {"geglu", [&] { return ggml_glu_split(ctx, of[0], of[1], GGML_GLU_OP_GEGLU); }},
        {"reglu", [&] { return ggml_glu_split(ctx, of[0], of[1], GGML_GLU_OP_REGLU); }},
        {"glu", [&] { return ggml_glu(ctx, of[0], GGML_GLU_OP_SWIGLU, w.i(0) != 0); }},
        {"silu_inplace", [&] { return ggml_silu_inplace(ctx, of[0]); }},
        {"view", [&] { return view(ctx, w, of[0]); }},
        {"reshape", [&] { const auto ne = w.extents(); return ggml_reshape_4d(ctx, of[0], ne[0], ne[1], ne[2], ne[3]); }},
        {"permute", [&] { return ggml_permute(ctx, of[0], w.i(0), w.i(1), w.i(2), w.i(3)); }},
        {"transpose", [&] { return ggml_transpose(ctx, of[0]); }},
    };
    const auto found = known.find(w.text("op"));
    return found == known.end() ? ggml_unary(ctx, of[0], unary_of(w.text("op"))) : found->second();
}

// ---- A graph with its tensors.

// Where a node is: bytes from the start of the tensor that owns the memory.
struct location {
    std::string owner;
    int64_t     at;
};

constexpr int64_t alignment = 128; // of a tensor for ggml-cuda, as its allocator places it

struct built {
    ggml_context *                       ctx = nullptr;
    ggml_cgraph *                        graph = nullptr;
    std::map<std::string, ggml_tensor *> named;
    std::vector<ggml_tensor *>           made; // in order of the description, views included
    std::vector<std::pair<std::string, ggml_tensor *>> compared;
    std::map<std::string, location> over; // of nodes that lie in the memory of another tensor
    std::set<std::string>           idle; // nodes that are only computed if a computed node reads them

    explicit built(const description & d) {
        const size_t most = d.leaves.size() + 4 * d.nodes.size() + 64;
        ctx   = ggml_init({most * ggml_tensor_overhead() + ggml_graph_overhead_custom(most, false), nullptr, true});
        graph = ggml_new_graph_custom(ctx, most, false);
        for (const words & w : d.leaves) {
            const auto    ne  = w.extents();
            ggml_tensor * one = ggml_new_tensor(ctx, type_of(w.text("type")), 4, ne.data());
            named[w.name] = one;
            if (w.text("is") == "cache") {
                compared.emplace_back(w.name, one);
            } else {
                ggml_set_input(one);
            }
        }
        for (const words & w : d.nodes) {
            tensors of;
            for (const std::string & name : w.list("of")) {
                of.push_back(name == "-" ? nullptr : named.at(name));
            }
            ggml_tensor * one = make(ctx, w, of);
            ggml_set_name(one, w.name.c_str());
            named[w.name] = one;
            made.push_back(one);
            if (!w.text("over").empty()) {
                place_over(w, one);
            }
            if (w.integer("output") != 0) {
                ggml_set_output(one);
                compared.emplace_back(w.name, one);
            }
            if (w.integer("idle") != 0) {
                idle.insert(w.name);
                find<void (*)(ggml_cgraph *, ggml_tensor *)>("ggml_build_forward_order")(graph, one);
            } else {
                ggml_build_forward_expand(graph, one);
            }
        }
        // Fusions look at the nodes that follow: one that reads past the last node ends the program.
        std::fill_n(ggml_graph_nodes(graph) + ggml_graph_n_nodes(graph), most - size_t(ggml_graph_n_nodes(graph)), nullptr);
    }

    ~built() { ggml_free(ctx); }
    built(const built &) = delete;
    built & operator=(const built &) = delete;

  private:
    void place_over(const words & w, const ggml_tensor * one) {
        const std::string other = w.text("over");
        location          here{other, w.text("at").empty() ? 0 : int64_t(stride(w.text("at"), named.at(other)))};
        if (const auto found = over.find(other); found != over.end()) {
            here = {found->second.owner, found->second.at + here.at};
        }
        if (here.at % alignment != 0 || one->view_src != nullptr) {
            refuse(w.name + " cannot be over " + other);
        }
        over[w.name] = here;
    }
};

void print_shapes(const description & d) {
    const built of(d);
    for (const ggml_tensor * one : of.made) {
        std::printf("%s shape %s %s %" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "\n", d.graph.name.c_str(), one->name,
                    ggml_type_name(one->type), one->ne[0], one->ne[1], one->ne[2], one->ne[3]);
    }
    std::fflush(stdout);
}

// ---- Values.

class dice {
  public:
    explicit dice(uint64_t seed) : state(seed * 0x9E3779B97F4A7C15ull + 0xD1B54A32D192ED03ull) { next(); }

    // From -1 to 1.
    float next() {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        return float(double(state >> 11) * 0x1p-53 * 2.0 - 1.0);
    }

  private:
    uint64_t state;
};

uint64_t hash_of(const void * data, size_t size) {
    uint64_t hash = 0xCBF29CE484222325ull;
    for (size_t i = 0; i < size; ++i) {
        hash = (hash ^ static_cast<const uint8_t *>(data)[i]) * 0x100000001B3ull;
    }
    return hash;
}

std::vector<uint8_t> packed(ggml_type type, int64_t columns, const std::vector<float> & values) {
    const int64_t        rows = int64_t(values.size()) / columns;
    std::vector<uint8_t> made(ggml_row_size(type, columns) * size_t(rows));
    if (type == GGML_TYPE_F32) {
        std::memcpy(made.data(), values.data(), made.size());
    } else {
        const std::vector<float> same(size_t(columns), 1.0f); // some types need to know which columns matter
        ggml_quantize_chunk(type, values.data(), made.data(), 0, rows, columns, same.data());
    }
    return made;
}

template <typename number> void widen(const uint8_t * row, float * to, int64_t columns) {
    for (int64_t i = 0; i < columns; ++i) {
        number value;
        std::memcpy(&value, row + size_t(i) * sizeof(value), sizeof(value));
        to[i] = float(value);
    }
}

void unpack_row(ggml_type type, const uint8_t * row, float * to, int64_t columns) {
    if (type == GGML_TYPE_F32) {
        std::memcpy(to, row, size_t(columns) * sizeof(float));
    } else if (type == GGML_TYPE_I32) {
        widen<int32_t>(row, to, columns);
    } else if (type == GGML_TYPE_I64) {
        widen<int64_t>(row, to, columns);
    } else if (const auto to_float = ggml_get_type_traits(type)->to_float) {
        to_float(row, to, columns);
    } else {
        refuse(std::string("cannot compare values of type ") + ggml_type_name(type));
    }
}

// The values of a tensor in order, also if it is a view with gaps. `bytes` are those from its first to its last value.
std::vector<float> unpacked(const ggml_tensor * one, const std::vector<uint8_t> & bytes) {
    std::vector<float>   values(static_cast<size_t>(ggml_nelements(one)));
    const int64_t        columns = one->ne[0];
    const size_t         size    = ggml_type_size(one->type);
    std::vector<uint8_t> gathered(one->nb[0] == size ? 0 : size_t(columns) * size);
    for (int64_t row = 0; row < ggml_nrows(one); ++row) {
        const int64_t   i1 = row % one->ne[1], i2 = row / one->ne[1] % one->ne[2], i3 = row / one->ne[1] / one->ne[2];
        const uint8_t * from = bytes.data() + size_t(i1) * one->nb[1] + size_t(i2) * one->nb[2] + size_t(i3) * one->nb[3];
        for (int64_t i = 0; i < columns && !gathered.empty(); ++i) {
            std::memcpy(&gathered[size_t(i) * size], from + size_t(i) * one->nb[0], size);
        }
        unpack_row(one->type, gathered.empty() ? from : gathered.data(), &values[size_t(row * columns)], columns);
    }
    return values;
}

// Hidden values of a mask are -inf. The last KV rows belong to the tokens; "padded": the last quarter belongs to none.
std::vector<float> mask_of(const words & w, const std::array<int64_t, 4> & ne) {
    const std::string  how = w.text("seen", "causal");
    std::vector<float> made(size_t(ne[0] * ne[1] * ne[2] * ne[3]), -INFINITY);
    for (size_t row = 0; row < made.size() / size_t(ne[0]); ++row) {
        const int64_t token = int64_t(row) % ne[1];
        const int64_t used  = how == "padded" ? ne[0] - ne[0] / 4 : ne[0];
        const int64_t end   = how == "all" ? ne[0] : std::clamp<int64_t>(used - ne[1] + token + 1, 1, ne[0]);
        const int64_t begin = how == "window" ? std::max<int64_t>(0, end - std::max<int64_t>(1, ne[0] / 4)) : 0;
        std::fill(made.begin() + int64_t(row) * ne[0] + begin, made.begin() + int64_t(row) * ne[0] + end, 0.0f);
    }
    return made;
}

std::vector<uint8_t> numbers_of(const words & w, const ggml_tensor * one, int round) {
    const auto           first = w.integers("first");
    const int64_t        step  = w.integer("step");
    std::vector<uint8_t> made(ggml_nbytes(one));
    for (int64_t i = 0; i < ggml_nelements(one); ++i) {
        const int64_t value = (first.empty() ? i : first[size_t(i) % first.size()]) + step * round;
        if (one->type == GGML_TYPE_I64) {
            std::memcpy(&made[size_t(i) * sizeof(value)], &value, sizeof(value));
        } else {
            const auto narrow = int32_t(value);
            std::memcpy(&made[size_t(i) * sizeof(narrow)], &narrow, sizeof(narrow));
        }
    }
    return made;
}

// ---- Running on a backend.

class running {
  public:
    // `inputs`: another number gives other inputs. `lender`: has the weights.
    running(const description & d, ggml_backend_t backend, int inputs = 0, const running * lender = nullptr)
        : d(d), backend(backend), of(d), inputs(inputs), lender(lender) {}

    ~running() {
        ggml_backend_sched_free(scheduler);
        ggml_backend_free(rest);
        ggml_gallocr_free(allocator);
        for (ggml_backend_buffer_t buffer : buffers) {
            ggml_backend_buffer_free(buffer);
        }
    }

    running(const running &) = delete;
    running & operator=(const running &) = delete;

    const ggml_tensor * unsupported() const {
        for (const ggml_tensor * one : of.made) {
            if (!ggml_backend_supports_op(backend, one)) {
                return one;
            }
        }
        return nullptr;
    }

    // `is_apart`: each tensor has memory of its own, whatever the description says.
    void allocate(bool is_apart = false) {
        const ggml_backend_buffer_type_t kind = ggml_backend_get_default_buffer_type(backend);
        const shared_memory              shared = is_apart ? shared_memory() : shared_by_owner(kind);
        for (const words & w : d.leaves) {
            ggml_tensor * one = of.named.at(w.name);
            if (is_lent(w)) {
                const ggml_tensor * given = lender->tensor(w.name);
                if (ggml_backend_tensor_alloc(given->buffer, one, given->data) != GGML_STATUS_SUCCESS) {
                    refuse("cannot share " + w.name);
                }
                continue;
            }
            own(w.name, kind, shared, w.text("is") == "weight" || w.text("is") == "cache");
        }
        const std::string memory       = is_apart ? "apart" : d.graph.text("memory", "apart");
        const bool        is_reused    = memory == "reused";
        const bool        is_scheduled = memory == "scheduled" && !is_on_cpu();
        for (const words & w : d.nodes) {
            const auto over = of.over.find(w.name);
            if (over != of.over.end() && !is_apart) {
                const ggml_tensor * owner = of.named.at(over->second.owner);
                auto *              start = static_cast<char *>(owner->data);
                check(ggml_backend_tensor_alloc(owner->buffer, of.named.at(w.name), start + over->second.at));
            } else if (!(is_reused || is_scheduled) || shared.count(w.name) != 0) {
                own(w.name, kind, shared, false);
            }
        }
        if (is_reused) {
            allocator = ggml_gallocr_new(kind);
            if (!ggml_gallocr_alloc_graph(allocator, of.graph)) {
                refuse("no memory for graph " + d.graph.name);
            }
        }
        if (is_scheduled) {
            rest = ggml_backend_init_by_name("CPU", nullptr); // the scheduler wants one, for what a device does not have
            ggml_backend_t both[] = {backend, rest};
            scheduler = ggml_backend_sched_new(both, nullptr, 2, size_t(ggml_graph_size(of.graph)), false, false);
            if (!ggml_backend_sched_alloc_graph(scheduler, of.graph)) {
                refuse("no memory for graph " + d.graph.name);
            }
        }
    }

    // What no node writes has these bytes: results that depend on them are undefined.
    void fill(uint8_t with) {
        std::vector<ggml_backend_buffer_t> seen;
        for (const ggml_tensor * one : of.made) {
            const bool is_leafs = one->view_src != nullptr && one->view_src->op == GGML_OP_NONE;
            if (one->buffer != nullptr && !is_leafs && std::find(seen.begin(), seen.end(), one->buffer) == seen.end()) {
                ggml_backend_buffer_clear(one->buffer, with);
                seen.push_back(one->buffer);
            }
        }
    }

    void compute(int round) {
        set(round);
        evaluate();
    }

    void set(int round) {
        const auto seed = uint64_t(d.graph.integer("seed")) + uint64_t(inputs) * 1000003;
        for (size_t n = 0; n < d.leaves.size(); ++n) {
            const words &     w    = d.leaves[n];
            const std::string kind = w.text("is");
            ggml_tensor *     one  = of.named.at(w.name);
            if (is_lent(w)) {
                continue;
            }
            // All but weights and caches again in each round: a node may be over them.
            if (round == 0 || (kind != "weight" && kind != "cache")) {
                const bool is_weight = kind == "weight";
                const auto of_leaf   = is_weight ? uint64_t(d.graph.integer("seed")) : seed;
                put(w, one, kind, round, of_leaf * 977 + n * 31 + (kind == "input" ? uint64_t(round) * 7919 : 0));
            }
        }
    }

    void evaluate() {
        if (scheduler != nullptr) {
            check(ggml_backend_sched_graph_compute(scheduler, of.graph));
            return;
        }
        if (d.graph.integer("steps") == 0) {
            check(ggml_backend_graph_compute(backend, of.graph));
            return;
        }
        for (int i = 0; i < ggml_graph_n_nodes(of.graph); ++i) {
            evaluate_alone(ggml_graph_node(of.graph, i));
        }
    }

    // Computes each node by a call of its own, calls `then` with its bytes, and overwrites them with the result unless that is
    // empty. Nodes that compute nothing, and idle ones, are left out.
    template <typename callback> void evaluate_each(callback && then) {
        for (int i = 0; i < ggml_graph_n_nodes(of.graph); ++i) {
            ggml_tensor * one = ggml_graph_node(of.graph, i);
            evaluate_alone(one);
            const bool is_view = one->op == GGML_OP_VIEW || one->op == GGML_OP_RESHAPE || one->op == GGML_OP_PERMUTE ||
                                 one->op == GGML_OP_TRANSPOSE || one->op == GGML_OP_NONE;
            if (is_view || of.idle.count(one->name) != 0) {
                continue;
            }
            std::vector<uint8_t> bytes(ggml_nbytes(one));
            ggml_backend_tensor_get(one, bytes.data(), 0, bytes.size());
            const std::vector<uint8_t> next = then(one, bytes);
            if (!next.empty()) {
                ggml_backend_tensor_set(one, next.data(), 0, next.size());
            }
        }
    }

    // Bytes of the outputs and caches, by name.
    std::vector<std::pair<std::string, std::vector<uint8_t>>> results() const {
        std::vector<std::pair<std::string, std::vector<uint8_t>>> all;
        for (const auto & [name, one] : of.compared) {
            std::vector<uint8_t> bytes(ggml_nbytes(one));
            ggml_backend_tensor_get(one, bytes.data(), 0, bytes.size());
            all.emplace_back(name, std::move(bytes));
        }
        return all;
    }

    const ggml_tensor * tensor(const std::string & name) const { return of.named.at(name); }

  private:
    const description &                d;
    ggml_backend_t                     backend;
    built                              of;
    std::vector<ggml_backend_buffer_t> buffers;
    ggml_gallocr_t                     allocator = nullptr;
    ggml_backend_sched_t               scheduler = nullptr;
    ggml_backend_t                     rest      = nullptr;
    int                                inputs;
    const running *                    lender;

    void evaluate_alone(ggml_tensor * one) {
        ggml_context * ctx  = ggml_init({ggml_graph_overhead_custom(2, false), nullptr, true});
        ggml_cgraph *  part = ggml_new_graph_custom(ctx, 2, false);
        ggml_graph_add_node(part, one);
        ggml_graph_nodes(part)[1] = nullptr; // past the last node
        check(ggml_backend_graph_compute(backend, part));
        ggml_free(ctx);
    }

    bool is_on_cpu() const {
        return ggml_backend_dev_type(ggml_backend_get_device(backend)) == GGML_BACKEND_DEVICE_TYPE_CPU;
    }

    // Contexts share weights, as those of a program do, but not one that an operation in place writes.
    bool is_lent(const words & w) const {
        return lender != nullptr && w.text("is") == "weight" && !is_written(of.named.at(w.name));
    }

    bool is_written(const ggml_tensor * leaf) const {
        return std::any_of(d.nodes.begin(), d.nodes.end(), [&](const words & w) {
            const ggml_tensor * node = of.named.at(w.name);
            switch (node->op) {
                case GGML_OP_RESHAPE:
                case GGML_OP_VIEW:
                case GGML_OP_PERMUTE:
                case GGML_OP_TRANSPOSE: return false;
                default: return node->view_src == leaf;
            }
        });
    }

    void check(ggml_status status) const {
        if (status != GGML_STATUS_SUCCESS) {
            refuse("graph " + d.graph.name + " was not computed");
        }
    }

    // By tensors that others lie over: how many bytes those need before and after it.
    using shared_memory = std::map<std::string, std::pair<int64_t, int64_t>>;

    shared_memory shared_by_owner(ggml_backend_buffer_type_t kind) const {
        shared_memory found;
        const auto    size_of = [&](const std::string & name) {
            return int64_t(ggml_backend_buft_get_alloc_size(kind, of.named.at(name)));
        };
        for (const auto & [name, here] : of.over) {
            auto & [before, after] = found[here.owner];
            before = std::max(before, -here.at);
            after  = std::max(after, here.at + size_of(name) - size_of(here.owner));
        }
        return found;
    }

    void own(const std::string & name, ggml_backend_buffer_type_t kind, const shared_memory & shared, bool is_constant) {
        ggml_tensor * one   = of.named.at(name);
        const auto    found = shared.find(name);
        const auto [before, after] = found == shared.end() ? std::pair<int64_t, int64_t>() : found->second;
        if (!place_apart(one, kind, buffers, size_t(before), size_t(after))) {
            refuse("no memory for graph " + d.graph.name);
        }
        if (one->view_src == nullptr) {
            ggml_backend_buffer_set_usage(buffers.back(), is_constant ? GGML_BACKEND_BUFFER_USAGE_WEIGHTS
                                                                      : GGML_BACKEND_BUFFER_USAGE_COMPUTE);
        }
    }

    static void put(const words & w, ggml_tensor * one, const std::string & kind, int round, uint64_t seed) {
        if (kind == "numbers") {
            const auto bytes = numbers_of(w, one, round);
            ggml_backend_tensor_set(one, bytes.data(), 0, bytes.size());
            return;
        }
        std::vector<float> values(size_t(ggml_nelements(one)), 0.0f);
        if (kind == "mask") {
            values = mask_of(w, w.extents());
        } else if (kind != "cache" || w.integer("filled") != 0) {
            dice random(seed);
            const bool  is_negative = w.integer("negative") != 0;
            const float shift       = std::strtof(w.text("shift", "0").c_str(), nullptr);
            std::generate(values.begin(), values.end(),
                          [&] { return shift + (is_negative ? -std::abs(random.next()) : random.next()); });
        }
        const auto bytes = packed(one->type, one->ne[0], values);
        ggml_backend_tensor_set(one, bytes.data(), 0, bytes.size());
    }
};

// Bytes of the outputs and caches after each round.
using rounds = std::vector<std::vector<std::vector<uint8_t>>>;

bool write_all(int to, const void * data, size_t size) {
    for (size_t done = 0; done < size;) {
        const ssize_t some = write(to, static_cast<const uint8_t *>(data) + done, size - done);
        if (some <= 0) {
            return false;
        }
        done += size_t(some);
    }
    return true;
}

std::vector<uint8_t> read_all(int from) {
    std::vector<uint8_t> found, some(1 << 16);
    for (ssize_t count = 0; (count = read(from, some.data(), some.size())) > 0;) {
        found.insert(found.end(), some.begin(), some.begin() + count);
    }
    return found;
}

// Runs `work` in a child process, which may end, and returns what it writes; false if it did not end well. ggml ends the
// process for a graph that it does not accept.
template <typename callback> bool in_child(std::vector<uint8_t> & written, callback && work) {
    int ends[2];
    std::fflush(nullptr);
    if (pipe(ends) != 0) {
        refuse("no pipe");
    }
    const pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        const bool is_quiet = std::freopen("/dev/null", "w", stderr) != nullptr;
        _exit(is_quiet && work(ends[1]) ? 0 : 3);
    }
    close(ends[1]);
    written    = read_all(ends[0]);
    int status = 0;
    close(ends[0]);
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

struct reference {
    bool        is_valid = false;
    std::string unsupported; // a node that the CPU backend does not have
    rounds      right;
};

bool compares_each_node(const description & d) {
    return d.graph.integer("compared", 1) == 2;
}

// The results of every round on the CPU, one after the other; empty if a node, `missing`, is not supported.
// `is_apart`: each tensor has memory of its own, with other bytes in it at first.
std::vector<std::vector<uint8_t>> on_cpu(const description & d, ggml_backend_t cpu, bool is_apart, std::string & missing) {
    running of(d, cpu);
    if (const ggml_tensor * what = of.unsupported()) {
        missing = what->name;
        return {};
    }
    of.allocate(is_apart);
    of.fill(is_apart ? 0x55 : 0);
    std::vector<std::vector<uint8_t>> all;
    for (int round = 0; round < int(d.graph.integer("rounds", 1)); ++round) {
        if (compares_each_node(d)) {
            of.set(round);
            of.evaluate_each([&](const ggml_tensor *, std::vector<uint8_t> & bytes) {
                all.push_back(std::move(bytes));
                return std::vector<uint8_t>();
            });
            continue;
        }
        of.compute(round);
        for (auto & [name, bytes] : of.results()) {
            all.push_back(std::move(bytes));
        }
    }
    return all;
}

reference compute_reference(const description & d, ggml_backend_t cpu) {
    std::vector<uint8_t> bytes;
    reference            made;
    if (d.graph.integer("compared", 1) == 0) {
        made.is_valid = in_child(bytes, [&](int) {
            const built tried(d);
            return true;
        });
        made.right.resize(size_t(d.graph.integer("rounds", 1)));
        return made;
    }
    made.is_valid = in_child(bytes, [&](int to) {
        std::string missing;
        const auto  all = on_cpu(d, cpu, compares_each_node(d), missing);
        if (!missing.empty()) {
            return write_all(to, "u", 1) && write_all(to, missing.data(), missing.size());
        }
        if (all != on_cpu(d, cpu, true, missing)) {
            return false; // reads what no node wrote, or what another node has overwritten
        }
        bool is_written = write_all(to, "r", 1);
        for (const auto & one : all) {
            const size_t size = one.size();
            is_written = is_written && write_all(to, &size, sizeof(size)) && write_all(to, one.data(), size);
        }
        return is_written;
    });
    made.is_valid = made.is_valid && !bytes.empty();
    if (!made.is_valid || bytes[0] == 'u') {
        made.unsupported.assign(bytes.begin() + (bytes.empty() ? 0 : 1), bytes.end());
        return made;
    }
    std::vector<std::vector<uint8_t>> all;
    for (size_t at = 1; at + sizeof(size_t) <= bytes.size();) {
        size_t size = 0;
        std::memcpy(&size, &bytes[at], sizeof(size));
        at += sizeof(size);
        all.emplace_back(bytes.begin() + int64_t(at), bytes.begin() + int64_t(at + size));
        at += size;
    }
    const auto count = size_t(d.graph.integer("rounds", 1));
    for (size_t round = 0; round < count; ++round) {
        const size_t each = all.size() / count;
        made.right.emplace_back(all.begin() + int64_t(round * each), all.begin() + int64_t((round + 1) * each));
    }
    return made;
}

struct distance {
    double nmse = 0.0, worst = 0.0;
    bool   is_finite = true;
};

distance compare(const std::vector<float> & got, const std::vector<float> & right) {
    distance d;
    double   wrong = 0.0, all = 0.0;
    for (size_t i = 0; i < got.size(); ++i) {
        const double error = double(got[i]) - double(right[i]);
        const bool   same  = std::memcmp(&got[i], &right[i], sizeof(float)) == 0;
        d.is_finite        = d.is_finite && (std::isfinite(got[i]) || same);
        wrong += same ? 0.0 : error * error;
        all += std::isfinite(right[i]) ? double(right[i]) * double(right[i]) : 0.0;
        d.worst = same ? d.worst : std::isnan(error) ? NAN : std::max(d.worst, std::abs(error));
    }
    all      = std::max(all, 1e-30);
    d.nmse   = wrong / all;
    d.worst /= std::sqrt(all / double(std::max<size_t>(got.size(), 1)));
    return d;
}

// Lines that the emulated GPU's checks have written for this process.
int findings() {
    const char * folder = std::getenv("PATCHKIT_EMULATOR_OBJECTS");
    if (folder == nullptr) {
        return 0;
    }
    std::ifstream file(std::string(folder) + "/" + std::to_string(getpid()) + ".findings");
    int           count = 0;
    for (std::string line; std::getline(file, line);) {
        ++count;
    }
    return count;
}

// A thread for several tasks: what a backend keeps for a thread is there in the next task, too.
class worker {
  public:
    worker() : thread([this] { work(); }) {}

    ~worker() {
        give([] {}, true);
        thread.join();
    }

    worker(const worker &) = delete;
    worker & operator=(const worker &) = delete;

    void give(std::function<void()> next, bool is_last = false) {
        const std::lock_guard<std::mutex> lock(mutex);
        task     = std::move(next);
        is_ended = is_last;
        is_ready = true;
        changed.notify_all();
    }

    void wait() {
        std::unique_lock<std::mutex> lock(mutex);
        changed.wait(lock, [this] { return !is_ready; });
    }

  private:
    std::mutex              mutex;
    std::condition_variable changed;
    std::function<void()>   task;
    bool                    is_ready = false, is_ended = false;
    std::thread             thread; // the last member: it uses the others

    void work() {
        for (bool has_ended = false; !has_ended;) {
            std::unique_lock<std::mutex> lock(mutex);
            changed.wait(lock, [this] { return is_ready; });
            const auto now = std::move(task);
            has_ended      = is_ended;
            lock.unlock();
            now();
            lock.lock();
            is_ready = false;
            changed.notify_all();
        }
    }
};

ggml_backend_t another_context(ggml_backend_t device) {
    ggml_backend_t made = ggml_backend_dev_init(ggml_backend_get_device(device), nullptr);
    if (made == nullptr) {
        refuse("cannot make another context");
    }
    return made;
}

std::vector<std::vector<uint8_t>> bytes_of(const running & of) {
    std::vector<std::vector<uint8_t>> found;
    for (auto & [name, bytes] : of.results()) {
        found.push_back(bytes);
    }
    return found;
}

// The second context with its graph, and its results (`alone`) in each round when nothing else runs.
struct another {
    using backend_pointer = std::unique_ptr<ggml_backend, decltype(&ggml_backend_free)>;

    backend_pointer backend;
    rounds          alone;
    running         here;
    worker          second;

    another(const description & d, ggml_backend_t device, const running & first, size_t count)
        : backend(another_context(device), ggml_backend_free), here(d, backend.get(), 1, &first) {
        if (count > 0) {
            running single(d, device, 1);
            single.allocate();
            for (size_t round = 0; round < count; ++round) {
                single.compute(int(round));
                alone.push_back(bytes_of(single));
            }
        }
        here.allocate();
    }

    void evaluate_both(running & first, int round) {
        here.set(round);
        running &        there = round % 2 == 0 ? here : first;
        std::atomic<int> arrived{0};
        const auto       begin = [&arrived] { // at the same time
            for (++arrived; arrived < 2;) {
                std::this_thread::yield();
            }
        };
        second.give([&] {
            begin();
            there.evaluate();
        });
        begin();
        (round % 2 == 0 ? first : here).evaluate();
        second.wait();
    }
};

void print_distance(const ggml_tensor * one, const std::vector<uint8_t> & got, const std::vector<uint8_t> & right) {
    const distance from = compare(unpacked(one, got), unpacked(one, right));
    std::printf(" nmse=%.4g worst=%.4g finite=%d values=%" PRId64 "\n", from.nmse, from.worst, int(from.is_finite),
                ggml_nelements(one));
}

void print_result(const char * id, const std::string & name, size_t round, const std::vector<uint8_t> & bytes) {
    std::printf("%s result %s round=%zu hash=%016" PRIx64, id, name.c_str(), round, hash_of(bytes.data(), bytes.size()));
}

void print_results(const char * id, const char * mark, const running & of, size_t round,
                   const std::vector<std::vector<uint8_t>> & right) {
    const auto got = of.results();
    for (size_t i = 0; i < got.size(); ++i) {
        print_result(id, got[i].first + mark, round, got[i].second);
        if (right.empty()) {
            std::printf("\n");
        } else {
            print_distance(of.tensor(got[i].first), got[i].second, right[i]);
        }
    }
}

void run_each(const description & d, running & on_device, const rounds & right) {
    for (size_t round = 0; round < right.size(); ++round) {
        on_device.set(int(round));
        size_t next = 0;
        on_device.evaluate_each([&](const ggml_tensor * one, const std::vector<uint8_t> & bytes) {
            print_result(d.graph.name.c_str(), one->name, round, bytes);
            print_distance(one, bytes, right[round][next]);
            return right[round][next++];
        });
    }
}

using marking = void (*)(const char *);

void run(const description & d, ggml_backend_t device, const reference & right, marking mark) {
    const char * id = d.graph.name.c_str();
    if (!right.is_valid) {
        std::printf("%s invalid\n", id);
        return;
    }
    running             on_device(d, device);
    const ggml_tensor * what = on_device.unsupported();
    if (what != nullptr || right.right.empty()) {
        std::printf("%s unsupported %s\n", id, what != nullptr ? what->name : right.unsupported.c_str());
        return;
    }
    if (mark != nullptr) {
        mark(id);
    }
    std::fprintf(stderr, "%s begins\n", id);
    on_device.allocate(compares_each_node(d));
    if (compares_each_node(d)) {
        run_each(d, on_device, right.right);
        std::printf("%s done findings=%d\n", id, findings());
        std::fflush(stdout);
        return;
    }
    const bool               is_compared = !right.right.empty() && !right.right[0].empty();
    std::unique_ptr<another> other;
    if (d.graph.integer("contexts", 1) > 1) {
        other = std::make_unique<another>(d, device, on_device, is_compared ? right.right.size() : 0);
    }
    for (size_t round = 0; round < right.right.size(); ++round) {
        on_device.set(int(round));
        if (other == nullptr) {
            on_device.evaluate();
        } else {
            other->evaluate_both(on_device, int(round));
        }
        print_results(id, "", on_device, round, right.right[round]);
        if (other != nullptr) {
            print_results(id, "/2", other->here, round, is_compared ? other->alone[round] : right.right[round]);
        }
    }
    std::printf("%s done findings=%d\n", id, findings());
    std::fflush(stdout);
}

ggml_backend_t cpu_of_one_thread(const char * module) {
    if (ggml_backend_load(module) == nullptr) {
        refuse(std::string("cannot load ") + module);
    }
    ggml_backend_t     cpu = ggml_backend_init_by_name("CPU", nullptr);
    ggml_backend_reg_t reg = cpu == nullptr ? nullptr : ggml_backend_dev_backend_reg(ggml_backend_get_device(cpu));
    if (reg == nullptr) {
        refuse(std::string(module) + " has no CPU backend");
    }
    if (void * set = ggml_backend_reg_get_proc_address(reg, "ggml_backend_set_n_threads")) {
        reinterpret_cast<ggml_backend_set_n_threads_t>(set)(cpu, 1); // threads do not survive a fork
    }
    return cpu;
}

} // namespace

int main(int argc, char ** argv) {
    setenv("GGML_NO_BACKTRACE", "1", 1); // ggml would start a debugger in each child that it ends
    if (argc == 3 && std::string(argv[1]) == "shapes") {
        for (const description & d : read_graphs(argv[2])) {
            std::vector<uint8_t> nothing;
            in_child(nothing, [&](int) {
                print_shapes(d);
                return true;
            });
        }
        return 0;
    }
    if (argc != 5) {
        refuse("usage: graph_check MODULE CPU DEVICE GRAPHS, or graph_check shapes GRAPHS");
    }
    const std::vector<description> all = read_graphs(argv[4]);
    const ggml_backend_t           cpu = cpu_of_one_thread(argv[2]);
    std::vector<reference>         right;
    for (const description & d : all) { // before the device's backend is loaded, which has threads
        right.push_back(compute_reference(d, cpu));
    }
    ggml_backend_load(argv[1]);
    ggml_backend_t device = ggml_backend_init_by_name(argv[3], nullptr);
    if (device == nullptr) {
        refuse(std::string("there is no device ") + argv[3]);
    }
    ggml_backend_free(another_context(device)); // one that computes nothing
    // The emulated GPU's runtime has it: lines between the launches in its log.
    void *     module = dlopen(argv[1], RTLD_LAZY | RTLD_NOLOAD);
    const auto mark   = module == nullptr ? nullptr : reinterpret_cast<marking>(dlsym(module, "patchkit_recorder_mark"));
    for (size_t i = 0; i < all.size(); ++i) {
        run(all[i], device, right[i], mark);
    }
    ggml_backend_free(device);
    ggml_backend_free(cpu);
    return 0;
}
