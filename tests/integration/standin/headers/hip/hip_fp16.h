// As in HIP, __half is a class around the compiler's own type.
#pragma once

struct __half {
    _Float16 data;
};
