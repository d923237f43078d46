"""Create a folder that patchkit uses as a ROCm whose device code comes from AMD's own LLVM.

    python benchmarks/amd_as_rocm.py FOLDER --version 7.2.1 --llvm LIBRARY --front zig --device-libs DIR
    ROCM_PATH=FOLDER patchkit model --arch gfx1151 --shape FILE.toml --timeline

Every command of patchkit accepts the folder as a ROCm. The clang of --front compiles device code to bitcode
(a `zig` of the package ziglang that is no newer than the LLVM, see amd_backend.py; default: the SDK's clang).
The library optimises it and writes assembly, which the SDK's clang assembles. Host code is compiled by the
SDK. Debug directives and the size of instruction prefetch are removed from the assembly, because the SDK's
assembler does not know them.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

from amd_backend import emit, kernel_fields

from patchkit.base.reporter import NullReporter
from patchkit.base.workspace import default_cache_root
from patchkit.toolchain.hip import find_toolchain
from patchkit.toolchain.remarks import REMARK_FLAG

_EMIT = "--emit"
_UNKNOWN = re.compile(r"^\s*\.(?:amdhsa_inst_pref_size|cfi_).*\n", re.MULTILINE)
# Names in clang's remarks, and the fields of the kernel's metadata in the assembly.
_REMARKS = {
    "TotalSGPRs": "sgpr_count",
    "VGPRs": "vgpr_count",
    "ScratchSize [bytes/lane]": "private_segment_fixed_size",
    "SGPRs Spill": "sgpr_spill_count",
    "VGPRs Spill": "vgpr_spill_count",
    "LDS Size [bytes/block]": "group_segment_fixed_size",
}
_CLANG = """\
#!/bin/bash
sdk={sdk} front={front}
if [ "$1" = -cc1 ]; then
    words=("$@") ir= out= gpu= is_amd= is_text=
    for ((i = 0; i < ${{#words[@]}}; i++)); do
        case ${{words[i]}} in
            -x) [ "${{words[i + 1]}}" != ir ] || ir=${{words[i + 2]}} ;;
            -o) out=${{words[i + 1]}} ;;
            -target-cpu) gpu=${{words[i + 1]}} ;;
            -triple) [[ ${{words[i + 1]}} != amdgcn* ]] || is_amd=1 ;;
            -S) is_text=1 ;;
        esac
    done
    if [ -n "$ir" ] && [ -n "$is_text" ] && [ -n "$is_amd" ]; then
        LD_LIBRARY_PATH={libraries} exec {python} {script} {emit} {llvm} "$gpu" "$ir" "$out"
    fi
    [ -z "$is_amd" ] || [ -z "$front" ] || exec "$front" "$@"
fi
case " $* " in
    *" -### "*--cuda-device-only*|*--cuda-device-only*" -### "*)
        driver=(clang --driver-mode=g++ --target=x86_64-linux-gnu -resource-dir {resources})
        [ -z "$front" ] || exec "$front" "${{driver[@]}}" "$@" ;;
esac
exec "$sdk" "$@"
"""


def main() -> None:
    """Create the folder."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--version", required=True)
    parser.add_argument("--llvm", required=True, type=Path)
    parser.add_argument("--front", type=Path, help="a zig, used as clang")
    parser.add_argument("--device-libs", type=Path)
    parser.add_argument("--libraries", type=Path, help="folder of libraries that the LLVM needs (ROCm 10.0)")
    options = parser.parse_args()
    chain = find_toolchain(default_cache_root(), {}, NullReporter())
    home = chain.clang.resolve().parent.parent
    asked = [str(chain.clang), "-print-resource-dir"]
    resources = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    folder: Path = options.folder.resolve()
    links = {
        "include": chain.root / "include",
        "share": chain.root / "share",
        "amdgcn/bitcode": options.device_libs.resolve() if options.device_libs else chain.device_libs,
        "lib/llvm/compiler": home / "compiler",  # with the libLLVM that decodes machine code
    }
    for name, target in links.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(target, target_is_directory=True)
    (folder / ".info").mkdir()
    (folder / ".info" / "version").write_text(f"{options.version}\n")
    libraries = [*(home / "compiler" / "usr" / "lib").glob("*-linux-gnu")]
    if options.libraries:
        libraries.append(options.libraries)
    clang = folder / "lib" / "llvm" / "bin" / "clang++"
    clang.parent.mkdir()
    clang.write_text(
        _CLANG.format(
            sdk=chain.clang,
            front=options.front.resolve() if options.front else "",
            libraries=":".join(str(path.resolve()) for path in libraries),
            python=sys.executable,
            script=Path(__file__).resolve(),
            emit=_EMIT,
            llvm=options.llvm.resolve(),
            resources=resources,
        )
    )
    clang.chmod(0o755)
    print(f"ROCM_PATH={folder}")


def _emit(library: str, arch: str, source: str, out: str) -> None:
    """Write the assembly, and print the remarks that clang prints for each kernel."""
    emit(library, arch, source, out)
    text = Path(out).read_text("utf-8")
    for fields in kernel_fields(text):
        name = fields["name"]
        waves = re.search(r"^; Occupancy: (\d+)$", text[text.find(f"\n{name}:") :], re.MULTILINE)
        remarks = {"Function Name": name, **{field: fields[key] for field, key in _REMARKS.items()}}
        remarks["Occupancy [waves/SIMD]"] = waves[1] if waves else "0"
        for field, value in remarks.items():
            print(f"remark: <unknown>:0:0: {field}: {value} [{REMARK_FLAG}]", file=sys.stderr)
    Path(out).write_text(_UNKNOWN.sub("", text), "utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == [_EMIT]:
        _emit(*sys.argv[2:])
    else:
        main()
