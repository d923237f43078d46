// Detects the first instruction that computes a NaN or infinity from finite sources, including f16 overflow and
// division by zero.
//
// The instruction is run separately, and its result is examined before the real execution. Scalar floats (RDNA3.5's
// s_add_f32 and similar) are not checked.
#include "numbers.hpp"

#include "access.hpp"
#include "executor.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

namespace patchkit::gpu {

namespace {

// Lanes with a non-finite result.
u32 not_finite(const wave & w, operand o, format f) {
    const u32x & bits = vector_at(const_cast<wave &>(w), o);
    const u32x half = o.is(operand::high) ? bits >> 16 : bits;
    switch (f) {
        case format::f32: return lane_bits((bits & 0x7f800000) == 0x7f800000);
        case format::f16: return lane_bits((half & 0x7c00) == 0x7c00);
        case format::bf16: return lane_bits((half & 0x7f80) == 0x7f80);
        case format::half_pairs:
            return lane_bits((bits & 0x7c00) == 0x7c00) | lane_bits((bits & 0x7c000000) == 0x7c000000);
        case format::f64:
            return lane_bits((vector_at(const_cast<wave &>(w), o, 1) & 0x7ff00000) == 0x7ff00000);
        default: return 0;
    }
}

// The floats in one lane of an operand: two for a pair, none if it is not a float.
struct values {
    double all[2];
    int count = 0;

    void add(double value) { all[count++] = value; }
};

double half_of(u32 bits) { return double(f32(as<_Float16>(u16(bits)))); }

values values_of(const instruction * i, const wave & w, operand o, format f, int lane, bool is_high_half) {
    values result;
    if (!is_float(f)) {
        return result;
    }
    if (f == format::f64) {
        result.add(as<f64>(u64(read_bits_64(i, w, o)[lane])));
        return result;
    }
    const u32 bits = read_bits(i, w, o)[lane];
    const u32 half = o.is(operand::high) || is_high_half ? bits >> 16 : bits;
    switch (f) {
        case format::f32: result.add(double(as<f32>(bits))); break;
        case format::f16: result.add(half_of(half)); break;
        case format::bf16: result.add(double(as<f32>(half << 16))); break;
        default:
            result.add(half_of(bits));
            result.add(half_of(bits >> 16));
    }
    return result;
}

std::string text_of(double value) {
    char text[32];
    std::snprintf(text, sizeof(text), "%.7g", value);
    return text;
}

} // namespace

void check_numbers(const instruction * i, wave & w, const facts & f) {
    wave & spare = w.on->spare_wave();
    std::memcpy(static_cast<void *>(&spare), &w, sizeof(wave));
    spare.marks = nullptr;
    f.touched.each_vgpr([&](int n) { spare.vgpr(n) = w.vgpr(n); });
    try {
        run_from(f.alone, spare);
    } catch (const kernel_fault &) {
        return; // the real execution will fault
    }
    for (int step = 0; step < f.alone_steps; ++step) {
        const instruction * done = f.alone + step;
        const auto known = std::find_if(f.floats.begin(), f.floats.end(),
                                        [&](const float_step & one) { return one.run == done->run; });
        if (known == f.floats.end()) {
            continue;
        }
        const operand to{done->to[0].code | (known->is_high ? operand::high : 0)};
        for (u32 left = not_finite(spare, to, known->to) & w.exec(); left != 0; left &= left - 1) {
            const int lane = std::countr_zero(left);
            std::string sources;
            bool is_finite = true;
            for (int n = known->first; n < known->sources; ++n) {
                // Values fetched from other lanes (DPP) exist only in the spare wave.
                const operand o = done->from[n];
                const bool is_own = !o.is(operand::vector) || f.touched.holds_vgpr((o.offset() - offset_of_vgpr(0)) / 128);
                const bool is_half = known->is_mix && (done->modifiers & (modifier::op_sel_hi_0 << n)) != 0;
                const bool is_high = is_half && (done->modifiers & (modifier::op_sel_0 << n)) != 0;
                const values some = values_of(done, is_own ? w : spare, o, is_half ? format::f16 : known->from[size_t(n)],
                                              lane, is_high);
                for (int k = 0; k < some.count; ++k) {
                    is_finite &= std::isfinite(some.all[k]);
                    sources += (sources.empty() ? "" : ", ") + text_of(some.all[k]);
                }
            }
            if (!is_finite) {
                continue;
            }
            const values got = values_of(done, spare, to, known->to, lane, false);
            const double bad = got.count == 2 && std::isfinite(got.all[0]) ? got.all[1] : got.all[0];
            const bool is_half = known->to == format::f16 || known->to == format::half_pairs;
            w.on->report(i, w, kinds::numbers,
                         "lane " + std::to_string(lane) + " gets " + (std::isnan(bad) ? "NaN" : text_of(bad)) +
                             (is_half && !std::isnan(bad) ? ", more than f16 can represent," : "") + " from " +
                             (sources.empty() ? "integers" : sources));
            break;
        }
    }
}

} // namespace patchkit::gpu
