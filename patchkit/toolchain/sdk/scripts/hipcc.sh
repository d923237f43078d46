#!/bin/sh
# hipcc of a patchkit SDK: compiles and links HIP programs without ROCm. Its arguments are clang's.
#
# As with AMD's, a file that ends like C++, CUDA or HIP is HIP unless -x says otherwise, and -O3 is the default.

self=$0
while [ -L "$self" ]; do
    link=$(readlink "$self")
    case $link in
        /*) self=$link ;;
        *) self=$(dirname -- "$self")/$link ;;
    esac
done
prefix=$(CDPATH= cd -- "$(dirname -- "$self")/.." && pwd) || exit 1

names_language=no names_arch=no
for argument do
    case $argument in
        -x*) names_language=yes ;;
        --offload-arch=* | --cuda-gpu-arch=* | --cuda-host-only | --offload-host-only) names_arch=yes ;;
        --version) echo "HIP version: @HIP_VERSION@" ;;
    esac
done

# Before a file that is HIP comes -x hip, before the next that is not -x none. Behind -- nothing is an option, and all
# files are HIP.
language=none is_value=no is_behind=no has_hip=no
for argument do
    shift
    kind=file
    if [ $is_value = yes ]; then
        kind=value
        is_value=no
    elif [ $is_behind = no ]; then
        case $argument in
            --) kind=option is_behind=yes ;;
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

if [ $has_hip = yes ] && [ $names_arch = no ]; then
    echo "hipcc: no --offload-arch is given; clang takes gfx906 for granted" >&2
fi

exec @CLANG@ --start-no-unused-arguments \
    --rocm-path="$prefix/usr" --hip-path="$prefix/usr" --rocm-device-lib-path=@DEVICE_LIBS@ \
    -O3 -D__HIP_PLATFORM_AMD__ -D__HIP_ROCclr__=1 -isystem "$prefix/usr/include" @WAVE_SIZE@ \
    --hip-link -L"$prefix/usr/lib" -fuse-ld=lld --rtlib=compiler-rt -unwindlib=libgcc \
    --end-no-unused-arguments "$@"
