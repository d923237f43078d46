"""Write a model of the layout SDXS-512 with random weights, to run stable-diffusion.cpp's sd-cli with.

    python benchmarks/tiny_diffusion.py FILE.safetensors

It has the fewest tensors of the Stable Diffusion layouts that sd-cli knows: CLIP-L, a U-Net of three levels
without a middle block, and a tiny decoder. sd-cli fixes the widths, so the file has 880 MB.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

_TEXT, _TOKENS, _LAYERS, _VOCABULARY = 768, 77, 12, 49408
_WIDTH, _STEP, _LEVELS = (
    320,
    1280,
    (1, 2, 4),
)  # of the U-Net: channels, time embedding, factors of the channels
_DECODER, _LATENT = 64, 4
# Levels of the U-Net with attention; the tensor output_blocks.7.1 would make it another layout.
_HAVE_ATTENTION = (1, 2)

Shapes = Iterator[tuple[str, tuple[int, ...]]]


def _linear(name: str, width: int, height: int, *kernel: int) -> Shapes:
    yield f"{name}.weight", (height, width, *kernel)
    yield f"{name}.bias", (height,)


def _norm(name: str, width: int) -> Shapes:
    yield f"{name}.weight", (width,)
    yield f"{name}.bias", (width,)


def _text() -> Shapes:
    model = "cond_stage_model.transformer.text_model"
    yield f"{model}.embeddings.token_embedding.weight", (_VOCABULARY, _TEXT)
    yield f"{model}.embeddings.position_embedding.weight", (_TOKENS, _TEXT)
    for layer in range(_LAYERS):
        name = f"{model}.encoder.layers.{layer}"
        for part in "qkv":
            yield from _linear(f"{name}.self_attn.{part}_proj", _TEXT, _TEXT)
        yield from _linear(f"{name}.self_attn.out_proj", _TEXT, _TEXT)
        yield from _norm(f"{name}.layer_norm1", _TEXT)
        yield from _norm(f"{name}.layer_norm2", _TEXT)
        yield from _linear(f"{name}.mlp.fc1", _TEXT, 4 * _TEXT)
        yield from _linear(f"{name}.mlp.fc2", 4 * _TEXT, _TEXT)
    yield from _norm(f"{model}.final_layer_norm", _TEXT)


def _residual(name: str, width: int, height: int) -> Shapes:
    yield from _norm(f"{name}.in_layers.0", width)
    yield from _linear(f"{name}.in_layers.2", width, height, 3, 3)
    yield from _linear(f"{name}.emb_layers.1", _STEP, height)
    yield from _norm(f"{name}.out_layers.0", height)
    yield from _linear(f"{name}.out_layers.3", height, height, 3, 3)
    if width != height:
        yield from _linear(f"{name}.skip_connection", width, height, 1, 1)


def _attention(name: str, width: int) -> Shapes:
    block = f"{name}.transformer_blocks.0"
    yield from _norm(f"{name}.norm", width)
    yield from _linear(f"{name}.proj_in", width, width, 1, 1)
    for part, source in (("attn1", width), ("attn2", _TEXT)):
        yield f"{block}.{part}.to_q.weight", (width, width)
        yield f"{block}.{part}.to_k.weight", (width, source)
        yield f"{block}.{part}.to_v.weight", (width, source)
        yield from _linear(f"{block}.{part}.to_out.0", width, width)
    yield from _linear(f"{block}.ff.net.0.proj", width, 8 * width)
    yield from _linear(f"{block}.ff.net.2", 4 * width, width)
    for norm in ("norm1", "norm2", "norm3"):
        yield from _norm(f"{block}.{norm}", width)
    yield from _linear(f"{name}.proj_out", width, width, 1, 1)


def _unet() -> Shapes:
    model = "model.diffusion_model"
    yield from _linear(f"{model}.time_embed.0", _WIDTH, _STEP)
    yield from _linear(f"{model}.time_embed.2", _STEP, _STEP)
    yield from _linear(f"{model}.input_blocks.0.0", _LATENT, _WIDTH, 3, 3)
    width, kept = _WIDTH, [_WIDTH]
    for level, factor in enumerate(_LEVELS):
        name = f"{model}.input_blocks.{1 + 3 * level}"
        yield from _residual(f"{name}.0", width, factor * _WIDTH)
        width = factor * _WIDTH
        kept.append(width)
        if level in _HAVE_ATTENTION:
            yield from _attention(f"{name}.1", width)
        if level + 1 < len(_LEVELS):
            yield from _linear(f"{model}.input_blocks.{3 + 3 * level}.0.op", width, width, 3, 3)
            kept.append(width)
    block = 0
    for level in reversed(range(len(_LEVELS))):
        for last in (False, True):
            name = f"{model}.output_blocks.{block}"
            yield from _residual(f"{name}.0", width + kept.pop(), _LEVELS[level] * _WIDTH)
            width = _LEVELS[level] * _WIDTH
            if level in _HAVE_ATTENTION:
                yield from _attention(f"{name}.1", width)
            if last and level:
                block += 1
                place = 1 if block == 2 else 2  # noqa: PLR2004 - as sd-cli has it
                yield from _linear(f"{model}.output_blocks.{block}.{place}.conv", width, width, 3, 3)
            block += 1
    yield from _norm(f"{model}.out.0", _WIDTH)
    yield from _linear(f"{model}.out.2", _WIDTH, _LATENT, 3, 3)


def _decoder() -> Shapes:
    layer = "tae.decoder.layers"
    blocks = (2, 3, 4, 7, 8, 9, 12, 13, 14, 17)
    yield from _linear(f"{layer}.0", _LATENT, _DECODER, 3, 3)
    for block in blocks:
        for part in (0, 2, 4):
            yield from _linear(f"{layer}.{block}.conv.{part}", _DECODER, _DECODER, 3, 3)
    for after_upscale in (6, 11, 16):
        yield f"{layer}.{after_upscale}.weight", (_DECODER, _DECODER, 3, 3)
    yield from _linear(f"{layer}.18", _DECODER, 3, 3, 3)


def write_model(path: Path) -> None:
    """Weights of variance 1 / inputs in f16; norms and biases near 1 and 0 in f32."""
    shapes = [*_text(), *_unet(), *_decoder()]
    header: dict[str, object] = {}
    offset = 0
    for name, shape in shapes:
        size = int(np.prod(shape)) * (2 if len(shape) > 1 else 4)
        kind = "F16" if len(shape) > 1 else "F32"
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    random = np.random.default_rng(1)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, shape in shapes:
            values = random.standard_normal(shape, dtype=np.float32)
            if len(shape) > 1:
                file.write((values / np.prod(shape[1:]) ** 0.5).astype("<f2").tobytes())
            else:
                file.write((0.1 * values + name.endswith(".weight")).astype("<f4").tobytes())


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    write_model(parser.parse_args().file)


if __name__ == "__main__":
    main()
