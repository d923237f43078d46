// Gives each tensor a buffer of its own, of exactly the size that the backend asks for. So an access past the end of a
// tensor is one outside of any allocation, which the emulated GPU's checks see.

#pragma once

#include "ggml.h"
#include "ggml-backend.h"

#include <vector>

namespace {

// False if there is no memory. `buffers` has to be freed.
bool place_apart(ggml_tensor * one, ggml_backend_buffer_type_t kind, std::vector<ggml_backend_buffer_t> & buffers) {
    if (one->view_src != nullptr) {
        return ggml_backend_view_init(one) == GGML_STATUS_SUCCESS;
    }
    ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(kind, ggml_backend_buft_get_alloc_size(kind, one));
    if (buffer == nullptr) {
        return false;
    }
    buffers.push_back(buffer);
    return ggml_backend_tensor_alloc(buffer, one, ggml_backend_buffer_get_base(buffer)) == GGML_STATUS_SUCCESS;
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
