// Parses the case files written by case_line of patchkit/gpu/emulated/cases.py, for programs that run attention.
//
// A line is an id and "name=value" words: hsk hsv (head sizes of K and V), nh (KV heads), nr2 (query heads per KV
// head), nr3 (sequences), kv (KV rows), nb (tokens), mask sinks (0/1), max_bias logit_softcap, prec (f32/default),
// type_k type_v (ggml type names), permute (four digits), view (0/1: K and V are views of a cache twice as long).

#pragma once

#include "ggml.h"

#include <array>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

// Defined by each program: prints the error to stderr and exits with status 2.
[[noreturn]] void refuse(const std::string & what);

namespace {

class attention_case {
  public:
    std::string id;    // empty for an empty line
    std::string line;  // as in the file

    explicit attention_case(const std::string & written) : line(written) {
        std::istringstream parts(written);
        std::string word;
        parts >> id;
        while (parts >> word) {
            const size_t equals = word.find('=');
            values[word.substr(0, equals)] = word.substr(equals + 1);
        }
    }

    const std::string & text(const char * name) const {
        const auto found = values.find(name);
        if (found == values.end()) {
            refuse("case " + id + " lacks " + name);
        }
        return found->second;
    }

    int64_t integer(const char * name) const { return std::strtoll(text(name).c_str(), nullptr, 10); }

    bool is(const char * name) const { return integer(name) != 0; }

    double real(const char * name) const { return std::strtod(text(name).c_str(), nullptr); }

    ggml_type type(const char * name) const {
        for (int i = 0; i < GGML_TYPE_COUNT; ++i) {
            const char * known = ggml_type_name(ggml_type(i));
            if (known != nullptr && text(name) == known) {
                return ggml_type(i);
            }
        }
        refuse("case " + id + ": unknown type " + text(name));
    }

    // Dimension i of attention's tensor is dimension order()[i] in memory.
    std::array<int, 4> order() const {
        std::array<int, 4> digits{};
        for (size_t i = 0; i < 4; ++i) {
            digits[i] = text("permute").at(i) - '0';
        }
        return digits;
    }

    ggml_prec precision() const { return text("prec") == "f32" ? GGML_PREC_F32 : GGML_PREC_DEFAULT; }

    // Rows of the mask: builds that define a padding require a multiple of it.
    int64_t mask_rows() const {
#ifdef GGML_KQ_MASK_PAD
        const int64_t step = GGML_KQ_MASK_PAD;
#else
        const int64_t step = 1;
#endif
        return (integer("nb") + step - 1) / step * step;
    }

  private:
    std::map<std::string, std::string> values;
};

// Calls back with every case of a file, in order.
template <typename callback> void each_case(const char * path, callback && use) {
    std::ifstream file(path);
    if (!file) {
        refuse(std::string("cannot read ") + path);
    }
    for (std::string line; std::getline(file, line);) {
        const attention_case found(line);
        if (!found.id.empty()) {
            use(found);
        }
    }
}

}  // namespace
