// Programs, by name, with the faults of public reports, each in code of our own: as reported, and mended ("clean: ").
#include <hip/hip_runtime.h>

#include <cstdio>
#include <map>
#include <string>
#include <vector>

constexpr int count = 4096, wave = 32;

__device__ int me() { return int(threadIdx.x); }
__device__ void meet(bool wanted) {
    if (wanted) {
        __syncthreads();
    }
}

// A Cholesky factor of a tile in LDS (rocSOLVER's potf2, ROCm issue 6623): all read the diagonal, one thread puts its root
// there, and the waves behind it take the root of the root. What is not positive ends the loop, for each wave as it saw it.
constexpr int rows = 24;
__global__ void __launch_bounds__(1024) root_of_the_root(float * to, const float * from, bool all) {
    __shared__ float a[rows][rows + 1];
    const int row = int(threadIdx.y), column = me();
    if (row < rows && column < rows) {
        a[row][column] = row == column ? 50.0f + from[row] : from[row * column % count];
    }
    __syncthreads();
    for (int k = 0; k < rows; ++k) {
        const float pivot = a[k][k];
        meet(all);
        if (!(pivot > 0.0f)) {
            break;
        }
        const float root = sqrtf(pivot);
        if (row == 0 && column == 0) {
            a[k][k] = root;
        }
        __syncthreads();
        if (column == 0 && row > k && row < rows) {
            a[row][k] /= root;
        }
        __syncthreads();
        if (row > k && row < rows && column > k && column <= row) {
            a[row][column] -= a[row][k] * a[column][k];
        }
        __syncthreads();
    }
    if (row < rows && column < rows) {
        to[row * rows + column] = a[row][column];
    }
}
// Its early break: the first wave takes the pivot away, and the others do not come to the barrier that it waits at.
__global__ void leaves_early(float * to, const float * from, bool all) {
    __shared__ float pivot;
    float sum = 0.0f;
    if (me() == 0) {
        pivot = 1.0f + from[0];
    }
    __syncthreads();
    for (int k = 0; k < 3; ++k) {
        const float mine = pivot;
        meet(all);
        if (!(mine > 0.0f)) {
            break;
        }
        if (me() == 0) {
            pivot = k == 1 ? -1.0f : mine + 1.0f;
        }
        __syncthreads();
        sum += pivot;
        __syncthreads();
    }
    to[me()] = sum;
    __syncthreads();
    to[me()] += 1.0f;
}
// Rotations of a Jacobi sweep (SYEVJ, LLVM issue 207883, rocm-libraries pull request 12266): the first row makes cosines
// and sines, all take them, and the first row makes the next ones while others still read.
__global__ void __launch_bounds__(1024) rotates(float * to, const float * from, bool all) {
    __shared__ float cosines[16], sines[16];
    const int pair = me(), row = int(threadIdx.y);
    float x = from[row * 16 + pair], y = from[row * 16 + pair + 1];
    for (int sweep = 0; sweep < 4; ++sweep) {
        if (row == 0) {
            const float angle = from[pair + sweep] * 0.001f;
            cosines[pair] = 1.0f - angle * angle / 2.0f;
            sines[pair]   = angle;
        }
        __syncthreads();
        const float turned = x * cosines[pair] - y * sines[pair];
        y = x * sines[pair] + y * cosines[pair];
        x = turned;
        meet(all);
    }
    to[row * 16 + pair] = x + y;
}
// The slot that has the sum is used again before all have read it (hipfire issue 574).
__global__ void slot_again(float * to, const float * from, bool all) {
    __shared__ float values[256];
    values[me()] = from[me()] * from[me()];
    __syncthreads();
    for (int step = 128; step > 0; step /= 2) {
        if (me() < step) {
            values[me()] += values[me() + step];
        }
        __syncthreads();
    }
    const float scale = rsqrtf(values[0]);
    meet(all);
    values[me()] = from[me()] * scale - 0.5f;
    __syncthreads();
    to[me()] = values[me() ^ 128];
}
// The pivot's row is put where others still read the column (rocSOLVER's getf2, rocm-libraries pull request 3743).
__global__ void row_over_column(float * to, const float * from, bool all) {
    __shared__ float common[128];
    common[me()] = from[me()];
    __syncthreads();
    float largest = 0.0f;
    for (int n = 0; n < 128; ++n) {
        largest = fmaxf(largest, common[n]);
    }
    meet(all);
    if (me() >= 96) {
        common[me() - 96] = from[me() + 128];
    }
    __syncthreads();
    to[me()] = common[me() % wave] / largest;
}
// Four of 64 threads call a function with a barrier (MIOpen's ConvFFT, rocm-libraries pull request 3678): right where a
// wave has 64 lanes, and wrong where two waves of 32 have different barriers to come to.
__device__ __forceinline__ float pass(float * values, float value, bool takes_part) {
    if (takes_part) {
        values[me()] = value;
    }
    __syncthreads();
    return takes_part ? values[3 - me()] : value;
}
__global__ void four_call_it(float * to, const float * from, bool all) {
    __shared__ float values[64];
    float value = from[me()];
    if (all) {
        value = pass(values, value, me() < 4);
    } else if (me() < 4) {
        value = pass(values, value, true);
    }
    __syncthreads();
    values[me()] = value;
    __syncthreads();
    to[me()] = values[63 - me()];
}
// A scan in place (HeCBench's morphology): one wave's lanes run in step, two waves need more barriers than it has.
__global__ void scans(float * to, const float * from, bool) {
    __shared__ float least[64];
    least[me()] = from[me()];
    __syncthreads();
    for (int step = 1; step < int(blockDim.x); step *= 2) {
        if (me() >= step) {
            least[me()] = fminf(least[me()], least[me() - step]);
        }
        __syncthreads();
    }
    to[me()] = least[me()];
}
__global__ void scans_by_registers(float * to, const float * from, bool) {
    __shared__ float least[64];
    least[me()] = from[me()];
    __syncthreads();
    for (int step = 1; step < int(blockDim.x); step *= 2) {
        const float found = me() >= step ? fminf(least[me()], least[me() - step]) : least[me()];
        __syncthreads();
        least[me()] = found;
        __syncthreads();
    }
    to[me()] = least[me()];
}
// The next tile of a matrix product is loaded over the one that others multiply (llama.cpp's MMQ without its tile barrier).
__global__ void tile_over_tile(float * to, const float * from, bool all) {
    __shared__ float tile[8][wave];
    const int row = me() / wave, column = me() % wave;
    float sum = 0.0f;
    for (int k = 0; k < 4; ++k) {
        tile[row][column] = from[k * 256 + me()];
        __syncthreads();
        for (int n = 0; n < 8; ++n) {
            sum += tile[n][column] * tile[row][n];
        }
        meet(all);
    }
    to[me()] = sum;
}

int main(int arguments, char ** words) {
    using kernel = void (*)(float *, const float *, bool);
    struct launch {
        kernel run, mended;
        dim3 block;
    };
    const std::map<std::string, launch> cases = {
        {"root of the root", {root_of_the_root, root_of_the_root, dim3(32, 32)}},
        {"leaves early", {leaves_early, leaves_early, dim3(64)}},
        {"rotates", {rotates, rotates, dim3(16, 64)}},
        {"slot again", {slot_again, slot_again, dim3(256)}},
        {"row over column", {row_over_column, row_over_column, dim3(128)}},
        {"four call it", {four_call_it, four_call_it, dim3(64)}},
        {"scans", {scans, scans_by_registers, dim3(64)}},
        {"scans by one wave", {nullptr, scans, dim3(wave)}},
        {"tile over tile", {tile_over_tile, tile_over_tile, dim3(256)}},
    };
    const std::string wanted = arguments > 1 ? words[1] : "";
    const bool is_clean      = wanted.starts_with("clean: ");
    const auto found         = cases.find(is_clean ? wanted.substr(7) : wanted);
    if (found == cases.end()) {
        for (const auto & [name, one] : cases) {
            if (one.run != nullptr) {
                std::printf("%s\n", name.c_str());
            }
            std::printf("clean: %s\n", name.c_str());
        }
        return arguments > 1;
    }
    float *to = nullptr, *from = nullptr;
    (void) hipMalloc(&to, count * sizeof(float));
    (void) hipMalloc(&from, count * sizeof(float));
    std::vector<float> numbers(count);
    for (int n = 0; n < count; ++n) {
        numbers[size_t(n)] = float(n * 7 % 100) / 100.0f + 0.25f;
    }
    (void) hipMemcpy(from, numbers.data(), count * sizeof(float), hipMemcpyHostToDevice);
    (is_clean ? found->second.mended : found->second.run)<<<1, found->second.block>>>(to, from, is_clean);
    const hipError_t error = hipDeviceSynchronize();
    if (error != hipSuccess) {
        std::printf("%s\n", hipGetErrorString(error));
        return 1;
    }
    return 0;
}
