// Textures and surfaces, by name: what kernels read is printed, a line for each question.
#include <hip/hip_runtime.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

constexpr int width = 4, height = 3, depth = 2; // elements have x + 10 y + 100 z

#define NEED(call)                                                                \
    do {                                                                          \
        if (const hipError_t error = (call); error != hipSuccess) {               \
            std::printf("%s: %s\n", #call, hipGetErrorName(error));               \
            return;                                                               \
        }                                                                         \
    } while (false)

__global__ void fetches(float * to, hipTextureObject_t t, int n) { to[threadIdx.x] = tex1Dfetch<float>(t, int(threadIdx.x) + n); }
__global__ void fetches_bytes(float * to, hipTextureObject_t t) {
    const uchar4 found = tex1Dfetch<uchar4>(t, int(threadIdx.x));
    to[threadIdx.x] = float(found.x) + 1000.0f * float(found.w);
}
__global__ void samples(float * to, hipTextureObject_t t, const float2 * at) {
    to[threadIdx.x] = tex2D<float>(t, at[threadIdx.x].x, at[threadIdx.x].y);
}
__global__ void samples_level(float * to, hipTextureObject_t t, const float2 * at) {
    to[threadIdx.x] = tex2DLod<float>(t, at[threadIdx.x].x, at[threadIdx.x].y, 0.0f);
}
__global__ void samples_slopes(float * to, hipTextureObject_t t, const float2 * at) {
    to[threadIdx.x] = tex2DGrad<float>(t, at[threadIdx.x].x, at[threadIdx.x].y, float2{0.25f, 0}, float2{0, 0.25f});
}
__global__ void samples_four(float * to, hipTextureObject_t t, const float2 * at) {
    const float4 found = tex2D<float4>(t, at[threadIdx.x].x, at[threadIdx.x].y);
    to[threadIdx.x] = found.x + found.y + found.z + found.w;
}
__global__ void samples_row(float * to, hipTextureObject_t t, const float2 * at) { to[threadIdx.x] = tex1D<float>(t, at[threadIdx.x].x); }
__global__ void samples_volume(float * to, hipTextureObject_t t, const float2 * at) {
    to[threadIdx.x] = tex3D<float>(t, at[threadIdx.x].x, 0.5f, at[threadIdx.x].y);
}
__global__ void samples_layer(float * to, hipTextureObject_t t, const float2 * at) {
    to[threadIdx.x] = tex2DLayered<float>(t, at[threadIdx.x].x, 0.5f, int(at[threadIdx.x].y));
}
__global__ void gathers(float * to, hipTextureObject_t t) {
    const float4 found = tex2Dgather<float4>(t, 2.0f, 1.0f, 1); // HIP's header counts channels from 1
    to[0] = found.x;
    to[1] = found.y;
    to[2] = found.z;
    to[3] = found.w;
}
__global__ void doubles_surface(hipSurfaceObject_t s) { // goes beyond the end on both sides
    const int x = int(threadIdx.x) - 1, y = int(threadIdx.y);
    float value = -1.0f;
    surf2Dread<float>(&value, s, x * 4, y);
    surf2Dwrite<float>(2.0f * value + 1.0f, s, x * 4, y);
}

static std::vector<float> numbers() {
    std::vector<float> all;
    for (int z = 0; z < depth; ++z) {
        for (int y = 0; y < height; ++y) {
            for (int x = 0; x < width; ++x) {
                all.push_back(float(x + 10 * y + 100 * z));
            }
        }
    }
    return all;
}

static hipArray_t filled(const hipChannelFormatDesc & format, const void * from, size_t row) {
    hipArray_t made = nullptr;
    (void) hipMallocArray(&made, &format, width, height);
    (void) hipMemcpy2DToArray(made, 0, 0, from, row, row, height, hipMemcpyHostToDevice);
    return made;
}

static hipTextureObject_t texture_of(hipResourceDesc & resource, const hipTextureDesc & how) {
    hipTextureObject_t made = nullptr;
    const hipError_t error = hipCreateTextureObject(&made, &resource, &how, nullptr);
    if (error != hipSuccess) {
        std::printf("hipCreateTextureObject: %s\n", hipGetErrorName(error));
    }
    return made;
}

static hipTextureObject_t texture_of(hipArray_t array, const hipTextureDesc & how) {
    hipResourceDesc resource = {};
    resource.resType         = hipResourceTypeArray;
    resource.res.array.array = array;
    return texture_of(resource, how);
}

static hipTextureDesc described(hipTextureFilterMode filter, hipTextureAddressMode edge, bool is_normalized) {
    hipTextureDesc how = {};
    how.filterMode       = filter;
    how.addressMode[0] = how.addressMode[1] = how.addressMode[2] = edge;
    how.normalizedCoords = is_normalized ? 1 : 0;
    how.borderColor[0]   = -7.0f;
    return how;
}

static float * on_device(const std::vector<float2> & at, float2 *& places) {
    float * to = nullptr;
    (void) hipMalloc(&places, at.size() * sizeof(float2));
    (void) hipMalloc(&to, 64 * sizeof(float));
    (void) hipMemcpy(places, at.data(), at.size() * sizeof(float2), hipMemcpyHostToDevice);
    return to;
}

static void print(const float * on, size_t count) {
    std::vector<float> seen(count);
    if (hipMemcpy(seen.data(), on, count * sizeof(float), hipMemcpyDeviceToHost) == hipSuccess) {
        for (const float one : seen) {
            std::printf(" %g", double(one));
        }
        std::printf("\n");
    }
}

using kernel = void (*)(float *, hipTextureObject_t, const float2 *);

static void ask(const char * name, kernel by, hipTextureObject_t t, const std::vector<float2> & at) {
    float2 * places = nullptr;
    float * to      = on_device(at, places);
    std::printf("%s:", name);
    by<<<1, unsigned(at.size())>>>(to, t, places);
    print(to, at.size());
}

static void reads() {
    const std::vector<float> all = numbers();
    const hipArray_t floats = filled(hipCreateChannelDesc<float>(), all.data(), width * sizeof(float));
    const std::vector<float2> inside = {{0.5f, 0.5f}, {1.9f, 0.1f}, {3.99f, 2.5f}}, outside = {{-3, 0}, {9, 1.5f}, {1, 1e30f}};
    const hipTextureObject_t nearest = texture_of(floats, described(hipFilterModePoint, hipAddressModeClamp, false));
    ask("nearest", samples, nearest, inside);
    ask("outside", samples, nearest, outside);
    ask("level", samples_level, nearest, inside);
    ask("slopes", samples_slopes, nearest, inside);
    const hipTextureObject_t border = texture_of(floats, described(hipFilterModePoint, hipAddressModeBorder, false));
    ask("border", samples, border, outside);
    // A quarter of the way from 1 to 2; in the middle of four; at the edge.
    const std::vector<float2> between = {{1.75f, 0.5f}, {2.0f, 1.0f}, {0.0f, 0.5f}};
    ask("linear", samples, texture_of(floats, described(hipFilterModeLinear, hipAddressModeClamp, false)), between);
    const std::vector<float2> unit = {{1.125f, 0.5f}, {-0.125f, 0.5f}, {2.125f, 0.5f}};
    ask("wrap", samples, texture_of(floats, described(hipFilterModePoint, hipAddressModeWrap, true)), unit);
    ask("mirror", samples, texture_of(floats, described(hipFilterModePoint, hipAddressModeMirror, true)), unit);
    float2 * none = nullptr;
    float * to    = on_device({{0, 0}}, none);
    std::printf("gather:");
    gathers<<<1, 1>>>(to, nearest);
    print(to, 4);
    std::vector<unsigned char> bytes;
    for (int n = 0; n < width * height; ++n) {
        for (const int value : {n, 51, 102, 255}) {
            bytes.push_back((unsigned char) value);
        }
    }
    hipTextureDesc how = described(hipFilterModePoint, hipAddressModeClamp, false);
    how.readMode       = hipReadModeNormalizedFloat;
    ask("bytes", samples_four, texture_of(filled(hipCreateChannelDesc<uchar4>(), bytes.data(), width * 4), how), {{0.5f, 0.5f}});
    NEED(hipDestroyTextureObject(nearest));
    NEED(hipDestroyTextureObject(border));
    NEED(hipFreeArray(floats));
}

static void rows() { // of plain memory
    float * memory = nullptr;
    NEED(hipMalloc(&memory, 256 * height));
    const std::vector<float> all = numbers();
    NEED(hipMemcpy2D(memory, 256, all.data(), width * sizeof(float), width * sizeof(float), height, hipMemcpyHostToDevice));
    hipResourceDesc resource         = {};
    resource.resType                 = hipResourceTypeLinear;
    resource.res.linear.devPtr       = memory;
    resource.res.linear.desc         = hipCreateChannelDesc<float>();
    resource.res.linear.sizeInBytes  = width * sizeof(float);
    const hipTextureDesc how         = described(hipFilterModePoint, hipAddressModeClamp, false);
    float2 * none                    = nullptr;
    float * to                       = on_device({{0, 0}}, none);
    std::printf("fetch:");
    fetches<<<1, width + 1>>>(to, texture_of(resource, how), 0); // one beyond the end
    print(to, width + 1);
    resource.res.linear.desc = hipCreateChannelDesc<uchar4>();
    NEED(hipMemset(memory, 3, width * sizeof(float)));
    std::printf("fetch bytes:");
    fetches_bytes<<<1, 2>>>(to, texture_of(resource, how));
    print(to, 2);
    resource.resType                  = hipResourceTypePitch2D;
    resource.res.pitch2D.devPtr       = memory;
    resource.res.pitch2D.desc         = hipCreateChannelDesc<float>();
    resource.res.pitch2D.width        = width;
    resource.res.pitch2D.height       = height;
    resource.res.pitch2D.pitchInBytes = 256;
    ask("pitch", samples, texture_of(resource, how), {{1.5f, 2.5f}, {3.5f, 1.5f}});
    resource.res.pitch2D.height = 2 * height;
    std::printf("too high: ");
    (void) texture_of(resource, how);
}

static void volumes() {
    const std::vector<float> all = numbers();
    const hipChannelFormatDesc format = hipCreateChannelDesc<float>();
    for (const unsigned flags : {0u, unsigned(hipArrayLayered)}) {
        hipArray_t array = nullptr;
        NEED(hipMalloc3DArray(&array, &format, hipExtent{width, height, depth}, flags));
        hipMemcpy3DParms copy = {};
        copy.srcPtr   = hipPitchedPtr{const_cast<float *>(all.data()), width * sizeof(float), width, height};
        copy.dstArray = array;
        copy.extent   = hipExtent{width, height, depth};
        copy.kind     = hipMemcpyHostToDevice;
        NEED(hipMemcpy3D(&copy));
        const hipTextureObject_t t = texture_of(array, described(hipFilterModePoint, hipAddressModeClamp, false));
        if (flags == 0) {
            ask("volume", samples_volume, t, {{0.5f, 0.5f}, {2.5f, 1.5f}, {1.5f, 7.0f}});
        } else {
            ask("layers", samples_layer, t, {{0.5f, 0.0f}, {2.5f, 1.0f}, {1.5f, 7.0f}});
        }
        std::vector<float> back(all.size());
        hipMemcpy3DParms out = {};
        out.srcArray = array;
        out.dstPtr   = hipPitchedPtr{back.data(), width * sizeof(float), width, height};
        out.extent   = copy.extent;
        out.kind     = hipMemcpyDeviceToHost;
        NEED(hipMemcpy3D(&out));
        std::printf("back: %d\n", int(back == all));
        out.srcPos.x = 1;
        std::printf("beyond: %s\n", hipGetErrorName(hipMemcpy3D(&out)));
    }
    hipArray_t row = nullptr;
    NEED(hipMallocArray(&row, &format, width));
    NEED(hipMemcpyToArray(row, 0, 0, all.data(), width * sizeof(float), hipMemcpyHostToDevice));
    ask("row", samples_row, texture_of(row, described(hipFilterModeLinear, hipAddressModeClamp, false)), {{1.0f, 0}, {9.0f, 0}});
}

static void surfaces() {
    const std::vector<float> all = numbers();
    const hipArray_t array = filled(hipCreateChannelDesc<float>(), all.data(), width * sizeof(float));
    hipResourceDesc resource = {};
    resource.resType         = hipResourceTypeArray;
    resource.res.array.array = array;
    hipSurfaceObject_t surface = nullptr;
    NEED(hipCreateSurfaceObject(&surface, &resource));
    doubles_surface<<<1, dim3(width + 2, height)>>>(surface);
    std::vector<float> back(width * height);
    NEED(hipMemcpy2DFromArray(back.data(), width * sizeof(float), array, 0, 0, width * sizeof(float), height, hipMemcpyDeviceToHost));
    int right = 0;
    for (size_t n = 0; n < back.size(); ++n) {
        right += int(back[n] == 2.0f * all[n] + 1.0f);
    }
    std::printf("surface: %d\n", right);
    NEED(hipDestroySurfaceObject(surface));
}

static void limits() {
    int are_there = 0, height = 0;
    hipDeviceProp_t of = {};
    NEED(hipDeviceGetAttribute(&are_there, hipDeviceAttributeImageSupport, 0));
    NEED(hipDeviceGetAttribute(&height, hipDeviceAttributeMaxTexture2DHeight, 0));
    NEED(hipGetDeviceProperties(&of, 0));
    std::printf("limits: %d %d %d %d\n", are_there, height, of.maxTexture3D[2], int(of.texturePitchAlignment));
    const hipChannelFormatDesc format = hipCreateChannelDesc<float>();
    hipArray_t array = nullptr;
    std::printf("too wide: %s\n", hipGetErrorName(hipMallocArray(&array, &format, size_t(of.maxTexture2D[0]) + 1, 1)));
}

static void refusals() {
    hipArray_t array = nullptr;
    const hipChannelFormatDesc three = hipCreateChannelDesc(32, 32, 32, 0, hipChannelFormatKindFloat);
    std::printf("three channels: %s\n", hipGetErrorName(hipMallocArray(&array, &three, width, height)));
    std::printf("no array: %s\n", hipGetErrorName(hipFreeArray(reinterpret_cast<hipArray_t>(size_t(0x5000)))));
    std::printf("no texture: %s\n", hipGetErrorName(hipDestroyTextureObject(reinterpret_cast<hipTextureObject_t>(size_t(0x5000)))));
    const std::vector<int> ints(width * height, 5);
    const hipArray_t whole = filled(hipCreateChannelDesc<int>(), ints.data(), width * sizeof(int));
    std::printf("filtered integers: ");
    (void) texture_of(whole, described(hipFilterModeLinear, hipAddressModeClamp, false));
    std::printf("beyond: %s\n", hipGetErrorName(hipMemcpy2DToArray(whole, 4, 0, ints.data(), 16, 16, 1, hipMemcpyHostToDevice)));
}

static void follows_nothing(bool is_freed) {
    const std::vector<float> all = numbers();
    const hipArray_t array     = filled(hipCreateChannelDesc<float>(), all.data(), width * sizeof(float));
    const hipTextureObject_t t = texture_of(array, described(hipFilterModePoint, hipAddressModeClamp, false));
    float2 * places = nullptr;
    float * to      = on_device({{0, 0}}, places);
    if (is_freed) {
        (void) hipFreeArray(array);
        samples<<<1, 1>>>(to, t, places);
    } else { // memory of the program that describes nothing
        samples<<<1, 1>>>(to, reinterpret_cast<hipTextureObject_t>(to), places);
    }
    (void) hipDeviceSynchronize();
}

int main(int, char ** words) {
    const std::map<std::string, void (*)()> all = {
        {"reads", reads}, {"rows", rows}, {"volumes", volumes}, {"surfaces", surfaces}, {"refusals", refusals}, {"limits", limits},
        {"freed", [] { follows_nothing(true); }}, {"forged", [] { follows_nothing(false); }},
    };
    all.at(words[1])();
    return 0;
}
