// Gives each tensor a buffer of its own, of exactly the size that the backend asks for. So an access past the end of a
// tensor is one outside of any allocation, which the emulated GPU's checks see.

#pragma once

#include "ggml.h"
#include "ggml-backend.h"

#include <vector>

namespace {

// False if there is no memory. `buffers` has to be freed. The buffer has some more bytes `before` and `after` the tensor.
bool place_apart(ggml_tensor * one, ggml_backend_buffer_type_t kind, std::vector<ggml_backend_buffer_t> & buffers,
                 size_t before = 0, size_t after = 0) {
    if (one->view_src != nullptr) {
        return ggml_backend_view_init(one) == GGML_STATUS_SUCCESS;
    }
    const size_t          size   = before + ggml_backend_buft_get_alloc_size(kind, one) + after;
    ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(kind, size);
    if (buffer == nullptr) {
        return false;
    }
    buffers.push_back(buffer);
    auto * base = static_cast<char *>(ggml_backend_buffer_get_base(buffer));
    return ggml_backend_tensor_alloc(buffer, one, base + before) == GGML_STATUS_SUCCESS;
}

// All tensors of a context, in the order in which they were made.
[[maybe_unused]] bool place_all_apart(ggml_context * ctx, ggml_backend_t backend, std::vector<ggml_backend_buffer_t> & buffers) {
    const ggml_backend_buffer_type_t kind = ggml_backend_get_default_buffer_type(backend);
    for (ggml_tensor * one = ggml_get_first_tensor(ctx); one != nullptr; one = ggml_get_next_tensor(ctx, one)) {
        if (!place_apart(one, kind, buffers)) {
            return false;
        }
    }
    return true;
}

}  // namespace
