#include "textures.hpp"

#include "allocations.hpp"
#include "answers.hpp"
#include "calls.hpp"
#include "copies.hpp"
#include "handles.hpp"
#include "recorder.hpp"
#include "schedule.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>

namespace patchkit {

namespace {

using gpu::image;

constexpr size_t row_alignment = 256;

// Memory of the program as rows of elements.
struct array {
    image rows;
    hipChannelFormatDesc format = {};
    hipExtent asked             = {}; // as requested: 0 for missing dimensions
    unsigned flags              = 0;
};

handle_map<array> & arrays() {
    static auto * made = new handle_map<array>;
    return *made;
}

std::shared_ptr<array> array_of(hipArray_const_t handle) { return arrays().find(handle); }

// The memory that hipTextureObject_t points to: hardware registers of the image, followed by those of the sampler.
// Besides our number it contains what the device libraries read to round coordinates for point sampling (ockl's
// image.cl), and what HIP's header reads to address elements of surfaces.
struct description {
    uint64_t number = 0;
    uint32_t height = 0;  // word 2: minus 1, from bit 14 up
    uint32_t word_3 = 0;
    uint32_t depth  = 0; // minus 1
    uint32_t words_5_to_7[3] = {};
    uint32_t type    = 0; // hsa_ext_image_channel_type_t: surfaces are addressed in bytes, and divide by its size
    uint32_t order   = 0; // hsa_ext_image_channel_order_t
    uint32_t width   = 0;
    uint32_t word_11 = 0;
    uint32_t coordinates = 0; // bit 15: in elements instead of 0 to 1
    uint32_t word_13 = 0;
    uint32_t filter  = 0; // bit 20: linear
    uint32_t words_15_to_19[5] = {};

    void tell(const image & of) {
        height      = (of.height - 1) << 14;
        depth       = of.depth - 1;
        width       = of.width;
        const uint32_t size = of.bits == 8 ? 0 : of.bits == 16 ? 1 : 2;
        type  = of.kind == image::channel::is_float    ? 13 + size
                : of.kind == image::channel::is_signed ? 8 + size
                                                       : 11 + size;
        order = of.channels == 1 ? 1 : of.channels == 2 ? 3 : 8;
        coordinates = uint32_t(!of.has_unit_coordinates) << 15;
        filter      = uint32_t(of.is_linear) << 20;
    }
};
static_assert(sizeof(description) == HIP_TEXTURE_OBJECT_SIZE_DWORD * sizeof(uint32_t));

struct texture {
    image seen;
    hipResourceDesc resource = {};
    hipTextureDesc how       = {};
    bool is_surface          = false;
    std::shared_ptr<array> of; // null: other memory of the program
    description described;
};

std::shared_mutex textures_mutex;

std::map<uint64_t, std::unique_ptr<texture>> & textures() {
    static auto * made = new std::map<uint64_t, std::unique_ptr<texture>>;
    return *made;
}

hipError_t refuse_format(const std::string & why) { return refused(hipErrorInvalidValue, why); }

// Derives the properties of an element from the format.
hipError_t read_format(const hipChannelFormatDesc & format, image & into) {
    const int sizes[] = {format.x, format.y, format.z, format.w};
    const auto is_used = [](int bits) { return bits != 0; };
    const auto channels = std::count_if(std::begin(sizes), std::end(sizes), is_used);
    const bool is_even  = std::all_of(sizes, sizes + channels, [&](int bits) { return bits == format.x; });
    const bool is_float = format.f == hipChannelFormatKindFloat;
    const int bits      = format.x;
    if ((channels != 1 && channels != 2 && channels != 4) || !is_even || (bits != 8 && bits != 16 && bits != 32) ||
        (is_float && bits == 8) || format.f == hipChannelFormatKindNone) {
        return refuse_format("an element must have 1, 2 or 4 channels of 8, 16 or 32 bits each");
    }
    into.channels = uint32_t(channels);
    into.bits     = uint32_t(bits);
    into.kind     = is_float                                   ? image::channel::is_float
                    : format.f == hipChannelFormatKindSigned ? image::channel::is_signed
                                                             : image::channel::is_unsigned;
    return hipSuccess;
}

hipError_t make_array(hipArray_t * handle, const hipChannelFormatDesc * format, const hipExtent & asked, unsigned flags) {
    if (handle == nullptr || format == nullptr || asked.width == 0) {
        return hipErrorInvalidValue;
    }
    *handle = nullptr;
    constexpr unsigned known = hipArrayLayered | hipArraySurfaceLoadStore;
    if ((flags & ~known) != 0) {
        return refused(hipErrorNotSupported, "cubemap and gather arrays are not emulated");
    }
    if (asked.width > most_of_image || asked.height > most_of_image || asked.depth > most_deep_of_image) {
        return refused(hipErrorInvalidValue, "an array is too large");
    }
    auto made = std::make_shared<array>();
    if (const hipError_t error = read_format(*format, made->rows); error != hipSuccess) {
        return error;
    }
    made->format      = *format;
    made->asked       = asked;
    made->flags       = flags;
    image & rows      = made->rows;
    rows.width        = uint32_t(asked.width);
    rows.height       = uint32_t(std::max<size_t>(asked.height, 1));
    rows.depth        = uint32_t(std::max<size_t>(asked.depth, 1));
    rows.row_pitch    = (rows.width * rows.element() + row_alignment - 1) / row_alignment * row_alignment;
    rows.slice_pitch  = rows.row_pitch * rows.height;
    void * memory     = nullptr;
    const hipError_t error = allocate(&memory, rows.slice_pitch * rows.depth, hipMemoryTypeDevice);
    if (error == hipSuccess) {
        rows.data = static_cast<std::byte *>(memory);
        *handle   = static_cast<hipArray_t>(arrays().make(std::move(made)));
    }
    return error;
}

hipError_t free_array(hipArray_t handle) {
    const std::shared_ptr<array> found = array_of(handle);
    if (found == nullptr) {
        return hipErrorInvalidHandle;
    }
    const hipError_t waited = wait_for_all();
    if (waited != hipSuccess) {
        return waited;
    }
    arrays().drop(handle);
    return release(found->rows.data, hipErrorInvalidValue);
}

hipChannelFormatDesc format_of(hipArray_Format format, unsigned channels) {
    hipChannelFormatDesc result = {};
    const bool is_float    = format == HIP_AD_FORMAT_FLOAT || format == HIP_AD_FORMAT_HALF;
    const bool is_signed   = format == HIP_AD_FORMAT_SIGNED_INT8 || format == HIP_AD_FORMAT_SIGNED_INT16 ||
                             format == HIP_AD_FORMAT_SIGNED_INT32;
    const bool is_byte     = format == HIP_AD_FORMAT_SIGNED_INT8 || format == HIP_AD_FORMAT_UNSIGNED_INT8;
    const bool is_half     = format == HIP_AD_FORMAT_SIGNED_INT16 || format == HIP_AD_FORMAT_UNSIGNED_INT16 ||
                             format == HIP_AD_FORMAT_HALF;
    const int bits         = is_byte ? 8 : is_half ? 16 : 32;
    int * const sizes[]    = {&result.x, &result.y, &result.z, &result.w};
    for (unsigned n = 0; n < std::min(channels, 4u); ++n) {
        *sizes[n] = bits;
    }
    result.f = is_float ? hipChannelFormatKindFloat : is_signed ? hipChannelFormatKindSigned : hipChannelFormatKindUnsigned;
    return result;
}

// ---- Copies of rows of a part of an array; offsets and widths in bytes.

struct part {
    std::byte * first;
    size_t pitch;
};

// Whether these rows are inside the array, and their location.
bool find_part(const array & of, size_t x, size_t y, size_t z, size_t width, size_t height, size_t depth, part & found) {
    const image & rows = of.rows;
    const size_t whole = rows.width * rows.element();
    if (x > whole || width > whole - x || y > rows.height || height > rows.height - y || z > rows.depth ||
        depth > rows.depth - z) {
        return false;
    }
    found = {rows.data + z * rows.slice_pitch + y * rows.row_pitch + x, rows.row_pitch};
    return true;
}

hipError_t refuse_part() { return refused(hipErrorInvalidValue, "it extends past the end of the array"); }

enum class way { into, out_of };

hipError_t copy_array(hipArray_const_t handle, size_t x, size_t y, void * other, size_t pitch, size_t width,
                      size_t height, way direction, const hipStream_t * stream) {
    const std::shared_ptr<array> of = array_of(handle);
    if (of == nullptr) {
        return hipErrorInvalidHandle;
    }
    part found = {};
    if (!find_part(*of, x, y, 0, width, height, 1, found)) {
        return refuse_part();
    }
    const row_copy rows = direction == way::into ? row_copy{found.first, found.pitch, other, pitch, width, height}
                                                 : row_copy{other, pitch, found.first, found.pitch, width, height};
    return stream == nullptr ? copy_rows(rows) : copy_rows_async(rows, *stream);
}

// Bytes that continue in the next row, as in hipMemcpyToArray; the last row may be partial.
hipError_t copy_run(hipArray_const_t handle, size_t offset, void * other, size_t size, way direction) {
    const std::shared_ptr<array> of = array_of(handle);
    if (of == nullptr) {
        return hipErrorInvalidHandle;
    }
    const size_t whole = of->rows.width * of->rows.element();
    auto * at          = static_cast<char *>(other);
    while (size != 0) {
        const size_t piece     = std::min(size, whole - offset % whole);
        const hipError_t error = copy_array(handle, offset % whole, offset / whole, at, piece, piece, 1, direction, nullptr);
        if (error != hipSuccess) {
            return error;
        }
        at += piece;
        offset += piece;
        size -= piece;
    }
    return hipSuccess;
}

// One side of a volume copy, as rows.
struct volume {
    std::byte * first = nullptr;
    size_t pitch = 0, slice = 0;
};

hipError_t find_volume(hipArray_t handle, const hipPitchedPtr & pointer, const hipPos & from, size_t width,
                       const hipExtent & extent, volume & found) {
    if (handle == nullptr) {
        if (pointer.ptr == nullptr || (extent.depth > 1 && pointer.ysize < extent.height)) {
            return hipErrorInvalidValue;
        }
        const size_t slice = pointer.pitch * pointer.ysize;
        found = {static_cast<std::byte *>(pointer.ptr) + from.z * slice + from.y * pointer.pitch + from.x, pointer.pitch, slice};
        return hipSuccess;
    }
    const std::shared_ptr<array> of = array_of(handle);
    if (of == nullptr) {
        return hipErrorInvalidHandle;
    }
    part start = {};
    if (!find_part(*of, from.x * of->rows.element(), from.y, from.z, width, extent.height, extent.depth, start)) {
        return refuse_part();
    }
    found = {start.first, start.pitch, of->rows.slice_pitch};
    return hipSuccess;
}

hipError_t copy_volume(const hipMemcpy3DParms * wanted, const hipStream_t * stream) {
    if (wanted == nullptr || (wanted->srcArray != nullptr && wanted->srcPtr.ptr != nullptr) ||
        (wanted->dstArray != nullptr && wanted->dstPtr.ptr != nullptr)) {
        return hipErrorInvalidValue;
    }
    // In elements if an array is involved, otherwise in bytes.
    size_t width = wanted->extent.width;
    for (hipArray_t handle : {wanted->dstArray, wanted->srcArray}) {
        if (const std::shared_ptr<array> of = handle == nullptr ? nullptr : array_of(handle); of != nullptr) {
            width = wanted->extent.width * of->rows.element();
        }
    }
    volume from, to;
    if (const hipError_t error = find_volume(wanted->srcArray, wanted->srcPtr, wanted->srcPos, width, wanted->extent, from);
        error != hipSuccess) {
        return error;
    }
    if (const hipError_t error = find_volume(wanted->dstArray, wanted->dstPtr, wanted->dstPos, width, wanted->extent, to);
        error != hipSuccess) {
        return error;
    }
    for (size_t z = 0; z < wanted->extent.depth; ++z) {
        const row_copy rows = {to.first + z * to.slice, to.pitch, from.first + z * from.slice, from.pitch,
                               width, wanted->extent.height};
        const hipError_t error = stream == nullptr ? copy_rows(rows) : copy_rows_async(rows, *stream);
        if (error != hipSuccess) {
            return error;
        }
    }
    return hipSuccess;
}

// ---- Textures and surfaces

image::edge edge_of(hipTextureAddressMode mode) {
    switch (mode) {
        case hipAddressModeWrap: return image::edge::wrap;
        case hipAddressModeMirror: return image::edge::mirror;
        case hipAddressModeBorder: return image::edge::border;
        default: return image::edge::clamp;
    }
}

// The part of its resource that a texture accesses.
hipError_t read_resource(const hipResourceDesc & resource, texture & into) {
    image & seen = into.seen;
    if (resource.resType == hipResourceTypeArray) {
        into.of = array_of(resource.res.array.array);
        if (into.of == nullptr) {
            return hipErrorInvalidHandle;
        }
        seen = into.of->rows;
        return hipSuccess;
    }
    if (resource.resType == hipResourceTypeMipmappedArray) {
        return refused(hipErrorNotSupported, "mipmapped textures are not emulated");
    }
    const bool is_linear = resource.resType == hipResourceTypeLinear;
    if (!is_linear && resource.resType != hipResourceTypePitch2D) {
        return hipErrorInvalidValue;
    }
    void * memory = is_linear ? resource.res.linear.devPtr : resource.res.pitch2D.devPtr;
    const hipError_t error = read_format(is_linear ? resource.res.linear.desc : resource.res.pitch2D.desc, seen);
    if (error != hipSuccess) {
        return error;
    }
    const size_t width  = is_linear ? resource.res.linear.sizeInBytes / seen.element() : resource.res.pitch2D.width;
    const size_t height = is_linear ? 1 : resource.res.pitch2D.height;
    const size_t pitch  = is_linear ? width * seen.element() : resource.res.pitch2D.pitchInBytes;
    constexpr size_t most_elements = size_t(1) << 31;
    if (width == 0 || height == 0 || width > most_elements || height > most_of_image || pitch < width * seen.element() ||
        pitch > most_elements) {
        return refused(hipErrorInvalidValue, "its sizes are not valid for a texture");
    }
    seen.data        = static_cast<std::byte *>(memory);
    seen.width       = uint32_t(width);
    seen.height      = uint32_t(height);
    seen.row_pitch   = pitch;
    seen.slice_pitch = pitch * height;
    if (!is_known(memory, seen.extent())) {
        return refused(hipErrorInvalidValue, std::to_string(seen.extent()) + " bytes are requested, " +
                                                 describe(uintptr_t(memory), seen.extent()));
    }
    return hipSuccess;
}

hipError_t read_texture(const hipTextureDesc & how, image & into) {
    const bool is_integer = into.kind != image::channel::is_float;
    into.is_normalized    = is_integer && how.readMode == hipReadModeNormalizedFloat;
    if (into.is_normalized && into.bits == 32) {
        return refused(hipErrorInvalidValue, "32-bit integers cannot be read as normalized floats");
    }
    if (how.filterMode == hipFilterModeLinear && is_integer && !into.is_normalized) {
        return refused(hipErrorNotSupported, "integers cannot be filtered; hipReadModeNormalizedFloat reads them as floats");
    }
    if (how.sRGB != 0) {
        return refused(hipErrorNotSupported, "sRGB is not emulated");
    }
    into.is_linear            = how.filterMode == hipFilterModeLinear;
    into.has_unit_coordinates = how.normalizedCoords != 0;
    for (size_t n = 0; n < 3; ++n) {
        into.edges[n] = edge_of(how.addressMode[n]);
    }
    std::copy_n(how.borderColor, 4, into.border);
    return hipSuccess;
}

// Stores it, and returns memory with the descriptor for kernels.
void * keep_texture(std::unique_ptr<texture> made) {
    void * object          = &made->described;
    made->described.number = uint64_t(object);
    made->described.tell(made->seen);
    register_memory(object, sizeof(description), hipMemoryTypeDevice, owner::runtime);
    const std::unique_lock<std::shared_mutex> guard(textures_mutex);
    textures().emplace(uint64_t(object), std::move(made));
    return object;
}

hipError_t drop_texture(const void * object, bool is_surface) {
    const hipError_t waited = wait_for_all();
    if (waited != hipSuccess) {
        return waited;
    }
    std::unique_ptr<texture> gone;
    {
        const std::unique_lock<std::shared_mutex> guard(textures_mutex);
        const auto found = textures().find(uint64_t(object));
        if (found == textures().end() || found->second->is_surface != is_surface) {
            return hipErrorInvalidValue;
        }
        gone = std::move(found->second);
        textures().erase(found);
    }
    unregister_memory(&gone->described, owner::runtime);
    return hipSuccess;
}

// Calls `use` with the texture of a handle.
template <typename Use> hipError_t with_texture(const void * object, Use use) {
    const std::shared_lock<std::shared_mutex> guard(textures_mutex);
    const auto found = textures().find(uint64_t(object));
    if (found == textures().end() || found->second->is_surface) {
        return hipErrorInvalidValue;
    }
    use(*found->second);
    return hipSuccess;
}

} // namespace

const gpu::image * find_image(uint64_t number) {
    const std::shared_lock<std::shared_mutex> guard(textures_mutex);
    const auto found = textures().find(number);
    return found == textures().end() ? nullptr : &found->second->seen;
}

} // namespace patchkit

using patchkit::answered;
using patchkit::is_stream;

extern "C" {

hipChannelFormatDesc hipCreateChannelDesc(int x, int y, int z, int w, hipChannelFormatKind kind) {
    return {x, y, z, w, kind};
}

hipError_t hipMallocArray(hipArray_t * handle, const hipChannelFormatDesc * format, size_t width, size_t height,
                          unsigned int flags) {
    return answered(patchkit::make_array(handle, format, {width, height, 0}, flags));
}

hipError_t hipMalloc3DArray(hipArray_t * handle, const hipChannelFormatDesc * format, hipExtent extent,
                            unsigned int flags) {
    return answered(patchkit::make_array(handle, format, extent, flags));
}

hipError_t hipArrayCreate(hipArray_t * handle, const HIP_ARRAY_DESCRIPTOR * wanted) {
    if (wanted == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    const hipChannelFormatDesc format = patchkit::format_of(wanted->Format, wanted->NumChannels);
    return answered(patchkit::make_array(handle, &format, {wanted->Width, wanted->Height, 0}, 0));
}

hipError_t hipArray3DCreate(hipArray_t * handle, const HIP_ARRAY3D_DESCRIPTOR * wanted) {
    if (wanted == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    const hipChannelFormatDesc format = patchkit::format_of(wanted->Format, wanted->NumChannels);
    return answered(patchkit::make_array(handle, &format, {wanted->Width, wanted->Height, wanted->Depth}, wanted->Flags));
}

hipError_t hipFreeArray(hipArray_t handle) { return answered(patchkit::free_array(handle)); }
hipError_t hipArrayDestroy(hipArray_t handle) { return answered(patchkit::free_array(handle)); }

hipError_t hipArrayGetInfo(hipChannelFormatDesc * format, hipExtent * extent, unsigned int * flags, hipArray_t handle) {
    const auto found = patchkit::array_of(handle);
    if (found == nullptr) {
        return answered(hipErrorInvalidHandle);
    }
    if (format != nullptr) {
        *format = found->format;
    }
    if (extent != nullptr) {
        *extent = found->asked;
    }
    if (flags != nullptr) {
        *flags = found->flags;
    }
    return answered(hipSuccess);
}

hipError_t hipGetChannelDesc(hipChannelFormatDesc * format, hipArray_const_t handle) {
    const auto found = patchkit::array_of(handle);
    if (found == nullptr) {
        return answered(hipErrorInvalidHandle);
    }
    if (format == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    *format = found->format;
    return answered(hipSuccess);
}

hipError_t hipMemcpy2DToArray(hipArray_t to, size_t x, size_t y, const void * from, size_t pitch, size_t width,
                              size_t height, hipMemcpyKind /*kind*/) {
    return answered(patchkit::copy_array(to, x, y, const_cast<void *>(from), pitch, width, height, patchkit::way::into, nullptr));
}

hipError_t hipMemcpy2DToArrayAsync(hipArray_t to, size_t x, size_t y, const void * from, size_t pitch, size_t width,
                                   size_t height, hipMemcpyKind /*kind*/, hipStream_t stream) {
    if (!is_stream(stream)) {
        return answered(hipErrorContextIsDestroyed);
    }
    return answered(patchkit::copy_array(to, x, y, const_cast<void *>(from), pitch, width, height, patchkit::way::into, &stream));
}

hipError_t hipMemcpy2DFromArray(void * to, size_t pitch, hipArray_const_t from, size_t x, size_t y, size_t width,
                                size_t height, hipMemcpyKind /*kind*/) {
    return answered(patchkit::copy_array(from, x, y, to, pitch, width, height, patchkit::way::out_of, nullptr));
}

hipError_t hipMemcpy2DFromArrayAsync(void * to, size_t pitch, hipArray_const_t from, size_t x, size_t y, size_t width,
                                     size_t height, hipMemcpyKind /*kind*/, hipStream_t stream) {
    if (!is_stream(stream)) {
        return answered(hipErrorContextIsDestroyed);
    }
    return answered(patchkit::copy_array(from, x, y, to, pitch, width, height, patchkit::way::out_of, &stream));
}

// The row offset is in rows.
hipError_t hipMemcpyToArray(hipArray_t to, size_t x, size_t y, const void * from, size_t size, hipMemcpyKind /*kind*/) {
    const auto found = patchkit::array_of(to);
    const size_t row = found == nullptr ? 0 : found->rows.width * found->rows.element();
    return answered(patchkit::copy_run(to, y * row + x, const_cast<void *>(from), size, patchkit::way::into));
}

hipError_t hipMemcpyFromArray(void * to, hipArray_const_t from, size_t x, size_t y, size_t size, hipMemcpyKind /*kind*/) {
    const auto found = patchkit::array_of(from);
    const size_t row = found == nullptr ? 0 : found->rows.width * found->rows.element();
    return answered(patchkit::copy_run(from, y * row + x, to, size, patchkit::way::out_of));
}

hipError_t hipMemcpyHtoA(hipArray_t to, size_t offset, const void * from, size_t size) {
    return answered(patchkit::copy_run(to, offset, const_cast<void *>(from), size, patchkit::way::into));
}

hipError_t hipMemcpyAtoH(void * to, hipArray_t from, size_t offset, size_t size) {
    return answered(patchkit::copy_run(from, offset, to, size, patchkit::way::out_of));
}

hipError_t hipMemcpy3D(const hipMemcpy3DParms * wanted) { return answered(patchkit::copy_volume(wanted, nullptr)); }

hipError_t hipMemcpy3DAsync(const hipMemcpy3DParms * wanted, hipStream_t stream) {
    return answered(is_stream(stream) ? patchkit::copy_volume(wanted, &stream) : hipErrorContextIsDestroyed);
}

hipError_t hipCreateTextureObject(hipTextureObject_t * object, const hipResourceDesc * resource,
                                  const hipTextureDesc * how, const hipResourceViewDesc * view) {
    if (object == nullptr || resource == nullptr || how == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    if (view != nullptr) {
        return answered(patchkit::refused(hipErrorNotSupported, "resource views of textures are not emulated"));
    }
    auto made = std::make_unique<patchkit::texture>();
    made->resource = *resource;
    made->how      = *how;
    hipError_t error = patchkit::read_resource(*resource, *made);
    if (error == hipSuccess) {
        error = patchkit::read_texture(*how, made->seen);
    }
    if (error == hipSuccess) {
        *object = static_cast<hipTextureObject_t>(patchkit::keep_texture(std::move(made)));
    }
    return answered(error);
}

hipError_t hipDestroyTextureObject(hipTextureObject_t object) {
    return answered(object == nullptr ? hipSuccess : patchkit::drop_texture(object, false));
}

hipError_t hipGetTextureObjectResourceDesc(hipResourceDesc * resource, hipTextureObject_t object) {
    return answered(resource == nullptr ? hipErrorInvalidValue : patchkit::with_texture(object, [&](const auto & one) {
        *resource = one.resource;
    }));
}

hipError_t hipGetTextureObjectTextureDesc(hipTextureDesc * how, hipTextureObject_t object) {
    return answered(how == nullptr ? hipErrorInvalidValue
                                   : patchkit::with_texture(object, [&](const auto & one) { *how = one.how; }));
}

hipError_t hipCreateSurfaceObject(hipSurfaceObject_t * object, const hipResourceDesc * resource) {
    if (object == nullptr || resource == nullptr || resource->resType != hipResourceTypeArray) {
        return answered(hipErrorInvalidValue);
    }
    auto made = std::make_unique<patchkit::texture>();
    made->resource         = *resource;
    made->is_surface       = true;
    const hipError_t error = patchkit::read_resource(*resource, *made);
    if (error == hipSuccess) {
        *object = static_cast<hipSurfaceObject_t>(patchkit::keep_texture(std::move(made)));
    }
    return answered(error);
}

hipError_t hipDestroySurfaceObject(hipSurfaceObject_t object) {
    return answered(object == nullptr ? hipSuccess : patchkit::drop_texture(object, true));
}

} // extern "C"
