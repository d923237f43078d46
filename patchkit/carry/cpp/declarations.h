// Names of the C++ and C libraries and of the HIP runtime, as far as the parser needs them. Without these
// libraries it must still distinguish a cast, `(uint64_t) x`, from an error, `(count) x`, and `std::pair<A, B>`
// from two comparisons. For this it needs to know which names are types, templates, namespaces and macros.
// Parameters of functions and members of classes do not matter, so they are not declared.

typedef signed char int8_t, int_least8_t, int_fast8_t;
typedef short int16_t, int_least16_t;
typedef int int32_t, int_least32_t, wint_t, pid_t, mode_t, uid_t, gid_t, clockid_t, sig_atomic_t, errno_t;
typedef long int64_t, intptr_t, intmax_t, ptrdiff_t, ssize_t, off_t, time_t, clock_t, int_least64_t;
typedef long int_fast16_t, int_fast32_t, int_fast64_t;
typedef unsigned char uint8_t, uint_least8_t, uint_fast8_t;
typedef unsigned short uint16_t, uint_least16_t;
typedef unsigned uint32_t, uint_least32_t, uint, useconds_t, socklen_t;
typedef unsigned long uint64_t, uintptr_t, uintmax_t, size_t, uint_least64_t, ulong, pthread_t;
typedef unsigned long uint_fast16_t, uint_fast32_t, uint_fast64_t;
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef __builtin_va_list va_list;
typedef struct patchkit_file FILE, DIR;
typedef struct patchkit_opaque fpos_t, mbstate_t, sigset_t, siginfo_t, cpu_set_t, max_align_t, jmp_buf, div_t;
typedef struct patchkit_opaque pthread_mutex_t, pthread_cond_t, pthread_attr_t, pthread_once_t, sem_t;
typedef struct patchkit_opaque atomic_int, atomic_bool, atomic_uint, atomic_size_t, atomic_flag, omp_lock_t;
extern FILE *stdin, *stdout, *stderr;
extern int errno;

#ifdef __cplusplus
#define PATCHKIT_ANY ...
#else
#define PATCHKIT_ANY
#endif
int printf(PATCHKIT_ANY), fprintf(PATCHKIT_ANY), snprintf(PATCHKIT_ANY), sprintf(PATCHKIT_ANY);
int vsnprintf(PATCHKIT_ANY), vfprintf(PATCHKIT_ANY), sscanf(PATCHKIT_ANY), fopen(PATCHKIT_ANY), fclose(PATCHKIT_ANY);
int fread(PATCHKIT_ANY), fwrite(PATCHKIT_ANY), fseek(PATCHKIT_ANY), ftell(PATCHKIT_ANY), fflush(PATCHKIT_ANY);
int malloc(PATCHKIT_ANY), calloc(PATCHKIT_ANY), realloc(PATCHKIT_ANY), free(PATCHKIT_ANY), abort(PATCHKIT_ANY);
int memcpy(PATCHKIT_ANY), memmove(PATCHKIT_ANY), memset(PATCHKIT_ANY), memcmp(PATCHKIT_ANY), exit(PATCHKIT_ANY);
int strlen(PATCHKIT_ANY), strcmp(PATCHKIT_ANY), strncmp(PATCHKIT_ANY), strstr(PATCHKIT_ANY), strchr(PATCHKIT_ANY);
int strcpy(PATCHKIT_ANY), strncpy(PATCHKIT_ANY), getenv(PATCHKIT_ANY), atoi(PATCHKIT_ANY), atof(PATCHKIT_ANY);
int fabs(PATCHKIT_ANY), fabsf(PATCHKIT_ANY), sqrt(PATCHKIT_ANY), sqrtf(PATCHKIT_ANY), exp(PATCHKIT_ANY);
int expf(PATCHKIT_ANY), log(PATCHKIT_ANY), logf(PATCHKIT_ANY), pow(PATCHKIT_ANY), powf(PATCHKIT_ANY);
int fmax(PATCHKIT_ANY), fmaxf(PATCHKIT_ANY), fmin(PATCHKIT_ANY), fminf(PATCHKIT_ANY), floorf(PATCHKIT_ANY);
int ceilf(PATCHKIT_ANY), roundf(PATCHKIT_ANY), tanhf(PATCHKIT_ANY), sinf(PATCHKIT_ANY), cosf(PATCHKIT_ANY);

#ifndef __cplusplus
#define bool _Bool
#define static_assert _Static_assert
#define alignas _Alignas
#define alignof _Alignof
#define thread_local _Thread_local
#define noreturn _Noreturn
#endif
#define NULL 0
#define EOF (-1)
#define assert(...) ((void) 0)
#define offsetof(type, member) __builtin_offsetof(type, member)
#define va_start(list, ...) __builtin_va_start(list, __VA_ARGS__)
#define va_end(list) __builtin_va_end(list)
#define va_arg(list, type) __builtin_va_arg(list, type)
#define va_copy(to, from) __builtin_va_copy(to, from)

#define PRId8 "d"
#define PRId16 "d"
#define PRId32 "d"
#define PRId64 "ld"
#define PRIi8 "i"
#define PRIi16 "i"
#define PRIi32 "i"
#define PRIi64 "li"
#define PRIu8 "u"
#define PRIu16 "u"
#define PRIu32 "u"
#define PRIu64 "lu"
#define PRIo8 "o"
#define PRIo16 "o"
#define PRIo32 "o"
#define PRIo64 "lo"
#define PRIx8 "x"
#define PRIx16 "x"
#define PRIx32 "x"
#define PRIx64 "lx"
#define PRIX8 "X"
#define PRIX16 "X"
#define PRIX32 "X"
#define PRIX64 "lX"
#define PRIdPTR "ld"
#define PRIiPTR "li"
#define PRIuPTR "lu"
#define PRIxPTR "lx"
#define PRIXPTR "lX"
#define PRIdMAX "ld"
#define PRIuMAX "lu"
#define PRIxMAX "lx"
#define SCNd8 "hhd"
#define SCNd16 "hd"
#define SCNd32 "d"
#define SCNd64 "ld"
#define SCNi32 "i"
#define SCNi64 "li"
#define SCNu8 "hhu"
#define SCNu16 "hu"
#define SCNu32 "u"
#define SCNu64 "lu"
#define SCNx8 "hhx"
#define SCNx16 "hx"
#define SCNx32 "x"
#define SCNx64 "lx"

// CPU vector types: clang defines __SSE2__ for every x86-64, so upstream's SSE2 code is parsed.
typedef float __m128 __attribute__((vector_size(16)));
typedef double __m128d __attribute__((vector_size(16)));
typedef long long __m128i __attribute__((vector_size(16)));
typedef float __m256 __attribute__((vector_size(32)));
typedef double __m256d __attribute__((vector_size(32)));
typedef long long __m256i __attribute__((vector_size(32)));
typedef float __m512 __attribute__((vector_size(64)));
typedef double __m512d __attribute__((vector_size(64)));
typedef long long __m512i __attribute__((vector_size(64)));
typedef unsigned char __mmask8;
typedef unsigned short __mmask16;
typedef unsigned __mmask32;
typedef unsigned long __mmask64;

#ifdef __cplusplus
#define PATCHKIT_TYPE(name) struct name : patchkit::members {};
#define PATCHKIT_TEMPLATE(name) \
    template <class...> struct name : patchkit::members {};
#define PATCHKIT_TRAIT(name)                                   \
    template <class...> struct name : patchkit::members { \
        static constexpr bool value = true;                    \
    };                                                         \
    template <class... T> constexpr bool name##_v = true;
#define PATCHKIT_CHANGE(name)                             \
    template <class T, class...> struct name {            \
        using type = T;                                   \
    };                                                    \
    template <class T, class... More> using name##_t = T;
#define PATCHKIT_CALL(name) template <class... T> int name(...);
#define PATCHKIT_INDEX_CALL(name)              \
    template <unsigned long...> int name(...); \
    template <class, class...> int name(...);

// Member types of library classes; every class declared here has all of them.
// What the classes of the library call their types; a class of ours has all of them.
struct members {
    struct iterator {};
    struct const_iterator {};
    struct reverse_iterator {};
    struct const_reverse_iterator {};
    struct reference {};
    struct const_reference {};
    struct pointer {};
    struct key_type {};
    struct mapped_type {};
    struct allocator_type {};
    struct node_type {};
    struct first_type {};
    struct second_type {};
    struct element_type {};
    struct duration {};
    struct time_point {};
    struct rep {};
    struct period {};
    struct id {};
    struct result_type {};
    struct param_type {};
    struct pos_type {};
    struct off_type {};
    struct fmtflags {};
    struct openmode {};
    struct string_type {};
    struct failure {};
    struct native_handle_type {};
    struct format {};
    struct flag_type {};
    struct type {};
    struct value_type {};
    struct char_type {};
    typedef unsigned long size_type;
    typedef long difference_type;
    static const size_type npos = 0;
    static const int in = 0, out = 0, app = 0, ate = 0, trunc = 0, binary = 0, beg = 0, cur = 0, end = 0;
};
}

namespace std {
using ::FILE; using ::va_list; using ::max_align_t; using ::time_t; using ::clock_t; using ::size_t;
using ::ptrdiff_t; using ::int8_t; using ::int16_t; using ::int32_t; using ::int64_t; using ::uint8_t;
using ::uint16_t; using ::uint32_t; using ::uint64_t; using ::intptr_t; using ::uintptr_t; using ::intmax_t;
using ::uintmax_t; using ::mbstate_t;
typedef decltype(nullptr) nullptr_t;
enum class byte : unsigned char {};
enum class errc { invalid_argument, result_out_of_range };
enum class launch { async, deferred };
enum class future_status { ready, timeout, deferred };
enum class cv_status { no_timeout, timeout };
enum memory_order {
    memory_order_relaxed, memory_order_consume, memory_order_acquire, memory_order_release,
    memory_order_acq_rel, memory_order_seq_cst
};

PATCHKIT_TYPE(string) PATCHKIT_TYPE(wstring) PATCHKIT_TYPE(u8string) PATCHKIT_TYPE(u16string)
PATCHKIT_TYPE(u32string) PATCHKIT_TYPE(string_view) PATCHKIT_TYPE(wstring_view) PATCHKIT_TYPE(u8string_view)
PATCHKIT_TYPE(ios) PATCHKIT_TYPE(ios_base) PATCHKIT_TYPE(istream) PATCHKIT_TYPE(ostream)
PATCHKIT_TYPE(iostream) PATCHKIT_TYPE(ifstream) PATCHKIT_TYPE(ofstream) PATCHKIT_TYPE(fstream)
PATCHKIT_TYPE(stringstream) PATCHKIT_TYPE(istringstream) PATCHKIT_TYPE(ostringstream) PATCHKIT_TYPE(streambuf)
PATCHKIT_TYPE(wstringstream) PATCHKIT_TYPE(wostringstream) PATCHKIT_TYPE(filebuf) PATCHKIT_TYPE(stringbuf)
PATCHKIT_TYPE(wifstream) PATCHKIT_TYPE(wofstream) PATCHKIT_TYPE(wostream) PATCHKIT_TYPE(wistream)
PATCHKIT_TYPE(streamsize) PATCHKIT_TYPE(streampos) PATCHKIT_TYPE(streamoff) PATCHKIT_TYPE(locale)
PATCHKIT_TYPE(exception) PATCHKIT_TYPE(runtime_error) PATCHKIT_TYPE(logic_error) PATCHKIT_TYPE(invalid_argument)
PATCHKIT_TYPE(out_of_range) PATCHKIT_TYPE(length_error) PATCHKIT_TYPE(domain_error) PATCHKIT_TYPE(range_error)
PATCHKIT_TYPE(overflow_error) PATCHKIT_TYPE(underflow_error) PATCHKIT_TYPE(bad_alloc) PATCHKIT_TYPE(bad_cast)
PATCHKIT_TYPE(bad_function_call) PATCHKIT_TYPE(bad_optional_access) PATCHKIT_TYPE(bad_variant_access)
PATCHKIT_TYPE(system_error) PATCHKIT_TYPE(error_code) PATCHKIT_TYPE(error_condition) PATCHKIT_TYPE(error_category)
PATCHKIT_TYPE(exception_ptr) PATCHKIT_TYPE(nested_exception) PATCHKIT_TYPE(future_error)
PATCHKIT_TYPE(regex) PATCHKIT_TYPE(wregex) PATCHKIT_TYPE(smatch) PATCHKIT_TYPE(cmatch) PATCHKIT_TYPE(ssub_match)
PATCHKIT_TYPE(regex_error) PATCHKIT_TYPE(sregex_iterator) PATCHKIT_TYPE(sregex_token_iterator)
PATCHKIT_TYPE(cregex_iterator) PATCHKIT_TYPE(wsmatch)
PATCHKIT_TYPE(thread) PATCHKIT_TYPE(jthread) PATCHKIT_TYPE(mutex) PATCHKIT_TYPE(recursive_mutex)
PATCHKIT_TYPE(timed_mutex) PATCHKIT_TYPE(shared_mutex) PATCHKIT_TYPE(shared_timed_mutex)
PATCHKIT_TYPE(recursive_timed_mutex) PATCHKIT_TYPE(condition_variable) PATCHKIT_TYPE(condition_variable_any)
PATCHKIT_TYPE(once_flag) PATCHKIT_TYPE(atomic_flag) PATCHKIT_TYPE(atomic_bool) PATCHKIT_TYPE(atomic_int)
PATCHKIT_TYPE(atomic_uint) PATCHKIT_TYPE(atomic_long) PATCHKIT_TYPE(atomic_size_t) PATCHKIT_TYPE(atomic_uint64_t)
PATCHKIT_TYPE(atomic_int64_t) PATCHKIT_TYPE(atomic_uint32_t) PATCHKIT_TYPE(atomic_int32_t)
PATCHKIT_TYPE(stop_token) PATCHKIT_TYPE(stop_source) PATCHKIT_TYPE(defer_lock_t) PATCHKIT_TYPE(adopt_lock_t)
PATCHKIT_TYPE(try_to_lock_t) PATCHKIT_TYPE(mt19937) PATCHKIT_TYPE(mt19937_64) PATCHKIT_TYPE(minstd_rand)
PATCHKIT_TYPE(default_random_engine) PATCHKIT_TYPE(random_device) PATCHKIT_TYPE(bernoulli_distribution)
PATCHKIT_TYPE(seed_seq) PATCHKIT_TYPE(any) PATCHKIT_TYPE(monostate) PATCHKIT_TYPE(nullopt_t)
PATCHKIT_TYPE(type_info) PATCHKIT_TYPE(type_index) PATCHKIT_TYPE(true_type) PATCHKIT_TYPE(false_type)
PATCHKIT_TYPE(in_place_t) PATCHKIT_TYPE(piecewise_construct_t) PATCHKIT_TYPE(allocator_arg_t)
PATCHKIT_TYPE(nothrow_t) PATCHKIT_TYPE(align_val_t) PATCHKIT_TYPE(terminate_handler) PATCHKIT_TYPE(new_handler)
PATCHKIT_TYPE(input_iterator_tag) PATCHKIT_TYPE(output_iterator_tag) PATCHKIT_TYPE(forward_iterator_tag)
PATCHKIT_TYPE(bidirectional_iterator_tag) PATCHKIT_TYPE(random_access_iterator_tag) PATCHKIT_TYPE(tm)
PATCHKIT_TYPE(timespec) PATCHKIT_TYPE(lconv) PATCHKIT_TYPE(div_t) PATCHKIT_TYPE(from_chars_result)
PATCHKIT_TYPE(to_chars_result) PATCHKIT_TYPE(chars_format) PATCHKIT_TYPE(strong_ordering)
PATCHKIT_TYPE(partial_ordering) PATCHKIT_TYPE(weak_ordering) PATCHKIT_TYPE(source_location) PATCHKIT_TYPE(latch)

PATCHKIT_TEMPLATE(basic_string) PATCHKIT_TEMPLATE(basic_string_view) PATCHKIT_TEMPLATE(char_traits)
PATCHKIT_TEMPLATE(vector) PATCHKIT_TEMPLATE(deque) PATCHKIT_TEMPLATE(list) PATCHKIT_TEMPLATE(forward_list)
PATCHKIT_TEMPLATE(map) PATCHKIT_TEMPLATE(multimap) PATCHKIT_TEMPLATE(set) PATCHKIT_TEMPLATE(multiset)
PATCHKIT_TEMPLATE(unordered_map) PATCHKIT_TEMPLATE(unordered_multimap) PATCHKIT_TEMPLATE(unordered_set)
PATCHKIT_TEMPLATE(unordered_multiset) PATCHKIT_TEMPLATE(stack) PATCHKIT_TEMPLATE(queue)
PATCHKIT_TEMPLATE(priority_queue) PATCHKIT_TEMPLATE(pair) PATCHKIT_TEMPLATE(tuple) PATCHKIT_TEMPLATE(optional)
PATCHKIT_TEMPLATE(variant) PATCHKIT_TEMPLATE(expected) PATCHKIT_TEMPLATE(unexpected)
PATCHKIT_TEMPLATE(unique_ptr) PATCHKIT_TEMPLATE(shared_ptr)
PATCHKIT_TEMPLATE(weak_ptr) PATCHKIT_TEMPLATE(enable_shared_from_this) PATCHKIT_TEMPLATE(default_delete)
PATCHKIT_TEMPLATE(allocator) PATCHKIT_TEMPLATE(allocator_traits) PATCHKIT_TEMPLATE(reference_wrapper)
PATCHKIT_TEMPLATE(move_only_function) PATCHKIT_TEMPLATE(hash) PATCHKIT_TEMPLATE(less) PATCHKIT_TEMPLATE(greater)
PATCHKIT_TEMPLATE(less_equal) PATCHKIT_TEMPLATE(greater_equal) PATCHKIT_TEMPLATE(equal_to)
PATCHKIT_TEMPLATE(not_equal_to) PATCHKIT_TEMPLATE(plus) PATCHKIT_TEMPLATE(minus) PATCHKIT_TEMPLATE(multiplies)
PATCHKIT_TEMPLATE(divides) PATCHKIT_TEMPLATE(modulus) PATCHKIT_TEMPLATE(negate) PATCHKIT_TEMPLATE(logical_and)
PATCHKIT_TEMPLATE(logical_or) PATCHKIT_TEMPLATE(bit_and) PATCHKIT_TEMPLATE(bit_or) PATCHKIT_TEMPLATE(bit_xor)
PATCHKIT_TEMPLATE(numeric_limits) PATCHKIT_TEMPLATE(atomic) PATCHKIT_TEMPLATE(atomic_ref)
PATCHKIT_TEMPLATE(lock_guard) PATCHKIT_TEMPLATE(unique_lock) PATCHKIT_TEMPLATE(shared_lock)
PATCHKIT_TEMPLATE(scoped_lock) PATCHKIT_TEMPLATE(future) PATCHKIT_TEMPLATE(shared_future)
PATCHKIT_TEMPLATE(promise) PATCHKIT_TEMPLATE(packaged_task) PATCHKIT_TEMPLATE(complex)
PATCHKIT_TEMPLATE(uniform_int_distribution) PATCHKIT_TEMPLATE(uniform_real_distribution)
PATCHKIT_TEMPLATE(normal_distribution) PATCHKIT_TEMPLATE(discrete_distribution)
PATCHKIT_TEMPLATE(exponential_distribution) PATCHKIT_TEMPLATE(poisson_distribution)
PATCHKIT_TEMPLATE(basic_regex) PATCHKIT_TEMPLATE(match_results) PATCHKIT_TEMPLATE(sub_match)
PATCHKIT_TEMPLATE(regex_iterator) PATCHKIT_TEMPLATE(regex_token_iterator) PATCHKIT_TEMPLATE(regex_traits)
PATCHKIT_TEMPLATE(istreambuf_iterator) PATCHKIT_TEMPLATE(ostreambuf_iterator)
PATCHKIT_TEMPLATE(istream_iterator) PATCHKIT_TEMPLATE(ostream_iterator) PATCHKIT_TEMPLATE(iterator_traits)
PATCHKIT_TEMPLATE(reverse_iterator) PATCHKIT_TEMPLATE(move_iterator) PATCHKIT_TEMPLATE(back_insert_iterator)
PATCHKIT_TEMPLATE(insert_iterator) PATCHKIT_TEMPLATE(basic_ios) PATCHKIT_TEMPLATE(basic_ostream)
PATCHKIT_TEMPLATE(basic_istream) PATCHKIT_TEMPLATE(basic_streambuf) PATCHKIT_TEMPLATE(basic_ofstream)
PATCHKIT_TEMPLATE(basic_ifstream) PATCHKIT_TEMPLATE(basic_stringstream) PATCHKIT_TEMPLATE(codecvt)
PATCHKIT_TEMPLATE(codecvt_utf8) PATCHKIT_TEMPLATE(codecvt_utf8_utf16) PATCHKIT_TEMPLATE(wstring_convert)
PATCHKIT_TEMPLATE(tuple_size) PATCHKIT_TEMPLATE(common_type) PATCHKIT_TEMPLATE(owner_less)
PATCHKIT_TEMPLATE(pointer_traits) PATCHKIT_TEMPLATE(coroutine_handle) PATCHKIT_TEMPLATE(valarray)
template <class> struct initializer_list : patchkit::members {};
template <class...> struct function : patchkit::members { PATCHKIT_CALL(target) };
template <class T, unsigned long...> struct array : patchkit::members {};
template <class T, unsigned long...> struct span : patchkit::members {};
template <unsigned long> struct bitset : patchkit::members {};
template <long, long = 1> struct ratio : patchkit::members {};
typedef ratio<1> milli, micro, nano, kilo, mega, giga;
template <class T, T V> struct integral_constant : patchkit::members { static constexpr T value = V; };
template <bool V> struct bool_constant : patchkit::members { static constexpr bool value = V; };
template <class T, T...> struct integer_sequence : patchkit::members {};
template <unsigned long...> struct index_sequence : patchkit::members {};
template <unsigned long> struct make_index_sequence : patchkit::members {};
template <class T, T> struct make_integer_sequence : patchkit::members {};
template <class...> struct index_sequence_for : patchkit::members {};
template <unsigned long, class T> struct tuple_element { using type = T; };
template <unsigned long, class T> using tuple_element_t = T;
template <unsigned long, class T> struct variant_alternative { using type = T; };
template <unsigned long, class T> using variant_alternative_t = T;
template <bool, class T = void> struct enable_if { using type = T; };
template <bool, class T = void> using enable_if_t = T;
template <bool, class T, class F> struct conditional { using type = T; };
template <bool, class T, class F> using conditional_t = T;
template <unsigned long, unsigned long = 8> struct aligned_storage { struct type {}; };
template <unsigned long, unsigned long = 8> using aligned_storage_t = char;
template <class...> using void_t = void;
template <class... T> using common_type_t = int;
template <class T> constexpr unsigned long tuple_size_v = 1;
template <class T> constexpr unsigned long variant_size_v = 1;
template <bool V> struct in_place_index_t {};
template <class> struct in_place_type_t {};

PATCHKIT_TRAIT(is_same) PATCHKIT_TRAIT(is_base_of) PATCHKIT_TRAIT(is_convertible) PATCHKIT_TRAIT(is_integral)
PATCHKIT_TRAIT(is_floating_point) PATCHKIT_TRAIT(is_arithmetic) PATCHKIT_TRAIT(is_signed)
PATCHKIT_TRAIT(is_unsigned) PATCHKIT_TRAIT(is_enum) PATCHKIT_TRAIT(is_class) PATCHKIT_TRAIT(is_union)
PATCHKIT_TRAIT(is_pointer) PATCHKIT_TRAIT(is_reference) PATCHKIT_TRAIT(is_lvalue_reference)
PATCHKIT_TRAIT(is_rvalue_reference) PATCHKIT_TRAIT(is_const) PATCHKIT_TRAIT(is_void) PATCHKIT_TRAIT(is_array)
PATCHKIT_TRAIT(is_function) PATCHKIT_TRAIT(is_invocable) PATCHKIT_TRAIT(is_invocable_r) PATCHKIT_TRAIT(is_trivial)
PATCHKIT_TRAIT(is_trivially_copyable) PATCHKIT_TRAIT(is_standard_layout) PATCHKIT_TRAIT(is_pod)
PATCHKIT_TRAIT(is_constructible) PATCHKIT_TRAIT(is_default_constructible) PATCHKIT_TRAIT(is_copy_constructible)
PATCHKIT_TRAIT(is_move_constructible) PATCHKIT_TRAIT(is_nothrow_move_constructible) PATCHKIT_TRAIT(is_assignable)
PATCHKIT_TRAIT(is_copy_assignable) PATCHKIT_TRAIT(is_trivially_destructible) PATCHKIT_TRAIT(is_scalar)
PATCHKIT_TRAIT(is_member_function_pointer) PATCHKIT_TRAIT(is_null_pointer) PATCHKIT_TRAIT(is_abstract)
PATCHKIT_TRAIT(is_empty) PATCHKIT_TRAIT(is_final) PATCHKIT_TRAIT(is_fundamental) PATCHKIT_TRAIT(is_object)
PATCHKIT_TRAIT(conjunction) PATCHKIT_TRAIT(disjunction) PATCHKIT_TRAIT(negation) PATCHKIT_TRAIT(has_virtual_destructor)
PATCHKIT_CHANGE(decay) PATCHKIT_CHANGE(remove_reference) PATCHKIT_CHANGE(remove_cv) PATCHKIT_CHANGE(remove_const)
PATCHKIT_CHANGE(remove_cvref) PATCHKIT_CHANGE(remove_pointer) PATCHKIT_CHANGE(remove_extent)
PATCHKIT_CHANGE(remove_all_extents) PATCHKIT_CHANGE(add_const) PATCHKIT_CHANGE(add_pointer)
PATCHKIT_CHANGE(add_lvalue_reference) PATCHKIT_CHANGE(make_signed) PATCHKIT_CHANGE(make_unsigned)
PATCHKIT_CHANGE(underlying_type) PATCHKIT_CHANGE(invoke_result) PATCHKIT_CHANGE(result_of)
PATCHKIT_CHANGE(type_identity)

PATCHKIT_CALL(move) PATCHKIT_CALL(forward) PATCHKIT_CALL(swap) PATCHKIT_CALL(exchange) PATCHKIT_CALL(declval)
PATCHKIT_CALL(make_unique) PATCHKIT_CALL(make_shared) PATCHKIT_CALL(make_unique_for_overwrite)
PATCHKIT_CALL(allocate_shared) PATCHKIT_CALL(make_pair) PATCHKIT_CALL(make_tuple) PATCHKIT_CALL(make_optional)
PATCHKIT_CALL(tie) PATCHKIT_CALL(forward_as_tuple) PATCHKIT_CALL(tuple_cat) PATCHKIT_CALL(apply)
PATCHKIT_CALL(invoke) PATCHKIT_CALL(visit) PATCHKIT_CALL(holds_alternative) PATCHKIT_CALL(any_cast)
PATCHKIT_CALL(static_pointer_cast) PATCHKIT_CALL(dynamic_pointer_cast) PATCHKIT_CALL(const_pointer_cast)
PATCHKIT_CALL(reinterpret_pointer_cast) PATCHKIT_CALL(bit_cast) PATCHKIT_CALL(to_array) PATCHKIT_CALL(ref)
PATCHKIT_CALL(cref) PATCHKIT_CALL(bind) PATCHKIT_CALL(mem_fn) PATCHKIT_CALL(async) PATCHKIT_CALL(min)
PATCHKIT_CALL(max) PATCHKIT_CALL(minmax) PATCHKIT_CALL(clamp) PATCHKIT_CALL(accumulate) PATCHKIT_CALL(reduce)
PATCHKIT_CALL(inner_product) PATCHKIT_CALL(transform) PATCHKIT_CALL(addressof) PATCHKIT_CALL(as_const)
PATCHKIT_CALL(generate_canonical) PATCHKIT_CALL(use_facet) PATCHKIT_CALL(has_facet) PATCHKIT_CALL(launder)
PATCHKIT_CALL(to_underlying) PATCHKIT_CALL(rethrow_if_nested) PATCHKIT_CALL(throw_with_nested)
PATCHKIT_CALL(atomic_load) PATCHKIT_CALL(atomic_store) PATCHKIT_CALL(midpoint) PATCHKIT_CALL(gcd)
PATCHKIT_CALL(lcm) PATCHKIT_CALL(erase_if) PATCHKIT_CALL(make_move_iterator) PATCHKIT_CALL(back_inserter)
PATCHKIT_CALL(inserter) PATCHKIT_CALL(make_heap) PATCHKIT_CALL(fill) PATCHKIT_CALL(copy) PATCHKIT_CALL(bind_front)
PATCHKIT_INDEX_CALL(get) PATCHKIT_INDEX_CALL(get_if) PATCHKIT_INDEX_CALL(assume_aligned)

namespace literals {} namespace string_literals {} namespace chrono_literals {} namespace placeholders {}
namespace string_view_literals {} namespace complex_literals {}
namespace this_thread {} namespace ranges { namespace views {} } namespace views {} namespace execution {}
namespace rel_ops {} namespace pmr { PATCHKIT_TEMPLATE(vector) PATCHKIT_TYPE(string) PATCHKIT_TYPE(memory_resource) }
namespace numbers {} namespace regex_constants {
PATCHKIT_TYPE(syntax_option_type) PATCHKIT_TYPE(match_flag_type) PATCHKIT_TYPE(error_type)
}
namespace chrono {
namespace chrono_literals {}
template <class, class...> struct duration : patchkit::members {};
template <class...> struct time_point : patchkit::members {};
typedef duration<long> hours, minutes, seconds, milliseconds, microseconds, nanoseconds, days, weeks, years;
PATCHKIT_TYPE(system_clock) PATCHKIT_TYPE(steady_clock) PATCHKIT_TYPE(high_resolution_clock)
PATCHKIT_CALL(duration_cast) PATCHKIT_CALL(time_point_cast) PATCHKIT_CALL(floor) PATCHKIT_CALL(ceil)
PATCHKIT_CALL(round)
}
namespace filesystem {
PATCHKIT_TYPE(path) PATCHKIT_TYPE(directory_entry) PATCHKIT_TYPE(directory_iterator)
PATCHKIT_TYPE(recursive_directory_iterator) PATCHKIT_TYPE(file_status) PATCHKIT_TYPE(space_info)
PATCHKIT_TYPE(filesystem_error) PATCHKIT_TYPE(file_time_type)
enum class file_type { regular, directory, symlink, none, not_found };
enum class perms { none, owner_all, all };
enum class copy_options { none, overwrite_existing, recursive, skip_existing, update_existing };
enum class directory_options { none, follow_directory_symlink, skip_permission_denied };
}
}

// Two libraries from vendor/ that upstream's programs use everywhere; nlohmann/json alone has 25000 lines.
namespace nlohmann {
namespace literals {} namespace detail {}
struct basic_value : patchkit::members {
    template <class Key> basic_value & operator[](const Key &) const;
    basic_value &at(...) const, &front(...) const, &back(...) const;
    PATCHKIT_CALL(get) PATCHKIT_CALL(get_to) PATCHKIT_CALL(get_ptr) PATCHKIT_CALL(get_ref) PATCHKIT_CALL(value)
    PATCHKIT_TYPE(exception) PATCHKIT_TYPE(parse_error) PATCHKIT_TYPE(type_error) PATCHKIT_TYPE(out_of_range)
    PATCHKIT_TYPE(json_pointer) PATCHKIT_TYPE(array_t) PATCHKIT_TYPE(object_t) PATCHKIT_TYPE(string_t)
    PATCHKIT_TYPE(number_integer_t) PATCHKIT_TYPE(number_float_t) PATCHKIT_TYPE(parse_event_t)
    PATCHKIT_TYPE(error_handler_t) PATCHKIT_TYPE(value_t) PATCHKIT_TYPE(initializer_list_t)
};
typedef basic_value json, ordered_json;
template <class...> struct basic_json : basic_value {};
template <class...> struct adl_serializer {};
template <class...> struct json_sax : patchkit::members {};
}
namespace httplib {
PATCHKIT_TYPE(Request) PATCHKIT_TYPE(Response) PATCHKIT_TYPE(Result) PATCHKIT_TYPE(Server) PATCHKIT_TYPE(SSLServer)
PATCHKIT_TYPE(Client) PATCHKIT_TYPE(ClientImpl) PATCHKIT_TYPE(DataSink) PATCHKIT_TYPE(Headers) PATCHKIT_TYPE(Params)
PATCHKIT_TYPE(ThreadPool) PATCHKIT_TYPE(TaskQueue) PATCHKIT_TYPE(ContentReader) PATCHKIT_TYPE(Stream)
PATCHKIT_TYPE(MultipartFormData) PATCHKIT_TYPE(MultipartFormDataItems) PATCHKIT_TYPE(FormData)
enum class Error { Success };
}

namespace cooperative_groups {}

// The HIP runtime. Its functions need no declaration: the parse of a call does not depend on its callee.
struct dim3 { unsigned x, y, z; };
extern const dim3 threadIdx, blockIdx, blockDim, gridDim;
extern const int warpSize;
PATCHKIT_CALL(min) PATCHKIT_CALL(max)
#define PATCHKIT_VECTORS(type)                          \
    struct type##1 { int x; };                          \
    struct type##2 { int x, y; };                       \
    struct type##3 { int x, y, z; };                    \
    struct type##4 { int x, y, z, w; };
PATCHKIT_VECTORS(char) PATCHKIT_VECTORS(uchar) PATCHKIT_VECTORS(short) PATCHKIT_VECTORS(ushort)
PATCHKIT_VECTORS(int) PATCHKIT_VECTORS(uint) PATCHKIT_VECTORS(long) PATCHKIT_VECTORS(ulong)
PATCHKIT_VECTORS(longlong) PATCHKIT_VECTORS(ulonglong) PATCHKIT_VECTORS(float) PATCHKIT_VECTORS(double)
struct __half {};
struct __half2 { __half x, y; };
struct __hip_bfloat16 {};
struct __hip_bfloat162 { __hip_bfloat16 x, y; };
typedef __half half;
typedef __half2 half2;
typedef __hip_bfloat16 hip_bfloat16;
struct __hip_fp8_e4m3 {};
struct __hip_fp8_e4m3_fnuz {};
struct __hip_fp8_e5m2 {};
struct hipDeviceProp_t {};
struct hipPointerAttribute_t {};
struct hipFuncAttributes {};
struct hipKernelNodeParams {};
struct hipLaunchConfig_t {};
struct hipLaunchAttribute {};
typedef int hipError_t, hipDevice_t, hipDeviceAttribute_t, hipMemcpyKind, hipFuncAttribute, hipStreamCaptureMode;
typedef int hipGraphExecUpdateResult, hipGraphNodeType, hipStreamCaptureStatus, hipMemoryType, hipblasStatus_t;
typedef int hipblasOperation_t, hipblasComputeType_t, hipDataType, hipblasDatatype_t, hipblasGemmAlgo_t;
typedef int rocblas_status, hipMemLocationType, hipMemAllocationType;
typedef struct patchkit_handle *hipStream_t, *hipEvent_t, *hipGraph_t, *hipGraphExec_t, *hipGraphNode_t;
typedef struct patchkit_handle *hipFunction_t, *hipModule_t, *hipMemPool_t, *hipCtx_t, *hipblasHandle_t;
typedef struct patchkit_handle *hipMemGenericAllocationHandle_t, *hipHostFn_t, *ncclComm_t;
typedef void * hipDeviceptr_t;
struct hipMemAccessDesc {};
struct hipMemAllocationProp {};
struct hipMemLocation {};
#endif
