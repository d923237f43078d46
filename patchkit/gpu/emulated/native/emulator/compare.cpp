// V_CMP and V_CMPX: one bit per lane, in a scalar register or in EXEC. An ordered comparison with NaN is false, its
// negation true.

#include "table.hpp"

#include <deque>
#include <string>

namespace patchkit::gpu {

namespace {

// Class mask in the second operand, RDNA3 ISA guide, V_CMP_CLASS_F32.
template <class B> u32 class_bits(const B & bits, const u32x & wanted, int mantissa, int exponents) {
    using E = decltype(bits[0] + 0);
    const E all_ones = (E(1) << exponents) - 1, fraction_bits = (E(1) << mantissa) - 1;
    const B exponent = (bits >> E(mantissa)) & all_ones, fraction = bits & fraction_bits;
    const auto holds = [](const auto & compared) { return convert<i32x>(compared); };
    const i32x is_top = holds(exponent == all_ones), is_bottom = holds(exponent == 0), has_fraction = holds(fraction != 0);
    const i32x is_quiet = holds((fraction >> E(mantissa - 1)) != 0);
    const i32x is_negative = holds(((bits >> E(mantissa + exponents)) & 1) != 0);
    const auto number = [](int n) { return splat<i32x>(n); };
    // For positive values; the negative classes precede them in reverse order, and NaN has no sign.
    const i32x nan = is_quiet ? number(1) : number(0), top = has_fraction ? nan : number(9);
    const i32x bottom = has_fraction ? number(7) : number(6);
    i32x which = is_top ? top : is_bottom ? bottom : number(8);
    which = (is_negative & (which > 1)) ? 11 - which : which;
    return lane_bits(((wanted >> as<u32x>(which)) & 1) != 0);
}

u32 class_of(const u32x & value, const u32x & wanted) { return class_bits(value, wanted, 23, 8); }
u32 class_of(const f64x & value, const u32x & wanted) { return class_bits(as<u64x>(value), wanted, 52, 11); }
u32 class_of(const u16x & value, const u32x & wanted) { return class_bits(convert<u32x>(value), wanted, 10, 5); }

// f32 as bits: class comparisons see subnormals even if the float mode flushes them.
struct B32 : U32 {
    static constexpr format form = format::f32;
};

template <class K, class Wanted, bool is_exec> void compare_class(const instruction * i, wave & w) {
    const u32x wanted = convert<u32x>(Wanted::template read<1>(i, w));
    const u32 found = class_of(K::template read<0>(i, w), wanted) & w.exec();
    if (is_exec) {
        w.scalar[slot::exec] = found;
    } else {
        write_scalar(w, i->to[0], found);
    }
    PATCHKIT_NEXT(i, w);
}

// Names must live as long as the table.
std::string_view kept(std::string name) {
    static std::deque<std::string> names;
    return names.emplace_back(std::move(name));
}

template <auto f, class K> void add(definitions & to, const std::string & condition, const std::string & type) {
    const std::string end = "_" + condition + "_" + type;
    to.push_back({kept("v_cmp" + end), run_compare<f, K, K>, {format::lanes}, {K::form, K::form}, 0});
    to.push_back({kept("v_cmpx" + end), run_compare_exec<f, K, K>, {}, {K::form, K::form}, 0});
}

// Constant results, for no lane and all lanes. RDNA4 does not have them.
template <class K> void add_constant_answers(definitions & to, const std::string & type) {
    add<[](auto a, auto) { return (a == a) & (a != a); }, K>(to, "f", type);
    add<[](auto a, auto) { return (a == a) | (a != a); }, K>(to, "t", type);
}

template <class K> void add_integers(definitions & to, const std::string & type) {
    add<[](auto a, auto b) { return a < b; }, K>(to, "lt", type);
    add<[](auto a, auto b) { return a == b; }, K>(to, "eq", type);
    add<[](auto a, auto b) { return a <= b; }, K>(to, "le", type);
    add<[](auto a, auto b) { return (a > b); }, K>(to, "gt", type);
    add<[](auto a, auto b) { return a != b; }, K>(to, "ne", type);
    add<[](auto a, auto b) { return (a >= b); }, K>(to, "ge", type);
}

// `Class`: how a class comparison reads the value; `Wanted`: the class mask.
template <class K, class Class, class Wanted> void add_floats(definitions & to, const std::string & type) {
    add<[](auto a, auto b) { return a < b; }, K>(to, "lt", type);
    add<[](auto a, auto b) { return a == b; }, K>(to, "eq", type);
    add<[](auto a, auto b) { return a <= b; }, K>(to, "le", type);
    add<[](auto a, auto b) { return (a > b); }, K>(to, "gt", type);
    add<[](auto a, auto b) { return (a < b) | (a > b); }, K>(to, "lg", type);
    add<[](auto a, auto b) { return (a >= b); }, K>(to, "ge", type);
    add<[](auto a, auto b) { return (a == a) & (b == b); }, K>(to, "o", type);
    add<[](auto a, auto b) { return (a != a) | (b != b); }, K>(to, "u", type);
    add<[](auto a, auto b) { return ~(a >= b); }, K>(to, "nge", type);
    add<[](auto a, auto b) { return ~((a < b) | (a > b)); }, K>(to, "nlg", type);
    add<[](auto a, auto b) { return ~(a > b); }, K>(to, "ngt", type);
    add<[](auto a, auto b) { return ~(a <= b); }, K>(to, "nle", type);
    add<[](auto a, auto b) { return a != b; }, K>(to, "neq", type);
    add<[](auto a, auto b) { return ~(a < b); }, K>(to, "nlt", type);
    const std::vector<format> from{Class::form, Wanted::form};
    to.push_back({kept("v_cmp_class_" + type), compare_class<Class, Wanted, false>, {format::lanes}, from, 0});
    to.push_back({kept("v_cmpx_class_" + type), compare_class<Class, Wanted, true>, {}, from, 0});
}

} // namespace

definitions compare_instructions() {
    definitions made;
    add_integers<I16>(made, "i16");
    add_integers<U16>(made, "u16");
    add_integers<I32>(made, "i32");
    add_integers<U32>(made, "u32");
    add_integers<I64>(made, "i64");
    add_integers<U64>(made, "u64");
    add_floats<F16, H16, U16>(made, "f16");
    add_floats<F32, B32, U32>(made, "f32");
    add_floats<F64, F64, U32>(made, "f64");
    add_constant_answers<F16>(made, "f16");
    add_constant_answers<F32>(made, "f32");
    add_constant_answers<F64>(made, "f64");
    add_constant_answers<I32>(made, "i32");
    add_constant_answers<U32>(made, "u32");
    add_constant_answers<I64>(made, "i64");
    add_constant_answers<U64>(made, "u64");
    return made;
}

} // namespace patchkit::gpu
