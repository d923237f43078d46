// Products and triangular systems against plain loops in double: every type, form, size and level of the CPU.
//
// Prints one line per kind of check: what, how many numbers were compared, how many are wrong, and the largest
// error as a part of what is allowed. What is allowed follows from the types: each product and each sum of f32
// rounds by 2^-24 of the terms that it is made of, and the result rounds once to its type.

#include "products.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

using namespace patchkit;

namespace {

constexpr cpu_level levels[] = {cpu_level::plain, cpu_level::avx2, cpu_level::avx512};
const char * level_name(cpu_level level) {
    return level == cpu_level::plain ? "plain" : level == cpu_level::avx2 ? "avx2" : "avx512";
}

// The types again, by arithmetic on doubles.

struct format {
    int digits;      // of the significand, with the leading one
    int least;       // exponent of the least normal number
    double infinite; // what rounds to it or is more is infinite
    double step;     // between denormal numbers
};

format format_of(number type) {
    switch (type) {
        case number::f16: return {11, -14, 65520, std::ldexp(1, -24)};
        case number::bf16: return {8, -126, std::ldexp(511, 119), std::ldexp(1, -133)};
        case number::f32: return {24, -126, std::ldexp(33554431, 103), std::ldexp(1, -149)};
        default: return {53, -1022, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::denorm_min()};
    }
}

// To nearest even; std::nearbyint does that by default.
double rounded_to(number type, double value) {
    const format as = format_of(type);
    if (type == number::f64 || std::isnan(value) || std::isinf(value) || value == 0) {
        return value;
    }
    if (std::fabs(value) >= as.infinite) {
        return std::copysign(std::numeric_limits<double>::infinity(), value);
    }
    const int exponent = std::max(std::ilogb(value), as.least) - (as.digits - 1);
    return std::ldexp(std::nearbyint(std::ldexp(value, -exponent)), exponent);
}

double half_at(uint16_t bits) {
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const double size  = exponent == 31 ? (fraction == 0 ? std::numeric_limits<double>::infinity()
                                                         : std::numeric_limits<double>::quiet_NaN())
                         : exponent == 0 ? std::ldexp(fraction, -24)
                                         : std::ldexp(1024 + fraction, exponent - 25);
    return (bits & 0x8000) != 0 ? -size : size;
}

double bfloat_at(uint16_t bits) {
    const uint32_t wide = uint32_t(bits) << 16;
    float value;
    std::memcpy(&value, &wide, sizeof(value));
    return double(value);
}

// Numbers of one type in memory.
class numbers {
  public:
    numbers(number type, size_t count) : type_(type), bytes_(count * bytes_of(type)) {}

    number type() const { return type_; }
    size_t size() const { return bytes_.size() / bytes_of(type_); }
    void * data() { return bytes_.data(); }
    const void * data() const { return bytes_.data(); }
    bool operator==(const numbers & other) const { return bytes_ == other.bytes_; }

    double operator[](size_t i) const {
        const char * at = bytes_.data() + i * bytes_of(type_);
        uint16_t half;
        float single;
        double full;
        switch (type_) {
            case number::f16: std::memcpy(&half, at, sizeof(half)); return half_at(half);
            case number::bf16: std::memcpy(&half, at, sizeof(half)); return bfloat_at(half);
            case number::f32: std::memcpy(&single, at, sizeof(single)); return double(single);
            default: std::memcpy(&full, at, sizeof(full)); return full;
        }
    }

    // `value` is one that the type has.
    void set(size_t i, double value) {
        char * at          = bytes_.data() + i * bytes_of(type_);
        const float single = float(value);
        uint32_t wide;
        std::memcpy(&wide, &single, sizeof(wide));
        uint16_t half = uint16_t(wide >> 16);
        switch (type_) {
            case number::f16:
                half = half_of(value);
                std::memcpy(at, &half, sizeof(half));
                break;
            case number::bf16: std::memcpy(at, &half, sizeof(half)); break;
            case number::f32: std::memcpy(at, &single, sizeof(single)); break;
            case number::f64: std::memcpy(at, &value, sizeof(value)); break;
            default: std::abort(); // no other is tried here
        }
    }

  private:
    static uint16_t half_of(double value) {
        const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
        const double size   = std::fabs(value);
        if (std::isnan(value) || std::isinf(value)) {
            return uint16_t(sign | (std::isnan(value) ? 0x7e00 : 0x7c00));
        }
        if (size < std::ldexp(1, -14)) {
            return uint16_t(sign | uint16_t(std::ldexp(size, 24)));
        }
        const int exponent = std::ilogb(size);
        return uint16_t(sign | ((exponent + 14) << 10) + int(std::ldexp(size, 10 - exponent)));
    }

    number type_;
    std::vector<char> bytes_;
};

std::mt19937 & generator() {
    static std::mt19937 made(11);
    return made;
}

numbers drawn(number type, size_t count) {
    std::uniform_real_distribution<double> draw(-2, 2);
    numbers result(type, count);
    for (size_t i = 0; i < count; ++i) {
        result.set(i, rounded_to(type, draw(generator())));
    }
    return result;
}

// What was compared under one name.
struct tally {
    std::string what;
    size_t compared = 0, wrong = 0;
    double worst = 0;

    void compare(double got, double wanted, double allowed) {
        ++compared;
        if (std::isnan(wanted) || std::isinf(wanted)) {
            wrong += std::isnan(wanted) ? !std::isnan(got) : got != wanted;
            return;
        }
        const double part = got == wanted ? 0 : std::fabs(got - wanted) / allowed;
        wrong += !(part <= 1);
        worst = std::isnan(part) ? part : std::max(worst, part);
    }

    bool print() const {
        std::printf("%s\t%zu\t%zu\t%.3f\n", what.c_str(), compared, wrong, worst);
        return wrong == 0;
    }
};

struct exact {
    double value, terms; // and the sum of the sizes of what it is made of
};

double allowed_for(const product & p, const exact & wanted) {
    const double unit    = std::ldexp(1, p.c.type == number::f64 ? -53 : -24);
    const double summing = double(p.k + 4) * unit * wanted.terms;
    const format to      = format_of(p.c.type);
    return summing + std::ldexp(std::fabs(wanted.value) + summing, -to.digits) + to.step / 2;
}

size_t place(const matrix & of, int64_t row, int64_t column) {
    return size_t(of.is_transposed ? column + row * of.leading : row + column * of.leading);
}

size_t size_of(const matrix & of, int64_t rows, int64_t columns) {
    return size_t(of.leading * (of.is_transposed ? rows : columns));
}

exact exact_at(const product & p, const numbers & a, const numbers & b, const numbers & c, int64_t row,
               int64_t column) {
    exact sum = {0, 0};
    for (int64_t i = 0; i < p.k && p.alpha != 0; ++i) {
        const double term = p.alpha * a[place(p.a, row, i)] * b[place(p.b, i, column)];
        sum.value += term;
        sum.terms += std::fabs(term);
    }
    if (p.beta != 0) {
        const double term = p.beta * c[place(p.c, row, column)];
        sum.value += term;
        sum.terms += std::fabs(term);
    }
    return sum;
}

bool has(cpu_level level) { return level <= best_cpu_level(); }

// One product on each level, with one thread and with three: they get the same bits.
void check_product(const product & p, tally * tallies) {
    const numbers a = drawn(p.a.type, size_of(p.a, p.m, p.k));
    const numbers b = drawn(p.b.type, size_of(p.b, p.k, p.n));
    numbers c       = drawn(p.c.type, size_of(p.c, p.m, p.n));
    if (p.beta == 0) { // C is not read
        for (size_t i = 0; i < c.size(); ++i) {
            c.set(i, std::numeric_limits<double>::quiet_NaN());
        }
    }
    std::vector<exact> wanted;
    for (int64_t column = 0; column < p.n; ++column) {
        for (int64_t row = 0; row < p.m; ++row) {
            wanted.push_back(exact_at(p, a, b, c, row, column));
        }
    }
    for (const cpu_level level : levels) {
        if (!has(level)) {
            continue;
        }
        numbers got = c, again = c;
        multiply(p, {{a.data(), b.data(), got.data()}}, 1, level);
        multiply(p, {{a.data(), b.data(), again.data()}}, 3, level);
        tally & into = tallies[int(level)];
        into.wrong += !(got == again);
        for (int64_t column = 0; column < p.n; ++column) {
            for (int64_t row = 0; row < p.c.leading; ++row) {
                const size_t at = place(p.c, row, column);
                if (row < p.m) {
                    const exact & w = wanted[size_t(row + column * p.m)];
                    into.compare(got[at], w.value, allowed_for(p, w));
                } else {
                    into.compare(got[at], c[at], 0); // between the columns nothing changes
                }
            }
        }
    }
}

struct types {
    number in, out;
};

constexpr types kinds[] = {
    {number::f16, number::f16}, {number::f16, number::f32}, {number::bf16, number::bf16}, {number::bf16, number::f32},
    {number::f32, number::f32}, {number::f64, number::f64},
};

std::vector<tally> tallies_of(const std::string & what) {
    std::vector<tally> result;
    for (const cpu_level level : levels) {
        result.push_back({what + ", " + level_name(level)});
    }
    return result;
}

product form_of(const types & kind, int64_t m, int64_t n, int64_t k, int form, int64_t more, double alpha,
                double beta) {
    const bool ta = (form & 1) != 0, tb = (form & 2) != 0;
    return {m, n, k, {kind.in, ta, (ta ? k : m) + more}, {kind.in, tb, (tb ? n : k) + 2 * more},
            {kind.out, false, m + 3 * more}, alpha, beta};
}

bool print_all(const std::vector<tally> & tallies) {
    bool holds = true;
    for (size_t i = 0; i < tallies.size(); ++i) {
        if (has(levels[i])) {
            holds &= tallies[i].print();
        }
    }
    return holds;
}

// Every form of every size of every kind; alpha, beta and the room between columns take turns.
bool sizes() {
    constexpr int64_t each[]  = {1, 3, 17, 63, 129};
    constexpr double scale[][2] = {{1, 0}, {1, 1}, {-0.5, 0.25}, {0, 2}, {2, 0}};
    bool holds = true;
    for (const types & kind : kinds) {
        std::vector<tally> tallies = tallies_of(std::string(name_of(kind.in)) + " to " + name_of(kind.out));
        int turn = 0;
        for (const int64_t m : each) {
            for (const int64_t n : each) {
                for (const int64_t k : each) {
                    for (int form = 0; form < 4; ++form, ++turn) {
                        const auto & [alpha, beta] = scale[turn % 5];
                        check_product(form_of(kind, m, n, k, form, turn % 3 * 5, alpha, beta), tallies.data());
                    }
                }
            }
        }
        // More than one tile each way, and k in more than one part.
        for (int form = 0; form < 4; ++form) {
            check_product(form_of(kind, 250, 90, 530, form, form, 1, form % 2), tallies.data());
            check_product(form_of(kind, 30, 517, 40, form, form, 1, form % 2), tallies.data());
        }
        check_product(form_of(kind, 5, 7, 0, 0, 1, 1, 0.5), tallies.data());
        check_product(form_of(kind, 5, 7, 0, 3, 0, 1, 0), tallies.data());
        holds &= print_all(tallies);
    }
    return holds;
}

// Numbers of one type become those of another as m products with one.
void check_column(tally * tallies, const numbers & from, number to, const std::vector<double> & wanted) {
    const auto count = int64_t(from.size());
    numbers one(from.type(), 1);
    one.set(0, 1);
    const product p = {count, 1, 1, {from.type(), false, count}, {from.type(), false, 1}, {to, false, count}, 1, 0};
    for (const cpu_level level : levels) {
        if (has(level)) {
            numbers got(to, from.size());
            multiply(p, {{from.data(), one.data(), got.data()}}, 1, level);
            for (size_t i = 0; i < from.size(); ++i) {
                tallies[int(level)].compare(got[i], wanted[i], 0);
                tallies[int(level)].wrong += wanted[i] == 0 && std::signbit(got[i]) != std::signbit(wanted[i]);
            }
        }
    }
}

bool reading() {
    std::vector<tally> tallies = tallies_of("every f16 and bf16 is read");
    for (const number type : {number::f16, number::bf16}) {
        numbers all(type, 65536);
        std::vector<double> wanted;
        for (int i = 0; i < 65536; ++i) {
            static_cast<uint16_t *>(all.data())[i] = uint16_t(i);
            wanted.push_back(all[size_t(i)] + 0.0); // a sum that begins with 0 has no -0
        }
        check_column(tallies.data(), all, number::f32, wanted);
    }
    return print_all(tallies);
}

// What lies between two neighbours of the type, halfway, and just beside that.
bool rounding() {
    std::vector<tally> tallies = tallies_of("every f16 and bf16 is rounded to");
    for (const number type : {number::f16, number::bf16}) {
        std::vector<float> values;
        numbers pair(type, 2);
        auto * bits = static_cast<uint16_t *>(pair.data());
        for (int i = 0; i < 0x7fff; ++i) {
            bits[0] = uint16_t(i), bits[1] = uint16_t(i + 1);
            if (std::isnan(pair[0]) || std::isnan(pair[1])) {
                continue;
            }
            const double next = std::isinf(pair[1]) ? format_of(type).infinite * 2 - pair[0] : pair[1];
            const float middle = float(pair[0] / 2 + next / 2);
            for (const float value : {float(pair[0]), middle, std::nextafter(middle, 0.0f),
                                      std::nextafter(middle, std::numeric_limits<float>::infinity())}) {
                values.push_back(value);
                values.push_back(-value);
            }
        }
        values.push_back(std::numeric_limits<float>::infinity());
        values.push_back(-std::numeric_limits<float>::infinity());
        values.push_back(std::numeric_limits<float>::quiet_NaN());
        numbers from(number::f32, values.size());
        std::vector<double> wanted;
        for (size_t i = 0; i < values.size(); ++i) {
            from.set(i, double(values[i]));
            wanted.push_back(rounded_to(type, double(values[i]) + 0.0));
        }
        check_column(tallies.data(), from, type, wanted);
    }
    return print_all(tallies);
}

// Many products at once, each its own, and NaN where nothing may be read.
bool batches() {
    std::vector<tally> tallies = tallies_of("a batch");
    for (const types & kind : kinds) {
        const product p = form_of(kind, 33, 20, 70, 1, 2, 1, 0.5);
        std::vector<numbers> a, b, c;
        for (int i = 0; i < 40; ++i) {
            a.push_back(drawn(kind.in, size_of(p.a, p.m, p.k)));
            b.push_back(drawn(kind.in, size_of(p.b, p.k, p.n)));
            c.push_back(drawn(kind.out, size_of(p.c, p.m, p.n)));
        }
        for (const cpu_level level : levels) {
            if (!has(level)) {
                continue;
            }
            std::vector<numbers> got = c;
            std::vector<factors> all;
            for (size_t i = 0; i < a.size(); ++i) {
                all.push_back({a[i].data(), b[i].data(), got[i].data()});
            }
            multiply(p, all, 3, level);
            product nothing = p;
            nothing.alpha   = 0;
            numbers scaled  = c[0];
            multiply(nothing, {{nullptr, nullptr, scaled.data()}}, 1, level);
            for (int64_t column = 0; column < p.n; ++column) {
                for (int64_t row = 0; row < p.m; ++row) {
                    for (size_t i = 0; i < a.size(); ++i) {
                        const exact w = exact_at(p, a[i], b[i], c[i], row, column);
                        tallies[int(level)].compare(got[i][place(p.c, row, column)], w.value, allowed_for(p, w));
                    }
                    const exact w = exact_at(nothing, a[0], b[0], c[0], row, column);
                    tallies[int(level)].compare(scaled[place(p.c, row, column)], w.value, allowed_for(nothing, w));
                }
            }
        }
    }
    return print_all(tallies);
}

// Triangular systems with a diagonal that dominates, so that errors do not grow; what the other triangle holds, and
// the diagonal that is said to be one, must not matter.

double coefficient(const triangular_system & s, const std::vector<float> & a, int64_t row, int64_t column) {
    const int64_t r = s.is_transposed ? column : row, c = s.is_transposed ? row : column;
    if (r == c && s.has_unit_diagonal) {
        return 1;
    }
    return r == c || (r < c) == s.is_upper ? double(a[size_t(r + c * s.leading_a)]) : 0;
}

std::vector<double> solution(const triangular_system & s, const std::vector<float> & a, const std::vector<float> & b) {
    const int64_t unknowns = s.is_left ? s.m : s.n, rights = s.is_left ? s.n : s.m;
    std::vector<double> x(b.begin(), b.end());
    const auto at = [&](int64_t unknown, int64_t right) -> double & {
        return x[size_t(s.is_left ? unknown + right * s.leading_b : right + unknown * s.leading_b)];
    };
    const auto weight = [&](int64_t of, int64_t in) { // of unknown `of` in equation `in`
        return s.is_left ? coefficient(s, a, in, of) : coefficient(s, a, of, in);
    };
    const bool is_forward = unknowns < 2 || weight(unknowns - 1, 0) == 0;
    for (int64_t right = 0; right < rights; ++right) {
        for (int64_t step = 0; step < unknowns; ++step) {
            const int64_t j = is_forward ? step : unknowns - 1 - step;
            double sum      = double(s.alpha) * at(j, right);
            for (int64_t i = 0; i < unknowns && s.alpha != 0; ++i) {
                sum -= i == j || weight(i, j) == 0 ? 0 : weight(i, j) * at(i, right);
            }
            at(j, right) = s.alpha == 0 ? 0 : sum / weight(j, j);
        }
    }
    return x;
}

void check_system(const triangular_system & s, tally * tallies) {
    const int64_t unknowns = s.is_left ? s.m : s.n;
    std::uniform_real_distribution<float> draw(-1, 1);
    std::vector<std::vector<float>> a, b;
    for (int i = 0; i < 3; ++i) {
        a.emplace_back(size_t(s.leading_a * unknowns));
        b.emplace_back(size_t(s.leading_b * s.n));
        for (float & value : a.back()) {
            value = draw(generator()) / float(unknowns);
        }
        for (int64_t d = 0; d < unknowns; ++d) {
            a.back()[size_t(d + d * s.leading_a)] = s.has_unit_diagonal ? 77.0f : 1.5f + draw(generator());
        }
        for (float & value : b.back()) {
            value = draw(generator());
        }
    }
    for (const cpu_level level : levels) {
        if (!has(level)) {
            continue;
        }
        std::vector<std::vector<float>> got = b;
        std::vector<sides> all;
        for (size_t i = 0; i < a.size(); ++i) {
            all.push_back({s.alpha == 0 ? nullptr : a[i].data(), got[i].data()});
        }
        solve(s, all, 3, level);
        for (size_t i = 0; i < a.size(); ++i) {
            const std::vector<double> wanted = solution(s, a[i], b[i]);
            for (int64_t column = 0; column < s.n; ++column) {
                for (int64_t row = 0; row < s.leading_b; ++row) {
                    const size_t at = size_t(row + column * s.leading_b);
                    // Unknowns are at most a few, and each takes what the others are wrong by, divided.
                    const double allowed = row < s.m ? std::ldexp(double(unknowns + 4), -22) : 0;
                    tallies[int(level)].compare(double(got[i][at]), row < s.m ? wanted[at] : double(b[i][at]), allowed);
                }
            }
        }
    }
}

bool systems() {
    std::vector<tally> tallies = tallies_of("triangular systems");
    constexpr float scale[]    = {1, -0.5f, 0};
    int turn                   = 0;
    for (const int64_t m : {1, 5, 33, 70}) {
        for (const int64_t n : {1, 6, 31, 100}) {
            for (int form = 0; form < 16; ++form, ++turn) {
                const bool is_left = (form & 8) != 0;
                const int64_t more = turn % 3;
                check_system({is_left, (form & 4) != 0, (form & 2) != 0, (form & 1) != 0, m, n,
                              (is_left ? m : n) + more, m + 2 * more, scale[turn % 3]},
                             tallies.data());
            }
        }
    }
    return print_all(tallies);
}

} // namespace

int main() {
    bool holds = sizes();
    holds &= reading();
    holds &= rounding();
    holds &= batches();
    holds &= systems();
    return holds ? 0 : 1;
}
