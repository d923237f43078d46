// Opens the device that a driver runs on. A driver that cannot go on ends with its name and the reason.

#pragma once

#include "ggml-backend.h"

#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

[[noreturn]] void end_driver(const char * driver, const std::string & why) {
    std::fprintf(stderr, "%s: %s\n", driver, why.c_str());
    std::exit(2);
}

// Loads the backend `module` and opens its device `name`, with one CPU thread: ggml's threads busy-wait, so on a loaded
// machine one is many times faster than several.
ggml_backend_t open_device(const char * driver, const char * module, const std::string & name) {
    ggml_backend_reg_t reg = ggml_backend_load(module);
    if (reg == nullptr) {
        end_driver(driver, std::string("cannot load ") + module);
    }
    std::string known;
    for (size_t i = 0; i < ggml_backend_reg_dev_count(reg); ++i) {
        ggml_backend_dev_t dev = ggml_backend_reg_dev_get(reg, i);
        known += std::string(" ") + ggml_backend_dev_name(dev);
        if (name != ggml_backend_dev_name(dev)) {
            continue;
        }
        ggml_backend_t backend = ggml_backend_dev_init(dev, nullptr);
        if (backend == nullptr) {
            end_driver(driver, "device " + name + " cannot be opened");
        }
        using set_threads = void (*)(ggml_backend_t, int);
        auto * set        = reinterpret_cast<set_threads>(ggml_backend_reg_get_proc_address(reg, "ggml_backend_set_n_threads"));
        if (set != nullptr) {
            set(backend, 1);
        }
        std::fprintf(stderr, "device: %s: %s\n", ggml_backend_dev_name(dev), ggml_backend_dev_description(dev));
        return backend;
    }
    end_driver(driver, "there is no device " + name + "; devices:" + (known.empty() ? " none" : known));
}

}  // namespace
