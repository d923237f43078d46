"""A GGUF file of a language model with a few small tensors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest


@pytest.fixture
def write_model(tmp_path: Path) -> Callable[..., Path]:
    """``write_model(arch=..., key=value...)`` writes a model with ``key`` below the architecture's name."""

    def write(arch: str = "llama", name: str = "m.gguf", **fields: object) -> Path:
        path = tmp_path / name
        writer = gguf.GGUFWriter(path, arch)
        usual = {"block_count": 4, "embedding_length": 64, "attention.head_count": 4}
        for key, value in {**usual, **{k.replace("__", "."): v for k, v in fields.items()}}.items():
            if isinstance(value, list):
                writer.add_array(f"{arch}.{key}", value)
            elif isinstance(value, str):
                writer.add_string(f"{arch}.{key}", value)
            elif value is not None:
                writer.add_uint32(f"{arch}.{key}", value)
        writer.add_tensor("token_embd.weight", np.zeros((32, 64), dtype=np.float16))
        for layer in range(4):
            writer.add_tensor(f"blk.{layer}.attn_q.weight", np.zeros((64, 64), dtype=np.float16))
            writer.add_tensor(f"blk.{layer}.ffn_up.weight", np.zeros((64, 64), dtype=np.float16))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return write
