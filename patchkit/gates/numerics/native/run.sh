#!/bin/sh
# Builds and runs a bundle of 'patchkit numerics build'. Made by patchkit; needs an NVIDIA GPU, nvcc, a C++
# compiler, ninja and the usual tools, but not patchkit itself:
#
#   sh run.sh [build|run|all]        results go to the folder 'results' beside this file
#
# Variables: NVCC, CC, CXX, NINJA, CUDA_ARCH (sm_90; default: the GPU's), CUDA_FLAGS (-I and -L of a CUDA that
# nvcc does not find itself), CPU_FLAGS, JOBS (compilers at once), LANES (programs at once).
# Ends with 0 when everything was built and every job was run to some end; what the jobs found is for
# 'patchkit numerics judge' to say. 3: nvcc is missing, 4: no GPU, 5: the build failed, 6: the disk refused.
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 6
cd "$here" || exit 6
what=${1:-all}
mkdir -p results o || exit 6

say() { echo "run.sh: $*" >&2; }

find_nvcc() {
    for one in "${NVCC:-}" "${CUDA_HOME:-/nonexistent}/bin/nvcc" nvcc /usr/local/cuda/bin/nvcc; do
        if [ -n "$one" ] && command -v "$one" >/dev/null 2>&1; then command -v "$one"; return; fi
    done
}

build() {
    "${NINJA:-ninja}" -j "${JOBS:-$(nproc)}" >> results/build.log 2>&1
    status=$?
    if [ $status -ne 0 ]; then tail -n 40 results/build.log >&2; say "the build failed"; exit 5; fi
}

if [ "$what" = build ] || [ "$what" = all ]; then
    nvcc=$(find_nvcc)
    if [ -z "$nvcc" ]; then say "no nvcc: set NVCC or CUDA_HOME"; exit 3; fi
    "$nvcc" --version > results/nvcc.txt 2>&1 || exit 3
    arch=${CUDA_ARCH:-}
    if [ -z "$arch" ]; then
        cap=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d '. ')
        if [ -z "$cap" ]; then say "no NVIDIA GPU here: set CUDA_ARCH, as in CUDA_ARCH=sm_90"; exit 4; fi
        arch=sm_$cap
    fi
    number=${arch#sm_}
    cpu=${CPU_FLAGS:-}
    if [ -z "$cpu" ] && [ "$(uname -m)" = x86_64 ]; then cpu="-march=x86-64-v3"; fi
    {
        echo "nvcc = $nvcc"
        echo "cc = ${CC:-cc}"
        echo "cxx = ${CXX:-c++}"
        echo "cuda_arch = -gencode=arch=compute_$number,code=sm_$number"
        echo "cuda_flags = ${CUDA_FLAGS:-}"
        echo "cpu_flags = $cpu"
    } > .settings.partial || exit 6
    if ! cmp -s .settings.partial settings.ninja; then mv .settings.partial settings.ninja || exit 6; fi
    : > results/build.log || exit 6
    : > results/objects.txt || exit 6
    build
    # nvcc 13.0 now and then makes another object of the same source: 4 of 16 builds of one unit, none of the ten
    # others (2026-11-21). So units whose objects differ are built again, both sides; every object's sum is kept.
    try=1
    while [ -d equal ]; do
        (cd equal && find baseline candidate -name '*.o' | LC_ALL=C sort | xargs sha256sum) > .sums || exit 6
        cat .sums >> results/objects.txt || exit 6
        differing=$(awk '{ name = $2; sub(/^[^\/]*\//, "", name); if (name in sum && sum[name] != $1) print name; sum[name] = $1 }' .sums)
        if [ -z "$differing" ] || [ $try -ge 4 ]; then break; fi
        say "built again, because the two objects differ:" $differing
        for name in $differing; do rm -f "equal/baseline/$name" "equal/candidate/$name"; done
        build
        try=$((try + 1))
    done
    sha256sum bin/* > results/programs.txt || exit 6
fi

if [ "$what" = run ] || [ "$what" = all ]; then
    if ! nvidia-smi --query-gpu=name,driver_version,compute_cap --format=csv,noheader > results/gpu.csv 2>&1; then
        say "nvidia-smi does not answer: no NVIDIA GPU here"; exit 4
    fi
    # Nothing of an earlier run may stand for this one.
    rm -f results/*.status results/*.out results/*.err results/gpu-after.csv
    cores=$(nproc)
    lanes=${LANES:-$(( (cores + 1) / 2 ))}
    # A line of jobs.txt: name, seconds, command. Those of jobs-alone.txt are timed, one at a time.
    xargs -P "$lanes" -L 1 --process-slot-var=SLOT sh job.sh < jobs.txt
    if [ -f jobs-alone.txt ]; then SLOT='' xargs -P 1 -L 1 sh job.sh < jobs-alone.txt; fi
    nvidia-smi --query-gpu=name,driver_version,compute_cap --format=csv,noheader > results/gpu-after.csv 2>&1
    for name in $(cut -d ' ' -f 1 jobs.txt; [ -f jobs-alone.txt ] && cut -d ' ' -f 1 jobs-alone.txt); do
        if [ ! -s "results/$name.status" ]; then say "job $name left no status: no space left?"; exit 6; fi
    done
fi
exit 0
