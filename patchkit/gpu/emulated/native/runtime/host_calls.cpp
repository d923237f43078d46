#include "host_calls.hpp"

#include "../emulator/emulator.hpp"
#include "allocations.hpp"
#include "ending.hpp"
#include "kernel_heap.hpp"

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace patchkit {

namespace {

constexpr uint64_t packets = 1 << 14; // more than the waves that any GPU runs at once; a power of two
constexpr int lanes        = 64;
constexpr int words        = 8;

struct packet_header {
    uint64_t next; // on its stack: packet number, with a tag in the upper bits that changes each time
    uint64_t lanes;
    uint32_t service;
    std::atomic<uint32_t> is_waiting; // bit 0
};

struct payload {
    uint64_t slots[lanes][words];
};

// An HSA signal, as far as device code uses it (amd_hsa_signal.h).
struct signal {
    int64_t kind         = 1;
    int64_t value        = 0;
    uint64_t mailbox     = 0; // address for the event number, written before the interrupt
    uint32_t event       = 1;
    uint32_t unused[9]   = {};
};

struct buffer {
    packet_header * headers;
    payload * payloads;
    signal * doorbell;
    std::atomic<uint64_t> free;
    std::atomic<uint64_t> ready;
    uint64_t mask;
};

struct all_memory {
    buffer head;
    signal doorbell;
    uint64_t mailbox;
    packet_header headers[packets];
    payload payloads[packets];
};

std::atomic<all_memory *> memory = nullptr;
std::mutex serving;

constexpr uint32_t service_printf = 2, service_memory = 3;

// A message consists of pieces; each contains its number of words, and the message it belongs to.
struct piece {
    uint64_t descriptor;

    bool begins() const { return (descriptor & 1) != 0; }
    bool ends() const { return (descriptor & 2) != 0; }
    size_t length() const { return (descriptor >> 5) & 7; }
    uint64_t message() const { return descriptor >> 8; }
};

std::unordered_map<uint64_t, std::vector<uint64_t>> & messages() {
    static auto * open = new std::unordered_map<uint64_t, std::vector<uint64_t>>;
    return *open;
}

// Reads the words of a message in sequence; missing ones are zero or empty.
class words_of {
  public:
    explicit words_of(const std::vector<uint64_t> & all) : all_(all) {}

    bool is_at_end() const { return at_ >= all_.size(); }

    uint64_t next() { return is_at_end() ? 0 : all_[at_++]; }

    // A zero-terminated string in whole words.
    std::string next_string() {
        std::string result;
        while (!is_at_end()) {
            const uint64_t word = all_[at_++];
            char bytes[sizeof(word)];
            std::memcpy(bytes, &word, sizeof(word));
            const size_t length = strnlen(bytes, sizeof(bytes));
            result.append(bytes, length);
            if (length < sizeof(bytes)) {
                break;
            }
        }
        return result;
    }

  private:
    const std::vector<uint64_t> & all_;
    size_t at_ = 0;
};

// One format conversion: flags, width, precision, length and letter.
struct conversion {
    std::string prefix; // "%-10.3", with numbers substituted for *
    std::string length; // "ll"
    char letter = 0;
};

template <typename T> std::string formatted(const conversion & how, const char * length, T value) {
    const std::string format = how.prefix + length + how.letter;
    const int size = std::snprintf(nullptr, 0, format.c_str(), value);
    std::string result(size_t(size < 0 ? 0 : size) + 1, '\0');
    std::snprintf(result.data(), result.size(), format.c_str(), value);
    result.pop_back();
    return result;
}

// Integers are passed as 64-bit words; the length selects the used bits.
std::string formatted_integer(const conversion & how, uint64_t value) {
    const bool is_signed = how.letter == 'd' || how.letter == 'i';
    if (how.letter == 'c') {
        return formatted(how, "", int(value));
    }
    if (how.length == "hh") {
        value = is_signed ? uint64_t(int64_t(int8_t(value))) : uint8_t(value);
    } else if (how.length == "h") {
        value = is_signed ? uint64_t(int64_t(int16_t(value))) : uint16_t(value);
    } else if (how.length.empty()) {
        value = is_signed ? uint64_t(int64_t(int32_t(value))) : uint32_t(value);
    }
    return formatted(how, "ll", static_cast<unsigned long long>(value));
}

std::string formatted_next(const conversion & how, words_of & words) {
    switch (how.letter) {
        case 'd': case 'i': case 'o': case 'u': case 'x': case 'X': case 'c':
            return formatted_integer(how, words.next());
        case 'f': case 'F': case 'e': case 'E': case 'g': case 'G': case 'a': case 'A': {
            const uint64_t word = words.next();
            double value = 0;
            std::memcpy(&value, &word, sizeof(value));
            return formatted(how, "", value);
        }
        case 's': return formatted(how, "", words.next_string().c_str());
        case 'p': return formatted(how, "", reinterpret_cast<void *>(words.next()));
        default: (void) words.next(); return ""; // n
    }
}

// Whether width and precision are at most a few kilobytes.
bool is_modest(const std::string & prefix) {
    size_t digits = 0;
    for (const char c : prefix) {
        digits = c >= '0' && c <= '9' ? digits + 1 : 0;
        if (digits > 4) {
            return false;
        }
    }
    return true;
}

// Parses the conversion after a %. Returns false if it is invalid.
bool read_conversion(const std::string & format, size_t & at, words_of & words, conversion & result) {
    result = {"%", "", 0};
    for (; at < format.size() && std::strchr("-+ #0123456789.*", format[at]) != nullptr; ++at) {
        result.prefix += format[at] == '*' ? std::to_string(int(words.next())) : std::string(1, format[at]);
    }
    for (; at < format.size() && std::strchr("hljztL", format[at]) != nullptr; ++at) {
        result.length += format[at];
    }
    if (at >= format.size() || !is_modest(result.prefix)) {
        return false;
    }
    result.letter = format[at++];
    return std::strchr("diouxXcfFeEgGaAspn", result.letter) != nullptr;
}

std::string text_of(words_of & words) {
    const std::string format = words.next_string();
    std::string result;
    for (size_t at = 0; at < format.size();) {
        if (format[at] != '%') {
            result += format[at++];
        } else if (format.compare(at, 2, "%%") == 0) {
            result += '%';
            at += 2;
        } else {
            ++at;
            conversion how;
            if (words.is_at_end() || !read_conversion(format, at, words, how)) {
                break;
            }
            result += formatted_next(how, words);
        }
    }
    return result;
}

// The return value of printf on the device.
uint64_t print(const std::vector<uint64_t> & message) {
    words_of words(message);
    const uint64_t control = words.next(); // bit 0: to stderr
    if (control > 1) {
        return uint64_t(-1);
    }
    const std::string text = text_of(words);
    std::fwrite(text.data(), 1, text.size(), control == 1 ? stderr : stdout);
    return text.size();
}

void serve_printf(uint64_t * slot) {
    static uint64_t next_message = 0;
    const piece part = {slot[0]};
    uint64_t number  = part.message();
    if (part.begins()) {
        number = next_message++ & ((uint64_t(1) << 56) - 1);
        messages()[number].clear();
        slot[0] = (slot[0] & 0xfe) | number << 8;
    }
    const auto found = messages().find(number);
    if (found == messages().end()) {
        throw gpu::kernel_fault("a kernel continues a message to the host that it did not start");
    }
    found->second.insert(found->second.end(), slot + 1, slot + 1 + part.length());
    if (part.ends()) {
        slot[0] = print(found->second);
        messages().erase(found);
    }
}

void serve_packet(packet_header & header, payload & filled) {
    if (header.service != service_printf && header.service != service_memory) {
        throw gpu::kernel_fault("a kernel calls host service " + std::to_string(header.service) +
                                "; only printf (2) and memory (3) are supported");
    }
    for (int lane = 0; lane < lanes; ++lane) {
        uint64_t * const slot = filled.slots[lane];
        if ((header.lanes >> lane & 1) == 0) {
            continue;
        }
        if (header.service == service_printf) {
            serve_printf(slot);
        } else {
            slot[0] = serve_heap(slot[0], slot[1]);
        }
    }
    header.is_waiting.fetch_and(~uint32_t(1), std::memory_order_release);
}

all_memory * make_memory() {
    void * place = mmap(nullptr, sizeof(all_memory), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (place == MAP_FAILED) {
        fault("out of memory for calls of kernels to the host");
    }
    auto * made = static_cast<all_memory *>(place); // zero
    made->doorbell         = signal();
    made->doorbell.mailbox = uint64_t(&made->mailbox);
    made->head.headers     = made->headers;
    made->head.payloads    = made->payloads;
    made->head.doorbell    = &made->doorbell;
    made->head.mask        = packets - 1;
    // A packet's number with its tag is never zero, which marks the end of a stack.
    made->headers[0].next = 0;
    for (uint64_t i = 1; i < packets; ++i) {
        made->headers[i].next = i == 1 ? packets : i - 1;
    }
    made->head.free = packets - 1;
    register_memory(made, sizeof(all_memory), hipMemoryTypeHost, owner::runtime);
    return made;
}

} // namespace

uint64_t host_call_buffer() {
    const std::lock_guard<std::mutex> guard(serving);
    if (memory == nullptr) {
        memory = make_memory();
    }
    return uint64_t(memory.load());
}

bool serve_host_calls() {
    all_memory * all = memory;
    if (all == nullptr || all->head.ready == 0) {
        return false;
    }
    const std::lock_guard<std::mutex> guard(serving);
    uint64_t one = all->head.ready.exchange(0, std::memory_order_acquire);
    uint64_t served = 0;
    for (; one != 0 && served < packets; ++served) {
        packet_header & header = all->headers[one & all->head.mask];
        const uint64_t next = header.next; // after being served, it belongs to the wave again
        serve_packet(header, all->payloads[one & all->head.mask]);
        one = next;
    }
    return served != 0;
}

} // namespace patchkit
