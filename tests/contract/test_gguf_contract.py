"""The table of tensor types is that of the gguf package, and what the package writes is read."""

from __future__ import annotations

import gguf
import numpy as np

from patchkit.base.gguf import KINDS, load_gguf


def test_types_have_the_sizes_of_the_package():
    theirs = {int(kind): (kind.name, *sizes) for kind, sizes in gguf.GGML_QUANT_SIZES.items()}
    assert KINDS
    for number, kind in KINDS.items():
        assert theirs.get(number, ("newer", 0, 0))[1:] in {(kind.block, kind.bytes), (0, 0)}
    assert sum(theirs.get(number, ("",))[0] == kind.name for number, kind in KINDS.items()) >= 30


def test_a_file_of_the_package_is_read(tmp_path):
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(3)
    writer.add_token_list(["a", "b"])
    writer.add_head_count_kv([1, 2, 3])
    writer.add_tensor("w", np.zeros((4, 32), dtype=np.float16))
    writer.add_tensor("v", np.zeros((2, 144), dtype=np.uint8), raw_dtype=gguf.GGMLQuantizationType.Q4_K)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    header = load_gguf(path)
    assert header.metadata["llama.block_count"] == 3
    assert header.metadata["llama.attention.head_count_kv"] == (1, 2, 3)
    assert [(t.name, t.shape, t.kind.name, t.bytes) for t in header.tensors] == [
        ("w", (32, 4), "F16", 256),
        ("v", (256, 2), "Q4_K", 288),
    ]
