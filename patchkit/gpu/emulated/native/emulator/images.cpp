// Image loads, stores and samples, and typed loads of buffer elements (RDNA3 and RDNA4 ISA guides, "Vector Memory Image
// Instructions"). The precision of filtering is not published: weights have 8 bits here.

#include "image_access.hpp"

#include "executor.hpp"
#include "table.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace patchkit::gpu {

namespace {

using element = std::array<u32, 4>; // channels, as in registers

// Hardware uses fixed-point coordinates. This number of steps per element ensures that a coordinate rounded to an
// element in f32 is not assigned to the previous one.
constexpr f64 steps_of_element = 65536.0;

// Larger than any image, and exact in all following computations.
constexpr f32 far_away = f32(1 << 24);

template <class T> T read_channel(const std::byte * from) {
    T value;
    std::memcpy(&value, from, sizeof(value));
    return value;
}

template <class T> u32 as_register(const image & of, T value) {
    if (!of.is_normalized) {
        return u32(std::conditional_t<std::is_signed_v<T>, i32, u32>(value));
    }
    constexpr f32 largest = f32(std::is_signed_v<T> ? (1u << (8 * sizeof(T) - 1)) - 1 : (1u << (8 * sizeof(T))) - 1);
    return as<u32>(std::max(f32(value) / largest, -1.0f));
}

u32 channel_of(const image & of, const std::byte * from) {
    using kind = image::channel;
    if (of.bits == 32) {
        return read_channel<u32>(from);
    }
    if (of.kind == kind::is_float) {
        return as<u32>(f32(as<_Float16>(read_channel<u16>(from))));
    }
    if (of.bits == 16) {
        return of.kind == kind::is_signed ? as_register(of, read_channel<i16>(from)) : as_register(of, read_channel<u16>(from));
    }
    return of.kind == kind::is_signed ? as_register(of, read_channel<int8_t>(from)) : as_register(of, read_channel<u8>(from));
}

bool has_floats(const image & of) { return of.kind == image::channel::is_float || of.is_normalized; }

std::byte * place_of(const image & of, u64 x, u64 y, u64 z) {
    return of.data + z * of.slice_pitch + y * of.row_pitch + x * of.element();
}

bool holds(const image & of, const std::array<i64, 3> & at) {
    return at[0] >= 0 && at[0] < i64(of.width) && at[1] >= 0 && at[1] < i64(of.height) && at[2] >= 0 &&
           at[2] < i64(of.depth);
}

// Missing channels are 0, and the fourth is 1.
element read_element(const image & of, const std::array<i64, 3> & at) {
    element result{0, 0, 0, has_floats(of) ? as<u32>(1.0f) : 1};
    const std::byte * from = place_of(of, u64(at[0]), u64(at[1]), u64(at[2]));
    for (u32 n = 0; n < of.channels; ++n) {
        result[n] = channel_of(of, from + n * of.bits / 8);
    }
    return result;
}

void write_element(const image & of, const std::array<i64, 3> & at, const element & value) {
    std::byte * to = place_of(of, u64(at[0]), u64(at[1]), u64(at[2]));
    for (u32 n = 0; n < of.channels; ++n) {
        u32 bits = value[n];
        if (of.kind == image::channel::is_float && of.bits == 16) {
            bits = as<u16>(_Float16(as<f32>(bits)));
        }
        std::memcpy(to + n * of.bits / 8, &bits, of.bits / 8);
    }
}

// Position of an element along one side; -1 for the border.
i64 placed(i64 n, u32 size, image::edge how) {
    const i64 last = i64(size) - 1;
    const auto modulo = [n](i64 by) { return (n % by + by) % by; };
    switch (how) {
        case image::edge::wrap: return modulo(size);
        case image::edge::mirror: return std::min(modulo(2 * i64(size)), 2 * i64(size) - 1 - modulo(2 * i64(size)));
        case image::edge::border: return n < 0 || n > last ? -1 : n;
        default: return std::clamp(n, i64(0), last);
    }
}

// A coordinate in elements. With coordinates that are not from 0 to 1, images neither repeat nor mirror.
f32 in_elements(const image & of, f32 coordinate, u32 size) {
    const f32 scaled = of.has_unit_coordinates ? coordinate * f32(size) : coordinate;
    return scaled == scaled ? std::clamp(scaled, -far_away, far_away) : 0.0f; // not NaN
}

image::edge edge_of(const image & of, int side) {
    const bool repeats = of.edges[side] == image::edge::wrap || of.edges[side] == image::edge::mirror;
    return repeats && !of.has_unit_coordinates ? image::edge::clamp : of.edges[side];
}

// One dimension of a sample: the two adjacent elements, and the weight of the second.
struct along {
    i64 first = 0, second = 0;
    f32 weight = 0.0f;
};

along sampled_along(const image & of, f32 coordinate, int side, u32 size, bool is_linear) {
    const f32 at = in_elements(of, coordinate, size);
    const image::edge how = edge_of(of, side);
    if (!is_linear) {
        const i64 n = placed(i64(std::floor(std::nearbyint(f64(at) * steps_of_element) / steps_of_element)), size, how);
        return {n, n, 0.0f};
    }
    const f32 below = std::floor(at - 0.5f);
    constexpr f32 steps = 256.0f;
    const f32 weight = std::nearbyint((at - 0.5f - below) * steps) / steps;
    return {placed(i64(below), size, how), placed(i64(below) + 1, size, how), weight};
}

element element_or_border(const image & of, const std::array<i64, 3> & at) {
    if (at[0] >= 0 && at[1] >= 0 && at[2] >= 0) {
        return read_element(of, at);
    }
    element result;
    for (int n = 0; n < 4; ++n) {
        result[size_t(n)] = has_floats(of) ? as<u32>(of.border[n]) : u32(i64(of.border[n]));
    }
    return result;
}

// Layers are selected by rounding, without filtering.
i64 layer_at(const image & of, f32 coordinate) {
    const f32 at = coordinate == coordinate ? std::clamp(coordinate, 0.0f, f32(of.depth - 1)) : 0.0f;
    return i64(std::nearbyint(at));
}

struct sides {
    std::array<along, 3> of;
    int count = 1;
};

sides sides_of(const image & of, const image_access & how, const std::array<f32, 3> & at, bool is_linear) {
    const u32 sizes[3] = {of.width, of.height, of.depth};
    sides result;
    for (int n = 0; n < how.dimensions; ++n) {
        result.of[size_t(n)] = sampled_along(of, at[size_t(n)], n, sizes[n], is_linear);
    }
    if (how.has_layer) {
        const i64 layer = layer_at(of, at[size_t(how.dimensions)]);
        result.of[2] = {layer, layer, 0.0f};
    }
    result.count = how.dimensions;
    return result;
}

element sample(const image & of, const image_access & how, const std::array<f32, 3> & at) {
    const sides s = sides_of(of, how, at, of.is_linear);
    if (!of.is_linear) {
        return element_or_border(of, {s.of[0].first, s.of[1].first, s.of[2].first});
    }
    std::array<f32, 4> sum{};
    for (u32 corner = 0; corner < 1u << s.count; ++corner) {
        std::array<i64, 3> place{s.of[0].first, s.of[1].first, s.of[2].first};
        f32 weight = 1.0f;
        for (int n = 0; n < s.count; ++n) {
            const along & side = s.of[size_t(n)];
            const bool is_second = (corner >> n & 1) != 0;
            place[size_t(n)] = is_second ? side.second : side.first;
            weight *= is_second ? side.weight : 1.0f - side.weight;
        }
        if (weight == 0.0f) { // an infinity with weight 0 is ignored
            continue;
        }
        const element found = element_or_border(of, place);
        for (size_t n = 0; n < sum.size(); ++n) {
            sum[n] += weight * as<f32>(found[n]);
        }
    }
    return as<element>(sum);
}

// One channel of the four elements of a linear sample, counterclockwise from the lower left.
element gather(const image & of, const image_access & how, const std::array<f32, 3> & at) {
    const sides s = sides_of(of, how, at, true);
    const along &x = s.of[0], &y = s.of[1];
    const i64 z = s.of[2].first;
    const size_t channel = size_t(std::countr_zero(how.channels));
    return {element_or_border(of, {x.first, y.second, z})[channel], element_or_border(of, {x.second, y.second, z})[channel],
            element_or_border(of, {x.second, y.first, z})[channel], element_or_border(of, {x.first, y.first, z})[channel]};
}

u32 & lane_of(wave & w, operand o, int lane, int further = 0) {
    return reinterpret_cast<u32 *>(&vector_at(w, o, further))[lane];
}

// The image for a descriptor. Throws kernel_fault if there is none, or its memory was freed.
const image & described(const instruction * i, wave & w, operand description) {
    const u64 number = read_scalar_64(i, w, description);
    const image * found = w.on->image_at(number);
    if (found == nullptr) {
        w.on->fault(i, w, "its descriptor does not match a texture or surface of the program");
    }
    if (!w.on->look_for_range(i, w, u64(found->data), u32(std::min<u64>(found->extent(), UINT32_MAX)))) {
        w.on->fault(i, w, "the memory of the texture or surface was freed");
    }
    return *found;
}

void run_image(const instruction * i, wave & w) {
    const auto & how = *static_cast<const image_access *>(i->extra);
    if (w.exec() == 0) {
        PATCHKIT_NEXT(i, w);
    }
    const image & of = described(i, w, how.description);
    using what = image_access::what;
    // Results may overwrite coordinates, so each lane's coordinates are read first.
    for (u32 left = w.exec(); left != 0; left &= left - 1) {
        const int lane = std::countr_zero(left);
        std::array<u32, 3> at{};
        const int count = how.dimensions + int(how.has_layer);
        for (int n = 0; n < count; ++n) {
            at[size_t(n)] = lane_of(w, how.coordinates[size_t(n)], lane);
        }
        if (how.has_layer && how.dimensions == 1 && (how.does == what::load || how.does == what::store)) {
            std::swap(at[1], at[2]); // the layer is the third coordinate
        }
        const std::array<i64, 3> place{i64(i32(at[0])), i64(i32(at[1])), i64(i32(at[2]))};
        element value{};
        if (how.does == what::store) {
            int from = 0;
            for (u32 n = 0; n < 4; ++n) {
                value[n] = (how.channels >> n & 1) != 0 ? lane_of(w, how.data, lane, from++) : 0;
            }
            if (holds(of, place)) {
                note_change(w);
                write_element(of, place, value);
            }
            continue;
        }
        if (how.does == what::load) {
            value = holds(of, place) ? read_element(of, place) : element{};
        } else {
            const std::array<f32, 3> floats = as<std::array<f32, 3>>(at);
            value = how.does == what::sample ? sample(of, how, floats) : gather(of, how, floats);
        }
        int to = 0;
        for (u32 n = 0; n < 4; ++n) {
            if (how.does == what::gather || (how.channels >> n & 1) != 0) {
                lane_of(w, how.data, lane, to++) = value[n];
            }
        }
    }
    PATCHKIT_NEXT(i, w);
}

} // namespace

definitions image_instructions() {
    const auto made = [](std::string_view name, const memory_form & form) {
        return definition{name, run_image, {}, {}, trait::has_tolerance, form};
    };
    constexpr memory_form load{.by = route::image}, store{.by = route::image, .does = action::store};
    constexpr memory_form sample{.by = route::image, .is_sample = true}, buffer{.by = route::buffer};
    return {
        made("image_load", load),
        made("image_store", store),
        made("image_sample", sample),
        made("image_sample_l", sample),
        made("image_sample_lz", sample),
        made("image_sample_d", sample),
        made("image_sample_d_g16", sample),
        made("image_gather4_lz", sample),
        made("buffer_load_format_x", buffer),
        made("buffer_load_format_xy", buffer),
        made("buffer_load_format_xyz", buffer),
        made("buffer_load_format_xyzw", buffer),
    };
}

} // namespace patchkit::gpu
