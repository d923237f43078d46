// Lists which of the instructions that LLVM decodes for a GPU are emulated.
//
//   coverage LIBLLVM ARCH
//
// Every opcode of every encoding is decoded with a few forms of operands. Output lines, one per name:
//
//   FAMILY NAME yes                  every form that LLVM decodes can be run
//   FAMILY NAME some TEXT: REASON    some form cannot; this is the first of them
//   FAMILY NAME out REASON           excluded on purpose (left_out.cpp)
//   FAMILY NAME no REASON            not emulated

#include "left_out.hpp"
#include "program.hpp"

#include <cstdio>
#include <map>
#include <set>

namespace {

using namespace patchkit::gpu;

// Position of the opcode in the first word, and words of operands to try with each.
struct encoding {
    const char * family;
    u32 first;
    int shift;
    u32 operations;
    std::vector<std::array<u32, 3>> operands;
};

// v2, v6 and v10 as 9-bit sources; s6, s8 and s10.
constexpr u32 v_0 = 0x102, v_1 = 0x106u << 9, v_2 = 0x10au << 18, s_0 = 6, s_1 = 8u << 9, s_2 = 10u << 18;
constexpr u32 row_shift = 0xff011102, eight = 0xfac68802; // row_shl:1 of v2, and dpp8 of v2

std::vector<encoding> common() {
    const std::vector<std::array<u32, 3>> sources{
        {4, v_0 | v_1 | v_2, 0}, {4, v_0 | v_1, 0},        {4, v_0, 0},         {4, s_0 | s_1 | s_2, 0},
        {4, s_0 | s_1, 0},       {4, v_0 | s_1 | s_2, 0},  {4, v_0 | s_1, 0},   {4, s_0, 0},
        {4, 0, 0},               {0x604, v_0 | v_1 | v_2, 0}, {0x604, v_0 | v_1, 0},
        {4, 0xfa | v_1 | v_2, row_shift}, {4, 0xfa | v_1, row_shift}, {4, 0xfa, row_shift}, {4, 0xe9 | v_1, eight}};
    const std::vector<std::array<u32, 3>> packed{
        {0x4004, v_0 | v_1 | v_2 | 0x18000000, 0}, {0x4004, v_0 | v_1 | 0x18000000, 0}, {4, v_0 | v_1 | v_2, 0},
        {0x4004, s_0 | v_1 | v_2 | 0x18000000, 0}};
    return {
        {"SALU", 0xbe800000, 8, 256, {{0x00040006, 0, 0}, {0x000400c1, 0, 0}, {0x00040083, 0, 0}, {0x00000006, 0, 0}, {0x00040000, 0, 0}}},
        {"SALU", 0x80000000, 23, 96, {{0x00040806, 0, 0}, {0x000408ff, 0x12345678, 0}}},
        {"SALU", 0xb0000000, 23, 28, {{0x00040001, 0x12345678, 0}, {0x0004f81d, 0, 0}}},
        {"SALU", 0xbf000000, 16, 128, {{0x0806, 0, 0}}},
        {"SALU", 0xbf800000, 16, 128, {{0, 0, 0}, {1, 0, 0}, {15, 0, 0}}},
        {"VALU", 0x7e000000, 9, 128,
         {{0x00080102, 0, 0}, {0x00080006, 0, 0}, {0, 0, 0}, {0x000800fa, row_shift, 0}, {0x000800e9, eight, 0}}},
        {"VALU", 0x00000000, 25, 62,
         {{0x00080d02, 0x12345678, 0}, {0x00080c06, 0x12345678, 0}, {0x00080cfa, row_shift, 0}, {0x00080ce9, eight, 0}}},
        {"VALU", 0x7c000000, 17, 256, {{0x0d02, 0, 0}, {0x0cfa, row_shift, 0}, {0x0ce9, eight, 0}}},
        {"VALU", 0xd4000000, 16, 1024, sources},
        {"VALU", 0xcc000000, 16, 128, packed},
        {"VALU", 0xcd000000, 16, 128, {{4, v_0 | v_1 | v_2, 0}}},
        {"graphics", 0xce000000, 16, 64, {{4, 0, 0}}},
        {"graphics", 0xf8000000, 4, 64, {{0, 0x05040302, 0}}},
        // First halves of dual-issue instructions, with a move as second half; then second halves.
        {"VALU", 0xc8100d02, 22, 16, {{0, 0x04040701, 0x12345678}}},
        {"VALU", 0xca000d02, 17, 32, {{0, 0x04040701, 0x12345678}}},
        {"DS", 0xd8000000, 18, 256,
         {{0, 0x040a0602, 0}, {0, 0x00000602, 0}, {0, 0x000a0602, 0}, {0, 0x04000602, 0}, {0, 0x04000002, 0},
          {0, 0x04000000, 0}, {0, 0x00000600, 0}, {0, 0, 0},
          // of the global data share, which RDNA4 has not
          {0x20000, 0x040a0602, 0}, {0x20000, 0x04000002, 0}, {0x20000, 2, 0}, {0x20000, 0, 0},
          {0x20000, 0x04000602, 0}}},
    };
}

std::vector<encoding> of_rdna3() {
    std::vector<encoding> all = common();
    all.push_back({"memory", 0xf4000000, 18, 256, {{0x0202, 0xf8000010, 0}, {0x0202, 0x10000010, 0}}});
    for (u32 segment = 0; segment < 3; ++segment) {
        all.push_back({"memory", 0xdc000000 | segment << 16, 18, 128,
                       {{0, 0x047c0602, 0}, {0, 0x007c0602, 0}, {0x4000, 0x047c0602, 0}, {0, 0x04080602, 0},
                        {0, 0x00080602, 0}, {0, 0x04080000, 0}, {0, 0x00080600, 0}}});
    }
    all.push_back({"memory", 0xe0000000, 18, 256, {{0, 0x08410602, 0}, {0x4000, 0x08410602, 0}, {0, 0x80010600, 0}}});
    all.push_back({"memory", 0xe8000000, 15, 16, {{0x00080000, 0x08410602, 0}}});
    all.push_back({"graphics", 0xf0000000, 18, 256, {{0x0f00, 0x00010602, 0}, {0x0f04, 0x04010602, 0}, {0x0100, 0x04010602, 0}}});
    return all;
}

std::vector<encoding> of_rdna4() {
    std::vector<encoding> all = common();
    all.push_back({"memory", 0xf4000000, 13, 64, {{0x0202, 0xf8000010, 0}, {0x0202, 0x10000010, 0}}});
    for (const u32 first : {0xec000000u, 0xed000000u, 0xee000000u}) {
        all.push_back({"memory", first, 14, 256,
                       {{0x7c, 0x03000004, 2}, {0x7c, 0x03100004, 2}, {8, 0x03000004, 2}, {0x7c, 0x03020004, 2},
                        {0x7c, 0x03000000, 2}, {0x7c, 4, 2}, {8, 4, 0}, {8, 0x03000000, 0}}});
    }
    all.push_back({"memory", 0xc4000000, 14, 256, {{8, 0x40800804, 2}, {8, 0x40900804, 2}, {0x7c, 0x00800804, 0}}});
    all.push_back({"graphics", 0xd0000000, 14, 256, {{1u << 22, 0x00000004, 2}, {0, 0x00000004, 2}}});
    all.push_back({"graphics", 0xd3c00000, 14, 256, {{0, 0x00000004, 2}}});
    all.push_back({"graphics", 0xe4000000, 14, 256, {{1u << 22, 0x00000004, 2}, {0xfu << 22, 0x00000004, 2}}});
    all.push_back({"graphics", 0xe7c00000, 14, 256, {{0, 0x00000004, 2}}});
    return all;
}

struct known {
    std::string family;
    bool is_run = false;
    std::string refused; // the first form, and the reason
};

} // namespace

int main(int argc, char ** argv) {
    if (argc != 3) {
        std::fprintf(stderr, "usage: coverage LIBLLVM ARCH\n");
        return 2;
    }
    try {
        disassembler reader(argv[1], argv[2]);
        const architecture & arch = architecture_of(argv[2]);
        std::map<std::string, known> all;
        for (const encoding & each : arch.has_long_memory_encodings ? of_rdna4() : of_rdna3()) {
            for (u32 operation = 0; operation < each.operations; ++operation) {
                for (const auto & operands : each.operands) {
                    const u32 words[3] = {(each.first + (operation << each.shift)) | operands[0], operands[1], operands[2]};
                    const std::span<const std::byte> code = std::as_bytes(std::span(words));
                    const line read = reader.one(code, 0);
                    // LLVM prints this for a register that is invalid in that place.
                    if (read.text.empty() || read.text.find("/*Invalid") != std::string::npos) {
                        continue;
                    }
                    const std::string why = why_refused(reader, code.first(read.size), arch);
                    for (const statement & part : parse_line(read.text)) {
                        known & one = all[base_name(part.name)];
                        one.family = one.family.empty() ? each.family : one.family;
                        one.is_run |= why.empty();
                        // The global data share, which programs cannot use in ROCm, is not considered a form of LDS
                        // instructions.
                        if (!why.empty() && one.refused.empty() && !part.has("gds")) {
                            one.refused = read.text + ": " + why;
                        }
                    }
                }
            }
        }
        for (const auto & [name, one] : all) {
            const std::string_view reason = why_left_out(name);
            std::printf("%s %s ", one.family.c_str(), name.c_str());
            if (one.is_run) {
                std::printf(one.refused.empty() ? "yes\n" : "some %s\n", one.refused.c_str());
            } else if (!reason.empty()) {
                std::printf("out %.*s\n", int(reason.size()), reason.data());
            } else {
                std::printf("no %s\n", one.refused.c_str());
            }
        }
    } catch (const std::exception & error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    return 0;
}
