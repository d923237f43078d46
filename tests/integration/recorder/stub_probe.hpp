// The machinery of stub_calls.cpp: arguments that know what can be wrong with them, and rows that try it.
//
// A row has a call, what it answers when all is well, and its arguments. An argument brings what is wrong with
// one of its kind (null, freed, destroyed, made up, out of range) and the answer to that; a pointer cannot be
// written without saying what null gets. Each attempt runs in a process of its own, so one that crashes is one
// line. Output, separated by tabs: call, what was tried, expected, got.
#pragma once

#define __HIP_DISABLE_CPP_FUNCTIONS__
#include <hip/hip_runtime_api.h>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

using handle_t = void *;

extern "C" {
void ** __hipRegisterFatBinary(const void *);
void __hipUnregisterFatBinary(void **);
void __hipRegisterFunction(void **, const void *, char *, const char *, unsigned, void *, void *, dim3 *, dim3 *,
                           int *);
void __hipRegisterVar(void **, void *, char *, char *, int, size_t, int, int);
void __hipRegisterManagedVar(void *, void **, void *, const char *, size_t, unsigned);
hipError_t hipExtModuleLaunchKernel(hipFunction_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, size_t,
                                    hipStream_t, void **, void **, hipEvent_t, hipEvent_t, uint32_t);
void patchkit_recorder_mark(const char *);

int hipblasCreate(handle_t *);
int hipblasDestroy(handle_t);
int hipblasSetStream(handle_t, void *);
int hipblasSetMathMode(handle_t, int);
int hipblasSgemm(handle_t, int, int, int, int, int, const void *, const void *, int, const void *, int, const void *,
                 void *, int);
int hipblasSgemmBatched(handle_t, int, int, int, int, int, const void *, const void *, int, const void *, int,
                        const void *, void *, int, int);
int hipblasSgemmStridedBatched(handle_t, int, int, int, int, int, const void *, const void *, int, long long,
                               const void *, int, long long, const void *, void *, int, long long, int);
int hipblasGemmEx(handle_t, int, int, int, int, int, const void *, const void *, int, int, const void *, int, int,
                  const void *, void *, int, int, int, int);
int hipblasGemmBatchedEx(handle_t, int, int, int, int, int, const void *, const void *, int, int, const void *, int,
                         int, const void *, void *, int, int, int, int, int);
int hipblasGemmStridedBatchedEx(handle_t, int, int, int, int, int, const void *, const void *, int, int, long long,
                                const void *, int, int, long long, const void *, void *, int, int, long long, int, int,
                                int);
int hipblasGemmEx_v2(handle_t, int, int, int, int, int, const void *, const void *, int, int, const void *, int, int,
                     const void *, void *, int, int, int, int);
int hipblasGemmBatchedEx_v2(handle_t, int, int, int, int, int, const void *, const void *, int, int, const void *, int,
                            int, const void *, void *, int, int, int, int, int);
int hipblasGemmStridedBatchedEx_v2(handle_t, int, int, int, int, int, const void *, const void *, int, int, long long,
                                   const void *, int, int, long long, const void *, void *, int, int, long long, int,
                                   int, int);
int hipblasStrsmBatched(handle_t, int, int, int, int, int, int, const void *, void *, int, void *, int, int);
}

namespace {

// hipblasStatus_t
constexpr int ok = 0, not_initialized = 1, invalid_value = 3, not_supported = 7, handle_is_nullptr = 9,
              invalid_enum = 10;

constexpr size_t bytes = 4096; // of every piece of memory here

template <typename T> T made_up() { return reinterpret_cast<T>(uintptr_t(0xdead0)); }

void * allocated() {
    void * pointer = nullptr;
    (void) hipMalloc(&pointer, bytes);
    return pointer;
}

void * on_host() {
    void * pointer = nullptr;
    (void) hipHostMalloc(&pointer, bytes, 0);
    return pointer;
}

void * registered() {
    void * pointer = new char[bytes];
    (void) hipHostRegister(pointer, bytes, 0);
    return pointer;
}

hipStream_t new_stream() {
    hipStream_t stream = nullptr;
    (void) hipStreamCreate(&stream);
    return stream;
}

hipEvent_t new_event() {
    hipEvent_t event = nullptr;
    (void) hipEventCreate(&event);
    return event;
}

handle_t new_handle() {
    handle_t handle = nullptr;
    (void) hipblasCreate(&handle);
    return handle;
}

struct wrapper { // what clang hands to __hipRegisterFatBinary
    uint32_t magic = 0x48495046;
    uint32_t version = 1;
    const char * binary = nullptr;
    void * unused = nullptr;
};

const wrapper fat_binary = {0x48495046, 1, "PATCHKIT-UNIT\nunit.cu\n", nullptr};
const wrapper cut_binary = {0x48495046, 1, "PATCHKIT-UNIT\nunit", nullptr};
const wrapper empty_binary;

const void * kernel() {
    static const char host = 0;
    __hipRegisterFunction(__hipRegisterFatBinary(&fat_binary), &host, nullptr, "_Z4kernv", 0, nullptr, nullptr, nullptr,
                          nullptr, nullptr);
    return &host;
}

// Arguments. Their values are made before the attempts, which all start from that state; only memory that is to
// be freed is freed in the attempt, or the next piece would get its address.

template <typename T> struct wrong {
    std::string what;
    int answer;
    T value;
    bool is_freed = false;
};

template <typename T> struct argument {
    T right;
    std::vector<wrong<T>> wrongs;
};

// A number, an enum, a size. What can be null or dead is one of the others.
template <typename T> argument<T> plain(T value) {
    static_assert(!std::is_pointer_v<T>, "say what null gets");
    return {value, {}};
}

// Something of the program's own, of the pointer type P, that is written, read or left alone.
template <typename P> argument<P> place_at(const char * name, int null) {
    return {P(new char[bytes]()), {{name + std::string(" null"), null, P(nullptr)}}};
}

template <typename T> argument<T *> place(const char * name, int null = hipErrorInvalidValue) {
    return place_at<T *>(name, null);
}

// Memory that the call goes through, by at least 64 bytes.
template <typename T = void *> argument<T> memory(const std::string & name, int answer = hipErrorInvalidValue) {
    return {T(allocated()),
            {
                {name + " null", answer, T(nullptr)},
                {name + " freed", answer, T(allocated()), true},
                {name + " made up", answer, made_up<T>()},
                {name + " 16 bytes before its end", answer, T(static_cast<char *>(allocated()) + bytes - 16)},
            }};
}

// Memory that was obtained and is given back.
argument<void *> freeable(const std::string & name, void * (*obtain)(), int null, int answer) {
    return {obtain(),
            {
                {name + " null", null, nullptr},
                {name + " freed", answer, obtain(), true},
                {name + " made up", answer, made_up<void *>()},
                {name + " inside", answer, static_cast<char *>(obtain()) + 64},
                {name + " on the host", answer, new char[bytes]},
            }};
}

// `T` because hipBLAS takes a stream as void * here. A destroyed one must not come back with the next.
template <typename T = hipStream_t>
argument<T> stream(int answer, int null = hipSuccess, int legacy = -1, int per_thread = hipSuccess) {
    hipStream_t dead = new_stream();
    (void) hipStreamDestroy(dead);
    return {T(new_stream()),
            {
                {"stream null", null, T(nullptr)},
                {"stream legacy", legacy == -1 ? null : legacy, T(hipStreamLegacy)},
                {"stream per thread", per_thread, T(hipStreamPerThread)},
                {"stream destroyed", answer, T(dead)},
                {"stream made up", answer, made_up<T>()},
                {"stream that is an event", answer, T(reinterpret_cast<hipStream_t>(new_event()))},
            }};
}

argument<hipEvent_t> event(const std::string & name, int answer, int null = hipErrorInvalidHandle) {
    hipEvent_t dead = new_event();
    (void) hipEventDestroy(dead);
    return {new_event(),
            {
                {name + " null", null, nullptr},
                {name + " destroyed", answer, dead},
                {name + " made up", answer, made_up<hipEvent_t>()},
                {name + " that is a stream", answer, reinterpret_cast<hipEvent_t>(new_stream())},
            }};
}

// There are no graphs, so the right one is made up, too.
template <typename T> argument<T> graph(const std::string & name) {
    return {made_up<T>(), {{name + " null", hipErrorInvalidValue, T(nullptr)}}};
}

// Nothing is loaded while recording, so what a handle of a module or function is given as is never one.
template <typename T> argument<T> nobodys(const std::string & name, int null) {
    return {made_up<T>(), {{name + " null", null, T(nullptr)}}};
}

argument<hipMemPool_t> pool() {
    hipMemPool_t pool = nullptr;
    (void) hipDeviceGetDefaultMemPool(&pool, 0);
    return {pool,
            {
                {"pool null", hipErrorInvalidValue, nullptr},
                {"pool made up", hipErrorInvalidValue, made_up<hipMemPool_t>()},
                {"pool that is a stream", hipErrorInvalidValue, reinterpret_cast<hipMemPool_t>(new_stream())},
            }};
}

argument<int> device(const std::string & name, int answer = hipErrorInvalidDevice) {
    return {0, {{name + " -1", answer, -1}, {name + " 1", answer, 1}, {name + " 2147483647", answer, 2147483647}}};
}

argument<const void *> function() {
    return {kernel(),
            {
                {"function null", hipErrorInvalidDeviceFunction, nullptr},
                {"function of nobody", hipErrorInvalidDeviceFunction, made_up<const void *>()},
            }};
}

// A function of the program that the call makes the runtime call.
template <typename F> argument<F> function_of_host(F given) {
    return {given, {{"function null", hipErrorInvalidValue, nullptr}}};
}

argument<handle_t> handle() {
    handle_t dead = new_handle();
    (void) hipblasDestroy(dead);
    return {new_handle(),
            {
                {"handle null", not_initialized, nullptr},
                {"handle destroyed", not_initialized, dead},
                {"handle made up", not_initialized, made_up<handle_t>()},
                {"handle that is a stream", not_initialized, new_stream()},
            }};
}

// alpha and beta: one float on the host.
argument<const void *> scalar(const std::string & name, float value = 1.0f) {
    return {new float(value),
            {
                {name + " null", invalid_value, nullptr},
                {name + " made up", invalid_value, made_up<const void *>()},
            }};
}

// A matrix lies on the device: hipBLAS asks whether there is one, and the kernel would find out the rest.
template <typename T = const void *> argument<T> matrix(const std::string & name, int null = invalid_value) {
    return {T(allocated()), {{name + " null", null, T(nullptr)}, {name + " made up", ok, made_up<T>()}}};
}

// Rows.

// What an attempt did, in a process of its own.
std::string outcome(int (*attempt)(const void *), const void * given) {
    auto * shared = static_cast<int *>(
        mmap(nullptr, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
        *shared = attempt(given);
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    const int answer = *shared;
    munmap(shared, sizeof(int));
    if (WIFSIGNALED(status)) {
        return "signal " + std::to_string(WTERMSIG(status));
    }
    return WEXITSTATUS(status) == 0 ? std::to_string(answer) : "exit " + std::to_string(WEXITSTATUS(status));
}

void print(const char * call, const char * what, int expected, int (*attempt)(const void *), const void * given) {
    std::printf("%s\t%s\t%d\t%s\n", call, what, expected, outcome(attempt, given).c_str());
}

template <typename R, typename... P> struct trial {
    R (*call)(P...);
    std::tuple<P...> given;
    const void * freed = nullptr;

    static int run(const void * self) {
        const auto & trial = *static_cast<const struct trial *>(self);
        (void) hipFree(const_cast<void *>(trial.freed));
        if constexpr (std::is_void_v<R>) {
            std::apply(trial.call, trial.given);
            return 0;
        } else {
            return int(std::apply(trial.call, trial.given));
        }
    }
};

template <size_t I, typename T, typename... Rest>
void try_wrongs(const char * name, const trial<Rest...> & all_well, const argument<T> & from) {
    for (const wrong<T> & one : from.wrongs) {
        auto trial = all_well;
        std::get<I>(trial.given) = one.value;
        if constexpr (std::is_pointer_v<T> && !std::is_function_v<std::remove_pointer_t<T>>) {
            trial.freed = one.is_freed ? static_cast<const void *>(one.value) : nullptr;
        }
        print(name, one.what.c_str(), one.answer, trial.run, &trial);
    }
}

template <typename R, typename... P, size_t... I>
void try_all(const char * name, R (*call)(P...), int answer, std::index_sequence<I...>,
             const argument<P> &... arguments) {
    const trial<R, P...> all_well = {call, {arguments.right...}};
    print(name, "all is well", answer, all_well.run, &all_well);
    (try_wrongs<I>(name, all_well, arguments), ...);
}

template <typename T> struct same { using type = T; };

template <typename R, typename... P>
void row(const char * name, R (*call)(P...), int answer, const typename same<argument<P>>::type &... arguments) {
    try_all<R, P...>(name, call, answer, std::index_sequence_for<P...>(), arguments...);
}

#define CALL(name) #name, name

// What a code does not show.
void holds(const char * name, const char * what, bool (*check)()) {
    print(name, what, 1, [](const void * given) { return int((*static_cast<bool (*const *)()>(given))()); }, &check);
}

} // namespace
