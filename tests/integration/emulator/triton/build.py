"""Compiles kernels.py into kernels.zip: NAME-GFX.hsaco, and launches.json with what a launch needs to know.

By hand, as Triton takes 1 GB: ``pip install triton==3.9.0`` and ``python build.py`` in this folder. Without
line tables, so that no path of a machine is in the code.
"""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path

os.environ["TRITON_DISABLE_LINE_INFO"] = "1"
os.environ["TRITON_DEFAULT_FP_FUSION"] = "1"

import kernels
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

HERE = Path(__file__).parent
ARCHS = ("gfx1100", "gfx1151", "gfx1201")
# By kernel: types of its arguments, and values of those that are known when it is compiled.
KERNELS = {
    "vector_add": (dict.fromkeys(("left", "right", "total"), "*fp32") | {"count": "i32"}, {"block": 256}),
    "softmax": (dict.fromkeys(("values", "shares"), "*fp32") | {"columns": "i32"}, {"block": 1024}),
    "matmul": (
        dict.fromkeys(("left", "right", "product"), "*fp16")
        | dict.fromkeys(("rows", "columns", "depth"), "i32"),
        {"tile": 64, "step": 32},
    ),
    "attention": (
        dict.fromkeys(("queries", "keys", "values", "result"), "*fp16") | {"tokens": "i32", "scale": "fp32"},
        {"size": 64, "tile": 32},
    ),
    "histogram": ({"values": "*i32", "counts": "*i32", "count": "i32"}, {"block": 256}),
}


def main() -> None:
    launches = {}
    with zipfile.ZipFile(HERE / "kernels.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as made:

        def add(name: str, content: bytes) -> None:
            made.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)  # of 1980, on any day

        for name, (types, constants) in KERNELS.items():
            function = getattr(kernels, name)
            source = ASTSource(
                fn=function,
                signature=types | dict.fromkeys(constants, "constexpr"),
                constexprs={(function.arg_names.index(key),): value for key, value in constants.items()},
            )
            for arch in ARCHS:
                done = triton.compile(source, target=GPUTarget("hip", arch, 32), options={"num_warps": 4})
                add(f"{name}-{arch}.hsaco", done.asm["hsaco"])
                launches[f"{name}-{arch}"] = {
                    "kernel": done.metadata.name,
                    "threads": 32 * done.metadata.num_warps,
                    "lds": done.metadata.shared,
                }
        add("launches.json", json.dumps(launches, indent=1).encode())


if __name__ == "__main__":
    main()
