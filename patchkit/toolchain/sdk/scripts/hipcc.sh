#!/bin/sh
# hipcc of a patchkit SDK: compiles and links HIP programs without ROCm. It takes clang's arguments.
#
# As in AMD's hipcc, C++, CUDA and HIP files are compiled as HIP unless -x is given, and -O3 is the default;
# --genco generates only device code, and without --offload-arch the code is for the GPU of this machine.

self=$0
while [ -L "$self" ]; do
    link=$(readlink "$self")
    case $link in
        /*) self=$link ;;
        *) self=$(dirname -- "$self")/$link ;;
    esac
done
prefix=$(CDPATH= cd -- "$(dirname -- "$self")/.." && pwd) || exit 1

names_language=no names_arch=no has_hip=no has_openmp=no last=
lazy= # clang counts a linker option as an input, so it is only set if there is an input file
for argument do
    case $argument in
        -xhip | -xcuda) names_language=yes has_hip=yes ;;
        -x*) names_language=yes ;;
        hip | cuda) [ "$last" != -x ] || has_hip=yes ;;
        --offload-arch | --offload-arch=* | --cuda-gpu-arch=* | --cuda-host-only | --offload-host-only)
            names_arch=yes
            ;;
        -fopenmp | -fopenmp=libomp) has_openmp=yes ;;
        -fno-openmp) has_openmp=no ;;
        --version) echo "HIP version: @HIP_VERSION@" ;;
    esac
    last=$argument
done

# Add -x hip before HIP files, and -x none before the next other file. After -- there are no options, and all files are
# HIP.
language=none is_value=no is_behind=no
for argument do
    shift
    kind=file
    if [ $is_value = yes ]; then
        kind=value
        is_value=no
    elif [ $is_behind = no ]; then
        case $argument in
            --) kind=option is_behind=yes ;;
            --genco) kind=option argument=--cuda-device-only ;;
            -[ABDFGILTUbelouxz] | -M[FJQT] | -X* | -mllvm | -mmlir | \
                -include | -include-pch | -imacros | -isystem | -isystem-after | -iquote | -idirafter | \
                -isysroot | -iprefix | -iwithprefix | -iwithprefixbefore | -iwithsysroot | -ivfsoverlay | \
                -iframework | -cxx-isystem | -stdlib++-isystem | --sysroot | --param | -target | -arch | \
                -rpath | -resource-dir | -working-directory | -dumpdir | -dependency-file | \
                -dependency-dot | -serialize-diagnostics | --serialize-diagnostics | -gen-cdb-fragment-path)
                kind=option is_value=yes
                ;;
            -?*) kind=option ;;
        esac
    fi
    if [ $kind = file ]; then
        lazy=-Wl,-z,lazy
        case $argument in
            *.hip | *.cu | *.cpp | *.cc | *.cxx | *.c++ | *.cp | *.C | *.CPP) wanted=hip ;;
            *.c) wanted=c ;;
            *) wanted=none ;;
        esac
        if [ $names_language = no ] && [ $is_behind = no ] && [ $wanted != $language ]; then
            language=$wanted
            set -- "$@" -x $language
        fi
        [ $names_language$wanted != nohip ] || has_hip=yes
    elif [ $is_behind = yes ] && [ $names_language = no ] && [ $kind = option ]; then
        set -- "$@" -x hip
    fi
    set -- "$@" "$argument"
done

# The GPUs of this machine, as its driver names them: 110501 is gfx1151, 90010 gfx90a.
find_gpus() {
    cat /sys/class/kfd/kfd/topology/nodes/*/properties 2>/dev/null |
        while read -r name value; do
            if [ "$name" = gfx_target_version ] && [ "$value" -gt 0 ]; then
                printf 'gfx%d%x%x\n' $((value / 10000)) $((value / 100 % 100)) $((value % 100))
            fi
        done | sort -u
}

if [ $has_hip = yes ] && [ $names_arch = no ]; then
    archs=$(echo "${HCC_AMDGPU_TARGET:-}" | tr ',' ' ') why="from HCC_AMDGPU_TARGET"
    if [ -z "$archs" ]; then
        archs=$(find_gpus) why="the GPU of this machine"
    fi
    if [ -z "$archs" ]; then
        archs=@ARCH@ why="the default, as this machine has no GPU"
    fi
    for arch in $archs; do
        set -- "--offload-arch=$arch" "$@"
    done
    echo "hipcc: no --offload-arch given; compiling for" $archs "($why)" >&2
fi

if [ $has_openmp = yes ]; then
    openmp=$(@CLANG@ -print-file-name=libomp.so)
    case $openmp in
        /*) ;;
        *)
            echo "hipcc: -fopenmp requires LLVM's OpenMP library, which this SDK's compiler does not have;" \
                "run patchkit sdk install --again, or install libomp-dev of the compiler's version" >&2
            exit 1
            ;;
    esac
    openmp=$(dirname -- "$openmp")
    set -- --start-no-unused-arguments -L"$openmp" "-Wl,-rpath,$openmp" --end-no-unused-arguments "$@"
fi

exec @CLANG@ --start-no-unused-arguments \
    --rocm-path="$prefix/usr" --hip-path="$prefix/usr" --rocm-device-lib-path=@DEVICE_LIBS@ \
    -O3 -D__HIP_PLATFORM_AMD__ -D__HIP_ROCclr__=1 -isystem "$prefix/usr/include" @WAVE_SIZE@ \
    --hip-link -L"$prefix/usr/lib" -fuse-ld=lld $lazy --rtlib=compiler-rt -unwindlib=libgcc \
    --end-no-unused-arguments "$@"
