"""The gguf package has the types of tensors that we read, and what it writes is read."""

from __future__ import annotations

import gguf
import numpy as np

from patchkit.gpu.gguf import load_gguf, tensor_kinds


def test_the_types_that_models_have_are_known_by_number_and_name():
    kinds = {kind.name: (number, kind.block, kind.bytes) for number, kind in tensor_kinds().items()}
    wanted = {"F16": (1, 1, 2), "Q4_K": (12, 256, 144), "Q8_0": (8, 32, 34), "MXFP4": (39, 32, 17)}
    assert wanted.items() <= kinds.items()
    assert len(kinds) >= 30


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
