#include "left_out.hpp"

namespace patchkit::gpu {

namespace {

struct entry {
    std::string_view pattern; // a name; a star stands for any text
    std::string_view reason;
};

constexpr entry entries[] = {
    {"image_*", "images: levels, several samples of an element, comparisons, atomics and ray tracing"},
    {"exp", "graphics: results of shaders"},
    {"export", "graphics: results of shaders"},
    {"v_interp_*", "graphics: attributes of triangles"},
    {"lds_param_load", "graphics: attributes of triangles"},
    {"ds_param_load", "graphics: attributes of triangles"},
    {"lds_direct_load", "HIP's compiler makes none"},
    {"ds_direct_load", "HIP's compiler makes none"},
    {"tbuffer_*", "typed buffers: HIP's compiler makes none"},
    {"buffer_*_format_*", "typed buffers: HIP's compiler makes loads of whole registers only"},
    {"buffer_store_lds_*", "HIP's compiler makes none"},
    {"ds_bvh_*", "ray tracing"},
    {"ds_gws_*", "global wave sync: HIP has none on this GPU"},
    {"ds_ordered_count", "the global data share: ROCm gives it to no program"},
    {"ds_*_gs_reg_rtn", "graphics: registers of the geometry pipeline"},
    {"global_atomic_ordered_add_b64", "graphics: needs the order of a draw"},
    {"*_load_block", "HIP's compiler makes none unless it is told to"},
    {"*_store_block", "HIP's compiler makes none unless it is told to"},
    {"global_load_tr_*", "how lanes are transposed was found in no source that it could be held against"},
    {"v_swmmac_*", "how the index of a sparse matrix lies was found in no source that it could be held against"},
    {"v_illegal", "it is there to be illegal"},
    {"s_setreg_*", "changes the mode of floats within a kernel: here it is the one that the kernel begins with"},
    {"s_round_mode", "changes the mode of floats within a kernel: here it is the one that the kernel begins with"},
    {"s_denorm_mode", "changes the mode of floats within a kernel: here it is the one that the kernel begins with"},
    {"s_subvector_loop_*", "waves of 64 lanes"},
    {"s_sendmsg_rtn_b32", "asks the hardware for what an emulated GPU has not"},
    {"s_sendmsghalt", "of trap handlers and debuggers"},
    {"s_sethalt", "of trap handlers and debuggers"},
    {"s_setkill", "of trap handlers and debuggers"},
    {"s_rfe_b64", "of trap handlers and debuggers"},
    {"s_cbranch_cdbg*", "of trap handlers and debuggers"},
    {"s_endpgm_saved", "of trap handlers and debuggers"},
    {"s_endpgm_ordered_ps_done", "graphics: the order of pixels"},
    {"s_atc_probe*", "of drivers: asks for the translation of an address"},
    {"s_alloc_vgpr", "dynamic registers: HIP starts no such kernel"},
    {"s_barrier_init", "barriers of a part of a block: HIP's compiler makes none for this GPU"},
    {"s_barrier_join", "barriers of a part of a block: HIP's compiler makes none for this GPU"},
    {"s_barrier_leave", "barriers of a part of a block: HIP's compiler makes none for this GPU"},
    {"s_barrier_signal_isfirst", "barriers of a part of a block: HIP's compiler makes none for this GPU"},
    {"s_get_barrier_state", "barriers of a part of a block: HIP's compiler makes none for this GPU"},
};

bool fits(std::string_view pattern, std::string_view name) {
    const size_t star = pattern.find('*');
    if (star == std::string_view::npos) {
        return pattern == name;
    }
    const std::string_view front = pattern.substr(0, star), rest = pattern.substr(star + 1);
    if (!name.starts_with(front)) {
        return false;
    }
    name.remove_prefix(front.size());
    for (;; name.remove_prefix(1)) {
        if (rest.empty() || fits(rest, name)) {
            return true;
        }
        if (name.empty()) {
            return false;
        }
    }
}

} // namespace

std::string_view why_left_out(std::string_view name) {
    for (const entry & one : entries) {
        if (fits(one.pattern, name)) {
            return one.reason;
        }
    }
    return {};
}

} // namespace patchkit::gpu
